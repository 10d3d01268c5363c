import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.curves import compare
from frontier_tuner.engines.vllm import CATALOGUE
from frontier_tuner.factors import leave_one_out, leave_one_out_plan, technique_factors
from frontier_tuner.frontier import points
from frontier_tuner.noise import Noise
from frontier_tuner.objectives import Target
from frontier_tuner.space import Parameter, Requirement, Rule, SearchSpace
from frontier_tuner.techniques import TECHNIQUES, techniques_between
from frontier_tuner.trial import Failure
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record

OBJECTIVES = make_objectives()
EXACT = Noise(0.0)
OOM = Failure("EngineOutOfMemory", "CUDA out of memory")
SPACE = SearchSpace(
    (
        Parameter("variant", ("bf16", "fp8")),
        Parameter("tensorParallelSize", (1, 2, 4)),
        Parameter("maxNumSeqs", (16, 64, 256)),
        Parameter("kvCacheDtype", ("auto", "fp8")),
        Parameter("enablePrefixCaching", (False, True)),
    ),
)
BASELINE = make_configuration(
    variant="bf16", tensorParallelSize=1, maxNumSeqs=64, kvCacheDtype="auto", enablePrefixCaching=False
)
WINNER = make_configuration(
    variant="fp8", tensorParallelSize=1, maxNumSeqs=64, kvCacheDtype="fp8", enablePrefixCaching=True
)
EFFECT = {"variant": 1.6, "kvCacheDtype": 1.2, "enablePrefixCaching": 1.5}


def changed(configuration, **values):
    return make_configuration(**{**configuration, **values})


def worth(configuration, interaction=1.0):
    """Throughput in a world where techniques multiply, and all of them together have a word of their own."""
    on = [name for name in EFFECT if configuration.get(name) != BASELINE[name]]
    value = 100 * math.prod(EFFECT[name] for name in on)
    return value * interaction if len(on) == len(EFFECT) else value


def curve(number, configuration, scale, loads=(1, 4, 16), **over):
    rungs = [
        make_measurement(load, speed=scale * 100 / (1 + load / 8), per_gpu=scale * load * 10 / (1 + load / 8))
        for load in loads
    ]
    return make_record(number, configuration, *rungs, **over)


def study(interaction=1.0):
    configurations = [BASELINE, WINNER, *(each.configuration for each in leave_one_out(SPACE, WINNER, BASELINE))]
    return [curve(n, c, worth(c, interaction) / 100) for n, c in enumerate(configurations)]


def factors_of(journal, **over):
    arguments = {"objectives": OBJECTIVES, "target": Target(), "noise": EXACT} | over
    return technique_factors(journal, SPACE, WINNER, BASELINE, **arguments)


@pytest.mark.parametrize("interaction", [1.0, 0.8, 1.3])
@pytest.mark.parametrize("policy", ["MinCost", "MaxThroughput", "MinLatency"])
def test_each_factor_is_found_and_what_is_left_is_the_interaction(interaction, policy):
    found = factors_of(study(interaction), target=Target(policy))
    want = {"WeightQuantization": 1.6, "KVCachePrecision": 1.2, "PrefixCaching": 1.5}
    assert [factor.technique for factor in found.factors] == list(want)
    for factor in found.factors:
        assert factor.state == "Measured"
        assert factor.factor.value == pytest.approx(want[factor.technique] * interaction)
        assert factor.effect == ("PushesOut" if factor.factor.value > 1 else "WithinNoise")
    assert found.total.value == pytest.approx(2.88 * interaction)
    assert found.product.value == pytest.approx(2.88 * interaction**3)
    assert found.interaction.value == pytest.approx(interaction**-2)
    assert found.product.value * found.interaction.value == pytest.approx(found.total.value)


