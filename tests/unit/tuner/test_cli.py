import subprocess
import sys

import pytest
from click.testing import CliRunner

from frontier_tuner import cli
from frontier_tuner.plants.setup import read_spec

WORKLOAD = '{"profile": {"inputTokens": {"mean": 8}, "outputTokens": {"mean": 4}}}'
LOAD = ["load", "--url", "http://127.0.0.1:9", "--model", "m", "--workload", WORKLOAD]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "exactly one of --concurrency and --request-rate"),
        (["--concurrency", "1", "--request-rate", "1"], "exactly one of --concurrency and --request-rate"),
        (["--concurrency", "0"], "--concurrency"),
        (["--concurrency", "1", "--duration", "5"], "'5' is not a duration"),
        (["--concurrency", "1", "--slo", "TTFT"], "'TTFT' is not an SLO"),
        (["--concurrency", "1", "--workload", "{}"], "exactly one of profile and trace"),
        (["--concurrency", "1", "--workload", "{"], "Expecting property name"),
        (["--concurrency", "1", "--workload", "5"], "exactly one of profile and trace"),
        (["--concurrency", "1", "--duration", "0s"], "duration and timeout must be above 0"),
        (["--concurrency", "1", "--warm-up", "-5s"], "must not be below 0"),
        (["--concurrency", "1", "--metrics-listen", "nonsense"], "such as 0.0.0.0:9100, not 'nonsense'"),
    ],
)
def test_a_wrong_argument_is_refused_with_a_sentence(arguments, words):
    result = CliRunner().invoke(cli.main, [*LOAD, *arguments])
    assert result.exit_code == 2
    assert words in result.output


def test_a_load_generator_imports_nothing_that_it_does_not_need():
    code = (
        "import sys, frontier_tuner.cli, frontier_tuner.load.generator, frontier_tuner.load.options;"
        "print([m for m in ('optuna','kubernetes','rich','numpy','pydantic','requests','yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_manifest_without_a_deployment_is_refused(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("kind: ConfigMap\n")
    result = CliRunner().invoke(cli.main, ["tune", str(path)])
    assert result.exit_code == 1
    assert "must hold one InferenceDeployment, not 0" in result.output


def test_selecting_without_a_journal_says_what_to_do(tmp_path):
    path = tmp_path / "study.yaml"
    variants = "{variants: [{name: a, source: 'hf://o/n'}]}"
    path.write_text(f"kind: InferenceDeployment\nspec:\n  model: {variants}\n  engine: {{image: 'e:1'}}\n")
    result = CliRunner().invoke(cli.main, ["select", str(path), "--journal", str(tmp_path / "absent.jsonl")])
    assert result.exit_code == 1
    assert "run frontier tune first" in result.output


MANIFEST = """
kind: InferenceDeployment
spec:
  model: {variants: [{name: a, source: 'hf://o/n'}]}
  engine: {image: 'e:1', podTemplate: {spec: {nodeSelector: {gpu: big}}}}
  suspend: false
  rollout: {mode: Approve}
  retune: {cooldown: 1h}
"""


def test_the_parts_of_a_manifest_that_only_an_operator_uses_do_not_matter(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(MANIFEST)
    bare = tmp_path / "bare.yaml"
    bare.write_text("\n".join(MANIFEST.splitlines()[:4]) + "\n  engine: {image: 'e:1'}\n")
    assert read_spec(path) == read_spec(bare)


@pytest.mark.parametrize(
    ("trace", "words"),
    [("configMapRef: {name: t}", "give path instead of configMapRef"), ("path: /no/such.csv", "cannot be read")],
)
def test_a_trace_that_this_machine_does_not_have_is_refused_before_any_engine_starts(tmp_path, trace, words):
    path = tmp_path / "study.yaml"
    path.write_text(f"{MANIFEST}  workload: {{trace: {{{trace}}}}}\n")
    result = CliRunner().invoke(cli.main, ["tune", str(path), "--journal", str(tmp_path / "j.jsonl")])
    assert result.exit_code == 1
    assert words in result.output


def test_what_is_asked_for_on_the_command_line_goes_before_the_manifest(tmp_path):
    path = tmp_path / "study.yaml"
    search = "{confirmation: {finalists: 3, rounds: 2}, budget: {maxTrials: 9}}"
    variants = "{variants: [{name: a, source: 'hf://o/n'}]}"
    path.write_text(
        f"kind: InferenceDeployment\nspec:\n  model: {variants}\n  engine: {{image: 'e:1'}}\n  search: {search}\n"
    )
    asked = read_spec(path, finalists=0, ablations=2).search
    assert (asked.confirmation.finalists, asked.confirmation.rounds) == (0, 2)
    assert (asked.budget.max_trials, asked.budget.ablations) == (9, 2)
    assert read_spec(path).search.confirmation.finalists == 3
    result = CliRunner().invoke(cli.main, ["tune", str(path), "--ablations", "9"])
    assert result.exit_code == 1
    assert "must leave the search at least one trial" in result.output
