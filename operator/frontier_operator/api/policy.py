"""What a user may pass through to an engine, and what only the cluster's administrator may allow.

Engine arguments and pod templates are a way to run code, read files or borrow rights that the user does not have. The
rules here are pure and name the flag or the field that they refuse.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from frontier_operator.api.names import ENGINE_CONTAINER
from frontier_tuner.spec_fields import Complaint

OPERATOR_FLAGS = {
    "--model": "model.variants",
    "--served-model-name": "model.servedName",
    "--host": "",
    "--port": "",
}
"""Flags that the operator sets, and the field that a user sets them by; empty where there is none."""

PARAMETER_FLAGS = {
    "--tensor-parallel-size": "tensorParallelSize",
    "-tp": "tensorParallelSize",
    "--pipeline-parallel-size": "pipelineParallelSize",
    "-pp": "pipelineParallelSize",
    "--data-parallel-size": "dataParallelSize",
    "-dp": "dataParallelSize",
    "--enable-expert-parallel": "enableExpertParallel",
    "-ep": "enableExpertParallel",
    "--max-num-seqs": "maxNumSeqs",
    "--max-num-batched-tokens": "maxNumBatchedTokens",
    "--kv-cache-dtype": "kvCacheDtype",
    "--enable-prefix-caching": "enablePrefixCaching",
    "--enable-chunked-prefill": "enableChunkedPrefill",
    "--speculative-config": "numSpeculativeTokens",
    "-sc": "numSpeculativeTokens",
    "--gpu-memory-utilization": "gpuMemoryUtilizationPercent",
}
"""Flags that the search sets, with the parameter that pins them."""

DENIED_FLAGS = {
    "--trust-remote-code": "runs code from the checkpoint",
    "--middleware": "loads code into the server",
    "--api-key": "puts a secret in plain text; set VLLM_API_KEY with valueFrom.secretKeyRef",
    "--hf-token": "puts a secret in plain text; set HF_TOKEN with valueFrom.secretKeyRef",
    "--config": "reads arguments from a file that nobody checks",
    "--tool-parser-plugin": "loads code into the server",
    "--reasoning-parser-plugin": "loads code into the server",
    "--io-processor-plugin": "loads code into the server",
    "--logits-processors": "loads code into the engine",
    "--worker-cls": "loads code into the engine",
    "--worker-extension-cls": "loads code into the engine",
    "--scheduler-cls": "loads code into the engine",
    "--allowed-local-media-path": "lets requests read files of the container",
    "--enable-server-load-tracking": "changes what is measured",
}
"""Flags that only the operator's settings may allow, with what each of them does."""

_WHOLE_FLAGS = {"--reasoning-parser", "--scheduler"}
"""Flags of their own that happen to begin a refused flag."""


@dataclass(frozen=True)
class Policy:
    """What the cluster's administrator allows beyond the defaults.

    Attributes:
        allowed_arguments: Flags of `DENIED_FLAGS` that users may pass.
        allowed_service_accounts: Service accounts that pod templates may name.
        allow_privileged: Whether pod templates may reach for the node: host namespaces, host paths, privileged mode.
    """

    allowed_arguments: frozenset[str] = field(default_factory=frozenset)
    allowed_service_accounts: frozenset[str] = field(default_factory=frozenset)
    allow_privileged: bool = False


def argument_complaints(args: Sequence[object], policy: Policy) -> Iterator[Complaint]:
    """Yield every argument that the operator or the search sets itself, or that is refused; by its place in `args`."""
    for index, argument in enumerate(args):
        if not isinstance(argument, str) or not argument.startswith("-"):
            continue
        flag = _flag(argument)
        positive = flag.replace("--no-", "--", 1)
        if flag in OPERATOR_FLAGS:
            way = f"; set {OPERATOR_FLAGS[flag]} instead" if OPERATOR_FLAGS[flag] else ""
            yield (index,), argument, f"{flag} is set by the operator{way}; remove it"
        elif parameter := PARAMETER_FLAGS.get(positive):
            way = f"pin it with search.parameters: [{{name: {parameter}, value: …}}]"
            yield (index,), argument, f"{flag} clashes with the searched parameter {parameter}; {way}"
        elif denied := _denied(flag, policy):
            reason = DENIED_FLAGS[denied]
            yield (index,), argument, f"{denied} is refused: it {reason}; only the operator's settings can allow it"


