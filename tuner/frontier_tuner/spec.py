"""What a study is asked to do, as a person writes it.

The models mirror the tuning part of an InferenceDeployment's spec and are what `frontier tune FILE` reads. They are
built by `StudySpec.parse` from camelCase mappings and are frozen. Only `model.variants` and `engine.image` are
required. **Every default lives here and in `frontier_tuner.spec_subject`** and is never written back, so that a spec
under version control never differs from the one in the cluster. This module asks no one and measures nothing.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, ValidationError, model_validator

from frontier_tuner.configuration import Value
from frontier_tuner.measurement import LATENCIES, Load, LoadKind
from frontier_tuner.objectives import SLO, Metric, Objectives, Policy, Target
from frontier_tuner.spec_fields import (
    Complaint,
    Duration,
    FieldError,
    InvalidSpecError,
    PositiveDuration,
    PositiveNumber,
    Rising,
    Section,
    format_duration,
    parse_decimal,
    parse_duration,
    problems_of,
    repeated,
)
from frontier_tuner.spec_subject import (
    EngineSpec,
    EnvironmentVariable,
    FactsSpec,
    GPUSpec,
    HardwareSpec,
    ModelSpec,
    ProfileSpec,
    SessionSpec,
    TokensSpec,
    TraceSpec,
    VariantSpec,
    WorkloadSpec,
)

__all__ = [
    "BudgetSpec",
    "ConfirmationSpec",
    "CostSpec",
    "EngineSpec",
    "EnvironmentVariable",
    "EvaluatorSpec",
    "FactsSpec",
    "FieldError",
    "GPUSpec",
    "HardwareSpec",
    "InvalidSpecError",
    "LadderSpec",
    "LiveSpec",
    "MeasurementSpec",
    "ModelSpec",
    "ObjectivesSpec",
    "ParameterSpec",
    "ProfileSpec",
    "PrometheusRef",
    "QualitySpec",
    "SLOSpec",
    "SearchSpec",
    "SessionSpec",
    "StudySpec",
    "TargetSpec",
    "TokensSpec",
    "TraceSpec",
    "VariantSpec",
    "WorkloadSpec",
    "format_duration",
    "parse_decimal",
    "parse_duration",
]


class SLOSpec(Section):
    """One bound: latencies have a `max` with a unit of time, user speed has a `min` in tokens per second."""

    name: str = Field(min_length=1, max_length=63)
    metric: Metric
    percentile: int = Field(95, ge=1, le=99)
    max: str | None = None
    min: str | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a missing, doubled or misplaced bound, and one that cannot be read."""
        upper, lower, metric = raw.get("max"), raw.get("min"), raw.get("metric")
        if (upper is None) == (lower is None):
            yield (), raw.get("name"), "give exactly one bound: max for a latency, min for UserTokensPerSecond"
        if lower is not None and metric in LATENCIES:
            yield ("min",), lower, f"{metric} is a latency and is bounded above: write max, such as max: 2s"
        elif lower is not None:
            yield from _bound("min", lower)
        if upper is not None and metric == "UserTokensPerSecond":
            yield ("max",), upper, 'UserTokensPerSecond is bounded below: write min, such as min: "40"'
        elif upper is not None:
            yield from _bound("max", upper)

    def to_slo(self) -> SLO:
        """Return the SLO in seconds or tokens per second."""
        return SLO(
            name=self.name,
            metric=self.metric,
            percentile=self.percentile,
            maximum=None if self.max is None else parse_duration(self.max).total_seconds(),
            minimum=None if self.min is None else float(parse_decimal(self.min)),
        )


class CostSpec(Section):
    """A ceiling on cost."""

    max_per_million_output_tokens: PositiveNumber


class EvaluatorSpec(Section):
    """One way to compare a variant's quality with the reference's."""

    name: str = Field(min_length=1, max_length=63)
    type: Literal["LogprobDivergence"]


class QualitySpec(Section):
    """A floor on quality, relative to the first variant."""

    min_percent_of_reference: int = Field(ge=1, le=100)
    evaluators: tuple[EvaluatorSpec, ...] = Field(min_length=1, max_length=8)

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield evaluators of one name."""
        yield from repeated(raw, "evaluators", "evaluator")


class ObjectivesSpec(Section):
    """All that must hold; without any, only the target decides."""

    slos: tuple[SLOSpec, ...] = Field((), max_length=16)
    cost: CostSpec | None = None
    quality: QualitySpec | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield SLOs of one name."""
        yield from repeated(raw, "slos", "SLO")


