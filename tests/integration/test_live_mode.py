"""A tenth of real traffic on a configuration that turns slow: it is taken away in time, and no user's request fails."""

import json
import math
import threading
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from kubernetes import client, config

from frontier_local.cluster import Cluster, ClusterSpec
from frontier_operator.api.v1alpha1 import parse
from frontier_operator.core.live_trials import find_breach
from frontier_operator.core.observation import LiveView
from frontier_tuner import journal
from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.summary import parse_summary
from frontier_tuner.measurement import Window
from frontier_tuner.prometheus import PrometheusSource
from frontier_tuner.prometheus.live import measure_live
from integration.operator_support import DEPLOYMENT, SYSTEM, Bench, condition, eventually, install

pytestmark = pytest.mark.integration

SCRAPE = 4.0
REPLICAS = 9
RATE = 10.0
ENGINES = "frontier-operator.dev/component=engine"
BOUND = 1.0
"""Seconds between tokens: far from both engines, a twelfth of a second and two, for machines that are busy."""
FAULTS = {"slowAfterRequests": 6, "slowFactor": 25}


def deployment():
    """Return an InferenceDeployment of two configurations, one of which turns slow under traffic."""
    manifest = deepcopy(DEPLOYMENT)
    spec = manifest["spec"]
    spec["engine"]["env"] = [
        {"name": "FRONTIER_SIM_GPU", "value": "NVIDIA-L40S"},
        {"name": "FRONTIER_SIM_TIME_SCALE", "value": "0.25"},
        {"name": "FRONTIER_SIM_START_SECONDS", "value": "1"},
        {"name": "FRONTIER_SIM_FAULTS", "value": json.dumps(FAULTS)},
        {"name": "FRONTIER_SIM_FAULTS_ONLY_WITH", "value": "--max-num-seqs 16"},
    ]
    spec["objectives"] = {"slos": [{"name": "itl", "metric": "ITL", "percentile": 95, "max": "1s"}]}
    fixed = {"tensorParallelSize": 1, "maxNumBatchedTokens": 2048, "numSpeculativeTokens": 0}
    named = [{"name": name, "value": value} for name, value in fixed.items()]
    named.append({"name": "enablePrefixCaching", "value": True})
    named.append({"name": "maxNumSeqs", "values": [256, 16]})
    spec["search"] = {"parameters": named, "maxTrialGPUs": 2, "budget": {"maxTrials": 2}, "seed": 1}
    spec["measurement"] = {
        "mode": "Live",
        "live": {"maxSharePercent": 10, "guardrailPercent": 20},
        "warmUp": "4s",
        "maxRungDuration": "32s",
        "minRequests": 10,
        "engineStartTimeout": "120s",
    }
    return manifest


@dataclass
class Departures:
    """When the engines of trials began to go, as the API server shows it."""

    api: client.CoreV1Api
    namespace: str
    seen: dict[str, datetime] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self):
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self._thread.join()

    def _look(self):
        while not self.over.wait(0.1):
            pods = self.api.list_namespaced_pod(self.namespace, label_selector=f"{ENGINES},frontier-operator.dev/trial")
            for pod in pods.items:
                if pod.metadata.deletion_timestamp:
                    # The server tells it in whole seconds; this process may look late on a busy machine.
                    grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds)
                    told = pod.metadata.deletion_timestamp - grace + timedelta(seconds=1)
                    self.seen.setdefault(pod.metadata.name, min(told, datetime.now(UTC)))


