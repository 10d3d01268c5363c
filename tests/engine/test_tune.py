"""`frontier tune` on a real vLLM: every knob of the example, on two cores as two GPUs would be.

How fast anything is must not be asserted here, and neither which configuration wins.
"""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from frontier_local.assets import Resolver
from frontier_tuner.plants.setup import read_spec
from frontier_tuner.study import space_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "tune-vllm-cpu.yaml"
LAYOUTS = {(1, 1), (2, 1), (1, 2)}
"""TP and DP: all that two cores can hold."""
PINNED = {"maxNumSeqs": 6, "maxNumBatchedTokens": 768, "numSpeculativeTokens": 2, "enablePrefixCaching": False}
"""All of them other than vLLM's own values, so that what is in force was asked for."""
STARTS = 4
"""One for each layout, and one to measure again what something else on the machine disturbed."""


def reduced():
    """Return the example's manifest with one short rung, and everything pinned but the layout."""
    manifest = yaml.safe_load(EXAMPLE.read_text())
    spec = manifest["spec"]
    layout = [entry for entry in spec["search"]["parameters"] if entry["name"].endswith("ParallelSize")]
    spec["search"]["parameters"] = layout + [{"name": name, "value": value} for name, value in PINNED.items()]
    spec["search"]["ladder"] = {"levels": ["2"]}
    spec["objectives"]["slos"][0]["max"] = "60s"
    spec["workload"]["profile"]["inputTokens"] = {"mean": 192, "p95": 384}
    spec["workload"]["profile"]["outputTokens"] = {"mean": 16, "p95": 24}
    spec["measurement"] = {"warmUp": "3s", "maxRungDuration": "8s", "minRequests": 5, "engineStartTimeout": "8m"}
    cores = sorted(os.sched_getaffinity(0))[:2]
    bound = {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "|".join(map(str, cores))}
    spec["engine"]["env"] = [bound, *(each for each in spec["engine"]["env"] if each["name"] != bound["name"])]
    return manifest


@pytest.fixture(scope="module")
def tuned(vllm_image, model, tmp_path_factory):
    """What the command printed, its journal and its directory of logs, after at most four starts."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two ranks need two cores")
    prometheus = Resolver.default(print).find("prometheus")
    if prometheus is None:
        pytest.skip("no prometheus; `frontier-local assets` finds or builds it")
    directory = tmp_path_factory.mktemp("tune")
    (directory / "study.yaml").write_text(yaml.safe_dump(reduced()))
    command = [Path(sys.executable).parent / "frontier", "tune", "study.yaml", "--starts", str(STARTS)]
    command += ["--finalists", "0"]
    command += ["--journal", "journal.jsonl", "--work", "work", "--models", model.parent]
    command += ["--engine-command", " ".join(vllm_image.entrypoint)]
    environment = {"PATH": f"{prometheus.path.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(directory)}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=directory,
        env=environment | vllm_image.environment,
        timeout=1400,
        check=False,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-4000:]
    trials = [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]
    return done.stdout, trials, directory


def test_it_ends_with_a_frontier_and_a_choice_within_its_starts(tuned):
    printed, trials, directory = tuned
    assert len(trials) == len(list((directory / "work").glob("engine-*.log"))) <= STARTS
    assert "Stopped: StartsUsed" in printed or "Stopped: SearchSpaceExhausted" in printed
    assert not [trial for trial in trials if trial["outcome"] == "Infeasible"]
    complete = [trial for trial in trials if trial["outcome"] == "Complete"]
    assert complete
    assert all(rung["ok"] > 0 for trial in complete for rung in trial["measurements"])
    frontier = printed.partition("Frontier")[2].partition("Selection")[0]
    assert "2 concurrent" in frontier
    assert "holds all objectives" in printed.partition("Selection")[2]


def test_every_layout_was_started_and_is_counted_with_its_cores(tuned):
    _, trials, directory = tuned
    assert space_of(read_spec(directory / "study.yaml")).size == len(LAYOUTS)
    seen = {
        (int(trial["configuration"]["tensorParallelSize"]), int(trial["configuration"]["dataParallelSize"]))
        for trial in trials
    }
    again = len(trials) - len({json.dumps(trial["configuration"]) for trial in trials})
    assert seen == LAYOUTS or again > STARTS - len(LAYOUTS)
    for trial in trials:
        ranks = int(trial["configuration"]["tensorParallelSize"]) * int(trial["configuration"]["dataParallelSize"])
        assert trial["gpus"] == ranks
        for rung in trial["measurements"]:
            found = {metric["name"]: float(metric["value"]) for metric in rung["metrics"]}
            if rung["valid"]:
                each = found["OutputTokensPerSecondPerGPU"]
                assert each * ranks == pytest.approx(found["OutputTokensPerSecond"], rel=1e-6)


def test_the_arguments_are_in_force(tuned):
    _, trials, directory = tuned
    for number, trial in enumerate(trials, 1):
        log = (directory / "work" / f"engine-{number}.log").read_text()
        said = ast.literal_eval(re.search(r"non-default args: (\{.*\})", log)[1])
        asked = {name: int(trial["configuration"][name]) for name in ("tensorParallelSize", "dataParallelSize")}
        assert said.get("tensor_parallel_size", 1) == asked["tensorParallelSize"]
        assert said.get("data_parallel_size", 1) == asked["dataParallelSize"]
        assert said["max_num_seqs"] == PINNED["maxNumSeqs"]
        assert said["max_num_batched_tokens"] == PINNED["maxNumBatchedTokens"]
        assert said["enable_prefix_caching"] is False
        assert said["speculative_config"]["method"] == "ngram"
        assert said["speculative_config"]["num_speculative_tokens"] == PINNED["numSpeculativeTokens"]
        # One rank on each core; of a single one the second core is free for what is not the model.
        assert len(set(re.findall(r"core ids=\[(\d+)\]", log))) == max(asked.values())
