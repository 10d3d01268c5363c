"""Flags that exclude each other, and what the GPU or the engine's version does not have."""

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.surroundings import Surroundings
from frontier_tuner.engines.vllm_catalogue import defaults_of
from frontier_tuner.engines.vllm_parameters import CACHE, DEPTH, DRAFTED, METHOD, PP, SEQUENCES, TOKENS, TP
from frontier_tuner.engines.vllm_versions import (
    ASYNC_WITH_PIPELINE_SINCE,
    ASYNC_WITH_SPECULATION_SINCE,
    SPECULATION_IN_PIPELINE,
    VALUES_SINCE,
    quantization_capability,
    value_since,
)
from frontier_tuner.facts import FOUR_BITS, ModelFacts
from frontier_tuner.parameter import Parameter, shown
from frontier_tuner.versions import Version, format_version, parse_version

FP8_CACHE_CAPABILITY = 8.9
NVFP4_CACHE_CAPABILITY = 10.0
EIGHT_BITS = 8
MXFP4_BLOCK = 32

_BACKENDS: dict[str, tuple[bool | None, float, float]] = {
    # Whether it is for latent attention (None: either), and the compute capabilities from and below which it works.
    "FLASH_ATTN": (False, 8.0, 99),
    "FLASHINFER": (False, 7.5, 99),
    "TRITON_ATTN": (False, 0, 99),
    "FLEX_ATTENTION": (False, 0, 99),
    "FLASH_ATTN_MLA": (True, 9.0, 10.0),
    "FLASHMLA": (True, 9.0, 11.0),
    "FLASHINFER_MLA": (True, 10.0, 11.0),
    "CUTLASS_MLA": (True, 10.0, 11.0),
    "TRITON_MLA": (True, 0, 99),
}
_BLOCKS = {"FLASHMLA": (64,), "CUTLASS_MLA": (128,), "FLASHINFER_MLA": (32, 64)}
"""Block sizes of the backends that do not take any multiple of 16."""
_ASYNC_METHODS: tuple[tuple[Version, tuple[str, ...]], ...] = (
    ((0, 32), ("ngram", *DRAFTED)),
    ((0, 16), DRAFTED),
    (ASYNC_WITH_SPECULATION_SINCE, ("eagle3", "mtp")),
)
"""Methods of speculation that asynchronous scheduling works with, from a version on."""


def method_of(configuration: Configuration) -> str:
    """Return the method of speculation, `none` where there is none; a depth alone means n-grams."""
    if METHOD in configuration:
        return configuration.text(METHOD)
    return "ngram" if configuration.integer(DEPTH) > 0 else "none"


def differs_by_version(parameter: Parameter) -> bool:
    """Return whether some versions of the engine lack the parameter or one of its values."""
    gated = any(argument.since or argument.before for argument in parameter.arguments)
    return gated or any(name == parameter.name for name, _ in VALUES_SINCE)


def available(around: Surroundings, parameter: Parameter, configuration: Configuration) -> str | None:
    """The engine's version must have the parameter and its value; its default needs nothing."""
    value, version = configuration.get(parameter.name), around.version_of(configuration)
    if value is None or not version or value == defaults_of(version).get(parameter.name):
        return None
    engine = f"the engine is {format_version(version)}"
    if parameter.arguments and parameter.argument_of(version) is None:
        since = min((each.since for each in parameter.arguments), key=parse_version)
        return f"{parameter.name} needs vLLM {since}, {engine}"
    since = value_since(parameter.name, value)
    if since and version < parse_version(since):
        return f"{parameter.name} {shown(value)} needs vLLM {since}, {engine}"
    return None


def speculation_in_pipeline(around: Surroundings, configuration: Configuration) -> str | None:
    """Speculative decoding with pipeline parallelism fails or corrupts output on every version known."""
    stages, method, tokens = configuration.integer(PP, 1), method_of(configuration), configuration.integer(DEPTH)
    if stages == 1 or method == "none" or around.version_of(configuration) in SPECULATION_IN_PIPELINE:
        return None
    if "SpeculationInPipeline" in around.trusted:
        return None
    return f"speculation of {tokens} tokens by {method} does not work with PP {stages}"


def draft_model(around: Surroundings, configuration: Configuration) -> str | None:
    """Multi-token prediction needs layers for it, and goes as deep as they reach or a whole number of times round."""
    model, tokens = around.model(configuration), configuration.integer(DEPTH)
    if model is None or method_of(configuration) != "mtp":
        return None
    layers = model.mtp_layers
    if not layers:
        return (
            f"{model.name} has no layers for multi-token prediction, so speculativeMethod mtp has nothing to draft by"
        )
    if tokens > layers and tokens % layers:
        return f"numSpeculativeTokens {tokens} is above the {layers} MTP layers of {model.name} and no multiple of them"
    return None


def draft_split(configuration: Configuration) -> str | None:
    """The drafting model has one GPU or as many as the model."""
    draft, tensor = configuration.integer("draftTensorParallelSize", 1), configuration.integer(TP, 1)
    return None if draft in (1, tensor) else f"draftTensorParallelSize {draft} is neither 1 nor TP {tensor}"


