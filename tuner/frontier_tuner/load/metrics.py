"""What the load generator exports: exact counts of what its clients saw, in buckets that an SLO can be decided on.

The histograms are plain lists of counts behind one collector, because a stream of tokens is observed thousands of
times a second and several tokens of one chunk are one observation with a weight.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from math import inf

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from frontier_tuner.load.progress import Counts
from frontier_tuner.objectives import SLO

WARM_UP = "warmup"
MEASURE = "measure"
DRAIN = "drain"
"""Tokens that arrive after the sending stopped belong to no window."""
RESULTS = ("ok", "failed", "cut")

_STEPS_PER_DECADE = 20
"""Neighbouring edges are 12 % apart, so that interpolation inside a bucket is off by less than that."""
_TIGHT = (0.9, 0.95, 0.98, 0.99, 1.0, 1.01, 1.02, 1.05, 1.1)
"""Edges on and around an SLO threshold, relative to it."""


def bucket_edges(low: float, high: float, thresholds: Iterable[float]) -> list[float]:
    """Return ascending finite edges from `low` to at least `high`, with edges on and tightly around each threshold."""
    edges, step = {low}, 0
    while max(edges) < high:
        step += 1
        edges.add(float(f"{low * 10 ** (step / _STEPS_PER_DECADE):.4g}"))
    for threshold in thresholds:
        edges.update(float(f"{threshold * factor:.9g}") for factor in _TIGHT)
    return sorted(edges)


class Histogram:
    """Counts of observations by bucket, and their sum, for one value of the label `phase`."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Add `count` observations of `value`."""
        self._counts[bisect_left(self._edges, value)] += count
        self._sum += value * count

    def buckets(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative counts by upper edge as Prometheus writes them, `+Inf` last, and the sum."""
        cumulative, total = [], 0
        for edge, count in zip((*self._edges, float("inf")), tuple(self._counts), strict=True):
            total += count
            cumulative.append(("+Inf" if edge == float("inf") else repr(edge), float(total)))
        return cumulative, self._sum

    def counts(self) -> Counts:
        """Return the cumulative counts as they stand now."""
        return Counts((*self._edges, inf), tuple(accumulate(map(float, self._counts))))

    def quantile(self, fraction: float) -> float:
        """Return the upper edge of the bucket that holds this quantile; 0 without observations."""
        total = sum(self._counts)
        if total == 0:
            return 0.0
        seen = 0
        for edge, count in zip((*self._edges, self._edges[-1]), self._counts, strict=True):
            seen += count
            if seen >= fraction * total:
                return edge
        return self._edges[-1]


class LoadMetrics(Collector):
    """All series of one load generator, from zero; each histogram and counter is split by `phase`.

    Args:
        slos: Bounds on which histogram buckets are placed.
    """

    def __init__(self, slos: Sequence[SLO]) -> None:
        def by_phase(metric: str, low: float, high: float) -> dict[str, Histogram]:
            edges = bucket_edges(low, high, [slo.bound for slo in slos if slo.metric == metric])
            return {phase: Histogram(edges) for phase in (WARM_UP, MEASURE)}

        self.ttft = by_phase("TTFT", 0.001, 600)
        self.itl = by_phase("ITL", 0.0001, 60)
        self.e2e = by_phase("E2E", 0.01, 3600)
        self.user_speed = by_phase("UserTokensPerSecond", 0.1, 10_000)
        self.lag = by_phase("", 0.0001, 60)
        self.lag_max = dict.fromkeys((WARM_UP, MEASURE), 0.0)
        self.in_flight = 0
        self.requests = {(phase, result): 0 for phase in (WARM_UP, MEASURE) for result in RESULTS}
        self.output_tokens = dict.fromkeys((WARM_UP, MEASURE, DRAIN), 0)
        self.input_tokens = dict.fromkeys((WARM_UP, MEASURE), 0)
        self.shared_tokens = dict.fromkeys((WARM_UP, MEASURE), 0)

    def observe_lag(self, phase: str, seconds: float) -> None:
        """Add one observation of how late the generator was."""
        late = max(0.0, seconds)
        self.lag[phase].observe(late)
        self.lag_max[phase] = max(self.lag_max[phase], late)

    def measured(self) -> dict[str, Counts]:
        """Return the histograms of the measured requests as they stand now, by metric."""
        histograms = {"TTFT": self.ttft, "ITL": self.itl, "E2E": self.e2e, "UserTokensPerSecond": self.user_speed}
        return {metric: by_phase[MEASURE].counts() for metric, by_phase in histograms.items()}

    def registry(self) -> CollectorRegistry:
        """Return a registry that holds these series and nothing else."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return registry

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering need not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield every series as it stands now."""
        for name, text, histograms in (
            ("ttft_seconds", "Time from when a request was due to its first token.", self.ttft),
            ("itl_seconds", "Time between tokens, one observation per token.", self.itl),
            ("e2e_seconds", "Time from when a request was due to its last token.", self.e2e),
            ("user_tokens_per_second", "Speed of one answer after its first token.", self.user_speed),
            ("lag_seconds", "How late the load generator itself was.", self.lag),
        ):
            family = HistogramMetricFamily(f"frontier_load_{name}", text, labels=["phase"])
            for phase, histogram in histograms.items():
                family.add_metric([phase], *histogram.buckets())
            yield family
        lag_max = GaugeMetricFamily(
            "frontier_load_lag_max_seconds", "The latest that the load generator itself was.", labels=["phase"]
        )
        for phase, seconds in self.lag_max.items():
            lag_max.add_metric([phase], seconds)
        yield lag_max
        yield GaugeMetricFamily("frontier_load_in_flight", "Requests without a complete answer.", self.in_flight)
        requests = CounterMetricFamily(
            "frontier_load_requests", "Requests by the phase they were sent in.", labels=["phase", "result"]
        )
        for (phase, result), count in self.requests.items():
            requests.add_metric([phase, result], count)
        yield requests
        for name, text, counters in (
            ("output_tokens", "Tokens by the phase they arrived in.", self.output_tokens),
            ("input_tokens", "Prompt tokens by the phase they were sent in.", self.input_tokens),
            ("shared_tokens", "Prompt tokens that earlier requests had in common.", self.shared_tokens),
        ):
            family_ = CounterMetricFamily(f"frontier_load_{name}", text, labels=["phase"])
            for phase, count in counters.items():
                family_.add_metric([phase], count)
            yield family_
