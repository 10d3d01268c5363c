"""Which point of the frontier to serve: a pure function of what was measured, the objectives and the target.

Nothing is ever relaxed. Where no point holds everything there is no selection; the nearest point and what it misses
say what would have to change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from frontier_tuner.frontier import Point, SLOViolation, feasible, non_dominated
from frontier_tuner.measurement import COST, THROUGHPUT
from frontier_tuner.objectives import Objectives, Target


@dataclass(frozen=True)
class Selection:
    """The choice and its explanation.

    Attributes:
        point: The operating point, or None where no point holds everything.
        binding: Name of the objective that forbids the next better point, or that no point holds; `none` where
            nothing better was measured.
        runner_up: The best feasible point of another configuration, or None.
        message: The sentence a user reads.
        nearest: Without a choice, the point that misses least; None where nothing was measured.
        violations: What `nearest` misses.
    """

    point: Point | None
    binding: str
    runner_up: Point | None
    message: str
    nearest: Point | None = None
    violations: tuple[SLOViolation, ...] = ()


def select(points: Sequence[Point], objectives: Objectives, target: Target) -> Selection:
    """Return the operating point of the target's policy among the points.

    `MinCost` takes the highest throughput per GPU, the lowest cost at any price of a GPU. `MinLatency` takes the
    highest speed for a user. `MaxThroughput` takes the highest throughput of one replica. `Knee` takes the point of the
    frontier farthest from the line between its ends. `AtUserSpeed` takes the cheapest point that reaches the
    target's speed, `AtCost` the fastest point within the target's cost.

    Args:
        points: What was measured, feasible or not.
        objectives: What must hold, with the target's headroom.
        target: The policy and its figures.

    Raises:
        ValueError: The policy needs a figure that the target does not have.
    """
    missed = {id(point): _misses(point, objectives, target) for point in points}
    fit = [point for point in points if not missed[id(point)]]
    if not fit:
        return _nothing(points, missed)
    ranked = rank(fit, target)
    best = ranked[0]
    runner_up = next((point for point in ranked if point.configuration != best.configuration), None)
    binding = _binding(points, missed, best, target)
    return Selection(best, binding, runner_up, _because(best, binding, runner_up, target))


def rank(candidates: Sequence[Point], target: Target) -> tuple[Point, ...]:
    """Return feasible points in the order of the target's policy, best first; the order does not depend on theirs."""
    score = _score(candidates, target)

    def order(point: Point) -> tuple[float, ...]:
        first, second = score(point)
        return (-first, -second, point.gpus, point.trial, point.load.value)

    return tuple(sorted(candidates, key=lambda point: (*order(point), point.configuration.hash)))


def _score(candidates: Sequence[Point], target: Target) -> Callable[[Point], tuple[float, float]]:
    match target.policy:
        case "MinCost" | "AtUserSpeed":
            return lambda point: (point.throughput, point.speed)
        case "MinLatency" | "AtCost":
            return lambda point: (point.speed, point.throughput)
        case "MaxThroughput":
            return lambda point: (_replica_throughput(point), point.speed)
        case "Knee":
            return _knee(candidates)


def _knee(candidates: Sequence[Point]) -> Callable[[Point], tuple[float, float]]:
    members = non_dominated(candidates)
    fastest, cheapest = max(p.speed for p in members), max(p.throughput for p in members)
    slowest, dearest = min(p.speed for p in members), min(p.throughput for p in members)

    def score(point: Point) -> tuple[float, float]:
        # Farthest from the line between the ends of the frontier, both axes scaled to 0..1.
        across = (point.speed - slowest) / (fastest - slowest) if fastest > slowest else 1.0
        along = (point.throughput - dearest) / (cheapest - dearest) if cheapest > dearest else 1.0
        return across + along, point.throughput / cheapest * point.speed / fastest

    return score


def _replica_throughput(point: Point) -> float:
    whole = point.measured.value(THROUGHPUT)
    return point.throughput * point.gpus if whole is None else whole


def _misses(point: Point, objectives: Objectives, target: Target) -> tuple[SLOViolation, ...]:
    _, missed = feasible(point.measured, objectives, target.headroom_percent)
    if target.policy == "AtUserSpeed":
        wanted = _figure(target.user_tokens_per_second, "userTokensPerSecond", target)
        if point.speed < wanted:
            speed = SLOViolation(
                "target", "UserTokensPerSecond/50", point.speed, wanted, (wanted - point.speed) / wanted
            )
            return (*missed, speed)
    if target.policy == "AtCost":
        ceiling = _figure(target.max_cost, "maxPerMillionOutputTokens", target)
        cost = point.measured.value(COST)
        if cost is None or cost > ceiling:
            return (*missed, SLOViolation("target", COST, cost, ceiling, (cost - ceiling) / ceiling if cost else 0.0))
    return missed


def _figure(value: float | None, name: str, target: Target) -> float:
    if value is None:
        raise ValueError(f"target policy {target.policy} needs {name}")
    return value


def _binding(points: Sequence[Point], missed: dict[int, tuple[SLOViolation, ...]], best: Point, target: Target) -> str:
    """Name what the next better point misses most, where better is what the policy wants."""
    score = _score([best], target) if target.policy != "Knee" else _knee(points)
    better = [point for point in points if missed[id(point)] and score(point)[0] > score(best)[0]]
    if not better:
        return "none"
    following = min(better, key=lambda point: (score(point)[0], point.trial, point.load))
    return max(missed[id(following)], key=lambda violation: violation.excess).name


def _because(best: Point, binding: str, runner_up: Point | None, target: Target) -> str:
    what = {
        "MinCost": "the highest throughput per GPU, so the lowest cost,",
        "MinLatency": "the highest speed for a user",
        "MaxThroughput": "the highest throughput of one replica",
        "Knee": "the knee of the frontier",
        "AtUserSpeed": f"the cheapest point that gives a user {target.user_tokens_per_second or 0:g} tokens/s",
        "AtCost": f"the fastest point within {target.max_cost or 0:g} per million output tokens",
    }[target.policy]
    within = f" with {target.headroom_percent} % headroom" if target.headroom_percent else ""
    parts = [f"{_figures(best)}: {what} that holds all objectives{within}"]
    parts.append("nothing better was measured" if binding == "none" else f"{binding} forbids the next better point")
    if runner_up is not None:
        parts.append(f"next best is {_figures(runner_up)}")
    return "; ".join(parts)


def _nothing(points: Sequence[Point], missed: dict[int, tuple[SLOViolation, ...]]) -> Selection:
    if not points:
        return Selection(None, "none", None, "no point has been measured")

    def shortfall(point: Point) -> tuple[int, float, int, float]:
        found = missed[id(point)]
        unknown = sum(violation.value is None for violation in found)
        return unknown, sum(violation.excess for violation in found), point.trial, point.load.value

    nearest = min(points, key=shortfall)
    violations = missed[id(nearest)] or nearest.violations
    worst = max(violations, key=lambda violation: violation.excess)
    reasons = "; ".join(violation.message + _beyond(violation) for violation in violations)
    message = f"none of {len(points)} measured points holds all objectives; nearest is {_figures(nearest)}: {reasons}"
    return Selection(None, worst.name, None, message, nearest, violations)


def _beyond(violation: SLOViolation) -> str:
    return f" ({violation.excess * 100:.0f} % beyond)" if violation.value is not None else ""


def _figures(point: Point) -> str:
    return (
        f"{point.configuration} at {point.load} ({point.speed:.4g} tokens/s/user, {point.throughput:.4g} tokens/s/GPU)"
    )
