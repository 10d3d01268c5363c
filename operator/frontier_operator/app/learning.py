"""Learns a study's workload once, from what the engines that serve have seen; the status keeps it from then on."""

import logging
from dataclasses import replace

from frontier_operator.api import conditions as reasons
from frontier_operator.core.learning import encode, with_workload
from frontier_operator.core.observation import Observation
from frontier_operator.ports import Ports
from frontier_tuner.durations import format_duration
from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.learned import MIN_REQUESTS, TooFewRequestsError

logger = logging.getLogger(__name__)

WAY_OUT = "look back further with spec.workload.fromMetrics.window, or give spec.workload.profile"


def observe_workload(observation: Observation, ports: Ports) -> Observation:
    """Return an observation whose spec has the workload that `fromMetrics` asks for, or that says why it is unknown.

    What the status holds for this study is used as it is. Otherwise Prometheus is asked, and trials wait until the
    answer is in the status: were it lost, the next one would be another workload under the same fingerprint.
    """
    spec = observation.spec
    if spec is None or spec.workload.from_metrics is None:
        return observation
    study = observation.status.get("study") or {}
    if study.get("fingerprint") == observation.fingerprint and study.get("workload"):
        entry = study["workload"]
        return replace(observation, spec=with_workload(spec, entry), learned=entry)
    pods = [pod for view in observation.serving for pod in view.pods if pod.started_at is not None]
    starts = [pod.started_at for pod in pods if pod.started_at is not None]
    if not starts:
        return _unknown(observation, reasons.WAITING_FOR_BASELINE, "the workload is learned once the baseline serves")
    # Beyond its start an engine has seen nothing, and a rate over that time would be too low.
    asked = spec.workload.from_metrics.window.total_seconds()
    window = min(asked, max(1.0, (observation.now - min(starts)).total_seconds()))
    try:
        learned = ports.metrics.learn(observation.namespace, tuple(sorted(pod.name for pod in pods)), window)
    except TooFewRequestsError:
        # Without the count, which changes with every pass and would write the status with every pass.
        message = (
            f"a workload is learned from at least {MIN_REQUESTS} requests, and the engines that serve have finished "
            f"fewer in the last {format_duration(asked)}: send them traffic, {WAY_OUT}"
        )
        return _unknown(observation, reasons.INSUFFICIENT_SAMPLES, message)
    except MeasurementError as error:
        logger.info("%s/%s: workload: %s", observation.namespace, observation.name, error)
        message = "the engines' request lengths cannot be read from Prometheus: see to its scraping, or give "
        return _unknown(observation, reasons.METRICS_MISSING, f"{message}spec.workload.profile")
    entry = encode(learned, window, observation.now)
    message = f"the workload was learned from {learned.requests} requests; trials begin"
    return replace(_unknown(observation, reasons.TRIAL_RUNNING, message), learned=entry)


def _unknown(observation: Observation, reason: str, message: str) -> Observation:
    return replace(observation, unlearned=(reason, message))
