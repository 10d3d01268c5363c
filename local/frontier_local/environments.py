"""Python environments of images, made once in the cache.

An engine's image brings its own Python packages, never the operator's. The environment of an image is named by the
content of its recipe, so equal recipes share one, and a changed recipe gets a new one.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from frontier_local.cache import Progress, cache_directory, file_lock
from frontier_local.errors import ImageError

_LAST_LINES = 12
_COMPLETE = ".complete"


@dataclass(frozen=True)
class PythonRecipe:
    """What an environment holds.

    Attributes:
        requirements: What to install, as `pip` writes it.
        overrides: What to install instead of what the requirements ask for; a package is left out by an override with
            an impossible marker.
    """

    requirements: tuple[str, ...]
    overrides: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Name of the environment: changes with the recipe, the Python version and the machine."""
        content = [platform.python_version(), platform.machine(), self.requirements, self.overrides]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def environment_directory(recipe: PythonRecipe, cache: Path | None = None) -> Path:
    """Return where the environment of a recipe is, or would be."""
    return (cache or cache_directory()) / "environments" / recipe.digest


def ensure_environment(recipe: PythonRecipe, progress: Progress, cache: Path | None = None) -> Path:
    """Return the interpreter of the recipe's environment, making the environment if there is none yet.

    Takes minutes the first time for large packages; every line that the installer prints goes to `progress`.

    Args:
        recipe: What the environment holds.
        progress: Told what takes time.
        cache: Root of the cache; None takes the user's.

    Raises:
        ImageError: `uv` is not installed, or the packages cannot be installed; the message holds its last lines.
    """
    directory = environment_directory(recipe, cache)
    interpreter = directory / "bin" / "python"
    if (directory / _COMPLETE).exists():
        return interpreter
    lock = directory.with_name(f".{directory.name}.lock")
    with file_lock(lock, lambda: progress("waiting for another process that makes the same Python environment")):
        if not (directory / _COMPLETE).exists():
            _make(recipe, directory, progress)
    return interpreter


def _make(recipe: PythonRecipe, directory: Path, progress: Progress) -> None:
    """Make the environment in place: its scripts hold its path, so it could not be moved there."""
    uv = shutil.which("uv")
    if uv is None:
        raise ImageError("uv is needed to make the Python environment of an image; install it with `pip install uv`")
    shutil.rmtree(directory, ignore_errors=True)  # what an interrupted attempt left
    begun = time.monotonic()
    progress(f"making a Python environment with {', '.join(recipe.requirements)} (once)")
    _run([uv, "venv", "--no-project", "--python", sys.executable, str(directory)], progress)
    command = [uv, "pip", "install", "--python", str(directory / "bin" / "python"), *recipe.requirements]
    if recipe.overrides:
        overrides = directory / "overrides.txt"
        overrides.write_text("\n".join(recipe.overrides) + "\n")
        command += ["--override", str(overrides)]
    _run(command, progress)
    (directory / _COMPLETE).touch()
    progress(f"the Python environment is ready after {time.monotonic() - begun:.0f} s")


def _run(command: list[str], progress: Progress) -> None:
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            for line in process.stdout or ():
                last.append(line)
                progress(line.rstrip())
        except BaseException:  # an interrupt must not leave the installer running
            process.terminate()
            raise
    if process.returncode != 0:
        raise ImageError(f"`{' '.join(command)}` failed with exit code {process.returncode}:\n{''.join(last).rstrip()}")
