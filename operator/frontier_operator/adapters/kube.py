"""The API server: reads without a cache, writes under one field manager, errors by kind."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kubernetes import client
from urllib3.exceptions import HTTPError

from frontier_operator.api import names
from frontier_operator.errors import ConflictError, ForbiddenError, OperatorError, RetryableError, TerminalError
from frontier_operator.ports import Manifest

TIMEOUT_SECONDS = (3.05, 15)
"""Connect and read time-outs of every call: a hanging API server must not hold an object's loop."""

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"

HTTP_BAD_REQUEST = 400
HTTP_UNAUTHORIZED = 401
HTTP_TOO_MANY = 429
HTTP_SERVER_ERROR = 500


@dataclass(frozen=True)
class Resource:
    """Where a kind lives: its prefix below the API server's root and its plural."""

    prefix: str
    plural: str

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object, or a subresource."""
        parts = [self.prefix, "namespaces", namespace, self.plural, name, subresource]
        return "/".join(part for part in parts if part)


RESOURCES = {
    names.INFERENCE_DEPLOYMENT: Resource(f"/apis/{names.API_VERSION}", names.INFERENCE_DEPLOYMENTS),
    names.TUNING_TRIAL: Resource(f"/apis/{names.API_VERSION}", names.TUNING_TRIALS),
    "Pod": Resource("/api/v1", "pods"),
    "Service": Resource("/api/v1", "services"),
    "Event": Resource("/api/v1", "events"),
    "Deployment": Resource("/apis/apps/v1", "deployments"),
    "Job": Resource("/apis/batch/v1", "jobs"),
}


class KubeObjects:
    """`ports.Objects` on the `kubernetes` client.

    One generic path serves all kinds, so that a manifest goes to the server as it was rendered and comes back as it is
    stored; the typed models of the client would drop fields they do not know.
    """

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return the object, or None where there is none."""
        try:
            return self._call("GET", RESOURCES[kind].path(namespace, name))
        except _NotFoundError:
            return None

    def find(self, kind: str, namespace: str, labels: Mapping[str, str]) -> Sequence[Manifest]:
        """Return the objects that carry these labels."""
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        answer = self._call("GET", RESOURCES[kind].path(namespace), query=[("labelSelector", selector)])
        items: list[Manifest] = answer.get("items") or []
        return items

    def create(self, manifest: Manifest) -> Manifest | None:
        """Create an object and return it; return None where one of that name exists already."""
        path = RESOURCES[manifest["kind"]].path(manifest["metadata"]["namespace"])
        try:
            return self._call("POST", path, body=manifest, query=[("fieldManager", names.FIELD_MANAGER)])
        except ConflictError:
            return None

    def apply(self, manifest: Manifest) -> Manifest:
        """Create or change an object by server-side apply under the operator's field manager."""
        metadata = manifest["metadata"]
        path = RESOURCES[manifest["kind"]].path(metadata["namespace"], metadata["name"])
        query = [("fieldManager", names.FIELD_MANAGER), ("force", "true")]
        return self._call("PATCH", path, body=manifest, query=query, content_type=APPLY)

    def scale(self, kind: str, namespace: str, name: str, replicas: int) -> None:
        """Change nothing but the replicas; an object that is gone is no error."""
        path = RESOURCES[kind].path(namespace, name)
        query = [("fieldManager", names.FIELD_MANAGER)]
        try:
            self._call("PATCH", path, body={"spec": {"replicas": replicas}}, query=query, content_type=MERGE)
        except _NotFoundError:
            return

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object with all it owns; one that is gone already is no error."""
        path = RESOURCES[kind].path(namespace, name)
        try:
            self._call("DELETE", path, query=[("propagationPolicy", "Background")])
        except _NotFoundError:
            return

    def write_status(self, manifest: Manifest) -> Manifest:
        """Replace the status; raises ConflictError where the object changed since it was read."""
        metadata = manifest["metadata"]
        path = RESOURCES[manifest["kind"]].path(metadata["namespace"], metadata["name"], "status")
        return self._call("PUT", path, body=manifest, query=[("fieldManager", names.FIELD_MANAGER)])

    def tail(self, namespace: str, pod: str, container: str, lines: int) -> str:
        """Return the last lines of a container's log, empty where it has none any more."""
        path = RESOURCES["Pod"].path(namespace, pod, "log")
        try:
            data = self._send("GET", path, query=[("container", container), ("tailLines", str(lines))])
        except _NotFoundError:
            return ""
        return data.decode(errors="replace")

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        answer: Manifest = json.loads(self._send(method, path, query=query, body=body, content_type=content_type))
        return answer

    def _send(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        request = self._api.param_serialize(
            method,
            path,
            query_params=query or [],
            header_params={"Accept": "application/json, */*", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        verb, url, headers, content, _ = request
        name = f"{method} {path}"
        try:
            response = self._api.call_api(verb, url, headers, content, _request_timeout=TIMEOUT_SECONDS)
            data: bytes = response.read()  # type: ignore[no-untyped-call]  # has no types
        except (client.ApiException, HTTPError, OSError) as error:
            raise RetryableError(f"{name}: {error}") from error
        if response.status >= HTTP_BAD_REQUEST:
            raise _error(response.status, f"{name}: {_sentence(response.status, data)}")
        return data


class _NotFoundError(TerminalError):
    """The object is not there."""


def _error(status: int, message: str) -> OperatorError:
    match status:
        case 404:
            return _NotFoundError(message)
        case 409:
            return ConflictError(message)
        case 403:
            return ForbiddenError(message)
        case _ if status in {HTTP_UNAUTHORIZED, HTTP_TOO_MANY} or status >= HTTP_SERVER_ERROR:
            # A token that has just been rotated is refused once and read again for the next request.
            return RetryableError(message)
        case _:
            return TerminalError(message)


def _sentence(status: int, data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (TypeError, ValueError, KeyError):
        return f"HTTP status {status}"