def test_costs_are_compared_the_other_way_round():
    priced = make_objectives(price_per_gpu_hour=3.0)
    found = factors_of(study(), objectives=priced)
    assert found.gains == "cost per million output tokens"
    assert found.factors[0].factor.value == pytest.approx(1.6)
    knee = factors_of(study(), target=Target("Knee"))
    assert knee.gains == "tokens/s/user x tokens/s/GPU"
    assert knee.factors[0].factor.value == pytest.approx(1.6**2)


def test_a_factor_carries_the_noise_of_both_measurements():
    found = factors_of(study(), noise=Noise(0.04)).factors[0].factor
    down = math.sqrt(math.log(1 / 0.9) ** 2 + math.log(1.1) ** 2 + 2 * (1.96 * 0.04) ** 2)
    assert math.log(found.value / found.low) == pytest.approx(down, rel=1e-3)


def test_with_a_single_technique_its_factor_is_the_whole_and_nothing_is_left_not_even_noise():
    winner = changed(BASELINE, variant="fp8")
    journal = [curve(0, BASELINE, 1.0), curve(1, winner, 1.6)]
    found = technique_factors(journal, SPACE, winner, BASELINE, OBJECTIVES, Target())
    assert found.total == found.product == found.factors[0].factor
    assert (found.interaction.value, found.interaction.low, found.interaction.high) == (1.0, 1.0, 1.0)


def test_the_plan_asks_only_for_what_is_missing_in_the_order_of_the_techniques():
    plan = leave_one_out_plan(SPACE, WINNER, BASELINE, [])
    assert [each.technique.name for each in plan] == [
        "Baseline",
        "WeightQuantization",
        "KVCachePrecision",
        "PrefixCaching",
    ]
    assert plan[1].configuration == changed(WINNER, variant="bf16")
    assert leave_one_out_plan(SPACE, WINNER, BASELINE, study()) == ()
    assert [each.technique.name for each in leave_one_out_plan(SPACE, WINNER, BASELINE, study()[:-1])] == [
        "PrefixCaching"
    ]
    failed = [replace(record, outcome="Failed") for record in study()]
    assert leave_one_out_plan(SPACE, WINNER, BASELINE, failed) == plan


def test_the_plan_keeps_to_its_budget_and_still_takes_what_is_cheap():
    def cost(configuration):
        return 1000.0 if configuration["variant"] == "bf16" and configuration != BASELINE else 100.0

    names = [
        each.technique.name for each in leave_one_out_plan(SPACE, WINNER, BASELINE, [], gpu_seconds=250.0, cost=cost)
    ]
    assert names == ["Baseline", "KVCachePrecision"]
    assert len(leave_one_out_plan(SPACE, WINNER, BASELINE, [], starts=2)) == 2
    assert leave_one_out_plan(SPACE, WINNER, BASELINE, [], starts=0) == ()


def test_where_no_valid_configuration_is_without_a_technique_the_nearest_one_is_taken():
    fits = Rule(
        ("variant", "tensorParallelSize"), lambda c: "too big" if c["variant"] == "bf16" and c[TP] < 2 else None
    )
    space = replace(SPACE, rules=(fits,))
    wide = Rule((TP, "maxNumSeqs"), lambda c: "no room" if c["maxNumSeqs"] == 256 and c[TP] == 1 else None)
    winner = changed(WINNER, tensorParallelSize=4, maxNumSeqs=256)
    found = {each.technique.name: each for each in leave_one_out(replace(space, rules=(wide,)), winner, BASELINE)}
    assert found["TensorParallelism"].configuration == changed(winner, tensorParallelSize=2)
    assert found["TensorParallelism"].partial
    assert "as far as a valid configuration goes" in found["TensorParallelism"].reason
    exact = {each.technique.name: each for each in leave_one_out(space, WINNER, BASELINE)}["WeightQuantization"]
    assert exact.configuration == changed(WINNER, variant="bf16", tensorParallelSize=2)
    assert exact.others == ("tensorParallelSize",)
    assert "together with tensorParallelSize" in exact.reason


TP = "tensorParallelSize"


