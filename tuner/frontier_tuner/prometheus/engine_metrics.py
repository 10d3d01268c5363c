"""The engines' metrics: one table of what a fact is called in which version, and how it is found in Prometheus."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.answers import MetricsSource
from frontier_tuner.prometheus.queries import Histogram, Span

Kind = Literal["counter", "gauge", "histogram"]
CACHE_CONFIG = "vllm:cache_config_info"
"""A series whose labels are the options of the cache that are in force."""


@dataclass(frozen=True)
class Name:
    """One name of a fact.

    Attributes:
        name: The metric, without the suffix of a histogram's series.
        since: First version of vLLM that exports it; empty where it is older than every version of interest.
        until: First version that does not, unless told to show hidden metrics; empty where there is none yet.
    """

    name: str
    since: str = ""
    until: str = ""


@dataclass(frozen=True)
class EngineMetric:
    """A fact that engines export.

    Attributes:
        kind: Type of the metric.
        names: Its names, newest first. The first one that is present is used, and never a sum of two.
        highest: Largest value that can be; 0 is the smallest.
    """

    kind: Kind
    names: tuple[Name, ...]
    highest: float = math.inf


TABLE: Mapping[str, EngineMetric] = {
    "TTFT": EngineMetric("histogram", (Name("vllm:time_to_first_token_seconds"),)),
    "ITL": EngineMetric(
        "histogram",
        (
            Name("vllm:inter_token_latency_seconds", since="0.11"),
            Name("vllm:time_per_output_token_seconds", until="0.12"),
        ),
    ),
    "E2E": EngineMetric("histogram", (Name("vllm:e2e_request_latency_seconds"),)),
    "TPOT": EngineMetric("histogram", (Name("vllm:request_time_per_output_token_seconds"),)),
    "OutputTokens": EngineMetric("counter", (Name("vllm:generation_tokens_total"),)),
    "InputTokens": EngineMetric("counter", (Name("vllm:prompt_tokens_total"),)),
    "Finished": EngineMetric("counter", (Name("vllm:request_success_total"),)),
    "Running": EngineMetric("gauge", (Name("vllm:num_requests_running"),)),
    "Waiting": EngineMetric("gauge", (Name("vllm:num_requests_waiting"),)),
    "KVCacheUsage": EngineMetric(
        "gauge",
        (Name("vllm:kv_cache_usage_perc", since="0.9.2"), Name("vllm:gpu_cache_usage_perc", until="0.12")),
        highest=1.0,
    ),
    "PrefixCacheQueries": EngineMetric(
        "counter",
        (
            Name("vllm:prefix_cache_queries_total", since="0.9.2"),
            Name("vllm:gpu_prefix_cache_queries_total", until="0.12"),
        ),
    ),
    "PrefixCacheHits": EngineMetric(
        "counter",
        (Name("vllm:prefix_cache_hits_total", since="0.9.2"), Name("vllm:gpu_prefix_cache_hits_total", until="0.12")),
    ),
    "AcceptedByPosition": EngineMetric("counter", (Name("vllm:spec_decode_num_accepted_tokens_per_pos_total"),)),
    "Preemptions": EngineMetric("counter", (Name("vllm:num_preemptions_total"),)),
}
"""By fact. Token throughput always follows from a counter: the gauges of it that early versions had are gone."""

OUTPUT_TOKENS = TABLE["OutputTokens"].names[0].name
INPUT_TOKENS = TABLE["InputTokens"].names[0].name
FINISHED = TABLE["Finished"].names[0].name


def names_of(fact: str) -> str:
    """Return the names of a fact with their versions, as a person reads them."""
    return ", ".join(_described(name) for name in TABLE[fact].names)


def _described(name: Name) -> str:
    parts = [f"from {name.since}" if name.since else "", f"before {name.until}" if name.until else ""]
    versions = " and ".join(filter(None, parts))
    return f"{name.name} (vLLM {versions})" if versions else name.name


@dataclass(frozen=True)
class Resolved:
    """What the selected engines export, under the names of their version.

    Attributes:
        names: By fact, the name of a counter or gauge.
        histograms: By fact, a histogram.
    """

    names: Mapping[str, str]
    histograms: Mapping[str, Histogram]


def resolve(source: MetricsSource, facts: Iterable[str], where: str, span: Span, at: datetime) -> Resolved:
    """Return the names under which the selected engines export facts; a fact that they do not export is absent.

    Args:
        source: Prometheus.
        facts: Keys of `TABLE`.
        where: Matchers that select the engines' series.
        span: When the series must exist.
        at: Evaluation time.
    """
    wanted = sorted(set(facts))
    plain = {fact: [name.name for name in TABLE[fact].names] for fact in wanted if TABLE[fact].kind != "histogram"}
    bucketed = {fact: [name.name for name in TABLE[fact].names] for fact in wanted if TABLE[fact].kind == "histogram"}
    candidates = {series for names in plain.values() for series in names}
    candidates |= {series for names in bucketed.values() for name in names for series in (name, f"{name}_bucket")}
    present = _present(source, candidates, where, span, at)
    found = {fact: [name for name in names if name in present] for fact, names in plain.items()}
    histograms = {fact: list(filter(None, (_stored(name, present) for name in bucketed[fact]))) for fact in bucketed}
    return Resolved(
        {fact: names[0] for fact, names in found.items() if names},
        {fact: stored[0] for fact, stored in histograms.items() if stored},
    )


def find_histograms(
    source: MetricsSource, names: Mapping[str, str], where: str, span: Span, at: datetime
) -> Mapping[str, Histogram]:
    """Return, by the same keys, those histograms that exist, with how they are stored."""
    candidates = {series for name in names.values() for series in (name, f"{name}_bucket")}
    present = _present(source, candidates, where, span, at)
    stored = {key: _stored(name, present) for key, name in names.items()}
    return {key: histogram for key, histogram in stored.items() if histogram is not None}


def _present(source: MetricsSource, names: Iterable[str], where: str, span: Span, at: datetime) -> set[str]:
    samples = source.vector(queries.presence(sorted(set(names)), where, span), at)
    return {sample.labels.get("__name__", "") for sample in samples}


def _stored(name: str, present: set[str]) -> Histogram | None:
    """Return how a histogram is stored; where both ways are, the series of buckets are taken."""
    if f"{name}_bucket" in present:
        return Histogram(name)
    return Histogram(name, native=True) if name in present else None
