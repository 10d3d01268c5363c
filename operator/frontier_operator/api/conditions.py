"""Condition types, reasons, and the one way to change a list of conditions.

`Ready` is always there. `Reconciling` and `Stalled` are there only while true and never together, so that generic tools
(kstatus) can tell "working on it" from "waiting for a person". Pure: the clock is given.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

Status = Literal["True", "False", "Unknown"]
Conditions = list[dict[str, Any]]

MAX_MESSAGE_LENGTH = 32768

READY = "Ready"
"""InferenceDeployment: the incumbent serves. TuningTrial: the engine answers."""
RECONCILING = "Reconciling"
"""Present while the operator works towards the spec."""
STALLED = "Stalled"
"""Present while nothing will change until a person acts."""
SLO_SATISFIED = "SLOSatisfied"
"""The incumbent's latest valid window holds every SLO."""
COST_SATISFIED = "CostSatisfied"
"""The incumbent's cost is within `objectives.cost`."""
QUALITY_SATISFIED = "QualitySatisfied"
"""The incumbent's variant holds `objectives.quality`."""
MEASURED = "Measured"
"""InferenceDeployment: the latest live window counts. TuningTrial: at least one rung counts."""
CONVERGED = "Converged"
"""The study has stopped and the selected point serves."""
DRIFT_DETECTED = "DriftDetected"
"""The live workload no longer matches the one that was tuned for."""
INFEASIBLE = "Infeasible"
"""No measured point holds all objectives; the message names the nearest and what would unlock it."""
STARTED = "Started"
"""TuningTrial: the engine's pod exists."""
FINISHED = "Finished"
"""TuningTrial: it has an outcome and will not change."""

DEPLOYMENT_CONDITIONS = (
    READY,
    RECONCILING,
    STALLED,
    SLO_SATISFIED,
    COST_SATISFIED,
    QUALITY_SATISFIED,
    MEASURED,
    CONVERGED,
    DRIFT_DETECTED,
    INFEASIBLE,
)
TRIAL_CONDITIONS = (STARTED, READY, MEASURED, FINISHED)

INVALID_SPEC = "InvalidSpec"
"""Set with `Stalled` when the spec has a problem that admission could not see. Cleared by a spec without problems."""
SUSPENDED = "Suspended"
"""Set with `Reconciling` absent while `spec.suspend` is true; the incumbent goes on. Cleared by `suspend: false`."""
WAITING_FOR_BASELINE = "WaitingForBaseline"
"""Set while the first engine is not ready yet. Cleared when it answers."""
WAITING_FOR_GPUS = "WaitingForGPUs"
"""Set while a trial's pod cannot be scheduled or the GPU cap is reached. Cleared when it starts or is given up."""
TOO_FEW_REPLICAS = "TooFewReplicas"
"""Set with `Stalled` while a live trial would take too much of the traffic. Cleared by replicas or a larger share."""
TRIAL_RUNNING = "TrialRunning"
"""Set while a trial holds an engine. Cleared when it has an outcome."""
METRICS_MISSING = "MetricsMissing"
"""Set when Prometheus cannot be asked or lacks a series that is needed. Cleared by a complete answer."""
METRICS_STALE = "MetricsStale"
"""Set when the newest sample is older than a few scrape intervals. Cleared by a fresh one."""
INSUFFICIENT_SAMPLES = "InsufficientSamples"
"""Set when a window has too few requests for a verdict. Cleared by a window with enough."""
WINDOW_INVALID = "WindowInvalid"
"""Set when a restart, a counter reset or a missed rate spoils a window. Cleared by a valid one."""
MEASUREMENT_DISAGREES = "MeasurementDisagrees"
"""Set when client and server count or time the same window differently. Cleared by a window in which they agree."""
BUDGET_EXHAUSTED = "BudgetExhausted"
"""Set when trials, time or GPU-hours of `search.budget` are used up. Cleared by a new study or a larger budget."""
FRONTIER_STABLE = "FrontierStable"
"""Set when further trials no longer push the frontier out. Cleared by a new study."""
SEARCH_SPACE_EXHAUSTED = "SearchSpaceExhausted"
"""Set when every configuration of the space was tried. Cleared by a new study."""
TOO_MANY_FAILURES = "TooManyFailures"
"""Set when trials in a row, or most of the last ones, came to nothing. Cleared by a new study by annotation."""
PAY_BACK_EXCEEDED = "PayBackExceeded"
"""Set when the next trial costs more than it should save in `budget.payBack`. Cleared by a new study or more use."""
NO_FEASIBLE_POINT = "NoFeasiblePoint"
"""Set when no measured point holds all objectives. Cleared by a feasible point or changed objectives."""
CONFIRMING_FINALISTS = "ConfirmingFinalists"
"""Set while finalists are measured again on a fresh engine. Cleared by their outcome."""
MEASURING_TECHNIQUES = "MeasuringTechniques"
"""Set while the choice is measured with one technique set back at a time. Cleared by the last outcome."""
CANARY_RUNNING = "CanaryRunning"
"""Set while a candidate gets a share of the traffic. Cleared by promotion or roll-back."""
GUARDRAIL_BREACHED = "GuardrailBreached"
"""Set when a canary misses an SLO that the incumbent holds, and by a live trial's event. Cleared by the roll-back."""
ROLLED_BACK = "RolledBack"
"""Set when the last rollout was undone. Cleared by the next promotion or a new study."""
AWAITING_APPROVAL = "AwaitingApproval"
"""Set in mode `Approve` when a candidate waits for the approve annotation. Cleared by it or by another selection."""
SLO_MET = "SLOMet"
"""Set with `SLOSatisfied=True` by a valid window that holds every SLO. Cleared by one that does not."""
SLO_MISSED = "SLOMissed"
"""Set with `SLOSatisfied=False` by a valid window that misses an SLO. Cleared by one that holds them."""
WORKLOAD_DRIFTED = "WorkloadDrifted"
"""Set when lengths, rate or hit rate left the tuned range. Cleared by a new study or a return into the range."""
OUTSIDE_WINDOW = "OutsideWindow"
"""Set while trials wait for the next of `retune.windows`. Cleared when it opens."""
SERVING = "Serving"
"""Set with `Ready=True` while the incumbent serves and nothing else is to be told. Cleared by any other reason."""

