"""Methods on a cut of a real table: they run as a user runs them, and what one knows beforehand pays.

The table is one engine in five of the measured operator database that ships with aiconfigurator 0.12.0 (Apache-2.0).
"""

from pathlib import Path

import numpy as np
import pytest

from frontier_tuner.bench.bend import bend
from frontier_tuner.bench.goal import make_goal
from frontier_tuner.bench.priors import Served, roofline
from frontier_tuner.bench.report import rows
from frontier_tuner.bench.runner import Experiment, run
from frontier_tuner.bench.score import Scorer
from frontier_tuner.bench.tables import read_table

pytestmark = pytest.mark.simulation

PATH = Path(__file__).parent / "data" / "qwen3-235b-a22b_h200_sglang_isl8192_osl512_prefix6144_cut5.csv.gz"
SERVED = Served("qwen3-235b-a22b", None, "H200", 8192, 512, 6144)
GOAL = make_goal("MaxThroughput", ("TTFT<=2000ms", "UserTokensPerSecond>=50"))
SEEDS = range(6)
STARTS = 16


@pytest.fixture(scope="module")
def table():
    return read_table(PATH)


@pytest.fixture(scope="module")
def results(table):
    experiment = Experiment(table, GOAL, STARTS, 0.04, "roofline", roofline(table, SERVED))
    logs = run(experiment, ["random", "tpe", "tpe-point", "nsga2", "prior", "tpe+prior"], SEEDS)
    scorer = Scorer(table, GOAL)
    return logs, {name: rows(scorer, name, logs[name], STARTS)[-1] for name in logs}


def test_every_method_spends_all_its_starts(results):
    logs, _ = results
    assert all(len(log) == STARTS for runs in logs.values() for log in runs.values())


def test_a_ratio_never_exceeds_the_exhaustive_one(results):
    _, found = results
    for row in found.values():
        assert 0 <= row.hypervolume[1] <= row.hypervolume[0] <= 1 + 1e-9
        assert 0 <= row.target[1] <= row.target[0] <= 1 + 1e-9


def test_a_whole_curve_per_start_beats_one_load_per_start(results):
    _, found = results
    assert found["tpe"].hypervolume[0] > found["tpe-point"].hypervolume[0]


def test_the_prior_beats_chance(results):
    _, found = results
    assert found["prior"].hypervolume[0] > found["random"].hypervolume[0]


def test_engines_that_are_out_of_memory_die_in_every_start(table, results):
    logs, _ = results
    dead = {engine for engine, dies in zip(table.engine_ids, table.dead, strict=True) if dies}
    assert dead
    for runs in logs.values():
        for log in runs.values():
            assert all(start.outcome == "Infeasible" for start in log if start.engine_id in dead)


def test_a_bent_world_ranks_engines_anew(table):
    truth, bent = table.truth.throughput, bend(table, 1).truth.throughput
    assert np.nanstd(np.log(bent / truth)) > 0.15
    assert np.nanargmax(bent) != np.nanargmax(truth)
