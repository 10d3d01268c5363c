"""Counters, histograms and gauges as they are read: pure functions of samples."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.prometheus.answers import (
    Empty,
    Impossible,
    NativeHistogram,
    NotANumber,
    Sample,
    Series,
    Stale,
    Value,
)
from frontier_tuner.prometheus.counters import Counters, increases, longest_gap, one_of_each, scrapes
from frontier_tuner.prometheus.effective import argument_mismatches, cache_config_mismatches
from frontier_tuner.prometheus.gauges import combine
from frontier_tuner.prometheus.histograms import Buckets, Unknown, read_buckets


def series(*pairs, **labels):
    return Series({"pod": "a", **labels}, tuple(time for time, _ in pairs), tuple(value for _, value in pairs))


def test_duplicates_of_several_jobs_are_left_out_and_counted():
    pairs = [(0.0, 0.0), (10.0, 5.0), (20.0, 9.0)]
    counters = one_of_each([series(*pairs[:2], job="x"), series(*pairs, job="y"), series(*pairs, engine="1", job="y")])
    assert len(counters.series) == 2
    assert counters.duplicates == 1
    assert all(len(each.times) == 3 for each in counters.series)


def test_an_increase_is_interpolated_between_scrapes_and_survives_a_reset():
    counters = Counters((series((0, 100.0), (10, 200.0), (20, 40.0), (30, 60.0)),))
    assert increases(counters, [0, 5, 15, 25, 30]) == pytest.approx([50, 70, 30, 10])
    assert increases(counters, [-10, 0]) == [0]
    assert increases(counters, [30, 90]) == [0]


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=30), st.lists(st.floats(0, 300), min_size=2, max_size=10))
def test_increases_are_never_negative_and_add_up(values, times):
    counters = Counters((series(*((10.0 * step, value) for step, value in enumerate(values))),))
    parts = increases(counters, sorted(times))
    assert all(part >= -1e-6 for part in parts)
    whole = increases(counters, [min(times), max(times)])[0]
    assert sum(parts) == pytest.approx(whole, rel=1e-6, abs=1e-3)


@pytest.mark.parametrize(
    ("times", "want"),
    [([0, 10, 20, 30, 40], 10), ([0, 10, 30, 40], 20), ([10, 20, 25], 15), ([0, 40], 40), ([-5, 45], 50), ([], 40)],
    ids=["dense", "one missing", "none at the end", "only the ends", "only outside", "none at all"],
)
def test_a_gap_reaches_to_the_scrapes_around_the_window(times, want):
    counters = Counters((series(*((float(time), 1.0) for time in times)),) if times else ())
    assert longest_gap(counters, 0.0, 40.0) == want


def test_the_least_scraped_counter_decides():
    counters = Counters((series((1.0, 0.0), (2.0, 0.0)), series((1.0, 0.0), pod="b")))
    assert scrapes(counters, 0.0, 2.0) == 1
    assert longest_gap(counters, 1.0, 3.0) == 2.0


def cumulative(**counts):
    return [Sample({"le": edge.removeprefix("_").replace("_", ".")}, count) for edge, count in counts.items()]


def make_buckets(counts=(0.0, 30.0, 90.0, 100.0, 100.0)):
    return Buckets((0.1, 0.25, 0.5, 1.0, math.inf), counts)


@pytest.mark.parametrize(
    ("fraction", "want"),
    [(0.0, (0.0, 0.1)), (0.3, (0.1, 0.25)), (0.31, (0.25, 0.5)), (0.95, (0.5, 1.0)), (1.0, (0.5, 1.0))],
)
def test_a_quantile_lies_between_the_edges_of_its_bucket(fraction, want):
    assert make_buckets().around(fraction) == want


@pytest.mark.parametrize(
    ("threshold", "want"), [(0.0, 0), (0.1, 0), (0.2, 20), (0.25, 30), (0.5, 90), (0.75, 95), (1.0, 100), (9.0, 100)]
)
def test_observations_up_to_a_threshold_are_exact_on_an_edge_and_linear_between(threshold, want):
    assert make_buckets().at_most(threshold) == pytest.approx(want)


def test_a_threshold_off_the_edges_is_bracketed():
    assert make_buckets().bracket(0.5) == (90.0, 90.0)
    assert make_buckets().bracket(0.3) == (30.0, 90.0)
    assert make_buckets().edge(0.5 * (1 + 1e-12)) == 2
    assert make_buckets().edge(0.4) is None


def test_beyond_the_last_finite_edge_a_quantile_is_off_scale():
    buckets = make_buckets((0.0, 30.0, 80.0, 90.0, 100.0))
    assert buckets.off_scale(0.95)
    assert not buckets.off_scale(0.9)
    assert buckets.around(0.99) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("samples", "check"),
    [
        ([], "MetricMissing"),
        (cumulative(_0_5=1.0), "InvalidHistogram"),
        (cumulative(_0_5=1.0, _1=2.0), "InvalidHistogram"),
        ([Sample({"le": "+Inf"}, 3.0)], "InvalidHistogram"),
        ([Sample({"le": "much"}, 3.0), Sample({"le": "+Inf"}, 3.0)], "InvalidHistogram"),
        ([Sample({"le": "1"}, 5.0), Sample({"le": "+Inf"}, 3.0)], "InvalidHistogram"),
        ([Sample({"le": "1"}, math.nan), Sample({"le": "+Inf"}, 3.0)], "NotANumber"),
        ([Sample({"le": "1"}, 0.0), Sample({"le": "+Inf"}, 0.0)], "NoTraffic"),
        ([Sample({}, math.nan, NativeHistogram(0.0, 0.0, ()))], "NoTraffic"),
        ([Sample({}, math.nan, NativeHistogram(1.0, math.nan, ((0.0, 1.0, 1.0),)))], "NotANumber"),
    ],
)
def test_what_is_no_histogram_says_why(samples, check):
    found = read_buckets(samples)
    assert isinstance(found, Unknown)
    assert found.check == check
    assert not found.off_scale


def test_an_edge_in_two_spellings_is_one():
    buckets = read_buckets(
        [Sample({"le": edge}, count) for edge, count in (("1", 30.0), ("1.0", 50.0), ("+Inf", 100.0))]
    )
    assert (buckets.edges, buckets.counts) == ((1.0, math.inf), (80.0, 100.0))
    assert buckets.labels == ("", "+Inf")


def test_a_native_histogram_has_edges_where_its_buckets_begin_and_end():
    histogram = NativeHistogram(10.0, 4.0, ((0.0, 0.1, 3.0), (0.25, 0.5, 5.0), (2.5, math.inf, 2.0)))
    buckets = read_buckets([Sample({}, math.nan, histogram)])
    assert buckets.edges == (0.1, 0.25, 0.5, 2.5, math.inf)
    assert buckets.counts == (3.0, 3.0, 8.0, 8.0, 10.0)
    assert buckets.around(0.5) == (0.25, 0.5)
    assert buckets.off_scale(0.9)


@pytest.mark.parametrize(
    ("all_series", "want"),
    [
        ([], Empty()),
        ([series((90.0, 3.0)), series((95.0, 4.0), engine="1")], Value(7.0)),
        ([series((90.0, 3.0)), series((20.0, 4.0), engine="1")], Stale(80.0)),
        ([series((95.0, math.nan))], NotANumber()),
        ([series((95.0, -3.0))], Impossible(-3.0, '{pod="a"}')),
        ([series((95.0, 1.5))], Impossible(1.5, '{pod="a"}')),
    ],
    ids=["no series", "ranks are summed", "one rank is stale", "NaN", "case 49: below 0", "case 49: above its highest"],
)
def test_the_newest_value_of_a_gauge_is_a_sum_or_says_why_not(all_series, want):
    highest = 1.0 if isinstance(want, Impossible) else math.inf
    assert combine(all_series, 100.0, 30.0, highest) == want


SHOWN = {"cache_dtype": "auto", "enable_prefix_caching": "True", "gpu_memory_utilization": "0.9", "block_size": "16"}


@pytest.mark.parametrize(
    ("requested", "shown", "words"),
    [
        ({"kvCacheDtype": "fp8"}, {}, "kvCacheDtype is fp8 by request and auto in the engine (cache_dtype)"),
        ({"kvCacheDtype": "fp8"}, {"cache_dtype": "fp8_e4m3"}, None),
        ({"kvCacheDtype": "auto"}, {"cache_dtype": "bfloat16"}, None),
        ({"enablePrefixCaching": False}, {}, "enablePrefixCaching is False by request and True"),
        ({"enablePrefixCaching": True}, {}, None),
        ({"gpuMemoryUtilizationPercent": 90}, {}, None),
        ({"gpuMemoryUtilizationPercent": 95}, {}, "gpuMemoryUtilizationPercent is 95 by request and 0.9"),
        ({"gpuMemoryUtilizationPercent": 95}, {"gpu_memory_utilization": "None"}, "and None"),
        ({"maxNumSeqs": 512}, {}, None),
    ],
)
def test_case_17_an_option_that_is_not_in_force_is_named(requested, shown, words):
    found = cache_config_mismatches(requested, SHOWN | shown)
    assert found == () if words is None else words in found[0]


@pytest.mark.parametrize(
    ("running", "want"),
    [
        (["--max-num-seqs", "512", "--model", "m"], ()),
        (["--max_num_seqs=512"], ()),
        (["--max-num-seqs", "256"], ("--max-num-seqs is 512 by request and 256 where it runs",)),
        (["--model", "m"], ("--max-num-seqs was asked for and is not given",)),
    ],
)
def test_case_60_a_command_line_that_is_not_the_recorded_one_is_told(running, want):
    assert argument_mismatches(["--max-num-seqs=512"], running) == want
