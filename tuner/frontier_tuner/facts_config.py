"""The shape of a model from the `config.json` of its checkpoint, in the words of the families that are served."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from frontier_tuner.errors import FactsError
from frontier_tuner.facts_types import ModelFacts
from frontier_tuner.facts_weights import formats_of_config

NESTED = ("text_config", "llm_config", "language_config", "language_model_config")
"""Where models that also see or hear keep the part that writes."""
LLAMA_4_GLOBAL_EVERY = 4
GEMMA_3_GLOBAL_EVERY = 6
BLOCK_LETTERS = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""What Nemotron-H writes in one letter, or in a word."""
ROUNDING = 256
CONVOLUTION_BYTES = 2
STATE_BYTES = 4


def read_config(source: str, path: Path) -> ModelFacts:
    """Return the facts in a `config.json`, and in modelopt's `hf_quant_config.json` beside it.

    Args:
        source: What names the model.
        path: The file.

    Raises:
        FactsError: The file cannot be read, or lacks what a shape needs.
    """
    document = _read(path)
    config = next((document[name] for name in NESTED if isinstance(document.get(name), dict)), document)
    quantization = config.get("quantization_config") or document.get("quantization_config")
    beside = path.with_name("hf_quant_config.json")
    if quantization is None and beside.is_file():
        quantization = {**_read(beside).get("quantization", {}), "producer": "modelopt"}
    try:
        return _Config(config).facts(source, quantization)
    except KeyError as error:
        raise FactsError(f"{path} has no {error.args[0]}; set it as a model fact") from error
    except (ValueError, TypeError) as error:
        raise FactsError(f"{path} cannot be used: {error}") from error


def _read(path: Path) -> dict[str, Any]:  # JSON
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FactsError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(document, dict):
        raise FactsError(f"{path} must hold a JSON object, not {type(document).__name__}")
    return document


