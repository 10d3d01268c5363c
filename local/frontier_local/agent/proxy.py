"""The Service proxy: listens on the cluster IPs, which are loopback addresses, and forwards to ready pods.

It selects pods itself, because Endpoints and EndpointSlices refuse loopback addresses.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network
from typing import Any
from urllib.parse import urlsplit

from frontier_local.agent.events import EventRecorder
from frontier_local.agent.forward import Address, Forwarder
from frontier_local.agent.informer import Informer
from frontier_local.agent.plan import port_number

Json = dict[str, Any]
_LOG = logging.getLogger(__name__)


def is_ready(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod takes new connections: Ready and not being deleted."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def selects(selector: Mapping[str, str], pod: Mapping[str, Any]) -> bool:
    """Return whether a Service's selector selects the pod."""
    labels = pod["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())


def backends(
    service: Mapping[str, Any], port: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]
) -> tuple[Address, ...]:
    """Return the addresses behind one port of a Service, sorted."""
    spec = service["spec"]
    found = []
    for pod in pods:
        if pod["metadata"]["namespace"] != service["metadata"]["namespace"] or not selects(spec["selector"], pod):
            continue
        address = (pod.get("status") or {}).get("podIP")
        if not address or not (is_ready(pod) or _takes_unready(spec, pod)):
            continue
        number = _target(port.get("targetPort") or port["port"], pod)
        if number is not None:
            found.append((address, number))
    return tuple(sorted(found))


def _takes_unready(spec: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return bool(spec.get("publishNotReadyAddresses")) and phase == "Running"


def _target(port: int | str, pod: Mapping[str, Any]) -> int | None:
    """Return the number of a target port in this pod, or None if no container has a port of that name."""
    for container in pod["spec"]["containers"]:
        try:
            return port_number(container, port)
        except ValueError:
            continue
    return None


def wanted_forwards(
    services: Iterable[Json], pods: Iterable[Json], network: IPv4Network, api_server: str
) -> dict[Address, tuple[Json, tuple[Address, ...]]]:
    """Return every address to listen on, with its Service and what is behind it.

    Args:
        services: All Services; headless ones, those without selector and those outside of the network are left out.
        pods: All pods.
        network: Range of the cluster IPs.
        api_server: URL of the API server, which is behind the `kubernetes` Service.
    """
    everything = list(pods)
    wanted: dict[Address, tuple[Json, tuple[Address, ...]]] = {}
    for service in services:
        spec, metadata = service["spec"], service["metadata"]
        if spec.get("clusterIP") in {None, "", "None"} or spec.get("type") == "ExternalName":
            continue
        is_api = metadata["namespace"] == "default" and metadata["name"] == "kubernetes"
        if not network.is_loopback or not (spec.get("selector") or is_api):
            continue
        for port in spec.get("ports") or []:
            if port.get("protocol", "TCP") != "TCP":
                continue
            url = urlsplit(api_server)
            behind = ((str(url.hostname), int(url.port or 443)),) if is_api else backends(service, port, everything)
            wanted[spec["clusterIP"], int(port["port"])] = (service, behind)
    return wanted


class ServiceProxy:
    """Keeps the listeners as the Services and pods want them."""

    def __init__(
        self, services: Informer, pods: Informer, events: EventRecorder, network: IPv4Network, api_server: str
    ) -> None:
        self._services = services
        self._pods = pods
        self._events = events
        self._network = network
        self._api_server = api_server
        self._forwarders: dict[Address, Forwarder] = {}
        self._dirty = asyncio.Event()
        self._told: set[tuple[str, str]] = set()
        services.add_listener(self._on_service)
        pods.add_listener(lambda _kind, _pod: self._dirty.set())

    def _on_service(self, kind: str, service: Json) -> None:
        self._dirty.set()
        others = [p for p in service["spec"].get("ports") or [] if p.get("protocol", "TCP") != "TCP"]
        if kind != "DELETED" and others and service["spec"].get("selector"):
            self._tell(service, f"the node agent forwards TCP only, not {others[0]['protocol']} {others[0]['port']}")

    def _tell(self, service: Json, message: str) -> None:
        """Tell of a port that is not served, once for each Service."""
        key = (service["metadata"]["uid"], message)
        if key not in self._told:
            self._told.add(key)
            self._events.emit(service, "Service", "UnsupportedByNodeAgent", message, warning=True)

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            while True:
                await self._dirty.wait()
                self._dirty.clear()
                await self._reconcile()
        finally:
            await asyncio.gather(*(forwarder.close() for forwarder in self._forwarders.values()))

    async def _reconcile(self) -> None:
        wanted = wanted_forwards(
            self._services.objects.values(), self._pods.objects.values(), self._network, self._api_server
        )
        for address in [address for address in self._forwarders if address not in wanted]:
            await self._forwarders.pop(address).close()
        for address, (service, behind) in wanted.items():
            forwarder = self._forwarders.setdefault(address, Forwarder(address))
            try:
                await forwarder.set_backends(behind)
            except OSError as error:
                _LOG.warning("service address %s:%s: %s", *address, error)
                self._tell(service, f"cannot listen on {address[0]}:{address[1]}: {error.strerror or error}")
