"""When an open loop sends: fixed in advance, whatever the server does."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any, Literal

from frontier_tuner.load.traces import Trace

Pattern = Literal["Poisson", "Gamma", "Constant", "Recorded"]
PATTERNS: tuple[Pattern, ...] = ("Poisson", "Gamma", "Constant", "Recorded")


@dataclass(frozen=True)
class Arrivals:
    """How the gaps between the requests of an open loop are spread.

    Attributes:
        pattern: `Poisson`, `Gamma` with a burstiness of its own, `Constant`, or `Recorded`: as in the trace.
        burstiness: Shape of gamma-distributed gaps: 1 is a Poisson process, below 1 is burstier, above 1 more even.
    """

    pattern: Pattern = "Poisson"
    burstiness: float = 1.0

    @property
    def shape(self) -> float:
        """Shape of the gamma distribution of the gaps; infinite where they are constant."""
        return {"Gamma": self.burstiness, "Constant": math.inf}.get(self.pattern, 1.0)


def parse_arrivals(body: Any, *, default: Pattern, recorded: bool) -> Arrivals:
    """Return the arrivals of an object with `pattern` and `burstiness`; None is the default pattern.

    Args:
        body: The object.
        default: Pattern where none is given; a burstiness alone means `Gamma`.
        recorded: Whether there is a trace whose arrivals can be replayed.

    Raises:
        ValueError: The pattern is unknown or cannot be, or the burstiness has no meaning or is not above 0.
    """
    given = body or {}
    if not isinstance(given, Mapping):
        raise ValueError("workload.arrivals: must be an object")  # noqa: TRY004 - callers catch ValueErrors only
    burstiness = given.get("burstiness")
    pattern = given.get("pattern") or (default if burstiness is None else "Gamma")
    if pattern not in PATTERNS:
        raise ValueError(f"workload.arrivals.pattern: {pattern!r} is not known; use one of {', '.join(PATTERNS)}")
    if pattern == "Recorded" and not recorded:
        raise ValueError("workload.arrivals.pattern: Recorded needs a trace")
    if burstiness is None:
        if pattern == "Gamma":
            raise ValueError("workload.arrivals.burstiness: is required by pattern Gamma")
        return Arrivals(pattern)
    if pattern != "Gamma":
        raise ValueError(f"workload.arrivals.burstiness: has a meaning only with pattern Gamma, not {pattern}")
    try:
        shape = float(burstiness)
    except (TypeError, ValueError):
        shape = math.nan
    if not 0 < shape < math.inf:
        raise ValueError(f"workload.arrivals.burstiness: {burstiness!r} must be a number above 0")
    return Arrivals("Gamma", shape)


def arrivals(rate: float, duration_seconds: float, shape: float, seed: str) -> list[float]:
    """Return the sending times of an open loop in seconds from its start, ascending; the first is 0.

    Gaps are gamma distributed with this shape (1: exponential, a Poisson process; below 1: burstier; infinite: all
    alike) and scaled so that exactly round(rate * duration), at least one, requests fall into the duration. A Poisson
    process under the condition of its count is still one; without it the achieved rate of a short window would miss
    the requested one by chance alone.

    Raises:
        ValueError: The rate, the duration or the shape is not above 0.
    """
    if min(rate, duration_seconds, shape) <= 0:
        raise ValueError(
            f"request rate {rate:g}/s, duration {duration_seconds:g} s and burstiness {shape:g} must be above 0",
        )
    number = _number(rate, duration_seconds)
    if math.isinf(shape):
        return [duration_seconds * index / number for index in range(number)]
    generator = random.Random(f"arrivals:{seed}")  # noqa: S311 - reproducible on purpose
    gaps = [generator.gammavariate(shape, 1.0) for _ in range(number)]
    scale = duration_seconds / sum(gaps)
    moment, moments = 0.0, []
    for gap in gaps:
        moments.append(moment)
        moment += gap * scale
    return moments


def recorded_arrivals(trace: Trace, first: int, rate: float, duration_seconds: float) -> list[float]:
    """Return the sending times of the trace's requests from the n-th on, scaled to a rate; the first is 0.

    As with `arrivals`, exactly round(rate * duration) requests fall into the duration: the time scale is that of the
    stretch that is replayed.
    """
    number = _number(rate, duration_seconds)
    start, end = trace.moment(first), trace.moment(first + number)
    scale = duration_seconds / (end - start) if end > start else 0.0
    return [(trace.moment(index) - start) * scale for index in range(first, first + number)]


def replayed_arrivals(
    trace: Trace, first: int, start: float, duration_seconds: float, time_scale: float
) -> list[float]:
    """Return the sending times of a replay in its own time, `time_scale` times as fast as it was recorded.

    Args:
        trace: What to replay; it begins anew after its last request.
        first: The first request at or after the start.
        start: Time of the replay at which the stretch begins, in seconds of the load; times are relative to it.
        duration_seconds: Length of the stretch.
        time_scale: Recorded seconds per second, above 0.

    Raises:
        ValueError: All requests of the trace came at once, so it cannot be repeated.
    """
    if not trace.period_seconds:
        raise ValueError("workload.trace: all its requests came at once; replay it at a request rate")
    moments = (trace.moment(number) / time_scale - start for number in count(first))
    return list(takewhile(lambda moment: moment < duration_seconds, moments))


def _number(rate: float, duration_seconds: float) -> int:
    return max(1, round(rate * duration_seconds))
