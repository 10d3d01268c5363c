"""What a model's shape forbids: degrees that do not divide its heads, widths, vocabulary, experts or layers.

Only what the engine itself checks or cannot do on any kernel is here; what a single kernel refuses fails once.
"""

import math

from frontier_tuner.engines.vllm_versions import BLOCK_REFINEMENT_SINCE, SMALLEST_REFINED_BLOCK
from frontier_tuner.facts import FOUR_BITS, ModelFacts
from frontier_tuner.versions import Version

VOCABULARY_PADDING = 64


def attention_split(model: ModelFacts, tensor: int) -> str | None:
    """Query heads must divide; KV heads must divide or be replicated evenly; the padded vocabulary must divide."""
    if model.heads % tensor:
        return f"{model.name} has {model.heads} heads, TP {tensor} does not divide them"
    kv_heads = model.kv_heads
    uneven = tensor % kv_heads if tensor >= kv_heads else kv_heads % tensor
    if uneven and not model.mla:
        return f"{model.name} has {kv_heads} KV heads, TP {tensor} neither divides nor is a multiple of them"
    padded = -(-model.vocabulary // VOCABULARY_PADDING) * VOCABULARY_PADDING
    if padded % tensor:
        return f"{model.name} has a vocabulary of {padded} (padded), TP {tensor} does not divide it"
    return None


def width_split(model: ModelFacts, tensor: int, data: int, expert_parallel: bool, version: Version) -> str | None:
    """Feed-forward widths must divide, also into whole blocks of scales; whole experts are not split.

    Without expert parallelism vLLM shards the experts over TP x DP.
    """
    problem = _width(model, "feed-forward width", model.intermediate, tensor, 0)
    if problem or not model.experts or expert_parallel:
        return problem
    refined = SMALLEST_REFINED_BLOCK if version >= BLOCK_REFINEMENT_SINCE else 0
    return _width(model, "expert width", model.expert_intermediate, tensor * data, refined)


def _width(model: ModelFacts, what: str, width: int, shards: int, refined: int) -> str | None:
    block = model.weight_block
    if block and model.weight_bits == FOUR_BITS:
        # Groups are dealt out evenly from the front, so only a last rank without any is a problem.
        groups = -(-width // block)
        if groups and (shards - 1) * -(-groups // shards) >= groups:
            return f"{model.name} has {groups} groups of {block} in its {what}, too few for {shards} shards"
        return None
    if width % shards:
        return f"{model.name} has {what} {width}, {shards} shards do not divide it"
    each = width // shards
    if block and each % block and not (refined and math.gcd(block, each, model.hidden) >= refined):
        return f"{model.name} has {what} {width}; over {shards} shards {each} is not whole blocks of {block}"
    return None


def redundant_experts(experts: int, ranks: int) -> int:
    """Return the fewest copies of experts with which their number divides over so many ranks."""
    return -experts % ranks


def expert_split(
    model: ModelFacts, ranks: int, expert_parallel: bool, *, balanced: bool = False, redundant: int = 0
) -> str | None:
    """Expert parallelism needs experts, and its degree TP x DP must divide them, with the copies of EPLB if any."""
    if not expert_parallel:
        return None
    if not model.experts:
        return f"{model.name} is not a mixture of experts, so enableExpertParallel cannot be true"
    if balanced and ranks == 1:
        return "enableEplb has nothing to balance on one GPU; it needs TP x DP above 1"
    if not balanced:
        redundant = 0
    if (model.experts + redundant) % ranks == 0:
        return None
    if not balanced:
        return (
            f"{model.name} has {model.experts} experts, expert parallelism over TP x DP = {ranks} does not divide them"
        )
    return (
        f"{model.name} has {model.experts} experts; with {redundant} redundant ones they do not divide over "
        f"TP x DP = {ranks}, the fewest that do are {redundant_experts(model.experts, ranks)}"
    )


def pipeline_split(model: ModelFacts, stages: int) -> str | None:
    """Each stage needs a layer; stages of unequal length are fine."""
    return f"{model.name} has {model.layers} layers, PP {stages} has more stages" if stages > model.layers else None


def stage_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Return how many layers vLLM gives each stage: those left over go one each to the stages before the last."""
    each, left = divmod(layers, stages)
    return tuple(each + (stages - 1 - left <= stage < stages - 1) for stage in range(stages))
