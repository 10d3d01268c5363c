from copy import deepcopy
from datetime import timedelta
from decimal import Decimal

import pytest

from frontier_tuner.load.schedule import Arrivals
from frontier_tuner.load.workload import parse_workload
from frontier_tuner.measurement import Load
from frontier_tuner.objectives import SLO, Objectives, Target
from frontier_tuner.spec import InvalidSpecError, StudySpec
from frontier_tuner.study import space_of

MINIMAL = {"model": {"variants": [{"name": "bf16", "source": "hf://org/name"}]}, "engine": {"image": "engine:1"}}


def make_spec(**over):
    return {**deepcopy(MINIMAL), **over}


def problems(mapping):
    with pytest.raises(InvalidSpecError) as caught:
        StudySpec.parse(mapping)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_a_model_and_an_image_are_enough():
    spec = StudySpec.parse(MINIMAL)
    assert spec.model.served_name == "org/name"
    assert spec.workload.profile is not None
    assert spec.to_target() == Target(policy="MinCost", headroom_percent=10)
    assert spec.to_objectives() == Objectives(price_per_gpu_hour=1.0)
    assert (spec.search.budget.max_trials, spec.search.budget.max_duration) == (24, timedelta(hours=6))
    assert spec.measurement.engine_start_timeout == timedelta(minutes=30)


def test_without_a_price_costs_are_counted_in_gpu_hours():
    hardware = StudySpec.parse(MINIMAL).hardware
    assert (hardware.price_per_gpu_hour, hardware.currency) == (Decimal(1), "GPUh")
    priced = StudySpec.parse(make_spec(hardware={"pricePerGPUHour": "1"})).hardware
    assert priced.currency == "USD"


@pytest.mark.parametrize(("memory", "smallest"), [(None, 4), ("81Gi", 4), ("40Gi", 8)])
def test_a_configuration_must_fit_the_memory_that_the_spec_gives_but_never_more_than_the_product_has(memory, smallest):
    gpu = {"product": "NVIDIA-H100-80GB-HBM3", **({"memory": memory} if memory else {})}
    model = {"variants": [{"name": "a", "source": "hf://meta-llama/Llama-3.3-70B-Instruct"}]}
    space = space_of(StudySpec.parse(make_spec(model=model, hardware={"gpu": gpu, "gpusPerNode": 8})))
    assert min(configuration["tensorParallelSize"] for configuration in space.configurations()) == smallest


def test_trials_may_hold_one_node_unless_told_otherwise():
    assert StudySpec.parse(make_spec(hardware={"gpusPerNode": 8})).search.max_trial_gpus == 8
    assert (
        StudySpec.parse(make_spec(search={"maxTrialGPUs": 2}, hardware={"gpusPerNode": 8})).search.max_trial_gpus == 2
    )


def test_bounds_become_seconds_and_tokens_per_second():
    slos = [
        {"name": "ttft", "metric": "TTFT", "max": "1m2s"},
        {"name": "itl", "metric": "ITL", "percentile": 99, "max": "30ms"},
        {"name": "speed", "metric": "UserTokensPerSecond", "percentile": 5, "min": "40"},
    ]
    objectives = {"slos": slos, "cost": {"maxPerMillionOutputTokens": "0.60"}}
    spec = StudySpec.parse(make_spec(objectives=objectives, hardware={"pricePerGPUHour": "3.50"}))
    assert spec.to_objectives() == Objectives(
        slos=(
            SLO("ttft", "TTFT", 95, maximum=62.0),
            SLO("itl", "ITL", 99, maximum=0.03),
            SLO("speed", "UserTokensPerSecond", 5, minimum=40.0),
        ),
        max_cost=0.6,
        price_per_gpu_hour=3.5,
    )


def test_a_ladder_gives_loads():
    spec = StudySpec.parse(make_spec(search={"ladder": {"kind": "RequestRate", "levels": ["0.5", "2"]}}))
    assert spec.search.ladder.loads() == (Load("RequestRate", 0.5), Load("RequestRate", 2.0))


def test_a_parameter_keeps_the_type_of_its_values():
    parameters = [
        {"name": "enablePrefixCaching", "value": True},
        {"name": "tensorParallelSize", "values": [1, 2]},
        {"name": "kvCacheDtype", "values": ["auto", "fp8"]},
        {"name": "maxNumSeqs", "min": 256, "max": 256},
    ]
    found = StudySpec.parse(make_spec(search={"parameters": parameters})).search.parameters
    assert found[0].value is True
    assert found[1].values == (1, 2)
    assert found[2].values == ("auto", "fp8")
    assert (found[3].min, found[3].max) == (256, 256)


def test_a_histogram_and_arrivals_resolve_to_what_the_load_generator_takes():
    histogram = [{"upTo": 100, "weight": 1}, {"upTo": 300, "weight": 3}]
    workload = {
        "profile": {"inputTokens": {"histogram": histogram}, "session": {"blockTokens": 128}},
        "arrivals": {"burstiness": "0.5"},
    }
    spec = StudySpec.parse({**MINIMAL, "workload": workload}).workload
    resolved = spec.resolve()
    assert resolved["profile"]["inputTokens"] == {"histogram": histogram}
    assert resolved["profile"]["session"]["blockTokens"] == 128
    assert resolved["arrivals"] == {"burstiness": "0.5"}
    assert parse_workload(resolved).arrivals == Arrivals("Gamma", 0.5)
    assert (spec.profile.input_tokens.mean, spec.profile.input_tokens.p95) == (163, 287)


