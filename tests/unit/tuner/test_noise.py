import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.measurement import Estimate
from frontier_tuner.noise import ASSUMED, Noise, combined, estimate_noise, pooled, ratio
from support.tuner_builders import make_configuration, make_measurement, make_record

EXACT = Noise(0.0)
values = st.floats(0.01, 1e4)
estimates = st.builds(lambda v, down, up: Estimate(v, v * (1 - down), v * (1 + up), 10), values, *[st.floats(0, 1)] * 2)


def make(value, low=None, high=None):
    return Estimate(value, value if low is None else low, value if high is None else high, 10, "up")


@given(estimates, estimates, st.floats(0, 0.2))
def test_a_ratio_lies_in_its_interval_and_turns_round_with_its_terms(one, other, start):
    found, turned = ratio(one, other, Noise(start)), ratio(other, one, Noise(start))
    assert found.low <= found.value <= found.high
    assert turned.value == pytest.approx(1 / found.value)
    assert turned.low == pytest.approx(1 / found.high)
    assert (found.above, found.below) == (turned.below, turned.above)


def test_a_ratio_of_exact_values_is_exact_within_one_start_and_not_between_two():
    found = ratio(make(2), make(1), Noise(0.05), same_start=True)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))
    between = ratio(make(2), make(1), Noise(0.05))
    assert math.log(between.high / 2) == pytest.approx(1.96 * 0.05 * math.sqrt(2), rel=1e-3)


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        (make(110, 105, 115), make(100, 95, 105), True),
        (make(106, 101, 111), make(100, 95, 105), False),
        (make(100, 0, 200), make(1, 1, 1), False),
        (make(5, 4, 6), make(0, 0, 1), True),
        (make(5, 4, 6), make(0, 0, 9), False),
        (make(0, 0, 0), make(0, 0, 0), False),
    ],
)
def test_intervals_may_overlap_a_little_and_the_values_differ_all_the_same(one, other, want):
    assert ratio(one, other, EXACT).above is want
    assert ratio(other, one, EXACT).below is want


def test_the_interval_of_a_ratio_covers_the_truth_as_often_as_it_says():
    random = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        logs = random.normal([math.log(3), 0], [0.1, 0.05])
        one, other = (
            Estimate(math.exp(log), math.exp(log - 1.96 * sd), math.exp(log + 1.96 * sd), 9)
            for log, sd in zip(logs, (0.1, 0.05), strict=True)
        )
        found = ratio(one, other, EXACT)
        covered += found.low <= 3 <= found.high
    assert 0.935 <= covered / 2000 <= 0.965


def test_a_product_of_two_terms_is_their_ratio():
    one, other = make(20, 18, 23), make(10, 9, 10.5)
    assert combined([(1, one), (-1, other)], Noise(0.04)) == ratio(one, other, Noise(0.04))
    squared = combined([(2, one)], EXACT)
    assert (squared.value, squared.low, squared.high) == pytest.approx((400, 324, 529))


def test_pooling_halves_the_variance_and_keeps_the_noise_between_starts():
    same = [make(100, 90, 111), make(100, 90, 111)]
    narrower = pooled(same, EXACT)
    assert (narrower.value, narrower.n) == (pytest.approx(100), 20)
    assert math.log(100 / narrower.low) == pytest.approx(math.log(100 / 90) / math.sqrt(2))
    wider = pooled([make(100)], Noise(0.05))
    assert math.log(wider.high / 100) == pytest.approx(1.96 * 0.05, rel=1e-3)
    assert pooled([make(50), make(200)], EXACT).value == pytest.approx(100)
    assert pooled([make(50, 0, 60)], EXACT).low == 0


def exact(measurement):
    metrics = {k: replace(e, low=e.value, high=e.value) for k, e in measurement.metrics.items()}
    return replace(measurement, metrics=metrics)


def test_noise_without_repeats_is_what_was_assumed():
    assert estimate_noise([]).start == pytest.approx(ASSUMED.start)
    different = [make_record(n, make_configuration(maxNumSeqs=n + 1)) for n in range(3)]
    assert estimate_noise(different, Noise(0.07)).start == pytest.approx(0.07)
    lost = make_record(4, make_configuration(maxNumSeqs=1), outcome="Failed")
    assert estimate_noise([*different, lost]).start == pytest.approx(ASSUMED.start)


def test_noise_is_learnt_from_repeated_starts():
    random = np.random.default_rng(3)
    journal = []
    for number in range(80):
        luck = math.exp(random.normal(0, 0.1))
        rungs = [exact(make_measurement(load, speed=50 * luck, per_gpu=400 * luck)) for load in (4, 8, 16)]
        journal.append(make_record(number, make_configuration(maxNumSeqs=number // 2 + 1), *rungs))
    assert estimate_noise(journal).start == pytest.approx(0.1, rel=0.25)
    assert estimate_noise(journal[:2], Noise(0.5)).start > 0.4


def test_what_windows_explain_is_no_noise_between_starts():
    wide = [make_record(n, None, make_measurement(per_gpu=400 * (1 + 0.02 * n))) for n in range(6)]
    assert estimate_noise(wide).start < ASSUMED.start


def test_rungs_that_do_not_count_teach_no_noise():
    invalid = [make_record(n, None, make_measurement(per_gpu=400 * (1 + n), valid=False)) for n in range(6)]
    assert estimate_noise(invalid).start == pytest.approx(ASSUMED.start)
