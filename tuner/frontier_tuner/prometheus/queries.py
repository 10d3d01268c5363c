"""Builds PromQL, and only builds.

Every expression is safe against counter resets and explicit about its window and its series. The same pod may be
scraped by two jobs, so series are first reduced by `max` to one for each pod and engine rank. Final values of an ended
process are read with `last_over_time`, which a staleness mark does not hide; a negative offset lets them be asked
for at the end of the measured window although the last scrape is later.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frontier_tuner.durations import format_duration

ENGINE_METRICS: Mapping[str, tuple[str, ...]] = {
    "TTFT": ("vllm:time_to_first_token_seconds",),
    "ITL": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "E2E": ("vllm:e2e_request_latency_seconds",),
    "TPOT": ("vllm:request_time_per_output_token_seconds",),
    "OutputTokens": ("vllm:generation_tokens_total",),
    "InputTokens": ("vllm:prompt_tokens_total",),
    "Finished": ("vllm:request_success_total",),
    "Running": ("vllm:num_requests_running",),
    "Waiting": ("vllm:num_requests_waiting",),
    "KVCacheUsage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "PrefixCacheQueries": ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
    "PrefixCacheHits": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
}
"""Names of one fact in the engine's versions, newest first: the first one present is used, and never a sum of two."""

OUTPUT_TOKENS = ENGINE_METRICS["OutputTokens"][0]
FINISHED = ENGINE_METRICS["Finished"][0]

CLIENT_METRICS: Mapping[str, str] = {
    "TTFT": "frontier_load_ttft_seconds",
    "ITL": "frontier_load_itl_seconds",
    "E2E": "frontier_load_e2e_seconds",
    "UserTokensPerSecond": "frontier_load_user_tokens_per_second",
}
"""Histograms of the load generator by metric."""
CLIENT_REQUESTS = "frontier_load_requests_total"


@dataclass(frozen=True)
class Span:
    """A stretch of time relative to the evaluation time of a query.

    Attributes:
        seconds: Its length.
        after_seconds: How long after the evaluation time it ends; below 0, before it.
    """

    seconds: float
    after_seconds: float = 0.0

    def __str__(self) -> str:
        offset = f" offset {format_duration(-self.after_seconds)}" if round(self.after_seconds * 1000) else ""
        return f"[{format_duration(self.seconds)}]{offset}"


def quote(value: str) -> str:
    """Return a string literal of PromQL, whatever the text contains."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def matchers(labels: Mapping[str, str]) -> str:
    """Return equality matchers without braces: `namespace="ml",pod="a"`."""
    return ",".join(f"{name}={quote(value)}" for name, value in labels.items())


def pod_matchers(namespace: str, pods: Sequence[str]) -> str:
    """Return matchers for exactly these pods of a namespace.

    Raises:
        ValueError: There are no pods; a selector of none would match series without a pod.
    """
    if not pods:
        raise ValueError("a selector needs at least one pod")
    return f"namespace={quote(namespace)},pod=~{quote('|'.join(re.escape(pod) for pod in sorted(pods)))}"


def rate(name: str, where: str, span: Span) -> str:
    """Return the increase per second of a counter over all pods and ranks."""
    return f"sum(max by (pod, engine) (rate({name}{{{where}}}{span})))"


def final(name: str, where: str, span: Span) -> str:
    """Return the sum of the last values of a counter or gauge within a span."""
    return f"sum(max by (pod, engine, phase, result, finished_reason) (last_over_time({name}{{{where}}}{span})))"


def final_buckets(name: str, where: str, span: Span) -> str:
    """Return the last cumulative buckets of a histogram within a span, by `le`."""
    return f"sum by (le) (max by (le, pod, engine) (last_over_time({name}_bucket{{{where}}}{span})))"


def rate_buckets(name: str, where: str, span: Span) -> str:
    """Return the increase per second of a histogram's buckets over a span, by `le`."""
    return f"sum by (le) (max by (le, pod, engine) (rate({name}_bucket{{{where}}}{span})))"


def quantile(fraction: float, buckets: str) -> str:
    """Return the quantile, 0 to 1, that buckets give."""
    return f"histogram_quantile({fraction:.9g}, {buckets})"


def scrapes(name: str, where: str, span: Span) -> str:
    """Return how often the least scraped pod was scraped within a span."""
    return f"min(max by (pod, engine) (count_over_time({name}{{{where}}}{span})))"


def restarts(where: str, span: Span) -> tuple[str, str]:
    """Return two expressions, either of which is above 0 where an engine process was replaced within a span."""
    return (
        f"sum(max by (pod, engine) (resets({OUTPUT_TOKENS}{{{where}}}{span})))",
        f"sum(max by (pod) (changes(process_start_time_seconds{{{where}}}{span})))",
    )


def presence(names: Sequence[str], where: str, span: Span) -> str:
    """Return an expression with one series, labelled `__name__`, for each of these series that exists in a span."""
    pattern = "|".join(re.escape(name) for name in names)
    return f"count by (__name__) (last_over_time({{__name__=~{quote(pattern)},{where}}}{span}))"
