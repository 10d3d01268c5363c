"""Every rule by which a rung may not count, on a real Prometheus: one thing is wrong in an otherwise right history."""

import re
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from frontier_operator.adapters.clock import SystemClock
from frontier_operator.adapters.metrics import PrometheusMetrics
from frontier_operator.ports import Pricing, RungRequest
from frontier_tuner.configuration import Configuration
from frontier_tuner.measurement import Ending, Load
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus import Limits, PrometheusSource, Value, measure_rung
from support.prometheus_server import EACH_SERVER, SERVERS, running
from support.rung_history import GAP, INTERVAL, TTFT, History, scope_of

pytestmark = pytest.mark.integration
OBJECTIVES = Objectives(
    slos=(SLO("ttft", "TTFT", 95, maximum=0.5), SLO("speed", "UserTokensPerSecond", 10, minimum=40.0))
)


@pytest.fixture(scope="module", params=EACH_SERVER)
def server(request, tmp_path_factory):
    with running(SERVERS[request.param], tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="module")
def origin():
    return float(round(time.time()) - 2000)


@pytest.fixture
def measure(server, origin, request):
    def one(history=None, objectives=OBJECTIVES, limits=None, **scope):
        history = history or History()
        history.write(server, origin, request.node.name)
        with PrometheusSource(server.url) as source:
            summary = history.summarised(origin)
            return measure_rung(source, scope_of(request.node.name, **scope), summary, objectives, limits or Limits())

    return one


def test_a_rung_that_is_as_it_should_be_counts_and_its_numbers_are_right(measure):
    measured = measure()
    assert measured.validity.valid, measured.validity
    assert measured.validity.message == ""
    want = {
        "TTFT/50": 1 / 3,
        "TTFT/95": 0.75,
        "TTFTWithinSLO/95": 0.9,
        "E2E/50": 2.0,
        "UserTokensPerSecond/10": 42.0,
        "UserTokensPerSecondWithinSLO/10": 0.98,
        "OutputTokensPerSecond": 2400.0,
        "OutputTokensPerSecondPerGPU": 300.0,
        "InputTokensPerSecond": 3000.0,
        "RequestsPerSecond": 5.0,
        "CostPerMillionOutputTokens": 2.314814815,
        "CostPerMillionInputTokens": 1.851851852,
        "CostPerMillionTokens": 1.028806584,
        "KVCacheUsagePeak": 0.5,
        "RequestsWaiting": 1.0,
    }
    assert {name: measured.value(name) for name in want} == pytest.approx(want, rel=1e-6)
    assert measured.metrics["TTFT/95"].n == 300
    assert (measured.metrics["TTFT/95"].low, measured.metrics["TTFT/95"].high) == (0.5, 1.0)


def test_every_query_gives_its_value_again_at_the_end_of_the_window(measure, server):
    measured = measure()
    with PrometheusSource(server.url) as source:
        for name, estimate in measured.metrics.items():
            again = source.query(re.sub(r"^(1 - .*)$", r"\1", estimate.query), measured.window.end)
            assert isinstance(again, Value), name
            assert again.value == pytest.approx(estimate.value, rel=1e-9), name
            assert estimate.low <= estimate.value <= estimate.high, name


@pytest.mark.parametrize(("since", "check"), [(None, "CountsDisagree"), (-40.0, "")])
def test_what_an_earlier_engine_under_the_same_labels_counted_is_not_this_ones(
    measure, server, origin, request, since, check
):
    labels = {"__name__": "vllm:request_success_total", "namespace": request.node.name, "pod": "engine"}
    second_rank = {**labels, "engine": "1", "model_name": "m", "finished_reason": "length"}
    server.write((second_rank, [(origin - 60.0 + seconds, 1000.0) for seconds in (0.0, 5.0, 10.0)]))
    began = None if since is None else datetime.fromtimestamp(origin + since, UTC)
    assert measure(engine_since=began).validity.check == check


def falls_at(moment):
    """Return a change by which a counter begins anew at a time."""
    return lambda now, number: number if now < moment else number - 2400.0 * moment


def without(first, last):
    return lambda now, number: GAP if first <= now <= last else number


def slowly(now, number):
    """Throughput that only reaches its level half a minute into the window."""
    run = min(now, 70) - 10
    return number if run < 0 else 24000 + 2400 * (run**2 / 60 if run < 30 else run - 15)


def growing(now, number):
    """TTFT that grows over the window."""
    return number * max(0.0, now - 10) / 12


