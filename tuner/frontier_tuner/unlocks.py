"""What would give a better point: which objective to relax, by how much, and what it buys. Nothing is relaxed here."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from frontier_tuner.configuration import Configuration
from frontier_tuner.frontier import Point, SLOViolation, with_unit
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.policies import Score, traded

DIGITS = 4
"""Significant digits of a figure that a user may copy into a spec."""


@dataclass(frozen=True)
class Unlock:
    """One objective that alone keeps a better point away.

    Attributes:
        objective: The SLO's name, `cost`, or `target` for the policy's own figure.
        key: The metric that it bounds.
        declared: The bound as it is, without headroom, in the metric's unit.
        needed: The bound at which the point holds it, the target's headroom included.
        headroom_percent: The headroom at which the point holds the declared bound, or None where none does.
        point: The point that it gives.
        gain: By which share the point is better for the target's policy; None for the knee, which has no single
            measure, and where there is no choice to compare with.
        gains: What the gain is a share of.
        chosen: The configuration of the present choice, or None where there is none.
    """

    objective: str
    key: str
    declared: float
    needed: float
    headroom_percent: int | None
    point: Point
    gain: float | None = None
    gains: str = ""
    chosen: Configuration | None = None

    @property
    def relaxation(self) -> float:
        """By which share of the declared bound it would have to move."""
        return abs(self.needed - self.declared) / self.declared if self.declared else math.inf

    @property
    def message(self) -> str:
        """The sentence a user reads."""
        figure = outward(self.needed, up=self.needed >= self.declared)
        what = f"{self.objective} at {with_unit(self.key, figure)} instead of {with_unit(self.key, self.declared)}"
        if self.headroom_percent is not None:
            what += f", or a headroom of {self.headroom_percent} %,"
        worth = "" if self.gain is None else f", {self.gain * 100:.1f} % better in {self.gains}"
        return f"{what} would give {figures(self.point, self.chosen)}{worth}"


def unlocks(
    points: Sequence[Point],
    missed: Mapping[int, tuple[SLOViolation, ...]],
    best: Point | None,
    scored: Score,
    objectives: Objectives,
    target: Target,
) -> tuple[Unlock, ...]:
    """Return for each objective that alone keeps better points away the smallest step that gives one, smallest first.

    Args:
        points: What was measured.
        missed: What each point misses, by its `id`.
        best: The chosen point; None where there is none, so that every point is better.
        scored: The score of the target's policy over the points.
        objectives: What must hold.
        target: Its headroom is kept, and its figure counts as an objective.
    """
    least: dict[tuple[str, str], Unlock] = {}
    for point in points:
        found = missed[id(point)]
        if len(found) != 1 or found[0].value is None:
            continue
        if best is not None and scored(point)[0] <= scored(best)[0]:
            continue
        unlock = _unlock(point, found[0], objectives, target)
        place = (unlock.objective, unlock.key)
        if place not in least or _order(unlock, scored) < _order(least[place], scored):
            least[place] = unlock
    ordered = sorted(least.values(), key=lambda unlock: (unlock.relaxation, unlock.objective, unlock.key))
    return tuple(_with_gain(unlock, best, points, target) for unlock in ordered)


def outward(value: float, *, up: bool) -> float:
    """Return a value with four significant digits that is not below it, or with `up=False` not above it."""
    if value <= 0:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - DIGITS + 1)
    steps = math.ceil(value / step - 1e-6) if up else math.floor(value / step + 1e-6)
    return float(f"{steps * step:.{DIGITS}g}")


def figures(point: Point, chosen: Configuration | None = None) -> str:
    """Return a point as a person reads it: configuration, load and place in the plane.

    Args:
        point: The point.
        chosen: A configuration that the reader knows; of the point's only the knobs that differ from it are named.
    """
    return (
        f"{_named(point.configuration, chosen)} at {point.load} "
        f"({point.speed:.4g} tokens/s/user, {point.throughput:.4g} tokens/s/GPU)"
    )


def _named(configuration: Configuration, chosen: Configuration | None) -> str:
    if chosen is None:
        return str(configuration)
    own = {name: value for name, value in configuration.items() if chosen.get(name) != value}
    gone = ", ".join(name for name in chosen if name not in configuration)
    if not own:
        return f"the same without {gone}" if gone else "the same configuration"
    return str(Configuration.of(own)) + (f" without {gone}" if gone else "")


def _unlock(point: Point, violation: SLOViolation, objectives: Objectives, target: Target) -> Unlock:
    value = violation.value if violation.value is not None else violation.bound
    for slo in objectives.slos:
        if (slo.name, slo.key) == (violation.name, violation.key):
            margin = target.headroom_percent / 100
            needed = value / (1 - margin) if slo.maximum is not None else value / (1 + margin)
            slack = slo.slack(value)
            headroom = math.floor(slack * 100 + 1e-9) if slack >= 0 else None
            return Unlock(slo.name, slo.key, slo.bound, needed, headroom, point)
    return Unlock(violation.name, violation.key, violation.bound, value, None, point)


def _order(unlock: Unlock, scored: Score) -> tuple[float, ...]:
    first, second = scored(unlock.point)
    return (unlock.relaxation, -first, -second, unlock.point.trial, unlock.point.load.value)


def _with_gain(unlock: Unlock, best: Point | None, points: Sequence[Point], target: Target) -> Unlock:
    axes = traded(target, points)
    if best is None:
        return unlock
    unlock = replace(unlock, chosen=best.configuration)
    if len(axes) > 1:
        return unlock
    now, then = (point.metrics.get(axes[0].key) for point in (best, unlock.point))
    if now is None or then is None or now.value <= 0 or then.value <= 0:
        return unlock
    return replace(unlock, gain=axes[0].gain(then.value, now.value), gains=axes[0].title)
