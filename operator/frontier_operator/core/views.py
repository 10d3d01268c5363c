"""API objects to views: parsing only, no I/O."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from frontier_operator.api import names
from frontier_operator.core.observation import LoadView, PodView, ServingView, TrialView
from frontier_operator.core.rollout import parse_time, time_or_none
from frontier_tuner import journal


def pod(manifest: Mapping[str, Any], container: str) -> PodView:
    """Return the view of a pod, seen through one of its containers."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    conditions = {item["type"]: item for item in status.get("conditions") or []}
    state, restarts, last = _container(status, container)
    waiting, running = state.get("waiting") or {}, state.get("running") or {}
    ended = state.get("terminated") or {}
    scheduled = conditions.get("PodScheduled") or {}
    ready = conditions.get("Ready") or {}
    is_ready = ready.get("status") == "True"
    return PodView(
        name=metadata["name"],
        phase=status.get("phase") or "Pending",
        ready=is_ready,
        ip=status.get("podIP") or "",
        created=parse_time(metadata["creationTimestamp"]),
        scheduled_at=time_or_none(scheduled.get("lastTransitionTime")) if scheduled.get("status") == "True" else None,
        unschedulable=scheduled.get("message", "") if scheduled.get("status") == "False" else "",
        waiting_reason=waiting.get("reason", ""),
        waiting_message=waiting.get("message", ""),
        started_at=time_or_none(running.get("startedAt") or ended.get("startedAt")),
        ready_at=time_or_none(ready.get("lastTransitionTime")) if is_ready else None,
        finished_at=time_or_none(ended.get("finishedAt")),
        exit_code=ended.get("exitCode"),
        termination_reason=status.get("reason") or ended.get("reason", ""),
        last_words=(ended.get("message") or (last.get("terminated") or {}).get("message") or "").strip(),
        restarts=restarts,
        terminating="deletionTimestamp" in metadata,
    )


def _container(status: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], int, Mapping[str, Any]]:
    for item in status.get("containerStatuses") or []:
        if item["name"] == name:
            return item.get("state") or {}, int(item.get("restartCount") or 0), item.get("lastState") or {}
    return {}, 0, {}


def trial(manifest: Mapping[str, Any], engine: Mapping[str, Any] | None, loads: Sequence[LoadView]) -> TrialView:
    """Return the view of a TuningTrial with its engine's pod and its load Jobs."""
    metadata, spec, status = manifest["metadata"], manifest["spec"], manifest.get("status") or {}
    name, ladder = metadata["name"], spec.get("ladder") or {}
    measurements = tuple(journal.decode_measurement(item) for item in status.get("measurements") or [])
    record = journal.decode({**spec, **status}) if status.get("outcome") else None
    return TrialView(
        name=name,
        number=int(spec["number"]),
        purpose=spec["purpose"],
        configuration=journal.decode_configuration(spec["configuration"]),
        gpus=int(spec["gpus"]),
        levels=tuple(float(level) for level in ladder.get("levels", ())),
        kind=ladder.get("kind", "RequestRate"),
        fingerprint=spec["fingerprint"],
        reason=spec.get("reason", ""),
        created=parse_time(metadata["creationTimestamp"]),
        measurements=measurements,
        record=record,
        engine=pod(engine, names.ENGINE_CONTAINER) if engine else None,
        loads=tuple(loads),
        started_at=time_or_none(status.get("startedAt")),
        ready_at=time_or_none(status.get("engineReadyAt")),
        live=spec.get("mode") == "Live",
        expected_gain=float(spec["expectedGain"]) if "expectedGain" in spec else None,
    )


def serving(manifest: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> ServingView:
    """Return the view of a serving Deployment with its pods."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    values = json.loads(metadata["annotations"][names.ANNOTATION_CONFIGURATION])
    trouble = [
        item.get("message", "")
        for item in status.get("conditions") or []
        if (item["type"], item["status"]) in {("Progressing", "False"), ("ReplicaFailure", "True")}
    ]
    containers = manifest["spec"]["template"]["spec"]["containers"]
    engine: Mapping[str, Any] = next((item for item in containers if item["name"] == names.ENGINE_CONTAINER), {})
    return ServingView(
        name=metadata["name"],
        configuration=journal.decode_configuration(values),
        revision=metadata["labels"][names.LABEL_REVISION],
        image=engine.get("image", ""),
        args=tuple(engine.get("args") or ()),
        replicas=int(manifest["spec"].get("replicas") or 0),
        ready_replicas=int(status.get("readyReplicas") or 0),
        pods=tuple(pod(item, names.ENGINE_CONTAINER) for item in pods),
        message="; ".join(trouble),
    )
