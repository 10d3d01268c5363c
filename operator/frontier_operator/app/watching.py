"""Asks Prometheus what real traffic shows of live trials, and of the incumbent in the same minutes."""

import logging
from dataclasses import replace

from frontier_operator.api.v1alpha1 import InferenceDeploymentSpec
from frontier_operator.core.live_trials import asks_incumbent, live_window
from frontier_operator.core.observation import LiveView, Observation, ServingView, TrialView
from frontier_operator.ports import LiveRequest, Ports, Pricing
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import Load, Measurement

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
    asked = LiveRequest(
        namespace=observation.namespace,
        pods=(trial.name,),
        window=window,
        objectives=spec.to_objectives(),
        pricing=Pricing(trial.gpus, float(spec.hardware.price_per_gpu_hour)),
        min_requests=spec.measurement.min_requests,
        up_to_now=not over,
    )
    engine = _measure(asked, observation, ports)
    error = "" if engine is not None else "Prometheus does not show its window"
    view = LiveView(engine, None, len(pods), over, error)
    guardrail = spec.measurement.sharing.guardrail_percent
    if incumbent is not None and pods and asks_incumbent(view, asked.objectives, guardrail):
        held = replace(asked.pricing, gpus=gpus(incumbent.configuration) * len(pods))
        view = replace(view, incumbent=_measure(replace(asked, pods=pods, pricing=held), observation, ports))
    return replace(trial, watched=view)


def _serving_pods(view: ServingView | None) -> tuple[str, ...]:
    pods = view.pods if view is not None else ()
    return tuple(sorted(pod.name for pod in pods if pod.ready and not pod.terminating))


def _measure(request: LiveRequest, observation: Observation, ports: Ports) -> Measurement | None:
    try:
        measured = ports.metrics.live(request)
    except MeasurementError as error:
        logger.info("%s/%s: real traffic on %s: %s", observation.namespace, observation.name, request.pods, error)
        return None
    # Two digits, so that windows of the same traffic are of one level; the exact rate is among the metrics.
    each = float(f"{measured.load.value / len(request.pods):.2g}")
    return replace(measured, load=Load(measured.load.kind, each))
