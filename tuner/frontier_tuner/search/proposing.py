"""The search on a journal: from trials as they are written down to the next configuration to start."""

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from threading import Lock

import numpy as np

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.engines.vllm_rules import DP
from frontier_tuner.frontier import SPEED_KEY
from frontier_tuner.measurement import COST, THROUGHPUT_PER_GPU, Load, Measurement, cost_per_million
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.predict import PriorModel
from frontier_tuner.search.candidates import Candidates, candidates_of
from frontier_tuner.search.goal import SPEED, THROUGHPUT, Bound, Goal
from frontier_tuner.search.search import Search, Settings, Started
from frontier_tuner.space import SearchSpace
from frontier_tuner.trial import TrialRecord

KEPT = 8
"""Searches that are kept: an operator asks for the same study again and again, a moment later each time."""


@dataclass(frozen=True)
class Start:
    """What to start next.

    Attributes:
        configuration: A valid configuration that is neither known nor under way.
        gain: Expected growth of what the target and the frontier are worth, as a share of what is reached.
        chance: Probability that its engine starts.
    """

    configuration: Configuration
    gain: float
    chance: float


def next_start(
    space: SearchSpace,
    journal: Sequence[TrialRecord],
    pending: Sequence[Configuration],
    *,
    objectives: Objectives,
    target: Target,
    loads: Sequence[Load],
    seed: int,
    prior: PriorModel | None,
    refused: Collection[Configuration] = (),
) -> Start:
    """Return the configuration whose curve should add most; the space must have one that is neither known nor pending.

    Args:
        space: The space.
        journal: All finished trials, by number.
        pending: Configurations under way.
        objectives: What must hold.
        target: What the point to serve is chosen by.
        loads: The ladder.
        seed: The study's seed.
        prior: What is expected of configurations, or None.
        refused: Configurations that must not be started, though nothing was tried of them.
    """
    goal = goal_of(objectives, target, _price(objectives, journal))
    search = _search(space, goal, tuple(loads), seed, prior)
    index = search.candidates.index
    history = [s for record in journal if (s := _started(record, index, goal, loads)) is not None]
    known = {*(record.configuration for record in journal), *refused}
    closed = [index[c] for c in known if c in index]
    choice = search.choose(history, [index[c] for c in pending if c in index], closed)
    return Start(search.candidates.configurations[choice.candidate], choice.gain, choice.chance)


def goal_of(objectives: Objectives, target: Target, price: float | None = None) -> Goal:
    """Return objectives and target as bounds on metrics.

    Args:
        objectives: SLOs count with the target's headroom.
        target: The policy and its figures.
        price: Of a GPU-hour; without it a bound on cost cannot be told and is left to the selection.
    """
    keys = [SPEED_KEY, THROUGHPUT_PER_GPU]
    bounds = []
    for slo in objectives.slos:
        if slo.key not in keys:
            keys.append(slo.key)
        edge = math.log(slo.bound_within(target.headroom_percent))
        bounds.append(Bound(keys.index(slo.key), edge, below=slo.maximum is not None))
    if target.policy == "AtUserSpeed" and target.user_tokens_per_second:
        bounds.append(Bound(SPEED, math.log(target.user_tokens_per_second), below=False))
    ceilings = [objectives.max_cost, target.max_cost if target.policy == "AtCost" else None]
    # The throughput at which a cost is reached is the cost at which that throughput is: one is the other's inverse.
    floors = [cost_per_million(price, ceiling) for ceiling in ceilings if ceiling and price]
    bounds.extend(Bound(THROUGHPUT, math.log(floor), below=False) for floor in floors)
    axis = {"MinLatency": SPEED, "AtCost": SPEED, "Knee": None}.get(target.policy, THROUGHPUT)
    return Goal(tuple(keys), tuple(bounds), axis)


def _price(objectives: Objectives, journal: Sequence[TrialRecord]) -> float | None:
    """Return the price of a GPU-hour, told or read from what a point cost."""
    if objectives.price_per_gpu_hour is not None:
        return objectives.price_per_gpu_hour
    for record in journal:
        for measured in record.measurements:
            cost, throughput = measured.value(COST), measured.value(THROUGHPUT_PER_GPU)
            if cost and throughput:
                return cost * throughput * 3600 / 1e6
    return None


def _started(record: TrialRecord, index: dict[Configuration, int], goal: Goal, loads: Sequence[Load]) -> Started | None:
    """Return what a trial teaches, or None: the surroundings failed, or it is of no space that is searched now."""
    place = index.get(record.configuration)
    if place is None or record.outcome == "Failed":
        return None
    if record.outcome == "Infeasible":
        return Started(place, died=True)
    rungs: dict[int, list[float]] = {}
    for measured in record.measurements:
        if measured.validity.valid and measured.load in loads:
            rungs[loads.index(measured.load)] = _logs(measured, goal)
    usable = {level: logs for level, logs in sorted(rungs.items()) if np.isfinite(logs[:2]).all()}
    if not usable:
        return None
    return Started(place, tuple(usable), np.array(list(usable.values())))


def _logs(measured: Measurement, goal: Goal) -> list[float]:
    found = [measured.value(key) for key in goal.keys]
    return [math.log(value) if value is not None and value > 0 else math.nan for value in found]


@dataclass(frozen=True)
class _Kept:
    space: SearchSpace
    goal: Goal
    loads: tuple[Load, ...]
    seed: int
    prior: PriorModel | None
    search: Search

    def answers(
        self, space: SearchSpace, goal: Goal, loads: tuple[Load, ...], seed: int, prior: PriorModel | None
    ) -> bool:
        same = self.space is space and self.goal == goal and self.loads == loads
        return same and self.seed == seed and self.prior == prior


_kept: deque[_Kept] = deque(maxlen=KEPT)
_keeping = Lock()


def _search(space: SearchSpace, goal: Goal, loads: tuple[Load, ...], seed: int, prior: PriorModel | None) -> Search:
    with _keeping:
        for kept in _kept:
            if kept.answers(space, goal, loads, seed, prior):
                return kept.search
    made = Search(_candidates(space, loads, prior), goal, seed, Settings())
    with _keeping:
        _kept.append(_Kept(space, goal, loads, seed, prior, made))
    return made


def _candidates(space: SearchSpace, loads: Sequence[Load], prior: PriorModel | None) -> Candidates:
    found = candidates_of(
        space,
        gpus=gpus,
        ranks=lambda configuration: configuration.integer(DP, 1),
        concurrency=[load.value for load in loads],
    )
    # A rate says nothing about how many requests are in flight, which is what priors ask for.
    if prior is None or any(load.kind != "Concurrency" for load in loads):
        return found
    prediction = prior.predict(found.configurations, found.concurrency)
    # Requests that do not fit the cache wait; their rung exists all the same.
    return replace(found, prediction=replace(prediction, memory=np.full_like(prediction.memory, np.nan)))