@pytest.fixture(scope="module")
def bench(binaries, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    spec = ClusterSpec(name="live", nodes=2, scrape_interval=f"{SCRAPE:g}s")
    with Cluster(directory, spec, progress=print) as running:
        install(running)
        system = Bench(running, SYSTEM)
        system.kubectl("set", "env", "-n", SYSTEM, "deployment/frontier-operator", f"FRONTIER_SCRAPE_SECONDS={SCRAPE}")
        system.kubectl("rollout", "status", "-n", SYSTEM, "deployment/frontier-operator", "--timeout=60s")
        bench = Bench(running, "ml-live")
        bench.kubectl("create", "namespace", bench.namespace)
        yield bench


def finished(bench, number):
    """Return the trial of this number once it has an outcome."""
    return next((trial for trial in bench.finished() if int(trial["spec"]["number"]) == number), None)


def users_done(bench):
    """Return what the users' load generator says at its end."""

    def over():
        pod = bench.get("pod", "users")
        return pod["status"].get("phase") in {"Succeeded", "Failed"} and pod

    pod = eventually(over, 150, "the users go")
    return parse_summary(pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"])


def serving(bench):
    """Return the names of the incumbent's pods."""
    pods = bench.all("pods", "-l", "frontier-operator.dev/role=serving,!frontier-operator.dev/trial")
    return sorted(pod["metadata"]["name"] for pod in pods)


def visible_at(bench, trial, objectives, until):
    """Return the first moment whose window shows the breach: what a judge could have known that asks all the time."""
    source = PrometheusSource(bench.cluster.prometheus_url)
    name, joined = trial["metadata"]["name"], journal.decode_time(trial["status"]["engineReadyAt"])
    others = serving(bench)
    steps = math.ceil((until - joined).total_seconds() / SCRAPE * 4)
    for step in range(16, steps + 1):
        moment = min(until, joined + timedelta(seconds=step * SCRAPE / 4))
        asked = {"gpus": 1, "price_per_gpu_hour": 1.2, "min_requests": 10, "scrape_interval_seconds": SCRAPE}
        try:
            engine = measure_live(source, bench.namespace, [name], Window(joined, moment), objectives, **asked)
            beside = measure_live(source, bench.namespace, others, Window(joined, moment), objectives, **asked)
        except MeasurementError:
            engine = None
        if engine and find_breach(LiveView(engine, beside, len(others), False), objectives, 20):
            return moment
    return pytest.fail("the metrics never show the breach")


def arrivals(bench, pod, begin, end):
    """Return how many requests had reached an engine, by scrape: those that ended and those that are in it."""
    where = f'{{namespace="{bench.namespace}",pod="{pod}"}}'
    inside = f"vllm:num_requests_running{where} + vllm:num_requests_waiting{where}"
    query = f"sum(vllm:request_success_total{where}) + sum({inside})"
    found = {}
    source = PrometheusSource(bench.cluster.prometheus_url)
    moment = begin
    while moment <= end:
        samples = source.vector(query, moment)
        if samples and math.isfinite(samples[0].value):
            found[moment] = samples[0].value
        moment += timedelta(seconds=SCRAPE)
    return found


def run(bench, manifest):
    """Let users arrive, give the incumbent its replicas, and return what became of the two trials and of the users."""
    bench.apply(manifest)
    eventually(lambda: condition(bench.get("infd"), "Ready").get("status") == "True", 60, "the baseline serves")
    stalled = eventually(
        lambda: (c := condition(bench.get("infd"), "Stalled")).get("reason") == "TooFewReplicas" and c, 30, "it stalls"
    )
    assert "run 9 replicas" in stalled["message"]
    assert not bench.trials()
    (incumbent,) = bench.all("deployments")
    name = f"deployment/{incumbent['metadata']['name']}"
    bench.kubectl("scale", "-n", bench.namespace, name, f"--replicas={REPLICAS}")
    eventually(
        lambda: bench.all("deployments")[0]["status"].get("readyReplicas") == REPLICAS, 180, "the replicas serve"
    )
    bench.traffic(rate=RATE, seconds=150)
    api = client.CoreV1Api(config.new_client_from_config(str(bench.cluster.kubeconfig)))
    with Departures(api, bench.namespace) as departures:
        baseline = eventually(lambda: finished(bench, 0), 180, "the incumbent's own configuration is measured")
        candidate = eventually(lambda: finished(bench, 1), 120, "the slow configuration ends")
        returned = eventually(lambda: departures.seen.get(candidate["metadata"]["name"]), 20, "its engine goes")
        return baseline, candidate, returned, users_done(bench)


def rungs(trial):
    """Return what a trial's engine showed, and what the incumbent's engines did."""
    status = trial["status"]
    return journal.decode_measurement(status["measurements"][0]), journal.decode_measurement(status["incumbent"])


def test_a_tenth_of_the_traffic_comes_back_in_time_and_no_request_fails(bench):
    manifest = deployment()
    baseline, candidate, returned, users = run(bench, manifest)

    # The incumbent's own configuration took its tenth and is recorded beside the incumbent of the same minutes.
    alone, beside = rungs(baseline)
    share = alone.ok / (alone.ok + beside.ok)
    print(f"share of the requests: {share:.1%} ({alone.ok} beside {beside.ok} of {REPLICAS} engines)")
    assert baseline["status"]["outcome"] == "Complete"
    assert alone.window == beside.window
    print(f"ITL p95 of the same configuration: {alone.value('ITL/95'):.3f} s beside {beside.value('ITL/95'):.3f} s")
    assert 0.03 < share < 0.2

    # The slow one was ended by the guardrail, with what its users and the incumbent's saw.
    status, failure = candidate["status"], candidate["status"]["failure"]
    seen, other = rungs(candidate)
    print(failure["message"])
    assert (status["outcome"], failure["class"], failure["reason"]) == ("Pruned", "Configuration", "GuardrailBreached")
    assert seen.value("ITL/95") > 1.2 * BOUND > BOUND > other.value("ITL/95")
    events = {event["reason"]: event for event in bench.all("events") if event["involvedObject"]["name"] == "chat"}
    assert events["GuardrailBreached"]["type"] == "Warning"

    # Nobody noticed more than the time.
    print(
        f"users: {users.sent} sent, {users.ok} answered, {users.failed} failed, {users.cut} cut {users.first_error!r}"
    )
    assert users.failed == 0
    assert users.sent > 500
    assert users.ok + users.cut == users.sent

    # Its traffic was back in time, for good.
    name, joined = candidate["metadata"]["name"], journal.decode_time(status["engineReadyAt"])
    visible = visible_at(bench, candidate, parse(manifest).to_objectives(), returned)
    until, late = ((later - visible) / timedelta(seconds=SCRAPE) for later in (joined, returned))
    print(f"scrape intervals of {SCRAPE:g} s: joined {-until:.2f} before the metrics show it, back {late:.2f} after")
    reached = arrivals(bench, name, joined, returned + timedelta(seconds=30))
    # Two intervals, and one more until a scrape shows the last that came within them.
    after = [count for moment, count in reached.items() if moment >= visible + timedelta(seconds=3 * SCRAPE)]
    print(f"requests that had reached it, by scrape: {[round(count) for count in reached.values()]}")
    assert late <= 2
    assert after
    assert set(after) == {after[0]}
    assert len(serving(bench)) == REPLICAS
    eventually(lambda: not bench.all("pods", "-l", f"frontier-operator.dev/trial={name}"), 90, "its engine has drained")
