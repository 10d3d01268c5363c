"""The designs and samplers that a study proposes with.

Two parts: a balanced opening that shows every value of every parameter early, because most effects add up in log
space, and an Optuna sampler that learns from there. Every random choice comes from a seed.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler

from frontier_tuner.configuration import Configuration
from frontier_tuner.search.sampler import FrontierSampler
from frontier_tuner.space import SearchSpace

FRONTIER = "Frontier"
"""The project's own search on whole curves, which is no sampler of Optuna's."""


def _tpe(seed: int) -> BaseSampler:
    # The opening is the study's own, so the sampler has none. Multivariate sampling is off by default for several
    # objectives, though the parameters interact.
    return TPESampler(seed=seed, multivariate=True, n_startup_trials=0, constant_liar=True)


def _random(seed: int) -> BaseSampler:
    return RandomSampler(seed=seed)


def _gp(seed: int) -> BaseSampler:
    return GPSampler(seed=seed, n_startup_trials=0, warn_independent_sampling=False)


def _nsgaii(seed: int) -> BaseSampler:
    return NSGAIISampler(seed=seed, population_size=POPULATION)


def _frontier(seed: int) -> BaseSampler:
    return FrontierSampler(seed=seed, n_startup_trials=0)


SAMPLERS: Mapping[str, Callable[[int], BaseSampler]] = {
    "TPE": _tpe,
    "Random": _random,
    "GP": _gp,
    "NSGAII": _nsgaii,
    "FrontierSampler": _frontier,
}
"""The samplers that a study can be given by name; `FrontierSampler` sees of each trial what Optuna's are told."""
POPULATION = 16
"""Trials of a generation: as few as still make one, because trials are dear."""


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
    space: SearchSpace, tried: Sequence[Configuration], free: Sequence[Configuration], seed: int
) -> Configuration:
    """Return the free configuration whose values were tried least.

    A value counts the more the less often it was tried; the seed decides between equals.

    Args:
        space: The space.
        tried: What was tried or is under way.
        free: What may be proposed; not empty.
        seed: Decides ties.
    """
    counts: dict[tuple[str, object], int] = {}
    for configuration in tried:
        for item in configuration.items_:
            counts[item] = counts.get(item, 0) + 1
    names = [parameter.name for parameter in space.parameters if len(parameter.values) > 1]
    ties = np.random.default_rng(seed).random(len(free))

    def novelty(index: int) -> tuple[float, float]:
        configuration = free[index]
        present = [(name, configuration[name]) for name in names if name in configuration]
        return sum(1 / (1 + counts.get(item, 0)) for item in present), ties[index]

    return free[max(range(len(free)), key=novelty)]
