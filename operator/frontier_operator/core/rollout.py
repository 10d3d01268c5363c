"""Who serves: baseline, canary, promotion, rollback.

    incumbent ──(the study selects another point)──► canary step 0 ──► … ──► last step ──► promoted: it is the incumbent
                                                        │  not ready in time, an SLO lost, no evidence by the deadline
                                                        └──────────────────► rolled back: blocked for the cool-down

Every configuration has a Deployment of its own, and one Service selects the pods of all of them: promotion starts no
engine again, and the share of traffic is the share of replicas.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from frontier_operator.api import conditions as reasons
from frontier_operator.api import names
from frontier_operator.core.decision import (
    Action,
    Announce,
    Blocked,
    Candidate,
    Retire,
    RolloutState,
    Serve,
    StudyState,
)
from frontier_operator.core.observation import Observation
from frontier_tuner import journal
from frontier_tuner.configuration import Configuration
from frontier_tuner.frontier import Point
from frontier_tuner.measurement import REQUEST_RATE, Measurement
from frontier_tuner.objectives import Objectives

WORSE_PERCENT = 10
"""A canary that misses an SLO which the incumbent misses too is rolled back only where it is this much worse."""


@dataclass(frozen=True)
class RolloutStep:
    """What the rollout orders now, its next state, and why."""

    actions: tuple[Action, ...]
    state: RolloutState
    reason: str
    message: str


@dataclass(frozen=True)
class Judgement:
    """What the live windows say of a canary: `Pass`, `Fail` or `Hold`, with the sentence that says why."""

    verdict: str
    message: str


def decide_rollout(observation: Observation, state: RolloutState, study: StudyState) -> RolloutStep:
    """Return the Deployments to keep, start and retire, and the rollout's next state."""
    desired = _desired(study)
    if state.candidate is None:
        step = _consider(observation, state, desired)
    elif desired is not None and desired.configuration != state.candidate.configuration:
        dropped = replace(state, candidate=None)
        step = _consider(observation, dropped, desired)
    else:
        step = _advance(observation, state, state.candidate, desired)
    return replace(step, actions=step.actions + _keep(observation, step.state))


def _desired(study: StudyState) -> Point | None:
    return study.selection.point if study.stop and study.selection is not None else None


def _consider(observation: Observation, state: RolloutState, desired: Point | None) -> RolloutStep:
    now = observation.now
    blocked = tuple(entry for entry in state.blocked if entry.until > now)
    state = replace(state, blocked=blocked)
    if desired is None:
        return RolloutStep((), state, reasons.SERVING, "the incumbent serves")
    if desired.configuration == state.incumbent:
        replicas = replicas_for(observation, desired)
        return RolloutStep((), replace(state, replicas=replicas), reasons.SERVING, "the selected point serves")
    wanted = desired.configuration.hash
    for entry in blocked:
        if entry.configuration_hash == wanted:
            return RolloutStep(
                (), state, reasons.ROLLED_BACK, f"{entry.message}; kept out until {entry.until:%H:%M:%SZ}"
            )
    mode = observation.spec.rollout.mode if observation.spec else "Recommend"
    if mode == "Recommend":
        return RolloutStep((), state, reasons.SERVING, f"configuration {wanted} is recommended; the mode is Recommend")
    if mode == "Approve" and observation.annotations.get(names.ANNOTATION_APPROVE) != wanted:
        message = f"annotate {names.ANNOTATION_APPROVE}={wanted} to roll out {desired.configuration}"
        return RolloutStep((), state, reasons.AWAITING_APPROVAL, message)
    candidate = Candidate(desired.configuration, 0, now, None)
    message = f"canary of configuration {wanted} begins: {desired.configuration}"
    event = Announce(reasons.CANARY_RUNNING, message)
    return RolloutStep((event,), replace(state, candidate=candidate), reasons.CANARY_RUNNING, message)


def _advance(observation: Observation, state: RolloutState, candidate: Candidate, desired: Point | None) -> RolloutStep:
    now = observation.now
    view = observation.serving_of(candidate.configuration.hash)
    replicas = canary_replicas(observation, candidate)
    if view is None or view.ready_replicas < replicas:
        waited = (now - (candidate.step_started_at or candidate.started_at)).total_seconds()
        if waited > _start_seconds(observation):
            return _roll_back(observation, state, candidate, f"the canary was not ready within {waited:.0f} s")
        return RolloutStep((), state, reasons.CANARY_RUNNING, f"waiting for {replicas} ready canary pods")
    if candidate.step_started_at is None:
        started = replace(candidate, step_started_at=now)
        return RolloutStep(
            (), replace(state, candidate=started), reasons.CANARY_RUNNING, _step_text(observation, candidate)
        )
    judgement = judge(observation, state, candidate)
    if judgement.verdict == "Fail":
        return _roll_back(observation, state, candidate, judgement.message)
    if judgement.verdict == "Hold":
        return RolloutStep(
            (), state, reasons.CANARY_RUNNING, f"{_step_text(observation, candidate)}: {judgement.message}"
        )
    return _pass_step(observation, state, candidate, judgement, desired)


