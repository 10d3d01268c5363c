"""How far predictions were off, and what a prior may rule out: only what cannot fit, with a margin."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frontier_tuner.predict import Floats, Prediction

__all__ = ["FIT_MARGIN", "Calibration", "calibrate", "cannot_fit", "fit_sentence"]

FIT_MARGIN = 1.1
"""By how much the predicted memory must exceed what the engine may use before a configuration is ruled out."""
GB = 1e9
LABELS = {
    "ttft": "time to first token",
    "itl": "time between tokens",
    "user_speed": "user speed",
    "throughput": "throughput per GPU",
    "memory": "memory",
}


@dataclass(frozen=True)
class Calibration:
    """What measurements say about one metric of a prediction, in natural logarithms of measured over predicted.

    Attributes:
        metric: The field of `Prediction`.
        n: Points compared.
        configurations: Configurations they are of.
        bias: Median log ratio over all points.
        between: Standard deviation between the means of configurations; 0 with fewer than two.
        over_load: Standard deviation over load within configurations; 0 with fewer than two points in each.
    """

    metric: str
    n: int
    configurations: int
    bias: float
    between: float
    over_load: float

    @property
    def factor(self) -> float:
        """By what the prediction must be multiplied to be right in the middle."""
        return float(np.exp(self.bias))

    def __str__(self) -> str:
        label = LABELS[self.metric]
        return (
            f"{label}: measured {self.factor:.2f} times the prediction (median of {self.n} points of "
            f"{self.configurations} configurations), give or take {_percent(self.between)} between configurations and "
            f"{_percent(self.over_load)} over load"
        )


def calibrate(measured: Mapping[str, Floats], prediction: Prediction) -> tuple[Calibration, ...]:
    """Return how far a prediction was off, for every metric that was measured.

    Args:
        measured: By field of `Prediction`, (n, L) values at the same configurations and levels; not a number where
            nothing was measured.
        prediction: What was predicted.

    Raises:
        ValueError: A metric is not a field of a curve, or its values have another shape than the prediction.
    """
    found = []
    for metric, values in measured.items():
        if metric not in LABELS:
            raise ValueError(f"metric {metric!r} is not predicted; predicted are {', '.join(LABELS)}")
        predicted = getattr(prediction, metric)
        if np.shape(values) != predicted.shape:
            raise ValueError(f"{metric} has values of shape {np.shape(values)}, the prediction has {predicted.shape}")
        known = np.isfinite(values) & (np.asarray(values) > 0) & np.isfinite(predicted)
        if known.any():
            found.append(_calibration(metric, np.asarray(values, dtype=float), predicted, known))
    return tuple(found)


def cannot_fit(prediction: Prediction, margin: float = FIT_MARGIN) -> NDArray[np.bool_]:
    """Return (n,) which configurations need more memory than there is before they can start, with a margin.

    Where the capacity is not known nothing is ruled out.
    """
    ruled_out: NDArray[np.bool_] = np.greater(prediction.start_memory, margin * prediction.capacity)
    return ruled_out


def fit_sentence(prediction: Prediction, row: int, margin: float = FIT_MARGIN) -> str:
    """Return the arithmetic of `cannot_fit` for one configuration, as a user should read it."""
    needed, capacity = prediction.start_memory[row], prediction.capacity[row]
    if not np.isfinite(capacity):
        return f"needs {needed / GB:.1f} GB per GPU before any cache; how much there is is not known"
    verdict = "cannot start" if cannot_fit(prediction, margin)[row] else "may start"
    return (
        f"{verdict}: needs {needed / GB:.1f} GB per GPU for weights, activations and runtime before any cache; the "
        f"engine may use {capacity / GB:.1f} GB, with a margin of {margin:g} times {margin * capacity / GB:.1f} GB"
    )


def _calibration(metric: str, values: Floats, predicted: Floats, known: NDArray[np.bool_]) -> Calibration:
    ratios = np.full(values.shape, np.nan)
    ratios[known] = np.log(values[known] / predicted[known])
    counts = known.sum(axis=1)
    rows = ratios[counts > 0]
    means = np.nanmean(rows, axis=1, keepdims=True)
    several = rows[counts[counts > 0] > 1]
    inside = (several - np.nanmean(several, axis=1, keepdims=True)) if len(several) else np.zeros((1, 1))
    return Calibration(
        metric=metric,
        n=int(known.sum()),
        configurations=len(rows),
        bias=float(np.median(ratios[known])),
        between=float(np.std(means)),
        over_load=float(np.sqrt(np.nanmean(inside**2))),
    )


def _percent(deviation: float) -> str:
    return f"{100 * np.expm1(deviation):.0f} %"
