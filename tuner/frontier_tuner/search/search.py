"""The next start: the candidate whose curve is expected to add most, for what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from frontier_tuner.predict import Floats
from frontier_tuner.search import gain, starts
from frontier_tuner.search.candidates import Candidates
from frontier_tuner.search.goal import SPEED, THROUGHPUT, Goal
from frontier_tuner.search.model import Model, Started
from frontier_tuner.search.rungs import Ladder
from frontier_tuner.search.surrogate import Belief, Hyper

__all__ = ["Choice", "Search", "Settings", "Started"]

CONSIDERED = 250
"""Candidates for which curves are drawn: those that could add most under optimism."""
LATEST = 64
"""Starts of each outcome from which the probability to start is learnt."""
OPTIMISM = 1.5
"""Standard deviations of that optimism."""
UNLIKELY = 0.3
"""Candidates with less than this probability to start do not set the scale."""
TOP_PERCENTILE = 99
"""Of the expected speeds and throughputs, as what is thought possible."""


@dataclass(frozen=True)
class Settings:
    """How a search weighs.

    Attributes:
        draws: Curves that are drawn for each candidate.
        target: Share of the target in the expected gain; the rest is the frontier's, so that any point stays reachable.
        cost: Power of the GPUs by which the gain is divided.
        greedy: Factor on the spread of the drawn curves before the first start: early on the spread is an assumption,
            not a lesson.
        explore: The same after many starts.
        ramp: Starts until the one has become the other.
        enough: Where nothing is expected to gain more than this, the model is doubted once: the spread is doubled.
        rungs: Rungs of one start that the surrogate reads at most.
        hyper: Priors of the surrogate's amplitudes.
    """

    draws: int = 16
    target: float = 0.5
    cost: float = 0.0
    greedy: float = 0.25
    explore: float = 0.6
    ramp: int = 12
    enough: float = 0.02
    rungs: int = 5
    hyper: Hyper = field(default_factory=Hyper)


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
    """Chooses starts among candidates for a goal; every answer depends on the history and the seed alone.

    Attributes:
        candidates: What may be started.
        goal: What is wanted.
    """

    def __init__(self, candidates: Candidates, goal: Goal, seed: int = 0, settings: Settings | None = None) -> None:
        self.candidates, self.goal, self._seed = candidates, goal, seed
        self._settings = settings or Settings()
        self._model = Model(candidates, goal, self._settings.rungs, self._settings.hyper)
        self._ready = starts.expected(candidates.prediction, len(candidates))
        self._lock = Lock()
        self._answer: tuple[object, Choice] | None = None

    def choose(self, history: Sequence[Started], pending: Sequence[int] = (), known: Sequence[int] = ()) -> Choice:
        """Return the next start.

        Args:
            history: What was started, in the order of the starts.
            pending: Candidates that are under way; their expected curves count as reached, so that a batch spreads.
            known: Candidates that must not be started again, though they are not measured: their engine died.
        """
        asked = (*(s.key for s in history), tuple(pending), tuple(sorted(known)))
        with self._lock:
            if self._answer is None or self._answer[0] != asked:
                # The matrices are too small to share between cores, and one core always rounds alike.
                with threadpool_limits(1):
                    self._answer = (asked, self._choose(history, pending, known))
            return self._answer[1]

    def ladder(self, candidate: int, history: Sequence[Started], fits: NDArray[np.bool_]) -> Ladder:
        """Return the ladder of a start.

        Args:
            candidate: What was started.
            history: The starts before it.
            fits: (L,) whether the engine's cache holds a level.
        """
        curves = [start for start in history if start.levels]
        with self._lock, threadpool_limits(1):
            expected = self._model.expected(self._model.beliefs(curves))
            measured = self._model.measured(curves)
            here = self._standing(expected, measured, np.ones(len(self.candidates)))
        levels = np.flatnonzero(self._model.exists[candidate] & fits)
        return Ladder(self.goal, levels.tolist(), expected[candidate], here)

    def _choose(self, history: Sequence[Started], pending: Sequence[int], known: Sequence[int]) -> Choice:
        curves = [start for start in history if start.levels]
        chance = self._chance(history)
        closed = np.zeros(len(self.candidates), dtype=bool)
        closed[[*(start.candidate for start in curves), *pending, *known]] = True
        beliefs = self._model.beliefs(curves)
        s = self._settings
        boldness = s.greedy + (s.explore - s.greedy) * min(len(curves) / s.ramp, 1.0)
        likely = np.where(closed, 0.0, chance)
        rng = np.random.default_rng([self._seed, len(history) + len(pending)])
        gains = self._gains(beliefs, curves, pending, likely, boldness, rng) * likely
        expected = float(gains.max())
        if curves and expected < s.enough:
            # Where the model sees nothing to gain, it is the model that is to be doubted.
            gains = self._gains(beliefs, curves, pending, likely, 2 * boldness, rng) * likely
        worth = np.where(closed, -1.0, gains / self.candidates.gpus**s.cost)
        best = int(np.argmax(worth))
        return Choice(best, expected, float(chance[best]))

    def _chance(self, history: Sequence[Started]) -> Floats:
        tried = np.array([start.candidate for start in history], dtype=np.int64)
        started = np.array([0.0 if start.died else 1.0 for start in history])
        # Of very many starts the latest deaths and the latest successes tell where engines die.
        read = np.sort(np.concatenate([np.flatnonzero(started == came)[-LATEST:] for came in (0.0, 1.0)]))
        chance = starts.chance(self._model.kernel, self._ready, tried[read], started[read])
        for each in set(tried[started == 0].tolist()):
            # Dead for good or by a whim: the odds that all its deaths were whims, by Bayes' rule.
            whims = chance[each] * starts.FLAKES ** int((tried == each).sum())
            chance[each] *= whims / (whims + (1 - chance[each]))
        return chance

    def _gains(
        self,
        beliefs: list[list[Belief]],
        curves: Sequence[Started],
        pending: Sequence[int],
        likely: Floats,
        boldness: float,
        rng: np.random.Generator,
    ) -> Floats:
        expected = self._model.expected(beliefs)
        reached = np.concatenate([self._model.measured(curves), expected[list(pending)]])
        here = self._standing(expected, reached, likely)
        optimistic = expected + OPTIMISM * self._model.spread(beliefs)[:, None, None]
        hopeful = np.where(likely > 0, self._score(optimistic[:, None], here)[:, 0] * likely, -1.0)
        rows = np.argsort(-hopeful, kind="stable")[:CONSIDERED]
        drawn = self._model.draw(beliefs, rows, self._settings.draws, boldness, rng)
        found = np.zeros(len(self.candidates))
        found[rows] = self._score(drawn, here).mean(1)
        return found

    def _standing(self, expected: Floats, reached: Floats, likely: Floats) -> gain.Standing:
        able = expected[likely > UNLIKELY] if (likely > UNLIKELY).any() else expected
        fine = self.goal.holds(able, self.goal.frontier)
        source = able[fine] if fine.any() else able.reshape(-1, able.shape[-1])
        fastest, dearest = (
            float(np.exp(np.nanpercentile(source[:, axis], TOP_PERCENTILE))) for axis in (SPEED, THROUGHPUT)
        )
        return gain.standing(self.goal, reached, fastest, dearest)

    def _score(self, logs: Floats, here: gain.Standing) -> Floats:
        """Return the share by which curves (rows, draws, L, m) would raise the target and the frontier."""
        share = self._settings.target
        higher = np.maximum(gain.heights(self.goal, logs, here.speeds) - here.heights, 0).sum(-1)
        frontier = higher / (here.area or here.scale[THROUGHPUT] * gain.GRID)
        worth = gain.values(self.goal, logs, here.scale)
        target = np.maximum(worth - here.best, 0) / (here.best or 1.0)
        return np.asarray(share * target + (1 - share) * frontier, dtype=np.float64)
