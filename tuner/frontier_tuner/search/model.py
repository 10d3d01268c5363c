"""What is believed of all candidates, and curves drawn from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from frontier_tuner.measurement import ITL, TTFT, USER_SPEED
from frontier_tuner.predict import Floats, Prediction
from frontier_tuner.search.candidates import Candidates, Integers
from frontier_tuner.search.goal import SPEED, THROUGHPUT, Goal
from frontier_tuner.search.kernel import KnobKernel
from frontier_tuner.search.surrogate import BASES, Belief, Curves, Hyper, Surrogate, stack

TREND = {TTFT: 0.1, USER_SPEED: -0.3}
"""Power of the load by which a latency or a speed goes where there is no prior."""
OTHER_TREND, THROUGHPUT_TREND = 0.3, 0.7
MOST_STARTS = 96
"""Starts that the surrogate reads: its cost grows with their cube, and old dominated curves say little."""
OVERFULL = 1.05
"""A cache that is predicted to need more than this share of the capacity does not fit."""


@dataclass(frozen=True)
class Started:
    """One start and what came of it.

    Attributes:
        candidate: Position among the candidates.
        levels: Positions of the measured loads, ascending; empty where the engine died.
        logs: (levels, m) logarithms of the metrics; the axes are known, others may be not a number.
        died: Whether it did not become ready.
    """

    candidate: int
    levels: tuple[int, ...] = ()
    logs: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    died: bool = False

    @property
    def key(self) -> tuple[int, tuple[int, ...], bytes, bool]:
        """What tells this start from any other."""
        return self.candidate, self.levels, self.logs.tobytes(), self.died


class Model:
    """Learns the curves of candidates and draws from what it has learnt.

    Args:
        candidates: The candidates.
        goal: Names the metrics.
        rungs: Rungs of one start that are read at most: a curve has few degrees of freedom.
        hyper: Priors of the surrogate's amplitudes.
    """

    def __init__(self, candidates: Candidates, goal: Goal, rungs: int, hyper: Hyper) -> None:
        self.kernel = KnobKernel(candidates)
        self._count, self._metrics, self._rungs = len(candidates), len(goal.keys), rungs
        load = np.log(candidates.concurrency / candidates.ranks[:, None])
        low, high = float(np.nanmin(load)), float(np.nanmax(load))
        self.exists = np.isfinite(load)
        self._loaded = self.exists & _roomy(candidates)
        self._informed = candidates.prediction is not None
        scaled = np.nan_to_num(2 * (load - low) / max(high - low, 1e-9) - 1)
        prior = None if candidates.prediction is None else _prior(candidates.prediction, goal)
        self._surrogate = Surrogate(self.kernel, self._count, scaled, prior, _trend(np.nan_to_num(load), goal), hyper)
        self._known: tuple[object, list[list[Belief]]] | None = None

    def beliefs(self, curves: Sequence[Started]) -> list[list[Belief]]:
        """Return what is believed of every metric of every candidate after some measured curves."""
        known = tuple(s.key for s in curves)
        if self._known is None or self._known[0] != known:
            self._known = (known, self._surrogate.learn(self._told(curves)) if curves else self._assumed())
        return self._known[1]

    def measured(self, curves: Sequence[Started]) -> Floats:
        """Return (t, L, m): the curves as logarithms; what was not measured is not a number."""
        found = np.full((len(curves), self.exists.shape[1], self._metrics), np.nan)
        for place, start in enumerate(curves):
            found[place, list(start.levels)] = start.logs
        return found

    def expected(self, beliefs: list[list[Belief]]) -> Floats:
        """Return (n, L, m): the expected logarithms of all candidates' metrics."""
        rows = np.arange(self._count)
        out = np.empty((self._count, self.exists.shape[1], self._metrics))
        for metric, options in enumerate(beliefs):
            curves = (b.weight * self._surrogate.curve(b, metric, b.mean[:, None], rows)[:, 0] for b in options)
            out[..., metric] = sum(curves)
        out[~self._loaded] = np.nan
        return out

    def spread(self, beliefs: list[list[Belief]]) -> Floats:
        """Return (n,): standard deviation of the level of the logarithm of throughput."""
        total = sum(belief.weight * belief.covariance[:, 0, 0] for belief in beliefs[THROUGHPUT])
        return np.sqrt(np.maximum(np.asarray(total, dtype=np.float64), 0))

    def draw(
        self, beliefs: list[list[Belief]], rows: Integers, draws: int, boldness: float, rng: np.random.Generator
    ) -> Floats:
        """Return (rows, draws, L, m): curves that candidates may turn out to have.

        Args:
            beliefs: Of every metric.
            rows: The candidates.
            draws: Curves for each.
            boldness: Factor on their spread.
            rng: Source of the draws.
        """
        out = np.empty((len(rows), draws, self.exists.shape[1], self._metrics))
        pick = (np.arange(draws) + rng.random()) / draws
        common = rng.standard_normal((len(rows), draws, BASES))
        for metric, options in enumerate(beliefs):
            # Speed and throughput of one start are the same story, so they share their luck.
            luck = common if metric in (SPEED, THROUGHPUT) else rng.standard_normal(common.shape)
            edges = np.cumsum([belief.weight for belief in options])
            chosen = np.minimum(np.searchsorted(edges, pick), len(options) - 1)
            for number, belief in enumerate(options):
                places = np.flatnonzero(chosen == number)
                if len(places):
                    moved = np.einsum("rij,rdj->rdi", _root(belief.covariance[rows]), luck[:, places])
                    coefficients = belief.mean[rows][:, None] + boldness * moved
                    out[..., metric][:, places] = self._surrogate.curve(belief, metric, coefficients, rows)
        out[np.broadcast_to(~self._loaded[rows][:, None], out.shape[:3])] = np.nan
        return out

    def _told(self, curves: Sequence[Started]) -> Curves:
        kept = []
        for start in _telling(curves):
            count = len(start.levels)
            places = np.unique(np.linspace(0, count - 1, min(self._rungs, count)).round().astype(int))
            kept.append((start.candidate, [start.levels[place] for place in places], start.logs[places]))
        return stack(kept)

    def _assumed(self) -> list[list[Belief]]:
        nothing, spread = np.zeros((self._count, BASES)), np.zeros((self._count, BASES, BASES))
        return [[Belief(1.0, float(self._informed), nothing, spread)] for _ in range(self._metrics)]


