"""The status of an InferenceDeployment, from what was seen and decided: the only place that computes conditions."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from frontier_operator.api import conditions as c
from frontier_operator.api import names
from frontier_operator.core.choice import selection_of, techniques_of
from frontier_operator.core.decision import Decision, RolloutState
from frontier_operator.core.judging import step_percent
from frontier_operator.core.observation import Observation, ServingView
from frontier_operator.core.render import serving_deployment_preview
from frontier_operator.core.rollout import canary_replicas
from frontier_operator.core.study import trial_name
from frontier_tuner import journal
from frontier_tuner.configuration import Configuration
from frontier_tuner.frontier import Point, hypervolume, points
from frontier_tuner.lessons import lessons
from frontier_tuner.measurement import COST, ITL, TTFT, Measurement, key
from frontier_tuner.objectives import SLO
from frontier_tuner.selection import select

MAX_FRONTIER = 32
"""Points of the frontier that the status holds; the trials hold all of them."""

MAX_REFUSED, MAX_SENTENCE = 16, 1024
"""Sentences about configurations that are not tried any more, and their characters, that the status holds."""

MEASURED_FIELDS = frozenset({"trial", "load", "window", "metrics", "costPerMillionOutputTokens"})


UNKNOWN_LIVE = {
    c.INSUFFICIENT_SAMPLES: "too few live requests for a verdict",
    c.METRICS_MISSING: "Prometheus lacks metrics of the engines that serve",
}

Verdict = tuple[c.Status, str, str]
"""Status, reason and message of a condition."""


def report(observation: Observation, decision: Decision, applied: Sequence[str] = ()) -> dict[str, Any]:
    """Return the whole status to write; equal inputs give an equal status.

    Args:
        observation: What was seen.
        decision: What was decided on it.
        applied: Sentences about actions that failed; they are shown in the Reconciling condition.
    """
    status = dict(observation.status)
    status["observedGeneration"] = observation.generation
    status["conditions"] = _conditions(observation, decision, applied)
    reconcile = observation.annotations.get(names.ANNOTATION_RECONCILE)
    if reconcile:
        status["lastHandledReconcileAt"] = reconcile
    if decision.rollout is None:
        status["summary"] = {**(status.get("summary") or {}), "reason": decision.reason}
        return status
    status["study"] = _study(observation, decision)
    status["baseline"] = _configured(observation, observation.space.baseline) if observation.space else {}
    status["incumbent"] = _incumbent(observation, decision.rollout)
    status["candidate"] = _candidate(observation, decision.rollout)
    status["blocked"] = [
        {
            "revision": b.revision,
            "reason": c.ROLLED_BACK,
            "message": b.message,
            "since": rfc3339(b.since),
            "until": rfc3339(b.until),
        }
        for b in decision.rollout.blocked
    ]
    status["recommended"] = _recommended(observation, decision)
    status["selection"] = selection_of(observation, decision)
    status |= techniques_of(observation, decision)
    status["frontier"] = [_point(observation, point) for point in _bounded(decision.study.frontier)]
    status["summary"] = _summary(observation, decision)
    return {name: value for name, value in status.items() if value not in ({}, None)}


def rfc3339(time: datetime) -> str:
    """Return a UTC time with whole seconds, as Kubernetes writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _conditions(observation: Observation, decision: Decision, applied: Sequence[str]) -> list[dict[str, Any]]:
    conditions = [dict(item) for item in observation.status.get("conditions") or []]

    def put(type_: str, status: c.Status, reason: str, message: str) -> None:
        nonlocal conditions
        conditions = c.set_condition(
            conditions, type_, status, reason, message, observation.generation, observation.now
        )

    def drop(type_: str) -> None:
        nonlocal conditions
        conditions = [item for item in conditions if item["type"] != type_]

    if decision.rollout is None:
        serving = any(view.ready_replicas for view in observation.serving)
        put(c.STALLED, "True", c.INVALID_SPEC, decision.message)
        put(c.READY, "False", c.INVALID_SPEC, "the last valid spec is still served" if serving else decision.message)
        drop(c.RECONCILING)
        return conditions
    starved = decision.study.reason == c.TOO_FEW_REPLICAS
    if not starved:
        drop(c.STALLED)
    incumbent = observation.serving_of(decision.rollout.revision)
    put(c.READY, *_ready(observation, incumbent))
    settling = incumbent is None or incumbent.ready_replicas < decision.rollout.replicas
    if settling or decision.rollout.candidate is not None or applied:
        put(c.RECONCILING, "True", decision.reason, "; ".join(applied) or decision.message)
    elif starved:
        put(c.STALLED, "True", c.TOO_FEW_REPLICAS, decision.study.message)
    else:
        drop(c.RECONCILING)
    put(c.CONVERGED, *_converged(decision))
    put(c.MEASURED, *_measured(observation))
    put(c.SLO_SATISFIED, *_slo(observation, decision.rollout))
    put(c.COST_SATISFIED, *_cost(observation, decision.rollout))
    selection = decision.study.selection
    if selection is not None and selection.point is None and decision.study.stop:
        put(c.INFEASIBLE, "True", c.NO_FEASIBLE_POINT, selection.message)
    else:
        drop(c.INFEASIBLE)
    return conditions


