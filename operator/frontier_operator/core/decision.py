"""What a decision can order: a closed union of frozen actions, and the decision that carries them.

Actions name what shall be, not how: the shell interprets them and each may be repeated without harm.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from frontier_tuner.configuration import Configuration
from frontier_tuner.confirming import Choice
from frontier_tuner.frontier import Point
from frontier_tuner.measurement import Load, Measurement
from frontier_tuner.noise import ASSUMED, Noise
from frontier_tuner.selection import Selection
from frontier_tuner.trial import Purpose, TrialRecord


@dataclass(frozen=True)
class CreateTrial:
    """Write a TuningTrial; adopted where one of that name exists."""

    name: str
    number: int
    purpose: Purpose
    configuration: Configuration
    levels: tuple[float, ...]
    reason: str
    live: bool = False
    expected_gain: float | None = None


@dataclass(frozen=True)
class StartEngine:
    """Start the trial's engine pod; a live one joins the Service as soon as it is ready."""

    trial: str
    configuration: Configuration
    live: bool = False


@dataclass(frozen=True)
class StartLoad:
    """Start the load Job of one rung against the engine at `address`."""

    trial: str
    index: int
    load: Load
    address: str
    seed: int


@dataclass(frozen=True)
class RecordProgress:
    """Note on the trial that its engine started or became ready."""

    trial: str
    started_at: datetime | None
    ready_at: datetime | None


@dataclass(frozen=True)
class RecordRung:
    """Append a measurement to the trial."""

    trial: str
    index: int
    measurement: Measurement


@dataclass(frozen=True)
class FinishTrial:
    """Record the trial's outcome."""

    trial: str
    record: TrialRecord


@dataclass(frozen=True)
class ReleaseTrial:
    """Delete the trial's engine pod and load Jobs; its record stays. A live engine leaves the Service at once."""

    trial: str


@dataclass(frozen=True)
class Expose:
    """Let the stable Service select whatever serves."""


@dataclass(frozen=True)
class Serve:
    """Let the Deployment of this revision be as the present spec renders it, with so many replicas."""

    configuration: Configuration
    revision: str
    replicas: int


@dataclass(frozen=True)
class Scale:
    """Change nothing but the replicas of a Deployment."""

    name: str
    replicas: int


@dataclass(frozen=True)
class Retire:
    """Delete the Deployment of a revision that serves no more; its pods drain."""

    name: str


@dataclass(frozen=True)
class Announce:
    """Write a Kubernetes event on the InferenceDeployment."""

    reason: str
    message: str
    warning: bool = False


Action = (
    CreateTrial
    | StartEngine
    | StartLoad
    | RecordProgress
    | RecordRung
    | FinishTrial
    | ReleaseTrial
    | Expose
    | Serve
    | Scale
    | Retire
    | Announce
)


@dataclass(frozen=True)
class Candidate:
    """A configuration on its way to become the incumbent.

    Attributes:
        configuration: What it runs.
        revision: What its pods are made of.
        step: Position in the canary's steps, from 0.
        started_at: When the rollout began.
        step_started_at: When every pod of the step was ready for the first time, or None before.
        waiting_since: Since when pods of the step are not ready, or None while they all are.
        verdicts: Verdicts of the steps so far, in the shape of the status.
    """

    configuration: Configuration
    revision: str
    step: int
    started_at: datetime
    step_started_at: datetime | None
    waiting_since: datetime | None = None
    verdicts: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Blocked:
    """A revision that was rolled back at `since` and is not tried again before `until`."""

    revision: str
    since: datetime
    until: datetime
    message: str


@dataclass(frozen=True)
class RolloutState:
    """Who serves, who is on the way, and who is kept out; persisted in the status."""

    incumbent: Configuration
    revision: str
    since: datetime
    replicas: int = 1
    candidate: Candidate | None = None
    blocked: tuple[Blocked, ...] = ()


@dataclass(frozen=True)
class StudyState:
    """Where the study stands.

    Attributes:
        stop: Reason of the stop, empty while it runs.
        stop_message: The sentence beside it.
        frontier: Non-dominated feasible points.
        choice: What the target picks, by second measurements where there are some.
        noise: Between engine starts, as far as repeated configurations show it.
        reason: Reason for the Converged condition while the study runs.
        message: The sentence beside it.
    """

    stop: str = ""
    stop_message: str = ""
    frontier: tuple[Point, ...] = ()
    choice: Choice | None = None
    noise: Noise = ASSUMED
    reason: str = ""
    message: str = ""

    @property
    def selection(self) -> Selection | None:
        """The choice's selection, or None without a spec."""
        return self.choice.selection if self.choice is not None else None


@dataclass(frozen=True)
class Decision:
    """All that one pass orders, with the state to report.

    Attributes:
        actions: In the order to be applied.
        reason: PascalCase reason of the pass.
        message: The sentence beside it.
        requeue_after: Seconds until the next look.
        rollout: The rollout's next state, or None where the spec is invalid.
        study: The study's state.
    """

    actions: tuple[Action, ...]
    reason: str
    message: str
    requeue_after: float
    rollout: RolloutState | None = None
    study: StudyState = field(default_factory=StudyState)