def test_a_technique_that_nothing_valid_does_without_is_said():
    only = Rule(("variant",), lambda c: "does not fit" if c["variant"] == "bf16" else None)
    found = technique_factors([], replace(SPACE, rules=(only,)), WINNER, BASELINE, OBJECTIVES, Target())
    assert found.factors[0].state == "NoConfiguration"
    assert found.factors[0].factor is None
    assert found.total is None


def test_what_is_not_measured_or_cannot_do_without_has_no_factor():
    journal = study()
    without = {r.configuration: r for r in journal}
    bf16, cache = changed(WINNER, variant="bf16"), changed(WINNER, kvCacheDtype="auto")
    prefix = changed(WINNER, enablePrefixCaching=False)
    journal = [
        without[BASELINE],
        without[WINNER],
        make_record(2, bf16, outcome="Infeasible", failure=OOM),
        make_record(3, cache, make_measurement(ttft=9.0)),
    ]
    found = {factor.technique: factor for factor in factors_of(journal).factors}
    assert found["WeightQuantization"].state == "Needed"
    assert "EngineOutOfMemory: CUDA out of memory" in found["WeightQuantization"].message
    assert found["KVCachePrecision"].state == "Needed"
    assert "no load holds all objectives" in found["KVCachePrecision"].message
    assert found["PrefixCaching"].state == "NotMeasured"
    assert str(prefix) in found["PrefixCaching"].message
    assert factors_of(journal).product is None
    assert factors_of(journal).interaction is None
    assert factors_of(journal).total.value == pytest.approx(2.88)


def test_a_winner_that_holds_nothing_at_the_target_has_no_factors():
    found = factors_of(study(), objectives=make_objectives(ttft=0.001))
    assert {factor.state for factor in found.factors} == {"NotMeasured"}
    assert found.total is None


#                 speed, throughput along the ladder
BASE = [(100, 100), (80, 320), (50, 800)]


@pytest.mark.parametrize(
    ("ours", "want"),
    [
        pytest.param([(130, 130), (104, 416), (65, 1040)], "PushesOut", id="better everywhere"),
        pytest.param([(100, 100), (96, 384), (60, 900)], "PushesOut", id="better in the middle, as far at the ends"),
        pytest.param([(160, 80), (120, 260), (70, 500)], "MovesAlong", id="crosses: faster and dearer"),
        pytest.param([(100, 100), (80, 320), (50, 800), (25, 1500)], "MovesAlong", id="only goes further"),
        pytest.param([(100, 100), (80, 320)], "MovesAlong", id="goes less far"),
        pytest.param([(70, 70), (56, 224), (35, 560)], "PullsIn", id="worse everywhere"),
        pytest.param([(101, 99), (80.5, 318), (50, 805)], "WithinNoise", id="the same"),
        pytest.param([(130, 130), (104, 416), (65, 500)], "MovesAlong", id="better and gives up the cheap end"),
    ],
)
def test_the_measured_curves_decide_what_a_technique_does(ours, want):
    ours, theirs = (measured(number, rows) for number, rows in ((1, ours), (0, BASE)))
    turned = {"PushesOut": "PullsIn", "PullsIn": "PushesOut"}
    assert compare(ours, theirs, Noise(0.01)) == want
    assert compare(theirs, ours, Noise(0.01)) == turned.get(want, want)


def test_rungs_of_one_curve_are_no_reason_to_call_two_curves_crossed():
    """A steep curve and the same, a little better: each has rungs that are much faster for a loss within noise."""
    theirs = measured(0, [(49, 1000), (42, 1090), (36, 1180), (31, 1280)])
    ours = measured(1, [(53, 1080), (45, 1180), (39, 1270), (33, 1380)])
    assert compare(ours, theirs, Noise(0.05)) == "WithinNoise"
    assert compare(ours, theirs, Noise(0.01)) == "PushesOut"


def measured(number, rows):
    rungs = [make_measurement(2**n, speed=s, per_gpu=t) for n, (s, t) in enumerate(rows)]
    tight = [
        replace(m, metrics={k: replace(e, low=e.value * 0.98, high=e.value * 1.02) for k, e in m.metrics.items()})
        for m in rungs
    ]
    return points([make_record(number, make_configuration(maxNumSeqs=number + 1), *tight)], OBJECTIVES)


