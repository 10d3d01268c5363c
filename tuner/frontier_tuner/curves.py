"""Whether one measured curve lies outside another, inside it, or crosses it. No point is put between two rungs."""

from collections.abc import Sequence
from typing import Literal

from frontier_tuner.axes import PLANE, Axis
from frontier_tuner.frontier import Point, non_dominated
from frontier_tuner.noise import Noise, ratio

Effect = Literal["PushesOut", "MovesAlong", "PullsIn", "WithinNoise"]


def compare(ours: Sequence[Point], theirs: Sequence[Point], noise: Noise) -> Effect:
    """Return what going from their curve to ours does.

    `PushesOut`: a point of their frontier is beaten beyond noise, none of ours is, and neither end is given up. A point
    counts as beaten where one of the other curve is better beyond noise on both axes: the luck of a start moves a whole
    curve along both, and where a curve is steep a small shift along one is a large one along the other.
    `PullsIn` is the same with the roles changed. `MovesAlong`: each has what the other does not reach; they cross, or
    one goes further at one end without beating anything. `WithinNoise`: no difference is beyond noise.

    Args:
        ours: The points of a configuration, at least one, feasible or not: an SLO cuts both curves alike.
        theirs: Those of the other.
        noise: Between engine starts.
    """
    won, lost = _beaten(theirs, ours, noise), _beaten(ours, theirs, noise)
    longer, shorter = _reaches(ours, theirs, noise), _reaches(theirs, ours, noise)
    if won and not lost and not shorter:
        return "PushesOut"
    if lost and not won and not longer:
        return "PullsIn"
    return "MovesAlong" if won or lost or longer or shorter else "WithinNoise"


def _beaten(curve: Sequence[Point], by: Sequence[Point], noise: Noise) -> bool:
    return any(_better(other, point, noise) for point in non_dominated(curve) for other in by)


def _better(one: Point, other: Point, noise: Noise) -> bool:
    return all(ratio(one.metrics[axis.key], other.metrics[axis.key], noise).above for axis in PLANE)


def _reaches(one: Sequence[Point], other: Sequence[Point], noise: Noise) -> bool:
    """Return whether the best of one curve on either axis is better beyond noise than the other's best."""
    return any(_further(one, other, axis, noise) for axis in PLANE)


def _further(one: Sequence[Point], other: Sequence[Point], axis: Axis, noise: Noise) -> bool:
    first, second = (max(points, key=lambda point: point.metrics[axis.key].value) for points in (one, other))
    return ratio(first.metrics[axis.key], second.metrics[axis.key], noise).above
