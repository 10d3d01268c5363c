"""What goes wrong is done to a running rung, one thing at a time: each has its verdict, and none a wrong number."""

import json
import os
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import Load
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.plants import processes
from frontier_tuner.plants.process import ProcessPlant, ProcessSettings
from frontier_tuner.prometheus import Limits, Value, queries
from frontier_tuner.prometheus.queries import Span

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prometheus_on_path")]

PROXY = Path(__file__).parents[1] / "support" / "faulty_engine.py"
WORKLOAD = {"profile": {"inputTokens": {"mean": 64, "p95": 128}, "outputTokens": {"mean": 16, "p95": 32}}}
OBJECTIVES = Objectives(slos=(SLO("ttft", "TTFT", 95, maximum=1.0),))
# The machine that runs the tests may be busy: only what is done on purpose is to be seen.
PATIENT = {"max_lag_seconds": 5.0, "max_time_disagreement_percent": 400.0, "max_gap_scrapes": 8.0}
SECONDS = 12.0


def make_settings(directory, faults=None, plan=None, limits=PATIENT):
    def command_line(configuration, host, port):
        arguments = ["--model", "Qwen/Qwen3-8B", "--served-model-name", "m", "--host", host, "--port", str(port)]
        extra = ["--max-model-len", "4096", "--max-num-seqs", "64", "--kv-cache-dtype", "auto"]
        engine = [sys.executable, "-m", "frontier_local.engine", *arguments, *extra]
        return engine if plan is None else [sys.executable, str(PROXY), json.dumps(plan), "--", *engine]

    return ProcessSettings(
        directory=directory,
        command_line=command_line,
        model="m",
        workload=WORKLOAD,
        objectives=OBJECTIVES,
        gpus=lambda _: 1,
        environment={
            "FRONTIER_SIM_GPU": "NVIDIA-L40S",
            "FRONTIER_SIM_TIME_SCALE": "4",
            "FRONTIER_SIM_START_SECONDS": "0.1",
            "FRONTIER_SIM_FAULTS": json.dumps(faults or {}),
        },
        limits=Limits(**limits),
        start_timeout_seconds=60.0,
        warm_up_seconds=1.0,
        duration_seconds=SECONDS,
        request_timeout_seconds=4.0,
    )


def generator_pid():
    """Return the process of the load generator that this one has started, or None."""
    for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        if b"frontier_tuner.cli" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return int(pid)
    return None


@contextmanager
def beside(action):
    """Run something beside the block, and end it with the block; what it raises is raised here."""
    over, problems = threading.Event(), []

    def run():
        try:
            action(over)
        except Exception as problem:  # noqa: BLE001 - handed over to the test
            problems.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not problems, problems


def starve(over):
    """Let the load generator run for a tenth of the time."""
    processes.wait_for(lambda: generator_pid() is not None, 20, "the load generator")
    pid = generator_pid()
    over.wait(4.0)
    while not over.is_set() and generator_pid() == pid:
        os.kill(pid, signal.SIGSTOP)
        over.wait(0.45)
        os.kill(pid, signal.SIGCONT)
        over.wait(0.05)


def prometheus_down(plant, begin, seconds):
    """Return an action that takes Prometheus away for a while, some seconds after the load generator has started."""

    def act(over):
        processes.wait_for(lambda: generator_pid() is not None, 20, "the load generator")
        over.wait(begin)
        plant.prometheus.__exit__(None, None, None)
        over.wait(seconds)
        plant.prometheus.__enter__()

    return act


def scrape_missing(plant):
    """Return an action that holds Prometheus for two scrapes."""

    def act(over):
        processes.wait_for(lambda: generator_pid() is not None, 20, "the load generator")
        over.wait(6.0)
        pid = plant.prometheus.pid
        os.kill(pid, signal.SIGSTOP)
        over.wait(1.0)
        os.kill(pid, signal.SIGCONT)

    return act


def run(directory, action=lambda _plant: lambda _over: None, load=Load("Concurrency", 4), **settings):  # noqa: B008
    with ProcessPlant(make_settings(directory, **settings)) as plant:
        engine = plant.start(Configuration.of({"kvCacheDtype": "auto"}))
        with beside(action(plant)):
            rung = engine.measure(load, seed=1)
        return rung, arrived(plant, rung)


def arrived(plant, rung):
    """Return the tokens per second that the load generator counted itself."""
    where = 'pod="load",phase="measure"'
    span = Span(rung.window.seconds + 2, 2)
    answer = plant.source.query(queries.final("frontier_load_output_tokens_total", where, span), rung.window.end)
    return answer.value / rung.window.seconds if isinstance(answer, Value) else None


FAULTS = {
    "the engine restarts": ({"plan": {"restartAfter": 5.0}}, {"EngineRestarted"}),
    "a counter is reset": ({"faults": {"resetCountersAfterSeconds": 8}}, {"CounterReset"}),
    "every value is NaN": ({"faults": {"nanMetrics": True}}, {"NotANumber", "MetricMissing"}),
    "streams hang": ({"faults": {"hangAfterRequests": 60}}, {"TooManyFailed", "TooManyCut"}),
    "one of ten fails": ({"plan": {"failEvery": 10}}, {"TooManyFailed"}),
    "the generator starves": (
        {"action": lambda _: starve, "limits": {**PATIENT, "max_lag_seconds": 0.25}},
        {"GeneratorLate", "LateStart"},
    ),
    "Prometheus is down within the window": (
        {"action": lambda plant: prometheus_down(plant, 4.0, 5.0), "limits": {**PATIENT, "max_gap_scrapes": 5.0}},
        {"ScrapeGap"},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_verdict_and_its_reason(tmp_path, name):
    given, checks = FAULTS[name]
    rung, _ = run(tmp_path, **given)
    print(f"{name}: {rung.validity.reason}/{rung.validity.check}: {rung.validity.message}")  # shown by `pytest -rP`
    assert not rung.validity.valid
    assert rung.validity.check in checks, rung.validity
    assert rung.validity.message


def test_a_prometheus_that_stays_away_gives_no_rung_at_all(tmp_path):
    with ProcessPlant(make_settings(tmp_path)) as plant:
        engine = plant.start(Configuration.of({"kvCacheDtype": "auto"}))

        def act(over):
            processes.wait_for(lambda: generator_pid() is not None, 20, "the load generator")
            over.wait(4.0)
            plant.prometheus.__exit__(None, None, None)

        with beside(act), pytest.raises(MeasurementError, match="cannot be reached"):
            engine.measure(Load("Concurrency", 4), seed=1)


def test_a_missing_scrape_spoils_nothing_and_the_numbers_are_right(tmp_path):
    rung, seen = run(tmp_path, action=scrape_missing)
    assert rung.validity.valid, rung.validity
    assert rung.value("OutputTokensPerSecond") == pytest.approx(seen, rel=0.1)


def test_case_56_a_few_failures_are_counted_apart_and_pollute_no_latency(tmp_path):
    rung, seen = run(tmp_path, plan={"failEvery": 25})
    assert rung.validity.valid, rung.validity
    assert 0.02 < rung.failed / rung.sent <= 0.05
    assert rung.metrics["TTFT/95"].n == rung.ok == rung.sent - rung.failed
    assert rung.value("OutputTokensPerSecond") == pytest.approx(seen, rel=0.1)
