"""Turns answers of Prometheus into estimates with intervals, and says why where it cannot."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from frontier_tuner.measurement import COST, E2E, ITL, TTFT, USER_SPEED, Estimate
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus.intervals import poisson_factors, quantile_ranks
from frontier_tuner.prometheus.queries import quantile
from frontier_tuner.prometheus.source import Empty, MetricsSource, NotANumber, Sample, Value

_PERCENTILES = {TTFT: (50, 95), ITL: (50, 95), E2E: (50, 95), USER_SPEED: (5, 50)}


@dataclass(frozen=True)
class Unknown:
    """A metric that is not known.

    Attributes:
        why: What a user reads.
        off_scale: The value exists but lies beyond the last bucket: an SLO on it is missed, the window is not invalid.
    """

    why: str
    off_scale: bool = False


def percentiles(metric: str, objectives: Objectives) -> list[int]:
    """Return the percentiles to measure of a metric, ascending: the usual ones and those that SLOs bound."""
    return sorted({*_PERCENTILES[metric], *(slo.percentile for slo in objectives.slos if slo.metric == metric)})


@dataclass(frozen=True)
class Buckets:
    """Cumulative counts by upper edge, ascending, ending with infinity.

    Attributes:
        edges: Upper edges.
        counts: Observations at or below each edge; may be rates.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    @property
    def total(self) -> float:
        """All observations."""
        return self.counts[-1]

    def off_scale(self, fraction: float) -> bool:
        """Return whether this quantile lies beyond the last finite edge, where PromQL would answer with that edge."""
        return fraction * self.total > self.counts[-2] * (1 + 1e-9)


def read_buckets(samples: Sequence[Sample]) -> Buckets | Unknown:
    """Return the histogram that series labelled `le` make up."""
    pairs = sorted((float(sample.labels.get("le", "nan")), sample.value) for sample in samples)
    if not pairs:
        return Unknown("no series")
    if any(math.isnan(edge) or math.isnan(count) for edge, count in pairs):
        return Unknown("not a number")
    if not math.isinf(pairs[-1][0]) or len(pairs) == 1:
        return Unknown("the +Inf bucket is missing; a relabelling rule may drop it")
    buckets = Buckets(tuple(edge for edge, _ in pairs), tuple(count for _, count in pairs))
    return buckets if buckets.total > 0 else Unknown("no observations")


def estimate_quantile(
    source: MetricsSource, at: datetime, fraction: float, expression: str, buckets: Buckets, n: float, effective: float
) -> Estimate | Unknown:
    """Return a quantile of a histogram with its distribution-free interval.

    Args:
        source: Answers at time `at`.
        at: Evaluation time of the query that the estimate carries.
        fraction: The quantile, 0 to 1.
        expression: Buckets by `le` in PromQL.
        buckets: The same, read.
        n: Observations.
        effective: Independent observations among them, for the interval.
    """
    if buckets.off_scale(fraction):
        return Unknown(f"beyond the last bucket, {buckets.edges[-2]:g}", off_scale=True)
    query = quantile(fraction, expression)
    low_rank, high_rank = quantile_ranks(fraction, effective)
    answers = [
        source.query(text, at) for text in (query, quantile(low_rank, expression), quantile(high_rank, expression))
    ]
    numbers = [answer.value for answer in answers if isinstance(answer, Value)]
    if len(numbers) < len(answers):
        return Unknown("no series" if any(isinstance(answer, Empty) for answer in answers) else "not a number")
    value, low, high = numbers
    return Estimate(value, min(low, value), max(high, value), round(n), query)


def estimate_rate(source: MetricsSource, at: datetime, expression: str, events: int) -> Estimate | Unknown:
    """Return a rate with the Poisson interval of the requests behind it."""
    match source.query(expression, at):
        case Value(value):
            low, high = poisson_factors(events)
            return Estimate(value, value * low, value * high, events, expression)
        case Empty():
            return Unknown("no series")
        case NotANumber():
            return Unknown("not a number")


def estimate_cost(
    source: MetricsSource, at: datetime, throughput: Estimate, price_per_gpu_hour: float, gpus: int
) -> Estimate | Unknown:
    """Return the money that a million output tokens costs; unknown where nothing is put out."""
    if throughput.value <= 0 or throughput.low <= 0:
        return Unknown(f"{COST} has no value without throughput")
    money = price_per_gpu_hour * gpus / 3600 * 1e6
    query = f"{money!r} / {throughput.query}"
    match source.query(query, at):
        case Value(value):
            return Estimate(value, money / throughput.high, money / throughput.low, throughput.n, query)
        case _:
            return Unknown("not a number")


def missing_sentences(unknown: Iterable[tuple[str, Unknown]]) -> tuple[str, ...]:
    """Return one sentence for each unknown metric that makes a window invalid."""
    return tuple(f"{name}: {reason.why}" for name, reason in unknown if not reason.off_scale)
