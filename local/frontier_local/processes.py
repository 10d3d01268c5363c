"""Starting, finding again and stopping the processes of a cluster.

A process is remembered as its id together with its start time, because ids are used again: a record whose start time
differs names a process that is gone. Processes outlive the program that started them.
"""

import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_SECONDS = 0.05
_STATE, _START_TIME = 0, 19  # positions in /proc/PID/stat, counted after the command's closing parenthesis


@dataclass(frozen=True)
class ProcessRecord:
    """A process that was started.

    Attributes:
        pid: Its id.
        start_time: When it started, in clock ticks since the machine did.
    """

    pid: int
    start_time: int

    @classmethod
    def read(cls, path: Path) -> "ProcessRecord | None":
        """Return the record in a file, or None if there is none or it was cut off while being written."""
        try:
            values = json.loads(path.read_text())
            return cls(pid=int(values["pid"]), start_time=int(values["startTime"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def write(self, path: Path) -> None:
        """Write the record to a file."""
        path.write_text(json.dumps({"pid": self.pid, "startTime": self.start_time}))

    def is_alive(self) -> bool:
        """Return whether this very process still runs; reaps it if it is a dead child of this program."""
        _reap(self.pid)
        return _running_since(self.pid) == self.start_time


def start(
    command: Sequence[str], environment: Mapping[str, str], log: Path, keep_open: Sequence[int] = ()
) -> ProcessRecord:
    """Start a process in a session of its own and return its record.

    Args:
        command: Absolute program and its arguments.
        environment: Its whole environment.
        log: File to which standard output and error are appended.
        keep_open: File descriptors that the process inherits.
    """
    for descriptor in keep_open:
        os.set_inheritable(descriptor, True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        command[0],
        list(command),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigdef=[signal.SIGINT, signal.SIGTERM, signal.SIGPIPE],
    )
    # The child is not reaped yet, so the entry exists even if the process has died already.
    return ProcessRecord(pid, _start_time(pid))


def stop(records: Sequence[ProcessRecord], grace_seconds: float) -> tuple[ProcessRecord, ...]:
    """Ask processes to end, wait, kill those that did not; returns the ones that had to be killed."""
    for record in records:
        _signal(record, signal.SIGTERM)
    if _wait_gone(records, grace_seconds):
        return ()
    stubborn = tuple(record for record in records if record.is_alive())
    for record in stubborn:
        _signal(record, signal.SIGKILL)
    _wait_gone(stubborn, grace_seconds)
    return stubborn


def carrying(variable: str, value: str) -> Iterator[ProcessRecord]:
    """Yield the user's processes whose environment holds `variable=value`, except this one."""
    wanted = f"{variable}={value}".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it ended meanwhile, or belongs to somebody else
            continue
        since = _running_since(int(entry.name))
        if wanted in environment and since is not None:
            yield ProcessRecord(int(entry.name), since)


def last_lines(log: Path, count: int = 15) -> str:
    """Return the end of a log, or a sentence saying that there is none."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - 16_384))
            lines = handle.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(lines[-count:]) or "(its log is empty)"


def _signal(record: ProcessRecord, number: signal.Signals) -> None:
    """Send a signal to the very process of the record, if it still runs."""
    if record.is_alive():
        try:
            os.kill(record.pid, number)
        except ProcessLookupError:  # it ended between the two lines
            return


def _wait_gone(records: Sequence[ProcessRecord], seconds: float) -> bool:
    """Return whether all processes were gone before the time was up."""
    deadline = time.monotonic() + seconds
    while any(record.is_alive() for record in records):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _reap(pid: int) -> None:
    """Collect the exit status if the process is a dead child of this program."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # somebody else's child
        return


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command, which may itself hold spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _start_time(pid: int) -> int:
    return int(_stat(pid)[_START_TIME])


def _running_since(pid: int) -> int | None:
    """Return the start time of a process, or None if it is gone or waits to be collected by its parent."""
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[_STATE] in ("Z", "X") else int(fields[_START_TIME])
