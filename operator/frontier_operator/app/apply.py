"""Carries out actions; each may be repeated without harm, and none decides anything."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from frontier_operator.api import conditions, names
from frontier_operator.api.v1alpha1 import InferenceDeploymentSpec
from frontier_operator.app.observe import owned_by
from frontier_operator.core import render
from frontier_operator.core.decision import (
    Action,
    Announce,
    CreateTrial,
    Expose,
    FinishTrial,
    RecordProgress,
    RecordRung,
    ReleaseTrial,
    Retire,
    Scale,
    Serve,
    StartEngine,
    StartLoad,
)
from frontier_operator.core.observation import Observation
from frontier_operator.core.report import rfc3339
from frontier_operator.errors import OperatorError, TerminalError
from frontier_operator.ports import Manifest, Ports
from frontier_tuner import journal


class Applier:
    """Carries out the actions of one pass over one InferenceDeployment.

    Args:
        observation: The look that the actions were decided on.
        manifest: The InferenceDeployment.
        ports: The doors to the world.
        load: What load Jobs need to know.
    """

    def __init__(self, observation: Observation, manifest: Manifest, ports: Ports, load: render.LoadSettings) -> None:
        self._valid_spec = observation.spec
        self._observation = observation
        self._manifest = manifest
        self._ports = ports
        self._load = load
        self._namespace = observation.namespace
        self._owner = render.Owner(names.INFERENCE_DEPLOYMENT, observation.name, observation.uid)

    @property
    def _spec(self) -> InferenceDeploymentSpec:
        if self._valid_spec is None:
            raise TerminalError("an invalid spec starts nothing")
        return self._valid_spec

    def apply(self, action: Action) -> None:
        """Carry out one action.

        Raises:
            OperatorError: The API server refused or did not answer.
        """
        objects = self._ports.objects
        match action:
            case CreateTrial():
                trial = render.trial(action, self._spec, self._namespace, self._owner, self._observation.fingerprint)
                self._create_or_adopt(trial)
            case StartEngine():
                owner = self._trial_owner(action.trial)
                engine = render.trial_engine(
                    action.trial,
                    self._spec,
                    action.configuration,
                    self._namespace,
                    self._observation.name,
                    owner,
                    live=action.live,
                )
                self._create_or_adopt(engine)
            case StartLoad():
                owner = self._trial_owner(action.trial)
                job = render.load_job(action, self._spec, self._namespace, self._observation.name, owner, self._load)
                self._create_or_adopt(job)
            case RecordProgress():
                self._record(action.trial, lambda status: _progress(status, action, self._observation.now))
            case RecordRung():
                self._record(action.trial, lambda status: _rung(status, action, self._observation.now))
            case FinishTrial():
                self._record(action.trial, lambda status: _finished(status, action, self._observation.now))
            case ReleaseTrial():
                self._release(action.trial)
            case Expose():
                self._apply_own(render.service(self._observation.name, self._namespace, self._owner))
            case Serve():
                deployment = render.serving_deployment(
                    self._observation.name,
                    self._spec,
                    action.configuration,
                    action.replicas,
                    self._namespace,
                    self._owner,
                )
                self._apply_own(deployment)
            case Scale():
                objects.scale("Deployment", self._namespace, action.name, action.replicas)
            case Retire():
                objects.delete("Deployment", self._namespace, action.name)
            case Announce():
                self._ports.events.emit(self._manifest, action.reason, action.message, warning=action.warning)

    def _create_or_adopt(self, manifest: Manifest) -> None:
        if self._ports.objects.create(manifest) is not None:
            return
        self._check_owner(manifest)

    def _apply_own(self, manifest: Manifest) -> None:
        self._check_owner(manifest)
        self._ports.objects.apply(manifest)

    def _check_owner(self, manifest: Manifest) -> None:
        kind, metadata = manifest["kind"], manifest["metadata"]
        found = self._ports.objects.get(kind, metadata["namespace"], metadata["name"])
        if found is not None and not owned_by(found, metadata["ownerReferences"][0]["uid"]):
            name = metadata["name"]
            raise TerminalError(f"{kind} {name} exists and belongs to something else; delete or rename it")

    def _trial_owner(self, name: str) -> render.Owner:
        found = self._ports.objects.get(names.TUNING_TRIAL, self._namespace, name)
        if found is None:
            raise OperatorError(f"TuningTrial {name} is gone")
        return render.Owner(names.TUNING_TRIAL, name, found["metadata"]["uid"])

    def _release(self, trial: str) -> None:
        for view in self._observation.trials + self._observation.stale_trials:
            if view.name != trial:
                continue
            for load in view.loads:
                self._ports.objects.delete("Job", self._namespace, load.name)
            if view.engine is not None and not view.engine.terminating:
                self._ports.objects.delete("Pod", self._namespace, view.engine.name)

    def _record(self, trial: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        found = self._ports.objects.get(names.TUNING_TRIAL, self._namespace, trial)
        if found is None:
            raise OperatorError(f"TuningTrial {trial} is gone")
        status = dict(found.get("status") or {})
        if status.get("outcome"):
            return
        changed = change(status)
        changed["observedGeneration"] = found["metadata"]["generation"]
        self._ports.objects.write_status({**found, "status": changed})


def _condition(status: dict[str, Any], kind: str, reason: str, message: str, now: datetime) -> None:
    status["conditions"] = conditions.set_condition(
        status.get("conditions") or [], kind, "True", reason, message, 1, now
    )


def _progress(status: dict[str, Any], action: RecordProgress, now: datetime) -> dict[str, Any]:
    if action.started_at is not None:
        status["startedAt"] = rfc3339(action.started_at)
        _condition(status, conditions.STARTED, conditions.TRIAL_RUNNING, "the engine's process started", now)
    if action.ready_at is not None:
        status["engineReadyAt"] = rfc3339(action.ready_at)
        _condition(status, conditions.READY, conditions.SERVING, "the engine answers", now)
    return status


def _rung(status: dict[str, Any], action: RecordRung, now: datetime) -> dict[str, Any]:
    measurements = list(status.get("measurements") or [])
    # The index makes a repeated record harmless: a rung that is there already is not appended again.
    if len(measurements) == action.index:
        measurements.append(journal.encode_measurement(action.measurement))
        status["measurements"] = measurements
    validity = action.measurement.validity
    if validity.valid:
        message = f"rung {action.index} at {action.measurement.load} counts"
        _condition(status, conditions.MEASURED, conditions.SERVING, message, now)
    return status


def _finished(status: dict[str, Any], action: FinishTrial, now: datetime) -> dict[str, Any]:
    record = action.record
    # All of them, so that a rung whose own record was lost on the way is in the journal all the same.
    status["measurements"] = [journal.encode_measurement(measurement) for measurement in record.measurements]
    failure = record.failure
    encoded = journal.encode(record)
    for name in ("outcome", "failure", "gpuSeconds", "engineStartSeconds", "incumbent"):
        if encoded.get(name) is not None:
            status[name] = encoded[name]
    status["finishedAt"] = rfc3339(now)
    reason = failure.reason if failure else record.outcome
    message = failure.message if failure else f"{len(record.measurements)} rungs measured"
    _condition(status, conditions.FINISHED, reason, message, now)
    return status
