import json

import pytest

from frontier_tuner.engines.vllm import baseline, build_space, command_line, gpus, tensor_parallel_sizes
from frontier_tuner.engines.vllm_rules import GIB, Surroundings, kv_tokens, memory_fit, rules, world_size
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.space import Restriction
from support.tuner_builders import make_configuration

POWERS = (1, 2, 4, 8, 16, 32, 64)


@pytest.mark.parametrize(
    ("name", "want_off", "want_on"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", POWERS, ()),
        ("meta-llama/Llama-3.1-405B", POWERS, ()),
        ("Qwen/Qwen3-235B-A22B", POWERS, POWERS),
        ("Qwen/Qwen3-235B-A22B-FP8", POWERS[:3], POWERS),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", POWERS[:6], POWERS[:6]),
        ("moonshotai/Kimi-K2-Instruct", POWERS[:5], POWERS[:5]),
        ("zai-org/GLM-5", POWERS, POWERS),
        ("openai/gpt-oss-120b", POWERS[:4], POWERS),
        ("mistralai/Mixtral-8x7B-v0.1", POWERS[:6], POWERS[:4]),
        ("mistralai/Mixtral-8x22B-v0.1", POWERS[:5], POWERS[:4]),
        ("zai-org/GLM-4.5", POWERS[:6], POWERS[:6]),
        ("deepseek-ai/DeepSeek-V3", POWERS[:5], POWERS[:5]),
    ],
)
def test_tensor_parallel_sizes_follow_the_shape(name, want_off, want_on):
    model = model_facts(name)
    assert tensor_parallel_sizes(model) == want_off
    assert tensor_parallel_sizes(model, expert_parallel=True) == want_on


def test_an_engine_that_refines_scale_blocks_may_split_them():
    model = model_facts("Qwen/Qwen3-235B-A22B-FP8")
    assert 8 in tensor_parallel_sizes(model, engine_version="0.33.0")
    assert 8 not in tensor_parallel_sizes(model, engine_version="0.20.1")
    assert 8 not in tensor_parallel_sizes(model)


def wizard():
    shape = {"layers": 60, "hidden": 6656, "heads": 52, "intermediate": 17920, "vocabulary": 32000, "maxContext": 2048}
    return model_facts("org/wizard-33b", shape)


def space_for(model="meta-llama/Llama-3.1-8B", gpu="NVIDIA-H200", count=8, entries=(), args=(), **over):
    facts = model_facts(model) if isinstance(model, str) else model
    return build_space(facts, gpu and gpu_facts(gpu), count, ["bf16"], count, entries, args, **over)


def values_of(space, name):
    return {configuration[name] for configuration in space.configurations()}


def problems_of(**over):
    with pytest.raises(InvalidSpaceError) as caught:
        space_for(**over)
    return "\n".join(caught.value.problems)


def test_heads_that_do_not_divide_leave_their_divisors():
    assert values_of(space_for(wizard()), "tensorParallelSize") == {1, 2, 4}
    text = problems_of(model=wizard(), entries=[Restriction("tensorParallelSize", values=(8,))])
    assert "52 heads, TP 8" in text


def violations(configuration, **over):
    surroundings = Surroundings(**over)
    return [message for rule in rules(surroundings) if (message := rule.check(configuration))]


@pytest.mark.parametrize(
    ("tokens", "length", "chunked", "valid"),
    [(2048, 40960, False, False), (2048, 40960, True, True), (8192, 4096, True, True), (8192, 4096, False, True)],
)
def test_without_chunked_prefill_a_step_takes_a_whole_context(tokens, length, chunked, valid):
    configuration = make_configuration(maxNumBatchedTokens=tokens, enableChunkedPrefill=chunked)
    assert (violations(configuration, max_model_len=length) == []) is valid


def test_a_fixed_argument_can_switch_chunked_prefill_off():
    space = space_for(args=["--no-enable-chunked-prefill", "--max-model-len=8192"])
    assert values_of(space, "maxNumBatchedTokens") == {8192, 16384}


def test_token_budget_below_the_sequences_is_pruned_and_counted():
    entries = [
        Restriction("maxNumSeqs", values=(128, 512, 1024)),
        Restriction("maxNumBatchedTokens", values=(512, 2048)),
        *(Restriction(name, value=value) for name, value in [("tensorParallelSize", 1), ("kvCacheDtype", "auto")]),
        *(
            Restriction(name, value=value)
            for name, value in [("enablePrefixCaching", True), ("numSpeculativeTokens", 0)]
        ),
    ]
    space = space_for(entries=entries)
    assert (space.size, space.pruned) == (5, 1)


def test_expert_parallelism_needs_experts():
    both = space_for(entries=[Restriction("enableExpertParallel", values=(True, False))])
    assert values_of(both, "enableExpertParallel") == {False}
    text = problems_of(entries=[Restriction("enableExpertParallel", value=True)])
    assert "not a mixture of experts" in text


def test_the_expert_parallel_degree_is_derived_and_must_divide_the_experts():
    assert "TP x DP" in problems_of(entries=[Restriction("expertParallelSize", value=4)])
    model = model_facts("deepseek-ai/DeepSeek-V3")
    spread = make_configuration(tensorParallelSize=1, dataParallelSize=3, enableExpertParallel=True)
    assert any("256 experts" in message for message in violations(spread, models={"": model}))


