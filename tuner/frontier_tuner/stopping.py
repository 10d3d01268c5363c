"""When a study ends. Each rule is a pure function of what is known and answers with a verdict: stop or go on, and why.

Budget, plateau, failure rate and pay-back are independent of each other; `first_stop` asks them in order.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from frontier_tuner.frontier import hypervolume, points
from frontier_tuner.objectives import Objectives
from frontier_tuner.trial import TrialRecord

BUDGET_EXHAUSTED = "BudgetExhausted"
"""Set where one more trial does not fit the budget; cleared by a larger one."""
SEARCH_SPACE_EXHAUSTED = "SearchSpaceExhausted"
"""Set where every valid configuration was tried; cleared by a larger space, which is another study."""
FRONTIER_STABLE = "FrontierStable"
"""Set where trials have stopped to improve the frontier, or are not expected to; stands for this study."""
TOO_MANY_FAILURES = "TooManyFailures"
"""Set where too many trials did not complete; stands until a new study is asked for."""
PAY_BACK = "PayBackExceeded"
"""Set where the next trial costs more than it is expected to save; cleared by more use or a higher price."""


class Verdict(NamedTuple):
    """The answer of a rule, as `(stop, reason)`.

    Attributes:
        stop: Whether to propose nothing more; trials under way may finish.
        reason: One of this module's reasons; empty where the study goes on.
        message: The sentence a user reads, also where the study goes on.
    """

    stop: bool
    reason: str
    message: str

    @property
    def ends(self) -> "Stop | None":
        """The verdict as a stop, or None where the study goes on."""
        return Stop(self.reason, self.message) if self.stop else None


@dataclass(frozen=True)
class Budget:
    """What a study may spend; None means no limit.

    Attributes:
        max_trials: Trials of the search, the baseline and the ablations included; failed and confirming ones do not
            count.
        max_gpu_hours: GPU-hours of all trials together.
        max_seconds: Seconds since the study began.
        ablations: Trials of `max_trials` that the search leaves for measuring what each technique contributed.
    """

    max_trials: int | None = 24
    max_gpu_hours: float | None = None
    max_seconds: float | None = None
    ablations: int = 0


@dataclass(frozen=True)
class Cost:
    """What one trial is expected to take.

    Attributes:
        gpu_seconds: GPUs times seconds held.
        seconds: From its start to its end.
    """

    gpu_seconds: float = 0.0
    seconds: float = 0.0


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
class Plateau:
    """When the search has nothing left to expect.

    Attributes:
        gain: Below this expected relative gain the best next start is not worth it.
        in_a_row: For so many proposals one after the other.
        minimum: Never before so many trials.
    """

    gain: float = 0.01
    in_a_row: int = 3
    minimum: int = 10


@dataclass(frozen=True)
class FailureLimit:
    """How many trials may come to nothing.

    Attributes:
        in_a_row: So many failed or infeasible trials one after the other end the study; 0 for no limit.
        share: Above this share of failed trials among the last `window` the surroundings cannot be trusted.
        window: So many trials are looked at.
    """

    in_a_row: int = 5
    share: float = 0.5
    window: int = 10


@dataclass(frozen=True)
class Use:
    """What the chosen point will be used for.

    Attributes:
        gpu_hours: GPU-hours that the present choice would be served with over the horizon that must pay the study back.
        price_per_gpu_hour: Price of a GPU-hour of serving.
        trial_price_per_gpu_hour: Price of a GPU-hour of a trial; None where it is the same.
    """

    gpu_hours: float
    price_per_gpu_hour: float = 1.0
    trial_price_per_gpu_hour: float | None = None


@dataclass(frozen=True)
class Stop:
    """Propose nothing more; trials under way may finish.

    Attributes:
        reason: One of this module's reasons.
        message: The sentence a user reads.
    """

    reason: str
    message: str


def searched(journal: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Return the trials that count as trials of the search: not failed, not confirming, not an ablation."""
    other = ("Confirmation", "Ablation")
    return tuple(record for record in journal if record.purpose not in other and record.outcome != "Failed")


def trials_begun(journal: Sequence[TrialRecord]) -> int:
    """Return how many trials of a budget are used: those of the search and the ablations, failed ones not counted."""
    return len(searched(journal)) + sum(r.purpose == "Ablation" and r.outcome != "Failed" for r in journal)


