"""Events about pods, Services and nodes; the same event again raises the count of the first."""

import asyncio
import itertools
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from frontier_local.agent.api import CONNECTION_ERRORS, ApiClient, ApiError
from frontier_local.agent.status import timestamp

Json = dict[str, Any]

COMPONENT = "frontier-node-agent"
_LOG = logging.getLogger(__name__)


class EventRecorder:
    """Writes events in the background: `emit` never blocks, and an event that cannot be written is only logged."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self._queue: asyncio.Queue[tuple[Json, str, str, str, str]] = asyncio.Queue()
        self._known: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._serial = itertools.count(int(datetime.now(UTC).timestamp() * 1e6))

    def emit(self, obj: Mapping[str, Any], kind: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Queue an event about the object.

        Args:
            obj: The object, with its metadata.
            kind: Its kind, e.g. `Pod`: objects out of lists do not say it.
            reason: One word in PascalCase.
            message: A sentence for the user; cut at 1,000 characters.
            warning: Whether the type is Warning rather than Normal.
        """
        severity = "Warning" if warning else "Normal"
        self._queue.put_nowait((dict(obj["metadata"]), kind, reason, message[:1000], severity))

    async def run(self) -> None:
        """Write queued events until cancelled."""
        while True:
            item = await self._queue.get()
            try:
                await self._write(*item)
            except CONNECTION_ERRORS as error:
                # A namespace that is being deleted takes no events; there is nobody left to read them.
                _LOG.info("event %s not written: %s", item[2], error)

    async def _write(self, metadata: Json, kind: str, reason: str, message: str, severity: str) -> None:
        namespace = metadata.get("namespace") or "default"
        path = f"/api/v1/namespaces/{namespace}/events"
        key = (metadata["uid"], reason, message)
        now = timestamp(datetime.now(UTC))
        if key in self._known:
            name, count = self._known[key]
            try:
                await self._api.patch(f"{path}/{name}", {"count": count + 1, "lastTimestamp": now}, strategic=False)
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                del self._known[key]
            else:
                self._known[key] = (name, count + 1)
                return
        name = f"{metadata['name']}.{next(self._serial):x}"
        self._known[key] = (name, 1)
        await self._api.create(
            path,
            {
                "metadata": {"name": name, "namespace": namespace},
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": kind,
                    "name": metadata["name"],
                    "namespace": metadata.get("namespace"),
                    "uid": metadata["uid"],
                },
                "reason": reason,
                "message": message,
                "type": severity,
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
                "reportingInstance": COMPONENT,
            },
        )

    def forget(self, uid: str) -> None:
        """Forget the events of an object that is gone."""
        for key in [key for key in self._known if key[0] == uid]:
            del self._known[key]
