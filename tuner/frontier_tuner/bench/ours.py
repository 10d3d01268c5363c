"""This project's own search, as the benchmark runs it."""

import numpy as np

from frontier_tuner.bench.arena import Arena, Run, Rung
from frontier_tuner.measurement import ITL, TTFT
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.predict import Floats
from frontier_tuner.search.goal import SPEED, THROUGHPUT, Bound, Goal
from frontier_tuner.search.search import Search, Settings, Started


def goal_of(objectives: Objectives, target: Target) -> Goal:
    """Return the goal in terms of a table's metrics."""
    keys = ["UserTokensPerSecond", "OutputTokensPerSecondPerGPU", TTFT, ITL]
    bounds = []
    for slo in objectives.slos:
        metric = keys.index(slo.metric)
        bounds.append(Bound(metric, float(np.log(slo.bound)), slo.maximum is not None))
    if target.policy == "AtUserSpeed" and target.user_tokens_per_second:
        bounds.append(Bound(SPEED, float(np.log(target.user_tokens_per_second)), below=False))
    axis = {"MinLatency": SPEED, "AtCost": SPEED, "Knee": None}.get(target.policy, THROUGHPUT)
    used = {bound.metric for bound in bounds}
    last = max([TTFT_PLACE, *used])
    return Goal(tuple(keys[: last + 1]), tuple(bounds), axis)


TTFT_PLACE = 2


def run(arena: Arena, seed: int, starts: int, settings: Settings | None = None) -> None:
    """Spend the starts."""
    goal = goal_of(arena.objectives, arena.target)
    search = Search(arena.candidates, goal, seed, settings)
    history: list[Started] = []
    for _ in range(starts):
        choice = search.choose(history)
        engine = arena.start(choice.candidate)
        if engine is None:
            history.append(Started(choice.candidate, died=True))
            continue
        history.append(_climb(search, goal, choice.candidate, engine, history))


def _climb(search: Search, goal: Goal, candidate: int, engine: Run, history: list[Started]) -> Started:
    ladder = search.ladder(candidate, history, ~engine.cache_full)
    measured: dict[int, Floats] = {}
    while True:
        level = ladder.following(measured)
        if level is None:
            break
        rung = engine.measure(level)
        if rung is None:
            break
        measured[level] = _logs(rung, goal)
    order = sorted(measured)
    if not order:
        return Started(candidate, died=True)
    return Started(candidate, tuple(order), np.stack([measured[level] for level in order]))


def _logs(rung: Rung, goal: Goal) -> Floats:
    return np.log([rung.user_speed, rung.throughput, rung.ttft, rung.itl])[: len(goal.keys)]
