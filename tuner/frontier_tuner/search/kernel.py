"""Similarity of configurations: what knobs do alone, in their group, in pairs of groups, and all together.

Speed is mostly a product of factors, one for each knob, so its logarithm is mostly a sum: a lesson about one value of a
knob holds for all configurations that have it. The other terms carry what such a sum cannot say.
"""

import numpy as np

from frontier_tuner.predict import Floats
from frontier_tuner.search.candidates import Candidates, Integers

SAME = 0.5
"""Share of an ordered knob's effect that belongs to the value alone; the rest is shared with its neighbours."""
REACH = 1.5
"""Steps (binary orders of magnitude) over which neighbouring values of an ordered knob behave alike."""
SHAPING = frozenset({"mode", "layout", "prefill", "precision"})
"""Groups and knobs that decide the shapes and formats of the matrices, and so which kernels an engine picks."""


class KnobKernel:
    """The similarities between candidates, one for each term; all are 1 for a candidate with itself.

    Attributes:
        terms: What the terms stand for: the knobs, the groups with several knobs, `pair`, `shape` and `all`.
    """

    def __init__(self, candidates: Candidates) -> None:
        self._levels = candidates.levels
        self._scale = candidates.scale
        self._ordered = [knob.ordered for knob in candidates.knobs]
        names = [knob.group or f"\0{knob.name}" for knob in candidates.knobs]
        self.alone = len(names)
        self._groups = {g: [i for i, name in enumerate(names) if name == g] for g in dict.fromkeys(names)}
        joint = [group for group, members in self._groups.items() if len(members) > 1]
        self.terms = (*(knob.name for knob in candidates.knobs), *joint, "pair", "shape", "all")

    def between(self, rows: Integers, columns: Integers) -> Floats:
        """Return (terms, rows, columns): the similarities between two lists of candidate positions."""
        shape = (len(rows), len(columns))
        alone = [self._one(knob, rows, columns) for knob in range(len(self._ordered))]
        joint = []
        pair, squares, shaping, everything = np.zeros(shape), np.zeros(shape), np.ones(shape), np.ones(shape)
        for group, members in self._groups.items():
            product = np.prod([alone[knob] for knob in members], axis=0)
            if len(members) > 1:
                joint.append(product)
            pair += product
            squares += product**2
            everything *= product
            if group.lstrip("\0") in SHAPING:
                shaping *= product
        # The sum over all pairs of groups of the product of their similarities.
        pairs = len(self._groups) * (len(self._groups) - 1) / 2
        return np.stack([*alone, *joint, (pair**2 - squares) / 2 / max(pairs, 1), shaping, everything])

    def _one(self, knob: int, rows: Integers, columns: Integers) -> Floats:
        same: Floats = (self._levels[rows, knob][:, None] == self._levels[columns, knob][None]).astype(np.float64)
        if not self._ordered[knob]:
            return same
        present = (self._levels[rows, knob][:, None] >= 0) & (self._levels[columns, knob][None] >= 0)
        apart = self._scale[rows, knob][:, None] - self._scale[columns, knob][None]
        near = np.where(present, np.exp(-0.5 * (apart / REACH) ** 2), same)
        return np.asarray(SAME * same + (1 - SAME) * near, dtype=np.float64)
