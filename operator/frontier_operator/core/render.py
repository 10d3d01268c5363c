"""Builders of the objects that the operator owns: plain dictionaries, no I/O.

Trial engine and serving engine are rendered by the same function, so that what was measured is what serves.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from frontier_operator.api import names
from frontier_operator.api.v1alpha1 import InferenceDeploymentSpec
from frontier_operator.core.decision import CreateTrial, StartLoad
from frontier_operator.core.merge import strategic_merge
from frontier_tuner import journal, study
from frontier_tuner.configuration import Configuration, digest
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.errors import TunerError
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.prometheus.ending import MIN_SCRAPES

TRACE_PATH = "/trace"
STARTUP_PERIOD_SECONDS = 1
"""How often readiness is probed while an engine starts: the trial pays for every second it waits."""

UNWATCHED_SECONDS = 120
"""What a live trial's engine may serve beyond its time before the node ends it: the operator may be gone."""

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the Pod Security Standard `restricted` asks of a container."""

DRAIN = f"""
import os, sys, time, urllib.request
end = time.monotonic() + float(sys.argv[1])
host = os.environ["POD_IP"]
url = "http://%s:{names.ENGINE_PORT}/metrics" % ("[%s]" % host if ":" in host else host)
time.sleep(2)
while time.monotonic() < end:
    lines = urllib.request.urlopen(url, timeout=5).read().decode().splitlines()
    busy = [l for l in lines if l.startswith(("vllm:num_requests_running", "vllm:num_requests_waiting"))]
    if sum(float(l.rsplit(" ", 1)[1]) for l in busy) == 0:
        break
    time.sleep(0.5)
"""
"""Waits until an engine has no request left; vLLM's images have Python."""


@dataclass(frozen=True)
class Owner:
    """The object that owns what is rendered; its deletion takes everything along."""

    kind: str
    name: str
    uid: str

    def reference(self) -> dict[str, Any]:
        """Return the owner reference; it blocks nothing, so deletion never waits for a permission on finalizers."""
        return {
            "apiVersion": names.API_VERSION,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }


def _metadata(
    name: str, namespace: str, owner: Owner, labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels),
        "annotations": dict(annotations or {}),
        "ownerReferences": [owner.reference()],
    }


def command_line(spec: InferenceDeploymentSpec, configuration: Configuration) -> list[str]:
    """Return the engine's arguments for a configuration: model, address, searched parameters, fixed arguments."""
    model = study.model_path(study.source_of(spec, configuration))
    return study.engine_arguments(spec, configuration, model=model, host="$(POD_IP)", port=names.ENGINE_PORT)


def _claim(spec: InferenceDeploymentSpec, configuration: Configuration) -> str:
    scheme, _, rest = study.source_of(spec, configuration).partition("://")
    return rest.partition("/")[0] if scheme == "pvc" else ""


def _scrape(port: int) -> dict[str, str]:
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port), "prometheus.io/path": "/metrics"}


_POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def engine_pod_spec(spec: InferenceDeploymentSpec, configuration: Configuration, grace_seconds: int) -> dict[str, Any]:
    """Return the pod spec of an engine with this configuration, the user's pod template merged over it."""
    probe = {"httpGet": {"path": "/health", "port": "http"}}
    start_seconds = int(spec.measurement.engine_start_timeout.total_seconds())
    container: dict[str, Any] = {
        "name": names.ENGINE_CONTAINER,
        "image": spec.engine.image,
        "args": command_line(spec, configuration),
        "env": [_POD_IP, *(item.model_dump(by_alias=True, exclude_none=True) for item in spec.engine.env)],
        "ports": [{"name": "http", "containerPort": names.ENGINE_PORT}],
        "startupProbe": {
            **probe,
            "periodSeconds": STARTUP_PERIOD_SECONDS,
            "failureThreshold": max(1, start_seconds // STARTUP_PERIOD_SECONDS),
        },
        "readinessProbe": {**probe, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {
            "limits": {spec.hardware.gpu.resource_name: str(gpus(configuration))},
        },
    }
    pod: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": grace_seconds}
    claim = _claim(spec, configuration)
    if claim:
        pod["volumes"] = [{"name": "models", "persistentVolumeClaim": {"claimName": claim, "readOnly": True}}]
        container["volumeMounts"] = [{"name": "models", "mountPath": study.MODELS_PATH, "readOnly": True}]
    template = spec.engine.pod_template
    return strategic_merge(pod, template.get("spec") or {})


def _labels(deployment: str, configuration: Configuration, component: str) -> dict[str, str]:
    return {
        names.LABEL_DEPLOYMENT: deployment,
        names.LABEL_CONFIGURATION: configuration.hash,
        names.LABEL_COMPONENT: component,
    }


def trial(
    action: CreateTrial, spec: InferenceDeploymentSpec, namespace: str, owner: Owner, fingerprint: str
) -> dict[str, Any]:
    """Return the TuningTrial that an action asks for."""
    labels = {**_labels(owner.name, action.configuration, "trial"), names.LABEL_FINGERPRINT: fingerprint}
    kind = spec.search.ladder.kind if spec.search.ladder else "Concurrency"
    ladder = {"kind": kind, "levels": [f"{level:g}" for level in action.levels]}
    gain = action.expected_gain
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.TUNING_TRIAL,
        "metadata": _metadata(action.name, namespace, owner, labels),
        "spec": {
            "deploymentName": owner.name,
            "fingerprint": fingerprint,
            "number": action.number,
            "purpose": action.purpose,
            "configuration": journal.encode_configuration(action.configuration),
            "configurationHash": action.configuration.hash,
            "gpus": gpus(action.configuration),
            **({"mode": "Live"} if action.live else {"ladder": ladder}),
            "reason": action.reason,
            **({} if gain is None else {"expectedGain": journal.decimal(gain)}),
            "image": spec.engine.image,
            "command": command_line(spec, action.configuration),
        },
    }


def trial_engine(
    name: str,
    spec: InferenceDeploymentSpec,
    configuration: Configuration,
    namespace: str,
    deployment: str,
    owner: Owner,
    *,
    live: bool = False,
) -> dict[str, Any]:
    """Return the engine pod of a trial: it has the trial's name and never restarts, so that a crash is seen.

    A live one is selected by the stable Service like the engines that serve, drains like them, and ends by itself where
    no operator is left to end it.
    """
    labels = {**_labels(deployment, configuration, "engine"), names.LABEL_TRIAL: name}
    pod = _serving_pod_spec(spec, configuration) if live else engine_pod_spec(spec, configuration, grace_seconds=5)
    pod["restartPolicy"] = "Never"
    if live:
        labels[names.LABEL_ROLE] = "serving"
        measurement = spec.measurement
        longest = measurement.engine_start_timeout + measurement.warm_up + measurement.max_rung_duration
        pod["activeDeadlineSeconds"] = int(longest.total_seconds()) + UNWATCHED_SECONDS
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(name, namespace, owner, labels, _scrape(names.ENGINE_PORT)),
        "spec": pod,
    }


@dataclass(frozen=True)
class LoadSettings:
    """What a load Job needs beyond the rung.

    Attributes:
        image: The load generator's image.
        deadline_seconds: What the Job may take beyond the longest run: scheduling, pulling the image.
        scrape_wait_seconds: Bound on waiting for a scrape before and after the load.
        scrape_seconds: How often engines and load generators are scraped.
    """

    image: str
    deadline_seconds: float
    scrape_wait_seconds: float = 15.0
    scrape_seconds: float = 5.0


def load_job(
    action: StartLoad,
    spec: InferenceDeploymentSpec,
    namespace: str,
    deployment: str,
    owner: Owner,
    settings: LoadSettings,
) -> dict[str, Any]:
    """Return the Job that puts one rung's load on a trial's engine."""
    name = f"{action.trial}-r{action.index}"
    labels = {
        names.LABEL_DEPLOYMENT: deployment,
        names.LABEL_COMPONENT: "load",
        names.LABEL_TRIAL: action.trial,
        names.LABEL_RUNG: str(action.index),
    }
    trace = spec.workload.trace
    options = _load_options(action, spec, settings)
    container: dict[str, Any] = {
        "name": names.LOAD_CONTAINER,
        "image": settings.image,
        "command": ["frontier", "load"],
        "args": options.arguments(),
        "env": [_POD_IP],
        "ports": [{"name": "metrics", "containerPort": names.LOAD_METRICS_PORT}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": RESTRICTED,
    }
    pod: dict[str, Any] = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    if trace is not None and trace.config_map_ref is not None:
        pod["volumes"] = [{"name": "trace", "configMap": {"name": trace.config_map_ref.name}}]
        container["volumeMounts"] = [{"name": "trace", "mountPath": TRACE_PATH, "readOnly": True}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(name, namespace, owner, labels),
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": int(options.longest_seconds + settings.deadline_seconds),
            "template": {
                "metadata": {"labels": labels, "annotations": _scrape(names.LOAD_METRICS_PORT)},
                "spec": pod,
            },
        },
    }


