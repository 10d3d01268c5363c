"""The `frontier` command without a cluster: tune, go on from the journal, select again."""

import contextlib
import json
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
import yaml

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("prometheus_on_path"),
]

ENGINE = f"{sys.executable} -m frontier_local.engine"


def make_manifest(**over):
    spec = {
        "model": {"servedName": "qwen", "variants": [{"name": "bf16", "source": "hf://Qwen/Qwen3-8B"}]},
        "engine": {
            "image": "vllm/vllm-openai:v0.33.0",
            "args": ["--max-model-len", "4096"],
            "env": [
                {"name": "FRONTIER_SIM_GPU", "value": "NVIDIA-L40S"},
                {"name": "FRONTIER_SIM_TIME_SCALE", "value": "4"},
                {"name": "FRONTIER_SIM_START_SECONDS", "value": "0.1"},
            ],
        },
        "hardware": {"gpu": {"product": "NVIDIA-L40S"}, "gpusPerNode": 1, "pricePerGPUHour": "1.50"},
        "workload": {"profile": {"inputTokens": {"mean": 64, "p95": 128}, "outputTokens": {"mean": 16, "p95": 32}}},
        "objectives": {"slos": [{"name": "ttft", "metric": "TTFT", "percentile": 95, "max": "5s"}]},
        "search": {
            "parameters": [{"name": "maxNumSeqs", "values": [4, 64]}],
            "ladder": {"kind": "Concurrency", "levels": ["2", "8"]},
            "budget": {"maxTrials": 8},
        },
        "measurement": {"warmUp": "500ms", "maxRungDuration": "3s", "minRequests": 20},
    }
    return {"kind": "InferenceDeployment", "spec": {**spec, **over}}


@pytest.fixture
def frontier(tmp_path):
    """Run the command in an empty directory and return what it printed."""

    def run(*arguments, manifest=None, code=0):
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(manifest or make_manifest()))
        command = [Path(sys.executable).parent / "frontier", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_a_study_goes_on_from_its_journal_and_selects_again_without_measuring(frontier, tmp_path):
    tune = ("tune", "study.yaml", "--engine-command", ENGINE, "--journal", "journal.jsonl", "--starts", "1")
    first = frontier(*tune)
    assert "Trial 0" in first
    assert "StartsUsed" in first
    second = frontier("resume", *tune[1:])
    assert "trials in journal.jsonl: 1" in second
    assert "Trial 1" in second
    assert "Trial 0" not in second
    trials = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [trial["number"] for trial in trials] == [0, 1]
    assert trials[0]["configuration"] != trials[1]["configuration"]
    assert all(rung["valid"] for trial in trials for rung in trial["measurements"]), trials
    for title in ("Trials", "Frontier", "Selection", "holds all objectives"):
        assert title in second

    again = frontier("select", "study.yaml", "--journal", "journal.jsonl", manifest=with_target("MinLatency"))
    assert "the highest speed for a user" in again
    tight = {"slos": [{"name": "ttft", "metric": "TTFT", "percentile": 95, "max": "1ms"}]}
    nothing = frontier(
        "select", "study.yaml", "--journal", "journal.jsonl", manifest=make_manifest(objectives=tight), code=3
    )
    assert "No feasible point" in nothing
    assert "nearest is" in nothing


def with_target(policy):
    return make_manifest(target={"policy": policy})


def test_an_engine_that_refuses_its_arguments_is_an_infeasible_trial_and_the_study_goes_on(frontier, tmp_path):
    engine = {**make_manifest()["spec"]["engine"], "args": ["--no-such-argument", "1"]}
    tune = ("tune", "study.yaml", "--engine-command", ENGINE, "--journal", "journal.jsonl", "--starts", "2")
    printed = frontier(*tune, manifest=make_manifest(engine=engine), code=3)
    trials = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    assert [trial["outcome"] for trial in trials] == ["Infeasible", "Infeasible"]
    assert {trial["failure"]["reason"] for trial in trials} == {"EngineArgumentsRefused"}
    assert "no point has been measured" in printed


def test_a_command_that_is_asked_to_end_takes_its_engine_along(tmp_path):
    name = f"left-behind-{uuid.uuid4()}"
    manifest = make_manifest(model={"servedName": name, "variants": [{"name": "a", "source": "hf://Qwen/Qwen3-8B"}]})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(manifest))
    command = [Path(sys.executable).parent / "frontier", "tune", "study.yaml", "--engine-command", ENGINE]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as running:
        eventually(lambda: len(processes_of(name)) == 2, "the engine and the load generator run")
        running.terminate()
        assert running.wait(timeout=60) == 128 + signal.SIGTERM
    assert processes_of(name) == []


def processes_of(name):
    """Return the command lines of all processes that were told a name."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines.append(path.read_text(errors="replace"))
    return [line for line in lines if name in line]


def eventually(reached, what):
    deadline = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.1)


def test_a_program_that_is_not_there_is_said_at_once(frontier):
    printed = frontier("tune", "study.yaml", "--engine-command", "/no/such/engine", code=1)
    assert "/no/such/engine cannot be started" in printed


def test_the_journal_of_another_study_is_refused(frontier, tmp_path):
    configuration = {"strange": "1"}
    trial = {
        "version": 1,
        "number": 0,
        "configuration": configuration,
        "purpose": "Baseline",
        "outcome": "Complete",
        "gpus": 1,
    }
    (tmp_path / "journal.jsonl").write_text(json.dumps(trial) + "\n")
    printed = frontier("select", "study.yaml", "--journal", "journal.jsonl", code=1)
    assert "it is the journal of another study" in printed
