"""When a study ends: budget, a frontier that no longer moves, or too many failures in a row."""

from collections.abc import Sequence
from dataclasses import dataclass

from frontier_tuner.frontier import hypervolume, points
from frontier_tuner.objectives import Objectives
from frontier_tuner.trial import TrialRecord

BUDGET_EXHAUSTED = "BudgetExhausted"
SEARCH_SPACE_EXHAUSTED = "SearchSpaceExhausted"
FRONTIER_STABLE = "FrontierStable"
TOO_MANY_FAILURES = "TooManyFailures"


@dataclass(frozen=True)
class Budget:
    """What a study may spend; None means no limit.

    Attributes:
        max_trials: Trials of the search, the baseline included; failed and confirming ones do not count.
        max_gpu_hours: GPU-hours of all trials together.
        max_seconds: Seconds since the study began.
    """

    max_trials: int | None = 24
    max_gpu_hours: float | None = None
    max_seconds: float | None = None


@dataclass(frozen=True)
class Stability:
    """When the frontier counts as stable.

    Attributes:
        window: So many trials must have finished since the hypervolume last grew.
        growth: By less than this share it does not count as growing.
        minimum: Never before so many trials.
    """

    window: int = 6
    growth: float = 0.01
    minimum: int = 10


@dataclass(frozen=True)
class Stop:
    """Propose nothing more; trials under way may finish.

    Attributes:
        reason: `BudgetExhausted`, `SearchSpaceExhausted`, `FrontierStable` or `TooManyFailures`.
        message: The sentence a user reads.
    """

    reason: str
    message: str


def searched(journal: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Return the trials that count as trials of the search: not failed, not confirming."""
    return tuple(record for record in journal if record.purpose != "Confirmation" and record.outcome != "Failed")


def over_budget(journal: Sequence[TrialRecord], pending: int, budget: Budget, spent_seconds: float) -> Stop | None:
    """Return a stop where one more trial would exceed the budget."""
    begun = len(searched(journal)) + pending
    if budget.max_trials is not None and begun >= budget.max_trials:
        return Stop(BUDGET_EXHAUSTED, f"{begun} of {budget.max_trials} trials are used")
    hours = sum(record.gpu_seconds for record in journal) / 3600
    if budget.max_gpu_hours is not None and hours >= budget.max_gpu_hours:
        return Stop(BUDGET_EXHAUSTED, f"{hours:.2f} of {budget.max_gpu_hours:g} GPU-hours are used")
    if budget.max_seconds is not None and spent_seconds >= budget.max_seconds:
        return Stop(BUDGET_EXHAUSTED, f"{spent_seconds:.0f} of {budget.max_seconds:.0f} seconds are used")
    return None


def too_many_failures(journal: Sequence[TrialRecord], max_failed: int) -> Stop | None:
    """Return a stop where the last `max_failed` trials all failed or were infeasible."""
    tail = sorted(journal, key=lambda record: record.number)[-max_failed:]
    bad = [record for record in tail if record.outcome in ("Failed", "Infeasible")]
    if max_failed <= 0 or len(bad) < max_failed:
        return None
    failure = bad[-1].failure
    last = f"the last one: {failure.reason}: {failure.message}" if failure else "the last one gave no reason"
    return Stop(TOO_MANY_FAILURES, f"{max_failed} trials in a row did not complete; {last}")


def frontier_stable(
    journal: Sequence[TrialRecord], objectives: Objectives, stability: Stability | None = None
) -> Stop | None:
    """Return a stop where the last trials added almost nothing to the frontier; needs a feasible point."""
    rule = stability or Stability()
    done = sorted(searched(journal), key=lambda record: record.number)
    if len(done) < max(rule.minimum, rule.window + 1):
        return None
    before = hypervolume(points(done[: -rule.window], objectives))
    after = hypervolume(points(done, objectives))
    if before <= 0 or after > before * (1 + rule.growth):
        return None
    return Stop(
        FRONTIER_STABLE,
        f"the last {rule.window} trials added {(after / before - 1) * 100:.2g} % to the frontier's hypervolume",
    )
