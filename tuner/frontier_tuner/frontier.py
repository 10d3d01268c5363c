"""The frontier: which measured points no other feasible point beats.

Two axes, both maximised: the speed that a user sees (median tokens per second) and the throughput of one GPU. Points
are measured, never interpolated.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from frontier_tuner.configuration import Configuration
from frontier_tuner.measurement import COST, THROUGHPUT_PER_GPU, USER_SPEED, Estimate, Load, Measurement, key
from frontier_tuner.objectives import Objectives
from frontier_tuner.trial import TrialRecord

SPEED_KEY = key(USER_SPEED, 50)
ROUNDING = 1e-9
"""Slack that floating point may eat before a bound counts as missed."""


@dataclass(frozen=True)
class SLOViolation:
    """One objective that a measurement misses.

    Attributes:
        name: The SLO's name, or `cost`.
        key: The metric.
        value: What was measured, or None where it is unknown.
        bound: What it must hold, headroom included.
        excess: How far beyond the bound, relative to it; 0 where the value is unknown.
    """

    name: str
    key: str
    value: float | None
    bound: float
    excess: float

    @property
    def message(self) -> str:
        """The sentence a user reads."""
        if self.value is None:
            return f"{self.name}: {self.key} is unknown, must hold {_unit(self.key, self.bound)}"
        return f"{self.name}: {self.key} is {_unit(self.key, self.value)}, must hold {_unit(self.key, self.bound)}"


@dataclass(frozen=True)
class Point:
    """One valid rung of one trial.

    Attributes:
        configuration: What the engine was started with.
        load: The level of load.
        trial: Number of the trial.
        gpus: GPUs that it held.
        metrics: Estimates by key.
        measured: The whole measurement.
        violations: The objectives that it misses; empty where it is feasible.
    """

    configuration: Configuration
    load: Load
    trial: int
    gpus: int
    metrics: Mapping[str, Estimate] = field(repr=False)
    measured: Measurement = field(repr=False)
    violations: tuple[SLOViolation, ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether it holds all objectives, without headroom."""
        return not self.violations

    @property
    def speed(self) -> float:
        """Median tokens per second that a user sees."""
        return self.metrics[SPEED_KEY].value

    @property
    def throughput(self) -> float:
        """Output tokens per second and GPU."""
        return self.metrics[THROUGHPUT_PER_GPU].value


def feasible(
    measurement: Measurement, objectives: Objectives, headroom_percent: int = 0
) -> tuple[bool, tuple[SLOViolation, ...]]:
    """Return whether a measurement holds all objectives, and those that it misses.

    Args:
        measurement: A rung; an invalid one is never feasible, and neither is one that lacks a metric.
        objectives: What must hold.
        headroom_percent: How far inside every SLO the values must lie; the cost ceiling has no headroom.
    """
    margin = headroom_percent / 100
    missed = []
    for slo in objectives.slos:
        value = measurement.value(slo.key)
        bound = slo.bound * (1 - margin if slo.maximum is not None else 1 + margin)
        if value is None:
            missed.append(SLOViolation(slo.name, slo.key, None, bound, 0.0))
        elif slo.slack(value) < margin - ROUNDING:
            missed.append(SLOViolation(slo.name, slo.key, value, bound, margin - slo.slack(value)))
    ceiling = objectives.max_cost
    if ceiling is not None:
        cost = measurement.value(COST)
        if cost is None:
            missed.append(SLOViolation("cost", COST, None, ceiling, 0.0))
        elif cost > ceiling * (1 + ROUNDING):
            missed.append(SLOViolation("cost", COST, cost, ceiling, (cost - ceiling) / ceiling))
    return measurement.validity.valid and not missed, tuple(missed)


def points(records: Iterable[TrialRecord], objectives: Objectives) -> tuple[Point, ...]:
    """Return all points of the journal, feasible or not, in a stable order.

    Only valid rungs that know both axes count. Of several rungs of one configuration and load a confirmation wins,
    then the latest trial. A configuration whose latest trial was infeasible has no points: its engine does not last.
    """
    kept: dict[tuple[Configuration, Load], tuple[tuple[bool, int], Point]] = {}
    latest: dict[Configuration, TrialRecord] = {}
    for record in sorted(records, key=lambda record: record.number):
        if record.outcome != "Failed":
            latest[record.configuration] = record
        for measurement in record.measurements:
            known = {SPEED_KEY, THROUGHPUT_PER_GPU} <= set(measurement.metrics)
            if not measurement.validity.valid or not known:
                continue
            rank = (record.purpose == "Confirmation", record.number)
            place = (record.configuration, measurement.load)
            if place not in kept or rank >= kept[place][0]:
                kept[place] = (rank, _point(record, measurement, objectives))
    dead = {configuration for configuration, record in latest.items() if record.outcome == "Infeasible"}
    alive = (point for (configuration, _), (_, point) in kept.items() if configuration not in dead)
    return tuple(sorted(alive, key=lambda point: (point.trial, point.load)))


def dominates(one: Point, other: Point) -> bool:
    """Return whether `one` is at least as good on both axes and better on one."""
    at_least = one.speed >= other.speed and one.throughput >= other.throughput
    return at_least and (one.speed > other.speed or one.throughput > other.throughput)


def frontier(candidates: Sequence[Point]) -> tuple[Point, ...]:
    """Return the feasible points that no feasible point dominates, fastest first; of equal points the earliest."""
    return non_dominated([point for point in candidates if point.feasible])


def non_dominated(candidates: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points that no other dominates, feasible or not, fastest first; of equal points the earliest."""
    ordered = sorted(
        candidates,
        key=lambda point: (-point.speed, -point.throughput, point.trial, point.load, point.configuration.hash),
    )
    kept: list[Point] = []
    for point in ordered:
        if not kept or point.throughput > kept[-1].throughput:
            kept.append(point)
    return tuple(kept)


def hypervolume(candidates: Sequence[Point], reference: tuple[float, float] = (0.0, 0.0)) -> float:
    """Return the area that the feasible points dominate, beyond a reference point of (speed, throughput).

    The area has the unit (tokens/s/user) x (tokens/s/GPU); it never falls as points are added.
    """
    area, floor = 0.0, reference[1]
    for point in frontier(candidates):
        width, height = point.speed - reference[0], point.throughput - floor
        if width > 0 and height > 0:
            area += width * height
            floor = point.throughput
    return area


def _point(record: TrialRecord, measurement: Measurement, objectives: Objectives) -> Point:
    _, missed = feasible(measurement, objectives)
    return Point(
        configuration=record.configuration,
        load=measurement.load,
        trial=record.number,
        gpus=record.gpus,
        metrics=measurement.metrics,
        measured=measurement,
        violations=missed,
    )


def _unit(name: str, value: float) -> str:
    if name.startswith(USER_SPEED):
        return f"{value:.4g} tokens/s"
    if name == COST:
        return f"{value:.4g} per million output tokens"
    return f"{value * 1000:.4g} ms" if value < 1 else f"{value:.4g} s"
