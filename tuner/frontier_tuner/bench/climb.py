"""The load ladder of the baselines: one start, a whole curve, by the product's own rule of when to stop."""

from datetime import UTC, datetime, timedelta
from typing import TypeVar

import numpy as np

from frontier_tuner.bench.arena import Arena, Run, Rung
from frontier_tuner.bench.goal import MEAN
from frontier_tuner.ladder import NextRung, next_rung
from frontier_tuner.measurement import (
    E2E,
    ITL,
    THROUGHPUT,
    THROUGHPUT_PER_GPU,
    TTFT,
    USER_SPEED,
    Estimate,
    Load,
    Measurement,
    Window,
    key,
)

STRIDE = 2
"""The climb takes every second level of the table."""
REQUESTS = 100
_START = datetime(2026, 1, 1, tzinfo=UTC)
_WINDOW = Window(_START, _START + timedelta(minutes=1))
Item = TypeVar("Item")


def levels_of(arena: Arena, run: Run) -> list[int]:
    """Return the levels that an engine has and that fit its cache, lowest first."""
    exists = ~np.isnan(arena.candidates.concurrency[run.index]) & ~run.cache_full
    return [int(level) for level in np.flatnonzero(exists)]


def climb(arena: Arena, run: Run) -> list[Rung]:
    """Measure an engine's curve and return its rungs, lowest first.

    Takes every second level from the lowest until the ladder's rule ends it, then the level between the last that holds
    all demands and the first that does not.
    """
    levels = levels_of(arena, run)
    loads = {float(arena.candidates.concurrency[run.index, level]): level for level in levels[::STRIDE]}
    rungs: dict[int, Rung] = {}
    measured: list[Measurement] = []
    while isinstance(following := next_rung(list(loads), measured, arena.objectives), NextRung):
        rung = run.measure(loads[following.load.value])
        if rung is not None:
            rungs[rung.level] = rung
            measured.append(as_measurement(arena, run, rung))
        else:
            del loads[following.load.value]
    between = _crossing(arena, levels, rungs)
    if between is not None and (rung := run.measure(between)) is not None:
        rungs[between] = rung
    return [rungs[level] for level in sorted(rungs)]


def _crossing(arena: Arena, levels: list[int], rungs: dict[int, Rung]) -> int | None:
    """Return the level that was skipped right above the highest one that holds all demands, or None."""
    held = [level for level, rung in rungs.items() if arena.goal.feasible(rung)]
    if not held:
        return None
    above = [level for level in levels if level > max(held)]
    return above[0] if above and above[0] not in rungs else None


def as_measurement(arena: Arena, run: Run, rung: Rung) -> Measurement:
    """Return a rung in the form in which the product measures it."""
    index = run.index
    values = {
        key(TTFT, MEAN): rung.ttft,
        key(ITL, MEAN): rung.itl,
        key(E2E, MEAN): rung.ttft + rung.itl * (arena.goal.output_tokens - 1),
        key(USER_SPEED, MEAN): rung.user_speed,
        THROUGHPUT_PER_GPU: rung.throughput,
        THROUGHPUT: rung.throughput * float(arena.candidates.gpus[index]),
    }
    load = Load("Concurrency", float(arena.candidates.concurrency[index, rung.level]))
    metrics = {name: Estimate(value, value, value, REQUESTS) for name, value in values.items()}
    return Measurement(load, _WINDOW, REQUESTS, REQUESTS, 0, metrics)
