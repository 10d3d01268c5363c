import json

import pytest

from frontier_tuner.errors import FactsError
from frontier_tuner.facts import gpu_facts, known_gpus, known_models, model_facts


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("meta-llama/Llama-3.1-8B", 8.0, 7.5),
        ("meta-llama/Llama-3.3-70B-Instruct", 70.6, 69.5),
        ("meta-llama/Llama-3.1-405B", 406, 404),
        ("Qwen/Qwen3-235B-A22B", 235, 22),
        ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 480, 35),
        ("moonshotai/Kimi-K2-Instruct", 1026, 32),
        ("zai-org/GLM-5", 744, 40),
        ("openai/gpt-oss-120b", 116.8, 5.1),
        ("mistralai/Mixtral-8x7B-v0.1", 46.7, 12.9),
        ("mistralai/Mixtral-8x22B-v0.1", 141, 39),
        ("zai-org/GLM-4.5", 355, 32),
        ("deepseek-ai/DeepSeek-V3", 671, 37),
        ("Qwen/Qwen3.5-397B-A17B", 397, 17),
        ("MiniMaxAI/MiniMax-M2", 229, 10.4),
        ("nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B", 550, 55),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", 120.6, 12.2),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", 400, 16.5),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 80, 3.5),
        ("google/gemma-3-27b-it", 27.0, 27.0),
        ("microsoft/phi-4", 14.7, 14.1),
        ("moonshotai/Kimi-K2.5", 1026, 32),
    ],
)
def test_shapes_give_the_published_sizes(name, billions, active):
    facts = model_facts(name)
    assert facts.parameters() / 1e9 == pytest.approx(billions, rel=0.01)
    assert facts.active_parameters() / 1e9 == pytest.approx(active, rel=0.04)


@pytest.mark.parametrize(
    ("name", "tensor", "kv_bits", "want_bytes"),
    [
        ("Qwen/Qwen3-235B-A22B", 4, 16, 48_128),
        ("Qwen/Qwen3-235B-A22B", 8, 16, 48_128),  # four KV heads are replicated, not split further
        ("deepseek-ai/DeepSeek-V3", 1, 16, 70_272),
        ("deepseek-ai/DeepSeek-V3", 8, 16, 70_272),
        ("deepseek-ai/DeepSeek-V3", 8, 8, 35_136),
        ("zai-org/GLM-5", 8, 16, 89_856),
        ("meta-llama/Llama-3.3-70B-Instruct", 4, 16, 81_920),
        ("meta-llama/Llama-3.3-70B-Instruct", 8, 16, 40_960),
        ("meta-llama/Llama-3.3-70B-Instruct", 16, 16, 40_960),
    ],
)
def test_cache_per_token_and_gpu_stops_shrinking_at_the_kv_heads(name, tensor, kv_bits, want_bytes):
    assert model_facts(name).kv_bytes_per_token_per_gpu(tensor, 1, kv_bits) == want_bytes


def test_four_bit_experts_leave_attention_and_embeddings_at_sixteen_bits():
    assert model_facts("openai/gpt-oss-120b").weight_bytes() / 1e9 == pytest.approx(65.2, rel=0.01)


def test_names_are_found_by_scheme_case_and_alias():
    want = model_facts("meta-llama/Llama-3.1-8B")
    for name in ("hf://meta-llama/Llama-3.1-8B", "meta-llama/llama-3.1-8b-instruct", "meta-llama/Meta-Llama-3.1-8B"):
        assert model_facts(name) == want


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("qwen3-32b", "Qwen/Qwen3-32B"),
        ("deepseek-v3", "deepseek-ai/DeepSeek-V3"),
        ("DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1"),
        ("kimi-k2.5", "moonshotai/Kimi-K2.5"),
        ("gemma-3-27b", "google/gemma-3-27b-it"),
        ("llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-v0.1"),
        ("zhipuai/GLM-5", "zai-org/GLM-5"),
        ("minimax-m2", "MiniMaxAI/MiniMax-M2"),
    ],
)
def test_short_names_are_enough(name, known_as):
    assert model_facts(name).name == known_as


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("Qwen/Qwen3-32B-FP8", (8, 128, "fp8_block", "fp8_block")),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", (8, 0, "fp8_static", "fp8_static")),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", (8, 0, "fp8", "fp8")),
        ("Qwen/Qwen3-32B-AWQ", (4, 0, "int4_weights", "int4_weights")),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", (4, 0, "int4_weights", "int4_weights")),
        ("nvidia/DeepSeek-R1-0528-NVFP4", (4, 0, "nvfp4", "bf16")),
    ],
)
def test_the_end_of_a_name_tells_the_weights(name, want):
    facts = model_facts(name)
    assert (facts.weight_bits, facts.weight_block, facts.expert_precision, facts.dense_precision) == want


