"""How far real kernels, links and schedulers stay behind the data sheet: the same for every model and product.

The values are fitted by `benchmarks/roofline_fit.py` to 2,962 measured points of ten models on H100, H200, B200, B300,
GB200 and GB300 with vLLM, SGLang and TensorRT-LLM: `systems/silicon_sample.csv` of aiconfigurator-core 0.12.0
(Apache-2.0). Not fitted, as those points do not tell them: `network_seconds`, `eager_layer_seconds` and
`prefill_utilisation`; `exchange_seconds` and `linear_layer_seconds` are hardly told. Times to first token are the least
sure: they were fitted to a benchmark that starts all its requests at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Efficiencies:
    """What a roofline cannot know by itself.

    Attributes:
        memory: Share of the memory bandwidth that reading weights of 16 bits reaches.
        memory_8bit: The same for 8 bits.
        memory_4bit: The same for 4 bits.
        cache: The same for reading the KV cache.
        flops_16bit: Share of the 16-bit rate that a large matrix product reaches.
        flops_8bit: The same for 8 bits.
        flops_8bit_block: The same for 8 bits with a scale for each block of weights.
        flops_4bit: The same for 4 bits.
        attention: Share of the 16-bit rate that prefill attention reaches.
        sharpness: How abruptly a kernel turns from memory-bound to compute-bound; the exponent of a p-norm.
        layer_seconds: Time per layer that no work accounts for: launches, synchronisation, small kernels.
        moe_layer_seconds: The same, added for a layer with experts: routing, sorting tokens, more kernels.
        latent_layer_seconds: The same, added for a layer with latent attention.
        index_layer_seconds: The same, added for a layer with an index of its own.
        linear_layer_seconds: The same, added for a layer with linear attention.
        quantize_seconds: The same, added for a layer whose activations are quantized while the engine runs.
        eager_layer_seconds: Time per layer to launch kernels in steps that are not captured as graphs: prefills, and
            decode steps where graphs are off. Work on the GPU hides it.
        step_seconds: Time per engine step that no work accounts for: scheduling, sampling, output.
        sequence_seconds: The same per sequence in the step.
        token_bytes: Bytes per token, layer and unit of width that activations move through memory.
        reduce_seconds: Latency of an all-reduce between two GPUs; grows with the logarithm of their number.
        exchange_seconds: Latency of one exchange of tokens between attention ranks and experts.
        network_seconds: Latency of a collective that leaves the domain of fast links.
        link: Share of the link's rate that collectives reach.
        expert_spread: How far the busiest of several expert ranks is above the mean by chance, as a share of what
            Poisson counts would have.
        expert_skew: By how much the busiest expert rank exceeds the mean, for many ranks and large batches.
        lockstep: From 0 to 1, how much a prefill on one attention rank holds up the others.
        arrival_seconds: Time of a request before and after its prefill: transport, tokenizing, the first sample.
        burst: Share of the sequences in flight whose prefills a new request finds before its own.
        transfer_seconds: Time to hand a prompt's cache from prefill to decode, besides moving it.
        prefill_utilisation: Share of its time that a busy prefill pool works.
    """

    memory: float = 0.801
    memory_8bit: float = 0.728
    memory_4bit: float = 0.833
    cache: float = 0.9
    flops_16bit: float = 0.603
    flops_8bit: float = 0.496
    flops_8bit_block: float = 0.295
    flops_4bit: float = 0.451
    attention: float = 0.491
    sharpness: float = 1.6
    layer_seconds: float = 1.62e-5
    moe_layer_seconds: float = 2.81e-5
    latent_layer_seconds: float = 1.98e-5
    index_layer_seconds: float = 1.89e-5
    linear_layer_seconds: float = 9.8e-6
    quantize_seconds: float = 2.36e-5
    eager_layer_seconds: float = 6e-05
    step_seconds: float = 0.000557
    sequence_seconds: float = 1e-5
    token_bytes: float = 21.8
    reduce_seconds: float = 5.3e-6
    exchange_seconds: float = 1.01e-5
    network_seconds: float = 4e-5
    link: float = 0.4
    expert_spread: float = 0.207
    expert_skew: float = 0.131
    lockstep: float = 0.142
    arrival_seconds: float = 0.0959
    burst: float = 0.0897
    transfer_seconds: float = 0.0261
    prefill_utilisation: float = 0.95


EFFICIENCIES = Efficiencies()
"""What a roofline uses unless told otherwise."""

_OF_ENGINE: Mapping[str, Efficiencies] = {
    "sglang": replace(
        EFFICIENCIES, arrival_seconds=0.174, burst=0.155, step_seconds=0.000547, sequence_seconds=1.08e-5
    ),
    "trtllm": replace(
        EFFICIENCIES, arrival_seconds=0.107, burst=0.0793, step_seconds=0.000406, sequence_seconds=7.99e-6
    ),
    "vllm": replace(
        EFFICIENCIES, arrival_seconds=0.0573, burst=0.0698, step_seconds=0.000711, sequence_seconds=1.07e-5
    ),
}


def efficiencies_of(engine: str) -> Efficiencies:
    """Return the efficiencies of an engine, by its name in lower case; those of all engines where it has no own."""
    return _OF_ENGINE.get(engine.lower(), EFFICIENCIES)
