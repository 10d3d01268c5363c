"""Parameters that exist only with others: everything that a space does with them."""

import pickle
import time
from itertools import product

import optuna
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.configuration import Configuration
from frontier_tuner.engines.vllm import build_space
from frontier_tuner.engines.vllm_catalogue import FEATURES
from frontier_tuner.errors import InvalidSpaceError
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.space import Parameter, Requirement, Restriction, Rule, SearchSpace, restrict
from frontier_tuner.spec import StudySpec
from frontier_tuner.study import space_of
from support.tuner_builders import make_configuration

ON = Requirement("method", ("ngram", "mtp"))
METHOD = Parameter("method", ("none", "ngram", "mtp"))
DEPTH = Parameter("depth", (1, 2, 4), bounds=(1, 8), requires=ON)
DRAFT = Parameter("draft", (1, 8), requires=Requirement("method", ("mtp",)))
SHALLOW = Rule(
    ("method", "depth"), lambda c: "n-grams go 2 deep" if c.get("method") == "ngram" and c["depth"] > 2 else None
)


def make(*rules, **over):
    return SearchSpace((METHOD, DEPTH, DRAFT, Parameter("seqs", (16, 64))), rules, over)


def test_configurations_lack_what_does_not_exist():
    space = make(SHALLOW)
    found = {(c["method"], c.get("depth"), c.get("draft")) for c in space.configurations()}

    assert found == {
        ("none", None, None), ("ngram", 1, None), ("ngram", 2, None),
        *(("mtp", depth, draft) for depth in (1, 2, 4) for draft in (1, 8)),
    }  # fmt: skip
    assert space.size == 2 * len(found)
    assert space.pruned == 2
    assert space.reasons == {"n-grams go 2 deep": 2}


def test_a_requirement_of_a_requirement_holds():
    outer = Parameter("a", (False, True))
    inner = Parameter("b", (False, True), requires=Requirement("a", (True,)))
    space = SearchSpace((outer, inner, Parameter("c", (1, 2), requires=Requirement("b", (True,)))))

    assert [dict(c) for c in space.configurations()] == [
        {"a": False}, {"a": True, "b": False}, {"a": True, "b": True, "c": 1}, {"a": True, "b": True, "c": 2},
    ]  # fmt: skip
    assert space.pruned == 0


def test_what_a_space_lacks_is_at_the_engines_default():
    alone = (DEPTH,)
    assert SearchSpace(alone, (), {"method": "none"}).configurations() == (Configuration.of({}),)
    assert {c["depth"] for c in SearchSpace(alone, (), {"method": "mtp"}).configurations()} == {1, 2, 4}


def test_a_parameter_comes_after_what_it_requires():
    with pytest.raises(ValueError, match="must come before"):
        SearchSpace((DEPTH, METHOD))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"method": "none", "depth": 1, "seqs": 16}, "depth exists only with method ngram or mtp"),
        ({"method": "mtp", "draft": 1, "seqs": 16}, "depth has no value"),
        ({"method": "mtp", "depth": 3, "draft": 1, "seqs": 16}, "not one of 1, 2, 4"),
    ],
)
def test_a_value_too_many_or_too_few_is_named(values, words):
    messages = [violation.message for violation in make().violations(make_configuration(**values))]
    assert len(messages) == 1
    assert words in messages[0]


@given(st.data())
def test_encoding_leaves_away_what_does_not_exist(data):
    space = make(SHALLOW)
    configuration = data.draw(st.sampled_from(space.configurations()))
    encoded = space.encode(configuration)

    assert encoded.keys() == space.to_distributions(configuration).keys() == set(configuration)
    assert space.decode(encoded) == configuration
    assert space.decode({**dict.fromkeys(space.to_distributions(), 0), **encoded}) == configuration
    assert space.violations(configuration) == ()
    assert configuration in space
    assert space.configurations()[space.index(configuration)] == configuration


