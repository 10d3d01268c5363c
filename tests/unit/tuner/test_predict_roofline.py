import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm_catalogue import CATALOGUE, DEFAULTS
from frontier_tuner.engines.vllm_parameters import METHODS
from frontier_tuner.errors import FactsError
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.predict.deployment import (
    DRAFTING,
    MEMORY_PERCENT,
    Deployment,
    Pool,
    deployment_of_engine,
    deployment_of_table,
)
from frontier_tuner.predict.roofline import Roofline, Traffic

LOADS = np.array([[1.0, 2, 4, 8, 16, 32, 64, 128, 256, 512]])


def predict(deployment, model="Qwen/Qwen3-32B", gpu="H200", traffic=(4000, 1000, 0), loads=LOADS):
    prior = Roofline(model_facts(model), gpu_facts(gpu), Traffic(*traffic), lambda _: deployment)
    return prior.predict([Configuration.of({})], loads)


def values(prediction):
    return [getattr(prediction, name) for name in ("ttft", "itl", "user_speed", "throughput", "memory", "start_memory")]


@st.composite
def pools(draw, data=(1, 2, 4, 8)):
    tensor, ranks = draw(st.sampled_from([1, 2, 4, 8, 16])), draw(st.sampled_from(data))
    spread = draw(st.booleans())
    group = tensor * ranks
    return Pool(
        tensor, draw(st.sampled_from([1, 2, 4])), ranks, 1 if spread else group, group if spread else 1,
        draw(st.sampled_from([1, 2, 3])),
    )  # fmt: skip


@st.composite
def deployments(draw):
    return Deployment(
        decode=draw(pools()),
        prefill=draw(st.none() | pools()),
        dense=draw(st.sampled_from(["checkpoint", "bf16", "fp8", "fp8_block", "nvfp4"])),
        experts=draw(st.sampled_from(["checkpoint", "bf16", "fp8_block", "nvfp4", "int4_weights"])),
        cache=draw(st.sampled_from(["checkpoint", "fp8"])),
        draft_tokens=draw(st.sampled_from([0, 1, 3])),
        acceptance=0.8,
        draft_layers=draw(st.sampled_from([0, 1])),
        step_tokens=draw(st.sampled_from([0, 512, 2048, 16384])),
        max_seqs=draw(st.sampled_from([0, 16, 256])),
    )


MODELS = st.sampled_from(["Qwen/Qwen3-8B", "Qwen/Qwen3-235B-A22B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b"])
TRAFFIC = st.tuples(st.sampled_from([1, 128, 8192, 100_000]), st.sampled_from([1, 100, 8192])).flatmap(
    lambda sizes: st.sampled_from([(*sizes, 0.0), (*sizes, sizes[0] * 0.9), (*sizes, float(sizes[0]))])
)


@given(deployments(), MODELS, st.sampled_from(["L4", "H200", "GB200"]), TRAFFIC)
def test_every_prediction_is_finite_and_more_load_never_raises_a_users_speed(deployment, model, gpu, traffic):
    prediction = predict(deployment, model, gpu, traffic)
    for each in values(prediction):
        assert np.all(np.isfinite(each))
        assert np.all(each > 0)
    assert np.all(np.diff(prediction.user_speed, axis=1) <= 1e-6 * prediction.user_speed[:, 1:])
    assert np.all(np.diff(prediction.memory, axis=1) >= 0)


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_a_lone_decode_step_is_the_weights_over_the_bandwidth_within_the_efficiencies(tensor):
    floor = model_facts("Qwen/Qwen3-32B").active_parameters() * 2 / tensor / 4.8e12
    itl = predict(Deployment(decode=Pool(tensor=tensor)), loads=np.array([[1.0]])).itl[0, 0]
    assert floor < itl < 2.6 * floor + 3e-3


def test_levels_that_do_not_exist_stay_without_a_number():
    prediction = predict(Deployment(), loads=np.array([[1.0, np.nan]]))
    assert np.isfinite(prediction.itl[0, 0])
    assert np.isnan(prediction.itl[0, 1])


