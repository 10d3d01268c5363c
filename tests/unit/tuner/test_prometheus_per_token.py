"""Time per token from gaps between steps: known mixtures, and the percentiles that clients of drawn steps see."""

import math
import random

import pytest

from frontier_tuner.objectives import SLO
from frontier_tuner.prometheus.answers import Empty, Value
from frontier_tuner.prometheus.histograms import Buckets, Unknown
from frontier_tuner.prometheus.per_token import (
    TokensPerStep,
    estimate_token_quantile,
    estimate_token_share,
    locate,
    tokens_per_step,
)
from frontier_tuner.prometheus.reader import Asked, HistogramReading

EDGES = (0.01, 0.025, 0.05, 0.075, 0.1, math.inf)


def test_drafted_tokens_that_hold_say_how_many_tokens_steps_bring():
    # 100 steps: 40 bring one token, 24 two, 14 three and 22 four: 218 tokens.
    tokens = tokens_per_step(100.0, [60.0, 36.0, 22.0])
    assert tokens.weights == pytest.approx((40 / 218, 48 / 218, 42 / 218, 88 / 218))
    assert not tokens.single
    assert tokens_per_step(100.0, []).single
    assert tokens_per_step(100.0, [0.0, 0.0]).parts == ((1, 1.0),)


def test_counts_that_cannot_be_are_bounded_by_what_came_before():
    assert tokens_per_step(10.0, [12.0, 11.0]).weights == (0.0, 0.0, 1.0)
    assert tokens_per_step(10.0, [-1.0]).weights == (1.0, 0.0)


def test_one_token_a_step_leaves_a_quantile_where_it_is():
    buckets = Buckets(EDGES, (0.0, 50.0, 100.0, 100.0, 100.0, 100.0))
    place = locate(buckets, TokensPerStep((1.0,)), 0.95)
    assert (place.fraction, place.tokens) == (pytest.approx(0.95), 1)
    assert buckets.quantile(place.fraction) == pytest.approx(0.0475)


def test_the_slowest_tokens_are_those_of_steps_that_bring_one():
    # All gaps lie in 50 to 75 ms; half of the tokens come alone and half in fours, at 12.5 to 18.75 ms each.
    buckets = Buckets(EDGES, (0.0, 0.0, 0.0, 100.0, 100.0, 100.0))
    tokens = TokensPerStep((0.5, 0.0, 0.0, 0.5))
    slow, fast = locate(buckets, tokens, 0.95), locate(buckets, tokens, 0.25)
    assert (slow.fraction, slow.tokens) == (pytest.approx(0.9), 1)
    assert (fast.fraction, fast.tokens) == (pytest.approx(0.5), 4)
    assert buckets.quantile(slow.fraction) / slow.tokens == pytest.approx(0.0725)
    assert buckets.quantile(fast.fraction) / fast.tokens == pytest.approx(0.015625)


def test_tokens_of_steps_beyond_the_last_edge_are_off_scale():
    buckets = Buckets(EDGES, (0.0, 0.0, 0.0, 0.0, 80.0, 100.0))
    missing = locate(buckets, TokensPerStep((0.5, 0.5)), 0.95)
    assert isinstance(missing, Unknown)
    assert missing.off_scale


def test_percentiles_are_those_that_the_clients_of_drawn_steps_see():
    draw, acceptance, seen, gaps, accepted = random.Random(7), 0.6, [], [], [0, 0, 0]
    for _ in range(40_000):
        gap, count = draw.lognormvariate(math.log(0.02), 0.3), 1
        while count < 4 and draw.random() < acceptance:
            accepted[count - 1] += 1
            count += 1
        gaps.append(gap)
        seen += [gap / count] * count
    edges = (*(0.0005 * step for step in range(1, 400)), math.inf)
    buckets = Buckets(edges, tuple(_cumulative(sorted(gaps), edges)))
    tokens = tokens_per_step(len(gaps), accepted)
    seen.sort()
    for percent in (5, 50, 95, 99):
        place = locate(buckets, tokens, percent / 100)
        found = buckets.quantile(place.fraction) / place.tokens
        assert found == pytest.approx(seen[len(seen) * percent // 100], rel=0.01), percent


def _cumulative(ascending, edges):
    at = 0
    for edge in edges:
        while at < len(ascending) and ascending[at] <= edge:
            at += 1
        yield float(at)


def test_the_interval_reaches_to_the_edges_that_the_steps_leave():
    buckets = Buckets(EDGES, (0.0, 0.0, 0.0, 1000.0, 1000.0, 1000.0))
    tokens, reading = TokensPerStep((0.5, 0.0, 0.0, 0.5)), HistogramReading(buckets, {}, {})
    place = locate(buckets, tokens, 0.95)
    found = estimate_token_quantile(reading, tokens, 0.95, place, Asked("q", Value(0.0725)), 1000.0)
    # Of tokens that come alone no more is known than that they take 50 to 75 ms.
    assert (found.low, found.value, found.high) == pytest.approx((0.05, 0.0725, 0.075))
    assert (found.n, found.query) == (1000, "q")
    missing = estimate_token_quantile(reading, tokens, 0.95, place, Asked("q", Empty()), 1000.0)
    assert isinstance(missing, Unknown)


def test_a_share_of_tokens_has_the_interval_of_as_many_steps():
    buckets = Buckets(EDGES, (0.0, 0.0, 0.0, 1000.0, 1000.0, 1000.0))
    slo = SLO("itl", "ITL", 95, maximum=0.025)
    found = estimate_token_share(HistogramReading(buckets, {}, {}), slo, Asked("q", Value(0.5)), 100.0)
    assert found.value == 0.5
    assert (found.low, found.high) == pytest.approx((0.398, 0.602), abs=0.01)
