"""The probability that an engine starts, learnt from those that did and those that did not.

A logistic Gaussian process over the knobs, whose mean is what the prior says about memory; fitted with Laplace's
approximation (Rasmussen & Williams, 2006, algorithm 3.1). One start in `FLAKES` fails for no reason of its own, so a
single failure against a sure prediction condemns nothing.
"""

import numpy as np

from frontier_tuner.predict import Floats, Prediction
from frontier_tuner.search.candidates import Integers
from frontier_tuner.search.kernel import KnobKernel

FLAKES = 0.03
AMPLITUDE = 0.8
OFFSET = 1.5
"""Standard deviation of what all candidates have in common: how far the prior's memory is off for all of them."""
MARGIN = 0.08
"""A prediction of memory is trusted to about this share of the capacity."""
SURE = 3.5
"""Log-odds beyond which a prediction is not believed."""
ROUNDS = 30
SETTLED = 1e-6
"""Change of the log-odds below which the fit ends."""


def expected(prediction: Prediction | None, count: int) -> Floats:
    """Return (n,): log-odds that a candidate starts, before anything is tried."""
    if prediction is None:
        return np.full(count, 2.0)
    with np.errstate(invalid="ignore"):
        room = 1 - prediction.start_memory / prediction.capacity
    return np.where(np.isfinite(room), np.clip(room / MARGIN, -SURE, SURE), 2.0)


def chance(kernel: KnobKernel, mean: Floats, tried: Integers, started: Floats) -> Floats:
    """Return (n,): the probability that a start of each candidate succeeds.

    Args:
        kernel: Similarity of the candidates.
        mean: (n,) log-odds of the prior.
        tried: Candidates that were started.
        started: 1 where the start succeeded, 0 where it failed.
    """
    if not len(tried):
        return np.asarray((1 - FLAKES) / (1 + np.exp(-mean)), dtype=np.float64)
    weights = np.full(len(kernel.terms), AMPLITUDE**2)
    covariance = np.tensordot(weights, kernel.between(tried, tried), 1) + OFFSET**2 + 1e-6 * np.eye(len(tried))
    latent = mean[tried].copy()
    slope = np.zeros(len(tried))
    for _ in range(ROUNDS):
        slope, curvature = _likelihood(latent, started)
        root = np.sqrt(curvature)
        inner = np.eye(len(tried)) + root[:, None] * covariance * root[None]
        target = curvature * (latent - mean[tried]) + slope
        step = target - root * np.linalg.solve(inner, root * (covariance @ target))
        moved = mean[tried] + covariance @ step
        if np.abs(moved - latent).max() < SETTLED:
            break
        # Half steps: the likelihood with flakes is not log-concave.
        latent = latent + 0.5 * (moved - latent)
    slope, curvature = _likelihood(latent, started)
    root = np.sqrt(curvature)
    inner = np.eye(len(tried)) + root[:, None] * covariance * root[None]
    across = np.tensordot(weights, kernel.between(np.arange(len(mean)), tried), 1) + OFFSET**2
    centre = mean + across @ slope
    half = np.linalg.solve(np.linalg.cholesky(inner), root[:, None] * across.T)
    spread = np.maximum(float(weights.sum()) + OFFSET**2 - (half**2).sum(0), 0)
    # The logistic function averaged over a normal distribution (MacKay, 1992).
    return np.asarray((1 - FLAKES) / (1 + np.exp(-centre / np.sqrt(1 + np.pi * spread / 8))))


def _likelihood(latent: Floats, started: Floats) -> tuple[Floats, Floats]:
    """Return the first derivative of the log-likelihood and a positive curvature (Fisher's information)."""
    sure = 1 / (1 + np.exp(-np.clip(latent, -30, 30)))
    succeed = (1 - FLAKES) * sure
    change = (1 - FLAKES) * sure * (1 - sure)
    slope = np.where(started > 0, change / succeed, -change / (1 - succeed))
    return slope, np.maximum(change**2 / (succeed * (1 - succeed)), 1e-6)
