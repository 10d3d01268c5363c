"""The health of one running container: postStart hook, startup probe, then readiness and liveness side by side."""

import asyncio
import time
from collections.abc import Mapping
from typing import Any, Protocol

from frontier_local.agent.probes import probe_forever

_HOOK_SECONDS = 3600.0


class Subject(Protocol):
    """A running container, as far as its health goes."""

    spec: Mapping[str, Any]

    async def ask(self, handler: Mapping[str, Any], seconds: float) -> tuple[bool, str]:
        """Ask a handler once."""

    def set_health(self, *, started: bool | None = None, ready: bool | None = None) -> None:
        """Note what the probes found."""

    async def end_process(self, grace: float) -> None:
        """End the process, which makes the restart policy decide."""

    def emit(self, reason: str, message: str) -> None:
        """Tell of trouble."""

    @property
    def runs(self) -> bool:
        """Whether there still is a process."""

    @property
    def default_grace(self) -> float:
        """The pod's grace period in seconds."""


class Health:
    """Watches one start of a container; a new start gets a new object."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._since = time.monotonic()
        self._endings: set[asyncio.Task[None]] = set()

    async def watch(self) -> None:
        """Probe until cancelled, or until the container is found unhealthy and is being ended."""
        spec = self._subject.spec
        hook = (spec.get("lifecycle") or {}).get("postStart")
        if hook:
            success, message = await self._subject.ask(hook, _HOOK_SECONDS)
            if not success:
                self._end(None, "FailedPostStartHook", f"PostStart hook failed: {message}")
                return
        startup = spec.get("startupProbe")
        if startup and not await self._starts(startup):
            return
        readiness, liveness = spec.get("readinessProbe"), spec.get("livenessProbe")
        self._subject.set_health(started=True, ready=not readiness)
        async with asyncio.TaskGroup() as group:
            if readiness:
                group.create_task(self._probe(readiness, "Readiness"))
            if liveness:
                group.create_task(self._probe(liveness, "Liveness"))

    async def _starts(self, probe: Mapping[str, Any]) -> bool:
        """Return True once the startup probe succeeds; False when it fails for good, and end the container."""
        outcome: list[bool] = []

        def on_answer(verdict: bool | None, message: str) -> bool:
            if message:
                self._subject.emit("Unhealthy", f"Startup probe failed: {message}")
            if verdict is None:
                return True
            outcome.append(verdict)
            return False

        await probe_forever(probe, lambda seconds: self._subject.ask(probe, seconds), on_answer)
        if not outcome[0]:
            name = self._subject.spec["name"]
            self._end(probe, "Killing", f"Container {name} failed startup probe, will be restarted")
        return outcome[0]

    async def _probe(self, probe: Mapping[str, Any], kind: str) -> None:
        """Run the readiness or the liveness probe."""

        def on_answer(verdict: bool | None, message: str) -> bool:
            if message:
                self._subject.emit("Unhealthy", f"{kind} probe failed: {message}")
            if kind == "Readiness":
                if verdict is not None:
                    self._subject.set_health(ready=verdict)
                return True
            if verdict is False:
                name = self._subject.spec["name"]
                self._end(probe, "Killing", f"Container {name} failed liveness probe, will be restarted")
                return False
            return True

        elapsed = time.monotonic() - self._since
        await probe_forever(probe, lambda seconds: self._subject.ask(probe, seconds), on_answer, elapsed)

    def _end(self, probe: Mapping[str, Any] | None, reason: str, message: str) -> None:
        """End the container's process in the background: the watch itself is cancelled when it ends."""
        self._subject.emit(reason, message)
        if not self._subject.runs:
            return
        grace = float((probe or {}).get("terminationGracePeriodSeconds") or self._subject.default_grace)
        task = asyncio.create_task(self._subject.end_process(grace))
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
