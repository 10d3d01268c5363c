from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_operator.core.decision import (
    FinishTrial,
    RecordProgress,
    RecordRung,
    ReleaseTrial,
    StartEngine,
    StartLoad,
)
from frontier_operator.core.observation import LoadView
from frontier_operator.core.trials import TrialRules, decide_trial
from frontier_tuner.study import space_of
from support.operator_builders import NOW, TUNABLES, make_measurement, make_pod, make_record, make_spec, make_trial

SPEC = make_spec()
CONFIGURATION = space_of(SPEC).baseline
LONG_AGO = NOW - timedelta(hours=1)


def rules(**over):
    base = TrialRules(NOW, SPEC.to_objectives(), 600.0, 1, TUNABLES, may_start=True)
    return replace(base, **over)


def trial(**over):
    base = make_trial(3, CONFIGURATION, started_at=NOW - timedelta(seconds=29), ready_at=NOW - timedelta(seconds=20))
    return replace(base, **over)


def test_a_new_trial_starts_its_engine_when_the_cap_leaves_room():
    view = trial(started_at=None, ready_at=None)

    assert decide_trial(view, rules()) == (StartEngine(view.name, CONFIGURATION),)
    assert decide_trial(view, rules(may_start=False)) == ()


def test_a_ready_engine_gets_its_first_rung():
    (action,) = decide_trial(trial(engine=make_pod()), rules())

    assert isinstance(action, StartLoad)
    assert (action.index, action.load.value, action.address) == (0, 4.0, "10.0.0.1")


def test_start_and_readiness_are_recorded_once():
    engine = make_pod(ready=False, ready_at=None)

    first = decide_trial(trial(engine=engine, started_at=None, ready_at=None), rules())
    second = decide_trial(trial(engine=engine, started_at=engine.started_at, ready_at=None), rules())

    assert first == (RecordProgress(trial().name, engine.started_at, None),)
    assert second == ()


def test_a_measured_rung_is_recorded_and_the_next_one_begins_in_the_same_pass():
    measurement = make_measurement(4.0)
    view = trial(engine=make_pod(), loads=(LoadView(0, "j", "Succeeded", measurement=measurement),))

    record, load = decide_trial(view, rules())

    assert record == RecordRung(view.name, 0, measurement)
    assert (load.index, load.load.value) == (1, 16.0)


def test_every_rung_and_trial_has_a_seed_of_its_own():
    seeds = {
        decide_trial(
            trial(number=number, engine=make_pod(), measurements=(make_measurement(4.0),) * rungs, levels=(4.0, 16.0)),
            rules(),
        )[0].seed
        for number in range(5)
        for rungs in (0, 1)
    }

    assert len(seeds) == 10


def test_a_climbed_ladder_completes_the_trial():
    rungs = tuple(make_measurement(level, throughput=level * 100) for level in (4.0, 16.0, 64.0))

    (action,) = decide_trial(trial(engine=make_pod(), measurements=rungs), rules())

    assert isinstance(action, FinishTrial)
    assert (action.record.outcome, action.record.failure) == ("Complete", None)
    assert action.record.measurements == rungs
    assert action.record.engine_start_seconds == 9.0
    assert action.record.gpu_seconds == 30.0


def test_a_ladder_ends_when_an_slo_is_far_beyond():
    rungs = (make_measurement(4.0, itl=0.2),)

    (action,) = decide_trial(trial(engine=make_pod(), measurements=rungs), rules())

    assert action.record.outcome == "Complete"


def test_an_invalid_window_is_repeated_once_at_its_level_and_then_the_trial_is_given_back():
    invalid = make_measurement(16.0, valid=False, reason="WindowInvalid")
    once = (make_measurement(4.0), invalid)

    (again,) = decide_trial(trial(engine=make_pod(), measurements=once), rules())
    (ended,) = decide_trial(trial(engine=make_pod(), measurements=(*once, invalid)), rules())

    assert (again.index, again.load.value) == (2, 16.0)
    assert (ended.record.outcome, ended.record.failure.reason) == ("Failed", "WindowInvalid")


def test_a_rung_with_too_few_requests_is_not_repeated_but_climbed_past():
    slow = make_measurement(4.0, valid=False, reason="InsufficientSamples")

    (action,) = decide_trial(trial(engine=make_pod(), measurements=(slow,)), rules())

    assert (action.index, action.load.value) == (1, 16.0)


def test_a_ladder_on_which_no_rung_counts_is_given_back():
    slow = tuple(make_measurement(x, valid=False, reason="InsufficientSamples") for x in (4.0, 16.0, 64.0))

    (action,) = decide_trial(trial(engine=make_pod(), measurements=slow), rules())

    assert (action.record.outcome, action.record.failure.reason) == ("Failed", "WindowInvalid")


