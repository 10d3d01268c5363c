"""One trial's next step, from what runs for it.

no engine ──► starting ──► ready ──► rung 0 ──► … ──► rung k ──► Complete
    │             │          │          │
    │             │          │          ├─ engine ended ─────────► Infeasible (EngineDied)
    │             │          │          └─ windows never valid ──► Failed (the window's reason)
    │             ├─ engine ended or too slow ───────────────────► Infeasible
    │             └─ no node, no image, pod taken away ──────────► Failed
    └─ it had one before ────────────────────────────────────────► Failed (PodLost)
"""

from dataclasses import dataclass, replace
from datetime import datetime

from frontier_operator.api import conditions as reasons
from frontier_operator.core.decision import (
    Action,
    Announce,
    FinishTrial,
    RecordProgress,
    RecordRung,
    ReleaseTrial,
    StartEngine,
    StartLoad,
)
from frontier_operator.core.live_trials import LiveRules, Stay, felt_by_users, judge_live
from frontier_operator.core.observation import LoadView, PodView, TrialView, Tunables
from frontier_tuner.failures import classify_exit, start_timeout
from frontier_tuner.ladder import LadderDone, next_rung
from frontier_tuner.measurement import Measurement
from frontier_tuner.objectives import Objectives
from frontier_tuner.trial import Failure, Outcome, TrialRecord

TAKEN_AWAY = frozenset(
    {
        "DeadlineExceeded",
        "Evicted",
        "NodeLost",
        "NodeShutdown",
        "Preempted",
        "Shutdown",
        "Terminated",
        "UnexpectedAdmissionError",
    }
)
"""Reasons of a pod that ended through no fault of its container."""

CANNOT_START = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
)
"""Reasons of a container that waits for something outside of it."""

MAX_WORDS = 1000
"""Characters of an engine's last words that a failure carries."""

MAX_INVALID_WINDOWS = 2
"""Windows in a row that may be invalid at one level before the trial is given back."""


@dataclass(frozen=True)
class TrialRules:
    """What the study asks of each of its trials.

    Attributes:
        now: The time of the observation.
        objectives: What ends a ladder early.
        engine_start_seconds: What an engine may take to become ready.
        seed: The study's seed; each rung's load gets its own from it.
        tunables: The operator's time limits.
        may_start: Whether the GPU cap, and for a live trial the share of the traffic, leaves room for its engine.
        live: What holds for trials on real traffic; None where the load is the tuner's own.
    """

    now: datetime
    objectives: Objectives
    engine_start_seconds: float
    seed: int
    tunables: Tunables
    may_start: bool
    live: LiveRules | None = None


def decide_trial(trial: TrialView, rules: TrialRules) -> tuple[Action, ...]:
    """Return what to do for one trial now, in order; empty means wait."""
    if trial.finished:
        return (ReleaseTrial(trial.name),) if trial.engine or trial.loads else ()
    engine = trial.engine
    if engine is None:
        if trial.started_at is not None or trial.measurements:
            return (_finish(trial, rules.now, Failure("PodLost", "the engine's pod was deleted while the trial ran")),)
        return (StartEngine(trial.name, trial.configuration, trial.live),) if rules.may_start else ()
    failure = _engine_failure(trial, engine, rules)
    if failure is not None:
        return (_finish(trial, rules.now, felt_by_users(failure, trial) if trial.live else failure),)
    return _progress(trial, engine) + _measure(trial, engine, rules)


def _measure(trial: TrialView, engine: PodView, rules: TrialRules) -> tuple[Action, ...]:
    if rules.live is not None and trial.live:
        return _serve_users(trial, rules.live, rules)
    if not engine.ready and trial.ready_at is None:
        return ()
    return _climb(trial, engine, rules)


