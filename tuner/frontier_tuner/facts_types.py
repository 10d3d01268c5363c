"""What a model and an accelerator are to a rule or a predictor: shapes and data-sheet figures."""

from dataclasses import dataclass

SIXTEEN_BITS = 16
EIGHT_BITS = 8
FOUR_BITS = 4
SCALE_BITS = 0.25
"""Extra bits per weight of a four-bit format: one eight-bit scale for each group of 32."""

_FORMAT_BITS = {"bf16": SIXTEEN_BITS, "fp8": EIGHT_BITS, "int8": EIGHT_BITS, "nvfp4": FOUR_BITS, "mxfp4": FOUR_BITS}


@dataclass(frozen=True)
class ModelFacts:
    """The shape of a decoder-only model and of its checkpoint.

    Attributes:
        name: The model's name.
        layers: Decoder layers, without multi-token-prediction layers.
        hidden: Width of the residual stream.
        heads: Query heads.
        kv_heads: Key/value heads; equal to `heads` for multi-head latent attention.
        head_dim: Width of one query head.
        intermediate: Width of the dense feed-forward block; 0 where every layer is a mixture of experts.
        vocabulary: Tokens in the vocabulary.
        max_context: Longest context in tokens.
        experts: Routed experts per layer; 0 for a dense model.
        experts_per_token: Routed experts that one token uses.
        expert_intermediate: Width of one expert.
        mla: Whether attention is multi-head latent attention.
        kv_lora_rank: Width of the compressed key/value of MLA.
        weight_bits: Bits per weight of the linear layers: 16, 8 or 4.
        mtp_layers: Layers for multi-token prediction.
        weight_block: Weights per scale along the sharded axis; 0 where scales do not restrict sharding.
        dense_layers: Layers without experts in a mixture-of-experts model.
        shared_experts: Experts that every token uses.
        q_lora_rank: Width of the compressed query of MLA; 0 where the query is not compressed.
        rope_head_dim: Rotary part of an MLA head, kept in the cache beside the compressed key/value.
        value_head_dim: Width of a value head; 0 means `head_dim`.
        sliding_window: Window in tokens of the layers with sliding or chunked attention; 0 means none.
        sliding_layers: How many layers have sliding or chunked attention, whose cache does not grow.
        tied_embeddings: Whether input and output embeddings are the same weights.
        linear_layers: How many layers have linear attention or a state space instead of attention.
        linear_weights: Weights of one of them.
        linear_state_bytes: Bytes that a sequence keeps in one of them.
        bare_layers: Layers without any feed-forward block.
        gated: Whether feed-forward blocks have a gate: three matrices, else two.
        expert_hidden: Width at which experts read and write; 0 means `hidden`.
        shared_intermediate: Width of a shared expert; 0 means `expert_intermediate`.
        query_gate: Whether attention has an output gate as wide as the query.
        sparse_tokens: Tokens that a query attends to at most, chosen by an index; 0 where attention is not sparse.
        index_layers: Layers with an index of their own.
        index_heads: Heads of the index.
        index_dim: Width of one of them; its key is cached with 8 bits.
        weight_format: Normalised name of the experts' or all weights' format; empty derives it from `weight_bits`.
        dense_format: The same of attention and dense feed-forward blocks; empty means 16 bits where experts have
            four, else `weight_format`.
        cache_format: The format of the KV cache that the checkpoint asks for.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    max_context: int
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate: int = 0
    mla: bool = False
    kv_lora_rank: int = 0
    weight_bits: int = 16
    mtp_layers: int = 0
    weight_block: int = 0
    dense_layers: int = 0
    shared_experts: int = 0
    q_lora_rank: int = 0
    rope_head_dim: int = 0
    value_head_dim: int = 0
    sliding_window: int = 0
    sliding_layers: int = 0
    tied_embeddings: bool = False
    linear_layers: int = 0
    linear_weights: int = 0
    linear_state_bytes: int = 0
    bare_layers: int = 0
    gated: bool = True
    expert_hidden: int = 0
    shared_intermediate: int = 0
    query_gate: bool = False
    sparse_tokens: int = 0
    index_layers: int = 0
    index_heads: int = 0
    index_dim: int = 0
    weight_format: str = ""
    dense_format: str = ""
    cache_format: str = "bf16"

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers - self.bare_layers if self.experts else 0

    @property
    def feed_forward_layers(self) -> int:
        """Layers with a dense feed-forward block."""
        return self.layers - self.moe_layers - self.bare_layers

    @property
    def attention_layers(self) -> int:
        """Layers with attention, of any window."""
        return self.layers - self.linear_layers

    @property
    def growing_layers(self) -> int:
        """Layers whose cache grows with the context."""
        return self.attention_layers - self.sliding_layers

    @property
    def expert_precision(self) -> str:
        """The format of the experts, or of all weights of a dense model, by its normalised name.

        Bits that contradict the format win over it: they are what a user overrides.
        """
        known = next((bits for name, bits in _FORMAT_BITS.items() if self.weight_format.startswith(name)), FOUR_BITS)
        if self.weight_format and known == self.weight_bits:
            return self.weight_format
        if self.weight_bits == FOUR_BITS:
            return "mxfp4_fp8" if self.weight_block else "int4_weights"
        if self.weight_bits == EIGHT_BITS:
            return "fp8_block" if self.weight_block else "fp8"
        return "bf16"

    @property
    def dense_precision(self) -> str:
        """The format of attention and dense feed-forward blocks, by its normalised name."""
        if self.dense_format:
            return self.dense_format
        return "bf16" if self.weight_bits == FOUR_BITS and self.experts else self.expert_precision

    def parameters(self) -> int:
        """Return the number of weights, without norms, biases and multi-token-prediction layers."""
        return self._embeddings() + self._mixers() + self._feed_forward(self.experts)

    def active_parameters(self) -> int:
        """Return the number of weights that one token passes, without the input embedding."""
        return self.vocabulary * self.hidden + self._mixers() + self._feed_forward(self.experts_per_token)

    def weight_bytes(self) -> int:
        """Return the size of the weights in bytes, over all GPUs of one replica without data parallelism.

        Embeddings stay at 16 bits; so does attention where the experts have four bits.
        """
        four_bit_experts = self.weight_bits == FOUR_BITS and self.experts > 0
        mixer_bits = SIXTEEN_BITS if four_bit_experts else self._bits()
        bits = self._embeddings() * SIXTEEN_BITS + self._mixers() * mixer_bits
        return int((bits + self._feed_forward(self.experts) * self._bits()) / 8)

    def expert_bytes(self) -> int:
        """Return the size in bytes of all routed experts, the part that expert parallelism spreads."""
        return int(self.moe_layers * self.experts * self.expert_parameters() * self._bits() / 8)

    def kv_bytes_per_token(self, kv_bits: int = 16) -> int:
        """Return by how many bytes one more token of context grows the KV cache of a replica.

        Layers with sliding attention stop growing at their window and linear ones never grow, so neither is counted,
        nor is the index of sparse attention.

        Args:
            kv_bits: Bits per cached number.
        """
        return self.growing_layers * self._kv_numbers(self.kv_heads) * kv_bits // 8

    def kv_bytes_per_token_per_gpu(
        self, tensor_parallel_size: int = 1, pipeline_parallel_size: int = 1, kv_bits: int = 16
    ) -> int:
        """Return by how many bytes one more token grows the KV cache of the fullest GPU.

        Beyond the number of KV heads tensor parallelism replicates them, and the compressed cache of MLA is never
        sharded, so neither shrinks further.

        Args:
            tensor_parallel_size: GPUs that share each layer.
            pipeline_parallel_size: Stages that share the layers.
            kv_bits: Bits per cached number.
        """
        layers = -(-self.growing_layers // pipeline_parallel_size)
        return layers * self._kv_numbers(max(1, self.kv_heads // tensor_parallel_size)) * kv_bits // 8

    def attention_parameters(self) -> int:
        """Return the number of weights of one attention layer, its index included."""
        value_dim = self.value_head_dim or self.head_dim
        query_width = self.heads * self.head_dim
        index = self.index_heads * self.index_dim * (self.q_lora_rank or self.hidden) + self.index_dim * self.hidden
        index = index * self.index_layers // self.layers
        if not self.mla:
            read = query_width * (2 if self.query_gate else 1) + self.kv_heads * (self.head_dim + value_dim)
            return self.hidden * (read + self.heads * value_dim) + index
        query = self.q_lora_rank * (self.hidden + query_width) if self.q_lora_rank else self.hidden * query_width
        down = self.hidden * (self.kv_lora_rank + self.rope_head_dim)
        up = self.kv_lora_rank * self.heads * (self.head_dim - self.rope_head_dim + value_dim)
        gate = self.hidden * self.heads * value_dim if self.query_gate else 0
        return query + down + up + self.heads * value_dim * self.hidden + gate + index

    def expert_parameters(self) -> int:
        """Return the number of weights of one routed expert."""
        return self._matrices() * (self.expert_hidden or self.hidden) * self.expert_intermediate

    def shared_parameters(self) -> int:
        """Return the number of weights of one layer's shared experts and of what leads into narrower routed ones."""
        width = self.shared_intermediate or self.expert_intermediate
        narrowed = 2 * self.hidden * self.expert_hidden
        return self.shared_experts * self._matrices() * self.hidden * width + narrowed

    def feed_forward_parameters(self) -> int:
        """Return the number of weights of one dense feed-forward block."""
        return self._matrices() * self.hidden * self.intermediate

    def _matrices(self) -> int:
        return 3 if self.gated else 2

    def _kv_numbers(self, kv_heads: int) -> int:
        value_dim = self.value_head_dim or self.head_dim
        return self.kv_lora_rank + self.rope_head_dim if self.mla else kv_heads * (self.head_dim + value_dim)

    def _bits(self) -> float:
        return self.weight_bits + SCALE_BITS if self.weight_bits == FOUR_BITS else self.weight_bits

    def _embeddings(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)

    def _mixers(self) -> int:
        return self.attention_layers * self.attention_parameters() + self.linear_layers * self.linear_weights

    def _feed_forward(self, experts: int) -> int:
        dense = self.feed_forward_layers * self.feed_forward_parameters()
        router = self.hidden * self.experts
        return dense + self.moe_layers * (experts * self.expert_parameters() + self.shared_parameters() + router)