def tokens_for_sequences(configuration: Configuration) -> str | None:
    """A step needs a token for each sequence."""
    sequences, tokens = configuration.integer(SEQUENCES), configuration.integer(TOKENS)
    if sequences and tokens and tokens < sequences:
        return f"maxNumBatchedTokens {tokens} is below maxNumSeqs {sequences}"
    return None


def tokens_for_context(around: Surroundings, configuration: Configuration) -> str | None:
    """Without chunked prefill one step must take a whole context."""
    context, tokens = around.context(configuration), configuration.integer(TOKENS)
    chunked = configuration.flag("enableChunkedPrefill", default=around.chunked_prefill)
    if context and tokens and tokens < context and not chunked:
        return f"maxNumBatchedTokens {tokens} is below the context length {context} and chunked prefill is off"
    return None


def cache_precision(around: Surroundings, configuration: Configuration) -> str | None:
    """A cache of few bits needs the hardware; one of 16 bits must have the model's format."""
    gpu, dtype = around.gpu_of(configuration), configuration.text(CACHE)
    if dtype in ("bfloat16", "float16"):
        model_dtype = around.model_dtype(configuration)
        fits = dtype == model_dtype
        return None if fits else f"kvCacheDtype {dtype} does not go with a model in {model_dtype}; auto does"
    need = FP8_CACHE_CAPABILITY if dtype.startswith("fp8") else NVFP4_CACHE_CAPABILITY if dtype == "nvfp4" else 0
    if gpu is None or gpu.compute_capability >= need:
        return None
    return f"kvCacheDtype {dtype} needs compute capability {need}, {gpu.product} has {gpu.compute_capability}"


def checkpoint_method(model: ModelFacts) -> str:
    """Return what vLLM calls the way in which a checkpoint is quantized; empty where it is not, or may be several."""
    if model.weight_bits == EIGHT_BITS and model.weight_block:
        return "fp8"
    return "mxfp4" if model.weight_bits == FOUR_BITS and model.weight_block == MXFP4_BLOCK else ""


def quantization(around: Surroundings, configuration: Configuration) -> str | None:
    """The argument must not contradict the checkpoint, and the GPU must be able to compute the method."""
    model, gpu = around.model(configuration), around.gpu_of(configuration)
    method = checkpoint_method(model) if model is not None else ""
    asked = configuration.text("quantization", "none")
    done = method or (model is not None and model.weight_bits == FOUR_BITS)
    if model is not None and done and asked not in ("none", method):
        how = f"by {method}" if method else f"to {model.weight_bits} bits"
        return f"{model.name} is quantized {how}, quantization {asked} contradicts it; none takes it as it is"
    method = method if asked == "none" else asked
    version = around.version_of(configuration)
    need = quantization_capability(method, version) if method else None
    if need is None or gpu is None or gpu.compute_capability >= need:
        return None
    if need == float("inf"):
        return f"vLLM {format_version(version)} does not know quantization {method}"
    return f"quantization {method} needs compute capability {need}, {gpu.product} has {gpu.compute_capability}"


def attention_backend(around: Surroundings, configuration: Configuration) -> str | None:
    """A backend must be one for the model's attention, the GPU, the cache's format and the size of its blocks."""
    name = configuration.text("attentionBackend", "auto")
    if name not in _BACKENDS:
        return None
    latent, lowest, below = _BACKENDS[name]
    model, gpu = around.model(configuration), around.gpu_of(configuration)
    if model is not None and latent != model.mla:
        kind = "latent" if model.mla else "grouped"
        return f"attentionBackend {name} is not for the {kind} attention of {model.name}"
    if gpu is not None and not lowest <= gpu.compute_capability < below:
        return f"attentionBackend {name} does not run on {gpu.product}, compute capability {gpu.compute_capability}"
    fp8 = configuration.text(CACHE).startswith("fp8")
    if name == "FLASH_ATTN" and fp8 and gpu is not None and not 9.0 <= gpu.compute_capability < 10.0:  # noqa: PLR2004
        return f"attentionBackend FLASH_ATTN reads an fp8 cache only on compute capability 9, not on {gpu.product}"
    size = configuration.integer("blockSize")
    if size and size not in _BLOCKS.get(name, (size,)):
        allowed = " or ".join(str(each) for each in _BLOCKS[name])
        return f"attentionBackend {name} needs blocks of {allowed} tokens, not {size}"
    return None


def async_scheduling(around: Surroundings, configuration: Configuration) -> str | None:
    """Asynchronous scheduling goes with some methods of speculation only, and not with pipelines on old versions."""
    if not configuration.flag("asyncScheduling"):
        return None
    method, version = method_of(configuration), around.version_of(configuration)
    if method != "none":
        working = next((methods for since, methods in _ASYNC_METHODS if version >= since), ())
        if method not in working:
            return f"asyncScheduling does not work with speculation by {method} on vLLM {format_version(version)}"
    stages = configuration.integer(PP, 1)
    if stages > 1 and version < ASYNC_WITH_PIPELINE_SINCE:
        return f"asyncScheduling does not work with PP {stages} on vLLM {format_version(version)}"
    return None