def _serve_users(trial: TrialView, live: LiveRules, rules: TrialRules) -> tuple[Action, ...]:
    """Let a live trial's engine serve, or record it and take it out of the Service in the same pass."""
    step = judge_live(trial, live, rules.objectives, rules.now)
    if isinstance(step, Stay):
        return ()
    measured = () if step.measurement is None else (step.measurement,)
    finish = _finish(trial, rules.now, step.failure, measured)
    finish = replace(finish, record=replace(finish.record, beside=step.beside))
    leave: tuple[Action, ...] = (finish, ReleaseTrial(trial.name))
    if step.failure is None:
        return (*(RecordRung(trial.name, 0, rung) for rung in measured), *leave)
    if step.failure.reason != reasons.GUARDRAIL_BREACHED:
        return leave
    return (*leave, Announce(reasons.GUARDRAIL_BREACHED, f"trial {trial.name}: {step.failure.message}", warning=True))


def supersede(trial: TrialView, now: datetime, why: str) -> tuple[Action, ...]:
    """Return what ends a trial that nobody waits for any more, and gives its GPUs back."""
    if not trial.finished:
        finish = _finish(trial, now, Failure("Superseded", why))
        return (finish, ReleaseTrial(trial.name)) if trial.live and trial.engine else (finish,)
    return (ReleaseTrial(trial.name),) if trial.engine or trial.loads else ()


def _progress(trial: TrialView, engine: PodView) -> tuple[Action, ...]:
    started = trial.started_at or engine.started_at
    ready = trial.ready_at or engine.ready_at
    if (started, ready) == (trial.started_at, trial.ready_at):
        return ()
    return (RecordProgress(trial.name, started, ready),)


def _engine_failure(trial: TrialView, engine: PodView, rules: TrialRules) -> Failure | None:
    if engine.terminating or engine.termination_reason in TAKEN_AWAY:
        return Failure("PodLost", f"the engine's pod was taken away: {engine.termination_reason or 'deleted'}")
    if engine.exit_code is not None or engine.phase in {"Failed", "Succeeded"}:
        if engine.exit_code is None:
            why = engine.termination_reason or engine.phase
            return Failure("PodLost", f"the node did not run the engine's pod: {why}")
        if engine.termination_reason == "OOMKilled":
            words = engine.last_words[-MAX_WORDS:]
            return Failure("EngineOutOfMemory", words or "the container exceeded its memory limit")
        was_ready = trial.ready_at is not None or engine.ready_at is not None
        return classify_exit(engine.exit_code, engine.last_words, was_ready=was_ready)
    return _waiting_failure(trial, engine, rules)


def _waiting_failure(trial: TrialView, engine: PodView, rules: TrialRules) -> Failure | None:
    waited = (rules.now - engine.created).total_seconds()
    late = waited > rules.tunables.scheduling_seconds
    if engine.scheduled_at is None:
        why = engine.unschedulable or f"no node took the pod within {waited:.0f} s"
        return Failure("Unschedulable", why) if late else None
    if engine.waiting_reason in CANNOT_START and late:
        reason = "ImagePullFailed" if "Image" in engine.waiting_reason else "ContainerConfigError"
        return Failure(reason, f"{engine.waiting_reason}: {engine.waiting_message}")
    return _slow_start(trial, engine, rules)


def _slow_start(trial: TrialView, engine: PodView, rules: TrialRules) -> Failure | None:
    limit = rules.engine_start_seconds
    if engine.started_at is None:
        held = (rules.now - (engine.scheduled_at or engine.created)).total_seconds()
        why = f"{engine.waiting_reason} {engine.waiting_message}".strip() or "no reason given"
        return (
            Failure("PodNotStarted", f"its container did not start within {held:.0f} s: {why}")
            if held > limit
            else None
        )
    if engine.ready_at is not None or trial.ready_at is not None:
        return None
    starting = (rules.now - engine.started_at).total_seconds()
    return start_timeout(limit, engine.last_words) if starting > limit else None


