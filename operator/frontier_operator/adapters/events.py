"""Kubernetes events about an InferenceDeployment."""

from frontier_operator.api import names
from frontier_operator.ports import Clock, Manifest, Objects
from frontier_tuner.configuration import digest

MAX_MESSAGE = 1024
"""The API server refuses longer messages of core/v1 events."""


class KubeEvents:
    """`ports.Events` as core/v1 events; the same event within a minute is written once."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock

    def emit(self, regarding: Manifest, reason: str, message: str, *, warning: bool) -> None:
        """Write an event on an object."""
        metadata = regarding["metadata"]
        now = self._clock.now()
        stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        unique = digest([metadata["uid"], reason, message, stamp[:16]], 16)
        self._objects.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{metadata['name']}.{unique}", "namespace": metadata["namespace"]},
                "involvedObject": {
                    "apiVersion": names.API_VERSION,
                    "kind": regarding["kind"],
                    "name": metadata["name"],
                    "namespace": metadata["namespace"],
                    "uid": metadata["uid"],
                    "resourceVersion": metadata["resourceVersion"],
                },
                "reason": reason,
                "message": message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…",
                "type": "Warning" if warning else "Normal",
                "source": {"component": names.FIELD_MANAGER},
                "reportingComponent": names.FIELD_MANAGER,
                "reportingInstance": names.FIELD_MANAGER,
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
            }
        )
