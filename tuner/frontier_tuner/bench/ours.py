"""This project's own search, as the benchmark runs it."""

import math

import numpy as np

from frontier_tuner.bench.arena import Arena, Run
from frontier_tuner.bench.goal import MEAN, Goal
from frontier_tuner.frontier import SPEED_KEY
from frontier_tuner.measurement import E2E, ITL, THROUGHPUT_PER_GPU, TTFT, key
from frontier_tuner.predict import Floats
from frontier_tuner.search import goal as search_goal
from frontier_tuner.search.proposing import goal_of
from frontier_tuner.search.search import Search, Settings, Started


def run(arena: Arena, seed: int, starts: int, settings: Settings | None = None) -> None:
    """Spend the starts of an arena.

    Args:
        arena: Where engines are started.
        seed: The study's seed.
        starts: How many to spend.
        settings: How the search weighs; None takes the defaults.
    """
    goal = _goal(arena.goal)
    search = Search(arena.candidates, goal, seed, settings)
    history: list[Started] = []
    for _ in range(starts):
        choice = search.choose(history)
        engine = arena.start(choice.candidate)
        if engine is None:
            history.append(Started(choice.candidate, died=True))
        else:
            history.append(_climb(search, arena.goal, engine, history))


def _goal(goal: Goal) -> search_goal.Goal:
    """Return the goal with the time to first token among its metrics: a table's curves always tell it."""
    found = goal_of(goal.objectives, goal.target, goal.gpu_price)
    first = key(TTFT, MEAN)
    keys = found.keys if first in found.keys else (*found.keys, first)
    return search_goal.Goal(keys, found.bounds, found.axis)


def _climb(search: Search, goal: Goal, engine: Run, history: list[Started]) -> Started:
    ladder = search.ladder(engine.index, history, ~engine.cache_full)
    measured: dict[int, Floats] = {}
    while (level := ladder.following(measured)) is not None:
        rung = engine.measure(level)
        if rung is None:
            break
        values = {
            SPEED_KEY: rung.user_speed,
            THROUGHPUT_PER_GPU: rung.throughput,
            key(TTFT, MEAN): rung.ttft,
            key(ITL, MEAN): rung.itl,
            key(E2E, MEAN): rung.ttft + goal.output_tokens * rung.itl,
        }
        measured[level] = np.array([math.log(values[name]) for name in search.goal.keys])
    if not measured:
        # It started, and no load fits: as good as dead.
        return Started(engine.index, died=True)
    order = sorted(measured)
    return Started(engine.index, tuple(order), np.stack([measured[level] for level in order]))
