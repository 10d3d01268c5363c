"""Whole studies on the simulated plant: they reach the target, and they resume from any prefix of their journal."""

from dataclasses import replace
from functools import cache

import pytest

from frontier_tuner.engines.vllm import build_space
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.frontier import hypervolume, points
from frontier_tuner.ladder import levels
from frontier_tuner.objectives import SLO, Objectives, Target
from frontier_tuner.predict.deployment import deployment_of_engine
from frontier_tuner.predict.roofline import Roofline, Traffic
from frontier_tuner.selection import select
from frontier_tuner.simulate import Plant, run_study
from frontier_tuner.space import Restriction
from frontier_tuner.stopping import Budget, Stability

pytestmark = pytest.mark.simulation

MODEL, GPU = model_facts("meta-llama/Llama-3.1-8B"), gpu_facts("NVIDIA-L40S")
OBJECTIVES = Objectives(
    (SLO("ttft", "TTFT", 95, maximum=2.0), SLO("speed", "UserTokensPerSecond", 5, minimum=20.0)),
)
LADDER = levels("Concurrency", 1, 256, 6)
PINNED = [Restriction("maxNumBatchedTokens", value=8192), Restriction("pipelineParallelSize", value=1)]
SPACE = build_space(MODEL, GPU, 4, ["bf16"], 4, PINNED, max_model_len=8192)
SEEDS = range(5)
PRIOR = Roofline(MODEL, GPU, Traffic(1000, 250), deployment_of_engine)
AT_SPEED = Target("AtUserSpeed", user_tokens_per_second=60.0)


def plant(seed):
    return Plant(MODEL, GPU, quirk=0.03, seed=seed)


@cache
def truth(seed):
    exact = replace(plant(seed), noise=0.0)
    configurations = SPACE.configurations()
    return points([exact.run(c, LADDER, OBJECTIVES, n) for n, c in enumerate(configurations)], OBJECTIVES)


def run(seed, target=AT_SPEED, journal=(), trials=16):
    return run_study(
        plant(seed), SPACE, LADDER, objectives=OBJECTIVES, target=target, budget=Budget(trials), seed=seed,
        journal=journal, stability=Stability(minimum=trials), prior=PRIOR,
    )  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("target", "worth"),
    [
        (AT_SPEED, lambda point: point.throughput),
        (Target("MinLatency"), lambda point: point.speed),
    ],
)
def test_a_study_comes_within_a_tenth_of_the_best_at_its_target(seed, target, worth):
    records, _ = run(seed, target)
    assert len(records) <= 16
    chosen = select(points(records, OBJECTIVES), OBJECTIVES, target).point
    place = (chosen.configuration, chosen.load)
    true = next(point for point in truth(seed) if (point.configuration, point.load) == place)
    best = select(truth(seed), OBJECTIVES, target).point
    assert worth(true) >= 0.9 * worth(best)


def test_studies_find_most_of_the_frontier():
    shares = [hypervolume(points(run(seed)[0], OBJECTIVES)) / hypervolume(truth(seed)) for seed in SEEDS]
    assert sum(shares) / len(shares) >= 0.8


def test_a_study_continues_from_any_prefix_of_its_journal_as_if_it_had_never_stopped():
    whole, stop = run(0, trials=12)
    for cut in range(len(whole)):
        assert run(0, journal=whole[:cut], trials=12) == (whole, stop)


def test_seeds_make_a_difference():
    assert [r.configuration for r in run(0, trials=8)[0]] != [r.configuration for r in run(1, trials=8)[0]]
