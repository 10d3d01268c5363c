"""The flat space that a general-purpose optimiser sees, and the way back to a candidate."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import Trial

from frontier_tuner.bench.tables import Booleans
from frontier_tuner.predict import Floats
from frontier_tuner.search.candidates import Candidates, Integers


@dataclass(frozen=True)
class FlatSpace:
    """One dimension for each knob that tells candidates apart, whether or not the knob exists everywhere.

    A proposal that is no candidate becomes the nearest one, so no start is spent on what cannot be. Knobs on which the
    existence of others depends come first; then each step counts by its share of the knob's range, and a knob that a
    candidate lacks counts nothing. The earliest candidate wins a draw.

    Attributes:
        names: The d dimensions.
        sizes: Values that each has.
        ordered: (d,) whether neighbouring values behave alike.
        leading: (d,) whether the existence of other knobs depends on it.
        levels: (n, d) position of each candidate's value, -1 where the knob does not exist.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    ordered: Booleans
    leading: Booleans
    levels: Integers

    @classmethod
    def of(cls, candidates: Candidates) -> "FlatSpace":
        """Return the space of the knobs without those that the others determine."""
        levels, knobs = candidates.levels, candidates.knobs
        kept = [column for column in range(len(knobs)) if len(np.unique(levels[levels[:, column] >= 0, column])) > 1]
        # A proposal has a value for every knob, so that a knob is absent cannot tell candidates apart.
        told = np.maximum(levels, 0)
        distinct = len(np.unique(told[:, kept], axis=0))
        for column in reversed(tuple(kept)):
            others = [each for each in kept if each != column]
            if others and len(np.unique(told[:, others], axis=0)) == distinct:
                kept = others
        chosen = levels[:, kept]
        return cls(
            names=tuple(knobs[column].name for column in kept),
            sizes=tuple(int(chosen[:, place].max()) + 1 for place in range(len(kept))),
            ordered=np.array([knobs[column].ordered for column in kept], dtype=bool),
            leading=np.array([_leads(chosen, place) for place in range(len(kept))], dtype=bool),
            levels=chosen,
        )

    def distributions(self) -> dict[str, BaseDistribution]:
        """Return the dimensions as Optuna writes them: positions, and texts of positions for what has no order."""
        return {
            name: IntDistribution(0, size - 1)
            if ordered
            else CategoricalDistribution([str(value) for value in range(size)])
            for name, size, ordered in zip(self.names, self.sizes, self.ordered, strict=True)
        }

    def suggest(self, trial: Trial) -> Integers:
        """Return (d,) the positions that a trial proposes."""
        values = []
        for name, size, ordered in zip(self.names, self.sizes, self.ordered, strict=True):
            if ordered:
                values.append(trial.suggest_int(name, 0, size - 1))
            else:
                values.append(int(trial.suggest_categorical(name, [str(value) for value in range(size)])))
        return np.array(values, dtype=np.int64)

    def encode(self, index: int) -> Mapping[str, int | str]:
        """Return a candidate as parameters of a trial; a knob that it lacks takes its first value."""
        row = np.maximum(self.levels[index], 0)
        return {
            name: int(value) if ordered else str(value)
            for name, value, ordered in zip(self.names, row, self.ordered, strict=True)
        }

    def nearest(self, proposal: Integers, allowed: Booleans) -> int:
        """Return the nearest candidate of those allowed; of all where none is."""
        rows = np.flatnonzero(allowed) if allowed.any() else np.arange(len(self.levels))
        levels = self.levels[rows]
        apart: Floats = np.abs(levels - proposal) / np.maximum(np.array(self.sizes) - 1, 1)
        apart = np.where(self.ordered, apart, levels != proposal)
        apart = np.where(levels < 0, 0.0, apart)
        leading = (apart * self.leading).sum(1)
        rows, apart = rows[leading == leading.min()], apart[leading == leading.min()]
        return int(rows[np.argmin(apart.sum(1))])


def _leads(levels: Integers, place: int) -> bool:
    """Return whether a knob that always exists decides whether some other does."""
    own = levels[:, place]
    if (own < 0).any():
        return False
    for other in range(levels.shape[1]):
        exists = levels[:, other] >= 0
        decided = all(len(np.unique(exists[own == value])) == 1 for value in np.unique(own))
        if not exists.all() and decided:
            return True
    return False
