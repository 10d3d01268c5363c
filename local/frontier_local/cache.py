"""The cache directory, and how several processes share it without corrupting it.

Whatever is put there is complete or absent: files are written beside their place and renamed into it, under a lock.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Progress = Callable[[str], None]
"""Receives one line for a person at a time, without a line end."""


def cache_directory() -> Path:
    """Return `$XDG_CACHE_HOME/frontier-local`, or `~/.cache/frontier-local` where the variable is not set."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "frontier-local"


@contextmanager
def file_lock(path: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold an exclusive lock on a file while the block runs; the kernel frees it if the process dies.

    Args:
        path: The lock file; it and its directory are made where they are missing.
        waiting: Called once before waiting, if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def install(source: Path, target: Path) -> None:
    """Copy an executable to its place, so that readers see the whole file or none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        shutil.copyfile(source, temporary)
        temporary.chmod(0o755)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def is_executable(path: Path) -> bool:
    """Return whether the path is a file that this user may run."""
    return path.is_file() and os.access(path, os.X_OK)
