import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.configuration import Configuration
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.predict.deployment import Deployment, Pool, deployment_of_engine, deployment_of_table
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