class TargetSpec(Section):
    """Which point of the frontier to serve; a change re-selects without new trials."""

    policy: Policy = "MinCost"
    user_tokens_per_second: PositiveNumber | None = None
    max_per_million_output_tokens: PositiveNumber | None = None
    headroom_percent: int = Field(10, ge=0, le=90)

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a policy without its value, and a value without its policy."""
        policy = raw.get("policy", "MinCost")
        for owner, field in (("AtUserSpeed", "userTokensPerSecond"), ("AtCost", "maxPerMillionOutputTokens")):
            if policy == owner and raw.get(field) is None:
                yield (field,), "", f"is required by policy {owner}"
            if policy != owner and raw.get(field) is not None:
                yield (field,), raw[field], f"has a meaning only with policy {owner}, not {policy}"


def _value(value: object) -> Value:
    if not isinstance(value, str | int | bool):
        raise ValueError("must be a text, a whole number, true or false")  # noqa: TRY004  # pydantic collects ValueErrors only
    return value


_MAX_VALUES = 1024
"""Values that a range with a step may have."""


ParameterValue = Annotated[Value, PlainValidator(_value)]


class ParameterSpec(Section):
    """One parameter restricted: pinned to a value, limited to values, or to a range of integers."""

    name: str = Field(pattern=r"^[a-z][A-Za-z0-9]*$", max_length=63)
    value: ParameterValue | None = None
    values: Annotated[tuple[ParameterValue, ...], Field(min_length=1, max_length=64)] | None = None
    min: int | None = None
    max: int | None = None
    step: int | None = Field(None, ge=1)

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a parameter with no or several restrictions, an inverted range and repeated values."""
        low, high = raw.get("min"), raw.get("max")
        ranged = low is not None or high is not None
        if [raw.get("value") is not None, raw.get("values") is not None, ranged].count(True) != 1:
            yield (), raw.get("name"), "give exactly one of value, values, or min with max"
        elif ranged and (low is None or high is None):
            yield (), raw.get("name"), "a range needs both min and max"
        if isinstance(low, int) and isinstance(high, int) and low > high:
            yield ("min",), low, f"must not be above max, {high}; swap them"
        step = raw.get("step")
        if isinstance(low, int) and isinstance(high, int) and isinstance(step, int) and step > 0:
            count = (high - low) // step + 1
            if count > _MAX_VALUES:
                yield ("step",), step, f"gives {count} values, of {_MAX_VALUES} allowed; raise it"
        if step is not None and not ranged:
            yield ("step",), raw["step"], "has a meaning only with min and max"
        values = raw.get("values")
        if isinstance(values, list | tuple) and len({repr(value) for value in values}) < len(values):
            yield ("values",), values, "must not repeat a value"


class BudgetSpec(Section):
    """When to stop, whichever comes first; without `maxGPUHours` only trials and time count."""

    max_trials: int = Field(24, ge=1, le=1000)
    max_duration: PositiveDuration = timedelta(hours=6)
    max_gpu_hours: PositiveNumber | None = Field(None, alias="maxGPUHours")
    ablations: int = Field(0, ge=0, le=100)
    pay_back: PositiveDuration | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield ablations that leave the search no trial."""
        most, kept = raw.get("maxTrials", 24), raw.get("ablations", 0)
        if isinstance(most, int) and isinstance(kept, int) and 0 < most <= kept:
            yield ("ablations",), kept, f"are part of maxTrials, {most}, and must leave the search at least one trial"


class LadderSpec(Section):
    """The levels of load that every trial climbs; omitted: chosen by the tuner."""

    kind: LoadKind = "Concurrency"
    levels: Annotated[tuple[PositiveNumber, ...], Field(min_length=1, max_length=32), Rising]

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a concurrency that is not whole."""
        levels = raw.get("levels")
        for index, level in enumerate(levels if isinstance(levels, list) else ()):
            if raw.get("kind", "Concurrency") == "Concurrency" and isinstance(level, str) and "." in level:
                yield ("levels", index), level, "a concurrency is a whole number of requests in flight"

    def loads(self) -> tuple[Load, ...]:
        """Return the levels as loads, rising."""
        return tuple(Load(self.kind, float(level)) for level in self.levels)


class ConfirmationSpec(Section):
    """What is measured again before it serves; without `neighbours`, as many as the budget has trials left."""

    finalists: int = Field(2, ge=0, le=8)
    neighbours: int | None = Field(None, ge=0, le=16)
    rounds: int = Field(1, ge=1, le=8)


