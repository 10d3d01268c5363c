"""What a rung shows while it still runs, from snapshots of its own histograms: whether it is known well enough.

Whoever holds the histograms, a load generator or a poller of Prometheus, takes a snapshot every second or so and asks.
Only the end of the window is decided here; the values of a finished rung are always those of Prometheus.

To stop when an interval happens to be narrow makes it hold the truth a little less often than it states (P. W. Glynn
and W. Whitt, Annals of Applied Probability 2, 1992). The observations that each percentile needs keep that small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from frontier_tuner.measurement import ITL, THROUGHPUT, Estimate, key
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus.answers import Value
from frontier_tuner.prometheus.estimates import Course, estimate_quantile, estimate_rate, percentiles
from frontier_tuner.prometheus.histograms import Buckets
from frontier_tuner.prometheus.intervals import MAX_BATCHES
from frontier_tuner.prometheus.precision import Enough, Precision, enough
from frontier_tuner.prometheus.reader import Asked, HistogramReading


@dataclass(frozen=True)
class Snapshot:
    """A rung at one moment.

    Attributes:
        seconds: Since the start of the window.
        histograms: Cumulative buckets of the measured requests by metric, always with the same edges.
        tokens: Output tokens that have arrived within the window.
    """

    seconds: float
    histograms: Mapping[str, Buckets]
    tokens: float


def decide(
    snapshots: Sequence[Snapshot],
    objectives: Objectives,
    *,
    max_seconds: float,
    in_flight: float = 1.0,
    precision: Precision = Precision(),  # noqa: B008 - frozen
) -> Enough:
    """Return whether a running rung may end.

    Args:
        snapshots: In the order of time, the first one at the start of the window.
        objectives: The SLOs.
        max_seconds: When the window ends in any case.
        in_flight: Requests that share an engine step.
        precision: What is tight.
    """
    elapsed = snapshots[-1].seconds if snapshots else 0.0
    metrics = estimates_of(snapshots, objectives, in_flight)
    return enough(metrics, objectives, elapsed_seconds=elapsed, max_seconds=max_seconds, precision=precision)


def estimates_of(snapshots: Sequence[Snapshot], objectives: Objectives, in_flight: float = 1.0) -> dict[str, Estimate]:
    """Return what is known of percentiles and throughput so far, by key; see `decide`."""
    if not snapshots or snapshots[-1].seconds <= 0:
        return {}
    thinned = _thinned(snapshots)
    last, found = snapshots[-1], {}
    for metric, buckets in last.histograms.items():
        if buckets.total <= 0:
            continue
        batches = tuple(
            after.histograms[metric].minus(before.histograms[metric]) for before, after in pairwise(thinned)
        )
        for percentile in percentiles(metric, objectives):
            fraction = percentile / 100
            asked = Asked("", Value(buckets.quantile(fraction)))
            reading = HistogramReading(buckets, {percentile: asked}, {}, batches)
            independent = buckets.total / in_flight if metric == ITL else buckets.total
            found[key(metric, percentile)] = estimate_quantile(reading, percentile, fraction, independent)
    amounts = [after.tokens - before.tokens for before, after in pairwise(thinned)]
    course = Course(amounts, [after.seconds - before.seconds for before, after in pairwise(thinned)])
    requests = max((round(buckets.total) for metric, buckets in last.histograms.items() if metric != ITL), default=0)
    found[THROUGHPUT] = estimate_rate(Asked("", Value(last.tokens / last.seconds)), requests, course)
    return {name: estimate for name, estimate in found.items() if isinstance(estimate, Estimate)}


def _thinned(snapshots: Sequence[Snapshot]) -> list[Snapshot]:
    """Return snapshots at nearly equal distances, enough for the batches that an interval needs, ends included."""
    count = min(MAX_BATCHES, len(snapshots) - 1)
    return [snapshots[round(step * (len(snapshots) - 1) / max(1, count))] for step in range(count + 1)]
