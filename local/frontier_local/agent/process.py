"""Processes of containers: started in a session of their own, ended completely, found again after the agent died.

Every process carries a mark in its environment, the path of its container's directory, which its descendants inherit.
So what a container leaves behind is found in `/proc` even after it left the process group. The kernel kills a
container's first process when the agent dies (parent-death signal); what is left of its descendants is ended by the
next agent, or by whoever calls `end_leftovers`. Linux only (pidfd, /proc).
"""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from frontier_local.agent.plan import ProcessPlan

MARK = "FRONTIER_CONTAINER_DIRECTORY"
_RECORD = "process.json"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the agent dies; runs between fork and exec."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ManagedProcess:
    """A running process and what it started.

    Attributes:
        pid: Its process id, which is also its group and session.
        started_at: When it was started.
        exited: Resolves to its return code (negative: the signal) after everything it started is gone as well.
    """

    def __init__(self, plan: ProcessPlan, directory: Path, output: IO[bytes] | int, mark: str | None = None) -> None:
        """Start the process.

        Args:
            plan: What to start.
            directory: The container's directory; the record of the process is kept there unless `mark` is given.
            output: Where its standard output and error go.
            mark: Value of the mark for a process that is not the container itself (a probe, a hook).

        Raises:
            OSError: The program does not exist or cannot be executed, or the working directory does not exist.
        """
        self._mark = mark or str(directory)
        self._popen = subprocess.Popen(
            plan.argv,
            executable=_program(plan),
            cwd=plan.directory,
            env=dict(plan.environment) | {MARK: self._mark},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output != subprocess.DEVNULL else subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - it calls one system call and takes no lock
        )
        self.pid = self._popen.pid
        self.started_at = datetime.now(UTC)
        if mark is None:
            record = {"pid": self.pid, "startTicks": _start_ticks(self.pid), "bootID": _boot_id()}
            (directory / _RECORD).write_text(json.dumps(record))
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[int] = loop.create_future()
        self._pidfd = os.pidfd_open(self.pid)
        loop.add_reader(self._pidfd, self._on_exit)

    def _on_exit(self) -> None:
        """Reap the process and end what it left behind, as the death of a container's first process does."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        _kill_group(self.pid)
        returncode = self._popen.wait()
        end_marked(self._mark)
        if not self.exited.done():
            self.exited.set_result(returncode)

    def terminate(self) -> None:
        """Ask the first process to end (SIGTERM); like a container's, it must pass that on to its children itself."""
        if not self.exited.done():
            self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process and its whole group (SIGKILL)."""
        if not self.exited.done():
            _kill_group(self.pid)


def _program(plan: ProcessPlan) -> str:
    """Return the program's path, found on the plan's own PATH rather than the agent's."""
    name = plan.argv[0]
    if "/" in name:
        return name
    for directory in plan.environment.get("PATH", os.defpath).split(os.pathsep):
        candidate = Path(directory) / name
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return str(candidate)
    raise FileNotFoundError(f'exec: "{name}": executable file not found in $PATH')


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_ticks(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot, or None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[19])


def _marked(belongs: Callable[[str], bool]) -> Iterator[int]:
    """Yield the processes whose mark belongs."""
    own = os.getpid()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == own:
            continue
        try:
            content = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue
        for variable in content.split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name == MARK.encode():
                if belongs(value.decode(errors="replace")):
                    yield int(entry.name)
                break


def _end(belongs: Callable[[str], bool]) -> int:
    """Kill every process whose mark belongs and return how many there were; repeated until none is born any more."""
    ended: set[int] = set()
    for _ in range(20):
        found = list(_marked(belongs))
        if not found:
            break
        # One that was killed a moment ago may still be there.
        ended.update(found)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return len(ended)


def end_marked(mark: str) -> int:
    """Kill all processes of a container, or of one probe or hook of it, and return how many there were.

    The mark of a probe or hook is its container's, `#` and a number, so it ends with the container.
    """
    return _end(lambda text: text == mark or text.startswith(f"{mark}#"))


def end_below(directory: Path) -> int:
    """Kill all processes of containers whose directory lies below this one, and return how many there were."""
    return _end(lambda text: text.startswith(f"{directory}{os.sep}"))


def end_leftovers(pods_directory: Path) -> int:
    """Kill all processes that an agent with this directory left behind, and return how many there were.

    A recorded process is killed only if it still is the one that was recorded: same boot, same start time.
    """
    count = 0
    for record_file in pods_directory.glob(f"*/containers/*/{_RECORD}"):
        try:
            record = json.loads(record_file.read_text())
        except ValueError:
            # The agent died while it wrote; the mark finds the process all the same.
            record = {}
        if record and record["bootID"] == _boot_id() and _start_ticks(record["pid"]) == record["startTicks"]:
            _kill_group(record["pid"])
            count += 1
        record_file.unlink()
    return count + end_below(pods_directory)


def last_lines(log: Path, *, lines: int = 80, size: int = 2048) -> str:
    """Return the end of a file: at most so many lines and so many bytes, "" if there is no file."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            content = file.read()
    except OSError:
        return ""
    return b"".join(content.splitlines(keepends=True)[-lines:]).decode(errors="replace")
