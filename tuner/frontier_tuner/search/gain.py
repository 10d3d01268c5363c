"""What a curve would add: to the point that the target asks for, and to the frontier as a whole."""

from dataclasses import dataclass

import numpy as np

from frontier_tuner.predict import Floats
from frontier_tuner.search.goal import SPEED, THROUGHPUT, Goal

GRID = 32
"""User speeds at which the frontier's height is compared."""


@dataclass(frozen=True)
class Standing:
    """What has been reached so far.

    Attributes:
        speeds: (GRID,) user speeds, ascending, up to the fastest known or predicted.
        heights: (GRID,) highest throughput per GPU known at each speed or above.
        best: Value of the best point that holds all bounds; 0 where there is none.
        scale: (2,) speed and throughput that count as 1 for the knee.
    """

    speeds: Floats
    heights: Floats
    best: float
    scale: Floats

    @property
    def area(self) -> float:
        """The area under the frontier, in units of the grid."""
        return float(self.heights.sum())


def values(goal: Goal, logs: Floats, scale: Floats) -> Floats:
    """Return (…,): what the best level of each curve of logarithms (…, L, m) is worth to the target; 0 for none."""
    fine = goal.holds(logs, goal.bounds)
    if goal.axis is not None:
        worth = np.exp(logs[..., goal.axis]) / scale[goal.axis]
    else:
        worth = np.exp(logs[..., SPEED]) / scale[SPEED] + np.exp(logs[..., THROUGHPUT]) / scale[THROUGHPUT]
    return np.asarray(np.where(fine, worth, 0.0).max(-1))


def heights(goal: Goal, logs: Floats, speeds: Floats) -> Floats:
    """Return (…, GRID): the highest throughput of each curve at each speed or above, 0 where it has none."""
    fine = goal.holds(logs, goal.frontier)
    throughput = np.where(fine, np.exp(logs[..., THROUGHPUT]), 0.0)
    # Each level lifts the grid up to its own speed; the highest to the right of a place counts there.
    place = np.searchsorted(speeds, np.exp(np.where(fine, logs[..., SPEED], -np.inf)), side="right") - 1
    lifted = np.zeros((*logs.shape[:-2], len(speeds)))
    for level in range(logs.shape[-2]):
        at = place[..., level]
        here = np.where(at >= 0, throughput[..., level], 0.0)
        column = np.maximum(at, 0)[..., None]
        current = np.take_along_axis(lifted, column, -1)
        np.put_along_axis(lifted, column, np.maximum(current, here[..., None]), -1)
    return np.asarray(np.maximum.accumulate(lifted[..., ::-1], -1)[..., ::-1])


def standing(goal: Goal, measured: Floats, fastest: float, dearest: float) -> Standing:
    """Return where a study stands after curves of logarithms (t, L, m); levels not measured are not numbers.

    Args:
        goal: What is wanted.
        measured: The curves.
        fastest: The highest user speed that is thought possible.
        dearest: The highest throughput per GPU that is thought possible.
    """
    scale = np.array([fastest, dearest])
    if len(measured):
        fine = goal.holds(measured, goal.frontier)
        if fine.any():
            scale = np.array([np.exp(measured[fine][:, axis].max()) for axis in (SPEED, THROUGHPUT)])
    speeds = np.linspace(0, 1, GRID + 1)[1:] * max(scale[SPEED], fastest)
    if not len(measured):
        return Standing(speeds, np.zeros(GRID), 0.0, scale)
    reached = heights(goal, measured, speeds).max(0)
    return Standing(speeds, reached, float(values(goal, measured, scale).max()), scale)
