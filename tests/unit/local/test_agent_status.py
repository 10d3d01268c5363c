"""Status, back-off, probes, restoring after a restart, addresses, targets and the proxy's choice: the pure rules."""

import ipaddress
from datetime import UTC, datetime, timedelta

import pytest

from frontier_local.agent.addresses import NoAddressError, PodAddresses
from frontier_local.agent.backoff import BackOff
from frontier_local.agent.kubelet_server import tail_offset
from frontier_local.agent.node import capacity, labels
from frontier_local.agent.probes import ProbeCounter, ProbeSettings
from frontier_local.agent.process import last_lines
from frontier_local.agent.provisioner import volume_for, wants_volume
from frontier_local.agent.proxy import wanted_forwards
from frontier_local.agent.restore import LOST, restore
from frontier_local.agent.status import (
    ContainerRecord,
    Running,
    Terminated,
    Verdict,
    Waiting,
    pod_phase,
    pod_status,
    terminated_from_returncode,
)
from frontier_local.agent.targets import TargetsFile, pod_target
from frontier_local.node_spec import NodeSpec

NOW = datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC)
RUNNING = Running(NOW)
WAITING = Waiting("ContainerCreating")


def ended(code, reason="Error"):
    return Terminated(code, reason, NOW, NOW)


def record(state=WAITING, last=None, *, name="c", ready=False, started=False):
    return ContainerRecord(name, "i", f"u/{name}", state, last, started=started, ready=ready)


def test_a_return_code_becomes_exit_code_and_signal():
    ok = terminated_from_returncode(0, NOW, NOW, "")
    killed = terminated_from_returncode(-9, NOW, NOW, "bye")
    assert (ok.exit_code, ok.reason, ok.signal) == (0, "Completed", 0)
    assert (killed.exit_code, killed.reason, killed.signal, killed.message) == (137, "Error", 9, "bye")
    assert killed.to_json()["terminated"]["startedAt"] == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize(
    ("policy", "states", "want"),
    [
        ("Always", [record()], "Pending"),
        ("Always", [record(RUNNING)], "Running"),
        ("Always", [record(RUNNING), record()], "Pending"),
        ("Always", [record(ended(1))], "Running"),
        ("Always", [record(Waiting("CrashLoopBackOff"), ended(1))], "Running"),
        ("Never", [record(ended(0))], "Succeeded"),
        ("Never", [record(ended(0)), record(ended(2))], "Failed"),
        ("Never", [record(ended(1)), record(RUNNING)], "Running"),
        ("OnFailure", [record(ended(0))], "Succeeded"),
        ("OnFailure", [record(ended(1))], "Running"),
    ],
)
def test_the_phase_follows_the_containers(policy, states, want):
    assert pod_phase({"restartPolicy": policy}, [], states) == want


@pytest.mark.parametrize(
    ("policy", "init", "main", "want"),
    [
        ("Always", record(RUNNING), record(), "Pending"),
        ("Never", record(ended(1)), record(), "Failed"),
        ("Always", record(Waiting("CrashLoopBackOff"), ended(1)), record(), "Pending"),
        ("Never", record(ended(0)), record(RUNNING), "Running"),
    ],
)
def test_the_phase_waits_for_init_containers(policy, init, main, want):
    assert pod_phase({"restartPolicy": policy, "initContainers": [{"name": "c"}]}, [init], [main]) == want


def test_a_sidecar_must_have_started_only():
    spec = {"restartPolicy": "Never", "initContainers": [{"name": "s", "restartPolicy": "Always"}]}
    assert pod_phase(spec, [record(RUNNING, name="s")], [record()]) == "Pending"
    assert pod_phase(spec, [record(RUNNING, name="s", started=True)], [record(ended(0))]) == "Succeeded"


def make_pod(**status):
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 3},
        "spec": {"restartPolicy": "Never", "nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        "status": status,
    }


def build(records, pod=None, **more):
    times = {"started_at": NOW, "now": NOW + timedelta(seconds=9)}
    return pod_status(pod or make_pod(), [], records, pod_ip="127.11.0.1", host_ip="127.131.1.1", **times, **more)


def conditions(status):
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def test_a_ready_pod_says_so_and_keeps_its_transition_times():
    old = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    status = build([record(RUNNING, ready=True, started=True)], make_pod(conditions=[old]))
    assert conditions(status)["Ready"] == ("True", None)
    times = {c["type"]: c["lastTransitionTime"] for c in status["conditions"]}
    assert times["Ready"] == "2020-01-01T00:00:00Z"
    assert times["Initialized"] == "2026-01-02T03:04:14Z"
    assert status["podIPs"] == [{"ip": "127.11.0.1"}]
    assert status["observedGeneration"] == 3