def expected_cost(journal: Sequence[TrialRecord], gpus: int) -> Cost:
    """Return what a trial on so many GPUs is expected to take: the median time of those that climbed their ladder.

    Where none did, of all that held GPUs; without any trial nothing is expected, and nothing can be refused for it.

    Args:
        journal: Finished trials.
        gpus: GPUs of the next trial; on a machine without GPUs the whole engine counts as one.
    """
    search = ("Baseline", "Search")
    held = [record for record in journal if record.gpu_seconds > 0 and record.purpose in search]
    whole = [record for record in held if record.outcome in ("Complete", "Pruned")] or held
    seconds = median(record.gpu_seconds / max(1, record.gpus) for record in whole) if whole else 0.0
    return Cost(max(1, gpus) * seconds, seconds)


def within_budget(
    journal: Sequence[TrialRecord],
    pending: int,
    budget: Budget,
    spent_seconds: float,
    next_cost: Cost | None = None,
    pending_gpu_seconds: float = 0.0,
) -> Verdict:
    """Return a stop where one more trial would exceed the budget in trials, GPU-hours or time.

    Args:
        journal: Finished trials.
        pending: Trials under way.
        budget: What may be spent.
        spent_seconds: Seconds since the study began.
        next_cost: What the next trial is expected to take; it must still fit. None asks only for something to be left.
        pending_gpu_seconds: What the trials under way are expected to take.
    """
    begun = trials_begun(journal) + pending
    kept = max(0, budget.ablations - (trials_begun(journal) - len(searched(journal))))
    following = next_cost or Cost()
    if budget.max_trials is not None and begun >= budget.max_trials - kept:
        left = f", {kept} are kept for ablations" if kept else ""
        return Verdict(True, BUDGET_EXHAUSTED, f"{begun} of {budget.max_trials} trials are used{left}")
    hours = (sum(record.gpu_seconds for record in journal) + pending_gpu_seconds) / 3600
    if budget.max_gpu_hours is not None:
        if hours >= budget.max_gpu_hours:
            return Verdict(True, BUDGET_EXHAUSTED, f"{hours:.2f} of {budget.max_gpu_hours:g} GPU-hours are used")
        if hours + following.gpu_seconds / 3600 > budget.max_gpu_hours:
            needs = f"{following.gpu_seconds / 3600:.2f} for the next trial do not fit"
            return Verdict(
                True, BUDGET_EXHAUSTED, f"{hours:.2f} of {budget.max_gpu_hours:g} GPU-hours are used, {needs}"
            )
    if budget.max_seconds is not None:
        if spent_seconds >= budget.max_seconds:
            return Verdict(True, BUDGET_EXHAUSTED, f"{spent_seconds:.0f} of {budget.max_seconds:.0f} seconds are used")
        if spent_seconds + following.seconds > budget.max_seconds:
            needs = f"{following.seconds:.0f} for the next trial do not fit"
            return Verdict(
                True, BUDGET_EXHAUSTED, f"{spent_seconds:.0f} of {budget.max_seconds:.0f} seconds are used, {needs}"
            )
    most = "" if budget.max_trials is None else f" of {budget.max_trials}"
    return Verdict(False, "", f"{begun}{most} trials and {hours:.2f} GPU-hours are used")


def plateau(expected_gains: Sequence[float], trials: int, rule: Plateau | None = None) -> Verdict:
    """Return a stop where the best next start is expected to gain too little, for some proposals in a row.

    Args:
        expected_gains: The expected relative gain of the best next start, one for each proposal so far, the latest
            last: 0.1 where the frontier or the target is expected to become a tenth better. Not a number is unknown and
            never a plateau.
        trials: Trials of the search that have finished.
        rule: How little, how often, and from when on.
    """
    rule = rule or Plateau()
    tail = list(expected_gains)[-rule.in_a_row :]
    if trials < rule.minimum or len(tail) < rule.in_a_row:
        return Verdict(False, "", f"{trials} trials and {len(tail)} expectations are too few to call it a plateau")
    if not all(gain < rule.gain for gain in tail):
        best = max((gain for gain in tail if math.isfinite(gain)), default=math.nan)
        return Verdict(False, "", f"the best next start is expected to gain {_percent(best)}")
    return Verdict(
        True,
        FRONTIER_STABLE,
        f"the best next start is expected to gain {_percent(tail[-1])}, "
        f"below {_percent(rule.gain)} for {rule.in_a_row} proposals in a row",
    )


