"""How long one engine step takes: weights and cache through memory, arithmetic, the talk between GPUs, and overheads.

Each kernel takes a soft maximum of the time to move its bytes and the time of its arithmetic (Williams, Waterman and
Patterson, "Roofline", 2009); what cannot overlap is added up.
"""

from dataclasses import dataclass

import numpy as np

from frontier_tuner.facts import GPUFacts
from frontier_tuner.predict import Floats
from frontier_tuner.predict.efficiency import Efficiencies
from frontier_tuner.predict.shapes import Formats, Shape, Split

ACTIVATION_BYTES = 2
HANDOVER_SECONDS = 10e-6
"""Latency between two stages of a pipeline."""


@dataclass(frozen=True)
class Work:
    """What one attention rank does in a step, as arrays that broadcast to (n, L).

    Attributes:
        prefill: Prompt tokens.
        prefill_context: Tokens that each of them attends to, on average.
        decode: Sequences that decode.
        decode_context: Tokens in the cache of each, on average.
        verified: Tokens that each of them puts through the model: one, and those drafted.
    """

    prefill: Floats
    prefill_context: Floats
    decode: Floats
    decode_context: Floats
    verified: Floats

    @property
    def tokens(self) -> Floats:
        """Tokens that pass the layers."""
        return self.prefill + self.decode * self.verified


