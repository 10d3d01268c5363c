"""A pod's status, from the states of its containers. Pure: times come in, plain JSON values go out.

The phase and the conditions follow the kubelet's rules, so that the Job and ReplicaSet controllers see what they
expect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from frontier_local.agent.plan import is_sidecar

Json = dict[str, Any]


def timestamp(moment: datetime) -> str:
    """Return an aware time as the API writes it, in whole seconds UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Waiting:
    """A container that does not run: why, in a word and in a sentence."""

    reason: str
    message: str = ""

    def to_json(self) -> Json:
        """Return the state as the API writes it."""
        return {"waiting": {"reason": self.reason} | ({"message": self.message} if self.message else {})}


@dataclass(frozen=True)
class Running:
    """A container whose process runs since `started_at`."""

    started_at: datetime

    def to_json(self) -> Json:
        """Return the state as the API writes it."""
        return {"running": {"startedAt": timestamp(self.started_at)}}


@dataclass(frozen=True)
class Terminated:
    """A container whose process ended.

    Attributes:
        exit_code: 128 + signal when a signal ended it.
        reason: `Completed` for 0, `Error` otherwise, or a reason of the agent. The agent never says `OOMKilled`: it
            sets no memory limit, so it cannot know.
        started_at: When the process started.
        finished_at: When it ended.
        message: The termination message.
        signal: The signal that ended it, 0 if none did.
    """

    exit_code: int
    reason: str
    started_at: datetime
    finished_at: datetime
    message: str = ""
    signal: int = 0

    def to_json(self) -> Json:
        """Return the state as the API writes it."""
        value: Json = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": timestamp(self.started_at),
            "finishedAt": timestamp(self.finished_at),
        }
        if self.message:
            value["message"] = self.message
        if self.signal:
            value["signal"] = self.signal
        return {"terminated": value}


ContainerState = Waiting | Running | Terminated


def terminated_from_returncode(
    returncode: int, started_at: datetime, finished_at: datetime, message: str
) -> Terminated:
    """Return the state of a process that ended with a `subprocess` return code (negative: ended by that signal)."""
    signal = -returncode if returncode < 0 else 0
    exit_code = 128 + signal if signal else returncode
    reason = "Completed" if exit_code == 0 else "Error"
    return Terminated(exit_code, reason, started_at, finished_at, message, signal)


@dataclass
class ContainerRecord:
    """What is known of one container; its owner changes it, `pod_status` reads it."""

    name: str
    image: str
    identifier: str
    state: ContainerState = Waiting("ContainerCreating")
    last_state: Terminated | None = None
    restart_count: int = 0
    started: bool = False
    ready: bool = False

    def ended(self) -> Terminated | None:
        """Return how the container ended last, if it does not run now."""
        match self.state:
            case Terminated():
                return self.state
            case Waiting():
                return self.last_state
            case Running():
                return None

    def to_json(self) -> Json:
        """Return the container's status as the API writes it."""
        value: Json = {
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restart_count,
            "state": self.state.to_json(),
            "lastState": {} if self.last_state is None else self.last_state.to_json(),
        }
        if not isinstance(self.state, Waiting) or self.last_state is not None:
            value["containerID"] = f"process://{self.identifier}/{self.restart_count}"
        return value


@dataclass(frozen=True)
class Verdict:
    """A phase that the agent decided, whatever the containers say (deadline passed, unsupported, lost)."""

    reason: str
    message: str


def pod_phase(spec: Mapping[str, Any], init: Sequence[ContainerRecord], main: Sequence[ContainerRecord]) -> str:
    """Return Pending, Running, Succeeded or Failed, by the kubelet's rules."""
    policy = spec.get("restartPolicy", "Always")
    sidecars = {c["name"] for c in spec.get("initContainers") or [] if is_sidecar(c)}
    for record in init:
        if not _initialised(record, record.name in sidecars):
            lost = record.ended() is not None and record.name not in sidecars and policy == "Never"
            return "Failed" if lost else "Pending"
    ended = [record.ended() for record in main]
    running = [isinstance(record.state, Running) for record in main]
    if any(end is None and not runs for end, runs in zip(ended, running, strict=True)):
        return "Pending"
    if any(running) or policy == "Always":
        return "Running"
    if all(end is not None and end.exit_code == 0 for end in ended):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def final_phase(main: Sequence[ContainerRecord]) -> str:
    """Return the phase of a pod whose processes are gone for good: Succeeded if all ended with 0, else Failed."""
    ended = [record.ended() for record in main]
    return "Succeeded" if all(e is not None and e.exit_code == 0 for e in ended) else "Failed"


