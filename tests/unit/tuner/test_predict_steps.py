"""Step times and sizes against figures worked out by hand, with ideal hardware: every share 1, every overhead 0."""

from dataclasses import fields, replace

import numpy as np
import pytest

from frontier_tuner.errors import FactsError
from frontier_tuner.facts import GPUFacts, ModelFacts, model_facts
from frontier_tuner.predict.deployment import Deployment, Pool
from frontier_tuner.predict.efficiency import EFFICIENCIES, Efficiencies
from frontier_tuner.predict.memory import cache_bytes_per_sequence, weight_bytes
from frontier_tuner.predict.precision import CHECKPOINT, PRECISIONS, normalised, operations_per_second
from frontier_tuner.predict.shapes import formats, shape, split
from frontier_tuner.predict.steps import StepTimes, Work, soft_maximum

ZERO = {
    field.name: 0.0
    for field in fields(Efficiencies)
    if field.name.endswith("_seconds") or field.name in ("token_bytes", "expert_spread", "expert_skew")
}
SHARES = ("memory", "memory_8bit", "memory_4bit", "cache", "attention", "link")
RATES = ("flops_16bit", "flops_8bit", "flops_8bit_block", "flops_4bit")
IDEAL = replace(EFFICIENCIES, sharpness=200.0, **ZERO, **dict.fromkeys((*SHARES, *RATES), 1.0))
GPU = GPUFacts(
    "Ideal", 80_000_000_000, 1e12, 100e12, 200e12, 100e9, 9.0,
    flops_4bit=400e12, domain_gpus=8, network_bytes_per_s=10e9,
)  # fmt: skip
# Attention: 2 * 1000 * 100 * (10 + 10); feed-forward: 3 * 1000 * 4000; no vocabulary to speak of.
DENSE = ModelFacts("dense", 10, 1000, 10, 10, 100, 4000, 1, 4096)
ATTENTION, FEED_FORWARD = 4_000_000, 12_000_000
MIXTURE = replace(DENSE, intermediate=0, experts=64, experts_per_token=4, expert_intermediate=500)
EXPERT = 1_500_000


def times(model=DENSE, deployment=None, gpu=GPU, efficiencies=IDEAL):
    deployment = deployment or Deployment()
    made = formats([model], [deployment], gpu, efficiencies)
    graphs = np.array([[1.0]])
    return StepTimes(gpu, shape([model]), split([deployment.decode]), made, efficiencies, graphs)


def work(prefill=0.0, decode=0.0, context=0.0, verified=1.0):
    one = np.ones((1, 1))
    return Work(prefill * one, context * one, decode * one, context * one, verified * one)


def seconds(worked, **more):
    return times(**more).seconds(worked)[0, 0]


def pool(*degrees, **precisions):
    return Deployment(Pool(*degrees), **precisions)


def test_a_lone_token_reads_the_weights_once():
    assert seconds(work(decode=1)) == pytest.approx(10 * (ATTENTION + FEED_FORWARD) * 2 / 1e12, rel=1e-4)


def test_a_long_prompt_computes_two_operations_for_each_weight_and_token():
    want = 2 * 10 * (ATTENTION + FEED_FORWARD) * 50_000 / 100e12
    assert seconds(work(prefill=50_000)) == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize(
    ("dense", "bits", "rate"),
    [("fp8", 8, 200e12), ("nvfp4", 4.5, 400e12), ("int4_weights", 4.25, 100e12), ("bf16", 16, 100e12)],
)
def test_a_precision_has_its_size_and_its_arithmetic(dense, bits, rate):
    weights = 10 * (ATTENTION + FEED_FORWARD)
    precise = {"deployment": Deployment(dense=dense)}
    assert seconds(work(decode=1), **precise) == pytest.approx(weights * bits / 8 / 1e12, rel=1e-3)
    assert seconds(work(prefill=50_000), **precise) == pytest.approx(2 * weights * 50_000 / rate, rel=1e-3)


def test_without_four_bit_arithmetic_four_bit_weights_are_widened():
    hopper = replace(GPU, flops_4bit=0.0)
    assert operations_per_second(hopper, PRECISIONS["nvfp4"].compute) == 100e12
    assert operations_per_second(hopper, PRECISIONS["mxfp4_fp8"].compute) == 100e12
    assert operations_per_second(GPU, PRECISIONS["mxfp4_fp8"].compute) == 200e12


def test_decoding_reads_the_cache_of_each_sequence():
    base = seconds(work(decode=8, context=0))
    read = 8 * 5000 * 10 * (2 * 10 * 100) * 2
    assert seconds(work(decode=8, context=5000)) - base == pytest.approx(read / 1e12, rel=1e-3)


