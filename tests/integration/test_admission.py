"""What the API server accepts and refuses, in the words that a user reads."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml

from frontier_operator.api.v1alpha1 import (
    InferenceDeploymentSpec,
    InferenceDeploymentStatus,
    TuningTrialStatus,
    parse,
)

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
NAMESPACE = "admission"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
VARIANT = {"name": "bf16", "source": "hf://org/name"}
PRICED = {"pricePerGPUHour": "3.50"}


@pytest.fixture(scope="module")
def api(control_plane, kubectl):
    """kubectl in a namespace of its own, on a server that has the CRDs."""
    kubectl(control_plane, "apply", "--server-side", "-f", str(ROOT / "crds"))
    kubectl(control_plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    kubectl(control_plane, "create", "namespace", NAMESPACE)

    def run(*arguments, **options):
        return kubectl(control_plane, "--namespace", NAMESPACE, *arguments, **options)

    return run


def make_deployment(name="chat", **over):
    spec = {"model": {"variants": [VARIANT]}, "engine": {"image": "engine:1"}, **over}
    return {
        "apiVersion": "frontier-operator.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name},
        "spec": copy.deepcopy(spec),
    }


def make_trial(name="chat-0", **over):
    spec = {
        "deploymentName": "chat",
        "fingerprint": "abc",
        "number": 0,
        "purpose": "Baseline",
        "configuration": {"variant": "bf16", "maxNumSeqs": "64"},
        "configurationHash": "0123456789",
        "gpus": 1,
        "ladder": {"kind": "Concurrency", "levels": ["1", "4"]},
        "reason": "the baseline",
        "command": ["--model", "org/name"],
        "image": "engine:1",
        **over,
    }
    return {
        "apiVersion": "frontier-operator.dev/v1alpha1",
        "kind": "TuningTrial",
        "metadata": {"name": name},
        "spec": spec,
    }


def with_slo(**slo):
    return make_deployment(objectives={"slos": [{"name": "a", **slo}]})


def with_parameter(**parameter):
    return make_deployment(search={"parameters": [{"name": "maxNumSeqs", **parameter}]})


REFUSED = {
    "no-variant": (
        make_deployment(model={"variants": []}),
        "variants: Invalid value: name at least one checkpoint, such as {name: bf16, source: hf://ORGANISATION/NAME}",
    ),
    "two-variants-of-one-name": (make_deployment(model={"variants": [VARIANT, VARIANT]}), "Duplicate value"),
    "a-source-from-nowhere": (
        make_deployment(model={"variants": [{"name": "a", "source": "s3://bucket"}]}),
        "spec.model.variants[0].source: Invalid value: must be hf://ORGANISATION/NAME or pvc://CLAIM/PATH",
    ),
    "no-engine": ({**make_deployment(), "spec": {"model": {"variants": [VARIANT]}}}, "spec.engine: Required value"),
    "an-unknown-engine": (make_deployment(engine={"image": "x", "type": "TGI"}), 'supported values: "VLLM"'),
    "a-token-in-plain-text": (
        make_deployment(engine={"image": "x", "env": [{"name": "HF_TOKEN", "value": "hf_x"}]}),
        "this variable is a secret: take it from a Secret with valueFrom.secretKeyRef",
    ),
    "no-kind-of-workload": (
        make_deployment(workload={"requestRate": "3"}),
        "spec.workload: Invalid value: give exactly one of profile, trace and fromMetrics",
    ),
    "two-kinds-of-workload": (
        make_deployment(workload={"profile": {}, "fromMetrics": {}}),
        "give exactly one of profile, trace and fromMetrics",
    ),
    "a-p95-below-the-mean": (
        make_deployment(workload={"profile": {"inputTokens": {"mean": 9, "p95": 3}}}),
        "p95 must be at least the mean",
    ),
    "a-negative-price": (
        make_deployment(hardware={"pricePerGPUHour": "-3.50"}),
        'spec.hardware.pricePerGPUHour: Invalid value: must be a decimal number above 0 in quotes, such as "0.60"',
    ),
    "a-price-without-quotes": (make_deployment(hardware={"pricePerGPUHour": 3.5}), "must be of type string"),
    "an-amount-of-memory-that-is-none": (
        make_deployment(hardware={"gpu": {"memory": "lots"}}),
        "must be an amount of memory, such as 80Gi or 141G",
    ),
    "a-bound-that-is-missing": (
        with_slo(metric="TTFT"),
        "slos[0]: Invalid value: give exactly one bound: max for a latency, min for UserTokensPerSecond",
    ),
    "two-bounds": (with_slo(metric="TTFT", max="2s", min="1"), "give exactly one bound"),
    "a-speed-bounded-above": (
        with_slo(metric="UserTokensPerSecond", max="2s"),
        'slos[0].max: Invalid value: UserTokensPerSecond is bounded below: write min, such as min: "40"',
    ),
    "a-latency-bounded-below": (
        with_slo(metric="ITL", min="40"),
        "spec.objectives.slos[0].min: Invalid value: a latency is bounded above: write max, such as max: 2s",
    ),
    "a-latency-without-a-unit": (
        with_slo(metric="ITL", max="30"),
        "spec.objectives.slos[0].max: Invalid value: must be a duration with a unit, such as 500ms, 30s, 2m or 1h30m",
    ),
    "a-percentile-of-100": (with_slo(metric="ITL", max="3s", percentile=100), "must be a percentile from 1 to 99"),
    "two-slos-of-one-name": (
        make_deployment(objectives={"slos": [{"name": "a", "metric": "TTFT", "max": "2s"}] * 2}),
        "spec.objectives.slos[1]: Duplicate value",
    ),
    "a-cost-without-a-price": (
        make_deployment(objectives={"cost": {"maxPerMillionOutputTokens": "1"}}),
        "objectives.cost needs hardware.pricePerGPUHour",
    ),
    "a-quality-without-an-evaluator": (
        make_deployment(objectives={"quality": {"minPercentOfReference": 98}}),
        "quality needs an evaluator, such as {name: kl, type: LogprobDivergence}",
    ),
    "an-unknown-policy": (make_deployment(target={"policy": "Cheapest"}), 'supported values: "MinCost", "MinLatency"'),
    "at-user-speed-without-a-speed": (
        make_deployment(target={"policy": "AtUserSpeed"}),
        'policy AtUserSpeed needs userTokensPerSecond, such as "80"',
    ),
    "at-cost-without-a-cost": (
        make_deployment(target={"policy": "AtCost"}, hardware=PRICED),
        'policy AtCost needs maxPerMillionOutputTokens, such as "0.60"',
    ),
    "a-speed-for-another-policy": (
        make_deployment(target={"policy": "Knee", "userTokensPerSecond": "80"}),
        "userTokensPerSecond has a meaning only with policy AtUserSpeed",
    ),
    "a-headroom-of-95": (make_deployment(target={"headroomPercent": 95}), "must be a percentage from 0 to 90"),
    "an-inverted-range": (with_parameter(min=512, max=256), "min must not be above max; swap them"),
    "half-a-range": (with_parameter(min=512), "a range needs both min and max"),
    "no-gpu-for-trials": (
        make_deployment(search={"maxTrialGPUs": 0}),
        "must be 1 or more: without a GPU no trial can run; to pause tuning set suspend: true",
    ),
    "a-budget-of-no-trials": (
        make_deployment(search={"budget": {"maxTrials": 0}}),
        "must be from 1 to 1000; to pause tuning set suspend: true",
    ),
    "a-budget-without-a-unit": (
        make_deployment(search={"budget": {"maxDuration": "6"}}),
        "spec.search.budget.maxDuration: Invalid value: must be a duration with a unit",
    ),
    "ablations-that-leave-no-trial": (
        make_deployment(search={"budget": {"maxTrials": 3, "ablations": 3}}),
        "ablations are part of maxTrials and must leave the search at least one trial",
    ),
    "a-pay-back-in-days": (
        make_deployment(search={"budget": {"payBack": "30d"}}),
        "spec.search.budget.payBack: Invalid value: must be a duration with a unit",
    ),
    "half-a-request-in-flight": (
        make_deployment(search={"ladder": {"levels": ["1.5"]}}),
        "a concurrency is a whole number of requests in flight",
    ),
    "steps-that-fall": (
        make_deployment(rollout={"canary": {"steps": [50, 5]}}),
        "steps must rise from one to the next, without repeats, such as [5, 25, 50]",
    ),
    "steps-that-repeat": (make_deployment(rollout={"canary": {"steps": [5, 5]}}), "without repeats"),
    "a-step-of-150": (
        make_deployment(rollout={"canary": {"steps": [5, 150]}}),
        "every step must be a percentage from 1 to 100",
    ),
    "an-unknown-mode": (
        make_deployment(rollout={"mode": "Yolo"}),
        'supported values: "Automatic", "Approve", "Recommend"',
    ),
    "a-window-that-is-no-cron": (
        make_deployment(retune={"windows": [{"name": "n", "schedule": "at night", "duration": "8h"}]}),
        "must have the five fields of cron",
    ),
    "a-name-that-is-too-long": (
        make_deployment(name="n" * 41),
        "the name must have at most 40 characters, so that names derived from it fit",
    ),
    "a-misspelt-field": (make_deployment(objective={}), 'unknown field "spec.objective"'),
}

STALLED = {
    "arguments-that-run-code": (
        make_deployment(engine={"image": "x", "args": ["--trust-remote-code", "--middleware=x.y", "--api-key", "abc"]}),
        {"spec.engine.args[0]", "spec.engine.args[1]", "spec.engine.args[2]"},
    ),
    "an-argument-that-is-searched": (
        make_deployment(engine={"image": "x", "args": ["--max-num-seqs=64"]}),
        {"spec.engine.args[0]"},
    ),
    "a-pod-that-borrows-rights": (
        make_deployment(
            engine={"image": "x", "podTemplate": {"spec": {"serviceAccountName": "admin", "hostNetwork": True}}}
        ),
        {"spec.engine.podTemplate.spec.serviceAccountName", "spec.engine.podTemplate.spec.hostNetwork"},
    ),
    "a-parameter-with-two-restrictions": (with_parameter(value=4, min=1, max=8), {"spec.search.parameters[0]"}),
    "a-parameter-that-is-a-fraction": (with_parameter(value=1.5), {"spec.search.parameters[0].value"}),
    "a-claim-that-is-left": (
        make_deployment(model={"variants": [{"name": "a", "source": "pvc://claim/../other"}]}),
        {"spec.model.variants[0].source"},
    ),
    "levels-that-fall": (make_deployment(search={"ladder": {"levels": ["8", "4"]}}), {"spec.search.ladder.levels"}),
}


def refusal(api, body):
    done = api("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body), check=False)
    assert done.returncode != 0, "accepted"
    return re.sub(r'Invalid value: ("[^"]*"|[-\d]+): ', "Invalid value: ", done.stderr)


@pytest.mark.parametrize(("body", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_a_bad_deployment_is_refused_with_a_sentence_to_act_on(api, body, want):
    assert want in refusal(api, body)


@pytest.mark.parametrize("body", [body for body, _ in REFUSED.values()], ids=REFUSED.keys())
def test_what_the_server_refuses_the_operator_refuses_too(body):
    assert isinstance(parse(body), list)


@pytest.mark.parametrize(("body", "want"), STALLED.values(), ids=STALLED.keys())
def test_what_the_server_cannot_see_stalls_with_every_problem(api, body, want):
    admitted = json.loads(api("create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(body)))
    problems = parse(admitted)
    assert isinstance(problems, list)
    assert {problem.path for problem in problems} == want


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_accepted_and_comes_back_as_it_was_written(api, file):
    written = yaml.safe_load(file.read_text())
    admitted = json.loads(api("create", "--dry-run=server", "-o", "json", "-f", str(file)))
    assert admitted["spec"] == written["spec"]
    assert isinstance(parse(admitted), InferenceDeploymentSpec)


def test_an_object_under_version_control_shows_no_difference(api):
    manifest = json.dumps(make_deployment(name="steady", target={"policy": "Knee"}))
    api("apply", "-f", "-", stdin=manifest)
    done = api("diff", "-f", "-", stdin=manifest, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_a_trial_cannot_be_changed(api):
    api("create", "-f", "-", stdin=json.dumps(make_trial("fixed")))
    done = api("patch", "trial", "fixed", "--type=merge", "-p", '{"spec": {"gpus": 8}}', check=False)
    assert "a trial is a record of what was run and cannot be changed; delete it instead" in done.stderr
    api("label", "trial", "fixed", "kept=yes")


@pytest.mark.parametrize(
    "path", ["infd.spec.objectives.slos.max", "infd.status.frontier.metrics", "trial.status.failure"]
)
def test_fields_are_explained(api, path):
    assert "DESCRIPTION" in api("explain", path)


SCALARS = {"integer": 1, "boolean": True, "string": "1.5"}


def example_of(schema, definitions):
    """Return a value with every field of a pydantic schema."""
    if "$ref" in schema:
        return example_of(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
    if "anyOf" in schema:
        return example_of(next(each for each in schema["anyOf"] if each.get("type") != "null"), definitions)
    if "enum" in schema:
        return schema["enum"][0]
    if schema["type"] == "array":
        return [example_of(schema["items"], definitions)]
    if schema["type"] == "object":
        fields = {name: example_of(each, definitions) for name, each in schema.get("properties", {}).items()}
        return fields or {"maxNumSeqs": "64"}
    return "2026-01-02T03:04:05Z" if schema.get("format") == "date-time" else SCALARS[schema["type"]]


@pytest.mark.parametrize(
    ("resource", "body", "model"),
    [
        ("inferencedeployment", make_deployment(name="whole"), InferenceDeploymentStatus),
        ("tuningtrial", make_trial("whole"), TuningTrialStatus),
    ],
)
def test_every_field_of_a_status_is_kept(api, resource, body, model):
    schema = model.model_json_schema(by_alias=True)
    status = example_of(schema, schema["$defs"])
    api("create", "-f", "-", stdin=json.dumps(body))
    patch = json.dumps({"status": status})
    api("patch", resource, "whole", "--subresource=status", "--type=merge", "-p", patch)
    kept = json.loads(api("get", resource, "whole", "-o", "json"))
    assert kept["status"] == status
    assert kept["metadata"]["generation"] == 1
    assert model.model_validate(kept["status"]).dump() == status


def test_the_columns_show_what_matters(api):
    api("create", "-f", "-", stdin=json.dumps(make_deployment(name="shown")))
    now = "2026-01-02T03:04:05Z"
    ready = {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": now}
    summary = {
        "target": "MinCost",
        "cost": "0.41 USD",
        "ttft": "812ms",
        "itl": "21ms",
        "trials": "9/24",
        "reason": "Serving",
    }
    incumbent = {"configuration": {"variant": "fp8"}}
    status = {"status": {"conditions": [ready], "summary": summary, "incumbent": incumbent}}
    api("patch", "infd", "shown", "--subresource=status", "--type=merge", "-p", json.dumps(status))
    heading, row = api("get", "infd", "shown", "-o", "wide").splitlines()
    assert heading.split()[:7] == ["NAME", "READY", "TARGET", "COST/MTOK", "TTFT", "ITL", "TRIALS"]
    for word in ("True", "MinCost", "0.41 USD", "812ms", "21ms", "9/24", "fp8", "Serving"):
        assert word in row


def test_the_manifests_are_accepted_and_the_operator_may_do_no_more(control_plane, kubectl):
    overlay = str(ROOT / "manifests/overlays/default")
    kubectl(control_plane, "apply", "--server-side", "--force-conflicts", "-k", overlay)
    account = "--as=system:serviceaccount:frontier-system:frontier-operator"

    def may(*question):
        asked = kubectl(control_plane, "auth", "can-i", *question, "--all-namespaces", account, check=False)
        return asked.stdout.strip() == "yes"

    assert may("create", "tuningtrials.frontier-operator.dev")
    assert may("update", "inferencedeployments.frontier-operator.dev", "--subresource=status")
    assert not may("patch", "inferencedeployments.frontier-operator.dev")
    assert not may("get", "secrets")
    assert not may("update", "inferencedeployments.frontier-operator.dev")
    assert not may("create", "pods", "--subresource=exec")


def test_the_operators_pod_is_admitted_where_the_restricted_standard_is_enforced(control_plane, kubectl):
    kubectl(
        control_plane, "apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "manifests/overlays/default")
    )
    query = ("-n", "frontier-system", "get", "deployment", "frontier-operator", "-o", "json")
    template = json.loads(kubectl(control_plane, *query))["spec"]["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "try"}, "spec": template["spec"]}
    kubectl(control_plane, "-n", "frontier-system", "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    pod["spec"]["hostNetwork"] = True
    refused = kubectl(
        control_plane,
        "-n",
        "frontier-system",
        "create",
        "--dry-run=server",
        "-f",
        "-",
        stdin=json.dumps(pod),
        check=False,
    )
    assert "violates PodSecurity" in refused.stderr
