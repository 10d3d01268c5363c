"""What a study is about, as a person writes it: the model, its engine, the hardware under it and the workload on it.

Part of the spec; defaults live here and in `frontier_tuner.spec`.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from frontier_tuner.load.lengths import MAX_P95_OF_MEAN, Empirical
from frontier_tuner.load.schedule import Pattern
from frontier_tuner.load.sessions import BLOCK_TOKENS
from frontier_tuner.spec_fields import Complaint, Duration, Memory, PositiveDuration, PositiveNumber, Section, repeated

_SPEECHLESS = "must be at least 2: the frontier is one of speed, and an answer of one token has none"


class FactsSpec(Section):
    """Overrides of what the model's own config says; anything not given is looked up."""

    layers: int | None = Field(None, ge=1)
    hidden: int | None = Field(None, ge=1)
    heads: int | None = Field(None, ge=1)
    kv_heads: int | None = Field(None, ge=1)
    head_dim: int | None = Field(None, ge=1)
    intermediate: int | None = Field(None, ge=1)
    vocabulary: int | None = Field(None, ge=1)
    max_context: int | None = Field(None, ge=1)
    experts: int | None = Field(None, ge=0)
    experts_per_token: int | None = Field(None, ge=0)
    expert_intermediate: int | None = Field(None, ge=0)
    mla: bool | None = None
    kv_lora_rank: int | None = Field(None, ge=0)
    weight_bits: int | None = Field(None, ge=1, le=32)
    mtp_layers: int | None = Field(None, ge=0)

    def overrides(self) -> dict[str, int | bool]:
        """Return the facts that are given, by their snake_case names."""
        return self.model_dump(exclude_none=True)


class VariantSpec(Section):
    """One checkpoint that may serve the model."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)
    source: str
    technique: Literal["Quantization", "Distillation", "Pruning"] | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a source that is neither on the hub nor on a claim."""
        source = raw.get("source")
        if isinstance(source, str) and not re.fullmatch(r"hf://[^/\s]+/[^/\s]+|pvc://[^/\s]+(/[^\s]*)?", source):
            yield ("source",), source, "must be hf://ORGANISATION/NAME or pvc://CLAIM/PATH"
        elif isinstance(source, str) and ".." in source.split("/"):
            yield ("source",), source, "must not leave its claim with .."


class ModelSpec(Section):
    """The model; `served_name` defaults to the first variant's source without its scheme."""

    served_name: str = Field("", max_length=253)
    variants: tuple[VariantSpec, ...] = Field(min_length=1, max_length=16)
    facts: FactsSpec = FactsSpec()

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield variants of one name."""
        yield from repeated(raw, "variants", "variant")

    @model_validator(mode="after")
    def _name(self) -> Self:
        if not self.served_name:  # the instance is still under construction; nobody has seen it unnamed
            object.__setattr__(self, "served_name", self.variants[0].source.split("://", 1)[-1])
        return self


class EnvironmentVariable(Section):
    """A container's environment variable, as Kubernetes writes it."""

    name: str = Field(min_length=1)
    value: str | None = None
    value_from: dict[str, Any] | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a variable with two values, or a secret in plain text."""
        if raw.get("value") is not None and raw.get("valueFrom") is not None:
            yield (), raw.get("name"), "give either value or valueFrom, not both"
        if raw.get("name") in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY") and raw.get("value"):
            yield ("value",), "***", f"{raw['name']} is a secret; take it from a Secret with valueFrom.secretKeyRef"


class EngineSpec(Section):
    """The inference engine; `args` are fixed and never searched."""

    type: Literal["VLLM"] = "VLLM"
    image: str = Field(min_length=1)
    args: tuple[str, ...] = ()
    env: tuple[EnvironmentVariable, ...] = ()

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield variables of one name."""
        yield from repeated(raw, "env", "variable")


class GPUSpec(Section):
    """The kind of GPU; product and memory default to what the node or the facts table says."""

    resource_name: str = Field("nvidia.com/gpu", min_length=1)
    product: str | None = None
    memory: Memory | None = None


