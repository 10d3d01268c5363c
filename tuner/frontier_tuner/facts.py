"""Facts about models and accelerators: the shapes and data-sheet figures that static rules and rooflines need.

A fact is never a result: it prunes configurations that cannot work and orders the rest. Facts come from a table of
well-known models, from the `config.json` of a checkpoint directory, and from the user's overrides, the last word.
The tables themselves, with their sources, are in `facts_table`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from frontier_tuner.errors import FactsError

SIXTEEN_BITS = 16
FOUR_BITS = 4
SCALE_BITS = 0.25
"""Extra bits per weight of a four-bit format: one eight-bit scale for each group of 32."""


@dataclass(frozen=True)
class ModelFacts:
    """The shape of a decoder-only transformer and of its checkpoint.

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
        dense_layers: Layers with a dense feed-forward block in a mixture-of-experts model.
        shared_experts: Experts that every token uses.
        q_lora_rank: Width of the compressed query of MLA; 0 where the query is not compressed.
        rope_head_dim: Rotary part of an MLA head, kept in the cache beside the compressed key/value.
        value_head_dim: Width of an MLA value head; 0 means `head_dim`.
        sliding_window: Window in tokens of the layers with sliding attention; 0 means none.
        sliding_layers: How many layers have sliding (or linear) attention, whose cache does not grow.
        tied_embeddings: Whether input and output embeddings are the same weights.
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

    def parameters(self) -> int:
        """Return the number of weights, without norms, biases and multi-token-prediction layers."""
        return self._embeddings() + self.layers * self._attention() + self._feed_forward(self.experts)

    def active_parameters(self) -> int:
        """Return the number of weights that one token passes, without the input embedding."""
        embeddings = self.vocabulary * self.hidden
        return embeddings + self.layers * self._attention() + self._feed_forward(self.experts_per_token)

    def weight_bytes(self) -> int:
        """Return the size of the weights in bytes, over all GPUs of one replica without data parallelism.

        Embeddings stay at 16 bits; so does attention where the experts have four bits.
        """
        attention = self.layers * self._attention()
        four_bit_experts = self.weight_bits == FOUR_BITS and self.experts > 0
        attention_bits = SIXTEEN_BITS if four_bit_experts else self._bits()
        bits = self._embeddings() * SIXTEEN_BITS + attention * attention_bits
        return int((bits + self._feed_forward(self.experts) * self._bits()) / 8)

    def expert_bytes(self) -> int:
        """Return the size in bytes of all routed experts, the part that expert parallelism spreads."""
        weights = self._moe_layers() * self.experts * 3 * self.hidden * self.expert_intermediate
        return int(weights * self._bits() / 8)

    def kv_bytes_per_token(self, kv_bits: int = 16) -> int:
        """Return by how many bytes one more token of context grows the KV cache of a replica.

        Layers with sliding attention stop growing at their window, so they are not counted here.

        Args:
            kv_bits: Bits per cached number.
        """
        return (self.layers - self.sliding_layers) * self._kv_numbers(self.kv_heads) * kv_bits // 8

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
        layers = -(-(self.layers - self.sliding_layers) // pipeline_parallel_size)
        return layers * self._kv_numbers(max(1, self.kv_heads // tensor_parallel_size)) * kv_bits // 8

    def _kv_numbers(self, kv_heads: int) -> int:
        return self.kv_lora_rank + self.rope_head_dim if self.mla else 2 * kv_heads * self.head_dim

    def _bits(self) -> float:
        return self.weight_bits + SCALE_BITS if self.weight_bits == FOUR_BITS else self.weight_bits

    def _embeddings(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.tied_embeddings else 2)

    def _attention(self) -> int:
        value_dim = self.value_head_dim or self.head_dim
        if not self.mla:
            return 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        query_width = self.heads * self.head_dim
        query = self.q_lora_rank * (self.hidden + query_width) if self.q_lora_rank else self.hidden * query_width
        down = self.hidden * (self.kv_lora_rank + self.rope_head_dim)
        up = self.kv_lora_rank * self.heads * (self.head_dim - self.rope_head_dim + value_dim)
        return query + down + up + self.heads * value_dim * self.hidden

    def _moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    def _feed_forward(self, experts: int) -> int:
        moe_layers = self._moe_layers()
        dense = (self.layers - moe_layers) * 3 * self.hidden * self.intermediate
        routed = moe_layers * (experts + self.shared_experts) * 3 * self.hidden * self.expert_intermediate
        return dense + routed + moe_layers * self.hidden * self.experts


@dataclass(frozen=True)
class GPUFacts:
    """What one accelerator can do at best.

    Attributes:
        product: The product's name, as its driver and node labels give it.
        memory_bytes: Device memory in bytes.
        bandwidth_bytes_per_s: Memory bandwidth in bytes per second.
        flops_16bit: Dense 16-bit tensor operations per second.
        flops_8bit: Dense 8-bit floating-point tensor operations per second; the 16-bit figure where there are none.
        link_bytes_per_s: Bytes per second and direction to the other GPUs of the node.
        compute_capability: Major and minor version as one number, such as 8.9.
    """

    product: str
    memory_bytes: int
    bandwidth_bytes_per_s: float
    flops_16bit: float
    flops_8bit: float
    link_bytes_per_s: float
    compute_capability: float


REQUIRED = ("layers", "hidden", "heads", "vocabulary", "maxContext")


def known_models() -> tuple[str, ...]:
    """Return the names of the models whose shape is known without their files."""
    from frontier_tuner.facts_table import MODELS  # noqa: PLC0415 - the table builds on this module's types

    return tuple(MODELS)


def known_gpus() -> tuple[str, ...]:
    """Return the products whose figures are known."""
    from frontier_tuner.facts_table import GPUS  # noqa: PLC0415 - the table builds on this module's types

    return tuple(GPUS)


def model_facts(source: str, overrides: Mapping[str, object] | None = None) -> ModelFacts:
    """Return the facts of a model.

    Args:
        source: `org/name` or `hf://org/name` of a known model, or a directory with a `config.json`.
        overrides: Facts that win over what is known, by field name in camelCase or snake_case. With all of
            `REQUIRED`, the model need not be known.

    Raises:
        FactsError: The model is not known, its `config.json` cannot be used, or an override is wrong.
    """
    given = _overrides(overrides or {})
    config = Path(source) / "config.json"
    known = _from_config(source, config) if config.is_file() else _from_table(source)
    if known is not None:
        return replace(known, **given)
    missing = [name for name in REQUIRED if _snake(name) not in given]
    if missing:
        raise FactsError(
            f"the shape of model {source!r} is not known: give a directory with its config.json, or set facts "
            f"{', '.join(missing)} (and kvHeads, headDim, intermediate, experts, … where they apply)"
        )
    return _from_shape(source, given)


def gpu_facts(product: str) -> GPUFacts:
    """Return the facts of a GPU by its product name, upper and lower case alike.

    Raises:
        FactsError: The product is not known; the message lists those that are.
    """
    from frontier_tuner.facts_table import GPUS  # noqa: PLC0415 - the table builds on this module's types

    for name, facts in GPUS.items():
        if name.lower() == product.strip().lower().replace(" ", "-"):
            return facts
    raise FactsError(f"the figures of GPU product {product!r} are not known; known are {', '.join(GPUS)}")


def _from_table(source: str) -> ModelFacts | None:
    from frontier_tuner.facts_table import ALIASES, MODELS  # noqa: PLC0415 - the table builds on this module's types

    wanted = source.removeprefix("hf://").rstrip("/").lower()
    wanted = ALIASES.get(wanted, wanted)
    names = {name.lower(): name for name in MODELS} | {name.split("/")[-1].lower(): name for name in MODELS}
    name = names.get(wanted) or names.get(wanted.removesuffix("-instruct"))
    return None if name is None else MODELS[name]


def _from_shape(source: str, given: Mapping[str, Any]) -> ModelFacts:
    shape: dict[str, Any] = {"name": source, **given}
    heads, hidden = shape["heads"], shape["hidden"]
    shape.setdefault("kv_heads", heads)
    shape.setdefault("head_dim", hidden // heads)
    shape.setdefault("intermediate", 0 if shape.get("experts") else 4 * hidden)
    return ModelFacts(**shape)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def _overrides(given: Mapping[str, object]) -> dict[str, Any]:  # each value was checked against its field's type
    types = {field.name: field.type for field in fields(ModelFacts)}
    unknown = sorted(name for name in given if _snake(name) not in types)
    if unknown:
        known = ", ".join(_camel(name) for name in types)
        raise FactsError(f"unknown model facts {', '.join(unknown)}; known are {known}")
    return {_snake(name): _typed(name, types[_snake(name)], value) for name, value in given.items()}


def _typed(name: str, kind: object, value: object) -> int | bool | str:
    if kind in (bool, "bool") and isinstance(value, bool):
        return value
    if kind in (str, "str") and isinstance(value, str):
        return value
    if kind in (int, "int") and not isinstance(value, bool):
        try:
            number = int(str(value))
        except ValueError:
            number = -1
        if number >= 0:
            return number
    wanted = {"bool": "true or false", "str": "text"}.get(getattr(kind, "__name__", str(kind)), "a whole number ≥ 0")
    raise FactsError(f"model fact {name} must be {wanted}, not {value!r}")


def _from_config(source: str, path: Path) -> ModelFacts:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FactsError(f"{path} cannot be read as JSON: {error}") from error
    config = document.get("text_config", document)
    quantization = config.get("quantization_config") or document.get("quantization_config")
    try:
        return _from_hf(source, config, quantization)
    except KeyError as error:
        raise FactsError(f"{path} has no {error.args[0]}; set it as a model fact") from error


def _from_hf(source: str, config: Mapping[str, object], quantization: object) -> ModelFacts:
    def number(*names: str, default: int | None = None) -> int:
        for name in names:
            if config.get(name) is not None:
                return int(str(config[name]))
        if default is None:
            raise KeyError(names[0])
        return default

    heads = number("num_attention_heads")
    experts = number("n_routed_experts", "num_experts", "num_local_experts", default=0)
    dense_layers = number("first_k_dense_replace", default=0) if experts else 0
    kv_lora = number("kv_lora_rank", default=0)
    rope = number("qk_rope_head_dim", default=0) if kv_lora else 0
    latent_head = number("qk_nope_head_dim", default=0) + rope
    bits, block = _weight_format(quantization)
    layers = number("num_hidden_layers")
    kinds = config.get("layer_types")
    sliding_layers = sum(kind != "full_attention" for kind in kinds) if isinstance(kinds, list) else 0
    return ModelFacts(
        name=source,
        layers=layers,
        hidden=number("hidden_size"),
        heads=heads,
        kv_heads=heads if kv_lora else number("num_key_value_heads", default=heads),
        head_dim=latent_head if kv_lora else number("head_dim", default=number("hidden_size") // heads),
        intermediate=0 if experts and not dense_layers else number("intermediate_size"),
        vocabulary=number("vocab_size"),
        max_context=number("max_position_embeddings"),
        experts=experts,
        experts_per_token=number("num_experts_per_tok", default=0),
        expert_intermediate=number("moe_intermediate_size", "intermediate_size") if experts else 0,
        mla=kv_lora > 0,
        kv_lora_rank=kv_lora,
        weight_bits=bits,
        mtp_layers=number("num_nextn_predict_layers", default=0),
        weight_block=block,
        dense_layers=dense_layers,
        shared_experts=number("n_shared_experts", default=0),
        q_lora_rank=number("q_lora_rank", default=0) if kv_lora else 0,
        rope_head_dim=rope,
        value_head_dim=number("v_head_dim", default=0) if kv_lora else 0,
        sliding_window=number("sliding_window", default=0) if sliding_layers else 0,
        sliding_layers=sliding_layers,
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
    )


def _weight_format(quantization: object) -> tuple[int, int]:
    if not isinstance(quantization, Mapping):
        return SIXTEEN_BITS, 0
    method = str(quantization.get("quant_method", quantization.get("quant_algo", ""))).lower()
    algorithm = str(quantization.get("quant_algo", "")).lower()
    if method == "mxfp4":
        return FOUR_BITS, 32
    if "fp8" in (method, algorithm):
        block = quantization.get("weight_block_size")
        return 8, int(block[-1]) if isinstance(block, list) and block else 0
    if "fp4" in algorithm:
        return FOUR_BITS, 0
    if "bits" in quantization:
        return int(str(quantization["bits"])), 0
    groups = quantization.get("config_groups")
    if isinstance(groups, Mapping):
        bits = [group["weights"]["num_bits"] for group in groups.values() if group.get("weights")]
        if bits:
            return int(max(bits)), 0
    raise FactsError(f"quantization method {method!r} of the checkpoint is not known; set the model fact weightBits")
