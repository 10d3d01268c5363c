"""The designs and samplers that a study proposes with.

Two parts: a balanced opening that shows every value of every parameter early, because most effects add up in log
space, and an Optuna sampler that learns from there. Every random choice comes from a seed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import optuna
from optuna.samplers import BaseSampler, RandomSampler, TPESampler

from frontier_tuner.configuration import Configuration
from frontier_tuner.space import SearchSpace

Prior = Callable[[Configuration], float]
"""A score that orders configurations, higher is better; it is never taken for a result."""


NEAR_BEST = 0.05
"""How far below the prior's best score a configuration still counts as promising."""


def _tpe(seed: int) -> BaseSampler:
    # The opening is the study's own, so the sampler has none. Multivariate sampling is off by default for several
    # objectives, though the parameters interact.
    return TPESampler(seed=seed, multivariate=True, n_startup_trials=0, constant_liar=True)


def _random(seed: int) -> BaseSampler:
    return RandomSampler(seed=seed)


SAMPLERS: Mapping[str, Callable[[int], BaseSampler]] = {"TPE": _tpe, "Random": _random}


def create_sampler(name: str, seed: int) -> BaseSampler:
    """Return a sampler by name, seeded.

    Raises:
        ValueError: The name is unknown; the message lists those that are.
    """
    if name not in SAMPLERS:
        raise ValueError(f"sampler {name!r} is unknown; known are {', '.join(SAMPLERS)}")
    # Every proposal rebuilds its study; a log line for each would tell nobody anything.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return SAMPLERS[name](seed)


def spread(
    space: SearchSpace, tried: Sequence[Configuration], free: Sequence[Configuration], seed: int, prior: Prior | None
) -> Configuration:
    """Return the free configuration whose values were tried least.

    A value counts the more the less often it was tried; the seed decides between equals. With a prior only those take
    part that it holds for nearly the best among the ones that are unlike everything tried.

    Args:
        space: The space.
        tried: What was tried or is under way.
        free: What may be proposed; not empty.
        seed: Decides ties.
        prior: Orders the free configurations, or None.
    """
    eligible = list(free) if prior is None else _promising(space, tried, free, prior)
    counts: dict[tuple[str, object], int] = {}
    for configuration in tried:
        for item in configuration.items_:
            counts[item] = counts.get(item, 0) + 1
    names = [parameter.name for parameter in space.parameters if len(parameter.values) > 1]
    ties = np.random.default_rng(seed).random(len(eligible))

    def novelty(index: int) -> tuple[float, float]:
        configuration = eligible[index]
        present = [(name, configuration[name]) for name in names if name in configuration]
        return sum(1 / (1 + counts.get(item, 0)) for item in present), ties[index]

    return eligible[max(range(len(eligible)), key=novelty)]


def _promising(
    space: SearchSpace, tried: Sequence[Configuration], free: Sequence[Configuration], prior: Prior
) -> list[Configuration]:
    """Return the free configurations near the prior's best, of those unlike all tried in half their values."""
    unlike = sum(len(parameter.values) > 1 for parameter in space.parameters) // 2

    def new(configuration: Configuration) -> bool:
        return all(sum(other.get(k) != v for k, v in configuration.items()) >= unlike for other in tried)

    eligible = [configuration for configuration in free if new(configuration)] or list(free)
    scores = [prior(configuration) for configuration in eligible]
    bar = max(scores) - abs(max(scores)) * NEAR_BEST
    return [configuration for configuration, score in zip(eligible, scores, strict=True) if score >= bar]
