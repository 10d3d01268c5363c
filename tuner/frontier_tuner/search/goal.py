"""What a search is for: bounds and a value for every point of a curve, from any objectives and any target."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from frontier_tuner.measurement import TTFT
from frontier_tuner.predict import Floats

SPEED, THROUGHPUT = 0, 1
"""Positions of the frontier's axes among the metrics."""


@dataclass(frozen=True)
class Bound:
    """A bound on the logarithm of one metric.

    Attributes:
        metric: Position of the metric.
        edge: Logarithm of the bound.
        below: Whether values must not be above it; otherwise they must not be below it.
    """

    metric: int
    edge: float
    below: bool


@dataclass(frozen=True)
class Goal:
    """Objectives and target in terms of the modelled metrics.

    Attributes:
        keys: The metrics that are modelled; the first two are the speed of a user and the throughput per GPU.
        bounds: What the point to serve must hold.
        axis: Position of the metric that the policy wants high; None for the knee, where both count.
    """

    keys: tuple[str, ...]
    bounds: tuple[Bound, ...]
    axis: int | None

    @property
    def frontier(self) -> tuple[Bound, ...]:
        """The bounds that cut the frontier itself: those on the time to first token.

        Bounds on speed and cost only say where on the frontier the user wants to be.
        """
        return tuple(bound for bound in self.bounds if self.keys[bound.metric].startswith(TTFT))

    def holds(self, logs: Floats, bounds: Sequence[Bound]) -> NDArray[np.bool_]:
        """Return whether logarithms (…, m) of metrics hold the bounds; what is not a number holds nothing."""
        fine: NDArray[np.bool_] = np.isfinite(logs[..., SPEED]) & np.isfinite(logs[..., THROUGHPUT])
        for bound in bounds:
            value = logs[..., bound.metric]
            fine &= (value <= bound.edge) if bound.below else (value >= bound.edge)
        return fine
