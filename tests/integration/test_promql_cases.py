"""The cases of metrics, by their numbers, on real Prometheus servers: what PromQL answers, and what is made of it.

Histories are written to the millisecond, so the values are exact; they are compared to six digits.
"""

import time
from datetime import UTC, datetime

import pytest

from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import Estimate, Window
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus import Empty, NotANumber, PrometheusSource, Stale, Value, measure_live, queries
from frontier_tuner.prometheus.answers import Impossible, MalformedAnswerError, RefusedError, UnreachableError
from frontier_tuner.prometheus.cost import Prices, costs
from frontier_tuner.prometheus.engine_metrics import OUTPUT_TOKENS, names_of, resolve
from frontier_tuner.prometheus.estimates import estimate_quantile, estimate_rate
from frontier_tuner.prometheus.gauges import latest
from frontier_tuner.prometheus.histograms import Unknown
from frontier_tuner.prometheus.precision import slo_verdict
from frontier_tuner.prometheus.queries import Histogram, Span
from frontier_tuner.prometheus.reader import Reader
from support.prometheus_server import EACH_SERVER, GAP, SERVERS, STALE, ramp, running, steps

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module", params=EACH_SERVER)
def server(request, tmp_path_factory):
    with running(SERVERS[request.param], tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="module")
def origin():
    """Time zero of every history: long enough ago for all of them, and late enough to be accepted."""
    return float(round(time.time()) - 3000)


class Case:
    """One case: its series are told apart from those of other cases by their namespace."""

    def __init__(self, server, source, origin, namespace):
        self.server, self.source, self.origin, self.namespace = server, source, origin, namespace

    def put(self, name, values, interval=30.0, start=0.0, **labels):
        """Store a series with these values at equal steps."""
        all_labels = {"__name__": name, "namespace": self.namespace, "pod": "p", **labels}
        self.server.write((all_labels, steps(self.origin + start, interval, values)))

    def histogram(self, name, by_edge, interval=30.0, start=0.0, **labels):
        """Store cumulative buckets, given by the text of their edge."""
        for edge, values in by_edge.items():
            self.put(f"{name}_bucket", values, interval, start, le=edge, **labels)

    def at(self, seconds):
        return datetime.fromtimestamp(self.origin + seconds, UTC)

    def ask(self, expression, seconds):
        return self.source.query(expression, self.at(seconds))

    def reader(self, seconds):
        return Reader(self.source, self.at(seconds))

    @property
    def where(self):
        return queries.matchers({"namespace": self.namespace})

    def pods(self, *names):
        return queries.pod_matchers(self.namespace, names)


@pytest.fixture
def case(server, origin, request):
    with PrometheusSource(server.url) as source:
        yield Case(server, source, origin, request.node.name)


def value(answer):
    assert isinstance(answer, Value), answer
    return answer.value


def close(number):
    return pytest.approx(number, rel=1e-6)


def quantile_of(case, name, percentile, seconds, span):
    """Return the quantile as it would be reported, from buckets that rose over a span."""
    histogram = Histogram(name)
    fractions = [(percentile, lambda _: percentile / 100)]
    reading = case.reader(seconds).histogram(
        lambda where: histogram.rate(where, Span(span)), case.where, fractions, scale=span
    )
    return estimate_quantile(reading, percentile, percentile / 100, reading.n)


@pytest.mark.parametrize(
    "names",
    [
        ["vllm:gpu_cache_usage_perc"],
        ["vllm:kv_cache_usage_perc"],
        ["vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"],
    ],
    ids=["old", "new", "both"],
)
def test_case_29_kv_usage_is_found_under_either_name_and_never_summed(case, names):
    for name in names:
        case.put(name, [0.83, 0.83])
    got = latest(case.source, "KVCacheUsage", case.where, case.at(30), max_age_seconds=60)
    assert got == Value(0.83)
    resolved = resolve(case.source, ["KVCacheUsage"], case.where, Span(300), case.at(30))
    assert resolved.names["KVCacheUsage"] == names[-1]


