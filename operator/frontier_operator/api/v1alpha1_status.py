"""The statuses of both kinds: decimal strings for numbers with a fraction, integers for counts, RFC 3339 for times.

A value that is not known is absent. Unknown fields are ignored: another version may have written them.
"""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from frontier_tuner.measurement import LoadKind
from frontier_tuner.trial import FailureClass, Outcome

DecimalText = Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$", max_length=64)]
"""A number such as `0.0213`; strings, because the API has no floats."""


class Status(BaseModel):
    """A part of a status; camelCase outside, written with `dump`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    def dump(self) -> dict[str, object]:
        """Return the JSON value without what is unknown."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class ConditionStatus(Status):
    """A condition as Kubernetes writes it."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""
    observed_generation: int | None = None
    last_transition_time: datetime


class LoadStatus(Status):
    """One level of load."""

    kind: LoadKind
    value: DecimalText


class WindowStatus(Status):
    """The time that a measurement covers."""

    start: datetime
    end: datetime


class MetricStatus(Status):
    """One value with its 95 % interval and the query that yields it again."""

    name: str
    percentile: int | None = None
    value: DecimalText
    low: DecimalText | None = None
    high: DecimalText | None = None
    n: int | None = None
    query: str | None = None


class EndingStatus(Status):
    """Why a rung's window ended."""

    reason: Literal["Tight", "TimeUp"]
    open: tuple[str, ...] = ()
    message: str = ""


class MeasurementStatus(Status):
    """One rung of a trial, as the journal keeps it."""

    load: LoadStatus
    window: WindowStatus
    sent: int
    ok: int
    failed: int
    metrics: tuple[MetricStatus, ...] = ()
    valid: bool
    reason: str | None = None
    message: str | None = None
    check: str | None = None
    ended: EndingStatus | None = None


class FailureStatus(Status):
    """Why a trial did not complete."""

    class_: FailureClass = Field(alias="class")
    reason: str
    message: str = ""


class TuningTrialStatus(Status):
    """What came of a trial."""

    observed_generation: int | None = None
    conditions: tuple[ConditionStatus, ...] = ()
    outcome: Outcome | None = None
    failure: FailureStatus | None = None
    measurements: tuple[MeasurementStatus, ...] = ()
    incumbent: MeasurementStatus | None = None
    gpu_seconds: DecimalText | None = None
    engine_start_seconds: DecimalText | None = None
    started_at: datetime | None = None
    engine_ready_at: datetime | None = None
    finished_at: datetime | None = None


class PointStatus(Status):
    """One point of the frontier: a configuration under a load, with what was measured."""

    configuration: dict[str, str]
    configuration_hash: str
    trial: str | None = None
    load: LoadStatus
    window: WindowStatus | None = None
    metrics: tuple[MetricStatus, ...] = ()
    cost_per_million_output_tokens: DecimalText | None = None
    quality_percent_of_reference: DecimalText | None = None
    feasible: bool | None = None
    binding: str | None = None


class MeasuredStatus(Status):
    """What was measured of a configuration, and where it is recorded."""

    trial: str | None = None
    load: LoadStatus | None = None
    window: WindowStatus | None = None
    metrics: tuple[MetricStatus, ...] = ()
    cost_per_million_output_tokens: DecimalText | None = None


class BaselineStatus(Status):
    """The configuration before the study."""

    configuration: dict[str, str]
    configuration_hash: str
    measured: MeasuredStatus | None = None


class IncumbentStatus(BaselineStatus):
    """A configuration that serves or has served."""

    revision: str | None = None
    replicas: int | None = None
    since: datetime | None = None


class RecommendedStatus(BaselineStatus):
    """The configuration to roll out by hand, with the manifest that does it."""

    manifest: str | None = None


class VerdictStatus(Status):
    """The judgement of one canary step."""

    step: int
    verdict: str
    message: str = ""
    at: datetime


