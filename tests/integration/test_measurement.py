"""The load generator, a real Prometheus and the simulated engine: what a measurement says is what Prometheus says."""

import json
import sys
from datetime import UTC, datetime, timedelta

import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import Ending, Load, Window
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.plants import EngineFailedError
from frontier_tuner.plants.process import ENGINE_POD, NAMESPACE, ProcessPlant, ProcessSettings
from frontier_tuner.prometheus import Limits, PrometheusSource, Value, measure_live, queries
from frontier_tuner.prometheus.queries import Span

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("prometheus_on_path"),
]

WORKLOAD = {"profile": {"inputTokens": {"mean": 64, "p95": 128}, "outputTokens": {"mean": 16, "p95": 32}}}
OBJECTIVES = Objectives(
    slos=(SLO("ttft", "TTFT", 95, maximum=1.0), SLO("speed", "UserTokensPerSecond", 5, minimum=10.0)),
)
CONFIGURATION = Configuration.of({"maxNumSeqs": 64})


def make_settings(directory, flags=(), time_scale=4, **over):
    def command_line(configuration, host, port):
        arguments = ["--model", "Qwen/Qwen3-8B", "--served-model-name", "m", "--host", host, "--port", str(port)]
        extra = ["--max-model-len", "4096", "--max-num-seqs", str(configuration["maxNumSeqs"]), *flags]
        return [sys.executable, "-m", "frontier_local.engine", *arguments, *extra]

    environment = {
        "FRONTIER_SIM_GPU": "NVIDIA-L40S",
        "FRONTIER_SIM_TIME_SCALE": str(time_scale),
        "FRONTIER_SIM_START_SECONDS": "0.1",
        "FRONTIER_SIM_FAULTS": json.dumps(over.pop("faults", {})),
    }
    values = {
        "directory": directory,
        "command_line": command_line,
        "environment": environment,
        "model": "m",
        "workload": WORKLOAD,
        "objectives": OBJECTIVES,
        "gpus": lambda _: 2,
        "price_per_gpu_hour": 1.5,
        "limits": Limits(max_lag_seconds=5.0),  # other tests may keep the machine busy
        "start_timeout_seconds": 60.0,
        "warm_up_seconds": 1.0,
        "duration_seconds": 5.0,
        "request_timeout_seconds": 10.0,
    }
    return ProcessSettings(**{**values, **over})


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    with ProcessPlant(make_settings(tmp_path_factory.mktemp("plant"))) as running:
        yield running


@pytest.fixture(scope="module")
def engine(plant):
    running = plant.start(CONFIGURATION)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def measured(engine):
    return engine.measure(Load("Concurrency", 4), seed=1)


def test_a_rung_is_valid_and_has_every_metric(measured):
    assert measured.validity.valid, measured.validity
    assert measured.ok == measured.sent >= 20
    assert measured.ended == Ending("TimeUp", (), "the time of 5 s is up")
    assert {slo.key for slo in OBJECTIVES.slos} <= set(measured.metrics)
    assert {"ITL/95", "E2E/95", "OutputTokensPerSecondPerGPU", "CostPerMillionOutputTokens"} <= set(measured.metrics)


def test_every_number_is_what_prometheus_answers_to_its_query_at_the_end_of_the_window(plant, measured):
    for name, estimate in measured.metrics.items():
        assert plant.source.query(estimate.query, measured.window.end) == Value(estimate.value), name
        assert estimate.low <= estimate.value <= estimate.high, name
        assert estimate.n > 0, name


def test_the_engines_throughput_is_what_the_client_saw_arrive(plant, measured):
    where = 'pod="load",phase="measure"'
    span = Span(measured.window.seconds + 1, 1)
    arrived = plant.source.query(queries.final("frontier_load_output_tokens_total", where, span), measured.window.end)
    seen = arrived.value / measured.window.seconds
    assert measured.value("OutputTokensPerSecond") == pytest.approx(seen, rel=0.1)
    per_gpu = measured.value("OutputTokensPerSecondPerGPU")
    assert per_gpu == pytest.approx(measured.value("OutputTokensPerSecond") / 2)
    cost = 1.5 * 2 / 3600 / measured.value("OutputTokensPerSecond") * 1e6
    assert measured.value("CostPerMillionOutputTokens") == pytest.approx(cost)


def test_the_engines_own_histograms_agree_with_the_clients(plant, measured):
    inner = Window(measured.window.start + timedelta(seconds=0.5), measured.window.end)
    live = measure_live(plant.source, NAMESPACE, [ENGINE_POD], inner, OBJECTIVES, 2, 1.5, min_requests=10)
    assert live.validity.valid, live.validity
    assert live.value("OutputTokensPerSecond") == pytest.approx(measured.value("OutputTokensPerSecond"), rel=0.1)
    assert live.value("UserTokensPerSecond/50") == pytest.approx(measured.value("UserTokensPerSecond/50"), rel=0.3)
    for name, estimate in live.metrics.items():
        assert plant.source.query(estimate.query, inner.end) == Value(estimate.value), name


def test_a_rung_ends_once_it_is_known_well_enough_and_counts(engine):
    measured = engine.measured_as(duration_seconds=90.0, precision_percent=25.0).measure(Load("Concurrency", 8), seed=2)
    assert measured.validity.valid, measured.validity
    assert measured.metrics["TTFT/95"].n >= 200
    if measured.ended.reason == "Tight":
        assert measured.ended.open == ()
        assert 5.0 <= measured.window.seconds < 90.0
    else:  # other tests may keep the machine so busy that nothing is steady; then Prometheus sees that too
        assert measured.window.seconds >= 90.0
        wide = [measured.metrics[name] for name in measured.ended.open]
        assert any((each.high - each.low) / 2 > 0.125 * each.value for each in wide)


