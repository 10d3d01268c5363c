"""vLLM: its parameters, the space they make for a model on some hardware, and the command line of a configuration."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.engines.vllm_rules import (
    DP,
    EP,
    GIB,
    PP,
    TP,
    Surroundings,
    attention_split,
    expert_split,
    gpus,
    rules,
    width_split,
)
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.facts import GPUFacts, ModelFacts
from frontier_tuner.space import Parameter, Restriction, SearchSpace, restrict

__all__ = ["CATALOGUE", "DEFAULTS", "baseline", "build_space", "command_line", "gpus", "tensor_parallel_sizes"]

PROMPT_LOOKUP_MAX = 4
FAST_LINK_BYTES_PER_S = 100e9
"""Below this, GPUs talk over PCIe, and pipeline parallelism can beat tensor parallelism."""
LARGE_GPU_BYTES = 70 * GIB
"""From this memory on, A100 excepted, vLLM's server takes larger batches by default."""

_SIZES: tuple[Value, ...] = (1, 2, 4, 8, 16, 32, 64)
_FLAGS: tuple[Value, ...] = (False, True)

CATALOGUE: tuple[Parameter, ...] = (
    Parameter("variant", (), "Out"),
    Parameter(TP, _SIZES, "Along", argument="--tensor-parallel-size", bounds=(1, 64)),
    Parameter(PP, _SIZES, "Along", argument="--pipeline-parallel-size", bounds=(1, 64)),
    Parameter(DP, _SIZES, "Along", argument="--data-parallel-size", bounds=(1, 64)),
    Parameter(EP, _FLAGS, "Along", argument="--enable-expert-parallel"),
    Parameter("maxNumSeqs", (16, 32, 64, 128, 256), "Along", argument="--max-num-seqs", bounds=(1, 65536)),
    Parameter(
        "maxNumBatchedTokens",
        (2048, 4096, 8192, 16384),
        "Along",
        argument="--max-num-batched-tokens",
        bounds=(1, 1048576),
    ),
    Parameter("kvCacheDtype", ("auto", "fp8"), "Out", argument="--kv-cache-dtype"),
    Parameter("enablePrefixCaching", _FLAGS, "Out", argument="--enable-prefix-caching"),
    Parameter("enableChunkedPrefill", _FLAGS, "Both", argument="--enable-chunked-prefill"),
    Parameter("numSpeculativeTokens", (0, 3, 5), "Both", argument="--speculative-config", bounds=(0, 32)),
    Parameter("gpuMemoryUtilizationPercent", (85, 90, 95), "Out", argument="--gpu-memory-utilization", bounds=(10, 99)),
)
"""Every parameter that a space of vLLM can have, with the values that it takes unless something restricts it."""

DEFAULTS: Mapping[str, Value] = {
    TP: 1,
    PP: 1,
    DP: 1,
    EP: False,
    "maxNumSeqs": 256,
    "maxNumBatchedTokens": 2048,
    "kvCacheDtype": "auto",
    "enablePrefixCaching": True,
    "enableChunkedPrefill": True,
    "numSpeculativeTokens": 0,
    "gpuMemoryUtilizationPercent": 90,
}
"""What vLLM's server does when nothing is said, on a GPU of less than 70 GiB."""

ON_REQUEST = ("enableChunkedPrefill", "gpuMemoryUtilizationPercent")
"""Searched only where a restriction names them."""
ALWAYS = ("variant", TP)
"""Part of every configuration, even where there is no choice."""

_ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-ep": "--enable-expert-parallel",
    "-sc": "--speculative-config",
}
_NOT_PARAMETERS = {
    "expertParallelSize": "vLLM derives the degree, TP x DP; use enableExpertParallel",
    "maxModelLen": "it changes what can be served; set --max-model-len in engine.args",
    "quantization": "the checkpoint decides it; give variants of the model",
}