class HardwareSpec(Section):
    """What engines run on. Without a price, costs count GPU-hours: price 1, currency `GPUh`."""

    gpu: GPUSpec = GPUSpec()
    gpus_per_node: int = Field(1, ge=1, le=1024)
    interconnect: Literal["NVLink", "PCIe"] | None = None
    price_per_gpu_hour: PositiveNumber = Field(Decimal(1), alias="pricePerGPUHour")
    cached_input_percent: int = Field(100, ge=0, le=100)
    currency: str = Field("", max_length=8)

    @model_validator(mode="after")
    def _currency(self) -> Self:
        if not self.currency:  # the instance is still under construction; nobody has seen it without a currency
            given = "price_per_gpu_hour" in self.model_fields_set
            object.__setattr__(self, "currency", "USD" if given else "GPUh")
        return self


class BucketSpec(Section):
    """So many lengths above those of the bucket before it, up to and including `up_to`."""

    up_to: int = Field(ge=1)
    weight: int = Field(ge=0)


class TokensSpec(Section):
    """A length: lognormal with a mean and a p95, the mean itself without a p95, or as a histogram counts.

    With a histogram, `mean` and `p95` are those of the histogram.
    """

    mean: int = Field(0, ge=1)
    p95: int = Field(default_factory=lambda fields: fields.get("mean", 1), ge=1)
    histogram: Annotated[tuple[BucketSpec, ...], Field(min_length=1, max_length=256)] | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield none or several ways of saying it, a p95 that no lognormal distribution has, edges that do not rise."""
        mean, p95, histogram = raw.get("mean"), raw.get("p95"), raw.get("histogram")
        if (mean is None) == (histogram is None):
            yield ("mean",), "", "give mean, with or without p95, or histogram"
        if histogram is not None and p95 is not None:
            yield ("p95",), p95, "has a meaning only with mean"
        if isinstance(mean, int) and isinstance(p95, int) and p95 < mean:
            yield ("p95",), p95, f"must be at least the mean, {mean}"
        elif isinstance(mean, int) and isinstance(p95, int) and mean > 0 and p95 > mean * MAX_P95_OF_MEAN:
            most = int(mean * MAX_P95_OF_MEAN)
            words = "more no lognormal distribution has; raise the mean, give a histogram or replay a trace"
            yield ("p95",), p95, f"must be at most {most}, {MAX_P95_OF_MEAN:.2f} times the mean, {mean}: {words}"
        yield from _uneven(histogram)

    @model_validator(mode="after")
    def _describe(self) -> Self:
        if self.histogram is not None:  # the instance is still under construction; nobody has seen it without a mean
            lengths = Empirical([(bucket.up_to, bucket.weight) for bucket in self.histogram])
            object.__setattr__(self, "mean", max(1, round(lengths.mean)))
            object.__setattr__(self, "p95", max(1, round(lengths.quantile(0.95))))
        return self

    def resolve(self) -> dict[str, Any]:
        """Return the JSON value that the load generator reads."""
        shape = {"histogram"} if self.histogram is not None else {"mean", "p95"}
        return self.model_dump(mode="json", by_alias=True, include=shape)


def _uneven(histogram: object) -> Iterator[Complaint]:
    buckets = [bucket for bucket in histogram if isinstance(bucket, Mapping)] if isinstance(histogram, list) else []
    edges = [bucket.get("upTo") for bucket in buckets]
    for index, (low, high) in enumerate(pairwise(edges), 1):
        if isinstance(low, int) and isinstance(high, int) and low >= high:
            yield ("histogram", index, "upTo"), high, f"must be above that of the bucket before it, {low}"
    if buckets and all(bucket.get("weight") == 0 for bucket in buckets):
        yield ("histogram",), "", "must have a weight above 0"


class SessionSpec(Section):
    """How requests hang together: turns over a shared prefix.

    `shared_prefix_percent` is the share of prompt tokens that a prefix cache serves which forgets nothing.
    """

    turns: int = Field(1, ge=1, le=1000)
    shared_prefix_percent: int = Field(0, ge=0, le=99)
    think_time: Duration = timedelta()
    block_tokens: int = Field(BLOCK_TOKENS, ge=1, le=4096)


class ProfileSpec(Section):
    """A synthetic workload; the default is chat: 1,024 tokens in and 256 out on average."""

    input_tokens: TokensSpec = Field(default_factory=lambda: TokensSpec.model_validate({"mean": 1024, "p95": 3072}))
    output_tokens: TokensSpec = Field(default_factory=lambda: TokensSpec.model_validate({"mean": 256, "p95": 768}))
    session: SessionSpec = SessionSpec()

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield answers of one token, which have no speed."""
        outputs = raw.get("outputTokens")
        if isinstance(outputs, Mapping) and outputs.get("mean") == 1:
            yield ("outputTokens", "mean"), 1, _SPEECHLESS

    def resolve(self) -> dict[str, Any]:
        """Return the JSON value that the load generator reads."""
        lengths = {"inputTokens": self.input_tokens.resolve(), "outputTokens": self.output_tokens.resolve()}
        return {**lengths, "session": self.session.model_dump(by_alias=True)}


