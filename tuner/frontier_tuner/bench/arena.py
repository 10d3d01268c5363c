"""The arena: what a method may see of a table, and a log of what it did.

A method starts engines by their place among the candidates and measures levels of load on them; it never sees a number
that it has not paid for.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from frontier_tuner.bench.goal import Goal
from frontier_tuner.bench.tables import Table
from frontier_tuner.errors import TunerError
from frontier_tuner.predict import Floats, Prediction

TTFT_NOISE = 0.10
"""Standard deviation of the logarithm of one measured time to first token."""
FLAKES = 0.03
"""Share of the starts that fail for no reason of theirs."""


class StartsSpentError(TunerError):
    """A method asked for more starts than it has."""


@dataclass(frozen=True)
class Rung:
    """What was measured at one level of load, noise included.

    Attributes:
        level: Its place among the levels.
        ttft: Mean time to first token, seconds.
        itl: Mean time between tokens, seconds.
        user_speed: Output tokens per second that one user sees.
        throughput: Output tokens per second per GPU.
    """

    level: int
    ttft: float
    itl: float
    user_speed: float
    throughput: float


@dataclass
class StartLog:
    """One engine start as it happened.

    Attributes:
        index: The engine's place in the table.
        engine_id: Its name.
        outcome: `Infeasible` where it died at start.
        levels: Levels measured, in that order.
        seconds: Time that the method thought before it, seconds.
    """

    index: int
    engine_id: str
    outcome: Literal["Complete", "Infeasible"]
    levels: list[int]
    seconds: float


@dataclass(frozen=True)
class Run:
    """An engine that has started.

    Attributes:
        index: Its place among the candidates.
        cache_full: (L,) whether a level does not fit its cache. An engine says at start how many tokens its cache
            holds, so this costs no measurement.
    """

    index: int
    cache_full: np.ndarray
    _curves: Floats = field(repr=False)
    _log: StartLog = field(repr=False)

    def measure(self, level: int) -> Rung | None:
        """Measure one level of load; None, at no cost, where it does not fit the cache or does not exist.

        Measuring a level again on the same run costs again and yields the same.
        """
        if not 0 <= level < self._curves.shape[1]:
            raise IndexError(f"level {level} is not one of 0 to {self._curves.shape[1] - 1}")
        ttft, itl, user_speed, throughput = (float(value) for value in self._curves[:, level])
        if np.isnan(throughput):
            return None
        self._log.levels.append(level)
        return Rung(level, ttft, itl, user_speed, throughput)


class Arena:
    """One experiment: a table behind noise, and a budget of starts.

    Attributes:
        candidates: The engines, in the table's order, with what the prior says of them.
        goal: What the method is asked for: what must hold, what is best, and which points hold it.
        objectives: Of the goal: what must hold.
        target: Of the goal: what is best.
        starts: Starts that the method has in all.
        log: What it did.
    """

    def __init__(
        self,
        table: Table,
        goal: Goal,
        *,
        starts: int,
        seed: int = 0,
        noise: float = 0.0,
        prediction: Prediction | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Open an experiment.

        Args:
            table: The truth.
            goal: What must hold and what is best.
            starts: Starts that the method has.
            seed: Of the noise; that of one engine's k-th start depends on nothing else, so that methods that try the
                same engine have the same luck.
            noise: Standard deviation of the logarithm of an engine start's speed; half as much again for each rung.
                Where it is above 0, a time to first token has `TTFT_NOISE` and a share of `FLAKES` of the starts fail.
            prediction: What a prior says of the engines, or None.
            clock: Seconds, for the method's own time.
        """
        self.candidates = table.candidates(prediction)
        self.goal = goal
        self.objectives = goal.objectives
        self.target = goal.target
        self.starts = starts
        self.log: list[StartLog] = []
        self._table, self._seed, self._noise = table, seed, noise
        self._tries = np.zeros(len(table), dtype=np.int64)
        self._clock = clock
        self._since = clock()

    @property
    def left(self) -> int:
        """Starts that are left."""
        return self.starts - len(self.log)

    def start(self, index: int) -> Run | None:
        """Start an engine; None where it dies at start, out of memory or by bad luck.

        Raises:
            StartsSpentError: No start is left.
            IndexError: There is no such candidate.
        """
        seconds = self._clock() - self._since
        if self.left <= 0:
            raise StartsSpentError(f"all {self.starts} starts are spent")
        if not 0 <= index < len(self._table):
            raise IndexError(f"candidate {index} is not one of 0 to {len(self._table) - 1}")
        curves = self._noisy(index)
        outcome: Literal["Complete", "Infeasible"] = "Infeasible" if curves is None else "Complete"
        log = StartLog(int(index), self._table.engine_ids[index], outcome, [], seconds)
        self.log.append(log)
        run = None if curves is None else Run(int(index), self._table.cache_full[index].copy(), curves, log)
        self._since = self._clock()
        return run

    def _noisy(self, index: int) -> Floats | None:
        """Return the curves of the engine's next start, one row for each result; None where it dies."""
        rng = np.random.default_rng([self._seed, index, int(self._tries[index])])
        self._tries[index] += 1
        truth, count = self._table.truth, len(self._table.batches)
        flake = rng.random() < FLAKES
        whole = np.exp(rng.normal(0, self._noise))
        each = np.exp(rng.normal(0, self._noise / 2, count))
        first = np.exp(rng.normal(0, TTFT_NOISE, count))
        if self._noise <= 0:
            flake, first = False, np.ones(count)
        if self._table.dead[index] or flake:
            return None
        faster = whole * each
        return np.stack(
            [
                truth.ttft[index] * first / whole,
                truth.itl[index] / faster,
                truth.user_speed[index] * faster,
                truth.throughput[index] * faster,
            ]
        )
