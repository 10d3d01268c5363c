"""All pods of the agent's nodes: one `Pod` for each, from the events of the API server."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any

from frontier_local.agent.addresses import NoAddressError, PodAddresses
from frontier_local.agent.api import CONNECTION_ERRORS
from frontier_local.agent.informer import Informer
from frontier_local.agent.kubelet_server import LogSource
from frontier_local.agent.pod import Pod, remove_object
from frontier_local.agent.restore import LOST
from frontier_local.agent.targets import TargetsFile, pod_target
from frontier_local.agent.tools import NodeFacts, Tools
from frontier_local.agent.volumes import remove

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_TERMINAL = frozenset({"Succeeded", "Failed"})


class Pods:
    """Starts, updates and forgets pods; keeps the Prometheus targets."""

    def __init__(
        self,
        tools: Tools,
        nodes: Mapping[str, NodeFacts],
        pods: Informer,
        addresses: PodAddresses,
        targets: TargetsFile,
    ) -> None:
        """Take the tools, the nodes by name, the copy of all pods, and where addresses and targets are kept."""
        self._tools = tools
        self._nodes = nodes
        self._informer = pods
        self._addresses = addresses
        self._targets = targets
        self._pods: dict[str, Pod] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._closed = False
        pods.add_listener(self._on_event)

    def _on_event(self, kind: str, obj: Json) -> None:
        if self._closed or obj["spec"].get("nodeName") not in self._nodes:
            return
        uid = obj["metadata"]["uid"]
        pod = self._pods.get(uid)
        if kind == "DELETED":
            self._spawn(self._forget(uid))
        elif pod is not None:
            pod.update(obj)
        elif obj["metadata"].get("deletionTimestamp"):
            self._spawn(self._remove_unknown(obj))
        elif (obj.get("status") or {}).get("phase") not in _TERMINAL:
            self._start(obj)

    def _start(self, obj: Json) -> None:
        uid = obj["metadata"]["uid"]
        node = self._nodes[obj["spec"]["nodeName"]]
        if obj["spec"].get("hostNetwork"):
            address = node.address
        else:
            try:
                address = self._addresses.take(uid, (obj.get("status") or {}).get("podIP"))
            except NoAddressError as error:
                self._tools.events.emit(obj, "Pod", "FailedCreatePodSandBox", str(error), warning=True)
                return
        pod = Pod(self._tools, node, obj, address, self.write_targets)
        self._pods[uid] = pod
        pod.start()

    async def _forget(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is not None:
            await pod.forget()
        else:
            await asyncio.to_thread(remove, self._tools.pods_directory / uid)
        self._addresses.release(uid)
        self.write_targets()

    async def _remove_unknown(self, obj: Json) -> None:
        """Let go of a pod that was deleted while no agent ran: its processes are gone already."""
        metadata = obj["metadata"]
        if (obj.get("status") or {}).get("phase") not in _TERMINAL:
            status = {"phase": "Failed", "reason": LOST, "message": "the pod's processes ended with the node agent"}
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
            try:
                await self._tools.api.patch(path, {"metadata": {"uid": metadata["uid"]}, "status": status})
            except CONNECTION_ERRORS as error:
                _LOG.info("pod %s: %s", metadata["name"], error)
        await remove_object(self._tools, obj)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def write_targets(self) -> None:
        """Write the Prometheus targets of all pods whose container runs."""
        found = [pod_target(pod.pod, pod.address, pod.records) for pod in self._pods.values()]
        self._targets.write([target for target in found if target is not None])

    def remove_stale_directories(self) -> None:
        """Remove directories of pods that do not exist any more; call it when all pods are known."""
        for directory in self._tools.pods_directory.iterdir():
            if directory.is_dir() and directory.name not in self._informer.objects:
                remove(directory)

    def find_logs(self, namespace: str, name: str, container: str) -> LogSource | None:
        """Return where the logs of a container are, or None if no node of this agent has it."""
        obj = self._informer.by_name(namespace, name)
        if obj is None or obj["spec"].get("nodeName") not in self._nodes:
            return None
        known = [*obj["spec"]["containers"], *(obj["spec"].get("initContainers") or [])]
        if container not in {c["name"] for c in known}:
            return None
        uid = obj["metadata"]["uid"]

        def running() -> int | None:
            pod = self._pods.get(uid)
            return None if pod is None else pod.restart_running(container)

        return LogSource(self._tools.pods_directory / uid / "containers" / container / "logs", running)

    async def close(self, grace: float) -> None:
        """End all pods within so many seconds. Their objects stay as they are: the next agent goes on from there."""
        self._closed = True
        began = datetime.now(UTC)
        for pod in self._pods.values():
            await pod.abandon()
        await asyncio.gather(*(pod.end(grace) for pod in self._pods.values()))
        self._targets.write([])
        _LOG.info("ended %d pods in %s", len(self._pods), datetime.now(UTC) - began)
