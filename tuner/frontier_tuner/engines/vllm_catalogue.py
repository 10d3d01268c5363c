"""Every parameter that a space of vLLM can have, the engine's defaults, and what is searched unless told otherwise.

Data only; `docs/reference/parameters.md` is made of it.
"""

from collections.abc import Mapping
from dataclasses import replace

from frontier_tuner.configuration import Value
from frontier_tuner.engines.vllm_parameters import (
    BATCHING,
    CACHE,
    DEPTH,
    DISAGGREGATED,
    DP,
    EP,
    LAYOUT,
    MEMORY,
    METHOD,
    PP,
    RUNTIME,
    SEQUENCES,
    SPECULATION,
    SUBJECT,
    TOKENS,
    TP,
)
from frontier_tuner.engines.vllm_versions import OLDER_DEFAULTS
from frontier_tuner.parameter import Parameter
from frontier_tuner.versions import Version

POOLS = ("prefill", "decode")
_POOLED = (*LAYOUT[:4], *BATCHING[:3])


def pool_name(role: str, name: str) -> str:
    """Return what a parameter is called where only one pool has it, such as `decodeMaxNumSeqs`."""
    return f"{role}{name[0].upper()}{name[1:]}"


def _pools() -> tuple[Parameter, ...]:
    found = []
    for role in POOLS:
        found.append(
            Parameter(
                pool_name(role, "replicas"),
                (1, 2, 4),
                "Along",
                bounds=(1, 64),
                group="pools",
                requires=DISAGGREGATED,
                meaning=f"Engines of the {role} pool.",
            )
        )
        found.extend(
            replace(
                parameter,
                name=pool_name(role, parameter.name),
                group="pools",
                requires=DISAGGREGATED,
                meaning=f"The same as {parameter.name}, of the engines of the {role} pool.",
            )
            for parameter in _POOLED
        )
    return tuple(found)


CATALOGUE: tuple[Parameter, ...] = (*SUBJECT, *LAYOUT, *_pools(), *BATCHING, *SPECULATION, *RUNTIME)
"""Every parameter that a space of vLLM can have, with the values that it takes unless something restricts it."""

POOLED: Mapping[str, Mapping[str, str]] = {
    role: {parameter.name: pool_name(role, parameter.name) for parameter in _POOLED} for role in POOLS
}
"""For each pool the parameters that it has for itself, and what they are called there."""

_BASES = {own: name for names in POOLED.values() for name, own in names.items()}


def base_name(name: str) -> str:
    """Return what a parameter of a pool is called where there is one engine; other names stay as they are."""
    return _BASES.get(name, name)


_ALL: Mapping[str, Value] = {
    "mode": "aggregated",
    "quantization": "none",
    TP: 1,
    PP: 1,
    DP: 1,
    EP: False,
    "enableEplb": False,
    "numRedundantExperts": 0,
    SEQUENCES: 256,
    TOKENS: 2048,
    CACHE: "auto",
    "enablePrefixCaching": True,
    "enableChunkedPrefill": True,
    METHOD: "none",
    DEPTH: 0,
    "draftTensorParallelSize": 1,
    MEMORY: 92,
    "blockSize": 16,
    "enforceEager": False,
    "optimizationLevel": 2,
    "maxCudagraphCaptureSize": 512,
    "attentionBackend": "auto",
    "asyncScheduling": True,
}
DEFAULTS: Mapping[str, Value] = {
    **_ALL,
    **{name: _ALL[base] for names in POOLED.values() for base, name in names.items()},
    **{pool_name(role, "replicas"): 1 for role in POOLS},
}
"""What vLLM's server does when nothing is said, on a GPU of less than 70 GiB."""


def defaults_of(version: Version) -> Mapping[str, Value]:
    """Return `DEFAULTS` as a version has them; an unknown one is taken for the newest."""
    older = {name: value for since, name, value in OLDER_DEFAULTS if version and version < since}
    return {**DEFAULTS, **older}


UNSET: Mapping[str, Value] = {"quantization": "none", METHOD: "none", "attentionBackend": "auto"}
"""Values that stand for the engine's own choice: nothing is passed on for them."""

ALWAYS = ("variant", TP)
"""Part of every configuration, even where there is no choice."""

BY_DEFAULT = frozenset({"variant", TP, PP, DP, EP, SEQUENCES, TOKENS, CACHE, "enablePrefixCaching", METHOD, DEPTH})
"""Searched unless something speaks against it; all others only where a restriction names them."""

BY_DEFAULT_DISAGGREGATED = frozenset(
    {pool_name(role, name) for role in POOLS for name in ("replicas", TP, DP, EP)}
    | {pool_name("decode", SEQUENCES), pool_name("prefill", TOKENS)}
)
"""The same of the pools, where `mode` allows them."""

FEATURES: Mapping[str, str] = {
    "image": "can start engines of several images",
    "gpuProduct": "can start engines on several products of GPU",
    "reasoningEffort": "sends a reasoning effort with its requests and measures what the answers are worth",
    **dict.fromkeys(
        ("mode", *(pool_name(role, name) for role in POOLS for name in ("replicas", *POOLED[role]))),
        "can start pools of engines for prefill and decode, and route between them",
    ),
}
"""Parameters that need more of a plant than to start one engine, and what they need."""