def _flag(argument: str) -> str:
    flag = argument.split("=", 1)[0].split(".", 1)[0]
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _denied(flag: str, policy: Policy) -> str | None:
    # argparse takes any unambiguous beginning of a flag for the flag
    if flag in _WHOLE_FLAGS or len(flag) <= len("--"):
        return None
    return next((name for name in DENIED_FLAGS if name.startswith(flag) and name not in policy.allowed_arguments), None)


def pod_template_complaints(
    template: Mapping[str, Any], policy: Policy, gpu_resource: str = "nvidia.com/gpu"
) -> Iterator[Complaint]:
    """Yield every field of a pod template that borrows rights or undoes what the operator renders.

    Args:
        template: The mapping under `engine.podTemplate`; only its `spec` is merged.
        policy: What the administrator allows.
        gpu_resource: The extended resource that the search counts.
    """
    for name in template.keys() - {"spec"}:
        yield (name,), "", "is not merged; only spec is: write the fields of the pod under podTemplate.spec"
    if "spec" in template and not isinstance(template["spec"], Mapping):
        yield ("spec",), template["spec"], "must be an object with fields of a pod"
    spec = _mapping(template.get("spec"))
    yield from _directives(("spec",), spec)
    account = spec.get("serviceAccountName", spec.get("serviceAccount"))
    if account is not None and account not in policy.allowed_service_accounts:
        yield (
            ("spec", "serviceAccountName"),
            account,
            "engines run without rights; remove it or ask for it to be allowed",
        )
    for name in ("nodeName", "restartPolicy", "hostname", "subdomain"):
        if name in spec:
            yield ("spec", name), spec[name], "is set by the operator or the scheduler; remove it"
    for kind in ("containers", "initContainers"):
        if kind in spec and not isinstance(spec[kind], list):
            yield ("spec", kind), spec[kind], "must be a list of containers"
        for index, container in enumerate(_mappings(spec.get(kind))):
            yield from _container(("spec", kind, index), container, gpu_resource)
    if not policy.allow_privileged:
        yield from _privileges(spec)


def _directives(loc: tuple[str | int, ...], value: object) -> Iterator[Complaint]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            if str(name).startswith("$"):
                yield (*loc, name), each, "directives of strategic merge are not taken; remove it"
            yield from _directives((*loc, name), each)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _directives((*loc, index), each)


def _container(loc: tuple[str | int, ...], container: Mapping[str, Any], gpu_resource: str) -> Iterator[Complaint]:
    resources = _mapping(container.get("resources"))
    for kind in ("limits", "requests"):
        if gpu_resource in _mapping(resources.get(kind)):
            yield (*loc, "resources", kind, gpu_resource), "", "GPUs are set by the search and counted; remove it"
    if container.get("name") == ENGINE_CONTAINER:
        for name, way in (("image", "engine.image"), ("args", "engine.args"), ("env", "engine.env"), ("command", "")):
            if name in container:
                yield (*loc, name), "", "is set by the operator; " + (f"use {way}" if way else "remove it")


def _privileges(spec: Mapping[str, Any]) -> Iterator[Complaint]:
    way = "is refused: it reaches beyond the pod; remove it or ask for it to be allowed"
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield ("spec", name), spec[name], way
    for index, volume in enumerate(_mappings(spec.get("volumes"))):
        if "hostPath" in volume:
            yield ("spec", "volumes", index, "hostPath"), volume.get("name"), way
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for index, container in enumerate(_mappings(spec.get(kind))):
            for place, port in enumerate(_mappings(container.get("ports"))):
                if port.get("hostPort"):
                    yield ("spec", kind, index, "ports", place, "hostPort"), port["hostPort"], way
            context = _mapping(container.get("securityContext"))
            loc = ("spec", kind, index, "securityContext")
            for name in ("privileged", "allowPrivilegeEscalation"):
                if context.get(name):
                    yield (*loc, name), context[name], way
            if _mapping(context.get("capabilities")).get("add"):
                yield (*loc, "capabilities", "add"), "", way


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [_mapping(item) for item in value] if isinstance(value, list) else []
