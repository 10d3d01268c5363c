"""The surrogate: similarities, the gradient of its likelihood, and what it learns from whole curves."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from frontier_tuner.configuration import Configuration
from frontier_tuner.search.candidates import Candidates, Knob, candidates_of
from frontier_tuner.search.kernel import KnobKernel
from frontier_tuner.search.surrogate import Curves, Hyper, Surrogate, stack
from support.tuner_builders import make_space

LOAD = np.linspace(-1, 1, 5)
LAYOUTS, FORMATS = (1, 2, 4, 8), ("bf16", "fp8")


def grid():
    """Return sixteen candidates: a layout, a format and a flag."""
    rows = [(a, b, c) for a in range(4) for b in range(2) for c in range(2)]
    levels = np.array(rows)
    scale = np.array([(np.log2(LAYOUTS[a]), b, c) for a, b, c in rows], dtype=float)
    knobs = (Knob("tp", "layout", ordered=True), Knob("gemm", "precision", False), Knob("prefix", "", False))
    configurations = tuple(
        Configuration.of({"tp": LAYOUTS[a], "gemm": FORMATS[b], "prefix": bool(c)}) for a, b, c in rows
    )
    ones = np.ones(len(rows))
    return Candidates(configurations, knobs, levels, scale, ones, ones, np.tile(np.exp(LOAD), (len(rows), 1)))


def make_surrogate(prior=None, hyper=None):
    candidates = grid()
    shape = (len(candidates), len(LOAD), 3)
    load = np.tile(LOAD, (len(candidates), 1))
    return Surrogate(KnobKernel(candidates), len(candidates), load, prior, np.zeros(shape), hyper or Hyper())


def truth():
    """Return (16, 5, 3) logarithms: a sum of effects, with a slope for one format."""
    candidates = grid()
    tp, gemm, prefix = candidates.scale.T
    base = 0.3 * tp[:, None] + 0.5 * gemm[:, None] - 0.2 * prefix[:, None] + (0.4 - 0.2 * gemm)[:, None] * LOAD
    return np.stack([-base, base, 0.5 * base], -1)


def curves_of(places, values):
    return stack([(place, range(len(LOAD)), values[place]) for place in places])


def expected(surrogate, beliefs, metric):
    rows = np.arange(16)
    return sum(b.weight * surrogate.curve(b, metric, b.mean[:, None], rows)[:, 0] for b in beliefs[metric])


def test_a_candidate_is_like_itself_and_less_like_all_others():
    kernel = KnobKernel(grid())
    everyone = np.arange(16)
    similar = kernel.between(everyone, everyone)
    assert similar.shape == (len(kernel.terms), 16, 16)
    assert np.allclose(np.diagonal(similar, axis1=1, axis2=2), 1)
    assert (similar <= 1 + 1e-12).all()
    assert (similar >= 0).all()
    assert np.allclose(similar, similar.transpose(0, 2, 1))
    assert (np.linalg.eigvalsh(similar.sum(0)) > -1e-9).all()


def test_neighbours_of_an_ordered_knob_are_more_alike_than_strangers_of_a_word():
    kernel = KnobKernel(grid())
    one = kernel.between(np.array([0]), np.array([4, 12, 2]))
    tp, gemm = one[kernel.terms.index("tp"), 0], one[kernel.terms.index("gemm"), 0]
    assert 1 > tp[0] > tp[1] > 0
    assert gemm[2] == 0


def test_a_knob_that_does_not_exist_is_a_value_of_its_own():
    candidates = grid()
    candidates.levels[:4, 0] = -1
    similar = KnobKernel(candidates).between(np.arange(6), np.arange(6))[0]
    assert (similar[:4, :4] == 1).all()
    assert (similar[:4, 4:] == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_the_likelihood_is_its_slope(seed):
    rng = np.random.default_rng(seed)
    surrogate = make_surrogate()
    curves = curves_of([0, 3, 5, 9, 14], truth() + 0.1 * rng.standard_normal((16, 5, 3)))
    among = surrogate._kernel.between(curves.candidate, curves.candidate)
    powers = surrogate._powers[curves.candidate[curves.start], curves.level]
    middle = surrogate._middle
    arguments = (curves.values[:, [0, 1]], among, powers, curves.start, middle)
    place = middle + 0.3 * rng.standard_normal(len(middle))
    value, gradient = surrogate._loss(place, *arguments)
    apart = check_grad(lambda x: surrogate._loss(x, *arguments)[0], lambda x: surrogate._loss(x, *arguments)[1], place)
    assert np.isfinite(value)
    assert apart < 1e-3 * max(1.0, np.abs(gradient).max())


def test_what_was_measured_is_believed_and_what_adds_up_is_inferred():
    surrogate = make_surrogate()
    values = truth()
    seen = [0, 2, 5, 7, 9, 12, 15]
    beliefs = surrogate.learn(curves_of(seen, values))
    for metric in range(3):
        wrong = np.abs(expected(surrogate, beliefs, metric) - values[..., metric])
        assert wrong[seen].max() < 0.05
        assert wrong.mean() < 0.3 * np.abs(values[..., metric] - values[seen, :, metric].mean()).mean()


def test_the_spread_is_smallest_where_something_was_measured():
    surrogate = make_surrogate()
    seen = [0, 5, 10]
    for belief in surrogate.learn(curves_of(seen, truth()))[1]:
        spread = belief.covariance[:, 0, 0]
        assert (spread > 0).all()
        assert spread[seen].max() < np.delete(spread, seen).min()


def test_a_right_prior_is_trusted_and_a_wrong_one_is_not():
    values, rng = truth(), np.random.default_rng(1)
    seen = [0, 2, 5, 7, 9, 11, 12, 15]

    def trust(prior):
        beliefs = make_surrogate(prior).learn(curves_of(seen, values + 0.02 * rng.standard_normal(values.shape)))
        return sum(belief.weight * belief.trust for belief in beliefs[1])

    shuffled = values[rng.permutation(16)] * 2
    assert trust(values + 0.7) > 0.9
    assert trust(shuffled) < 0.5


def test_a_metric_that_no_rung_knows_stays_as_uncertain_as_before():
    values = truth()
    values[..., 2] = np.nan
    surrogate = make_surrogate()
    beliefs = surrogate.learn(curves_of([0, 5], values))
    assert np.allclose([b.mean for b in beliefs[2]], 0)
    assert np.isfinite(expected(surrogate, beliefs, 1)).all()


def test_rungs_that_lack_a_metric_still_teach_the_others():
    values = truth()
    values[0, :3, 2] = np.nan
    surrogate = make_surrogate()
    beliefs = surrogate.learn(curves_of([0, 5], values))
    assert np.abs(expected(surrogate, beliefs, 1)[0] - truth()[0, :, 1]).max() < 0.05
    assert np.abs(expected(surrogate, beliefs, 2)[0, 3:] - truth()[0, 3:, 2]).max() < 0.1


def test_candidates_of_a_space_have_a_column_for_each_knob_that_varies():
    space = make_space()
    candidates = candidates_of(
        space, gpus=lambda c: c.integer("tensorParallelSize", 1), ranks=lambda _: 1, concurrency=[1, 8]
    )
    assert len(candidates) == space.size
    assert candidates.concurrency.shape == (space.size, 2)
    assert {knob.name for knob in candidates.knobs} == {p.name for p in space.parameters if len(p.values) > 1}
    for place, configuration in enumerate(candidates.configurations):
        assert candidates.index[configuration] == place
        for column, knob in enumerate(candidates.knobs):
            parameter = next(p for p in space.parameters if p.name == knob.name)
            assert parameter.values[candidates.levels[place, column]] == configuration[knob.name]


def test_stacked_curves_number_starts_and_rungs():
    curves = stack([(7, [0, 2], np.ones((2, 3))), (3, [1], np.zeros((1, 3)))])
    assert isinstance(curves, Curves)
    assert curves.start.tolist() == [0, 0, 1]
    assert curves.candidate.tolist() == [7, 3]
    assert curves.level.tolist() == [0, 2, 1]
