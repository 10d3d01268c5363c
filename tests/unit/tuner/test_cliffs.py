import math

import pytest

from frontier_tuner.cliffs import beside, find_cliffs
from frontier_tuner.frontier import points
from frontier_tuner.neighbours import knob_between, orders
from frontier_tuner.noise import Noise
from frontier_tuner.objectives import Target
from frontier_tuner.selection import select
from frontier_tuner.space import Parameter, SearchSpace
from frontier_tuner.trial import Failure
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record, make_space

OBJECTIVES = make_objectives()
EXACT = Noise(0.0)
OOM = Failure("EngineOutOfMemory", "CUDA out of memory")


def curve(number, configuration, rows, **over):
    """A trial of rows (load, speed, throughput, TTFT)."""
    rungs = [make_measurement(load, speed=speed, per_gpu=per_gpu, ttft=ttft) for load, speed, per_gpu, ttft in rows]
    return make_record(number, configuration, *rungs, **over)


HEALTHY = [(1, 100, 100, 0.1), (2, 95, 190, 0.12), (4, 80, 320, 0.2), (8, 60, 480, 0.35)]


def test_a_healthy_ladder_has_no_cliff():
    assert find_cliffs([curve(0, None, HEALTHY)], OBJECTIVES) == ()


@pytest.mark.parametrize(
    ("row", "key", "factor"),
    [
        pytest.param((16, 40, 300, 0.6), "OutputTokensPerSecondPerGPU", 1.6, id="throughput falls"),
        pytest.param((16, 10, 480, 0.6), "UserTokensPerSecond/50", 3.0, id="speed falls by more than load grows"),
        pytest.param((16, 40, 500, 7.0), "TTFT/95", 10.0, id="waiting grows by more than load"),
    ],
)
def test_between_rungs_only_what_load_does_not_explain_is_a_cliff(row, key, factor):
    (cliff,) = find_cliffs([curve(0, None, [*HEALTHY, row])], OBJECTIVES)
    assert (cliff.kind, cliff.key) == ("Load", key)
    assert cliff.factor == pytest.approx(factor)
    assert (cliff.better.load.value, cliff.worse.load.value) == (8, 16)
    assert "from 8 concurrent to 16 concurrent" in cliff.message
    assert "times worse than the load explains" in cliff.message


@pytest.mark.parametrize(("sequences", "want"), [(32, 1), (64, 0), (128, 0)])
def test_configurations_are_compared_where_one_step_of_one_knob_is_between_them(sequences, want):
    space = SearchSpace((Parameter("maxNumSeqs", (16, 32, 64, 128)),))
    journal = [
        curve(0, make_configuration(maxNumSeqs=16), HEALTHY),
        curve(1, make_configuration(maxNumSeqs=sequences), [(1, 50, 50, 0.1), (2, 47, 95, 0.12)]),
    ]
    found = find_cliffs(journal, OBJECTIVES, space=space)
    assert len(found) == want
    if found:
        assert (found[0].knob, found[0].better.trial, found[0].worse.trial) == ("maxNumSeqs", 0, 1)
        assert found[0].factor == pytest.approx(95 / 47)
        assert "maxNumSeqs 16 to 32 at" in found[0].message


def test_a_trade_is_a_cliff_in_both_directions():
    journal = [
        curve(0, make_configuration(tensorParallelSize=1), [(4, 40, 160, 0.2)]),
        curve(1, make_configuration(tensorParallelSize=2), [(4, 70, 90, 0.2)]),
    ]
    found = {(cliff.better.trial, cliff.key) for cliff in find_cliffs(journal, OBJECTIVES)}
    assert found == {(0, "OutputTokensPerSecondPerGPU"), (1, "UserTokensPerSecond/50")}


def test_a_jump_within_noise_is_none():
    journal = [
        curve(0, make_configuration(maxNumSeqs=1), [(4, 40, 160, 0.2)]),
        curve(1, make_configuration(maxNumSeqs=2), [(4, 30, 120, 0.2)]),
    ]
    assert len(find_cliffs(journal, OBJECTIVES, noise=EXACT)) == 1
    assert find_cliffs(journal, OBJECTIVES, noise=Noise(0.3)) == ()
    assert find_cliffs(journal, OBJECTIVES, noise=EXACT, jump=1.5) == ()


def test_a_step_to_an_engine_that_cannot_serve_is_the_steepest():
    journal = [
        curve(0, make_configuration(maxNumSeqs=1), HEALTHY),
        make_record(1, make_configuration(maxNumSeqs=2), outcome="Infeasible", failure=OOM),
    ]
    (cliff,) = find_cliffs(journal, OBJECTIVES)
    assert (cliff.factor, cliff.worse, cliff.failure) == (math.inf, None, OOM)
    assert cliff.message == (
        "maxNumSeqs 1 to 2 at 8 concurrent, from maxNumSeqs=1: the engine cannot serve: "
        "EngineOutOfMemory: CUDA out of memory"
    )


def test_nothing_falls_from_where_nothing_holds():
    journal = [
        curve(0, make_configuration(maxNumSeqs=1), [(1, 50, 50, 9.0)]),
        make_record(1, make_configuration(maxNumSeqs=2), outcome="Infeasible", failure=OOM),
    ]
    assert find_cliffs(journal, OBJECTIVES) == ()


def test_the_cliffs_beside_the_choice_are_told_apart_from_others():
    journal = [
        curve(0, make_configuration(maxNumSeqs=1), [*HEALTHY, (16, 20, 300, 3.0)]),
        curve(1, make_configuration(maxNumSeqs=2), [(1, 50, 50, 0.1)]),
        curve(2, make_configuration(maxNumSeqs=3), [(1, 20, 20, 0.1)]),
    ]
    found = find_cliffs(journal, OBJECTIVES)
    chosen = select(points(journal, OBJECTIVES), OBJECTIVES, Target()).point
    assert chosen.load.value == 8
    near = beside(chosen, found)
    assert {(cliff.kind, cliff.better.trial) for cliff in near} == {("Load", 0), ("Configuration", 0)}
    assert len(found) == 3


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        ({"a": 1, "b": "x"}, {"a": 2, "b": "x"}, "a"),
        ({"a": 1, "b": "x"}, {"a": 4, "b": "x"}, None),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "z"}, "b"),
        ({"a": 1, "b": "x"}, {"a": 2, "b": "z"}, None),
        ({"a": 1, "b": "x"}, {"a": 1, "b": "x"}, None),
        ({"a": 1, "b": "none"}, {"a": 1, "b": "ngram", "depth": 3}, "b"),
        ({"a": 1}, {"a": 1, "depth": 3}, "depth"),
        ({"a": 1}, {"a": 1, "depth": 3, "width": 2}, None),
        ({"a": 9}, {"a": 4}, None),
        ({"a": True}, {"a": False}, "a"),
    ],
)
def test_neighbours_are_one_step_of_one_knob_apart(one, other, want):
    pair = make_configuration(**one), make_configuration(**other)
    order = orders(pair, SearchSpace((Parameter("a", (1, 2, 4)), Parameter("b", ("x", "y", "z")))))
    assert knob_between(*pair, order) == knob_between(*reversed(pair), order) == want


def test_without_a_space_the_values_that_occur_have_their_order():
    seen = [make_configuration(maxNumSeqs=n, mode=m) for n, m in ((64, "b"), (8, "a"), (16, "a"))]
    assert orders(seen) == {"maxNumSeqs": (8, 16, 64), "mode": ("a", "b")}
    assert orders(seen, make_space())["maxNumSeqs"] == (16, 64)
