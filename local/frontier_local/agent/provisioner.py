"""Persistent volumes for claims: a directory of this machine for each claim that nothing else provides for."""

import asyncio
import logging
import shutil
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from frontier_local.agent.api import CONNECTION_ERRORS, ApiClient, ApiError
from frontier_local.agent.informer import Informer

Json = dict[str, Any]

PROVISIONED = "frontier-operator.dev/provisioned-by"
"""Annotation on the volumes that the agent made."""
_LOG = logging.getLogger(__name__)


def wants_volume(claim: Mapping[str, Any], storage_classes: frozenset[str]) -> bool:
    """Return whether a claim is left to the agent: unbound, naming no volume, no selector and no class that exists."""
    spec = claim["spec"]
    if spec.get("volumeName") or spec.get("selector") or (claim.get("status") or {}).get("phase") == "Bound":
        return False
    return not claim["metadata"].get("deletionTimestamp") and spec.get("storageClassName", "") not in storage_classes


def volume_for(claim: Mapping[str, Any], directory: Path) -> Json:
    """Return the persistent volume to make for a claim, bound to it in advance."""
    metadata, spec = claim["metadata"], claim["spec"]
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }
    return {
        "metadata": {"name": f"pvc-{metadata['uid']}", "annotations": {PROVISIONED: "frontier-node-agent"}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "storageClassName": spec.get("storageClassName", ""),
            "volumeMode": spec.get("volumeMode", "Filesystem"),
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(directory / metadata["namespace"] / metadata["name"])},
            "claimRef": reference,
        },
    }


class Provisioner:
    """Makes volumes for claims as they appear, and removes the volume object and the directory when a claim is gone."""

    def __init__(self, api: ApiClient, claims: Informer, directory: Path) -> None:
        self._api = api
        self._directory = directory
        self._queue: asyncio.Queue[tuple[str, Json]] = asyncio.Queue()
        claims.add_listener(lambda kind, claim: self._queue.put_nowait((kind, claim)))

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            kind, claim = await self._queue.get()
            try:
                await (self._release(claim) if kind == "DELETED" else self._provide(claim))
            except CONNECTION_ERRORS as error:
                _LOG.warning("claim %s: %s", claim["metadata"]["name"], error)

    async def _provide(self, claim: Json) -> None:
        listed = await self._api.get("/apis/storage.k8s.io/v1/storageclasses")
        if not wants_volume(claim, frozenset(item["metadata"]["name"] for item in listed["items"])):
            return
        volume = volume_for(claim, self._directory)
        _make_directory(volume["spec"]["hostPath"]["path"])
        try:
            await self._api.create("/api/v1/persistentvolumes", volume)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise

    async def _release(self, claim: Json) -> None:
        name = f"pvc-{claim['metadata']['uid']}"
        volume = await self._api.find(f"/api/v1/persistentvolumes/{name}")
        if volume is None or PROVISIONED not in (volume["metadata"].get("annotations") or {}):
            return
        await self._api.delete(f"/api/v1/persistentvolumes/{name}", {})
        await asyncio.to_thread(shutil.rmtree, volume["spec"]["hostPath"]["path"], ignore_errors=True)


def _make_directory(path: str) -> None:
    Path(path).mkdir(parents=True, exist_ok=True)
