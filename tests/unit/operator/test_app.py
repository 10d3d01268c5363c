import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_operator.api.names import LABEL_FINGERPRINT as FINGERPRINT
from frontier_operator.api.names import LABEL_RUNG as RUNG
from frontier_operator.api.policy import Policy
from frontier_operator.app.apply import Applier
from frontier_operator.app.loop import Loops
from frontier_operator.app.observe import observe
from frontier_operator.app.reconcile import GONE, Reconciler
from frontier_operator.core import render
from frontier_operator.core.decision import CreateTrial, Decision, Expose, FinishTrial, RecordRung, Serve
from frontier_operator.core.render import LoadSettings, revision
from frontier_operator.errors import TerminalError
from frontier_tuner import journal
from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import Load
from frontier_tuner.study import fingerprint, space_of
from support.in_memory import MemoryObjects, make_ports
from support.operator_builders import (
    NOW,
    TUNABLES,
    make_body,
    make_measurement,
    make_observation,
    make_record,
    make_spec,
    make_trial,
)

SPEC = make_spec()
BASELINE = space_of(SPEC).baseline
DEPLOYMENT = {"kind": "InferenceDeployment", "metadata": {"name": "chat", "namespace": "ml", "uid": "u1"}}
LOAD = LoadSettings("frontier-operator:1", 60)


def stored_trial(owner="u1", **status):
    action = CreateTrial("chat-x-000", 0, "Baseline", BASELINE, (4.0, 16.0, 64.0), "first")
    manifest = render.trial(action, SPEC, "ml", render.Owner("InferenceDeployment", "chat", owner), fingerprint(SPEC))
    manifest["metadata"] |= {"creationTimestamp": "2026-01-01T11:00:00Z", "uid": "t", "generation": 1}
    return {**manifest, "status": status}


def test_a_rung_whose_own_record_was_lost_is_in_the_journal_all_the_same():
    record = make_record(0, BASELINE)
    earlier = [journal.encode_measurement(m) for m in record.measurements[:2]]
    objects = MemoryObjects(stored_trial(measurements=earlier), failures=1)
    trial = make_trial(0, BASELINE, name="chat-x-000")
    actions = (RecordRung(trial.name, 2, record.measurements[2]), FinishTrial(trial.name, record))
    reconciler = Reconciler(make_ports(objects), TUNABLES, LOAD, Policy())

    troubles = reconciler._apply(make_observation(trials=(trial,)), Decision(actions, "", "", 1), DEPLOYMENT)

    status = objects.get("TuningTrial", "ml", "chat-x-000")["status"]
    assert len(troubles) == 1
    assert (status["outcome"], len(status["measurements"])) == ("Complete", 3)


def test_a_repeated_record_changes_nothing_69():
    objects = MemoryObjects(stored_trial())
    applier = Applier(make_observation(), DEPLOYMENT, make_ports(objects), LOAD)
    action = RecordRung("chat-x-000", 0, make_measurement(4.0))

    applier.apply(action)
    applier.apply(action)

    assert len(objects.get("TuningTrial", "ml", "chat-x-000")["status"]["measurements"]) == 1


@pytest.mark.parametrize(
    ("action", "kind", "name"),
    [
        (Expose(), "Service", "chat"),
        (Serve(BASELINE, revision(SPEC, BASELINE), 1), "Deployment", f"chat-{revision(SPEC, BASELINE)}"),
        (CreateTrial("chat-x-000", 0, "Baseline", BASELINE, (4.0,), "r"), "TuningTrial", "chat-x-000"),
    ],
)
def test_what_belongs_to_somebody_else_is_not_taken_over(action, kind, name):
    theirs = {"kind": kind, "metadata": {"name": name, "namespace": "ml"}, "spec": {"selector": {"app": "web"}}}
    objects = MemoryObjects(theirs)

    with pytest.raises(TerminalError, match="belongs to something else"):
        Applier(make_observation(), DEPLOYMENT, make_ports(objects), LOAD).apply(action)

    assert objects.get(kind, "ml", name) is theirs


def test_trials_of_a_deleted_object_of_the_same_name_are_not_the_journal():
    objects = MemoryObjects(stored_trial(owner="before"))

    assert observe(make_body(), make_ports(objects), TUNABLES, Policy()).trials == ()


class AskedMetrics:
    """Remembers what it was asked, and answers with a measurement of its own."""

    def __init__(self):
        self.asked = []

    def rung(self, request):
        self.asked.append(request)
        return make_measurement(4.0)


