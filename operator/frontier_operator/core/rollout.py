"""Who serves: baseline, canary, promotion, rollback.

    incumbent ──(the study selects another point)──► canary step 0 ──► … ──► last step ──► promoted: it is the incumbent
                                                        │  not ready in time, an SLO lost, no evidence by the deadline
                                                        └──────────────────► rolled back: blocked for the cool-down

Every *revision*, a configuration with everything else that its pods are made of, has a Deployment of its own, and one
Service selects the pods of all of them: promotion starts no engine again, and the share of traffic is the share of
replicas. A Deployment that serves is never rendered anew under its users: an edit of the engine is another revision and
arrives by a canary.
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
    Expose,
    Retire,
    RolloutState,
    Scale,
    Serve,
    StudyState,
)
from frontier_operator.core.judging import Judgement, judge, step_percent
from frontier_operator.core.observation import Observation, ServingView
from frontier_operator.core.render import command_line, revision
from frontier_tuner import journal
from frontier_tuner.configuration import Configuration
from frontier_tuner.frontier import Point
from frontier_tuner.measurement import REQUEST_RATE


@dataclass(frozen=True)
class RolloutStep:
    """What the rollout orders now, its next state, and why."""

    actions: tuple[Action, ...]
    state: RolloutState
    reason: str
    message: str


def decide_rollout(observation: Observation, state: RolloutState, study: StudyState) -> RolloutStep:
    """Return the Deployments to keep, start and retire, and the rollout's next state."""
    state = _with_live_replicas(observation, _with_working_baseline(observation, state))
    desired = study.selection.point if study.stop and study.selection is not None else None
    if observation.spec is not None and observation.spec.suspend:
        step = RolloutStep((), state, reasons.SERVING, "suspended: the incumbent serves and no rollout goes on")
    elif names.ANNOTATION_ROLLBACK in observation.annotations:
        step = _held_back(observation, state)
    elif state.candidate is not None and _still_wanted(observation, state.candidate, desired):
        step = _advance(observation, state, state.candidate, desired)
    else:
        step = _consider(observation, replace(state, candidate=None), desired)
    return replace(step, actions=step.actions + _keep(observation, step.state))


def _held_back(observation: Observation, state: RolloutState) -> RolloutStep:
    """A person asked to go back: a running canary is rolled back, and none begins while the annotation is there."""
    if state.candidate is not None:
        why = f"the annotation {names.ANNOTATION_ROLLBACK} asked for it"
        return _roll_back(observation, state, state.candidate, reasons.ROLLED_BACK, why)
    message = f"no rollout begins while the annotation {names.ANNOTATION_ROLLBACK} is there"
    return RolloutStep((), state, reasons.ROLLED_BACK, message)


def _with_working_baseline(observation: Observation, state: RolloutState) -> RolloutState:
    """An incumbent that the spec has left behind and that never became ready gives way to the new baseline."""
    spec, space = observation.spec, observation.space
    if spec is None or space is None or revision(spec, state.incumbent) == state.revision:
        return state
    view = observation.serving_of(state.revision)
    if view is not None and view.ready_replicas > 0:
        return state
    return RolloutState(
        space.baseline, revision(spec, space.baseline), observation.now, state.replicas, None, state.blocked
    )


def _with_live_replicas(observation: Observation, state: RolloutState) -> RolloutState:
    """Without a request rate to size for, the replicas are what somebody set on the Deployment."""
    spec, view = observation.spec, observation.serving_of(state.revision)
    if spec is None or spec.workload.request_rate is not None or view is None:
        return state
    return replace(state, replicas=max(1, view.replicas))


def _still_wanted(observation: Observation, candidate: Candidate, desired: Point | None) -> bool:
    """A canary goes on only while it is what the study selects, made of what the spec says, and allowed to."""
    spec = observation.spec
    if spec is None or desired is None or desired.configuration != candidate.configuration:
        return False
    return revision(spec, candidate.configuration) == candidate.revision and _allowed(observation, candidate.revision)


def _allowed(observation: Observation, wanted: str) -> bool:
    mode = observation.spec.rollout.mode if observation.spec else "Recommend"
    approved = observation.annotations.get(names.ANNOTATION_APPROVE) == wanted
    return mode == "Automatic" or (mode == "Approve" and approved)


