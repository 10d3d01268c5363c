"""Durations as Kubernetes and Go write them (`metav1.Duration`): `1h30m`, `500ms`, `2m0.5s`."""

import re

_SECONDS_PER_UNIT = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def parse_duration(text: str) -> float:
    """Return the seconds that a duration such as `1h30m`, `500ms` or `0` stands for.

    Raises:
        ValueError: The text is not a duration; the message shows it and an example.
    """
    stripped = text.strip()
    if stripped == "0":
        return 0.0
    sign, body = (-1.0, stripped[1:]) if stripped.startswith("-") else (1.0, stripped)
    parts = _PART.findall(body)
    if not parts or "".join(number + unit for number, unit in parts) != body:
        raise ValueError(f"{text!r} is not a duration; write it like 30s, 500ms or 1h30m")
    return sign * sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)


def format_duration(seconds: float) -> str:
    """Return the duration in whole milliseconds, largest units first: 5400.5 becomes `1h30m500ms`, 0 becomes `0s`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    milliseconds = round(seconds * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
