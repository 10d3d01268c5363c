"""What one run of the load generator is told, and its command line in both directions."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontier_tuner.durations import format_duration, parse_duration
from frontier_tuner.load.workload import parse_workload
from frontier_tuner.measurement import Load
from frontier_tuner.objectives import SLO, Metric

_METRICS: dict[str, Metric] = {"TTFT": "TTFT", "ITL": "ITL", "E2E": "E2E", "UserTokensPerSecond": "UserTokensPerSecond"}
_SLO = re.compile(r"(\w+)/(\d{1,2})(<=|>=)(\S+)")


@dataclass(frozen=True)
class LoadOptions:
    """One run of the load generator.

    Attributes:
        url: Base URL of the engine, without `/v1`.
        model: Served model name.
        load: The level to hold.
        workload: The resolved `workload` object, with `profile` or `trace`, and perhaps `arrivals`.
        duration_seconds: Length of the measured window.
        warm_up_seconds: Load before it that is not measured.
        seed: Reproduces lengths, prompts and arrivals.
        slos: Bounds on which histogram buckets are placed.
        arrivals: Pattern of an open loop's arrivals instead of the workload's, or empty.
        burstiness: Shape of the gamma-distributed gaps of an open loop instead of the workload's; 1 is Poisson, below 1
            is burstier.
        time_scale: Replays a trace in its own time, so many times as fast, instead of at the load's rate; what the
            window then holds is the load that is reported.
        metrics_listen: `HOST:PORT` on which the generator's metrics are served.
        scrape_wait_seconds: Bound on waiting for a scrape before the load and after it.
        summary: File that receives the summary, or `-` for standard output.
        records: File that receives one line of JSON per request, or empty.
        timeout_seconds: After this a request counts as failed.
        vocabulary: Token ids are below this.
        new_connections: Every request opens a connection of its own, as requests of many users do; a Service spreads
            connections, not requests.
        api_key_file: File with the key that the engine asks for, or empty.
        precision_percent: Half of an interval, in percent of its value, at which the window ends before its time; 0
            never does. The SLOs are those that have to be decided.
        min_window_seconds: It never ends before this.
        min_requests: It never ends before so many were answered.
    """

    url: str
    model: str
    load: Load
    workload: Mapping[str, Any]
    duration_seconds: float = 30.0
    warm_up_seconds: float = 5.0
    seed: int = 1
    slos: tuple[SLO, ...] = ()
    arrivals: str = ""
    burstiness: float | None = None
    time_scale: float | None = None
    metrics_listen: str = "0.0.0.0:9100"
    scrape_wait_seconds: float = 5.0
    summary: str = "-"
    timeout_seconds: float = 60.0
    vocabulary: int = 2000
    new_connections: bool = False
    records: str = ""
    api_key_file: str = ""
    precision_percent: float = 0.0
    min_window_seconds: float = 0.0
    min_requests: int = 0

    def __post_init__(self) -> None:
        if self.duration_seconds <= 0 or self.timeout_seconds <= 0:
            raise ValueError("duration and timeout must be above 0")
        if self.warm_up_seconds < 0 or self.scrape_wait_seconds < 0:
            raise ValueError("warm-up and scrape wait must not be below 0")
        if min(self.precision_percent, self.min_window_seconds, self.min_requests) < 0:
            raise ValueError("precision, shortest window and fewest requests must not be below 0")
        if not self.metrics_listen.rpartition(":")[2].isdecimal():
            raise ValueError(f"the metrics need an address such as 0.0.0.0:9100, not {self.metrics_listen!r}")
        if self.time_scale is not None and (self.load.kind != "RequestRate" or self.time_scale <= 0):
            raise ValueError(f"time scale {self.time_scale:g} must be above 0, and is for an open loop")

    @property
    def longest_seconds(self) -> float:
        """Seconds after which the run has ended unless something is wrong: a deadline for whoever waits for it."""
        waits = 2 * self.scrape_wait_seconds + self.warm_up_seconds + self.duration_seconds
        # The first measured request may have to wait for a whole timeout; start, drain and end get half a minute.
        return waits + self.timeout_seconds + 30.0

    @property
    def resolved_workload(self) -> Mapping[str, Any]:
        """The workload with the arrivals that are used."""
        arrivals: dict[str, Any] = {}
        if self.arrivals:
            arrivals["pattern"] = self.arrivals
        if self.burstiness is not None:
            arrivals["burstiness"] = exactly(self.burstiness)
        return {**self.workload, "arrivals": arrivals} if arrivals else self.workload

    @property
    def api_key(self) -> str:
        """The engine's key, or empty.

        Raises:
            OSError: The file cannot be read.
        """
        return Path(self.api_key_file).read_text().strip() if self.api_key_file else ""

    def arguments(self) -> list[str]:
        """Return the arguments of `frontier load` that run exactly this."""
        level = exactly(self.load.value)
        if self.time_scale is not None:
            loop = ["--time-scale", exactly(self.time_scale)]
        else:
            loop = ["--concurrency" if self.load.kind == "Concurrency" else "--request-rate", level]
        slos = [argument for slo in self.slos for argument in ("--slo", format_slo(slo))]
        return [
            *("--url", self.url, "--model", self.model, *loop),
            *("--duration", format_duration(self.duration_seconds), "--warm-up", format_duration(self.warm_up_seconds)),
            *("--workload", json.dumps(self.workload, sort_keys=True), "--seed", str(self.seed), *slos),
            *("--metrics-listen", self.metrics_listen, "--scrape-wait", format_duration(self.scrape_wait_seconds)),
            *("--summary", self.summary, "--timeout", format_duration(self.timeout_seconds)),
            *("--vocabulary", str(self.vocabulary)),
            *(("--new-connections",) if self.new_connections else ()),
            *(("--arrivals", self.arrivals) if self.arrivals else ()),
            *(("--burstiness", exactly(self.burstiness)) if self.burstiness is not None else ()),
            *(("--records", self.records) if self.records else ()),
            *(("--api-key-file", self.api_key_file) if self.api_key_file else ()),
            *self._early_end(),
        ]

    def _early_end(self) -> list[str]:
        if not self.precision_percent:
            return []
        return [
            *("--precision-percent", exactly(self.precision_percent)),
            *("--min-window", format_duration(self.min_window_seconds), "--min-requests", str(self.min_requests)),
        ]


def replayed_load(workload: Mapping[str, Any], time_scale: float) -> Load:
    """Return the mean request rate of a trace that is replayed so many times as fast as it was recorded.

    Raises:
        ValueError: The workload cannot be read, is no trace, or its requests all came at once.
    """
    trace = parse_workload(workload).trace
    if trace is None or not trace.period_seconds:
        raise ValueError("time scale: only a trace whose requests came one after the other has a time of its own")
    return Load("RequestRate", len(trace.requests) / trace.period_seconds * time_scale)


def format_slo(slo: SLO) -> str:
    """Return an SLO as `TTFT/95<=2s` or `UserTokensPerSecond/5>=40`."""
    if slo.maximum is not None:
        return f"{slo.key}<={format_duration(slo.maximum) if slo.maximum * 1000 % 1 == 0 else f'{slo.maximum:.9g}s'}"
    return f"{slo.key}>={exactly(slo.bound)}"


def exactly(number: float) -> str:
    """Return the shortest text that reads back as the same number: a ladder must find again the level it asked for."""
    return repr(float(number)).removesuffix(".0")


def parse_slo(text: str) -> SLO:
    """Return the SLO that `TTFT/95<=2s` or `UserTokensPerSecond/5>=40` stands for.

    Raises:
        ValueError: The text is something else; the message says what is allowed.
    """
    match = _SLO.fullmatch(text.strip())
    hint = "write it like TTFT/95<=2s, ITL/95<=30ms, E2E/95<=20s or UserTokensPerSecond/5>=40"
    if match is None or match[1] not in _METRICS or int(match[2]) == 0:
        raise ValueError(f"{text!r} is not an SLO; {hint}")
    metric, percentile, relation, bound = _METRICS[match[1]], int(match[2]), match[3], match[4]
    if (relation == ">=") != (metric == "UserTokensPerSecond"):
        raise ValueError(f"{text!r} bounds {metric} from the wrong side; {hint}")
    try:
        value = float(bound) if relation == ">=" else parse_duration(bound)
    except ValueError as error:
        raise ValueError(f"the bound {bound!r} of {text!r} cannot be read; {hint}") from error
    if not 0 < value < float("inf"):
        raise ValueError(f"the bound of {text!r} must be above 0")
    if relation == ">=":
        return SLO(name=text, metric=metric, percentile=percentile, minimum=value)
    return SLO(name=text, metric=metric, percentile=percentile, maximum=value)
