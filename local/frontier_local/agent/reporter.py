"""Writes the status of one pod to the API server: the newest one, one write at a time, only when it changed."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from frontier_local.agent.api import CONNECTION_ERRORS, ApiClient, ApiError

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 0.5


class StatusReporter:
    """Writes what `build` returns whenever `changed` was called."""

    def __init__(self, api: ApiClient, metadata: Json, build: Callable[[], Json]) -> None:
        """Take the client, the pod's metadata and a function that returns its status now."""
        self._api = api
        self._metadata = metadata
        self._build = build
        self._dirty = asyncio.Event()
        self._lock = asyncio.Lock()
        self._written: Json | None = None
        self._gone = False

    def changed(self) -> None:
        """Note that the status may have changed."""
        self._dirty.set()

    async def run(self) -> None:
        """Write until cancelled; while the API server is away, try again until it is back."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self.flush()
            except CONNECTION_ERRORS as error:
                _LOG.info("status of pod %s: %s", self._metadata["name"], error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._dirty.set()

    async def flush(self) -> None:
        """Write the status now if it differs from the last one written.

        Raises:
            ApiError, aiohttp.ClientError: It could not be written.
        """
        async with self._lock:
            status = self._build()
            if self._gone or status == self._written:
                return
            # The uid makes the server refuse the patch for another pod of the same name.
            body = {"metadata": {"uid": self._metadata["uid"]}, "status": status}
            path = f"/api/v1/namespaces/{self._metadata['namespace']}/pods/{self._metadata['name']}/status"
            try:
                await self._api.patch(path, body)
            except ApiError as error:
                if error.status == HTTPStatus.NOT_FOUND or (
                    error.status == HTTPStatus.CONFLICT and "uid" in str(error).lower()
                ):
                    self._gone = True
                    return
                raise
            self._written = status
