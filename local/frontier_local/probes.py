"""Asking the components of a cluster whether they are ready."""

import http.client
import json
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from frontier_local.certificates import KeyPair

_SECONDS = 5.0


def answers(host: str, port: int, path: str, context: ssl.SSLContext | None = None) -> bool:
    """Return whether a server answers a GET with 200."""
    return _request("GET", host, port, path, context)[0] == HTTPStatus.OK


def client_context(authority: KeyPair, client: KeyPair) -> ssl.SSLContext:
    """Return the TLS settings of a client that trusts the authority and has a certificate."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(client.certificate, client.key)
    return context


@dataclass(frozen=True)
class ApiServer:
    """The little that starting a cluster needs of the API server.

    Attributes:
        port: Its port on 127.0.0.1.
        context: TLS settings of the administrator.
    """

    port: int
    context: ssl.SSLContext

    def is_ready(self) -> bool:
        """Return whether it serves requests."""
        return answers("127.0.0.1", self.port, "/readyz", self.context)

    def exists(self, path: str) -> bool:
        """Return whether there is an object at the path."""
        return answers("127.0.0.1", self.port, path, self.context)

    def nodes(self) -> dict[str, bool]:
        """Return for every registered node whether pods can be scheduled to it."""
        status, body = _request("GET", "127.0.0.1", self.port, "/api/v1/nodes", self.context)
        if status != HTTPStatus.OK:
            return {}
        return {node["metadata"]["name"]: _is_schedulable(node) for node in json.loads(body)["items"]}

    def delete_node(self, name: str) -> None:
        """Delete a node; nothing happens if it is gone."""
        _request("DELETE", "127.0.0.1", self.port, f"/api/v1/nodes/{name}", self.context)


def _is_schedulable(node: dict[str, Any]) -> bool:
    conditions = {item["type"]: item["status"] for item in node.get("status", {}).get("conditions", [])}
    taints = {taint["key"] for taint in node.get("spec", {}).get("taints", [])}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints


def _request(method: str, host: str, port: int, path: str, context: ssl.SSLContext | None) -> tuple[int, bytes]:
    """Return status and body of a request that no proxy sees; status 0 if there was no answer."""
    connection: http.client.HTTPConnection
    if context is None:
        connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    else:
        connection = http.client.HTTPSConnection(host, port, timeout=_SECONDS, context=context)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException):
        return 0, b""
    finally:
        connection.close()
