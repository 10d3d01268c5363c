"""Tables of model shapes and accelerator figures.

Models: the `config.json` published with each checkpoint, as collected in the model configurations of
ai-dynamo/aiconfigurator 0.12.0 (Apache-2.0). Llama-3.3-70B has the published architecture of Llama-3.1-70B. GLM-4.5
is from public test fixtures of that model.

Accelerators: NVIDIA's data sheets. Operations are dense (without sparsity), links are per direction, memory is what
the driver reports.
"""

from dataclasses import replace

from frontier_tuner.facts import GPUFacts, ModelFacts

MIB = 1024**2

_LLAMA_8B = ModelFacts("meta-llama/Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 131072)
_LLAMA_70B = ModelFacts("meta-llama/Llama-3.3-70B-Instruct", 80, 8192, 64, 8, 128, 28672, 128256, 131072)
_LLAMA_405B = ModelFacts("meta-llama/Llama-3.1-405B", 126, 16384, 128, 8, 128, 53248, 128256, 131072)
_QWEN3_8B = ModelFacts("Qwen/Qwen3-8B", 36, 4096, 32, 8, 128, 12288, 151936, 40960)
_QWEN3_32B = ModelFacts("Qwen/Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, 40960)
_QWEN3_235B = ModelFacts("Qwen/Qwen3-235B-A22B", 94, 4096, 64, 4, 128, 0, 151936, 40960, 128, 8, 1536)
_QWEN3_CODER = ModelFacts("Qwen/Qwen3-Coder-480B-A35B-Instruct", 62, 6144, 96, 8, 128, 0, 151936, 262144, 160, 8, 2560)
_MIXTRAL_8X7B = ModelFacts("mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32, 8, 128, 0, 32000, 32768, 8, 2, 14336)
_MIXTRAL_8X22B = ModelFacts("mistralai/Mixtral-8x22B-v0.1", 56, 6144, 48, 8, 128, 0, 32000, 65536, 8, 2, 16384)
_GPT_OSS_120B = ModelFacts(
    "openai/gpt-oss-120b", 36, 2880, 64, 8, 64, 0, 201088, 131072, 128, 4, 2880,
    weight_bits=4, weight_block=32, sliding_window=128, sliding_layers=18,
)  # fmt: skip
_GLM_45 = ModelFacts(
    "zai-org/GLM-4.5", 92, 5120, 96, 8, 128, 12288, 151552, 131072, 160, 8, 1536,
    mtp_layers=1, dense_layers=3, shared_experts=1,
)  # fmt: skip
_DEEPSEEK_V3 = ModelFacts(
    "deepseek-ai/DeepSeek-V3", 61, 7168, 128, 128, 192, 18432, 129280, 163840, 256, 8, 2048,
    mla=True, kv_lora_rank=512, weight_bits=8, mtp_layers=1, weight_block=128, dense_layers=3, shared_experts=1,
    q_lora_rank=1536, rope_head_dim=64, value_head_dim=128,
)  # fmt: skip
_KIMI_K2 = replace(
    _DEEPSEEK_V3, name="moonshotai/Kimi-K2-Instruct", heads=64, kv_heads=64, vocabulary=163840, max_context=131072,
    experts=384, mtp_layers=0, dense_layers=1,
)  # fmt: skip
_GLM_5 = ModelFacts(
    "zai-org/GLM-5", 78, 6144, 64, 64, 256, 12288, 154880, 202752, 256, 8, 2048,
    mla=True, kv_lora_rank=512, mtp_layers=1, dense_layers=3, shared_experts=1, q_lora_rank=2048, rope_head_dim=64,
    value_head_dim=256,
)  # fmt: skip
_GLM_53 = replace(_GLM_5, name="zai-org/GLM-5.3", max_context=1048576)


def _fp8(facts: ModelFacts) -> ModelFacts:
    return replace(facts, name=f"{facts.name}-FP8", weight_bits=8, weight_block=128)


MODELS: dict[str, ModelFacts] = {
    facts.name: facts
    for facts in (
        _LLAMA_8B,
        replace(_LLAMA_70B, name="meta-llama/Llama-3.1-70B"),
        _LLAMA_70B,
        _LLAMA_405B,
        _QWEN3_8B,
        _fp8(_QWEN3_8B),
        _QWEN3_32B,
        _fp8(_QWEN3_32B),
        _QWEN3_235B,
        _fp8(_QWEN3_235B),
        _QWEN3_CODER,
        _fp8(_QWEN3_CODER),
        _KIMI_K2,
        _GLM_5,
        _fp8(_GLM_5),
        _GLM_53,
        _fp8(_GLM_53),
        _GPT_OSS_120B,
        replace(_GPT_OSS_120B, name="openai/gpt-oss-20b", layers=24, experts=32, sliding_layers=12),
        _MIXTRAL_8X7B,
        _MIXTRAL_8X22B,
        _GLM_45,
        _DEEPSEEK_V3,
        replace(_DEEPSEEK_V3, name="deepseek-ai/DeepSeek-R1"),
    )
}
"""Known models by name."""

ALIASES: dict[str, str] = {
    "meta-llama/meta-llama-3.1-8b": "meta-llama/llama-3.1-8b",
    "meta-llama/meta-llama-3.1-8b-instruct": "meta-llama/llama-3.1-8b",
    "meta-llama/meta-llama-3.1-70b": "meta-llama/llama-3.1-70b",
    "meta-llama/meta-llama-3.1-405b": "meta-llama/llama-3.1-405b",
    "meta-llama/llama-3.3-70b": "meta-llama/llama-3.3-70b-instruct",
    "mistralai/mixtral-8x7b-instruct-v0.1": "mistralai/mixtral-8x7b-v0.1",
    "mistralai/mixtral-8x22b-instruct-v0.1": "mistralai/mixtral-8x22b-v0.1",
}
"""Other names of known models, in lower case."""

GPUS: dict[str, GPUFacts] = {
    facts.product: facts
    for facts in (
        GPUFacts("NVIDIA-A100-SXM4-80GB", 81920 * MIB, 2.039e12, 312e12, 312e12, 300e9, 8.0),
        GPUFacts("NVIDIA-H100-80GB-HBM3", 81559 * MIB, 3.35e12, 989e12, 1979e12, 450e9, 9.0),
        GPUFacts("NVIDIA-H200", 143771 * MIB, 4.8e12, 989e12, 1979e12, 450e9, 9.0),
        GPUFacts("NVIDIA-B200", 183359 * MIB, 8.0e12, 2250e12, 4500e12, 900e9, 10.0),
        GPUFacts("NVIDIA-GB200", 189471 * MIB, 8.0e12, 2500e12, 5000e12, 900e9, 10.0),
        GPUFacts("NVIDIA-L40S", 46068 * MIB, 864e9, 362e12, 733e12, 32e9, 8.9),
        GPUFacts("NVIDIA-L4", 23034 * MIB, 300e9, 121e12, 242e12, 32e9, 8.9),
        GPUFacts("NVIDIA-A10G", 23028 * MIB, 600e9, 70e12, 70e12, 32e9, 8.6),
        GPUFacts("Tesla-T4", 15360 * MIB, 320e9, 65e12, 65e12, 16e9, 7.5),
        GPUFacts("Tesla-V100-SXM2-16GB", 16160 * MIB, 900e9, 125e12, 125e12, 150e9, 7.0),
        GPUFacts("Tesla-V100-SXM2-32GB", 32510 * MIB, 900e9, 125e12, 125e12, 150e9, 7.0),
    )
}
"""Known accelerators by product."""
