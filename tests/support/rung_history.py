"""What a rung leaves in Prometheus: an engine and a load generator, scraped every five seconds, to the millisecond."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import Load
from frontier_tuner.prometheus.rung import Scope
from support.prometheus_server import GAP, steps

INTERVAL = 5.0
FIRST, BEGIN, START, END, SCRAPED, LAST = -20.0, 0.0, 10.0, 70.0, 72.0, 100.0
TOKENS_PER_SECOND, REQUESTS_PER_SECOND, PROMPT_TOKENS_PER_SECOND = 2400.0, 5.0, 3000.0
TTFT = {"0.1": 0.0, "0.25": 0.3, "0.5": 0.9, "1.0": 1.0, "+Inf": 1.0}
"""Share of the requests at or below each edge."""
SPEED = {"20": 0.0, "38": 0.0, "40": 0.02, "42": 0.1, "80": 0.8, "160": 1.0, "+Inf": 1.0}
MEAN_E2E = 2.0
HISTOGRAMS = {
    "frontier_load_ttft_seconds": (TTFT, 0.375),
    "frontier_load_itl_seconds": ({"0.01": 0.1, "0.02": 0.9, "0.03": 0.99, "0.05": 1.0, "+Inf": 1.0}, 0.015),
    "frontier_load_e2e_seconds": ({"1.0": 0.1, "2.0": 0.5, "4.0": 1.0, "+Inf": 1.0}, MEAN_E2E),
    "frontier_load_user_tokens_per_second": (SPEED, 60.0),
}


@dataclass
class History:
    """One rung. Whatever a test changes, everything else is as it should be.

    Attributes:
        summary: Fields of the load generator's summary that differ.
        drop: Names of series that do not exist.
        only: Names of the series that exist; empty for all.
        change: By name, what becomes of a series' values: a function of the time and the value.
        replace: Shares of histograms that differ, by name.
        labels: Labels that differ, by name of the series.
        clock: By how much the load generator's clock is ahead.
    """

    summary: dict = field(default_factory=dict)
    drop: tuple = ()
    only: tuple = ()
    change: dict = field(default_factory=dict)
    replace: dict = field(default_factory=dict)
    labels: dict = field(default_factory=dict)
    clock: float = 0.0

    def write(self, server, origin, namespace):
        """Store the rung with time zero at `origin`."""
        series = [item for item in self._all() if item[0] not in self.drop and (not self.only or item[0] in self.only)]
        server.write(*(self._stored(item, origin, namespace) for item in series))

    def _stored(self, item, origin, namespace):
        name, pod, labels, value, first, last = item
        moments = [FIRST + INTERVAL * number for number in range(round((LAST - FIRST) / INTERVAL) + 1)]
        moments = [moment for moment in moments if first <= moment <= last]
        if pod == "load":
            moments = [*(moment for moment in moments if moment < SCRAPED), SCRAPED]
        alter = self.change.get(name, lambda _, number: number)
        values = [alter(moment, value(moment)) for moment in moments]
        samples = [
            (origin + moment, number) for moment, number in zip(moments, values, strict=True) if number is not GAP
        ]
        extra = self.labels.get(name, {})
        return {"__name__": name, "namespace": namespace, "pod": pod, **labels, **extra}, samples

    def _all(self):
        engine = {"engine": "0", "model_name": "m"}

        def busy(rate):
            return lambda moment: rate * min(max(0.0, moment - BEGIN), END - BEGIN)

        yield ("up", "engine", {}, lambda _: 1.0, FIRST, LAST)
        yield ("process_start_time_seconds", "engine", {}, lambda _: 1.0e9, FIRST, LAST)
        for name, rate in (
            ("vllm:generation_tokens_total", TOKENS_PER_SECOND),
            ("vllm:prompt_tokens_total", PROMPT_TOKENS_PER_SECOND),
            ("vllm:prefix_cache_queries_total", PROMPT_TOKENS_PER_SECOND),
            ("vllm:prefix_cache_hits_total", 0.0),
            ("vllm:e2e_request_latency_seconds_sum", REQUESTS_PER_SECOND * MEAN_E2E),
            ("vllm:e2e_request_latency_seconds_count", REQUESTS_PER_SECOND),
            ("vllm:e2e_request_latency_seconds_bucket", REQUESTS_PER_SECOND),
        ):
            extra = {"le": "+Inf"} if name.endswith("_bucket") else {}
            yield (name, "engine", {**engine, **extra}, busy(rate), FIRST, LAST)
        for reason, rate in (("length", REQUESTS_PER_SECOND), ("abort", 0.0)):
            labels = {**engine, "finished_reason": reason}
            yield ("vllm:request_success_total", "engine", labels, busy(rate), FIRST, LAST)
        yield ("vllm:kv_cache_usage_perc", "engine", engine, lambda _: 0.5, FIRST, LAST)
        yield ("vllm:num_requests_waiting", "engine", engine, lambda _: 1.0, FIRST, LAST)
        config = {"cache_dtype": "auto", "enable_prefix_caching": "True", "gpu_memory_utilization": "0.9"}
        yield ("vllm:cache_config_info", "engine", {"engine": "0", **config}, lambda _: 1.0, FIRST, LAST)
        yield from self._client()

    def _client(self):
        def measured(rate):
            return lambda moment: rate * min(max(0.0, moment - START), END - START)

        for name, (shares, mean) in HISTOGRAMS.items():
            events = REQUESTS_PER_SECOND * (479 if "itl" in name else 1)
            labels = {"phase": "measure"}
            for edge, share in self.replace.get(name, shares).items():
                yield (f"{name}_bucket", "load", {**labels, "le": edge}, measured(events * share), -5.0, SCRAPED)
            yield (f"{name}_sum", "load", labels, measured(events * mean), -5.0, SCRAPED)
            yield (f"{name}_count", "load", labels, measured(events), -5.0, SCRAPED)
        warm_up = REQUESTS_PER_SECOND * (START - BEGIN)
        for phase, result, value in (
            ("warmup", "ok", lambda moment: min(max(0.0, moment * REQUESTS_PER_SECOND), warm_up)),
            ("measure", "ok", measured(REQUESTS_PER_SECOND)),
            ("measure", "failed", lambda _: 0.0),
        ):
            yield ("frontier_load_requests_total", "load", {"phase": phase, "result": result}, value, -5.0, SCRAPED)

    def summarised(self, origin):
        """Return what the load generator says of it."""

        def moment(seconds):
            return datetime.fromtimestamp(origin, UTC) + timedelta(seconds=seconds + self.clock)

        requests = round(REQUESTS_PER_SECOND * (END - START))
        values = {
            "load": Load("Concurrency", 10),
            "begin": moment(BEGIN),
            "start": moment(START),
            "end": moment(END),
            "scraped_at": moment(SCRAPED),
            "sent": requests,
            "ok": requests,
            "failed": 0,
            "cut": 0,
            "input_tokens": round(PROMPT_TOKENS_PER_SECOND * (END - START)),
            "output_tokens": round(TOKENS_PER_SECOND * (END - START)),
            "lag_p99_seconds": 0.004,
            "late_seconds": 0.0,
            "scraped": True,
        }
        changed = {name: value(moment) if callable(value) else value for name, value in self.summary.items()}
        return LoadSummary(**{**values, **changed})


def scope_of(namespace, **over):
    """Return whose series these are."""
    values = {
        "engine": {"namespace": namespace, "pod": "engine"},
        "load": {"namespace": namespace, "pod": "load"},
        "gpus": 8,
        "price_per_gpu_hour": 2.5,
        "scrape_interval_seconds": INTERVAL,
        "configuration": {"kvCacheDtype": "auto", "enablePrefixCaching": True},
        "declared_hit_percent": 0.0,
    }
    return Scope(**{**values, **over})


__all__ = ["GAP", "History", "scope_of", "steps"]