def failing(journal: Sequence[TrialRecord], limit: FailureLimit | None = None) -> Verdict:
    """Return a stop where trials come to nothing: too many in a row, or too large a share for reasons of surroundings.

    Configurations that cannot serve teach the search and only count in a row; failures of the surroundings teach
    nothing and count as a share as well. Ablations do not count: a technique that is needed is an answer.
    """
    limit = limit or FailureLimit()
    ordered = sorted((r for r in journal if r.purpose != "Ablation"), key=lambda record: record.number)
    tail = ordered[-limit.in_a_row :] if limit.in_a_row > 0 else []
    bad = [record for record in tail if record.outcome in ("Failed", "Infeasible")]
    if bad and len(bad) >= limit.in_a_row:
        return Verdict(
            True, TOO_MANY_FAILURES, f"{limit.in_a_row} trials in a row did not complete; {_last_words(bad[-1])}"
        )
    recent = ordered[-limit.window :]
    failed = [record for record in recent if record.outcome == "Failed"]
    if len(recent) >= limit.window > 0 and len(failed) > limit.share * len(recent):
        return Verdict(
            True,
            TOO_MANY_FAILURES,
            f"{len(failed)} of the last {len(recent)} trials failed for a reason of their surroundings; "
            f"{_last_words(failed[-1])}",
        )
    return Verdict(False, "", f"{len(failed)} of the last {len(recent)} trials failed")


def pays_back(expected_gain: float, next_cost: Cost, use: Use) -> Verdict:
    """Return a stop where the next trial costs more than what it is expected to find would save.

    A configuration that is better by a share g serves the same tokens with 1 / (1 + g) of the GPU-hours, so it is
    expected to save `g / (1 + g) x GPU-hours x price`.

    Args:
        expected_gain: Expected relative gain of the next start in throughput per GPU; not a number is unknown and
            never a stop.
        next_cost: What the next trial is expected to take.
        use: What it will be used for.
    """
    if not math.isfinite(expected_gain):
        return Verdict(False, "", "what the next trial would gain is unknown")
    gain = max(0.0, expected_gain)
    saving = gain / (1 + gain) * use.gpu_hours * use.price_per_gpu_hour
    price = use.price_per_gpu_hour if use.trial_price_per_gpu_hour is None else use.trial_price_per_gpu_hour
    cost = next_cost.gpu_seconds / 3600 * price
    figures = f"the next trial costs {cost:.3g} and is expected to save {saving:.3g} over {use.gpu_hours:g} GPU-hours"
    return Verdict(True, PAY_BACK, figures) if saving < cost else Verdict(False, "", figures)


def stable(journal: Sequence[TrialRecord], objectives: Objectives, rule: Stability | None = None) -> Verdict:
    """Return a stop where the last trials added almost nothing to the frontier; needs a feasible point."""
    rule = rule or Stability()
    done = sorted(searched(journal), key=lambda record: record.number)
    if len(done) < max(rule.minimum, rule.window + 1):
        return Verdict(False, "", f"{len(done)} trials are too few to call the frontier stable")
    before = hypervolume(points(done[: -rule.window], objectives))
    after = hypervolume(points(done, objectives))
    if before <= 0:
        return Verdict(False, "", "there was no feasible point to add to")
    grown = f"the last {rule.window} trials added {_percent(after / before - 1)} to the frontier's hypervolume"
    if after > before * (1 + rule.growth):
        return Verdict(False, "", grown)
    return Verdict(True, FRONTIER_STABLE, grown)


def first_stop(verdicts: Iterable[Verdict]) -> Stop | None:
    """Return the first verdict that stops, as a stop; verdicts after it are not asked for where they are computed."""
    return next((verdict.ends for verdict in verdicts if verdict.stop), None)


def over_budget(journal: Sequence[TrialRecord], pending: int, budget: Budget, spent_seconds: float) -> Stop | None:
    """Return the stop of `within_budget`, or None."""
    return within_budget(journal, pending, budget, spent_seconds).ends


def too_many_failures(journal: Sequence[TrialRecord], max_failed: int) -> Stop | None:
    """Return the stop of `failing` by failures in a row alone, or None."""
    return failing(journal, FailureLimit(max_failed, share=1.0)).ends


def frontier_stable(
    journal: Sequence[TrialRecord], objectives: Objectives, stability: Stability | None = None
) -> Stop | None:
    """Return the stop of `stable`, or None."""
    return stable(journal, objectives, stability).ends


def _percent(share: float) -> str:
    percent = share * 100
    return f"{percent:.0f} %" if abs(percent) >= 10 else f"{percent:.2g} %"  # noqa: PLR2004 - two digits either way


def _last_words(record: TrialRecord) -> str:
    failure = record.failure
    return f"the last one: {failure.reason}: {failure.message}" if failure else "the last one gave no reason"
