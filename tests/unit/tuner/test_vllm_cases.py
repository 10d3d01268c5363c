"""Cases of the public reports about search spaces and engine arguments, by their numbers."""

import pytest

from frontier_tuner.engines.vllm import CATALOGUE, build_space, gpus, tensor_parallel_sizes
from frontier_tuner.engines.vllm_catalogue import FEATURES
from frontier_tuner.engines.vllm_memory import GIB, kv_tokens, memory_fit, memory_plan
from frontier_tuner.engines.vllm_observed import learned_rules
from frontier_tuner.engines.vllm_rules import Surroundings, rules
from frontier_tuner.engines.vllm_shapes import redundant_experts, stage_layers
from frontier_tuner.engines.vllm_versions import quantization_capability
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.failures import classify_exit
from frontier_tuner.objectives import Target
from frontier_tuner.space import Parameter, Restriction, SearchSpace, restrict
from frontier_tuner.stopping import Budget, Stability, Stop
from frontier_tuner.trial import Failure
from frontier_tuner.tuner import propose
from support.tuner_builders import make_configuration, make_objectives, make_record, make_space

POWERS = (1, 2, 4, 8, 16, 32, 64)


def wizard():
    shape = {"layers": 60, "hidden": 6656, "heads": 52, "intermediate": 17920, "vocabulary": 32000, "maxContext": 2048}
    return model_facts("org/wizard-33b", shape)


def space_of(model="meta-llama/Llama-3.1-8B", gpu="NVIDIA-H200", count=8, *, args=(), cap=None, **entries):
    facts = model_facts(model) if isinstance(model, str) else model
    over = {
        name: entries.pop(name)
        for name in ("max_model_len", "engine_version", "supports", "trusted")
        if name in entries
    }
    restrictions = [Restriction(name, values=values) for name, values in entries.items()]
    return build_space(facts, gpu_facts(gpu), count, ["a"], cap or count, restrictions, args, **over)


def problems_of(*args, **entries):
    with pytest.raises(InvalidSpaceError) as caught:
        space_of(*args, **entries)
    return "\n".join(caught.value.problems)


def values_of(space, name):
    return {configuration[name] for configuration in space.configurations()}


def objections(configuration, **over):
    return [message for rule in rules(Surroundings(**over), pools=True) if (message := rule.check(configuration))]


# --- ranges


def test_case_1_equal_ends_are_a_constant_and_inverted_ends_an_error():
    space = restrict(make_space(), [Restriction("maxNumSeqs", minimum=256, maximum=256)])
    assert {configuration["maxNumSeqs"] for configuration in space.configurations()} == {256}
    assert "maxNumSeqs" not in space.to_distributions()

    with pytest.raises(InvalidSpaceError, match="maxNumSeqs has an inverted range: min 512 is above max 256"):
        restrict(make_space(), [Restriction("maxNumSeqs", minimum=512, maximum=256)])


# --- shapes


def test_case_7_heads_that_do_not_divide():
    assert values_of(space_of(wizard()), "tensorParallelSize") == {1, 2, 4}
    assert "52 heads, TP 8" in problems_of(wizard(), tensorParallelSize=(8,))


def test_case_9_token_budget_and_context():
    def valid(tokens, length, chunked):
        configuration = make_configuration(maxNumBatchedTokens=tokens, enableChunkedPrefill=chunked)
        return objections(configuration, max_model_len=length) == []

    assert [valid(2048, 40960, False), valid(2048, 40960, True), valid(8192, 4096, True)] == [False, True, True]
    entries = {"enableChunkedPrefill": (True,), "maxNumBatchedTokens": (2048,)}
    assert values_of(space_of("Qwen/Qwen3-8B", **entries), "maxNumBatchedTokens") == {2048}, "not fixed upward"
    entries["enableChunkedPrefill"] = (False,)
    assert "2048 is below the context length 40960" in problems_of("Qwen/Qwen3-8B", **entries)


