"""Learns a workload from what an engine already serves: PromQL in, profile out; nothing here asks Prometheus.

`learning_queries` gives the text of every query, to be asked for one time, the end of the window. `learn` turns the
answers into a profile with the same lengths, share of cached prompt tokens and burstiness. Which turns belong to one
session no metric says: the profile's sessions have one turn.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier_tuner.durations import format_duration
from frontier_tuner.errors import MeasurementError
from frontier_tuner.prometheus.queries import pod_matchers
from frontier_tuner.prometheus.source import Sample

MIN_REQUESTS = 100
"""Below this a histogram says little about its tail."""
_MIN_BINS = 30
_MIN_PER_BIN = 2.0
_BURSTINESS = (0.05, 20.0)
_BIN_SECONDS = 60.0
_BUSY_SECONDS = 300.0
_BUSY_PERCENTILE = 95
_TOTAL_WEIGHT = 1_000_000
_HIGHEST_PERCENT = 99
_ARRIVALS = "vllm:time_to_first_token_seconds_count"
"""Counted when a request's first token appears: of all counters the closest to its arrival."""
_LENGTHS = {"input": "vllm:request_prompt_tokens", "output": "vllm:request_generation_tokens"}


LENGTHS_AND_RATE = ("inputBuckets", "outputBuckets", "requestRate")
"""The answers by which `learn` knows whether there is enough to learn from; without the others it takes defaults."""


class TooFewRequestsError(MeasurementError):
    """Fewer requests were seen than a workload is learned from."""


def learning_queries(namespace: str, pods: Sequence[str], window_seconds: float) -> dict[str, str]:
    """Return PromQL by the name under which `learn` takes its answer; all are for the time at the window's end.

    Args:
        namespace: Of the pods.
        pods: Exactly those that served in the window, at least one.
        window_seconds: How far to look back, above 0.

    Raises:
        ValueError: There are no pods, or there is no window.
    """
    if window_seconds <= 0:
        raise ValueError(f"a window of {window_seconds:g} s holds nothing")
    where, window = pod_matchers(namespace, pods), format_duration(window_seconds)

    def increase(name: str, by: str = "") -> str:
        labels = ", ".join(filter(None, (by, "pod", "engine")))
        outer = f"sum by ({by})" if by else "sum"
        return f"{outer} (max by ({labels}) (increase({name}{{{where}}}[{window}])))"

    def cached(what: str) -> str:
        names = f'{{__name__=~"vllm:(gpu_)?prefix_cache_{what}_total",{where}}}'
        return f"sum (max by (pod, engine) (increase({names}[{window}])))"

    def counted(offset_seconds: float) -> str:
        """Requests in one bin; bins in which a counter began anew, or a pod went, are left out."""
        ends = [f"offset {format_duration(at)}" if at else "" for at in (offset_seconds, offset_seconds + _BIN_SECONDS)]
        now, before = (f"sum (max by (pod, engine) ({_ARRIVALS}{{{where}}} {end}))" for end in ends)
        return f"(({now} - {before}) >= 0)"

    busy = f"sum (max by (pod, engine) (rate({_ARRIVALS}{{{where}}}[{format_duration(_BUSY_SECONDS)}])))"
    step = format_duration(_BIN_SECONDS)
    queries = {
        "requestRate": f"{increase(_ARRIVALS)} / {window_seconds!r}",
        "busyRate": f"quantile_over_time({_BUSY_PERCENTILE / 100:g}, ({busy})[{window}:{step}])",
        "perBin": f"avg_over_time(({counted(0)})[{window}:{step}])",
        "bins": f"count_over_time(({counted(0)} - {counted(_BIN_SECONDS)})[{window}:{step}])",
        "twoSampleVariance": f"avg_over_time((({counted(0)} - {counted(_BIN_SECONDS)}) ^ 2)[{window}:{step}]) / 2",
        "cached": f"{cached('hits')} / {cached('queries')}",
    }
    for name, metric in _LENGTHS.items():
        queries[f"{name}Buckets"] = increase(f"{metric}_bucket", "le")
        queries[f"{name}Mean"] = f"{increase(f'{metric}_sum')} / {increase(f'{metric}_count')}"
    return queries


@dataclass(frozen=True)
class Learned:
    """A workload that was learned.

    Attributes:
        profile: The JSON value of `workload.profile`.
        arrivals: The JSON value of `workload.arrivals`, or empty where too little came to tell.
        request_rate: Requests per second over the window.
        busy_rate: 95th percentile of the request rate over five minutes: what replicas are sized for. The mean rate
            where that is unknown.
        requests: Requests that the lengths were learned from.
        notes: What could not be learned, and what stands in for it.
    """

    profile: Mapping[str, Any]
    arrivals: Mapping[str, Any]
    request_rate: float
    busy_rate: float
    requests: int
    notes: tuple[str, ...] = field(default=())


