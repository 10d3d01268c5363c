from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.frontier import feasible, points
from frontier_tuner.measurement import COST, Estimate
from frontier_tuner.noise import Noise
from frontier_tuner.objectives import SLO, Objectives, Target
from frontier_tuner.policies import misses, rank, score
from frontier_tuner.selection import Confidence, confidence, select
from frontier_tuner.unlocks import figures
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record

#        sequences: speed, per GPU, TTFT, cost, GPUs
ENGINES = {
    1: (100, 100, 0.1, 4.0, 4),
    8: (80, 350, 0.3, 2.0, 1),
    64: (40, 500, 1.9, 1.0, 2),
    256: (20, 800, 2.5, 0.5, 1),
}


def measured(engines=None, objectives=None):
    records = [
        make_record(
            number,
            make_configuration(maxNumSeqs=sequences),
            make_measurement(sequences, speed=speed, per_gpu=per_gpu, ttft=ttft, cost=cost, total=per_gpu * gpus),
            gpus=gpus,
        )
        for number, (sequences, (speed, per_gpu, ttft, cost, gpus)) in enumerate((engines or ENGINES).items())
    ]
    return points(records, objectives or make_objectives())


@pytest.mark.parametrize(
    ("target", "want", "want_binding"),
    [
        (Target("MinCost"), 64, "ttft"),
        (Target("MinCost", headroom_percent=10), 8, "ttft"),
        (Target("MinLatency"), 1, "none"),
        (Target("MaxThroughput"), 64, "ttft"),
        (Target("Knee"), 8, "none"),
        (Target("AtUserSpeed", user_tokens_per_second=50), 8, "target"),
        (Target("AtUserSpeed", user_tokens_per_second=80), 8, "target"),
        (Target("AtCost", max_cost=2.5), 8, "target"),
        (Target("AtCost", max_cost=1.0), 64, "target"),
    ],
)
def test_policies_pick_their_point_and_name_what_binds(target, want, want_binding):
    selection = select(measured(), make_objectives(), target)
    assert selection.point.configuration["maxNumSeqs"] == want
    assert selection.binding == want_binding
    assert selection.runner_up is None or selection.runner_up.configuration != selection.point.configuration
    assert f"maxNumSeqs={want}" in selection.message


@given(st.permutations(range(4)))
def test_the_order_of_the_points_changes_nothing(order):
    everything = measured()
    for policy in ("MinCost", "MinLatency", "MaxThroughput", "Knee"):
        target = Target(policy)
        assert select([everything[i] for i in order], make_objectives(), target) == select(
            everything, make_objectives(), target
        )


def test_an_impossible_slo_is_never_relaxed_and_the_nearest_point_is_told():
    objectives = make_objectives(ttft=0.001)
    selection = select(measured({1: (100, 100, 0.084, 1.0, 1), 8: (80, 350, 0.3, 2.0, 1)}), objectives, Target())
    assert selection.point is None
    assert selection.runner_up is None
    assert selection.binding == "ttft"
    assert selection.nearest.configuration["maxNumSeqs"] == 1
    assert "84 ms" in selection.message
    assert "1 ms" in selection.message
    assert "maxNumSeqs=1 at 1 concurrent" in selection.message
    assert selection.violations[0].excess == pytest.approx(83)


def test_changed_objectives_select_again_from_the_same_points():
    everything = measured()
    assert select(everything, make_objectives(ttft=5.0), Target()).point.configuration["maxNumSeqs"] == 256
    assert select(everything, make_objectives(max_cost=0.1), Target()).binding == "cost"


def test_an_unknown_cost_never_meets_a_cost_target():
    everything = measured({1: (100, 100, 0.1, None, 1)})
    selection = select(everything, make_objectives(), Target("AtCost", max_cost=10.0))
    assert selection.point is None
    assert "is unknown" in selection.message


def test_nothing_measured_selects_nothing():
    selection = select([], make_objectives(), Target())
    assert (selection.point, selection.nearest, selection.message) == (None, None, "no point has been measured")


def test_a_policy_without_its_figure_is_refused():
    for policy, figure in (("AtUserSpeed", "userTokensPerSecond"), ("AtCost", "maxPerMillionOutputTokens")):
        with pytest.raises(ValueError, match=figure):
            select(measured(), make_objectives(), Target(policy))


