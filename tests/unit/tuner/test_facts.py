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
