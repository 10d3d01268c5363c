"""What the course of a window's throughput and latency says of its steadiness, in words."""

from dataclasses import dataclass

from frontier_tuner.prometheus.stationarity import settling, trend


@dataclass(frozen=True)
class Unsteady:
    """Why a window is no steady state.

    Attributes:
        check: `NotWarm` or `Overloaded`.
        message: The sentence a user reads.
    """

    check: str
    message: str


@dataclass(frozen=True)
class Steadiness:
    """The course of a window in equal stretches; empty where it holds too few scrapes.

    Attributes:
        tokens: Output tokens per second of the engine; empty for an open loop, where they follow the arrivals.
        first_tokens: Mean TTFT of the requests answered, in seconds.
        seconds: Length of a stretch.
    """

    tokens: tuple[float, ...] = ()
    first_tokens: tuple[float, ...] = ()
    seconds: float = 0.0

    def problem(self, max_drift_percent: float, max_settling_percent: float) -> Unsteady | None:
        """Return why the window is no steady state, or None where nothing shows that it is not.

        Throughput that rises, and TTFT that falls, show an engine or a load that was still starting up. TTFT that rises
        shows a queue that grows, because more arrives than is served.
        """
        for name, values in (("throughput", self.tokens), ("TTFT", self.first_tokens)):
            start = settling(values)
            # TTFT that is lower at first is a queue that builds up, which the trend tells.
            starting = start is not None and start.significant and (name != "TTFT" or start.share > 0)
            if start is not None and starting and abs(start.share) * 100 > max_settling_percent:
                seconds = start.stretches * self.seconds
                return Unsteady(
                    "NotWarm",
                    f"{name} settled only {seconds:.3g} s into the window, which moves its mean by {start.share:.1%}: "
                    f"warm up for {seconds:.3g} s more",
                )
            drift = trend(values)
            if drift is None or not drift.significant or abs(drift.share) * 100 <= max_drift_percent:
                continue
            if name == "TTFT" and drift.share > 0:
                message = f"TTFT rose by {drift.share:.0%} over the window: a queue grows, the load cannot be sustained"
                return Unsteady("Overloaded", message)
            word = "rose" if drift.share > 0 else "fell"
            return Unsteady("NotWarm", f"{name} {word} by {abs(drift.share):.0%} over the window: warm up for longer")
        return None


STEADY = Steadiness()
"""A window of which too little is known to doubt it."""
