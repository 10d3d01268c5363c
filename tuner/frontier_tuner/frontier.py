"""The frontier: which measured points no other feasible point beats.

Two axes unless others are asked for: the speed that a user sees (median tokens per second) and the throughput of one
GPU. Points are measured, never interpolated. There are two rules. By *values* a point leaves when another is at least
as good on every axis and better on one. By *intervals* it leaves only when a member is better beyond noise on an axis
and not worse beyond noise on the others, so that luck drives nobody out, and a rung that costs much speed for a
throughput within noise does not stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from frontier_tuner import volumes
from frontier_tuner.axes import PLANE, Axis
from frontier_tuner.axes import SPEED as SPEED_AXIS
from frontier_tuner.configuration import Configuration
from frontier_tuner.measurement import (
    COST,
    LATENCIES,
    THROUGHPUT_PER_GPU,
    Estimate,
    Load,
    Measurement,
    cost_per_million,
)
from frontier_tuner.noise import ASSUMED, Noise, ratio, spread
from frontier_tuner.objectives import Objectives
from frontier_tuner.trial import TrialRecord

SPEED_KEY = SPEED_AXIS.key
ROUNDING = 1e-9
"""Slack that floating point may eat before a bound counts as missed."""


@dataclass(frozen=True)
class SLOViolation:
    """One objective that a measurement misses.

    Attributes:
        name: The SLO's name, `cost`, or `target` for the figure of the target's policy.
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
            return f"{self.name}: {self.key} is unknown, must hold {with_unit(self.key, self.bound)}"
        return (
            f"{self.name}: {self.key} is {with_unit(self.key, self.value)}, must hold {with_unit(self.key, self.bound)}"
        )


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

    The value decides and not its interval: a bound is not moved by how long a window was. Headroom is the way to ask
    for more; `selection.confidence` says how sure a point is.

    Args:
        measurement: A rung; an invalid one is never feasible, and neither is one that lacks a metric.
        objectives: What must hold.
        headroom_percent: How far inside every SLO the values must lie; the cost ceiling has no headroom.
    """
    margin = headroom_percent / 100
    missed = []
    for slo in objectives.slos:
        value = measurement.value(slo.key)
        bound = slo.bound_within(headroom_percent)
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
    Where the objectives have a price, costs are counted at that price.
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
                kept[place] = (rank, make_point(record, measurement, objectives))
    dead = {configuration for configuration, record in latest.items() if record.outcome == "Infeasible"}
    alive = (point for (configuration, _), (_, point) in kept.items() if configuration not in dead)
    return tuple(sorted(alive, key=lambda point: (point.trial, point.load)))


def make_point(record: TrialRecord, measurement: Measurement, objectives: Objectives) -> Point:
    """Return a rung of a trial as a point, its cost counted at the objectives' price where they have one."""
    measured = _repriced(measurement, objectives.price_per_gpu_hour)
    _, missed = feasible(measured, objectives)
    return Point(
        configuration=record.configuration,
        load=measured.load,
        trial=record.number,
        gpus=record.gpus,
        metrics=measured.metrics,
        measured=measured,
        violations=missed,
    )


