import json
import runpy
from pathlib import Path

import pytest

from frontier_tuner.engines.vllm import CATALOGUE, DEFAULTS, FEATURES, baseline, build_space, command_line
from frontier_tuner.engines.vllm_arguments import FixedArguments
from frontier_tuner.engines.vllm_catalogue import UNSET, base_name
from frontier_tuner.engines.vllm_memory import memory_fit, memory_plan
from frontier_tuner.engines.vllm_rules import Surroundings, rules
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.space import Restriction
from support.tuner_builders import make_configuration


def space_for(model="meta-llama/Llama-3.1-8B", gpu="NVIDIA-H200", count=8, entries=(), args=(), **over):
    facts = model_facts(model) if isinstance(model, str) else model
    return build_space(facts, gpu and gpu_facts(gpu), count, ["bf16"], count, entries, args, **over)


def values_of(space, name):
    return {configuration[name] for configuration in space.configurations()}


def problems_of(**over):
    with pytest.raises(InvalidSpaceError) as caught:
        space_for(**over)
    return "\n".join(caught.value.problems)


def objections(configuration, **over):
    return [message for rule in rules(Surroundings(**over)) if (message := rule.check(configuration))]


def test_a_fixed_argument_can_switch_chunked_prefill_off():
    space = space_for(args=["--no-enable-chunked-prefill", "--max-model-len=8192"])
    assert values_of(space, "maxNumBatchedTokens") == {8192, 16384}


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


DEEPSEEK = "deepseek-ai/DeepSeek-V3"


def test_the_catalogue_is_complete():
    names = [parameter.name for parameter in CATALOGUE]
    assert len(names) == len(set(names)) > 35
    for index, parameter in enumerate(CATALOGUE):
        assert parameter.meaning.endswith("."), parameter.name
        assert parameter.group, parameter.name
        assert parameter.requires is None or parameter.requires.name in names[:index]
        default = DEFAULTS.get(parameter.name)
        assert default is None or parameter.convert(default) in (default, None)
        assert (default is None) == parameter.free or parameter.name == "variant" or not parameter.restart
    assert set(UNSET) < set(DEFAULTS) < set(names)


def test_a_model_that_drafts_for_itself_is_searched_by_method():
    space = space_for(DEEPSEEK, "NVIDIA-B200", max_model_len=8192)
    found = {(c["speculativeMethod"], c.get("numSpeculativeTokens")) for c in space.configurations()}
    assert found == {("none", None), *((m, d) for m in ("ngram", "mtp") for d in (1, 3))}

    alone = space_for(DEEPSEEK, "NVIDIA-B200", entries=[Restriction("numSpeculativeTokens", values=(0, 3))],
                      max_model_len=8192)  # fmt: skip
    assert {(c.get("speculativeMethod"), c["numSpeculativeTokens"]) for c in alone.configurations()} == {
        (None, 0), (None, 3),
    }  # fmt: skip
    assert "speculativeMethod" not in baseline(space_for("Qwen/Qwen3-8B"))
    assert "speculativeMethod" not in baseline(space_for(DEEPSEEK, "NVIDIA-B200", engine_version="0.10.0",
                                                         max_model_len=8192))  # fmt: skip


