"""vLLM's metrics under its names, types, labels and buckets, kept in plain numbers and rendered when scraped.

Observations are made by the step loop, thousands of times a second, so they must cost next to nothing.
Times are wall-clock seconds.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from frontier_local.engine.scheduler import Scheduler

TTFT_BUCKETS = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
ITL_BUCKETS = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
LATENCY_BUCKETS = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0,
    40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
ITERATION_BUCKETS = tuple(float(size) for size in (1, *(2**power for power in range(3, 15))))
FINISH_REASONS = ("stop", "length", "abort", "error", "repetition")

COUNTERS = {
    "vllm:num_preemptions": "Cumulative number of preemption from the engine.",
    "vllm:prompt_tokens": "Number of prefill tokens processed.",
    "vllm:generation_tokens": "Number of generation tokens processed.",
    "vllm:prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "vllm:prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "vllm:spec_decode_num_drafts": "Number of spec decoding drafts.",
    "vllm:spec_decode_num_draft_tokens": "Number of draft tokens.",
    "vllm:spec_decode_num_accepted_tokens": "Number of accepted tokens.",
    "frontier_sim:lag_seconds": "Seconds by which the simulation fell behind its own clock.",
}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "vllm:inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "vllm:request_time_per_output_token_seconds": "Histogram of time_per_output_token_seconds per request.",
    "vllm:e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "vllm:request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "vllm:request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "vllm:request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "vllm:request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "vllm:request_prompt_tokens": "Number of prefill tokens processed.",
    "vllm:request_generation_tokens": "Number of generation tokens processed.",
    "vllm:request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "vllm:iteration_tokens_total": "Histogram of number of tokens per engine_step.",
}


def token_buckets(largest: int) -> tuple[float, ...]:
    """Return 1, 2, 5, 10, 20, 50, … up to `largest`."""
    steps = (mantissa * 10**exponent for exponent in range(12) for mantissa in (1, 2, 5))
    return tuple(float(step) for step in steps if step <= largest)


class Histogram:
    """Counts per bucket.

    Args:
        bounds: Upper bounds, ascending, without infinity.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value; a value on a bound belongs to it."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> Iterator[tuple[str, float]]:
        """Yield each bucket's label and how many values are at most its bound."""
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            yield floatToGoString(bound), float(total)  # type: ignore[no-untyped-call] # it has no annotations


def _bounds(name: str, max_model_len: int) -> Sequence[float]:
    match name:
        case "vllm:time_to_first_token_seconds":
            return TTFT_BUCKETS
        case "vllm:inter_token_latency_seconds" | "vllm:request_time_per_output_token_seconds":
            return ITL_BUCKETS
        case "vllm:iteration_tokens_total":
            return ITERATION_BUCKETS
        case _:
            pass
    return LATENCY_BUCKETS if name.endswith("_seconds") else token_buckets(max_model_len)


class ReplicaMetrics:
    """The numbers of one replica.

    Args:
        max_model_len: Longest sequence in tokens; token histograms end there.
        speculative_tokens: Drafted tokens per step, one position each; 0 where speculation is off.
    """

    def __init__(self, max_model_len: int, speculative_tokens: int) -> None:
        self._max_model_len = max_model_len
        self._speculative_tokens = speculative_tokens
        self.reset()

    def reset(self) -> None:
        """Set every counter and histogram to zero, as a restart would."""
        self.counters = dict.fromkeys(COUNTERS, 0.0)
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.accepted_at = [0] * self._speculative_tokens
        self.histograms = {name: Histogram(_bounds(name, self._max_model_len)) for name in HISTOGRAMS}

    def count(self, name: str, amount: float = 1) -> None:
        """Add to the counter `vllm:` + name."""
        self.counters["vllm:" + name] += amount

    def observe(self, name: str, value: float) -> None:
        """Add a value to the histogram `vllm:` + name."""
        self.histograms["vllm:" + name].observe(value)

    def count_drafts(self, drafts: int, accepted: int) -> None:
        """Add one round of speculation for one sequence."""
        self.count("spec_decode_num_drafts")
        self.count("spec_decode_num_draft_tokens", drafts)
        self.count("spec_decode_num_accepted_tokens", accepted)
        for position in range(accepted):
            self.accepted_at[position] += 1


@dataclass(frozen=True)
class Source:
    """One replica as its metrics are collected: what it counted and what it holds now."""

    metrics: ReplicaMetrics
    scheduler: Scheduler


class EngineCollector(Collector):
    """Renders the metrics of all replicas.

    Args:
        model_name: The label `model_name`.
        sources: The replicas; the position is the label `engine`.
        cache_config: Labels of `vllm:cache_config_info`.
        nan: Whether every value is NaN.
    """

    def __init__(
        self, model_name: str, sources: Sequence[Source], cache_config: Mapping[str, str], *, nan: bool = False
    ) -> None:
        self._sources = [([model_name, str(index)], source) for index, source in enumerate(sources)]
        self._cache_config = cache_config
        self._nan = nan

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        for family in (*self._gauges(), *self._counters(), *self._histograms()):
            if self._nan:
                family.samples = [sample._replace(value=float("nan")) for sample in family.samples]
            yield family

    def _gauges(self) -> Iterator[Metric]:
        running = _gauge("vllm:num_requests_running", "Number of requests in model execution batches.")
        waiting = _gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.")
        usage = _gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        config = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=[*self._cache_config, "engine"]
        )
        for labels, source in self._sources:
            running.add_metric(labels, len(source.scheduler.running))
            waiting.add_metric(labels, len(source.scheduler.waiting))
            usage.add_metric(labels, source.scheduler.pool.usage)
            config.add_metric([*self._cache_config.values(), labels[1]], 1)
        yield from (running, waiting, usage, config)

    def _counters(self) -> Iterator[Metric]:
        for name, text in COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=_LABELS)
            for labels, source in self._sources:
                if source.metrics.accepted_at or "spec_decode" not in name:
                    family.add_metric(labels, source.metrics.counters[name])
            if family.samples:
                yield family
        success = CounterMetricFamily(
            "vllm:request_success", "Count of successfully processed requests.", labels=[*_LABELS, "finished_reason"]
        )
        position = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Accepted tokens per draft position.",
            labels=[*_LABELS, "position"],
        )
        for labels, source in self._sources:
            for reason, count in source.metrics.finished.items():
                success.add_metric([*labels, reason], count)
            for index, count in enumerate(source.metrics.accepted_at):
                position.add_metric([*labels, str(index)], count)
        yield success
        if position.samples:
            yield position

    def _histograms(self) -> Iterator[Metric]:
        for name, text in HISTOGRAMS.items():
            family = HistogramMetricFamily(name, text, labels=_LABELS)
            for labels, source in self._sources:
                histogram = source.metrics.histograms[name]
                family.add_metric(labels, list(histogram.cumulative()), histogram.sum)
            yield family


_LABELS = ("model_name", "engine")


def _gauge(name: str, text: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=_LABELS)


def render(collector: EngineCollector) -> bytes:
    """Return all metrics, with those of the process, in the Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    return generate_latest(registry)
