"""How far real kernels, links and schedulers stay behind the data sheet: the same for every model and engine."""

from collections.abc import Mapping
from dataclasses import dataclass


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

    memory: float = 0.826
    memory_8bit: float = 0.736
    memory_4bit: float = 0.796
    cache: float = 0.84
    flops_16bit: float = 0.588
    flops_8bit: float = 0.469
    flops_8bit_block: float = 0.318
    flops_4bit: float = 0.46
    attention: float = 0.464
    sharpness: float = 2.02
    layer_seconds: float = 1.53e-05
    moe_layer_seconds: float = 3.13e-05
    latent_layer_seconds: float = 1.74e-05
    index_layer_seconds: float = 1.35e-05
    linear_layer_seconds: float = 9.8e-06
    quantize_seconds: float = 1.67e-05
    eager_layer_seconds: float = 6e-05
    step_seconds: float = 0.000741
    sequence_seconds: float = 1.46e-05
    token_bytes: float = 28
    reduce_seconds: float = 5.04e-06
    exchange_seconds: float = 9.87e-06
    network_seconds: float = 25e-6
    link: float = 0.36
    expert_spread: float = 0.32
    expert_skew: float = 0.101
    lockstep: float = 0.179
    arrival_seconds: float = 0.0776
    burst: float = 0.0798
    transfer_seconds: float = 0.02
    prefill_utilisation: float = 0.95


EFFICIENCIES = Efficiencies()
"""What a roofline uses unless told otherwise."""

_OF_ENGINE: Mapping[str, Efficiencies] = {}


def efficiencies_of(engine: str) -> Efficiencies:
    """Return the efficiencies of an engine, by its name in lower case; those of all engines where it has no own."""
    return _OF_ENGINE.get(engine.lower(), EFFICIENCIES)
