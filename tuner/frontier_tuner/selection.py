"""Which point of the frontier to serve: a pure function of what was measured, the objectives and the target.

Nothing is ever relaxed and nothing is interpolated. Where no point holds everything there is no selection; the nearest
point, what it misses, and which single objective would have to move say what to change. Selecting again for other
objectives or another target needs no study.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from frontier_tuner.axes import COST, SPEED, THROUGHPUT, Axis
from frontier_tuner.frontier import Point, SLOViolation
from frontier_tuner.measurement import Measurement
from frontier_tuner.noise import ASSUMED, Z95, Noise, Ratio, ratio, spread
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.policies import misses, rank, score, traded
from frontier_tuner.unlocks import Unlock, figures, unlocks

__all__ = ["Confidence", "Selection", "confidence", "rank", "select"]

SURE = 0.975
"""From this probability on a bound counts as held beyond noise."""


@dataclass(frozen=True)
class Confidence:
    """How sure it is that the objectives hold.

    Attributes:
        objective: The least certain one.
        probability: That its true value holds the declared bound, without headroom.
    """

    objective: str
    probability: float


@dataclass(frozen=True)
class Selection:
    """The choice and its explanation.

    Attributes:
        point: The operating point, or None where no point holds everything.
        binding: Name of the objective that keeps a better point away, the one that would have to move least; or that
            no point holds; `none` where nothing better was measured.
        runner_up: The best feasible point of another configuration, or None.
        message: The sentence a user reads.
        nearest: Without a choice, the point that misses least; None where nothing was measured.
        violations: What `nearest` misses.
        margin: How many times the choice is better than the runner-up by what the policy wants; None for the knee and
            without a runner-up.
        alternative: A point that is as good within noise by what the policy wants and better beyond noise on the other
            axis; None where there is none.
        unlocks: What would give a better point, the smallest step first.
        confidence: How sure the objectives hold at the choice; None without a choice or objectives.
    """

    point: Point | None
    binding: str
    runner_up: Point | None
    message: str
    nearest: Point | None = None
    violations: tuple[SLOViolation, ...] = ()
    margin: Ratio | None = None
    alternative: Point | None = None
    unlocks: tuple[Unlock, ...] = ()
    confidence: Confidence | None = None


def select(points: Sequence[Point], objectives: Objectives, target: Target, *, noise: Noise = ASSUMED) -> Selection:
    """Return the operating point of the target's policy among the points.

    `MinCost` takes the lowest cost per million output tokens: the highest throughput per GPU wherever GPUs cost the
    same. `MaxThroughput` takes the highest throughput per GPU whatever a GPU costs. `MinLatency` takes the highest
    speed for a user. `Knee` takes the point of the frontier farthest from the line between its ends. `AtUserSpeed`
    takes the cheapest point that reaches the target's speed, `AtCost` the fastest point within the target's cost.

    Values decide, for the bounds and for the order; the noise only says how sure the choice is. The choice is the same
    for every order of the points.

    Args:
        points: What was measured, feasible or not.
        objectives: What must hold, with the target's headroom.
        target: The policy and its figures.
        noise: Between engine starts, beside the intervals of the metrics.

    Raises:
        ValueError: The policy needs a figure that the target does not have.
    """
    missed = {id(point): misses(point, objectives, target) for point in points}
    fit = [point for point in points if not missed[id(point)]]
    if not fit:
        return _nothing(points, missed, objectives, target)
    ranked = rank(fit, target)
    best = ranked[0]
    runner_up = next((point for point in ranked if point.configuration != best.configuration), None)
    scored = score(points, target)
    keys = unlocks(points, missed, best, scored, objectives, target)
    better = [point for point in points if missed[id(point)] and scored(point)[0] > scored(best)[0]]
    binding = keys[0].objective if keys else "none"
    if better and not keys:
        following = min(better, key=lambda point: (scored(point)[0], point.trial, point.load))
        binding = max(missed[id(following)], key=lambda violation: violation.excess).name
    sure = confidence(best.measured, objectives, noise)
    axes = traded(target, points)
    margin = None if runner_up is None or len(axes) > 1 else _advantage(best, runner_up, axes[0], noise)
    alternative = None if len(axes) > 1 else _alternative(best, fit, axes[0], noise)
    message = "; ".join(
        [
            _because(best, target),
            _binds(binding, keys),
            *_compared(best, runner_up, margin),
            *_instead(best, alternative, axes[0]),
            *_sure(sure),
        ]
    )
    return Selection(
        best, binding, runner_up, message, margin=margin, alternative=alternative, unlocks=keys, confidence=sure
    )


def confidence(measurement: Measurement, objectives: Objectives, noise: Noise = ASSUMED) -> Confidence | None:
    """Return the objective that is least certain to hold, with its probability; None where nothing is asked.

    The probability is that of a normal distribution on the logarithm, as wide as the metric's interval and the noise
    between starts together: it is what the next start of the same configuration has to expect.
    """
    found = [
        Confidence(slo.name, _holds(measurement, slo.key, slo.bound, noise, below=slo.maximum is not None))
        for slo in objectives.slos
    ]
    if objectives.max_cost is not None:
        found.append(Confidence("cost", _holds(measurement, COST.key, objectives.max_cost, noise, below=True)))
    return min(found, key=lambda each: each.probability, default=None)


def _holds(measurement: Measurement, key: str, bound: float, noise: Noise, *, below: bool) -> float:
    estimate = measurement.metrics.get(key)
    if estimate is None or bound <= 0:
        return 0.0
    each = spread(estimate)
    distance = (math.log(bound) - each.log) * (1 if below else -1)
    width = math.hypot(each.up if below else each.down, Z95 * noise.start) / Z95
    if width == 0:
        return 1.0 if distance >= 0 else 0.0
    return NormalDist().cdf(distance / width)


def _advantage(one: Point, other: Point, axis: Axis, noise: Noise) -> Ratio | None:
    """Return how many times `one` is better than `other` on an axis."""
    first, second = one.metrics.get(axis.key), other.metrics.get(axis.key)
    if first is None or second is None:
        return None
    pair = (first, second) if axis.sign > 0 else (second, first)
    return ratio(*pair, noise, same_start=one.trial == other.trial)


def _alternative(best: Point, fit: Sequence[Point], axis: Axis, noise: Noise) -> Point | None:
    other = THROUGHPUT if axis is SPEED else SPEED
    found: list[tuple[float, int, float, str, Point]] = []
    for point in fit:
        behind, ahead = _advantage(best, point, axis, noise), _advantage(point, best, other, noise)
        if behind is not None and ahead is not None and not behind.above and ahead.above:
            found.append((-ahead.value, point.trial, point.load.value, point.configuration.hash, point))
    return min(found, key=lambda each: each[:4])[4] if found else None


def _because(best: Point, target: Target) -> str:
    what = {
        "MinCost": "the lowest cost per token",
        "MinLatency": "the highest speed for a user",
        "MaxThroughput": "the highest throughput per GPU",
        "Knee": "the knee of the frontier",
        "AtUserSpeed": f"the cheapest point that gives a user {target.user_tokens_per_second or 0:g} tokens/s",
        "AtCost": f"the fastest point within {target.max_cost or 0:g} per million output tokens",
    }[target.policy]
    within = f" with {target.headroom_percent} % headroom" if target.headroom_percent else ""
    also = "and" if target.policy == "AtUserSpeed" else "that"
    return f"{figures(best)}: {what} {also} holds all objectives{within}"


def _binds(binding: str, keys: Sequence[Unlock]) -> str:
    if keys:
        return f"{binding} forbids a better point: {keys[0].message}"
    return "nothing better was measured" if binding == "none" else f"{binding} and others forbid the next better point"


def _compared(best: Point, runner_up: Point | None, margin: Ratio | None) -> list[str]:
    if runner_up is None:
        return []
    behind = ""
    if margin is not None:
        share = (1 - 1 / margin.value) * 100
        behind = f", {share:.1f} % behind" + ("" if margin.above else ", within noise")
    return [f"next best is {figures(runner_up, best.configuration)}{behind}"]


def _instead(best: Point, alternative: Point | None, axis: Axis) -> list[str]:
    if alternative is None:
        return []
    other = THROUGHPUT if axis is SPEED else SPEED
    ahead = other.gain(alternative.metrics[other.key].value, best.metrics[other.key].value) * 100
    what = figures(alternative, best.configuration)
    return [f"as good within noise, with {ahead:.0f} % more {other.title}, is {what}"]


def _sure(sure: Confidence | None) -> list[str]:
    if sure is None:
        return []
    if sure.probability >= SURE:
        return ["every objective holds beyond noise"]
    return [f"{sure.objective} holds with a probability of {sure.probability * 100:.0f} %"]


def _nothing(
    points: Sequence[Point], missed: dict[int, tuple[SLOViolation, ...]], objectives: Objectives, target: Target
) -> Selection:
    if not points:
        return Selection(None, "none", None, "no point has been measured")

    def shortfall(point: Point) -> tuple[int, float, int, float, str]:
        found = missed[id(point)]
        unknown = sum(violation.value is None for violation in found)
        total = sum(violation.excess for violation in found)
        return unknown, total, point.trial, point.load.value, point.configuration.hash

    nearest = min(points, key=shortfall)
    violations = missed[id(nearest)]
    worst = max(violations, key=lambda violation: violation.excess)
    reasons = "; ".join(violation.message + _beyond(violation) for violation in violations)
    message = f"none of {len(points)} measured points holds all objectives; nearest is {figures(nearest)}: {reasons}"
    keys = unlocks(points, missed, None, score(points, target), objectives, target)
    if keys:
        message += f"; {keys[0].message}"
    return Selection(None, worst.name, None, message, nearest, violations, unlocks=keys)


def _beyond(violation: SLOViolation) -> str:
    return f" ({violation.excess * 100:.0f} % beyond)" if violation.value is not None else ""