def test_case_10_token_budget_below_the_sequences():
    fixed = {"tensorParallelSize": (1,), "kvCacheDtype": ("auto",), "enablePrefixCaching": (True,)}
    batches = {"maxNumSeqs": (128, 512, 1024), "maxNumBatchedTokens": (512, 2048), "numSpeculativeTokens": (0,)}
    space = space_of(**fixed, **batches)

    cells = {(c["maxNumSeqs"], c["maxNumBatchedTokens"]) for c in space.configurations()}
    assert cells == {(128, 512), (128, 2048), (512, 512), (512, 2048), (1024, 2048)}
    assert space.pruned == 1
    assert space.reasons == {"maxNumBatchedTokens 512 is below maxNumSeqs 1024": 1}


@pytest.mark.parametrize(
    ("expert_parallel", "version", "want"),
    [
        (False, "", (2, 4)),
        (False, "0.20.1", (2, 4)),
        (False, "0.28.0", (2, 4)),
        (False, "0.29.0", (2, 4, 8)),
        (False, "0.33.0", (2, 4, 8)),
        (True, "", (2, 4, 8)),
        (True, "0.33.0", (2, 4, 8)),
    ],
)
def test_case_11_blocks_of_fp8_scales(expert_parallel, version, want):
    sizes = tensor_parallel_sizes(
        model_facts("Qwen/Qwen3-235B-A22B-FP8"), expert_parallel=expert_parallel, limit=8, engine_version=version
    )
    assert tuple(size for size in sizes if size > 1) == want


def test_case_11_a_refusal_names_the_width():
    space = space_of("Qwen/Qwen3-235B-A22B-FP8", enableExpertParallel=(False,), engine_version="0.20.1")
    assert any("expert width 1536; over 8 shards 192 is not whole blocks of 128" in reason for reason in space.reasons)


def test_case_13_expert_parallelism_of_a_dense_model():
    llama = "meta-llama/Llama-3.3-70B-Instruct"
    assert values_of(space_of(llama, enableExpertParallel=(True, False)), "enableExpertParallel") == {False}
    assert "not a mixture of experts" in problems_of(llama, enableExpertParallel=(True,))


def test_case_14_the_degree_of_expert_parallelism_is_derived():
    text = problems_of("deepseek-ai/DeepSeek-V3", "NVIDIA-B200", expertParallelSize=(4,), tensorParallelSize=(8,))
    assert "expertParallelSize is unknown: vLLM derives the degree, TP x DP; use enableExpertParallel" in text


def test_case_15_experts_that_do_not_divide():
    def shape(experts):
        return model_facts("deepseek-ai/DeepSeek-V3", {"experts": experts})

    plain = make_configuration(dataParallelSize=3, enableExpertParallel=True)
    assert any(
        "256 experts, expert parallelism over TP x DP = 3" in m for m in objections(plain, models={"": shape(256)})
    )

    assert (redundant_experts(256, 3), redundant_experts(160, 24), redundant_experts(256, 8)) == (2, 8, 0)
    for experts, ranks, fewest in ((256, 3, 2), (160, 24, 8)):
        for redundant, fits in ((fewest, True), (fewest - 1, False), (0, False)):
            balanced = make_configuration(
                dataParallelSize=ranks, enableExpertParallel=True, enableEplb=True, numRedundantExperts=redundant
            )
            said = objections(balanced, models={"": shape(experts)})
            assert (not said) is fits
            assert fits or f"the fewest that do are {fewest}" in said[0]


def test_case_15_copies_of_experts_exist_only_with_a_balancer():
    copies = {"enableEplb": (True, False), "numRedundantExperts": (0, 32)}
    space = space_of("deepseek-ai/DeepSeek-V3", "NVIDIA-B200", max_model_len=8192, **copies)
    seen = {
        (c["enableExpertParallel"], c.get("enableEplb"), c.get("numRedundantExperts")) for c in space.configurations()
    }
    assert seen == {(False, None, None), (True, False, None), (True, True, 0), (True, True, 32)}
    assert "exists only with enableEplb true" in problems_of("deepseek-ai/DeepSeek-V3", numRedundantExperts=(32,))


