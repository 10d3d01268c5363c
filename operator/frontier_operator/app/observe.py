"""Gathers an observation: everything that the decision may know, read at one time."""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from frontier_operator.api import names
from frontier_operator.api.policy import Policy
from frontier_operator.api.v1alpha1 import FieldError, InferenceDeploymentSpec, parse
from frontier_operator.app.learning import observe_workload
from frontier_operator.app.watching import watch
from frontier_operator.core import views
from frontier_operator.core.observation import LoadView, Observation, PodView, ServingView, TrialView, Tunables
from frontier_operator.core.rollout import parse_time
from frontier_operator.errors import OperatorError
from frontier_operator.ports import LiveRequest, Manifest, Ports, Pricing, RungRequest
from frontier_tuner import journal
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.errors import InvalidSpaceError, MeasurementError, TunerError
from frontier_tuner.failures import hides_its_cause
from frontier_tuner.load.summary import parse_summary
from frontier_tuner.load.workload import declared_hit_percent
from frontier_tuner.measurement import Measurement, Window
from frontier_tuner.prometheus.effective import argument_mismatches
from frontier_tuner.space import SearchSpace
from frontier_tuner.study import fingerprint, space_of

logger = logging.getLogger(__name__)

LIVE_WINDOW = timedelta(minutes=5)
"""How far back the incumbent's live window reaches while no canary runs."""

CAUSE_LINES = 400
"""How much of an ended engine's log is read for the cause of its end."""


@dataclass(frozen=True)
class _Owned:
    """The API objects that belong to one InferenceDeployment."""

    trials: Sequence[Manifest]
    pods: Sequence[Manifest]
    jobs: Sequence[Manifest]
    deployments: Sequence[Manifest]


def observe(manifest: Manifest, ports: Ports, tunables: Tunables, policy: Policy) -> Observation:
    """Return one look at an InferenceDeployment; asks the API server and, where a window has ended, Prometheus."""
    metadata = manifest["metadata"]
    parsed = parse(manifest, policy)
    space: SearchSpace | None = None
    problems: tuple[FieldError, ...] = ()
    spec: InferenceDeploymentSpec | None = None
    if isinstance(parsed, list):
        problems = tuple(parsed)
    else:
        spec = parsed
        space, problems = _space(parsed)
    owned = _owned(ports, metadata["namespace"], metadata["name"], metadata["uid"])
    annotations = metadata.get("annotations") or {}
    study = fingerprint(spec, annotations.get(names.ANNOTATION_RECONCILE, "")) if spec is not None else ""
    observation = Observation(
        now=ports.clock.now(),
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=int(metadata["generation"]),
        annotations=annotations,
        spec=spec if space is not None else None,
        problems=problems,
        status=manifest.get("status") or {},
        space=space,
        fingerprint=study,
        tunables=tunables,
        serving=_serving(owned),
        service=_service(ports, metadata),
    )
    if spec is None or space is None:
        stale = [_trial(item, owned, None, ports) for item in owned.trials]
        return replace(observation, stale_trials=tuple(stale))
    observation = observe_workload(observation, ports)
    spec = observation.spec or spec
    trials = [_trial(item, owned, spec, ports) for item in owned.trials]
    current = sorted((t for t in trials if t.fingerprint == study), key=lambda t: t.number)
    stale = [t for t in trials if t.fingerprint != study and not (t.finished and t.engine is None and not t.loads)]
    observation = replace(observation, trials=tuple(current), stale_trials=tuple(stale))
    return watch(_with_live(observation, spec, ports), spec, ports)


def _space(spec: InferenceDeploymentSpec) -> tuple[SearchSpace | None, tuple[FieldError, ...]]:
    try:
        return space_of(spec), ()
    except InvalidSpaceError as error:
        return None, tuple(FieldError("spec.search.parameters", "", problem) for problem in error.problems)
    except TunerError as error:
        return None, (FieldError("spec.model", "", str(error)),)


