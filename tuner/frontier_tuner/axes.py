"""The axes of a frontier: which metrics are traded against each other, and in which direction each is better."""

from dataclasses import dataclass
from typing import Literal

from frontier_tuner import measurement

QUALITY = "QualityPercentOfReference"
"""Key of a model's quality, in percent of the reference checkpoint's."""


@dataclass(frozen=True)
class Axis:
    """One thing that is traded.

    Attributes:
        key: The metric.
        title: How a person calls it, with its unit.
        better: Which direction is better.
    """

    key: str
    title: str
    better: Literal["Higher", "Lower"] = "Higher"

    @property
    def sign(self) -> int:
        """1 where more is better, -1 where less is."""
        return 1 if self.better == "Higher" else -1

    def gain(self, value: float, over: float) -> float:
        """Return by which share a value is better than another: 0.1 for a tenth faster, and for a tenth cheaper.

        Both must be above 0. The share of a lower-is-better axis is what the other costs more: twice as dear is 1.
        """
        return (value / over) ** self.sign - 1


SPEED = Axis(measurement.key(measurement.USER_SPEED, 50), "tokens/s/user")
THROUGHPUT = Axis(measurement.THROUGHPUT_PER_GPU, "tokens/s/GPU")
COST = Axis(measurement.COST, "cost per million output tokens", "Lower")
QUALITY_AXIS = Axis(QUALITY, "quality, % of the reference")

PLANE = (SPEED, THROUGHPUT)
"""The two axes of the frontier unless others are asked for."""