# --- hardware and precision


@pytest.mark.parametrize(
    ("gpu", "allowed"),
    [("NVIDIA-A100-SXM4-80GB", False), ("NVIDIA-A10G", False), ("NVIDIA-L4", True), ("NVIDIA-H200", True)],
)
def test_case_16_an_fp8_cache_needs_the_hardware(gpu, allowed):
    space = space_of(gpu=gpu, max_model_len=4096, kvCacheDtype=("auto", "fp8"))
    assert ("fp8" in values_of(space, "kvCacheDtype")) is allowed
    if not allowed:
        text = problems_of(gpu=gpu, max_model_len=4096, kvCacheDtype=("fp8",))
        assert f"kvCacheDtype fp8 needs compute capability 8.9, {gpu} has {gpu_facts(gpu).compute_capability}" in text


def test_case_16_a_cache_of_16_bits_has_the_models_format():
    asked = {"kvCacheDtype": ("bfloat16",), "max_model_len": 4096}
    assert "bfloat16 does not go with a model in float16" in problems_of(args=["--dtype", "half"], **asked)
    assert "a model in float16" in problems_of(gpu="Tesla-V100-SXM2-32GB", **asked)
    assert space_of(**asked).size > 0


@pytest.mark.parametrize(
    ("capability", "want"),
    [(7.0, ()), (7.5, ("fp8", "awq")), (8.0, ("fp8", "awq", "mxfp4", "fbgemm_fp8"))],
)
def test_case_18_quantization_and_the_generation_of_gpu(capability, want):
    methods = ("fp8", "awq", "mxfp4", "fbgemm_fp8", "fp_quant")
    assert tuple(m for m in methods if quantization_capability(m, (0, 33, 0)) <= capability) == want
    assert quantization_capability("gptq", (0, 33, 0)) == 6.0


def test_case_18_the_table_is_of_the_engines_version():
    needs = [quantization_capability("fp8", version) for version in ((0, 5, 0), (0, 13, 0), (0, 14, 0), ())]
    assert needs == [8.9, 8.0, 7.5, 8.0]
    assert quantization_capability("mxfp4", (0, 10, 0)) == float("inf")
    assert quantization_capability("something", (0, 33, 0)) is None

    qwen = "Qwen/Qwen3-8B-FP8"
    assert "quantization fp8 needs compute capability 8.0, Tesla-T4 has 7.5" in problems_of(
        qwen, "Tesla-T4", 1, max_model_len=2048, engine_version="0.13.0"
    )
    assert space_of(qwen, "Tesla-T4", 1, max_model_len=2048, engine_version="0.33.0").size > 0
    assert "needs compute capability 7.5, Tesla-V100" in problems_of(
        qwen, "Tesla-V100-SXM2-32GB", 1, max_model_len=2048, engine_version="0.33.0"
    )
    text = problems_of("openai/gpt-oss-120b", engine_version="0.10.0")
    assert "vLLM 0.10.0 does not know quantization mxfp4" in text


def test_case_19_an_argument_that_contradicts_the_checkpoint():
    space = space_of("openai/gpt-oss-120b", quantization=("none", "fp8"))
    assert values_of(space, "quantization") == {"none"}
    assert any("is quantized by mxfp4, quantization fp8 contradicts it" in reason for reason in space.reasons)
    assert values_of(space_of("Qwen/Qwen3-8B", quantization=("none", "fp8")), "quantization") == {"none", "fp8"}


# --- speculation