def test_prefill_attention_is_quadratic():
    base = seconds(work(prefill=50_000))
    operations = 2 * 50_000 * 25_000 * 10 * 10 * (100 + 100)
    assert seconds(work(prefill=50_000, context=25_000)) - base == pytest.approx(operations / 100e12, rel=1e-3)


def test_layers_with_a_window_or_linear_attention_do_not_read_the_whole_context():
    windowed = replace(DENSE, sliding_window=100, sliding_layers=5)
    linear = replace(DENSE, linear_layers=5, linear_weights=ATTENTION, linear_state_bytes=1000)
    sparse = replace(DENSE, sparse_tokens=100)
    each = 8 * 2 * 10 * 100 * 2 / 1e12  # seconds for one token of context and layer, eight sequences
    for model, want in (
        (windowed, each * (5 * 5000 + 5 * 100)),
        (linear, each * 5 * 5000 + 8 * 5 * 2 * 1000 / 1e12),  # a state is read and written
        (sparse, each * 10 * 100),
    ):
        base = seconds(work(decode=8), model=replace(model, linear_state_bytes=0))
        assert seconds(work(decode=8, context=5000), model=model) - base == pytest.approx(want, rel=1e-3)


def test_latent_attention_reads_one_compressed_cache_on_every_rank():
    model = model_facts("deepseek-ai/DeepSeek-V3")
    for tensor in (1, 8):
        sharded = {"model": model, "deployment": pool(tensor, 1, 1, tensor, 1), "gpu": replace(GPU, flops_16bit=1e20)}
        grown = seconds(work(decode=16, context=8000), **sharded) - seconds(work(decode=16), **sharded)
        assert grown == pytest.approx(16 * 8000 * 70_272 / 1e12, rel=1e-3)


def test_one_token_reads_only_the_experts_it_is_routed_to():
    assert seconds(work(decode=1), model=MIXTURE) == pytest.approx(10 * (ATTENTION + 4 * EXPERT) * 2 / 1e12, rel=1e-4)


def test_many_tokens_read_all_experts_of_the_rank():
    whole = 10 * (ATTENTION + 64 * EXPERT) * 2 / 1e12
    assert seconds(work(decode=90), model=MIXTURE) == pytest.approx(whole, rel=5e-3)
    near = replace(GPU, link_bytes_per_s=1e15)
    eight = seconds(work(decode=31), model=MIXTURE, deployment=pool(1, 1, 8, 1, 8), gpu=near)
    assert eight == pytest.approx(10 * (ATTENTION + 8 * EXPERT) * 2 / 1e12, rel=1e-3)


def test_a_busy_expert_rank_costs_more_than_the_mean():
    uneven = replace(IDEAL, expert_spread=1.0)
    spread, sharded = (pool(8, 1, 1, 1, 8), pool(8, 1, 1, 8, 1))
    assert seconds(work(decode=1), model=MIXTURE, deployment=spread, efficiencies=uneven) > 1.5 * seconds(
        work(decode=1), model=MIXTURE, deployment=sharded, efficiencies=uneven
    )


def test_tensor_parallelism_reduces_twice_a_layer():
    pair = seconds(work(decode=100), deployment=pool(2))
    share = seconds(work(decode=100), model=replace(DENSE, heads=5, kv_heads=5, intermediate=2000))
    sent = 100 * 1000 * 2
    assert pair - share == pytest.approx(20 * 2 * (1 / 2) * sent / 100e9, rel=1e-3)


def test_beyond_the_domain_the_network_is_used():
    latency = replace(IDEAL, network_seconds=1e-3)
    inside, outside = (seconds(work(decode=100), deployment=pool(tensor), efficiencies=latency) for tensor in (8, 16))
    assert outside > inside + 20 * 1e-3
    rack = replace(GPU, domain_gpus=72)
    assert seconds(work(decode=100), deployment=pool(16), gpu=rack, efficiencies=latency) < inside


def test_tokens_travel_to_their_experts_and_back_once_for_each_rank():
    apart = times(MIXTURE, pool(1, 1, 8, 1, 8))
    met = 8 * (1 - (7 / 8) ** 4) * 7 / 8
    sent = 2 * 50 * 1000 * 2 * met
    assert apart._exchange(np.array([[50.0]]))[0, 0] == pytest.approx(sent / 100e9, rel=1e-6)


def test_stages_of_a_pipeline_hand_over_and_the_longest_counts():
    odd = replace(DENSE, layers=9)
    assert seconds(work(decode=1), model=odd, deployment=pool(1, 2)) == pytest.approx(
        seconds(work(decode=1), model=odd) * 10 / 9 + 2000 / 100e9 + 10e-6, rel=1e-3
    )


