"""How much memory a deployment needs on its fullest GPU: weights, activations, the runtime, and the cache of a load."""

import numpy as np

from frontier_tuner.facts import GPUFacts
from frontier_tuner.predict import Floats
from frontier_tuner.predict.shapes import Formats, Shape, Split

ACTIVATION_BYTES = 2
RUNTIME_BYTES = 2.0e9
"""Context, loaded kernels, captured graphs and the workspace of one GPU; engines report 1 to 3 GB."""
COMMUNICATION_BYTES = 0.5e9
"""Buffers of collectives, where there is more than one GPU."""
LIVE_COPIES = 8
"""Tensors as wide as the residual stream that are alive at once for every token of a step."""


def weight_bytes(shape: Shape, split: Split, formats: Formats, draft_layers: Floats) -> Floats:
    """Return the weights on the fullest GPU in bytes, (n, 1).

    Attention is copied to every attention rank, experts are spread over all of them; one stage of a pipeline holds the
    input or the output embedding, a single stage both.
    """
    share = np.ceil(shape.layers / split.pipeline) / shape.layers
    extra = np.where(draft_layers > 0, draft_layers / shape.layers, 0.0)
    dense = shape.sharded / split.tensor + shape.whole
    experts = shape.moe_layers * shape.experts * shape.expert / (split.expert * split.moe_tensor)
    layers = dense * formats.dense_bytes + experts * formats.expert_bytes
    single = shape.vocabulary * shape.hidden
    embeddings = np.where(split.pipeline > 1, single, shape.embeddings) * ACTIVATION_BYTES / split.tensor
    return layers * (share + extra / split.pipeline) + embeddings


def cache_bytes_per_sequence(shape: Shape, split: Split, formats: Formats, tokens: float) -> Floats:
    """Return the cache of one sequence of so many tokens on one GPU, bytes, (n, 1).

    Beyond the KV heads tensor parallelism copies them; the compressed cache of MLA is copied to every GPU.
    """
    numbers = shape.cached * np.maximum(shape.kv_heads / split.tensor, 1)
    share = np.ceil(shape.layers / split.pipeline) / shape.layers
    held = shape.growing_layers * tokens + shape.window_layers * np.minimum(tokens, shape.window)
    kept = shape.index_bytes * tokens + shape.state_bytes / split.tensor
    return (held * numbers * formats.cache_bytes + kept) * share


def activation_bytes(shape: Shape, split: Split, tokens: Floats) -> Floats:
    """Return what a step of so many tokens per attention rank keeps alive, bytes, (n, 1).

    Feed-forward blocks and experts also hold their own widths, of the tokens of all ranks that meet at a GPU, and the
    output head the logits of some tokens.
    """
    stream = tokens * shape.hidden * ACTIVATION_BYTES * LIVE_COPIES
    wide = 2 * tokens * shape.feed_forward_width / split.tensor * ACTIVATION_BYTES
    met = tokens * split.attention_data * shape.per_token / split.expert
    routed = met * (2 * shape.hidden + 3 * shape.expert_width / split.moe_tensor) * ACTIVATION_BYTES
    return stream + wide + np.where(shape.moe_layers > 0, routed, 0.0)


def runtime_bytes(split: Split) -> Floats:
    """Return what a GPU needs besides its model, bytes, (n, 1)."""
    several = split.tensor * split.attention_data * split.pipeline > 1
    return RUNTIME_BYTES + np.where(several, COMMUNICATION_BYTES, 0.0)


def capacity_bytes(gpu: GPUFacts, fractions: Floats) -> Floats:
    """Return what the engine may use on a GPU, bytes."""
    return gpu.memory_bytes * fractions
