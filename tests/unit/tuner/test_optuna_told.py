import math

import numpy as np
import pytest
from optuna.distributions import IntDistribution
from optuna.study import StudyDirection
from optuna.trial import create_trial

from frontier_tuner.search import optuna_told as told

UP, DOWN = StudyDirection.MAXIMIZE, StudyDirection.MINIMIZE


def lesson(number, *losses, **constraints):
    return told.Lesson(number, np.zeros(1), (told.Rung(0.0, np.array(losses)),), constraints, final=True)


def test_of_many_trials_the_best_the_latest_and_an_even_spread_are_read():
    lessons = [lesson(n, float((n * 37) % 1000)) for n in range(1000)]
    kept = told.informative(lessons, 200)
    numbers = [each.number for each in kept]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 200
    assert {each.number for each in lessons if each.rungs[0].losses[0] < 100} <= set(numbers)
    assert set(range(960, 1000)) <= set(numbers)
    assert max(np.diff(numbers)) < 60


def test_the_best_are_taken_front_after_front_and_only_feasible_ones():
    lessons = [lesson(0, 1.0, 3.0), lesson(1, 0.0, 0.0, slo=1.0), lesson(2, 2.0, 4.0), lesson(3, 3.0, 1.0)]
    assert told.best(lessons, 2) == [0, 3]
    assert told.best(lessons, 9) == [0, 3, 2]


def test_a_curve_goes_by_the_names_of_the_objectives_with_maximised_ones_negated():
    trial = create_trial(
        params={"a": 1}, distributions={"a": IntDistribution(0, 2)}, values=[1.0, 2.0],
        user_attrs={told.CURVE: [[8, {"speed": 5.0, "cost": 2.0, "constraint:ttft": 0.5}], [1, {"speed": 9.0}]]},
    )  # fmt: skip
    found = told.lesson(trial, np.zeros(1), [UP, DOWN], ["speed", "cost"])
    assert [rung.load for rung in found.rungs] == [1, 8]
    assert found.rungs[1].losses.tolist() == [-5.0, 2.0]
    assert found.rungs[1].constraints == {"ttft": 0.5}
    assert math.isnan(found.rungs[0].losses[1])
    assert not found.feasible(found.rungs[1])


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("losses", [[1.0, 2.0, 3.0, 1e9], [-8.0, -4.0, -2.0, -1.0], [5.0], [2.0, 2.0]])
def test_a_scale_keeps_the_order_and_stays_small(losses, logarithmic):
    shown = told.Scale.of(np.array(losses), logarithmic=logarithmic)(np.array(sorted(losses)))
    assert (np.diff(shown) >= 0).all()
    assert np.abs(shown).max() < 10
    assert len(set(shown)) == len(set(losses))


def test_infinite_losses_count_as_the_best_and_worst_finite_ones():
    scale = told.Scale.of(np.array([1.0, 2.0, math.inf, 3.0, -math.inf]))
    assert scale(np.array([math.inf, -math.inf])).tolist() == scale(np.array([3.0, 1.0])).tolist()
