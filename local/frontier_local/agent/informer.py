"""A local copy of one kind of object, kept fresh by list and watch, telling its listeners of every change."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from frontier_local.agent.api import CONNECTION_ERRORS, ApiClient, ApiError

Json = dict[str, Any]
Listener = Callable[[str, Json], None]
"""Called with `ADDED`, `MODIFIED` or `DELETED` and the object. Must not block."""

_LOG = logging.getLogger(__name__)


class Informer:
    """Copy of all objects of one kind, by uid. After a lost watch it lists again and tells only the differences."""

    def __init__(self, api: ApiClient, path: str) -> None:
        """Take the client and the path of the collection, e.g. `/api/v1/pods`."""
        self._api = api
        self._path = path
        self._listeners: list[Listener] = []
        self.objects: dict[str, Json] = {}
        self.synced = asyncio.Event()

    def add_listener(self, listener: Listener) -> None:
        """Add a listener; it is told of changes from now on."""
        self._listeners.append(listener)

    def by_name(self, namespace: str, name: str) -> Json | None:
        """Return the object of this namespace and name, or None."""
        for obj in self.objects.values():
            if obj["metadata"]["name"] == name and obj["metadata"].get("namespace") == namespace:
                return obj
        return None

    async def run(self) -> None:
        """List and watch until cancelled; an unreachable server is tried again after a short wait."""
        version = ""
        delay = 0.1
        while True:
            try:
                if not version:
                    version = await self._list()
                    self.synced.set()
                async for event in self._api.watch(self._path, version):
                    version = event["object"]["metadata"]["resourceVersion"]
                    delay = 0.1
                    self._apply(event)
            except ApiError as error:
                _LOG.info("watch %s: %s", self._path, error)
                version = ""
            except CONNECTION_ERRORS as error:
                _LOG.info("watch %s: %s", self._path, error)
            else:
                continue
            await asyncio.sleep(delay)
            delay = min(5.0, delay * 2)

    async def _list(self) -> str:
        """Fetch everything, tell what changed since the last time, and return the list's resource version."""
        answer = await self._api.get(self._path)
        fresh = {item["metadata"]["uid"]: item for item in answer.get("items") or []}
        for uid in [uid for uid in self.objects if uid not in fresh]:
            self._tell("DELETED", self.objects.pop(uid))
        for uid, item in fresh.items():
            old = self.objects.get(uid)
            self.objects[uid] = item
            if old is None:
                self._tell("ADDED", item)
            elif old["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                self._tell("MODIFIED", item)
        return str(answer["metadata"]["resourceVersion"])

    def _apply(self, event: Json) -> None:
        """Take one watch event into the copy and tell of it."""
        kind, obj = event["type"], event["object"]
        if kind == "BOOKMARK":
            return
        uid = obj["metadata"]["uid"]
        if kind == "DELETED":
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = obj
        self._tell(kind, obj)

    def _tell(self, kind: str, obj: Json) -> None:
        for listener in self._listeners:
            listener(kind, obj)
