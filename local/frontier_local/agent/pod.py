"""One pod: from its binding to the last of its processes."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from frontier_local.agent import process, restore, volumes
from frontier_local.agent.api import CONNECTION_ERRORS, ApiError, retry
from frontier_local.agent.container import Container
from frontier_local.agent.environment import PodFacts
from frontier_local.agent.plan import is_sidecar
from frontier_local.agent.refusals import REASON, unsupported_fields
from frontier_local.agent.reporter import StatusReporter
from frontier_local.agent.status import ContainerRecord, Running, Terminated, Verdict, Waiting, pod_status
from frontier_local.agent.tools import NodeFacts, Tools
from frontier_local.agent.volumes import PodVolumes, VolumeError

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_REFRESH_SECONDS = 30.0
_FORCED_GRACE = 1.0
_CANNOT = "the node agent runs pods as local processes and cannot honour"


class Pod:
    """Runs one pod. Its owner calls `start`, then `update` on every change seen, and `forget` when it is gone."""

    def __init__(self, tools: Tools, node: NodeFacts, pod: Json, address: str, changed: Callable[[], None]) -> None:
        """Take the pod as seen first.

        Args:
            tools: Shared tools.
            node: The node it is bound to.
            pod: The pod.
            address: Its address.
            changed: Called after every change of a container's state.
        """
        self._tools = tools
        self._node = node
        self.pod = pod
        self.uid = str(pod["metadata"]["uid"])
        self.address = address
        self._changed = changed
        self._directory = tools.pods_directory / self.uid
        self._facts = PodFacts(pod, address, node.address, node.allocatable)
        self._volumes = PodVolumes(tools.api, self._facts, self._directory / "volumes", tools.ca_file, tools.server)
        self._spec = pod["spec"]
        self._policy = self._spec.get("restartPolicy", "Always")
        restored = restore.restore(pod, datetime.now(UTC))
        self.records = restored.records
        self._verdict = restored.verdict
        self._started_at = restored.started_at
        self._containers: list[Container] = []
        self._final = False
        self._conditions: list[Json] = []
        self.reporter = StatusReporter(tools.api, pod["metadata"], self._status)
        self._tasks: list[asyncio.Task[None]] = []
        self._life: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._removing = False

    def start(self) -> None:
        """Start the pod in the background."""
        self._tasks.append(asyncio.create_task(self.reporter.run()))
        self._life = asyncio.create_task(self._live())
        self._life.add_done_callback(self._log_fault)
        deadline = self._spec.get("activeDeadlineSeconds")
        if deadline is not None:
            self._tasks.append(asyncio.create_task(self._watch_deadline(float(deadline))))

    def _log_fault(self, life: "asyncio.Task[None]") -> None:
        if not life.cancelled() and (error := life.exception()) is not None:
            _LOG.error("pod %s: fault of the agent", self.pod["metadata"]["name"], exc_info=error)

    def _status(self) -> Json:
        init, main = self._init_records(), self._main_records()
        own = {c["type"] for c in self._conditions}
        others = [c for c in (self.pod.get("status") or {}).get("conditions") or [] if c["type"] not in own]
        seen = self.pod | {"status": {"conditions": [*self._conditions, *others]}}
        status = pod_status(
            seen,
            init,
            main,
            pod_ip=self.address,
            host_ip=self._node.address,
            started_at=self._started_at,
            now=datetime.now(UTC),
            verdict=self._verdict,
            ending=self._final,
        )
        self._conditions = status["conditions"]
        return status

    def _init_records(self) -> list[ContainerRecord]:
        return [self.records[c["name"]] for c in self._spec.get("initContainers") or []]

    def _main_records(self) -> list[ContainerRecord]:
        return [self.records[c["name"]] for c in self._spec["containers"]]

    def _publish(self) -> None:
        self.reporter.changed()
        self._changed()

    def _emit(self, reason: str, message: str) -> None:
        self._tools.events.emit(self.pod, "Pod", reason, message, warning=True)

    async def _live(self) -> None:
        """Set up volumes, run init containers, then the containers, until none of them will run again."""
        if self._verdict is not None or not self._accept():
            self._publish()
            return
        self._directory.mkdir(parents=True, exist_ok=True)
        self._publish()
        await self._set_up_volumes()
        self._tasks.append(asyncio.create_task(self._refresh_volumes()))
        if await self._run_init_containers():
            mains = [self._container(spec, self._policy) for spec in self._spec["containers"] if self._due(spec)]
            await _all_done([container.start() for container in mains])
        await self._stop(self._sidecars(), self._grace)
        self._publish()

    def _accept(self) -> bool:
        """Return whether the agent can run the pod; if not, say why in an event and in the status."""
        fields = unsupported_fields(self.pod)
        if not fields:
            return True
        message = f"{_CANNOT}: {', '.join(fields)}"
        self._emit(REASON, message)
        if self._policy == "Never":
            self._verdict = Verdict(REASON, message)
        # Failing a pod that a ReplicaSet wants would only make it create the next one at once.
        for record in self.records.values():
            record.state = Waiting(REASON, message)
        return False

    async def _set_up_volumes(self) -> None:
        """Set up the volumes, again and again until it works."""
        delay = 0.1
        while True:
            try:
                await self._volumes.set_up()
            except (VolumeError, *CONNECTION_ERRORS) as error:
                self._emit("FailedMount", f"MountVolume.SetUp failed: {error}")
            else:
                return
            await asyncio.sleep(delay)
            delay = min(5.0, 2 * delay)

    async def _refresh_volumes(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self._volumes.refresh()
            except (VolumeError, *CONNECTION_ERRORS) as error:
                _LOG.info("volumes of pod %s: %s", self.pod["metadata"]["name"], error)

    def _container(self, spec: Json, policy: str) -> Container:
        container = Container(
            spec,
            self.records[spec["name"]],
            policy,
            tools=self._tools,
            facts=self._facts,
            volumes=self._volumes,
            directory=self._directory,
            changed=self._publish,
        )
        self._containers.append(container)
        return container

    def _due(self, spec: Json) -> bool:
        """Return whether a container has to run: not if it ended for good under an earlier agent."""
        return not isinstance(self.records[spec["name"]].state, Terminated)

    async def _run_init_containers(self) -> bool:
        """Run init containers in order, leaving sidecars running; return False if one failed for good."""
        for spec in self._spec.get("initContainers") or []:
            if is_sidecar(spec):
                sidecar = self._container(spec, "Always")
                sidecar.start()
                await sidecar.started.wait()
                continue
            if not self._due(spec):
                continue
            # An init container that fails is run again unless the pod must never restart anything.
            await _all_done([self._container(spec, "Never" if self._policy == "Never" else "OnFailure").start()])
            ended = self.records[spec["name"]].ended()
            if ended is None or ended.exit_code != 0:
                return False
        for record in self._main_records():
            if isinstance(record.state, Waiting) and record.state.reason == "PodInitializing":
                record.state = Waiting("ContainerCreating")
        return True

    def _sidecars(self) -> list[Container]:
        return [container for container in self._containers if is_sidecar(container.spec)]

    async def _stop(self, containers: list[Container], grace: float) -> None:
        await asyncio.gather(*(container.stop(grace) for container in containers))

    @property
    def _grace(self) -> float:
        """Seconds that the pod has to end, as its deletion or its spec says."""
        metadata = self.pod["metadata"]
        if "deletionGracePeriodSeconds" in metadata:
            return float(metadata["deletionGracePeriodSeconds"])
        return float(self._spec.get("terminationGracePeriodSeconds", 30))

    async def _watch_deadline(self, seconds: float) -> None:
        """Fail the pod when it was active for longer than its deadline."""
        passed = (datetime.now(UTC) - self._started_at).total_seconds()
        await asyncio.sleep(max(0.0, seconds - passed))
        if self._life is None or self._life.done():
            return
        self._verdict = Verdict("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
        self._emit("DeadlineExceeded", self._verdict.message)
        await self.end(self._grace)

    async def end(self, grace: float) -> None:
        """Stop everything within the grace period and write the final status. Idempotent; a shorter grace wins."""
        for container in self._containers:
            if self._ending is not None:
                container.hurry(grace)
        if self._ending is None:
            self._ending = asyncio.create_task(self._end(grace))
        await asyncio.shield(self._ending)

    async def _end(self, grace: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + grace
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
        sidecars = self._sidecars()
        await self._stop([c for c in self._containers if c not in sidecars], grace)
        for sidecar in reversed(sidecars):
            await self._stop([sidecar], max(0.0, until - loop.time()))
        await asyncio.to_thread(process.end_below, self._directory)
        self._final = True
        self._publish()

    def update(self, pod: Json) -> None:
        """Take a change of the pod: a deletion starts its end, everything else only updates what is known."""
        self.pod = pod
        self._volumes.facts = replace(self._facts, pod=pod)
        if pod["metadata"].get("deletionTimestamp"):
            self._tasks.append(asyncio.create_task(self._delete()))
        elif pod["spec"].get("ephemeralContainers"):
            self._emit(REASON, f"{_CANNOT}: spec.ephemeralContainers")

    async def _delete(self) -> None:
        """End the pod, then remove the object; the API server waits for exactly that."""
        if self._removing:
            await self.end(self._grace)
            return
        self._removing = True
        await self.end(self._grace)
        try:
            await retry(self.reporter.flush)
        except CONNECTION_ERRORS as error:
            _LOG.info("final status of pod %s: %s", self.pod["metadata"]["name"], error)
        await remove_object(self._tools, self.pod)

    async def forget(self) -> None:
        """End what still runs, because the object is gone, and remove all that the pod left on the disk."""
        await self.end(_FORCED_GRACE)
        await self.abandon()
        await asyncio.to_thread(volumes.remove, self._directory)
        self._tools.events.forget(self.uid)

    async def abandon(self) -> None:
        """Stop the background tasks, writing nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def restart_running(self, container: str) -> int | None:
        """Return the restart count of the container if it runs now, else None."""
        record = self.records.get(container)
        return record.restart_count if record is not None and isinstance(record.state, Running) else None

    @property
    def directory(self) -> Path:
        """Where the pod keeps its logs and volumes."""
        return self._directory


async def _all_done(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for the tasks; being cancelled cancels none of them, for their processes must be ended in order."""
    if tasks:
        done, _ = await asyncio.wait(tasks)
        for task in done:
            if not task.cancelled():
                task.result()


async def remove_object(tools: Tools, pod: Json) -> None:
    """Remove a pod's object at once, whose processes are gone; one that vanished meanwhile is fine."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    options = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
    try:
        await retry(lambda: tools.api.delete(path, options), attempts=8)
    except ApiError as error:
        if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            _LOG.warning("pod %s cannot be removed: %s", metadata["name"], error)
    except CONNECTION_ERRORS as error:
        _LOG.warning("pod %s cannot be removed: %s", metadata["name"], error)
