import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from frontier_tuner.search.kernel import KnobKernel
from frontier_tuner.search.optuna_space import ParameterSpace, ordered

DISTRIBUTIONS = [
    FloatDistribution(-1, 1),
    FloatDistribution(1e-7, 10, log=True),
    FloatDistribution(-10.2, 10.2, step=0.1),
    FloatDistribution(3, 3),
    IntDistribution(-10, 10),
    IntDistribution(0, 9, step=3),
    IntDistribution(1, 10**12),
    IntDistribution(1, 1024, log=True),
    CategoricalDistribution(["a", None, 1, 2.5, "b"]),
    CategoricalDistribution([1, 2, 4, 8]),
]


@given(st.sampled_from(DISTRIBUTIONS), st.floats(0, 1))
def test_every_place_is_a_value_that_the_distribution_has(distribution, place):
    space = ParameterSpace.of({"x": distribution})
    row = space.from_unit(np.array([[place]]))
    assert distribution._contains(float(row[0, 0]))
    assert (space.row(space.parameters(row[0])) == row[0]).all()


@given(st.sampled_from(DISTRIBUTIONS), st.floats(0, 1))
def test_a_value_lies_where_it_came_from(distribution, place):
    space = ParameterSpace.of({"x": distribution})
    row = space.from_unit(np.array([[place]]))
    again = space.from_unit(space.to_unit(row))
    assert again[0, 0] == pytest.approx(row[0, 0], rel=1e-9)


def test_every_value_of_a_finite_parameter_has_its_place():
    for distribution, count in zip(DISTRIBUTIONS[4:6], (21, 4), strict=True):
        space = ParameterSpace.of({"x": distribution})
        assert len(np.unique(space.from_unit(np.linspace(0, 1, 500)[:, None]))) == count == space.size


def test_a_finite_space_is_enumerated_and_a_continuous_one_has_no_size():
    space = ParameterSpace.of({"b": CategoricalDistribution("xyz"), "a": IntDistribution(0, 4, step=2)})
    assert space.names == ("a", "b")
    assert space.enumerate().tolist() == [[a, b] for a in (0, 2, 4) for b in (0, 1, 2)]
    assert ParameterSpace.of({"x": FloatDistribution(0, 1)}).size == np.inf


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ([1, 2, 4], True),
        ([4, 1, 2], False),
        (["a", "b"], False),
        ([True, False], False),
        ([0.5, 1], True),
        ([7], False),
    ],
)
def test_choices_that_are_ascending_numbers_are_ordered(choices, expected):
    assert ordered(CategoricalDistribution(choices)) is expected


def test_neighbouring_values_are_alike_and_a_group_is_a_term_of_its_own():
    space = ParameterSpace.of({"tp": CategoricalDistribution([1, 2, 8]), "x": FloatDistribution(0, 1)})
    rows = np.array([[0, 0.5], [1, 0.5], [2, 0.5], [0, 0.51], [0, 0.9]])
    kernel = KnobKernel(space.candidates(rows, {"tp": "layout", "x": "layout"}))
    similar = kernel.between(np.arange(5), np.arange(5))
    assert kernel.terms == ("tp", "x", "layout", "pair", "shape", "all")
    tp, x = similar[0, 0], similar[1, 0]
    assert tp[0] == 1 > tp[1] > tp[2]
    assert x[3] > 0.99 > x[4]


def test_a_pool_is_seeded_distinct_covers_the_range_and_is_dense_around_the_best():
    space = ParameterSpace.of({"n": IntDistribution(1, 10**6, log=True), "x": FloatDistribution(0, 1)})
    best = np.array([[1000.0, 0.3]])
    pool = space.pool(best, (1, 2))
    assert (pool == space.pool(best, (1, 2))).all()
    assert len(np.unique(pool, axis=0)) == len(pool) > 1000
    near = np.abs(pool[:, 1] - 0.3) < 0.02
    elsewhere = np.abs(pool[:, 1] - 0.7) < 0.02
    assert near.sum() > elsewhere.sum() + 15
    assert pool[:, 0].min() < 10
    assert pool[:, 0].max() > 10**5


def test_neighbours_differ_in_one_parameter():
    space = ParameterSpace.of({"a": IntDistribution(0, 2), "b": IntDistribution(0, 2)})
    rows = space.enumerate()
    near = rows[space.neighbours(rows, np.array([[1.0, 1.0]]))]
    assert near.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
