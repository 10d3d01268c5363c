"""Measures a window of real traffic on a set of pods from the engine's own histograms.

Both sides of a canary are judged by it. Engines count gaps between steps; ITL is per token, as a client counts it: see
`per_token`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from frontier_tuner.measurement import (
    REQUEST_RATE,
    THROUGHPUT,
    USER_SPEED,
    Estimate,
    Load,
    Measurement,
    Validity,
    Window,
    key,
    within_slo,
)
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.answers import MetricsSource
from frontier_tuner.prometheus.cost import Prices
from frontier_tuner.prometheus.counters import Counters, longest_gap, scrapes
from frontier_tuner.prometheus.engine_metrics import FINISHED, OUTPUT_TOKENS, names_of
from frontier_tuner.prometheus.engine_view import EngineView, EngineWindow, Found, view_engines
from frontier_tuner.prometheus.estimates import estimate_quantile, inverse, missing_sentences, percentiles, shares_of
from frontier_tuner.prometheus.histograms import Unknown
from frontier_tuner.prometheus.per_token import (
    TokensPerStep,
    estimate_token_quantile,
    estimate_token_share,
    locate,
    tokens_per_step,
)
from frontier_tuner.prometheus.queries import Histogram, Span
from frontier_tuner.prometheus.reader import HistogramReading, Reader, share_query

MIN_SCRAPES = 2
"""One scrape gives no rate: the pod's GPUs would count and its tokens would not."""
MAX_GAP_SCRAPES = 5.0
MAX_GAP_SHARE = 0.1
MAX_FAILED_PERCENT = 5
ONE_TOKEN = TokensPerStep((1.0,))
"""Of engines that do not speculate."""


@dataclass(frozen=True)
class _Live:
    window: EngineWindow
    objectives: Objectives
    pods: tuple[str, ...]

    @property
    def span(self) -> Span:
        return self.window.span


def measure_live(
    source: MetricsSource,
    namespace: str,
    pods: Sequence[str],
    window: Window,
    objectives: Objectives,
    gpus: int,
    price_per_gpu_hour: float | None,
    min_requests: int,
    *,
    scrape_interval_seconds: float | None = None,
    cached_input_percent: float = 100.0,
) -> Measurement:
    """Return what exactly these pods showed in a window; call it one scrape interval after the window's end.

    The load is the request rate that they answered. `sent` is what they finished or failed. The validity's reason may
    be `MetricsMissing` (a pod or a metric is not in Prometheus), `MetricsStale` (a pod was not scraped for a part of
    the window, as one that has ended is not), `WindowInvalid` (an engine restarted, or more than 5 % failed) or
    `InsufficientSamples`.

    Args:
        source: Prometheus.
        namespace: Namespace of the pods.
        pods: Names of the pods, at least one.
        window: What to look at; every query is made for its end.
        objectives: Percentiles that they bound are measured as well.
        gpus: GPUs that all the pods hold together.
        price_per_gpu_hour: Money, or None where it is unknown.
        min_requests: Answered requests below which the window has no verdict.
        scrape_interval_seconds: How often the pods are scraped; None takes the densest pod's mean interval.
        cached_input_percent: What a cached input token counts in the cost of input, in percent of an uncached one.

    Raises:
        MeasurementError: Prometheus could not be asked.
        ValueError: There are no pods, or the window is empty.
    """
    if window.seconds <= 0:
        raise ValueError(f"the window from {window.start} to {window.end} is empty")
    reader, where = Reader(source, window.end), queries.pod_matchers(namespace, pods)
    interval = scrape_interval_seconds or _interval(reader.counters(OUTPUT_TOKENS, where, Span(window.seconds)), window)
    tokens = reader.counters(OUTPUT_TOKENS, where, Span(window.seconds + (MAX_GAP_SCRAPES + 1) * interval))
    engines = EngineWindow(reader, where, window.start, window.end, Span(window.seconds + 2 * interval), interval)
    live = _Live(engines, objectives, tuple(pods))
    finished = _finished(live)
    ok = round(sum(count for reason, count in finished.items() if reason not in {"abort", "error"}))
    failed = round(finished.get("error", 0.0))
    prices = None if price_per_gpu_hour is None else Prices(price_per_gpu_hour, gpus, cached_input_percent)
    view = view_engines(engines, ok, gpus, prices)
    found: Found = {**view.found, **_latencies(live, view)}
    metrics = {name: estimate for name, estimate in found.items() if isinstance(estimate, Estimate)}
    rate = metrics.get(REQUEST_RATE)
    validity = judge_live(
        absent=_absent(tokens, window, pods),
        stale=_stale(tokens, window, interval),
        restarted=_restarted(live),
        counted=bool(finished),
        ok=ok,
        failed=failed,
        min_requests=min_requests,
        missing=_missing(found, objectives),
    )
    load = Load("RequestRate", rate.value if rate is not None else 0.0)
    return Measurement(load, window, ok + failed, ok, failed, metrics, validity)