def test_a_table_row_is_read_by_its_columns():
    row = {
        "mode": "disagg", "tp": 2, "pp": 1, "attention_dp": 4, "moe_tp": 1, "moe_ep": 8, "gemm": "fp8_block",
        "kvcache": "bfloat16", "moe": "nvfp4", "nextn": 3, "p_tp": 4, "p_pp": 1, "p_dp": 1, "p_moe_tp": 4,
        "p_moe_ep": 1, "p_workers": 3, "d_workers": 2,
    }  # fmt: skip
    deployment = deployment_of_table(Configuration.of(row))
    assert deployment.decode == Pool(2, 1, 4, 1, 8, 2)
    assert deployment.prefill == Pool(4, 1, 1, 4, 1, 3)
    assert (deployment.dense, deployment.cache, deployment.experts) == ("fp8_block", "bf16", "nvfp4")
    assert deployment.gpus == 2 * 8 + 3 * 4
    assert deployment.tokens_per_step == pytest.approx(1 + 0.8 + 0.64 + 0.512)


def test_an_engines_parameters_become_a_deployment():
    values_ = {
        "tensorParallelSize": 2, "dataParallelSize": 4, "enableExpertParallel": True, "maxNumSeqs": 64,
        "maxNumBatchedTokens": 4096, "kvCacheDtype": "fp8", "gpuMemoryUtilizationPercent": 95,
        "enablePrefixCaching": False,
    }  # fmt: skip
    deployment = deployment_of_engine(Configuration.of(values_))
    assert deployment.decode == Pool(2, 1, 4, 1, 8, 1)
    assert (deployment.cache, deployment.max_seqs, deployment.step_tokens) == ("fp8", 64, 4096)
    assert (deployment.gpu_memory_fraction, deployment.prefix_caching) == (0.95, False)
    sharded = deployment_of_engine(Configuration.of(values_ | {"enableExpertParallel": False}))
    assert (sharded.decode.moe_tensor, sharded.decode.expert) == (8, 1)


def test_pools_of_engines_become_pools():
    values_ = {
        "mode": "disaggregated", "decodeTensorParallelSize": 4, "decodeReplicas": 2, "decodeMaxNumSeqs": 64,
        "prefillTensorParallelSize": 2, "prefillReplicas": 3, "prefillMaxNumBatchedTokens": 16384,
        "decodeDataParallelSize": 2, "decodeEnableExpertParallel": True, "kvCacheDtype": "fp8",
    }  # fmt: skip
    deployment = deployment_of_engine(Configuration.of(values_))
    assert deployment.decode == Pool(4, 1, 2, 1, 8, 2)
    assert deployment.prefill == Pool(2, 1, 1, 2, 1, 3)
    assert (deployment.step_tokens, deployment.max_seqs, deployment.cache) == (16384, 64, "fp8")
    assert deployment.gpus == 4 * 2 * 2 + 2 * 3


def test_the_engines_names_and_defaults_are_those_of_its_catalogue():
    known = {parameter.name for parameter in CATALOGUE}
    own = {"replicas", "tensorParallelSize", "dataParallelSize", "pipelineParallelSize", "enableExpertParallel"}
    pooled = {f"{role}{name[0].upper()}{name[1:]}" for role in ("prefill", "decode") for name in own}
    shared = {
        "mode", "quantization", "kvCacheDtype", "maxNumSeqs", "maxNumBatchedTokens", "enableChunkedPrefill",
        "enablePrefixCaching", "speculativeMethod", "numSpeculativeTokens", "enforceEager", "optimizationLevel",
        "gpuMemoryUtilizationPercent", "gpuProduct", "variant", "decodeMaxNumSeqs", "prefillMaxNumBatchedTokens",
    }  # fmt: skip
    assert pooled | shared | own - {"replicas"} <= known
    assert set(METHODS) <= set(DRAFTING)
    assert DEFAULTS["gpuMemoryUtilizationPercent"] == MEMORY_PERCENT


@pytest.mark.parametrize(
    ("values_", "want"),
    [
        ({}, (0, 0, True, "checkpoint")),
        ({"numSpeculativeTokens": 3}, (3, 0, True, "checkpoint")),
        ({"numSpeculativeTokens": 3, "speculativeMethod": "none"}, (0, 0, True, "checkpoint")),
        ({"numSpeculativeTokens": 2, "speculativeMethod": "mtp"}, (2, 1, True, "checkpoint")),
        ({"enforceEager": True, "quantization": "fp8"}, (0, 0, False, "fp8")),
        ({"optimizationLevel": 0, "quantization": "none"}, (0, 0, False, "checkpoint")),
    ],
)
def test_what_an_engine_does_besides_is_read(values_, want):
    deployment = deployment_of_engine(Configuration.of(values_))
    assert (deployment.draft_tokens, deployment.draft_layers, deployment.graphs, deployment.dense) == want