def test_case_29_without_either_name_it_is_absent_and_not_zero(case):
    case.put("vllm:num_requests_running", [1, 1])
    assert latest(case.source, "KVCacheUsage", case.where, case.at(30), max_age_seconds=60) == Empty()


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["vllm:time_per_output_token_seconds"], "vllm:time_per_output_token_seconds"),
        (["vllm:inter_token_latency_seconds"], "vllm:inter_token_latency_seconds"),
        (
            ["vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"],
            "vllm:inter_token_latency_seconds",
        ),
    ],
    ids=["old", "new", "both"],
)
def test_case_30_the_latency_per_token_is_found_by_presence(case, names, want):
    for name in names:
        case.histogram(name, {"0.1": [0, 5], "+Inf": [0, 5]})
    resolved = resolve(case.source, ["ITL", "TPOT"], case.where, Span(300), case.at(30))
    assert resolved.histograms["ITL"] == Histogram(want)
    assert "TPOT" not in resolved.histograms


def test_case_30_where_no_name_is_known_all_that_were_tried_are_told(case):
    case.put(OUTPUT_TOKENS, ramp(0, 3000, 10))
    case.put("vllm:request_success_total", ramp(0, 30, 10), finished_reason="stop")
    measured = measure_live(
        case.source, case.namespace, ["p"], Window(case.at(60), case.at(300)), SLOS, 1, None, min_requests=10
    )
    assert (measured.validity.reason, measured.validity.check) == ("MetricsMissing", "MetricMissing")
    assert "vllm:inter_token_latency_seconds (vLLM from 0.11)" in measured.validity.message
    assert "vllm:time_per_output_token_seconds (vLLM before 0.12)" in names_of("ITL")


SLOS = Objectives(slos=(SLO("itl", "ITL", 95, maximum=0.05),))


@pytest.mark.parametrize(("percentile", "want"), [(50, 1 / 3), (95, 0.75), (99, 0.95)])
def test_case_32_quantiles_are_interpolated_and_carry_the_edges_of_their_buckets(case, percentile, want):
    case.histogram(
        "h",
        {"0.1": ramp(0, 0, 10), "0.25": ramp(0, 30, 10), "0.5": ramp(0, 90, 10), "1.0": ramp(0, 100, 10)}
        | {"+Inf": ramp(0, 100, 10)},
    )
    got = quantile_of(case, "h", percentile, 300, 240)
    assert got.value == close(want)
    assert got.n == 800
    edges = {50: (0.25, 0.5), 95: (0.5, 1.0), 99: (0.5, 1.0)}[percentile]
    assert (got.low, got.high) == edges


def test_case_32_buckets_summed_away_are_an_error_or_empty_and_never_zero(case):
    case.histogram("h", {"0.5": ramp(0, 90, 10), "+Inf": ramp(0, 100, 10)})
    expression = f"histogram_quantile(0.95, sum(rate(h_bucket{{{case.where}}}[4m])))"
    if case.server.version >= (2, 48):
        with pytest.raises(MeasurementError, match="le"):
            case.ask(expression, 300)
    else:
        assert case.ask(expression, 300) == Empty()


def test_case_33_a_quantile_beyond_the_last_finite_edge_is_off_scale(case):
    case.histogram("h", {"1.0": ramp(0, 50, 10), "2560": ramp(0, 90, 10), "+Inf": ramp(0, 100, 10)})
    by_promql = queries.quantile(0.95, Histogram("h").rate(case.where, Span(240)))
    assert value(case.ask(by_promql, 300)) == close(2560)
    got = quantile_of(case, "h", 95, 300, 240)
    assert isinstance(got, Unknown)
    assert got.off_scale
    assert got.why == "at least 2560, off the histogram's scale"


def test_case_33_all_in_the_first_bucket_is_at_most_its_edge(case):
    case.histogram("h", {"0.01": ramp(0, 100, 10), "1.0": ramp(0, 100, 10), "+Inf": ramp(0, 100, 10)})
    got = quantile_of(case, "h", 99, 300, 240)
    assert got.value == close(0.0099)
    assert (got.low, got.high) == (0.0, 0.01)


