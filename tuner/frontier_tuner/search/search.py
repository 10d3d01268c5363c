"""The next start: the candidate whose curve is expected to add most, for what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from frontier_tuner.measurement import ITL, TTFT
from frontier_tuner.predict import Floats
from frontier_tuner.search import gain, starts
from frontier_tuner.search.candidates import Candidates, Integers
from frontier_tuner.search.goal import SPEED, THROUGHPUT, Goal
from frontier_tuner.search.kernel import KnobKernel
from frontier_tuner.search.rungs import Ladder
from frontier_tuner.search.surrogate import BASES, Belief, Curves, Hyper, Surrogate, stack

LOADS = 10
"""Levels of a curve at which gains are computed."""


@dataclass(frozen=True)
class Settings:
    """How a search weighs.

    Attributes:
        draws: Curves that are drawn for each candidate.
        target: Share of the target in the expected gain; the rest is the frontier's.
        cost: Power of the GPUs by which the gain is divided.
        explore: Factor on the spread of the drawn curves after many starts.
        greedy: The same before the first start: early on the spread is an assumption, not a lesson.
        ramp: Starts until the one has become the other.
        rungs: Rungs of one start that the surrogate reads at most.
    """

    draws: int = 16
    target: float = 0.5
    cost: float = 0.0
    explore: float = 0.6
    greedy: float = 0.25
    ramp: int = 12
    doubts: int = 2
    enough: float = 0.03
    rungs: int = 5
    hyper: Hyper = field(default_factory=Hyper)


@dataclass(frozen=True)
class Started:
    """One start and what came of it.

    Attributes:
        candidate: Position among the candidates.
        levels: Positions of the measured loads; empty where the engine died.
        logs: (levels, m) logarithms of the metrics.
        died: Whether it did not become ready.
    """

    candidate: int
    levels: tuple[int, ...] = ()
    logs: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    died: bool = False


@dataclass(frozen=True)
class Choice:
    """The next start.

    Attributes:
        candidate: Position among the candidates.
        gain: Expected growth of the target's and the frontier's measure, as a share of what is reached.
        chance: Probability that it starts.
    """

    candidate: int
    gain: float
    chance: float


class Search:
    """Chooses starts among candidates for a goal; every answer depends on the history and the seed alone."""

    def __init__(self, candidates: Candidates, goal: Goal, seed: int = 0, settings: Settings | None = None) -> None:
        self.candidates, self.goal, self._seed = candidates, goal, seed
        self._settings = settings or Settings()
        self._kernel = KnobKernel(candidates)
        load = np.log(candidates.concurrency / candidates.ranks[:, None])
        low, high = np.nanmin(load), np.nanmax(load)
        self._load = np.nan_to_num(2 * (load - low) / max(high - low, 1e-9) - 1)
        self._exists = np.isfinite(candidates.concurrency)
        prior = None if candidates.prediction is None else _prior(candidates, goal)
        trend = _trend(np.nan_to_num(load), goal)
        self._surrogate = Surrogate(self._kernel, len(candidates), self._load, prior, trend, self._settings.hyper)
        self._ready = starts.expected(candidates.prediction, len(candidates))
        self._roomy = _roomy(candidates)
        self._boldness = self._settings.greedy
        self._known: tuple[object, list[list[Belief]]] | None = None

    def choose(self, history: Sequence[Started], pending: Sequence[int] = ()) -> Choice:
        """Return the next start.

        Args:
            history: What was started, in the order of the starts.
            pending: Candidates that are under way.
        """
        rng = np.random.default_rng([self._seed, len(history) + len(pending)])
        curves = [s for s in history if s.levels]
        tried = np.array([s.candidate for s in history], dtype=np.int64)
        started = np.array([0.0 if s.died else 1.0 for s in history])
        chance = starts.chance(self._kernel, self._ready, tried, started)
        closed = np.zeros(len(self.candidates), dtype=bool)
        closed[[s.candidate for s in curves] + list(pending)] = True
        for each in set(tried[started == 0]):
            died = int((tried == each).sum())
            # Dead once for sure or by a whim: the odds that it was a whim, by Bayes' rule.
            fine = chance[each] * starts.FLAKES**died
            chance[each] = chance[each] * fine / (fine + (1 - chance[each]))
        beliefs = self.beliefs(curves)
        s = self._settings
        self._boldness = s.greedy + (s.explore - s.greedy) * min(len(curves) / s.ramp, 1.0)
        gains = self._gains(beliefs, curves, chance, closed, rng)
        expected = float((gains * chance)[~closed].max(initial=0.0))
        for _ in range(s.doubts if curves else 0):
            if float((gains * chance)[~closed].max(initial=0.0)) > s.enough:
                break
            # Where the model sees nothing to gain, it is the model that is to be doubted.
            self._boldness *= 2
            gains = self._gains(beliefs, curves, chance, closed, rng)
        worth = gains * chance / self.candidates.gpus**s.cost
        worth[closed] = -1
        best = int(np.argmax(worth))
        return Choice(best, expected, float(chance[best]))

    def beliefs(self, curves: Sequence[Started]) -> list[list[Belief]]:
        """Return what is believed of every metric of every candidate."""
        if curves:
            known = tuple((s.candidate, s.levels, s.logs.tobytes()) for s in curves)
            if self._known is None or self._known[0] != known:
                self._known = (known, self._surrogate.learn(self._told(curves)))
            return self._known[1]
        nothing = np.zeros((len(self.candidates), BASES))
        spread = np.zeros((len(self.candidates), BASES, BASES))
        trust = 0.0 if self.candidates.prediction is None else 1.0
        return [[Belief(1.0, trust, nothing, spread)] for _ in self.goal.keys]

    def _told(self, curves: Sequence[Started]) -> Curves:
        most = self._settings.rungs
        kept = []
        for s in curves:
            places = np.unique(np.linspace(0, len(s.levels) - 1, min(most, len(s.levels))).round().astype(int))
            kept.append((s.candidate, [s.levels[p] for p in places], s.logs[places]))
        return stack(kept)

    def _gains(
        self,
        beliefs: list[list[Belief]],
        curves: Sequence[Started],
        chance: Floats,
        closed: np.ndarray,
        rng: np.random.Generator,
    ) -> Floats:
        count = len(self.candidates)
        middle = self._draw(beliefs, np.arange(count), 0, rng)[:, 0]
        here = self._standing(middle, self._measured(curves), chance)
        # Most candidates are hopeless; curves are drawn for those that could matter under optimism.
        spread = self._spread(beliefs)
        hopeful = self._score(middle + 1.5 * spread[:, None, None], here) * chance
        hopeful[closed] = -1
        rows = np.argsort(-hopeful, kind="stable")[: min(count, 250)]
        drawn = self._draw(beliefs, rows, self._settings.draws, rng)
        found = np.zeros(count)
        found[rows] = self._score(drawn, here).mean(1)
        return found

    def ladder(self, candidate: int, history: Sequence[Started], fits: np.ndarray) -> Ladder:
        """Return the ladder of a start.

        Args:
            candidate: What was started.
            history: The starts before it.
            fits: (L,) whether the engine's cache holds a level.
        """
        rng = np.random.default_rng([self._seed, len(history)])
        curves = [s for s in history if s.levels]
        middle = self._draw(self.beliefs(curves), np.arange(len(self.candidates)), 0, rng)[:, 0]
        measured = self._measured(curves)
        here = self._standing(middle, measured, np.ones(len(self.candidates)))
        levels = np.flatnonzero(self._exists[candidate] & fits)
        return Ladder(self.goal, levels.tolist(), middle[candidate], measured, here)

    def _measured(self, curves: Sequence[Started]) -> Floats:
        measured = np.full((len(curves), self._load.shape[1], len(self.goal.keys)), np.nan)
        for place, s in enumerate(curves):
            measured[place, list(s.levels)] = s.logs
        return measured

    def _standing(self, middle: Floats, measured: Floats, chance: Floats) -> gain.Standing:
        likely = middle[chance > 0.3] if (chance > 0.3).any() else middle
        fine = self.goal.holds(likely, self.goal.frontier)
        source = likely[fine] if fine.any() else likely.reshape(-1, likely.shape[-1])
        fastest, dearest = (float(np.exp(np.nanpercentile(source[:, axis], 99))) for axis in (SPEED, THROUGHPUT))
        return gain.standing(self.goal, measured, fastest, dearest)

    def _score(self, logs: Floats, here: gain.Standing) -> Floats:
        share = self._settings.target
        higher = np.maximum(gain.heights(self.goal, logs, here.speeds) - here.heights, 0).sum(-1)
        frontier = higher / max(here.area, 1e-9) if here.area else higher / (here.scale[THROUGHPUT] * gain.GRID)
        worth = gain.values(self.goal, logs, here.scale)
        target = np.maximum(worth - here.best, 0) / (here.best or 1.0)
        return np.asarray(share * target + (1 - share) * frontier)

    def _spread(self, beliefs: list[list[Belief]]) -> Floats:
        total = np.zeros(len(self.candidates))
        for belief in beliefs[THROUGHPUT]:
            total += belief.weight * belief.covariance[:, 0, 0]
        return np.sqrt(np.maximum(total, 0))

    def _draw(self, beliefs: list[list[Belief]], rows: Integers, draws: int, rng: np.random.Generator) -> Floats:
        """Return (rows, draws, L, m) curves; with 0 draws the expected one."""
        count = max(draws, 1)
        out = np.empty((len(rows), count, self._load.shape[1], len(self.goal.keys)))
        pick = (np.arange(count) + rng.random() if draws else np.array([0.5])) / count
        common = rng.standard_normal((len(rows), count, BASES))
        for metric, options in enumerate(beliefs):
            if not draws:
                mean = sum(b.weight * self._surrogate.curve(b, metric, b.mean[rows][:, None], rows) for b in options)
                out[..., metric] = mean
                continue
            # Speed and throughput of one start are the same story, so they share their luck.
            luck = common if metric in (SPEED, THROUGHPUT) else rng.standard_normal(common.shape)
            edges = np.cumsum([b.weight for b in options])
            chosen = np.minimum(np.searchsorted(edges, pick), len(options) - 1)
            for number, belief in enumerate(options):
                places = np.flatnonzero(chosen == number)
                if not len(places):
                    continue
                root = _root(belief.covariance[rows])
                coefficients = belief.mean[rows][:, None] + self._boldness * np.einsum(
                    "rij,rdj->rdi", root, luck[:, places]
                )
                out[..., metric][:, places] = self._surrogate.curve(belief, metric, coefficients, rows)
        out[~(self._exists & self._roomy)[rows][:, None, :].repeat(count, 1)] = np.nan
        return out


def _root(covariance: Floats) -> Floats:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0))[:, None])


def _prior(candidates: Candidates, goal: Goal) -> Floats:
    prediction = candidates.prediction
    assert prediction is not None  # noqa: S101 - the caller asked
    sources = {TTFT: prediction.ttft, ITL: prediction.itl}
    columns = [prediction.user_speed, prediction.throughput]
    columns += [sources.get(name.partition("/")[0], 1 / prediction.user_speed) for name in goal.keys[2:]]
    return np.nan_to_num(np.log(np.stack(columns, -1)))


def _trend(load: Floats, goal: Goal) -> Floats:
    slopes = {TTFT: 0.1}
    columns = [-0.3 * load, 0.7 * load] + [slopes.get(name.partition("/")[0], 0.3) * load for name in goal.keys[2:]]
    return np.stack(columns, -1)


def _roomy(candidates: Candidates) -> np.ndarray:
    """Whether a level's cache is predicted to fit; unknown counts as yes."""
    prediction = candidates.prediction
    if prediction is None:
        return np.ones(candidates.concurrency.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        return ~(prediction.memory > prediction.capacity[:, None] * 1.05)