def test_distances_count_what_only_one_of_two_has():
    space = make()
    none = make_configuration(method="none", seqs=16)
    ngram = make_configuration(method="ngram", depth=1, seqs=16)
    mtp = make_configuration(method="mtp", depth=4, draft=1, seqs=16)
    assert (space.distance(none, none), space.distance(none, ngram), space.distance(ngram, mtp)) == (0, 2, 3)
    assert space.distance(ngram, make_configuration(method="ngram", depth=2, seqs=64)) == 1.5


def test_what_can_never_exist_is_dropped_and_may_not_be_asked_for():
    no_method = Rule(("method",), lambda c: None if c["method"] == "none" else "no method here")
    space = make(no_method).without_dead_values()
    assert [parameter.name for parameter in space.parameters] == ["method", "seqs"]
    assert space.size == 2

    entries = [Restriction("method", value="none"), Restriction("depth", values=(1, 2))]
    with pytest.raises(InvalidSpaceError, match="depth exists only with method ngram or mtp; search that too"):
        restrict(make(), entries)


def test_the_digest_follows_requirements():
    plain = SearchSpace((METHOD, Parameter("depth", (1, 2, 4))))
    assert plain.digest == "436dc79598"
    assert plain.digest != SearchSpace((METHOD, DEPTH)).digest


def test_the_baseline_counts_what_exists_only():
    assert dict(make(method="none", depth=0, seqs=64).baseline) == {"method": "none", "seqs": 64}
    assert dict(make(method="mtp", depth=2, seqs=64).baseline) == {"method": "mtp", "depth": 2, "draft": 1, "seqs": 64}


@pytest.mark.parametrize("group", [False, True])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_an_optuna_study_lives_with_conditional_parameters(group):
    space = make(SHALLOW)
    sampler = optuna.samplers.TPESampler(seed=1, multivariate=True, group=group, n_startup_trials=4)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler)
    for configuration in space.configurations()[:8]:
        params, distributions = space.encode(configuration), space.to_distributions(configuration)
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=1.0))
    for _ in range(12):
        trial = study.ask()
        configuration = space.suggest(trial)
        assert {v.message for v in space.violations(configuration)} <= {"n-grams go 2 deep"}
        study.tell(trial, float(configuration.integer("depth")))
    assert len(study.trials) == 20


def brute_force(space):
    """All combinations in the same order, each judged as a whole by every rule."""
    for values in product(*(parameter.values for parameter in space.parameters)):
        chosen = {}
        for parameter, value in zip(space.parameters, values, strict=True):
            if space.exists(parameter, chosen):
                chosen[parameter.name] = value
        yield Configuration.of(chosen)


@pytest.mark.parametrize(
    ("model", "gpu", "entries"),
    [
        ("Qwen/Qwen3-235B-A22B-FP8", "NVIDIA-H200", [("enableEplb", (True, False)), ("numRedundantExperts", (0, 8))]),
        ("deepseek-ai/DeepSeek-V3", "NVIDIA-B200", [("attentionBackend", ("auto", "FLASHMLA", "FLASH_ATTN"))]),
        (
            "meta-llama/Llama-3.1-8B",
            "NVIDIA-L40S",
            [("asyncScheduling", (True, False)), ("enforceEager", (True, False))],
        ),
        (
            "Qwen/Qwen3-8B",
            "NVIDIA-H200",
            [
                ("mode", ("aggregated", "disaggregated")),
                ("prefillTensorParallelSize", (1, 2)),
                ("decodeTensorParallelSize", (1, 4)),
                ("prefillKvCacheDtype", ("auto", "fp8")),
                ("decodeMaxNumSeqs", (64,)),
                ("prefillMaxNumBatchedTokens", (8192,)),
            ],
        ),
    ],
)
def test_rules_read_no_more_than_they_say(model, gpu, entries):
    fewer = [("maxNumSeqs", (64, 4096)), ("maxNumBatchedTokens", (2048, 8192)), ("enablePrefixCaching", (True,))]
    restrictions = [Restriction(name, values=values) for name, values in (*fewer, *entries)]
    space = build_space(
        model_facts(model), gpu_facts(gpu), 8, ["a"], 8, restrictions, max_model_len=8192, engine_version="0.15.0",
        supports=FEATURES,
    )  # fmt: skip

    judged = dict.fromkeys(c for c in brute_force(space) if all(rule.check(c) is None for rule in space.rules))

    assert space.size > 20
    assert tuple(judged) == space.configurations()


