import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from frontier_tuner.cli import main

EXAMPLES = Path(__file__).parents[3] / "examples"
QWEN = ["--model", "Qwen/Qwen3-8B", "--gpu", "NVIDIA-L40S", "--gpus-per-node", "2", "--engine-version", "0.33.0"]
FEW = [
    "--parameter",
    "maxNumSeqs=64",
    "--parameter",
    "maxNumBatchedTokens=2048,8192",
    "--parameter",
    "enablePrefixCaching=true",
]


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["space", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_counts_parameters_and_configurations_are_printed():
    output = run(*QWEN, *FEW, "--limit", "3", "--memory", "--invalid").output
    assert "28 valid configurations; 20 combinations are invalid" in output
    assert "tensorParallelSize: 1 2 (Along)" in output
    assert "… and 25 more; --limit lists them" in output
    assert "92 % of 45.0 GiB on NVIDIA-L40S = 41.4 GiB per GPU, less 15.3 GiB of Qwen/Qwen3-8B" in output
    assert "TP 2 x PP 2 x DP 1 needs 4 GPUs, at most 2 are allowed" in output


def test_json_has_everything_and_the_memory_of_each_configuration():
    document = json.loads(run(*QWEN, *FEW, "--output", "json", "--memory", "--invalid").output)
    assert (document["valid"], document["invalid"], len(document["configurations"])) == (28, 20, 28)
    assert sum(reason["combinations"] for reason in document["reasons"]) == 20
    first = document["configurations"][0]
    memory = first["memory"]["engine"]
    assert memory["capacityBytes"] - memory["weightsBytes"] - memory["runtimeBytes"] == memory["cacheBytes"]
    assert memory["cacheTokens"] == memory["cacheBytes"] // memory["tokenBytes"] > memory["contextTokens"] == 40960
    assert first["values"]["maxNumSeqs"] == 64
    assert document["baseline"] in {configuration["hash"] for configuration in document["configurations"]}


def test_csv_has_a_row_for_each_configuration():
    rows = list(csv.DictReader(run(*QWEN, *FEW, "--output", "csv").output.splitlines()))
    assert len(rows) == 28
    assert {row["enablePrefixCaching"] for row in rows} == {"true"}
    assert {(row["tensorParallelSize"], row["pipelineParallelSize"], row["gpus"]) for row in rows} == {
        ("1", "1", "1"), ("2", "1", "2"), ("1", "2", "2"),
    }  # fmt: skip


def test_pools_of_a_library_space_have_each_their_memory():
    asked = ["--model", "Qwen/Qwen3-8B", "--gpu", "NVIDIA-H200", "--parameter", "mode=disaggregated"]
    output = run(*asked, "--limit", "1", "--memory").output
    assert "prefillTensorParallelSize: 1 2 4 (Along, with mode disaggregated)" in output
    assert "prefill: 92 % of 140.4 GiB on NVIDIA-H200" in output
    assert "decode: 92 % of 140.4 GiB on NVIDIA-H200" in output
    wide = run(
        *asked,
        "--limit",
        "1",
        "--parameter",
        "decodeKvCacheDtype=auto,fp8",
        "--parameter",
        "prefillKvCacheDtype=auto,fp8",
    )
    assert "decodeKvCacheDtype=auto" in wide.output
    document = json.loads(run(*asked, "--limit", "1", "--memory", "--output", "json").output)
    assert set(document["configurations"][0]["memory"]) == {"prefill", "decode"}


def test_variants_and_directories_are_models(tmp_path):
    config = {
        "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 512, "num_hidden_layers": 8,
        "intermediate_size": 1408, "vocab_size": 2048, "max_position_embeddings": 4096,
    }  # fmt: skip
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    asked = ["--model", f"{tmp_path}/tiny", "--model", "Qwen/Qwen3-8B", "--gpu", "H200", "--max-model-len", "2048"]
    document = json.loads(run(*asked, "--output", "json").output)
    values = {parameter["name"]: parameter["values"] for parameter in document["parameters"]}
    assert values["variant"] == ["tiny", "qwen3-8b"]
    by_variant = {c["values"]["variant"] for c in document["configurations"] if c["values"]["tensorParallelSize"] == 8}
    assert by_variant == {"tiny", "qwen3-8b"}


@pytest.mark.parametrize("example", ["demo.yaml", "desk.yaml", "minimal.yaml", "vllm-cpu.yaml"])
def test_an_inference_deployment_is_read_from_its_file(example):
    assert "valid configurations" in run(str(EXAMPLES / example)).output


def test_nothing_valid_exits_with_one_and_every_problem():
    result = run("--model", "meta-llama/Llama-3.3-70B-Instruct", "--gpu", "NVIDIA-L40S", "--gpus-per-node", "2", code=1)
    assert "no configuration is valid" in result.output
    assert result.output.count("the weights do not fit") == 3
    problems = run("--model", "Qwen/Qwen3-8B", "--parameter", "colour=1", "--parameter", "maxNumSeqs=9..1", code=1)
    assert "search parameter colour is unknown" in problems.output
    assert "inverted range: min 9 is above max 1" in problems.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give either FILE or --model"),
        ([str(EXAMPLES / "demo.yaml"), "--model", "x"], "give either FILE or --model"),
        (["--model", "Qwen/Qwen3-8B", "--parameter", "maxNumSeqs"], "is not NAME=VALUE"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    assert words in run(*arguments, code=2).output


def test_an_unknown_model_says_what_to_give():
    assert "the shape of model 'nonsense' is not known" in run("--model", "nonsense", code=1).output
