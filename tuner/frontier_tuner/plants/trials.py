"""Runs one trial on a plant: one engine start, a whole ladder of load."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import MeasurementError, PlantError
from frontier_tuner.ladder import LadderDone, next_rung
from frontier_tuner.measurement import Load, Measurement
from frontier_tuner.objectives import Objectives
from frontier_tuner.plants import Engine, EngineFailedError, Plant
from frontier_tuner.trial import Failure, Outcome, Purpose, TrialRecord


@dataclass(frozen=True)
class Assignment:
    """What a trial is to do.

    Attributes:
        number: Position in the study.
        configuration: What to start the engine with.
        purpose: Why.
        reason: Why this configuration.
        gpus: GPUs that it holds.
        loads: The ladder, ascending.
        objectives: What ends the ladder early.
        seed: For the load's lengths, prompts and arrivals.
        expected_gain: What it was expected to add when it was proposed, or None.
    """

    number: int
    configuration: Configuration
    purpose: Purpose
    reason: str
    gpus: int
    loads: Sequence[Load]
    objectives: Objectives
    seed: int
    expected_gain: float | None = None


def run_trial(
    plant: Plant,
    assignment: Assignment,
    clock: Callable[[], float],
    on_rung: Callable[[Measurement], None] = lambda _: None,
) -> TrialRecord:
    """Return the finished trial; the engine is ended whatever happens.

    Args:
        plant: Where the engine is started.
        assignment: What to do.
        clock: Seconds of a monotonic clock.
        on_rung: Told of every rung as it is measured.

    Raises:
        PlantError: The surroundings cannot start anything, so that no further trial has a chance.
    """
    begun = clock()
    measured: list[Measurement] = []
    start_seconds: float | None = None
    outcome: Outcome
    failure: Failure | None
    try:
        engine = plant.start(assignment.configuration)
        start_seconds = engine.start_seconds
        try:
            outcome, failure = _climb(engine, assignment, measured, on_rung)
        finally:
            engine.stop()
    except EngineFailedError as error:
        outcome, failure = error.failure.outcome, error.failure
    return TrialRecord(
        number=assignment.number,
        configuration=assignment.configuration,
        purpose=assignment.purpose,
        outcome=outcome,
        gpus=assignment.gpus,
        measurements=tuple(measured),
        failure=failure,
        gpu_seconds=max(1, assignment.gpus) * (clock() - begun),
        engine_start_seconds=start_seconds,
        reason=assignment.reason,
        expected_gain=assignment.expected_gain,
    )


def _climb(
    engine: Engine, assignment: Assignment, measured: list[Measurement], on_rung: Callable[[Measurement], None]
) -> tuple[Outcome, Failure | None]:
    levels, kind = [load.value for load in assignment.loads], assignment.loads[0].kind
    while True:
        step = next_rung(levels, measured, assignment.objectives, kind=kind)
        if isinstance(step, LadderDone):
            return _outcome(step, measured)
        try:
            measurement = engine.measure(step.load, assignment.seed)
        except MeasurementError as error:
            return "Failed", Failure("MetricsMissing", str(error))
        except PlantError as error:
            return "Failed", Failure("LoadFailed", str(error))
        measured.append(measurement)
        on_rung(measurement)


def _outcome(done: LadderDone, measured: Sequence[Measurement]) -> tuple[Outcome, Failure | None]:
    if not any(measurement.validity.valid for measurement in measured):
        last = measured[-1].validity
        reason = "MetricsMissing" if last.reason == "MetricsMissing" else "WindowInvalid"
        return "Failed", Failure(reason, f"{last.reason}: {last.message}")
    return ("Complete" if done.reason == "LadderClimbed" else "Pruned"), None
