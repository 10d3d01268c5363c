"""Liveness: the process is alive while every loop has had a pass lately."""

from typing import Any

import kopf

from frontier_operator.wiring import Context

STUCK_SECONDS = 900.0
"""A pass takes seconds; a loop without one for this long hangs, and a restart loses nothing."""


class StuckError(kopf.PermanentError):
    """A loop has not had a pass for too long."""


def configure(registry: kopf.OperatorRegistry, context: Context) -> None:
    """Register the probe behind `/healthz`."""

    @kopf.on.probe(registry=registry, id="oldestPassSeconds")
    async def oldest_pass(**_: Any) -> float:
        age = context.loops.oldest_beat_seconds()
        if age > STUCK_SECONDS:
            raise StuckError(f"no pass for {age:.0f} s")
        return round(age, 1)
