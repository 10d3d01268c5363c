"""The prior from aiconfigurator; what it predicts itself is only tried where its extra is installed."""

import numpy as np
import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.errors import TunerError
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.predict.aiconfigurator import SYSTEMS, AIConfigurator, available
from frontier_tuner.predict.deployment import deployment_of_table
from frontier_tuner.predict.roofline import Roofline, Traffic

installed = pytest.mark.skipif(not available(), reason="the extra aiconfigurator is not installed")
TRAFFIC = Traffic(4000, 1000)
LOADS = np.array([[1.0, 4, 16, np.nan]])
ROW = {
    "mode": "agg", "tp": 1, "pp": 1, "attention_dp": 1, "moe_tp": 1, "moe_ep": 1, "gemm": "bfloat16",
    "kvcache": "bfloat16", "ctx_tokens": 512,
}  # fmt: skip


def prior(gpu="H200", deployment_of=deployment_of_table, model="Qwen/Qwen3-32B"):
    facts, product = model_facts("Qwen/Qwen3-32B"), gpu_facts(gpu)
    fallback = Roofline(facts, product, TRAFFIC, deployment_of)
    return AIConfigurator(model, product, "vllm", TRAFFIC, deployment_of, fallback)


def test_every_product_it_has_data_of_is_known():
    assert {gpu_facts(name).product for name in SYSTEMS} == set(SYSTEMS)


@pytest.mark.skipif(available(), reason="the extra aiconfigurator is installed")
def test_without_the_extra_it_is_said_how_to_get_it():
    with pytest.raises(TunerError, match=r"frontier-operator\[aiconfigurator\]"):
        prior().predict([Configuration.of(ROW)], LOADS)


@installed
def test_it_answers_as_aiconfigurator_does():
    prediction = prior().predict([Configuration.of(ROW)], LOADS)
    # From the table qwen3-32b_h200_vllm_isl4000_osl1000, which comes from the same version of it.
    assert prediction.itl[0, :3] * 1e3 == pytest.approx([18.4498, 21.8756, 28.6887], rel=0.03)
    assert prediction.ttft[0, 0] == pytest.approx(0.4357, rel=0.01)
    assert prediction.throughput[0, 0] == pytest.approx(52.95, rel=0.01)
    assert prediction.memory[0, 0] / 2**30 == pytest.approx(65.83, rel=0.01)
    assert np.isnan(prediction.itl[0, 3])


@installed
def test_each_layout_gets_its_own_step_times():
    rows = [Configuration.of(ROW | {"tp": tensor}) for tensor in (1, 4)]
    one, four = prior().predict(rows, np.repeat(LOADS, 2, axis=0)).itl[:, 0]
    assert four < 0.5 * one


@installed
def test_pools_are_matched_by_rate():
    row = ROW | {"mode": "disagg", "p_tp": 1, "p_pp": 1, "p_dp": 1, "p_workers": 1, "d_workers": 3}
    throughput = prior().predict([Configuration.of(row)], np.array([[16.0, 512.0, 1024.0, np.nan]])).throughput[0]
    assert throughput[1] == pytest.approx(throughput[2])  # prefill is the bottleneck


@installed
def test_what_it_has_no_data_for_is_answered_by_the_fallback():
    asked = prior(model="nobody/unheard-of")
    prediction = asked.predict([Configuration.of(ROW)], LOADS)
    assert prediction.itl[0, 0] == asked.fallback.predict([Configuration.of(ROW)], LOADS).itl[0, 0]


@installed
def test_a_product_without_data_is_named():
    with pytest.raises(TunerError, match=r"Tesla-T4.*NVIDIA-H200"):
        prior(gpu="T4").predict([Configuration.of(ROW)], LOADS)
