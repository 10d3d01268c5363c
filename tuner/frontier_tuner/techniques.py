"""Techniques: the knobs of a search space by what a person would call them.

Knobs of one technique are set back together when its worth is measured. A knob that no technique claims is one of its
own, so a new parameter never goes unexplained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frontier_tuner.configuration import Configuration, Value

_POOLED = (
    "Replicas",
    "TensorParallelSize",
    "PipelineParallelSize",
    "DataParallelSize",
    "EnableExpertParallel",
    "MaxNumSeqs",
    "MaxNumBatchedTokens",
    "KvCacheDtype",
)
"""Knobs that each pool of a disaggregated deployment has for itself, after the pool's name."""

TECHNIQUES: Mapping[str, tuple[str, ...]] = {
    "WeightQuantization": ("variant", "quantization", "gemm", "moe"),
    "KVCachePrecision": ("kvCacheDtype", "kvcache"),
    "SpeculativeDecoding": (
        "speculativeMethod",
        "numSpeculativeTokens",
        "draftModel",
        "eagle3Model",
        "dflashModel",
        "draftTensorParallelSize",
        "nextn",
    ),
    "PrefixCaching": ("enablePrefixCaching",),
    "Disaggregation": (
        "mode",
        *(f"{pool}{knob}" for pool in ("prefill", "decode") for knob in _POOLED),
        *("p_tp", "p_pp", "p_dp", "p_moe_tp", "p_moe_ep", "p_workers", "d_workers"),
    ),
    "Hardware": ("gpuProduct",),
    "TensorParallelism": ("tensorParallelSize", "tp", "moe_tp"),
    "PipelineParallelism": ("pipelineParallelSize", "pp"),
    "AttentionDataParallelism": ("dataParallelSize", "attention_dp"),
    "ExpertParallelism": ("enableExpertParallel", "enableEplb", "numRedundantExperts", "moe_ep"),
    "Runtime": (
        "image",
        "attentionBackend",
        "asyncScheduling",
        "optimizationLevel",
        "maxCudagraphCaptureSize",
        "enforceEager",
        "blockSize",
        "gpuMemoryUtilizationPercent",
    ),
    "BatchLimits": ("maxNumSeqs", "maxNumBatchedTokens", "enableChunkedPrefill", "ctx_tokens"),
    "ReasoningEffort": ("reasoningEffort",),
}
"""Technique → its knobs, in the order in which their worth is asked for: what pushes the frontier out comes first."""


@dataclass(frozen=True)
class Technique:
    """Knobs that are set back together.

    Attributes:
        name: As in `TECHNIQUES`, or the only knob's name.
        knobs: Those of them that a space or a configuration has.
    """

    name: str
    knobs: tuple[str, ...]


def techniques_between(winner: Configuration, baseline: Configuration) -> tuple[Technique, ...]:
    """Return the techniques in which two configurations differ, in the order of `TECHNIQUES`, then the other knobs'.

    A knob that the winner does not have is no difference of its own: another one, which it has, took it away.
    """
    different = [name for name in winner if winner[name] != baseline.get(name)]
    found = [Technique(name, _of(knobs, winner, baseline)) for name, knobs in TECHNIQUES.items()]
    claimed = {knob for knobs in TECHNIQUES.values() for knob in knobs}
    found += [Technique(name, (name,)) for name in sorted(different) if name not in claimed]
    return tuple(technique for technique in found if set(technique.knobs) & set(different))


def carried_over(winner: Configuration, baseline: Configuration) -> dict[str, Value]:
    """Return values for the knobs that the baseline has and the winner lacks, as near to the winner as can be.

    What a winner of two pools gives its decode pool is what one pool would have for it; all else is the baseline's.
    """
    return {
        name: winner.get(f"decode{name[0].upper()}{name[1:]}", value)
        for name, value in baseline.items()
        if name not in winner
    }


def _of(knobs: Sequence[str], *configurations: Configuration) -> tuple[str, ...]:
    return tuple(knob for knob in knobs if any(knob in configuration for configuration in configurations))