def _ready(observation: Observation, incumbent: ServingView | None) -> Verdict:
    ready = sum(view.ready_replicas for view in observation.serving)
    if incumbent is not None and ready:
        return "True", c.SERVING, f"{ready} ready replicas behind Service {observation.name}"
    message = incumbent.message if incumbent is not None and incumbent.message else "no engine is ready yet"
    waiting = [pod for view in observation.serving for pod in view.pods if pod.waiting_reason or pod.unschedulable]
    if waiting:
        pod = waiting[0]
        words = f"{pod.waiting_reason} {pod.waiting_message}".strip() or pod.unschedulable
        last = f"; last words: {pod.last_words}" if pod.last_words else ""
        message = f"pod {pod.name}: {words}{last}"
    return "False", c.WAITING_FOR_BASELINE, message


def _converged(decision: Decision) -> Verdict:
    study = decision.study
    if not study.stop:
        return "False", study.reason, study.message
    if study.selection is None or study.selection.point is None:
        message = study.selection.message if study.selection else study.stop_message
        return "False", c.NO_FEASIBLE_POINT, message
    if decision.rollout is not None and decision.rollout.candidate is not None:
        return "False", c.CANARY_RUNNING, decision.message
    if decision.reason in {c.AWAITING_APPROVAL, c.ROLLED_BACK}:
        return "False", decision.reason, decision.message
    return "True", study.stop, study.stop_message


def _measured(observation: Observation) -> Verdict:
    windows = [
        m for trial in observation.trials for m in (trial.record.measurements if trial.record else trial.measurements)
    ]
    if not windows:
        return "Unknown", c.INSUFFICIENT_SAMPLES, "no window was measured yet"
    last = max(windows, key=lambda m: m.window.end)
    if last.validity.valid:
        return "True", c.SERVING, f"the latest window, at {last.load}, is valid"
    return "False", last.validity.reason or c.WINDOW_INVALID, last.validity.message


def _slo(observation: Observation, rollout: RolloutState) -> Verdict:
    live = observation.live.get(rollout.revision)
    spec = observation.spec
    if spec is None or live is None:
        why = observation.live_errors.get(rollout.revision, "no live window of the incumbent yet")
        return "Unknown", c.METRICS_MISSING, why
    if not live.validity.valid:
        # Without the counts: a message that changes with every pass would write the status with every pass.
        return "Unknown", live.validity.reason, UNKNOWN_LIVE.get(live.validity.reason, "the live window does not count")
    missed = []
    for slo in spec.to_objectives().slos:
        value = live.value(slo.key)
        if value is None:
            return "Unknown", c.METRICS_MISSING, f"{slo.key} is unknown in the live window"
        if slo.slack(value) < 0:
            missed.append(f"{slo.name} ({slo.key})")
    if missed:
        return "False", c.SLO_MISSED, "live traffic misses " + ", ".join(missed)
    return "True", c.SLO_MET, "live traffic meets every SLO"


def _cost(observation: Observation, rollout: RolloutState) -> Verdict:
    spec = observation.spec
    ceiling = spec.to_objectives().max_cost if spec else None
    if ceiling is None:
        return "True", c.SLO_MET, "no cost ceiling is declared"
    best = _best(observation, rollout.incumbent)
    cost = best.measured.value(COST) if best else None
    if cost is None:
        return "Unknown", c.INSUFFICIENT_SAMPLES, "the incumbent's cost is not measured yet"
    text = f"{cost:.4g} per million output tokens against {ceiling:.4g}"
    return ("True", c.SLO_MET, text) if cost <= ceiling else ("False", c.SLO_MISSED, text)


def _best(observation: Observation, configuration: Configuration) -> Point | None:
    """Return the rung at which this configuration would serve: the target's choice among its own, else the nearest."""
    spec = observation.spec
    if spec is None:
        return None
    records = [t.record for t in observation.trials if t.record is not None and t.configuration == configuration]
    selection = select(points(records, spec.to_objectives()), spec.to_objectives(), spec.to_target())
    return selection.point or selection.nearest


def _study(observation: Observation, decision: Decision) -> dict[str, Any]:
    outcomes = Counter(t.record.outcome.lower() for t in observation.trials if t.record is not None)
    gpu_hours = sum(t.record.gpu_seconds for t in observation.trials if t.record is not None) / 3600
    study: dict[str, Any] = {
        "fingerprint": observation.fingerprint,
        "trials": {name: outcomes.get(name, 0) for name in ("complete", "infeasible", "failed", "pruned")},
        "gpuHours": f"{gpu_hours:.4f}",
    }
    if any(trial.record is not None for trial in observation.trials):
        study["startNoisePercent"] = f"{decision.study.noise.start * 100:.2f}"
    if observation.learned is not None:
        study["workload"] = dict(observation.learned)
    if observation.trials:
        study["startedAt"] = rfc3339(min(trial.created for trial in observation.trials))
    if decision.study.frontier and observation.spec is not None:
        # Of all points by their values: members of the frontier may leave within noise, and the volume must not fall.
        records = [trial.record for trial in observation.trials if trial.record is not None]
        study["hypervolume"] = f"{hypervolume(points(records, observation.spec.to_objectives())):.1f}"
    if observation.space is not None:
        records = [trial.record for trial in observation.trials if trial.record is not None]
        refused = lessons(records, observation.space.configurations()).sentences
        if refused:
            study["refused"] = [sentence[:MAX_SENTENCE] for sentence in refused[:MAX_REFUSED]]
    if decision.study.stop:
        study["stop"] = decision.study.stop
        study["stopMessage"] = decision.study.stop_message
    return study


