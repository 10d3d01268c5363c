"""Histograms as Prometheus hands them over, and what their buckets say: a count, a share, a quantile with its edges."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from frontier_tuner.prometheus.answers import NativeHistogram, Sample

_SAME = 1e-9
"""Relative difference up to which an edge is a threshold: both were written as decimals somewhere."""


@dataclass(frozen=True)
class Unknown:
    """A metric that is not known.

    Attributes:
        why: What a user reads.
        check: Why, as one word: `MetricMissing` (there is no series), `NoTraffic` (nothing was observed),
            `NotANumber`, `InvalidHistogram`, `ImpossibleValue`, `OffScale` (it lies beyond the last edge) or `Cut`
            (the requests that would tell were not waited for).
    """

    why: str
    check: str = "MetricMissing"

    @property
    def off_scale(self) -> bool:
        """Whether the value exists and only its size is not known: an SLO on it is missed, the window is not spoilt."""
        return self.check == "OffScale"


NO_SERIES = Unknown("no series")
NOT_A_NUMBER = Unknown("not a number", "NotANumber")


@dataclass(frozen=True)
class Buckets:
    """Cumulative counts by upper edge, ascending, ending with infinity.

    Attributes:
        edges: Upper edges.
        counts: Observations at or below each edge; may be rates.
        labels: The edges as Prometheus writes them, empty where it writes one in two ways; none of a native histogram.
        floor: Lower edge of the first bucket.
    """

    edges: tuple[float, ...]
    counts: tuple[float, ...]
    labels: tuple[str, ...] = ()
    floor: float = 0.0

    @property
    def total(self) -> float:
        """All observations."""
        return self.counts[-1]

    def off_scale(self, fraction: float) -> bool:
        """Return whether this quantile lies beyond the last finite edge, where PromQL would answer with that edge."""
        return fraction * self.total > self.counts[-2] * (1 + _SAME)

    def around(self, fraction: float) -> tuple[float, float]:
        """Return lower and upper edge of the bucket in which this quantile lies; the last finite edge twice beyond."""
        index = bisect_left(self.counts, fraction * self.total * (1 - _SAME))
        if index >= len(self.edges) - 1:
            return self.edges[-2], self.edges[-2]
        return (self.edges[index - 1] if index else self.floor), self.edges[index]

    def quantile(self, fraction: float) -> float:
        """Return a quantile as PromQL does: linear inside its bucket, and the last finite edge beyond."""
        left, right = self.around(fraction)
        low, high = self.at_most(left), self.at_most(right)
        return left + (right - left) * ((fraction * self.total - low) / (high - low) if high > low else 1.0)

    def at_most(self, threshold: float) -> float:
        """Return the observations at or below a threshold; linear inside a bucket, and all those of the last edge."""
        index = bisect_left(self.edges, threshold * (1 - math.copysign(_SAME, threshold)))
        if index >= len(self.edges) - 1:
            return self.counts[-2] if math.isfinite(threshold) else self.total
        below = self.counts[index - 1] if index else 0.0
        left = self.edges[index - 1] if index else min(self.floor, self.edges[0])
        if threshold <= left or self.edges[index] <= left:
            return below
        share = min(1.0, (threshold - left) / (self.edges[index] - left))
        return below + (self.counts[index] - below) * share

    def bracket(self, threshold: float) -> tuple[float, float]:
        """Return the observations at or below the edges that enclose a threshold; twice the same on an edge."""
        index = self.edge(threshold)
        if index is not None:
            return self.counts[index], self.counts[index]
        above = bisect_left(self.edges, threshold)
        return (self.counts[above - 1] if above else 0.0), self.counts[min(above, len(self.counts) - 1)]

    def edge(self, threshold: float) -> int | None:
        """Return the position of the edge that is this threshold, or None."""
        above = bisect_left(self.edges, threshold * (1 - _SAME))
        if above < len(self.edges) and math.isclose(self.edges[above], threshold, rel_tol=_SAME):
            return above
        return None

    def minus(self, earlier: "Buckets") -> "Buckets":
        """Return what was observed since an earlier reading with the same edges."""
        differences = tuple(max(0.0, now - then) for now, then in zip(self.counts, earlier.counts, strict=True))
        return Buckets(self.edges, differences, self.labels, self.floor)


def read_buckets(samples: Sequence[Sample]) -> Buckets | Unknown:
    """Return the histogram that series labelled `le`, or one native histogram, make up."""
    if len(samples) == 1 and samples[0].histogram is not None:
        return _native(samples[0].histogram)
    try:
        series = sorted(
            (float(sample.labels.get("le", "nan")), sample.value, sample.labels.get("le", "")) for sample in samples
        )
    except ValueError:
        return Unknown("an edge of the histogram is not a number", "InvalidHistogram")
    if not series:
        return NO_SERIES
    if any(math.isnan(edge) or math.isnan(count) for edge, count, _ in series):
        return NOT_A_NUMBER
    if not math.isinf(series[-1][0]) or len(series) == 1:
        return Unknown("the +Inf bucket is missing; a relabelling rule may drop it", "InvalidHistogram")
    return _checked(_coalesced(series))


def _coalesced(series: Sequence[tuple[float, float, str]]) -> Buckets:
    """Return buckets of which those with one edge in two spellings, `1` and `1.0`, are added, as PromQL does.

    Such an edge has no label of its own.
    """
    counts: dict[float, float] = {}
    labels: dict[float, str] = {}
    for edge, count, label in series:
        labels[edge] = "" if edge in counts else label
        counts[edge] = counts.get(edge, 0.0) + count
    edges = tuple(counts)
    return Buckets(edges, tuple(counts.values()), tuple(labels.values()), min(0.0, edges[0]))


def _checked(buckets: Buckets) -> Buckets | Unknown:
    if any(after < before * (1 - 1e-6) - 1e-9 for before, after in pairwise(buckets.counts)):
        return Unknown("a bucket holds more than the next larger one", "InvalidHistogram")
    return buckets if buckets.total > 0 else Unknown("no observations", "NoTraffic")


def _native(histogram: NativeHistogram) -> Buckets | Unknown:
    """Return a native histogram with an edge wherever a bucket that holds something begins or ends."""
    if any(map(math.isnan, (histogram.count, histogram.sum))):
        return NOT_A_NUMBER
    if histogram.count <= 0 or not histogram.buckets:
        return Unknown("no observations", "NoTraffic")
    edges: list[float] = []
    counts: list[float] = []
    total, floor = 0.0, min(0.0, histogram.buckets[0][0])
    for left, right, count in histogram.buckets:
        if left > (edges[-1] if edges else floor):
            edges.append(left)
            counts.append(total)
        total += count
        edges.append(right)
        counts.append(total)
    if not math.isinf(edges[-1]):
        edges.append(math.inf)
        counts.append(total)
    return Buckets(tuple(edges), tuple(counts), (), floor)
