from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.ladder import LadderDone, NextRung, levels, next_rung
from frontier_tuner.measurement import Load, Validity
from support.tuner_builders import make_measurement, make_objectives

OBJECTIVES = make_objectives()


@given(
    st.sampled_from(["Concurrency", "RequestRate"]),
    st.floats(0.1, 100),
    st.floats(1, 100),
    st.integers(1, 30),
)
def test_levels_rise_strictly_within_their_ends(kind, lowest, factor, count):
    found = levels(kind, lowest, lowest * factor, count)
    assert 1 <= len(found) <= count
    assert all(one < other for one, other in pairwise(found))
    assert kind == "RequestRate" or all(level == int(level) >= 1 for level in found)


def test_close_levels_fall_together_instead_of_repeating():
    assert levels("Concurrency", 1, 4, 10) == (1, 2, 3, 4)
    assert levels("Concurrency", 1, 256, 6) == (1, 3, 9, 28, 84, 256)
    assert levels("RequestRate", 0.4, 4, 3) == (0.4, 1.26, 4)
    assert levels("Concurrency", 8, 8, 5) == (8,)


@pytest.mark.parametrize("bad", [(0, 4, 3), (4, 2, 3), (1, 4, 0)])
def test_an_empty_ladder_is_refused(bad):
    with pytest.raises(ValueError, match="level"):
        levels("Concurrency", *bad)


def rung(load, throughput, **over):
    return make_measurement(load, per_gpu=throughput, **over)


def sparse(load):
    return replace(rung(load, 1), validity=Validity(valid=False, reason="InsufficientSamples", message="9 of 100"))


@pytest.mark.parametrize(
    ("measured", "want"),
    [
        ([], 1),
        ([rung(1, 100)], 4),
        ([rung(1, 100), rung(4, 300, ttft=3.9)], 16),
        ([rung(1, 100), rung(4, 300, ttft=4.1)], "SLOBeyondReach"),
        ([rung(1, 100), rung(4, 102)], 16),
        ([rung(1, 100), rung(4, 102), rung(8, 101)], "Saturated"),
        ([rung(1, 100), rung(4, 90), rung(8, 103)], 16),
        ([rung(1, 100), rung(4, 200), rung(16, 300)], "LadderClimbed"),
        ([rung(1, 100, valid=False)], 4),
        ([rung(1, 100, valid=False), rung(4, 1, valid=False)], "WindowInvalid"),
        ([rung(1, 100), rung(4, 50, valid=False)], 16),
        ([sparse(1), sparse(4)], 16),
        ([rung(1, 1, valid=False), sparse(4)], 16),
        ([rung(1, 100), rung(4, 300, ttft=None)], 16),
    ],
)
def test_a_ladder_climbs_until_more_load_cannot_help(measured, want):
    step = next_rung((1, 4, 16), measured, OBJECTIVES)
    if isinstance(want, str):
        assert isinstance(step, LadderDone)
        assert (step.reason, bool(step.message)) == (want, True)
    else:
        assert step == NextRung(Load("Concurrency", want))