def test_steps_that_are_not_captured_wait_for_launches():
    launching = replace(IDEAL, eager_layer_seconds=1e-3)
    assert seconds(work(decode=1), efficiencies=launching) < 1e-3
    assert seconds(work(prefill=1), efficiencies=launching) == pytest.approx(10e-3)


def test_a_soft_maximum_is_between_the_larger_and_the_sum():
    one, other = np.array([1.0, 0.0, 3.0]), np.array([1.0, 2.0, 4.0])
    assert soft_maximum(one, other, 2.0) == pytest.approx([2**0.5, 2.0, 5.0])


# ---------------------------------------------------------------------------------------------------------- sizes
def cache_per_token(name, tensor, cache="bf16", pipeline=1):
    model = model_facts(name)
    deployment = pool(tensor, pipeline, cache=cache)
    made = formats([model], [deployment], GPU, IDEAL)
    return cache_bytes_per_sequence(shape([model]), split([deployment.decode]), made, 1.0)[0, 0]


def test_case_24_a_context_that_does_not_fit_at_16_bits_fits_at_8():
    left = 4 * 2**30
    assert cache_per_token("Llama-3.3-70B-Instruct", 8) == 40_960
    assert left // cache_per_token("Llama-3.3-70B-Instruct", 8) == 104_857
    assert left // cache_per_token("Llama-3.3-70B-Instruct", 8, "fp8") == 209_715


@pytest.mark.parametrize(
    ("name", "tensor", "want"),
    [
        ("Qwen3-235B-A22B", 4, 48_128),
        ("Qwen3-235B-A22B", 8, 48_128),
        ("DeepSeek-V3", 1, 70_272),
        ("DeepSeek-V3", 16, 70_272),
        ("Llama-3.3-70B-Instruct", 4, 81_920),
        ("Llama-3.3-70B-Instruct", 8, 40_960),
        ("Llama-3.3-70B-Instruct", 16, 40_960),
    ],
)
def test_case_25_copied_heads_do_not_shrink_the_cache(name, tensor, want):
    assert cache_per_token(name, tensor) == want


def held(model, *degrees, draft=0.0, **precisions):
    deployment = pool(*degrees, **precisions)
    made = formats([model], [deployment], GPU, IDEAL)
    return weight_bytes(shape([model]), split([deployment.decode]), made, np.array([[draft]]))[0, 0]


def test_experts_are_spread_and_attention_is_copied():
    router_free = 10 * (ATTENTION + 64 * EXPERT) * 2
    assert held(MIXTURE, 1, 1, 1, 1, 1) == pytest.approx(router_free, rel=1e-3)
    for layout in ((1, 1, 8, 1, 8), (1, 1, 8, 8, 1)):  # attention on every rank, an eighth of the experts
        assert held(MIXTURE, *layout) == pytest.approx(10 * (ATTENTION + 8 * EXPERT) * 2, rel=1e-3)
    assert held(MIXTURE, 8, 1, 1, 1, 8) == pytest.approx(router_free / 8, rel=1e-3)
    assert held(MIXTURE, 1, 2, 1, 1, 1) == pytest.approx(router_free / 2, rel=1e-3)


def test_each_part_has_its_own_precision():
    mixed = held(MIXTURE, 1, 1, 1, 1, 1, dense="bf16", experts="nvfp4")
    assert mixed == pytest.approx(10 * (ATTENTION * 2 + 64 * EXPERT * 4.5 / 8), rel=1e-3)


def test_the_down_projections_of_latent_attention_are_on_every_rank():
    model = model_facts("deepseek-ai/DeepSeek-V3")
    whole = 61 * 7168 * (1536 + 512 + 64)
    attention = 61 * model.attention_parameters()
    rest = model.parameters() - attention
    assert held(model, 8, 1, 1, 8, 1) == pytest.approx(
        whole + (attention - whole) / 8 + (rest - 2 * 129280 * 7168) / 8 + 2 * 2 * 129280 * 7168 / 8, rel=2e-3
    )


def test_a_drafting_layer_is_held_too():
    assert held(DENSE, 1, draft=1.0) == pytest.approx(held(DENSE, 1) * 1.1, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "want"),
    [("auto", CHECKPOINT), ("bfloat16", "bf16"), ("FP8_E4M3", "fp8"), ("int4_wo", "int4_weights"), ("sq", "int8")],
)
def test_engines_names_of_formats_are_understood(name, want):
    assert normalised(name) == want


def test_an_unknown_format_is_named_with_those_that_are_known():
    with pytest.raises(FactsError, match=r"fp7.*fp8_block"):
        normalised("fp7")