def judge_live(
    *,
    absent: Sequence[str],
    restarted: bool,
    counted: bool,
    ok: int,
    failed: int,
    min_requests: int,
    missing: Sequence[tuple[str, str]],
    stale: Sequence[str] = (),
) -> Validity:
    """Return whether a window of real traffic counts, with the first reason against it."""
    check, _ = missing[0] if missing else ("", "")
    failures = f"{failed} of {ok + failed} requests failed"
    checks = (
        (bool(absent), "TargetNotScraped", "MetricsMissing", f"not scraped: {', '.join(absent)}"),
        (bool(stale), "ScrapeGap", "MetricsStale", f"not scraped for a part of the window: {', '.join(stale)}"),
        (restarted, "EngineRestarted", "WindowInvalid", "an engine restarted within the window"),
        (not counted, "MetricMissing", "MetricsMissing", f"{FINISHED} is absent or not a number"),
        (failed * 100 > (ok + failed) * MAX_FAILED_PERCENT, "TooManyFailed", "WindowInvalid", failures),
        (
            ok < min_requests,
            "TooFewRequests",
            "InsufficientSamples",
            f"{ok} answered requests, of {min_requests} needed",
        ),
        (bool(missing), check, "MetricsMissing", "; ".join(sentence for _, sentence in missing)),
    )
    for holds, name, reason, message in checks:
        if holds:
            return Validity(valid=False, reason=reason, message=message, check=name)
    return Validity(valid=True)


def _finished(live: _Live) -> dict[str, float]:
    """Return the requests that ended in the window by how they ended; empty where that is not known."""
    window = live.window
    expression = queries.increase(FINISHED, window.where, live.span, by="finished_reason")
    samples = window.reader.source.vector(expression, window.end)
    return {sample.labels.get("finished_reason", ""): sample.value for sample in samples if math.isfinite(sample.value)}


def _interval(tokens: Counters, window: Window) -> float:
    """Return how often the most scraped counter was scraped, or the window where that is not known."""
    counts = [len(series.times) for series in tokens.series]
    return window.seconds / max(counts) if counts else window.seconds


def _absent(tokens: Counters, window: Window, pods: Sequence[str]) -> list[str]:
    start, end = window.start.timestamp(), window.end.timestamp()
    seen = {
        series.labels.get("pod", "")
        for series in tokens.series
        if scrapes(Counters((series,)), start, end) >= MIN_SCRAPES
    }
    return sorted(set(pods) - seen)


def _stale(tokens: Counters, window: Window, interval: float) -> list[str]:
    start, end = window.start.timestamp(), window.end.timestamp()
    allowed = max(MAX_GAP_SCRAPES * interval, MAX_GAP_SHARE * window.seconds)
    # A pod that joined within the window had no traffic before; its GPUs count from the window's start all the same.
    late = (
        series
        for series in tokens.series
        if longest_gap(Counters((series,)), max(start, series.times[0]), end) > allowed
    )
    return sorted({series.labels.get("pod", "") for series in late})


def _restarted(live: _Live) -> bool:
    texts = queries.restarts(OUTPUT_TOKENS, live.window.where, live.span)
    return any((live.window.reader.number(text) or 0) > 0 for text in texts)


def _missing(found: Found, objectives: Objectives) -> tuple[tuple[str, str], ...]:
    needed = {THROUGHPUT, *(slo.key for slo in objectives.slos)}
    return missing_sentences((name, why) for name, why in found.items() if isinstance(why, Unknown) and name in needed)


