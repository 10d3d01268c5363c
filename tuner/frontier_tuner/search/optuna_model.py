"""From lessons to the worth of candidates: a surrogate for each metric, and what is expected to be gained."""

from collections.abc import Sequence

import numpy as np

from frontier_tuner.predict import Floats
from frontier_tuner.search import optuna_told as told
from frontier_tuner.search.candidates import Candidates, Integers
from frontier_tuner.search.kernel import KnobKernel
from frontier_tuner.search.optuna_gain import Mixture, expected_gain
from frontier_tuner.search.surrogate import BASES, Belief, Curves, Hyper, Surrogate

MARGIN = 0.1
"""How much worse than the worst result the reference point is, as a share of the range of results."""


class _Metrics(Surrogate):
    """Learns each metric by itself: the objectives of a general study need not be views of one thing."""

    def _alike(self, count: int) -> list[list[int]]:
        return [[metric] for metric in range(count)]


def gains(
    candidates: Candidates,
    lessons: Sequence[told.Lesson],
    pending: int,
    scales: Sequence[told.Scale],
    prior: Floats,
    seed: Sequence[int],
) -> Floats:
    """Return (n,): the expected gain of each candidate, times the probability that all constraints hold.

    Args:
        candidates: n candidates; the first are those of the lessons, then those of the trials under way.
        lessons: What was told; at least one.
        pending: How many trials are under way.
        scales: One for each objective.
        prior: (n, objectives) predicted on these scales; (n, 0) without a prior.
        seed: Chooses directions where there are more than two objectives.
    """
    count = len(candidates.levels)
    levels = told.loads(lessons)
    places = np.log(levels) - np.log(levels[0])
    load = np.tile(2 * places / places[-1] - 1 if len(levels) > 1 else places, (count, 1))
    kernel = KnobKernel(candidates)
    under_way: Integers = len(lessons) + np.arange(pending, dtype=np.int64)
    objectives, limits = told.tables(lessons, levels, scales)
    fine = np.ones(load.shape)
    for table in limits:
        for belief in _learn(kernel, load, table, under_way, prior[:, :0]):
            fine *= belief.below(0.0)
    if not len(objectives.owner):
        return np.asarray(fine.max(1))
    beliefs = _learn(kernel, load, objectives, under_way, prior)
    worst = objectives.values.max(0)
    reference = worst + MARGIN * np.maximum(worst - objectives.values.min(0), told.UNIT)
    reached = objectives.values[objectives.feasible]
    return expected_gain(beliefs, fine, reached, reference, np.random.default_rng(seed))


def _learn(kernel: KnobKernel, load: Floats, table: told.Table, under_way: Integers, prior: Floats) -> list[Mixture]:
    """Return what is believed of each metric of a table; trials under way are taken for middling ones."""
    shape = (*load.shape, table.values.shape[1])
    surrogate = _Metrics(
        kernel,
        len(load),
        load,
        np.broadcast_to(prior[:, None], shape) if prior.shape[1] else None,
        np.zeros(shape),
        Hyper(),
    )
    places, start = np.unique(table.owner, return_inverse=True)
    waiting = len(under_way)
    middling = np.tile(np.median(table.values, 0), (waiting, 1))
    curves = Curves(
        start=np.concatenate([start, len(places) + np.arange(waiting)]),
        candidate=np.concatenate([places, under_way]),
        level=np.concatenate([table.level, np.full(waiting, load.shape[1] // 2)]),
        values=np.concatenate([table.values, middling]),
    )
    learnt = surrogate.learn(curves)
    return [_mixture(surrogate, beliefs, metric, load) for metric, beliefs in enumerate(learnt)]


def _mixture(surrogate: Surrogate, beliefs: Sequence[Belief], metric: int, load: Floats) -> Mixture:
    every = np.arange(len(load))
    total = sum(belief.weight for belief in beliefs)
    means, deviations = [], []
    for belief in beliefs:
        means.append(surrogate.curve(belief, metric, belief.mean[:, None], every)[:, 0])
        # A curve is linear in its coefficients, so unit coefficients show how their covariance spreads over the loads.
        flat = surrogate.curve(belief, metric, np.zeros((1, 1, BASES)), every[:1])
        basis = (surrogate.curve(belief, metric, np.eye(BASES)[None], every[:1]) - flat)[0]
        variance = np.einsum("bl,nbc,cl->nl", basis, belief.covariance, basis, optimize=True)
        deviations.append(np.sqrt(np.maximum(variance, 0)))
    weights = np.array([belief.weight / total for belief in beliefs])
    return Mixture(weights, np.stack(means), np.stack(deviations))