def learn(answers: Mapping[str, Sequence[Sample]], max_tokens: int | None = None) -> Learned:
    """Return the workload that the answers to `learning_queries` describe.

    Args:
        answers: Every query's instant vector by the query's name; empty where there is no series.
        max_tokens: Longest context of the model: lengths beyond the last bucket end there; without it at twice the
            bucket's edge.

    Raises:
        TooFewRequestsError: Lengths or rate are unknown, or fewer than `MIN_REQUESTS` requests were seen; the
            message says which, and that a profile can be given instead.
    """
    rate = _number(answers, "requestRate")
    counts = {name: _counts(answers, f"{name}Buckets", max_tokens) for name in _LENGTHS}
    requests = round(min(sum(count for _, count in buckets) for buckets in counts.values()))
    if rate is None or requests < MIN_REQUESTS:
        raise TooFewRequestsError(
            f"a workload is learned from at least {MIN_REQUESTS} requests, and {requests} were seen: "
            "look back further with workload.fromMetrics.window, or give workload.profile"
        )
    notes = []
    share = _number(answers, "cached")
    if share is None:
        notes.append("the engine exports no prefix cache: nothing is taken to be shared")
    percent = min(_HIGHEST_PERCENT, max(0, round(100 * (share or 0.0))))
    arrivals = _arrivals(answers)
    if not arrivals:
        notes.append("too few requests came to tell how bursty they are: Poisson arrivals stand in")
    busy = _number(answers, "busyRate")
    profile = {
        f"{name}Tokens": {"histogram": _histogram(counts[name], _number(answers, f"{name}Mean"))} for name in _LENGTHS
    }
    session = {"turns": 1, "sharedPrefixPercent": percent}
    return Learned({**profile, "session": session}, arrivals, rate, max(busy or rate, rate), requests, tuple(notes))


def _number(answers: Mapping[str, Sequence[Sample]], name: str) -> float | None:
    samples = answers.get(name, ())
    return samples[0].value if len(samples) == 1 and math.isfinite(samples[0].value) else None


def _counts(answers: Mapping[str, Sequence[Sample]], name: str, max_tokens: int | None) -> list[tuple[int, float]]:
    """Return upper edges in whole tokens with the requests in each bucket; empty where they are not known."""
    found = sorted((float(sample.labels.get("le", "nan")), sample.value) for sample in answers.get(name, ()))
    if any(math.isnan(edge) or not math.isfinite(count) for edge, count in found):
        return []
    buckets, below, edge_before = [], 0.0, 0
    for edge, cumulative in found:
        last = max(edge_before + 1, max_tokens or 2 * edge_before) if math.isinf(edge) else math.floor(edge)
        if last > edge_before:
            buckets.append((last, max(0.0, cumulative - below)))
            below, edge_before = max(below, cumulative), last
    return buckets


def _arrivals(answers: Mapping[str, Sequence[Sample]]) -> dict[str, Any]:
    """Return gamma arrivals with the burstiness that the counts of a minute show, or nothing.

    Counts of a renewal process have variance / mean = 1 / shape in long bins (D. R. Cox, Renewal Theory, 4.5). Half the
    mean square of the difference between neighbouring bins (D. W. Allan's two-sample variance) stands for the variance:
    the rate may change over a day without being taken for bursts.
    """
    bins, mean, variance = (_number(answers, name) for name in ("bins", "perBin", "twoSampleVariance"))
    if bins is None or mean is None or variance is None or bins < _MIN_BINS or mean < _MIN_PER_BIN or variance <= 0:
        return {}
    low, high = _BURSTINESS
    return {"pattern": "Gamma", "burstiness": f"{min(high, max(low, mean / variance)):.2f}"}


def _histogram(counts: Sequence[tuple[int, float]], mean: float | None) -> list[dict[str, int]]:
    """Return the histogram of a profile: each bucket in two halves, weighted so that the mean is the measured one.

    An engine's buckets are wide, and lengths spread evenly within them would have another mean.
    """
    halves, before = [], 0
    for edge, count in counts:
        middle = (before + edge) // 2
        halves.append((before, middle if middle > before else edge, edge, count))
        before = edge
    total = sum(count for _, _, _, count in halves)
    low = sum(count * (start + 1 + middle) / 2 for start, middle, _, count in halves) / total
    high = sum(count * (middle + 1 + edge) / 2 if middle < edge else count * edge for _, middle, edge, count in halves)
    upper = 0.5 if mean is None or high / total <= low else (mean - low) / (high / total - low)
    upper = min(1.0, max(0.0, upper))
    scale = _TOTAL_WEIGHT / total
    buckets: list[dict[str, int]] = []
    for _, middle, edge, count in halves:
        parts = [(edge, 1.0)] if middle == edge else [(middle, 1 - upper), (edge, upper)]
        buckets += [{"upTo": upto, "weight": round(count * share * scale)} for upto, share in parts]
    return _trimmed(buckets)


def _trimmed(buckets: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Return the buckets without empty ones, except those at which one that is not empty begins."""
    following = [*(bucket["weight"] for bucket in buckets[1:]), 0]
    return [bucket for bucket, after in zip(buckets, following, strict=True) if bucket["weight"] or after]