def test_case_34_without_the_infinite_bucket_a_histogram_is_invalid(case):
    case.histogram("h", {"1.0": ramp(0, 50, 10), "10": ramp(0, 100, 10)})
    by_promql = queries.quantile(0.95, Histogram("h").rate(case.where, Span(240)))
    assert case.ask(by_promql, 300) == NotANumber()
    got = quantile_of(case, "h", 95, 300, 240)
    assert (got.check, "relabelling" in got.why) == ("InvalidHistogram", True)


def test_case_35_an_idle_histogram_and_a_missing_one_are_told_apart(case):
    case.histogram("h", {"1.0": ramp(50, 0, 10), "+Inf": ramp(100, 0, 10)})
    idle = queries.quantile(0.95, Histogram("h").rate(case.where, Span(300)))
    missing = queries.quantile(0.95, Histogram("absent").rate(case.where, Span(300)))
    assert case.ask(idle, 300) == NotANumber()
    assert case.ask(missing, 300) == Empty()
    assert quantile_of(case, "h", 95, 300, 300).check == "NoTraffic"
    assert quantile_of(case, "absent", 95, 300, 300).check == "MetricMissing"


RESET = [0, 3000, 6000, 9000, 12000, 0, 3000, 6000, 9000, 12000, 15000]


def test_case_36_a_counter_reset_is_neither_lost_nor_negative(case):
    case.put("c_total", RESET)
    risen = value(case.ask(queries.increase("c_total", case.where, Span(300)), 300))
    rate = value(case.ask(queries.rate("c_total", case.where, Span(300)), 300))
    assert risen == close(26_666.666667 if case.server.left_open else 27_000.0)
    assert rate == close(88.888889 if case.server.left_open else 90.0)
    resets, _ = queries.restarts("c_total", case.where, Span(300))
    assert value(case.ask(resets, 300)) == 1


def test_case_37_a_replaced_pod_loses_only_what_was_not_scraped(case):
    case.put("c_total", [0, 3000, 6000, 9000, 12000], pod="a")
    case.put("c_total", ramp(2500, 3000, 5), start=150, pod="b")
    both = value(case.ask(queries.increase("c_total", case.pods("a", "b"), Span(300)), 300))
    assert both == pytest.approx(30_000, rel=0.05)
    each = {pod: value(case.ask(queries.increase("c_total", case.pods(pod), Span(300)), 300)) for pod in "ab"}
    assert each["a"] == close(13_500)
    # Older servers extend the series of the new pod back to where it would have been zero.
    assert each["b"] == close(16_500 if case.server.left_open else 17_500)


def test_case_39_the_percentile_of_a_fleet_is_that_of_the_summed_buckets(case):
    for pod, rises in (("a", (99, 100, 100, 100)), ("b", (0, 0, 10, 10))):
        edges = zip(("0.1", "1", "10", "+Inf"), rises, strict=True)
        case.histogram("h", {edge: ramp(0, rise, 10) for edge, rise in edges}, pod=pod)
    got = quantile_of(case, "h", 95, 300, 240)
    assert got.value == close(5.05)
    assert (got.low, got.high) == (1.0, 10.0)


def test_case_40_a_window_shorter_than_four_scrapes_is_refused_before_it_is_measured(case):
    case.put("c_total", ramp(0, 3000, 10))
    short = case.ask(queries.rate("c_total", case.where, Span(30)), 305)
    assert short == Empty()
    assert value(case.ask(queries.rate("c_total", case.where, Span(60)), 305)) == close(100)
    assert "at least 120 s" in queries.window_problem(30, 30)
    assert queries.window_problem(120, 30) is None