def _configured(observation: Observation, configuration: Configuration) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "configuration": journal.encode_configuration(configuration),
        "configurationHash": configuration.hash,
    }
    best = _best(observation, configuration)
    if best is not None:
        entry["measured"] = {k: v for k, v in _point(observation, best).items() if k in MEASURED_FIELDS}
    return entry


def _incumbent(observation: Observation, rollout: RolloutState) -> dict[str, Any]:
    return {
        **_configured(observation, rollout.incumbent),
        "revision": rollout.revision,
        "replicas": rollout.replicas,
        "since": rfc3339(rollout.since),
    }


def _candidate(observation: Observation, rollout: RolloutState) -> dict[str, Any]:
    candidate = rollout.candidate
    if candidate is None or observation.spec is None:
        return {}
    entry: dict[str, Any] = {
        "configuration": journal.encode_configuration(candidate.configuration),
        "configurationHash": candidate.configuration.hash,
        "revision": candidate.revision,
        "step": candidate.step,
        "stepPercent": step_percent(observation, candidate),
        "replicas": canary_replicas(observation, rollout, candidate),
        "startedAt": rfc3339(candidate.started_at),
        "verdicts": list(candidate.verdicts),
    }
    if candidate.step_started_at is not None:
        entry["stepStartedAt"] = rfc3339(candidate.step_started_at)
    if candidate.waiting_since is not None:
        entry["waitingSince"] = rfc3339(candidate.waiting_since)
    return entry


def _recommended(observation: Observation, decision: Decision) -> dict[str, Any]:
    spec, selection = observation.spec, decision.study.selection
    if (
        spec is None
        or spec.rollout.mode == "Automatic"
        or selection is None
        or selection.point is None
        or not decision.study.stop
    ):
        return {}
    configuration = selection.point.configuration
    manifest = serving_deployment_preview(observation.name, spec, configuration, observation.namespace)
    return {**_configured(observation, configuration), "manifest": manifest}


def _point(observation: Observation, point: Point) -> dict[str, Any]:
    encoded = journal.encode_measurement(point.measured)
    entry: dict[str, Any] = {
        "configuration": journal.encode_configuration(point.configuration),
        "configurationHash": point.configuration.hash,
        "trial": trial_name(observation.name, observation.fingerprint, point.trial),
        "load": encoded["load"],
        "window": encoded["window"],
        "metrics": encoded["metrics"],
    }
    cost = point.measured.value(COST)
    if cost is not None:
        entry["costPerMillionOutputTokens"] = f"{cost:.6g}"
    return entry


def _bounded(points: Sequence[Point]) -> Sequence[Point]:
    """Return at most `MAX_FRONTIER` points, both ends and an even choice between them."""
    if len(points) <= MAX_FRONTIER:
        return points
    step = (len(points) - 1) / (MAX_FRONTIER - 1)
    return [points[round(i * step)] for i in range(MAX_FRONTIER)]


def _summary(observation: Observation, decision: Decision) -> dict[str, str]:
    spec, rollout = observation.spec, decision.rollout
    if spec is None or rollout is None:
        return {}
    best = _best(observation, rollout.incumbent)
    configuration = rollout.incumbent
    parallelism = [
        f"{short}{configuration.integer(name)}"
        for short, name in (("tp", "tensorParallelSize"), ("pp", "pipelineParallelSize"), ("dp", "dataParallelSize"))
        if configuration.integer(name, 1) > 1
    ]
    summary = {
        "target": spec.to_target().policy,
        "trials": str(sum(1 for trial in observation.trials if trial.finished)),
        "parallelism": " ".join(parallelism) or "tp1",
        "reason": decision.reason,
    }
    if configuration.integer("maxNumSeqs"):
        summary["batch"] = str(configuration.integer("maxNumSeqs"))
    return summary | _summary_metrics(best.measured if best else None, spec.to_objectives().slos)


def _summary_metrics(measured: Measurement | None, slos: Sequence[SLO]) -> dict[str, str]:
    if measured is None:
        return {}
    percentile = {slo.metric: slo.percentile for slo in slos}
    found: Mapping[str, float | None] = {
        "cost": measured.value(COST),
        "ttft": measured.value(key(TTFT, percentile.get("TTFT", 95))),
        "itl": measured.value(key(ITL, percentile.get("ITL", 95))),
    }
    seconds = {"ttft", "itl"}
    return {
        name: f"{value * 1000:.3g}ms" if name in seconds else f"{value:.4g}"
        for name, value in found.items()
        if value is not None
    }