def test_live_itl_of_an_engine_that_speculates_is_what_its_clients_see(tmp_path):
    # In real time, where steps last as long as the edges of the engine's histogram are apart.
    flags = ["--speculative-config", json.dumps({"method": "ngram", "num_speculative_tokens": 3})]
    with ProcessPlant(make_settings(tmp_path, flags, time_scale=1, duration_seconds=8.0)) as plant:
        engine = plant.start(CONFIGURATION)
        try:
            seen = engine.measure(Load("Concurrency", 4), seed=1)
            inner = Window(seen.window.start + timedelta(seconds=0.5), seen.window.end)
            live = measure_live(plant.source, NAMESPACE, [ENGINE_POD], inner, OBJECTIVES, 2, 1.5, min_requests=10)
            where = queries.matchers({"namespace": NAMESPACE, "pod": ENGINE_POD})
            gaps = queries.Histogram("vllm:inter_token_latency_seconds").rate(where, Span(inner.seconds))
            steps = plant.source.query(queries.quantile(0.5, gaps), inner.end).value
            assert live.validity.valid, live.validity
            for name in ("ITL/50", "ITL/95"):
                estimate = live.metrics[name]
                print(name, seen.value(name), estimate.low, estimate.value, estimate.high, steps)
                assert plant.source.query(estimate.query, inner.end) == Value(estimate.value), name
                assert estimate.low <= seen.value(name) <= estimate.high, name
            # Steps are what the engine counts; half of the tokens take less than three quarters of a step.
            assert seen.value("ITL/50") < 0.75 * steps
            assert live.value("ITL/50") == pytest.approx(seen.value("ITL/50"), rel=0.3)
        finally:
            engine.stop()


def test_a_pod_that_prometheus_does_not_know_makes_live_metrics_missing(plant, measured):
    live = measure_live(plant.source, NAMESPACE, [ENGINE_POD, "other"], measured.window, OBJECTIVES, 2, None, 1)
    assert (live.validity.reason, live.validity.message) == ("MetricsMissing", "not scraped: other")


def test_an_open_loop_reaches_its_rate(engine, measured):
    rung = engine.measure(Load("RequestRate", 20), seed=2)
    assert rung.validity.valid, rung.validity
    assert rung.sent == 100
    assert rung.value("RequestsPerSecond") == pytest.approx(20, rel=0.2)


def test_too_few_requests_have_no_verdict(engine, measured):
    rung = engine.measure(Load("RequestRate", 2), seed=3)
    assert rung.validity.reason == "InsufficientSamples"


def test_case_54_the_same_prompts_again_are_found_in_the_cache_and_do_not_count(engine, measured):
    again = engine.measure(measured.load, seed=1)
    assert (again.validity.reason, again.validity.check) == ("WindowInvalid", "WarmCache"), again.validity
    other = engine.measure(measured.load, seed=4)
    assert other.validity.valid, other.validity
    assert other.value("TTFT/50") == pytest.approx(measured.value("TTFT/50"), rel=0.5)


def test_case_17_an_option_that_is_asked_for_and_not_in_force_does_not_count(tmp_path):
    with ProcessPlant(make_settings(tmp_path)) as plant:
        asked = Configuration.of({"maxNumSeqs": 64, "kvCacheDtype": "fp8"})
        rung = plant.start(asked).measure(Load("Concurrency", 4), seed=5)
    assert rung.validity.check == "EffectiveConfigMismatch", rung.validity
    assert "kvCacheDtype is fp8 by request and auto in the engine" in rung.validity.message


@pytest.mark.parametrize(
    ("faults", "reason"),
    [({"nanMetrics": True}, "MetricsMissing"), ({"resetCountersAfterSeconds": 6}, "WindowInvalid")],
)
def test_a_faulty_engine_makes_no_valid_rung(tmp_path, faults, reason):
    settings = make_settings(tmp_path, faults=faults, duration_seconds=8.0)
    with ProcessPlant(settings) as plant:
        rung = plant.start(CONFIGURATION).measure(Load("Concurrency", 4), seed=1)
    assert (rung.validity.valid, rung.validity.reason) == (False, reason), rung.validity


def test_an_engine_that_is_ready_and_dies_under_load_is_told_from_a_failed_load(tmp_path):
    with ProcessPlant(make_settings(tmp_path, faults={"crashAfterRequests": 3})) as plant:
        engine = plant.start(CONFIGURATION)
        with pytest.raises(EngineFailedError) as caught:
            engine.measure(Load("Concurrency", 2), seed=1)
    assert caught.value.failure.reason == "EngineDied"
    assert caught.value.failure.outcome == "Infeasible"


def test_a_refused_argument_and_a_slow_start_are_told_apart_and_leave_no_process(tmp_path):
    settings = make_settings(tmp_path, faults={"startDelaySeconds": 60}, start_timeout_seconds=3.0)
    with ProcessPlant(settings) as plant:
        with pytest.raises(EngineFailedError) as slow:
            plant.start(CONFIGURATION)
        with pytest.raises(EngineFailedError) as refused:
            plant.start(Configuration.of({"maxNumSeqs": "many"}))
        address = plant.source.url
    assert slow.value.failure.reason == "EngineStartTimeout"
    assert refused.value.failure.reason == "EngineArgumentsRefused"
    with (
        PrometheusSource(address, timeout_seconds=1.0) as source,
        pytest.raises(MeasurementError, match="cannot be reached"),
    ):
        source.query("up", datetime.now(UTC))