def test_a_finished_pod_is_not_ready_but_initialised():
    status = build([record(ended(0, "Completed"))])
    assert status["phase"] == "Succeeded"
    assert conditions(status)["Ready"] == ("False", "PodCompleted")
    assert conditions(status)["Initialized"] == ("True", None)


def test_a_verdict_fails_the_pod_with_its_reason():
    status = build([record(RUNNING)], verdict=Verdict("DeadlineExceeded", "too long"))
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", "too long")


@pytest.mark.parametrize(("code", "want"), [(0, "Succeeded"), (143, "Failed")])
def test_a_pod_that_ends_for_good_has_a_final_phase(code, want):
    pod = make_pod()
    pod["spec"]["restartPolicy"] = "Always"
    assert build([record(ended(code))], pod, ending=True)["phase"] == want


def test_readiness_gates_hold_back_ready():
    pod = make_pod()
    pod["spec"]["readinessGates"] = [{"conditionType": "x/y"}]
    assert conditions(build([record(RUNNING, ready=True)], pod))["Ready"] == ("False", "ReadinessGatesNotReady")
    pod["status"]["conditions"] = [{"type": "x/y", "status": "True"}]
    assert conditions(build([record(RUNNING, ready=True)], pod))["Ready"] == ("True", None)


def test_back_off_begins_at_once_doubles_and_is_forgiven():
    back_off = BackOff()
    assert [back_off.delay(1.0) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert back_off.delay(601.0) == 0


def test_a_probe_needs_its_thresholds():
    counter = ProbeCounter(ProbeSettings.of({"failureThreshold": 2, "successThreshold": 2}))
    answers = [True, True, False, True, False, False, True]
    assert [counter.observe(a) for a in answers] == [None, True, None, None, None, False, None]


def test_probe_defaults_are_the_api_s():
    assert ProbeSettings.of({}) == ProbeSettings(0, 10, 1, 1, 3)


def status_of(state, last=None, count=0):
    return {"containerStatuses": [{"name": "c", "restartCount": count, "state": state, "lastState": last or {}}]}


RAN = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def test_a_fresh_pod_starts_from_nothing():
    restored = restore(make_pod(), NOW)
    assert restored.verdict is None
    assert restored.records["c"].state == WAITING
    assert restored.started_at == NOW


def test_a_lost_pod_that_must_not_restart_fails_with_the_reason():
    restored = restore(make_pod(startTime="2026-01-01T00:00:00Z", **status_of(RAN)), NOW)
    assert restored.verdict is not None
    assert restored.verdict.reason == LOST
    state = restored.records["c"].state
    assert isinstance(state, Terminated)
    assert (state.exit_code, state.reason, restored.records["c"].restart_count) == (137, LOST, 0)
    assert restored.started_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_a_lost_pod_that_restarts_goes_on_counting():
    pod = make_pod(**status_of(RAN, count=4))
    pod["spec"]["restartPolicy"] = "Always"
    restored = restore(pod, NOW)
    assert restored.verdict is None
    assert restored.records["c"].restart_count == 5
    assert restored.records["c"].last_state is not None
    assert restored.records["c"].last_state.reason == LOST


def test_a_container_that_succeeded_stays_done():
    pod = make_pod(**status_of({"terminated": {"exitCode": 0, "reason": "Completed"}}))
    pod["spec"]["restartPolicy"] = "OnFailure"
    assert isinstance(restore(pod, NOW).records["c"].state, Terminated)


def test_addresses_go_round_and_are_remembered(tmp_path):
    network, state = ipaddress.IPv4Network("127.9.0.0/29"), tmp_path / "last"
    addresses = PodAddresses(network, state)
    assert [addresses.take(uid) for uid in "ab"] == ["127.9.0.1", "127.9.0.2"]
    addresses.release("a")
    assert addresses.take("c") == "127.9.0.3"
    again = PodAddresses(network, state)
    assert again.take("b", "127.9.0.2") == "127.9.0.2"
    assert [again.take(uid) for uid in "defgh"] == [f"127.9.0.{n}" for n in (4, 5, 6, 1, 3)]
    with pytest.raises(NoAddressError, match="all 6 addresses are in use"):
        again.take("x")


def make_scraped(**annotations):
    pod = make_pod()
    pod["metadata"]["annotations"] = {"prometheus.io/scrape": "true"} | annotations
    pod["spec"]["containers"] = [
        {"name": "side", "image": "i", "ports": [{"containerPort": 1}]},
        {"name": "c", "image": "i", "ports": [{"containerPort": 8000}]},
    ]
    return pod


def test_a_running_pod_is_a_target_of_the_container_that_owns_the_port():
    pod = make_scraped(**{"prometheus.io/port": "8000", "prometheus.io/path": "/m"})
    target = pod_target(pod, "127.11.0.1", {"c": record(RUNNING), "side": record()})
    assert target is not None
    assert target["targets"] == ["127.11.0.1:8000"]
    assert target["labels"] == {
        "__metrics_path__": "/m",
        "__scheme__": "http",
        "job": "pods",
        "namespace": "n",
        "pod": "p",
        "container": "c",
        "node": "node-1",
    }
    assert pod_target(pod, "127.11.0.1", {"c": record(ended(0)), "side": record(RUNNING)}) is None
    assert pod_target(make_pod(), "127.11.0.1", {"c": record(RUNNING)}) is None


def test_the_targets_file_is_replaced_whole(tmp_path):
    file = TargetsFile(tmp_path / "targets", "pods")
    file.write([])
    assert [path.name for path in (tmp_path / "targets").iterdir()] == ["pods.json"]


def make_service(name="s", namespace="n", **spec):
    base = {"clusterIP": "127.131.0.9", "selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "http"}]}
    return {"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": base | spec}


def make_backend(address, *, ready=True, deleting=False, namespace="n", app="x"):
    metadata = {"name": address, "namespace": namespace, "labels": {"app": app}}
    if deleting:
        metadata["deletionTimestamp"] = "now"
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 8000}]}]},
        "status": {"podIP": address, "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]},
    }