class ConfigMapRef(Section):
    """A key of a ConfigMap in the same namespace."""

    name: str = Field(min_length=1)
    key: str = Field("trace.csv", min_length=1)


class TraceSpec(Section):
    """A recorded workload: from a ConfigMap in a cluster, from `path` for the `frontier` command."""

    config_map_ref: ConfigMapRef | None = None
    path: str | None = None
    format: Literal["AzureLLMInference", "BurstGPT", "Mooncake"] = "AzureLLMInference"
    max_input_tokens: int | None = Field(None, ge=1)
    max_output_tokens: int | None = Field(None, ge=1)
    block_tokens: int | None = Field(None, ge=1, le=65_536)

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a trace without a source or with two, blocks where there are none, and answers of one token."""
        if raw.get("blockTokens") is not None and raw.get("format") != "Mooncake":
            yield ("blockTokens",), raw["blockTokens"], "has a meaning only with format Mooncake"
        if raw.get("maxOutputTokens") == 1:
            yield ("maxOutputTokens",), 1, _SPEECHLESS
        if (raw.get("configMapRef") is None) == (raw.get("path") is None):
            yield (), "", "give the trace as configMapRef: {name: …, key: …}; the frontier command takes path instead"


class ArrivalsSpec(Section):
    """How the requests of an open loop are spread; a profile's are Poisson and a trace's as recorded by default."""

    pattern: Pattern | None = None
    burstiness: PositiveNumber | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield a gamma process without its burstiness, and a burstiness without a gamma process."""
        pattern, burstiness = raw.get("pattern"), raw.get("burstiness")
        if pattern == "Gamma" and burstiness is None:
            yield ("burstiness",), "", "is required by pattern Gamma"
        if burstiness is not None and pattern not in {None, "Gamma"}:
            yield ("burstiness",), burstiness, f"has a meaning only with pattern Gamma, not {pattern}"


class FromMetricsSpec(Section):
    """A workload learned from the incumbent's own metrics."""

    window: PositiveDuration = timedelta(hours=24)


class WorkloadSpec(Section):
    """What requests look like: one of profile, trace and from_metrics; omitted as a whole, the default profile."""

    profile: ProfileSpec | None = None
    trace: TraceSpec | None = None
    from_metrics: FromMetricsSpec | None = None
    arrivals: ArrivalsSpec | None = None
    request_rate: PositiveNumber | None = None

    @classmethod
    def complaints(cls, raw: Mapping[str, Any]) -> Iterator[Complaint]:
        """Yield none or several kinds of workload."""
        given = [name for name in ("profile", "trace", "fromMetrics") if raw.get(name) is not None]
        if len(given) != 1:
            yield (), ", ".join(given), "give exactly one of profile, trace and fromMetrics"
        arrivals = raw.get("arrivals")
        if isinstance(arrivals, Mapping) and arrivals.get("pattern") == "Recorded" and given != ["trace"]:
            yield ("arrivals", "pattern"), "Recorded", "needs a trace"

    def resolve(self, trace_path: str = "/trace/trace.csv") -> dict[str, Any]:
        """Return the JSON value of `frontier load --workload`; `trace_path` is where a ConfigMap's trace is mounted.

        Raises:
            ValueError: The workload is `fromMetrics`; it must be learned first.
        """
        if self.trace is not None:
            trace = self.trace.model_dump(by_alias=True, exclude_none=True, exclude={"config_map_ref"})
            return {"trace": {"path": trace_path, **trace}, **self._arrivals()}
        if self.profile is None:
            raise ValueError("workload.fromMetrics has no lengths of its own; learn a profile from the incumbent first")
        return {"profile": self.profile.resolve(), **self._arrivals()}

    def _arrivals(self) -> dict[str, Any]:
        given = self.arrivals.model_dump(by_alias=True, exclude_none=True) if self.arrivals else {}
        return {"arrivals": given} if given else {}
