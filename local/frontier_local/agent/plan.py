"""From a container's spec to the process to start. Pure: images, configuration and volumes are resolved before."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frontier_local.agent.environment import expand
from frontier_local.agent.pathmap import PathMap

SERVICE_ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True)
class Image:
    """What an image gives to a container: its entrypoint, its environment, and directories to search for programs."""

    entrypoint: tuple[str, ...]
    environment: Mapping[str, str]
    path: tuple[str, ...]


@dataclass(frozen=True)
class Surroundings:
    """What the machine gives to a container.

    Attributes:
        home: Directory for `HOME`.
        directory: Where the process starts when the container names no `workingDir`.
        host_path: The machine's `PATH`, searched after the image's.
        host_name: The pod's host name.
        kubeconfig: File with the pod's own credentials, or None if it has none.
        inherited: Variables of the agent's own environment that every process gets.
    """

    home: Path
    directory: Path
    host_path: str
    host_name: str
    kubeconfig: Path | None = None
    inherited: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProcessPlan:
    """One process to start: arguments, complete environment, working directory; nothing is left to expand."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path

    def with_argv(self, argv: tuple[str, ...]) -> "ProcessPlan":
        """Return the plan of another command in the same surroundings, as `exec` in a container."""
        return ProcessPlan(argv, self.environment, self.directory)

    def __str__(self) -> str:
        return shlex.join(self.argv)


def process_plan(
    container: Mapping[str, Any],
    image: Image,
    variables: Mapping[str, str],
    paths: PathMap,
    surroundings: Surroundings,
) -> ProcessPlan:
    """Return the process that the container is.

    The environment is, the later wins: the machine's minimum (`PATH`, `HOME`, `HOSTNAME`, `KUBECONFIG`), the image's,
    the container's. Nothing else of the agent's own environment gets in.

    Args:
        container: The container's spec.
        image: Its resolved image.
        variables: Its variables, expanded but not translated.
        paths: Its mounts.
        surroundings: What the machine gives.

    Raises:
        ValueError: Neither the container nor its image names a command.
    """
    image_variables = {"PATH": os.pathsep.join([*image.path, surroundings.host_path])} | dict(image.environment)
    known = image_variables | dict(variables)
    command = tuple(container.get("command") or ())
    args = tuple(container.get("args") or ())
    given = tuple(paths.translate(expand(word, known)) for word in (*command, *args))
    argv = given if command else (*image.entrypoint, *given)
    if not argv:
        raise ValueError(f"container {container['name']}: neither it nor its image has a command; set `command`")
    minimum = dict(surroundings.inherited) | {"HOME": str(surroundings.home), "HOSTNAME": surroundings.host_name}
    if surroundings.kubeconfig is not None and has_service_account(container):
        minimum["KUBECONFIG"] = str(surroundings.kubeconfig)
    translated = {name: paths.translate(value) for name, value in variables.items()}
    directory = container.get("workingDir")
    return ProcessPlan(
        argv=argv,
        environment=minimum | image_variables | translated,
        directory=Path(paths.translate(directory)) if directory else surroundings.directory,
    )


def has_service_account(container: Mapping[str, Any]) -> bool:
    """Return whether the container mounts its pod's service-account token."""
    return any(m["mountPath"].rstrip("/") == SERVICE_ACCOUNT_PATH for m in container.get("volumeMounts") or [])


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Return whether an init container is a sidecar: it keeps running beside the containers."""
    return container.get("restartPolicy") == "Always"


def port_number(container: Mapping[str, Any], port: int | str) -> int:
    """Return the number of a port given by number or by the name of a container port.

    Raises:
        ValueError: The container has no port of that name.
    """
    if isinstance(port, int) or port.isdigit():
        return int(port)
    for item in container.get("ports") or []:
        if item.get("name") == port:
            return int(item["containerPort"])
    raise ValueError(f"port {port}: container {container['name']} has no port of that name")


def should_restart(policy: str, exit_code: int) -> bool:
    """Return whether a container that ended with this code runs again under the restart policy."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)
