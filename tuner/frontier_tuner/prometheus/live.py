"""Measures a window of real traffic on a set of pods from the engine's own histograms.

Both sides of a canary are judged by it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

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
)
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.estimates import (
    Unknown,
    estimate_quantile,
    estimate_rate,
    missing_sentences,
    percentiles,
    read_buckets,
)
from frontier_tuner.prometheus.queries import ENGINE_METRICS, FINISHED, OUTPUT_TOKENS, Span
from frontier_tuner.prometheus.rung import per_gpu
from frontier_tuner.prometheus.source import MetricsSource, Sample, Value


@dataclass(frozen=True)
class _Live:
    source: MetricsSource
    where: str
    span: Span
    at: datetime
    objectives: Objectives


def measure_live(
    source: MetricsSource,
    namespace: str,
    pods: Sequence[str],
    window: Window,
    objectives: Objectives,
    gpus: int,
    price_per_gpu_hour: float | None,
    min_requests: int,
) -> Measurement:
    """Return what exactly these pods showed in a window; call it one scrape interval after the window's end.

    The load is the request rate that they answered. `sent` is what they finished or failed. The validity's reason may
    be `MetricsMissing` (a pod or a metric is not in Prometheus), `WindowInvalid` (an engine restarted, or more than
    5 % failed) or `InsufficientSamples`.

    Args:
        source: Prometheus.
        namespace: Namespace of the pods.
        pods: Names of the pods, at least one.
        window: What to look at; every query is made for its end.
        objectives: Percentiles that they bound are measured as well.
        gpus: GPUs that all the pods hold together.
        price_per_gpu_hour: Money, or None where it is unknown.
        min_requests: Answered requests below which the window has no verdict.

    Raises:
        MeasurementError: Prometheus could not be asked.
        ValueError: There are no pods, or the window is empty.
    """
    if window.seconds <= 0:
        raise ValueError(f"the window from {window.start} to {window.end} is empty")
    live = _Live(source, queries.pod_matchers(namespace, pods), Span(window.seconds), window.end, objectives)
    finished = _finished(live)
    ok = round(sum(count for reason, count in finished.items() if reason not in {"abort", "error"}))
    failed = round(finished.get("error", 0.0))
    found = _metrics(live, ok, gpus, price_per_gpu_hour)
    metrics = {name: estimate for name, estimate in found.items() if isinstance(estimate, Estimate)}
    rate = metrics.get(REQUEST_RATE)
    validity = judge_live(
        absent=_absent(live, pods),
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
    missing: Sequence[str],
) -> Validity:
    """Return whether a window of real traffic counts, with the first reason against it."""
    checks = (
        (bool(absent), "MetricsMissing", f"not scraped: {', '.join(absent)}"),
        (restarted, "WindowInvalid", "an engine restarted within the window"),
        (not counted, "MetricsMissing", f"{FINISHED} is absent or not a number"),
        (failed * 20 > ok + failed, "WindowInvalid", f"{failed} of {ok + failed} requests failed"),
        (ok < min_requests, "InsufficientSamples", f"{ok} answered requests, of {min_requests} needed"),
        (bool(missing), "MetricsMissing", "; ".join(missing)),
    )
    against = ((reason, message) for holds, reason, message in checks if holds)
    first = next(against, None)
    return Validity(valid=True) if first is None else Validity(valid=False, reason=first[0], message=first[1])


def resolve(source: MetricsSource, fact: str, where: str, span: Span, at: datetime, suffix: str = "") -> str | None:
    """Return the name under which these engines export a fact of `ENGINE_METRICS`, or None where they do not."""
    names = ENGINE_METRICS[fact]
    samples = source.vector(queries.presence([name + suffix for name in names], where, span), at)
    present = {sample.labels.get("__name__", "") for sample in samples}
    return next((name for name in names if name + suffix in present), None)


def _finished(live: _Live) -> dict[str, float]:
    """Return the requests that ended in the window by how they ended; empty where that is not known."""
    increase = f"increase({FINISHED}{{{live.where}}}{live.span})"
    expression = f"sum by (finished_reason) (max by (pod, engine, finished_reason) ({increase}))"
    samples: list[Sample] = live.source.vector(expression, live.at)
    return {sample.labels.get("finished_reason", ""): sample.value for sample in samples if math.isfinite(sample.value)}


def _absent(live: _Live, pods: Sequence[str]) -> list[str]:
    # One scrape gives no rate: the pod's GPUs would count and its tokens would not.
    seen = live.source.vector(
        f"count by (pod) (count_over_time({OUTPUT_TOKENS}{{{live.where}}}{live.span}) > 1)", live.at
    )
    return sorted(set(pods) - {sample.labels.get("pod", "") for sample in seen})


def _restarted(live: _Live) -> bool:
    answers = [live.source.query(expression, live.at) for expression in queries.restarts(live.where, live.span)]
    return any(isinstance(answer, Value) and answer.value > 0 for answer in answers)


def _missing(found: Mapping[str, Estimate | Unknown], objectives: Objectives) -> tuple[str, ...]:
    needed = {THROUGHPUT, *(slo.key for slo in objectives.slos)}
    return missing_sentences((name, why) for name, why in found.items() if isinstance(why, Unknown) and name in needed)


def _in_flight(live: _Live) -> float:
    """Return how many requests share a step of one engine on average, at least 1."""
    running = f"avg(max by (pod, engine) (avg_over_time(vllm:num_requests_running{{{live.where}}}{live.span})))"
    answer = live.source.query(running, live.at)
    return max(1.0, answer.value) if isinstance(answer, Value) else 1.0


def _metrics(live: _Live, ok: int, gpus: int, price: float | None) -> dict[str, Estimate | Unknown]:
    finished = f'{live.where},finished_reason!="abort"'
    tokens = estimate_rate(live.source, live.at, queries.rate(OUTPUT_TOKENS, live.where, live.span), ok)
    found: dict[str, Estimate | Unknown] = {
        THROUGHPUT: tokens,
        REQUEST_RATE: estimate_rate(live.source, live.at, queries.rate(FINISHED, finished, live.span), ok),
    }
    if isinstance(tokens, Estimate):
        found.update(per_gpu(live.source, live.at, tokens, gpus, price))
    for metric in ("TTFT", "ITL", "E2E"):
        for percentile in percentiles(metric, live.objectives):
            found[key(metric, percentile)] = _quantile(live, metric, percentile)
    for percentile in percentiles(USER_SPEED, live.objectives):
        found[key(USER_SPEED, percentile)] = _inverse(_quantile(live, "TPOT", 100 - percentile))
    return found


def _quantile(live: _Live, fact: str, percentile: int) -> Estimate | Unknown:
    name = resolve(live.source, fact, live.where, live.span, live.at, "_bucket")
    if name is None:
        return Unknown(f"none of {', '.join(ENGINE_METRICS[fact])} is in Prometheus for {live.where}")
    expression = queries.rate_buckets(name, live.where, live.span)
    buckets = read_buckets(live.source.vector(expression, live.at))
    if isinstance(buckets, Unknown):
        return buckets
    n = buckets.total * live.span.seconds
    effective = n / _in_flight(live) if fact == "ITL" else n
    return estimate_quantile(live.source, live.at, percentile / 100, expression, buckets, n, effective)


def _inverse(estimate: Estimate | Unknown) -> Estimate | Unknown:
    """Return a speed for a time per token: the slowest speeds are the longest times."""
    if isinstance(estimate, Unknown):
        return estimate
    if estimate.low <= 0:
        return Unknown("a time per token of 0 has no speed")
    return Estimate(1 / estimate.value, 1 / estimate.high, 1 / estimate.low, estimate.n, f"1 / {estimate.query}")
