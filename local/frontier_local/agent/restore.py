"""What an agent makes of a pod that an earlier agent may have run: it adopts no process, so what ran is lost. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from frontier_local.agent.status import ContainerRecord, Terminated, Verdict, Waiting

Json = dict[str, Any]

LOST = "NodeAgentRestarted"
"""Reason of containers and pods whose processes ended with the agent that ran them."""
_KILLED = 137


@dataclass(frozen=True)
class Restored:
    """Where to go on with a pod.

    Attributes:
        records: One record for each container, by name.
        started_at: When the pod was started first.
        verdict: Set when the pod cannot go on: it must never restart, and a container was lost.
    """

    records: dict[str, ContainerRecord]
    started_at: datetime
    verdict: Verdict | None = None


def restore(pod: Mapping[str, Any], now: datetime) -> Restored:
    """Return where to go on with the pod; one without a status of its own starts from nothing."""
    spec, status = pod["spec"], pod.get("status") or {}
    policy = spec.get("restartPolicy", "Always")
    old = {s["name"]: s for key in ("containerStatuses", "initContainerStatuses") for s in status.get(key) or []}
    first = "PodInitializing" if spec.get("initContainers") else "ContainerCreating"
    records: dict[str, ContainerRecord] = {}
    lost: list[str] = []
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        name = container["name"]
        record = ContainerRecord(name, container["image"], f"{pod['metadata']['uid']}/{name}", Waiting(first))
        records[name] = record
        if name in old and _take_over(record, old[name], policy, now):
            lost.append(name)
    started_at = _parsed(status.get("startTime"), now)
    if lost and policy == "Never":
        for name in lost:
            ended = records[name].last_state
            records[name].state = ended or records[name].state
            records[name].last_state = None
            records[name].restart_count -= 1
        return Restored(records, started_at, Verdict(LOST, f"containers {', '.join(lost)} ended with the node agent"))
    return Restored(records, started_at)


def _take_over(record: ContainerRecord, old: Mapping[str, Any], policy: str, now: datetime) -> bool:
    """Take an old container status into the record; return whether its process was running and is lost."""
    record.restart_count = int(old.get("restartCount", 0))
    last = (old.get("lastState") or {}).get("terminated")
    record.last_state = None if last is None else _terminated(last, now)
    state = old.get("state") or {}
    if "terminated" in state:
        ended = _terminated(state["terminated"], now)
        if policy == "Never" or (policy == "OnFailure" and ended.exit_code == 0):
            record.state = ended
        else:
            record.last_state = ended
            record.restart_count += 1
        return False
    if "running" in state:
        began = _parsed(state["running"].get("startedAt"), now)
        record.last_state = Terminated(_KILLED, LOST, began, now, "ended with the node agent that ran it")
        record.restart_count += 1
        return True
    if last is not None:
        # It waited for its restart.
        record.restart_count += 1
    return False


def _terminated(value: Mapping[str, Any], now: datetime) -> Terminated:
    return Terminated(
        int(value["exitCode"]),
        value.get("reason", ""),
        _parsed(value.get("startedAt"), now),
        _parsed(value.get("finishedAt"), now),
        value.get("message", ""),
        int(value.get("signal", 0)),
    )


def _parsed(text: str | None, default: datetime) -> datetime:
    return datetime.fromisoformat(text) if text else default.astimezone(UTC)