def test_a_workload_resolves_to_what_the_load_generator_takes():
    assert StudySpec.parse(MINIMAL).workload.resolve() == {
        "profile": {
            "inputTokens": {"mean": 1024, "p95": 3072},
            "outputTokens": {"mean": 256, "p95": 768},
            "session": {"turns": 1, "sharedPrefixPercent": 0, "thinkTime": "0s", "blockTokens": 16},
        }
    }
    trace = {"configMapRef": {"name": "azure"}, "maxInputTokens": 1500}
    assert StudySpec.parse(make_spec(workload={"trace": trace})).workload.resolve("/trace/t.csv") == {
        "trace": {"path": "/trace/t.csv", "format": "AzureLLMInference", "maxInputTokens": 1500}
    }


def test_facts_are_given_by_the_names_of_the_facts_table():
    model = {**MINIMAL["model"], "facts": {"kvHeads": 4, "mla": True}}
    assert StudySpec.parse(make_spec(model=model)).model.facts.overrides() == {"kv_heads": 4, "mla": True}


def test_a_dump_parses_to_the_same_spec():
    spec = StudySpec.parse(make_spec(hardware={"gpu": {"memory": "141Gi"}}, measurement={"warmUp": "1m30s"}))
    assert StudySpec.parse(spec.model_dump(mode="json", by_alias=True, exclude_none=True)) == spec


BAD = [
    ({"hardware": {"pricePerGPUHour": 3.5}}, "spec.hardware.pricePerGPUHour", "in quotes"),
    ({"hardware": {"gpu": {"memory": "lots"}}}, "spec.hardware.gpu.memory", "80Gi"),
    ({"workload": {"requestRate": "3"}}, "spec.workload", "exactly one of"),
    ({"workload": {"profile": {}, "fromMetrics": {}}}, "spec.workload", "exactly one of"),
    ({"workload": {"trace": {}}}, "spec.workload.trace", "configMapRef"),
    ({"workload": {"profile": {"inputTokens": {"mean": 9, "p95": 3}}}}, "spec.workload.profile.inputTokens.p95", "9"),
    (
        {"workload": {"profile": {"inputTokens": {"mean": 100, "p95": 388}}}},
        "spec.workload.profile.inputTokens.p95",
        "at most 386, 3.87 times the mean",
    ),
    ({"workload": {"trace": {"path": "x", "blockTokens": 16}}}, "spec.workload.trace.blockTokens", "format Mooncake"),
    ({"workload": {"profile": {"inputTokens": {}}}}, "spec.workload.profile.inputTokens.mean", "or histogram"),
    (
        {"workload": {"profile": {"inputTokens": {"histogram": [{"upTo": 9, "weight": 1}, {"upTo": 9, "weight": 1}]}}}},
        "spec.workload.profile.inputTokens.histogram[1].upTo",
        "above that of the bucket before it, 9",
    ),
    (
        {"workload": {"profile": {"inputTokens": {"histogram": [{"upTo": 9, "weight": 0}]}}}},
        "spec.workload.profile.inputTokens.histogram",
        "weight above 0",
    ),
    (
        {"workload": {"profile": {}, "arrivals": {"pattern": "Gamma"}}},
        "spec.workload.arrivals.burstiness",
        "required by pattern Gamma",
    ),
    (
        {"workload": {"profile": {}, "arrivals": {"pattern": "Constant", "burstiness": "2"}}},
        "spec.workload.arrivals.burstiness",
        "only with pattern Gamma, not Constant",
    ),
    (
        {"workload": {"profile": {}, "arrivals": {"pattern": "Recorded"}}},
        "spec.workload.arrivals.pattern",
        "needs a trace",
    ),
    ({"workload": {"trace": {"path": "x", "maxOutputTokens": 1}}}, "spec.workload.trace.maxOutputTokens", "has none"),
    ({"workload": {"profile": {"outputTokens": {"mean": 1}}}}, "spec.workload.profile.outputTokens.mean", "has none"),
    ({"search": {"budget": {"maxDuration": "99999999999999h"}}}, "spec.search.budget.maxDuration", "ten years"),
    ({"search": {"budget": {"maxGPUHours": "9" * 400}}}, "spec.search.budget.maxGPUHours", "at most"),
    ({"hardware": {"gpu": {"memory": "9" * 400 + "Ti"}}}, "spec.hardware.gpu.memory", "at most"),
    (
        {"search": {"parameters": [{"name": "a", "min": 1, "max": 10**9, "step": 1}]}},
        "spec.search.parameters[0].step",
        "1000000000 values",
    ),
    ({"engine": {"image": "x", "env": [{"name": ["HF_TOKEN"], "value": "x"}]}}, "spec.engine.env[0].name", "string"),
    ({"measurement": {"warmUp": "30"}}, "spec.measurement.warmUp", "unit"),
    ({"measurement": {"maxRungDuration": "0s"}}, "spec.measurement.maxRungDuration", "above 0"),
    ({"target": {"policy": "AtUserSpeed"}}, "spec.target.userTokensPerSecond", "required"),
    ({"target": {"userTokensPerSecond": "80"}}, "spec.target.userTokensPerSecond", "AtUserSpeed"),
    ({"target": {"policy": "Cheapest"}}, "spec.target.policy", "MinCost"),
    ({"target": {"headroomPercent": 95}}, "spec.target.headroomPercent", "90"),
    (
        {"target": {"policy": "AtCost", "maxPerMillionOutputTokens": "1"}},
        "spec.target.maxPerMillionOutputTokens",
        "price",
    ),
    (
        {"objectives": {"cost": {"maxPerMillionOutputTokens": "1"}}},
        "spec.objectives.cost.maxPerMillionOutputTokens",
        "price",
    ),
    ({"objectives": {"quality": {"minPercentOfReference": 98}}}, "spec.objectives.quality.evaluators", "required"),
    (
        {"search": {"parameters": [{"name": "maxNumSeqs", "min": 512, "max": 256}]}},
        "spec.search.parameters[0].min",
        "swap",
    ),
    ({"search": {"parameters": [{"name": "maxNumSeqs"}]}}, "spec.search.parameters[0]", "exactly one of"),
    (
        {"search": {"parameters": [{"name": "maxNumSeqs", "value": 1.5}]}},
        "spec.search.parameters[0].value",
        "whole number",
    ),
    ({"search": {"parameters": [{"name": "a", "values": [1, 1]}]}}, "spec.search.parameters[0].values", "repeat"),
    ({"search": {"parameters": [{"name": "a", "value": 1}] * 2}}, "spec.search.parameters", "of its own"),
    ({"search": {"ladder": {"levels": ["4", "4"]}}}, "spec.search.ladder.levels", "rise"),
    ({"search": {"ladder": {"levels": ["1.5"]}}}, "spec.search.ladder.levels[0]", "whole"),
    ({"search": {"maxTrialGPUs": 0}}, "spec.search.maxTrialGPUs", "1"),
    (
        {"engine": {"image": "x", "env": [{"name": "HF_TOKEN", "value": "hf_x"}]}},
        "spec.engine.env[0].value",
        "secretKeyRef",
    ),
    ({"engine": {}}, "spec.engine.image", "required"),
    ({"colour": "red"}, "spec.colour", "spelling"),
]


