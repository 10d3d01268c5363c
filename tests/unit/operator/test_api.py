from copy import deepcopy
from datetime import timedelta

import pytest

from frontier_operator.api.v1alpha1 import (
    FailureStatus,
    InferenceDeploymentSpec,
    Policy,
    TuningTrialSpec,
    TuningTrialStatus,
    parse,
)

SPEC = {"model": {"variants": [{"name": "bf16", "source": "hf://org/name"}]}, "engine": {"image": "engine:1"}}


def make_body(name="chat", **over):
    return {"metadata": {"name": name}, "spec": {**deepcopy(SPEC), **over}}


def with_args(*args):
    return make_body(engine={"image": "engine:1", "args": list(args)})


def with_pod(spec):
    return make_body(engine={"image": "engine:1", "podTemplate": {"spec": spec}})


def problems(body, policy=None):
    found = parse(body, policy)
    assert isinstance(found, list), "accepted"
    return {problem.path: problem for problem in found}


def test_a_good_object_gives_its_spec_with_defaults():
    spec = parse(make_body())
    assert isinstance(spec, InferenceDeploymentSpec)
    assert spec.rollout.mode == "Automatic"
    assert spec.rollout.canary.steps == (5, 25, 50)
    assert spec.rollout.canary.analysis_deadline == timedelta(minutes=45)
    assert spec.retune.cooldown == timedelta(hours=24)


def test_an_empty_gateway_is_no_gateway():
    spec = parse(make_body(rollout={"canary": {"gatewayRef": None}}))
    assert isinstance(spec, InferenceDeploymentSpec)
    assert spec.rollout.canary.gateway_ref is None


def test_an_object_without_a_spec_is_told_so():
    assert str(problems({"metadata": {"name": "x"}})["spec"]) == "spec: is required"


def test_a_name_leaves_room_for_derived_names():
    assert "40" in problems(make_body(name="n" * 41))["metadata.name"].message


@pytest.mark.parametrize(
    "argument",
    [
        "--trust-remote-code",
        "--trust_remote_code",
        "--trust-remote",
        "--middleware=x.y",
        "--middleware",
        "--api-key=abc",
        "--config=/etc/passwd",
        "--tool-parser-plugin",
        "--worker-extension-cls=a.B",
    ],
)
def test_a_dangerous_argument_is_refused_by_name(argument):
    found = problems(with_args("--seed=1", argument, "value"))["spec.engine.args[1]"]
    assert "is refused" in found.message
    assert found.value == argument


def test_the_administrator_may_allow_an_argument():
    policy = Policy(allowed_arguments=frozenset({"--trust-remote-code"}))
    assert isinstance(parse(with_args("--trust-remote-code"), policy), InferenceDeploymentSpec)


@pytest.mark.parametrize(
    ("argument", "want_words"),
    [
        ("--max-num-seqs=64", "search.parameters: [{name: maxNumSeqs, value: …}]"),
        ("--max_num_seqs", "maxNumSeqs"),
        ("-tp=2", "tensorParallelSize"),
        ("--no-enable-prefix-caching", "enablePrefixCaching"),
        ("--speculative-config.method=ngram", "numSpeculativeTokens"),
        ("--model=other", "set model.variants instead"),
        ("--port", "set by the operator; remove it"),
    ],
)
def test_an_argument_that_is_set_elsewhere_names_the_place(argument, want_words):
    assert want_words in problems(with_args(argument))["spec.engine.args[0]"].message


@pytest.mark.parametrize("argument", ["--max-model-len=4096", "--reasoning-parser=qwen3", "--seed", "7", "--"])
def test_a_harmless_argument_passes(argument):
    assert isinstance(parse(with_args(argument)), InferenceDeploymentSpec)


