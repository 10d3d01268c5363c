import re
from datetime import UTC, datetime, timedelta

import pytest

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import Load, Window
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus import Limits, Sample, Scope, measure_live, measure_rung
from frontier_tuner.prometheus.source import single

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SCOPE = Scope(engine={"pod": "e"}, load={"pod": "l"}, gpus=8, price_per_gpu_hour=2.5)
OBJECTIVES = Objectives(
    slos=(SLO("ttft", "TTFT", 99, maximum=0.5), SLO("speed", "UserTokensPerSecond", 10, minimum=40))
)
BUCKETS = (("0.1", 0.0), ("0.25", 30.0), ("0.5", 90.0), ("1", 100.0), ("+Inf", 100.0))


def make_summary(**over):
    values = {
        "load": Load("Concurrency", 8),
        "begin": NOW - timedelta(seconds=5),
        "start": NOW,
        "end": NOW + timedelta(seconds=30),
        "scraped_at": NOW + timedelta(seconds=32),
        "sent": 100,
        "ok": 100,
        "failed": 0,
        "cut": 0,
        "input_tokens": 25600,
        "output_tokens": 72_000,
        "lag_p99_seconds": 0.004,
        "late_seconds": 0.0,
        "scraped": True,
    }
    return LoadSummary(**{**values, **over})


class FakeSource:
    """Answers by the first rule whose words are all in the expression; evaluates quantiles as Prometheus does."""

    def __init__(self, **over):
        self.buckets = over.pop("buckets", BUCKETS)
        self.asked = []
        self.rules = {
            "generation": 2400.0,
            "rate finished": 3.3,
            "finished": 110.0,
            "finished before": 0.0,
            "client": 110.0,
            "scrapes": 6.0,
            "resets": 0.0,
            "process_start": 0.0,
            **over,
        }

    def query(self, expression, at):
        return single(expression, self.vector(expression, at))

    def vector(self, expression, at):
        self.asked.append((expression, at))
        value = self._value(expression, at)
        if isinstance(value, list):
            return value
        return [] if value is None else [Sample({}, value)]

    def _value(self, expression, at):  # noqa: PLR0911 - one answer for each kind of question
        if expression.startswith("histogram_quantile("):
            return quantile(float(expression.split("(")[1].split(",")[0]), self.buckets)
        if "_bucket" in expression:
            return [Sample({"le": le}, count) for le, count in self.buckets]
        if "count_over_time" in expression:
            return self.rules["scrapes"]
        for words, rule in (("resets", "resets"), ("process_start", "process_start"), ("frontier_load", "client")):
            if words in expression:
                return self.rules[rule]
        if "request_success" in expression:
            if "rate(" in expression:
                return self.rules["rate finished"]
            return self.rules["finished" if at > NOW else "finished before"]
        tokens = self.rules["generation"]
        if tokens is None:
            return None
        if expression[0].isdigit():
            return float(expression.split(" /")[0]) / tokens if tokens else float("inf")
        return tokens / 8 if expression.endswith("/ 8") else tokens


def quantile(fraction, buckets):
    rank, before, lower = fraction * buckets[-1][1], 0.0, 0.0
    for le, count in buckets[:-1]:
        if rank <= count:
            return lower + (float(le) - lower) * (rank - before) / (count - before) if count > before else float(le)
        before, lower = count, float(le)
    return lower


def measure(source=None, objectives=OBJECTIVES, limits=None, **summary):
    return measure_rung(source or FakeSource(), SCOPE, make_summary(**summary), objectives, limits or Limits())


def test_a_rung_has_the_usual_percentiles_and_those_of_the_slos():
    measured = measure()
    assert measured.validity.valid
    assert measured.value("TTFT/50") == pytest.approx(1 / 3)
    assert measured.value("TTFT/95") == pytest.approx(0.75)
    assert measured.value("TTFT/99") == pytest.approx(0.95)
    wanted = {"ITL/50", "E2E/95", "UserTokensPerSecond/5", "UserTokensPerSecond/10", "UserTokensPerSecond/50"}
    assert wanted <= set(measured.metrics)
    assert measured.metrics["TTFT/95"].n == 100
    assert measured.metrics["TTFT/95"].low < 0.75 < measured.metrics["TTFT/95"].high


