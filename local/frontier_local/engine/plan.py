"""From arguments, facts and surroundings to an engine that can start, or the refusal that a real one gives.

Pure. The order of the checks is the order in which a real engine meets the problems: arguments against each other and
the model, then hardware, then memory.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from frontier_local.engine.arguments import EngineArguments
from frontier_local.engine.environment import Environment
from frontier_local.engine.errors import ArgumentsRefusedError, OutOfMemoryError
from frontier_local.engine.roofline import (
    ACTIVATION_BYTES,
    FP8_BITS,
    FP8_COMPUTE_CAPABILITY,
    Shape,
    graph_sizes,
    weight_bytes_per_gpu,
)
from frontier_local.engine.scheduler import Limits
from frontier_tuner.facts import FOUR_BITS, SIXTEEN_BITS, GPUFacts, ModelFacts

GIB = 1024**3
LARGE_GPU_BYTES = 70 * GIB
"""From this memory on, the engine's own defaults for batches are larger."""
RUNTIME_BYTES = 1.0 * GIB
"""Context, communication buffers and allocator waste on each GPU."""
GRAPH_BYTES_PER_SIZE = 12 * 1024**2
LARGEST_GRAPH = 512
DISK_BYTES_PER_SECOND = 2.5e9
IMPORT_SECONDS = 8.0
COMPILE_SECONDS = 20.0
GRAPH_CAPTURE_SECONDS = 0.15

QUANTIZATION_BITS = {
    "fp8": 8, "bitsandbytes": 4, "awq": 4, "awq_marlin": 4, "gptq": 4, "gptq_marlin": 4, "mxfp4": 4,
    "modelopt": 8, "modelopt_fp4": 4, "compressed-tensors": 8, "int8": 8, "torchao": 8,
}  # fmt: skip
ONLINE_QUANTIZATIONS = ("fp8", "bitsandbytes")
"""Methods that quantize a 16-bit checkpoint while it is loaded; the others need a checkpoint made for them."""
SPECULATIVE_METHODS = ("ngram", "mtp", "eagle", "eagle3", "draft_model", "medusa", "suffix")


@dataclass(frozen=True)
class EnginePlan:
    """An engine that can start.

    Attributes:
        shape: What determines the time of a step.
        limits: What bounds the scheduler of each replica.
        max_model_len: Longest sequence in tokens.
        start_seconds: Simulated seconds from process start to readiness.
    """

    shape: Shape
    limits: Limits
    max_model_len: int
    start_seconds: float


def plan_engine(arguments: EngineArguments, model: ModelFacts, gpu: GPUFacts, environment: Environment) -> EnginePlan:
    """Return the engine that these arguments start.

    Raises:
        ArgumentsRefusedError: The arguments cannot work together, with this model or on this hardware.
        OutOfMemoryError: Weights and activations exceed the usable memory of a GPU.
    """
    model = replace(model, weight_bits=_weight_bits(arguments, model, gpu))
    drafts = _speculative_tokens(arguments, model)
    max_model_len = _max_model_len(arguments, model)
    seqs, budget = _batch_limits(arguments, gpu, max_model_len)
    problem = next(chain(_parallel_problems(arguments, model, environment), _dtype_problems(arguments, gpu)), None)
    if problem is not None:
        raise ArgumentsRefusedError(problem)
    largest = int(arguments.compilation_config.get("max_cudagraph_capture_size", min(2 * seqs, LARGEST_GRAPH)))
    shape = Shape(
        model=model,
        gpu=gpu,
        tensor_parallel=arguments.tensor_parallel_size,
        pipeline_parallel=arguments.pipeline_parallel_size,
        data_parallel=arguments.data_parallel_size,
        expert_parallel=arguments.enable_expert_parallel,
        kv_bits=FP8_BITS if arguments.kv_cache_dtype.startswith("fp8") else SIXTEEN_BITS,
        gpus_per_node=environment.gpus_per_node,
        graph_sizes=() if arguments.enforce_eager else graph_sizes(largest),
        async_scheduling=arguments.async_scheduling and not drafts,
        speculative_tokens=drafts,
    )
    blocks = _cache_blocks(shape, arguments, seqs, budget)
    if blocks * arguments.block_size < max_model_len:
        raise ArgumentsRefusedError(_too_long(shape, blocks * arguments.block_size, max_model_len))
    limits = Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=budget,
        blocks=blocks,
        block_size=arguments.block_size,
        chunked_prefill=arguments.enable_chunked_prefill,
        prefix_caching=arguments.enable_prefix_caching,
        speculative_tokens=drafts,
    )
    return EnginePlan(shape, limits, max_model_len, _start_seconds(shape))


