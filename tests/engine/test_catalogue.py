"""The catalogue and its rules against the installed vLLM: its argument parser and its configuration checks.

What needs a GPU or weights is not checked here: whether memory suffices, compute capabilities of GPUs that are not
there, kernels (so also blocks of scales, attention backends and the cache formats that they read), EPLB, which vLLM
refuses on a CPU, the hand-over between pools, and the widths that only a model under construction looks at (KV heads,
feed-forward, vocabulary). `test_what_the_engine_lets_pass_is_refused_here` says so rule by rule.
"""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

from engine.shapes import ARCHITECTURES, write_config
from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm import CATALOGUE, build_space, command_line
from frontier_tuner.engines.vllm_arguments import negated
from frontier_tuner.engines.vllm_catalogue import UNSET, base_name, defaults_of
from frontier_tuner.engines.vllm_rules import Surroundings, rules
from frontier_tuner.engines.vllm_versions import quantization_capability
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.space import Restriction
from frontier_tuner.versions import parse_version

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

LLAMA, QWEN, MOE = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B-FP8", "Qwen/Qwen3-235B-A22B-FP8"
DEEPSEEK, MIXTRAL, GPT = "deepseek-ai/DeepSeek-V3", "mistralai/Mixtral-8x22B-v0.1", "openai/gpt-oss-120b"
VERSION = "0.32.0"
LENGTH = 8192
ON_CPU = ("enablePrefixCaching", "enableChunkedPrefill", "maxNumBatchedTokens")
"""What vLLM overrules on a CPU for latent attention, so that it cannot be compared with what was asked."""
SEED = 20

SPACES = {
    LLAMA: {
        "tensorParallelSize": (1, 2, 4, 8), "maxNumSeqs": (16, 256, 4096), "blockSize": (16, 32, 128),
        "speculativeMethod": ("none", "ngram"), "numSpeculativeTokens": (1, 3, 5),
        "enableChunkedPrefill": (True, False), "gpuMemoryUtilizationPercent": (85, 95), "enforceEager": (True, False),
        "optimizationLevel": (0, 1, 2), "quantization": ("none", "fp8"), "kvCacheDtype": ("auto", "bfloat16"),
    },
    QWEN: {"pipelineParallelSize": (1, 2, 4), "maxNumBatchedTokens": (512, 2048), "quantization": ("none", "fp8")},
    MOE: {"enableExpertParallel": (True, False), "maxCudagraphCaptureSize": (256, 512)},
    DEEPSEEK: {"speculativeMethod": ("none", "ngram", "mtp"), "numSpeculativeTokens": (1, 2, 3),
               "draftTensorParallelSize": (1, 8), "enableChunkedPrefill": (True, False)},
    MIXTRAL: {"tensorParallelSize": (1, 2, 4, 8), "enableExpertParallel": (True, False)},
    GPT: {"quantization": ("none", "fp8"), "maxNumSeqs": (64, 1024)},
}  # fmt: skip
"""For each model what its space searches beside its defaults."""

REFUSED = {
    "TP that does not divide the heads": (LLAMA, {"tensorParallelSize": 3}, "heads"),
    "tokens below sequences": (QWEN, {"maxNumSeqs": 1024, "maxNumBatchedTokens": 512}, "greater than or equal"),
    "a step below the context without chunks": (
        LLAMA, {"enableChunkedPrefill": False, "maxNumBatchedTokens": 2048}, "smaller than max_model_len",
    ),
    "experts of a dense model": (LLAMA, {"enableExpertParallel": True}, "experts"),
    "a drafting model on some GPUs": (
        DEEPSEEK,
        {"tensorParallelSize": 8, "speculativeMethod": "mtp", "numSpeculativeTokens": 1, "draftTensorParallelSize": 2},
        "cannot be other value than 1 or target model",
    ),
    "a method that the model has no layers for": (
        LLAMA, {"speculativeMethod": "mtp", "numSpeculativeTokens": 1}, "speculative",
    ),
}  # fmt: skip
"""Configurations that both the rules and vLLM's own checks refuse, with a word of vLLM's reason."""

