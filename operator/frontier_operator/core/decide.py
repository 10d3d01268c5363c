"""The decision of one pass: total, pure, and the same for the same observation."""

from dataclasses import replace

from frontier_operator.api import conditions as reasons
from frontier_operator.core.decision import Decision, RolloutState
from frontier_operator.core.observation import Observation
from frontier_operator.core.rollout import decide_rollout, initial_state
from frontier_operator.core.sharing import live_trials
from frontier_operator.core.study import StudyStep, decide_study
from frontier_operator.core.trials import CANNOT_START, supersede


def decide(observation: Observation) -> Decision:
    """Return everything to do for one InferenceDeployment now.

    An invalid spec changes nothing that serves; its trials end and give their GPUs back, and the problems are reported.
    """
    tunables = observation.tunables
    if observation.spec is None or observation.space is None:
        sentences = "; ".join(str(problem) for problem in observation.problems)
        ended = [
            action
            for trial in observation.stale_trials
            for action in supersede(trial, observation.now, "the spec became invalid while the trial ran")
        ]
        return Decision(tuple(ended), reasons.INVALID_SPEC, sentences, tunables.idle_seconds)
    state = initial_state(observation, observation.space.baseline)
    study = _study(observation, state)
    rollout = decide_rollout(observation, state, study.state)
    busy = rollout.state.candidate is not None or _open_trials(observation) or _settling(observation, rollout.state)
    busy = busy or bool(study.actions) or not study.state.stop
    pause = tunables.poll_seconds if busy else tunables.idle_seconds
    if live_trials(observation):
        # Users are served by it: every scrape is looked at.
        pause = min(pause, tunables.scrape_seconds / 2)
    reason, message = _headline(study, rollout.reason, rollout.message)
    return Decision(
        actions=rollout.actions + study.actions,
        reason=reason,
        message=message,
        requeue_after=pause,
        rollout=rollout.state,
        study=study.state,
    )


def _study(observation: Observation, state: RolloutState) -> StudyStep:
    serves, unlearned = _may_begin(observation, state), observation.unlearned
    study = decide_study(observation, state.incumbent, may_begin=serves and unlearned is None)
    if unlearned is None or not serves or study.state.reason == reasons.SUSPENDED:
        return study
    return replace(study, state=replace(study.state, reason=unlearned[0], message=unlearned[1]))


def _headline(study: StudyStep, reason: str, message: str) -> tuple[str, str]:
    if reason == reasons.SERVING and not study.state.stop:
        return study.state.reason, study.state.message
    return reason, message


def _open_trials(observation: Observation) -> bool:
    return any(
        not trial.finished or trial.engine is not None or trial.loads
        for trial in observation.trials + observation.stale_trials
    )


def _settling(observation: Observation, state: RolloutState) -> bool:
    incumbent = observation.serving_of(state.revision)
    return incumbent is None or incumbent.ready_replicas < state.replicas or len(observation.serving) > 1


def _may_begin(observation: Observation, state: RolloutState) -> bool:
    """Trials begin once the baseline serves, or has shown that it cannot: then only they can find what does."""
    if observation.trials:
        return True
    incumbent = observation.serving_of(state.revision)
    if incumbent is None:
        return False
    if incumbent.ready_replicas > 0:
        return True
    spec = observation.spec
    limit = spec.measurement.engine_start_timeout.total_seconds() if spec else 0
    for pod in incumbent.pods:
        failing = pod.restarts > 0 or pod.waiting_reason in CANNOT_START
        late = (observation.now - pod.created).total_seconds() > limit
        if failing or late:
            return True
    return False
