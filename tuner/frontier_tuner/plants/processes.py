"""Local processes: started in a session of their own, their output kept in a file, ended with all their children."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from frontier_tuner.errors import PlantError

POLL_SECONDS = 0.1
LAST_WORDS_BYTES = 16384
"""An engine core says why it failed some 4 KB before its server has told all that follows from it."""


class Process:
    """One child process.

    Args:
        command: Program and arguments.
        environment: All of its environment.
        log: File that receives its output.

    Raises:
        PlantError: The program cannot be started.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        try:
            with log.open("wb") as output:
                self._child = subprocess.Popen(
                    command,
                    env=dict(environment),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise PlantError(f"{command[0]} cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """Its process id, which is its process group's as well."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, below 0 for a signal; None while the process runs."""
        return self._child.poll()

    def last_words(self) -> str:
        """Return the end of its output."""
        with self._log.open("rb") as file:
            file.seek(max(0, self._log.stat().st_size - LAST_WORDS_BYTES))
            return file.read().decode(errors="replace")

    def wait(self, seconds: float) -> int | None:
        """Wait at most so long for its end and return its exit code, or None."""
        try:
            return self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace_seconds: float = 10.0) -> None:
        """End it and all its children: ask, wait, then kill; safe to call again."""
        if self._child.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(grace_seconds)
        # Children may outlive the process that started them.
        self._signal(signal.SIGKILL)
        self._child.wait()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return


def free_port(host: str) -> int:
    """Return a port of a local address on which nothing listens now."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        port: int = listener.getsockname()[1]
        return port


def loopback_address() -> str:
    """Return a loopback address that this process shares with few others."""
    number = os.getpid()
    return f"127.{number >> 14 & 127 | 64}.{number >> 7 & 127}.{number & 127 | 1}"


def wait_until(moment: float) -> None:
    """Sleep until a time in seconds since the epoch."""
    while (left := moment - time.time()) > 0:
        time.sleep(min(left, 1.0))


def wait_for(holds: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait until something holds, looking ten times a second.

    Raises:
        PlantError: It does not hold after so many seconds; the message says what was waited for.
    """
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise PlantError(f"waited {seconds:g} s in vain for {what}")
        time.sleep(POLL_SECONDS)
