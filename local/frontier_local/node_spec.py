"""What the embedded cluster tells its node agent: one frozen value, written to and read from `agent.json`.

The cluster writes the file, the agent reads it; neither knows more of the other. Keys are camelCase as everywhere in
the API; every path is absolute.
"""

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KUBELET_PORT = 10250
"""Every node listens on an address of its own, so all of them use the port that real kubelets use."""


@dataclass(frozen=True)
class NodeSpec:
    """One node to register.

    Attributes:
        name: Name of the Node object.
        address: The loopback address of the node (its `InternalIP`), where its kubelet API listens.
        gpu_resource: Extended resource of its GPUs, e.g. `nvidia.com/gpu`.
        gpu_product: Value of the label `nvidia.com/gpu.product`.
        gpus: Number of GPUs; 0 makes a node without the resource.
        gpu_memory: Memory of each GPU as a Kubernetes quantity, e.g. `48Gi`.
        cpus: CPU capacity, in cores.
        memory: Memory capacity as a Kubernetes quantity.
    """

    name: str
    address: str
    gpu_resource: str = "nvidia.com/gpu"
    gpu_product: str = "NVIDIA-L40S"
    gpus: int = 8
    gpu_memory: str = "48Gi"
    cpus: int = 64
    memory: str = "512Gi"

    def to_mapping(self) -> dict[str, Any]:
        """Return the node as JSON-ready values with camelCase keys."""
        return {
            "name": self.name,
            "address": self.address,
            "gpuResource": self.gpu_resource,
            "gpuProduct": self.gpu_product,
            "gpus": self.gpus,
            "gpuMemory": self.gpu_memory,
            "cpus": self.cpus,
            "memory": self.memory,
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "NodeSpec":
        """Return the node that `to_mapping` wrote.

        Raises:
            ValueError: A field is missing; the message names it.
        """
        return cls(
            name=_required(mapping, "name", "nodes[]"),
            address=_required(mapping, "address", "nodes[]"),
            gpu_resource=_required(mapping, "gpuResource", "nodes[]"),
            gpu_product=_required(mapping, "gpuProduct", "nodes[]"),
            gpus=int(_required(mapping, "gpus", "nodes[]")),
            gpu_memory=_required(mapping, "gpuMemory", "nodes[]"),
            cpus=int(_required(mapping, "cpus", "nodes[]")),
            memory=_required(mapping, "memory", "nodes[]"),
        )


@dataclass(frozen=True)
class AgentConfig:
    """All that a node agent needs to know.

    Attributes:
        kubeconfig: Kubeconfig of the agent's own client certificate (group `system:masters`).
        api_server: URL of the API server, with its real port.
        nodes: The nodes to register.
        pod_network: Loopback range for pod addresses, e.g. `127.11.0.0/16`.
        service_network: Range of the cluster IPs, e.g. `127.131.0.0/24`: loopback addresses, on which the agent's
            proxy can listen directly.
        service_host: First address of `service_network`: the cluster IP of the `kubernetes` Service, for
            `KUBERNETES_SERVICE_HOST`. The API server's certificate holds it. The agent proxies port 443 of it.
        certificate_authority: PEM file of the cluster's CA: `ca.crt` of service-account volumes.
        kubelet_certificate: PEM file of the serving certificate, valid for every node's name and address.
        kubelet_key: Its private key.
        client_ca: PEM file of the CA that signed the API server's kubelet client certificate.
        targets_directory: Where Prometheus looks for `*.json` files of the `file_sd` format.
        pods_directory: Where pods keep working directories, volumes and logs.
        volumes_directory: Where the content of persistent volume claims lies: `<namespace>/<claim>/`.
        image_map: YAML file of an image map, or None for the default map.
    """

    kubeconfig: Path
    api_server: str
    nodes: tuple[NodeSpec, ...]
    pod_network: ipaddress.IPv4Network
    service_network: ipaddress.IPv4Network
    service_host: str
    certificate_authority: Path
    kubelet_certificate: Path
    kubelet_key: Path
    client_ca: Path
    targets_directory: Path
    pods_directory: Path
    volumes_directory: Path
    image_map: Path | None = None

    def to_json(self) -> str:
        """Return the configuration as the text of `agent.json`."""
        return json.dumps(
            {
                "kubeconfig": str(self.kubeconfig),
                "apiServer": self.api_server,
                "nodes": [node.to_mapping() for node in self.nodes],
                "podNetwork": str(self.pod_network),
                "serviceNetwork": str(self.service_network),
                "serviceHost": self.service_host,
                "certificateAuthority": str(self.certificate_authority),
                "kubeletCertificate": str(self.kubelet_certificate),
                "kubeletKey": str(self.kubelet_key),
                "clientCA": str(self.client_ca),
                "targetsDirectory": str(self.targets_directory),
                "podsDirectory": str(self.pods_directory),
                "volumesDirectory": str(self.volumes_directory),
                "imageMap": None if self.image_map is None else str(self.image_map),
            },
            indent=2,
        )

    @classmethod
    def from_json(cls, text: str) -> "AgentConfig":
        """Return the configuration that `to_json` wrote.

        Raises:
            ValueError: The text is no JSON object, or a field is missing or malformed; the message names it.
        """
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError(f"agent configuration: expected a JSON object, got {type(values).__name__}")  # noqa: TRY004 - one error class for all of the file's faults
        image_map = values.get("imageMap")
        return cls(
            kubeconfig=Path(_required(values, "kubeconfig")),
            api_server=_required(values, "apiServer"),
            nodes=tuple(NodeSpec.from_mapping(node) for node in _required(values, "nodes")),
            pod_network=ipaddress.IPv4Network(_required(values, "podNetwork")),
            service_network=ipaddress.IPv4Network(_required(values, "serviceNetwork")),
            service_host=_required(values, "serviceHost"),
            certificate_authority=Path(_required(values, "certificateAuthority")),
            kubelet_certificate=Path(_required(values, "kubeletCertificate")),
            kubelet_key=Path(_required(values, "kubeletKey")),
            client_ca=Path(_required(values, "clientCA")),
            targets_directory=Path(_required(values, "targetsDirectory")),
            pods_directory=Path(_required(values, "podsDirectory")),
            volumes_directory=Path(_required(values, "volumesDirectory")),
            image_map=None if image_map is None else Path(image_map),
        )


def _required(mapping: Mapping[str, Any], field: str, parent: str = "agent configuration") -> Any:
    """Return the field's value, or say which field is missing."""
    if field not in mapping:
        raise ValueError(f"{parent}: field {field} is missing; let `frontier-local up` write the file again")
    return mapping[field]