def test_throughput_and_cost_follow_from_the_engines_counters():
    measured = measure()
    assert measured.value("OutputTokensPerSecond") == 2400
    assert measured.value("OutputTokensPerSecondPerGPU") == 300
    assert measured.value("CostPerMillionOutputTokens") == pytest.approx(2.3148, abs=1e-4)
    cost = measured.metrics["CostPerMillionOutputTokens"]
    assert cost.low < cost.value < cost.high


def test_every_query_of_an_estimate_is_asked_for_the_end_of_the_window():
    source = FakeSource()
    measured = measure(source)
    for estimate in measured.metrics.values():
        assert (estimate.query, measured.window.end) in source.asked


def test_without_throughput_there_is_no_cost():
    measured = measure(FakeSource(generation=0.0))
    assert measured.value("CostPerMillionOutputTokens") is None


def test_a_quantile_beyond_the_last_bucket_is_unknown_and_the_window_still_counts():
    measured = measure(FakeSource(buckets=(("1", 50.0), ("2560", 90.0), ("+Inf", 100.0))))
    assert measured.value("TTFT/95") is None
    assert measured.value("TTFT/50") is not None
    assert measured.validity.valid


@pytest.mark.parametrize(
    ("source", "summary", "reason", "words"),
    [
        ({}, {"scraped": False}, "MetricsMissing", "load generator was not scraped"),
        ({"scrapes": None}, {}, "MetricsMissing", "engine was not scraped"),
        ({"scrapes": 2.0}, {}, "MetricsMissing", "scraped 2 times within 30 s"),
        ({"generation": float("nan")}, {}, "MetricsMissing", "OutputTokensPerSecond: not a number"),
        ({"generation": None}, {}, "MetricsMissing", "OutputTokensPerSecond: no series"),
        ({"buckets": ()}, {}, "MetricsMissing", "TTFT/95: no series"),
        ({"buckets": (("1", 0.0), ("+Inf", 0.0))}, {}, "MetricsMissing", "no observations"),
        ({"buckets": (("1", 50.0), ("10", 100.0))}, {}, "MetricsMissing", "the \\+Inf bucket is missing"),
        ({"finished": None}, {}, "MetricsMissing", "engine's count of requests"),
        ({"resets": 1.0}, {}, "WindowInvalid", "restarted"),
        ({"process_start": 1.0}, {}, "WindowInvalid", "restarted"),
        ({}, {"failed": 6, "ok": 94, "first_error": "HTTP 500"}, "WindowInvalid", "6 of 100 requests failed.*HTTP 500"),
        ({}, {"cut": 60, "ok": 40}, "WindowInvalid", "60 of 100 requests were still unanswered"),
        ({}, {"load": Load("RequestRate", 4)}, "WindowInvalid", "sent 3.33 requests/s of 4"),
        ({}, {"lag_p99_seconds": 0.9}, "WindowInvalid", "0.9 s late"),
        ({}, {"late_seconds": 2.0}, "WindowInvalid", "left 2 s late"),
        ({}, {"sent": 19, "ok": 19}, "InsufficientSamples", "19 answered requests, of 20"),
        ({"finished": 1240.0, "client": 990.0}, {}, "MeasurementDisagrees", "1240 requests, its client saw 990"),
        ({"finished before": 50.0}, {}, "MeasurementDisagrees", "60 requests, its client saw 110"),
    ],
)
def test_a_window_that_does_not_count_says_why(source, summary, reason, words):
    validity = measure(FakeSource(**source), **summary).validity
    assert (validity.valid, validity.reason) == (False, reason)
    assert re.search(words, validity.message)


def test_an_engine_first_scraped_after_the_load_began_has_finished_nothing_before():
    assert measure(FakeSource(**{"finished before": None})).validity.valid


def test_many_cut_requests_leave_the_latency_of_whole_requests_unknown():
    measured = measure(FakeSource(finished=100.0, client=90.0), cut=10, ok=90)
    assert measured.value("E2E/95") is None
    assert measured.validity.valid


def test_a_cut_request_counts_as_one_of_the_longest():
    measured = measure(FakeSource(finished=100.0, client=96.0), cut=4, ok=96)
    assert measured.value("TTFT/95") == pytest.approx(0.75)
    assert measured.value("E2E/95") == pytest.approx(0.5 + 0.5 * (0.95 * 104 - 90) / 10)
    assert "histogram_quantile(0.988" in measured.metrics["E2E/95"].query


