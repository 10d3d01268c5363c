"""The number formats of a checkpoint, from what its files say about quantization."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from frontier_tuner.errors import FactsError
from frontier_tuner.facts_types import EIGHT_BITS, FOUR_BITS, SIXTEEN_BITS

MICROSCALING_GROUP = 32


@dataclass(frozen=True)
class WeightFormats:
    """How a checkpoint stores its numbers; the names are those of `predict.precision`.

    Attributes:
        bits: Bits per weight of the experts, or of all weights.
        block: Weights per scale along the sharded axis; 0 where scales do not restrict sharding.
        weights: Format of the experts, or of all weights.
        dense: Format of attention and dense feed-forward blocks; empty where nothing says that it differs.
        cache: Format of the KV cache.
    """

    bits: int = SIXTEEN_BITS
    block: int = 0
    weights: str = "bf16"
    dense: str = ""
    cache: str = "bf16"


SUFFIXES: Mapping[str, WeightFormats] = {
    "fp8-dynamic": WeightFormats(EIGHT_BITS, 0, "fp8"),
    "fp8-static": WeightFormats(EIGHT_BITS, 0, "fp8_static"),
    "fp8": WeightFormats(EIGHT_BITS, 0, "fp8_static"),
    "fp8-block": WeightFormats(EIGHT_BITS, 128, "fp8_block"),
    "nvfp4": WeightFormats(FOUR_BITS, 0, "nvfp4", cache="fp8"),
    "fp4": WeightFormats(FOUR_BITS, 0, "nvfp4", cache="fp8"),
    "mxfp4": WeightFormats(FOUR_BITS, MICROSCALING_GROUP, "mxfp4"),
    "awq": WeightFormats(FOUR_BITS, 0, "int4_weights"),
    "gptq-int4": WeightFormats(FOUR_BITS, 0, "int4_weights"),
    "gptq-int8": WeightFormats(EIGHT_BITS, 0, "int8_weights"),
    "gptq": WeightFormats(FOUR_BITS, 0, "int4_weights"),
    "int4": WeightFormats(FOUR_BITS, 0, "int4_weights"),
    "w4a16": WeightFormats(FOUR_BITS, 0, "int4_weights"),
    "int8": WeightFormats(EIGHT_BITS, 0, "int8"),
    "w8a8": WeightFormats(EIGHT_BITS, 0, "int8"),
    "bf16": WeightFormats(),
}
"""What the end of a checkpoint's name says, longest first."""
BLOCK_SCALED = ("qwen", "zai-org", "deepseek-ai", "minimaxai", "moonshotai", "xiaomimimo")
"""Who scales 8-bit weights by blocks of 128 x 128."""


def formats_of_name(name: str) -> tuple[str, WeightFormats] | None:
    """Return the name without its quantization and the formats that this says, or None where it says nothing."""
    for suffix, formats in sorted(SUFFIXES.items(), key=lambda entry: -len(entry[0])):
        base = re.sub(rf"[-_.](?:quantized[-.])?{suffix}$", "", name, flags=re.IGNORECASE)
        if base != name:
            by_block = suffix == "fp8" and ("/" not in name or name.lower().startswith(BLOCK_SCALED))
            return base, SUFFIXES["fp8-block"] if by_block else formats
    return None


def formats_of_config(quantization: object) -> WeightFormats:
    """Return the formats that a `quantization_config`, or modelopt's `quantization`, describes.

    Raises:
        FactsError: The method is not known.
    """
    if not isinstance(quantization, Mapping) or not quantization:
        return WeightFormats()
    found = _weights(quantization)
    apart = _list(quantization, "ignore", "exclude_modules", "modules_to_not_convert", "exclude")
    projections = [name for name in apart if "self_attn" in name and "norm" not in name and "indexer" not in name]
    dense = "bf16" if found.weights != "bf16" and projections else ""
    return WeightFormats(found.bits, found.block, found.weights, dense, _cache(quantization))


