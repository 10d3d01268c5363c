"""A roofline prior: it orders configurations before anything is known about them. It never becomes a result.

Only memory traffic, arithmetic and the talk between GPUs are modelled; prefix caching, speculation and chunking are
left to the measurements, because their worth depends on the traffic.
"""

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm_rules import DP, PP, TP, gpus, weight_bytes_per_gpu
from frontier_tuner.facts import GPUFacts, ModelFacts
from frontier_tuner.samplers import Prior

BATCHES = (1, 4, 16, 64, 256)
EXCHANGE_SECONDS = 8e-6
STEP_SECONDS = 0.002
RUNTIME_BYTES = 2**30


def roofline(model: ModelFacts, gpu: GPUFacts, context_tokens: int) -> Prior:
    """Return a prior that scores a configuration by the area under its roofline curve.

    The curve has speed for a user on one axis and throughput per GPU on the other, over growing batches.

    Args:
        model: The model.
        gpu: The accelerator.
        context_tokens: Typical tokens of a sequence in the cache.
    """

    def score(configuration: Configuration) -> float:
        count, ranks = gpus(configuration), configuration.integer(DP, 1)
        tensor, stages = configuration.integer(TP, 1), configuration.integer(PP, 1)
        bits = 8 if configuration.text("kvCacheDtype").startswith("fp8") else 16
        each = model.kv_bytes_per_token_per_gpu(tensor, stages, bits)
        weights = weight_bytes_per_gpu(model, configuration)
        percent = configuration.integer("gpuMemoryUtilizationPercent", 90)
        left = gpu.memory_bytes * percent // 100 - weights - RUNTIME_BYTES
        room = max(0, left) / (each * context_tokens)
        most = min(configuration.integer("maxNumSeqs", BATCHES[-1]), room) * ranks
        area, reached = 0.0, 0.0
        for batch in sorted({min(float(batch), most) for batch in BATCHES}, reverse=True):
            if batch <= 0:
                continue
            sequences = batch / ranks
            memory = (weights + sequences * context_tokens * each) / gpu.bandwidth_bytes_per_s
            arithmetic = 2 * model.active_parameters() * sequences / (gpu.flops_16bit * tensor * stages)
            exchange = EXCHANGE_SECONDS + sequences * model.hidden * 2 / gpu.link_bytes_per_s
            talk = 2 * model.layers * exchange if tensor > 1 else 0.0
            # The stages of a pipeline take turns on one token, so a user waits for all of them.
            step = stages * max(memory, arithmetic) + talk + STEP_SECONDS
            speed, throughput = 1 / step, batch / step / count
            area += max(0.0, speed - reached) * throughput
            reached = max(reached, speed)
        return area

    return score