def test_an_unknown_name_suggests_its_like():
    with pytest.raises(FactsError, match=r"like .*Qwen/Qwen3-32B"):
        model_facts("Qwen/Qwen3-33B")


def test_overridden_bits_win_over_the_format_of_the_name():
    assert model_facts("kimi-k2.5", {"weightBits": 16}).expert_precision == "bf16"


def test_overrides_take_both_spellings_and_win():
    facts = model_facts("Qwen/Qwen3-8B", {"kvHeads": 4, "max_context": "131072", "mla": False})
    assert (facts.kv_heads, facts.max_context) == (4, 131072)


@pytest.mark.parametrize(
    ("source", "overrides", "words"),
    [
        ("org/unheard-of", {}, ["org/unheard-of", "config.json", "layers", "maxContext"]),
        ("Qwen/Qwen3-8B", {"kvHead": 4, "colour": 1}, ["kvHead", "colour", "kvHeads"]),
        ("Qwen/Qwen3-8B", {"kvHeads": "many"}, ["kvHeads", "many", "whole number"]),
        ("Qwen/Qwen3-8B", {"kvHeads": -1}, ["kvHeads", "-1"]),
        ("Qwen/Qwen3-8B", {"mla": 1}, ["mla", "true or false"]),
        ("Qwen/Qwen3-8B", {"layers": True}, ["layers", "whole number"]),
    ],
)
def test_wrong_facts_are_named_with_the_way_out(source, overrides, words):
    with pytest.raises(FactsError) as caught:
        model_facts(source, overrides)
    assert all(word in str(caught.value) for word in words)


def test_an_unknown_model_is_usable_with_enough_facts():
    facts = model_facts("org/tiny", {"layers": 8, "hidden": 512, "heads": 8, "vocabulary": 2048, "maxContext": 2048})
    assert (facts.kv_heads, facts.head_dim, facts.intermediate) == (8, 64, 2048)


def write_config(path, **over):
    config = {
        "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2,
        "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 4096,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps({k: v for k, v in (config | over).items() if v is not None}))


@pytest.mark.parametrize(
    ("quantization", "want_bits", "want_block"),
    [
        (None, 16, 0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 8, 128),
        ({"quant_method": "fp8"}, 8, 0),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4, 0),
        ({"quant_method": "mxfp4"}, 4, 32),
        ({"quant_method": "awq", "bits": 4}, 4, 0),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8}}}}, 8, 0),
        ({"quant_method": "gptq", "bits": 8}, 8, 0),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4, 0),
    ],
)
def test_a_directory_is_read_with_its_weight_format(tmp_path, quantization, want_bits, want_block):
    write_config(tmp_path, quantization_config=quantization)
    facts = model_facts(str(tmp_path))
    assert (facts.layers, facts.kv_heads, facts.head_dim) == (4, 2, 32)
    assert (facts.weight_bits, facts.weight_block) == (want_bits, want_block)


def test_a_mixture_of_experts_with_latent_attention_is_read(tmp_path):
    write_config(
        tmp_path, n_routed_experts=16, num_experts_per_tok=2, moe_intermediate_size=128, first_k_dense_replace=1,
        kv_lora_rank=64, qk_rope_head_dim=16, qk_nope_head_dim=32, v_head_dim=32, q_lora_rank=96,
    )  # fmt: skip
    facts = model_facts(str(tmp_path))
    assert (facts.mla, facts.experts, facts.dense_layers, facts.head_dim) == (True, 16, 1, 48)
    assert facts.kv_bytes_per_token() == 4 * (64 + 16) * 2


def group(bits, kind, inputs=None, **more):
    return {"config_groups": {"g": {"weights": {"num_bits": bits, "type": kind, **more}, "input_activations": inputs}}}


@pytest.mark.parametrize(
    ("quantization", "want"),
    [
        (group(4, "int", group_size=32) | {"ignore": ["re:.*self_attn.*"]}, ("int4_weights", "bf16", "bf16")),
        (group(4, "float", {"num_bits": 4}, group_size=16), ("nvfp4", "nvfp4", "bf16")),
        (group(8, "float", {"dynamic": True}), ("fp8", "fp8", "bf16")),
        (group(8, "float", {"dynamic": False}), ("fp8_static", "fp8_static", "bf16")),
        (group(8, "int", {"dynamic": True}), ("int8", "int8", "bf16")),
        (
            {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["model.layers.0.self_attn*"]},
            ("nvfp4", "bf16", "fp8"),
        ),
        (
            {
                "quant_method": "fp8", "weight_block_size": [128, 128],
                "modules_to_not_convert": ["model.layers.0.self_attn.indexer.k_norm", "lm_head"],
            },
            ("fp8_block", "fp8_block", "bf16"),
        ),
        (
            {
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": {
                    "layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4"},
                    "layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
                },
            },
            ("nvfp4_weights", "nvfp4_weights", "bf16"),
        ),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, ("mxfp4", "mxfp4", "bf16")),
    ],
)  # fmt: skip
def test_formats_are_told_apart(tmp_path, quantization, want):
    write_config(tmp_path, quantization_config=quantization)
    facts = model_facts(str(tmp_path / "config.json"))
    assert (facts.expert_precision, facts.dense_precision, facts.cache_format) == want


