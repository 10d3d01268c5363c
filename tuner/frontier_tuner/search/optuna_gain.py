"""What a candidate is expected to add to a study of any objectives: one exactly, two exactly, more by directions.

All objectives are minimised here. What is believed of one at one load is a mixture of normal distributions; objectives
are independent given the candidate. With two objectives the space below the reference falls into strips, in each of
which the gain is a product of two one-dimensional expectations. Otherwise the hypervolume is the mean, over directions
from the reference point, of the power of the reach in that direction (Zhang & Golovin, Random hypervolume
scalarizations for provable multi-objective black box optimization, ICML 2020, lemma 5), and the reach's distribution
is a product of normal distribution functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from frontier_tuner.predict import Floats

DIRECTIONS = 24
STEPS = 24
"""Places at which a reach is integrated."""
SHORT = 1000
"""Candidates for which a gain over directions is integrated; the others are hopeless even if all turns out well."""
SCALAR, PLANAR = 1, 2
TINY = 1e-9


@dataclass(frozen=True)
class Mixture:
    """What is believed of one metric.

    Attributes:
        weights: (h,) posterior weights of the hypotheses.
        mean: (h, n, L) expected values of n candidates at L loads.
        deviation: (h, n, L) standard deviations.
    """

    weights: Floats
    mean: Floats
    deviation: Floats

    @property
    def middle(self) -> Floats:
        """The (n, L) expected values."""
        return np.asarray(np.tensordot(self.weights, self.mean, 1))

    @property
    def spread(self) -> Floats:
        """The (n, L) standard deviations over all hypotheses."""
        second = np.tensordot(self.weights, self.deviation**2 + self.mean**2, 1)
        return np.asarray(np.sqrt(np.maximum(second - self.middle**2, TINY**2)))

    def below(self, edge: Floats | float) -> Floats:
        """Return the (n, L, …) probabilities of being at or below one or several (…) edges."""
        edges = np.asarray(edge)
        pad = (..., *[None] * edges.ndim)
        parts = (edges - self.mean[pad]) / np.maximum(self.deviation[pad], TINY)
        return np.asarray(np.tensordot(self.weights, ndtr(parts), 1))

    def shortfall(self, edges: Floats) -> Floats:
        """Return the (n, L, e) expected distances below (e,) edges, 0 where above; an edge may be minus infinity."""
        known = np.where(np.isfinite(edges), edges, 0.0)
        deviation = np.maximum(self.deviation, TINY)[..., None]
        apart = (known - self.mean[..., None]) / deviation
        density = np.exp(-0.5 * apart**2) / np.sqrt(2 * np.pi)
        expected = np.tensordot(self.weights, deviation * (apart * ndtr(apart) + density), 1)
        return np.where(np.isfinite(edges), expected, 0.0)


def front(points: Floats) -> Floats:
    """Return those of (p, m) points that no other dominates, each once, sorted by the first objective."""
    kept: list[Floats] = []
    for point in np.unique(points, axis=0):
        # In this order nothing that comes later dominates anything that came before.
        if not any((other <= point).all() for other in kept):
            kept.append(point)
    return np.array(kept).reshape(-1, points.shape[1])


def expected_gain(
    beliefs: Sequence[Mixture], fine: Floats, reached: Floats, reference: Floats, rng: np.random.Generator
) -> Floats:
    """Return (n,): the expected growth of what is reached, in its own units; a curve counts with all its loads.

    Args:
        beliefs: One for each of the m objectives.
        fine: (n, L) probabilities that all constraints hold.
        reached: (p, m) feasible points that are known; there may be none.
        reference: (m,) what counts as nothing reached.
        rng: Chooses the directions where there are more than two objectives.
    """
    known = front(reached[(reached < reference).all(1)])
    if fine.shape[1] == 1 and len(beliefs) == SCALAR:
        best = known.min() if len(known) else reference[0]
        return np.asarray((beliefs[0].shortfall(np.array([best]))[..., 0] * fine)[:, 0])
    if fine.shape[1] == 1 and len(beliefs) == PLANAR:
        return np.asarray(_strips(beliefs, known, reference)[:, 0] * fine[:, 0])
    return _reach(beliefs, fine, known, reference, _directions(len(beliefs), rng))


def _strips(beliefs: Sequence[Mixture], known: Floats, reference: Floats) -> Floats:
    left = np.concatenate([[-np.inf], known[:, 0]])
    right = np.concatenate([known[:, 0], reference[:1]])
    top = np.concatenate([reference[1:], known[:, 1]])
    width = beliefs[0].shortfall(right) - beliefs[0].shortfall(left)
    return np.asarray((width * beliefs[1].shortfall(top)).sum(-1))


def _directions(count: int, rng: np.random.Generator) -> Floats:
    """Return (d, m) directions with positive components and length 1."""
    if count == SCALAR:
        return np.ones((1, 1))
    if count == PLANAR:
        angle = (np.arange(DIRECTIONS) + 0.5) / DIRECTIONS * np.pi / 2
        return np.stack([np.cos(angle), np.sin(angle)], -1)
    drawn = np.abs(rng.standard_normal((DIRECTIONS, count))) + TINY
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def _reach(beliefs: Sequence[Mixture], fine: Floats, known: Floats, reference: Floats, directions: Floats) -> Floats:
    power = len(beliefs)
    # The loads of one start rise and fall together, so the probability that any reaches is that of the best.
    hope = np.stack([belief.middle - belief.spread for belief in beliefs], -1)
    best = np.zeros(len(directions))
    if len(known):
        best = ((reference - known)[:, None] / directions).min(-1).max(0)
    far = np.stack([((reference - hope) / direction).min(-1).max(-1) for direction in directions], -1)
    promise = (np.maximum(far, 0) ** power - best**power).clip(0).mean(-1) * fine.max(-1)
    rows = np.argsort(-promise, kind="stable")[:SHORT]
    part = [Mixture(b.weights, b.mean[:, rows], b.deviation[:, rows]) for b in beliefs]
    gain = np.zeros(len(rows))
    for direction, least, most in zip(directions, best, far[rows].max(0), strict=True):
        width = max(1.5 * (most - least), TINY) / STEPS
        places = least + width * (np.arange(STEPS) + 0.5)
        chance = np.broadcast_to(fine[rows][..., None], (*fine[rows].shape, STEPS)).copy()
        for belief, edge, along in zip(part, reference, direction, strict=True):
            chance *= belief.below(edge - along * places)
        gain += (chance.max(1) * power * places ** (power - 1)).sum(-1) * width
    out = np.zeros(len(fine))
    out[rows] = gain / len(directions)
    return out
