"""What the measured curves say about the curves of all candidates: a Gaussian process on the residual of a prior.

A curve is the logarithm of a metric over the logarithm of the load. Its distance from the prior's curve has a level, a
slope and a bend, each a Gaussian process over the knobs (`kernel`) with the same similarities. Every start has an
effect of its own, every rung a noise. The amplitudes are the most probable ones under weak priors of their own; how far
the prior can be trusted is not guessed but averaged over, by how well each degree of trust predicts what was measured
(Rasmussen & Williams, Gaussian Processes for Machine Learning, 2006, sections 2.7, 5.2 and 5.4.1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from frontier_tuner.predict import Floats
from frontier_tuner.search.candidates import Integers
from frontier_tuner.search.kernel import KnobKernel

BASES = 3
"""Level, slope and bend of a curve."""
OFFSET = np.array([0.8, 0.6, 0.3])
"""Standard deviation of what all curves have in common against the base: level, slope, bend."""
LEAST_WEIGHT = 0.02
"""Hypotheses with less than this weight are left out."""
TRUSTS = (1.0, 0.5, 0.0)
PRIOR_TRUST = {1.0: 0.6, 0.5: 0.2, 0.0: 0.2}
"""How probable each degree of trust in the prior is before anything is measured."""
BOUNDS = 3.0
"""Spreads from the middle to which amplitudes are kept: beyond, the likelihood is flat and matrices degenerate."""


@dataclass(frozen=True)
class Hyper:
    """Weak priors of the amplitudes: (middle, spread of the logarithm) of a standard deviation.

    Attributes:
        alone: What one knob does.
        joint: What the knobs of a group do together.
        pair: What two groups do together.
        shape: What all that decides the shapes and formats of matrices does together.
        everything: What only all knobs together do.
        slope: The slope of a curve against its level.
        bend: The bend of a curve against its level.
        start: Luck of a start.
        rung: Noise of a rung.
        distrust: Factor on the amplitudes without any trust in the prior: then the knobs must carry everything.
        steps: Steps of the maximisation.
    """

    alone: tuple[float, float] = (0.10, 0.9)
    joint: tuple[float, float] = (0.08, 0.7)
    pair: tuple[float, float] = (0.08, 0.7)
    shape: tuple[float, float] = (0.12, 0.5)
    everything: tuple[float, float] = (0.08, 0.7)
    slope: tuple[float, float] = (0.5, 0.5)
    bend: tuple[float, float] = (0.2, 0.5)
    start: tuple[float, float] = (0.04, 0.3)
    rung: tuple[float, float] = (0.03, 0.6)
    distrust: float = 3.0
    steps: int = 25


@dataclass(frozen=True)
class Curves:
    """What was measured, one entry for each rung.

    Attributes:
        start: (r,) number of the start, from 0 without gaps.
        candidate: (t,) position of the candidate of each start.
        level: (r,) position of the load.
        values: (r, m) logarithms of the m metrics.
    """

    start: Integers
    candidate: Integers
    level: Integers
    values: Floats


@dataclass(frozen=True)
class Belief:
    """What is believed of one metric under one hypothesis, for all n candidates.

    Attributes:
        weight: Posterior weight of the hypothesis.
        trust: Its share of the prior in the base.
        mean: (n, 3) expected level, slope and bend.
        covariance: (n, 3, 3) of the same.
    """

    weight: float
    trust: float
    mean: Floats
    covariance: Floats


class Surrogate:
    """Learns metrics over candidates and loads.

    Args:
        kernel: Similarity of the candidates.
        count: How many candidates there are.
        load: (n, L) logarithm of the load, scaled to about -1 … 1.
        prior: (n, L, m) logarithms of the predicted metrics; None where there is no prior.
        trend: (n, L, m) what is assumed without it.
        hyper: Priors of the amplitudes.
    """

    def __init__(
        self, kernel: KnobKernel, count: int, load: Floats, prior: Floats | None, trend: Floats, hyper: Hyper
    ) -> None:
        self._kernel, self._count = kernel, count
        self._prior, self._trend, self._hyper = prior, trend, hyper
        self._powers = np.stack([np.ones_like(load), load, (3 * load**2 - 1) / 2], -1)
        h, joint = hyper, len(kernel.terms) - len((hyper.pair, hyper.shape, hyper.everything)) - kernel.alone
        table = (
            [h.alone] * kernel.alone
            + [h.joint] * joint
            + [h.pair, h.shape, h.everything, h.slope, h.bend, h.start, h.rung]
        )
        self._middle = np.log([m for m, _ in table])
        self._width = np.array([s for _, s in table])

    def base(self, trust: float) -> Floats:
        """Return (n, L, m): the curves that residuals are measured against."""
        if self._prior is None:
            return self._trend
        return trust * self._prior + (1 - trust) * self._trend

    def curve(self, belief: Belief, metric: int, coefficients: Floats, rows: Integers) -> Floats:
        """Return (rows, draws, L): logarithms of a metric for (rows, draws, 3) coefficients."""
        base = self.base(belief.trust)[rows, :, metric]
        moved = np.einsum("rdb,rlb->rdl", coefficients, self._powers[rows])
        return np.asarray(base[:, None] + moved, dtype=np.float64)

    def learn(self, curves: Curves) -> list[list[Belief]]:
        """Return for each metric the beliefs under the degrees of trust that have weight."""
        tried = curves.candidate
        among = self._kernel.between(tried, tried)
        across = self._kernel.between(np.arange(self._count), tried)
        beliefs: list[list[Belief]] = []
        for metrics in self._alike(curves.values.shape[1]):
            beliefs.extend(self._metrics(_known(curves, metrics), metrics, among, across))
        return beliefs

    def _alike(self, count: int) -> list[list[int]]:
        # The axes are two views of one step time: their amplitudes are learnt together.
        return [[0, 1], *([metric] for metric in range(2, count))]

    def _metrics(self, curves: Curves, metrics: list[int], among: Floats, across: Floats) -> list[list[Belief]]:
        owner = curves.candidate[curves.start]
        powers = self._powers[owner, curves.level]
        trusts = TRUSTS if self._prior is not None else (0.0,)
        fits = []
        terms = among.shape[0]
        for trust in trusts:
            residual = curves.values[:, metrics] - self.base(trust)[owner, curves.level][:, metrics]
            middle = self._middle.copy()
            middle[:terms] += np.log(1 + (self._hyper.distrust - 1) * (1 - trust))
            answer = minimize(
                self._loss,
                middle,
                args=(residual, among, powers, curves.start, middle),
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(middle - BOUNDS * self._width, middle + BOUNDS * self._width, strict=True)),
                options={"maxiter": self._hyper.steps},
            )
            fits.append((-float(answer.fun) + float(np.log(PRIOR_TRUST[trust])), trust, answer.x, residual))
        top = max(fit[0] for fit in fits)
        weights = np.exp([fit[0] - top for fit in fits])
        weights /= weights.sum()
        return [
            [
                self._belief(float(weight), trust, theta, residual[:, column], curves.start, powers, among, across)
                for weight, (_, trust, theta, residual) in zip(weights, fits, strict=True)
                if weight > LEAST_WEIGHT
            ]
            for column in range(len(metrics))
        ]

    def _unpack(self, theta: Floats, terms: int) -> tuple[Floats, Floats, float, float]:
        values = np.exp(2 * theta)
        return values[:terms], np.array([1.0, values[terms], values[terms + 1]]), values[terms + 2], values[terms + 3]

    def _loss(
        self, theta: Floats, residual: Floats, among: Floats, powers: Floats, start: Integers, middle: Floats
    ) -> tuple[float, Floats]:
        """Return the negative log posterior of the amplitudes and its gradient."""
        terms = among.shape[0]
        amplitude, bases, whole, each = self._unpack(theta, terms)
        similar = np.tensordot(amplitude, among, 1)[np.ix_(start, start)]
        same = start[:, None] == start[None]
        loads = (powers * bases) @ powers.T
        covariance = _covariance(similar * loads, powers, same, whole, each)
        lower = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(covariance)
        pull = inverse @ residual
        count = residual.shape[1]
        apart = (theta - middle) / self._width
        loss = 0.5 * float((residual * pull).sum()) + count * float(np.log(np.diag(lower)).sum())
        loss += 0.5 * float(apart @ apart)
        push = count * inverse - pull @ pull.T
        # Sums over the rungs of each pair of starts, so that a term costs starts² and not rungs².
        member = (np.arange(among.shape[1])[:, None] == start[None]).astype(float)
        block = member @ (push * loads) @ member.T
        gradient = np.empty_like(theta)
        gradient[:terms] = amplitude * np.tensordot(among, block, 2)
        for place, basis in ((terms, 1), (terms + 1, 2)):
            gradient[place] = bases[basis] * float(
                (push * similar * np.outer(powers[:, basis], powers[:, basis])).sum()
            )
        gradient[terms + 2] = whole * float(push[same].sum())
        gradient[terms + 3] = each * float(np.trace(push))
        return loss, gradient + apart / self._width

    def _belief(
        self,
        weight: float,
        trust: float,
        theta: Floats,
        residual: Floats,
        start: Integers,
        powers: Floats,
        among: Floats,
        across: Floats,
    ) -> Belief:
        terms = among.shape[0]
        amplitude, own, whole, each = self._unpack(theta, terms)
        similar = np.tensordot(amplitude, among, 1)[np.ix_(start, start)]
        same = start[:, None] == start[None]
        lower = np.linalg.cholesky(_covariance(similar * ((powers * own) @ powers.T), powers, same, whole, each))
        starts = among.shape[1]
        similar = np.tensordot(amplitude, across, 1)
        # One column for each start and base: where a rung's weight goes.
        spread = np.zeros((len(start), starts, BASES))
        spread[np.arange(len(start)), start] = powers
        flat = np.linalg.solve(lower, spread.reshape(len(start), starts * BASES))
        pull = (flat.T @ np.linalg.solve(lower, residual)).reshape(starts, BASES)
        inner = (flat.T @ flat).reshape(starts, BASES, starts, BASES)
        shared = OFFSET**2
        mean = similar @ pull * own + shared * pull.sum(0)
        out = np.zeros((len(similar), BASES, BASES))
        for i in range(BASES):
            for j in range(i, BASES):
                block = inner[:, i, :, j]
                taken = (
                    own[i] * own[j] * ((similar @ block) * similar).sum(1)
                    + own[i] * shared[j] * (similar @ block.sum(1))
                    + shared[i] * own[j] * (similar @ block.sum(0))
                    + shared[i] * shared[j] * float(block.sum())
                )
                before = (own[i] * float(amplitude.sum()) + shared[i]) if i == j else 0.0
                out[:, i, j] = out[:, j, i] = before - taken
        return Belief(weight, trust, mean, out)


def _covariance(knobs: Floats, powers: Floats, same: NDArray[np.bool_], whole: float, each: float) -> Floats:
    """Return (r, r): how rungs vary together, by what is common, by their knobs, by their start and by themselves."""
    common = (powers * OFFSET**2) @ powers.T
    return np.asarray(common + knobs + whole * same + each * np.eye(len(same)), dtype=np.float64)


def _known(curves: Curves, metrics: list[int]) -> Curves:
    """Return the rungs that know all these metrics."""
    whole = np.isfinite(curves.values[:, metrics]).all(1)
    return Curves(curves.start[whole], curves.candidate, curves.level[whole], curves.values[whole])


def stack(curves: Sequence[tuple[int, Sequence[int], Floats]]) -> Curves:
    """Return the curves of starts, each a candidate, its levels and their (levels, m) logarithms."""
    return Curves(
        start=np.concatenate([np.full(len(levels), t) for t, (_, levels, _) in enumerate(curves)]).astype(np.int64),
        candidate=np.array([candidate for candidate, _, _ in curves], dtype=np.int64),
        level=np.concatenate([np.asarray(levels) for _, levels, _ in curves]).astype(np.int64),
        values=np.concatenate([values for _, _, values in curves]),
    )