def test_case_41_a_window_holds_its_own_trial_and_nothing_of_the_one_before(case):
    case.put("c_total", ramp(0, 3000, 9), trial="1", pod="one")
    case.put("c_total", ramp(0, 6000, 10), start=300, trial="2", pod="two")
    own = queries.rate("c_total", queries.matchers({"namespace": case.namespace, "trial": "2"}), Span(240))
    assert value(case.ask(own, 600)) == close(200)
    unscoped = value(case.ask(queries.rate("c_total", case.where, Span(600)), 600))
    assert unscoped < 160


def test_case_42_a_dead_pod_is_stale_and_not_slow(case):
    case.put(OUTPUT_TOKENS, [*ramp(0, 1500, 20), STALE], interval=15)
    case.put("vllm:request_success_total", [*ramp(0, 15, 20), STALE], interval=15, finished_reason="stop")
    still = case.ask(queries.rate(OUTPUT_TOKENS, case.where, Span(300)), 330)
    assert value(still) == close(92.5)
    later = case.ask(queries.rate(OUTPUT_TOKENS, case.where, Span(300)), 585)
    assert later == (Empty() if case.server.left_open else Value(7.5))  # older ranges still hold the sample at 4m45s
    assert case.ask(queries.rate(OUTPUT_TOKENS, case.where, Span(300)), 590) == Empty()
    measured = measure_live(
        case.source, case.namespace, ["p"], Window(case.at(160), case.at(480)), Objectives(), 1, None, min_requests=10
    )
    assert (measured.validity.valid, measured.validity.reason) == (False, "MetricsStale")
    assert measured.validity.message.endswith(": p")


def test_case_42_the_newest_value_of_a_dead_pod_is_stale(case):
    case.put("vllm:num_requests_running", [*[3] * 11, STALE])
    got = latest(case.source, "Running", case.where, case.at(420), max_age_seconds=60)
    assert got == Stale(120.0)
    assert latest(case.source, "Running", case.where, case.at(320), max_age_seconds=60) == Value(3.0)
    assert latest(case.source, "Running", case.where, case.at(700), max_age_seconds=60) == Empty()


def test_case_43_a_pod_scraped_by_two_jobs_counts_once(case):
    for job in ("svc", "podmon"):
        case.put(OUTPUT_TOKENS, ramp(0, 3000, 10), job=job)
    assert value(case.ask(queries.rate(OUTPUT_TOKENS, case.where, Span(240)), 300)) == close(100)
    counters = case.reader(300).counters(OUTPUT_TOKENS, case.where, Span(240))
    assert (len(counters.series), counters.duplicates) == (1, 1)


def test_counters_that_differ_in_how_requests_finished_or_by_adapter_are_added(case):
    for reason in ("stop", "length"):
        case.put("vllm:request_success_total", ramp(0, 30, 10), finished_reason=reason)
    for model in ("base", "adapter"):
        case.put(OUTPUT_TOKENS, ramp(0, 3000, 10), model_name=model)
    assert value(case.ask(queries.rate("vllm:request_success_total", case.where, Span(240)), 300)) == close(2)
    assert value(case.ask(queries.rate(OUTPUT_TOKENS, case.where, Span(240)), 300)) == close(200)


def test_case_44_the_ranks_of_a_data_parallel_engine_are_summed(case):
    for rank, running_ in enumerate((12, 4, 0, 8)):
        case.put("vllm:num_requests_running", [running_] * 3, engine=str(rank))
        case.put("vllm:num_requests_running", [running_] * 3, engine=str(rank), job="again")
    got = latest(case.source, "Running", case.where, case.at(60), max_age_seconds=60)
    assert got == Value(24.0)
    average = queries.average("vllm:num_requests_running", case.where, Span(60))
    assert value(case.ask(average, 60)) == close(24)


def test_case_45_a_pod_that_no_monitor_selects_is_named(case):
    measured = measure_live(
        case.source, case.namespace, ["p"], Window(case.at(0), case.at(300)), Objectives(), 1, None, min_requests=1
    )
    assert (measured.validity.reason, measured.validity.check) == ("MetricsMissing", "TargetNotScraped")
    assert measured.validity.message == "not scraped: p"


