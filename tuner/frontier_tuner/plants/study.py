"""The study on a desk: propose, measure, write down, until it stops. The journal is all that is kept."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from frontier_tuner import journal
from frontier_tuner.confirming import Choice, choose
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.errors import TunerError
from frontier_tuner.factors import Attribution, technique_factors
from frontier_tuner.finishing import LastStart, last_starts
from frontier_tuner.measurement import REQUEST_RATE, Measurement
from frontier_tuner.noise import estimate_noise
from frontier_tuner.plants import Plant
from frontier_tuner.plants.trials import Assignment, run_trial
from frontier_tuner.predict import PriorModel
from frontier_tuner.space import SearchSpace
from frontier_tuner.spec import StudySpec
from frontier_tuner.stopping import Stop
from frontier_tuner.study import budget_of, fingerprint, finish_of, ladder_of, prior_of, space_of, use_of
from frontier_tuner.trial import Purpose, TrialRecord
from frontier_tuner.tuner import Proposal, propose

STARTS_USED = "StartsUsed"


@dataclass(frozen=True)
class Progress:
    """Who is told how a study goes on; every function may do nothing.

    Attributes:
        on_proposal: Before a trial: its number and what is tried.
        on_rung: After a rung.
        on_trial: After a trial, once it is in the journal.
    """

    on_proposal: Callable[[int, Proposal | LastStart], None] = lambda _number, _proposal: None
    on_rung: Callable[[Measurement], None] = lambda _measurement: None
    on_trial: Callable[[TrialRecord], None] = lambda _record: None


def run_study(
    spec: StudySpec,
    plant: Plant,
    path: Path,
    clock: Callable[[], float],
    starts: int | None = None,
    progress: Progress = Progress(),
) -> Stop:
    """Run trials until the study stops, adding each to the journal, and return why it stopped.

    Once the search has stopped, the finalists are measured again beside the baseline, and the choice with one technique
    set back at a time where the budget asks for it.

    Args:
        spec: The study.
        plant: Where engines are started.
        path: The journal; trials that it already has are not repeated.
        clock: Seconds of a monotonic clock.
        starts: Engine starts after which to stop in any case, or None.
        progress: Who is told.

    Raises:
        TunerError: The space, the journal or the plant cannot be used.
    """
    space, prior, study = space_of(spec), prior_of(spec), fingerprint(spec)
    journal.check_writable(path)
    begun = clock()
    for start in range(starts or 1_000_000):
        records = read_journal(path, space, study)
        # Time that earlier runs have used is in the journal only as GPU-seconds; it counts as such.
        earlier = sum(record.gpu_seconds / max(1, record.gpus) for record in records[: len(records) - start])
        spent = earlier + clock() - begun
        proposal = next_proposal(spec, space, records, prior, spent)
        following: Proposal | LastStart
        if isinstance(proposal, Stop):
            missing = last_starts(
                records,
                space,
                spec.to_objectives(),
                spec.to_target(),
                finish=finish_of(spec),
                budget=budget_of(spec),
                incumbent=space.baseline,
                spent_seconds=spent,
            )
            if not missing:
                return proposal
            following = missing[0]
        else:
            following = proposal
        assignment = _assignment(spec, following, max((record.number for record in records), default=-1) + 1)
        progress.on_proposal(assignment.number, following)
        record = run_trial(plant, assignment, clock, progress.on_rung)
        journal.append(path, record, study)
        progress.on_trial(record)
    return Stop(STARTS_USED, f"{starts} engine starts were asked for")


def next_proposal(
    spec: StudySpec, space: SearchSpace, records: tuple[TrialRecord, ...], prior: PriorModel | None, spent: float
) -> Proposal | Stop:
    """Return what the search of a study would try next, or why it has ended.

    Args:
        spec: The study.
        space: Its space.
        records: Its trials so far.
        prior: What is expected of configurations, or None.
        spent: Seconds since the study began.
    """
    return propose(
        space,
        records,
        objectives=spec.to_objectives(),
        target=spec.to_target(),
        budget=budget_of(spec),
        spent_seconds=spent,
        seed=spec.search.seed,
        prior=prior,
        loads=ladder_of(spec),
        use=use_of(spec, _serving_gpus(spec, space, records)),
    )


def _serving_gpus(spec: StudySpec, space: SearchSpace, records: tuple[TrialRecord, ...]) -> int:
    """Return the GPUs that the present choice would be served with: one engine, or as many as carry the rate."""
    point = choice_from(spec, records).selection.point
    if point is None:
        return gpus(space.baseline)
    served, rate = point.measured.value(REQUEST_RATE), spec.workload.request_rate
    return gpus(point.configuration) * (math.ceil(float(rate) / served) if rate and served else 1)


def _assignment(spec: StudySpec, start: Proposal | LastStart, number: int) -> Assignment:
    last = start if isinstance(start, LastStart) else None
    searched: Purpose = "Baseline" if number == 0 else "Search"
    return Assignment(
        number=number,
        configuration=start.configuration,
        purpose=searched if last is None else last.purpose,
        reason=start.reason,
        gpus=gpus(start.configuration),
        loads=(last.loads if last is not None else ()) or ladder_of(spec),
        objectives=spec.to_objectives(),
        seed=spec.search.seed * 1000 + number,
        expected_gain=start.expected_gain if isinstance(start, Proposal) else None,
    )


def read_journal(path: Path, space: SearchSpace, study: str) -> tuple[TrialRecord, ...]:
    """Return the trials of a journal that belongs to a space and to the study of a fingerprint.

    Raises:
        JournalError: The journal cannot be read.
        TunerError: A trial is of another study; trials of different studies are never mixed.
    """
    records = journal.read(path, space, study)
    for record in records:
        if not record.configuration.keys() == space.baseline.keys():
            raise TunerError(
                f"trial {record.number} of {path} has other parameters ({record.configuration}) than this study: "
                "it is the journal of another study; give another --journal",
            )
    return records


def choice_from(spec: StudySpec, records: tuple[TrialRecord, ...]) -> Choice:
    """Return what the spec's target selects, by second measurements where the best point has one."""
    noise, most = estimate_noise(records), finish_of(spec).max_confirmations
    return choose(records, spec.to_objectives(), spec.to_target(), noise=noise, max_starts=most)


def attribution_from(spec: StudySpec, records: tuple[TrialRecord, ...], choice: Choice) -> Attribution | None:
    """Return what each technique contributed to the choice; None where nobody asked, or where the choice has none."""
    space, point = space_of(spec), choice.selection.point
    asked = spec.search.budget.ablations > 0 or any(record.purpose == "Ablation" for record in records)
    if not asked or point is None or point.configuration == space.baseline:
        return None
    noise = estimate_noise(records)
    known = (space, point.configuration, space.baseline, spec.to_objectives(), spec.to_target())
    return technique_factors(records, *known, noise=noise)
