"""How far real kernels, links and schedulers stay behind the data sheet: the same for every model and engine."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Efficiencies:
    """What a roofline cannot know by itself.

    Attributes:
        memory: Share of the memory bandwidth that reading weights reaches.
        cache: The same for reading the KV cache.
        flops_16bit: Share of the 16-bit rate that a large matrix product reaches.
        flops_8bit: The same for 8 bits.
        flops_4bit: The same for 4 bits.
        attention: Share of the 16-bit rate that prefill attention reaches.
        sharpness: How abruptly a kernel turns from memory-bound to compute-bound; the exponent of a p-norm.
        layer_seconds: Time per layer that no work accounts for: launches, synchronisation, small kernels.
        eager_layer_seconds: The same where decode steps are not captured as graphs.
        step_seconds: Time per engine step that no work accounts for: scheduling, sampling, output.
        sequence_seconds: The same per sequence in the step.
        token_bytes: Bytes per token, layer and unit of width that activations move through memory.
        reduce_seconds: Latency of an all-reduce between two GPUs; grows with the logarithm of their number.
        exchange_seconds: Latency of one exchange of tokens between attention ranks and experts.
        network_seconds: Latency of a collective that leaves the domain of fast links.
        link: Share of the link's rate that collectives reach.
        expert_skew: By how much the busiest expert rank exceeds the mean, for many ranks and large batches.
        lockstep: From 0 to 1, how much a prefill on one attention rank holds up the others.
        burst: Share of the sequences in flight whose prefills a new request finds before its own.
        transfer_seconds: Time to hand a prompt's cache from prefill to decode, besides moving it.
        prefill_utilisation: Share of its time that a busy prefill pool works.
    """

    memory: float = 0.75
    cache: float = 0.65
    flops_16bit: float = 0.65
    flops_8bit: float = 0.55
    flops_4bit: float = 0.45
    attention: float = 0.45
    sharpness: float = 3.0
    layer_seconds: float = 12e-6
    eager_layer_seconds: float = 60e-6
    step_seconds: float = 1e-3
    sequence_seconds: float = 5e-6
    token_bytes: float = 24.0
    reduce_seconds: float = 5e-6
    exchange_seconds: float = 15e-6
    network_seconds: float = 25e-6
    link: float = 0.6
    expert_skew: float = 0.25
    lockstep: float = 0.3
    burst: float = 0.05
    transfer_seconds: float = 0.02
    prefill_utilisation: float = 0.95


EFFICIENCIES = Efficiencies()
"""What a roofline uses unless told otherwise."""
