"""What a study still measures once its search has stopped, before its choice may serve."""

from collections.abc import Sequence
from dataclasses import dataclass

from frontier_tuner.configuration import Configuration
from frontier_tuner.confirming import MAX_STARTS, finalist_plan
from frontier_tuner.measurement import Load
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.space import SearchSpace
from frontier_tuner.stopping import Budget, trials_begun, within_budget
from frontier_tuner.trial import Purpose, TrialRecord


@dataclass(frozen=True)
class Finish:
    """How a study ends.

    Attributes:
        finalists: Configurations that are measured again beside the incumbent; 0 for none.
        neighbours: Measured neighbours of the best one that are measured again too; None for as many as the budget has
            trials left.
        rounds: How often each of them is measured again.
    """

    finalists: int = 2
    neighbours: int | None = None
    rounds: int = 1

    @property
    def max_confirmations(self) -> int:
        """Confirming starts of one stop of the search at most: six, or more where more were asked for."""
        return max(MAX_STARTS, self.rounds * (self.finalists + 1 + (self.neighbours or 0)))


@dataclass(frozen=True)
class LastStart:
    """Start an engine although the search is over.

    Attributes:
        purpose: What for.
        configuration: What to start.
        loads: The rungs to climb, ascending; empty for the whole ladder.
        reason: The sentence a user reads.
    """

    purpose: Purpose
    configuration: Configuration
    loads: tuple[Load, ...]
    reason: str


def last_starts(
    journal: Sequence[TrialRecord],
    space: SearchSpace,
    objectives: Objectives,
    target: Target,
    *,
    finish: Finish,
    budget: Budget,
    incumbent: Configuration,
    spent_seconds: float,
) -> tuple[LastStart, ...]:
    """Return the starts that are still missing, in the order to run them; empty where the study is finished.

    Second measurements do not count as trials of the budget, except that neighbours of the best configuration are taken
    only for trials that the search has left over.

    Args:
        journal: Finished trials; the answer assumes that none is under way.
        space: The study's space.
        objectives: What must hold.
        target: Which point is wanted.
        finish: How the study ends.
        budget: What it may spend.
        incumbent: The configuration that serves, measured again beside the finalists.
        spent_seconds: Seconds since the study began.
    """
    if finish.finalists < 1:
        return ()
    again = finalist_plan(
        journal,
        objectives,
        target,
        space=space,
        count=finish.finalists,
        repeats=finish.rounds,
        incumbent=incumbent,
        neighbours=_room(journal, budget, spent_seconds) if finish.neighbours is None else finish.neighbours,
        max_starts=finish.max_confirmations,
    )
    return tuple(LastStart("Confirmation", rerun.configuration, rerun.loads, rerun.reason) for rerun in again)


def _room(journal: Sequence[TrialRecord], budget: Budget, spent_seconds: float) -> int | None:
    if within_budget(journal, 0, budget, spent_seconds).stop:
        return 0
    return None if budget.max_trials is None else budget.max_trials - trials_begun(journal)