def test_case_20_speculation_and_pipelines():
    cells = {"speculativeMethod": ("none", "mtp"), "numSpeculativeTokens": (1,), "pipelineParallelSize": (1, 2)}
    deepseek = ("deepseek-ai/DeepSeek-V3", "NVIDIA-B200")
    for version in ("", "0.10.0", "0.20.0", "0.33.0"):
        if version == "0.10.0":
            continue
        space = space_of(*deepseek, max_model_len=8192, engine_version=version, **cells)
        found = {(c["pipelineParallelSize"], c["speculativeMethod"]) for c in space.configurations()}
        assert found == {(1, "none"), (2, "none"), (1, "mtp")}
    trusted = space_of(*deepseek, max_model_len=8192, trusted=["SpeculationInPipeline"], **cells)
    assert (2, "mtp") in {(c["pipelineParallelSize"], c["speculativeMethod"]) for c in trusted.configurations()}


def test_case_20_an_old_engine_has_no_such_method():
    text = problems_of("deepseek-ai/DeepSeek-V3", "NVIDIA-B200", max_model_len=8192, engine_version="0.10.0",
                       speculativeMethod=("mtp",))  # fmt: skip
    assert "speculativeMethod mtp needs vLLM 0.11.0, the engine is 0.10.0" in text


def test_case_21_depth_of_multi_token_prediction():
    model = model_facts("deepseek-ai/DeepSeek-V3", {"mtpLayers": 2})

    def said(**values):
        return objections(make_configuration(speculativeMethod="mtp", **values), models={"": model})

    assert [depth for depth in (1, 2, 3, 4) if not said(numSpeculativeTokens=depth)] == [1, 2, 4]
    assert said(numSpeculativeTokens=3) == [
        "numSpeculativeTokens 3 is above the 2 MTP layers of deepseek-ai/DeepSeek-V3 and no multiple of them"
    ]
    draft = [d for d in (1, 2, 8) if not said(tensorParallelSize=8, draftTensorParallelSize=d, numSpeculativeTokens=1)]
    assert draft == [1, 8]


def test_case_21_a_model_without_such_layers_loses_the_branch():
    kimi = ("moonshotai/Kimi-K2-Instruct", "NVIDIA-B200")
    asked = {"speculativeMethod": ("none", "mtp"), "numSpeculativeTokens": (1, 2)}
    space = space_of(*kimi, max_model_len=8192, enableExpertParallel=(True,), **asked)
    assert values_of(space, "speculativeMethod") == {"none"}
    assert "numSpeculativeTokens" not in {parameter.name for parameter in space.parameters}
    asked["speculativeMethod"] = ("mtp",)
    assert "no layers for multi-token prediction" in problems_of(*kimi, max_model_len=8192, **asked)


# --- memory


CAPTURE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB while capturing CUDA graphs."


def test_case_22_out_of_memory_while_graphs_are_captured():
    failure = classify_exit(1, f"INFO capturing graphs\n{CAPTURE}", was_ready=False)
    assert failure.reason == "EngineOutOfMemory"

    space = SearchSpace((Parameter("gpuMemoryUtilizationPercent", (97, 98)),), (), {"gpuMemoryUtilizationPercent": 98})
    wall, fits = (make_configuration(gpuMemoryUtilizationPercent=percent) for percent in (98, 97))
    refused = make_record(0, wall, purpose="Baseline", outcome="Infeasible", failure=failure)
    assert refused.measurements == ()
    asked = {"objectives": make_objectives(), "target": Target(), "budget": Budget(10), "spent_seconds": 0, "seed": 1}

    following = propose(space, [refused], **asked)
    assert following.configuration == fits
    assert propose(space, [refused, make_record(1, fits)], **asked).reason == "SearchSpaceExhausted"