# Properties: small whole numbers make ties and exact hits of a bound likely.
row = st.tuples(st.integers(1, 20), st.integers(1, 20), st.integers(1, 20), st.integers(1, 4))
rows = st.lists(row, min_size=1, max_size=8)
targets = st.builds(
    Target,
    st.sampled_from(("MinCost", "MinLatency", "MaxThroughput", "Knee", "AtUserSpeed", "AtCost")),
    st.integers(1, 20).map(float),
    st.integers(1, 20).map(lambda n: n / 4),
    st.integers(0, 50),
)
wanted = st.builds(
    lambda ttft, speed, cost: Objectives(
        (SLO("ttft", "TTFT", 95, maximum=ttft), SLO("speed", "UserTokensPerSecond", 50, minimum=speed)), cost
    ),
    st.integers(1, 20).map(lambda n: n / 10),
    st.integers(1, 20).map(float),
    st.none() | st.integers(1, 20).map(lambda n: n / 4),
)


def drawn(engines, objectives):
    records = [
        make_record(
            n,
            make_configuration(maxNumSeqs=n),
            make_measurement(speed=speed, per_gpu=per_gpu, ttft=ttft / 10, cost=5.0 / per_gpu),
            gpus=gpus,
        )
        for n, (speed, per_gpu, ttft, gpus) in enumerate(engines)
    ]
    return points(records, objectives)


@given(rows, wanted, targets, st.randoms(use_true_random=False))
def test_selection_is_invariant_under_permutation(engines, objectives, target, random):
    everything = list(drawn(engines, objectives))
    shuffled = everything.copy()
    random.shuffle(shuffled)
    assert select(shuffled, objectives, target) == select(everything, objectives, target)


@given(rows, wanted, targets)
def test_a_choice_always_holds_every_objective_with_headroom_and_without_one_nothing_does(engines, objectives, target):
    everything = drawn(engines, objectives)
    selection = select(everything, objectives, target)
    if selection.point is not None:
        assert feasible(selection.point.measured, objectives, target.headroom_percent) == (True, ())
        assert misses(selection.point, objectives, target) == ()
        assert selection.violations == ()
    else:
        assert all(misses(point, objectives, target) for point in everything)
        assert selection.violations == misses(selection.nearest, objectives, target)
        assert selection.violations[0].message in selection.message


@given(rows, row, wanted, targets.filter(lambda target: target.policy != "Knee"))
def test_adding_a_dominated_point_does_not_change_the_choice(engines, extra, objectives, target):
    everything = drawn([*engines, extra], objectives)
    selection = select(everything[:-1], objectives, target)
    chosen, added = selection.point, everything[-1]
    if chosen is None or added.speed > chosen.speed or added.throughput > chosen.throughput:
        return
    assert select(everything, objectives, target).point == chosen


@given(rows, st.integers(1, 3), st.integers(1, 3), wanted)
def test_adding_a_dominated_point_does_not_change_the_knee(engines, slower, dearer, objectives):
    everything = drawn(engines, objectives)
    chosen = select(everything, objectives, Target("Knee")).point
    if chosen is None:
        return
    speed, throughput = (int(chosen.speed) - slower, int(chosen.throughput) - dearer)
    if min(speed, throughput) >= 1:
        assert (
            select(drawn([*engines, (speed, throughput, 1, 1)], objectives), objectives, Target("Knee")).point == chosen
        )


@given(rows, wanted, targets.filter(lambda target: target.policy != "Knee"), st.integers(0, 40))
def test_more_headroom_never_gives_a_better_point(engines, objectives, target, more):
    everything = drawn(engines, objectives)
    before = select(everything, objectives, target).point
    after = select(everything, objectives, replace(target, headroom_percent=target.headroom_percent + more)).point
    if before is None:
        assert after is None
    elif after is not None:
        scored = score(everything, target)
        assert scored(after) <= scored(before)


@given(rows, wanted, targets)
def test_what_unlocks_a_better_point_does_so_and_nothing_less_does(engines, objectives, target):
    everything = drawn(engines, objectives)
    selection = select(everything, objectives, target)
    for unlock in selection.unlocks:
        relaxed, aimed = moved(objectives, target, unlock.objective, unlock.needed)
        assert unlock.point in [p for p in everything if not misses(p, relaxed, aimed)]
        assert unlock.relaxation > 0
        less = unlock.declared + 0.99 * (unlock.needed - unlock.declared)
        relaxed, aimed = moved(objectives, target, unlock.objective, less)
        found = select(everything, relaxed, aimed).point
        if target.policy != "Knee":
            assert found == selection.point
        if unlock.headroom_percent is not None:
            lower = replace(target, headroom_percent=unlock.headroom_percent)
            assert unlock.point in [p for p in everything if not misses(p, objectives, lower)]


