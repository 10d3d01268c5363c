"""How long one engine step takes: a roofline of model, hardware, parallelism and precision.

Pure. All quantities are SI: seconds, bytes, bytes per second, operations per second. The model is meant to bend where
real engines bend: kernels that work in tiles, captured graph sizes, links that end at the node, experts that fill up.
Its constants are plausible, not measured.
"""

import math
from dataclasses import dataclass
from functools import cache

from frontier_tuner.facts import GPUFacts, ModelFacts

BANDWIDTH_EFFICIENCY = 0.80
COMPUTE_EFFICIENCY = 0.60
OVERLAP_LOSS = 0.15
"""Share of the smaller of compute and memory time that does not hide behind the larger."""
ACTIVATION_BYTES = 2
FP8_COMPUTE_CAPABILITY = 8.9
FP8_BITS = 8

HOST_SECONDS = 0.0015
ASYNC_HOST_SECONDS = 0.0005
HOST_SECONDS_PER_SEQUENCE = 8e-6
DRAFT_SECONDS_PER_SEQUENCE = 20e-6
GRAPH_SECONDS_PER_LAYER = 3e-6
EAGER_SECONDS_PER_LAYER = 60e-6
"""Launching a layer's kernels one by one from Python, where no captured graph has the batch's size."""

LINK_EFFICIENCY = 0.75
FAST_LINK = 200e9
"""Links at least this fast are switched (NVLink); slower ones go through the host (PCIe)."""
FAST_LATENCY_SECONDS = 6e-6
SLOW_LATENCY_SECONDS = 18e-6
NODE_LATENCY_SECONDS = 45e-6
NODE_BANDWIDTH = 40e9
"""Bytes per second that one GPU gets between nodes."""

EXPERT_WIDTH = 512
"""An expert's slice narrower than this no longer fills the GPU's matrix units."""


