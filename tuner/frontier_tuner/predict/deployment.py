"""What a configuration deploys, in words that every engine shares: pools of workers, precisions, limits.

A predictor reads a `Deployment`; how an engine's parameters become one is told by a mapper.
"""

from dataclasses import dataclass, field

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm_rules import DP, EP, PP, TP
from frontier_tuner.predict.precision import CHECKPOINT, normalised

MTP_ACCEPTANCE = 0.8
"""How often a drafted token of a multi-token-prediction layer is accepted where all before it were."""
NGRAM_ACCEPTANCE = 0.4
"""The same for drafts that are copied from the prompt; between chat and code."""


@dataclass(frozen=True)
class Pool:
    """Workers that do the same, and how each splits the model.

    In a mixture of experts `tensor x attention_data = moe_tensor x expert`; a dense model has no use for the last two.

    Attributes:
        tensor: GPUs that share each layer.
        pipeline: Stages that share the layers.
        attention_data: Copies of the attention layers in one worker; each has its own requests and cache.
        moe_tensor: GPUs that share each expert.
        expert: Groups that share the experts of a layer.
        workers: Independent copies of all this.
    """

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    moe_tensor: int = 1
    expert: int = 1
    workers: int = 1

    @property
    def gpus_per_worker(self) -> int:
        """GPUs that one worker holds."""
        return self.tensor * self.pipeline * self.attention_data

    @property
    def gpus(self) -> int:
        """GPUs that all workers hold."""
        return self.gpus_per_worker * self.workers


@dataclass(frozen=True)
class Deployment:
    """What runs: one pool that does everything, or a pool for each phase.

    Attributes:
        decode: The pool that decodes, and prefills too where `prefill` is None.
        prefill: The pool that prefills, or None.
        dense: Precision of attention projections and dense feed-forward blocks, weights and activations.
        experts: Precision of the routed experts.
        cache: Precision of the KV cache.
        checkpoint_bits: Bits per weight of the checkpoint, where a precision is `CHECKPOINT` and the model's facts
            are not to be trusted about it; 0 leaves it to them.
        draft_tokens: Depth of speculation: tokens drafted for each step.
        acceptance: How often a drafted token is accepted where all before it were, from 0 to 1.
        draft_layers: Layers that drafting one token costs; 0 for drafts copied from the prompt.
        step_tokens: Most tokens of one engine step; 0 where a prompt is prefilled in one step.
        max_seqs: Most sequences that run at once on an attention rank; 0 for no limit.
        gpu_memory_fraction: Share of a GPU's memory that the engine may use.
        prefix_caching: Whether prefixes are kept, so that cached tokens need no prefill.
        graphs: Whether decode steps are captured as graphs, which hides most of the time to launch kernels.
    """

    decode: Pool = field(default_factory=Pool)
    prefill: Pool | None = None
    dense: str = CHECKPOINT
    experts: str = CHECKPOINT
    cache: str = CHECKPOINT
    checkpoint_bits: int = 0
    draft_tokens: int = 0
    acceptance: float = 0.0
    draft_layers: int = 0
    step_tokens: int = 0
    max_seqs: int = 0
    gpu_memory_fraction: float = 0.9
    prefix_caching: bool = True
    graphs: bool = True

    @property
    def gpus(self) -> int:
        """GPUs that all pools hold."""
        return self.decode.gpus + (self.prefill.gpus if self.prefill else 0)

    @property
    def tokens_per_step(self) -> float:
        """Tokens that one decode step is expected to yield for a sequence: 1 + a + a² + … + a^depth."""
        return sum(self.acceptance**depth for depth in range(self.draft_tokens + 1))


def deployment_of_table(configuration: Configuration) -> Deployment:
    """Return the deployment that a row of a plant table describes, by the table's column names.

    A column that is absent or empty takes the value of a single GPU, the checkpoint's precision or no limit.
    """

    def degree(name: str) -> int:
        value = configuration.get(name, "")
        return max(1, int(value)) if str(value) else 1

    def pool(tensor: str, pipeline: str, data: str, moe_tensor: str, expert: str, workers: str) -> Pool:
        return Pool(degree(tensor), degree(pipeline), degree(data), degree(moe_tensor), degree(expert), degree(workers))

    split = configuration.text("mode", "agg") == "disagg"
    tokens, depth = configuration.get("ctx_tokens", ""), configuration.get("nextn", "")
    return Deployment(
        decode=pool("tp", "pp", "attention_dp", "moe_tp", "moe_ep", "d_workers"),
        prefill=pool("p_tp", "p_pp", "p_dp", "p_moe_tp", "p_moe_ep", "p_workers") if split else None,
        dense=normalised(configuration.text("gemm")),
        experts=normalised(configuration.text("moe") or configuration.text("gemm")),
        cache=normalised(configuration.text("kvcache")),
        draft_tokens=int(depth or 0),
        acceptance=MTP_ACCEPTANCE,
        draft_layers=1,
        step_tokens=0 if split else int(tokens or 0),
    )


def deployment_of_engine(configuration: Configuration) -> Deployment:
    """Return the deployment that a configuration of vLLM starts, by the names of the engine's parameters.

    Without expert parallelism the experts are sharded over TP x DP; with it they are spread over as many ranks.
    """
    tensor, data = configuration.integer(TP, 1), configuration.integer(DP, 1)
    spread = configuration.flag(EP)
    tokens = configuration.integer("maxNumBatchedTokens", 8192)
    return Deployment(
        decode=Pool(
            tensor,
            configuration.integer(PP, 1),
            data,
            moe_tensor=1 if spread else tensor * data,
            expert=tensor * data if spread else 1,
        ),
        cache=normalised(configuration.text("kvCacheDtype")),
        draft_tokens=configuration.integer("numSpeculativeTokens"),
        acceptance=NGRAM_ACCEPTANCE,
        step_tokens=tokens if configuration.flag("enableChunkedPrefill", default=True) else 0,
        max_seqs=configuration.integer("maxNumSeqs"),
        gpu_memory_fraction=configuration.integer("gpuMemoryUtilizationPercent", 90) / 100,
        prefix_caching=configuration.flag("enablePrefixCaching", default=True),
    )
