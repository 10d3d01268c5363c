"""Reads a window from Prometheus: histograms and counters with their course over time. It decides nothing."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.answers import Answer, Empty, MetricsSource, NotANumber, Series, Value
from frontier_tuner.prometheus.counters import Counters, one_of_each
from frontier_tuner.prometheus.histograms import Buckets, Unknown, read_buckets
from frontier_tuner.prometheus.intervals import MAX_BATCHES, MIN_BATCHES
from frontier_tuner.prometheus.queries import Span

BucketsOf = Callable[[str], str]
"""From matchers to the expression of a histogram's buckets."""


@dataclass(frozen=True)
class Asked:
    """An expression and what Prometheus answered to it."""

    query: str
    answer: Answer


@dataclass(frozen=True)
class HistogramReading:
    """One histogram of a window.

    Attributes:
        buckets: Its cumulative buckets, or why they are not known.
        quantiles: By percentile, what PromQL makes of it; a fraction of 1 or more is not asked for.
        shares: By threshold, the share of observations at or below it, where the threshold is an edge.
        batches: What was observed in each of equal stretches of the window; empty where that is not known.
        scale: Observations that one unit of `buckets` stands for: 1 for counts, the window's seconds for rates.
    """

    buckets: Buckets | Unknown
    quantiles: dict[int, Asked]
    shares: dict[float, Asked]
    batches: tuple[Buckets, ...] = ()
    scale: float = 1.0

    @property
    def n(self) -> float:
        """Observations."""
        return 0.0 if isinstance(self.buckets, Unknown) else self.buckets.total * self.scale


@dataclass(frozen=True)
class Stretches:
    """Equal parts of a window.

    Attributes:
        start: Its start.
        seconds: Length of each.
        count: How many; 0 where the window holds too few scrapes for at least eight.
    """

    start: datetime
    seconds: float
    count: int

    @property
    def times(self) -> list[float]:
        """Their ends and the start, in seconds since the epoch."""
        return [self.start.timestamp() + self.seconds * number for number in range(self.count + 1)]

    @property
    def end(self) -> datetime:
        """The end of the last one."""
        return self.start + timedelta(seconds=self.seconds * self.count)


def stretches(start: datetime, end: datetime, scrape_interval_seconds: float) -> Stretches:
    """Return a window cut into 8 to 32 parts of at least one scrape interval each."""
    seconds = (end - start).total_seconds()
    count = min(MAX_BATCHES, math.floor(seconds / scrape_interval_seconds))
    if count < MIN_BATCHES:
        return Stretches(start, seconds, 0)
    return Stretches(start, seconds / count, count)


class Reader:
    """Asks one Prometheus about one window.

    Args:
        source: Prometheus.
        at: Evaluation time of every instant query.
    """

    def __init__(self, source: MetricsSource, at: datetime) -> None:
        self.source = source
        self.at = at

    def ask(self, expression: str) -> Asked:
        """Return what an expression gives at the evaluation time."""
        return Asked(expression, self.source.query(expression, self.at))

    def number(self, expression: str) -> float | None:
        """Return the value of an expression, or None where there is none."""
        return number(self.ask(expression).answer)

    def counters(self, name: str, where: str, span: Span) -> Counters:
        """Return the raw samples of a counter, one series for each pod, rank and model."""
        return one_of_each(self.source.matrix(queries.selector(name, where, span), self.at))

    def histogram(
        self,
        buckets_of: BucketsOf,
        where: str,
        fractions: Iterable[tuple[int, Callable[[float], float]]],
        thresholds: Iterable[float] = (),
        scale: float = 1.0,
    ) -> HistogramReading:
        """Return a histogram with its quantiles and shares.

        Args:
            buckets_of: From matchers to the expression of its buckets by `le`, or of one native histogram.
            where: The matchers.
            fractions: Percentiles, each with the quantile to ask for as a function of the observations.
            thresholds: Values whose share is asked for.
            scale: See `HistogramReading`.
        """
        expression = buckets_of(where)
        buckets = read_buckets(self.source.vector(expression, self.at))
        if isinstance(buckets, Unknown):
            return HistogramReading(buckets, {}, {}, scale=scale)
        asked = {
            percentile: self.ask(queries.quantile(fraction, expression))
            for percentile, of in fractions
            if (fraction := of(buckets.total * scale)) < 1
        }
        shares = {
            threshold: self.ask(query)
            for threshold in thresholds
            if (query := share_query(buckets, threshold, buckets_of, where)) is not None
        }
        return HistogramReading(buckets, asked, shares, scale=scale)

    def batches(self, cumulative: str, parts: Stretches, last: Buckets | Unknown | None = None) -> tuple[Buckets, ...]:
        """Return what a histogram observed in each part of a window; empty where that is not fully known.

        Args:
            cumulative: Its cumulative buckets by `le` at any time, in PromQL.
            parts: The parts.
            last: Its final state, which counts for the last part what was answered after the window.
        """
        if parts.count == 0 or isinstance(last, Unknown):
            return ()
        series = self.source.range(cumulative, parts.start, parts.end, parts.seconds)
        readings = _by_time(series, parts.count + 1)
        if readings and last is not None:
            if last.edges != readings[-1].edges:
                return ()
            readings[-1] = last
        return tuple(after.minus(before) for before, after in pairwise(readings))

    def course(self, expression: str, parts: Stretches) -> tuple[float, ...]:
        """Return the values of an expression at the start and at the end of each part; empty where one is missing."""
        if parts.count == 0:
            return ()
        series = self.source.range(expression, parts.start, parts.end, parts.seconds)
        if len(series) != 1 or len(series[0].values) != parts.count + 1:
            return ()
        values = series[0].values
        return values if all(map(math.isfinite, values)) else ()


def number(answer: Answer) -> float | None:
    """Return the number that an answer is, or None."""
    match answer:
        case Value(value):
            return value
        case Empty() | NotANumber():
            return None


def moment(seconds: float) -> datetime:
    """Return a time from seconds since the epoch."""
    return datetime.fromtimestamp(seconds, UTC)


def share_query(buckets: Buckets, threshold: float, buckets_of: BucketsOf, where: str) -> str | None:
    """Return PromQL for the share of observations at or below a threshold; None where it is no edge of the buckets."""
    index = buckets.edge(threshold)
    if index is None:
        return None if buckets.labels else queries.native_share_at_most(threshold, buckets_of(where))
    if not buckets.labels:
        return queries.native_share_at_most(threshold, buckets_of(where))
    label = buckets.labels[index]
    return queries.share_at_most(label, buckets_of, where) if label else None


def _by_time(series: Sequence[Series], count: int) -> list[Buckets]:
    """Return one histogram for each step of a range query; none at all where a bucket lacks a step."""
    columns = sorted((float(each.labels.get("le", "nan")), each.labels.get("le", ""), each.values) for each in series)
    if len(columns) <= 1 or any(len(values) != count for _, _, values in columns):
        return []
    edges, labels = tuple(edge for edge, _, _ in columns), tuple(label for _, label, _ in columns)
    readings = [tuple(values[step] for _, _, values in columns) for step in range(count)]
    if any(math.isnan(value) for reading in readings for value in reading):
        return []
    return [Buckets(edges, reading, labels, min(0.0, edges[0])) for reading in readings]
