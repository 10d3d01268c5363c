"""vLLM's command line: from a configuration to arguments, and from fixed arguments to values of parameters."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.engines.vllm_catalogue import CATALOGUE, DEFAULTS, UNSET
from frontier_tuner.engines.vllm_flags import method_of
from frontier_tuner.engines.vllm_parameters import DP, MEMORY, PP, TP
from frontier_tuner.engines.vllm_pools import pool_of
from frontier_tuner.parameter import Argument, Parameter
from frontier_tuner.versions import parse_version

PROMPT_LOOKUP_MAX = 4
CONNECTOR: Mapping[str, object] = {"kv_connector": "NixlConnector"}
"""What hands caches from prefill to decode unless the caller names another connector."""

Role = Literal["", "prefill", "decode"]

_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
_ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-sc": "--speculative-config",
    "-q": "--quantization",
}


def negated(flag: str) -> str:
    """Return the flag that switches a flag off."""
    return flag.replace("--", "--no-", 1)


def command_line(
    configuration: Configuration,
    *,
    fixed_args: Sequence[str] = (),
    engine_version: str = "",
    role: Role = "",
    connector: Mapping[str, object] = CONNECTOR,
) -> tuple[str, ...]:
    """Return the engine's arguments for a configuration, in the catalogue's order, then the fixed ones.

    The checkpoint, the served name and the address are the caller's. Parameters that the version has no argument for
    are left out: only their defaults are valid there.

    Args:
        configuration: The values.
        fixed_args: Arguments that every engine gets.
        engine_version: Such as `0.33.0`; empty takes the newest spelling.
        role: The pool that the engine belongs to, where prefill and decode have their own.
        connector: How caches are handed over between pools: the members of `--kv-transfer-config` but the role.
    """
    version = parse_version(engine_version)
    single = pool_of(configuration, role) if role else configuration
    arguments: list[str] = []
    objects: dict[str, dict[str, Value]] = {}
    for parameter in CATALOGUE:
        argument = parameter.argument_of(version)
        if parameter.name not in single or argument is None:
            continue
        value = single[parameter.name]
        if argument.member:
            if argument.flag not in objects:
                # The object stands where its first member would.
                objects[argument.flag] = {}
                arguments.append(argument.flag)
            objects[argument.flag][argument.member] = value
        elif value != UNSET.get(parameter.name):
            arguments.extend(_rendered(parameter, argument, value))
    found = _with_objects(arguments, objects, single)
    if role:
        found += ["--kv-transfer-config", _json({**connector, "kv_role": _ROLES[role]})]
    return (*found, *fixed_args)


def _rendered(parameter: Parameter, argument: Argument, value: Value) -> tuple[str, ...]:
    if isinstance(value, bool):
        return (argument.flag if value else negated(argument.flag),)
    if parameter.name == MEMORY:
        return (argument.flag, f"{int(value) / 100:.2f}")
    return (argument.flag, str(value))


def _with_objects(
    arguments: Sequence[str], objects: Mapping[str, dict[str, Value]], configuration: Configuration
) -> list[str]:
    found: list[str] = []
    for word in arguments:
        content: dict[str, Value] = objects.get(word, {})
        if word == "--speculative-config":
            content = _speculation(content, method_of(configuration))
        if content:
            found += [word, _json(content)]
        elif word not in objects:
            found.append(word)
    return found


def _speculation(content: Mapping[str, Value], method: str) -> dict[str, Value]:
    if method == "none":
        return {}
    lookup: dict[str, Value] = {"prompt_lookup_max": PROMPT_LOOKUP_MAX} if method == "ngram" else {}
    return {"method": method, **{k: v for k, v in content.items() if k != "method"}, **lookup}


def _json(content: Mapping[str, object]) -> str:
    return json.dumps(content, separators=(",", ":"))


@dataclass(frozen=True)
class FixedArguments:
    """Arguments that every engine gets.

    Attributes:
        values: Flag, in its long form, to what follows it.
    """

    values: Mapping[str, str]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "FixedArguments":
        """Return the arguments of a command line."""
        values: dict[str, str] = {}
        last = ""
        for argument in arguments:
            if argument.startswith("-") and not argument.lstrip("-").replace(".", "").isdigit():
                name, _, value = argument.partition("=")
                last = _ALIASES.get(name, name.replace("_", "-"))
                values[last] = value
            elif last:
                values[last] = argument
        return cls(values)

    def number(self, flag: str) -> float | None:
        """Return the number after a flag, with vLLM's suffixes; None where there is none."""
        text = self.values.get(flag, "")
        scale = {"k": 1e3, "K": 1024, "m": 1e6, "M": 1024**2}.get(text[-1:], 1)
        try:
            return float(text.rstrip("kKmM")) * scale
        except ValueError:
            return None

    def sets(self, parameter: Parameter) -> str | None:
        """Return the flag that sets a parameter, or None."""
        for argument in parameter.arguments:
            spellings = (argument.flag, negated(argument.flag))
            for flag in self.values:
                if flag.partition(".")[0] in spellings:
                    return flag
        return None

    def values_of_parameters(self) -> dict[str, Value]:
        """Return what the arguments say about parameters, in the parameters' types; what cannot be read is left out."""
        found: dict[str, Value] = {}
        for parameter in CATALOGUE:
            for argument in parameter.arguments:
                value = self._value(parameter, argument)
                if value is not None:
                    found.setdefault(parameter.name, value)
        return found

    def _value(self, parameter: Parameter, argument: Argument) -> Value | None:
        if argument.member:
            value = self._member(argument)
            return None if value is None else parameter.convert(value)
        default = DEFAULTS.get(parameter.name)
        if isinstance(default, bool):
            off = negated(argument.flag) in self.values
            return not off if off or argument.flag in self.values else None
        if argument.flag not in self.values:
            return None
        if isinstance(default, int):
            number = self.number(argument.flag)
            return None if number is None else round(number * (100 if parameter.name == MEMORY else 1))
        return self.values[argument.flag]

    def _member(self, argument: Argument) -> object:
        dotted = self.values.get(f"{argument.flag}.{argument.member.replace('_', '-')}")
        if dotted is not None:
            return dotted
        try:
            content = json.loads(self.values.get(argument.flag) or "{}")
        except ValueError:
            return None
        return content.get(argument.member) if isinstance(content, dict) else None


LAYOUT_FLAGS = (TP, PP, DP)
"""Parameters that say how many GPUs an engine holds: never fixed by an argument, or too few would be asked for."""


def clashes(parameters: Sequence[Parameter], fixed: FixedArguments) -> list[str]:
    """Return a sentence for each fixed argument that sets a searched parameter, or the GPUs that an engine holds."""
    searched = {parameter.name for parameter in parameters}
    found = []
    for parameter in CATALOGUE:
        flag = fixed.sets(parameter) if parameter.name in {*searched, *LAYOUT_FLAGS} else None
        if flag is None:
            continue
        doing = "searches" if parameter.name in searched else "is for"
        found.append(
            f"engine argument {flag} sets what search parameter {parameter.name} {doing}; remove the argument "
            f"and pin the parameter instead: {{name: {parameter.name}, value: …}}"
        )
    return found