def _owned(ports: Ports, namespace: str, name: str, uid: str) -> _Owned:
    labels = {names.LABEL_DEPLOYMENT: name}

    def ours(kind: str) -> list[Manifest]:
        # An object of the same name that was deleted a moment ago may still have some.
        return [item for item in ports.objects.find(kind, namespace, labels) if owned_by(item, uid)]

    return _Owned(
        trials=ours(names.TUNING_TRIAL),
        deployments=ours("Deployment"),
        # Pods come last: a load that failed because its engine died is then seen together with the dead engine.
        jobs=ports.objects.find("Job", namespace, labels),
        pods=ports.objects.find("Pod", namespace, labels),
    )


def owned_by(manifest: Mapping[str, Any], uid: str) -> bool:
    """Return whether an object carries an owner reference to this UID."""
    return any(owner["uid"] == uid for owner in manifest["metadata"].get("ownerReferences") or [])


def _service(ports: Ports, metadata: Mapping[str, Any]) -> Literal["Missing", "Ours", "Foreign"]:
    found = ports.objects.get("Service", metadata["namespace"], metadata["name"])
    if found is None or "deletionTimestamp" in found["metadata"]:
        return "Missing"
    return "Ours" if owned_by(found, metadata["uid"]) else "Foreign"


def _label(manifest: Mapping[str, Any], label: str) -> str:
    return str((manifest["metadata"].get("labels") or {}).get(label, ""))


def _serving(owned: _Owned) -> tuple[ServingView, ...]:
    pods = defaultdict(list)
    for item in owned.pods:
        if _label(item, names.LABEL_ROLE) == "serving":
            pods[_label(item, names.LABEL_REVISION)].append(item)
    return tuple(
        views.serving(item, pods[_label(item, names.LABEL_REVISION)])
        for item in owned.deployments
        if "deletionTimestamp" not in item["metadata"]
        and names.ANNOTATION_CONFIGURATION in (item["metadata"].get("annotations") or {})
    )


def _trial(manifest: Manifest, owned: _Owned, spec: InferenceDeploymentSpec | None, ports: Ports) -> TrialView:
    name = manifest["metadata"]["name"]
    engine = next((item for item in owned.pods if item["metadata"]["name"] == name), None)
    known = len((manifest.get("status") or {}).get("measurements") or [])
    finished = bool((manifest.get("status") or {}).get("outcome"))
    loads = []
    for job in owned.jobs:
        if _label(job, names.LABEL_TRIAL) != name or "deletionTimestamp" in job["metadata"]:
            continue
        load = _load(job, owned)
        if load.state == "Succeeded" and load.index == known and not finished and spec is not None:
            load = _measured(load, job, owned, spec, ports, manifest)
        loads.append(load)
    view = views.trial(manifest, engine, loads)
    return view if finished or view.engine is None else replace(view, engine=_with_cause(view.engine, manifest, ports))


def _with_cause(engine: PodView, trial: Manifest, ports: Ports) -> PodView:
    """Read more of the log where the last words only point at a cause that was said before them."""
    if engine.exit_code is None or not hides_its_cause(engine.last_words):
        return engine
    namespace = trial["metadata"]["namespace"]
    try:
        log = ports.logs.tail(namespace, engine.name, names.ENGINE_CONTAINER, CAUSE_LINES)
    except OperatorError as error:
        logger.warning("%s/%s: its log cannot be read: %s", namespace, engine.name, error)
        return engine
    return replace(engine, last_words=log or engine.last_words)


def _load(job: Manifest, owned: _Owned) -> LoadView:
    status = job.get("status") or {}
    state: Literal["Running", "Succeeded", "Failed"] = "Running"
    message = ""
    finished_at = None
    for condition in status.get("conditions") or []:
        if condition["status"] == "True" and condition["type"] in {"Complete", "Failed"}:
            state = "Succeeded" if condition["type"] == "Complete" else "Failed"
            message = condition.get("message", "") if state == "Failed" else ""
            finished_at = parse_time(condition["lastTransitionTime"])
    pod = _load_pod(job, owned)
    if state == "Failed" and pod is not None and pod.last_words:
        message = f"{message}: {pod.last_words}"
    index = int(_label(job, names.LABEL_RUNG))
    return LoadView(index, job["metadata"]["name"], state, message, finished_at=finished_at)