def test_a_method_that_needs_a_checkpoint_says_so():
    method = Restriction("speculativeMethod", values=("none", "eagle3"))
    text = problems_of(entries=[method])
    assert "speculativeMethod eagle3 needs a checkpoint that drafts; pin it: {name: eagle3Model, value: …}" in text
    space = space_for(entries=[method, Restriction("eagle3Model", value="org/eagle3")])
    found = {(c["speculativeMethod"], c.get("eagle3Model")) for c in space.configurations()}
    assert found == {("none", None), ("eagle3", "org/eagle3")}
    drafting = next(c for c in space.configurations() if c["speculativeMethod"] == "eagle3")
    arguments = command_line(drafting)
    assert json.loads(arguments[arguments.index("--speculative-config") + 1]) == {
        "method": "eagle3", "model": "org/eagle3", "num_speculative_tokens": drafting["numSpeculativeTokens"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("version", "want"),
    [
        ("0.9.2", "--num-redundant-experts 16 --cuda-graph-sizes 256 --enforce-eager"),
        ("0.10.2", '--eplb-config {"num_redundant_experts":16} --cuda-graph-sizes 256 --no-async-scheduling'),
        ("0.33.0", "--eplb-config --max-cudagraph-capture-size 256 --attention-backend TRITON_MLA"),
        ("", "--eplb-config --max-cudagraph-capture-size 256 --attention-backend TRITON_MLA"),
    ],
)  # fmt: skip
def test_arguments_are_spelt_as_the_version_wants(version, want):
    configuration = make_configuration(
        numRedundantExperts=16, maxCudagraphCaptureSize=256, asyncScheduling=False, attentionBackend="TRITON_MLA",
        enforceEager=version == "0.9.2",
    )  # fmt: skip
    found = " ".join(command_line(configuration, engine_version=version))
    for part in want.split(" --"):
        assert part.removeprefix("--") in found
    assert ("--async-scheduling" in found or "--no-async-scheduling" in found) is (version != "0.9.2")
    assert ("--attention-backend" in found) is (version in ("0.33.0", ""))


def test_nothing_is_passed_on_for_the_engines_own_choice():
    own = make_configuration(quantization="none", attentionBackend="auto", speculativeMethod="none")
    assert command_line(own) == ()


def test_engines_of_pools_get_their_own_arguments():
    pools = make_configuration(
        mode="disaggregated", prefillTensorParallelSize=4, decodeTensorParallelSize=4, decodeMaxNumSeqs=64,
        prefillReplicas=2, kvCacheDtype="auto", decodeKvCacheDtype="fp8",
    )  # fmt: skip
    prefill = command_line(pools, role="prefill")
    assert prefill[:4] == ("--tensor-parallel-size", "4", "--kv-cache-dtype", "auto")
    assert json.loads(prefill[-1]) == {"kv_connector": "NixlConnector", "kv_role": "kv_producer"}
    decode = command_line(pools, role="decode", connector={"kv_connector": "ExampleConnector"})
    assert decode[:6] == ("--tensor-parallel-size", "4", "--max-num-seqs", "64", "--kv-cache-dtype", "fp8")
    assert json.loads(decode[-1]) == {"kv_connector": "ExampleConnector", "kv_role": "kv_consumer"}


def test_pools_have_knobs_of_their_own_and_share_the_rest():
    entries = [
        Restriction("mode", values=("aggregated", "disaggregated")),
        Restriction("maxNumSeqs", value=64),
        Restriction("maxNumBatchedTokens", value=8192),
    ]
    space = space_for("Qwen/Qwen3-8B", entries=entries, supports=FEATURES)
    alone = [c for c in space.configurations() if c["mode"] == "aggregated"]
    split = [c for c in space.configurations() if c["mode"] == "disaggregated"]
    assert {frozenset(c) for c in alone} == {
        frozenset({"mode", "variant", "tensorParallelSize", "maxNumSeqs", "maxNumBatchedTokens", "kvCacheDtype",
                   "enablePrefixCaching", "numSpeculativeTokens"})
    }  # fmt: skip
    assert {frozenset(c) for c in split} == {
        frozenset({"mode", "variant", "kvCacheDtype", "enablePrefixCaching", "numSpeculativeTokens", "prefillReplicas",
                   "decodeReplicas", "prefillTensorParallelSize", "decodeTensorParallelSize", "decodeMaxNumSeqs",
                   "prefillMaxNumBatchedTokens"})
    }  # fmt: skip
    assert all(c["prefillTensorParallelSize"] == c["decodeTensorParallelSize"] for c in split)
    assert baseline(space)["mode"] == "aggregated"


@pytest.mark.parametrize(
    ("args", "want"),
    [
        (["--gpu-memory-utilization", "0.8"], {"gpuMemoryUtilizationPercent": 80}),
        (["--no-enable-prefix-caching", "-tp", "2"], {"enablePrefixCaching": False, "tensorParallelSize": 2}),
        (["--max-num-batched-tokens=8k"], {"maxNumBatchedTokens": 8000}),
        (['--speculative-config={"method":"mtp","num_speculative_tokens":2}'],
         {"speculativeMethod": "mtp", "numSpeculativeTokens": 2}),
        (["--speculative_config.num_speculative_tokens", "4"], {"numSpeculativeTokens": 4}),
        (["--speculative-config=nonsense", "--max-num-seqs", "many"], {}),
    ],
)  # fmt: skip
def test_fixed_arguments_are_read_as_parameters(args, want):
    found = FixedArguments.parse(args).values_of_parameters()
    assert {name: value for name, value in found.items() if base_name(name) == name} == want
    assert all(value == found[base_name(name)] for name, value in found.items()), "every pool gets them"


def test_rules_see_what_an_argument_fixes():
    entries = [Restriction("asyncScheduling", values=(True, False)), Restriction("maxCudagraphCaptureSize", value=512)]
    eager = problems_of(entries=entries, args=["--enforce-eager"])
    assert "maxCudagraphCaptureSize exists only with enforceEager false" in eager
    space = space_for(entries=entries[:1], args=["--block-size", "32"], engine_version="0.14.0")
    assert {c["asyncScheduling"] for c in space.configurations() if c["numSpeculativeTokens"]} == {False}
    assert any("asyncScheduling does not work with speculation by ngram on vLLM 0.14.0" in r for r in space.reasons)
    backend = [Restriction("attentionBackend", values=("auto", "FLASHMLA"))]
    space = space_for(DEEPSEEK, entries=backend, args=["--block-size", "32"], max_model_len=8192)
    assert values_of(space, "attentionBackend") == {"auto"}
    assert "attentionBackend FLASHMLA needs blocks of 64 tokens, not 32" in space.reasons


@pytest.mark.parametrize("args", [["--data-parallel-size", "2"], ["-pp=2"]])
def test_arguments_may_not_say_how_many_gpus_an_engine_holds(args):
    assert "ParallelSize is for; remove the argument" in problems_of(args=args)


@pytest.mark.parametrize(
    ("model", "gpu", "backend", "words"),
    [
        ("Qwen/Qwen3-8B", "NVIDIA-H200", "FLASHMLA", "is not for the grouped attention of Qwen/Qwen3-8B"),
        (DEEPSEEK, "NVIDIA-H200", "FLASH_ATTN", "is not for the latent attention"),
        (DEEPSEEK, "NVIDIA-H200", "CUTLASS_MLA", "does not run on NVIDIA-H200, compute capability 9.0"),
        (DEEPSEEK, "NVIDIA-B200", "CUTLASS_MLA", ""),
        ("Qwen/Qwen3-8B", "NVIDIA-L40S", "FLASH_ATTN", "reads an fp8 cache only on compute capability 9"),
        ("Qwen/Qwen3-8B", "NVIDIA-H200", "FLASH_ATTN", ""),
    ],
)
def test_attention_backends_are_for_some_models_and_gpus(model, gpu, backend, words):
    configuration = make_configuration(attentionBackend=backend, kvCacheDtype="fp8", tensorParallelSize=8)
    said = objections(configuration, models={"": model_facts(model)}, gpu=gpu_facts(gpu), max_model_len=2048)
    assert (words in said[0]) if words else said == []


@pytest.mark.parametrize(
    ("version", "method", "stages", "words"),
    [
        ("0.11.0", "mtp", 1, "does not work with speculation by mtp"),
        ("0.11.1", "mtp", 1, ""),
        ("0.15.0", "draft_model", 1, "speculation by draft_model"),
        ("0.16.0", "draft_model", 1, ""),
        ("0.30.0", "ngram", 1, "speculation by ngram"),
        ("0.32.0", "ngram", 1, ""),
        ("0.32.0", "suffix", 1, "speculation by suffix"),
        ("0.14.1", "none", 2, "does not work with PP 2"),
        ("0.15.0", "none", 2, ""),
    ],
)
def test_asynchronous_scheduling_by_version(version, method, stages, words):
    numbers = tuple(int(part) for part in version.split("."))
    configuration = make_configuration(asyncScheduling=True, speculativeMethod=method, pipelineParallelSize=stages)
    said = objections(configuration, version=numbers)
    assert (words in said[0]) if words else said == []


@pytest.mark.parametrize(
    ("version", "values", "words"),
    [
        ("0.9.2", {"asyncScheduling": True}, "asyncScheduling needs vLLM 0.10.0, the engine is 0.9.2"),
        ("0.9.2", {"asyncScheduling": False}, ""),
        ("0.12.0", {"attentionBackend": "FLASHINFER"}, "attentionBackend needs vLLM 0.13.0"),
        ("0.12.0", {"attentionBackend": "auto"}, ""),
        ("0.11.0", {"enableChunkedPrefill": False}, "enableChunkedPrefill false needs vLLM 0.11.1"),
        ("0.19.0", {"kvCacheDtype": "nvfp4"}, "kvCacheDtype nvfp4 needs vLLM 0.20.0"),
        ("0.33.0", {"kvCacheDtype": "nvfp4", "attentionBackend": "FLASHINFER", "asyncScheduling": True}, ""),
    ],
)
def test_what_a_version_does_not_have_is_refused(version, values, words):
    numbers = tuple(int(part) for part in version.split("."))
    said = objections(make_configuration(**values), version=numbers)
    assert (words in said[0]) if words else said == []


def test_images_and_products_bring_their_own_versions_and_limits():
    images = ("vllm/vllm-openai:v0.10.0", "vllm/vllm-openai:v0.33.0")
    products = {name: gpu_facts(name) for name in ("NVIDIA-A100-SXM4-80GB", "NVIDIA-H200")}
    entries = [
        Restriction("image", values=images),
        Restriction("gpuProduct", values=tuple(products)),
        Restriction("attentionBackend", values=("auto", "FLASHINFER")),
    ]
    space = build_space(model_facts("Qwen/Qwen3-8B"), None, 8, ["a"], 8, entries, products=products, supports=FEATURES)
    assert {(c["image"], c["attentionBackend"]) for c in space.configurations()} == {
        (images[0], "auto"), (images[1], "auto"), (images[1], "FLASHINFER"),
    }  # fmt: skip
    assert {(c["gpuProduct"], c["kvCacheDtype"]) for c in space.configurations()} == {
        ("NVIDIA-A100-SXM4-80GB", "auto"), ("NVIDIA-H200", "auto"), ("NVIDIA-H200", "fp8"),
    }  # fmt: skip


def test_defaults_follow_version_and_memory():
    def tokens(gpu, version):
        entries = [Restriction("gpuMemoryUtilizationPercent", values=(90, 92))]
        found = baseline(space_for("Qwen/Qwen3-8B", gpu, entries=entries, engine_version=version))
        return found["maxNumBatchedTokens"], found["gpuMemoryUtilizationPercent"]

    assert tokens("NVIDIA-B200", "0.33.0") == (16384, 92)
    assert tokens("NVIDIA-B200", "0.27.0") == (8192, 92)
    assert tokens("NVIDIA-H200", "0.19.0") == (8192, 90)
    assert tokens("NVIDIA-L40S", "0.33.0") == (2048, 92)


def test_the_reference_page_is_that_of_the_catalogue():
    root = Path(__file__).parents[3]
    script = runpy.run_path(str(root / "scripts/write-parameters"))
    text = (root / "docs/reference/parameters.md").read_text()
    assert text == script["page"](text), "run scripts/write-parameters"
    assert all(f"| `{parameter.name}` |" in text for parameter in CATALOGUE)
    assert {parameter.group for parameter in CATALOGUE} == set(script["SECTIONS"])


def test_a_cache_that_does_not_grow_always_fits():
    shape = {"layers": 8, "hidden": 512, "heads": 8, "vocabulary": 2048, "maxContext": 4096, "slidingLayers": 8}
    around = Surroundings({"": model_facts("org/windows-only", shape)}, gpu_facts("NVIDIA-L4"))
    plan = memory_plan(around, make_configuration(tensorParallelSize=1))
    assert (plan.token, memory_fit(around, make_configuration(tensorParallelSize=1))) == (0, None)
    assert plan.tokens > plan.context == 4096
