import math
import random
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.prometheus.intervals import (
    MIN_BATCHES,
    effective_observations,
    lag_one,
    poisson_factors,
    quantile_ranks,
    rate_half_width,
    ratio_deviation,
    share_interval,
    student,
)


@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.95, 0.99])
@pytest.mark.parametrize("n", [60, 400, 999, 1001, 50_000])
def test_ranks_of_a_quantile_cover_it_with_95_percent_and_hardly_more(fraction, n):
    low, high = (round(rank * n) for rank in quantile_ranks(fraction, n))
    assert 1 <= low <= fraction * n + 1
    assert fraction * n <= high <= n
    if n < 1000 and low > 1 and high < n:
        terms = [math.comb(n, k) * fraction**k * (1 - fraction) ** (n - k) for k in range(n + 1)]
        assert sum(terms[low:high]) >= 0.95
        assert sum(terms[low + 1 : high - 1]) < 0.965


def test_exact_and_approximate_ranks_meet():
    for fraction in (0.05, 0.5, 0.95):
        below, above = quantile_ranks(fraction, 1000), quantile_ranks(fraction, 1001)
        assert below == pytest.approx(above, abs=0.003)


def test_too_few_observations_fall_back_on_the_smallest_and_largest():
    assert quantile_ranks(0.95, 3)[1] == 1.0
    assert quantile_ranks(0.05, 3)[0] == pytest.approx(1 / 3)
    assert quantile_ranks(0.5, 0.2) == (1.0, 1.0)


@pytest.mark.parametrize(("events", "low", "high"), [(3, 0.6187, 8.767), (10, 4.795, 18.39), (100, 81.36, 121.63)])
def test_a_rate_has_the_poisson_interval(events, low, high):
    factors = poisson_factors(events)
    assert factors[0] * events == pytest.approx(low, rel=0.15)
    assert factors[1] * events == pytest.approx(high, rel=0.01)


def test_a_rate_without_events_has_an_interval_down_to_zero():
    assert poisson_factors(0) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("freedom", "want"), [(5, 2.570582), (7, 2.364624), (15, 2.131450), (31, 2.039513), (1000, 1.962339)]
)
def test_students_t_is_that_of_the_tables(freedom, want):
    assert student(freedom) == pytest.approx(want, rel=0.002)


@pytest.mark.parametrize(
    ("share", "n", "want"), [(0.5, 100, (0.4038, 0.5962)), (0.95, 200, (0.9104, 0.9726)), (1.0, 50, (0.9287, 1.0))]
)
def test_a_share_has_wilsons_interval(share, n, want):
    assert share_interval(share, n) == pytest.approx(want, abs=1e-4)


def test_neighbours_that_are_alike_are_correlated():
    assert lag_one([1, 1, 1, 5, 5, 5, 5, 1, 1, 1]) > 0.3
    assert lag_one([1, 5] * 8) < -0.8
    assert lag_one([2.0] * 9) == 0.0


def noise(seed, count, correlation):
    """Return a first-order autoregression around 10 with standard deviation 1."""
    generator = random.Random(seed)
    value, values = generator.gauss(0, 1), []
    for _ in range(count):
        values.append(10 + value)
        value = correlation * value + math.sqrt(1 - correlation**2) * generator.gauss(0, 1)
    return values


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.92), (0.5, 0.88), (0.8, 0.80)])
def test_the_interval_of_a_rate_covers_its_mean_although_neighbours_are_alike(correlation, least):
    covered = 0
    for seed in range(400):
        values = noise(f"{seed}:{correlation}", 32, correlation)
        half = rate_half_width(values, [1.0] * 32)
        covered += abs(fmean(values) - 10) <= half
    assert covered / 400 >= least
    if correlation == 0.8:
        naive = sum(
            abs(fmean(values) - 10) <= 1.96 * stdev(values) / math.sqrt(32)
            for values in (noise(f"{seed}:{correlation}", 32, correlation) for seed in range(400))
        )
        assert naive / 400 < 0.6  # what is gained


def test_too_few_batches_tell_nothing():
    assert rate_half_width([1.0] * (MIN_BATCHES - 1), [1.0] * (MIN_BATCHES - 1)) is None
    assert effective_observations([0.0] * 9, [0.0] * 9, 0.5) is None


def test_independent_observations_count_nearly_all_and_clustered_ones_as_few_as_their_clusters():
    generator = random.Random(1)
    alone = [sum(generator.random() < 0.9 for _ in range(50)) for _ in range(32)]
    share = sum(alone) / 1600
    assert effective_observations(alone, [50] * 32, share) > 700
    together = [50 * (generator.random() < 0.9) for _ in range(32)]
    share = sum(together) / 1600
    assert effective_observations(together, [50] * 32, share) < 60


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 100)), min_size=8, max_size=40),
)
def test_batches_never_make_more_observations_than_there_are(batches):
    totals = [total for _, total in batches]
    parts = [min(part, total) for part, total in batches]
    share = sum(parts) / sum(totals)
    effective = effective_observations(parts, totals, share)
    assert 0 < effective <= sum(totals)
    deviation, freedom = ratio_deviation(parts, totals)
    assert deviation >= 0
    assert MIN_BATCHES - 1 <= freedom < 40


@pytest.mark.parametrize("n", [1, 3, 25, 205, 10_007])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_all_or_none_lies_in_its_own_interval(share, n):
    low, high = share_interval(share, n)
    assert 0 <= low <= share <= high <= 1