def test_each_configuration_is_predicted_on_its_product():
    gpus = {"small": gpu_facts("L40S"), "": gpu_facts("H200")}
    prior = Roofline(model_facts("Qwen/Qwen3-8B"), gpus, Traffic(1000, 100), deployment_of_engine)
    asked = [Configuration.of({"gpuProduct": name}) for name in ("large", "small", "large")]
    prediction = prior.predict(asked, np.ones((3, 1)))
    assert prediction.user_speed[0, 0] > 3 * prediction.user_speed[1, 0]
    assert prediction.user_speed[0, 0] == prediction.user_speed[2, 0]
    assert prediction.capacity.tolist() == [0.92 * gpus[name].memory_bytes for name in ("", "small", "")]


def test_nothing_asked_is_nothing_answered():
    prior = Roofline(model_facts("Qwen/Qwen3-8B"), gpu_facts("H200"), Traffic(1000, 100), deployment_of_engine)
    prediction = prior.predict([], np.zeros((0, 4)))
    assert (prediction.itl.shape, prediction.capacity.shape) == ((0, 4), (0,))


def test_launching_each_kernel_costs_a_small_model_most():
    def slower(model):
        eager, captured = predict(Deployment(graphs=False), model), predict(Deployment(), model)
        return eager.itl[0, 0] / captured.itl[0, 0]

    assert slower("Qwen/Qwen3-0.6B") > 1.2 > slower("Qwen/Qwen3-32B") >= 1


def test_more_memory_never_makes_less_fit():
    small, large = gpu_facts("H100"), gpu_facts("H200")

    @given(deployments(), MODELS, st.sampled_from([(8192, 1024, 0.0), (128, 128, 0.0)]))
    def more_is_more(deployment, model, traffic):
        asked, loads = [Configuration.of({})], LOADS
        said = [
            Roofline(model_facts(model), replace(small, memory_bytes=memory), Traffic(*traffic), lambda _: deployment)
            .predict(asked, loads)
            for memory in (small.memory_bytes, large.memory_bytes)
        ]  # fmt: skip
        less, more = said
        assert more.capacity > less.capacity
        assert more.start_memory == less.start_memory
        assert np.all(more.memory == less.memory)
        assert np.all(more.throughput >= less.throughput * (1 - 1e-3))

    more_is_more()


def test_a_loop_is_closed():
    """Little's law: what is in flight is the rate times the time from the first byte sent to the last token."""
    prediction = predict(Deployment(step_tokens=8192))
    loads = LOADS[0]
    rate = prediction.throughput[0] / 1000
    in_flight = rate * (prediction.ttft[0] + 999 * prediction.itl[0])
    assert in_flight[1:] == pytest.approx(loads[1:], rel=0.02)


def test_a_limit_on_sequences_keeps_the_speed_and_lets_requests_wait():
    free, limited = predict(Deployment(step_tokens=8192)), predict(Deployment(step_tokens=8192, max_seqs=16))
    assert limited.itl[0, :4] == pytest.approx(free.itl[0, :4])
    assert limited.itl[0, -1] < 0.5 * free.itl[0, -1]
    assert limited.ttft[0, -1] > 10 * limited.ttft[0, 4]
    assert limited.throughput[0, -1] == pytest.approx(limited.throughput[0, 5], rel=0.2)


def test_sequences_beyond_the_cache_wait():
    tight = predict(Deployment(gpu_memory_fraction=0.55), gpu="H200")
    roomy = predict(Deployment(gpu_memory_fraction=0.95), gpu="H200")
    assert tight.ttft[0, -1] > 2 * roomy.ttft[0, -1]
    assert tight.throughput[0, -1] < roomy.throughput[0, -1]


