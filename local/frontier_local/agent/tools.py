"""What every pod of a node shares, and what belongs to one pod: handed to its parts instead of looked up."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontier_local.agent.api import ApiClient
from frontier_local.agent.events import EventRecorder
from frontier_local.agent.informer import Informer
from frontier_local.agent.plan import Image

Json = dict[str, Any]


@dataclass(frozen=True)
class Tools:
    """Shared by all pods.

    Attributes:
        api: Client of the API server.
        events: Where events go.
        services: Copy of all Services.
        resolve_image: Returns what an image is, or None for an unknown one; may block for minutes. Raises an exception
            with a sentence for the user when a known image cannot be made.
        executor: Runs `resolve_image`.
        pods_directory: Holds one directory for each pod, by uid.
        ca_file: CA of the cluster.
        server: URL of the API server.
        service_host: Address of the API server in the pods' environment.
        service_port: Its port.
        back_off: Seconds before a container's second restart.
        host_path: `PATH` of the machine.
        inherited: Variables that every process gets.
    """

    api: ApiClient
    events: EventRecorder
    services: Informer
    resolve_image: Callable[[str], Image | None]
    executor: Executor
    pods_directory: Path
    ca_file: Path
    server: str
    service_host: str
    service_port: int
    back_off: float
    host_path: str
    inherited: Mapping[str, str]


@dataclass(frozen=True)
class NodeFacts:
    """What a pod needs to know of its node."""

    name: str
    address: str
    allocatable: Mapping[str, str]
