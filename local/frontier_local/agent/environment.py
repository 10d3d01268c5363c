"""The environment of a container, resolved as a kubelet does it. Pure: configMaps and Secrets are handed in."""

import base64
import binascii
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

Json = dict[str, Any]

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_KEYED_FIELD = re.compile(r"^metadata\.(labels|annotations)\['([^']+)'\]$")
_VARIABLE_NAME = re.compile(r"^[^=\x00]+$")


def amount(quantity: str | int) -> Decimal:
    """Return the value of a Kubernetes quantity in its base unit (cores, bytes); raise ValueError if it is none."""
    value: Decimal = parse_quantity(quantity)  # type: ignore[no-untyped-call]  # the client ships no types
    return value


class ContainerConfigError(Exception):
    """A container cannot be configured; the message names what is missing (reason CreateContainerConfigError)."""


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Return the text with `$(NAME)` replaced by the variable; unknown names stay, `$$` is a literal dollar sign."""

    def replacement(match: re.Match[str]) -> str:
        name = match.group(1)
        return "$" if name is None else variables.get(name, match.group(0))

    return _REFERENCE.sub(replacement, text)


@dataclass(frozen=True)
class PodFacts:
    """What the downward API may tell a container about its pod.

    Attributes:
        pod: The pod as the API server knows it.
        pod_ip: Its address.
        host_ip: The address of its node.
        allocatable: The node's allocatable resources, for limits that the container leaves open.
    """

    pod: Json
    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str] = field(default_factory=dict)

    def field_value(self, path: str) -> str:
        """Return the value of a `fieldRef`.

        Raises:
            ContainerConfigError: The field is not one that a pod may refer to.
        """
        metadata = self.pod["metadata"]
        if match := _KEYED_FIELD.match(path):
            return str((metadata.get(match.group(1)) or {}).get(match.group(2), ""))
        known: dict[str, Callable[[], Any]] = {
            "metadata.name": lambda: metadata["name"],
            "metadata.namespace": lambda: metadata["namespace"],
            "metadata.uid": lambda: metadata["uid"],
            "metadata.labels": lambda: _as_lines(metadata.get("labels") or {}),
            "metadata.annotations": lambda: _as_lines(metadata.get("annotations") or {}),
            "spec.nodeName": lambda: self.pod["spec"].get("nodeName", ""),
            "spec.serviceAccountName": lambda: self.pod["spec"].get("serviceAccountName", ""),
            "status.podIP": lambda: self.pod_ip,
            "status.podIPs": lambda: self.pod_ip,
            "status.hostIP": lambda: self.host_ip,
            "status.hostIPs": lambda: self.host_ip,
        }
        if path not in known:
            raise ContainerConfigError(f"fieldRef {path}: not a field that a pod may refer to")
        return str(known[path]())

    def resource_value(self, reference: Mapping[str, Any], container: Mapping[str, Any]) -> str:
        """Return the value of a `resourceFieldRef`: the quantity divided by the divisor, rounded up.

        Raises:
            ContainerConfigError: The resource is neither `limits.*` nor `requests.*`, or names no known container.
        """
        name = reference.get("containerName")
        if name:
            spec = self.pod["spec"]
            matches = [c for c in [*spec["containers"], *spec.get("initContainers", [])] if c["name"] == name]
            if not matches:
                raise ContainerConfigError(f"resourceFieldRef.containerName {name}: the pod has no such container")
            container = matches[0]
        kind, _, resource = str(reference["resource"]).partition(".")
        if kind not in {"limits", "requests"} or not resource:
            raise ContainerConfigError(f"resourceFieldRef.resource {reference['resource']}: use limits.* or requests.*")
        resources = container.get("resources") or {}
        quantity = (resources.get(kind) or {}).get(resource)
        if quantity is None:
            quantity = self.allocatable.get(resource, "0") if kind == "limits" else "0"
        divisor = amount(reference.get("divisor") or "1") or Decimal(1)
        return str(math.ceil(amount(quantity) / divisor))


def _as_lines(mapping: Mapping[str, str]) -> str:
    """Return a map as the downward API writes it: one `key="value"` per line, sorted."""

    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

    return "\n".join(f"{key}={quoted(value)}" for key, value in sorted(mapping.items()))


@dataclass(frozen=True)
class Sources:
    """The configMaps and Secrets that a pod refers to, by name; None where one does not exist."""

    config_maps: Mapping[str, Json | None] = field(default_factory=dict)
    secrets: Mapping[str, Json | None] = field(default_factory=dict)

    def data(self, kind: str, name: str) -> dict[str, bytes] | None:
        """Return the decoded data of a `configmap` or `secret`, or None if it does not exist."""
        found = (self.config_maps if kind == "configmap" else self.secrets).get(name)
        return None if found is None else decoded(kind, found)


def decoded(kind: str, obj: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the data of a configMap (`data` and `binaryData`) or a Secret (`data`) as bytes by key."""
    data: Mapping[str, str] = obj.get("data") or {}
    if kind == "secret":
        return {key: _from_base64(value) for key, value in data.items()}
    binary: Mapping[str, str] = obj.get("binaryData") or {}
    return {key: value.encode() for key, value in data.items()} | {k: _from_base64(v) for k, v in binary.items()}


