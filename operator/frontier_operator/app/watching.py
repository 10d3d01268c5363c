"""Asks Prometheus what real traffic shows of live trials, and of the incumbent in the same minutes."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from frontier_operator.api.v1alpha1 import InferenceDeploymentSpec
from frontier_operator.core.live_trials import live_window
from frontier_operator.core.observation import LiveView, Observation, ServingView, TrialView
from frontier_operator.ports import LiveRequest, Ports, Pricing
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import Load, Measurement, Window

logger = logging.getLogger(__name__)


def watch(observation: Observation, spec: InferenceDeploymentSpec, ports: Ports) -> Observation:
    """Return the observation with what real traffic shows of every live trial under way."""
    return replace(observation, trials=tuple(_watched(trial, observation, spec, ports) for trial in observation.trials))


def _watched(trial: TrialView, observation: Observation, spec: InferenceDeploymentSpec, ports: Ports) -> TrialView:
    if not trial.live:
        return trial
    found = live_window(trial, spec, observation.now, observation.tunables.scrape_seconds)
    if found is None:
        return trial
    window, over = found
    incumbent = observation.serving_of(str((observation.status.get("incumbent") or {}).get("revision", "")))
    pods = _serving_pods(incumbent)
    try:
        engine = _measure([trial.name], trial.gpus, window, observation, spec, ports)
    except MeasurementError as error:
        logger.info("%s/%s: live trial %s: %s", observation.namespace, observation.name, trial.name, error)
        return replace(trial, watched=LiveView(None, None, len(pods), over, "Prometheus does not show its window"))
    beside = None
    if incumbent is not None and pods:
        try:
            beside = _measure(pods, gpus(incumbent.configuration) * len(pods), window, observation, spec, ports)
        except MeasurementError as error:
            logger.info(
                "%s/%s: the incumbent beside %s: %s", observation.namespace, observation.name, trial.name, error
            )
    return replace(trial, watched=LiveView(engine, beside, len(pods), over))


def _serving_pods(view: ServingView | None) -> list[str]:
    return sorted(pod.name for pod in view.pods if pod.ready and not pod.terminating) if view is not None else []


def _measure(
    pods: Sequence[str],
    held: int,
    window: Window,
    observation: Observation,
    spec: InferenceDeploymentSpec,
    ports: Ports,
) -> Measurement:
    request = LiveRequest(
        namespace=observation.namespace,
        pods=tuple(pods),
        window=window,
        objectives=spec.to_objectives(),
        pricing=Pricing(held, float(spec.hardware.price_per_gpu_hour)),
        min_requests=spec.measurement.min_requests,
    )
    measured = ports.metrics.live(request)
    # Two digits, so that windows of the same traffic are of one level; the exact rate is among the metrics.
    each = float(f"{measured.load.value / len(pods):.2g}")
    return replace(measured, load=Load(measured.load.kind, each))
