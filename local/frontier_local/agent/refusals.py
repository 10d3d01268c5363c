"""What the node agent cannot do, found in a pod's spec before anything starts. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

REASON = "UnsupportedByNodeAgent"
"""Set on pods whose spec asks for something that local processes cannot have; never cleared, the spec must change."""

VOLUME_KINDS = frozenset(
    {"emptyDir", "configMap", "secret", "projected", "downwardAPI", "hostPath", "persistentVolumeClaim"}
)
_PROJECTED_KINDS = frozenset({"serviceAccountToken", "configMap", "secret", "downwardAPI"})
_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
_POD_FIELDS = ("runtimeClassName", "hostAliases", "ephemeralContainers", "resourceClaims")


def unsupported_fields(pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of all fields of the pod's spec that the node agent cannot honour, in the spec's order."""
    spec = pod["spec"]
    found = [f"spec.{field}" for field in _POD_FIELDS if spec.get(field)]
    if (spec.get("os") or {}).get("name") == "windows":
        found.append("spec.os.name")
    for volume in spec.get("volumes") or []:
        found.extend(_volume(volume))
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or []:
            path = f"spec.{group}[{container['name']}]"
            found.extend(f"{path}.{rest}" for rest in _container(container, bool(spec.get("hostNetwork"))))
    return tuple(found)


def _volume(volume: Mapping[str, Any]) -> Iterator[str]:
    """Yield the unsupported fields of one volume."""
    path = f"spec.volumes[{volume['name']}]"
    for kind in volume:
        if kind != "name" and kind not in VOLUME_KINDS:
            yield f"{path}.{kind}"
    for source in (volume.get("projected") or {}).get("sources") or []:
        yield from (f"{path}.projected.{kind}" for kind in source if kind not in _PROJECTED_KINDS)


def _container(container: Mapping[str, Any], host_network: bool) -> Iterator[str]:
    """Yield the unsupported fields of one container, relative to it."""
    if container.get("volumeDevices"):
        yield "volumeDevices"
    if (container.get("resources") or {}).get("claims"):
        yield "resources.claims"
    for mount in container.get("volumeMounts") or []:
        if not mount["mountPath"].strip("/"):
            yield f"volumeMounts[{mount['name']}].mountPath"
        if mount.get("subPathExpr"):
            yield f"volumeMounts[{mount['name']}].subPathExpr"
    for port in container.get("ports") or []:
        if port.get("hostPort") and not host_network:
            yield f"ports[{port['containerPort']}].hostPort"
    for probe in _PROBES:
        if "grpc" in (container.get(probe) or {}):
            yield f"{probe}.grpc"
    for hook, handler in (container.get("lifecycle") or {}).items():
        if hook == "stopSignal":
            yield "lifecycle.stopSignal"
        elif "tcpSocket" in handler:
            yield f"lifecycle.{hook}.tcpSocket"
