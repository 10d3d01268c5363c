"""A small asynchronous client of the API server: JSON calls and watches over one connection pool.

The official client blocks; an agent that must start a pod within a blink of its binding, for hundreds of pods on one
loop, wants neither threads nor polling. Only what the agent needs is here.
"""

import asyncio
import base64
import json
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import yaml

Json = dict[str, Any]
T = TypeVar("T")

_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE = "application/merge-patch+json"
_WATCH_SECONDS = 300
_LOG = logging.getLogger(__name__)


class ApiError(Exception):
    """The API server refused a call; `status` is its HTTP status, `reason` the machine-readable word."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class ApiClient:
    """Calls the API server of a kubeconfig as its current user (client certificate or token)."""

    def __init__(self, kubeconfig: Path, server: str | None = None) -> None:
        """Read the kubeconfig.

        Args:
            kubeconfig: The file; only its current context matters.
            server: URL to use instead of the file's.
        """
        self._config = yaml.safe_load(kubeconfig.read_text())
        self._server = server
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "ApiClient":
        cluster, user = _current(self._config)
        context = ssl.create_default_context(cafile=cluster.get("certificate-authority"), cadata=_decoded_text(cluster))
        _load_identity(context, user)
        headers = {"Authorization": f"Bearer {user['token']}"} if user.get("token") else {}
        self._session = aiohttp.ClientSession(
            base_url=self._server or cluster["server"],
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=30),
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        """Return the object or list at the path; raise ApiError."""
        return await self._call("GET", path, params=params)

    async def find(self, path: str) -> Json | None:
        """Return the object at the path, or None if there is none; raise ApiError."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def create(self, path: str, body: Json) -> Json:
        """Create the object in the collection at the path and return it; raise ApiError."""
        return await self._call("POST", path, body=body)

    async def patch(self, path: str, body: Json, *, strategic: bool = True) -> Json:
        """Patch the object (strategic merge, or plain merge) and return it; raise ApiError."""
        return await self._call("PATCH", path, body=body, content_type=_STRATEGIC if strategic else _MERGE)

    async def delete(self, path: str, body: Json) -> None:
        """Delete the object with these options; raise ApiError."""
        await self._call("DELETE", path, body=body)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content_type}
        async with self._open().request(method, path, params=params, data=data, headers=headers) as response:
            text = await response.text()
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise _error(response.status, text)
            result: Json = json.loads(text)
            return result

    async def watch(self, path: str, resource_version: str) -> AsyncIterator[Json]:
        """Yield watch events from the resource version on, until the server ends the watch.

        Raises:
            ApiError: The server refuses the watch or ends it with an error event, 410 when the version is too old.
        """
        params = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_WATCH_SECONDS + 30)
        async with self._open().get(path, params=params, timeout=timeout) as response:
            if response.status >= HTTPStatus.BAD_REQUEST:
                raise _error(response.status, await response.text())
            buffer = b""
            async for chunk in response.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    event: Json = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(int(event["object"].get("code", 500)), json.dumps(event["object"]))
                    yield event

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RuntimeError("the client is used outside of its `async with`")
        return self._session


def _current(config: Mapping[str, Any]) -> tuple[Json, Json]:
    """Return cluster and user of the current context."""
    kinds = ("contexts", "clusters", "users")
    by_name = {kind: {item["name"]: item for item in config.get(kind) or []} for kind in kinds}
    context = by_name["contexts"][config["current-context"]]["context"]
    return by_name["clusters"][context["cluster"]]["cluster"], by_name["users"][context["user"]]["user"]


def _decoded_text(cluster: Mapping[str, Any]) -> str | None:
    data = cluster.get("certificate-authority-data")
    return base64.b64decode(data).decode() if data else None


def _load_identity(context: ssl.SSLContext, user: Mapping[str, Any]) -> None:
    """Load the user's client certificate, from files or from the kubeconfig itself."""
    if "client-certificate" in user:
        context.load_cert_chain(user["client-certificate"], user["client-key"])
    elif "client-certificate-data" in user:
        # The ssl module reads certificates from files only.
        with tempfile.NamedTemporaryFile() as pem:
            for key in ("client-certificate-data", "client-key-data"):
                pem.write(base64.b64decode(user[key]) + b"\n")
            pem.flush()
            context.load_cert_chain(pem.name)


def _error(status: int, text: str) -> ApiError:
    """Return the error of a Status object, or of whatever else the server said."""
    try:
        body = json.loads(text)
        return ApiError(int(body.get("code", status)), body.get("reason", ""), body.get("message", text))
    except (ValueError, AttributeError):
        return ApiError(status, "", text[:500])


CONNECTION_ERRORS = (aiohttp.ClientError, asyncio.TimeoutError, ApiError, OSError)
"""What a call can raise when the server is away or refuses; everything else is a fault of the agent."""


async def retry(call: Callable[[], Awaitable[T]], *, attempts: int = 5, delay: float = 0.2) -> T:
    """Return the call's result; tried again while the server is away or asks to, other refusals are raised at once."""
    for attempt in range(attempts):
        try:
            return await call()
        except ApiError as error:
            if attempt == attempts - 1 or error.status not in {409, 429, 500, 503, 504}:
                raise
        except (aiohttp.ClientError, TimeoutError, OSError):
            if attempt == attempts - 1:
                raise
        await asyncio.sleep(delay * 2**attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")
