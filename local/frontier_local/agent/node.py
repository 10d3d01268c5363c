"""A node in the API: registered, labelled, Ready, and alive by its lease."""

import asyncio
import logging
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from frontier_local.agent.api import CONNECTION_ERRORS, ApiClient, ApiError
from frontier_local.agent.environment import amount
from frontier_local.agent.status import timestamp
from frontier_local.node_spec import KUBELET_PORT, NodeSpec

Json = dict[str, Any]

NOT_ENFORCED = "frontier-operator.dev/not-enforced"
"""Annotation on nodes: what pods may ask for without effect."""
_NOT_ENFORCED_TEXT = (
    "pods are local processes: CPU and memory limits, securityContext, readOnly mounts, network policies and DNS names "
    "of Services have no effect; GPUs are counted, not assigned"
)
_NOT_READY_TAINT = "node.kubernetes.io/not-ready"
_LEASE_SECONDS = 40
_HEARTBEAT_SECONDS = 10.0
_MAX_PODS = 500
_LOG = logging.getLogger(__name__)


def capacity(spec: NodeSpec) -> dict[str, str]:
    """Return the node's capacity, which is also what it can allocate."""
    resources = {"cpu": str(spec.cpus), "memory": spec.memory, "pods": str(_MAX_PODS), "ephemeral-storage": "1Ti"}
    if spec.gpus:
        resources[spec.gpu_resource] = str(spec.gpus)
    return resources


def labels(spec: NodeSpec) -> dict[str, str]:
    """Return the node's labels; GPU labels as the GPU feature discovery writes them."""
    found = {"kubernetes.io/hostname": spec.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": _architecture()}
    if spec.gpus:
        found |= {
            "nvidia.com/gpu.product": spec.gpu_product,
            "nvidia.com/gpu.memory": str(_mebibytes(spec.gpu_memory)),
            "nvidia.com/gpu.count": str(spec.gpus),
        }
    return found


def _architecture() -> str:
    """Return the machine's architecture as Go names it."""
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _mebibytes(quantity: str) -> int:
    """Return a quantity of bytes in MiB, the unit of the label."""
    return int(amount(quantity) // (1024 * 1024))


def node_status(spec: NodeSpec, ready: bool, now: datetime, existing: Mapping[str, Any]) -> Json:
    """Return the node's status; the time of the last transition is kept where nothing changed."""
    wanted = [
        ("Ready", ready, "NodeAgentReady" if ready else "NodeAgentStopped", "the node agent runs pods as processes"),
        ("MemoryPressure", False, "NotObserved", "the node agent does not observe pressure"),
        ("DiskPressure", False, "NotObserved", "the node agent does not observe pressure"),
        ("PIDPressure", False, "NotObserved", "the node agent does not observe pressure"),
    ]
    old = {c["type"]: c for c in existing.get("conditions") or []}
    conditions = []
    for kind, holds, reason, message in wanted:
        status = "True" if holds else "False"
        kept = old[kind]["lastTransitionTime"] if kind in old and old[kind]["status"] == status else timestamp(now)
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": timestamp(now),
                "lastTransitionTime": kept,
            }
        )
    return {
        "capacity": capacity(spec),
        "allocatable": capacity(spec),
        "conditions": conditions,
        "addresses": [{"type": "InternalIP", "address": spec.address}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
        "nodeInfo": _node_info(),
    }


def _node_info() -> Json:
    machine_id = Path("/etc/machine-id")
    return {
        "machineID": machine_id.read_text().strip() if machine_id.exists() else "",
        "systemUUID": "",
        "bootID": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "kernelVersion": os.uname().release,
        "osImage": f"{platform.system()} {platform.machine()}",
        "containerRuntimeVersion": "process://1",
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": _architecture(),
    }


class Node:
    """Registers one node and keeps it alive."""

    def __init__(self, api: ApiClient, spec: NodeSpec) -> None:
        self._api = api
        self.spec = spec
        self._path = f"/api/v1/nodes/{spec.name}"

    async def register(self) -> None:
        """Create or update the node, make it Ready, and clear the taint that the API server put on it."""
        metadata = {
            "name": self.spec.name,
            "labels": labels(self.spec),
            "annotations": {NOT_ENFORCED: _NOT_ENFORCED_TEXT},
        }
        try:
            node = await self._api.create("/api/v1/nodes", {"metadata": metadata, "spec": {}})
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            node = await self._api.patch(self._path, {"metadata": metadata})
        await self._renew_lease()
        await self._report(True, node.get("status") or {})
        await self._taint(False)

    async def _report(self, ready: bool, existing: Mapping[str, Any]) -> None:
        status = node_status(self.spec, ready, datetime.now(UTC), existing)
        await self._api.patch(f"{self._path}/status", {"status": status})

    async def _taint(self, present: bool) -> None:
        """Put the not-ready taint on the node or take it off; other taints stay."""
        node = await self._api.get(self._path)
        taints = [t for t in node["spec"].get("taints") or [] if t["key"] != _NOT_READY_TAINT]
        if present:
            taints.append({"key": _NOT_READY_TAINT, "effect": "NoSchedule"})
        await self._api.patch(self._path, {"spec": {"taints": taints}}, strategic=False)

    async def _renew_lease(self) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self.spec.name, "leaseDurationSeconds": _LEASE_SECONDS, "renewTime": now}
        base = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        try:
            await self._api.patch(f"{base}/{self.spec.name}", {"spec": spec}, strategic=False)
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            await self._api.create(base, {"metadata": {"name": self.spec.name}, "spec": spec})

    async def run(self) -> None:
        """Renew the lease until cancelled, and register again if somebody deleted the node."""
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            try:
                await self._renew_lease()
                if await self._api.find(self._path) is None:
                    await self.register()
            except CONNECTION_ERRORS as error:
                _LOG.info("heartbeat of node %s: %s", self.spec.name, error)

    async def retire(self) -> None:
        """Say that the node is not ready, so that nothing is scheduled to it while no agent runs."""
        await self._taint(True)
        await self._report(False, {})
