"""Whether what runs is what was asked for: an option that an engine silently ignores makes its numbers another's."""

from collections.abc import Callable, Mapping, Sequence

_PERCENT_TOLERANCE = 0.5


def cache_config_mismatches(requested: Mapping[str, object], labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return one sentence for each parameter that the engine's cache configuration contradicts.

    A parameter that the engine does not show is not judged.

    Args:
        requested: Values by parameter name, as in a configuration.
        labels: Labels of `vllm:cache_config_info`.
    """
    found = []
    for parameter, (label, agrees) in _SHOWN.items():
        shown = labels.get(label)
        if parameter in requested and shown is not None and not agrees(requested[parameter], shown):
            found.append(f"{parameter} is {requested[parameter]} by request and {shown} in the engine ({label})")
    return tuple(found)


def _dtype(requested: object, shown: str) -> bool:
    """`auto` leaves the choice to the engine, and `fp8` the format."""
    return requested in ("auto", shown) or shown.startswith(f"{requested}_")


def _flag(requested: object, shown: str) -> bool:
    return str(requested).lower() == shown.lower()


def _percent(requested: object, shown: str) -> bool:
    try:
        return abs(float(str(requested)) - 100 * float(shown)) <= _PERCENT_TOLERANCE
    except ValueError:
        return False


_SHOWN: Mapping[str, tuple[str, Callable[[object, str], bool]]] = {
    "kvCacheDtype": ("cache_dtype", _dtype),
    "enablePrefixCaching": ("enable_prefix_caching", _flag),
    "gpuMemoryUtilizationPercent": ("gpu_memory_utilization", _percent),
    "blockSize": ("block_size", _flag),
}
"""By parameter: the label that shows it, and whether a request and what is shown agree."""


def argument_mismatches(requested: Sequence[str], running: Sequence[str]) -> tuple[str, ...]:
    """Return one sentence for each option of a command line that another one lacks or has with another value.

    Args:
        requested: Arguments that were meant to be given, such as `--max-num-seqs=512`.
        running: Arguments of the process or of the pod.
    """
    wanted, given = _options(requested), _options(running)
    found = []
    for name, value in wanted.items():
        if name not in given:
            found.append(f"{name} was asked for and is not given")
        elif given[name] != value:
            found.append(f"{name} is {value or 'set'} by request and {given[name] or 'set'} where it runs")
    return tuple(found)


def _options(arguments: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            name = name.replace("_", "-")
            options[name] = value
        elif name:
            options[name] = f"{options[name]} {word}".strip()
    return options