TOKENS, FINISHED = "vllm:generation_tokens_total", "vllm:request_success_total"
CASES = {
    "the generator was not scraped": (
        History(summary={"scraped": False}),
        "GeneratorNotScraped",
        "MetricsMissing",
        "load generator was not scraped",
    ),
    "case 45: the engine is no target": (
        History(drop=("up", TOKENS)),
        "TargetNotScraped",
        "MetricsMissing",
        "PodMonitor.*Prometheus selects its labels",
    ),
    "case 48: the engine's metrics endpoint fails": (
        History(drop=(TOKENS, FINISHED), change={"up": lambda *_: 0.0}),
        "MetricsEndpointFailing",
        "MetricsMissing",
        "answers no scrape; its configuration is not to blame",
    ),
    "two scrapes are too few": (
        History(change={TOKENS: without(21, 69)}),
        "TooFewScrapes",
        "MetricsMissing",
        "scraped 4 times within 60 s, of 5",
    ),
    "no scrape after the end": (
        History(change={TOKENS: without(70, 100)}),
        "NotScrapedAfter",
        "MetricsMissing",
        "not scraped after the end",
    ),
    "Prometheus was down for half a minute": (
        History(change={TOKENS: without(26, 54)}),
        "ScrapeGap",
        "MetricsStale",
        "not scraped for 30 s of the window, at most 25",
    ),
    "Prometheus was down when the window ended": (
        History(change={TOKENS: without(46, 74)}),
        "ScrapeGap",
        "MetricsStale",
        "not scraped for 30 s",
    ),
    "a scrape is missing at the end of the window": (
        History(change={TOKENS: without(56, 71)}),
        "ScrapeGap",
        "MetricsStale",
        "throughput would be -1[45].*% off",
    ),
    "the generator's clock is ahead": (History(clock=4.0), "ClockSkew", "WindowInvalid", "4 s ahead of"),
    "the generator's clock is behind": (History(clock=-12.0), "ClockSkew", "WindowInvalid", "behind"),
    "case 63: the engine's process was replaced": (
        History(change={"process_start_time_seconds": lambda now, number: number + (now > 40) * 40}),
        "EngineRestarted",
        "WindowInvalid",
        "restarted",
    ),
    "case 36: a counter fell": (
        History(change={TOKENS: falls_at(40.0)}),
        "CounterReset",
        "WindowInvalid",
        "began anew",
    ),
    "case 17: a requested option is not in force": (
        History(labels={"vllm:cache_config_info": {"cache_dtype": "auto"}}),
        "EffectiveConfigMismatch",
        "WindowInvalid",
        "kvCacheDtype is fp8 by request and auto in the engine",
    ),
    "6 % failed": (
        History(summary={"failed": 18, "ok": 282, "first_error": "HTTP 500"}),
        "TooManyFailed",
        "WindowInvalid",
        "18 of 300 requests failed; the first said: HTTP 500",
    ),
    "most were cut": (
        History(summary={"cut": 180, "ok": 120}),
        "TooManyCut",
        "WindowInvalid",
        "180 of 300 requests were still unanswered",
    ),
    "the open loop did not reach its rate": (
        History(summary={"load": Load("RequestRate", 6)}),
        "RateNotReached",
        "WindowInvalid",
        "sent 5 requests/s of 6",
    ),
    "the generator was late": (
        History(summary={"lag_p99_seconds": 0.9}),
        "GeneratorLate",
        "WindowInvalid",
        "0.9 s late: give it more CPU",
    ),
    "case 59: the first request left late": (
        History(summary={"late_seconds": 4.0}),
        "LateStart",
        "WindowInvalid",
        "left 4 s late",
    ),
    "case 62: too few requests": (
        History(summary={"sent": 19, "ok": 19}),
        "TooFewRequests",
        "InsufficientSamples",
        "19 answered requests, of 20",
    ),
    "NaN": (
        History(change={TOKENS: lambda *_: None}),
        "NotANumber",
        "MetricsMissing",
        "OutputTokensPerSecond: not a number",
    ),
    "case 30: a histogram is missing": (
        History(drop=("frontier_load_ttft_seconds_bucket",)),
        "MetricMissing",
        "MetricsMissing",
        "TTFT/95: no series",
    ),
    "case 34: no infinite bucket": (
        History(replace={"frontier_load_ttft_seconds": {"0.5": 0.9, "1.0": 1.0}}),
        "InvalidHistogram",
        "MetricsMissing",
        r"the \+Inf bucket is missing",
    ),
    "case 35: nothing was observed": (
        History(replace={"frontier_load_ttft_seconds": {"0.5": 0.0, "+Inf": 0.0}}),
        "NoTraffic",
        "MetricsMissing",
        "TTFT/95: no observations",
    ),
    "the engine's count of requests is missing": (
        History(drop=(FINISHED,)),
        "MetricMissing",
        "MetricsMissing",
        "RequestsPerSecond: no series",
    ),
    "another client uses the engine": (
        History(change={FINISHED: lambda _, number: number * 1.2}),
        "CountsDisagree",
        "MeasurementDisagrees",
        "the engine finished 420 requests, its client saw 350",
    ),
    "the engine counts more tokens than arrive": (
        History(change={TOKENS: lambda _, number: number * 1.4}),
        "CountsDisagree",
        "MeasurementDisagrees",
        "counted 201600 output tokens.*144000",
    ),
    "case 50: answers without a token": (
        History(summary={"output_tokens": 0}),
        "InconsistentResult",
        "WindowInvalid",
        "not one token",
    ),
    "the client saw slower answers than the engine gave": (
        History(change={"frontier_load_e2e_seconds_sum": lambda _, number: number * 1.5}),
        "TimesDisagree",
        "MeasurementDisagrees",
        "3 s on average for the client and 2 s for the engine",
    ),
    "case 54: the prefix cache was warm": (
        History(change={"vllm:prefix_cache_hits_total": lambda now, _: 90.0 * max(0.0, now)}),
        "WarmCache",
        "WindowInvalid",
        "3 % of the prompt tokens.*repeats 0 %",
    ),
    "case 54: more was found than the load repeats": (
        History(
            summary={"shared_tokens": 90_000},
            change={"vllm:prefix_cache_hits_total": lambda now, _: 1600.0 * max(0.0, now)},
        ),
        "WarmCache",
        "WindowInvalid",
        "53.3 % of the prompt tokens.*repeats 50 %",
    ),
    "case 57: malformed answers": (
        History(summary={"ok": 296, "failed": 4, "malformed": 4}),
        "TooManyMalformed",
        "WindowInvalid",
        "4 of 300 answers have times that cannot be",
    ),
    "requests that were never sent": (
        History(summary={"unsent": 7, "cpu_percent": 99}),
        "RateNotReached",
        "WindowInvalid",
        "never sent 7 requests.*used 99 % of a core",
    ),
    "the SLO lies inside a wide bucket": (
        History(replace={"frontier_load_ttft_seconds": {name: TTFT[name] for name in ("0.25", "1.0", "+Inf")}}),
        "BoundOffEdges",
        "WindowInvalid",
        "0.5 of TTFT/95 lies between the edges 0.25 and 1",
    ),
    "the engine was not warm": (
        History(change={TOKENS: slowly}, summary={"output_tokens": 108_000}),
        "NotWarm",
        "WindowInvalid",
        "throughput (rose|settled)",
    ),
}
LOOSE = Limits(max_gap_scrapes=100, min_scrapes=5)


