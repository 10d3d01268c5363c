"""Fits the logarithms of a few positive constants to log ratios: damped Gauss-Newton on a robust loss."""

from collections.abc import Callable

import numpy as np

HUBER = 0.25
"""Log ratio from which on a residual counts linearly."""
STEP = 0.02
PRIOR = 1.0
"""Log standard deviation of what is believed about a constant before."""


def fit(
    residuals_of: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    *,
    weight: float = 1.0,
    iterations: int = 12,
    report: Callable[[int, float], None] = lambda _iteration, _loss: None,
) -> np.ndarray:
    """Return the logarithms that make the residuals small without going far from the start.

    Args:
        residuals_of: Residuals for given logarithms.
        start: Where to start, and what to stay near.
        weight: How much one residual counts against the prior.
        iterations: Most Gauss-Newton steps.
        report: Told the loss after each.
    """

    def loss_of(residuals: np.ndarray, at: np.ndarray) -> float:
        size = np.abs(residuals)
        robust = np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2))
        return float(weight * robust.sum() + np.sum((at - start) ** 2) / (2 * PRIOR**2))

    at, damping = start.copy(), 1.0
    residuals = residuals_of(at)
    loss = loss_of(residuals, at)
    for iteration in range(iterations):
        jacobian = np.empty((len(residuals), len(at)))
        for column in range(len(at)):
            moved = at.copy()
            moved[column] += STEP
            jacobian[:, column] = (residuals_of(moved) - residuals) / STEP
        weights = weight * np.minimum(1.0, HUBER / np.maximum(np.abs(residuals), 1e-12))
        normal = jacobian.T @ (weights[:, None] * jacobian) + np.eye(len(at)) / PRIOR**2
        gradient = jacobian.T @ (weights * residuals) + (at - start) / PRIOR**2
        before = loss
        for _ in range(6):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), -gradient)
            step = np.clip(step, -0.7, 0.7)
            tried = residuals_of(at + step)
            if loss_of(tried, at + step) < loss:
                at, residuals = at + step, tried
                loss = loss_of(residuals, at)
                damping = max(damping / 4, 1e-3)
                break
            damping *= 4
        report(iteration, loss)
        if before - loss < 1e-4 * before:
            break
    return at