def _latencies(live: _Live, view: EngineView) -> Found:
    found: Found = {}
    running = view.resolved.names.get("Running")
    shared = 1.0
    if running is not None:
        mean = live.window.reader.number(
            f"avg(avg_over_time({queries.selector(running, live.window.where, live.span)}))"
        )
        shared = max(1.0, mean or 1.0)
    for metric in ("TTFT", "ITL", "E2E"):
        wanted = percentiles(metric, live.objectives)
        bounds = [slo.bound for slo in live.objectives.slos if slo.metric == metric]
        reading = _read(live, view, metric, wanted, bounds)
        if isinstance(reading, Unknown):
            found.update({key(metric, percentile): reading for percentile in wanted})
            continue
        # Requests that share an engine step share its time.
        independent = reading.n / shared if metric == "ITL" else reading.n
        tokens = _tokens(live, view, reading) if metric == "ITL" else ONE_TOKEN
        if not tokens.single:
            found.update(_per_token(live, view, reading, tokens, independent))
            continue
        found.update({key(metric, p): estimate_quantile(reading, p, p / 100, independent) for p in wanted})
        found.update(shares_of(reading, metric, live.objectives, independent))
    found.update(_speeds(live, view))
    return found


def _tokens(live: _Live, view: EngineView, reading: HistogramReading) -> TokensPerStep:
    """Return how many tokens the engines' steps brought; one each where they do not speculate."""
    accepted, buckets = view.resolved.names.get("AcceptedByPosition"), reading.buckets
    if accepted is None or isinstance(buckets, Unknown):
        return ONE_TOKEN
    window = live.window
    samples = window.reader.source.vector(queries.rate_by("position", accepted, window.where, live.span), window.end)
    held = {
        int(place): sample.value
        for sample in samples
        if (place := sample.labels.get("position", "")).isdecimal() and math.isfinite(sample.value)
    }
    return tokens_per_step(buckets.total, [held[place] for place in sorted(held)])


def _per_token(
    live: _Live, view: EngineView, reading: HistogramReading, tokens: TokensPerStep, independent: float
) -> Found:
    """Return the time per token of engines whose steps bring several, as their clients see it."""
    found: Found = {}
    histogram, buckets = view.resolved.histograms["ITL"], reading.buckets
    if isinstance(buckets, Unknown):
        return found
    reader, where = live.window.reader, live.window.where

    def risen(matchers: str) -> str:
        return histogram.rate(matchers, live.span)

    for percentile in percentiles("ITL", live.objectives):
        place = locate(buckets, tokens, percentile / 100)
        if isinstance(place, Unknown):
            found[key("ITL", percentile)] = place
            continue
        asked = reader.ask(queries.part_of(queries.quantile(place.fraction, risen(where)), place.tokens))
        found[key("ITL", percentile)] = estimate_token_quantile(
            reading, tokens, percentile / 100, place, asked, independent
        )
    for slo in live.objectives.slos:
        if slo.metric != "ITL" or slo.maximum is None:
            continue
        shares = [(weight, share_query(buckets, k * slo.bound, risen, where)) for k, weight in tokens.parts]
        known = [(weight, query) for weight, query in shares if query is not None]
        if len(known) < len(shares):
            continue
        share = estimate_token_share(reading, slo, reader.ask(queries.weighted(known)), independent)
        if isinstance(share, Estimate):
            found[within_slo(slo.key)] = share
    return found


def _speeds(live: _Live, view: EngineView) -> Found:
    """Return user speeds, from the time per token of whole requests: the slowest speeds are the longest times."""
    wanted = percentiles(USER_SPEED, live.objectives)
    reading = _read(live, view, "TPOT", [100 - percentile for percentile in wanted], [])
    if isinstance(reading, Unknown):
        return {key(USER_SPEED, percentile): reading for percentile in wanted}
    return {
        key(USER_SPEED, p): inverse(estimate_quantile(reading, 100 - p, (100 - p) / 100, reading.n)) for p in wanted
    }


def _read(
    live: _Live, view: EngineView, fact: str, wanted: Sequence[int], bounds: Sequence[float]
) -> HistogramReading | Unknown:
    histogram: Histogram | None = view.resolved.histograms.get(fact)
    if histogram is None:
        return Unknown(f"none of {names_of(fact)} is in Prometheus for {live.window.where}")
    reader, where, parts = live.window.reader, live.window.where, live.window.stretches

    def risen(matchers: str) -> str:
        return histogram.rate(matchers, live.span)

    fractions: list[tuple[int, Callable[[float], float]]] = [(p, _constant(p / 100)) for p in wanted]
    reading = reader.histogram(risen, where, fractions, bounds, scale=live.span.seconds)
    if histogram.native:
        return reading
    look_back = Span(timedelta(minutes=5).total_seconds())
    return replace(reading, batches=reader.batches(histogram.final(where, look_back), parts))


def _constant(fraction: float) -> Callable[[float], float]:
    return lambda _: fraction
