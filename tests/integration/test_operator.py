"""The whole operator on a real API server, a real Prometheus and simulated engines."""

import itertools
import json
from copy import deepcopy

import pytest
import yaml

from integration.operator_support import (
    DEPLOYMENT,
    Bench,
    assert_prometheus_agrees,
    condition,
    eventually,
    install,
    kill_operator,
)

pytestmark = pytest.mark.integration

_numbers = itertools.count()


@pytest.fixture(scope="module")
def installed(cluster):
    install(cluster)
    return cluster


@pytest.fixture
def bench(installed):
    bench = Bench(installed, f"ml-{next(_numbers)}")
    bench.kubectl("create", "namespace", bench.namespace)
    yield bench
    bench.kubectl("delete", "namespace", bench.namespace, "--timeout=80s")


def deployment(**spec):
    manifest = deepcopy(DEPLOYMENT)
    for name, value in spec.items():
        if isinstance(value, dict):
            manifest["spec"][name] = {**manifest["spec"].get(name, {}), **value}
        else:
            manifest["spec"][name] = value
    return manifest


def parameters(**values):
    fixed = {"maxNumSeqs": 32, "tensorParallelSize": 1, "maxNumBatchedTokens": 2048, "numSpeculativeTokens": 0}
    named = [{"name": "enablePrefixCaching", "value": True}]
    for name, value in {**fixed, **values}.items():
        named.append({"name": name, "values" if isinstance(value, list) else "value": value})
    return named


def engine_pods(bench):
    return [
        pod["metadata"]["name"]
        for pod in bench.all("pods", "-l", "frontier-operator.dev/trial,frontier-operator.dev/component=engine")
    ]


def serving_pods(bench):
    return bench.all("pods", "-l", "frontier-operator.dev/role=serving")


def test_from_apply_to_a_rolled_out_point(bench):
    bench.apply(deployment())
    eventually(lambda: condition(bench.get("infd"), "Ready").get("status") == "True", 40, "the baseline serves")
    bench.traffic()
    found = bench.converged()
    trials = bench.trials()
    status = found["status"]

    assert [int(trial["spec"]["number"]) for trial in trials] == list(range(len(trials)))
    assert {trial["status"]["outcome"] for trial in trials} == {"Complete"}
    rungs = [rung for trial in trials for rung in trial["status"]["measurements"]]
    assert {rung["ended"]["reason"] for rung in rungs} == {"TimeUp"}  # their time holds less than ten scrapes
    assert all(rung["valid"] != ("check" in rung) for rung in rungs)
    searched = [trial["spec"]["configurationHash"] for trial in trials if trial["spec"]["purpose"] != "Confirmation"]
    assert len(searched) == len(set(searched)) == 4
    assert sum(trial["spec"]["purpose"] == "Confirmation" for trial in trials) >= 2
    assert status["frontier"]
    assert status["selection"]["configurationHash"] == status["incumbent"]["configurationHash"]
    assert status["incumbent"]["configurationHash"] != status["baseline"]["configurationHash"]
    assert found["metadata"]["generation"] == status["observedGeneration"] == 1

    # What the trial's command line says is what the incumbent's pod runs.
    chosen = next(t for t in trials if t["spec"]["configurationHash"] == status["incumbent"]["configurationHash"])
    serving = eventually(lambda: len(found := serving_pods(bench)) == 1 and found, 30, "the old incumbent has drained")
    assert serving[0]["spec"]["containers"][0]["args"] == chosen["spec"]["command"]

    # Every number of the selected point is what Prometheus answers to its query.
    assert_prometheus_agrees(bench.cluster, status["incumbent"]["measured"])

    eventually(lambda: not engine_pods(bench), 30, "trial engines are gone")
    assert len(bench.all("deployments")) == 1
    events = {
        event["reason"] for event in bench.all("events") if event["involvedObject"]["kind"] == "InferenceDeployment"
    }
    assert {"CanaryRunning", "Promoted"} <= events


def test_editing_the_target_selects_again_without_a_trial(bench):
    bench.apply(deployment(rollout={"mode": "Recommend"}))
    before = bench.converged()
    count = len(bench.trials())
    bench.kubectl(
        "patch",
        "infd",
        "chat",
        "-n",
        bench.namespace,
        "--type=merge",
        "-p",
        '{"spec":{"target":{"policy":"MinCost"}}}',
    )
    after = eventually(
        lambda: (found := bench.get("infd"))["status"].get("selection", {}).get("policy") == "MinCost" and found,
        10,
        "the selection follows the target",
    )

    assert len(bench.trials()) == count
    assert before["status"]["selection"]["load"]["value"] == "4"
    assert after["status"]["selection"]["load"]["value"] == "48"
    assert before["status"]["incumbent"]["configurationHash"] == after["status"]["incumbent"]["configurationHash"]


