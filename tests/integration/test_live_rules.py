"""Live windows of two pods on a real Prometheus: what they show, and every reason why one does not count."""

import re
import time
from datetime import UTC, datetime

import pytest

from frontier_tuner.measurement import Load, Window
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus import PrometheusSource, Value, measure_live
from support.prometheus_server import EACH_SERVER, GAP, SERVERS, STALE, running

pytestmark = pytest.mark.integration
OBJECTIVES = Objectives(
    slos=(SLO("ttft", "TTFT", 95, maximum=0.5), SLO("speed", "UserTokensPerSecond", 5, minimum=20.0))
)
TTFT = {"0.1": 0.0, "0.25": 0.3, "0.5": 0.9, "1.0": 1.0, "+Inf": 1.0}
PER_TOKEN = {"0.01": 0.0, "0.025": 0.5, "0.05": 1.0, "0.075": 1.0, "+Inf": 1.0}
HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": TTFT,
    "vllm:inter_token_latency_seconds": PER_TOKEN,
    "vllm:e2e_request_latency_seconds": {"1.0": 0.5, "2.0": 1.0, "+Inf": 1.0},
    "vllm:request_time_per_output_token_seconds": PER_TOKEN,
}
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
TOKENS, FINISHED, STARTED = "vllm:generation_tokens_total", "vllm:request_success_total", "process_start_time_seconds"
SECONDS, INTERVAL = 120, 5


@pytest.fixture(scope="module", params=EACH_SERVER)
def server(request, tmp_path_factory):
    with running(SERVERS[request.param], tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="module")
def origin():
    return float(round(time.time()) - 2000)


def series_of(pod, rate):
    """Yield name, labels and value over time of everything that a pod exports, at so many requests per second."""
    engine = {"pod": pod, "engine": "0", "model_name": "m"}
    yield STARTED, {"pod": pod}, lambda _: 1e9
    yield TOKENS, engine, lambda now: 400 * rate * now
    yield "vllm:prompt_tokens_total", engine, lambda now: 1000 * rate * now
    for reason, share in (("stop", 0.6), ("length", 0.4), ("abort", 0.1), ("error", 0.0)):
        yield FINISHED, {**engine, "finished_reason": reason}, lambda now, share=share: share * rate * now
    for name, shares in HISTOGRAMS.items():
        events = rate * (400 if "inter_token" in name else 1)
        for edge, share in shares.items():
            yield f"{name}_bucket", {**engine, "le": edge}, lambda now, n=events * share: n * now


def accepted_of(pod, held):
    """Yield the drafted tokens of a pod that held, by position, at so many a second."""
    for (owner, position), per_second in held.items():
        if owner == pod:
            labels = {"pod": pod, "engine": "0", "model_name": "m", "position": position}
            yield ACCEPTED, labels, lambda now, n=per_second: n * now


@pytest.fixture
def measure(server, origin, request):
    def one(
        change=None,
        drop=(),
        rates=(("a", 1.5), ("b", 1.0)),
        pods=("a", "b"),
        min_requests=200,
        end=SECONDS,
        accepted=None,
        objectives=OBJECTIVES,
    ):
        written = []
        for pod, rate in rates:
            for name, labels, value in (*series_of(pod, rate), *accepted_of(pod, accepted or {})):
                if name in drop or (pod, name) in drop:
                    continue
                alter = (change or {}).get((pod, name), lambda _, number: number)
                moments = [float(moment) for moment in range(-10, SECONDS + 11, INTERVAL)]
                values = [(now, alter(now, value(now + 10))) for now in moments]
                samples = [(origin + now, number) for now, number in values if number is not GAP]
                written.append(({"__name__": name, "namespace": request.node.name, **labels}, samples))
        server.write(*written)
        window = Window(datetime.fromtimestamp(origin, UTC), datetime.fromtimestamp(origin + end, UTC))
        with PrometheusSource(server.url) as source:
            return measure_live(source, request.node.name, list(pods), window, objectives, 4, 2.0, min_requests)

    return one


def test_a_live_window_sums_its_pods_and_counts_every_way_to_finish(measure):
    measured = measure()
    assert measured.validity.valid, measured.validity
    assert (measured.ok, measured.failed) == (300, 0)
    assert measured.load == Load("RequestRate", pytest.approx(2.5))
    want = {
        "OutputTokensPerSecond": 1000.0,
        "OutputTokensPerSecondPerGPU": 250.0,
        "InputTokensPerSecond": 2500.0,
        "TTFT/95": 0.75,
        "TTFTWithinSLO/95": 0.9,
        "ITL/50": 0.025,
        "UserTokensPerSecond/50": 40.0,
        "UserTokensPerSecond/5": 1 / 0.0475,
        "CostPerMillionOutputTokens": 8 / 3600 / 1000 * 1e6,
    }
    assert {name: measured.value(name) for name in want} == pytest.approx(want, rel=1e-6)
    assert measured.metrics["UserTokensPerSecond/5"].query.startswith("1 / histogram_quantile(0.95")


