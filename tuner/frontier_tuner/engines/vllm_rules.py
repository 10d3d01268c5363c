"""Static rules of vLLM: which configurations cannot work, and why, before an engine starts.

Every rule is a pure function of one configuration. What only a kernel knows is not here: such a configuration fails
once, is classified, and teaches the sampler. Rules need facts; where a model or a GPU is unknown its rules are absent.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from frontier_tuner.configuration import Configuration
from frontier_tuner.facts import FOUR_BITS, GPUFacts, ModelFacts
from frontier_tuner.space import Rule

GIB = 1024**3
RUNTIME_BYTES = GIB
"""What a GPU needs besides weights and cache at the very least: context, graphs, activations."""
FP8_CACHE_CAPABILITY = 8.9
VOCABULARY_PADDING = 64
BLOCK_REFINEMENT_SINCE = (0, 33)
"""The first version that may split the blocks of FP8 scales; an unknown version is taken as one that may not."""

TP, PP, DP, EP = "tensorParallelSize", "pipelineParallelSize", "dataParallelSize", "enableExpertParallel"


@dataclass(frozen=True)
class Surroundings:
    """All that the rules may know beside the configuration.

    Attributes:
        models: Facts by variant; the key "" answers for variants without facts of their own.
        gpu: The accelerator, or None where it is unknown.
        gpus_per_node: GPUs of one node; 0 where there are none.
        max_gpus: GPUs that one engine may hold; 0 where there are none.
        max_model_len: Longest context to serve, or None for the model's own.
        memory_percent: Share of the GPU's memory that the engine may use unless the space says otherwise.
        chunked_prefill: Whether prefills are chunked unless the space says otherwise.
        version: The engine's version, empty where it is unknown.
    """

    models: Mapping[str, ModelFacts] = field(default_factory=dict)
    gpu: GPUFacts | None = None
    gpus_per_node: int = 0
    max_gpus: int = 0
    max_model_len: int | None = None
    memory_percent: int = 90
    chunked_prefill: bool = True
    version: tuple[int, ...] = ()

    def model(self, configuration: Configuration) -> ModelFacts | None:
        """Return the facts of the configuration's variant, or None where they are unknown."""
        return self.models.get(configuration.text("variant"), self.models.get(""))

    def context(self, configuration: Configuration) -> int | None:
        """Return the longest context that the engine will serve, or None where it is unknown."""
        model = self.model(configuration)
        return self.max_model_len or (model.max_context if model else None)


def gpus(configuration: Configuration) -> int:
    """Return how many GPUs an engine with this configuration holds."""
    return configuration.integer(TP, 1) * configuration.integer(PP, 1) * configuration.integer(DP, 1)


def rules(around: Surroundings) -> tuple[Rule, ...]:
    """Return the rules that apply with these facts."""

    def on_model(check: Callable[[ModelFacts, Configuration], str | None]) -> Callable[[Configuration], str | None]:
        def checked(configuration: Configuration) -> str | None:
            model = around.model(configuration)
            return None if model is None else check(model, configuration)

        return checked

    layout = (TP, PP, DP, EP)
    cache = ("kvCacheDtype", "gpuMemoryUtilizationPercent")
    return (
        Rule((TP, PP, DP), lambda c: world_size(around, c)),
        Rule(("variant", TP), on_model(lambda m, c: attention_split(m, c.integer(TP, 1)))),
        Rule(
            ("variant", TP, DP, EP),
            on_model(lambda m, c: width_split(m, c.integer(TP, 1), c.integer(DP, 1), c.flag(EP), around.version)),
        ),
        Rule(
            ("variant", TP, DP, EP),
            on_model(lambda m, c: expert_split(m, c.integer(TP, 1) * c.integer(DP, 1), c.flag(EP))),
        ),
        Rule(("variant", PP), on_model(lambda m, c: pipeline_split(m, c.integer(PP, 1)))),
        Rule((PP, "numSpeculativeTokens"), speculation_in_pipeline),
        Rule(("maxNumSeqs", "maxNumBatchedTokens"), tokens_for_sequences),
        Rule(("variant", "maxNumBatchedTokens", "enableChunkedPrefill"), lambda c: tokens_for_context(around, c)),
        Rule(("kvCacheDtype",), lambda c: cache_precision(around.gpu, c)),
        Rule(("variant", *layout, *cache), lambda c: memory_fit(around, c)),
    )