KILLS = {
    "before the baseline is ready": lambda b: b.all("deployments") and not ready(b),
    "while an engine starts": lambda b: any(not started(t) for t in b.trials()),
    "mid-ladder": lambda b: any(0 < rungs(t) < 2 for t in b.trials()),
    "mid-canary": lambda b: b.get("infd")["status"].get("candidate"),
    "while idle": lambda b: condition(b.get("infd"), "Converged").get("status") == "True",
}


def ready(bench):
    return condition(bench.get("infd"), "Ready").get("status") == "True"


def started(trial):
    return trial.get("status", {}).get("engineReadyAt")


def rungs(trial):
    return len(trial.get("status", {}).get("measurements", []))


def test_killed_at_five_moments_the_study_ends_as_if_it_had_not_been(bench):
    bench.apply(deployment())
    reached = []
    for moment, now in KILLS.items():
        eventually(lambda now=now: now(bench), 120, moment)
        kill_operator(bench.cluster)
        reached.append(moment)
        if moment == "before the baseline is ready":
            eventually(lambda: ready(bench), 40, "the baseline serves")
            bench.traffic()
    found = bench.converged()
    trials = bench.trials()

    assert reached == list(KILLS)
    assert [int(trial["spec"]["number"]) for trial in trials] == list(range(len(trials)))
    searched = [trial["spec"]["configurationHash"] for trial in trials if trial["spec"]["purpose"] != "Confirmation"]
    assert len(searched) == len(set(searched)) == 4
    assert all(trial["status"]["outcome"] == "Complete" for trial in trials)
    for trial in trials:
        loads = [
            measurement["load"]["value"] for measurement in trial["status"]["measurements"] if measurement["valid"]
        ]
        assert loads == trial["spec"]["ladder"]["levels"][: len(loads)]
    assert found["status"]["frontier"]
    eventually(lambda: not engine_pods(bench), 30, "no orphan engine")
    assert len(bench.all("deployments")) == 1


ENDINGS = {
    "out of memory": (
        {"search": {"parameters": parameters(gpuMemoryUtilizationPercent=[90, 20])}},
        "Infeasible",
        "Configuration",
        "EngineOutOfMemory",
    ),
    "arguments refused": (
        {
            "search": {"parameters": parameters(kvCacheDtype=["auto", "fp8"])},
            "engine": {
                "env": [
                    *DEPLOYMENT["spec"]["engine"]["env"][1:],
                    {"name": "FRONTIER_SIM_GPU", "value": "NVIDIA-A100-SXM4-80GB"},
                ]
            },
        },
        "Infeasible",
        "Configuration",
        "EngineArgumentsRefused",
    ),
    "ready, then dead at the first request": (
        {
            "search": {"parameters": parameters(maxNumSeqs=[32, 8])},
            "engine": {
                "env": [
                    *DEPLOYMENT["spec"]["engine"]["env"],
                    {"name": "FRONTIER_SIM_FAULTS", "value": '{"crashAfterRequests": 1}'},
                    {"name": "FRONTIER_SIM_FAULTS_ONLY_WITH", "value": "--max-num-seqs 8"},
                ]
            },
        },
        "Infeasible",
        "Configuration",
        "EngineDied",
    ),
    "no node can take it": (
        {
            "search": {"parameters": parameters(tensorParallelSize=[1, 16]), "maxTrialGPUs": 16},
            "hardware": {"gpusPerNode": 16, "pricePerGPUHour": "1"},
        },
        "Failed",
        "Infrastructure",
        "Unschedulable",
    ),
}


@pytest.mark.parametrize(("spec", "outcome", "kind", "reason"), ENDINGS.values(), ids=ENDINGS)
def test_a_trial_that_cannot_run_says_why_and_the_service_stays(bench, spec, outcome, kind, reason):
    search = {**spec["search"], "budget": {"maxTrials": 2}, "ladder": {"levels": ["4"]}}
    bench.apply(deployment(**{**spec, "search": search}))
    eventually(lambda: ready(bench), 40, "the baseline serves")
    before = [pod["metadata"]["uid"] for pod in serving_pods(bench)]

    def failed():
        return [trial for trial in bench.finished() if trial["status"]["outcome"] == outcome]

    trial = eventually(failed, 90, f"a trial ends as {outcome}")[0]
    after = serving_pods(bench)

    failure = trial["status"]["failure"]
    assert (failure["class"], failure["reason"]) == (kind, reason)
    assert failure["message"]
    assert reason in bench.kubectl("get", "trials", "-n", bench.namespace)
    assert [pod["metadata"]["uid"] for pod in after] == before
    assert all(pod["status"]["containerStatuses"][0]["restartCount"] == 0 for pod in after)