def test_case_23_a_search_for_the_memory_share_ends():
    shares = (70, 75, 80, 85, 90, 95)
    space = SearchSpace((Parameter("gpuMemoryUtilizationPercent", shares),), (), {"gpuMemoryUtilizationPercent": 92})
    records = []
    while True:
        answer = propose(
            space, records, objectives=make_objectives(), target=Target(), budget=Budget(100), spent_seconds=0, seed=1
        )
        if isinstance(answer, Stop):
            break
        failure = Failure("EngineArgumentsRefused", "error: unrecognized arguments: --no-such")
        outcome = failure.outcome
        records.append(make_record(len(records), answer.configuration, outcome=outcome, failure=failure))

    assert len(records) == 5
    assert min(record.configuration["gpuMemoryUtilizationPercent"] for record in records) >= 70
    assert answer.reason == "TooManyFailures"


def test_case_24_a_context_that_does_not_fit_the_cache():
    llama = model_facts("meta-llama/Llama-3.3-70B-Instruct")
    assert llama.kv_bytes_per_token_per_gpu(8) == 40_960
    assert llama.kv_bytes_per_token_per_gpu(8, kv_bits=8) == 20_480
    assert kv_tokens(4 * GIB, llama, 8) == 104_857
    assert kv_tokens(4 * GIB, llama, 8, kv_bits=8) == 209_715

    around = Surroundings({"": llama}, gpu_facts("NVIDIA-L40S"), max_model_len=131072)
    bf16, fp8 = (make_configuration(tensorParallelSize=4, kvCacheDtype=dtype) for dtype in ("auto", "fp8"))
    message = memory_fit(around, bf16)
    assert "one context of 131072 tokens does not fit the KV cache" in message
    assert "90 % of 45.0 GiB on NVIDIA-L40S = 40.5 GiB per GPU, less 32.9 GiB" in message
    assert memory_plan(around, bf16).tokens == 86_978
    assert memory_plan(around, fp8).tokens == 173_957
    assert memory_fit(around, fp8) is None
    assert "the weights do not fit" in memory_fit(around, make_configuration(tensorParallelSize=2))


def test_case_25_heads_that_are_replicated_save_nothing():
    qwen, llama = model_facts("Qwen/Qwen3-235B-A22B"), model_facts("meta-llama/Llama-3.3-70B-Instruct")
    assert [qwen.kv_bytes_per_token_per_gpu(size) for size in (4, 8)] == [48_128, 48_128]
    deepseek = model_facts("deepseek-ai/DeepSeek-V3")
    assert {deepseek.kv_bytes_per_token_per_gpu(size) for size in POWERS} == {70_272}
    assert [llama.kv_bytes_per_token_per_gpu(size) for size in (4, 8, 16)] == [81_920, 40_960, 40_960]


# --- pools and nodes


def pools(**values):
    degrees = {"prefillTensorParallelSize": 4, "decodeTensorParallelSize": 4}
    return make_configuration(mode="disaggregated", **degrees, **values)


def test_case_26_pools_that_disagree():
    llama = {"models": {"": model_facts("meta-llama/Llama-3.3-70B-Instruct")}}
    assert objections(pools(kvCacheDtype="fp8"), **llama) == []

    unlike = objections(pools(prefillKvCacheDtype="fp8"), **llama)
    assert unlike == ["prefill has kvCacheDtype fp8 and decode auto; the pools can hand over equal caches only"]

    degrees = make_configuration(mode="disaggregated", prefillTensorParallelSize=4, decodeTensorParallelSize=1)
    assert "prefill has TP 4 and decode TP 1" in objections(degrees, **llama)[0]
    assert objections(degrees, trusted=frozenset({"UnlikePools"}), **llama) == []


def test_case_26_rules_hold_for_each_pool_and_gpus_add_up():
    llama = {"models": {"": model_facts("meta-llama/Llama-3.3-70B-Instruct")}, "gpu": gpu_facts("NVIDIA-H200")}
    wide = pools(prefillReplicas=2, decodeReplicas=1, decodeDataParallelSize=2)
    assert gpus(wide) == 2 * 4 + 8
    said = objections(wide, max_gpus=12, **llama)
    assert said == ["prefill and decode need 2 x 4 + 1 x 8 = 16 GPUs, at most 12 are allowed"]
    single = make_configuration(mode="disaggregated", prefillTensorParallelSize=1, decodeTensorParallelSize=1)
    assert [message.partition(":")[0] for message in objections(single, **llama)] == ["prefill pool", "decode pool"]