LET_PASS = {
    "speculation in a pipeline": (
        LLAMA, {"pipelineParallelSize": 2, "numSpeculativeTokens": 3}, "does not work with PP 2",
        "starts, and answers wrongly or dies: vllm#14117, #49355, #52069, #57755",
    ),
    "KV heads": (LLAMA, {"tensorParallelSize": 16}, "", "valid for both: replicated"),
    "another 16-bit cache than the model's": (
        LLAMA, {"kvCacheDtype": "float16"}, "does not go with a model in bfloat16", "version 0.33 checks it",
    ),
    "another quantization than the checkpoint's": (
        GPT, {"quantization": "fp8"}, "quantized by mxfp4, quantization fp8 contradicts it", "is silently not in force",
    ),
    "KV heads of no even share": (MIXTRAL, {"tensorParallelSize": 6}, "8 KV heads, TP 6", "a model under construction"),
    "vocabulary": (MIXTRAL, {"tensorParallelSize": 24}, "vocabulary of 32000", "a model under construction"),
    "groups of four-bit weights": (GPT, {"tensorParallelSize": 16}, "too few for 16", "loading the experts' weights"),
    "blocks of FP8 scales": (DEEPSEEK, {"tensorParallelSize": 32}, "not whole blocks of 128", "making the layer"),
    "experts that do not divide": (
        DEEPSEEK, {"dataParallelSize": 3, "enableExpertParallel": True}, "256 experts", "some models assert it",
    ),
    "a backend for other attention": (
        LLAMA, {"attentionBackend": "FLASHMLA"}, "not for the grouped attention", "choosing kernels on a GPU",
    ),
}  # fmt: skip
"""What vLLM's checks let pass without a GPU, the rule that refuses it, and where or why it fails all the same."""


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
DEPTHS = (1, 2, 3, 4)
POOLS = Configuration.of({
    "mode": "disaggregated", "prefillTensorParallelSize": 2, "decodeTensorParallelSize": 2, "decodeMaxNumSeqs": 64,
    "enablePrefixCaching": False,
})  # fmt: skip
CONNECTOR = {"kv_connector": "ExampleConnector", "kv_connector_extra_config": {"shared_storage_path": "cache"}}


def rendered(configuration, *fixed):
    return command_line(configuration, fixed_args=fixed, engine_version=VERSION)


def alone(parameter, value):
    """A configuration that shows how one value is rendered, with what its place on the command line needs."""
    values = {parameter.name: value}
    if parameter.arguments[0].flag == "--speculative-config" and parameter.name != "numSpeculativeTokens":
        values = {"speculativeMethod": "ngram", "numSpeculativeTokens": 2, **values}
    return Configuration.of(values)


def every_value():
    for parameter in CATALOGUE:
        if parameter.arguments and base_name(parameter.name) == parameter.name:
            values = [*parameter.values, *parameter.choices, *(parameter.bounds or ())]
            for value in dict.fromkeys(values or ["org/some-draft"]):
                yield parameter, value


def valid_sample():
    """Yield a dozen valid configurations of each space, drawn with a seed."""
    draw = random.Random(SEED)
    for name, searched in SPACES.items():
        entries = [Restriction(key, values=values) for key, values in searched.items()]
        space = build_space(model_facts(name), gpu_facts("NVIDIA-B200"), 8, ["a"], 8, entries, max_model_len=LENGTH,
                            engine_version=VERSION)  # fmt: skip
        for configuration in draw.sample(space.configurations(), 12):
            yield name, configuration


def objections(model, values, **facts):
    around = Surroundings({"": model_facts(model, facts)}, version=parse_version(VERSION), max_model_len=LENGTH)
    configuration = Configuration.of(values)
    return [message for rule in rules(around) if (message := rule.check(configuration))]


def speculating(depth):
    return Configuration.of({"speculativeMethod": "mtp", "numSpeculativeTokens": depth})