def _weight_bits(arguments: EngineArguments, model: ModelFacts, gpu: GPUFacts) -> int:
    method = arguments.quantization
    if method is None or method == "None":
        return model.weight_bits
    if method not in QUANTIZATION_BITS:
        known = ", ".join(sorted(QUANTIZATION_BITS))
        raise ArgumentsRefusedError(f"Unknown quantization method: {method}. Must be one of {known}.")
    bits = QUANTIZATION_BITS[method]
    if method not in ONLINE_QUANTIZATIONS and model.weight_bits == SIXTEEN_BITS:
        raise ArgumentsRefusedError(f"Cannot find a quantization config for {method} in checkpoint {model.name}")
    if model.weight_bits < bits:
        raise ArgumentsRefusedError(
            f"Quantization method of the checkpoint ({model.weight_bits} bits) does not match --quantization {method}"
        )
    if method == "mxfp4" and bits == FOUR_BITS and gpu.compute_capability < FP8_COMPUTE_CAPABILITY:
        raise ArgumentsRefusedError(
            f"The quantization method {method} is not supported for the current GPU. "
            f"Minimum capability: 8.9. Current capability: {gpu.compute_capability}."
        )
    return bits if model.weight_bits == SIXTEEN_BITS else model.weight_bits


def _speculative_tokens(arguments: EngineArguments, model: ModelFacts) -> int:
    config = arguments.speculative_config
    if config is None:
        return 0
    method, tokens = config.get("method"), config.get("num_speculative_tokens")
    if method not in SPECULATIVE_METHODS:
        raise ArgumentsRefusedError(
            f"speculative_config: method is {method!r}; must be one of {', '.join(SPECULATIVE_METHODS)}"
        )
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        raise ArgumentsRefusedError(f"speculative_config: num_speculative_tokens is {tokens!r}; must be greater than 0")
    if method == "mtp" and not model.mtp_layers:
        raise ArgumentsRefusedError(
            f"speculative_config: method mtp needs a model with MTP layers; {model.name} has none"
        )
    if method != "ngram" and arguments.pipeline_parallel_size > 1:
        raise ArgumentsRefusedError(
            f"Speculative method {method} is not supported with pipeline parallelism "
            f"(pipeline_parallel_size={arguments.pipeline_parallel_size})"
        )
    return tokens


def _max_model_len(arguments: EngineArguments, model: ModelFacts) -> int:
    asked = arguments.max_model_len or model.max_context
    if asked > model.max_context:
        raise ArgumentsRefusedError(
            f"User-specified max_model_len ({asked}) is greater than the derived max_model_len "
            f"(max_position_embeddings={model.max_context}) of {model.name}"
        )
    return asked


def _batch_limits(arguments: EngineArguments, gpu: GPUFacts, max_model_len: int) -> tuple[int, int]:
    large = gpu.memory_bytes >= LARGE_GPU_BYTES
    budget = arguments.max_num_batched_tokens
    if budget is None:
        budget = 8192 if large else 2048
        if not arguments.enable_chunked_prefill:
            budget = max(budget, max_model_len)
    seqs = arguments.max_num_seqs or min(1024 if large else 256, budget)
    if budget < seqs:
        raise ArgumentsRefusedError(
            f"max_num_batched_tokens ({budget}) must be greater than or equal to max_num_seqs ({seqs})."
        )
    if budget < max_model_len and not arguments.enable_chunked_prefill:
        raise ArgumentsRefusedError(
            f"max_num_batched_tokens ({budget}) is smaller than max_model_len ({max_model_len}). Without chunked "
            "prefill the engine could not take its longest sequence. Increase max_num_batched_tokens or "
            "decrease max_model_len."
        )
    return seqs, budget


