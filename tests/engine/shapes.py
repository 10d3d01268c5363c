"""Checkpoints without weights: a `config.json` for each kind of model, written from the facts that the rules use."""

import json

from frontier_tuner.facts import model_facts

ARCHITECTURES = {
    "meta-llama/Llama-3.1-8B": ("LlamaForCausalLM", "llama"),
    "Qwen/Qwen3-8B-FP8": ("Qwen3ForCausalLM", "qwen3"),
    "Qwen/Qwen3-235B-A22B-FP8": ("Qwen3MoeForCausalLM", "qwen3_moe"),
    "mistralai/Mixtral-8x22B-v0.1": ("MixtralForCausalLM", "mixtral"),
    "deepseek-ai/DeepSeek-V3": ("DeepseekV3ForCausalLM", "deepseek_v3"),
    "openai/gpt-oss-120b": ("GptOssForCausalLM", "gpt_oss"),
}
_BLOCKS = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
_QUANTIZATION = {"mxfp4": {"quant_method": "mxfp4"}, "fp8": _BLOCKS}


def write_config(directory, name, **over):
    """Write the `config.json` of a known model into a directory of its own; returns the directory."""
    architecture, kind = ARCHITECTURES[name]
    facts = model_facts(name)
    config = {
        "architectures": [architecture],
        "model_type": kind,
        "torch_dtype": "bfloat16",
        "num_hidden_layers": facts.layers,
        "hidden_size": facts.hidden,
        "num_attention_heads": facts.heads,
        "num_key_value_heads": facts.kv_heads,
        "intermediate_size": facts.intermediate or facts.expert_intermediate,
        "vocab_size": facts.vocabulary,
        "max_position_embeddings": facts.max_context,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **(_latent(facts) if facts.mla else {"head_dim": facts.head_dim}),
        **(_mixture(facts) if facts.experts else {}),
        **over,
    }
    method = {8: "fp8", 4: "mxfp4"}.get(facts.weight_bits)
    if method:
        config["quantization_config"] = _QUANTIZATION[method]
    path = directory / name.rpartition("/")[2]
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return path


def _latent(facts):
    return {
        "kv_lora_rank": facts.kv_lora_rank,
        "q_lora_rank": facts.q_lora_rank,
        "qk_rope_head_dim": facts.rope_head_dim,
        "qk_nope_head_dim": facts.head_dim - facts.rope_head_dim,
        "v_head_dim": facts.value_head_dim,
        "num_nextn_predict_layers": facts.mtp_layers,
        "first_k_dense_replace": facts.dense_layers,
        "moe_layer_freq": 1,
        "n_group": 8,
        "topk_group": 4,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
    }


def _mixture(facts):
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    return {
        **dict.fromkeys(names, facts.experts),
        "num_experts_per_tok": facts.experts_per_token,
        "moe_intermediate_size": facts.expert_intermediate,
        "n_shared_experts": facts.shared_experts or None,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
