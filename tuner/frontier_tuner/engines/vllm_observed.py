"""What a started engine teaches about configurations: options that are not in force, and refusals to remember.

The engine has the last word. An option that it silently dropped must not be credited with what was measured, and what
it refused for a reason that holds for others must not be tried again with those.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.engines.vllm_parameters import CACHE, MEMORY, PP, TP
from frontier_tuner.parameter import Rule, shown

CACHE_INFO = "vllm:cache_config_info"
"""The metric whose labels are the cache's settings in force."""

_SAME_FORMATS = {"fp8_e4m3": "fp8"}
_LABELS: Mapping[str, str] = {
    CACHE: "cache_dtype",
    "enablePrefixCaching": "enable_prefix_caching",
    MEMORY: "gpu_memory_utilization",
    "blockSize": "block_size",
}


def not_in_force(configuration: Configuration, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each option that the engine says it does not have in force; empty where all agree.

    What the engine does not tell is not held against it.

    Args:
        configuration: What was asked for.
        labels: Labels of the engine's `vllm:cache_config_info`.
    """
    found = []
    for name, label in _LABELS.items():
        said = labels.get(label)
        if name in configuration and said is not None and not _agrees(name, configuration[name], said):
            found.append(f"{name} {shown(configuration[name])} is not in force: the engine says {label} {said}")
    return tuple(found)


def _agrees(name: str, asked: Value, said: str) -> bool:
    if name == MEMORY:
        try:
            return round(float(said) * 100) == asked
        except ValueError:
            return False
    wanted = str(asked).lower()
    return _SAME_FORMATS.get(wanted, wanted) == _SAME_FORMATS.get(said.lower(), said.lower())


def learned_rules(refusals: Iterable[tuple[Configuration, str]]) -> tuple[Rule, ...]:
    """Return rules that keep a study from trying again what an engine refused for a reason that holds for others too.

    Args:
        refusals: Configurations that an engine refused, each with its words.
    """
    found: dict[tuple[str, str, Value], Rule] = {}
    for configuration, words in refusals:
        for pattern, name, holds in _LESSONS:
            value = configuration.get(name)
            if value is not None and re.search(pattern, words):
                rule = _learned(name, configuration, holds)
                found.setdefault((name, configuration.text("variant"), value), rule)
    return tuple(found.values())


def _learned(name: str, refused: Configuration, holds: Callable[[Value, Value], bool]) -> Rule:
    variant, value = refused.get("variant"), refused[name]

    def check(configuration: Configuration) -> str | None:
        other = configuration.get(name)
        if other is None or configuration.get("variant") != variant or not holds(value, other):
            return None
        return f"the engine refused {name} {shown(value)} in an earlier trial, so {shown(other)} is not tried again"

    return Rule(("variant", name), check)


def _same(refused: Value, other: Value) -> bool:
    return refused == other


def _more_than_one(_refused: Value, other: Value) -> bool:
    return int(other) > 1


_LESSONS: tuple[tuple[str, str, Callable[[Value, Value], bool]], ...] = (
    (r"Pipeline parallelism is not supported for this model", PP, _more_than_one),
    (r"must be divisible by tensor parallel size", TP, _same),
    (r"(?i)fp8 KV cache is not supported|kv-cache-dtype \S+ is not supported", CACHE, _same),
    (r"The quantization method \S+ is not supported for the current GPU", "variant", _same),
)
"""Words of the engine, the parameter that they blame, and for which other values of it they hold."""
