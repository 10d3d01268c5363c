"""The study's next step: propose trials within the GPU cap, confirm finalists, select.

baseline serves ──► trials ──► stop ──► finalists measured again ──► ablations ──► stop is recorded
                                                                                    │
an edited target or SLO re-selects from what is known ◄─────────────────────────────┘
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from frontier_operator.api import conditions as reasons
from frontier_operator.core import sharing
from frontier_operator.core.decision import Action, CreateTrial, StudyState
from frontier_operator.core.live_trials import LiveRules, at_one_level
from frontier_operator.core.observation import Observation, TrialView
from frontier_operator.core.rollout import replicas_for
from frontier_operator.core.trials import TrialRules, decide_trial, supersede
from frontier_tuner import tuner
from frontier_tuner.configuration import Configuration
from frontier_tuner.confirming import choose
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.finishing import LastStart, last_starts
from frontier_tuner.frontier import frontier, points
from frontier_tuner.noise import estimate_noise
from frontier_tuner.stopping import Stop
from frontier_tuner.study import budget_of, finish_of, ladder_of, prior_of, use_of
from frontier_tuner.trial import Purpose, TrialRecord

FINISHING: Mapping[Purpose, tuple[str, str]] = {
    "Confirmation": (reasons.CONFIRMING_FINALISTS, "finalists are measured again"),
    "Ablation": (reasons.MEASURING_TECHNIQUES, "the choice is measured with one technique set back at a time"),
}
"""Purposes of trials after the search, with the reason and the message while they run."""


@dataclass(frozen=True)
class StudyStep:
    """What the study orders now, and where it stands."""

    actions: tuple[Action, ...]
    state: StudyState


def decide_study(observation: Observation, incumbent: Configuration, *, may_begin: bool) -> StudyStep:
    """Return the trials to create and continue, and what is known so far.

    Args:
        observation: The look at the object; its spec must be valid.
        incumbent: The configuration that serves; it is measured again beside the finalists.
        may_begin: False while the baseline is still coming up.
    """
    actions = _advance(observation)
    state = _state(observation)
    spec = observation.spec
    if spec is None or spec.suspend:
        return StudyStep(actions, _with(state, reasons.SUSPENDED, "spec.suspend is true: no trial is started"))
    if not may_begin:
        return StudyStep(actions, _with(state, reasons.WAITING_FOR_BASELINE, "trials start once the baseline serves"))
    too_few = sharing.too_few_replicas(observation)
    if too_few and not state.stop:
        return StudyStep(actions, _with(state, reasons.TOO_FEW_REPLICAS, too_few))
    proposals, state = _propose(observation, incumbent, state)
    return StudyStep(actions + proposals, state)


def _with(state: StudyState, reason: str, message: str) -> StudyState:
    return replace(state, reason=reason, message=message)


def _advance(observation: Observation) -> tuple[Action, ...]:
    spec = observation.spec
    if spec is None:
        return ()
    free, room = spec.search.max_trial_gpus - gpus_held(observation), sharing.room(observation)
    actions: list[Action] = []
    for trial in observation.stale_trials:
        actions += supersede(
            trial, observation.now, "the model, the engine, the workload or the search space was edited"
        )
    for trial in observation.trials:
        starts = trial.engine is None and not trial.finished
        may_start = starts and trial.gpus <= free and not spec.suspend and (not trial.live or room > 0)
        if may_start:
            free, room = free - trial.gpus, room - trial.live
        rules = TrialRules(
            now=observation.now,
            objectives=spec.to_objectives(),
            engine_start_seconds=spec.measurement.engine_start_timeout.total_seconds(),
            seed=spec.search.seed,
            tunables=observation.tunables,
            may_start=may_start,
            live=_live_rules(observation),
        )
        actions += decide_trial(trial, rules)
    return tuple(actions)


def _live_rules(observation: Observation) -> LiveRules | None:
    spec = observation.spec
    if spec is None or not sharing.is_live(observation):
        return None
    return LiveRules(
        guardrail_percent=spec.measurement.sharing.guardrail_percent,
        min_requests=spec.measurement.min_requests,
        scrape_seconds=observation.tunables.scrape_seconds,
        excess=sharing.excess(observation),
    )


def gpus_held(observation: Observation) -> int:
    """Return the GPUs that trial engines hold now, those of ended trials that are not gone yet included."""
    return sum(trial.gpus for trial in observation.trials + observation.stale_trials if trial.engine is not None)


def journal(observation: Observation) -> tuple[TrialRecord, ...]:
    """Return the finished trials of this study, by number; those of real traffic at one level of load."""
    records = tuple(trial.record for trial in observation.trials if trial.record is not None)
    return at_one_level(records) if sharing.is_live(observation) else records


def _state(observation: Observation) -> StudyState:
    spec = observation.spec
    if spec is None:
        return StudyState()
    records, objectives = journal(observation), spec.to_objectives()
    study = observation.status.get("study") or {}
    same = study.get("fingerprint") == observation.fingerprint
    noise, most = estimate_noise(records), finish_of(spec).max_confirmations
    return StudyState(
        stop=study.get("stop", "") if same else "",
        stop_message=study.get("stopMessage", "") if same else "",
        frontier=frontier(points(records, objectives), noise=noise),
        choice=choose(records, objectives, spec.to_target(), noise=noise, max_starts=most),
        noise=noise,
    )


def _propose(
    observation: Observation, incumbent: Configuration, state: StudyState
) -> tuple[tuple[Action, ...], StudyState]:
    spec = observation.spec
    if spec is None or observation.space is None:
        return (), state
    open_trials = [trial for trial in observation.trials if not trial.finished]
    free = spec.search.max_trial_gpus - sum(
        trial.gpus for trial in observation.trials if not trial.finished or trial.engine
    )
    free -= sum(trial.gpus for trial in observation.stale_trials if trial.engine)
    finishing = [trial.purpose for trial in open_trials if trial.purpose in FINISHING]
    pending = [trial.configuration for trial in open_trials if trial.purpose not in FINISHING]
    gains = [trial.expected_gain for trial in open_trials if trial.purpose == "Search"]
    number = next_number(observation)
    actions: list[Action] = []
    live = sharing.is_live(observation)
    # Real traffic has one level: the one that was measured.
    records, prior, loads = journal(observation), prior_of(spec), () if live else ladder_of(spec)
    most = sharing.most_trials(observation)
    while not finishing and not _settled(state) and len(pending) < most:
        proposal = tuner.propose(
            observation.space,
            records,
            pending,
            objectives=spec.to_objectives(),
            target=spec.to_target(),
            budget=budget_of(spec),
            spent_seconds=_spent_seconds(observation),
            seed=spec.search.seed,
            prior=prior,
            loads=loads,
            use=use_of(spec, _serving_gpus(observation, incumbent, state)),
            pending_gains=gains,
            parallel=spec.search.max_trial_gpus // max(1, gpus(observation.space.baseline)),
        )
        if isinstance(proposal, Stop):
            return _stopped(observation, incumbent, state, proposal, actions, open_trials)
        held = gpus(proposal.configuration)
        if held > free:
            break
        purpose: Purpose = "Baseline" if number == 0 else "Search"
        action = _create(observation, number, purpose, proposal.configuration, proposal.reason)
        actions.append(replace(action, expected_gain=proposal.expected_gain))
        pending.append(proposal.configuration)
        gains.append(proposal.expected_gain)
        number, free = number + 1, free - held
    if _settled(state):
        return (), _with(state, state.stop, state.stop_message)
    if finishing:
        return tuple(actions), _with(state, *FINISHING[finishing[0]])
    return tuple(actions), _with(_running(state), *_running_reason(observation, open_trials, actions))


def _settled(state: StudyState) -> bool:
    """A recorded stop stands, whatever objectives and target are now; a larger budget or more use opens it again."""
    return state.stop not in {"", reasons.BUDGET_EXHAUSTED, reasons.PAY_BACK_EXCEEDED}


def _serving_gpus(observation: Observation, incumbent: Configuration, state: StudyState) -> int:
    """Return the GPUs that serve the present choice, or would: what carries the request rate, else as many replicas."""
    point = state.choice.selection.point if state.choice is not None else None
    if point is None:
        return gpus(incumbent)
    serving = observation.status.get("incumbent") or {}
    replicas = replicas_for(observation, point) or int(serving.get("replicas") or 1)
    return replicas * gpus(point.configuration)


def _running_reason(observation: Observation, open_trials: list[TrialView], created: list[Action]) -> tuple[str, str]:
    finished = len(observation.trials) - len(open_trials)
    waiting = [
        f"trial {trial.name}: {trial.engine.unschedulable}"
        for trial in open_trials
        if trial.engine is not None and trial.engine.scheduled_at is None and trial.engine.unschedulable
    ]
    if waiting and len(waiting) == len(open_trials) and not created:
        return reasons.WAITING_FOR_GPUS, waiting[0]
    under_way = len(open_trials) + len(created)
    return reasons.TRIAL_RUNNING, f"{finished} trials finished, {under_way} under way"


def _stopped(
    observation: Observation,
    incumbent: Configuration,
    state: StudyState,
    stop: Stop,
    created: list[Action],
    open_trials: list[TrialView],
) -> tuple[tuple[Action, ...], StudyState]:
    under_way = [*created, *open_trials]
    if under_way:
        message = f"{len(under_way)} trials under way are the last: {stop.message}"
        return tuple(created), _with(_running(state), reasons.TRIAL_RUNNING, message)
    if state.stop:
        return (), _with(state, state.stop, state.stop_message)
    missing = _last_starts(observation, incumbent)
    if missing:
        number = next_number(observation)
        actions = [
            _create(
                observation, number + i, start.purpose, start.configuration, start.reason, _levels(observation, start)
            )
            for i, start in enumerate(missing)
        ]
        return tuple(actions), _with(state, *FINISHING[missing[0].purpose])
    ended = replace(state, stop=stop.reason, stop_message=stop.message)
    return (), _with(ended, stop.reason, stop.message)


def _running(state: StudyState) -> StudyState:
    return replace(state, stop="", stop_message="")


def _last_starts(observation: Observation, incumbent: Configuration) -> tuple[LastStart, ...]:
    """Return the starts that the study still needs although its search is over."""
    spec, space = observation.spec, observation.space
    if spec is None or space is None:
        return ()
    return last_starts(
        journal(observation),
        space,
        spec.to_objectives(),
        spec.to_target(),
        finish=finish_of(spec),
        budget=budget_of(spec),
        incumbent=incumbent,
        spent_seconds=_spent_seconds(observation),
    )


def _levels(observation: Observation, start: LastStart) -> tuple[float, ...]:
    return tuple(load.value for load in start.loads) or ladder_levels(observation)


def next_number(observation: Observation) -> int:
    """Return the first number that no trial of the study has ever had, as far as trials were not deleted."""
    return max((trial.number for trial in observation.trials), default=-1) + 1


def _create(
    observation: Observation,
    number: int,
    purpose: Purpose,
    configuration: Configuration,
    reason: str,
    ladder: tuple[float, ...] | None = None,
) -> CreateTrial:
    name = trial_name(observation.name, observation.fingerprint, number)
    if sharing.is_live(observation):
        return CreateTrial(name, number, purpose, configuration, (), reason, live=True)
    return CreateTrial(name, number, purpose, configuration, ladder or ladder_levels(observation), reason)


def trial_name(deployment: str, fingerprint: str, number: int) -> str:
    """Return the name of a trial: the same number of the same study always has the same name."""
    return f"{deployment}-{fingerprint[:6]}-{number:03d}"


def ladder_levels(observation: Observation) -> tuple[float, ...]:
    """Return the levels that every trial of the study climbs, ascending."""
    return tuple(load.value for load in ladder_of(observation.spec)) if observation.spec else ()


def _spent_seconds(observation: Observation) -> float:
    if not observation.trials:
        return 0.0
    return (observation.now - min(trial.created for trial in observation.trials)).total_seconds()
