"""Loops: one task per object, woken by events, repeated on time, never two passes over one object at once."""

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from frontier_operator import telemetry
from frontier_operator.app.reconcile import GONE, Reconciler

logger = logging.getLogger(__name__)

THREADS = 32
"""Passes at one time: one that waits for a hanging Prometheus must not keep other objects waiting."""

FIRST_RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0

Key = tuple[str, str]


@dataclass
class _Loop:
    wake: asyncio.Event
    task: asyncio.Task[None]
    beat: float


@dataclass
class Loops:
    """The loops of all objects. Nothing needed later is kept here: a new process starts them again from the watch."""

    reconciler: Reconciler
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "pass"))
    _loops: dict[Key, _Loop] = field(default_factory=dict)

    def wake(self, namespace: str, name: str) -> None:
        """Look at an object now; starts its loop where there is none."""
        key = (namespace, name)
        loop = self._loops.get(key)
        if loop is None or loop.task.done():
            wake = asyncio.Event()
            task = asyncio.get_running_loop().create_task(self._run(key, wake), name=f"loop-{namespace}/{name}")
            self._loops[key] = _Loop(wake, task, time.monotonic())
        else:
            loop.wake.set()

    def oldest_beat_seconds(self) -> float:
        """Return the age of the oldest heartbeat of all loops, 0 without loops."""
        now = time.monotonic()
        return max((now - loop.beat for loop in self._loops.values() if not loop.task.done()), default=0.0)

    async def close(self) -> None:
        """End all loops; a pass that runs in its thread is let finish."""
        tasks = [loop.task for loop in self._loops.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops.clear()
        self.threads.shutdown(wait=True)

    async def _run(self, key: Key, wake: asyncio.Event) -> None:
        namespace, name = key
        retry = FIRST_RETRY_SECONDS
        while True:
            wake.clear()
            try:
                with telemetry.PASS_SECONDS.time():
                    running = asyncio.get_running_loop()
                    pause = await running.run_in_executor(self.threads, self.reconciler.run, namespace, name)
                telemetry.PASSES.labels("ok").inc()
                retry = FIRST_RETRY_SECONDS
            except Exception:  # the one place where a pass may fail in any way: a loop must outlive it
                telemetry.PASSES.labels("failed").inc()
                logger.exception("%s/%s: the pass failed, the next is in %.0f s", namespace, name, retry)
                pause, retry = retry, min(retry * 2, MAX_RETRY_SECONDS)
            # An object of the same name may have been made while the pass found the old one gone.
            if pause == GONE and not wake.is_set():
                self._loops.pop(key, None)
                telemetry.OBJECTS.set(len(self._loops))
                return
            self._beat(key)
            try:
                await asyncio.wait_for(wake.wait(), timeout=max(0.0, pause))
            except TimeoutError:
                continue

    def _beat(self, key: Key) -> None:
        telemetry.OBJECTS.set(len(self._loops))
        loop = self._loops.get(key)
        if loop is not None:
            loop.beat = time.monotonic()