def _parallel_problems(arguments: EngineArguments, model: ModelFacts, environment: Environment) -> Iterator[str]:
    tensor, pipeline = arguments.tensor_parallel_size, arguments.pipeline_parallel_size
    if model.heads % tensor:
        yield (f"Total number of attention heads ({model.heads}) must be divisible by tensor parallel size ({tensor}).")
    if not model.mla and max(model.kv_heads, tensor) % min(model.kv_heads, tensor):
        yield f"Number of key/value heads ({model.kv_heads}) and tensor parallel size ({tensor}) must divide evenly."
    if pipeline > model.layers:
        yield f"Pipeline parallel size ({pipeline}) is greater than the number of layers ({model.layers})."
    if arguments.enable_expert_parallel and not model.experts:
        yield f"Number of experts in {model.name} must be greater than 0 when expert parallelism is enabled."
    width, slices = model.intermediate, tensor
    if model.experts:
        width = model.expert_intermediate
        slices = 1 if arguments.enable_expert_parallel else tensor * arguments.data_parallel_size
    if width % slices:
        yield f"{width} is not divisible by {slices} (width of the feed-forward block by its ranks)"
    elif model.weight_block and width // slices % model.weight_block:
        yield (
            f"The output_size of gate's and up's weight = {width // slices} is not divisible by "
            f"weight quantization block_n = {model.weight_block}."
        )
    world = tensor * pipeline * arguments.data_parallel_size
    if environment.visible_gpus is not None and world > environment.visible_gpus:
        yield f"World size ({world}) is larger than the number of available GPUs ({environment.visible_gpus})."


def _dtype_problems(arguments: EngineArguments, gpu: GPUFacts) -> Iterator[str]:
    capability = gpu.compute_capability
    if arguments.kv_cache_dtype.startswith("fp8") and capability < FP8_COMPUTE_CAPABILITY:
        yield (
            f"kv_cache_dtype {arguments.kv_cache_dtype} is not supported on {gpu.product}: "
            f"it needs compute capability 8.9, and this GPU has {capability}."
        )
    if arguments.dtype == "bfloat16" and capability < 8:  # noqa: PLR2004 - the first capability with bfloat16
        yield (
            f"Bfloat16 is only supported on GPUs with compute capability of at least 8.0. {gpu.product} has compute "
            f"capability {capability}. You can use float16 instead by setting the `dtype` flag: --dtype=half."
        )


def _cache_blocks(shape: Shape, arguments: EngineArguments, seqs: int, budget: int) -> int:
    """Return the KV-cache blocks that fit beside weights, activations, graphs and the runtime."""
    model, total = shape.model, shape.gpu.memory_bytes
    usable = total * arguments.gpu_memory_utilization
    weights = weight_bytes_per_gpu(shape)
    width = 4 * model.hidden + 3 * (model.intermediate or model.experts_per_token * model.expert_intermediate)
    activations = budget * width * ACTIVATION_BYTES / shape.tensor_parallel
    # Sampling works on the logits in 32 bits, and keeps a second copy of them.
    activations += seqs * (1 + shape.speculative_tokens) * model.vocabulary * 8 / shape.tensor_parallel
    if weights + activations + RUNTIME_BYTES > usable:
        wanted = activations if weights <= usable else weights / model.layers
        raise OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {wanted / GIB:.2f} GiB. GPU 0 has a total capacity of "
            f"{total / GIB:.2f} GiB of which {max(0.0, usable - weights) / GIB:.2f} GiB is free."
        )
    graphs = GRAPH_BYTES_PER_SIZE * len(shape.graph_sizes)
    available = usable - weights - activations - RUNTIME_BYTES - graphs
    blocks = int(available / (shape.kv_bytes_per_token * arguments.block_size))
    if blocks <= 0:
        raise ArgumentsRefusedError(
            "No available memory for the cache blocks. "
            "Try increasing `gpu_memory_utilization` when starting the engine."
        )
    return blocks


def _too_long(shape: Shape, tokens: int, max_model_len: int) -> str:
    per_token = shape.kv_bytes_per_token
    return (
        f"To serve at least one request with the model's max seq len ({max_model_len}), "
        f"{per_token * max_model_len / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache "
        f"memory ({per_token * tokens / GIB:.2f} GiB). The estimated maximum model length is {tokens}. Try increasing "
        "`gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )


def _start_seconds(shape: Shape) -> float:
    """Return the simulated seconds of a start: import, load from a disk that the node shares, compile, capture."""
    ranks = shape.tensor_parallel * shape.pipeline_parallel
    nodes = math.ceil(ranks * shape.data_parallel / shape.gpus_per_node)
    load = weight_bytes_per_gpu(shape) * ranks * shape.data_parallel / nodes / DISK_BYTES_PER_SECOND
    capture = COMPILE_SECONDS + GRAPH_CAPTURE_SECONDS * len(shape.graph_sizes) if shape.graph_sizes else 0.0
    return IMPORT_SECONDS + load + capture
