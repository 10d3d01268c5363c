"""What came with which version of vLLM, read in the released packages of 0.4 to 0.33.

A version that is not known is taken for the newest where it only names things, and for the strictest since
`SUPPORTED_SINCE` where a rule depends on it.
"""

from collections.abc import Mapping
from types import MappingProxyType

from frontier_tuner.configuration import Value
from frontier_tuner.versions import Version, parse_version

SUPPORTED_SINCE: Version = (0, 8, 5)
"""The oldest version whose arguments the catalogue describes."""

BLOCK_REFINEMENT_SINCE: Version = (0, 29)
"""The first version that may split the blocks of the experts' FP8 scales."""
SMALLEST_REFINED_BLOCK = 32

LARGEST_BATCHES_SINCE: Version = (0, 28)
"""The first version whose server takes still larger steps on GPUs of 160 GiB and more."""
OLDER_DEFAULTS: tuple[tuple[Version, str, Value], ...] = (
    ((0, 14), "asyncScheduling", False),
    ((0, 20), "gpuMemoryUtilizationPercent", 90),
)
"""Before which version which parameter had another default, and which."""
ASYNC_WITH_SPECULATION_SINCE: Version = (0, 11, 1)
ASYNC_WITH_PIPELINE_SINCE: Version = (0, 15)

SPECULATION_IN_PIPELINE: frozenset[Version] = frozenset()
"""Versions on which speculative decoding with pipeline parallelism is known to answer rightly; none so far."""
UNLIKE_POOLS: frozenset[Version] = frozenset()
"""Versions on which prefill and decode pools of different TP are known to hand over every cache; none so far."""

VALUES_SINCE: Mapping[tuple[str, object], str] = MappingProxyType(
    {
        ("kvCacheDtype", "bfloat16"): "0.11.0",
        ("kvCacheDtype", "float16"): "0.18.0",
        ("kvCacheDtype", "nvfp4"): "0.20.0",
        ("speculativeMethod", "eagle3"): "0.9.2",
        ("speculativeMethod", "mtp"): "0.11.0",
        ("speculativeMethod", "suffix"): "0.11.1",
        ("speculativeMethod", "draft_model"): "0.15.0",
        ("speculativeMethod", "dflash"): "0.20.0",
        ("speculativeMethod", "dspark"): "0.25.0",
        ("enableChunkedPrefill", False): "0.11.1",  # before, prefills are chunked whatever is said
    }
)
"""Parameter and value → the first version that has the value, as seen in the packages looked at."""

_CAPABILITIES: Mapping[str, tuple[tuple[str, float], ...]] = MappingProxyType(
    {
        "awq": (("0.4.0", 7.5),),
        "gptq": (("0.4.0", 6.0),),
        "fp8": (("0.4.2", 8.9), ("0.5.1", 8.0), ("0.14.0", 7.5)),
        "fbgemm_fp8": (("0.5.4", 8.0),),
        "mxfp4": (("0.10.1", 8.0),),
        "fp_quant": (("0.11.1", 10.0),),
        "modelopt": (("0.8.5", 8.9), ("0.28.0", 8.0)),
        "modelopt_fp4": (("0.9.2", 8.0), ("0.14.0", 7.5)),
        "compressed-tensors": (("0.5.0", 7.0),),
    }
)


def quantization_capability(method: str, version: Version = ()) -> float | None:
    """Return the compute capability that a quantization method needs; None where the method is not known.

    Infinite where the version does not have the method yet.

    Args:
        method: As in the checkpoint's `quant_method`.
        version: Of the engine; an unknown one has the highest need of any since `SUPPORTED_SINCE`.
    """
    steps = [(parse_version(since), need) for since, need in _CAPABILITIES.get(method, ())]
    if not steps:
        return None
    if version:
        return next((need for since, need in reversed(steps) if since <= version), float("inf"))
    old = [need for since, need in steps if since <= SUPPORTED_SINCE]
    return max([*old[-1:], *(need for since, need in steps if since > SUPPORTED_SINCE)])


def value_since(name: str, value: object) -> str:
    """Return the first version that knows a parameter's value, or nothing where every one does."""
    return next((v for (n, x), v in VALUES_SINCE.items() if n == name and type(x) is type(value) and x == value), "")
