"""The study as a pure function: from the journal and what is under way to the next proposal, or to the end.

There is no study object to keep. What is known is rebuilt from the journal for every proposal, seeded by the study's
seed and the number of trials begun, so the same journal gives the same proposal, and a restart loses nothing. What one
of Optuna's samplers is told of a trial, both maximised:

* the logarithm of the highest throughput per GPU at a feasible rung: the cheap end of the trial's curve;
* the logarithm of the highest user speed at a feasible rung: the fast end of it;
* a constraint above 0 where no rung is feasible, by how much the nearest rung misses, or where the engine cannot serve.

A failure of the surroundings is not told; its configuration is proposed again, first and at most twice.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from frontier_tuner.configuration import Configuration
from frontier_tuner.confirming import finalists
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.frontier import Point, feasible, points
from frontier_tuner.lessons import lessons
from frontier_tuner.measurement import Load
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.predict import PriorModel
from frontier_tuner.samplers import FRONTIER, create_sampler, spread
from frontier_tuner.search.proposing import Start, next_start
from frontier_tuner.space import SearchSpace
from frontier_tuner.stopping import (
    SEARCH_SPACE_EXHAUSTED,
    Budget,
    FailureLimit,
    Plateau,
    Stability,
    Stop,
    Use,
    expected_cost,
    failing,
    first_stop,
    frontier_stable,
    over_budget,
    pays_back,
    plateau,
    searched,
    within_budget,
)
from frontier_tuner.trial import TrialRecord

__all__ = ["Proposal", "finalists", "propose"]

MAX_RETRIES = 2
OPENING = 6
"""Trials, the baseline included, before the sampler takes over; fewer where the space is small."""
SAMPLES = 48
"""How often the sampler may answer with something invalid or known before the nearest free configuration is taken."""
CANNOT_SERVE = 10.0
"""Violation of a configuration whose engine cannot serve: worse than any SLO missed tenfold."""


@dataclass(frozen=True)
class Proposal:
    """Start an engine with this configuration next.

    Attributes:
        configuration: A valid configuration that is neither known nor under way.
        reason: Why this one.
        gain: Expected growth of what the target and the frontier are worth, as a share; not a number where unknown.
    """

    configuration: Configuration
    reason: str
    gain: float = math.nan

    @property
    def expected_gain(self) -> float | None:
        """The gain as a trial keeps it, to a billionth; None where it is unknown."""
        return round(self.gain, 9) if math.isfinite(self.gain) else None


def propose(
    space: SearchSpace,
    journal: Sequence[TrialRecord],
    pending: Sequence[Configuration] = (),
    *,
    objectives: Objectives,
    target: Target,
    budget: Budget,
    spent_seconds: float,
    seed: int,
    sampler: str = FRONTIER,
    max_failed: int = 5,
    prior: PriorModel | None = None,
    loads: Sequence[Load] = (),
    stability: Stability | None = None,
    flat: Plateau | None = None,
    use: Use | None = None,
    pending_gains: Sequence[float | None] = (),
    parallel: int = 1,
) -> Proposal | Stop:
    """Return the next configuration to try, or why the study ends; the order of the journal does not matter.

    The first is always the baseline. `Frontier` is this project's own search (`search`); with one of Optuna's samplers
    the next few spread over the space before it decides. What was measured after the search's last trial, to confirm or
    to explain its choice, does not change what it would do next, so that a study that has ended stays so.

    Args:
        space: The space.
        journal: All finished trials.
        pending: Configurations under way.
        objectives: What must hold.
        target: Its headroom counts as part of the SLOs.
        budget: What may be spent.
        spent_seconds: Seconds since the study began.
        seed: The study's seed.
        sampler: `Frontier`, or one that is asked through Optuna: one of `samplers.SAMPLERS`.
        max_failed: So many failed or infeasible trials in a row end the study.
        prior: What is expected of configurations, for `Frontier`; None where nothing is.
        loads: The ladder; empty takes the loads that were measured.
        stability: When the frontier counts as stable; None takes the defaults.
        flat: When the search has nothing left to expect; None takes the defaults.
        use: What the choice will be used for, where the next trial must pay back; None for no such bound.
        pending_gains: What the trials under way were expected to gain, in the order of their numbers.
        parallel: Trials that may be under way at once. Each is expected to gain less than the one before it, so a
            plateau must hold for so many more proposals.
    """
    journal = sorted(journal, key=lambda record: record.number)
    settled = (
        failing(journal, FailureLimit(max_failed)).ends
        or over_budget(journal, len(pending), budget, spent_seconds)
        or frontier_stable(journal, objectives, stability)
    )
    if settled is not None:
        return settled
    proposal = _retry(journal, pending) or _next(
        space, journal, pending, objectives, target, seed=seed, sampler=sampler, prior=prior, loads=loads
    )
    if isinstance(proposal, Stop):
        return proposal
    cost = expected_cost(journal, gpus(proposal.configuration))
    begun = [expected_cost(journal, gpus(configuration)).gpu_seconds for configuration in pending]
    rule = flat or Plateau()
    gains = [*(r.expected_gain for r in journal if r.purpose == "Search"), *pending_gains, proposal.gain]
    known = [math.nan if gain is None else gain for gain in gains]
    return (
        first_stop(
            (
                within_budget(journal, len(pending), budget, spent_seconds, cost, sum(begun)),
                plateau(known, len(searched(journal)), replace(rule, in_a_row=rule.in_a_row + max(1, parallel) - 1)),
                *([pays_back(proposal.gain, cost, use)] if use is not None else []),
            )
        )
        or proposal
    )


def _next(
    space: SearchSpace,
    journal: Sequence[TrialRecord],
    pending: Sequence[Configuration],
    objectives: Objectives,
    target: Target,
    *,
    seed: int,
    sampler: str,
    prior: PriorModel | None,
    loads: Sequence[Load],
) -> Proposal | Stop:
    tried = list(dict.fromkeys([*(record.configuration for record in journal), *pending]))
    known = set(tried)
    if space.baseline not in known:
        return Proposal(space.baseline, "Baseline: the engine's defaults")
    free = [configuration for configuration in space.configurations() if configuration not in known]
    taught = lessons(journal, free)
    free = [configuration for configuration in free if configuration not in taught.refused]
    if not free:
        why = "".join(f"; {sentence}" for sentence in taught.sentences)
        left = f"all {space.size - len(taught.refused)} valid configurations are tried or under way"
        return Stop(SEARCH_SPACE_EXHAUSTED, left + why)
    last = max((record.number for record in journal if record.purpose in ("Baseline", "Search")), default=-1)
    journal = [record for record in journal if record.number <= last]
    climbed = tuple(loads) or _loads(journal)
    if sampler == FRONTIER and climbed:
        start = next_start(
            space,
            journal,
            pending,
            objectives=objectives,
            target=target,
            loads=climbed,
            seed=seed,
            prior=prior,
            refused=taught.refused,
        )
        return Proposal(start.configuration, _because(start), start.gain)
    stream = _stream(seed, len(journal) + len(pending))
    opening = min(OPENING, max(2, space.size // 4))
    ripe = sampler != FRONTIER and len(known) >= opening
    told = _told(space, journal, objectives, target) if ripe else []
    if told:
        return _ask(space, told, pending, free, sampler, stream)
    return Proposal(spread(space, tried, free, stream), f"Opening {len(known)}: the least tried values")


def _because(start: Start) -> str:
    return (
        f"{FRONTIER}: expected to add {start.gain * 100:.2g} % to the target and the frontier, "
        f"starts with {start.chance * 100:.0f} % probability"
    )


def _loads(journal: Sequence[TrialRecord]) -> tuple[Load, ...]:
    return tuple(sorted({measured.load for record in journal for measured in record.measurements}))


def _stream(seed: int, position: int) -> int:
    return int(np.random.SeedSequence((seed & 0xFFFFFFFF, position)).generate_state(1)[0])


def _retry(journal: Sequence[TrialRecord], pending: Sequence[Configuration]) -> Proposal | None:
    settled = {record.configuration for record in journal if record.outcome != "Failed"} | set(pending)
    failed: dict[Configuration, list[TrialRecord]] = {}
    for record in journal:
        wanted = record.purpose not in ("Confirmation", "Ablation")
        if record.outcome == "Failed" and record.configuration not in settled and wanted:
            failed.setdefault(record.configuration, []).append(record)
    for configuration, records in failed.items():
        if len(records) <= MAX_RETRIES:
            cause = records[-1].failure
            after = cause.reason if cause else "a failure of the surroundings"
            gain = records[-1].expected_gain
            because = f"Retry {len(records)} of {MAX_RETRIES} after {after}"
            return Proposal(configuration, because, math.nan if gain is None else gain)
    return None


def _told(
    space: SearchSpace, journal: Sequence[TrialRecord], objectives: Objectives, target: Target
) -> list[FrozenTrial]:
    """Return one finished Optuna trial for each configuration that taught something."""
    curves: dict[Configuration, list[Point]] = {}
    for point in points(journal, objectives):
        curves.setdefault(point.configuration, []).append(point)
    taught = [r.configuration for r in journal if r.outcome != "Failed" and r.configuration in space]
    lessons = [(c, _lesson(curves.get(c, []), objectives, target)) for c in dict.fromkeys(taught)]
    worst = [min((values[axis] for _, (values, _) in lessons if values), default=0.0) for axis in (0, 1)]
    return [
        create_trial(
            state=TrialState.COMPLETE,
            params=space.encode(configuration),
            distributions=space.to_distributions(configuration),
            values=list(values or worst),
            constraints={"objectives": violation},
        )
        for configuration, (values, violation) in lessons
    ]


def _lesson(curve: Sequence[Point], objectives: Objectives, target: Target) -> tuple[tuple[float, float] | None, float]:
    """Return the two objectives, or None where nothing was measured, and the violation, 0 or less where feasible."""
    usable = [point for point in curve if point.throughput > 0 and point.speed > 0]
    if not usable:
        return None, CANNOT_SERVE
    missed = {id(point): feasible(point.measured, objectives, target.headroom_percent)[1] for point in usable}
    fit = [point for point in usable if not missed[id(point)]]
    least = min(sum(min(v.excess, CANNOT_SERVE) if v.value is not None else 1.0 for v in m) for m in missed.values())
    best = fit or usable
    values = math.log(max(point.throughput for point in best)), math.log(max(point.speed for point in best))
    return values, 0.0 if fit else min(max(least, 1e-6), CANNOT_SERVE)


def _ask(
    space: SearchSpace,
    told: Sequence[FrozenTrial],
    pending: Sequence[Configuration],
    free: Sequence[Configuration],
    sampler: str,
    stream: int,
) -> Proposal:
    study = optuna.create_study(directions=["maximize", "maximize"], sampler=create_sampler(sampler, stream))
    study.add_trials(told)
    for configuration in (each for each in pending if each in space):
        study.enqueue_trial(space.encode(configuration))
        space.suggest(study.ask())
    available = set(free)
    wanted = free[0]
    for _ in range(SAMPLES):
        trial = study.ask()
        wanted = space.suggest(trial)
        if wanted in available:
            return Proposal(wanted, f"{sampler}: sampled from {len(told)} trials")
        # An answer that cannot be used is taken back, so that it is neither learnt from nor counted as under way.
        study.tell(trial, state=TrialState.FAIL)
    nearest = min(free, key=lambda candidate: (space.distance(candidate, wanted), candidate.hash))
    return Proposal(nearest, f"{sampler}: nearest free to what was sampled from {len(told)} trials")
