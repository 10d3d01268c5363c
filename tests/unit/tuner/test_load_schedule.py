import math
import statistics
from itertools import pairwise

import pytest

from frontier_tuner.load.schedule import Arrivals, arrivals


def variation(moments):
    gaps = [later - earlier for earlier, later in pairwise(moments)]
    return statistics.stdev(gaps) / statistics.fmean(gaps)


@pytest.mark.parametrize("shape", [0.3, 1.0, 5.0])
def test_arrivals_are_fixed_by_the_seed_and_exactly_as_many_as_the_rate_asks(shape):
    schedule = arrivals(16, 30, shape, "7")
    assert schedule == arrivals(16, 30, shape, "7") != arrivals(16, 30, shape, "8")
    assert (len(schedule), schedule[0], schedule == sorted(schedule)) == (480, 0.0, True)
    assert schedule[-1] < 30
    assert variation(schedule) == pytest.approx(1 / math.sqrt(shape), rel=0.2)


def test_constant_arrivals_have_equal_gaps():
    assert arrivals(4, 2, Arrivals("Constant").shape, "any") == [0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_what_no_schedule_can_have_is_refused(bad):
    with pytest.raises(ValueError, match="must be above 0"):
        arrivals(*bad, seed="x")


def test_the_shape_follows_the_pattern():
    shapes = [Arrivals("Poisson").shape, Arrivals("Gamma", 0.4).shape, Arrivals("Constant").shape]
    assert shapes == [1.0, 0.4, math.inf]
