"""The event loop of the generator's process, and what the process needs for thousands of streams."""

import asyncio
import gc
import resource
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

_T = TypeVar("_T")
_SWITCH_SECONDS = 0.0005
_COLLECT_SELDOM = (100_000, 50, 100)


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the fastest loop there is and return its result.

    Meanwhile the process may have as many open files as the system allows, and its garbage is collected seldom.
    """
    allow_open_files()
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    # A scrape is written in a thread of its own; the streams must not wait for it longer than this.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # A collection stops all streams, for tens of milliseconds where it looks at everything imported.
    gc.freeze()
    gc.set_threshold(*_COLLECT_SELDOM)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        sys.setswitchinterval(interval)


def allow_open_files() -> None:
    """Raise the process's limit of open files to the highest that is allowed: every stream is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