def _consider(observation: Observation, state: RolloutState, desired: Point | None) -> RolloutStep:
    now, spec = observation.now, observation.spec
    blocked = tuple(entry for entry in state.blocked if entry.until > now)
    state = replace(state, blocked=blocked)
    if desired is None or spec is None:
        return RolloutStep((), state, reasons.SERVING, "the incumbent serves")
    wanted = revision(spec, desired.configuration)
    if wanted == state.revision:
        replicas = replicas_for(observation, desired) or state.replicas
        return RolloutStep((), replace(state, replicas=replicas), reasons.SERVING, "the selected point serves")
    for entry in blocked:
        if entry.revision == wanted:
            until = f"kept out until {entry.until:%Y-%m-%d %H:%M:%SZ}"
            return RolloutStep((), state, reasons.ROLLED_BACK, f"{entry.message}; {until}")
    if not _allowed(observation, wanted):
        if spec.rollout.mode == "Recommend":
            message = f"{desired.configuration} is recommended; the mode is Recommend"
            return RolloutStep((), state, reasons.SERVING, message)
        message = f"annotate {names.ANNOTATION_APPROVE}={wanted} to roll out {desired.configuration}"
        return RolloutStep((), state, reasons.AWAITING_APPROVAL, message)
    candidate = Candidate(desired.configuration, wanted, 0, now, None)
    message = f"canary of revision {wanted} begins: {desired.configuration}"
    event = Announce(reasons.CANARY_RUNNING, message)
    return RolloutStep((event,), replace(state, candidate=candidate), reasons.CANARY_RUNNING, message)


def _advance(observation: Observation, state: RolloutState, candidate: Candidate, desired: Point | None) -> RolloutStep:
    now = observation.now
    view = observation.serving_of(candidate.revision)
    replicas = canary_replicas(observation, state, candidate)
    if view is None or view.ready_replicas < replicas:
        since = candidate.waiting_since or now
        if (now - since).total_seconds() > _start_seconds(observation):
            why = f"{replicas} canary pods were not ready within {_start_seconds(observation):.0f} s"
            return _roll_back(observation, state, candidate, reasons.ROLLED_BACK, why)
        waiting = replace(state, candidate=replace(candidate, waiting_since=since))
        return RolloutStep((), waiting, reasons.CANARY_RUNNING, f"waiting for {replicas} ready canary pods")
    begun = replace(candidate, waiting_since=None, step_started_at=candidate.step_started_at or now)
    state = replace(state, candidate=begun)
    judgement = judge(observation, state.revision, begun)
    if judgement.verdict == "Fail":
        reason = reasons.GUARDRAIL_BREACHED if judgement.breach else reasons.ROLLED_BACK
        return _roll_back(observation, state, begun, reason, judgement.message)
    if judgement.verdict == "Hold":
        message = f"{_step_text(observation, begun)}: {judgement.message}"
        return RolloutStep((), state, reasons.CANARY_RUNNING, message)
    return _pass_step(observation, state, begun, judgement, desired)


def _start_seconds(observation: Observation) -> float:
    return observation.spec.measurement.engine_start_timeout.total_seconds() if observation.spec else 0.0


def _steps(observation: Observation) -> int:
    return len(observation.spec.rollout.canary.steps) if observation.spec else 1


def _step_text(observation: Observation, candidate: Candidate) -> str:
    of = _steps(observation)
    return f"canary step {min(candidate.step + 1, of)} of {of} ({step_percent(observation, candidate)} %)"


def _pass_step(
    observation: Observation, state: RolloutState, candidate: Candidate, judgement: Judgement, desired: Point | None
) -> RolloutStep:
    at = observation.now.strftime("%Y-%m-%dT%H:%M:%SZ")
    verdict = {"step": candidate.step, "verdict": judgement.verdict, "message": judgement.message, "at": at}
    verdicts = (*candidate.verdicts, verdict)
    text = f"{_step_text(observation, candidate)} passed: {judgement.message}"
    if candidate.step + 1 < _steps(observation):
        following = replace(candidate, step=candidate.step + 1, step_started_at=None, verdicts=verdicts)
        event = Announce(reasons.CANARY_RUNNING, text)
        return RolloutStep((event,), replace(state, candidate=following), reasons.CANARY_RUNNING, text)
    replicas = (replicas_for(observation, desired) if desired else None) or state.replicas
    promoted = RolloutState(candidate.configuration, candidate.revision, observation.now, replicas, None, state.blocked)
    message = f"revision {candidate.revision} is promoted: {candidate.configuration}"
    events = (Announce(reasons.CANARY_RUNNING, text), Announce("Promoted", message))
    return RolloutStep(events, promoted, reasons.SERVING, message)


def _roll_back(
    observation: Observation, state: RolloutState, candidate: Candidate, reason: str, why: str
) -> RolloutStep:
    cooldown = observation.spec.retune.cooldown if observation.spec else timedelta(hours=24)
    message = f"revision {candidate.revision} was rolled back: {why}"
    now = observation.now
    entry = Blocked(candidate.revision, now, now + cooldown, message)
    after = replace(state, candidate=None, blocked=(*state.blocked, entry))
    events = [Announce(reason, why, warning=True)] if reason == reasons.GUARDRAIL_BREACHED else []
    events.append(Announce(reasons.ROLLED_BACK, message, warning=True))
    return RolloutStep(tuple(events), after, reasons.ROLLED_BACK, message)