class _Config:
    def __init__(self, config: Mapping[str, Any]) -> None:  # JSON
        self.config = config
        self.kind = str(config.get("model_type", ""))
        blocks = config.get("layers_block_type")
        told = "".join(BLOCK_LETTERS.get(str(block), "") for block in blocks) if isinstance(blocks, list) else ""
        self.pattern = str(config.get("hybrid_override_pattern") or "") or (told if "M" in told else "")

    def number(self, *names: str, default: int | None = None) -> int:
        for name in names:
            if self.config.get(name) is not None and not isinstance(self.config[name], list | dict):
                return int(str(self.config[name]))
        if default is None:
            raise KeyError(names[0])
        return default

    def entries(self, name: str) -> list[Any]:  # JSON
        value = self.config.get(name)
        return value if isinstance(value, list) else []

    def facts(self, source: str, quantization: object) -> ModelFacts:
        number, weights = self.number, formats_of_config(quantization)
        heads, layers, hidden = number("num_attention_heads"), self._layers(), number("hidden_size")
        experts = number("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts", default=0)
        latent = number("kv_lora_rank", default=0)
        rope = number("qk_rope_head_dim", default=0) if latent else 0
        head = number("qk_nope_head_dim", default=0) + rope if latent else 0
        linear = self._linear_layers(layers)
        sliding, window = self._sliding(layers)
        dense = self._dense_layers(layers) if experts else 0
        return ModelFacts(
            name=source,
            layers=layers,
            hidden=hidden,
            heads=heads,
            kv_heads=heads if latent else self._kv_heads(heads),
            head_dim=head or number("head_dim", "attention_head_dim", default=hidden // heads),
            intermediate=self._intermediate(layers) if dense or not experts else 0,
            vocabulary=number("vocab_size"),
            max_context=number("max_position_embeddings", "max_seq_len", "seq_length"),
            mla=latent > 0,
            kv_lora_rank=latent,
            weight_bits=weights.bits,
            mtp_layers=self._mtp_layers(),
            weight_block=weights.block,
            q_lora_rank=number("q_lora_rank", default=0) if latent else 0,
            rope_head_dim=rope,
            value_head_dim=number("v_head_dim", default=0),
            sliding_window=window,
            sliding_layers=sliding,
            tied_embeddings=bool(self.config.get("tie_word_embeddings", self.kind.startswith("gemma"))),
            linear_layers=linear,
            linear_weights=self._linear_weights(hidden) if linear else 0,
            linear_state_bytes=self._linear_state() if linear else 0,
            bare_layers=self._bare_layers(),
            gated=self.config.get("mlp_hidden_act", self.config.get("hidden_act")) not in ("relu2", "relu"),
            query_gate=bool(self.config.get("attn_output_gate") or self.config.get("mla_use_output_gate")),
            weight_format=weights.weights,
            dense_format=weights.dense,
            cache_format=weights.cache,
            **(self._experts(experts, dense) if experts else {}),
            **self._sparse(layers),
        )

    def _experts(self, experts: int, dense: int) -> dict[str, Any]:  # keyword arguments
        number = self.number
        width = number("moe_intermediate_size", "intermediate_size")
        shared_width = number(
            "moe_shared_expert_intermediate_size",
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "share_expert_dim",
            default=0,
        )
        shared = number("n_shared_experts", "num_shared_experts", default=1 if shared_width or self._llama_4() else 0)
        return {
            "experts": experts,
            "experts_per_token": number(
                "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk"
            ),
            "expert_intermediate": width,
            "dense_layers": dense,
            "shared_experts": shared,
            "shared_intermediate": 0 if shared_width == width else shared_width,
            "expert_hidden": number("moe_latent_size", "routed_expert_hidden_size", default=0),
        }

    def _llama_4(self) -> bool:
        return self.kind.startswith("llama4")

    def _layers(self) -> int:
        # A block of Nemotron-H is either a mixer or a feed-forward: two of them are what others call a layer.
        if self.pattern:
            return sum(block in "M*" for block in self.pattern)
        return self.number("num_hidden_layers")

    def _kv_heads(self, heads: int) -> int:
        kv = self.number("num_key_value_heads", default=0)
        groups = [
            block["attention"]["n_heads_in_group"]
            for block in self.entries("block_configs")
            if block["attention"].get("n_heads_in_group")
        ]
        return kv or (heads // groups[0] if groups else heads)

    def _intermediate(self, layers: int) -> int:
        blocks = [block["ffn"].get("ffn_mult") or 0 for block in self.entries("block_configs")]
        if blocks and self.config.get("intermediate_size") is None:
            hidden = self.number("hidden_size")
            # Blocks of their own width: the mean stands for all, rounded so that it can be sharded as they can.
            return int(sum(2 * multiple * hidden / 3 for multiple in blocks) / layers) // ROUNDING * ROUNDING
        return self.number("intermediate_size_mlp", "dense_intermediate_size", "intermediate_size", "ffn_hidden_size")

    def _dense_layers(self, layers: int) -> int:
        kinds, only = self.entries("mlp_layer_types"), self.entries("mlp_only_layers")
        steps = self.number("interleave_moe_layer_step", "decoder_sparse_step", default=1)
        frequency = self.entries("moe_layer_freq")
        if self.pattern:
            return self.pattern.count("-")
        if kinds:
            return kinds.count("dense")
        if frequency:
            return sum(not each for each in frequency)
        if only or steps > 1:
            return sum(layer in only or (layer + 1) % max(steps, 1) != 0 for layer in range(layers))
        return self.number("first_k_dense_replace", default=0)

    def _bare_layers(self) -> int:
        return self._layers() - sum(block in "-E" for block in self.pattern) if self.pattern else 0

    def _linear_layers(self, layers: int) -> int:
        interval = self.number("full_attention_interval", default=0)
        kinds = self.entries("layer_types")
        kimi = self.config.get("linear_attn_config")
        if self.pattern:
            return self.pattern.count("M")
        if isinstance(kimi, Mapping):
            return len(kimi.get("kda_layers") or [])
        if any("linear" in str(kind) for kind in kinds):
            return sum("linear" in str(kind) for kind in kinds)
        if any("attention" in block for block in self.entries("block_configs")):
            return sum(bool(block["attention"].get("no_op")) for block in self.entries("block_configs"))
        return layers - layers // interval if interval else 0

    def _linear_weights(self, hidden: int) -> int:
        number, kimi = self.number, self.config.get("linear_attn_config")
        if isinstance(kimi, Mapping):
            width = int(kimi["num_heads"]) * int(kimi["head_dim"])
            return 5 * hidden * width  # query, key, value, gate and output
        if self.pattern:
            inner = number("mamba_num_heads") * number("mamba_head_dim")
            groups = number("n_groups", default=1) * number("ssm_state_size")
            return hidden * (2 * inner + 2 * groups + number("mamba_num_heads")) + inner * hidden
        heads = number("linear_num_value_heads", default=0)
        value = heads * number("linear_value_head_dim", default=0)
        key = number("linear_num_key_heads", default=0) * number("linear_key_head_dim", default=0)
        return hidden * (2 * key + 2 * value + 2 * heads) + value * hidden

    def _linear_state(self) -> int:
        number, kimi = self.number, self.config.get("linear_attn_config")
        if isinstance(kimi, Mapping):
            return int(kimi["num_heads"]) * int(kimi["head_dim"]) ** 2 * STATE_BYTES
        if self.pattern:
            return number("mamba_num_heads") * number("mamba_head_dim") * number("ssm_state_size") * STATE_BYTES
        key, value = number("linear_key_head_dim", default=0), number("linear_value_head_dim", default=0)
        kernel = number("linear_conv_kernel_dim", default=1) - 1
        rows = 2 * number("linear_num_key_heads", default=0) * key
        rows += number("linear_num_value_heads", default=0) * value
        state = number("linear_num_value_heads", default=0) * key * value * STATE_BYTES
        return state + rows * kernel * CONVOLUTION_BYTES

    def _sliding(self, layers: int) -> tuple[int, int]:
        """Return how many layers look only so far back, and how far."""
        window = self.number("sliding_window", "attention_chunk_size", default=0)
        kinds, pattern = self.entries("layer_types"), self.entries("hybrid_layer_pattern")
        if not window or self.config.get("use_sliding_window") is False:
            return 0, 0
        if kinds:
            count = sum("sliding" in str(kind) or "chunked" in str(kind) for kind in kinds)
        elif pattern:
            count = sum(bool(each) for each in pattern)
        elif self._llama_4():
            count = layers - layers // LLAMA_4_GLOBAL_EVERY
        elif self.kind.startswith("gemma3"):
            count = layers - layers // self.number("sliding_window_pattern", default=GEMMA_3_GLOBAL_EVERY)
        elif self.kind.startswith("gemma2"):
            count = layers - layers // 2
        elif self.config.get("use_sliding_window"):
            count = layers - self.number("max_window_layers", default=0)
        else:
            count = layers if self.kind == "mistral" else 0
        return count, window if count else 0

    def _mtp_layers(self) -> int:
        modules = self.number("num_mtp_modules", default=0) if self.config.get("use_mtp", True) else 0
        return self.number("num_nextn_predict_layers", "mtp_num_hidden_layers", default=modules)

    def _sparse(self, layers: int) -> dict[str, int]:
        """Return what sparse attention with an index needs: DeepSeek's top tokens, or MiniMax's top blocks."""
        blocks = self.config.get("sparse_attention_config")
        if isinstance(blocks, Mapping):
            with_index = sum(bool(each) for each in blocks.get("sparse_attention_freq") or [])
            return {
                "sparse_tokens": int(blocks.get("sparse_topk_blocks", 0)) * int(blocks.get("sparse_block_size", 0)),
                "index_layers": with_index,
                "index_heads": int(blocks.get("sparse_num_index_heads", 0)),
                "index_dim": int(blocks.get("sparse_index_dim", 0)),
            }
        top = self.number("index_topk", default=0)
        if not top:
            return {}
        kinds = self.entries("indexer_types")
        return {
            "sparse_tokens": top,
            "index_layers": kinds.count("full") if kinds else layers,
            "index_heads": self.number("index_n_heads"),
            "index_dim": self.number("index_head_dim"),
        }
