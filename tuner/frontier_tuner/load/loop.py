"""The event loop of the generator's process, and what the process needs for thousands of streams."""

import asyncio
import resource
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

_T = TypeVar("_T")
_SWITCH_SECONDS = 0.0005


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine on the fastest loop there is, with as many open files as the system allows; return its result."""
    allow_open_files()
    # A scrape is written in a thread of its own; the streams must not wait for it longer than this.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def allow_open_files() -> None:
    """Raise the process's limit of open files to the highest that is allowed: every stream is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
