"""What a demo runs: which engine, which manifest, which cluster, how much traffic."""

from dataclasses import dataclass
from pathlib import Path

from frontier_local.cluster_spec import ClusterSpec


@dataclass(frozen=True)
class Scenario:
    """One demo.

    Attributes:
        name: `simulated` or `vllm`.
        manifest: The InferenceDeployment, below the repository.
        deployment: Its name.
        namespace: Its namespace.
        cluster: The cluster that it needs.
        traffic_rate: Requests per second of live traffic through the Service, so that the canary can be judged.
        min_trials: Trials that must have run.
        min_frontier: Points that the frontier must have.
        timeout_seconds: When to give up.
        poll_seconds: How often the operator looks.
        scrape_seconds: How often Prometheus scrapes.
    """

    name: str
    manifest: Path
    deployment: str
    namespace: str
    cluster: ClusterSpec
    traffic_rate: float
    min_trials: int
    min_frontier: int
    timeout_seconds: float
    poll_seconds: float = 0.3
    scrape_seconds: float = 0.25


def simulated() -> Scenario:
    """Return the demo on simulated engines: eight GPUs, a minute or two."""
    return Scenario(
        name="simulated",
        manifest=Path("examples/demo.yaml"),
        deployment="chat",
        namespace="ml",
        cluster=ClusterSpec(name="demo", nodes=2, gpu_product="NVIDIA-L40S", gpus_per_node=8, scrape_interval="250ms"),
        traffic_rate=6.0,
        min_trials=8,
        min_frontier=4,
        timeout_seconds=600,
    )


def vllm(image_map: Path) -> Scenario:
    """Return the demo on a real vLLM on the CPU: one engine at a time beside the incumbent, ten to twenty minutes."""
    return Scenario(
        name="vllm",
        manifest=Path("examples/vllm-cpu.yaml"),
        deployment="tiny",
        namespace="ml",
        cluster=ClusterSpec(
            name="demo-vllm",
            gpu_product="CPU",
            gpus_per_node=8,
            gpu_resource="frontier-operator.dev/cpu-engine",
            scrape_interval="1s",
            image_map=str(image_map),
        ),
        traffic_rate=0.4,
        min_trials=3,
        min_frontier=2,
        timeout_seconds=3000,
        poll_seconds=1.0,
        scrape_seconds=1.0,
    )
