"""Deployments and models as columns of numbers, one row for each configuration, so that all are predicted at once."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from frontier_tuner.facts import EIGHT_BITS, SIXTEEN_BITS, GPUFacts, ModelFacts
from frontier_tuner.predict import Floats
from frontier_tuner.predict.deployment import Deployment, Pool
from frontier_tuner.predict.efficiency import Efficiencies
from frontier_tuner.predict.precision import CHECKPOINT, PRECISIONS, Precision, operations_per_second


def column(rows: Sequence[float]) -> Floats:
    """Return an (n, 1) array."""
    return np.asarray(rows, dtype=float)[:, np.newaxis]


@dataclass(frozen=True)
class Formats:
    """The precisions of n configurations, as (n, 1) columns.

    Attributes:
        dense_bytes: Bytes per weight of the dense part.
        expert_bytes: Bytes per weight of the experts.
        cache_bytes: Bytes per cached number.
        dense_bandwidth: Bytes per second at which dense weights are read.
        expert_bandwidth: The same for experts.
        dense_rate: Operations per second that dense products reach.
        expert_rate: Operations per second that experts reach.
        dynamic: 1 where dense activations are quantized while the engine runs, else 0.
    """

    dense_bytes: Floats
    expert_bytes: Floats
    cache_bytes: Floats
    dense_bandwidth: Floats
    expert_bandwidth: Floats
    dense_rate: Floats
    expert_rate: Floats
    dynamic: Floats


def formats(
    models: Sequence[ModelFacts], deployments: Sequence[Deployment], gpu: GPUFacts, efficiencies: Efficiencies
) -> Formats:
    """Return the precisions of n deployments of n models on one product."""
    share = {
        "16bit": efficiencies.flops_16bit,
        "8bit": efficiencies.flops_8bit,
        "8bit_block": efficiencies.flops_8bit_block,
        "mx8bit": efficiencies.flops_8bit,
        "int8": efficiencies.flops_8bit,
        "4bit": efficiencies.flops_4bit,
    }

    def rate(precision: Precision) -> float:
        reached = operations_per_second(gpu, precision.compute)
        native = reached > gpu.flops_16bit
        return reached * (share[precision.compute] if native else share["16bit"])

    def bandwidth(precision: Precision) -> float:
        wide = efficiencies.memory_8bit if precision.bits < SIXTEEN_BITS else efficiencies.memory
        reached = efficiencies.memory_4bit if precision.bits < EIGHT_BITS else wide
        return gpu.bandwidth_bytes_per_s * reached

    pairs = [(m, d) for m, d in zip(models, deployments, strict=True)]
    dense = [_resolved(d.dense, m.dense_precision, d) for m, d in pairs]
    experts = [_resolved(d.experts, m.expert_precision, d) for m, d in pairs]
    caches = [_resolved(d.cache, m.cache_format, None) for m, d in pairs]
    return Formats(
        dense_bytes=column([p.bits / 8 for p in dense]),
        expert_bytes=column([p.bits / 8 for p in experts]),
        cache_bytes=column([p.bits / 8 for p in caches]),
        dense_bandwidth=column([bandwidth(p) for p in dense]),
        expert_bandwidth=column([bandwidth(p) for p in experts]),
        dense_rate=column([rate(p) for p in dense]),
        expert_rate=column([rate(p) for p in experts]),
        dynamic=column([p.dynamic for p in dense]),
    )


_BY_BITS = {16: "bf16", 8: "fp8", 4: "int4_weights"}


def _resolved(name: str, of_checkpoint: str, deployment: Deployment | None) -> Precision:
    if name != CHECKPOINT:
        return PRECISIONS[name]
    if deployment is not None and deployment.checkpoint_bits:
        return PRECISIONS[_BY_BITS.get(deployment.checkpoint_bits, "bf16")]
    return PRECISIONS[of_checkpoint]


@dataclass(frozen=True)
class Split:
    """How pools split their models, as (n, 1) columns; the names are those of `Pool`."""

    tensor: Floats
    pipeline: Floats
    attention_data: Floats
    moe_tensor: Floats
    expert: Floats
    workers: Floats

    @property
    def ranks(self) -> Floats:
        """Places that hold sequences of their own: attention ranks, times stages that work on different sequences."""
        return self.attention_data * self.pipeline * self.workers

    @property
    def group(self) -> Floats:
        """GPUs that work on the same step of the same stage."""
        return self.tensor * self.attention_data


def split(pools: Sequence[Pool]) -> Split:
    """Return the degrees of n pools."""
    return Split(
        tensor=column([p.tensor for p in pools]),
        pipeline=column([p.pipeline for p in pools]),
        attention_data=column([p.attention_data for p in pools]),
        moe_tensor=column([p.moe_tensor for p in pools]),
        expert=column([p.expert for p in pools]),
        workers=column([p.workers for p in pools]),
    )


@dataclass(frozen=True)
class Shape:
    """The numbers of n models that times and sizes depend on, as (n, 1) columns.

    Attributes:
        layers: Decoder layers.
        hidden: Width of the residual stream.
        vocabulary: Tokens in the vocabulary.
        sharded: Weights outside of routed experts and embeddings that tensor parallelism splits.
        whole: Those that every GPU holds: the down-projections of MLA.
        feed_forward_layers: Layers with a dense feed-forward block.
        feed_forward_width: Width of that block.
        moe_layers: Layers with experts.
        expert: Weights of one expert.
        expert_width: Width of one expert.
        experts: Routed experts of a layer; 1 where there are none, so that it can be divided by.
        per_token: Routed experts of a token.
        growing_layers: Layers whose cache grows with the context.
        window_layers: Layers whose cache stops at the window.
        window: That window in tokens.
        sparse: Tokens that a query attends to at most; infinite where attention is not sparse.
        index_bytes: Bytes that one token adds to the indexes of all layers.
        index_width: Numbers multiplied for each pair of tokens in the indexes of all layers.
        state_bytes: Bytes that a sequence keeps in all layers of linear attention.
        heads: Query heads.
        kv_heads: Key/value heads; 1 for MLA, whose cache no GPU splits.
        cached: Numbers cached per token, layer and KV head (both key and value), or in all for MLA.
        score_width: Numbers multiplied per head and pair of tokens while decoding, keys and values together.
        prefill_width: The same while prefilling.
        embeddings: Weights of the embeddings.
        latent_layers: Layers with latent attention.
        index_layers: Layers with an index of their own.
        linear_layers: Layers with linear attention.
    """

    layers: Floats
    hidden: Floats
    vocabulary: Floats
    sharded: Floats
    whole: Floats
    feed_forward_layers: Floats
    feed_forward_width: Floats
    moe_layers: Floats
    expert: Floats
    expert_width: Floats
    experts: Floats
    per_token: Floats
    growing_layers: Floats
    window_layers: Floats
    window: Floats
    sparse: Floats
    index_bytes: Floats
    index_width: Floats
    state_bytes: Floats
    heads: Floats
    kv_heads: Floats
    cached: Floats
    score_width: Floats
    prefill_width: Floats
    embeddings: Floats
    latent_layers: Floats
    index_layers: Floats
    linear_layers: Floats


def shape(models: Sequence[ModelFacts]) -> Shape:
    """Return the numbers of n models."""
    # One model answers for many configurations, so each is asked once.
    distinct = {id(model): model for model in models}
    numbers = {key: _numbers(model) for key, model in distinct.items()}
    return Shape(**{field.name: column([numbers[id(m)][field.name] for m in models]) for field in fields(Shape)})


def _numbers(m: ModelFacts) -> dict[str, float]:
    value_dim = m.value_head_dim or m.head_dim
    whole = m.hidden * (m.q_lora_rank + m.kv_lora_rank + m.rope_head_dim) if m.mla else 0
    mixers = m.attention_layers * (m.attention_parameters() - whole) + m.linear_layers * m.linear_weights
    blocks = m.feed_forward_layers * m.feed_forward_parameters() + m.moe_layers * m.shared_parameters()
    return {
        "layers": m.layers,
        "hidden": m.hidden,
        "vocabulary": m.vocabulary,
        "sharded": mixers + blocks,
        "whole": m.attention_layers * whole,
        "feed_forward_layers": m.feed_forward_layers,
        "feed_forward_width": m.intermediate,
        "moe_layers": m.moe_layers,
        "expert": m.expert_parameters(),
        "expert_width": m.expert_intermediate,
        "experts": max(1, m.experts),
        "per_token": m.experts_per_token,
        "growing_layers": m.growing_layers,
        "window_layers": m.sliding_layers,
        "window": m.sliding_window,
        "sparse": m.sparse_tokens or np.inf,
        "index_bytes": m.index_layers * m.index_dim,
        "index_width": m.index_layers * m.index_heads * m.index_dim,
        "state_bytes": m.linear_layers * m.linear_state_bytes,
        "heads": m.heads,
        "kv_heads": 1 if m.mla else m.kv_heads,
        "cached": m.kv_lora_rank + m.rope_head_dim if m.mla else m.head_dim + value_dim,
        "score_width": 2 * m.kv_lora_rank + m.rope_head_dim if m.mla else m.head_dim + value_dim,
        "prefill_width": m.head_dim + value_dim,
        "embeddings": m.vocabulary * m.hidden * (1 if m.tied_embeddings else 2),
        "latent_layers": m.attention_layers if m.mla else 0,
        "index_layers": m.index_layers,
        "linear_layers": m.linear_layers,
    }
