"""Prometheus targets of running pods, as a PodMonitor would make them, in a file that Prometheus watches."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from frontier_local.agent.status import ContainerRecord, Running

Json = dict[str, Any]

_SCRAPE = "prometheus.io/scrape"
_PORT = "prometheus.io/port"
_PATH = "prometheus.io/path"
_SCHEME = "prometheus.io/scheme"


def pod_target(pod: Mapping[str, Any], address: str, records: Mapping[str, ContainerRecord]) -> Json | None:
    """Return the target of a pod, or None if it wants none or the container that serves metrics does not run.

    The container is the one that declares the annotated port, else the first. Without an annotated port its first
    declared port is used.
    """
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
    if annotations.get(_SCRAPE) != "true":
        return None
    containers = pod["spec"]["containers"]
    port = annotations.get(_PORT, "")
    owner = next(
        (c for c in containers if any(str(p["containerPort"]) == port for p in c.get("ports") or [])), containers[0]
    )
    if not port and owner.get("ports"):
        port = str(owner["ports"][0]["containerPort"])
    record = records.get(owner["name"])
    if not port.isdigit() or record is None or not isinstance(record.state, Running):
        return None
    return {
        "targets": [f"{address}:{port}"],
        "labels": {
            "__metrics_path__": annotations.get(_PATH, "/metrics"),
            "__scheme__": annotations.get(_SCHEME, "http"),
            "job": "pods",
            "namespace": metadata["namespace"],
            "pod": metadata["name"],
            "container": owner["name"],
            "node": pod["spec"]["nodeName"],
        },
    }


class TargetsFile:
    """The file; written only when its content changes, and by rename."""

    def __init__(self, directory: Path, name: str) -> None:
        """Take the directory that Prometheus watches and a name for the file, without ending."""
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / f"{name}.json"
        self._written: str | None = None

    def write(self, targets: Iterable[Json]) -> None:
        """Make the file hold exactly these targets."""
        content = json.dumps(sorted(targets, key=lambda target: target["targets"]), indent=1)
        if content == self._written:
            return
        fresh = self._path.with_suffix(".new")
        fresh.write_text(content)
        fresh.replace(self._path)
        self._written = content