@dataclass(frozen=True)
class _FixedArguments:
    values: Mapping[str, str]

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> "_FixedArguments":
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
        text = self.values.get(flag, "")
        scale = {"k": 1e3, "K": 1024, "m": 1e6, "M": 1024**2}.get(text[-1:], 1)
        try:
            return float(text.rstrip("kKmM")) * scale
        except ValueError:
            return None

    def given(self, flag: str) -> str | None:
        negated = flag.replace("--enable-", "--no-enable-")
        return next((each for each in (flag, negated) if flag and each in self.values), None)


def build_space(
    model: ModelFacts | Mapping[str, ModelFacts] | None,
    gpu: GPUFacts | None,
    gpus_per_node: int,
    variants: Sequence[str],
    max_gpus: int,
    restrictions: Sequence[Restriction] = (),
    fixed_args: Sequence[str] = (),
    max_model_len: int | None = None,
    *,
    engine_version: str = "",
) -> SearchSpace:
    """Return the space of valid configurations, without values that no valid configuration has.

    Args:
        model: Facts of the model, or by variant where variants differ; None where unknown: no rule reads a shape.
        gpu: Facts of the accelerator; None where unknown or on CPU.
        gpus_per_node: GPUs of one node; 0 on CPU.
        variants: Names of the checkpoints; the first is the quality reference.
        max_gpus: GPUs that one engine may hold; 0 on CPU.
        restrictions: What the user says about parameters; all others keep their default values.
        fixed_args: Arguments that every engine gets.
        max_model_len: Longest context to serve; None takes it from `fixed_args` or the model.
        engine_version: Such as `0.33.0`; empty takes the strictest of the known versions.

    Raises:
        InvalidSpaceError: A restriction is wrong, a fixed argument sets a searched parameter, or nothing is valid;
            carries every problem.
    """
    fixed = _FixedArguments.parse(fixed_args)
    models = {"": model} if isinstance(model, ModelFacts) else dict(model or {})
    around = _surroundings(models, gpu, gpus_per_node, max_gpus, max_model_len, fixed, engine_version)
    named = {entry.name for entry in restrictions}
    catalogue = tuple(_derived(parameter, around, variants) for parameter in CATALOGUE)
    space = SearchSpace(catalogue, rules(around), _defaults(gpu, variants))
    problems = [*_misnamed(named), *_too_long(around, fixed)]
    try:
        space = restrict(space, [entry for entry in restrictions if entry.name not in _NOT_PARAMETERS])
    except InvalidSpaceError as error:
        problems.extend(error.problems)
    wanted = {*named, *ALWAYS}
    kept = tuple(p for p in space.parameters if p.name in wanted or _searched(p, around))
    problems.extend(_clashes(kept, fixed))
    if problems:
        raise InvalidSpaceError(tuple(problems))
    return replace(space, parameters=kept).without_dead_values()


def baseline(space: SearchSpace) -> Configuration:
    """Return what the engine would do by itself: its defaults, or the nearest valid values, for the space's parameters.

    Raises:
        InvalidSpaceError: No configuration is valid.
    """
    return space.baseline