def _load_options(action: StartLoad, spec: InferenceDeploymentSpec, settings: LoadSettings) -> LoadOptions:
    trace = spec.workload.trace
    key = trace.config_map_ref.key if trace and trace.config_map_ref else ""
    return LoadOptions(
        url=f"http://{_bracketed(action.address)}:{names.ENGINE_PORT}",
        model=spec.model.served_name,
        load=action.load,
        workload=spec.workload.resolve(f"{TRACE_PATH}/{key}"),
        duration_seconds=spec.measurement.max_rung_duration.total_seconds(),
        warm_up_seconds=spec.measurement.warm_up.total_seconds(),
        seed=action.seed,
        slos=spec.to_objectives().slos,
        metrics_listen=f"$(POD_IP):{names.LOAD_METRICS_PORT}",
        scrape_wait_seconds=settings.scrape_wait_seconds,
        summary="/dev/termination-log",
        precision_percent=spec.measurement.precision_percent,
        min_window_seconds=MIN_SCRAPES * settings.scrape_seconds,
        min_requests=spec.measurement.min_requests,
    )


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def revision(spec: InferenceDeploymentSpec, configuration: Configuration) -> str:
    """Return what names everything that an engine's pods are made of; empty where the spec lacks its checkpoint.

    How the operator itself renders a pod is no part of it: a new version of the operator changes nothing that serves.
    """
    try:
        arguments = command_line(spec, configuration)
    except TunerError:
        return ""
    engine = spec.engine
    return digest(
        {
            "configuration": journal.encode_configuration(configuration),
            "arguments": arguments,
            "image": engine.image,
            "env": [item.model_dump(mode="json", by_alias=True, exclude_none=True) for item in engine.env],
            "template": engine.pod_template,
            "claim": _claim(spec, configuration),
            "resource": spec.hardware.gpu.resource_name,
        }
    )


def serving_name(deployment: str, wanted: str) -> str:
    """Return the name of the Deployment that serves a revision."""
    return f"{deployment}-{wanted}"


def serving_deployment(
    deployment: str,
    spec: InferenceDeploymentSpec,
    configuration: Configuration,
    replicas: int,
    namespace: str,
    owner: Owner,
) -> dict[str, Any]:
    """Return the Deployment that serves a configuration, as the present spec has it, behind the stable Service."""
    wanted = revision(spec, configuration)
    labels = {**_labels(deployment, configuration, "engine"), names.LABEL_ROLE: "serving", names.LABEL_REVISION: wanted}
    selector = {k: labels[k] for k in (names.LABEL_DEPLOYMENT, names.LABEL_REVISION, names.LABEL_ROLE)}
    annotations = {
        names.ANNOTATION_CONFIGURATION: json.dumps(journal.encode_configuration(configuration), sort_keys=True)
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(serving_name(deployment, wanted), namespace, owner, labels, annotations),
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            # GPUs for a surge pod may not exist; a changed template takes one pod down at a time instead.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": int(spec.measurement.engine_start_timeout.total_seconds()) + 60,
            "template": {
                "metadata": {"labels": labels, "annotations": _scrape(names.ENGINE_PORT)},
                "spec": _serving_pod_spec(spec, configuration),
            },
        },
    }


def _serving_pod_spec(spec: InferenceDeploymentSpec, configuration: Configuration) -> dict[str, Any]:
    """Return the pod spec of an engine that users reach: it answers what it took on before it ends."""
    pod = engine_pod_spec(spec, configuration, grace_seconds=serving_grace_seconds(spec))
    engine = pod["containers"][0]
    engine.setdefault("lifecycle", {"preStop": {"exec": {"command": drain_command(serving_grace_seconds(spec))}}})
    return pod


def drain_command(grace_seconds: int) -> list[str]:
    """Return what runs before a serving engine is told to end: wait until it has answered all that it took on.

    The pod leaves the Service's endpoints at the same time, so nothing new arrives after a moment. vLLM aborts what is
    in flight when it is signalled, hence the wait; it ends five seconds before the grace period does.
    """
    return ["python3", "-c", DRAIN, str(max(1, grace_seconds - 5))]


def serving_grace_seconds(spec: InferenceDeploymentSpec) -> int:
    """Return what a serving pod may take to finish its requests: twice the E2E bound where there is one, else 120 s."""
    bounds = [slo.bound for slo in spec.to_objectives().slos if slo.metric == "E2E"]
    return max(30, int(2 * max(bounds))) if bounds else 120


def service(deployment: str, namespace: str, owner: Owner) -> dict[str, Any]:
    """Return the stable Service: it selects the ready pods of every configuration that serves."""
    labels = {names.LABEL_DEPLOYMENT: deployment}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(deployment, namespace, owner, labels),
        "spec": {
            "selector": {names.LABEL_DEPLOYMENT: deployment, names.LABEL_ROLE: "serving"},
            "ports": [{"name": "http", "port": names.ENGINE_PORT, "targetPort": "http"}],
        },
    }


def serving_deployment_preview(
    deployment: str, spec: InferenceDeploymentSpec, configuration: Configuration, namespace: str
) -> str:
    """Return the serving Deployment of a configuration as JSON without its owner, for a person to apply elsewhere."""
    manifest = serving_deployment(deployment, spec, configuration, 1, namespace, Owner("", "", ""))
    del manifest["metadata"]["ownerReferences"]
    return json.dumps(manifest, sort_keys=True)