class CandidateStatus(Status):
    """A rollout under way."""

    configuration: dict[str, str]
    configuration_hash: str
    revision: str
    step: int | None = None
    step_percent: int | None = None
    replicas: int | None = None
    step_started_at: datetime | None = None
    waiting_since: datetime | None = None
    started_at: datetime | None = None
    verdicts: tuple[VerdictStatus, ...] = ()


class BlockedStatus(Status):
    """A revision that was rolled back and is not tried again for a while."""

    revision: str
    reason: str
    message: str = ""
    since: datetime
    until: datetime | None = None


class TrialCounts(Status):
    """Trials by how they ended."""

    complete: int = 0
    infeasible: int = 0
    failed: int = 0
    pruned: int = 0


class LengthBucketStatus(Status):
    """One bucket of a histogram of lengths."""

    up_to: int = Field(ge=1)
    weight: int = Field(ge=0)


class LearnedWorkloadStatus(Status):
    """The workload that was learned for the study from the incumbent's own metrics."""

    learned_at: datetime
    window: str
    requests: int = Field(ge=0)
    request_rate: DecimalText
    busy_rate: DecimalText
    burstiness: DecimalText | None = None
    shared_prefix_percent: int = Field(0, ge=0, le=99)
    input_tokens: tuple[LengthBucketStatus, ...] = ()
    output_tokens: tuple[LengthBucketStatus, ...] = ()
    notes: tuple[str, ...] = ()


class StudyStatus(Status):
    """The study that belongs to the present spec."""

    fingerprint: str
    trials: TrialCounts = TrialCounts()
    gpu_hours: DecimalText | None = None
    hypervolume: DecimalText | None = None
    start_noise_percent: DecimalText | None = None
    refused: tuple[str, ...] | None = Field(None, max_length=16)
    started_at: datetime | None = None
    stop: str | None = None
    stop_message: str | None = None
    workload: LearnedWorkloadStatus | None = None


class RatioStatus(Status):
    """How many times one value is another, with its 95 % interval."""

    value: DecimalText
    low: DecimalText | None = None
    high: DecimalText | None = None


class SelectionStatus(Status):
    """Which point was chosen and why."""

    policy: str
    configuration: dict[str, str] | None = None
    configuration_hash: str | None = None
    load: LoadStatus | None = None
    binding: str | None = None
    runner_up: str | None = None
    confirmations: int | None = None
    optimism: RatioStatus | None = None
    message: str = ""


class TechniqueStatus(Status):
    """What one technique contributed; without a factor, the state says why there is none."""

    name: str
    state: Literal["Measured", "Needed", "NotMeasured", "NoConfiguration"] | None = None
    factor: DecimalText | None = None
    low: DecimalText | None = None
    high: DecimalText | None = None
    effect: Literal["MovesAlong", "PushesOut", "PullsIn", "WithinNoise"] | None = None
    message: str = ""


class AdvantageStatus(Status):
    """The selected point against the baseline's, and what of it the techniques' factors explain."""

    gains: str = ""
    total: RatioStatus | None = None
    product: RatioStatus | None = None
    interaction: RatioStatus | None = None


class SummaryStatus(Status):
    """The print columns, ready to read."""

    cost: str | None = None
    ttft: str | None = None
    itl: str | None = None
    trials: str | None = None
    target: str | None = None
    parallelism: str | None = None
    batch: str | None = None
    reason: str | None = None


class InferenceDeploymentStatus(Status):
    """What the operator knows and has done."""

    observed_generation: int | None = None
    conditions: tuple[ConditionStatus, ...] = ()
    summary: SummaryStatus | None = None
    study: StudyStatus | None = None
    baseline: BaselineStatus | None = None
    incumbent: IncumbentStatus | None = None
    previous: IncumbentStatus | None = None
    candidate: CandidateStatus | None = None
    recommended: RecommendedStatus | None = None
    selection: SelectionStatus | None = None
    frontier: tuple[PointStatus, ...] = Field((), max_length=32)
    blocked: tuple[BlockedStatus, ...] = Field((), max_length=32)
    techniques: tuple[TechniqueStatus, ...] = Field((), max_length=32)
    advantage: AdvantageStatus | None = None
    last_handled_reconcile_at: str | None = None