@pytest.fixture(scope="module")
def engine(vllm_image, tmp_path_factory):
    """What the installed vLLM says about everything that the tests ask, in one process: its import takes longest."""
    directory = tmp_path_factory.mktemp("shapes")
    checkpoints = {name: write_config(directory, name) for name in ARCHITECTURES}
    (directory / "other").mkdir()
    two_layers = write_config(directory / "other", DEEPSEEK, num_nextn_predict_layers=2)
    four_bits = write_config(directory / "other", LLAMA, quantization_config=GPTQ)

    def of(path, configuration):
        return ["--model", str(path), *rendered(configuration, "--max-model-len", str(LENGTH))], True

    jobs = {
        "values": [(rendered(alone(parameter, value)), False) for parameter, value in every_value()],
        "wrong": [(["--no-such-flag"], False)],
        "valid": [of(checkpoints[name], configuration) for name, configuration in valid_sample()],
        "refused": [of(checkpoints[name], Configuration.of(values)) for name, values, _ in REFUSED.values()],
        "let pass": [of(checkpoints[name], Configuration.of(values)) for name, values, _, _ in LET_PASS.values()],
        "depths": [of(two_layers, speculating(depth)) for depth in DEPTHS],
        "four bits": [of(four_bits, Configuration.of({"quantization": value})) for value in ("none", "fp8")],
        "pools": [
            (["--model", str(checkpoints[LLAMA]), *command_line(POOLS, role=role, connector=CONNECTOR)], True)
            for role in ("prefill", "decode")
        ],
    }
    wanted = [
        {"arguments": list(arguments), "configure": checked} for group in jobs.values() for arguments, checked in group
    ]
    python = vllm_image.entrypoint[vllm_image.entrypoint.index("-m") - 1]
    environment = {**os.environ, **vllm_image.environment, "VLLM_LOGGING_LEVEL": "ERROR"}
    command = ["nice", "-n", "10", python, str(Path(__file__).with_name("ask_vllm.py"))]
    done = subprocess.run(
        command, input=json.dumps(wanted), env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    document = json.loads(done.stdout)
    answers = iter(document["answers"])
    document["answers"] = {name: [next(answers) for _ in group] for name, group in jobs.items()}
    assert next(answers, None) is None
    return document


def test_every_argument_and_every_value_parses(engine):
    assert engine["version"].startswith(VERSION)
    cases = list(every_value())
    answers = engine["answers"]["values"]
    refused = {(p.name, v): a["words"] for (p, v), a in zip(cases, answers, strict=True) if not a["parsed"]}
    assert refused == {}
    assert len(cases) > 90
    (wrong,) = engine["answers"]["wrong"]
    assert wrong["parsed"] is False
    assert "unrecognized arguments: --no-such-flag" in wrong["words"]
    flags = {parameter.argument_of(parse_version(VERSION)).flag for parameter, _ in cases}
    assert flags <= set(engine["flags"])
    negations = {negated(parameter.argument) for parameter, value in cases if value is False}
    assert len(negations) >= 6
    assert negations <= set(engine["flags"])


def test_the_tables_by_version_are_those_of_the_engine(engine):
    choices = {parameter.name: {*parameter.values, *parameter.choices} for parameter in CATALOGUE}

    assert choices["kvCacheDtype"] <= set(engine["cacheDtypes"])
    assert choices["speculativeMethod"] - {UNSET["speculativeMethod"]} <= set(engine["methods"])
    assert choices["attentionBackend"] - {UNSET["attentionBackend"]} <= set(engine["backends"])
    assert round(100 * engine["memoryShare"]) == defaults_of(parse_version(VERSION))["gpuMemoryUtilizationPercent"]
    said = {method: need / 10 for method, need in engine["capabilities"].items()}
    ours = {method: quantization_capability(method, parse_version(VERSION)) for method in said}
    known = {method: need for method, need in ours.items() if need is not None}
    assert len(known) >= 8
    assert known == {method: said[method] for method in known}


def test_configurations_that_the_rules_allow_pass_the_engines_checks(engine):
    cases = list(valid_sample())
    assert len(cases) >= 60
    refused, different = {}, {}
    for (name, configuration), said in zip(cases, engine["answers"]["valid"], strict=True):
        if not said["accepted"]:
            refused[f"{name} {configuration}"] = said["words"]
            continue
        told = {**said["in_force"], **{key: value for key, value in said["asked"].items() if value is not None}}
        asked = {key: value for key, value in configuration.items() if key in told}
        for key in ON_CPU if name == DEEPSEEK else ():
            asked.pop(key, None)
        found = {key: (value, told[key]) for key, value in asked.items() if told[key] != value}
        if found:
            different[f"{name} {configuration}"] = found
    assert refused == {}
    assert different == {}


@pytest.mark.parametrize("what", REFUSED)
def test_configurations_that_the_rules_forbid_are_refused_by_the_engine(what, engine):
    name, values, word = REFUSED[what]
    said = dict(zip(REFUSED, engine["answers"]["refused"], strict=True))[what]
    assert (said["parsed"], said["accepted"]) == (True, False)
    assert word in said["words"]
    assert objections(name, values)


@pytest.mark.parametrize("what", LET_PASS)
def test_what_the_engine_lets_pass_is_refused_here(what, engine):
    name, values, words, _reason = LET_PASS[what]
    told = dict(zip(LET_PASS, engine["answers"]["let pass"], strict=True))[what]
    said = objections(name, values)
    assert told["accepted"] is True, told["words"]
    assert any(words in message for message in said) if words else said == []


def test_the_depth_of_multi_token_prediction_is_judged_alike(engine):
    answers = engine["answers"]["depths"]
    assert [said["accepted"] for said in answers] == [True, True, False, True]
    assert "must be divisible by n_predict" in answers[2]["words"]
    assert [not objections(DEEPSEEK, speculating(depth), mtpLayers=2) for depth in DEPTHS] == [True, True, False, True]


def test_a_quantization_that_contradicts_the_checkpoint_is_judged_alike(engine):
    plain, contradicted = engine["answers"]["four bits"]
    assert (plain["accepted"], contradicted["accepted"]) == (True, False)
    assert "does not match the quantization method" in contradicted["words"]
    assert objections(LLAMA, {"quantization": "none"}, weightBits=4) == []
    assert "is quantized to 4 bits" in objections(LLAMA, {"quantization": "fp8"}, weightBits=4)[0]


def test_engines_of_pools_are_configured(engine):
    prefill, decode = engine["answers"]["pools"]
    assert (prefill["words"], decode["words"]) == ("", "")
    assert decode["in_force"]["maxNumSeqs"] == 64
    assert {said["in_force"]["tensorParallelSize"] for said in (prefill, decode)} == {2}


def test_every_flag_that_is_rendered_is_one_of_the_catalogue():
    everything = Configuration.of({parameter.name: parameter.values[-1] for parameter in CATALOGUE if parameter.values})
    known = {argument.flag for parameter in CATALOGUE for argument in parameter.arguments}

    rendered_flags = {word for word in command_line(everything) if word.startswith("--")}

    assert {flag for flag in rendered_flags if flag not in known and flag.replace("--no-", "--") not in known} == set()
