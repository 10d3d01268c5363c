import re

import pytest

from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.engine_metrics import TABLE, names_of
from frontier_tuner.prometheus.queries import Histogram, Span


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


@pytest.mark.parametrize(
    "expression",
    [
        queries.rate("x_total", 'pod="p"', Span(30)),
        queries.increase("x_total", 'pod="p"', Span(30)),
        queries.final("x_total", 'pod="p"', Span(30)),
        queries.average("x", 'pod="p"', Span(30)),
    ],
)
def test_every_series_is_reduced_to_one_for_each_pod_rank_and_model_before_it_is_summed(expression):
    assert expression.startswith("sum(max by (pod, engine, model_name, finished_reason, phase, result) (")


def test_buckets_keep_their_edges_and_native_histograms_have_none():
    classic, native = (Histogram("x", native).rate('pod="p"', Span(30)) for native in (False, True))
    assert classic.startswith("sum by (le) (max by (le, pod, engine")
    assert 'x_bucket{pod="p"}[30s]' in classic
    assert native.startswith("sum(avg by (pod, engine")
    assert 'x{pod="p"}[30s]' in native


def test_case_40_a_window_needs_four_scrape_intervals():
    assert queries.window_problem(20.0, 5.0) is None
    assert queries.window_problem(19.9, 5.0) == (
        "a window of 19.9 s is shorter than 4 scrape intervals of 5 s: measure for at least 20 s or scrape more often"
    )


def test_case_30_the_names_of_a_fact_are_told_with_their_versions():
    assert names_of("ITL") == (
        "vllm:inter_token_latency_seconds (vLLM from 0.11), vllm:time_per_output_token_seconds (vLLM before 0.12)"
    )
    assert names_of("TTFT") == "vllm:time_to_first_token_seconds"


def test_no_name_stands_for_two_facts_and_the_newest_comes_first():
    names = [name.name for metric in TABLE.values() for name in metric.names]
    assert len(names) == len(set(names))
    assert all(not metric.names[0].until for metric in TABLE.values())
