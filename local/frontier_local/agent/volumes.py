"""Volumes of a pod as directories below the pod's own, and the mounts of its containers."""

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from frontier_local.agent.api import ApiClient, ApiError
from frontier_local.agent.environment import ContainerConfigError, PodFacts, decoded
from frontier_local.agent.plan import SERVICE_ACCOUNT_PATH

Json = dict[str, Any]

_TOKEN_RENEWAL_SHARE = 0.8
_DEFAULT_MODE = 0o644


class VolumeError(Exception):
    """A volume cannot be set up now; the message names it. It may work later."""


@dataclass
class PodVolumes:
    """The volumes of one pod.

    Attributes:
        api: For configMaps, Secrets, claims and tokens.
        facts: For the downward API.
        directory: Holds one directory for each volume.
        ca_file: CA of the cluster, for the pod's kubeconfig.
        server: URL of the API server, for the same.
    """

    api: ApiClient
    facts: PodFacts
    directory: Path
    ca_file: Path
    server: str
    real: dict[str, Path] = field(default_factory=dict)
    kubeconfig: Path | None = None
    _tokens: dict[Path, float] = field(default_factory=dict)

    @property
    def _namespace(self) -> str:
        return str(self.facts.pod["metadata"]["namespace"])

    async def set_up(self) -> None:
        """Create all volumes of the pod, and its kubeconfig if it mounts a token.

        Raises:
            VolumeError: One of them cannot be set up now.
            ApiError, aiohttp.ClientError: The API server refused or is away.
        """
        for volume in self.facts.pod["spec"].get("volumes") or []:
            self.real[volume["name"]] = await self._set_up(volume)
        self._write_kubeconfig()

    async def refresh(self) -> None:
        """Write the content of configMaps, Secrets and the downward API anew, and tokens close to their end.

        Raises:
            VolumeError: One of them went away; the old content stays.
        """
        for volume in self.facts.pod["spec"].get("volumes") or []:
            if {"configMap", "secret", "projected", "downwardAPI"} & volume.keys():
                await self._set_up(volume)

    async def _set_up(self, volume: Mapping[str, Any]) -> Path:
        name = volume["name"]
        if "hostPath" in volume:
            return _host_path(name, volume["hostPath"])
        if "persistentVolumeClaim" in volume:
            return await self._claim(name, volume["persistentVolumeClaim"]["claimName"])
        root = self.directory / str(name)
        root.mkdir(parents=True, exist_ok=True)
        if "projected" in volume:
            projected = volume["projected"]
            files: dict[str, tuple[bytes, int]] = {}
            for source in projected.get("sources") or []:
                files |= await self._content(name, source, projected.get("defaultMode", _DEFAULT_MODE), root)
            _write_files(root, files)
        elif "emptyDir" not in volume:
            mode = next(iter(v for k, v in volume.items() if k != "name")).get("defaultMode", _DEFAULT_MODE)
            _write_files(root, await self._content(name, volume, mode, root))
        return root

    async def _content(
        self, name: str, source: Mapping[str, Any], mode: int, root: Path
    ) -> dict[str, tuple[bytes, int]]:
        """Return the files of one source: path → content and mode. A token that is still good is left out."""
        if "configMap" in source:
            return await self._from_object(name, "configmap", source["configMap"], mode)
        if "secret" in source:
            return await self._from_object(name, "secret", source["secret"], mode)
        if "downwardAPI" in source:
            return {
                item["path"]: (self._downward(name, item).encode(), item.get("mode", mode))
                for item in source["downwardAPI"].get("items") or []
            }
        token = source["serviceAccountToken"]
        path = root / token["path"]
        if self._tokens.get(path, 0.0) > time.time():
            return {}
        return {token["path"]: (await self._token(token, path), 0o600)}

    async def _from_object(
        self, volume: str, kind: str, source: Mapping[str, Any], mode: int
    ) -> dict[str, tuple[bytes, int]]:
        name = source.get("name") or source.get("secretName")
        plural = "configmaps" if kind == "configmap" else "secrets"
        found = await self.api.find(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}")
        if found is None:
            if source.get("optional"):
                return {}
            raise VolumeError(f'volume {volume}: {kind} "{name}" not found')
        data = decoded(kind, found)
        if not source.get("items"):
            return {key: (value, mode) for key, value in data.items()}
        files = {}
        for item in source["items"]:
            if item["key"] in data:
                files[item["path"]] = (data[item["key"]], item.get("mode", mode))
            elif not source.get("optional"):
                raise VolumeError(f'volume {volume}: {kind} "{name}" has no key {item["key"]}')
        return files

    def _downward(self, volume: str, item: Mapping[str, Any]) -> str:
        try:
            if "fieldRef" in item:
                return self.facts.field_value(item["fieldRef"]["fieldPath"])
            return self.facts.resource_value(item["resourceFieldRef"], {})
        except ContainerConfigError as error:
            raise VolumeError(f"volume {volume}: {error}") from error

    async def _token(self, source: Mapping[str, Any], path: Path) -> bytes:
        """Fetch a token for the pod's service account, bound to the pod."""
        metadata = self.facts.pod["metadata"]
        account = self.facts.pod["spec"].get("serviceAccountName") or "default"
        seconds = int(source.get("expirationSeconds") or 3600)
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": [source["audience"]] if source.get("audience") else [],
                "expirationSeconds": seconds,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]},
            },
        }
        try:
            answer = await self.api.create(
                f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token", request
            )
        except ApiError as error:
            raise VolumeError(f"token of service account {account}: {error}") from error
        self._tokens[path] = time.time() + seconds * _TOKEN_RENEWAL_SHARE
        return str(answer["status"]["token"]).encode()

    async def _claim(self, volume: str, claim_name: str) -> Path:
        """Return the directory of the persistent volume that the claim is bound to."""
        claim = await self.api.find(f"/api/v1/namespaces/{self._namespace}/persistentvolumeclaims/{claim_name}")
        bound = (claim or {}).get("spec", {}).get("volumeName")
        if not bound:
            raise VolumeError(f"volume {volume}: claim {claim_name} does not exist or is not bound")
        persistent = await self.api.get(f"/api/v1/persistentvolumes/{bound}")
        source = persistent["spec"].get("hostPath") or persistent["spec"].get("local")
        if source is None:
            raise VolumeError(f"volume {volume}: persistent volume {bound} is neither hostPath nor local")
        path = Path(source["path"])
        if not await asyncio.to_thread(path.exists):
            raise VolumeError(f"volume {volume}: {path} of persistent volume {bound} does not exist")
        return path

    def _write_kubeconfig(self) -> None:
        """Write a kubeconfig that reads the mounted token: in-cluster configuration looks at a fixed path only."""
        mount = next(
            (
                self.real[m["name"]]
                for c in self.facts.pod["spec"]["containers"]
                for m in c.get("volumeMounts") or []
                if m["mountPath"].rstrip("/") == SERVICE_ACCOUNT_PATH
            ),
            None,
        )
        if mount is None:
            return
        self.kubeconfig = self.directory.parent / "kubeconfig"
        cluster = {"server": self.server, "certificate-authority": str(self.ca_file)}
        context = {"cluster": "local", "user": "pod", "namespace": self._namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "pod",
            "clusters": [{"name": "local", "cluster": cluster}],
            "users": [{"name": "pod", "user": {"tokenFile": str(mount / "token")}}],
            "contexts": [{"name": "pod", "context": context}],
        }
        # JSON is YAML, and needs no dumper to be readable by every client.
        self.kubeconfig.write_text(json.dumps(config, indent=2))
        self.kubeconfig.chmod(0o600)

    def mounts(self, container: Mapping[str, Any]) -> dict[str, Path]:
        """Return mount path → real path of the container's mounts; directories for `subPath` are made.

        Raises:
            ContainerConfigError: A mount names no volume of the pod, or its `subPath` leaves the volume.
        """
        found: dict[str, Path] = {}
        for mount in container.get("volumeMounts") or []:
            if mount["name"] not in self.real:
                raise ContainerConfigError(f"volumeMount {mount['name']}: the pod has no such volume")
            real = self.real[mount["name"]]
            sub_path = mount.get("subPath")
            if sub_path:
                if ".." in PurePosixPath(sub_path).parts or sub_path.startswith("/"):
                    raise ContainerConfigError(f"volumeMount {mount['name']}: subPath {sub_path} leaves the volume")
                real = real / sub_path
                if not real.exists():
                    real.mkdir(parents=True)
            found[mount["mountPath"]] = real
        return found


def _host_path(name: str, source: Mapping[str, Any]) -> Path:
    """Return the host's path, made if its type asks for that."""
    path = Path(source["path"])
    match source.get("type") or "":
        case "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        case "FileOrCreate":
            path.touch()
        case "Directory" if not path.is_dir():
            raise VolumeError(f"volume {name}: hostPath {path} is not a directory")
        case "File" if not path.is_file():
            raise VolumeError(f"volume {name}: hostPath {path} is not a file")
        case _:
            pass
    return path


def _write_files(root: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Write files into a volume, each by rename so that a reader never sees half of one; unchanged ones stay."""
    for relative, (content, mode) in files.items():
        target = root / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if target.read_bytes() == content:
                continue
        fresh = target.with_name(f"..{target.name}.new")
        fresh.write_bytes(content)
        fresh.chmod(mode)
        os.replace(fresh, target)  # noqa: PTH105 - beside the temporary file it reads better than Path.replace


def remove(directory: Path) -> None:
    """Remove a pod's directory with all of its volumes; what is mounted from elsewhere is only a path and stays."""
    shutil.rmtree(directory, ignore_errors=True)
