"""Measures one rung of a load ladder from what Prometheus scraped of the engine and of the load generator.

Latencies and user speed are the client's: histograms of the requests sent in the window, read at their final values,
so that no extrapolation enters and SLO thresholds lie on bucket edges. Throughput and request rate are the engine's
counters over exactly the window. Every query is made for the time `window.end`; evaluated there again it gives the
same value.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import (
    COST,
    E2E,
    ITL,
    REQUEST_RATE,
    THROUGHPUT,
    THROUGHPUT_PER_GPU,
    USER_SPEED,
    Estimate,
    Measurement,
    key,
)
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.estimates import (
    Unknown,
    estimate_cost,
    estimate_quantile,
    estimate_rate,
    missing_sentences,
    percentiles,
    read_buckets,
)
from frontier_tuner.prometheus.queries import CLIENT_METRICS, CLIENT_REQUESTS, FINISHED, OUTPUT_TOKENS, Span
from frontier_tuner.prometheus.source import Empty, MetricsSource, NotANumber, Value
from frontier_tuner.prometheus.validity import Evidence, Limits, judge

_LOOK_BACK_SECONDS = 300.0
"""How old the last scrape of the engine before the load may be."""


@dataclass(frozen=True)
class Scope:
    """Whose series make up a measurement.

    Attributes:
        engine: Labels that select the engine's series and no others.
        load: Labels that select the load generator's series and no others.
        gpus: GPUs that the engine holds.
        price_per_gpu_hour: Money, or None where it is unknown.
        scrape_interval_seconds: How often Prometheus scrapes both.
    """

    engine: Mapping[str, str]
    load: Mapping[str, str]
    gpus: int
    price_per_gpu_hour: float | None = None
    scrape_interval_seconds: float = 5.0


@dataclass(frozen=True)
class _Rung:
    source: MetricsSource
    scope: Scope
    summary: LoadSummary
    objectives: Objectives
    settle_seconds: float

    @property
    def engine(self) -> str:
        return queries.matchers(self.scope.engine)

    @property
    def client(self) -> str:
        return queries.matchers(self.scope.load)

    @property
    def measured(self) -> Span:
        """From the start of the window to the evaluation time."""
        return Span(self.summary.window.seconds + self.settle_seconds, self.settle_seconds)

    @property
    def whole(self) -> Span:
        """From the first request, warm-up included, to the evaluation time."""
        begin = (self.summary.end - self.summary.begin).total_seconds()
        return Span(begin + self.settle_seconds, self.settle_seconds)


def evaluation_time(scope: Scope, summary: LoadSummary) -> datetime:
    """Return the time from which `measure_rung` may be called: by then both were scraped again after the drain."""
    return summary.scraped_at + timedelta(seconds=2 * scope.scrape_interval_seconds)


def measure_rung(
    source: MetricsSource,
    scope: Scope,
    summary: LoadSummary,
    objectives: Objectives,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Measurement:
    """Return what a rung showed, valid or with the reason why it does not count; call it after `evaluation_time`.

    The validity's reason may be `MetricsMissing`, `WindowInvalid`, `InsufficientSamples` or `MeasurementDisagrees`. A
    quantile beyond the last bucket is left out of the metrics without making the window invalid.

    Raises:
        MeasurementError: Prometheus could not be asked.
    """
    settle = (evaluation_time(scope, summary) - summary.end).total_seconds()
    rung = _Rung(source, scope, summary, objectives, settle)
    found: dict[str, Estimate | Unknown] = {}
    if summary.window.seconds > 0:
        found.update(_rates(rung))
        found.update(_latencies(rung))
    metrics = {name: estimate for name, estimate in found.items() if isinstance(estimate, Estimate)}
    unknown = [(name, reason) for name, reason in found.items() if isinstance(reason, Unknown)]
    needed = _needed(summary, objectives)
    missing = missing_sentences((name, reason) for name, reason in unknown if name in needed)
    return Measurement(
        load=summary.load,
        window=summary.window,
        sent=summary.sent,
        ok=summary.ok,
        failed=summary.failed,
        metrics=metrics,
        validity=judge(_evidence(rung, missing), limits),
    )


def _needed(summary: LoadSummary, objectives: Objectives) -> set[str]:
    """Return the keys whose absence makes the window invalid."""
    needed = {THROUGHPUT, REQUEST_RATE, key("TTFT", 95)}
    if summary.output_tokens > summary.sent:
        needed.update((key("ITL", 95), key(USER_SPEED, 50)))
    return needed | {slo.key for slo in objectives.slos}


def _rates(rung: _Rung) -> dict[str, Estimate | Unknown]:
    at, span, ok = rung.summary.end, Span(rung.summary.window.seconds), rung.summary.ok
    finished = f'{rung.engine},finished_reason!="abort"'
    tokens = estimate_rate(rung.source, at, queries.rate(OUTPUT_TOKENS, rung.engine, span), ok)
    found: dict[str, Estimate | Unknown] = {
        THROUGHPUT: tokens,
        REQUEST_RATE: estimate_rate(rung.source, at, queries.rate(FINISHED, finished, span), ok),
    }
    if isinstance(tokens, Estimate):
        found.update(per_gpu(rung.source, at, tokens, rung.scope.gpus, rung.scope.price_per_gpu_hour))
    return found


def per_gpu(
    source: MetricsSource, at: datetime, tokens: Estimate, gpus: int, price: float | None
) -> dict[str, Estimate | Unknown]:
    """Return throughput per GPU, and the cost where there is a price, that follow from a throughput."""
    found: dict[str, Estimate | Unknown] = {
        THROUGHPUT_PER_GPU: estimate_rate(source, at, f"{tokens.query} / {gpus}", tokens.n),
    }
    if price is not None:
        found[COST] = estimate_cost(source, at, tokens, price, gpus)
    return found


def _latencies(rung: _Rung) -> dict[str, Estimate | Unknown]:
    summary, at = rung.summary, rung.summary.end
    found: dict[str, Estimate | Unknown] = {}
    where = f'{rung.client},phase="measure"'
    for metric, name in CLIENT_METRICS.items():
        expression = queries.final_buckets(name, where, rung.measured)
        buckets = read_buckets(rung.source.vector(expression, at))
        for percentile in percentiles(metric, rung.objectives):
            name_ = key(metric, percentile)
            if isinstance(buckets, Unknown):
                found[name_] = buckets
                continue
            n, fraction = buckets.total, percentile / 100
            if metric == E2E:
                # The longest are the first to be cut: each counts as longer than all that were answered.
                fraction *= (n + summary.cut) / n
            if fraction >= 1:
                found[name_] = Unknown(f"{summary.cut} of {summary.sent} requests were cut before they were answered")
                continue
            effective = n / _in_flight(summary) if metric == ITL else n
            found[name_] = estimate_quantile(rung.source, at, fraction, expression, buckets, n, effective)
    return found


def _in_flight(summary: LoadSummary) -> float:
    """Return how many requests share an engine step, at least 1: their gaps between tokens are one observation.

    A closed loop keeps its concurrency. For an open loop its rate stands in, as if every request took a second.
    """
    return max(1.0, summary.load.value)


def _evidence(rung: _Rung, missing: tuple[str, ...]) -> Evidence:
    summary, at = rung.summary, rung.summary.end
    seconds = summary.window.seconds
    window, after = Span(seconds), Span(rung.settle_seconds, rung.settle_seconds)
    restarts = [_count(rung.source, text, at) for text in queries.restarts(rung.engine, rung.whole)]
    known = [count for count in restarts if count is not None]
    return Evidence(
        summary=summary,
        engine_scrapes=_count(rung.source, queries.scrapes(OUTPUT_TOKENS, rung.engine, window), at)
        if seconds > 0
        else None,
        engine_scrapes_after=_count(rung.source, queries.scrapes(OUTPUT_TOKENS, rung.engine, after), at),
        engine_restarts=sum(known) if known else None,
        engine_finished=_engine_finished(rung),
        client_finished=_count(
            rung.source, queries.final(CLIENT_REQUESTS, f'{rung.client},result="ok"', rung.whole), at
        ),
        missing=missing,
    )


def _engine_finished(rung: _Rung) -> float | None:
    where = f'{rung.engine},finished_reason!="abort"'
    after = rung.source.query(queries.final(FINISHED, where, rung.whole), rung.summary.end)
    before = rung.source.query(queries.final(FINISHED, where, Span(_LOOK_BACK_SECONDS)), rung.summary.begin)
    match before, after:
        case Value(low), Value(high):
            return high - low
        case Empty(), Value(high):
            return high
        case _:
            return None


def _count(source: MetricsSource, expression: str, at: datetime) -> float | None:
    match source.query(expression, at):
        case Value(value) if math.isfinite(value):
            return value
        case Value() | Empty() | NotANumber():
            return None