def command_line(configuration: Configuration, *, fixed_args: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the engine's arguments for a configuration, in the catalogue's order, then the fixed ones.

    The checkpoint, the served name and the address are the caller's.
    """
    arguments: list[str] = []
    for parameter in CATALOGUE:
        if parameter.name in configuration and parameter.argument:
            arguments.extend(_argument(parameter, configuration[parameter.name]))
    return (*arguments, *fixed_args)


def tensor_parallel_sizes(
    model: ModelFacts, *, expert_parallel: bool = False, limit: int = 64, engine_version: str = ""
) -> tuple[int, ...]:
    """Return the tensor parallel sizes up to `limit` that the model's shape allows, whatever the hardware."""
    return tuple(
        size
        for size in range(1, limit + 1)
        if attention_split(model, size) is None
        and width_split(model, size, 1, expert_parallel, _version(engine_version)) is None
        and expert_split(model, size, expert_parallel) is None
    )


def _argument(parameter: Parameter, value: Value) -> tuple[str, ...]:
    flag = parameter.argument
    if isinstance(value, bool):
        return (flag if value else flag.replace("--enable-", "--no-enable-"),)
    if parameter.name == "gpuMemoryUtilizationPercent":
        return (flag, f"{int(value) / 100:.2f}")
    if parameter.name != "numSpeculativeTokens":
        return (flag, str(value))
    if not value:
        return ()
    speculation = {"method": "ngram", "num_speculative_tokens": value, "prompt_lookup_max": PROMPT_LOOKUP_MAX}
    return (flag, json.dumps(speculation, separators=(",", ":")))


def _surroundings(
    models: Mapping[str, ModelFacts],
    gpu: GPUFacts | None,
    gpus_per_node: int,
    max_gpus: int,
    max_model_len: int | None,
    fixed: _FixedArguments,
    engine_version: str,
) -> Surroundings:
    length = max_model_len or int(fixed.number("--max-model-len") or 0)
    return Surroundings(
        models=models,
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        max_gpus=max_gpus,
        max_model_len=length if length > 0 else None,
        memory_percent=round(100 * (fixed.number("--gpu-memory-utilization") or 0.9)),
        chunked_prefill="--no-enable-chunked-prefill" not in fixed.values,
        version=_version(engine_version),
    )


def _version(text: str) -> tuple[int, ...]:
    numbers = text.removeprefix("v").split("+")[0].split(".")
    return tuple(int(part) for part in numbers) if all(part.isdigit() for part in numbers) else ()


def _defaults(gpu: GPUFacts | None, variants: Sequence[str]) -> dict[str, Value]:
    defaults = dict(DEFAULTS)
    if variants:
        defaults["variant"] = variants[0]
    if gpu is not None and gpu.memory_bytes >= LARGE_GPU_BYTES and "A100" not in gpu.product:
        defaults |= {"maxNumSeqs": 1024, "maxNumBatchedTokens": 8192}
    return defaults


def _derived(parameter: Parameter, around: Surroundings, variants: Sequence[str]) -> Parameter:
    if parameter.name == "variant":
        return replace(parameter, values=tuple(variants) or ("default",))
    if parameter.name in (TP, PP, DP):
        most = max(1, min(around.gpus_per_node, around.max_gpus))
        return replace(parameter, values=tuple(size for size in _SIZES if int(size) <= most))
    if parameter.name == "kvCacheDtype" and around.gpu is None:
        return replace(parameter, values=("auto",), choices=parameter.values)
    return parameter


def _searched(parameter: Parameter, around: Surroundings) -> bool:
    if parameter.name in ON_REQUEST or len(parameter.values) == 1:
        return False
    mixture = any(model.experts for model in around.models.values())
    if parameter.name in (DP, EP):
        return mixture
    if parameter.name == PP:
        return around.gpu is not None and around.gpu.link_bytes_per_s < FAST_LINK_BYTES_PER_S
    return True


def _misnamed(names: set[str]) -> list[str]:
    return [
        f"search parameter {name} is unknown: {_NOT_PARAMETERS[name]}" for name in sorted(names & set(_NOT_PARAMETERS))
    ]


def _too_long(around: Surroundings, fixed: _FixedArguments) -> list[str]:
    overridden = any("rope" in flag or "override" in flag for flag in fixed.values)
    return [
        f"the context length {around.max_model_len} is above the {model.max_context} of {model.name}; "
        f"lower it, or override the model's rope scaling in engine.args"
        for model in around.models.values()
        if around.max_model_len and around.max_model_len > model.max_context and not overridden
    ]


def _clashes(parameters: Sequence[Parameter], fixed: _FixedArguments) -> list[str]:
    found = []
    for parameter in parameters:
        argument = fixed.given(parameter.argument)
        if argument is not None:
            found.append(
                f"engine argument {argument} sets what search parameter {parameter.name} searches; remove the argument "
                f"and pin the parameter instead: {{name: {parameter.name}, value: …}}"
            )
    return found