def forwards(services, pods=()):
    network = ipaddress.IPv4Network("127.131.0.0/24")
    found = wanted_forwards(services, pods, network, "https://127.0.0.1:6443")
    return {address: behind for address, (_, behind) in found.items()}


def test_a_service_forwards_to_ready_pods_that_stay():
    pods = [
        make_backend("127.11.0.2"),
        make_backend("127.11.0.1"),
        make_backend("127.11.0.3", ready=False),
        make_backend("127.11.0.4", deleting=True),
        make_backend("127.11.0.5", namespace="other"),
        make_backend("127.11.0.6", app="y"),
    ]
    assert forwards([make_service()], pods) == {("127.131.0.9", 80): (("127.11.0.1", 8000), ("127.11.0.2", 8000))}


def test_headless_udp_and_selectorless_services_are_left_out_and_the_api_server_is_not():
    services = [
        make_service("h", clusterIP="None"),
        make_service("u", ports=[{"port": 53, "protocol": "UDP"}]),
        make_service("n", selector=None),
        make_service("kubernetes", "default", selector=None, clusterIP="127.131.0.1", ports=[{"port": 443}]),
    ]
    assert forwards(services) == {("127.131.0.1", 443): (("127.0.0.1", 6443),)}


def test_the_end_of_a_log_is_found(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("".join(f"line {n}\n" for n in range(30000)))
    assert log.read_bytes()[tail_offset(log, 2) :] == b"line 29998\nline 29999\n"
    assert (tail_offset(log, -1), tail_offset(log, 0)) == (0, log.stat().st_size)
    assert last_lines(log, lines=1) == "line 29999\n"
    assert last_lines(tmp_path / "none") == ""
    log.write_text("a\nb")
    assert log.read_bytes()[tail_offset(log, 1) :] == b"b"
    assert tail_offset(log, 9) == 0


def test_a_node_offers_its_gpus():
    spec = NodeSpec("n", "127.131.1.1", gpus=4, gpu_memory="48Gi")
    assert capacity(spec)["nvidia.com/gpu"] == "4"
    assert labels(spec)["nvidia.com/gpu.memory"] == "49152"
    assert "nvidia.com/gpu" not in capacity(NodeSpec("n", "127.131.1.1", gpus=0))


def test_a_claim_gets_a_volume_unless_somebody_else_provides(tmp_path):
    claim = {
        "metadata": {"name": "c", "namespace": "n", "uid": "u"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    assert wants_volume(claim, frozenset())
    assert volume_for(claim, tmp_path)["spec"]["hostPath"]["path"] == str(tmp_path / "n" / "c")
    assert not wants_volume(claim | {"spec": claim["spec"] | {"volumeName": "pv"}}, frozenset())
    assert not wants_volume(claim | {"spec": claim["spec"] | {"storageClassName": "fast"}}, frozenset({"fast"}))
