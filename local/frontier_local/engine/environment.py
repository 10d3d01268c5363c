"""What the simulation itself is told, through the environment: hardware, pace, noise and faults."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from frontier_local.engine.errors import ArgumentsRefusedError

PREFIX = "FRONTIER_SIM_"


@dataclass(frozen=True)
class Faults:
    """What goes wrong on purpose; None or False where it does not.

    Attributes:
        crash_after_requests: The process ends when this many requests have arrived.
        hang_after_requests: No token is produced any more once this many requests have arrived.
        slow_after_requests: Steps take `slow_factor` times as long once this many requests have arrived.
        slow_factor: How much longer.
        start_delay_seconds: Wall-clock seconds added to the start.
        nan_metrics: Every exported value is NaN.
        reset_counters_after_seconds: Counters and histograms fall to zero once, this long after readiness.
    """

    crash_after_requests: int | None = None
    hang_after_requests: int | None = None
    slow_after_requests: int | None = None
    slow_factor: float = 4.0
    start_delay_seconds: float = 0.0
    nan_metrics: bool = False
    reset_counters_after_seconds: float | None = None


@dataclass(frozen=True)
class Environment:
    """The simulation's settings.

    Attributes:
        gpu: Product name of every GPU.
        gpus_per_node: GPUs that the fast links join.
        visible_gpus: GPUs that the process may use, or None for as many as it asks for.
        time_scale: Simulated seconds per wall-clock second.
        seed: Seed of all noise and of every drawn acceptance.
        noise_percent: Standard deviation of the multiplicative noise, per engine start and per step.
        start_seconds: Wall-clock seconds of the start, or None to derive it from weights and graphs.
        acceptance_percent: Chance that one drafted token is accepted, given that those before it were.
        faults: What goes wrong on purpose.
    """

    gpu: str = "NVIDIA-L40S"
    gpus_per_node: int = 8
    visible_gpus: int | None = None
    time_scale: float = 1.0
    seed: int = 0
    noise_percent: float = 2.0
    start_seconds: float | None = None
    acceptance_percent: float = 60.0
    faults: Faults = field(default_factory=Faults)


def read_environment(variables: Mapping[str, str], command_line: str = "") -> Environment:
    """Return the settings in these environment variables; what is not set keeps its default.

    Faults may be meant for some configurations only: with `FRONTIER_SIM_FAULTS_ONLY_WITH=--max-num-seqs 16` they
    befall the engines whose command line holds this text, and leave the others alone.

    Args:
        variables: The environment.
        command_line: The engine's arguments, joined by blanks.

    Raises:
        ArgumentsRefusedError: If a variable cannot be read; the message names it, its value and what is expected.
    """
    start = variables.get(PREFIX + "START_SECONDS", "")
    devices = variables.get("CUDA_VISIBLE_DEVICES")
    faults = _faults(variables.get(PREFIX + "FAULTS", ""))
    return Environment(
        gpu=variables.get(PREFIX + "GPU") or Environment.gpu,
        gpus_per_node=int(_number(variables, "GPUS_PER_NODE", Environment.gpus_per_node, low=1)),
        visible_gpus=None if devices is None else len([device for device in devices.split(",") if device.strip()]),
        time_scale=_number(variables, "TIME_SCALE", Environment.time_scale, low=0.001),
        seed=int(_number(variables, "SEED", Environment.seed)),
        noise_percent=_number(variables, "NOISE_PERCENT", Environment.noise_percent, high=100),
        start_seconds=_number(variables, "START_SECONDS", 0) if start else None,
        acceptance_percent=_number(variables, "ACCEPTANCE_PERCENT", Environment.acceptance_percent, high=100),
        faults=faults if variables.get(PREFIX + "FAULTS_ONLY_WITH", "") in command_line else Faults(),
    )


def _number(
    variables: Mapping[str, str], name: str, default: float, low: float = 0.0, high: float = float("inf")
) -> float:
    text = variables.get(PREFIX + name, "")
    if not text:
        return default
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise ArgumentsRefusedError(f"{PREFIX}{name}={text} must be a number from {low:g} to {high:g}")
    return number


def _faults(text: str) -> Faults:
    if not text:
        return Faults()
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ArgumentsRefusedError(f"{PREFIX}FAULTS={text} is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise ArgumentsRefusedError(f"{PREFIX}FAULTS={text} must be a JSON object")
    known = {_camel(field.name): field for field in fields(Faults)}
    for name, value in given.items():
        if name not in known:
            raise ArgumentsRefusedError(
                f"{PREFIX}FAULTS has an unknown fault {name}; known are {', '.join(sorted(known))}"
            )
        wants_flag = known[name].type is bool
        if isinstance(value, bool) != wants_flag or not isinstance(value, int | float) or value < 0:
            wanted = "true or false" if wants_flag else "a number of at least 0"
            raise ArgumentsRefusedError(f"{PREFIX}FAULTS: {name} is {value!r} and must be {wanted}")
    return Faults(**{known[name].name: value for name, value in given.items()})


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
