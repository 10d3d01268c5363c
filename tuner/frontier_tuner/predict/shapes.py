"""Deployments and models as columns of numbers, one row for each configuration, so that all are predicted at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from frontier_tuner.facts import GPUFacts, ModelFacts
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
        dense_rate: Operations per second that dense products reach.
        expert_rate: Operations per second that experts reach.
    """

    dense_bytes: Floats
    expert_bytes: Floats
    cache_bytes: Floats
    dense_rate: Floats
    expert_rate: Floats


def formats(
    models: Sequence[ModelFacts], deployments: Sequence[Deployment], gpu: GPUFacts, efficiencies: Efficiencies
) -> Formats:
    """Return the precisions of n deployments of n models on one product."""
    share = {
        "16bit": efficiencies.flops_16bit,
        "8bit": efficiencies.flops_8bit,
        "int8": efficiencies.flops_8bit,
        "4bit": efficiencies.flops_4bit,
    }

    def rate(precision: Precision) -> float:
        reached = operations_per_second(gpu, precision.compute)
        native = reached > gpu.flops_16bit
        return reached * (share[precision.compute] if native else share["16bit"])

    pairs = [(m, d) for m, d in zip(models, deployments, strict=True)]
    dense = [_resolved(d.dense, m.dense_format, d) for m, d in pairs]
    experts = [_resolved(d.experts, m.weight_format_name, d) for m, d in pairs]
    caches = [_resolved(d.cache, "bf16", None) for _, d in pairs]
    return Formats(
        dense_bytes=column([p.bits / 8 for p in dense]),
        expert_bytes=column([p.bits / 8 for p in experts]),
        cache_bytes=column([p.bits / 8 for p in caches]),
        dense_rate=column([rate(p) for p in dense]),
        expert_rate=column([rate(p) for p in experts]),
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
        attention_sharded: Weights of one layer's attention that tensor parallelism splits.
        attention_whole: Weights of one layer's attention that every GPU holds: the down-projections of MLA.
        dense_layers: Layers with a dense feed-forward block.
        feed_forward: Weights of one dense feed-forward block.
        moe_layers: Layers with experts.
        expert: Weights of one expert.
        experts: Routed experts of a layer; 1 where there are none, so that it can be divided by.
        per_token: Routed experts of a token.
        shared: Experts that every token uses.
        growing_layers: Layers whose cache grows with the context.
        window_layers: Layers whose cache stops at the window.
        window: That window in tokens.
        heads: Query heads.
        kv_heads: Key/value heads; 1 for MLA, whose cache no GPU splits.
        cached: Numbers cached per token, layer and KV head (both key and value), or in all for MLA.
        score_width: Numbers multiplied per head and pair of tokens while decoding, keys and values together.
        prefill_width: The same while prefilling.
        embeddings: Weights of the embeddings.
    """

    layers: Floats
    hidden: Floats
    vocabulary: Floats
    attention_sharded: Floats
    attention_whole: Floats
    dense_layers: Floats
    feed_forward: Floats
    moe_layers: Floats
    expert: Floats
    experts: Floats
    per_token: Floats
    shared: Floats
    growing_layers: Floats
    window_layers: Floats
    window: Floats
    heads: Floats
    kv_heads: Floats
    cached: Floats
    score_width: Floats
    prefill_width: Floats
    embeddings: Floats


def shape(models: Sequence[ModelFacts]) -> Shape:
    """Return the numbers of n models."""

    def of(number: Callable[[ModelFacts], float]) -> Floats:
        # One model answers for many configurations, so each is asked once.
        known = {id(m): number(m) for m in {id(m): m for m in models}.values()}
        return column([known[id(m)] for m in models])

    def value_dim(m: ModelFacts) -> int:
        return m.value_head_dim or m.head_dim

    def whole(m: ModelFacts) -> int:
        return m.hidden * (m.q_lora_rank + m.kv_lora_rank + m.rope_head_dim) if m.mla else 0

    return Shape(
        layers=of(lambda m: m.layers),
        hidden=of(lambda m: m.hidden),
        vocabulary=of(lambda m: m.vocabulary),
        attention_sharded=of(lambda m: m.attention_parameters() - whole(m)),
        attention_whole=of(whole),
        dense_layers=of(lambda m: m.layers - m.moe_layers),
        feed_forward=of(lambda m: 3 * m.hidden * m.intermediate),
        moe_layers=of(lambda m: m.moe_layers),
        expert=of(lambda m: 3 * m.hidden * m.expert_intermediate),
        experts=of(lambda m: max(1, m.experts)),
        per_token=of(lambda m: m.experts_per_token),
        shared=of(lambda m: m.shared_experts),
        growing_layers=of(lambda m: m.layers - m.sliding_layers),
        window_layers=of(lambda m: m.sliding_layers),
        window=of(lambda m: m.sliding_window),
        heads=of(lambda m: m.heads),
        kv_heads=of(lambda m: 1 if m.mla else m.kv_heads),
        cached=of(lambda m: m.kv_lora_rank + m.rope_head_dim if m.mla else 2 * m.head_dim),
        score_width=of(lambda m: 2 * m.kv_lora_rank + m.rope_head_dim if m.mla else 2 * m.head_dim),
        prefill_width=of(lambda m: m.head_dim + value_dim(m)),
        embeddings=of(lambda m: m.vocabulary * m.hidden * (1 if m.tied_embeddings else 2)),
    )
