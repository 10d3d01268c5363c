"""One container: prepare, start, probe, restart with back-off, stop."""

import asyncio
import contextlib
import functools
import itertools
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from frontier_local.agent.api import CONNECTION_ERRORS
from frontier_local.agent.backoff import BackOff
from frontier_local.agent.environment import (
    ContainerConfigError,
    PodFacts,
    Sources,
    container_environment,
    references,
    service_variables,
)
from frontier_local.agent.health import Health
from frontier_local.agent.pathmap import PathMap
from frontier_local.agent.plan import TERMINATION_LOG, Image, ProcessPlan, Surroundings, process_plan, should_restart
from frontier_local.agent.probes import ask
from frontier_local.agent.process import ManagedProcess, last_lines
from frontier_local.agent.status import ContainerRecord, Running, Terminated, Waiting, terminated_from_returncode
from frontier_local.agent.tools import Tools
from frontier_local.agent.volumes import PodVolumes

_MESSAGE_BYTES = 4096
_SHORTEST_GRACE = 2.0
_LONGEST_HOOK = 3600.0
_CONFIG_RETRY = BackOff(base=0.5, maximum=10.0)


class Container:
    """Runs one container of a pod until its restart policy says that it is done, or until it is stopped."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        record: ContainerRecord,
        policy: str,
        *,
        tools: Tools,
        facts: PodFacts,
        volumes: PodVolumes,
        directory: Path,
        changed: Callable[[], None],
    ) -> None:
        """Take what the container is and where it belongs.

        Args:
            spec: The container's spec.
            record: Its record, which this object changes from now on.
            policy: Always, OnFailure or Never.
            tools: Shared tools.
            facts: The pod.
            volumes: The pod's volumes, set up.
            directory: The pod's directory.
            changed: Called after each change of the record.
        """
        self.spec = spec
        self.record = record
        self._policy = policy
        self._tools = tools
        self._facts = facts
        self._volumes = volumes
        self._directory = directory / "containers" / str(spec["name"])
        self._home = directory / "home"
        self._changed = changed
        self._back_off = BackOff(base=tools.back_off)
        self._plan: ProcessPlan | None = None
        self._process: ManagedProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._stopping = False
        self._execs = itertools.count()
        self.started = asyncio.Event()
        """Set when the container has started for the first time, its startup probe included."""

    def start(self) -> "asyncio.Task[None]":
        """Start running; the task ends when the container will not run again."""
        self._task = asyncio.create_task(self._run())
        return self._task

    async def _run(self) -> None:
        while True:
            plan = await self._prepare()
            ended = self._launch(plan)
            if ended is None:
                ended = await self._attend()
            self.record.ready = self.record.started = False
            self.record.state = ended
            self._changed()
            if self._stopping or not should_restart(self._policy, ended.exit_code):
                return
            delay = self._back_off.delay((ended.finished_at - ended.started_at).total_seconds())
            self.record.last_state = ended
            if delay > 0:
                await self._wait_before_restart(delay)
            self.record.restart_count += 1

    async def _wait_before_restart(self, delay: float) -> None:
        message = f"back-off {delay:g}s restarting failed container={self.record.name}"
        self._wait_for("CrashLoopBackOff", message)
        self._emit("BackOff", f"Back-off restarting failed container {self.record.name}", warning=True)
        await asyncio.sleep(delay)

    async def _prepare(self) -> ProcessPlan:
        """Return the plan of the process, waiting until image and configuration are there."""
        retry = BackOff(base=self._tools.back_off)
        while (image := await self._pull()) is None:
            await asyncio.sleep(max(1.0, retry.delay(0.0)))
            self._wait_for("ImagePullBackOff", f'Back-off pulling image "{self.spec["image"]}"')
        retry = BackOff(_CONFIG_RETRY.base, _CONFIG_RETRY.maximum)
        while True:
            try:
                return await self._make_plan(image)
            except ContainerConfigError as error:
                message = str(error)
            except CONNECTION_ERRORS as error:
                message = f"the API server does not answer: {error}"
            self._wait_for("CreateContainerConfigError", message)
            self._emit("Failed", f"Error: {message}", warning=True)
            await asyncio.sleep(max(_CONFIG_RETRY.base, retry.delay(0.0)))

    async def _pull(self) -> Image | None:
        """Return the image, or None after telling why it cannot be had."""
        name = str(self.spec["image"])
        resolve = functools.partial(self._tools.resolve_image, name)
        try:
            image = await asyncio.get_running_loop().run_in_executor(self._tools.executor, resolve)
        except (OSError, ValueError, RuntimeError, subprocess.SubprocessError) as error:
            message = f'Failed to pull image "{name}": {error}'
        else:
            if image is not None:
                return image
            message = f'Failed to pull image "{name}": the image map has no entry for it'
        if not (isinstance(self.record.state, Waiting) and self.record.state.reason == "ImagePullBackOff"):
            self._wait_for("ErrImagePull", message)
        self._emit("Failed", message, warning=True)
        return None

    async def _make_plan(self, image: Image) -> ProcessPlan:
        """Resolve everything that the container refers to; raise ContainerConfigError."""
        namespace = self._facts.pod["metadata"]["namespace"]
        config_maps, secrets = references([self.spec])
        base = f"/api/v1/namespaces/{namespace}"
        api = self._tools.api
        sources = Sources(
            {name: await api.find(f"{base}/configmaps/{name}") for name in config_maps},
            {name: await api.find(f"{base}/secrets/{name}") for name in secrets},
        )
        services = service_variables(
            [] if self._facts.pod["spec"].get("enableServiceLinks") is False else self._tools.services.objects.values(),
            namespace,
            self._tools.service_host,
            self._tools.service_port,
        )
        variables = container_environment(self.spec, self._facts, sources, services)
        work = self._directory / "work"
        for directory in (work, self._home, self._directory / "logs"):
            directory.mkdir(parents=True, exist_ok=True)
        surroundings = Surroundings(
            home=self._home,
            directory=work,
            host_path=self._tools.host_path,
            host_name=self._facts.pod["metadata"]["name"],
            kubeconfig=self._volumes.kubeconfig,
            inherited=self._tools.inherited,
        )
        message_path = self.spec.get("terminationMessagePath") or TERMINATION_LOG
        paths = PathMap(self._volumes.mounts(self.spec) | {message_path: self._message_file})
        try:
            return process_plan(self.spec, image, variables, paths, surroundings)
        except ValueError as error:
            raise ContainerConfigError(str(error)) from error

    @property
    def _message_file(self) -> Path:
        return self._directory / "termination-log"

    def log_file(self, restart_count: int) -> Path:
        """Return where the output of this start of the container goes."""
        return self._directory / "logs" / f"{restart_count}.log"

    def _launch(self, plan: ProcessPlan) -> Terminated | None:
        """Start the process; return how it ended if it could not be started."""
        self._message_file.write_bytes(b"")
        count = self.record.restart_count
        self.log_file(count - 2).unlink(missing_ok=True)
        self._plan = plan
        try:
            with self.log_file(count).open("ab", buffering=0) as log:
                self._process = ManagedProcess(plan, self._directory, log)
        except OSError as error:
            now = datetime.now(UTC)
            self._emit("Failed", f"Error: failed to start container {self.record.name}: {error}", warning=True)
            return Terminated(128, "StartError", now, now, str(error))
        self.record.state = Running(self._process.started_at)
        self._emit("Started", f"Started container {self.record.name} as process {self._process.pid}")
        self._changed()
        return None

    async def _attend(self) -> Terminated:
        """Probe the running process until it ends, and return how it ended."""
        process = self._running()
        health = asyncio.create_task(Health(self).watch())
        try:
            returncode = await asyncio.shield(process.exited)
        finally:
            health.cancel()
            if self._kill_timer is not None:
                self._kill_timer.cancel()
                self._kill_timer = None
        self._process = None
        message = self._message_file.read_bytes()[:_MESSAGE_BYTES].decode(errors="replace")
        if not message and returncode != 0 and self.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = last_lines(self.log_file(self.record.restart_count))
        return terminated_from_returncode(returncode, process.started_at, datetime.now(UTC), message)

    def set_health(self, *, started: bool | None = None, ready: bool | None = None) -> None:
        """Take what the probes found into the record."""
        if started is not None:
            self.record.started = started
        if ready is not None:
            self.record.ready = ready
        if self.record.started:
            self.started.set()
        self._changed()

    async def ask(self, handler: Mapping[str, Any], seconds: float) -> tuple[bool, str]:
        """Ask a probe or hook once, within so many seconds; return success and why not."""
        return await ask(handler, self.spec, self._facts.pod_ip, seconds, self._exec)

    async def _exec(self, argv: tuple[str, ...], seconds: float) -> tuple[bool, str]:
        """Run a command as if inside the container; its paths are translated like the container's own."""
        if self._plan is None or not argv:
            return False, "no command"
        paths = PathMap(self._volumes.mounts(self.spec))
        plan = self._plan.with_argv(tuple(paths.translate(word) for word in argv))
        mark = f"{self._directory}#{next(self._execs)}"
        try:
            process = ManagedProcess(plan, self._directory, subprocess.DEVNULL, mark)
        except OSError as error:
            return False, str(error)
        try:
            async with asyncio.timeout(seconds):
                code = await asyncio.shield(process.exited)
        except TimeoutError:
            return False, f"command {argv[0]} did not end within {seconds:g} s"
        finally:
            process.kill()
        return code == 0, "" if code == 0 else f"command {argv[0]} ended with exit code {code}"

    async def end_process(self, grace: float) -> None:
        """End the running process: preStop hook, SIGTERM, and SIGKILL after the grace period in seconds."""
        process = self._running()
        self.hurry(grace)
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        if hook and grace > 0:
            asked = asyncio.create_task(self.ask(hook, min(grace, _LONGEST_HOOK)))
            either: set[asyncio.Future[Any]] = {asked, process.exited}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                asked.cancel()
            elif not asked.result()[0]:
                self._emit("FailedPreStopHook", f"PreStop hook failed: {asked.result()[1]}", warning=True)
            if self._kill_timer is not None:
                left = self._kill_timer.when() - asyncio.get_running_loop().time()
                self.hurry(max(left, _SHORTEST_GRACE))
        process.terminate()
        await asyncio.shield(process.exited)

    def hurry(self, grace: float) -> None:
        """Kill the running process so many seconds from now, instead of whenever it was to be killed."""
        if self._process is None:
            return
        if self._kill_timer is not None:
            self._kill_timer.cancel()
        self._kill_timer = asyncio.get_running_loop().call_later(grace, self._process.kill)

    async def stop(self, grace: float) -> None:
        """Stop the container for good within the grace period; returns when nothing of it runs any more."""
        self._stopping = True
        if self._task is None:
            return
        if self._process is not None:
            self._emit("Killing", f"Stopping container {self.record.name}")
            await self.end_process(grace)
        else:
            self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({self._task})
        if isinstance(self.record.state, Waiting) and self.record.last_state is not None:
            self.record.state = self.record.last_state
        self.record.ready = self.record.started = False
        self._changed()

    def _running(self) -> ManagedProcess:
        if self._process is None:
            raise RuntimeError(f"container {self.record.name} has no process")
        return self._process

    @property
    def runs(self) -> bool:
        """Whether the container has a process now."""
        return self._process is not None

    @property
    def default_grace(self) -> float:
        """The pod's termination grace period in seconds."""
        return float(self._facts.pod["spec"].get("terminationGracePeriodSeconds", 30))

    def emit(self, reason: str, message: str) -> None:
        """Tell of trouble with the container in an event of its pod."""
        self._emit(reason, message, warning=True)

    def _emit(self, reason: str, message: str, *, warning: bool = False) -> None:
        self._tools.events.emit(self._facts.pod, "Pod", reason, message, warning=warning)

    def _wait_for(self, reason: str, message: str) -> None:
        self.record.state = Waiting(reason, message)
        self._changed()