def _telling(curves: Sequence[Started]) -> Sequence[Started]:
    """Return the starts that are read: all, or of very many the highest curves and the latest ones, in their order."""
    if len(curves) <= MOST_STARTS:
        return curves
    half = MOST_STARTS // 2
    latest = range(len(curves) - half, len(curves))

    def height(place: int) -> float:
        return float(np.nanmax(curves[place].logs[:, SPEED] + curves[place].logs[:, THROUGHPUT]))

    highest = sorted(range(len(curves) - half), key=lambda place: (-height(place), place))[:half]
    return [curves[place] for place in sorted((*highest, *latest))]


def _root(covariance: Floats) -> Floats:
    """Return square roots of covariances, also of such that rounding has made slightly indefinite."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0))[:, None], dtype=np.float64)


def _prior(prediction: Prediction, goal: Goal) -> Floats:
    sources = {TTFT: prediction.ttft, ITL: prediction.itl, USER_SPEED: prediction.user_speed}
    others = (sources.get(name.partition("/")[0], 1 / prediction.user_speed) for name in goal.keys[2:])
    return np.nan_to_num(np.log(np.stack([prediction.user_speed, prediction.throughput, *others], -1)))


def _trend(load: Floats, goal: Goal) -> Floats:
    others = (TREND.get(name.partition("/")[0], OTHER_TREND) * load for name in goal.keys[2:])
    return np.stack([TREND[USER_SPEED] * load, THROUGHPUT_TREND * load, *others], -1)


def _roomy(candidates: Candidates) -> NDArray[np.bool_]:
    """Return whether the cache of each load is predicted to fit; what is not known counts as fitting."""
    prediction = candidates.prediction
    if prediction is None:
        return np.ones(candidates.concurrency.shape, dtype=bool)
    return ~(np.nan_to_num(prediction.memory / prediction.capacity[:, None], nan=0.0) > OVERFULL)
