"""A workload that was learned from the incumbent's own series: as the status keeps it, and as a study uses it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from frontier_operator.api.v1alpha1 import InferenceDeploymentSpec
from frontier_operator.core.report import rfc3339
from frontier_tuner.load.learned import Learned
from frontier_tuner.spec_subject import WorkloadSpec


def encode(learned: Learned, window_seconds: float, now: datetime) -> dict[str, Any]:
    """Return `status.study.workload`.

    Args:
        learned: What was learned.
        window_seconds: How far back it was looked.
        now: When.
    """
    entry: dict[str, Any] = {
        "learnedAt": rfc3339(now),
        "window": f"{window_seconds:.0f}s",
        "requests": learned.requests,
        "requestRate": f"{learned.request_rate:.6g}",
        "busyRate": f"{learned.busy_rate:.6g}",
        "sharedPrefixPercent": learned.profile["session"]["sharedPrefixPercent"],
        "inputTokens": list(learned.profile["inputTokens"]["histogram"]),
        "outputTokens": list(learned.profile["outputTokens"]["histogram"]),
    }
    if learned.arrivals:
        entry["burstiness"] = learned.arrivals["burstiness"]
    if learned.notes:
        entry["notes"] = list(learned.notes)
    return entry


def with_workload(spec: InferenceDeploymentSpec, entry: Mapping[str, Any]) -> InferenceDeploymentSpec:
    """Return a spec whose workload is the learned profile; arrivals and request rate that it gives itself stay.

    Args:
        spec: A spec with `workload.fromMetrics`.
        entry: `status.study.workload`.

    Raises:
        ValueError: The entry is no workload.
    """
    given = spec.workload
    arrivals = given.arrivals.model_dump(by_alias=True, exclude_none=True) if given.arrivals else {}
    if not arrivals and entry.get("burstiness"):
        arrivals = {"pattern": "Gamma", "burstiness": entry["burstiness"]}
    content: dict[str, Any] = {
        "profile": {
            "inputTokens": {"histogram": entry["inputTokens"]},
            "outputTokens": {"histogram": entry["outputTokens"]},
            "session": {"turns": 1, "sharedPrefixPercent": entry["sharedPrefixPercent"]},
        },
        "requestRate": entry["busyRate"] if given.request_rate is None else str(given.request_rate),
    }
    if arrivals:
        content["arrivals"] = arrivals
    return spec.model_copy(update={"workload": WorkloadSpec.model_validate(content)})
