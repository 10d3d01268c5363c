from copy import deepcopy
from pathlib import Path

import pytest
import yaml

from frontier_local.demo import scenario, story
from frontier_local.demo.vllm import image_map

ROOT = Path(__file__).parents[3]
SIMULATED = scenario.simulated()


def metrics(throughput, speed, cost=0.25):
    values = {"OutputTokensPerSecondPerGPU": throughput, "CostPerMillionOutputTokens": cost}
    return [{"name": name, "value": str(value)} for name, value in values.items()] + [
        {"name": "UserTokensPerSecond", "percentile": 50, "value": str(speed)},
        {"name": "TTFT", "percentile": 95, "value": "0.2"},
        {"name": "ITL", "percentile": 95, "value": "0.0213"},
    ]


def rung(level, throughput, valid=True):
    load = {"kind": "Concurrency", "value": level}
    return {"load": load, "metrics": metrics(throughput, 50), "valid": valid}


def trial(outcome="Complete", **status):
    spec = {"number": 3, "purpose": "Search", "gpus": 2, "configuration": {"maxNumSeqs": "64", "kvCacheDtype": "fp8"}}
    return {"spec": spec, "status": {"outcome": outcome, **status}}


FINISHED = {
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "frontier": [rung("4", 400)] * 4,
        "selection": {"policy": "MinCost"},
        "baseline": {"configurationHash": "a", "measured": {"metrics": metrics(400, 20, cost=0.5)}},
        "incumbent": {"configurationHash": "b", "measured": {"metrics": metrics(500, 60, cost=0.2)}},
    }
}


def test_a_row_shows_the_rung_with_the_highest_throughput():
    row = story.trial_row(trial(measurements=[rung("4", 400), rung("16", 900), rung("40", 2000, valid=False)]))

    assert "kv=fp8 seqs=64" in row
    assert "2 rungs, up to 16 concurrent: 900 tok/s/GPU 50 tok/s/user TTFT p95 200 ms ITL p95 21.3 ms 0.250/Mtok" in row


def test_a_row_shows_why_a_trial_failed():
    row = story.trial_row(trial("Infeasible", failure={"reason": "EngineOutOfMemory", "message": "CUDA out of memory"}))

    assert "EngineOutOfMemory: CUDA out of memory" in row


def test_a_good_ending_prints_the_factor():
    end = story.ending(SIMULATED, FINISHED, [trial()] * 8)

    assert end.failures == ()
    assert "by a factor of 2.50" in end.lines[-1]


def test_the_factor_is_that_of_the_policy():
    end = story.ending(SIMULATED, spoiled("status", "selection", value={"policy": "MinLatency"}), [trial()] * 8)

    assert "better on the target (tokens/s of a user) by a factor of 3.00" in end.lines[-1]


def spoiled(*path, value):
    manifest = deepcopy(FINISHED)
    part = manifest
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    return manifest


@pytest.mark.parametrize(
    ("manifest", "trials", "want"),
    [
        (spoiled("status", "conditions", value=[]), 8, "not Ready"),
        (FINISHED, 7, "7 trials ran"),
        (spoiled("status", "frontier", value=[]), 8, "0 points"),
        (spoiled("status", "incumbent", "configurationHash", value="a"), 8, "still the baseline"),
        (spoiled("status", "incumbent", "measured", value={}), 8, "no measured cost"),
        (spoiled("status", "incumbent", "measured", "metrics", value=metrics(1, 1, cost=0.6)), 8, "not better"),
    ],
)
def test_a_bad_ending_says_what_is_not_as_it_must_be(manifest, trials, want):
    (failure,) = story.ending(SIMULATED, manifest, [trial()] * trials).failures

    assert want in failure


@pytest.mark.parametrize("made", [SIMULATED, scenario.vllm(image_map())], ids=["simulated", "vllm"])
def test_a_scenario_fits_the_manifest_that_ships(made):
    manifest = yaml.safe_load((ROOT / made.manifest).read_text())
    spec = manifest["spec"]

    assert manifest["metadata"]["name"] == made.deployment
    assert spec["search"]["budget"]["maxTrials"] >= made.min_trials
    assert spec["hardware"]["gpu"]["resourceName"] == made.cluster.gpu_resource
    made.cluster.check()
