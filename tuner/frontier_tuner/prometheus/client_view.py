"""What the load generator's series say of a window: latencies and user speed as its clients saw them.

The histograms are those of the requests sent in the window, read at their final values: they began at zero with the
load generator, so nothing is extrapolated.
"""

from dataclasses import dataclass, replace
from functools import partial

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import E2E, ITL, TTFT, Estimate, key
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus.engine_metrics import find_histograms
from frontier_tuner.prometheus.engine_view import Found
from frontier_tuner.prometheus.estimates import edges_around, estimate_quantile, percentiles, shares_of
from frontier_tuner.prometheus.histograms import NO_SERIES, Unknown
from frontier_tuner.prometheus.queries import CLIENT_METRICS, Histogram, Span
from frontier_tuner.prometheus.reader import HistogramReading, Reader, Stretches


@dataclass(frozen=True)
class ClientWindow:
    """A window of one load generator.

    Attributes:
        reader: Asks for the window's end.
        where: Matchers that select its series of the measured phase.
        summary: What it did.
        measured: From the start of the window to the evaluation time.
        course: How far back its state at a time in the window is looked for.
        parts: The window in equal parts.
    """

    reader: Reader
    where: str
    summary: LoadSummary
    measured: Span
    course: Span
    parts: Stretches


@dataclass(frozen=True)
class ClientView:
    """What the clients saw.

    Attributes:
        found: Percentiles and shares within SLOs, by key.
        observations: Observations of each metric.
        loose_bounds: SLOs whose bound lies between edges that are too far apart.
        seconds: Mean time of a whole request, or None.
        first_tokens: Mean TTFT in each part of the window that has any; empty where that is not known.
    """

    found: Found
    observations: dict[str, float]
    loose_bounds: tuple[str, ...]
    seconds: float | None
    first_tokens: tuple[float, ...]


def view_client(window: ClientWindow, objectives: Objectives, max_edge_percent: float) -> ClientView:
    """Return what the clients saw in a window.

    Args:
        window: Whose series, and when.
        objectives: Percentiles and bounds to measure.
        max_edge_percent: How far the edges around an SLO's bound may lie from it.
    """
    reader = window.reader
    stored = find_histograms(reader.source, CLIENT_METRICS, window.where, window.measured, reader.at)
    found: Found = {}
    observations: dict[str, float] = {}
    loose: list[str] = []
    for metric in CLIENT_METRICS:
        histogram = stored.get(metric)
        if histogram is None:
            found.update({key(metric, percentile): NO_SERIES for percentile in percentiles(metric, objectives)})
            continue
        reading = _read(window, metric, histogram, objectives)
        independent = _independent(window.summary, metric, reading.n)
        found.update(_quantiles(window.summary, metric, reading, objectives, independent))
        found.update(shares_of(reading, metric, objectives, independent))
        observations[metric] = reading.n
        loose += _loose(reading, metric, objectives, max_edge_percent)
    return ClientView(
        found,
        observations,
        tuple(loose),
        reader.number(stored[E2E].final_mean(window.where, window.measured)) if E2E in stored else None,
        _first_tokens(window, stored[TTFT]) if TTFT in stored else (),
    )


def _read(window: ClientWindow, metric: str, histogram: Histogram, objectives: Objectives) -> HistogramReading:
    fractions = [
        (percentile, partial(_fraction, window.summary, metric, percentile))
        for percentile in percentiles(metric, objectives)
    ]
    bounds = [slo.bound for slo in objectives.slos if slo.metric == metric]

    def final(where: str) -> str:
        return histogram.final(where, window.measured)

    reading = window.reader.histogram(final, window.where, fractions, bounds)
    if histogram.native:
        return reading
    cumulative = histogram.final(window.where, window.course)
    return replace(reading, batches=window.reader.batches(cumulative, window.parts, reading.buckets))


def _fraction(summary: LoadSummary, metric: str, percentile: int, n: float) -> float:
    """Return the share of the observations that lie below a percentile.

    Of whole requests the longest are the first to be cut: each counts as longer than all that were answered.
    """
    fraction = percentile / 100
    return fraction * (n + summary.cut) / n if metric == E2E else fraction


def _quantiles(
    summary: LoadSummary, metric: str, reading: HistogramReading, objectives: Objectives, independent: float
) -> Found:
    found: Found = {}
    for percentile in percentiles(metric, objectives):
        name = key(metric, percentile)
        if isinstance(reading.buckets, Unknown):
            found[name] = reading.buckets
            continue
        fraction = _fraction(summary, metric, percentile, reading.n)
        if fraction >= 1:
            why = f"{summary.cut} of {summary.sent} requests were cut before they were answered"
            found[name] = Unknown(why, "Cut")
        else:
            found[name] = estimate_quantile(reading, percentile, fraction, independent)
    return found


def _independent(summary: LoadSummary, metric: str, n: float) -> float:
    """Return how many independent observations to count on where the course of the window does not tell.

    Requests that share an engine step share its time: their gaps between tokens are one observation. A closed loop
    keeps its concurrency; for an open loop its rate stands in, as if every request took a second.
    """
    return n / max(1.0, summary.load.value) if metric == ITL else n


def _loose(reading: HistogramReading, metric: str, objectives: Objectives, max_percent: float) -> list[str]:
    buckets = reading.buckets
    if isinstance(buckets, Unknown):
        return []
    sentences = []
    for slo in objectives.slos:
        left, right = edges_around(buckets, slo.bound) if slo.metric == metric else (slo.bound, slo.bound)
        if max(slo.bound - left, right - slo.bound) * 100 > slo.bound * max_percent:
            sentences.append(
                f"the bound {slo.bound:g} of {slo.key} lies between the edges {left:g} and {right:g} of the histogram: "
                "give the load generator this SLO"
            )
    return sentences


def _first_tokens(window: ClientWindow, histogram: Histogram) -> tuple[float, ...]:
    reader, where, span = window.reader, window.where, window.course
    sums = reader.course(histogram.final_sum(where, span), window.parts)
    counts = reader.course(histogram.final_count(where, span), window.parts)
    if not sums or not counts:
        return ()
    parts = zip(sums, sums[1:], counts, counts[1:], strict=False)
    return tuple((b - a) / (m - n) for a, b, n, m in parts if m > n)


def slo_estimates(found: Found, objectives: Objectives) -> dict[str, Estimate]:
    """Return the estimates of the metrics that SLOs bound, by key."""
    wanted = {slo.key for slo in objectives.slos}
    return {name: value for name, value in found.items() if name in wanted and isinstance(value, Estimate)}
