"""The Optuna sampler against chance, on a mixed space whose truth is mostly a product of factors."""

import itertools
import math
from functools import cache

import numpy as np
import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from frontier_tuner.search.sampler import FrontierSampler

pytestmark = pytest.mark.simulation

SEEDS = range(5)
MOST = 300
SPACE = {
    "batch": IntDistribution(1, 1024, log=True),
    "chunk": IntDistribution(512, 16384, step=512),
    "depth": IntDistribution(0, 5),
    "fill": FloatDistribution(0.5, 0.95),
    "graph": CategoricalDistribution([True, False]),
    "kernel": CategoricalDistribution(["triton", "flash", "flashinfer"]),
    "tp": CategoricalDistribution([1, 2, 4, 8]),
}
KERNEL = {"triton": 0.0, "flash": 0.15, "flashinfer": 0.2}
GRAPH = {True: 0.2, False: 0.0}


def speed(batch, chunk, depth, fill, graph, kernel, tp):
    """Return a throughput: effects of single knobs, and two that only hold together."""
    log = KERNEL[kernel] + GRAPH[graph] - 0.12 * (math.log2(tp) - 1) ** 2
    log += -0.02 * (math.log2(batch) - 7) ** 2 - 0.06 * (math.log2(chunk) - 12) ** 2 - 4 * (fill - 0.88) ** 2
    log += 0.08 * depth - 0.025 * depth**2
    log += (0.2 if kernel == "flashinfer" and tp == 4 else 0.0) - 0.01 * depth * (math.log2(batch) - 5)
    return 1000 * math.exp(log)


@cache
def best():
    batches = sorted({round(2 ** (e / 8)) for e in range(81)})
    grid = itertools.product(
        batches, range(512, 16385, 512), range(6), [0.88], GRAPH, KERNEL, SPACE["tp"].choices
    )  # fmt: skip
    return max(speed(*point) for point in grid)


def needed(sampler):
    """Return how many trials it takes to come within 5 % of the best."""
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for count in range(1, MOST + 1):
        trial = study.ask(SPACE)
        value = speed(**trial.params)
        study.tell(trial, value)
        if value >= 0.95 * best():
            return count
    return MOST


def test_it_needs_a_fraction_of_the_trials_that_chance_needs():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    ours = [needed(FrontierSampler(seed=seed, search_space=SPACE)) for seed in SEEDS]
    chance = [needed(optuna.samplers.RandomSampler(seed=seed)) for seed in SEEDS]

    assert np.mean(ours) <= np.mean(chance) / 3, (ours, chance)
