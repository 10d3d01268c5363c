import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.frontier import points
from frontier_tuner.objectives import Target
from frontier_tuner.selection import select
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
        (Target("MaxThroughput"), 64, "none"),
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