@pytest.mark.parametrize(
    ("pod", "want_path"),
    [
        ({"serviceAccountName": "cluster-admin-sa"}, "serviceAccountName"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"nodeName": "control-plane"}, "nodeName"),
        ({"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}, "volumes[0].hostPath"),
        (
            {"containers": [{"name": "engine", "securityContext": {"privileged": True}}]},
            "containers[0].securityContext.privileged",
        ),
        (
            {"initContainers": [{"name": "x", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
            "initContainers[0].securityContext.capabilities.add",
        ),
        ({"containers": [{"name": "engine", "args": ["--x"]}]}, "containers[0].args"),
        ({"containers": [{"name": "x", "ports": [{"hostPort": 80}]}]}, "containers[0].ports[0].hostPort"),
        ({"containers": [{"name": "engine", "$patch": "delete"}]}, "containers[0].$patch"),
        (
            {"containers": [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": 8}}}]},
            "containers[0].resources.limits.nvidia.com/gpu",
        ),
        ({"containers": None}, "containers"),
    ],
)
def test_a_pod_template_cannot_borrow_rights(pod, want_path):
    assert f"spec.engine.podTemplate.spec.{want_path}" in problems(with_pod(pod))


@pytest.mark.parametrize(
    "template", [{"hostNetwork": True}, {"metadata": {"labels": {}}}, {"spec": "x"}, {"spec": None}]
)
def test_a_pod_template_has_a_spec_and_nothing_else(template):
    assert problems(make_body(engine={"image": "engine:1", "podTemplate": template}))


def test_the_administrator_may_allow_accounts_and_privileges():
    policy = Policy(allowed_service_accounts=frozenset({"engines"}), allow_privileged=True)
    pod = {"serviceAccountName": "engines", "hostIPC": True, "tolerations": [{"operator": "Exists"}]}
    assert isinstance(parse(with_pod(pod), policy), InferenceDeploymentSpec)


def test_problems_of_policy_and_of_fields_come_together():
    body = make_body(
        name="n" * 41,
        engine={"image": "x", "args": ["--api-key=abc"], "podTemplate": {"spec": {"hostPID": True}}},
        target={"policy": "AtUserSpeed"},
        rollout={"canary": {"steps": [50, 5]}},
        workload={"trace": {"path": "/trace.csv"}},
    )
    assert set(problems(body)) == {
        "metadata.name",
        "spec.engine.args[0]",
        "spec.engine.podTemplate.spec.hostPID",
        "spec.rollout.canary.steps",
        "spec.target.userTokensPerSecond",
        "spec.workload.trace.path",
    }


@pytest.mark.parametrize("engine", [None, "vllm", {"args": "x", "podTemplate": 3}, {"image": "x", "args": [1, None]}])
def test_any_content_gives_problems_and_no_crash(engine):
    assert problems(make_body(engine=engine))


def test_a_trial_spec_dumps_to_what_it_was():
    trial = {
        "deploymentName": "chat",
        "fingerprint": "abc",
        "number": 0,
        "purpose": "Baseline",
        "configuration": {"maxNumSeqs": "64"},
        "configurationHash": "0123456789",
        "gpus": 1,
        "mode": "Synthetic",
        "ladder": {"kind": "Concurrency", "levels": ["1", "4"]},
        "reason": "the baseline",
        "expectedGain": "0.034",
        "command": ["--model", "org/name"],
        "image": "engine:1",
    }
    assert TuningTrialSpec.model_validate(trial).model_dump(mode="json", by_alias=True) == trial


def test_a_status_writes_only_what_is_known_and_reads_what_it_does_not_know():
    failure = FailureStatus(class_="Configuration", reason="EngineOutOfMemory", message="out of memory")
    status = TuningTrialStatus(outcome="Infeasible", failure=failure)
    dumped = status.dump()
    assert dumped["failure"] == {"class": "Configuration", "reason": "EngineOutOfMemory", "message": "out of memory"}
    assert "gpuSeconds" not in dumped
    assert TuningTrialStatus.model_validate({**dumped, "fromTheFuture": 1}) == status