def world_size(around: Surroundings, configuration: Configuration) -> str | None:
    """An engine must fit the GPUs that it may hold, and one node: engines over several nodes are not rendered."""
    needed = gpus(configuration)
    product = " x ".join(
        f"{short} {configuration.integer(name, 1)}" for short, name in (("TP", TP), ("PP", PP), ("DP", DP))
    )
    if around.max_gpus and needed > around.max_gpus:
        return f"{product} needs {needed} GPUs, at most {around.max_gpus} are allowed"
    if around.gpus_per_node and needed > around.gpus_per_node:
        return f"{product} needs {needed} GPUs, a node has {around.gpus_per_node}"
    return None


def attention_split(model: ModelFacts, tensor: int) -> str | None:
    """Query heads must divide; KV heads must divide or be replicated evenly; the padded vocabulary must divide."""
    if model.heads % tensor:
        return f"{model.name} has {model.heads} heads, TP {tensor} does not divide them"
    kv_heads = model.kv_heads
    uneven = tensor % kv_heads if tensor >= kv_heads else kv_heads % tensor
    if uneven and not model.mla:
        return f"{model.name} has {kv_heads} KV heads, TP {tensor} neither divides nor is a multiple of them"
    padded = -(-model.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
    if padded % tensor:
        return f"{model.name} has a vocabulary of {padded} (padded), TP {tensor} does not divide it"
    return None


def width_split(
    model: ModelFacts, tensor: int, data: int, expert_parallel: bool, version: tuple[int, ...]
) -> str | None:
    """Feed-forward widths must divide, also into whole blocks of scales; whole experts are not split.

    Without expert parallelism vLLM shards the experts over TP x DP.
    """
    problem = _width(model, "feed-forward width", model.intermediate, tensor, version)
    if problem or not model.experts or expert_parallel:
        return problem
    return _width(model, "expert width", model.expert_intermediate, tensor * data, version)


def _width(model: ModelFacts, what: str, width: int, shards: int, version: tuple[int, ...]) -> str | None:
    block = model.weight_block
    if block and model.weight_bits == FOUR_BITS:
        # Groups are dealt out evenly from the front, so only a last rank without any is a problem.
        groups = -(-width // block)
        if groups and (shards - 1) * -(-groups // shards) >= groups:
            return f"{model.name} has {groups} groups of {block} in its {what}, too few for {shards} shards"
        return None
    if width % shards:
        return f"{model.name} has {what} {width}, {shards} shards do not divide it"
    if block and (width // shards) % block and version < BLOCK_REFINEMENT_SINCE:
        return f"{model.name} has {what} {width}; over {shards} shards {width // shards} is not whole blocks of {block}"
    return None


def expert_split(model: ModelFacts, ranks: int, expert_parallel: bool) -> str | None:
    """Expert parallelism needs experts, and its degree TP x DP must divide them."""
    if not expert_parallel:
        return None
    if not model.experts:
        return f"{model.name} is not a mixture of experts, so enableExpertParallel cannot be true"
    if model.experts % ranks:
        return (
            f"{model.name} has {model.experts} experts, expert parallelism over TP x DP = {ranks} does not divide them"
        )
    return None


def pipeline_split(model: ModelFacts, stages: int) -> str | None:
    """Each stage needs a layer; stages of unequal length are fine."""
    return f"{model.name} has {model.layers} layers, PP {stages} has more stages" if stages > model.layers else None


def speculation_in_pipeline(configuration: Configuration) -> str | None:
    """Speculative decoding with pipeline parallelism fails or corrupts output on every version known."""
    stages, tokens = configuration.integer(PP, 1), configuration.integer("numSpeculativeTokens")
    return f"speculation of {tokens} tokens does not work with PP {stages}" if stages > 1 and tokens > 0 else None


def tokens_for_sequences(configuration: Configuration) -> str | None:
    """A step needs a token for each sequence."""
    sequences, tokens = configuration.integer("maxNumSeqs"), configuration.integer("maxNumBatchedTokens")
    if sequences and tokens and tokens < sequences:
        return f"maxNumBatchedTokens {tokens} is below maxNumSeqs {sequences}"
    return None


def tokens_for_context(around: Surroundings, configuration: Configuration) -> str | None:
    """Without chunked prefill one step must take a whole context."""
    context, tokens = around.context(configuration), configuration.integer("maxNumBatchedTokens")
    chunked = configuration.flag("enableChunkedPrefill", default=around.chunked_prefill)
    if context and tokens and tokens < context and not chunked:
        return f"maxNumBatchedTokens {tokens} is below the context length {context} and chunked prefill is off"
    return None


def cache_precision(gpu: GPUFacts | None, configuration: Configuration) -> str | None:
    """An fp8 KV cache needs compute capability 8.9."""
    if gpu is None or not configuration.text("kvCacheDtype").startswith("fp8"):
        return None
    if gpu.compute_capability < FP8_CACHE_CAPABILITY:
        capability = gpu.compute_capability
        return f"kvCacheDtype fp8 needs compute capability {FP8_CACHE_CAPABILITY}, {gpu.product} has {capability}"
    return None


def kv_tokens(available_bytes: int, model: ModelFacts, tensor: int = 1, pipeline: int = 1, kv_bits: int = 16) -> int:
    """Return how many tokens of context fit into so many bytes on each GPU."""
    return available_bytes // model.kv_bytes_per_token_per_gpu(tensor, pipeline, kv_bits)


def weight_bytes_per_gpu(model: ModelFacts, configuration: Configuration) -> int:
    """Return the weights in bytes that each GPU holds: experts are spread over TP x DP, the rest over TP."""
    tensor, pipeline = configuration.integer(TP, 1), configuration.integer(PP, 1)
    experts = model.expert_bytes()
    spread = experts // (tensor * configuration.integer(DP, 1))
    return ((model.weight_bytes() - experts) // tensor + spread) // pipeline


def memory_fit(around: Surroundings, configuration: Configuration) -> str | None:
    """Weights and the cache of one full context must fit; generous, so that nothing that runs is forbidden."""
    model, gpu = around.model(configuration), around.gpu
    if model is None or gpu is None:
        return None
    percent = configuration.integer("gpuMemoryUtilizationPercent", around.memory_percent)
    usable = gpu.memory_bytes * percent // 100
    weights = weight_bytes_per_gpu(model, configuration)
    tensor, pipeline = configuration.integer(TP, 1), configuration.integer(PP, 1)
    left = usable - weights - RUNTIME_BYTES
    arithmetic = (
        f"{percent} % of {gpu.memory_bytes / GIB:.1f} GiB on {gpu.product} = {usable / GIB:.1f} GiB per GPU, less "
        f"{weights / GIB:.1f} GiB of {model.name} at TP {tensor} x PP {pipeline} x DP {configuration.integer(DP, 1)} "
        f"and {RUNTIME_BYTES / GIB:.1f} GiB for the runtime, leaves {left / GIB:.1f} GiB"
    )
    if left <= 0:
        return f"the weights do not fit: {arithmetic}"
    bits = 8 if configuration.text("kvCacheDtype").startswith("fp8") else 16
    context = around.context(configuration) or 0
    fitting = kv_tokens(left, model, tensor, pipeline, bits)
    if fitting < context:
        each = model.kv_bytes_per_token_per_gpu(tensor, pipeline, bits)
        return (
            f"one context of {context} tokens does not fit the KV cache: {arithmetic}, {fitting} tokens of {each} "
            f"bytes; set --max-model-len to what the workload needs"
        )
    return None
