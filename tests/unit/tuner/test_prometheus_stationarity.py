import random
import re

import pytest

from frontier_tuner.prometheus.stationarity import settling, trend
from frontier_tuner.prometheus.steadiness import STEADY, Steadiness


def noisy(levels, seed=1, spread=0.05):
    generator = random.Random(seed)
    return tuple(level * (1 + generator.gauss(0, spread)) for level in levels)


def test_a_trend_has_its_direction_and_its_size():
    rising = trend(noisy([100 + 3 * step for step in range(20)]))
    assert rising.significant
    assert rising.share == pytest.approx(57 / 128, abs=0.15)
    falling = trend(noisy([160 - 3 * step for step in range(20)]))
    assert (falling.significant, falling.z < 0) == (True, True)


def test_a_straight_line_is_a_trend_and_a_constant_is_none():
    assert trend([10.0 + step for step in range(12)]).significant
    assert trend([10.0] * 12).z == 0.0


@pytest.mark.parametrize("count", [0, 3, 7])
def test_too_few_stretches_tell_nothing(count):
    values = [float(step) for step in range(count)]
    assert trend(values) is None
    assert settling(values) is None


def test_noise_is_hardly_ever_taken_for_a_trend_or_a_start():
    alarms = 0
    for seed in range(500):
        values = noisy([100.0] * 20, seed, spread=0.2)
        alarms += trend(values).significant or settling(values).significant
    assert alarms <= 5


def test_correlated_noise_is_rarely_taken_for_a_trend():
    alarms = 0
    for seed in range(300):
        generator, level, values = random.Random(seed), 0.0, []
        for _ in range(24):
            level = 0.6 * level + generator.gauss(0, 0.1)
            values.append(1 + level)
        alarms += trend(values).significant
    assert alarms <= 9


def test_a_start_is_cut_where_it_ends():
    found = settling(noisy([20.0, 60.0, 90.0] + [100.0] * 17, spread=0.02))
    assert found.significant
    assert found.stretches in (2, 3)
    assert found.share == pytest.approx(-0.065, abs=0.02)


@pytest.mark.parametrize(
    ("steadiness", "check", "words"),
    [
        (Steadiness(noisy([20.0] * 4 + [100.0] * 16), (), 5.0), "NotWarm", "settled only 20 s into the window"),
        (Steadiness(noisy([100 + 5 * step for step in range(20)]), (), 5.0), "NotWarm", "throughput (rose|settled)"),
        (
            Steadiness((), noisy([1 + step for step in range(20)]), 5.0),
            "Overloaded",
            "a queue grows, the load cannot be sustained",
        ),
        (Steadiness((), noisy([40 - 1.5 * step for step in range(20)]), 5.0), "NotWarm", "TTFT (fell|settled)"),
    ],
    ids=["a start", "throughput rises", "a queue grows", "latency falls"],
)
def test_an_unsteady_window_says_what_it_is(steadiness, check, words):
    found = steadiness.problem(20.0, 5.0)
    assert found.check == check
    assert re.search(words, found.message)


@pytest.mark.parametrize(
    "steadiness",
    [
        STEADY,
        Steadiness(noisy([100.0] * 20), noisy([0.3] * 20), 5.0),
        Steadiness(noisy([100 + 0.5 * step for step in range(20)], spread=0.001), (), 5.0),
        Steadiness(noisy([97.0] + [100.0] * 19, spread=0.001), (), 5.0),
    ],
    ids=["nothing known", "steady", "a small trend", "a small start"],
)
def test_what_is_steady_or_changes_little_is_no_problem(steadiness):
    assert steadiness.problem(20.0, 5.0) is None
