"""Number formats: the names that engines and checkpoints give them, their size, and the arithmetic that they use."""

from dataclasses import dataclass
from types import MappingProxyType

from frontier_tuner.errors import FactsError
from frontier_tuner.facts import GPUFacts

CHECKPOINT = "checkpoint"
"""The precision that the checkpoint's weights have."""


@dataclass(frozen=True)
class Precision:
    """A number format as a kernel sees it.

    Attributes:
        name: Its normalised name.
        bits: Bits per number, scales included.
        compute: The arithmetic that it uses: `16bit`, `8bit`, `8bit_block`, `mx8bit`, `int8` or `4bit`.
        dynamic: Whether activations are scaled while the engine runs, by kernels of their own.
    """

    name: str
    bits: float
    compute: str
    dynamic: bool = False


PRECISIONS = MappingProxyType(
    {
        precision.name: precision
        for precision in (
            Precision("bf16", 16, "16bit"),
            Precision("fp8", 8, "8bit", dynamic=True),  # activations scaled while the engine runs
            Precision("fp8_static", 8, "8bit"),  # activation scales come with the checkpoint
            Precision("fp8_block", 8, "8bit_block", dynamic=True),  # one scale per 128 x 128 weights
            Precision("int8", 8, "int8", dynamic=True),
            Precision("int8_weights", 8, "16bit"),
            Precision("nvfp4", 4.5, "4bit", dynamic=True),  # an 8-bit scale for 16 numbers
            Precision("nvfp4_weights", 4.5, "16bit"),
            Precision("mxfp4", 4.25, "4bit", dynamic=True),  # an 8-bit scale for 32 numbers
            Precision("mxfp4_weights", 4.25, "16bit"),
            Precision("mxfp4_fp8", 4.25, "mx8bit"),  # 8-bit activations where the hardware scales small groups
            Precision("int4_weights", 4.25, "16bit"),  # a 16-bit scale and zero for about 128 numbers
            Precision("int4_fp8", 4.25, "8bit"),
        )
    }
)
"""Formats by normalised name."""

_OTHER_NAMES = {
    "bfloat16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "fp16": "bf16",
    "w16a16": "bf16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_ootb": "fp8",
    "w8a8_fp8": "fp8",
    "fp8_per_token": "fp8",
    "fp8_per_tensor": "fp8_static",
    "mxfp8": "fp8_block",
    "sq": "int8",
    "w8a8": "int8",
    "w8a8_int8": "int8",
    "int8_wo": "int8_weights",
    "w8a16": "int8_weights",
    "fp4": "nvfp4",
    "nvfp4_wo": "nvfp4_weights",
    "w4a16_nvfp4": "nvfp4_weights",
    "w4a16_mxfp4": "mxfp4_weights",
    "w4a16_mxfp4_cutlass": "mxfp4_weights",
    "w4a8_mxfp4_mxfp8": "mxfp4_fp8",
    "w4a8_mxfp4_mxfp8_trtllm": "mxfp4_fp8",
    "int4": "int4_weights",
    "int4_wo": "int4_weights",
    "w4a16": "int4_weights",
    "awq": "int4_weights",
    "gptq": "int4_weights",
    "w4afp8": "int4_fp8",
    "auto": CHECKPOINT,
    "none": CHECKPOINT,
    "": CHECKPOINT,
}


def normalised(name: str) -> str:
    """Return the normalised name of a format, or `CHECKPOINT` where nothing is said.

    Raises:
        FactsError: The name is not known; the message lists those that are.
    """
    wanted = name.strip().lower().replace("-", "_")
    wanted = _OTHER_NAMES.get(wanted, wanted)
    if wanted != CHECKPOINT and wanted not in PRECISIONS:
        raise FactsError(f"precision {name!r} is not known; known are {', '.join((*PRECISIONS, CHECKPOINT))}")
    return wanted


def operations_per_second(gpu: GPUFacts, compute: str) -> float:
    """Return the dense tensor operations per second of a kind of arithmetic.

    Where the hardware has none for a format, kernels widen the numbers and compute in 16 bits.
    """
    rates = {
        "8bit": gpu.flops_8bit,
        "8bit_block": gpu.flops_8bit,
        "mx8bit": gpu.flops_8bit if gpu.flops_4bit else 0.0,  # came with the same generation
        "int8": gpu.flops_int8,
        "4bit": gpu.flops_4bit,
    }
    return rates.get(compute) or gpu.flops_16bit
