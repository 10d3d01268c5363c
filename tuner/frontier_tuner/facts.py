"""Facts about models and accelerators: the shapes and data-sheet figures that static rules and rooflines need.

A fact is never a result: it prunes configurations that cannot work and orders the rest. Facts come from a table of
well-known models, from the `config.json` of a checkpoint directory, and from the user's overrides, the last word.
The tables themselves, with their sources, are in `facts_table` and `facts_gpus`.
"""

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from frontier_tuner.errors import FactsError
from frontier_tuner.facts_config import read_config
from frontier_tuner.facts_gpus import GPU_ALIASES, GPUS
from frontier_tuner.facts_table import ALIASES, MODELS
from frontier_tuner.facts_types import EIGHT_BITS, FOUR_BITS, SIXTEEN_BITS, GPUFacts, ModelFacts
from frontier_tuner.facts_weights import formats_of_name

__all__ = [
    "EIGHT_BITS",
    "FOUR_BITS",
    "REQUIRED",
    "SIXTEEN_BITS",
    "GPUFacts",
    "ModelFacts",
    "gpu_facts",
    "known_gpus",
    "known_models",
    "model_facts",
]

REQUIRED = ("layers", "hidden", "heads", "vocabulary", "maxContext")
MOUNT = Path("/models")
"""Where a claim with checkpoints is mounted."""
EDITIONS = ("-instruct", "-it", "-chat", "-base", "-hf", "-thinking", "-preview", "-0324", "-0528")
"""Ends of names that do not change a shape."""
SUGGESTIONS = 3


def known_models() -> tuple[str, ...]:
    """Return the names of the models whose shape is known without their files."""
    return tuple(MODELS)


def known_gpus() -> tuple[str, ...]:
    """Return the products whose figures are known."""
    return tuple(GPUS)


def model_facts(source: str, overrides: Mapping[str, object] | None = None) -> ModelFacts:
    """Return the facts of a model.

    Args:
        source: `org/name`, `hf://org/name` or the short name of a known model, upper and lower case alike, also with
            the quantization at its end (`-FP8`, `-NVFP4`, `-AWQ`); or a `config.json`, a directory with one, or
            `pvc://claim/path` where that claim is mounted.
        overrides: Facts that win over what is known, by field name in camelCase or snake_case. With all of
            `REQUIRED`, the model need not be known.

    Raises:
        FactsError: The model is not known, its `config.json` cannot be used, or an override is wrong.
    """
    given = _overrides(overrides or {})
    config = _config_of(source)
    known = read_config(source, config) if config.is_file() else _from_table(source)
    if known is not None:
        return replace(known, **given)
    missing = [name for name in REQUIRED if _snake(name) not in given]
    if missing:
        raise FactsError(
            f"the shape of model {source!r} is not known{_suggestion(source)}: give a directory with its config.json, "
            f"or set facts {', '.join(missing)} (and kvHeads, headDim, intermediate, experts, … where they apply)"
        )
    return _from_shape(source, given)


def gpu_facts(product: str) -> GPUFacts:
    """Return the facts of a GPU by its product name or a short one such as `H200`, upper and lower case alike.

    Raises:
        FactsError: The product is not known; the message lists those that are.
    """
    wanted = product.strip().lower().replace(" ", "-").replace("_", "-")
    names = {name.lower(): name for name in GPUS}
    names |= {name.split("-", 1)[1]: full for name, full in names.items()} | GPU_ALIASES
    found = names.get(wanted) or names.get(wanted.removeprefix("nvidia-").removeprefix("amd-"))
    if found is None:
        raise FactsError(f"the figures of GPU product {product!r} are not known; known are {', '.join(GPUS)}")
    return GPUS[found]


def _config_of(source: str) -> Path:
    scheme, _, rest = source.rpartition("://")
    path = MOUNT / rest.partition("/")[2] if scheme == "pvc" else Path(source.removeprefix("file://"))
    return path if path.suffix == ".json" else path / "config.json"


def _from_table(source: str) -> ModelFacts | None:
    name = source.rpartition("://")[2].strip("/")
    exact = _plainly(name)
    if exact is not None:
        return exact
    told = formats_of_name(name)
    base = _plainly(told[0]) if told else None
    if told is None or base is None:
        return None
    ending, formats = name[len(told[0]) :], told[1]
    # Latent attention and attention beside four-bit experts are left at 16 bits by who publishes such checkpoints.
    dense = "bf16" if formats.bits == FOUR_BITS and base.experts else ""
    return replace(
        base,
        name=base.name + ending,
        weight_bits=formats.bits,
        weight_block=formats.block,
        weight_format=formats.weights,
        dense_format=dense,
        cache_format=formats.cache,
    )


def _plainly(name: str) -> ModelFacts | None:
    """Return the facts of a name without regard to case, organisation, edition or the words of an alias."""
    wanted, names = name.lower(), _names()
    while wanted:
        for candidate in (wanted, wanted.split("/")[-1]):
            if candidate in names:
                return MODELS[names[candidate]]
        shorter = next((wanted.removesuffix(end) for end in EDITIONS if wanted.endswith(end)), "")
        wanted = shorter
    return None


def _names() -> dict[str, str]:
    names: dict[str, str] = {}
    for name in MODELS:
        for form in (name.lower(), name.split("/")[-1].lower()):
            names.setdefault(form, name)
            for end in EDITIONS:
                names.setdefault(form.removesuffix(end), name)
    for alias, of in ALIASES.items():
        names[alias] = names[of.lower()]
        names.setdefault(alias.rpartition("/")[2], names[of.lower()])
    return names


def _suggestion(source: str) -> str:
    words = {name.split("/")[-1].lower(): name for name in MODELS}
    close = difflib.get_close_matches(source.rpartition("/")[2].lower(), words, SUGGESTIONS)
    return f" (like {', '.join(words[each] for each in close)}?)" if close else ""


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
