"""A trial: one engine start with one configuration, and the rungs measured on it.

Proposed ──► Applying ──► Warming ──► Measuring ──► Complete    the ladder was climbed; the sampler learns
                │            │            ├───────► Pruned      stopped early, but what was measured counts; it learns
                └────────────┴────────────┼───────► Infeasible  the configuration cannot serve; it learns
                                          └───────► Failed      the surroundings failed; it must not learn
"""

from dataclasses import dataclass
from typing import Literal

from frontier_tuner.configuration import Configuration
from frontier_tuner.measurement import Measurement

Outcome = Literal["Complete", "Infeasible", "Failed", "Pruned"]
Purpose = Literal["Baseline", "Search", "Confirmation", "Ablation"]

FailureClass = Literal["Configuration", "Infrastructure"]
"""`Configuration`: the engine will fail again, the sampler learns. `Infrastructure`: a retry may succeed."""

CONFIGURATION_REASONS = {
    "EngineOutOfMemory": "the engine ran out of memory",
    "EngineArgumentsRefused": "the engine refused its arguments",
    "EngineStartFailed": "the engine ended before it was ready",
    "EngineStartTimeout": "the engine was not ready in time",
    "EngineDied": "the engine was ready and ended under load",
    "GuardrailBreached": "real traffic missed an SLO beyond the guardrail, and was taken away from the engine",
}
INFRASTRUCTURE_REASONS = {
    "Unschedulable": "no node could take the pod in time",
    "ImagePullFailed": "the image could not be pulled",
    "ContainerConfigError": "the container could not be made from its pod's description",
    "PodNotStarted": "the pod was scheduled and its container did not start in time",
    "Superseded": "the study that asked for the trial is not the present one any more",
    "PodLost": "the pod was evicted, pre-empted or deleted",
    "LoadFailed": "the load generator failed",
    "MetricsMissing": "Prometheus did not have the window's metrics",
    "WindowInvalid": "no window of a rung could be trusted",
    "DeadlineExceeded": "the trial took longer than its deadline",
    "ShareExceeded": "replicas of the incumbent went away, and the engine would have taken too much of the traffic",
    "TooLittleTraffic": "too few real requests came within the window",
}
PRUNING_REASONS = frozenset({"GuardrailBreached"})
"""Reasons that end a trial early and keep what was measured: how far it missed says more than that it did."""


@dataclass(frozen=True)
class Failure:
    """Why a trial did not complete.

    Attributes:
        reason: A key of `CONFIGURATION_REASONS` or `INFRASTRUCTURE_REASONS`.
        message: The engine's last words, or the scheduler's, as a user should read them.
    """

    reason: str
    message: str

    @property
    def failure_class(self) -> FailureClass:
        """Whether the configuration or its surroundings are to blame."""
        return "Configuration" if self.reason in CONFIGURATION_REASONS else "Infrastructure"

    @property
    def outcome(self) -> Outcome:
        """The outcome that a trial with this failure has."""
        if self.reason in PRUNING_REASONS:
            return "Pruned"
        return "Infeasible" if self.failure_class == "Configuration" else "Failed"


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial, as the journal keeps it.

    Attributes:
        number: Position in the study, from 0, without gaps.
        configuration: What the engine was started with.
        purpose: Why it was run.
        outcome: How it ended.
        gpus: GPUs that it held.
        measurements: One per rung, in the order they were taken.
        failure: Why it did not complete, or None.
        gpu_seconds: GPUs times seconds held.
        engine_start_seconds: From the start of the process to readiness, or None where it never was ready.
        reason: Why it was proposed.
        beside: What the incumbent's engines showed in the window of the last measurement, its load that of one of them;
            None where the load was the tuner's own.
        expected_gain: By what share it was expected to raise what target and frontier are worth; None where unknown.
    """

    number: int
    configuration: Configuration
    purpose: Purpose
    outcome: Outcome
    gpus: int
    measurements: tuple[Measurement, ...] = ()
    failure: Failure | None = None
    gpu_seconds: float = 0.0
    engine_start_seconds: float | None = None
    reason: str = ""
    beside: Measurement | None = None
    expected_gain: float | None = None
