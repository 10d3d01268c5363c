"""A prior from past studies of the same model family or accelerator: what was measured, moved to what is asked.

A past trial tells how far a roofline was off for its configuration, at each load. That error is carried over to the
configurations most like it, so that the answer is the measured curve times the roofline's ratio between the two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.predict import Floats, Prediction, PriorModel
from frontier_tuner.predict.observed import Curve, curve_of
from frontier_tuner.trial import TrialRecord

__all__ = ["History", "PastStudy"]

METRICS = ("ttft", "itl", "throughput")
ABSENT = 0.5
"""Distance between two configurations by a parameter that only one of them has."""
DOUBLINGS = 2.0
"""Doublings of a number that make it as different as another word."""


@dataclass(frozen=True)
class PastStudy:
    """What another study measured.

    Attributes:
        records: Its trials.
        prior: What a roofline says about that study: its model, accelerator and traffic.
    """

    records: Sequence[TrialRecord]
    prior: PriorModel


@dataclass(frozen=True)
class _Error:
    """By which log factor a roofline was off for one past trial: by metric, (k,) over load."""

    configuration: Configuration
    load: Floats
    factors: dict[str, Floats]


@dataclass(frozen=True)
class History:
    """Predicts load curves from past studies; a `PriorModel`.

    The error of the nearest past trial is believed the less the further it is away, and what remains is the median
    error of all: a roofline that was 30 % too fast everywhere is expected to be so again. Without any past trial the
    roofline answers alone.

    Attributes:
        prior: What a roofline says about the study at hand.
        past: Other studies; those of the same model family or accelerator tell something.
    """

    prior: PriorModel
    past: Sequence[PastStudy]

    def predict(self, configurations: Sequence[Configuration], concurrency: Floats) -> Prediction:
        """Return the predicted curves; see `PriorModel`."""
        load = np.asarray(concurrency, dtype=float)
        answer = self.prior.predict(configurations, load)
        errors = [error for study in self.past for error in _errors(study)]
        if not errors:
            return answer
        apart = _distances(configurations, [error.configuration for error in errors])
        nearest, closest = apart.argmin(axis=1), apart.min(axis=1)
        values = {field.name: np.array(getattr(answer, field.name)) for field in fields(Prediction)}
        for metric in METRICS:
            known = [error.factors[metric] for error in errors]
            shared = _median(np.concatenate(known))
            for row in range(len(configurations)):
                error = errors[nearest[row]]
                own = _interpolated(error.load, error.factors[metric], load[row])
                own = np.where(np.isnan(own), shared, own)
                values[metric][row] *= np.exp(shared + (own - shared) / (1 + closest[row]))
        values["user_speed"] = 1 / values["itl"]
        return Prediction(**values)


def _errors(study: PastStudy) -> list[_Error]:
    curves = [(record.configuration, curve_of(record)) for record in study.records]
    measured = [(configuration, curve) for configuration, curve in curves if curve is not None]
    if not measured:
        return []
    loads = np.full((len(measured), max(len(curve.concurrency) for _, curve in measured)), np.nan)
    for row, (_, curve) in enumerate(measured):
        loads[row, : len(curve.concurrency)] = curve.concurrency
    said = study.prior.predict([configuration for configuration, _ in measured], loads)
    return [
        _Error(configuration, curve.concurrency, _factors(said, row, curve))
        for row, (configuration, curve) in enumerate(measured)
    ]


def _factors(said: Prediction, row: int, curve: Curve) -> dict[str, Floats]:
    levels = slice(len(curve.concurrency))
    return {metric: np.log(curve.values[metric] / getattr(said, metric)[row, levels]) for metric in METRICS}


def _median(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else 0.0


def _interpolated(load: Floats, factors: Floats, wanted: Floats) -> Floats:
    """Return log factors at other loads; beyond the measured ones the nearest counts."""
    known = np.isfinite(factors)
    if not known.any():
        return np.full(len(wanted), np.nan)
    between: Floats = np.interp(np.log(wanted), np.log(load[known]), factors[known])
    return between


def _distances(configurations: Sequence[Configuration], others: Sequence[Configuration]) -> Floats:
    """Return (n, m) distances: one for each parameter of another word, a share of it for a number not far away."""
    names = sorted({name for each in (*configurations, *others) for name in each})
    total = np.zeros((len(configurations), len(others)))
    for name in names:
        left = [each.get(name) for each in configurations]
        right = [each.get(name) for each in others]
        distinct: dict[tuple[Value | None, Value | None], float] = {}
        table = [[distinct.setdefault((a, b), _distance(a, b)) for b in right] for a in left]
        total += np.array(table)
    return total


def _distance(one: Value | None, other: Value | None) -> float:
    if one == other:
        return 0.0
    if one is None or other is None:
        return ABSENT
    if isinstance(one, int) and isinstance(other, int) and not isinstance(one, bool) and not isinstance(other, bool):
        return min(1.0, abs(math.log2((one + 1) / (other + 1))) / DOUBLINGS)
    return 1.0