@pytest.mark.parametrize("name", CASES)
def test_a_window_that_does_not_count_says_which_rule_and_why(measure, name):
    history, check, reason, words = CASES[name]
    requested = {"kvCacheDtype": "fp8" if "case 17" in name else "auto", "enablePrefixCaching": True}
    validity = measure(history, limits=LOOSE if check == "TooFewScrapes" else None, configuration=requested).validity
    assert (validity.valid, validity.check, validity.reason) == (False, check, reason), validity
    assert re.search(words, validity.message), validity.message


def test_a_queue_that_grows_counts_only_where_an_slo_is_missed_for_certain(measure):
    history = History(change={"frontier_load_ttft_seconds_sum": growing})
    missed = measure(history, Objectives(slos=(SLO("ttft", "TTFT", 95, maximum=0.25),)))
    assert missed.validity.valid, missed.validity


def test_a_queue_that_grows_below_the_slo_is_no_steady_state(measure):
    history = History(change={"frontier_load_ttft_seconds_sum": growing})
    held = measure(history, Objectives(slos=(SLO("ttft", "TTFT", 50, maximum=1.0),)))
    assert (held.validity.check, held.validity.reason) == ("Overloaded", "WindowInvalid"), held.validity


def test_case_33_an_slo_off_the_scale_is_missed_and_the_window_counts(measure):
    shares = {"0.45": 0.5, "0.5": 0.5, "+Inf": 1.0}
    measured = measure(History(replace={"frontier_load_ttft_seconds": shares}))
    assert measured.validity.valid, measured.validity
    assert measured.value("TTFT/95") is None
    assert measured.value("TTFTWithinSLO/95") == pytest.approx(0.5)


def test_case_49_an_impossible_gauge_is_left_out_and_told(measure):
    measured = measure(History(change={"vllm:kv_cache_usage_perc": lambda *_: 1.7}))
    assert measured.validity.valid
    assert "KVCacheUsagePeak" not in measured.metrics
    assert "vllm:kv_cache_usage_perc is 1.7 and must be between 0 and 1" in measured.validity.message


