"""Whether a rung has been measured for long enough, and what its numbers say of an SLO; pure functions of estimates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from frontier_tuner.measurement import ITL, THROUGHPUT, TTFT, Estimate, key
from frontier_tuner.objectives import SLO, Objectives

TAIL_OBSERVATIONS = 10
"""Observations that a verdict needs beyond the percentile: 200 in all for a p95, 1,000 for a p99."""


def needed_observations(percentile: int, beyond: float = TAIL_OBSERVATIONS) -> int:
    """Return how many observations put so many of them beyond a percentile, on its shorter side."""
    return -int(-beyond * 100 // min(percentile, 100 - percentile))


@dataclass(frozen=True)
class SLOVerdict:
    """What a measurement says of one SLO.

    Attributes:
        verdict: `Met` or `Missed` where the whole interval lies on one side of the bound, else `Unknown`.
        reason: Empty where known; `InsufficientSamples`, `MetricsMissing`, or `Undecided` where the interval holds
            the bound.
        message: The sentence a user reads.
    """

    verdict: Literal["Met", "Missed", "Unknown"]
    reason: str
    message: str


def slo_verdict(slo: SLO, estimate: Estimate | None, beyond: float = TAIL_OBSERVATIONS) -> SLOVerdict:
    """Return what an estimate of the SLO's percentile says of it.

    Too few observations give no verdict, whatever the value: one request is not a percentile.
    """
    if estimate is None:
        return SLOVerdict("Unknown", "MetricsMissing", f"{slo.key} is not known")
    needed = needed_observations(slo.percentile, beyond)
    if estimate.n < needed:
        message = f"{slo.key} rests on {estimate.n} observations, of {needed} needed for a verdict"
        return SLOVerdict("Unknown", "InsufficientSamples", message)
    shown = f"{slo.key} is {estimate.value:.4g} ({estimate.low:.4g} to {estimate.high:.4g}), bound {slo.bound:g}"
    worst, best = (estimate.high, estimate.low) if slo.maximum is not None else (estimate.low, estimate.high)
    if slo.slack(worst) >= 0:
        return SLOVerdict("Met", "", shown)
    if slo.slack(best) < 0:
        return SLOVerdict("Missed", "", shown)
    return SLOVerdict("Unknown", "Undecided", shown)


@dataclass(frozen=True)
class Precision:
    """When a rung is known well enough.

    Attributes:
        percent: Half of an interval, in percent of its value, that is tight enough.
        beyond: Observations beyond each SLO's percentile.
    """

    percent: float = 15.0
    beyond: float = TAIL_OBSERVATIONS


@dataclass(frozen=True)
class Enough:
    """Whether a rung may end.

    Attributes:
        stop: True where it may.
        reason: `Tight` (every interval is narrow enough, or decides its SLO), `TimeUp`, or `Continue`.
        open: Keys of the metrics that are not known well enough.
        message: The sentence a user reads.
        lacks: What each of the open metrics lacks.
    """

    stop: bool
    reason: Literal["Tight", "TimeUp", "Continue"]
    open: tuple[str, ...]
    message: str
    lacks: tuple[str, ...] = ()


def enough(
    metrics: Mapping[str, Estimate],
    objectives: Objectives,
    *,
    elapsed_seconds: float,
    max_seconds: float,
    precision: Precision = Precision(),
) -> Enough:
    """Return whether a rung that has run so long may end, and why.

    The metrics of the SLOs and the throughput must be known: a percentile needs its observations, and an interval that
    is tight or lies wholly on one side of the bound. Without SLOs TTFT and ITL at p95 stand in.

    Args:
        metrics: Estimates of the window so far, by key.
        objectives: The SLOs.
        elapsed_seconds: Length of the window so far.
        max_seconds: When it ends in any case.
        precision: What is tight.
    """
    slos = {slo.key: slo for slo in objectives.slos}
    wanted = [*(slos or (key(TTFT, 95), key(ITL, 95))), THROUGHPUT]
    lacking = {name: _lack(metrics.get(name), slos.get(name), precision) for name in wanted}
    lacking = {name: lack for name, lack in lacking.items() if lack}
    if not lacking:
        message = f"after {elapsed_seconds:.3g} s {', '.join(wanted)} are known to {precision.percent:g} % or decided"
        return Enough(stop=True, reason="Tight", open=(), message=message)
    lacks = tuple(f"{name}: {lack}" for name, lack in lacking.items())
    still = "; ".join(lacks)
    if elapsed_seconds >= max_seconds:
        return Enough(True, "TimeUp", tuple(lacking), f"the time of {max_seconds:g} s is up; {still}", lacks)
    return Enough(False, "Continue", tuple(lacking), still, lacks)


def _lack(estimate: Estimate | None, slo: SLO | None, precision: Precision) -> str:
    """Return what a metric lacks, or nothing."""
    if estimate is None:
        return "not known"
    if slo is not None:
        needed = needed_observations(slo.percentile, precision.beyond)
        if estimate.n < needed:
            return f"{estimate.n} observations of {needed}"
        if slo_verdict(slo, estimate, precision.beyond).verdict != "Unknown":
            return ""
    half = (estimate.high - estimate.low) / 2
    if estimate.value > 0 and half * 100 <= estimate.value * precision.percent:
        return ""
    return f"{estimate.value:.4g}, between {estimate.low:.4g} and {estimate.high:.4g}"
