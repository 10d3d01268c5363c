"""Whether weights and cache fit a GPU, with the arithmetic that a user reads.

Generous, so that nothing that runs is forbidden: only weights, the cache of one context and the least runtime count.
"""

from dataclasses import dataclass

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.surroundings import Surroundings
from frontier_tuner.engines.vllm_parameters import CACHE, DP, MEMORY, PP, TP
from frontier_tuner.facts import ModelFacts

GIB = 1024**3
RUNTIME_BYTES = GIB
"""What a GPU needs besides weights and cache at the very least: context, graphs, activations."""

_FOUR_BIT_CACHES = ("nvfp4",)


def cache_bits(dtype: str) -> int:
    """Return the bits of one number in a KV cache of this type; scales are not counted."""
    if dtype.startswith("fp8"):
        return 8
    return 4 if dtype in _FOUR_BIT_CACHES else 16


def kv_tokens(available_bytes: int, model: ModelFacts, tensor: int = 1, pipeline: int = 1, kv_bits: int = 16) -> int:
    """Return how many tokens of context fit into so many bytes on each GPU.

    A model whose cache does not grow with the context is taken to need a byte for each token.
    """
    return available_bytes // max(1, model.kv_bytes_per_token_per_gpu(tensor, pipeline, kv_bits))


def weight_bytes_per_gpu(model: ModelFacts, configuration: Configuration) -> int:
    """Return the weights in bytes that each GPU holds: experts are spread over TP x DP, the rest over TP."""
    tensor, pipeline = configuration.integer(TP, 1), configuration.integer(PP, 1)
    experts = model.expert_bytes()
    spread = experts // (tensor * configuration.integer(DP, 1))
    return ((model.weight_bytes() - experts) // tensor + spread) // pipeline


@dataclass(frozen=True)
class MemoryPlan:
    """What becomes of the memory of one GPU, in bytes.

    Attributes:
        capacity: What the engine may use.
        weights: Weights on the GPU.
        runtime: What else it needs at the very least.
        token: One token of context in the cache.
        tokens: Tokens that fit the cache; 0 where the weights do not fit.
        context: Tokens of the longest context that is served; 0 where it is unknown.
        text: The sum as a person reads it.
    """

    capacity: int
    weights: int
    runtime: int
    token: int
    tokens: int
    context: int
    text: str

    @property
    def cache(self) -> int:
        """Bytes that are left for the cache; below 0 where the weights do not fit."""
        return self.capacity - self.weights - self.runtime


def memory_plan(around: Surroundings, configuration: Configuration) -> MemoryPlan | None:
    """Return what becomes of the memory of one GPU, or None where model or GPU are unknown."""
    model, gpu = around.model(configuration), around.gpu_of(configuration)
    if model is None or gpu is None:
        return None
    percent = configuration.integer(MEMORY, around.memory_percent)
    usable = gpu.memory_bytes * percent // 100
    weights = weight_bytes_per_gpu(model, configuration)
    tensor, pipeline = configuration.integer(TP, 1), configuration.integer(PP, 1)
    left = usable - weights - RUNTIME_BYTES
    bits = cache_bits(configuration.text(CACHE))
    text = (
        f"{percent} % of {gpu.memory_bytes / GIB:.1f} GiB on {gpu.product} = {usable / GIB:.1f} GiB per GPU, less "
        f"{weights / GIB:.1f} GiB of {model.name} at TP {tensor} x PP {pipeline} x DP {configuration.integer(DP, 1)} "
        f"and {RUNTIME_BYTES / GIB:.1f} GiB for the runtime, leaves {left / GIB:.1f} GiB"
    )
    return MemoryPlan(
        capacity=usable,
        weights=weights,
        runtime=RUNTIME_BYTES,
        token=model.kv_bytes_per_token_per_gpu(tensor, pipeline, bits),
        tokens=max(0, kv_tokens(left, model, tensor, pipeline, bits)),
        context=around.context(configuration) or 0,
        text=text,
    )


def memory_fit(around: Surroundings, configuration: Configuration) -> str | None:
    """Weights and the cache of one full context must fit; generous, so that nothing that runs is forbidden."""
    plan = memory_plan(around, configuration)
    if plan is None:
        return None
    if plan.cache <= 0:
        return f"the weights do not fit: {plan.text}"
    if plan.tokens < plan.context:
        return (
            f"one context of {plan.context} tokens does not fit the KV cache: {plan.text}, {plan.tokens} tokens of "
            f"{plan.token} bytes; set --max-model-len to what the workload needs"
        )
    return None