curves = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=6)


@given(curves, curves, st.randoms(use_true_random=False))
def test_comparing_curves_is_antisymmetric_and_blind_to_order(one, other, random):
    ours, theirs = measured(1, one), measured(0, other)
    turned = {"PushesOut": "PullsIn", "PullsIn": "PushesOut"}
    found = compare(ours, theirs, Noise(0.02))
    assert compare(theirs, ours, Noise(0.02)) == turned.get(found, found)
    assert compare(random.sample(ours, len(ours)), theirs, Noise(0.02)) == found


POOLS = SearchSpace(
    (
        Parameter("mode", ("agg", "disagg")),
        Parameter("tensorParallelSize", (1, 2, 4), requires=Requirement("mode", ("agg",))),
        Parameter("maxNumSeqs", (16, 64), requires=Requirement("mode", ("agg",))),
        Parameter("decodeTensorParallelSize", (1, 2, 4), requires=Requirement("mode", ("disagg",))),
        Parameter("prefillReplicas", (1, 2), requires=Requirement("mode", ("disagg",))),
        Parameter("speculativeMethod", ("none", "ngram")),
        Parameter("numSpeculativeTokens", (1, 3), requires=Requirement("speculativeMethod", ("ngram",))),
    ),
)
ONE_POOL = make_configuration(mode="agg", tensorParallelSize=1, maxNumSeqs=64, speculativeMethod="none")
TWO_POOLS = make_configuration(
    mode="disagg", decodeTensorParallelSize=4, prefillReplicas=2, speculativeMethod="ngram", numSpeculativeTokens=3
)


def test_knobs_that_come_and_go_with_others_are_set_back_with_them():
    assert POOLS.violations(ONE_POOL) == POOLS.violations(TWO_POOLS) == ()
    found = {each.technique.name: each for each in leave_one_out(POOLS, TWO_POOLS, ONE_POOL)}
    assert list(found) == ["SpeculativeDecoding", "Disaggregation"]
    assert found["SpeculativeDecoding"].configuration == make_configuration(
        mode="disagg", decodeTensorParallelSize=4, prefillReplicas=2, speculativeMethod="none"
    )
    # One pool keeps what the decode pool had, and takes the rest from the baseline.
    assert found["Disaggregation"].configuration == make_configuration(
        mode="agg", tensorParallelSize=4, maxNumSeqs=64, speculativeMethod="ngram", numSpeculativeTokens=3
    )
    assert not any(each.partial or each.others for each in found.values())


def test_one_pool_that_does_not_fit_takes_the_nearest_that_does():
    fits = Rule(("mode", TP), lambda c: "too wide" if c.get("mode") == "agg" and c.get(TP) == 4 else None)
    space = replace(POOLS, rules=(fits,))
    found = {each.technique.name: each for each in leave_one_out(space, TWO_POOLS, ONE_POOL)}["Disaggregation"]
    assert found.configuration[TP] == 2
    assert found.others == (TP,)


def test_no_knob_belongs_to_two_techniques_and_every_one_of_the_engine_to_one():
    knobs = [knob for knobs in TECHNIQUES.values() for knob in knobs]
    assert len(knobs) == len(set(knobs))
    assert {parameter.name for parameter in CATALOGUE} <= set(knobs)


def test_a_knob_that_no_technique_claims_is_one_of_its_own():
    one = make_configuration(maxNumSeqs=1, maxNumBatchedTokens=9, blend=3)
    other = make_configuration(maxNumSeqs=2, gone=1)
    found = techniques_between(one, other)
    assert [(each.name, each.knobs) for each in found] == [
        ("BatchLimits", ("maxNumSeqs", "maxNumBatchedTokens")),
        ("blend", ("blend",)),
    ]
    assert techniques_between(one, one) == ()
