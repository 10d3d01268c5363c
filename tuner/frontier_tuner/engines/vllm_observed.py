"""What an engine teaches about configurations: what it refused for a reason that holds for others is not tried again.

Whether an engine that runs has in force what was asked for is told by `frontier_tuner.prometheus.effective`.
"""

import re
from collections.abc import Callable, Iterable

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.engines.vllm_parameters import CACHE, PP, TP
from frontier_tuner.parameter import Rule, shown


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