@pytest.mark.parametrize(
    ("gpu", "allowed"),
    [("NVIDIA-A100-SXM4-80GB", False), ("NVIDIA-A10G", False), ("NVIDIA-L4", True), ("NVIDIA-H200", True)],
)
def test_an_fp8_cache_needs_the_hardware(gpu, allowed):
    assert ("fp8" in values_of(space_for(gpu=gpu, max_model_len=4096), "kvCacheDtype")) is allowed
    if not allowed:
        text = problems_of(gpu=gpu, max_model_len=4096, entries=[Restriction("kvCacheDtype", value="fp8")])
        assert gpu in text
        assert "8.9" in text


def test_speculation_and_pipelines_exclude_each_other():
    entries = [
        Restriction("pipelineParallelSize", values=(1, 2)),
        Restriction("numSpeculativeTokens", values=(0, 1)),
    ]
    cells = {
        (c["pipelineParallelSize"], c["numSpeculativeTokens"]) for c in space_for(entries=entries).configurations()
    }
    assert cells == {(1, 0), (1, 1), (2, 0)}


def test_a_context_must_fit_the_cache():
    llama = model_facts("meta-llama/Llama-3.3-70B-Instruct")
    assert kv_tokens(4 * GIB, llama, 8) == 104_857
    assert kv_tokens(4 * GIB, llama, 8, kv_bits=8) == 209_715
    around = Surroundings({"": llama}, gpu_facts("NVIDIA-L40S"), max_model_len=131072)
    message = memory_fit(around, make_configuration(tensorParallelSize=4))
    assert "40.5 GiB per GPU" in message
    assert "less 32.9 GiB" in message
    assert "131072 tokens does not fit" in message
    assert "the weights do not fit" in memory_fit(around, make_configuration(tensorParallelSize=2))


def test_world_size_is_bounded_by_the_cap_and_by_the_node():
    entries = [Restriction("tensorParallelSize", values=(4, 8)), Restriction("pipelineParallelSize", values=(1, 2))]
    found = space_for(entries=entries).configurations()
    cells = {(c["tensorParallelSize"], c["pipelineParallelSize"]): gpus(c) for c in found}
    assert cells == {(4, 1): 4, (8, 1): 8, (4, 2): 8}
    wide = make_configuration(tensorParallelSize=8, pipelineParallelSize=2)
    assert "a node has 8" in world_size(Surroundings(gpus_per_node=8, max_gpus=16), wide)


def test_an_uneven_pipeline_split_is_fine():
    deepseek = model_facts("deepseek-ai/DeepSeek-V3")
    assert violations(make_configuration(pipelineParallelSize=4), models={"": deepseek}) == []


def test_a_context_beyond_the_model_needs_an_override():
    assert "40960" in problems_of(model="Qwen/Qwen3-32B", max_model_len=131072)
    assert space_for("Qwen/Qwen3-32B", max_model_len=131072, args=["--hf-overrides", "{}"]).size > 0


@pytest.mark.parametrize(
    "args",
    [
        ["--max-num-seqs", "8"],
        ["--max_num_seqs=8"],
        ["--no-enable-prefix-caching"],
        ["-tp", "2"],
        ["--speculative-config={}"],
    ],
)
def test_a_fixed_argument_may_not_set_a_searched_parameter(args):
    text = problems_of(args=args)
    assert "searches; remove the argument and pin the parameter" in text


def test_problems_of_all_kinds_come_together():
    text = problems_of(entries=[Restriction("colour", value=1)], args=["--max-num-seqs", "8"], max_model_len=10**7)
    assert all(word in text for word in ("colour", "--max-num-seqs", "10000000"))


def test_without_facts_the_shape_rules_are_absent():
    entries = [Restriction("maxNumSeqs", values=(2, 8)), Restriction("maxNumBatchedTokens", values=(256, 512))]
    space = build_space(None, None, 0, ["tiny"], 0, entries)
    assert values_of(space, "tensorParallelSize") == {1}
    assert "kvCacheDtype" not in space.configurations()[0]
    assert space.size == 2 * 2 * 2 * 3


def test_variants_may_differ_in_shape():
    models = {"bf16": model_facts("Qwen/Qwen3-32B"), "fp8": model_facts("Qwen/Qwen3-32B-FP8")}
    space = build_space(models, gpu_facts("NVIDIA-L40S"), 1, ["bf16", "fp8"], 1, max_model_len=8192)
    assert values_of(space, "variant") == {"fp8"}


def test_the_baseline_is_what_the_engine_would_do():
    want = {"tensorParallelSize": 1, "maxNumSeqs": 256, "maxNumBatchedTokens": 8192, "kvCacheDtype": "auto"}
    assert want.items() <= dict(baseline(space_for())).items()
    large = baseline(space_for("deepseek-ai/DeepSeek-V3", max_model_len=8192, gpu="NVIDIA-B200"))
    assert (large["tensorParallelSize"], large["dataParallelSize"]) == (4, 1)


def test_a_configuration_becomes_the_engines_command_line():
    configuration = make_configuration(
        variant="bf16", tensorParallelSize=2, maxNumSeqs=64, enablePrefixCaching=False, enableChunkedPrefill=True,
        numSpeculativeTokens=3, gpuMemoryUtilizationPercent=90,
    )  # fmt: skip
    arguments = command_line(configuration, fixed_args=["--max-model-len", "4096"])
    assert arguments[:4] == ("--tensor-parallel-size", "2", "--max-num-seqs", "64")
    assert arguments[4:7] == ("--no-enable-prefix-caching", "--enable-chunked-prefill", "--speculative-config")
    assert json.loads(arguments[7]) == {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
    assert arguments[8:] == ("--gpu-memory-utilization", "0.90", "--max-model-len", "4096")
    assert command_line(make_configuration(numSpeculativeTokens=0)) == ()