@dataclass(frozen=True)
class StepTimes:
    """The time of a step of n deployments of one phase.

    Attributes:
        gpu: The accelerator.
        shape: The models.
        split: How they are split.
        formats: Their precisions.
        efficiencies: How far hardware stays behind its data sheet.
        graphs: (n, 1) 1 where decode steps are captured as graphs, else 0.
    """

    gpu: GPUFacts
    shape: Shape
    split: Split
    formats: Formats
    efficiencies: Efficiencies
    graphs: Floats

    def seconds(self, work: Work) -> Floats:
        """Return the time of one step through all layers, seconds."""
        layers = self.shape.layers
        stages = self.split.pipeline
        uneven = np.ceil(layers / stages) * stages / layers
        body = self._dense(work) + self._experts(work) + self._attention(work) + self._talk(work)
        body = body + self._activations(work) + self._overhead()
        launched = np.where(
            (work.prefill > 0) | (self.graphs == 0), layers * self.efficiencies.eager_layer_seconds, 0.0
        )
        body = np.maximum(body, launched)
        handover = self._sent(work.tokens) / self._link() + HANDOVER_SECONDS
        body = body * uneven + (stages - 1) * handover
        eff = self.efficiencies
        return body + self._head(work) + eff.step_seconds + eff.sequence_seconds * work.decode

    def draft_seconds(self, work: Work, layers: Floats) -> Floats:
        """Return the time to draft one token with so many extra layers and the output head; 0 without layers."""
        share = layers / self.shape.layers
        parts = self._dense(work) + self._experts(work) + self._attention(work) + self._talk(work)
        return np.where(layers > 0, (parts + self._overhead()) * share + self._head(work), 0.0)

    def _overhead(self) -> Floats:
        shape, eff = self.shape, self.efficiencies
        seconds: Floats = (
            shape.layers * (eff.layer_seconds + eff.quantize_seconds * self.formats.dynamic)
            + shape.moe_layers * eff.moe_layer_seconds
            + shape.latent_layers * eff.latent_layer_seconds
            + shape.index_layers * eff.index_layer_seconds
            + shape.linear_layers * eff.linear_layer_seconds
        )
        return seconds

    def _dense(self, work: Work) -> Floats:
        shape, formats = self.shape, self.formats
        weights = shape.sharded / self.split.tensor + shape.whole
        moved = weights * formats.dense_bytes / formats.dense_bandwidth
        return self._either(moved, 2 * weights * work.tokens / formats.dense_rate)

    def _experts(self, work: Work) -> Floats:
        """Weights of the experts that are met and arithmetic of the tokens routed to them, on the busiest rank."""
        shape, split, eff = self.shape, self.split, self.efficiencies
        tokens = work.tokens * split.attention_data
        used = 1 - (1 - shape.per_token / shape.experts) ** tokens
        own = shape.experts / split.expert
        met = np.minimum(own, self._busiest(own * used))
        routed = self._busiest(shape.per_token * tokens / split.expert)
        routed = routed * (1 + eff.expert_skew * (1 - 1 / split.expert))
        each = shape.moe_layers * shape.expert / split.moe_tensor
        moved = met * each * self.formats.expert_bytes / self.formats.expert_bandwidth
        return self._either(moved, 2 * routed * each / self.formats.expert_rate)

    def _busiest(self, mean: Floats) -> Floats:
        """The largest of as many random counts as there are expert ranks: their mean and some standard deviations."""
        spread = self.efficiencies.expert_spread * np.sqrt(2 * np.log(self.split.expert) * mean)
        busiest: Floats = mean + spread
        return busiest

    def _attention(self, work: Work) -> Floats:
        shape, eff = self.shape, self.efficiencies
        heads = shape.heads / self.split.tensor
        numbers = shape.cached * np.maximum(shape.kv_heads / self.split.tensor, 1)
        rate = self.gpu.flops_16bit * eff.attention
        bandwidth = self.gpu.bandwidth_bytes_per_s * eff.cache

        def reach(context: Floats) -> Floats:
            grown = shape.growing_layers * np.minimum(context, shape.sparse)
            return grown + shape.window_layers * np.minimum(context, shape.window)

        read = work.decode * reach(work.decode_context)
        kept = work.decode * (shape.index_bytes * work.decode_context + 2 * shape.state_bytes / self.split.tensor)
        moved = (read * numbers * self.formats.cache_bytes + kept) / bandwidth
        scored = 2 * read * work.verified * heads * shape.score_width / rate
        prefill = 2 * work.prefill * reach(work.prefill_context) * heads * shape.prefill_width / rate
        indexed = work.prefill * work.prefill_context + work.decode * work.verified * work.decode_context
        index = 2 * indexed * shape.index_width / (self.gpu.flops_8bit * eff.attention)
        return self._either(moved, scored) + prefill + index

    def _head(self, work: Work) -> Floats:
        weights = self.shape.vocabulary * self.shape.hidden / self.split.tensor
        tokens = work.decode * work.verified
        moved = weights * ACTIVATION_BYTES / (self.gpu.bandwidth_bytes_per_s * self.efficiencies.memory)
        return self._either(moved, 2 * weights * tokens / (self.gpu.flops_16bit * self.efficiencies.flops_16bit))

    def _activations(self, work: Work) -> Floats:
        moved = work.tokens * self.shape.hidden * self.efficiencies.token_bytes * self.shape.layers
        return moved / self.gpu.bandwidth_bytes_per_s

    def _either(self, moving: Floats, computing: Floats) -> Floats:
        return soft_maximum(moving, computing, self.efficiencies.sharpness)

    def _talk(self, work: Work) -> Floats:
        shape, split = self.shape, self.split
        reduce = np.where(split.tensor > 1, self._reduce(work.tokens), 0.0)
        apart = split.attention_data > 1
        after_experts = np.where(apart, self._exchange(work.tokens), reduce)
        return (shape.layers + shape.feed_forward_layers) * reduce + shape.moe_layers * after_experts

    def _reduce(self, tokens: Floats) -> Floats:
        """One all-reduce over the tensor parallel group; beyond the domain, a second one between domains."""
        eff, ranks, domain = self.efficiencies, self.split.tensor, self.gpu.domain_gpus
        near, domains = np.minimum(ranks, domain), np.ceil(ranks / domain)
        sent = self._sent(tokens)
        inside = np.log2(near) * eff.reduce_seconds + 2 * (near - 1) / near * sent / self._link()
        outside = 2 * (domains - 1) / domains * sent / near / self._network()
        return inside + np.where(domains > 1, np.log2(domains) * eff.network_seconds + outside, 0.0)

    def _exchange(self, tokens: Floats) -> Floats:
        """Tokens to the ranks of their experts and back: to each only once, or to all where experts are sharded."""
        eff, split, shape = self.efficiencies, self.split, self.shape
        ranks, domain = split.group, self.gpu.domain_gpus
        groups = split.expert
        met = groups * (1 - (1 - 1 / groups) ** np.maximum(shape.per_token, 1)) * split.moe_tensor
        copies = np.minimum(met, ranks) * (ranks - 1) / ranks
        away = np.maximum(0.0, 1 - domain / ranks)
        sent = 2 * self._sent(tokens) / split.tensor * copies
        seconds = sent * (1 - away) / self._link() + sent * away / self._network()
        both: Floats = seconds + 2 * eff.exchange_seconds + np.where(away > 0, 2 * eff.network_seconds, 0.0)
        return both

    def _sent(self, tokens: Floats) -> Floats:
        return tokens * self.shape.hidden * ACTIVATION_BYTES

    def _link(self) -> float:
        return self.gpu.link_bytes_per_s * self.efficiencies.link

    def _network(self) -> float:
        return self.gpu.network_bytes_per_s * self.efficiencies.link


def soft_maximum(one: Floats, other: Floats, sharpness: float) -> Floats:
    """Return the p-norm of two times: their maximum where they differ much, more where they are alike."""
    high, low = np.maximum(one, other), np.minimum(one, other)
    ratio = low / np.maximum(high, np.finfo(float).tiny)
    norm: Floats = high * (1 + ratio**sharpness) ** (1 / sharpness)
    return norm