def _climb(trial: TrialView, engine: PodView, rules: TrialRules) -> tuple[Action, ...]:
    index = len(trial.measurements)
    load_job = next((view for view in trial.loads if view.index == index), None)
    if load_job is None:
        return _next(trial, engine, trial.measurements, rules)
    if load_job.state == "Running":
        return ()
    if load_job.state == "Failed":
        return (_finish(trial, rules.now, Failure("LoadFailed", load_job.message)),)
    if load_job.measurement is None:
        return _without_metrics(trial, load_job, rules)
    measured = (*trial.measurements, load_job.measurement)
    return (RecordRung(trial.name, index, load_job.measurement), *_next(trial, engine, measured, rules))


def _without_metrics(trial: TrialView, load_job: LoadView, rules: TrialRules) -> tuple[Action, ...]:
    since = load_job.finished_at or rules.now
    if (rules.now - since).total_seconds() > rules.tunables.load_deadline_seconds:
        return (_finish(trial, rules.now, Failure("MetricsMissing", load_job.metrics_error)),)
    return ()


def _next(
    trial: TrialView, engine: PodView, measured: tuple[Measurement, ...], rules: TrialRules
) -> tuple[Action, ...]:
    index = len(measured)
    invalid = _invalid_tail(measured)
    if invalid:
        last = invalid[-1]
        if len(invalid) >= MAX_INVALID_WINDOWS:
            failure = Failure(_failure_reason(last), f"{last.validity.reason}: {last.validity.message}")
            return (_finish(trial, rules.now, failure, measured),)
        load = last.load
    else:
        climbed = tuple(m for m in measured if m.validity.valid or _too_slow(m))
        step = next_rung(trial.levels, climbed, rules.objectives, kind=trial.kind)
        if isinstance(step, LadderDone):
            return (_finish(trial, rules.now, _nothing_counts(measured), measured),)
        load = step.load
    seed = rules.seed * 1_000_003 + trial.number * 101 + index
    return (StartLoad(trial.name, index, load, engine.ip, seed),)


def _invalid_tail(measured: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
    tail: list[Measurement] = []
    for measurement in reversed(measured):
        if measurement.validity.valid or _too_slow(measurement):
            break
        tail.append(measurement)
    return tuple(reversed(tail))


def _too_slow(measurement: Measurement) -> bool:
    """Return whether a rung only had too few requests: more load brings more, the same load again does not."""
    return measurement.validity.reason == "InsufficientSamples"


def _nothing_counts(measured: tuple[Measurement, ...]) -> Failure | None:
    if any(measurement.validity.valid for measurement in measured):
        return None
    return Failure("WindowInvalid", f"no rung counts; the last one: {measured[-1].validity.message}")


def _failure_reason(measurement: Measurement) -> str:
    return "MetricsMissing" if measurement.validity.reason == "MetricsMissing" else "WindowInvalid"


def _finish(
    trial: TrialView, now: datetime, failure: Failure | None, measured: tuple[Measurement, ...] | None = None
) -> FinishTrial:
    outcome: Outcome = failure.outcome if failure else "Complete"
    engine = trial.engine
    held_since = engine.scheduled_at if engine else trial.started_at
    start_seconds = None
    started = trial.started_at or (engine.started_at if engine else None)
    ready = trial.ready_at or (engine.ready_at if engine else None)
    if started and ready:
        start_seconds = (ready - started).total_seconds()
    record = TrialRecord(
        number=trial.number,
        configuration=trial.configuration,
        purpose=trial.purpose,
        outcome=outcome,
        gpus=trial.gpus,
        measurements=trial.measurements if measured is None else measured,
        failure=failure,
        gpu_seconds=trial.gpus * (now - held_since).total_seconds() if held_since else 0.0,
        engine_start_seconds=start_seconds,
        reason=trial.reason,
        expected_gain=trial.expected_gain,
    )
    return FinishTrial(trial.name, record)