@pytest.mark.parametrize(
    ("changed", "mismatches"),
    [
        ([], ()),
        (["--max-num-seqs=7"], (f"--max-num-seqs is {BASELINE['maxNumSeqs']} by request and 7 where it runs",)),
    ],
    ids=["as asked", "changed by a webhook"],
)
def test_a_window_is_asked_for_with_what_is_known_beforehand(changed, mismatches):
    profile = {
        "inputTokens": {"mean": 64},
        "outputTokens": {"mean": 8},
        "session": {"turns": 2, "sharedPrefixPercent": 30},
    }
    body = make_body(workload={"profile": profile}, hardware__cachedInputPercent=10)
    spec = make_spec(workload={"profile": profile}, hardware__cachedInputPercent=10)
    labels = {"frontier-operator.dev/deployment": "chat", "frontier-operator.dev/trial": "chat-x-000"}
    metadata = {"namespace": "ml", "creationTimestamp": "2026-01-01T11:00:00Z", "labels": labels}
    trial = stored_trial()
    trial["metadata"]["labels"][FINGERPRINT] = trial["spec"]["fingerprint"] = fingerprint(spec)
    owner = [{"uid": "j1", "kind": "Job", "name": "chat-x-000-r0"}]
    start = NOW - timedelta(seconds=30)
    summary = LoadSummary(
        Load("Concurrency", 4), start, start, NOW, NOW, sent=9, ok=9, failed=0, cut=0, input_tokens=1, output_tokens=1,
        lag_p99_seconds=0.0, late_seconds=0.0, scraped=True,
    )  # fmt: skip
    ended = {"terminated": {"exitCode": 0, "message": summary.encode()}}
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T11:59:00Z"}
    job = {
        "kind": "Job",
        "metadata": {**metadata, "name": "chat-x-000-r0", "uid": "j1", "labels": {**labels, RUNG: "0"}},
        "status": {"conditions": [done]},
    }
    load = {
        "kind": "Pod",
        "metadata": {**metadata, "name": "load-pod", "ownerReferences": owner},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "load", "state": ended}]},
    }
    engine = {
        "kind": "Pod",
        "metadata": {**metadata, "name": "chat-x-000"},
        "spec": {"containers": [{"name": "engine", "args": [*trial["spec"]["command"], *changed]}]},
        "status": {"phase": "Running"},
    }
    metrics = AskedMetrics()
    ports = replace(make_ports(MemoryObjects(trial, job, load, engine)), metrics=metrics)

    (view,) = observe(body, ports, TUNABLES, Policy()).trials

    assert view.loads[0].measurement == make_measurement(4.0)
    (request,) = metrics.asked
    assert request.summary == summary
    assert request.configuration == BASELINE
    assert request.declared_hit_percent == 30.0
    assert request.pricing.cached_input_percent == 10.0
    assert request.mismatches == mismatches


def test_a_log_that_cannot_be_read_does_not_stop_the_pass():
    words = "RuntimeError: Engine core initialization failed. See root cause above."
    state = {"terminated": {"exitCode": 1, "startedAt": "2026-01-01T11:00:00Z", "message": words}}
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "chat-x-000",
            "namespace": "ml",
            "creationTimestamp": "2026-01-01T11:00:00Z",
            "labels": {"frontier-operator.dev/deployment": "chat"},
        },
        "status": {"phase": "Failed", "containerStatuses": [{"name": "engine", "state": state}]},
    }
    objects = MemoryObjects(stored_trial(), pod)

    (trial,) = observe(make_body(), make_ports(objects), TUNABLES, Policy()).trials

    assert trial.engine.last_words == words


async def test_an_object_made_again_while_its_loop_ends_gets_a_loop():
    looks = []
    again = asyncio.Event()
    running = asyncio.get_running_loop()

    class Passes:
        def run(self, namespace, name):
            looks.append(name)
            if len(looks) == 1:
                running.call_soon_threadsafe(loops.wake, namespace, name)
                asyncio.run_coroutine_threadsafe(asyncio.sleep(0), running).result()
                return GONE
            running.call_soon_threadsafe(again.set)
            return 60.0

    loops = Loops(Passes())
    loops.wake("ml", "chat")
    await asyncio.wait_for(again.wait(), 5)
    await loops.close()

    assert looks == ["chat", "chat"]