def _from_base64(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except binascii.Error:
        return b""


def references(containers: Iterable[Mapping[str, Any]]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the configMaps and of the Secrets that the containers' environments refer to."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for container in containers:
        for source in container.get("envFrom") or []:
            config_maps.update(s["name"] for s in [source.get("configMapRef")] if s)
            secrets.update(s["name"] for s in [source.get("secretRef")] if s)
        for variable in container.get("env") or []:
            origin = variable.get("valueFrom") or {}
            config_maps.update(s["name"] for s in [origin.get("configMapKeyRef")] if s)
            secrets.update(s["name"] for s in [origin.get("secretKeyRef")] if s)
    return frozenset(config_maps), frozenset(secrets)


def container_environment(
    container: Mapping[str, Any], facts: PodFacts, sources: Sources, services: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of the container: services first, then `envFrom`, then `env`, the later wins.

    `$(NAME)` in a value refers to a variable set before it.

    Raises:
        ContainerConfigError: A configMap, Secret or key that is not optional does not exist.
    """
    variables = dict(services)
    for source in container.get("envFrom") or []:
        variables.update(_from_source(source, sources))
    for variable in container.get("env") or []:
        if "valueFrom" not in variable:
            variables[variable["name"]] = expand(variable.get("value") or "", variables)
            continue
        value = _value_from(variable["valueFrom"], container, facts, sources)
        if value is not None:
            variables[variable["name"]] = value
    return variables


def _from_source(source: Mapping[str, Any], sources: Sources) -> dict[str, str]:
    """Return the variables of one `envFrom` item."""
    prefix = source.get("prefix") or ""
    for kind, key in (("configmap", "configMapRef"), ("secret", "secretRef")):
        reference = source.get(key)
        if reference is None:
            continue
        data = sources.data(kind, reference["name"])
        if data is None:
            if reference.get("optional"):
                return {}
            raise ContainerConfigError(f'{kind} "{reference["name"]}" not found')
        return {prefix + k: v.decode(errors="replace") for k, v in data.items() if _VARIABLE_NAME.match(prefix + k)}
    return {}


def _value_from(
    origin: Mapping[str, Any], container: Mapping[str, Any], facts: PodFacts, sources: Sources
) -> str | None:
    """Return the value of one `valueFrom`, or None if it is optional and missing."""
    if "fieldRef" in origin:
        return facts.field_value(origin["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in origin:
        return facts.resource_value(origin["resourceFieldRef"], container)
    for kind, key in (("configmap", "configMapKeyRef"), ("secret", "secretKeyRef")):
        reference = origin.get(key)
        if reference is None:
            continue
        data = sources.data(kind, reference["name"])
        if data is not None and reference["key"] in data:
            return data[reference["key"]].decode(errors="replace")
        if reference.get("optional"):
            return None
        if data is None:
            raise ContainerConfigError(f'{kind} "{reference["name"]}" not found')
        raise ContainerConfigError(f"couldn't find key {reference['key']} in {kind} {reference['name']}")
    raise ContainerConfigError(f"env valueFrom {sorted(origin)}: the node agent does not know this source")


def service_variables(services: Iterable[Json], namespace: str, host: str, port: int) -> dict[str, str]:
    """Return the variables that tell a pod of the Services in its namespace and of the API server.

    Args:
        services: Services of any namespace; those without a cluster IP are left out.
        namespace: The pod's namespace.
        host: Address of the API server as pods should use it.
        port: Its port.
    """
    variables: dict[str, str] = {}
    for service in services:
        spec = service["spec"]
        address = spec.get("clusterIP")
        if service["metadata"]["namespace"] != namespace or not address or address == "None" or not spec.get("ports"):
            continue
        name = service["metadata"]["name"].upper().replace("-", "_")
        variables[f"{name}_SERVICE_HOST"] = address
        variables[f"{name}_SERVICE_PORT"] = str(spec["ports"][0]["port"])
        first = spec["ports"][0]
        variables[f"{name}_PORT"] = f"{first.get('protocol', 'TCP').lower()}://{address}:{first['port']}"
        for item in spec["ports"]:
            if item.get("name"):
                variables[f"{name}_SERVICE_PORT_{item['name'].upper().replace('-', '_')}"] = str(item["port"])
            protocol = item.get("protocol", "TCP")
            link = f"{name}_PORT_{item['port']}_{protocol}"
            variables[link] = f"{protocol.lower()}://{address}:{item['port']}"
            variables[f"{link}_ADDR"] = address
            variables[f"{link}_PORT"] = str(item["port"])
            variables[f"{link}_PROTO"] = protocol.lower()
    variables["KUBERNETES_SERVICE_HOST"] = host
    variables["KUBERNETES_SERVICE_PORT"] = str(port)
    variables["KUBERNETES_SERVICE_PORT_HTTPS"] = str(port)
    return variables
