"""The load ladder of one trial: its levels, and whether the next one is worth its time."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from frontier_tuner.measurement import THROUGHPUT, Load, LoadKind, Measurement
from frontier_tuner.objectives import SLO, Objectives

BEYOND_REACH = 2.0
"""A rung that misses an SLO by this factor ends the ladder: more load will not mend it."""
SATURATION_GROWTH = 0.02
"""A rung that adds less throughput than this share is flat."""
FLAT_IN_A_ROW = 2
"""So many flat rungs in a row end the ladder."""
INVALID_IN_A_ROW = 2
"""So many invalid rungs in a row end the ladder: something else is wrong.

Too few requests do not count: more load brings more of them.
"""


@dataclass(frozen=True)
class NextRung:
    """Measure this load next."""

    load: Load


@dataclass(frozen=True)
class LadderDone:
    """Climb no further.

    Attributes:
        reason: `LadderClimbed`, `SLOBeyondReach`, `Saturated` or `WindowInvalid`.
        message: The sentence a user reads.
    """

    reason: str
    message: str


def levels(kind: LoadKind, lowest: float, highest: float, count: int) -> tuple[float, ...]:
    """Return at most `count` levels in geometric steps, strictly increasing, from `lowest` to `highest`.

    Concurrencies are whole numbers and rates have three significant digits, so close levels may fall together and the
    result may be shorter.

    Raises:
        ValueError: The range is empty or not above 0, or `count` is below 1.
    """
    if not 0 < lowest <= highest:
        raise ValueError(f"load levels need 0 < lowest ≤ highest, not {lowest:g} and {highest:g}")
    if count < 1:
        raise ValueError(f"a ladder needs at least one level, not {count}")
    if count == 1:
        return (_rounded(kind, lowest),)
    ratio = (highest / lowest) ** (1 / (count - 1))
    raw = [lowest * ratio**step for step in range(count - 1)] + [highest]
    return tuple(sorted({_rounded(kind, level) for level in raw}))


def next_rung(
    levels: Sequence[float],
    measured: Sequence[Measurement],
    objectives: Objectives,
    *,
    kind: LoadKind = "Concurrency",
) -> NextRung | LadderDone:
    """Return the next load of an ascending ladder, or why it ends.

    Args:
        levels: The loads, in ascending order.
        measured: The rungs so far, in the order they were taken; an invalid one is skipped, not repeated.
        objectives: The SLOs whose gross violation ends the ladder.
        kind: What the levels mean.
    """
    done = _done(measured, objectives)
    if done is not None:
        return done
    highest = max((measurement.load.value for measurement in measured), default=0.0)
    following = next((level for level in sorted(levels) if level > highest), None)
    if following is None:
        return LadderDone("LadderClimbed", f"all {len(levels)} levels were measured")
    return NextRung(Load(kind, following))


def _done(measured: Sequence[Measurement], objectives: Objectives) -> LadderDone | None:
    tail = measured[-INVALID_IN_A_ROW:]
    if len(tail) == INVALID_IN_A_ROW and all(_wrong(measurement) for measurement in tail):
        return LadderDone(
            "WindowInvalid", f"{INVALID_IN_A_ROW} rungs in a row were invalid: {tail[-1].validity.message}"
        )
    valid = [measurement for measurement in measured if measurement.validity.valid]
    if not valid or not measured[-1].validity.valid:
        return None
    last = valid[-1]
    for slo in objectives.slos:
        value = last.value(slo.key)
        if value is not None and _beyond_reach(slo, value):
            message = f"{slo.key} is {value:.4g} at {last.load}, beyond {BEYOND_REACH:g} times the bound {slo.bound:g}"
            return LadderDone("SLOBeyondReach", message)
    return _saturated([m.value(THROUGHPUT) for m in valid], last.load)


def _saturated(throughputs: Sequence[float | None], load: Load) -> LadderDone | None:
    """Two rungs in a row that add nothing end the ladder: a single one may be noise, and more load may still pay."""
    known = [value for value in throughputs if value is not None]
    if len(known) <= FLAT_IN_A_ROW or len(known) < len(throughputs):
        return None
    best, after = max(known[:-FLAT_IN_A_ROW]), known[-FLAT_IN_A_ROW:]
    if max(after) > best * (1 + SATURATION_GROWTH):
        return None
    message = f"throughput went from {best:.4g} to {after[-1]:.4g} tokens/s at {load}"
    return LadderDone("Saturated", message)


def _wrong(measurement: Measurement) -> bool:
    return not measurement.validity.valid and measurement.validity.reason != "InsufficientSamples"


def _beyond_reach(slo: SLO, value: float) -> bool:
    return value > slo.bound * BEYOND_REACH if slo.maximum is not None else value < slo.bound / BEYOND_REACH


def _rounded(kind: LoadKind, level: float) -> float:
    return float(max(1, round(level))) if kind == "Concurrency" else float(Decimal(f"{level:.3g}"))