def test_modelopts_file_beside_the_config_is_read(tmp_path):
    write_config(tmp_path)
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    assert model_facts(str(tmp_path)).expert_precision == "fp8_static"


def test_a_mounted_claim_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("frontier_tuner.facts.MOUNT", tmp_path)
    (tmp_path / "tiny").mkdir()
    write_config(tmp_path / "tiny")
    assert model_facts("pvc://models/tiny").layers == 4


@pytest.mark.parametrize(
    ("config", "want"),
    [
        ({"layer_types": ["linear_attention"] * 3 + ["full_attention"]}, {"linear_layers": 3, "growing_layers": 1}),
        (
            {"layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 128},
            {"sliding_layers": 2, "sliding_window": 128, "growing_layers": 2},
        ),
        ({"sliding_window": 4096, "use_sliding_window": False}, {"sliding_layers": 0, "growing_layers": 4}),
        ({"model_type": "gemma2", "sliding_window": 4096}, {"sliding_layers": 2, "tied_embeddings": True}),
        ({"num_nextn_predict_layers": 1}, {"mtp_layers": 1}),
        ({"mtp_num_hidden_layers": 2}, {"mtp_layers": 2}),
        ({"index_topk": 2048, "index_n_heads": 4, "index_head_dim": 128}, {"sparse_tokens": 2048, "index_layers": 4}),
        (
            {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "decoder_sparse_step": 2},
            {"dense_layers": 2, "moe_layers": 2, "intermediate": 512},
        ),
        (
            {
                "hybrid_override_pattern": "M-M*-ME", "mamba_num_heads": 4, "mamba_head_dim": 8, "ssm_state_size": 16,
                "mlp_hidden_act": "relu2",
            },
            {"layers": 4, "linear_layers": 3, "gated": False, "linear_state_bytes": 4 * 8 * 16 * 4},
        ),
    ],
)  # fmt: skip
def test_the_families_words_are_understood(tmp_path, config, want):
    write_config(tmp_path, **config)
    facts = model_facts(str(tmp_path))
    assert {name: getattr(facts, name) for name in want} == want


def test_a_nested_text_model_is_read(tmp_path):
    write_config(tmp_path)
    inner = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({"text_config": inner, "quantization_config": {"bits": 4}}))
    assert model_facts(str(tmp_path)).weight_bits == 4


@pytest.mark.parametrize(
    ("name", "product"),
    [
        ("H200", "NVIDIA-H200"),
        ("b200", "NVIDIA-B200"),
        ("GB200", "NVIDIA-GB200"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("A100-40GB", "NVIDIA-A100-SXM4-40GB"),
        ("h100_sxm", "NVIDIA-H100-80GB-HBM3"),
        ("H100-NVL", "NVIDIA-H100-NVL"),
        ("T4", "Tesla-T4"),
        ("MI300X", "AMD-Instinct-MI300X"),
        ("rtx_pro_6000", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"),
    ],
)
def test_products_are_found_by_short_names(name, product):
    assert gpu_facts(name).product == product


def test_every_product_has_plausible_figures_and_a_source():
    for name in known_gpus():
        facts = gpu_facts(name)
        assert facts.source
        assert facts.flops_16bit <= facts.flops_8bit <= 2.1 * facts.flops_16bit
        assert facts.flops_4bit == 0 or facts.flops_4bit > 1.9 * facts.flops_8bit
        assert 50 < facts.flops_16bit / facts.bandwidth_bytes_per_s < 500


@pytest.mark.parametrize(
    ("content", "words"),
    [("{", "JSON"), ('{"hidden_size": 4}', "num_attention_heads"), (None, "weightBits")],
)
def test_an_unusable_config_is_named(tmp_path, content, words):
    if content is None:
        write_config(tmp_path, quantization_config={"quant_method": "strange"})
    else:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(FactsError, match=words):
        model_facts(str(tmp_path))


def test_every_known_model_and_gpu_can_be_looked_up():
    assert all(model_facts(name).weight_bytes() > 0 for name in known_models())
    assert all(gpu_facts(name.lower()).product == name for name in known_gpus())
    with pytest.raises(FactsError, match="NVIDIA-H200"):
        gpu_facts("Voodoo-2")
