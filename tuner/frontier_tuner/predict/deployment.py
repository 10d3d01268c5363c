"""What a configuration deploys, in words that every engine shares: pools of workers, precisions, limits.

A predictor reads a `Deployment`; how an engine's parameters become one is told by a mapper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.predict.precision import CHECKPOINT, normalised


@dataclass(frozen=True)
class Drafting:
    """What a method of speculation is taken to be like before it is measured.

    Attributes:
        acceptance: How often a drafted token is accepted where all before it were.
        layers: Layers that drafting one token costs; 0 for tokens copied from what was there.
    """

    acceptance: float
    layers: int


DRAFTING: Mapping[str, Drafting] = {
    "ngram": Drafting(0.4, 0),  # between chat, where little repeats, and code
    "suffix": Drafting(0.5, 0),
    "mtp": Drafting(0.8, 1),
    "eagle3": Drafting(0.7, 1),
    "dspark": Drafting(0.75, 1),
    "dflash": Drafting(0.75, 1),
    "draft_model": Drafting(0.7, 6),
}
"""Methods by name. How predictable the output is decides more than the method, so measure."""

STEP_TOKENS = 8192
"""Most tokens of a step on large GPUs, unless told otherwise."""
MEMORY_PERCENT = 92
"""Share of the memory that an engine uses, unless told otherwise."""


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
        acceptance=DRAFTING["mtp"].acceptance,
        draft_layers=DRAFTING["mtp"].layers,
        step_tokens=0 if split else int(tokens or 0),
    )


def deployment_of_engine(configuration: Configuration) -> Deployment:
    """Return the deployment that a configuration of vLLM starts, by the names of the engine's parameters.

    Without expert parallelism the experts are sharded over TP x DP; with it they are spread over as many ranks. Where
    `mode` is `disaggregated`, what is called `decodeTensorParallelSize` or `prefillReplicas` is that pool's.
    """
    split = configuration.text("mode") == "disaggregated"
    decode, prefill = ("decode", "prefill") if split else ("", "")
    method = configuration.text("speculativeMethod", "ngram")
    depth = 0 if method == "none" else configuration.integer("numSpeculativeTokens")
    drafting = DRAFTING.get(method, DRAFTING["ngram"])
    weights = normalised(configuration.text("quantization"))
    eager = configuration.flag("enforceEager") or configuration.integer("optimizationLevel", 2) == 0
    chunked = configuration.flag("enableChunkedPrefill", default=True)
    return Deployment(
        decode=_engine_pool(configuration, decode),
        prefill=_engine_pool(configuration, prefill) if split else None,
        dense=weights,
        experts=weights,
        cache=normalised(str(_pooled(configuration, decode, "kvCacheDtype", "auto"))),
        draft_tokens=depth,
        acceptance=drafting.acceptance,
        draft_layers=drafting.layers if depth else 0,
        step_tokens=int(_pooled(configuration, prefill, "maxNumBatchedTokens", STEP_TOKENS)) if chunked else 0,
        max_seqs=int(_pooled(configuration, decode, "maxNumSeqs", 0)),
        gpu_memory_fraction=configuration.integer("gpuMemoryUtilizationPercent", MEMORY_PERCENT) / 100,
        prefix_caching=configuration.flag("enablePrefixCaching", default=True),
        graphs=not eager,
    )


def _engine_pool(configuration: Configuration, role: str) -> Pool:
    tensor = int(_pooled(configuration, role, "tensorParallelSize", 1))
    data = int(_pooled(configuration, role, "dataParallelSize", 1))
    spread = bool(_pooled(configuration, role, "enableExpertParallel", False))
    return Pool(
        tensor,
        int(_pooled(configuration, role, "pipelineParallelSize", 1)),
        data,
        moe_tensor=1 if spread else tensor * data,
        expert=tensor * data if spread else 1,
        workers=int(_pooled(configuration, role, "replicas", 1)),
    )


def _pooled(configuration: Configuration, role: str, name: str, default: Value) -> Value:
    """Return the value of a pool's own parameter, or that of all engines."""
    own = f"{role}{name[0].upper()}{name[1:]}" if role else name
    return configuration.get(own, configuration.get(name, default))
