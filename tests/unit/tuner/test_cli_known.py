"""The subcommands that read a journal: explain, plot and resume, and what they refuse."""

import json

import pytest
from click.testing import CliRunner

from frontier_tuner import cli, journal
from frontier_tuner.plants.setup import read_spec
from frontier_tuner.study import fingerprint, space_of
from support.tuner_builders import make_measurement, make_record

MANIFEST = """
kind: InferenceDeployment
spec:
  model: {variants: [{name: bf16, source: 'hf://Qwen/Qwen3-8B'}]}
  engine: {image: 'vllm/vllm-openai:v0.33.0'}
  hardware: {gpu: {product: NVIDIA-L40S}, gpusPerNode: 2, pricePerGPUHour: "1.50"}
  objectives: {slos: [{name: ttft, metric: TTFT, percentile: 95, max: 2s}]}
  search:
    budget: {maxTrials: 3}
    parameters:
      - {name: maxNumSeqs, values: [64, 256]}
      - {name: maxNumBatchedTokens, value: 2048}
      - {name: numSpeculativeTokens, value: 0}
      - {name: pipelineParallelSize, value: 1}
"""


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A directory with a manifest, and a function that writes so many trials of its study into its journal."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(MANIFEST)
    spec = read_spec(tmp_path / "study.yaml")
    path = tmp_path / f"frontier-{fingerprint(spec)}.jsonl"

    def write(trials=3, ttft=0.5, study=None):
        space = space_of(spec)
        chosen = [space.baseline, *(c for c in space.configurations() if c != space.baseline)]
        for number in range(trials):
            rungs = [
                make_measurement(load, speed=100 / load, per_gpu=100 * load * (1 + number), ttft=ttft * load)
                for load in (1, 2, 4, 8)
            ]
            record = make_record(number, chosen[number], *rungs)
            journal.append(path, record, study or fingerprint(spec))
        return path

    return write


def run(*arguments, code=0):
    result = CliRunner().invoke(cli.main, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("command", ["explain", "plot", "resume"])
def test_a_study_that_never_began_is_refused(command, study):
    assert "run frontier tune first, or name one with --journal" in run(command, "study.yaml", code=1)


@pytest.mark.parametrize("command", ["explain", "plot", "resume"])
def test_the_journal_of_another_study_is_refused(command, study):
    path = study(study="another")
    printed = run(command, "study.yaml", "--journal", path, code=1)
    assert "was measured for another model, engine, hardware, workload or search space" in printed


@pytest.mark.parametrize("command", ["explain", "plot", "resume"])
def test_a_journal_that_cannot_be_read_is_refused_with_its_line(command, study, tmp_path):
    (tmp_path / "broken.jsonl").write_text("{\n{}\n")
    assert "broken.jsonl line 1 is not JSON" in run(command, "study.yaml", "--journal", "broken.jsonl", code=1)


def test_resume_finds_its_study_before_it_starts_anything(study, tmp_path, monkeypatch):
    study(1)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FRONTIER_ASSETS", raising=False)
    printed = run("resume", "study.yaml", code=1)
    assert printed.startswith("trials in frontier-")
    assert "no prometheus on the PATH" in printed


def test_explain_prints_the_reasons_and_a_json_document(study):
    study()
    printed = run("explain", "study.yaml")
    for words in (
        "Selection",
        "throughput per GPU: measured",
        "holds all objectives with 10 % headroom",
        "Stop",
        "BudgetExhausted: 3 of 3 trials",
    ):
        assert words in printed
    document = json.loads(run("explain", "study.yaml", "--json"))
    assert document["policy"] == "MinCost"
    assert document["selected"]["trial"] == 2
    assert document["stop"]["reason"] == "BudgetExhausted"


def test_explain_says_with_its_exit_code_that_nothing_is_feasible(study):
    study(ttft=9.0)
    assert "No feasible point" in run("explain", "study.yaml", code=3)


@pytest.mark.parametrize(
    ("arguments", "beginning"),
    [
        ((), "tokens/s/GPU"),
        (("--output", "svg"), "<svg"),
        (("--output", "html"), "<!DOCTYPE html>"),
        (("--output", "text"), "tokens/s/GPU"),
    ],
)
def test_plot_draws_for_a_terminal_and_for_files(study, arguments, beginning):
    path = study()
    assert run("plot", "study.yaml", *arguments).startswith(beginning)
    assert run("plot", path, *arguments).startswith(beginning)


def test_plot_writes_a_file_in_the_form_of_its_name(study, tmp_path):
    study()
    for name, beginning in (("a.svg", "<svg"), ("a.html", "<!DOCTYPE"), ("a.txt", "tokens/s/GPU")):
        assert run("plot", "study.yaml", "--to", name) == ""
        assert (tmp_path / name).read_text().startswith(beginning)
    assert "cannot be written" in run("plot", "study.yaml", "--to", "absent/a.svg", code=1)


def test_plot_refuses_what_has_no_point_and_a_journal_beside_a_journal(study, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert "no measured point yet" in run("plot", "empty.jsonl", code=1)
    assert "leave --journal out" in run("plot", "empty.jsonl", "--journal", "empty.jsonl", code=2)
    (tmp_path / "broken.jsonl").write_text("{\n{}\n")
    assert "line 1 is not JSON" in run("plot", "broken.jsonl", code=1)


def test_the_new_subcommands_are_listed():
    printed = run("--help")
    for command in ("explain", "plot", "resume"):
        assert command in printed