def test_a_window_without_any_speed_is_not_a_point_and_says_so():
    class Speechless(FakeSource):
        def _value(self, expression, at):
            speed = "user_tokens" in expression
            return [Sample({"le": "1"}, 0.0), Sample({"le": "+Inf"}, 0.0)] if speed else super()._value(expression, at)

    validity = measure(Speechless()).validity
    assert validity.reason == "MetricsMissing"
    assert "UserTokensPerSecond/50: no observations" in validity.message


def test_an_empty_window_has_no_metrics_and_blames_the_engine_that_let_none_begin():
    measured = measure(end=NOW, sent=0, ok=0, output_tokens=0, first_error="no complete answer within 60 s")
    assert measured.metrics == {}
    assert (measured.validity.valid, measured.validity.reason) == (False, "WindowInvalid")
    assert "no complete answer within 60 s" in measured.validity.message


class LiveSource(FakeSource):
    """Two pods, of which some series may be missing."""

    def __init__(self, pods=("a", "b"), names=(), finished=(("stop", 250.0), ("abort", 9.0)), **over):
        super().__init__(**over)
        self.pods, self.names, self.by_reason = pods, names, finished

    def _value(self, expression, at):
        if "by (__name__)" in expression:
            return [Sample({"__name__": name}, 1.0) for name in self.names if name in expression]
        if "by (pod) (count_over_time" in expression:
            return [Sample({"pod": pod}, 1.0) for pod in self.pods]
        if "by (finished_reason)" in expression:
            return [Sample({"finished_reason": reason}, count) for reason, count in self.by_reason]
        if expression.startswith("1 / "):
            return None
        if "num_requests_running" in expression:
            return 4.0
        return super()._value(expression, at)


NAMES = (
    "vllm:time_to_first_token_seconds_bucket",
    "vllm:time_per_output_token_seconds_bucket",
    "vllm:e2e_request_latency_seconds_bucket",
    "vllm:request_time_per_output_token_seconds_bucket",
)


def live(source, min_requests=200):
    window = Window(NOW, NOW + timedelta(seconds=60))
    return measure_live(source, "ml", ["a", "b"], window, OBJECTIVES, 2, 1.5, min_requests)


def test_live_speed_is_the_inverse_of_the_time_per_token_at_the_opposite_percentile():
    measured = live(LiveSource(names=NAMES))
    assert measured.validity.valid, measured.validity
    assert (measured.ok, measured.failed) == (250, 0)
    assert measured.value("UserTokensPerSecond/5") == pytest.approx(1 / 0.75)
    assert measured.metrics["UserTokensPerSecond/5"].query.startswith("1 / histogram_quantile(0.95")
    assert measured.load == Load("RequestRate", 3.3)


def test_live_resolves_renamed_metrics_by_presence_and_prefers_the_new_name():
    old = live(LiveSource(names=NAMES))
    assert "time_per_output_token_seconds_bucket" in old.metrics["ITL/95"].query
    new = live(LiveSource(names=(*NAMES, "vllm:inter_token_latency_seconds_bucket")))
    assert "inter_token_latency_seconds_bucket" in new.metrics["ITL/95"].query


@pytest.mark.parametrize(
    ("source", "reason", "words"),
    [
        ({"pods": ("a",)}, "MetricsMissing", "not scraped: b"),
        ({"names": NAMES[1:]}, "MetricsMissing", "none of vllm:time_to_first_token_seconds"),
        ({"finished": (("stop", 199.0),)}, "InsufficientSamples", "199 answered requests, of 200"),
        ({"finished": (("stop", 900.0), ("error", 100.0))}, "WindowInvalid", "100 of 1000 requests failed"),
        ({"resets": 1.0}, "WindowInvalid", "restarted"),
        ({"finished": (("stop", float("nan")),)}, "MetricsMissing", "absent or not a number"),
    ],
)
def test_a_live_window_that_does_not_count_says_why(source, reason, words):
    validity = live(LiveSource(**{"names": NAMES, **source})).validity
    assert (validity.valid, validity.reason) == (False, reason)
    assert words in validity.message