def _keep(observation: Observation, state: RolloutState) -> tuple[Action, ...]:
    """Order what must serve, and let go what no longer may, only once the new state is in the status."""
    actions: list[Action] = [] if observation.service == "Ours" else [Expose()]
    actions += _serve(observation, state.incumbent, state.revision, state.replicas)
    wanted = {state.revision, *_persisted_revisions(observation.status)}
    if state.candidate is not None:
        wanted.add(state.candidate.revision)
        replicas = canary_replicas(observation, state, state.candidate)
        actions += _serve(observation, state.candidate.configuration, state.candidate.revision, replicas)
    incumbent = observation.serving_of(state.revision)
    ready = incumbent.ready_replicas if incumbent is not None else 0
    failed = {entry.revision for entry in state.blocked}
    for view in observation.serving:
        if view.revision in wanted or ready == 0:
            continue
        if ready >= state.replicas or view.revision in failed:
            actions.append(Retire(view.name))
        elif view.replicas > state.replicas - ready:
            # It makes room as the new incumbent becomes ready: together they always carry the load.
            actions.append(Scale(view.name, state.replicas - ready))
    return tuple(actions)


def _serve(observation: Observation, configuration: Configuration, wanted: str, replicas: int) -> list[Action]:
    view = observation.serving_of(wanted)
    if view is None or _drifted(observation, view):
        return [Serve(configuration, wanted, replicas)]
    return [Scale(view.name, replicas)] if view.replicas != replicas else []


def _drifted(observation: Observation, view: ServingView) -> bool:
    """Return whether somebody changed the engine of a Deployment that the present spec describes."""
    spec = observation.spec
    if spec is None or revision(spec, view.configuration) != view.revision:
        return False
    return (view.image, list(view.args)) != (spec.engine.image, command_line(spec, view.configuration))


def _persisted_revisions(status: Mapping[str, Any]) -> set[str]:
    return {str((status.get(name) or {}).get("revision", "")) for name in ("incumbent", "candidate")}


def canary_replicas(observation: Observation, state: RolloutState, candidate: Candidate) -> int:
    """Return the canary's replicas at its step: the smallest number that gives it the step's share, at least 1."""
    share = step_percent(observation, candidate) / 100
    return max(1, math.ceil(state.replicas * share / (1 - share)) if share < 1 else state.replicas)


def replicas_for(observation: Observation, point: Point) -> int | None:
    """Return the replicas that carry the request rate at a point with the target's headroom; None without a rate."""
    spec = observation.spec
    served = point.metrics.get(REQUEST_RATE)
    if spec is None or spec.workload.request_rate is None or served is None or served.value <= 0:
        return None
    usable = served.value * (1 - spec.to_target().headroom_percent / 100)
    return max(1, math.ceil(float(spec.workload.request_rate) / usable))


def initial_state(observation: Observation, baseline: Configuration) -> RolloutState:
    """Return the persisted state of the rollout, or the baseline's where there is none.

    A lost status is rebuilt from the Deployment that serves: users keep what they have.
    """
    incumbent = observation.status.get("incumbent") or {}
    if incumbent.get("revision"):
        return _from_status(observation.status, incumbent)
    serving = sorted(observation.serving, key=lambda view: -view.ready_replicas)
    if serving:
        view = serving[0]
        return RolloutState(view.configuration, view.revision, observation.now, max(1, view.replicas))
    wanted = revision(observation.spec, baseline) if observation.spec else ""
    return RolloutState(baseline, wanted, observation.now)


def _from_status(status: Mapping[str, Any], incumbent: Mapping[str, Any]) -> RolloutState:
    candidate = status.get("candidate") or {}
    parsed = None
    if candidate.get("revision"):
        parsed = Candidate(
            configuration=journal.decode_configuration(candidate["configuration"]),
            revision=candidate["revision"],
            step=int(candidate.get("step", 0)),
            started_at=parse_time(candidate["startedAt"]),
            step_started_at=time_or_none(candidate.get("stepStartedAt")),
            waiting_since=time_or_none(candidate.get("waitingSince")),
            verdicts=tuple(candidate.get("verdicts") or ()),
        )
    blocked = tuple(
        Blocked(
            revision=entry["revision"],
            since=parse_time(entry["since"]),
            until=parse_time(entry["until"]),
            message=entry.get("message", ""),
        )
        for entry in status.get("blocked") or ()
    )
    return RolloutState(
        incumbent=journal.decode_configuration(incumbent["configuration"]),
        revision=incumbent["revision"],
        since=parse_time(incumbent["since"]),
        replicas=max(1, int(incumbent.get("replicas") or 1)),
        candidate=parsed,
        blocked=blocked,
    )


def parse_time(text: str) -> datetime:
    """Return the aware UTC time of an RFC 3339 text."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def time_or_none(text: str | None) -> datetime | None:
    """Return the time of an RFC 3339 text, or None where there is none."""
    return parse_time(text) if text else None