def pod_conditions(
    spec: Mapping[str, Any],
    phase: str,
    init: Sequence[ContainerRecord],
    main: Sequence[ContainerRecord],
    existing: Sequence[Mapping[str, Any]],
    now: datetime,
) -> list[Json]:
    """Return the conditions of the pod; `lastTransitionTime` is kept where the status did not change."""
    done = phase in {"Succeeded", "Failed"}
    ended_reason = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase)
    sidecars = {c["name"] for c in spec.get("initContainers") or [] if is_sidecar(c)}
    uninitialised = [r.name for r in init if not _initialised(r, r.name in sidecars)]
    unready = [r.name for r in [*(r for r in init if r.name in sidecars), *main] if not r.ready]
    gates = [g["conditionType"] for g in spec.get("readinessGates") or []]
    open_gates = [g for g in gates if not any(c["type"] == g and c["status"] == "True" for c in existing)]
    not_ready = f"containers with unready status: [{' '.join(unready)}]" if unready else ""
    containers = _condition(
        "ContainersReady", not unready and not done, ended_reason or "ContainersNotReady", not_ready
    )
    ready = _condition("Ready", not unready and not done, ended_reason or "ContainersNotReady", not_ready)
    if ready["status"] == "True" and open_gates:
        ready = _condition("Ready", False, "ReadinessGatesNotReady", f"readiness gates not True: {open_gates}")
    incomplete = f"containers with incomplete status: [{' '.join(uninitialised)}]"
    wanted = [
        _condition("PodReadyToStartContainers", not done, "", ""),
        _condition("Initialized", not uninitialised or phase == "Succeeded", "ContainersNotInitialized", incomplete),
        ready,
        containers,
        _condition("PodScheduled", True, "", ""),
    ]
    return [_with_transition(condition, existing, now) for condition in wanted]


def _initialised(record: ContainerRecord, sidecar: bool) -> bool:
    """Return whether an init container has done its part."""
    ended = record.ended()
    if sidecar:
        return record.started or ended is not None
    return ended is not None and ended.exit_code == 0


def _condition(kind: str, holds: bool, reason: str, message: str) -> Json:
    """Return a condition; reason and message are told only when it does not hold, null otherwise to clear old ones."""
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": None if holds else reason or None,
        "message": None if holds else message or None,
    }


def _with_transition(condition: Json, existing: Sequence[Mapping[str, Any]], now: datetime) -> Json:
    """Return the condition with the time of its last transition."""
    old = next((c for c in existing if c["type"] == condition["type"]), None)
    kept = old.get("lastTransitionTime") if old is not None and old["status"] == condition["status"] else None
    return condition | {"lastTransitionTime": kept or timestamp(now)}


def pod_status(
    pod: Mapping[str, Any],
    init: Sequence[ContainerRecord],
    main: Sequence[ContainerRecord],
    *,
    pod_ip: str,
    host_ip: str,
    started_at: datetime,
    now: datetime,
    verdict: Verdict | None = None,
    ending: bool = False,
) -> Json:
    """Return the status to merge into the pod's.

    Args:
        pod: The pod as last seen; its conditions tell what changed.
        init: Its init containers, in order.
        main: Its containers, in order.
        pod_ip: Its address.
        host_ip: The address of its node.
        started_at: When the agent first saw it.
        now: For conditions that change.
        verdict: Fails the pod with this reason.
        ending: All processes are gone for good, so the phase must be final.
    """
    spec = pod["spec"]
    if verdict is not None:
        phase = "Failed"
    elif ending:
        phase = final_phase(main)
    else:
        phase = pod_phase(spec, init, main)
    status: Json = {
        "phase": phase,
        "conditions": pod_conditions(spec, phase, init, main, (pod.get("status") or {}).get("conditions") or [], now),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": timestamp(started_at),
        "containerStatuses": [record.to_json() for record in main],
        "observedGeneration": pod["metadata"].get("generation"),
    }
    if init:
        status["initContainerStatuses"] = [record.to_json() for record in init]
    if verdict is not None:
        status |= {"reason": verdict.reason, "message": verdict.message}
    return status
