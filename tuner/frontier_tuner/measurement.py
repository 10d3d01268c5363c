"""What one rung of a load ladder yields: a load, a window, and metrics with their uncertainty.

A metric is named by a key: the metric's name, and for a percentile a slash and the percentile, as in `TTFT/95`.
Latencies are in seconds, speeds in tokens per second, money in the currency of the hardware's price.
A value that is not known is absent; it is never zero and never NaN.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

LoadKind = Literal["Concurrency", "RequestRate"]

TTFT = "TTFT"
ITL = "ITL"
E2E = "E2E"
USER_SPEED = "UserTokensPerSecond"
LATENCIES = (TTFT, ITL, E2E)
THROUGHPUT = "OutputTokensPerSecond"
THROUGHPUT_PER_GPU = "OutputTokensPerSecondPerGPU"
REQUEST_RATE = "RequestsPerSecond"
COST = "CostPerMillionOutputTokens"
INPUT_THROUGHPUT = "InputTokensPerSecond"
CACHED_INPUT_THROUGHPUT = "CachedInputTokensPerSecond"
INPUT_COST = "CostPerMillionInputTokens"
TOTAL_COST = "CostPerMillionTokens"
KV_CACHE_PEAK = "KVCacheUsagePeak"
WAITING = "RequestsWaiting"
RUNNING = "RequestsRunning"


def cost_per_million(price_per_gpu_hour: float, throughput_per_gpu: float) -> float:
    """Return the money that a million tokens cost at a throughput of one GPU, in tokens per second."""
    return price_per_gpu_hour * 1e6 / 3600 / throughput_per_gpu


def key(metric: str, percentile: int | None = None) -> str:
    """Return the key of a metric, with its percentile where it has one: `TTFT/95`."""
    return metric if percentile is None else f"{metric}/{percentile}"


def within_slo(slo_key: str) -> str:
    """Return the key of the share of observations within an SLO's bound: `TTFTWithinSLO/95` for `TTFT/95`."""
    metric, _, percentile = slo_key.partition("/")
    return f"{metric}WithinSLO/{percentile}"


@dataclass(frozen=True, order=True)
class Load:
    """One level of load.

    Attributes:
        kind: `Concurrency` (closed loop, requests in flight) or `RequestRate` (open loop, requests per second).
        value: The level, above 0.
    """

    kind: LoadKind
    value: float

    def __str__(self) -> str:
        unit = "concurrent" if self.kind == "Concurrency" else "requests/s"
        return f"{self.value:g} {unit}"


@dataclass(frozen=True)
class Estimate:
    """One value with its interval, and the query that yields it again.

    Attributes:
        value: The value, finite.
        low: Lower end of the 95 % interval.
        high: Upper end of the 95 % interval.
        n: Observations behind it.
        query: The PromQL expression; evaluated at the window's end it gives `value`.
    """

    value: float
    low: float
    high: float
    n: int
    query: str = ""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.value, self.low, self.high))):
            raise ValueError(f"an estimate must be finite, not {self.low} ≤ {self.value} ≤ {self.high}")


@dataclass(frozen=True)
class Window:
    """The time that a measurement covers, warm-up excluded; both ends are aware UTC times."""

    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Length in seconds."""
        return (self.end - self.start).total_seconds()


@dataclass(frozen=True)
class Validity:
    """Whether a window counts.

    Attributes:
        valid: False where the numbers must not be used.
        reason: Empty where valid; otherwise one of `MetricsMissing`, `InsufficientSamples`, `WindowInvalid`,
            `MeasurementDisagrees`, `MetricsStale`.
        message: The sentence a user reads; of a valid window, what is odd about it and spoils nothing.
        check: Empty where valid; otherwise the violated rule, such as `EngineRestarted`, finer than the reason.
    """

    valid: bool
    reason: str = ""
    message: str = ""
    check: str = ""


@dataclass(frozen=True)
class Ending:
    """Why a rung's window ended.

    Attributes:
        reason: `Tight` where what the rung is for was known well enough, `TimeUp` where its time ended it.
        open: Keys of the metrics that were not known well enough when its time was up.
        message: The sentence a user reads.
    """

    reason: Literal["Tight", "TimeUp"]
    open: tuple[str, ...] = ()
    message: str = ""


@dataclass(frozen=True)
class Measurement:
    """One rung: what was asked of the engine and what came back.

    Attributes:
        load: The level of load.
        window: The time it covers.
        sent: Requests sent within the window.
        ok: Of these, answered completely.
        failed: Of these, refused, broken or timed out.
        metrics: Estimates by key; a missing key is unknown.
        validity: Whether the numbers may be used.
        ended: Why its window ended; None where nobody decided that, as of live traffic.
    """

    load: Load
    window: Window
    sent: int
    ok: int
    failed: int
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    validity: Validity = field(default_factory=lambda: Validity(valid=True))
    ended: Ending | None = None

    def value(self, name: str) -> float | None:
        """Return the value of a metric by its key, or None where it is unknown."""
        estimate = self.metrics.get(name)
        return None if estimate is None else estimate.value
