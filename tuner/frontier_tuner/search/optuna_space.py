"""Search spaces of Optuna as candidates: numbers that Optuna stores, columns that the kernel compares, points to score.

A point is a row of internal representations, as Optuna stores them: the number itself, or the place of a categorical
choice. A small finite space is enumerated; of any other a seeded pool is drawn that is dense around the best trials.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from scipy.stats import qmc

from frontier_tuner.predict import Floats
from frontier_tuner.search.candidates import Candidates, Integers, Knob

ENUMERATED = 20_000
"""Grid points up to which a space is enumerated."""
FEW = 16
"""Values up to which an ordered parameter may jump between neighbours; beyond, it is taken to be smooth."""
SPAN = 6.0
"""Extent of a numeric parameter's whole range in the steps that the kernel counts in."""
POOL = 1024
"""Points that cover a space that is not enumerated; a power of two, as the sequence of Sobol asks for."""
AROUND = 64
"""Points near each of the best trials."""
BINS = 4
"""Parts of a numeric parameter's range that a cover should reach."""
RADII = (0.2, 0.05, 0.0125)
"""Standard deviations, as shares of the range, of the points around a trial."""
NEAR = 8
"""Trials around which points are drawn."""

Predicate = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class ParameterSpace:
    """Parameters that are chosen together.

    Attributes:
        names: The k parameters, sorted.
        distributions: Their distributions.
    """

    names: tuple[str, ...]
    distributions: tuple[BaseDistribution, ...]

    @classmethod
    def of(cls, space: Mapping[str, BaseDistribution]) -> "ParameterSpace":
        """Return the parameters of an Optuna search space."""
        names = tuple(sorted(space))
        return cls(names, tuple(space[name] for name in names))

    @property
    def size(self) -> float:
        """How many points there are; infinite where a parameter is continuous."""
        return math.prod(_count(each) for each in self.distributions)

    def row(self, parameters: Mapping[str, Any]) -> Floats:
        """Return (k,): the point of the values of all parameters."""
        pairs = zip(self.names, self.distributions, strict=True)
        return np.array([float(each.to_internal_repr(parameters[name])) for name, each in pairs])

    def parameters(self, row: Floats) -> dict[str, Any]:
        """Return the values at a point (k,), in the types that Optuna hands out."""
        triples = zip(self.names, self.distributions, row, strict=True)
        return {name: each.to_external_repr(float(value)) for name, each, value in triples}

    def from_unit(self, unit: Floats) -> Floats:
        """Return the (n, k) points at (n, k) places between 0 and 1."""
        columns = [_from_unit(each, unit[:, i]) for i, each in enumerate(self.distributions)]
        return np.stack(columns, -1) if columns else np.zeros((len(unit), 0))

    def to_unit(self, rows: Floats) -> Floats:
        """Return the (n, k) places between 0 and 1 of (n, k) points."""
        columns = [_to_unit(each, rows[:, i]) for i, each in enumerate(self.distributions)]
        return np.stack(columns, -1) if columns else np.zeros((len(rows), 0))

    def bins(self, rows: Floats) -> Integers:
        """Return the (n, k) parts of each parameter's range that (n, k) points lie in."""
        counts = [
            min(_count(d), len(d.choices) if isinstance(d, CategoricalDistribution) else BINS)
            for d in self.distributions
        ]
        parts = np.array(counts, dtype=float)
        return np.asarray(np.clip(np.floor(self.to_unit(rows) * parts), 0, parts - 1).astype(np.int64))

    def enumerate(self) -> Floats:
        """Return all (n, k) points of a finite space."""
        return np.array(list(itertools.product(*(_values(each) for each in self.distributions))), dtype=float)

    def pool(self, best: Floats, seed: Sequence[int]) -> Floats:
        """Return (n, k) distinct points that cover the space, and others around the best.

        Args:
            best: (b, k) points of the best trials.
            seed: Decides which.
        """
        rng = np.random.default_rng(seed)
        width = len(self.names)
        cover = qmc.Sobol(width, rng=rng).random(POOL) if width <= qmc.Sobol.MAXDIM else rng.random((POOL, width))
        parts = [np.asarray(cover)]
        for unit in self.to_unit(best[:NEAR]):
            radius = np.tile(RADII, -(-AROUND // len(RADII)))[:AROUND, None]
            moved = unit + radius * rng.standard_normal((AROUND, width))
            # Half of the points leave most knobs alone: most effects are those of single knobs.
            alone = rng.random((AROUND, width)) < np.where(np.arange(AROUND) % 2, 1.5 / width, 1.0)[:, None]
            parts.append(np.where(alone, self._moved(moved, rng), unit))
        return np.unique(self.from_unit(np.clip(np.concatenate(parts), 0, 1)), axis=0)

    def _moved(self, unit: Floats, rng: np.random.Generator) -> Floats:
        """Replace places of parameters without an order by any; a small step would mean nothing there."""
        out = unit.copy()
        for i, each in enumerate(self.distributions):
            if isinstance(each, CategoricalDistribution) and not ordered(each):
                out[:, i] = rng.random(len(unit))
        return out

    def neighbours(self, rows: Floats, best: Floats) -> Integers:
        """Return the places among (n, k) points of those that differ from one of the best in a single parameter."""
        near = np.zeros(len(rows), dtype=bool)
        for point in best[:NEAR]:
            near |= (rows != point).sum(1) == 1
        return np.flatnonzero(near)

    def candidates(self, rows: Floats, groups: Mapping[str, str]) -> Candidates:
        """Return (n, k) points as the candidates of the kernel, at one load each."""
        levels = np.zeros(rows.shape, dtype=np.int64)
        scale = np.zeros(rows.shape)
        knobs = []
        for i, (name, each) in enumerate(zip(self.names, self.distributions, strict=True)):
            levels[:, i], scale[:, i] = _columns(each, rows[:, i])
            knobs.append(Knob(name, groups.get(name, ""), ordered(each)))
        one = np.ones(len(rows))
        return Candidates((), tuple(knobs), levels, scale, one, one, one[:, None])


def ordered(distribution: BaseDistribution) -> bool:
    """Return whether neighbouring values behave alike: numbers, and choices that are ascending numbers."""
    if not isinstance(distribution, CategoricalDistribution):
        return True
    choices = distribution.choices
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in choices):
        return False
    numbers = [float(each) for each in choices if isinstance(each, int | float)]
    return len(numbers) > 1 and all(a < b for a, b in itertools.pairwise(numbers))


def _count(distribution: BaseDistribution) -> float:
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return (distribution.high - distribution.low) // distribution.step + 1
    number = _float(distribution)
    if number.single():
        return 1
    return math.inf if number.step is None else round((number.high - number.low) / number.step) + 1


def _values(distribution: BaseDistribution) -> Floats:
    count = int(_count(distribution))
    if isinstance(distribution, CategoricalDistribution):
        return np.arange(count, dtype=float)
    low, high, step = _range(distribution)
    return np.asarray(np.minimum(low + step * np.arange(count), high))


def _float(distribution: BaseDistribution) -> FloatDistribution:
    if not isinstance(distribution, FloatDistribution):
        raise TypeError(f"distributions are float, int or categorical, not {type(distribution).__name__}")
    return distribution


def _range(distribution: BaseDistribution) -> tuple[float, float, float]:
    """Return the lowest and highest value and the step, 0 where there is none."""
    number = distribution if isinstance(distribution, IntDistribution) else _float(distribution)
    return float(number.low), float(number.high), float(number.step or 0)


def _logarithmic(distribution: BaseDistribution) -> bool:
    return isinstance(distribution, IntDistribution | FloatDistribution) and distribution.log


def _from_unit(distribution: BaseDistribution, unit: Floats) -> Floats:
    count = _count(distribution)
    if isinstance(distribution, CategoricalDistribution):
        return np.minimum(np.floor(unit * count), count - 1)
    low, high, step = _range(distribution)
    if _logarithmic(distribution):
        # Every whole number has its share of the logarithm, the first and the last too.
        half = step / 2
        value = np.exp(np.log(low - half) + unit * (np.log(high + half) - np.log(low - half)))
        return np.asarray(np.clip(np.round(value) if step else value, low, high))
    if not step:
        return np.clip(low + unit * (high - low), low, high)
    return np.clip(low + step * np.minimum(np.floor(unit * count), count - 1), low, high)


def _to_unit(distribution: BaseDistribution, values: Floats) -> Floats:
    count = _count(distribution)
    if count == 1:
        return np.full(len(values), 0.5)
    if isinstance(distribution, CategoricalDistribution):
        return (values + 0.5) / count
    low, high, step = _range(distribution)
    half = step / 2
    if _logarithmic(distribution):
        return np.asarray(np.log(values / (low - half)) / np.log((high + half) / (low - half)))
    return np.asarray((values - low + half) / (high - low + step))


def _columns(distribution: BaseDistribution, values: Floats) -> tuple[Integers, Floats]:
    """Return (n,) levels and (n,) scale, as `Candidates` has them.

    Where there are many values they have the same level, so that the kernel sees only how far they are apart.
    """
    if isinstance(distribution, CategoricalDistribution):
        place = values.astype(np.int64)
        if not ordered(distribution):
            return place, values
        numbers = np.array(distribution.choices, dtype=float)
        span = numbers[-1] - numbers[0]
        return place, (np.log2(numbers) if numbers[0] > 0 else SPAN * (numbers - numbers[0]) / span)[place]
    scale = SPAN * _to_unit(distribution, values)
    if _count(distribution) > FEW:
        return np.zeros(len(values), dtype=np.int64), scale
    low, _, step = _range(distribution)
    return np.round((values - low) / (step or 1.0)).astype(np.int64), scale