class SearchSpec(Section):
    """What may be tried; `parameters` restrict or pin what is derived from model, hardware and engine."""

    parameters: tuple[ParameterSpec, ...] = Field((), max_length=32)
    placement: Literal["Beside", "InPlace"] = "Beside"
    max_trial_gpus: int = Field(0, alias="maxTrialGPUs", ge=1, le=10_000)  # default: the GPUs of one node
    budget: BudgetSpec = BudgetSpec()
    confirmation: ConfirmationSpec = ConfirmationSpec()
    prior: Literal["Auto", "Roofline", "AIConfigurator", "None"] = "Auto"
    seed: int = Field(1, ge=0, le=2**31 - 1)
    ladder: LadderSpec | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield parameters of one name."""
        yield from repeated(raw, "parameters", "parameter")


class PrometheusRef(Section):
    """The Prometheus that scrapes the engines; omitted: the operator's."""

    url: str | None = Field(None, pattern=r"^https?://[^\s/]+")


class LiveSpec(Section):
    """How much of the real traffic trials may take, and how far beyond an SLO it may be served."""

    max_share_percent: int = Field(10, ge=1, le=50)
    guardrail_percent: int = Field(20, ge=0, le=400)


class MeasurementSpec(Section):
    """How a rung is measured."""

    mode: Literal["Synthetic", "Live"] = "Synthetic"
    live: LiveSpec | None = None
    prometheus_ref: PrometheusRef = PrometheusRef()
    warm_up: Duration = timedelta(seconds=30)
    max_rung_duration: PositiveDuration = timedelta(minutes=2)
    min_requests: int = Field(100, ge=1)
    precision_percent: int = Field(15, ge=0, le=100)
    engine_start_timeout: PositiveDuration = timedelta(minutes=30)

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a share of the traffic for trials that take none."""
        if raw.get("live") is not None and raw.get("mode", "Synthetic") != "Live":
            yield ("live",), "", "has a meaning only with measurement.mode: Live"

    @property
    def sharing(self) -> LiveSpec:
        """How trials may share the real traffic, in mode `Live`."""
        return self.live or LiveSpec()


class StudySpec(Section):
    """Everything that a study is asked to do."""

    model: ModelSpec
    engine: EngineSpec
    hardware: HardwareSpec = HardwareSpec()
    workload: WorkloadSpec = Field(default_factory=lambda: WorkloadSpec.model_validate({"profile": {}}))
    objectives: ObjectivesSpec = ObjectivesSpec()
    target: TargetSpec = TargetSpec()
    search: SearchSpec = SearchSpec()
    measurement: MeasurementSpec = MeasurementSpec()

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield bounds in money without a price."""
        hardware, objectives, target = (_mapping(raw, name) for name in ("hardware", "objectives", "target"))
        if hardware.get("pricePerGPUHour") is None:
            price = "needs hardware.pricePerGPUHour; without a price, costs are counted in GPU-hours"
            bound = _mapping(objectives, "cost").get("maxPerMillionOutputTokens")
            if bound is not None:
                yield ("objectives", "cost", "maxPerMillionOutputTokens"), bound, price
            if target.get("maxPerMillionOutputTokens") is not None:
                yield ("target", "maxPerMillionOutputTokens"), target["maxPerMillionOutputTokens"], price

    @model_validator(mode="after")
    def _cap(self) -> Self:
        if not self.search.max_trial_gpus:  # the instance is still under construction; nobody has seen it without a cap
            capped = self.search.model_copy(update={"max_trial_gpus": self.hardware.gpus_per_node})
            object.__setattr__(self, "search", capped)
        return self

    @classmethod
    def parse(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the spec of a camelCase mapping.

        Raises:
            InvalidSpecError: The mapping is not a valid spec; carries every problem.
        """
        try:
            return cls.model_validate(mapping)
        except ValidationError as error:
            raise InvalidSpecError(problems_of(error, "spec")) from None

    def to_objectives(self) -> Objectives:
        """Return what must hold, in seconds, tokens per second and money."""
        cost = self.objectives.cost
        return Objectives(
            slos=tuple(slo.to_slo() for slo in self.objectives.slos),
            max_cost=None if cost is None else float(cost.max_per_million_output_tokens),
            price_per_gpu_hour=float(self.hardware.price_per_gpu_hour),
        )

    def to_target(self) -> Target:
        """Return which point to serve."""
        speed, cost = self.target.user_tokens_per_second, self.target.max_per_million_output_tokens
        return Target(
            policy=self.target.policy,
            user_tokens_per_second=None if speed is None else float(speed),
            max_cost=None if cost is None else float(cost),
            headroom_percent=self.target.headroom_percent,
        )


def _mapping(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = raw.get(name)
    return value if isinstance(value, Mapping) else {}


def _bound(field: str, text: object) -> Iterator[Complaint]:
    try:
        positive = parse_duration(text) > timedelta() if field == "max" else parse_decimal(text) > 0
    except ValueError as error:
        yield (field,), text, str(error)
    else:
        if not positive:
            yield (field,), text, "must be above 0"
