import json

import pytest
from click.testing import CliRunner

from frontier_tuner.cli import main
from support.plant_tables import small_rows, write_table

GOAL = ("--slo", "TTFT<=500ms", "--slo", "UserTokensPerSecond>=50")
SERVED = ("--model", "qwen3-32b", "--gpu", "H200", "--input-tokens", "4000", "--output-tokens", "1000")


@pytest.fixture
def plant(tmp_path):
    return write_table(tmp_path / "plant.csv", small_rows())


def bench(plant, *arguments):
    return CliRunner().invoke(main, ["bench", "--plant", str(plant), *arguments])


def test_a_benchmark_prints_its_table_and_records_every_start(plant, tmp_path):
    out = tmp_path / "out.json"
    done = bench(
        plant, *GOAL, "--methods", "random,tpe", "--prior", "none", "--starts", "3", "--seeds", "2", "--json", str(out)
    )
    assert done.exit_code == 0, done.output
    assert "random" in done.output
    assert "hypervolume" in done.output
    content = json.loads(out.read_text())
    assert list(content) == ["methods"]
    assert {name: [run["seed"] for run in runs] for name, runs in content["methods"].items()} == {
        "random": [0, 1],
        "tpe": [0, 1],
    }
    for runs in content["methods"].values():
        for run in runs:
            assert len(run["starts"]) == 3
            assert {start["engine_id"] for start in run["starts"]} == {"big", "fast", "dead"}
            for start in run["starts"]:
                assert set(start) == {"engine_id", "outcome", "rungs", "seconds"}
                assert (start["outcome"] == "Infeasible") == (start["rungs"] == [])
                assert {*start["rungs"]} <= {1, 4, 16}


def test_the_number_of_processes_changes_nothing(plant, tmp_path):
    found = []
    for jobs in ("1", "2"):
        out = tmp_path / f"{jobs}.json"
        done = bench(
            plant, *GOAL, *SERVED, "--methods", "random,prior", "--starts", "2", "--seeds", "2", "--jobs", jobs,
            "--prior", "wrong", "--bend", "1", "--json", str(out),
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        content = json.loads(out.read_text())
        for runs in content["methods"].values():
            for run in runs:
                for start in run["starts"]:
                    del start["seconds"]
        found.append(content)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "magic"), "no method is called 'magic'; known are ours"),
        (("--policy", "Cheapest"), "policy 'Cheapest' is unknown"),
        (("--policy", "AtUserSpeed"), "needs --user-tokens-per-second"),
        (("--slo", "TTFT"), "'TTFT' is not an SLO"),
        (("--slo", "E2E<=20s"), "needs --output-tokens"),
        (("--slo", "TTFT<=1ms"), "there is nothing to find"),
        (("--json", "/absent/out.json"), "/absent is no directory"),
        (
            ("--prior", "roofline"),
            "the roofline needs --model or --model-config, --gpu, --input-tokens, --output-tokens",
        ),
        (("--prior", "wrong"), "--prior none goes without"),
        (("--prior", "none", "--methods", "prior"), "follows a prior"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(plant, arguments, words):
    given = ("--methods", "random", "--prior", "none", *arguments)
    done = bench(plant, *given)
    assert done.exit_code == 1
    assert words in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "gpt-9"), "the shape of model 'gpt-9' is not known"),
        (("--gpu", "TPU"), "GPU product 'TPU' are not known"),
        (("--cached-tokens", "5000"), "cached_tokens"),
        (("--model-config", "/absent.json"), "/absent.json cannot be read"),
    ],
)
def test_what_the_roofline_does_not_know_is_named(plant, arguments, words):
    done = bench(plant, *GOAL, *SERVED, "--methods", "random", *arguments)
    assert done.exit_code == 1
    assert words in " ".join(done.output.split())


def test_a_table_that_is_not_there_is_named(tmp_path):
    done = bench(tmp_path / "absent.csv", "--methods", "random", "--prior", "none")
    assert done.exit_code == 1
    assert "absent.csv cannot be read" in done.output


def test_a_model_may_be_told_by_its_config(plant, tmp_path):
    config = tmp_path / "mine.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "num_hidden_layers": 32,
                "hidden_size": 4096,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "intermediate_size": 14336,
                "vocab_size": 128256,
                "max_position_embeddings": 131072,
            }
        )
    )
    told = ("--model-config", str(config), *SERVED[2:])
    done = bench(plant, *GOAL, *told, "--methods", "prior", "--starts", "2", "--seeds", "1")
    assert done.exit_code == 0, done.output


def test_the_methods_can_be_listed():
    done = CliRunner().invoke(main, ["bench", "--list-methods"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.output.splitlines()][:3] == ["ours", "random", "tpe"]
