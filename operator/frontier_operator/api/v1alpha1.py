"""The two kinds as pydantic models: what the operator reads from a spec and writes to a status.

The CRDs in `crds/` are the source of truth; a test holds both together. Specs are strict and report every problem with
its path; statuses are lenient, because an object may have been written by another version. No default is ever written
to a spec.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from frontier_operator.api.policy import Policy, argument_complaints, pod_template_complaints
from frontier_operator.api.v1alpha1_status import (
    BaselineStatus,
    BlockedStatus,
    CandidateStatus,
    ConditionStatus,
    FailureStatus,
    IncumbentStatus,
    InferenceDeploymentStatus,
    LoadStatus,
    MeasuredStatus,
    MeasurementStatus,
    MetricStatus,
    PointStatus,
    RecommendedStatus,
    SelectionStatus,
    StudyStatus,
    SummaryStatus,
    TechniqueStatus,
    TrialCounts,
    TuningTrialStatus,
    VerdictStatus,
    WindowStatus,
)
from frontier_tuner.measurement import LoadKind
from frontier_tuner.spec import EngineSpec, FieldError, StudySpec
from frontier_tuner.spec_fields import Complaint, Duration, PositiveDuration, Rising, Section, problems_of, repeated
from frontier_tuner.trial import Purpose

__all__ = [
    "BaselineStatus",
    "BlockedStatus",
    "CanarySpec",
    "CandidateStatus",
    "ConditionStatus",
    "DeployedEngineSpec",
    "FailureStatus",
    "FieldError",
    "GatewayRef",
    "IncumbentStatus",
    "InferenceDeploymentSpec",
    "InferenceDeploymentStatus",
    "LoadStatus",
    "MeasuredStatus",
    "MeasurementStatus",
    "MetricStatus",
    "PointStatus",
    "Policy",
    "RecommendedStatus",
    "RetuneSpec",
    "RetuneWindow",
    "RolloutSpec",
    "SelectionStatus",
    "StudyStatus",
    "SummaryStatus",
    "TechniqueStatus",
    "TrialCounts",
    "TrialLadder",
    "TuningTrialSpec",
    "TuningTrialStatus",
    "VerdictStatus",
    "WindowStatus",
    "parse",
]

MAX_NAME_LENGTH = 40
"""Longest name of an InferenceDeployment; names derived from it must stay within 63 characters."""


class DeployedEngineSpec(EngineSpec):
    """The engine with a strategic-merge patch on its pods."""

    pod_template: dict[str, Any] = Field(default_factory=dict)


class GatewayRef(Section):
    """The Gateway, in the same namespace, whose HTTPRoute shifts the weights of a canary."""

    name: str = Field(min_length=1)
    section_name: str | None = None


class CanarySpec(Section):
    """How traffic moves; `analysis_deadline` defaults to three times the duration of all steps."""

    steps: Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], Field(min_length=1, max_length=16), Rising] = (
        5,
        25,
        50,
    )
    step_duration: PositiveDuration = timedelta(minutes=5)
    min_requests: int = Field(200, ge=1)
    gateway_ref: GatewayRef | None = None
    analysis_deadline: PositiveDuration = timedelta()

    @model_validator(mode="after")
    def _deadline(self) -> Self:
        if (
            not self.analysis_deadline
        ):  # the instance is still under construction; nobody has seen it without a deadline
            object.__setattr__(self, "analysis_deadline", 3 * len(self.steps) * self.step_duration)
        return self


class RolloutSpec(Section):
    """Who decides about a rollout, and how it goes."""

    mode: Literal["Automatic", "Approve", "Recommend"] = "Automatic"
    canary: CanarySpec = CanarySpec()


class RetuneWindow(Section):
    """A recurring time in which trials may run."""

    name: str = Field(min_length=1, max_length=63)
    schedule: str = Field(pattern=r"^\S+( \S+){4}$")
    duration: PositiveDuration
    time_zone: str = "UTC"


class RetuneSpec(Section):
    """When to tune again; without windows, trials may run at any time."""

    on_drift: bool = True
    cooldown: Duration = timedelta(hours=24)
    windows: tuple[RetuneWindow, ...] = Field((), max_length=16)

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield windows of one name."""
        yield from repeated(raw, "windows", "window")


class InferenceDeploymentSpec(StudySpec):
    """What a user asks for."""

    suspend: bool = False
    engine: DeployedEngineSpec
    rollout: RolloutSpec = RolloutSpec()
    retune: RetuneSpec = RetuneSpec()


class TrialLadder(Section):
    """The levels of load that a trial climbs, as decimal strings."""

    kind: LoadKind
    levels: tuple[str, ...] = Field(min_length=1, max_length=32)


class TuningTrialSpec(Section):
    """One engine start; immutable, and enough to do it again by hand."""

    deployment_name: str
    fingerprint: str
    number: int = Field(ge=0)
    purpose: Purpose
    configuration: dict[str, str]
    configuration_hash: str
    gpus: int = Field(ge=0)
    mode: Literal["Synthetic", "Live"] | None = None
    ladder: TrialLadder | None = None
    reason: str = ""
    expected_gain: str | None = None
    command: tuple[str, ...] = ()
    image: str


def parse(body: Mapping[str, Any], policy: Policy | None = None) -> InferenceDeploymentSpec | list[FieldError]:
    """Return the spec of an InferenceDeployment, or every problem that it has.

    Args:
        body: The object as the API server returns it, with `metadata` and `spec`.
        policy: What the administrator allows; nothing beyond the defaults where it is None.
    """
    raw = body.get("spec")
    if not isinstance(raw, Mapping):
        return [FieldError("spec", "", "is required")]
    found = [_problem(complaint) for complaint in _deployment_complaints(raw, policy or Policy())]
    name = str(body.get("metadata", {}).get("name", ""))
    if len(name) > MAX_NAME_LENGTH:
        message = (
            f"must have at most {MAX_NAME_LENGTH} characters, so that names derived from it fit; it has {len(name)}"
        )
        found.append(FieldError("metadata.name", name, message))
    try:
        spec = InferenceDeploymentSpec.model_validate(raw)
    except ValidationError as error:
        found.extend(problems_of(error, "spec"))
    else:
        if not found:
            return spec
    return sorted(found, key=lambda problem: problem.path)


def _deployment_complaints(raw: Mapping[str, Any], policy: Policy) -> Iterator[Complaint]:
    engine = raw.get("engine")
    if isinstance(engine, Mapping):
        args, template = engine.get("args"), engine.get("podTemplate")
        for loc, value, message in argument_complaints(args if isinstance(args, list) else [], policy):
            yield ("engine", "args", *loc), value, message
        template = template if isinstance(template, Mapping) else {}
        for loc, value, message in pod_template_complaints(template, policy, _gpu_resource(raw)):
            yield ("engine", "podTemplate", *loc), value, message
    workload = raw.get("workload")
    if isinstance(workload, Mapping) and isinstance(trace := workload.get("trace"), Mapping) and "path" in trace:
        yield ("workload", "trace", "path"), trace["path"], "is for the frontier command; in a cluster use configMapRef"


def _gpu_resource(raw: Mapping[str, Any]) -> str:
    hardware = raw.get("hardware")
    gpu = hardware.get("gpu") if isinstance(hardware, Mapping) else None
    return str(gpu.get("resourceName") or "nvidia.com/gpu") if isinstance(gpu, Mapping) else "nvidia.com/gpu"


def _problem(complaint: Complaint) -> FieldError:
    loc, value, message = complaint
    path = "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return FieldError(path, "" if value is None else str(value)[:80], message)