def test_case_56_failures_are_counted_apart_from_the_latency_of_successes(measure):
    history = History(
        summary={"sent": 300, "ok": 285, "failed": 15},
        change={FINISHED: lambda _, number: number * 335 / 350},
    )
    measured = measure(history)
    assert measured.validity.valid, measured.validity
    assert (measured.ok, measured.failed, measured.value("TTFT/95")) == (285, 15, pytest.approx(0.75))


def test_an_engine_first_scraped_after_the_load_began_has_finished_nothing_before(measure):
    measured = measure(History(change={FINISHED: without(-20, 4)}))
    assert measured.validity.valid, measured.validity


def test_many_cut_requests_leave_the_latency_of_whole_requests_unknown(measure):
    measured = measure(History(summary={"ok": 270, "cut": 30}))
    assert measured.validity.valid, measured.validity
    assert measured.value("E2E/95") is None


def test_a_cut_request_counts_as_one_of_the_longest(measure):
    measured = measure(History(summary={"ok": 294, "cut": 6}))
    # The histogram holds 300, so 306 were sent: 0.95 of them is 0.969 of those that were answered.
    assert measured.value("E2E/95") == pytest.approx(2 + 2 * (0.95 * 306 - 150) / 150)


def test_an_empty_window_has_no_metrics_and_blames_the_engine_that_let_none_begin(measure):
    nothing = {"end": lambda moment: moment(10.0), "sent": 0, "ok": 0, "output_tokens": 0}
    measured = measure(History(summary={**nothing, "first_error": "no complete answer within 60 s"}))
    assert measured.metrics == {}
    assert (measured.validity.check, measured.validity.reason) == ("NoWindow", "WindowInvalid")
    assert "no complete answer within 60 s" in measured.validity.message


def test_the_interval_of_a_rate_spans_what_a_missing_scrape_leaves_open(measure):
    measured = measure(History(change={TOKENS: without(61, 71)}))
    throughput = measured.metrics["OutputTokensPerSecond"]
    assert measured.validity.valid, measured.validity
    assert throughput.value < 2400 < throughput.high


def test_case_54_hits_that_the_load_itself_repeats_spoil_nothing(measure):
    hits = {"vllm:prefix_cache_hits_total": lambda now, _: 1500.0 * max(0.0, now)}
    measured = measure(History(summary={"shared_tokens": 90_000}, change=hits))
    assert measured.validity.valid, measured.validity
    assert measured.value("CachedInputTokensPerSecond") == pytest.approx(1500)


@pytest.mark.parametrize(
    ("over", "check"),
    [
        ({}, ""),
        ({"mismatches": ("--max-num-seqs is 8 by request and 7 where it runs",)}, "EffectiveConfigMismatch"),
        ({"configuration": Configuration.of({"kvCacheDtype": "fp8"})}, "EffectiveConfigMismatch"),
        ({"declared_hit_percent": 20.0}, "WarmCache"),
        ({"declared_hit_percent": None}, ""),
    ],
)
def test_the_operators_windows_are_judged_by_what_it_knows_beforehand(server, origin, request, over, check):
    history = History(change={"vllm:prefix_cache_hits_total": lambda moment, _: 1500.0 * min(max(0.0, moment), 70.0)})
    history.write(server, origin, request.node.name)
    known = {"configuration": Configuration.of({"enablePrefixCaching": True}), "declared_hit_percent": 50.0, **over}
    asked = RungRequest(
        namespace=request.node.name,
        engine_pod="engine",
        load_pod="load",
        summary=replace(history.summarised(origin), ended=Ending("Tight", (), "enough")),
        objectives=OBJECTIVES,
        pricing=Pricing(8, 2.5, cached_input_percent=10.0),
        min_requests=20,
        **known,
    )
    with PrometheusSource(server.url) as source:
        measured = PrometheusMetrics(source, SystemClock(), INTERVAL).rung(asked)
    assert measured.validity.check == check
    assert measured.ended == Ending("Tight", (), "enough")
    # Half of the input is cached and counts a tenth: 3,000 tokens/s are 1,650.
    assert measured.value("CostPerMillionInputTokens") == pytest.approx(1.851851852 * 3000 / 1650, rel=1e-6)


def test_a_window_of_two_jobs_counts_once_and_says_so(measure, server, origin, request):
    other = History(labels={TOKENS: {"job": "other"}}, only=(TOKENS,))
    other.write(server, origin, request.node.name)
    measured = measure()
    assert measured.value("OutputTokensPerSecond") == pytest.approx(2400)
    assert "several jobs" in measured.validity.message