@dataclass(frozen=True)
class GPUFacts:
    """What one accelerator can do at best.

    Attributes:
        product: The product's name, as its driver and node labels give it.
        memory_bytes: Device memory in bytes.
        bandwidth_bytes_per_s: Memory bandwidth in bytes per second.
        flops_16bit: Dense 16-bit tensor operations per second.
        flops_8bit: Dense 8-bit floating-point tensor operations per second; the 16-bit figure where there are none.
        link_bytes_per_s: Bytes per second and direction to the other GPUs of the domain.
        compute_capability: Major and minor version as one number, such as 8.9; for AMD that of its architecture's name.
        flops_4bit: Dense 4-bit floating-point tensor operations per second; 0 where there are none.
        flops_int8: Dense 8-bit integer tensor operations per second; 0 where there are none.
        domain_gpus: GPUs that reach each other at the speed of the link: a pair, a node, or a rack.
        network_bytes_per_s: Bytes per second and direction of one GPU's share of the network between domains.
        source: Where the figures are from.
    """

    product: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_16bit: float
    flops_8bit: float
    link_bytes_per_s: float
    compute_capability: float
    flops_4bit: float = 0.0
    flops_int8: float = 0.0
    domain_gpus: int = 8
    network_bytes_per_s: float = 50e9
    source: str = ""