def test_case_27_more_gpus_than_there_are():
    degrees = {"tensorParallelSize": (4, 8), "pipelineParallelSize": (1, 2)}
    found = space_of(**degrees).configurations()
    cells = {(c["tensorParallelSize"], c["pipelineParallelSize"]): gpus(c) for c in found}
    assert cells == {(4, 1): 4, (8, 1): 8, (4, 2): 8}


@pytest.mark.parametrize(
    ("tensor", "pipeline", "words"),
    [
        (8, 2, ""),
        (8, 3, ""),
        (16, 1, "TP 16 reaches beyond the 8 GPUs with fast links"),
        (4, 3, "needs 12 GPUs, which are not whole nodes of 8"),
        (6, 4, "TP 6 does not divide a node of 8 GPUs"),
    ],
)
def test_case_27_engines_over_several_nodes(tensor, pipeline, words):
    configuration = make_configuration(tensorParallelSize=tensor, pipelineParallelSize=pipeline)
    said = objections(configuration, gpus_per_node=8, max_gpus=24, several_nodes=True)
    assert (words in said[0]) if words else said == []
    assert objections(configuration, gpus_per_node=8, max_gpus=24) == [
        f"TP {tensor} x PP {pipeline} x DP 1 needs {tensor * pipeline} GPUs, a node has 8"
    ]


def test_case_27_fast_links_may_reach_beyond_a_node():
    wide = make_configuration(tensorParallelSize=16)
    rack = {"gpus_per_node": 4, "max_gpus": 64, "several_nodes": True}
    assert objections(wide, domain_gpus=72, **rack) == []
    assert "beyond the 4 GPUs" in objections(wide, **rack)[0]


def test_case_28_an_uneven_split_of_layers_is_legal():
    deepseek = model_facts("deepseek-ai/DeepSeek-V3")
    assert objections(make_configuration(pipelineParallelSize=4), models={"": deepseek}) == []
    assert stage_layers(61, 4) == (15, 15, 16, 15)
    assert stage_layers(7, 4) == (2, 2, 2, 1)
    assert "PP 64 has more stages" in objections(make_configuration(pipelineParallelSize=64), models={"": deepseek})[0]


def test_case_28_a_model_without_pipelines_is_remembered():
    space = space_of("meta-llama/Llama-3.3-70B-Instruct", pipelineParallelSize=(1, 2, 4))
    refused = next(c for c in space.configurations() if c["pipelineParallelSize"] == 2)
    words = "NotImplementedError: Pipeline parallelism is not supported for this model. (exit code 1)"

    lesson = learned_rules([(refused, words), (refused, words), (space.baseline, "exit code 1")])
    assert len(lesson) == 1
    learned = space.with_rules(lesson)
    assert values_of(learned, "pipelineParallelSize") == {1}
    assert learned.digest == space.digest
    assert set(learned.reasons) - set(space.reasons) == {
        f"the engine refused pipelineParallelSize 2 in an earlier trial, so {size} is not tried again"
        for size in (2, 4)
    }
    assert space.with_rules(()) is space


# --- studies


def test_case_67_an_edited_list_of_values_is_another_space():
    narrow, wide = (space_of(tensorParallelSize=values) for values in ((1, 2, 4), (1, 2, 4, 8)))
    assert narrow.digest != wide.digest
    assert all(configuration in wide for configuration in narrow.configurations())
    assert [c for c in wide.configurations() if c not in narrow] == [
        c for c in wide.configurations() if c["tensorParallelSize"] == 8
    ]


