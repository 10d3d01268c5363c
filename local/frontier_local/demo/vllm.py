"""What a real vLLM needs before it can serve: its environment, and the model that it serves."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from frontier_local.demo.kubectl import Kubectl
from frontier_local.errors import LocalError
from frontier_local.images import ImageMap

IMAGE = "vllm/vllm-openai-cpu:v0.32.0"


def image_map() -> Path:
    """Return the file that says what vLLM's image for the CPU is on this machine."""
    return Path(str(files("frontier_local") / "vllm_image.yaml"))


def prepare(say: Callable[[str], None]) -> None:
    """Make vLLM's environment in the cache: 6 GB on disk, once.

    Raises:
        LocalError: It cannot be made.
    """
    say(f"== the environment of image {IMAGE} (about a minute and 6 GB the first time)")
    if ImageMap.load(image_map(), progress=say).resolve(IMAGE) is None:
        raise LocalError(f"{image_map()} has no entry for {IMAGE}")


def put_model(kubectl: Kubectl, namespace: str, repository: Path) -> None:
    """Put the trace into a ConfigMap and the tiny model onto a claim, where the deployment looks for them."""
    shipped = files("frontier_local")
    trace = f"--from-file=trace.csv={shipped / 'data' / 'azure_2023_conv_500.csv'}"
    kubectl.run("create", "configmap", "azure-conversation", "-n", namespace, trace)
    script = f"--from-file=tiny_model.py={shipped / 'tiny_model.py'}"
    kubectl.run("create", "configmap", "tiny-model", "-n", namespace, script)
    kubectl.run("apply", "-n", namespace, "-f", str(repository / "examples/vllm-cpu/model.yaml"))
    kubectl.run("wait", "-n", namespace, "--for=condition=Complete", "job/tiny-model", "--timeout=300s")