def _start_seconds(observation: Observation) -> float:
    return observation.spec.measurement.engine_start_timeout.total_seconds() if observation.spec else 0.0


def _step_text(observation: Observation, candidate: Candidate) -> str:
    steps = observation.spec.rollout.canary.steps if observation.spec else ()
    return f"canary step {candidate.step + 1} of {len(steps)} ({steps[candidate.step]} %)"


def _pass_step(
    observation: Observation, state: RolloutState, candidate: Candidate, judgement: Judgement, desired: Point | None
) -> RolloutStep:
    verdicts = (*candidate.verdicts, _verdict(observation.now, candidate.step, judgement))
    steps = observation.spec.rollout.canary.steps if observation.spec else ()
    text = f"{_step_text(observation, candidate)} passed: {judgement.message}"
    if candidate.step + 1 < len(steps):
        following = replace(candidate, step=candidate.step + 1, step_started_at=None, verdicts=verdicts)
        event = Announce(reasons.CANARY_RUNNING, text)
        return RolloutStep((event,), replace(state, candidate=following), reasons.CANARY_RUNNING, text)
    replicas = replicas_for(observation, desired) if desired else state.replicas
    promoted = RolloutState(candidate.configuration, observation.now, replicas, None, state.blocked)
    message = f"configuration {candidate.configuration.hash} is promoted: {candidate.configuration}"
    events = (Announce(reasons.CANARY_RUNNING, text), Announce("Promoted", message))
    return RolloutStep(events, promoted, reasons.SERVING, message)


def _roll_back(observation: Observation, state: RolloutState, candidate: Candidate, why: str) -> RolloutStep:
    cooldown = observation.spec.retune.cooldown if observation.spec else timedelta(hours=24)
    message = f"configuration {candidate.configuration.hash} was rolled back: {why}"
    entry = Blocked(candidate.configuration.hash, observation.now, observation.now + cooldown, message)
    after = replace(state, candidate=None, blocked=(*state.blocked, entry))
    return RolloutStep((Announce(reasons.ROLLED_BACK, message, warning=True),), after, reasons.ROLLED_BACK, message)


def _verdict(now: datetime, step: int, judgement: Judgement) -> dict[str, Any]:
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"step": step, "verdict": judgement.verdict, "message": judgement.message, "at": at}


def judge(observation: Observation, state: RolloutState, candidate: Candidate) -> Judgement:
    """Return what the live windows of canary and incumbent say of the current step.

    A step needs its duration and its minimum of requests. Without them it holds, and fails at the analysis deadline:
    missing evidence never promotes.
    """
    spec = observation.spec
    since = candidate.step_started_at
    if spec is None or since is None:
        return Judgement("Hold", "the step has not begun")
    canary = spec.rollout.canary
    elapsed = (observation.now - since).total_seconds()
    live = observation.live.get(candidate.configuration.hash)
    enough = live is not None and live.validity.valid and live.ok >= canary.min_requests
    if live is None or not enough:
        if elapsed > canary.analysis_deadline.total_seconds():
            return Judgement(
                "Fail", f"not enough evidence after {elapsed:.0f} s: {_lack(observation, candidate, live)}"
            )
        return Judgement("Hold", _lack(observation, candidate, live))
    if elapsed < canary.step_duration.total_seconds():
        return Judgement("Hold", f"{live.ok} requests in {elapsed:.0f} s, the step lasts {canary.step_duration}")
    return compare(spec.to_objectives(), live, observation.live.get(state.incumbent.hash))


def _lack(observation: Observation, candidate: Candidate, live: Measurement | None) -> str:
    spec = observation.spec
    need = spec.rollout.canary.min_requests if spec else 0
    if live is None:
        return observation.live_errors.get(candidate.configuration.hash, "no live metrics of the canary yet")
    if not live.validity.valid:
        return f"{live.validity.reason}: {live.validity.message}"
    return f"InsufficientSamples: {live.ok} of {need} requests"


