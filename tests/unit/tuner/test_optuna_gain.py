"""Expected gains against their definition: the mean over many drawn results."""

import numpy as np
import pytest
from optuna._hypervolume import compute_hypervolume

from frontier_tuner.search.optuna_gain import Mixture, expected_gain, front

DRAWS = 4000
KNOWN = {1: [[0.2], [0.6]], 2: [[0.1, 0.9], [0.5, 0.4], [0.8, 0.1], [0.9, 0.9]], 3: [[0.2, 0.8, 0.5], [0.6, 0.3, 0.4]]}


def beliefs(objectives, loads, seed=0):
    rng = np.random.default_rng(seed)
    shape = (2, 6, loads)
    return [
        Mixture(np.array([0.7, 0.3]), rng.uniform(0, 1, shape), rng.uniform(0.05, 0.3, shape))
        for _ in range(objectives)
    ]


def drawn(mixture, rng):
    """Return (DRAWS, n) values of the first load."""
    chosen = rng.choice(len(mixture.weights), DRAWS, p=mixture.weights)
    luck = rng.standard_normal((DRAWS, mixture.mean.shape[1]))
    return mixture.mean[chosen, :, 0] + mixture.deviation[chosen, :, 0] * luck


def growth(points, known, reference):
    def volume(members):
        inside = members[(members < reference).all(1)]
        return compute_hypervolume(inside, reference) if len(inside) else 0.0

    before = volume(known)
    return np.mean([volume(np.vstack([known, point])) - before for point in points])


@pytest.mark.parametrize("objectives", [1, 2])
def test_one_and_two_objectives_have_the_mean_of_what_is_drawn(objectives):
    known, reference = np.array(KNOWN[objectives]), np.ones(objectives)
    told = beliefs(objectives, 1)
    rng = np.random.default_rng(1)
    samples = np.stack([drawn(each, rng) for each in told], -1)
    exact = expected_gain(told, np.ones((6, 1)), known, reference, rng)
    for row in range(6):
        assert exact[row] == pytest.approx(growth(samples[:, row], known, reference), rel=0.15, abs=0.003)


@pytest.mark.parametrize("objectives", [2, 3])
def test_directions_order_candidates_as_the_hypervolume_does(objectives):
    known, reference = np.array(KNOWN[objectives]), np.ones(objectives)
    told = beliefs(objectives, 1)
    # The same load twice is no more than once, but is not the exact case any more.
    twice = [Mixture(m.weights, m.mean.repeat(2, -1), m.deviation.repeat(2, -1)) for m in told]
    rng = np.random.default_rng(1)
    samples = np.stack([drawn(each, rng) for each in told], -1)
    found = expected_gain(twice, np.ones((6, 2)), known, reference, rng)
    wanted = [growth(samples[:500, row], known, reference) for row in range(6)]
    assert np.corrcoef(found, wanted)[0, 1] > 0.95
    assert np.argmax(found) == np.argmax(wanted)


def test_the_probability_that_constraints_hold_multiplies_the_gain():
    known, reference = np.array(KNOWN[2]), np.ones(2)
    sure = expected_gain(beliefs(2, 1), np.ones((6, 1)), known, reference, np.random.default_rng(0))
    half = expected_gain(beliefs(2, 1), np.full((6, 1), 0.5), known, reference, np.random.default_rng(0))
    np.testing.assert_allclose(half, sure / 2)


def test_one_objective_over_several_loads_counts_the_best_load():
    told = beliefs(1, 3)
    each = [
        expected_gain(
            [Mixture(told[0].weights, told[0].mean[..., [load]], told[0].deviation[..., [load]])],
            np.ones((6, 1)), np.array([[0.2]]), np.ones(1), np.random.default_rng(0),
        )
        for load in range(3)
    ]  # fmt: skip
    whole = expected_gain(told, np.ones((6, 3)), np.array([[0.2]]), np.ones(1), np.random.default_rng(0))
    # At least as much as any load alone, but for the steps of the integral.
    assert (whole >= np.max(each, 0) * 0.97).all()
    assert (whole <= np.sum(each, 0) * 1.03).all()


def test_nothing_known_and_nothing_within_reach_are_no_obstacles():
    nothing = np.zeros((0, 2))
    assert (expected_gain(beliefs(2, 1), np.ones((6, 1)), nothing, np.ones(2), np.random.default_rng(0)) > 0).all()
    assert (expected_gain(beliefs(2, 2), np.ones((6, 2)), nothing, np.ones(2), np.random.default_rng(0)) > 0).all()
    far = expected_gain(beliefs(2, 2), np.ones((6, 2)), np.full((1, 2), -9.0), np.ones(2), np.random.default_rng(0))
    assert (far < 1e-6).all()


def test_a_front_is_what_nothing_else_dominates_each_once():
    points = np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 2.0], [2.0, 3.0], [3.0, 1.0], [4.0, 4.0]])
    assert front(points).tolist() == [[1, 3], [2, 2], [3, 1]]
    assert front(np.zeros((0, 2))).shape == (0, 2)
