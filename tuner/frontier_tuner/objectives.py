"""What the user wants: service level objectives, a cost ceiling, and the point of the frontier to serve."""

from dataclasses import dataclass
from typing import Literal

from frontier_tuner import measurement

Policy = Literal["MinCost", "MinLatency", "MaxThroughput", "Knee", "AtUserSpeed", "AtCost"]
Metric = Literal["TTFT", "ITL", "E2E", "UserTokensPerSecond"]


@dataclass(frozen=True)
class SLO:
    """One bound on a percentile.

    Attributes:
        name: How the user calls it.
        metric: `TTFT`, `ITL`, `E2E` (seconds, bounded above) or `UserTokensPerSecond` (bounded below).
        percentile: 1 to 99.
        maximum: Upper bound in seconds, for latencies.
        minimum: Lower bound in tokens per second, for speeds.
    """

    name: str
    metric: Metric
    percentile: int
    maximum: float | None = None
    minimum: float | None = None

    @property
    def key(self) -> str:
        """The key of the metric that it bounds."""
        return measurement.key(self.metric, self.percentile)

    @property
    def bound(self) -> float:
        """The bound, in the metric's unit."""
        bound = self.maximum if self.maximum is not None else self.minimum
        if bound is None:
            raise ValueError(f"SLO {self.name} has neither a maximum nor a minimum")
        return bound

    def bound_within(self, headroom_percent: int) -> float:
        """Return the bound that a value must hold to lie so far inside, in the metric's unit."""
        margin = headroom_percent / 100
        return self.bound * (1 - margin if self.maximum is not None else 1 + margin)

    def slack(self, value: float) -> float:
        """Return the relative distance to the bound: positive where the value holds it, 0 on it, negative beyond."""
        return (self.bound - value) / self.bound if self.maximum is not None else (value - self.bound) / self.bound


@dataclass(frozen=True)
class Objectives:
    """All that must hold.

    Attributes:
        slos: Every one must hold.
        max_cost: Ceiling in money per million output tokens, or None.
        price_per_gpu_hour: Price of a GPU at which every point's cost is counted, whatever it was when the point was
            measured; None keeps the measured costs, for studies over GPUs of several prices.
    """

    slos: tuple[SLO, ...] = ()
    max_cost: float | None = None
    price_per_gpu_hour: float | None = None


@dataclass(frozen=True)
class Target:
    """Which point of the frontier to serve.

    Attributes:
        policy: The rule that picks it.
        user_tokens_per_second: The speed to reach, for `AtUserSpeed`.
        max_cost: The cost to stay within, for `AtCost`.
        headroom_percent: How far inside every SLO the point must lie.
    """

    policy: Policy = "MinCost"
    user_tokens_per_second: float | None = None
    max_cost: float | None = None
    headroom_percent: int = 0
