"""The table of model shapes: the `config.json` published with each checkpoint, as collected in public repositories.

Models that ship in the model configurations of ai-dynamo/aiconfigurator 0.12.0 (Apache-2.0) agree with them. The
others are the published architectures of their families: the models' cards, and vLLM's and transformers' test
fixtures. Llama-3.3-70B has the architecture of Llama-3.1-70B, GLM-4.6 and 4.7 that of GLM-4.5.
"""

from dataclasses import replace

from frontier_tuner.facts_types import ModelFacts as Model

_LLAMA_8B = Model("meta-llama/Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, 131072)
_LLAMA_70B = Model("meta-llama/Llama-3.3-70B-Instruct", 80, 8192, 64, 8, 128, 28672, 128256, 131072)
_SCOUT = Model(
    "meta-llama/Llama-4-Scout-17B-16E-Instruct", 48, 5120, 40, 8, 128, 0, 202048, 10485760, 16, 1, 8192,
    shared_experts=1, sliding_window=8192, sliding_layers=36,
)  # fmt: skip
_QWEN25_7B = Model("Qwen/Qwen2.5-7B-Instruct", 28, 3584, 28, 4, 128, 18944, 152064, 32768)
_QWEN25_14B = Model("Qwen/Qwen2.5-14B-Instruct", 48, 5120, 40, 8, 128, 13824, 152064, 32768)
_QWEN25_32B = Model("Qwen/Qwen2.5-32B-Instruct", 64, 5120, 40, 8, 128, 27648, 152064, 32768)
_QWEN3_8B = Model("Qwen/Qwen3-8B", 36, 4096, 32, 8, 128, 12288, 151936, 40960)
_QWEN3_32B = Model("Qwen/Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, 40960)
_QWEN3_30B = Model("Qwen/Qwen3-30B-A3B", 48, 2048, 32, 4, 128, 0, 151936, 40960, 128, 8, 768)
_QWEN3_235B = Model("Qwen/Qwen3-235B-A22B", 94, 4096, 64, 4, 128, 0, 151936, 40960, 128, 8, 1536)
_QWEN3_CODER = Model("Qwen/Qwen3-Coder-480B-A35B-Instruct", 62, 6144, 96, 8, 128, 0, 151936, 262144, 160, 8, 2560)


def _hybrid(model: Model, value_heads: int) -> Model:
    """A Qwen model with three layers of linear attention (16 key heads, width 128) to one of attention."""
    key, value = 16 * 128, value_heads * 128
    return replace(
        model,
        linear_layers=model.layers - model.layers // 4,
        linear_weights=model.hidden * (2 * key + 2 * value + 2 * value_heads) + value * model.hidden,
        linear_state_bytes=value_heads * 128 * 128 * 4 + (2 * key + value) * 3 * 2,
        mtp_layers=1,
        shared_experts=1 if model.experts else 0,
        query_gate=True,
    )


_QWEN35_27B = _hybrid(Model("Qwen/Qwen3.5-27B", 64, 5120, 24, 4, 256, 17408, 248320, 262144), 48)
_QWEN35_35B = _hybrid(Model("Qwen/Qwen3.5-35B-A3B", 40, 2048, 16, 2, 256, 0, 248320, 262144, 256, 8, 512), 32)
_GPT_OSS_120B = Model(
    "openai/gpt-oss-120b", 36, 2880, 64, 8, 64, 0, 201088, 131072, 128, 4, 2880,
    weight_bits=4, weight_block=32, sliding_window=128, sliding_layers=18,
)  # fmt: skip
_GLM_45 = Model(
    "zai-org/GLM-4.5", 92, 5120, 96, 8, 128, 12288, 151552, 131072, 160, 8, 1536,
    mtp_layers=1, dense_layers=3, shared_experts=1,
)  # fmt: skip
_DEEPSEEK_V3 = Model(
    "deepseek-ai/DeepSeek-V3", 61, 7168, 128, 128, 192, 18432, 129280, 163840, 256, 8, 2048,
    mla=True, kv_lora_rank=512, weight_bits=8, mtp_layers=1, weight_block=128, dense_layers=3, shared_experts=1,
    q_lora_rank=1536, rope_head_dim=64, value_head_dim=128,
)  # fmt: skip
_DEEPSEEK_V32 = replace(
    _DEEPSEEK_V3, name="deepseek-ai/DeepSeek-V3.2", sparse_tokens=2048, index_layers=61, index_heads=64, index_dim=128
)
_KIMI_K2 = replace(
    _DEEPSEEK_V3, name="moonshotai/Kimi-K2-Instruct", heads=64, kv_heads=64, vocabulary=163840, max_context=131072,
    experts=384, mtp_layers=0, dense_layers=1,
)  # fmt: skip
_KIMI_K25 = replace(
    _KIMI_K2, name="moonshotai/Kimi-K2.5", max_context=262144, weight_bits=4, weight_block=0,
    weight_format="int4_weights", dense_format="bf16",
)  # fmt: skip
_GLM_5 = Model(
    "zai-org/GLM-5", 78, 6144, 64, 64, 256, 12288, 154880, 202752, 256, 8, 2048,
    mla=True, kv_lora_rank=512, mtp_layers=1, dense_layers=3, shared_experts=1, q_lora_rank=2048, rope_head_dim=64,
    value_head_dim=256, sparse_tokens=2048, index_layers=78, index_heads=32, index_dim=128,
)  # fmt: skip
_GLM_53 = replace(_GLM_5, name="zai-org/GLM-5.3", max_context=1048576, index_layers=21)
_MINIMAX_M2 = Model(
    "MiniMaxAI/MiniMax-M2", 62, 3072, 48, 8, 128, 0, 200064, 196608, 256, 8, 1536,
    weight_bits=8, weight_block=128, mtp_layers=3,
)  # fmt: skip
_NEMOTRON_NANO = Model(
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B", 29, 2688, 32, 2, 128, 0, 131072, 262144, 128, 6, 1856,
    shared_experts=1, shared_intermediate=3712, linear_layers=23, bare_layers=6, gated=False,
    linear_weights=2688 * (2 * 4096 + 2 * 8 * 128 + 64) + 4096 * 2688, linear_state_bytes=64 * 64 * 128 * 4,
)  # fmt: skip
_NEMOTRON_SUPER = Model(
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", 48, 4096, 32, 2, 128, 0, 131072, 262144, 512, 22, 2688,
    mtp_layers=1, shared_experts=1, shared_intermediate=5376, expert_hidden=1024, linear_layers=40, bare_layers=8,
    gated=False, linear_weights=4096 * (2 * 8192 + 2 * 8 * 128 + 128) + 8192 * 4096,
    linear_state_bytes=128 * 64 * 128 * 4,
)  # fmt: skip
_NEMOTRON_ULTRA = Model(
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B", 60, 8192, 64, 2, 128, 0, 131072, 262144, 512, 22, 5120,
    mtp_layers=1, shared_experts=1, shared_intermediate=10240, expert_hidden=2048, linear_layers=48, bare_layers=12,
    gated=False, linear_weights=8192 * (2 * 16384 + 2 * 8 * 128 + 256) + 16384 * 8192,
    linear_state_bytes=256 * 64 * 128 * 4,
)  # fmt: skip
_KIMI_K3 = Model(
    "moonshotai/Kimi-K3", 93, 7168, 96, 96, 192, 33792, 163840, 1048576, 896, 16, 3072,
    mla=True, kv_lora_rank=512, weight_bits=4, dense_layers=1, shared_experts=2, q_lora_rank=1536, rope_head_dim=64,
    value_head_dim=128, linear_layers=69, linear_weights=5 * 7168 * 96 * 128, linear_state_bytes=96 * 128 * 128 * 4,
    expert_hidden=3584, query_gate=True, weight_format="mxfp4_weights", dense_format="bf16",
)  # fmt: skip


def _fp8(facts: Model) -> Model:
    return replace(facts, name=f"{facts.name}-FP8", weight_bits=8, weight_block=128)


def _longer(facts: Model, name: str, max_context: int = 262144) -> Model:
    return replace(facts, name=name, max_context=max_context)


_QWEN3_4B = Model("Qwen/Qwen3-4B", 36, 2560, 32, 8, 128, 9728, 151936, 40960, tied_embeddings=True)

_DENSE = (
    Model("meta-llama/Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, 131072, tied_embeddings=True),
    Model("meta-llama/Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, 128256, 131072, tied_embeddings=True),
    _LLAMA_8B,
    replace(_LLAMA_70B, name="meta-llama/Llama-3.1-70B"),
    _LLAMA_70B,
    Model("meta-llama/Llama-3.1-405B", 126, 16384, 128, 8, 128, 53248, 128256, 131072),
    Model(
        "nvidia/Llama-3_3-Nemotron-Super-49B-v1_5", 80, 8192, 64, 8, 128, 20480, 128256, 131072, linear_layers=31
    ),  # 31 blocks have no attention, feed-forward widths differ
    Model("Qwen/Qwen2.5-0.5B-Instruct", 24, 896, 14, 2, 64, 4864, 151936, 32768, tied_embeddings=True),
    Model("Qwen/Qwen2.5-1.5B-Instruct", 28, 1536, 12, 2, 128, 8960, 151936, 32768, tied_embeddings=True),
    Model("Qwen/Qwen2.5-3B-Instruct", 36, 2048, 16, 2, 128, 11008, 151936, 32768, tied_embeddings=True),
    _QWEN25_7B,
    _QWEN25_14B,
    _QWEN25_32B,
    Model("Qwen/Qwen2.5-72B-Instruct", 80, 8192, 64, 8, 128, 29568, 152064, 32768),
    Model("Qwen/Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, 40960, tied_embeddings=True),
    Model("Qwen/Qwen3-1.7B", 28, 2048, 16, 8, 128, 6144, 151936, 40960, tied_embeddings=True),
    _QWEN3_4B,
    _longer(_QWEN3_4B, "Qwen/Qwen3-4B-Instruct-2507"),
    _longer(_QWEN3_4B, "Qwen/Qwen3-4B-Thinking-2507"),
    _longer(_QWEN3_4B, "Qwen/Qwen3-VL-4B-Instruct"),
    _longer(_QWEN3_8B, "Qwen/Qwen3-VL-8B-Instruct"),
    _longer(_QWEN3_32B, "Qwen/Qwen3-VL-32B-Instruct"),
    _longer(_QWEN25_32B, "Qwen/QwQ-32B", 40960),
    _longer(_QWEN25_7B, "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 131072),
    _longer(_QWEN25_14B, "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", 131072),
    _longer(_QWEN25_32B, "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 131072),
    _QWEN3_8B,
    _fp8(_QWEN3_8B),
    Model("Qwen/Qwen3-14B", 40, 5120, 40, 8, 128, 17408, 151936, 40960),
    _QWEN3_32B,
    _fp8(_QWEN3_32B),
    _QWEN35_27B,
    replace(_QWEN35_27B, name="Qwen/Qwen3.6-27B"),
    Model("mistralai/Mistral-7B-Instruct-v0.3", 32, 4096, 32, 8, 128, 14336, 32768, 32768),
    Model("mistralai/Mistral-Nemo-Instruct-2407", 40, 5120, 32, 8, 128, 14336, 131072, 131072),
    Model("mistralai/Mistral-Small-24B-Instruct-2501", 40, 5120, 32, 8, 128, 32768, 131072, 32768),
    Model("mistralai/Mistral-Small-3.2-24B-Instruct-2506", 40, 5120, 32, 8, 128, 32768, 131072, 131072),
    Model("mistralai/Mistral-Large-Instruct-2411", 88, 12288, 96, 8, 128, 28672, 32768, 131072),
    Model(
        "google/gemma-2-9b-it", 42, 3584, 16, 8, 256, 14336, 256000, 8192,
        sliding_window=4096, sliding_layers=21, tied_embeddings=True,
    ),
    Model(
        "google/gemma-2-27b-it", 46, 4608, 32, 16, 128, 36864, 256000, 8192,
        sliding_window=4096, sliding_layers=23, tied_embeddings=True,
    ),
    Model(
        "google/gemma-3-4b-it", 34, 2560, 8, 4, 256, 10240, 262208, 131072,
        sliding_window=1024, sliding_layers=29, tied_embeddings=True,
    ),
    Model(
        "google/gemma-3-12b-it", 48, 3840, 16, 8, 256, 15360, 262208, 131072,
        sliding_window=1024, sliding_layers=40, tied_embeddings=True,
    ),
    Model(
        "google/gemma-3-27b-it", 62, 5376, 32, 16, 128, 21504, 262208, 131072,
        sliding_window=1024, sliding_layers=52, tied_embeddings=True,
    ),
    Model("microsoft/phi-4", 40, 5120, 40, 10, 128, 17920, 100352, 16384),
    Model("microsoft/Phi-4-mini-instruct", 32, 3072, 24, 8, 128, 8192, 200064, 131072, tied_embeddings=True),
)  # fmt: skip

_MIXTURES = (
    _SCOUT,
    replace(
        _SCOUT, name="meta-llama/Llama-4-Maverick-17B-128E-Instruct", max_context=1048576, experts=128,
        intermediate=16384, dense_layers=24,
    ),
    _QWEN3_30B,
    _fp8(_QWEN3_30B),
    _longer(_QWEN3_30B, "Qwen/Qwen3-Coder-30B-A3B-Instruct"),
    _longer(_QWEN3_30B, "Qwen/Qwen3-30B-A3B-Instruct-2507"),
    _longer(_QWEN3_30B, "Qwen/Qwen3-30B-A3B-Thinking-2507"),
    _longer(_QWEN3_30B, "Qwen/Qwen3-VL-30B-A3B-Instruct"),
    _QWEN3_235B,
    _fp8(_QWEN3_235B),
    _longer(_QWEN3_235B, "Qwen/Qwen3-235B-A22B-Instruct-2507"),
    _longer(_QWEN3_235B, "Qwen/Qwen3-235B-A22B-Thinking-2507"),
    _longer(_QWEN3_235B, "Qwen/Qwen3-VL-235B-A22B-Instruct"),
    _QWEN3_CODER,
    _fp8(_QWEN3_CODER),
    _hybrid(Model("Qwen/Qwen3-Next-80B-A3B-Instruct", 48, 2048, 16, 2, 256, 0, 151936, 262144, 512, 10, 512), 32),
    _QWEN35_35B,
    replace(_QWEN35_35B, name="Qwen/Qwen3.6-35B-A3B"),
    _hybrid(Model("Qwen/Qwen3.5-122B-A10B", 48, 3072, 32, 2, 256, 0, 248320, 262144, 256, 8, 1024), 64),
    _hybrid(Model("Qwen/Qwen3.5-397B-A17B", 60, 4096, 32, 2, 256, 0, 248320, 262144, 512, 10, 1024), 64),
    _DEEPSEEK_V3,
    replace(_DEEPSEEK_V3, name="deepseek-ai/DeepSeek-R1"),
    replace(_DEEPSEEK_V3, name="deepseek-ai/DeepSeek-V3.1"),
    _DEEPSEEK_V32,
    Model(
        "deepseek-ai/DeepSeek-V2-Lite", 27, 2048, 16, 16, 192, 10944, 102400, 163840, 64, 6, 1408,
        mla=True, kv_lora_rank=512, dense_layers=1, shared_experts=2, rope_head_dim=64, value_head_dim=128,
    ),
    _KIMI_K2,
    _longer(_KIMI_K2, "moonshotai/Kimi-K2-Instruct-0905"),
    _KIMI_K25,
    replace(_KIMI_K25, name="moonshotai/Kimi-K2.6"),
    replace(_KIMI_K25, name="moonshotai/Kimi-K2.7-Code"),
    replace(_KIMI_K25, name="moonshotai/Kimi-K2-Thinking"),
    _GLM_45,
    _fp8(_GLM_45),
    replace(
        _GLM_45, name="zai-org/GLM-4.5-Air", layers=46, hidden=4096, intermediate=10944, experts=128,
        expert_intermediate=1408, dense_layers=1,
    ),
    replace(_GLM_45, name="zai-org/GLM-4.6", max_context=202752),
    replace(_GLM_45, name="zai-org/GLM-4.7", max_context=202752),
    _GLM_5,
    _fp8(_GLM_5),
    replace(_GLM_5, name="zai-org/GLM-5.1"),
    replace(_GLM_5, name="zai-org/GLM-5.2", max_context=1048576, index_layers=21),
    _GLM_53,
    _fp8(_GLM_53),
    _GPT_OSS_120B,
    replace(_GPT_OSS_120B, name="openai/gpt-oss-20b", layers=24, experts=32, sliding_layers=12),
    Model("mistralai/Mixtral-8x7B-v0.1", 32, 4096, 32, 8, 128, 0, 32000, 32768, 8, 2, 14336),
    Model("mistralai/Mixtral-8x22B-v0.1", 56, 6144, 48, 8, 128, 0, 32000, 65536, 8, 2, 16384),
    _MINIMAX_M2,
    replace(_MINIMAX_M2, name="MiniMaxAI/MiniMax-M2.1"),
    replace(_MINIMAX_M2, name="MiniMaxAI/MiniMax-M2.5"),
    replace(_MINIMAX_M2, name="MiniMaxAI/MiniMax-M2.7", max_context=204800),
    _NEMOTRON_NANO,
    _NEMOTRON_SUPER,
    _NEMOTRON_ULTRA,
    _KIMI_K3,
)  # fmt: skip

MODELS: dict[str, Model] = {facts.name: facts for facts in (*_DENSE, *_MIXTURES)}
"""Known models by name."""

ALIASES: dict[str, str] = {
    "meta-llama/meta-llama-3.1-8b": "meta-llama/llama-3.1-8b",
    "meta-llama/meta-llama-3.1-70b": "meta-llama/llama-3.1-70b",
    "meta-llama/meta-llama-3.1-405b": "meta-llama/llama-3.1-405b",
    "nvidia/llama-3.1-nemotron-70b": "meta-llama/llama-3.1-70b",
    "deepseek-ai/deepseek-r1-distill-llama-8b": "meta-llama/llama-3.1-8b",
    "deepseek-ai/deepseek-r1-distill-llama-70b": "meta-llama/llama-3.1-70b",
    "nvidia/llama-3_3-nemotron-super-49b-v1": "nvidia/llama-3_3-nemotron-super-49b-v1_5",
    "qwen/qwen2.5-coder-7b": "qwen/qwen2.5-7b-instruct",
    "qwen/qwen2.5-coder-14b": "qwen/qwen2.5-14b-instruct",
    "qwen/qwen2.5-coder-32b": "qwen/qwen2.5-32b-instruct",
    "zhipuai/glm-5": "zai-org/glm-5",
    "mistralai/mixtral-8x7b-instruct-v0.1": "mistralai/mixtral-8x7b-v0.1",
    "mistralai/mixtral-8x22b-instruct-v0.1": "mistralai/mixtral-8x22b-v0.1",
    "mixtral-8x7b": "mistralai/mixtral-8x7b-v0.1",
    "mixtral-8x22b": "mistralai/mixtral-8x22b-v0.1",
    "mistral-7b": "mistralai/mistral-7b-instruct-v0.3",
    "mistral-large": "mistralai/mistral-large-instruct-2411",
    "nvidia/nvidia-nemotron-3-nano-30b-a3b-bf16": "nvidia/nvidia-nemotron-3-nano-30b-a3b",
    "nvidia/nvidia-nemotron-3-ultra-550b-a55b-bf16": "nvidia/nvidia-nemotron-3-ultra-550b-a55b",
    "deepseek-v3.2-exp": "deepseek-ai/deepseek-v3.2",
}
"""Other names of known models, in lower case."""
