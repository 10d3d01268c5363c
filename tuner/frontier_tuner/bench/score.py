"""How good what a method measured is, by the truth of the rungs that it measured and by what they cost.

Two figures, each against the exhaustive table. The *hypervolume ratio*: the area that the measured points dominate in
user speed x throughput per GPU, of the area that all points of the table dominate; reference (0, 0), both axes divided
by the table's largest value. Only SLOs on the time to first token cut the frontier; a bound on speed only picks a point
of it. The *target ratio*: the best measured point that truly holds every SLO, by the target's policy, over the best of
the table. `MinCost`, `MaxThroughput` and `AtUserSpeed` compare throughput per GPU, `MinLatency` and `AtCost` user
speed, `Knee` how far a point lies from the line between the ends of the table's feasible frontier.

The cost of a start is the engine's GPUs x (`START_MINUTES` + `RUNG_MINUTES` for each rung); that of one that dies its
GPUs x `CRASH_MINUTES`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from frontier_tuner.bench.arena import StartLog
from frontier_tuner.bench.goal import Goal, GoalError
from frontier_tuner.bench.tables import Booleans, Table
from frontier_tuner.predict import Floats

START_MINUTES, RUNG_MINUTES, CRASH_MINUTES = 8.0, 1.5, 4.0
CHECKPOINTS = (8, 16, 24, 32, 48)
"""Starts after which a method is judged, besides the whole of its budget."""
REACHED = 0.95
"""Share of the best at the target that counts as having reached it."""


@dataclass(frozen=True)
class Checkpoint:
    """What a method has after some starts.

    Attributes:
        starts: How many.
        hypervolume: Hypervolume ratio, 0 to 1.
        target: Target ratio, 0 to 1.
        gpu_hours: What the starts cost.
        died: How many of the starts failed.
    """

    starts: int
    hypervolume: float
    target: float
    gpu_hours: float
    died: int


@dataclass(frozen=True)
class Score:
    """One run of one method.

    Attributes:
        checkpoints: In ascending order of starts.
        hours_to_target: GPU-hours after which `REACHED` of the target was first measured; None where it never was.
        seconds: Mean time that the method thought before a start.
    """

    checkpoints: tuple[Checkpoint, ...]
    hours_to_target: float | None
    seconds: float


@dataclass
class _Progress:
    """What a log amounts to so far."""

    hours: float = 0.0
    best: float = 0.0
    died: int = 0
    reached: float | None = None
    speeds: list[float] = field(default_factory=list)
    throughputs: list[float] = field(default_factory=list)


class Scorer:
    """Judges logs against one table and goal."""

    def __init__(self, table: Table, goal: Goal) -> None:
        """Find the best of the table.

        Raises:
            GoalError: No engine of the table holds the SLOs, so there is nothing to reach.
        """
        truth, alive = table.truth, ~table.dead[:, None]
        within = goal.responsive(truth) & alive
        self._speed = np.where(within, truth.user_speed, 0.0)
        self._throughput = np.where(within, truth.throughput, 0.0)
        self._gpus = table.gpus
        self._value = _values(table, goal, goal.feasible(truth) & alive)
        self.best = float(self._value.max())
        """The target's value at the table's best feasible point, in the unit of the policy."""
        if self.best <= 0:
            slos = ", ".join(name for name, _ in goal.slacks(truth)) or "the target"
            raise GoalError(f"no point of {table.path} holds {slos}: there is nothing to find; relax one of them")
        self._scale = self._speed.max() * self._throughput.max()
        self._whole = hypervolume(self._speed.ravel(), self._throughput.ravel()) / self._scale

    def score(self, log: Sequence[StartLog], marks: Sequence[int]) -> Score:
        """Return how good and how dear a log is after each of some numbers of starts.

        A log that ends earlier stands still from there.
        """
        done = _Progress()
        checkpoints = []
        for number in range(max(marks) + 1):
            if 0 < number <= len(log):
                self._add(done, log[number - 1])
            if number in marks:
                area = hypervolume(np.array(done.speeds), np.array(done.throughputs)) / self._scale / self._whole
                checkpoints.append(Checkpoint(number, area, done.best, done.hours, done.died))
        seconds = sum(start.seconds for start in log) / max(len(log), 1)
        return Score(tuple(checkpoints), done.reached, seconds)

    def _add(self, done: "_Progress", start: StartLog) -> None:
        done.hours += self.gpu_hours(start)
        done.died += start.outcome == "Infeasible"
        for level in start.levels:
            done.speeds.append(float(self._speed[start.index, level]))
            done.throughputs.append(float(self._throughput[start.index, level]))
            done.best = max(done.best, float(self._value[start.index, level]) / self.best)
        if done.reached is None and done.best >= REACHED:
            done.reached = done.hours

    def gpu_hours(self, start: StartLog) -> float:
        """Return what one start costs."""
        died = start.outcome == "Infeasible"
        minutes = CRASH_MINUTES if died else START_MINUTES + RUNG_MINUTES * len(start.levels)
        return float(self._gpus[start.index]) * minutes / 60


def frontier(speed: Floats, throughput: Floats) -> tuple[Floats, Floats]:
    """Return the points above 0 that no other dominates, fastest first."""
    real = (speed > 0) & (throughput > 0)
    speed, throughput = speed[real], throughput[real]
    order = np.lexsort((-throughput, -speed))
    speed, throughput = speed[order], throughput[order]
    kept = np.ones(len(speed), dtype=bool)
    kept[1:] = throughput[1:] > np.maximum.accumulate(throughput)[:-1]
    return speed[kept], throughput[kept]


def hypervolume(speed: Floats, throughput: Floats) -> float:
    """Return the area that the points dominate, from (0, 0)."""
    fast, much = frontier(speed, throughput)
    return float(np.sum(fast * np.diff(much, prepend=0.0)))


def _values(table: Table, goal: Goal, feasible: Booleans) -> Floats:
    """Return (n, L) what the policy maximises, 0 where a point is not feasible."""
    speed, throughput = table.truth.user_speed, table.truth.throughput
    match goal.target.policy:
        case "MinCost" | "MaxThroughput" | "AtUserSpeed":
            return np.where(feasible, throughput, 0.0)
        case "MinLatency" | "AtCost":
            return np.where(feasible, speed, 0.0)
        case "Knee":
            return _knee(np.where(feasible, speed, 0.0), np.where(feasible, throughput, 0.0))


def _knee(speed: Floats, throughput: Floats) -> Floats:
    """Return the sum of both axes, each from 0 to 1 between the ends of the frontier of all these points."""
    fast, much = frontier(speed.ravel(), throughput.ravel())
    if not len(fast):
        return np.zeros_like(speed)
    across = (speed - fast[-1]) / (fast[0] - fast[-1]) if len(fast) > 1 else np.ones_like(speed)
    along = (throughput - much[0]) / (much[-1] - much[0]) if len(fast) > 1 else np.ones_like(speed)
    return np.where(throughput > 0, np.maximum(across + along, 0.0), 0.0)
