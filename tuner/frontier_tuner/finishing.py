"""What a study still measures once its search has stopped, before its choice may serve."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontier_tuner.configuration import Configuration
from frontier_tuner.confirming import MAX_STARTS, choose, finalist_plan
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.factors import leave_one_out_plan
from frontier_tuner.measurement import Load
from frontier_tuner.noise import estimate_noise
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.space import SearchSpace
from frontier_tuner.stopping import Budget, expected_cost, trials_begun, within_budget
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

    First the finalists are measured again; once the choice stands, it is measured with one technique set back at a time
    where the budget asks for ablations. Second measurements do not count as trials of the budget, except that
    neighbours of the best configuration are taken only for trials that the search has left over.

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
    again = _second(journal, space, objectives, target, finish, _room(journal, budget, spent_seconds), incumbent)
    if again or not budget.ablations:
        return again
    most = finish.max_confirmations
    winner = choose(journal, objectives, target, noise=estimate_noise(journal), max_starts=most).selection.point
    return () if winner is None else _ablations(journal, space, winner.configuration, budget, spent_seconds)


def _second(
    journal: Sequence[TrialRecord],
    space: SearchSpace,
    objectives: Objectives,
    target: Target,
    finish: Finish,
    room: int | None,
    incumbent: Configuration,
) -> tuple[LastStart, ...]:
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
        neighbours=room if finish.neighbours is None else finish.neighbours,
        max_starts=finish.max_confirmations,
    )
    return tuple(LastStart("Confirmation", rerun.configuration, rerun.loads, rerun.reason) for rerun in again)


def _ablations(
    journal: Sequence[TrialRecord],
    space: SearchSpace,
    winner: Configuration,
    budget: Budget,
    spent_seconds: float,
) -> tuple[LastStart, ...]:
    made = sum(record.purpose == "Ablation" and record.outcome != "Failed" for record in journal)
    spent = within_budget(journal, 0, replace(budget, ablations=0), spent_seconds)
    if spent.stop or winner == space.baseline or made >= budget.ablations:
        return ()
    starts = budget.ablations - made
    if budget.max_trials is not None:
        starts = min(starts, budget.max_trials - trials_begun(journal))
    held = sum(record.gpu_seconds for record in journal)
    plan = leave_one_out_plan(
        space,
        winner,
        space.baseline,
        journal,
        starts=starts,
        gpu_seconds=None if budget.max_gpu_hours is None else budget.max_gpu_hours * 3600 - held,
        cost=lambda configuration: expected_cost(journal, gpus(configuration)).gpu_seconds,
    )
    return tuple(LastStart("Ablation", without.configuration, (), without.reason) for without in plan)


def _room(journal: Sequence[TrialRecord], budget: Budget, spent_seconds: float) -> int | None:
    if within_budget(journal, 0, budget, spent_seconds).stop:
        return 0
    return None if budget.max_trials is None else budget.max_trials - budget.ablations - trials_begun(journal)