@dataclass(frozen=True)
class Shape:
    """What does not change while an engine runs.

    Attributes:
        model: Shape and precision of the checkpoint.
        gpu: The GPU that every rank has.
        tensor_parallel: Ranks that share each layer.
        pipeline_parallel: Stages that share the layers.
        data_parallel: Replicas; on a mixture of experts they share the experts.
        expert_parallel: Whether whole experts are dealt out, instead of slices of every expert.
        kv_bits: Bits of one cached number.
        gpus_per_node: GPUs that the fast links join.
        graph_sizes: Captured batch sizes in tokens, ascending; empty when nothing is captured.
        async_scheduling: Whether the next step is scheduled while this one runs.
        speculative_tokens: Drafted tokens per sequence and step, 0 where speculation is off.
    """

    model: ModelFacts
    gpu: GPUFacts
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: bool = False
    kv_bits: int = 16
    gpus_per_node: int = 8
    graph_sizes: tuple[int, ...] = ()
    async_scheduling: bool = True
    speculative_tokens: int = 0

    @property
    def expert_ranks(self) -> int:
        """Ranks over which the experts of one layer are spread."""
        return self.tensor_parallel * self.data_parallel

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one cached token takes on the fullest GPU."""
        return self.model.kv_bytes_per_token_per_gpu(self.tensor_parallel, self.pipeline_parallel, self.kv_bits)


@dataclass(frozen=True)
class StepWork:
    """What one step has to compute on one replica.

    Attributes:
        tokens: Tokens that go through the layers.
        sequences: Sequences that they belong to.
        logits: Positions for which the next token is sampled or verified.
        context_tokens: Cached tokens that attention reads, summed over the sequences.
        attention_pairs: Pairs of a new token and a token it attends to, summed over the sequences.
    """

    tokens: int
    sequences: int
    logits: int
    context_tokens: int
    attention_pairs: int


def graph_sizes(largest: int) -> tuple[int, ...]:
    """Return the batch sizes that are captured up to `largest`: 1, 2, 4, then steps of 8, from 256 in steps of 16."""
    sizes = [1, 2, 4, *range(8, min(largest, 255) + 1, 8), *range(256, largest + 1, 16)]
    return tuple(size for size in sizes if size <= largest)


def padded_tokens(shape: Shape, tokens: int) -> tuple[int, bool]:
    """Return the tokens that the kernels really work on, and whether a captured graph runs them.

    A batch within the captured sizes is padded to the next of them. The matrix kernels then work in tiles.
    """
    captured = next((size for size in shape.graph_sizes if size >= tokens), None)
    size = captured or tokens
    return math.ceil(size / _tile(size)) * _tile(size), captured is not None


def _tile(tokens: int) -> int:
    """Rows that one matrix tile has; kernels for larger batches use larger tiles."""
    for limit, tile in ((16, 1), (64, 8), (256, 32), (1024, 64)):
        if tokens <= limit:
            return tile
    return 128


def step_seconds(shape: Shape, work: StepWork) -> float:
    """Return the seconds that one step takes, without noise.

    A pipeline runs the step as up to one micro-batch per stage: each micro-batch still reads every stage's weights, and
    a batch with fewer sequences than stages leaves stages idle.
    """
    tokens, captured = padded_tokens(shape, work.tokens)
    micro_batches = max(1, min(shape.pipeline_parallel, work.sequences))
    compute = _compute_seconds(shape, work, tokens) / micro_batches
    memory = _weight_seconds(shape, tokens / micro_batches) + _cache_seconds(shape, work, tokens) / micro_batches
    roof = max(compute, memory) + OVERLAP_LOSS * min(compute, memory)
    per_layer = GRAPH_SECONDS_PER_LAYER if captured else EAGER_SECONDS_PER_LAYER
    launch = shape.model.layers * per_layer
    host = ASYNC_HOST_SECONDS if shape.async_scheduling else HOST_SECONDS
    host += HOST_SECONDS_PER_SEQUENCE * work.sequences
    if shape.speculative_tokens:
        host += DRAFT_SECONDS_PER_SEQUENCE * work.sequences
    return roof + launch + host + _communication_seconds(shape, tokens, micro_batches)


@dataclass(frozen=True)
class _Split:
    """Weights of a model by how they are used, in numbers and in bytes.

    `dense` is passed by every token, `head` by sampled positions only, `experts` by routing; the input embedding is
    looked up and so costs neither time nor bandwidth.
    """

    dense: float
    head: float
    active_experts: float
    dense_bytes: float
    expert_bytes: float


@cache
def _split(model: ModelFacts) -> _Split:
    head = model.vocabulary * model.hidden
    moe_layers = model.layers - model.dense_layers if model.experts else 0
    active_experts = moe_layers * model.experts_per_token * 3 * model.hidden * model.expert_intermediate
    embedding_bytes = 0 if model.tied_embeddings else head * ACTIVATION_BYTES
    return _Split(
        dense=model.active_parameters() - active_experts - head,
        head=head,
        active_experts=active_experts,
        dense_bytes=model.weight_bytes() - model.expert_bytes() - embedding_bytes,
        expert_bytes=model.expert_bytes(),
    )


def matrix_flops(model: ModelFacts, gpu: GPUFacts) -> float:
    """Return the operations per second of the matrix units for this precision of the weights.

    Weights below 8 bits are unpacked to 16 bits first, and so compute at that speed.
    """
    native = model.weight_bits == FP8_BITS and gpu.compute_capability >= FP8_COMPUTE_CAPABILITY
    return (gpu.flops_8bit if native else gpu.flops_16bit) * COMPUTE_EFFICIENCY


def weight_bytes_per_gpu(shape: Shape) -> float:
    """Return the bytes of weights that each GPU holds."""
    experts = shape.model.expert_bytes()
    rest = (shape.model.weight_bytes() - experts) / shape.tensor_parallel
    return (rest + experts / shape.expert_ranks) / shape.pipeline_parallel


def _compute_seconds(shape: Shape, work: StepWork, tokens: int) -> float:
    model, split = shape.model, _split(shape.model)
    flops = matrix_flops(model, shape.gpu)
    linear = 2 * (split.dense * tokens + split.head * work.logits) / shape.tensor_parallel / flops
    # Every replica sends its tokens to the shared experts, so the work of each rank stays that of its own tokens.
    experts = 2 * split.active_experts * tokens / shape.tensor_parallel / (flops * _expert_efficiency(shape, tokens))
    attention = 4 * model.layers * model.heads * model.head_dim * work.attention_pairs
    return linear + experts + attention / shape.tensor_parallel / (shape.gpu.flops_16bit * COMPUTE_EFFICIENCY)


def _expert_efficiency(shape: Shape, tokens: int) -> float:
    """Return the share of the matrix speed that experts reach: slices are thin, whole experts unevenly loaded."""
    model = shape.model
    if not model.experts:
        return 1.0
    if shape.expert_parallel:
        per_expert = tokens * shape.data_parallel * model.experts_per_token / model.experts
        return 1 / (1 + 0.5 / math.sqrt(1 + per_expert))
    return float(min(1.0, model.expert_intermediate / shape.expert_ranks / EXPERT_WIDTH) ** 0.3)


def _weight_seconds(shape: Shape, tokens: float) -> float:
    """Return the seconds to read the weights that these tokens touch."""
    model, split = shape.model, _split(shape.model)
    read = split.dense_bytes / shape.tensor_parallel
    if model.experts:
        idle = 1 - model.experts_per_token / model.experts
        touched = 1 - idle ** (tokens * shape.data_parallel)
        read += touched * split.expert_bytes / shape.expert_ranks
    return read / (shape.gpu.bandwidth_bytes_per_s * BANDWIDTH_EFFICIENCY)


def _cache_seconds(shape: Shape, work: StepWork, tokens: int) -> float:
    """Return the seconds to read the cached context and to move activations between kernels."""
    model = shape.model
    width = model.intermediate or model.experts_per_token * model.expert_intermediate
    activations = tokens * model.layers * (10 * model.hidden + 3 * width / shape.tensor_parallel) * ACTIVATION_BYTES
    # All stages of a pipeline are passed one after the other, so a step pays for the whole depth of the cache.
    cached = work.context_tokens * shape.kv_bytes_per_token * shape.pipeline_parallel
    return (activations + cached) / (shape.gpu.bandwidth_bytes_per_s * BANDWIDTH_EFFICIENCY)


def _link(shape: Shape, ranks: int) -> tuple[float, float]:
    """Return bandwidth and latency between this many neighbouring ranks; both fall off a cliff beyond a node."""
    if ranks > shape.gpus_per_node:
        return NODE_BANDWIDTH * LINK_EFFICIENCY, NODE_LATENCY_SECONDS
    own = shape.gpu.link_bytes_per_s
    return own * LINK_EFFICIENCY, FAST_LATENCY_SECONDS if own >= FAST_LINK else SLOW_LATENCY_SECONDS


def _communication_seconds(shape: Shape, tokens: int, micro_batches: int) -> float:
    model, ranks = shape.model, shape.tensor_parallel
    volume = tokens / micro_batches * model.hidden * ACTIVATION_BYTES
    seconds = 0.0
    if ranks > 1:
        bandwidth, latency = _link(shape, ranks)
        reduce = 2 * (ranks - 1) / ranks * volume / bandwidth + latency * math.log2(ranks)
        seconds += 2 * model.layers * reduce
    if shape.pipeline_parallel > 1:
        bandwidth, latency = _link(shape, ranks * shape.pipeline_parallel)
        seconds += (shape.pipeline_parallel - 1) * (volume / bandwidth + latency)
    if model.experts and shape.data_parallel > 1:
        bandwidth, latency = _link(shape, shape.expert_ranks)
        if shape.expert_parallel:
            # Each token goes straight to the ranks of its experts, and back.
            sent, phases = min(model.experts_per_token, shape.expert_ranks), 1.0
        else:
            # Slices of every expert need the tokens of all replicas on all ranks, gathered as in a tree.
            sent, phases = shape.data_parallel, math.log2(shape.expert_ranks)
        exchange = volume * sent / ranks / bandwidth + latency * phases
        seconds += 2 * model.layers * exchange
    return seconds