REASONS = frozenset(
    {
        INVALID_SPEC,
        SUSPENDED,
        WAITING_FOR_BASELINE,
        WAITING_FOR_GPUS,
        TOO_FEW_REPLICAS,
        TRIAL_RUNNING,
        METRICS_MISSING,
        METRICS_STALE,
        INSUFFICIENT_SAMPLES,
        WINDOW_INVALID,
        MEASUREMENT_DISAGREES,
        BUDGET_EXHAUSTED,
        FRONTIER_STABLE,
        SEARCH_SPACE_EXHAUSTED,
        TOO_MANY_FAILURES,
        PAY_BACK_EXCEEDED,
        NO_FEASIBLE_POINT,
        CONFIRMING_FINALISTS,
        MEASURING_TECHNIQUES,
        CANARY_RUNNING,
        GUARDRAIL_BREACHED,
        ROLLED_BACK,
        AWAITING_APPROVAL,
        SLO_MET,
        SLO_MISSED,
        WORKLOAD_DRIFTED,
        OUTSIDE_WINDOW,
        SERVING,
    }
)
"""Every reason that an InferenceDeployment's condition may have; a TuningTrial adds its failure's reason."""

_ONLY_WHILE_TRUE = {RECONCILING: STALLED, STALLED: RECONCILING}


def find_condition(conditions: Sequence[Mapping[str, Any]], condition_type: str) -> Mapping[str, Any] | None:
    """Return the condition of a type, or None."""
    return next((condition for condition in conditions if condition.get("type") == condition_type), None)


def is_true(conditions: Sequence[Mapping[str, Any]], condition_type: str) -> bool:
    """Return whether the condition is there and `True`."""
    condition = find_condition(conditions, condition_type)
    return condition is not None and condition.get("status") == "True"


def remove_condition(conditions: Sequence[Mapping[str, Any]], condition_type: str) -> Conditions:
    """Return the conditions without that type."""
    return [dict(condition) for condition in conditions if condition.get("type") != condition_type]


def set_condition(
    conditions: Sequence[Mapping[str, Any]],
    condition_type: str,
    status: Status,
    reason: str,
    message: str,
    generation: int,
    now: datetime,
) -> Conditions:
    """Return the conditions with this one set; the input stays as it is.

    `lastTransitionTime` moves only when the status changes. `Reconciling` and `Stalled` are removed unless `True`, and
    setting one removes the other. A message longer than the API allows is cut.

    Args:
        conditions: The present conditions.
        condition_type: One of `DEPLOYMENT_CONDITIONS` or `TRIAL_CONDITIONS`.
        status: The new status.
        reason: A PascalCase cause, not empty.
        message: The sentence a user reads.
        generation: The `metadata.generation` that was looked at.
        now: The time, aware.
    """
    if condition_type in _ONLY_WHILE_TRUE:
        if status != "True":
            return remove_condition(conditions, condition_type)
        conditions = remove_condition(conditions, _ONLY_WHILE_TRUE[condition_type])
    present = find_condition(conditions, condition_type)
    unchanged = present is not None and present.get("status") == status and "lastTransitionTime" in present
    new = {
        "type": condition_type,
        "status": status,
        "reason": reason,
        "message": message if len(message) <= MAX_MESSAGE_LENGTH else message[: MAX_MESSAGE_LENGTH - 1] + "…",
        "observedGeneration": generation,
        "lastTransitionTime": present["lastTransitionTime"] if present is not None and unchanged else _rfc3339(now),
    }
    if present is None:
        return [*map(dict, conditions), new]
    return [new if condition.get("type") == condition_type else dict(condition) for condition in conditions]


def _rfc3339(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