ENDINGS = {
    "out of memory, 22": (
        {"engine": make_pod(exit_code=1, last_words="torch.OutOfMemoryError: CUDA out of memory.", ready=False)},
        "Infeasible",
        "EngineOutOfMemory",
    ),
    "killed for its memory limit": (
        {"engine": make_pod(exit_code=137, termination_reason="OOMKilled")},
        "Infeasible",
        "EngineOutOfMemory",
    ),
    "refused arguments": (
        {
            "engine": make_pod(
                exit_code=2, last_words="error: unrecognized arguments: --nope", ready=False, ready_at=None
            ),
            "ready_at": None,
        },
        "Infeasible",
        "EngineArgumentsRefused",
    ),
    "ready and then dead": (
        {"engine": make_pod(exit_code=1, last_words="RuntimeError: no kernel", ready=False)},
        "Infeasible",
        "EngineDied",
    ),
    "too slow to start, 92": (
        {"engine": make_pod(ready=False, ready_at=None, started_at=LONG_AGO), "ready_at": None, "started_at": LONG_AGO},
        "Infeasible",
        "EngineStartTimeout",
    ),
    "never scheduled, 91": (
        {
            "engine": make_pod(
                phase="Pending",
                ready=False,
                scheduled_at=None,
                started_at=None,
                ready_at=None,
                created=LONG_AGO,
                unschedulable="0/1 nodes: Insufficient nvidia.com/gpu",
            ),
            "started_at": None,
            "ready_at": None,
        },
        "Failed",
        "Unschedulable",
    ),
    "image never pulled": (
        {
            "engine": make_pod(
                ready=False, ready_at=None, started_at=None, created=LONG_AGO, waiting_reason="ImagePullBackOff"
            ),
            "started_at": None,
            "ready_at": None,
        },
        "Failed",
        "ImagePullFailed",
    ),
    "container never started": (
        {
            "engine": make_pod(
                phase="Pending",
                ready=False,
                started_at=None,
                ready_at=None,
                created=LONG_AGO,
                scheduled_at=LONG_AGO,
                waiting_reason="ContainerCreating",
            ),
            "started_at": None,
            "ready_at": None,
        },
        "Failed",
        "PodNotStarted",
    ),
    "refused by its node": (
        {
            "engine": make_pod(phase="Failed", ready=False, started_at=None, termination_reason="OutOfcpu"),
            "ready_at": None,
        },
        "Failed",
        "PodLost",
    ),
    "evicted": ({"engine": make_pod(phase="Failed", termination_reason="Evicted")}, "Failed", "PodLost"),
    "being deleted": ({"engine": make_pod(terminating=True)}, "Failed", "PodLost"),
    "pod gone": ({"engine": None}, "Failed", "PodLost"),
    "load generator failed, 129": (
        {"engine": make_pod(), "loads": (LoadView(0, "j", "Failed", "DeadlineExceeded"),)},
        "Failed",
        "LoadFailed",
    ),
    "prometheus gone past the deadline": (
        {
            "engine": make_pod(),
            "loads": (LoadView(0, "j", "Succeeded", metrics_error="connection refused", finished_at=LONG_AGO),),
        },
        "Failed",
        "MetricsMissing",
    ),
}


@pytest.mark.parametrize(("over", "want_outcome", "want_reason"), ENDINGS.values(), ids=ENDINGS)
def test_a_failure_has_the_right_class_and_reason(over, want_outcome, want_reason):
    action = decide_trial(trial(**over), rules())[-1]

    assert isinstance(action, FinishTrial)
    assert (action.record.outcome, action.record.failure.reason) == (want_outcome, want_reason)
    learns = action.record.failure.failure_class == "Configuration"
    assert learns == (want_outcome == "Infeasible")


WAITS = {
    "still unscheduled": {
        "engine": make_pod(phase="Pending", ready=False, scheduled_at=None, started_at=None, ready_at=None),
        "started_at": None,
        "ready_at": None,
    },
    "load running": {"engine": make_pod(), "loads": (LoadView(0, "j", "Running"),)},
    "prometheus away for a moment": {
        "engine": make_pod(),
        "loads": (LoadView(0, "j", "Succeeded", metrics_error="refused", finished_at=NOW),),
    },
}


@pytest.mark.parametrize("over", WAITS.values(), ids=WAITS)
def test_it_waits(over):
    assert decide_trial(trial(**over), rules()) == ()


def test_an_ended_trial_gives_its_gpus_back_and_then_rests():
    record = make_record(3, CONFIGURATION)
    held = trial(record=record, engine=make_pod())

    assert decide_trial(held, rules()) == (ReleaseTrial(held.name),)
    assert decide_trial(replace(held, engine=None), rules()) == ()


def test_a_long_log_does_not_make_a_record_too_large_for_the_api():
    engine = make_pod(exit_code=137, termination_reason="OOMKilled", last_words="x" * 60_000)

    (action,) = decide_trial(trial(engine=engine), rules())

    assert len(action.record.failure.message) <= 1000