def moved(objectives, target, name, bound):
    if name == "cost":
        return replace(objectives, max_cost=bound), target
    if name == "target" and target.policy == "AtUserSpeed":
        return objectives, replace(target, user_tokens_per_second=bound)
    if name == "target":
        return objectives, replace(target, max_cost=bound)
    slos = tuple(
        slo if slo.name != name else replace(slo, **{"maximum" if slo.maximum is not None else "minimum": bound})
        for slo in objectives.slos
    )
    return replace(objectives, slos=slos), target


@given(rows, wanted, targets)
def test_a_choice_is_the_first_of_the_ranking_and_no_better_point_lacks_a_cause(engines, objectives, target):
    everything = drawn(engines, objectives)
    selection = select(everything, objectives, target)
    if selection.point is None:
        return
    fit = [point for point in everything if not misses(point, objectives, target)]
    assert rank(fit, target)[0] == selection.point
    scored = score(everything, target)
    better = [point for point in everything if scored(point)[0] > scored(selection.point)[0]]
    if target.policy != "Knee":
        assert (selection.binding == "none") is not bool(better)


def test_throughput_counts_for_one_gpu_whatever_a_gpu_costs():
    prices = {1: (50, 400, 0.5, 1.0, 1), 2: (50, 600, 0.5, 2.5, 8)}
    assert select(measured(prices), make_objectives(), Target("MaxThroughput")).point.gpus == 8
    assert select(measured(prices), make_objectives(), Target("MinCost")).point.gpus == 1
    assert select(measured(prices), make_objectives(), Target("AtUserSpeed", 50)).point.gpus == 1


def test_at_one_price_the_lowest_cost_is_the_highest_throughput():
    priced = make_objectives(price_per_gpu_hour=2.0)
    everything = measured(objectives=priced)
    low, high = (select(everything, priced, Target(policy)) for policy in ("MinCost", "MaxThroughput"))
    assert low.point == high.point


def test_the_explanation_says_what_to_relax_by_how_much_and_what_it_gives():
    selection = select(measured(), make_objectives(), Target("MinCost"))
    unlock = selection.unlocks[0]
    assert (unlock.objective, unlock.declared, unlock.needed) == ("ttft", 2.0, 2.5)
    assert unlock.relaxation == pytest.approx(0.25)
    assert unlock.point.configuration["maxNumSeqs"] == 256
    assert unlock.gain == pytest.approx(1.0)
    assert "ttft at 2.5 s instead of 2 s would give maxNumSeqs=256" in selection.message
    assert "100.0 % better in cost per million output tokens" in selection.message


def test_a_point_that_only_lacks_headroom_says_which_headroom_would_do():
    selection = select(measured(), make_objectives(), Target("MinCost", headroom_percent=10))
    unlock = selection.unlocks[0]
    assert (unlock.objective, unlock.headroom_percent) == ("ttft", 5)
    assert unlock.needed == pytest.approx(1.9 / 0.9)
    assert "ttft at 2.112 s instead of 2 s, or a headroom of 5 %, would give maxNumSeqs=64" in selection.message


def test_where_only_several_objectives_together_keep_a_better_point_away_the_worst_binds():
    engines = {1: (50, 400, 0.5, 1.0, 1), 2: (10, 900, 6.0, 0.5, 1)}
    objectives = Objectives(
        (SLO("ttft", "TTFT", 95, maximum=2.0), SLO("speed", "UserTokensPerSecond", 50, minimum=40.0))
    )
    selection = select(measured(engines, objectives), objectives, Target())
    assert (selection.binding, selection.unlocks) == ("ttft", ())
    assert "ttft and others forbid the next better point" in selection.message


def test_the_margin_to_the_runner_up_is_told_and_whether_it_is_noise():
    close = {1: (50, 400, 0.5, None, 1), 2: (50, 396, 0.5, None, 1)}
    selection = select(measured(close), make_objectives(), Target())
    assert selection.margin.value == pytest.approx(400 / 396)
    assert not selection.margin.above
    assert "1.0 % behind, within noise" in selection.message
    far = {1: (50, 400, 0.5, None, 1), 2: (50, 200, 0.5, None, 1)}
    assert select(measured(far), make_objectives(), Target()).margin.above