def compare(objectives: Objectives, canary: Measurement, incumbent: Measurement | None) -> Judgement:
    """Return `Pass` where every SLO holds on the canary, or is lost on the incumbent no less; else `Fail` or `Hold`."""
    notes: list[str] = []
    for slo in objectives.slos:
        value = canary.value(slo.key)
        if value is None:
            return Judgement("Hold", f"{slo.name} ({slo.key}) is unknown on the canary")
        notes.append(f"{slo.name} {value:.4g} against {slo.bound:.4g}")
        if slo.slack(value) >= 0:
            continue
        other = incumbent.value(slo.key) if incumbent is not None else None
        both_miss = other is not None and slo.slack(other) < 0
        if both_miss and other is not None and slo.slack(value) >= slo.slack(other) - WORSE_PERCENT / 100:
            notes.append(f"the incumbent misses it too with {other:.4g}")
            continue
        return Judgement("Fail", f"SLO {slo.name} is missed: {value:.4g} against {slo.bound:.4g}")
    return Judgement("Pass", f"{canary.ok} requests; " + ("; ".join(notes) or "no SLO is declared"))


def _keep(observation: Observation, state: RolloutState) -> tuple[Action, ...]:
    actions: list[Action] = [Serve(state.incumbent, state.replicas)]
    wanted = {state.incumbent.hash}
    if state.candidate is not None:
        wanted.add(state.candidate.configuration.hash)
        actions.append(Serve(state.candidate.configuration, canary_replicas(observation, state.candidate)))
    incumbent = observation.serving_of(state.incumbent.hash)
    whole = incumbent is not None and incumbent.ready_replicas >= state.replicas
    if whole:  # the old incumbent goes only when the new one carries the whole load
        actions += [Retire(view.name) for view in observation.serving if view.configuration.hash not in wanted]
    return tuple(actions)


def canary_replicas(observation: Observation, candidate: Candidate) -> int:
    """Return the canary's replicas at its step: the smallest number that gives it the step's share, at least 1."""
    spec = observation.spec
    if spec is None:
        return 1
    share = spec.rollout.canary.steps[min(candidate.step, len(spec.rollout.canary.steps) - 1)] / 100
    incumbents = replicas_of_incumbent(observation.status)
    return max(1, math.ceil(incumbents * share / (1 - share)) if share < 1 else incumbents)


def replicas_of_incumbent(status: Mapping[str, Any]) -> int:
    """Return the incumbent's replicas as last reported, at least 1."""
    return max(1, int((status.get("incumbent") or {}).get("replicas") or 1))


def replicas_for(observation: Observation, point: Point) -> int:
    """Return the replicas that carry the request rate at this point with the target's headroom, at least 1."""
    spec = observation.spec
    if spec is None or spec.workload.request_rate is None:
        return 1
    served = point.metrics.get(REQUEST_RATE)
    if served is None or served.value <= 0:
        return 1
    usable = served.value * (1 - spec.to_target().headroom_percent / 100)
    return max(1, math.ceil(float(spec.workload.request_rate) / usable))


def initial_state(observation: Observation, baseline: Configuration) -> RolloutState:
    """Return the persisted state of the rollout, or the baseline's where there is none.

    A lost status is rebuilt from the Deployment that serves: users keep what they have.
    """
    status = observation.status
    incumbent = status.get("incumbent") or {}
    if incumbent.get("configuration"):
        return _from_status(observation, incumbent)
    serving = sorted(observation.serving, key=lambda view: -view.ready_replicas)
    if serving:
        return RolloutState(serving[0].configuration, observation.now, max(1, serving[0].replicas))
    return RolloutState(baseline, observation.now)


def _from_status(observation: Observation, incumbent: Mapping[str, Any]) -> RolloutState:
    status = observation.status
    candidate = status.get("candidate") or {}
    parsed = None
    if candidate.get("configuration"):
        started = candidate.get("stepStartedAt")
        parsed = Candidate(
            configuration=decode_configuration(candidate["configuration"]),
            step=int(candidate.get("step", 0)),
            started_at=parse_time(candidate["startedAt"]),
            step_started_at=parse_time(started) if started else None,
            verdicts=tuple(candidate.get("verdicts") or ()),
        )
    blocked = tuple(
        Blocked(
            configuration_hash=entry["configurationHash"],
            since=parse_time(entry["since"]),
            until=parse_time(entry["until"]),
            message=entry.get("message", ""),
        )
        for entry in status.get("blocked") or ()
    )
    return RolloutState(
        incumbent=decode_configuration(incumbent["configuration"]),
        since=parse_time(incumbent["since"]),
        replicas=replicas_of_incumbent(status),
        candidate=parsed,
        blocked=blocked,
    )


def parse_time(text: str) -> datetime:
    """Return the aware UTC time of an RFC 3339 text."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def decode_configuration(values: Mapping[str, str]) -> Configuration:
    """Return the configuration that the API object's string map holds."""
    return journal.decode_configuration(values)
