"""Measured trials as curves that can be laid beside a prediction."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from frontier_tuner.measurement import ITL, THROUGHPUT_PER_GPU, TTFT, USER_SPEED, Measurement
from frontier_tuner.predict import Floats
from frontier_tuner.trial import TrialRecord

MIDDLE = 50
"""Predictions are means; of percentiles, the one nearest to the middle is compared with them."""


@dataclass(frozen=True)
class Curve:
    """What one trial measured in closed loops, over rising load.

    Attributes:
        concurrency: (k,) requests in flight.
        values: By field of `Prediction`, (k,) each; not a number where it was not measured.
    """

    concurrency: Floats
    values: Mapping[str, Floats]


def curve_of(record: TrialRecord) -> Curve | None:
    """Return the curve of a trial, or None where no valid rung in a closed loop was measured."""
    rungs = [rung for rung in record.measurements if rung.validity.valid and rung.load.kind == "Concurrency"]
    if not rungs:
        return None
    rungs.sort(key=lambda rung: rung.load.value)
    speed = _middle(rungs, USER_SPEED)
    itl = _middle(rungs, ITL)
    speed = np.where(np.isnan(speed), 1 / itl, speed)
    return Curve(
        np.array([rung.load.value for rung in rungs]),
        {
            "ttft": _middle(rungs, TTFT),
            "itl": np.where(np.isnan(itl), 1 / speed, itl),
            "user_speed": speed,
            "throughput": _middle(rungs, THROUGHPUT_PER_GPU),
        },
    )


def at_levels(curve: Curve, concurrency: Floats) -> dict[str, Floats]:
    """Return a curve's values at levels of load, not a number where a level was not measured.

    Args:
        curve: The curve.
        concurrency: (L,) levels.
    """
    answer = {name: np.full(len(concurrency), np.nan) for name in curve.values}
    for place, level in enumerate(curve.concurrency):
        same = np.flatnonzero(np.isclose(concurrency, level))
        for name, values in curve.values.items():
            answer[name][same] = values[place]
    return answer


def _middle(rungs: Sequence[Measurement], metric: str) -> Floats:
    """Return the mean of a metric at each rung, or its percentile nearest to the middle; only values above 0."""
    values = np.full(len(rungs), np.nan)
    for place, rung in enumerate(rungs):
        keys = [name for name in rung.metrics if name.partition("/")[0] == metric]
        if keys:
            nearest = min(keys, key=lambda name: abs(int(name.partition("/")[2] or MIDDLE) - MIDDLE))
            value = rung.metrics[nearest].value
            values[place] = value if value > 0 else np.nan
    return values