def test_a_cached_prefix_needs_no_prefill_where_prefixes_are_kept():
    kept, lost = (
        predict(Deployment(step_tokens=8192, prefix_caching=caching), traffic=(8192, 256, 6144))
        for caching in (True, False)
    )
    assert np.all(kept.ttft < lost.ttft)
    assert kept.throughput[0, 6] > 1.5 * lost.throughput[0, 6]


def test_accepted_drafts_help_most_where_few_sequences_decode():
    plain = predict(Deployment(step_tokens=8192), "deepseek-v3", "B200")
    drafted = predict(
        Deployment(step_tokens=8192, draft_tokens=3, acceptance=0.8, draft_layers=1), "deepseek-v3", "B200"
    )
    gain = drafted.user_speed / plain.user_speed
    assert 1.5 < gain[0, 0] < 1 + 0.8 + 0.64 + 0.512
    useless = predict(
        Deployment(step_tokens=8192, draft_tokens=3, acceptance=0.0, draft_layers=1), "deepseek-v3", "B200"
    )
    assert np.all(useless.user_speed < plain.user_speed)


def test_pools_are_matched_by_the_slower_one():
    def throughput(prefill, decode):
        deployment = Deployment(decode=Pool(workers=decode), prefill=Pool(workers=prefill))
        return predict(deployment, traffic=(8192, 256, 0)).throughput[0, -1] * deployment.gpus

    assert throughput(1, 4) == pytest.approx(throughput(1, 8), rel=0.01)  # prefill is the slower
    assert throughput(2, 4) == pytest.approx(2 * throughput(1, 4), rel=0.05)


def test_a_saturated_prefill_pool_shows_in_the_time_to_first_token():
    deployment = Deployment(decode=Pool(workers=4), prefill=Pool())
    prediction = predict(deployment, traffic=(8192, 256, 0))
    assert prediction.ttft[0, -1] > 20 * prediction.ttft[0, 0]
    assert prediction.itl[0, -1] == pytest.approx(prediction.itl[0, -2], rel=0.05)


def test_crossing_a_node_is_a_cliff():
    def speed(gpu, tensor):
        return predict(Deployment(decode=Pool(tensor=tensor)), gpu=gpu).user_speed[0, 0]

    assert speed("H200", 16) < 0.8 * speed("H200", 8)
    assert speed("GB200", 16) > 0.9 * speed("GB200", 8)  # one domain of 72


def test_facts_are_chosen_by_variant():
    models = {"bf16": model_facts("Qwen/Qwen3-32B"), "": model_facts("Qwen/Qwen3-32B-FP8")}
    prior = Roofline(models, gpu_facts("H200"), Traffic(1000, 100), deployment_of_engine)
    asked = [Configuration.of({"variant": name}) for name in ("bf16", "fp8")]
    start = prior.predict(asked, np.ones((2, 1))).start_memory
    assert start[0] > 1.7 * start[1]
    with pytest.raises(FactsError, match=r"variant 'awq'.*bf16"):
        Roofline({"bf16": models["bf16"]}, gpu_facts("H200"), Traffic(1000, 100), deployment_of_engine).predict(
            [Configuration.of({"variant": "awq"})], np.ones((1, 1))
        )


@pytest.mark.parametrize("wrong", [(0, 100, 0), (100, 0, 0), (100, 100, 101), (100, 100, -1), (float("nan"), 1, 0)])
def test_wrong_traffic_is_refused(wrong):
    with pytest.raises(ValueError, match="tokens must be"):
        Traffic(*wrong)


def test_thousands_of_configurations_take_seconds_not_minutes():
    rows = [
        Configuration.of({"mode": "agg", "tp": tensor, "gemm": gemm, "kvcache": "fp8", "ctx_tokens": 512 + step})
        for tensor in (1, 2, 4, 8) for gemm in ("bf16", "fp8", "fp8_block", "nvfp4") for step in range(0, 5000, 16)
    ]  # fmt: skip
    loads = np.repeat(np.geomspace(1, 1024, 18)[np.newaxis, :], len(rows), axis=0)
    prior = Roofline(model_facts("Qwen/Qwen3-32B"), gpu_facts("H200"), Traffic(4000, 1000), deployment_of_table)
    began = time.process_time()
    assert prior.predict(rows, loads).itl.shape == (5008, 18)
    assert time.process_time() - began < 6  # it takes about one on a machine of its own