def test_a_point_that_is_as_good_within_noise_and_much_faster_is_named():
    engines = {1: (80, 396, 0.5, None, 1), 2: (40, 400, 0.5, None, 1)}
    selection = select(measured(engines), make_objectives(), Target())
    assert selection.point.configuration["maxNumSeqs"] == 2
    assert selection.alternative.configuration["maxNumSeqs"] == 1
    assert "as good within noise, with 100 % more tokens/s/user, is maxNumSeqs=1" in selection.message
    assert select(measured(engines), make_objectives(), Target("Knee")).alternative is None


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"a": 1, "b": 2}, "the same configuration at 8 concurrent"),
        ({"a": 1, "b": 3}, "b=3 at 8 concurrent"),
        ({"a": 1}, "the same without b at 8 concurrent"),
        ({"a": 2, "c": 4}, "a=2 c=4 without b at 8 concurrent"),
    ],
)
def test_beside_a_known_configuration_only_what_differs_is_named(values, want):
    (point,) = points([make_record(0, make_configuration(**values))], make_objectives())
    assert figures(point, make_configuration(a=1, b=2)).startswith(want)


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param(0.5, 1.0, id="far inside"),
        pytest.param(2.0, 0.5, id="on the bound"),
        pytest.param(2.1, 0.151, id="beyond it"),
        pytest.param(None, 0.0, id="unknown"),
    ],
)
def test_how_sure_a_bound_holds_follows_from_the_interval(value, want):
    found = confidence(make_measurement(ttft=value), make_objectives(), Noise(0.0))
    assert found.objective == "ttft"
    assert found.probability == pytest.approx(want, abs=0.02)


def test_the_least_certain_objective_is_named_and_noise_between_starts_makes_it_less_certain():
    objectives = Objectives((SLO("ttft", "TTFT", 95, maximum=2.0),), max_cost=1.0)
    measurement = make_measurement(ttft=0.1, cost=0.95)
    assert confidence(measurement, objectives, Noise(0.0)).objective == "cost"
    sure, less = (confidence(measurement, objectives, Noise(start)).probability for start in (0.0, 0.2))
    assert sure > less > 0.5
    assert confidence(measurement, Objectives()) is None


def test_an_exact_value_holds_for_sure_or_not_at_all():
    exact = make_measurement()
    at = replace(exact, metrics={"TTFT/95": Estimate(2.0, 2.0, 2.0, 1)})
    assert confidence(at, make_objectives(), Noise(0.0)) == Confidence("ttft", 1.0)
    assert confidence(at, make_objectives(1.9), Noise(0.0)) == Confidence("ttft", 0.0)


def test_case_4_no_configuration_meets_the_slo_and_the_nearest_says_value_and_configuration():
    engines = {n: (100 / n, 100 * n, 0.084 * n, 1.0, 1) for n in range(1, 13)}
    objectives = make_objectives(ttft=0.001)
    selection = select(measured(engines, objectives), objectives, Target())
    assert (selection.point, selection.runner_up, selection.confidence) == (None, None, None)
    assert "TTFT/95 is 84 ms, must hold 1 ms" in selection.message
    assert "nearest is maxNumSeqs=1 at 1 concurrent" in selection.message
    assert selection.unlocks[0].needed == pytest.approx(0.084)
    assert objectives == make_objectives(ttft=0.001)


def test_case_73_without_a_feasible_trial_the_least_violating_is_named():
    engines = {1: (100, 100, 9.0, 1.0, 1), 2: (90, 120, 3.0, 1.0, 1), 3: (80, 140, 7.0, 1.0, 1)}
    selection = select(measured(engines), make_objectives(), Target())
    assert selection.point is None
    assert selection.nearest.configuration["maxNumSeqs"] == 2
    assert selection.binding == "ttft"


def test_case_53_a_point_without_throughput_has_no_cost_and_is_never_the_cheapest():
    engines = {1: (50, 0.0, 0.5, None, 1), 2: (50, 10, 0.5, 3.0, 1)}
    selection = select(measured(engines), make_objectives(), Target())
    assert selection.point.configuration["maxNumSeqs"] == 2
    assert selection.point.metrics[COST].value == 3.0
