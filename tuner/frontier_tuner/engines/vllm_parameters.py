"""The parameters of one vLLM engine: their values, their flags by version, and what they do to the frontier.

Data only; `vllm_catalogue` adds those of pools and the engine's defaults.
"""

from collections.abc import Mapping

from frontier_tuner.configuration import Value
from frontier_tuner.parameter import Argument, Parameter, Requirement

TP, PP, DP, EP = "tensorParallelSize", "pipelineParallelSize", "dataParallelSize", "enableExpertParallel"
SEQUENCES, TOKENS, CACHE = "maxNumSeqs", "maxNumBatchedTokens", "kvCacheDtype"
METHOD, DEPTH = "speculativeMethod", "numSpeculativeTokens"
MEMORY = "gpuMemoryUtilizationPercent"

_SIZES: tuple[Value, ...] = (1, 2, 4, 8, 16, 32, 64)
_FLAGS: tuple[Value, ...] = (False, True)
_SPECULATE = "--speculative-config"

DRAFTERS: Mapping[str, str] = {"draft_model": "draftModel", "eagle3": "eagle3Model", "dflash": "dflashModel"}
"""Methods of speculation that need a checkpoint of their own, and the parameter that names it."""
DRAFTED = ("mtp", "dspark", *DRAFTERS)
"""Methods that run a model to draft."""
METHODS: tuple[Value, ...] = ("ngram", "suffix", *DRAFTED)

AGGREGATED = Requirement("mode", ("aggregated",))
DISAGGREGATED = Requirement("mode", ("disaggregated",))


def _flag(name: str, **rest: str) -> tuple[Argument, ...]:
    return (Argument(name, **rest),)


def _drafter(method: str, name: str) -> Parameter:
    return Parameter(
        name,
        (),
        "Out",
        arguments=_flag(_SPECULATE, member="model"),
        group="speculation",
        requires=Requirement(METHOD, (method,)),
        free=True,
        meaning=f"The checkpoint that drafts with speculativeMethod {method}: a hub name or a path in the engine.",
    )


SUBJECT = (
    Parameter("gpuProduct", (), "Out", group="layout", free=True, meaning="The product of GPU that engines run on."),
    Parameter("image", (), "Out", group="runtime", free=True, meaning="The engine's image, and so its version."),
    Parameter(
        "mode",
        ("aggregated", "disaggregated"),
        "Out",
        group="pools",
        meaning="Whether one engine does everything, or one pool of engines prefills and another decodes.",
    ),
    Parameter("variant", (), "Out", group="precision", meaning="The checkpoint of the model, by the name it has here."),
    Parameter(
        "quantization",
        ("none", "fp8"),
        "Out",
        arguments=_flag("--quantization"),
        group="precision",
        meaning="How the engine quantizes the weights while it loads them; none leaves them as in the checkpoint.",
    ),
)

LAYOUT = (
    Parameter(
        TP,
        _SIZES,
        "Along",
        arguments=_flag("--tensor-parallel-size"),
        bounds=(1, 64),
        group="layout",
        requires=AGGREGATED,
        meaning="GPUs that share each layer.",
    ),
    Parameter(
        PP,
        _SIZES,
        "Along",
        arguments=_flag("--pipeline-parallel-size"),
        bounds=(1, 64),
        group="layout",
        requires=AGGREGATED,
        meaning="Stages that share the layers.",
    ),
    Parameter(
        DP,
        _SIZES,
        "Along",
        arguments=_flag("--data-parallel-size"),
        bounds=(1, 64),
        group="layout",
        requires=AGGREGATED,
        meaning="Copies of the attention layers in one engine; in a mixture of experts they share the experts.",
    ),
    Parameter(
        EP,
        _FLAGS,
        "Along",
        arguments=_flag("--enable-expert-parallel"),
        group="layout",
        requires=AGGREGATED,
        meaning="Whether experts are spread whole over the TP x DP GPUs instead of split among them.",
    ),
    Parameter(
        "enableEplb",
        _FLAGS,
        "Out",
        arguments=_flag("--enable-eplb", since="0.9.2"),
        group="layout",
        requires=Requirement(EP, (True,)),
        meaning="Whether experts move between GPUs to balance their load.",
    ),
    Parameter(
        "numRedundantExperts",
        (0, 32),
        "Both",
        arguments=(
            Argument("--eplb-config", member="num_redundant_experts", since="0.10.2"),
            Argument("--num-redundant-experts", since="0.9.2", before="0.10.2"),
        ),
        bounds=(0, 1024),
        group="layout",
        requires=Requirement("enableEplb", (True,)),
        meaning="Copies of busy experts, over all GPUs and for each layer.",
    ),
)

