"""What a user wants of an embedded cluster."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from frontier_local.addresses import MAX_NODES, Addresses
from frontier_local.errors import ClusterError
from frontier_local.images import ImageMap
from frontier_local.node_spec import NodeSpec
from frontier_local.prometheus import scrape_milliseconds

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_QUANTITY = re.compile(r"[1-9]\d*(Ki|Mi|Gi|Ti|k|M|G|T)?")


@dataclass(frozen=True)
class ClusterSpec:
    """The wanted cluster.

    Attributes:
        name: Name of the cluster, of its kubeconfig context, and the beginning of its nodes' names.
        nodes: Number of nodes; 0 starts a control plane that runs no pods.
        gpu_product: Value of the nodes' label `nvidia.com/gpu.product`.
        gpus_per_node: GPUs of every node.
        gpu_memory: Memory of each GPU, as a Kubernetes quantity.
        gpu_resource: Extended resource of the GPUs.
        cpus_per_node: CPU capacity of every node, in cores.
        memory_per_node: Memory capacity of every node, as a Kubernetes quantity.
        scrape_interval: How often Prometheus scrapes pods, as Prometheus writes durations; at least 250ms.
        image_map: Absolute path of an image map, or None for the default one.
    """

    name: str = "frontier"
    nodes: int = 1
    gpu_product: str = "NVIDIA-L40S"
    gpus_per_node: int = 8
    gpu_memory: str = "48Gi"
    gpu_resource: str = "nvidia.com/gpu"
    cpus_per_node: int = 64
    memory_per_node: str = "512Gi"
    scrape_interval: str = "500ms"
    image_map: str | None = None

    def check(self) -> None:
        """Check every field.

        Raises:
            LocalError: One cannot be used; the message names it, its value and the way out.
        """
        if not _NAME.fullmatch(self.name):
            raise ClusterError(f"name: {self.name!r} must be at most 40 of a-z, 0-9 and -, with no - at an end")
        if not 0 <= self.nodes <= MAX_NODES:
            raise ClusterError(f"nodes: {self.nodes} is outside 0 to {MAX_NODES}")
        if self.gpus_per_node < 0:
            raise ClusterError(f"gpus-per-node: {self.gpus_per_node} is negative; take 0 for nodes without GPUs")
        if self.cpus_per_node < 1:
            raise ClusterError(f"cpus-per-node: {self.cpus_per_node} is less than 1")
        if "/" not in self.gpu_resource:
            raise ClusterError(f"gpu-resource: {self.gpu_resource!r} needs a domain, as in nvidia.com/gpu")
        for field, value in (("gpu-memory", self.gpu_memory), ("memory-per-node", self.memory_per_node)):
            if not _QUANTITY.fullmatch(value):
                raise ClusterError(f"{field}: {value!r} is no quantity; write it like 48Gi")
        scrape_milliseconds(self.scrape_interval)
        if self.image_map is not None:
            ImageMap.load(Path(self.image_map))

    def node_specs(self, addresses: Addresses) -> tuple[NodeSpec, ...]:
        """Return the nodes with their names and addresses."""
        return tuple(
            NodeSpec(
                name=f"{self.name}-node-{number}",
                address=addresses.node(number),
                gpu_resource=self.gpu_resource,
                gpu_product=self.gpu_product,
                gpus=self.gpus_per_node,
                gpu_memory=self.gpu_memory,
                cpus=self.cpus_per_node,
                memory=self.memory_per_node,
            )
            for number in range(1, self.nodes + 1)
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return asdict(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Return the specification that `to_mapping` wrote; fields of other versions are left out."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in mapping.items() if name in known})

    def differences(self, other: "ClusterSpec") -> tuple[str, ...]:
        """Return a sentence for every field in which the other one differs."""
        mine, others = asdict(self), asdict(other)
        return tuple(f"{name} is {mine[name]}, asked for {others[name]}" for name in mine if mine[name] != others[name])