def test_ten_thousand_configurations_are_remembered_and_looked_up_faster_than_found():
    entries = [
        Restriction("maxNumSeqs", values=(16, 32, 64, 128, 256, 512)),
        Restriction("gpuMemoryUtilizationPercent", values=(85, 90)),
    ]
    facts, gpu = model_facts("deepseek-ai/DeepSeek-V3"), gpu_facts("NVIDIA-B200")

    begin = time.process_time()
    space = build_space(facts, gpu, 8, ["a", "b"], 8, entries, max_model_len=8192)
    assert space.size > 10_000
    found = time.process_time() - begin
    assert build_space(facts, gpu, 8, ["a", "b"], 8, entries, max_model_len=8192) is space

    begin = time.process_time()
    assert all(configuration in space for configuration in space.configurations())
    assert time.process_time() - begin < found


def test_one_and_true_are_not_one_request():
    caching = [Restriction("enablePrefixCaching", value=True)]
    with pytest.raises(InvalidSpaceError, match="enablePrefixCaching cannot be 1"):
        build_space(None, None, 0, ["a"], 0, [Restriction("enablePrefixCaching", value=1)])
    assert build_space(None, None, 0, ["a"], 0, caching).size > 0
    with pytest.raises(InvalidSpaceError, match="enablePrefixCaching cannot be 1"):
        build_space(None, None, 0, ["a"], 0, [Restriction("enablePrefixCaching", value=1)])


def test_a_configuration_is_the_same_in_another_process():
    configuration = make_configuration(b=2, a="x", c=True)
    assert configuration.hash == "2e6c6b7e36"
    assert [*configuration] == ["a", "b", "c"]
    assert "z" not in configuration
    copy = pickle.loads(pickle.dumps(configuration))
    assert copy == configuration
    assert hash(copy) == hash(configuration)
    assert vars(pickle.loads(pickle.dumps(configuration))) == {"items_": configuration.items_}


def test_a_reconcile_pass_gets_the_space_that_it_had():
    text = """
    model: {variants: [{name: bf16, source: "hf://Qwen/Qwen3-8B"}]}
    engine: {image: "vllm/vllm-openai:v0.33.0"}
    hardware: {gpu: {product: NVIDIA-H200}, gpusPerNode: 4}
    search: {parameters: [{name: maxNumSeqs, values: [16, 64]}]}
    """
    first, second = (space_of(StudySpec.parse(yaml.safe_load(text))) for _ in range(2))
    assert first is second
    other = space_of(StudySpec.parse(yaml.safe_load(text.replace("v0.33.0", "v0.20.0"))))
    assert other is not first
    assert other.digest == first.digest


def test_what_a_plant_cannot_do_is_refused_unless_it_can():
    spec = StudySpec.parse({
        "model": {"variants": [{"name": "bf16", "source": "hf://openai/gpt-oss-120b"}]},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "hardware": {"gpu": {"product": "NVIDIA-H200"}, "gpusPerNode": 8},
        "search": {"parameters": [{"name": "reasoningEffort", "values": ["low", "high"]}]},
    })  # fmt: skip
    with pytest.raises(InvalidSpaceError, match="reasoningEffort needs a plant that sends a reasoning effort"):
        space_of(spec)
    efforts = {
        configuration["reasoningEffort"] for configuration in space_of(spec, ["reasoningEffort"]).configurations()
    }
    assert efforts == {"low", "high"}
