"""The next rung of one start: coarse steps upwards, then the places where a point could still matter.

Between two measured rungs nothing is interpolated. What can be said is a bound: a load in between is no faster for a
user than the lower one and yields no more than the higher one. Where even that corner would add next to nothing to the
frontier or to the target, the gap is left alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from frontier_tuner.predict import Floats
from frontier_tuner.search import gain
from frontier_tuner.search.goal import SPEED, THROUGHPUT, Goal

STRIDE = 3
"""Levels that a coarse step goes up."""
WORTH = 0.004
"""Growth of the frontier or the target, as a share, below which a rung is not worth its time."""
OPTIMISM = 0.15
"""How much better than expected, in logarithms, the rest of a curve may turn out."""
LATENCY_OPTIMISM = 0.3
LEAST = 3
"""Rungs of a start that are measured in any case, while it holds the bounds: a curve teaches more than a point."""
GROSS = np.log(1.5)
"""A rung that misses a bound of the frontier by this factor ends the climb."""


@dataclass(frozen=True)
class Ladder:
    """One start's ladder.

    Attributes:
        goal: What is wanted.
        levels: Positions of the loads that this engine can take, ascending.
        expected: (L, m) logarithms of the curve that is expected of it.
        here: Where the study stands without this start.
    """

    goal: Goal
    levels: Sequence[int]
    expected: Floats
    here: gain.Standing

    def following(self, measured: Mapping[int, Floats]) -> int | None:
        """Return the next load to measure, or None where no other is worth its time.

        Args:
            measured: (m,) logarithms by level.
        """
        if not self.levels:
            return None
        if not measured:
            return self._coarse()[0]
        higher = [level for level in self._coarse() if level > max(measured)]
        if higher and not self._over(measured) and self._worth_climbing(measured):
            return higher[0]
        return self._refine(measured)

    def _coarse(self) -> list[int]:
        chosen = list(self.levels[::STRIDE])
        return chosen if chosen[-1] == self.levels[-1] else [*chosen, self.levels[-1]]

    def _over(self, measured: Mapping[int, Floats]) -> bool:
        """Whether the highest load is far beyond the frontier's bounds, or two rungs in a row yield less."""
        last = measured[max(measured)]
        for bound in self.goal.frontier:
            excess = last[bound.metric] - bound.edge
            if (excess if bound.below else -excess) > GROSS:
                return True
        order = [measured[level][THROUGHPUT] for level in sorted(measured)]
        return len(order) > 2 and max(order[-2:]) < max(order[:-2])  # noqa: PLR2004 - two in a row

    def _worth_climbing(self, measured: Mapping[int, Floats]) -> bool:
        return len(measured) < LEAST or self._promising(measured, max(measured))

    def _promising(self, measured: Mapping[int, Floats], last: int) -> bool:
        """Whether a higher load could matter if the rest of the curve is better than expected."""
        rest = [level for level in self.levels if level > last]
        shift = measured[last] - self.expected[last]
        hope = self.expected[rest] + np.nan_to_num(shift)
        hope[:, [SPEED, THROUGHPUT]] += OPTIMISM
        hope[:, 2:] -= LATENCY_OPTIMISM
        return bool(np.isnan(shift).any()) or self._worth(hope, measured) > WORTH

    def _refine(self, measured: Mapping[int, Floats]) -> int | None:
        order = sorted(measured)
        best, place = WORTH, None
        for low, high in pairwise(order):
            between = [level for level in self.levels if low < level < high]
            if not between:
                continue
            corner = measured[low].copy()
            corner[THROUGHPUT] = max(measured[low][THROUGHPUT], measured[high][THROUGHPUT])
            worth = self._worth(corner[None], measured)
            if worth > best:
                best, place = worth, between[len(between) // 2]
        return place

    def _worth(self, hope: Floats, measured: Mapping[int, Floats]) -> float:
        own = np.stack(list(measured.values()))
        reached = np.maximum(self.here.heights, gain.heights(self.goal, own, self.here.speeds))
        frontier = np.maximum(gain.heights(self.goal, hope, self.here.speeds) - reached, 0).sum()
        best = max(self.here.best, float(gain.values(self.goal, own, self.here.scale)))
        target = max(float(gain.values(self.goal, hope, self.here.scale)) - best, 0.0)
        share = target / best if best else float(target > 0)
        return max(float(frontier) / max(float(reached.sum()), 1e-9), share)