BATCHING = (
    Parameter(
        SEQUENCES,
        (16, 32, 64, 128, 256),
        "Along",
        arguments=_flag("--max-num-seqs"),
        bounds=(1, 65536),
        group="batching",
        requires=AGGREGATED,
        meaning="Sequences that one attention rank works on at once, at most.",
    ),
    Parameter(
        TOKENS,
        (2048, 4096, 8192, 16384),
        "Along",
        arguments=_flag("--max-num-batched-tokens"),
        bounds=(1, 1048576),
        group="batching",
        requires=AGGREGATED,
        meaning="Tokens of one step, at most; long prompts are prefilled in chunks of it.",
    ),
    Parameter(
        CACHE,
        ("auto", "fp8"),
        "Out",
        arguments=_flag("--kv-cache-dtype"),
        choices=("auto", "fp8", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float16", "nvfp4"),
        group="precision",
        meaning="Number format of the KV cache; auto is that of the model.",
    ),
    Parameter(
        "enablePrefixCaching",
        _FLAGS,
        "Out",
        arguments=_flag("--enable-prefix-caching"),
        group="prefill",
        meaning="Whether the cache of a prefix that requests share is kept and used again.",
    ),
    Parameter(
        "enableChunkedPrefill",
        _FLAGS,
        "Both",
        arguments=_flag("--enable-chunked-prefill"),
        group="prefill",
        meaning="Whether a prompt may be prefilled in parts, beside the decoding of others.",
    ),
)

SPECULATION = (
    Parameter(
        METHOD,
        ("none", "ngram"),
        "Both",
        arguments=_flag(_SPECULATE, member="method"),
        choices=("none", *METHODS),
        group="speculation",
        meaning="How tokens are drafted before the model checks them.",
    ),
    *(_drafter(method, name) for method, name in DRAFTERS.items()),
    Parameter(
        DEPTH,
        (1, 3),
        "Both",
        arguments=_flag(_SPECULATE, member="num_speculative_tokens"),
        bounds=(1, 32),
        group="speculation",
        requires=Requirement(METHOD, METHODS),
        meaning="Tokens drafted for each step.",
    ),
    Parameter(
        "draftTensorParallelSize",
        (1,),
        "Along",
        arguments=_flag(_SPECULATE, member="draft_tensor_parallel_size"),
        bounds=(1, 64),
        group="speculation",
        requires=Requirement(METHOD, DRAFTED),
        meaning="GPUs that share each layer of the drafting model: 1, or as many as the model has.",
    ),
)

DEPTH_ALONE = Parameter(
    DEPTH,
    (0, 3, 5),
    "Both",
    arguments=_flag(_SPECULATE, member="num_speculative_tokens"),
    bounds=(0, 32),
    group="speculation",
    meaning="Tokens copied from the prompt as a draft for each step; 0 is no speculation.",
)
"""The depth in a space without `speculativeMethod`: it speculates with n-grams, or not at all."""

RUNTIME = (
    Parameter(
        MEMORY,
        (85, 90, 95),
        "Out",
        arguments=(Argument("--gpu-memory-utilization"),),
        bounds=(10, 99),
        group="batching",
        meaning="Share of the GPU's memory that the engine may take; what weights leave of it is cache.",
    ),
    Parameter(
        "blockSize",
        (16, 32, 64, 128),
        "Out",
        arguments=_flag("--block-size"),
        choices=(16, 32, 64, 128),
        group="runtime",
        meaning="Tokens in one block of the KV cache.",
    ),
    Parameter(
        "enforceEager",
        _FLAGS,
        "Out",
        arguments=_flag("--enforce-eager"),
        group="runtime",
        meaning="Whether the engine runs without compilation and CUDA graphs.",
    ),
    Parameter(
        "optimizationLevel",
        (1, 2),
        "Out",
        arguments=_flag("--optimization-level", since="0.12.0"),
        bounds=(0, 3),
        group="runtime",
        requires=Requirement("enforceEager", (False,)),
        meaning="How much the engine compiles and captures, from 0, nothing, to 3.",
    ),
    Parameter(
        "maxCudagraphCaptureSize",
        (256, 512, 1024),
        "Out",
        arguments=(
            Argument("--max-cudagraph-capture-size", since="0.11.1"),
            Argument("--cuda-graph-sizes", since="0.9.2", before="0.11.1"),
        ),
        bounds=(1, 8192),
        group="runtime",
        requires=Requirement("enforceEager", (False,)),
        meaning="Tokens of the largest step that is captured as a CUDA graph.",
    ),
    Parameter(
        "attentionBackend",
        ("auto", "FLASH_ATTN", "FLASHINFER"),
        "Out",
        arguments=_flag("--attention-backend", since="0.13.0"),
        choices=(
            *("auto", "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION"),
            *("FLASH_ATTN_MLA", "FLASHMLA", "FLASHINFER_MLA", "CUTLASS_MLA", "TRITON_MLA"),
        ),
        group="runtime",
        meaning="The kernels of attention; auto is the engine's own choice.",
    ),
    Parameter(
        "asyncScheduling",
        _FLAGS,
        "Out",
        arguments=_flag("--async-scheduling", since="0.10.0"),
        group="runtime",
        meaning="Whether the next step is scheduled while one runs.",
    ),
    Parameter(
        "reasoningEffort",
        ("low", "medium", "high"),
        "Along",
        restart=False,
        choices=("none", "minimal", "low", "medium", "high", "xhigh"),
        group="reasoning",
        meaning="How long the model thinks before it answers; it is sent with each request.",
    ),
)