@pytest.mark.parametrize("cells", [2, 12])
def test_cases_71_and_78_no_cell_twice_and_an_end(cells):
    space = SearchSpace((Parameter("maxNumSeqs", tuple(range(1, cells + 1))),))
    records = []
    for _ in range(20):
        answer = propose(
            space, records, objectives=make_objectives(), target=Target(), budget=Budget(100), spent_seconds=0, seed=1,
            stability=Stability(minimum=100),
        )  # fmt: skip
        if isinstance(answer, Stop):
            break
        records.append(make_record(len(records), answer.configuration))
    assert len({record.configuration for record in records}) == len(records) == cells
    assert answer.reason == "SearchSpaceExhausted"


def test_case_77_a_configuration_outside_the_space_is_told_from_a_member():
    space = SearchSpace((Parameter("maxNumSeqs", (10, 16, 20)),), (), {"maxNumSeqs": 3})
    outside = make_configuration(maxNumSeqs=3)
    assert outside not in space
    assert [v.message for v in space.violations(outside)] == ["maxNumSeqs is 3, not one of 10, 16, 20"]
    assert space.baseline == make_configuration(maxNumSeqs=10)


# --- the table of models


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
def test_the_tables_tensor_parallel_sizes(name, want_off, want_on):
    model = model_facts(name)
    assert tensor_parallel_sizes(model) == want_off
    assert tensor_parallel_sizes(model, expert_parallel=True) == want_on


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 24, "vocabulary of 151936"),
        ("zai-org/GLM-4.5", 48, "vocabulary of 151552"),
        ("zai-org/GLM-4.5", 3, "8 KV heads, TP 3"),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 12, "8 KV heads, TP 12"),
        ("mistralai/Mixtral-8x22B-v0.1", 6, "8 KV heads, TP 6"),
        ("mistralai/Mixtral-8x22B-v0.1", 24, "vocabulary of 32000"),
        ("openai/gpt-oss-120b", 16, "90 groups of 32 in its expert width, too few for 16 shards"),
        ("moonshotai/Kimi-K2-Instruct", 32, "576 is not whole blocks of 128"),
    ],
)
def test_the_tables_traps(name, size, words):
    said = objections(make_configuration(tensorParallelSize=size), models={"": model_facts(name)})
    assert any(words in message for message in said)


def test_the_tables_caches_and_contexts():
    bytes_of = {
        name: model_facts(name).kv_bytes_per_token_per_gpu(8)
        for name in ("moonshotai/Kimi-K2-Instruct", "zai-org/GLM-5")
    }
    assert bytes_of == {"moonshotai/Kimi-K2-Instruct": 70_272, "zai-org/GLM-5": 89_856}
    assert model_facts("deepseek-ai/DeepSeek-V3").kv_bytes_per_token_per_gpu(8, kv_bits=8) == 35_136
    text = problems_of("Qwen/Qwen3-235B-A22B", max_model_len=131072)
    assert "131072 is above the 40960" in text
    assert space_of("Qwen/Qwen3-235B-A22B", max_model_len=131072, args=["--hf-overrides", "{}"]).size > 0
    mtp = {name for name in ("zai-org/GLM-5", "zai-org/GLM-4.5", "deepseek-ai/DeepSeek-V3", "Qwen/Qwen3-235B-A22B",
                             "moonshotai/Kimi-K2-Instruct") if model_facts(name).mtp_layers}  # fmt: skip
    assert mtp == {"zai-org/GLM-5", "zai-org/GLM-4.5", "deepseek-ai/DeepSeek-V3"}


def test_every_feature_is_a_parameter_and_is_refused_with_its_reason():
    names = {parameter.name for parameter in CATALOGUE}
    assert set(FEATURES) <= names
    for name, needs in FEATURES.items():
        text = problems_of(**{name: ("x",)})
        assert f"search parameter {name} needs a plant that {needs}; the one here does not" in text