@pytest.mark.parametrize(
    ("over", "want_path", "want_words"), BAD, ids=[f"{path}-{i}" for i, (_, path, _) in enumerate(BAD)]
)
def test_a_bad_field_is_named_with_the_way_out(over, want_path, want_words):
    found = problems(make_spec(**over))
    assert want_words in found[want_path], found


@pytest.mark.parametrize(
    ("slo", "want_path", "want_words"),
    [
        ({"metric": "TTFT"}, "", "exactly one bound"),
        ({"metric": "TTFT", "max": "2s", "min": "1"}, "", "exactly one bound"),
        ({"metric": "TTFT", "min": "2"}, ".min", "write max"),
        ({"metric": "UserTokensPerSecond", "max": "2s"}, ".max", "write min"),
        ({"metric": "ITL", "max": "30"}, ".max", "unit"),
        ({"metric": "ITL", "max": "30ms", "percentile": 100}, ".percentile", "99"),
        ({"metric": "UserTokensPerSecond", "min": "0"}, ".min", "above 0"),
    ],
)
def test_a_bound_fits_its_metric(slo, want_path, want_words):
    found = problems(make_spec(objectives={"slos": [{"name": "a", **slo}]}))
    assert want_words in found[f"spec.objectives.slos[0]{want_path}"], found


def test_every_problem_is_reported_even_between_fields_of_a_broken_part():
    slos = [
        {"name": "a", "metric": "TTFT", "percentile": 0, "max": "soon"},
        {"name": "a", "metric": "Speed", "min": "1"},
    ]
    found = problems(
        make_spec(objectives={"slos": slos}, target={"policy": "AtCost"}, engine={"image": "x", "type": "TGI"})
    )
    assert set(found) == {
        "spec.engine.type",
        "spec.objectives.slos",
        "spec.objectives.slos[0].max",
        "spec.objectives.slos[0].percentile",
        "spec.objectives.slos[1].metric",
        "spec.target.maxPerMillionOutputTokens",
    }


@pytest.mark.parametrize("source", ["s3://bucket/x", "hf://only", "org/name", "pvc://claim/../../etc"])
def test_a_source_is_on_the_hub_or_on_a_claim(source):
    found = problems(make_spec(model={"variants": [{"name": "a", "source": source}]}))
    assert "spec.model.variants[0].source" in found


@pytest.mark.parametrize("broken", [None, [], "text", {"model": None, "engine": []}, {"model": {"variants": "x"}}])
def test_any_content_gives_problems_and_no_crash(broken):
    with pytest.raises(InvalidSpecError):
        StudySpec.parse(broken)
