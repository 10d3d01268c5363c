"""Techniques: the knobs of a search space by what a person would call them.

Knobs of one technique are set back together when its worth is measured. A knob that no technique claims is one of its
own, so a new parameter never goes unexplained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frontier_tuner.configuration import Configuration

TECHNIQUES: Mapping[str, tuple[str, ...]] = {
    "WeightQuantization": ("variant", "quantization", "gemm", "moe"),
    "KVCachePrecision": ("kvCacheDtype", "kvcache"),
    "SpeculativeDecoding": (
        "speculativeMethod",
        "numSpeculativeTokens",
        "speculativeModel",
        "nextn",
    ),
    "PrefixCaching": ("enablePrefixCaching",),
    "Disaggregation": (
        "mode",
        "prefillWorkers",
        "decodeWorkers",
        "p_workers",
        "d_workers",
        "p_tp",
        "p_pp",
        "p_dp",
        "p_moe_tp",
        "p_moe_ep",
    ),
    "TensorParallelism": ("tensorParallelSize", "tp", "moe_tp"),
    "PipelineParallelism": ("pipelineParallelSize", "pp"),
    "AttentionDataParallelism": ("dataParallelSize", "attention_dp"),
    "ExpertParallelism": ("enableExpertParallel", "moe_ep"),
    "BatchLimits": ("maxNumSeqs", "maxNumBatchedTokens", "enableChunkedPrefill", "ctx_tokens"),
    "Hardware": ("gpu", "gpuProduct"),
    "Runtime": (
        "image",
        "asyncScheduling",
        "attentionBackend",
        "compilation",
        "cudaGraphs",
        "enforceEager",
        "blockSize",
        "gpuMemoryUtilizationPercent",
    ),
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
    """Return the techniques in which two configurations differ, in the order of `TECHNIQUES`, then the other knobs'."""
    different = [name for name in {**winner, **baseline} if winner.get(name) != baseline.get(name)]
    found = [Technique(name, _of(knobs, winner, baseline)) for name, knobs in TECHNIQUES.items()]
    claimed = {knob for knobs in TECHNIQUES.values() for knob in knobs}
    found += [Technique(name, (name,)) for name in sorted(different) if name not in claimed]
    return tuple(technique for technique in found if set(technique.knobs) & set(different))


def _of(knobs: Sequence[str], *configurations: Configuration) -> tuple[str, ...]:
    return tuple(knob for knob in knobs if any(knob in configuration for configuration in configurations))
