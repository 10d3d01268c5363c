"""Turns what was read into estimates with intervals, or says why it cannot; pure functions."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frontier_tuner.measurement import E2E, ITL, TTFT, USER_SPEED, Estimate, within_slo
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus.answers import Answer, Empty, NotANumber, Value
from frontier_tuner.prometheus.histograms import NO_SERIES, NOT_A_NUMBER, Buckets, Unknown
from frontier_tuner.prometheus.intervals import (
    effective_observations,
    poisson_factors,
    quantile_ranks,
    rate_half_width,
    share_interval,
)
from frontier_tuner.prometheus.reader import Asked, HistogramReading

_PERCENTILES = {TTFT: (50, 95), ITL: (50, 95), E2E: (50, 95), USER_SPEED: (5, 50)}


def percentiles(metric: str, objectives: Objectives) -> list[int]:
    """Return the percentiles to measure of a metric, ascending: the usual ones and those that SLOs bound."""
    return sorted({*_PERCENTILES[metric], *(slo.percentile for slo in objectives.slos if slo.metric == metric)})


def answered(answer: Answer) -> float | Unknown:
    """Return the number that an answer is, or why it is none."""
    match answer:
        case Value(value):
            return value
        case Empty():
            return NO_SERIES
        case NotANumber():
            return NOT_A_NUMBER


def estimate_quantile(
    reading: HistogramReading, percentile: int, fraction: float, independent: float
) -> Estimate | Unknown:
    """Return a quantile with its interval, which reaches from bucket edge to bucket edge.

    Args:
        reading: The histogram.
        percentile: Which of its quantiles.
        fraction: The share of the observations that are to lie below it.
        independent: Independent observations where the window's course does not tell how many they are.
    """
    buckets = reading.buckets
    if isinstance(buckets, Unknown):
        return buckets
    if buckets.off_scale(fraction):
        return Unknown(f"at least {buckets.edges[-2]:g}, off the histogram's scale", "OffScale")
    asked = reading.quantiles.get(percentile)
    value = NO_SERIES if asked is None else answered(asked.answer)
    if asked is None or isinstance(value, Unknown):
        return value if isinstance(value, Unknown) else NO_SERIES
    ranks = quantile_ranks(fraction, independent_of(reading, value, fraction, independent))
    (low, _), (_, high) = map(buckets.around, ranks)
    left, right = buckets.around(fraction)
    return Estimate(value, min(low, left, value), max(high, right, value), round(reading.n), asked.query)


def estimate_share(reading: HistogramReading, slo: SLO, independent: float) -> Estimate | Unknown:
    """Return the share of the observations that keep an SLO's bound.

    It is exact where the bound is an edge of the histogram. Elsewhere the edges around the bound widen its interval.
    """
    buckets = reading.buckets
    if isinstance(buckets, Unknown):
        return buckets
    asked = reading.shares.get(slo.bound)
    if asked is None:
        return Unknown(f"the bound {slo.bound:g} is no edge of the histogram", "OffEdges")
    share = answered(asked.answer)
    if isinstance(share, Unknown):
        return share
    below, above = (count / buckets.total for count in buckets.bracket(slo.bound))
    effective = independent_of(reading, slo.bound, share, independent)
    low, high = share_interval(min(share, below), effective)[0], share_interval(max(share, above), effective)[1]
    if slo.maximum is not None:
        return Estimate(share, low, high, round(reading.n), asked.query)
    return Estimate(1 - share, 1 - high, 1 - low, round(reading.n), f"1 - {asked.query}")


def independent_of(reading: HistogramReading, threshold: float, share: float, otherwise: float) -> float:
    """Return how many independent observations a share at a threshold rests on, never more than there are."""
    if not reading.batches:
        return min(otherwise, reading.n)
    parts = [batch.at_most(threshold) for batch in reading.batches]
    effective = effective_observations(parts, [batch.total for batch in reading.batches], share)
    return min(otherwise if effective is None else effective, reading.n)


def estimate_rate(asked: Asked, events: int, course: "Course | None" = None) -> Estimate | Unknown:
    """Return a rate with the interval that its course over the window gives, or else the Poisson interval.

    Args:
        asked: The rate.
        events: Requests behind it.
        course: The window in parts; None where it holds too few scrapes.
    """
    value = answered(asked.answer)
    if isinstance(value, Unknown):
        return value
    if value < 0:
        return Unknown(f"{value:g} is below 0", "ImpossibleValue")
    half = course.half_width() if course is not None else None
    if half is not None:
        return Estimate(value, max(0.0, value - half), value + half, events, asked.query)
    low, high = poisson_factors(events)
    return Estimate(value, value * low, value * high, events, asked.query)


@dataclass(frozen=True)
class Course:
    """How a counter rose over the parts of a window.

    Attributes:
        amounts: By how much in each part.
        seconds: Length of each part.
    """

    amounts: Sequence[float]
    seconds: Sequence[float]

    def half_width(self) -> float | None:
        """Return half the interval of the rate; None where there are too few parts."""
        return rate_half_width(self.amounts, self.seconds)


def scaled(estimate: Estimate | Unknown, factor: float, asked: Asked) -> Estimate | Unknown:
    """Return an estimate times a constant above 0, with the query that yields it."""
    if isinstance(estimate, Unknown):
        return estimate
    value = answered(asked.answer)
    if isinstance(value, Unknown):
        return value
    return Estimate(value, estimate.low * factor, estimate.high * factor, estimate.n, asked.query)


def inverse(estimate: Estimate | Unknown) -> Estimate | Unknown:
    """Return a speed for a time per token: the slowest speeds are the longest times."""
    if isinstance(estimate, Unknown):
        return estimate
    if estimate.value <= 0:
        return Unknown("a time per token of 0 has no speed", "ImpossibleValue")
    # A bucket that begins at 0 bounds no speed; the value itself is then the best that is known.
    fastest = 1 / estimate.low if estimate.low > 0 else 1 / estimate.value
    return Estimate(1 / estimate.value, 1 / estimate.high, fastest, estimate.n, f"1 / {estimate.query}")


def shares_of(
    reading: HistogramReading, metric: str, objectives: Objectives, independent: float
) -> dict[str, Estimate]:
    """Return the share of observations within each SLO on a metric, by key; without those that are not known."""
    found = {
        within_slo(slo.key): estimate_share(reading, slo, independent)
        for slo in objectives.slos
        if slo.metric == metric
    }
    return {name: estimate for name, estimate in found.items() if isinstance(estimate, Estimate)}


def missing_sentences(unknown: Iterable[tuple[str, Unknown]]) -> tuple[tuple[str, str], ...]:
    """Return check and sentence of each unknown metric that makes a window invalid."""
    return tuple((why.check, f"{name}: {why.why}") for name, why in unknown if not why.off_scale)


def needed_keys(objectives: Objectives, *names: str) -> set[str]:
    """Return the keys whose absence makes a window invalid: these, and those of the SLOs."""
    return {*names, *(slo.key for slo in objectives.slos)}


def edges_around(buckets: Buckets, bound: float) -> tuple[float, float]:
    """Return the edges between which a bound lies; twice the bound where it is an edge."""
    if buckets.edge(bound) is not None:
        return bound, bound
    below = [edge for edge in buckets.edges if edge < bound]
    above = [edge for edge in buckets.edges if edge > bound]
    return (below[-1] if below else buckets.floor), (above[0] if above else bound)