def test_deleting_it_mid_trial_takes_everything_along(bench):
    bench.apply(deployment())
    eventually(lambda: engine_pods(bench), 60, "an engine starts")
    bench.kubectl("delete", "infd", "chat", "-n", bench.namespace, "--timeout=30s")

    def left():
        kinds = ("trials", "pods", "jobs", "deployments")
        names = [item["metadata"]["name"] for kind in kinds for item in bench.all(kind)]
        return names + [item["metadata"]["name"] for item in bench.all("services")]

    eventually(lambda: not left(), 60, "nothing is left")


def test_with_the_operator_gone_the_object_still_goes(bench):
    bench.apply(deployment())
    eventually(lambda: engine_pods(bench), 60, "an engine starts")
    bench.kubectl("scale", "-n", "frontier-system", "deployment/frontier-operator", "--replicas=0")
    try:
        bench.kubectl("delete", "infd", "chat", "-n", bench.namespace, "--timeout=30s")
        eventually(lambda: not bench.all("pods") and not bench.all("trials"), 60, "nothing is left")
    finally:
        bench.kubectl("scale", "-n", "frontier-system", "deployment/frontier-operator", "--replicas=1")
        bench.kubectl("rollout", "status", "-n", "frontier-system", "deployment/frontier-operator", "--timeout=60s")


def test_a_namespace_goes_mid_trial(installed):
    bench = Bench(installed, "ml-gone")
    bench.kubectl("create", "namespace", bench.namespace)
    bench.apply(deployment())
    eventually(lambda: engine_pods(bench), 60, "an engine starts")
    bench.kubectl("delete", "namespace", bench.namespace, "--timeout=80s")

    assert "not found" in bench.kubectl("get", "namespace", bench.namespace, check=False).lower()


def test_an_invalid_spec_is_stalled_with_every_problem_and_serves_on(bench):
    bench.apply(deployment(search={"budget": {"maxTrials": 1}, "ladder": {"levels": ["4"]}}))
    eventually(lambda: ready(bench), 40, "the baseline serves")
    bench.kubectl(
        "patch",
        "infd",
        "chat",
        "-n",
        bench.namespace,
        "--type=merge",
        "-p",
        '{"spec":{"search":{"parameters":[{"name":"tensorParallelSize","value":3},{"name":"nonsense","value":1}]}}}',
    )
    stalled = eventually(
        lambda: (c := condition(bench.get("infd"), "Stalled")).get("reason") == "InvalidSpec" and c, 10, "it is stalled"
    )

    assert "nonsense" in stalled["message"]
    assert "tensorParallelSize" in stalled["message"]
    assert serving_pods(bench)


def test_a_gitops_tool_sees_no_difference_107(bench):
    bench.apply(deployment(search={"budget": {"maxTrials": 1}, "ladder": {"levels": ["4"]}}))
    eventually(bench.finished, 60, "a trial finishes")
    text = yaml.safe_dump(deployment(search={"budget": {"maxTrials": 1}, "ladder": {"levels": ["4"]}}))
    difference = bench.kubectl("diff", "-n", bench.namespace, "-f", "-", stdin=text, check=False)

    assert difference == ""


def test_a_workload_is_learned_from_live_traffic_once_and_outlives_the_operator(bench):
    asked = deployment()
    asked["spec"]["workload"] = {"fromMetrics": {"window": "1h"}}
    bench.apply(asked)

    def reason():
        return condition(bench.get("infd"), "Converged").get("reason") == "InsufficientSamples"

    eventually(reason, 60, "the operator says that it has seen too little traffic")
    assert "or give spec.workload.profile" in condition(bench.get("infd"), "Converged")["message"]
    assert bench.trials() == []

    bench.traffic(rate=20, seconds=120)
    learned = eventually(
        lambda: bench.get("infd")["status"]["study"].get("workload"), 90, "a workload is learned from the traffic"
    )
    assert learned["requests"] >= 100
    for name, tokens in (("inputTokens", 64), ("outputTokens", 8)):
        # Lengths are known by the engine's buckets: 1, 2, 5, 10, 20, 50, 100, ...
        held = [bucket for bucket in learned[name] if bucket["weight"]]
        mean = sum(bucket["upTo"] * bucket["weight"] for bucket in held) / sum(bucket["weight"] for bucket in held)
        assert mean == pytest.approx(tokens, rel=0.35), learned[name]

    def load():
        jobs = bench.all("jobs")
        return jobs[0]["spec"]["template"]["spec"]["containers"][0]["args"] if jobs else None

    arguments = eventually(load, 60, "a load Job runs")
    sent = json.loads(arguments[arguments.index("--workload") + 1])["profile"]
    assert sent["inputTokens"] == {"histogram": learned["inputTokens"]}

    kill_operator(bench.cluster)
    eventually(bench.finished, 90, "a trial ends under the new operator")
    study = bench.get("infd")["status"]["study"]
    assert study["workload"] == learned
    assert {trial["spec"]["fingerprint"] for trial in bench.trials()} == {study["fingerprint"]}
