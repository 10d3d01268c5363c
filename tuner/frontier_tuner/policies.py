"""What each policy of a target wants, as scores of points: the higher, the better it serves the target."""

from collections.abc import Callable, Sequence

from frontier_tuner.axes import COST, PLANE, SPEED, THROUGHPUT, Axis
from frontier_tuner.frontier import ROUNDING, Point, SLOViolation, feasible, non_dominated
from frontier_tuner.objectives import Objectives, Target

Score = Callable[[Point], tuple[float, float]]
"""What a policy wants first, and what it wants among equals."""


def traded(target: Target, candidates: Sequence[Point]) -> tuple[Axis, ...]:
    """Return the axes that a policy maximises: the one by which it orders points, or both of the plane for the knee.

    `MinCost` and `AtUserSpeed` go by cost. Where no candidate has a cost they go by throughput per GPU, which at one
    price of a GPU is the same order.
    """
    match target.policy:
        case "MinCost" | "AtUserSpeed":
            return (COST,) if any(COST.key in point.metrics for point in candidates) else (THROUGHPUT,)
        case "MinLatency" | "AtCost":
            return (SPEED,)
        case "MaxThroughput":
            return (THROUGHPUT,)
        case "Knee":
            return PLANE


def score(candidates: Sequence[Point], target: Target) -> Score:
    """Return the score of the target's policy; only the knee depends on the candidates' values.

    Args:
        candidates: The points to compare.
        target: The policy.
    """
    match target.policy:
        case "Knee":
            return _knee(candidates)
        case "MinLatency" | "AtCost":
            return lambda point: (point.speed, point.throughput)
        case "MaxThroughput":
            return lambda point: (point.throughput, point.speed)
        case "MinCost" | "AtUserSpeed":
            if traded(target, candidates) == (THROUGHPUT,):
                return lambda point: (point.throughput, point.speed)
            return lambda point: (-_cost(point), point.speed)


def rank(candidates: Sequence[Point], target: Target) -> tuple[Point, ...]:
    """Return feasible points in the order of the target's policy, best first; the order does not depend on theirs."""
    scored = score(candidates, target)

    def order(point: Point) -> tuple[float, ...]:
        first, second = scored(point)
        return (-first, -second, point.gpus, point.trial, point.load.value)

    return tuple(sorted(candidates, key=lambda point: (*order(point), point.configuration.hash)))


def misses(point: Point, objectives: Objectives, target: Target) -> tuple[SLOViolation, ...]:
    """Return what a point misses of the objectives with the target's headroom, and of the target's own figure.

    Raises:
        ValueError: The policy needs a figure that the target does not have.
    """
    _, missed = feasible(point.measured, objectives, target.headroom_percent)
    if target.policy == "AtUserSpeed":
        wanted = _figure(target.user_tokens_per_second, "userTokensPerSecond", target)
        if point.speed < wanted * (1 - ROUNDING):
            speed = SLOViolation("target", SPEED.key, point.speed, wanted, (wanted - point.speed) / wanted)
            return (*missed, speed)
    if target.policy == "AtCost":
        ceiling = _figure(target.max_cost, "maxPerMillionOutputTokens", target)
        cost = point.measured.value(COST.key)
        if cost is None or cost > ceiling * (1 + ROUNDING):
            excess = 0.0 if cost is None else (cost - ceiling) / ceiling
            return (*missed, SLOViolation("target", COST.key, cost, ceiling, excess))
    return missed


def _knee(candidates: Sequence[Point]) -> Score:
    """Return the distance from the line between the ends of the frontier, both axes scaled from 0 to 1.

    This is the knee of I. Das, On characterizing the "knee" of the Pareto curve based on normal-boundary intersection,
    Structural Optimization 18, 1999, over measured points. Among equals the larger product of the axes.
    """
    members = non_dominated(candidates)
    fastest, cheapest = max(p.speed for p in members), max(p.throughput for p in members)
    slowest, dearest = min(p.speed for p in members), min(p.throughput for p in members)

    def scored(point: Point) -> tuple[float, float]:
        across = (point.speed - slowest) / (fastest - slowest) if fastest > slowest else 1.0
        along = (point.throughput - dearest) / (cheapest - dearest) if cheapest > dearest else 1.0
        product = (point.throughput / cheapest if cheapest > 0 else 0.0) * (point.speed / fastest if fastest > 0 else 0)
        return across + along, product

    return scored


def _cost(point: Point) -> float:
    cost = point.measured.value(COST.key)
    return float("inf") if cost is None else cost


def _figure(value: float | None, name: str, target: Target) -> float:
    if value is None:
        raise ValueError(f"target policy {target.policy} needs {name}")
    return value
