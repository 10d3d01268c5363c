"""When an open loop sends: fixed in advance, whatever the server does."""

import random


def arrivals(rate: float, duration_seconds: float, burstiness: float, seed: str) -> list[float]:
    """Return the sending times of an open loop in seconds from its start, ascending; the first is 0.

    Gaps are gamma distributed with shape `burstiness` (1: exponential, a Poisson process; below 1: burstier) and
    scaled so that exactly round(rate * duration), at least one, requests fall into the duration. A Poisson process
    under the condition of its count is still one; without it the achieved rate of a short window would miss the
    requested one by chance alone.

    Raises:
        ValueError: The rate, the duration or the burstiness is not above 0.
    """
    if min(rate, duration_seconds, burstiness) <= 0:
        raise ValueError(
            f"request rate {rate:g}/s, duration {duration_seconds:g} s and burstiness {burstiness:g} must be above 0",
        )
    generator = random.Random(f"arrivals:{seed}")  # noqa: S311 - reproducible on purpose
    gaps = [generator.gammavariate(burstiness, 1.0) for _ in range(max(1, round(rate * duration_seconds)))]
    scale = duration_seconds / sum(gaps)
    moment, moments = 0.0, []
    for gap in gaps:
        moments.append(moment)
        moment += gap * scale
    return moments


def position(arrival: int, turns: int, parallel: int) -> tuple[int, int]:
    """Return session and turn of the n-th arrival when `parallel` sessions take turns in order."""
    block, offset = divmod(arrival, turns * parallel)
    turn, lane = divmod(offset, parallel)
    return block * parallel + lane, turn