def test_case_46_an_address_without_a_server_is_named_and_the_right_one_answers(case):
    wrong = PrometheusSource("http://127.0.0.1:1", max_attempts=1)
    with wrong, pytest.raises(UnreachableError, match=r"http://127\.0\.0\.1:1 cannot be reached"):
        wrong.query("up", case.at(0))
    assert case.ask("vector(1)", 0) == Value(1.0)


def test_case_47_no_data_is_typed_and_the_wrong_kind_of_result_is_an_error(case):
    case.put("c_total", ramp(0, 1, 4))
    assert case.ask("absent_series", 60) == Empty()
    with pytest.raises(MalformedAnswerError, match="with a matrix, not a vector"):
        case.ask(f"c_total{{{case.where}}}[2m]", 60)
    with pytest.raises(MalformedAnswerError, match="with a scalar, not a vector"):
        case.ask("scalar(vector(1))", 60)
    with pytest.raises(RefusedError, match="parse error"):
        case.ask("rate(", 60)


@pytest.mark.parametrize(
    ("fact", "name", "number"),
    [("Waiting", "vllm:num_requests_waiting", -3.0), ("KVCacheUsage", "vllm:kv_cache_usage_perc", 1.7)],
)
def test_case_49_an_impossible_value_is_refused_with_its_series(case, fact, name, number):
    case.put(name, [0, number])
    got = latest(case.source, fact, case.where, case.at(30), max_age_seconds=60)
    assert got == Impossible(number, f'{name}{{namespace="{case.namespace}",pod="p"}}')


def test_case_49_a_gauge_that_is_not_a_number_is_not_zero(case):
    case.put("vllm:num_requests_waiting", [0, None])
    assert latest(case.source, "Waiting", case.where, case.at(30), max_age_seconds=60) == NotANumber()


def test_case_51_a_mean_divides_by_its_own_count(case):
    case.put("vllm:time_to_first_token_seconds_sum", [0, 4030.0 * 0.25 * 2, 4030.0 * 0.5 * 2, 8060 * 0.75])
    case.put("vllm:time_to_first_token_seconds_count", [0, 8060 / 3, 8060 * 2 / 3, 8060])
    case.put("vllm:request_success_total", [0, 1306, 2612, 3918], finished_reason="stop")
    mean = Histogram("vllm:time_to_first_token_seconds").final_mean(case.where, Span(300))
    assert value(case.ask(mean, 90)) == close(0.75)


def test_case_52_series_are_selected_by_pod_whatever_the_model_is_called(case):
    case.put(OUTPUT_TOKENS, ramp(0, 3000, 10), model_name="qwen/qwen3-32b")
    assert value(case.ask(queries.rate(OUTPUT_TOKENS, case.pods("p"), Span(240)), 300)) == close(100)


def test_case_53_without_throughput_there_is_no_cost(case):
    case.put("idle_total", ramp(500, 0, 10))
    case.put("busy_total", ramp(0, 72_000, 10))
    reader, prices = case.reader(300), Prices(per_gpu_hour=2.5, gpus=8)
    found = {}
    for name in ("idle_total", "busy_total"):
        rate = estimate_rate(reader.ask(queries.rate(name, case.where, Span(240))), events=100)
        found[name] = costs(reader, prices, rate, Unknown("none"), Unknown("none"))["CostPerMillionOutputTokens"]
    idle = f"{prices.per_second * 1e6} / {queries.rate('idle_total', case.where, Span(240))}"
    assert case.ask(idle, 300) == NotANumber()
    assert found["idle_total"].check == "NoTraffic"
    assert found["busy_total"].value == close(2.314814815)
    assert found["busy_total"].low < found["busy_total"].value < found["busy_total"].high