def _load_pod(job: Manifest, owned: _Owned) -> PodView | None:
    for item in owned.pods:
        if owned_by(item, job["metadata"]["uid"]):
            return views.pod(item, names.LOAD_CONTAINER)
    return None


def _measured(
    view: LoadView, job: Manifest, owned: _Owned, spec: InferenceDeploymentSpec, ports: Ports, trial: Manifest
) -> LoadView:
    pod = _load_pod(job, owned)
    if pod is None:
        return replace(view, metrics_error="the load generator's pod is gone and its summary with it")
    try:
        summary = parse_summary(pod.last_words)
    except MeasurementError as error:
        return replace(view, state="Failed", message=str(error))
    unlearned = spec.workload.from_metrics is not None
    declared = None if unlearned else declared_hit_percent(spec.workload.resolve())
    request = RungRequest(
        namespace=job["metadata"]["namespace"],
        engine_pod=trial["metadata"]["name"],
        load_pod=pod.name,
        summary=summary,
        objectives=spec.to_objectives(),
        pricing=_pricing(spec, int(trial["spec"]["gpus"])),
        min_requests=spec.measurement.min_requests,
        configuration=journal.decode_configuration(trial["spec"]["configuration"]),
        declared_hit_percent=declared,
        mismatches=_not_as_asked(trial, owned),
    )
    try:
        return replace(view, measurement=ports.metrics.rung(request))
    except MeasurementError as error:
        return replace(view, metrics_error=str(error))


def _not_as_asked(trial: Manifest, owned: _Owned) -> tuple[str, ...]:
    """Return what an engine's container is started without, as where a webhook has changed the pod."""
    asked = trial["spec"].get("command") or []
    for item in owned.pods:
        if item["metadata"]["name"] == trial["metadata"]["name"]:
            containers = item["spec"]["containers"]
            running = [each.get("args") or [] for each in containers if each["name"] == names.ENGINE_CONTAINER]
            return argument_mismatches(asked, running[0]) if running else ()
    return ()


def _pricing(spec: InferenceDeploymentSpec, gpus: int) -> Pricing:
    return Pricing(gpus, float(spec.hardware.price_per_gpu_hour), float(spec.hardware.cached_input_percent))


def _with_live(observation: Observation, spec: InferenceDeploymentSpec, ports: Ports) -> Observation:
    """Ask for live windows: of both since the canary's step began, else of the incumbent over the last minutes."""
    status = observation.status
    candidate = status.get("candidate") or {}
    started = candidate.get("stepStartedAt")
    if not (status.get("incumbent") or {}).get("revision") or (candidate and not started):
        return observation
    start = parse_time(started) if started else observation.now - LIVE_WINDOW
    wanted = [str(status["incumbent"]["revision"])]
    if candidate:
        wanted.append(str(candidate["revision"]))
    live: dict[str, Measurement] = {}
    errors: dict[str, str] = {}
    for revision in wanted:
        view = observation.serving_of(revision)
        ready = tuple(sorted(pod.name for pod in view.pods if pod.started_at is not None)) if view else ()
        if view is None or not ready:
            errors[revision] = "no pod of it serves"
            continue
        held = gpus(view.configuration) * len(ready)
        request = LiveRequest(
            namespace=observation.namespace,
            pods=ready,
            window=Window(_not_after(start, observation.now), observation.now),
            objectives=spec.to_objectives(),
            pricing=_pricing(spec, held),
            min_requests=spec.rollout.canary.min_requests,
        )
        try:
            live[revision] = ports.metrics.live(request)
        except MeasurementError as error:
            logger.info("%s/%s: live window of %s: %s", observation.namespace, observation.name, revision, error)
            errors[revision] = "the live window cannot be read from Prometheus"
    return replace(observation, live=live, live_errors=errors)


def _not_after(start: datetime, now: datetime) -> datetime:
    return min(start, now - timedelta(seconds=1))