def _weights(quantization: Mapping[str, object]) -> WeightFormats:
    algorithm = str(quantization.get("quant_algo") or "").lower()
    method = str(quantization.get("quant_method") or algorithm).lower()
    if method == "mxfp4":
        return WeightFormats(FOUR_BITS, MICROSCALING_GROUP, "mxfp4_fp8")
    layers = quantization.get("quantized_layers")
    if algorithm == "mixed_precision" and isinstance(layers, Mapping):
        return _mixed(layers)
    if "fp8" in (method, algorithm) or method in ("fbgemm_fp8", "modelopt_fp8") or algorithm.startswith("fp8"):
        return _eight_bits(quantization, method)
    if "fp4" in algorithm or algorithm.startswith("w4a8"):
        narrow = "nvfp4_weights" if "w4a16" in algorithm else "nvfp4"
        return WeightFormats(FOUR_BITS, 0, narrow if "fp4" in algorithm else "int4_fp8")
    groups = quantization.get("config_groups")
    if isinstance(groups, Mapping):
        found = [_group(group) for group in groups.values() if isinstance(group, Mapping) and group.get("weights")]
        if found:
            return max(found, key=lambda each: each.bits)
    return _by_bits(quantization, method)


def _eight_bits(quantization: Mapping[str, object], method: str) -> WeightFormats:
    block = quantization.get("weight_block_size")
    if isinstance(block, list) and block:
        return WeightFormats(EIGHT_BITS, int(block[-1]), "fp8_block")
    static = method.startswith("modelopt") or quantization.get("activation_scheme") == "static"
    return WeightFormats(EIGHT_BITS, 0, "fp8_static" if static or "producer" in quantization else "fp8")


def _by_bits(quantization: Mapping[str, object], method: str) -> WeightFormats:
    bits = quantization.get("bits") or (4 if quantization.get("load_in_4bit") else None)
    bits = bits or (8 if quantization.get("load_in_8bit") else None)
    if bits is None and method == "quark":
        bits = 4 if "fp4" in str(quantization.get("global_quant_config")) else 8
        return WeightFormats(bits, 0, "mxfp4" if bits == FOUR_BITS else "fp8_static")
    if bits is not None:
        width = int(str(bits))
        return WeightFormats(width, 0, "int4_weights" if width == FOUR_BITS else "int8_weights")
    raise FactsError(f"quantization method {method!r} of the checkpoint is not known; set the model fact weightBits")


def _group(group: Mapping[str, object]) -> WeightFormats:
    """One group of compressed-tensors: integers or floats of some bits, with or without narrow activations."""
    weights, inputs = group["weights"], group.get("input_activations")
    entries = weights if isinstance(weights, Mapping) else {}
    bits = int(str(entries.get("num_bits", SIXTEEN_BITS)))
    floating = entries.get("type") == "float"
    if bits == FOUR_BITS and floating:
        name = "mxfp4" if entries.get("group_size") == MICROSCALING_GROUP else "nvfp4"
        return WeightFormats(bits, 0, name if inputs else f"{name}_weights")
    if bits == FOUR_BITS:
        return WeightFormats(bits, 0, "int4_weights" if not inputs else "int4_fp8")
    if bits == EIGHT_BITS and floating:
        block = entries.get("block_structure")
        if isinstance(block, list) and block:
            return WeightFormats(bits, int(block[-1]), "fp8_block")
        dynamic = isinstance(inputs, Mapping) and inputs.get("dynamic")
        return WeightFormats(bits, 0, "fp8" if dynamic else "fp8_static")
    if bits == EIGHT_BITS:
        return WeightFormats(bits, 0, "int8" if inputs else "int8_weights")
    return WeightFormats(bits)


def _mixed(layers: Mapping[str, object]) -> WeightFormats:
    """Layers with algorithms of their own: that of most feed-forward layers is told, and attention apart from it."""

    def most(named: tuple[str, ...]) -> WeightFormats:
        votes: dict[str, int] = {}
        for name, entry in layers.items():
            algorithm = str(entry.get("quant_algo", "")).lower() if isinstance(entry, Mapping) else ""
            if any(part in name for part in named):
                votes[algorithm] = votes.get(algorithm, 0) + 1
        top = max(votes, key=lambda algorithm: votes[algorithm], default="")
        return _weights({"quant_algo": top, "producer": "modelopt"}) if top else WeightFormats()

    return most(("expert", "mlp", "mixer"))


def _cache(quantization: Mapping[str, object]) -> str:
    scheme = quantization.get("kv_cache_quant_algo") or quantization.get("kv_cache_scheme")
    if isinstance(scheme, Mapping):
        return "fp8" if scheme.get("num_bits") == EIGHT_BITS else "bf16"
    return "fp8" if "8" in str(scheme or "") else "bf16"


def _list(quantization: Mapping[str, object], *names: str) -> list[str]:
    entries = next((quantization[name] for name in names if isinstance(quantization.get(name), list)), [])
    return [str(entry) for entry in entries] if isinstance(entries, list) else []
