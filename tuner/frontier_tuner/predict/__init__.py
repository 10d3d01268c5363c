"""Priors: what is expected of a configuration before it starts. A prediction orders and prunes; it is never a result.

Every prior answers with the same `Prediction`, so a search can learn how far it is off and in which direction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from frontier_tuner.configuration import Configuration

__all__ = ["Floats", "Prediction", "PriorModel"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Predicted load curves of n configurations at L levels of load each.

    A value is not a number where the level does not exist for that configuration; it is always above 0 otherwise.

    Attributes:
        ttft: (n, L) mean time to first token, seconds.
        itl: (n, L) mean time between tokens, seconds.
        user_speed: (n, L) output tokens per second that one user sees.
        throughput: (n, L) output tokens per second per GPU.
        memory: (n, L) bytes used on the fullest GPU, weights, activations, runtime and the cache of that load.
        start_memory: (n,) bytes of the same that must fit before the engine can start: all but the cache.
        capacity: (n,) bytes that the engine may use on a GPU; not a number where it is not known.
    """

    ttft: Floats
    itl: Floats
    user_speed: Floats
    throughput: Floats
    memory: Floats
    start_memory: Floats
    capacity: Floats


class PriorModel(Protocol):
    """Anything that predicts load curves."""

    def predict(self, configurations: Sequence[Configuration], concurrency: Floats) -> Prediction:
        """Return the predicted curves.

        Args:
            configurations: n members of one search space.
            concurrency: (n, L) requests in flight over the whole deployment; not a number where a level does not exist.
        """
        ...