def dominates(one: Point, other: Point, axes: Sequence[Axis] = PLANE) -> bool:
    """Return whether `one` is at least as good by its values on all axes and better on one."""
    pairs = list(zip(_place(one, axes), _place(other, axes), strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def beats(one: Point, other: Point, noise: Noise, axes: Sequence[Axis] = PLANE) -> bool:
    """Return whether `one` is better beyond noise on an axis and not worse beyond noise on the others.

    It must also gain more than it loses, summed over the logarithms of the axes. Where intervals are much alike that
    follows from the rest; where they are not, it is what keeps three points from beating each other in a circle.
    """
    if _merit(one, axes) <= _merit(other, axes):
        return False
    better = False
    for axis in axes:
        found = ratio(one.metrics[axis.key], other.metrics[axis.key], noise, same_start=one.trial == other.trial)
        worse, gained = (found.below, found.above) if axis.sign > 0 else (found.above, found.below)
        if worse:
            return False
        better = better or gained
    return better


def frontier(
    candidates: Sequence[Point], *, noise: Noise | None = ASSUMED, axes: Sequence[Axis] = PLANE
) -> tuple[Point, ...]:
    """Return the feasible points that no feasible point beats, best on the first axis first.

    By intervals a point leaves only because of a *member* that beats it: the points are visited from the highest
    product of their axes to the lowest, and each stays unless a member beats it. So no member beats another, each
    point that left is beaten by a member, the order of the candidates does not matter, and a chain of small steps
    does not drive out its far end. Near ties are all kept; of points that are equal on all axes the earliest.

    Args:
        candidates: Points, feasible or not.
        noise: Between engine starts, beside the intervals; None takes the rule by values.
        axes: What is traded; points that lack one are left out.
    """
    known = [point for point in candidates if point.feasible and all(axis.key in point.metrics for axis in axes)]
    if noise is None:
        return non_dominated(known, axes)
    members: list[Point] = []
    places: set[tuple[float, ...]] = set()
    for point in sorted(known, key=lambda point: (-_merit(point, axes), *_identity(point))):
        place = _place(point, axes)
        if place not in places and not any(beats(member, point, noise, axes) for member in members):
            members.append(point)
            places.add(place)
    return tuple(sorted(members, key=lambda point: _order(point, axes)))


def non_dominated(candidates: Sequence[Point], axes: Sequence[Axis] = PLANE) -> tuple[Point, ...]:
    """Return the points that no other dominates by values, feasible or not, best on the first axis first.

    Of points that are equal on all axes the earliest is kept. All must know the axes.
    """
    kept: list[Point] = []
    two = len(axes) == 2  # noqa: PLR2004 - in the plane the last member is the only one to compare with
    for point in sorted(candidates, key=lambda point: _order(point, axes)):
        rivals = kept[-1:] if two else kept
        place = _place(point, axes)
        if not any(all(a >= b for a, b in zip(_place(rival, axes), place, strict=True)) for rival in rivals):
            kept.append(point)
    return tuple(kept)


def hypervolume(
    candidates: Sequence[Point], reference: Sequence[float] | None = None, axes: Sequence[Axis] = PLANE
) -> float:
    """Return the volume that the feasible points dominate by values, beyond a reference point.

    In the plane its unit is (tokens/s/user) x (tokens/s/GPU). It never falls as points are added. Points that lack an
    axis, or are worse than the reference on one, add nothing.

    Args:
        candidates: Points, feasible or not.
        reference: The worst acceptable value of each axis; None is 0 for each.
        axes: What is traded.

    Raises:
        ValueError: There is no reference for an axis on which less is better, or not one value for each axis.
    """
    if reference is None:
        dear = [axis.title for axis in axes if axis.sign < 0]
        if dear:
            raise ValueError(f"{dear[0]} has no natural worst value; give a reference with one value for each axis")
        reference = tuple(0.0 for _ in axes)
    if len(reference) != len(axes):
        raise ValueError(f"a reference needs one value for each of {len(axes)} axes, not {len(reference)}")
    known = (point for point in candidates if point.feasible and all(axis.key in point.metrics for axis in axes))
    floor = [axis.sign * value for axis, value in zip(axes, reference, strict=True)]
    return volumes.volume((_place(point, axes) for point in known), floor)


def with_unit(name: str, value: float) -> str:
    """Return a metric's value as a person reads it."""
    metric = name.partition("/")[0]
    if metric in LATENCIES:
        return f"{value * 1000:.4g} ms" if value < 1 else f"{value:.4g} s"
    return f"{value:.4g} per million output tokens" if metric == COST else f"{value:.4g} tokens/s"


def _place(point: Point, axes: Sequence[Axis]) -> tuple[float, ...]:
    """Return the point's coordinates, turned so that more is better."""
    return tuple(axis.sign * point.metrics[axis.key].value for axis in axes)


def _merit(point: Point, axes: Sequence[Axis]) -> float:
    return sum(axis.sign * spread(point.metrics[axis.key]).log for axis in axes)


def _identity(point: Point) -> tuple[int, Load, str]:
    return point.trial, point.load, point.configuration.hash


def _order(point: Point, axes: Sequence[Axis]) -> tuple[object, ...]:
    return (*(-value for value in _place(point, axes)), *_identity(point))


def _repriced(measurement: Measurement, price: float | None) -> Measurement:
    throughput = measurement.metrics.get(THROUGHPUT_PER_GPU)
    if price is None or throughput is None or throughput.value <= 0 or throughput.low <= 0:
        return measurement
    money = cost_per_million(price, 1.0)
    known, now = measurement.value(COST), money / throughput.value
    if known is not None and abs(known - now) <= ROUNDING * now:
        return measurement
    query = f"{money!r} / ({throughput.query})" if throughput.query else ""
    cost = Estimate(now, money / throughput.high, money / throughput.low, throughput.n, query)
    return replace(measurement, metrics={**measurement.metrics, COST: cost})
