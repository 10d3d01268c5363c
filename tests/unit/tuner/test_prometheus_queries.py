import math
import re

import pytest

from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.intervals import poisson_factors, quantile_ranks
from frontier_tuner.prometheus.queries import Span


def test_label_values_are_quoted_whatever_they_contain():
    labels = {"namespace": 'a"b', "pod": "c\\d\ne"}
    assert queries.matchers(labels) == 'namespace="a\\"b",pod="c\\\\d\\ne"'


def test_a_pod_set_matches_exactly_its_pods():
    where = queries.pod_matchers("ml", ["b-1", "a.x"])
    pattern = re.search(r'pod=~"(.*)"', where)[1].replace("\\\\", "\\")
    assert re.fullmatch(pattern, "a.x")
    assert re.fullmatch(pattern, "b-1")
    assert not re.fullmatch(pattern, "aax")
    assert not re.fullmatch(pattern, "b-10")
    with pytest.raises(ValueError, match="at least one pod"):
        queries.pod_matchers("ml", [])


def test_a_span_is_written_to_the_millisecond():
    assert str(Span(30.012)) == "[30s12ms]"
    assert str(Span(35.012, 5.0)) == "[35s12ms] offset -5s"
    assert str(Span(10, -2.5)) == "[10s] offset 2s500ms"


def test_every_series_is_reduced_to_one_for_each_pod_and_rank_before_it_is_summed():
    assert queries.rate("x_total", 'pod="p"', Span(30)) == 'sum(max by (pod, engine) (rate(x_total{pod="p"}[30s])))'
    assert "by (le)" in queries.rate_buckets("x", 'pod="p"', Span(30))
    assert "by (le)" in queries.final_buckets("x", 'pod="p"', Span(30))


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