def test_costs_count_cached_tokens_as_the_price_list_says(case):
    case.put("out_total", ramp(0, 30_000, 10))  # 1,000/s
    case.put("in_total", ramp(0, 240_000, 10))  # 8,000/s
    case.put("hit_total", ramp(0, 180_000, 10))  # 6,000/s of them
    reader = case.reader(300)
    rates = [
        estimate_rate(reader.ask(queries.rate(name, case.where, Span(240))), 100)
        for name in ("out_total", "in_total", "hit_total")
    ]
    for percent, counted in ((100, 8000), (10, 2600), (0, 2000)):
        found = costs(reader, Prices(3.6, 1, percent), *rates)
        assert found["CostPerMillionOutputTokens"].value == close(1.0)
        assert found["CostPerMillionInputTokens"].value == close(1000 / counted)
        assert found["CostPerMillionTokens"].value == close(1000 / (1000 + counted))
        for estimate in found.values():
            assert value(case.ask(estimate.query, 300)) == close(estimate.value)
    unknown = costs(reader, Prices(3.6, 1, 10), rates[0], rates[1], Unknown("no series"))
    assert isinstance(unknown["CostPerMillionInputTokens"], Unknown)
    assert isinstance(unknown["CostPerMillionOutputTokens"], Estimate)


def test_case_62_one_request_is_not_a_percentile(case):
    case.histogram("h", {"0.5": [0, 0, 0], "0.75": [0, 1, 1], "+Inf": [0, 1, 1]})
    last = Histogram("h").final(case.where, Span(300))
    assert value(case.ask(queries.quantile(0.95, last), 60)) == close(0.7375)
    reading = case.reader(60).histogram(
        lambda where: Histogram("h").final(where, Span(300)), case.where, [(95, lambda _: 0.95)]
    )
    estimate = estimate_quantile(reading, 95, 0.95, reading.n)
    slo = SLO("ttft", "TTFT", 95, maximum=2.0)
    assert (estimate.value, estimate.n) == (close(0.7375), 1)
    verdict = slo_verdict(slo, estimate)
    assert (verdict.verdict, verdict.reason) == ("Unknown", "InsufficientSamples")
    assert "1 observations, of 200" in verdict.message


def test_case_64_a_peak_is_not_hidden_by_the_instant_or_the_mean(case):
    values = [0.2] * 20
    values[5] = values[6] = 0.98
    case.put("vllm:kv_cache_usage_perc", values, interval=15)
    span = Span(300)
    assert value(case.ask(queries.peak("vllm:kv_cache_usage_perc", case.where, span), 299)) == close(0.98)
    assert value(case.ask(f"vllm:kv_cache_usage_perc{{{case.where}}}", 299)) == close(0.2)
    assert value(case.ask(queries.average("vllm:kv_cache_usage_perc", case.where, span), 299)) == close(0.278)


def test_label_values_select_themselves_whatever_they_contain(case):
    strange = 'a"b\\c{d}=~".*'
    case.put("c_total", ramp(0, 3000, 10), pod=strange)
    case.put("c_total", ramp(0, 6000, 10), pod="other")
    equal = queries.matchers({"namespace": case.namespace, "pod": strange})
    assert value(case.ask(queries.rate("c_total", equal, Span(240)), 300)) == close(100)
    assert value(case.ask(queries.rate("c_total", case.pods(strange), Span(240)), 300)) == close(100)


def test_the_share_within_an_slo_is_exact_on_an_edge(case):
    case.histogram("h", {"0.25": ramp(0, 30, 10), "0.5": ramp(0, 90, 10), "+Inf": ramp(0, 100, 10)})
    slo = SLO("ttft", "TTFT", 95, maximum=0.5)
    histogram = Histogram("h")
    reading = case.reader(300).histogram(
        lambda where: histogram.rate(where, Span(240)), case.where, [(95, lambda _: 0.95)], [0.5, 0.4], scale=240
    )
    assert set(reading.shares) == {slo.bound}
    assert value(reading.shares[0.5].answer) == close(0.9)


def test_a_scrape_that_is_missing_changes_no_rate(case):
    values = ramp(0, 3000, 10)
    values[5] = GAP
    case.put(OUTPUT_TOKENS, values)
    assert value(case.ask(queries.rate(OUTPUT_TOKENS, case.where, Span(240)), 300)) == close(100)