def test_every_number_is_what_prometheus_answers_to_its_query(measure, server):
    measured = measure()
    with PrometheusSource(server.url) as source:
        for name, estimate in measured.metrics.items():
            again = source.query(estimate.query, measured.window.end)
            assert isinstance(again, Value), name
            assert again.value == pytest.approx(estimate.value, rel=1e-9), name
            assert estimate.low <= estimate.value <= estimate.high, name


def test_a_pod_that_joined_in_the_middle_counts_for_what_it_did(measure):
    joined = {("b", name): lambda now, number: GAP if now < 60 else number for name in _names()}
    measured = measure(joined, min_requests=100)
    assert measured.validity.valid, measured.validity
    assert 800 < measured.value("OutputTokensPerSecond") < 860


def test_live_itl_is_per_token_where_engines_speculate(measure, server):
    # Half of the steps bring one token and half bring three: a token comes alone with 1/4, in threes with 3/4.
    objectives = Objectives(slos=(SLO("itl", "ITL", 95, maximum=0.025),))
    held = {(pod, position): 200 * rate for pod, rate in (("a", 1.5), ("b", 1.0)) for position in "01"}
    measured = measure(accepted=held, objectives=objectives)
    assert measured.validity.valid, measured.validity
    # Alone it takes 10 to 25 ms with 1/2 and 25 to 50 ms with 1/2; in threes a third of that.
    want = {"ITL/95": 0.04, "ITL/50": 0.0109375, "ITLWithinSLO/95": 0.25 * 0.5 + 0.75}
    assert {name: measured.value(name) for name in want} == pytest.approx(want, rel=1e-6)
    assert measured.metrics["ITL/95"].query.startswith("histogram_quantile(0.8, ")
    assert measured.metrics["ITL/50"].query.endswith(" / 3")
    with PrometheusSource(server.url) as source:
        for name in want:
            estimate = measured.metrics[name]
            assert source.query(estimate.query, measured.window.end) == Value(estimate.value), name
            assert estimate.low <= estimate.value <= estimate.high, name


def _names():
    return {name for name, _, _ in series_of("b", 1.0)}


def from_zero(moment):
    return lambda now, number: number if now < moment else 400.0 * (now - moment)


CASES = {
    "case 45: a pod is not scraped": ({"rates": (("a", 2.5),)}, "TargetNotScraped", "MetricsMissing", "not scraped: b"),
    "one scrape is none": (
        {"change": {("b", TOKENS): lambda now, number: number if now == 50 else GAP}},
        "TargetNotScraped",
        "MetricsMissing",
        "not scraped: b",
    ),
    "case 42: a pod has ended": (
        {"change": {("b", TOKENS): lambda now, number: number if now < 60 else STALE if now == 60 else GAP}},
        "ScrapeGap",
        "MetricsStale",
        "part of the window: b",
    ),
    "an engine's counters began anew": (
        {"change": {("a", TOKENS): from_zero(60)}},
        "EngineRestarted",
        "WindowInvalid",
        "restarted",
    ),
    "case 63: an engine's process was replaced": (
        {"change": {("a", STARTED): lambda now, number: number + (now > 60)}},
        "EngineRestarted",
        "WindowInvalid",
        "restarted",
    ),
    "no count of requests": ({"drop": (FINISHED,)}, "MetricMissing", "MetricsMissing", "absent or not a number"),
    "a count that is not a number": (
        {"change": {(pod, FINISHED): lambda *_: None for pod in "ab"}},
        "MetricMissing",
        "MetricsMissing",
        "absent or not a number",
    ),
    "case 62: too few requests": (
        {"min_requests": 301},
        "TooFewRequests",
        "InsufficientSamples",
        "300 answered requests, of 301 needed",
    ),
    "case 30: a histogram is missing": (
        {"drop": ("vllm:time_to_first_token_seconds_bucket",)},
        "MetricMissing",
        "MetricsMissing",
        "none of vllm:time_to_first_token_seconds is in Prometheus",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_live_window_that_does_not_count_says_why(measure, name):
    given, check, reason, words = CASES[name]
    validity = measure(**given).validity
    assert (validity.valid, validity.check, validity.reason) == (False, check, reason), validity
    assert re.search(words, validity.message)


def test_many_failures_make_a_live_window_invalid(measure):
    # The error counter rises like a tenth of all requests.
    validity = measure({("a", FINISHED): _failing(), ("b", FINISHED): _failing()}).validity
    assert (validity.check, validity.reason) == ("TooManyFailed", "WindowInvalid")
    assert re.search(r"\d+ of \d+ requests failed", validity.message)


def _failing():
    """Return a change that lets the counters of requests rise alike, whatever their reason."""
    return lambda now, _: now + 10


def test_an_empty_window_is_an_error(server):
    now = datetime.now(UTC)
    with PrometheusSource(server.url) as source, pytest.raises(ValueError, match="is empty"):
        measure_live(source, "ml", ["a"], Window(now, now), OBJECTIVES, 1, None, 1)
