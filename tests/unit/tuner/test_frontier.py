import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.frontier import dominates, feasible, frontier, hypervolume, points
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.trial import Failure
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record

OBJECTIVES = make_objectives()
axes = st.tuples(st.integers(1, 50), st.integers(1, 50))


def points_of(pairs):
    records = [
        make_record(n, make_configuration(maxNumSeqs=n), make_measurement(speed=s, per_gpu=t))
        for n, (s, t) in enumerate(pairs)
    ]
    return points(records, OBJECTIVES)


def places(found):
    return [(point.speed, point.throughput) for point in found]


@given(st.lists(axes, max_size=12))
def test_no_member_dominates_another_and_every_other_point_is_beaten_or_equalled(pairs):
    candidates = points_of(pairs)
    members = frontier(candidates)
    assert not any(dominates(one, other) for one in members for other in members)
    for point in candidates:
        beaten = any(dominates(member, point) for member in members)
        assert beaten or (point.speed, point.throughput) in places(members)
    assert len(set(places(members))) == len(members)


@given(st.lists(axes, max_size=10), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(pairs, random):
    candidates = list(points_of(pairs))
    shuffled = candidates.copy()
    random.shuffle(shuffled)
    assert frontier(shuffled) == frontier(candidates)


@given(st.lists(axes, max_size=10), axes)
def test_hypervolume_never_falls_and_dominated_points_add_nothing(pairs, extra):
    before, after = hypervolume(points_of(pairs)), hypervolume(points_of([*pairs, extra]))
    assert after >= before
    beaten = any(s >= extra[0] and t >= extra[1] for s, t in pairs)
    assert (after == before) is beaten


@given(st.lists(axes, max_size=10))
def test_hypervolume_is_the_area_counted_cell_by_cell(pairs):
    want = sum(any(s > x and t > y for s, t in pairs) for x in range(50) for y in range(50))
    assert hypervolume(points_of(pairs)) == pytest.approx(want)


def test_the_reference_point_cuts_the_area():
    assert hypervolume(points_of([(10, 10), (4, 20)]), (5, 5)) == pytest.approx(25)


def test_equal_points_are_kept_once_the_earliest_one():
    assert [point.trial for point in frontier(points_of([(5, 5), (5, 5)]))] == [0]


def test_infeasible_points_are_no_members():
    slow = make_record(0, make_configuration(maxNumSeqs=1), make_measurement(ttft=9.0, speed=99))
    fit = make_record(1, make_configuration(maxNumSeqs=2), make_measurement())
    assert [point.trial for point in frontier(points([slow, fit], OBJECTIVES))] == [1]


@pytest.mark.parametrize(
    ("ttft", "headroom", "want"),
    [(2.0, 0, True), (2.0001, 0, False), (1.8, 10, True), (1.81, 10, False), (None, 0, False)],
)
def test_latency_slos_hold_up_to_the_bound_less_headroom_and_never_when_unknown(ttft, headroom, want):
    verdict, missed = feasible(make_measurement(ttft=ttft), OBJECTIVES, headroom)
    assert verdict is want
    assert [violation.name for violation in missed] == ([] if want else ["ttft"])


def test_a_speed_is_bounded_below():
    objectives = Objectives((SLO("speed", "UserTokensPerSecond", 50, minimum=50.0),))
    assert feasible(make_measurement(speed=50), objectives)[0]
    assert not feasible(make_measurement(speed=54), objectives, 10)[0]
    _, missed = feasible(make_measurement(speed=40), objectives)
    assert missed[0].excess == pytest.approx(0.2)
    assert missed[0].message == "speed: UserTokensPerSecond/50 is 40 tokens/s, must hold 50 tokens/s"


@pytest.mark.parametrize(("cost", "want"), [(1.0, True), (1.1, False), (None, False)])
def test_the_cost_ceiling_has_no_headroom(cost, want):
    assert feasible(make_measurement(cost=cost), make_objectives(max_cost=1.0), 10)[0] is want


def test_invalid_rungs_are_no_points_and_never_feasible():
    invalid = make_measurement(valid=False)
    assert points([make_record(0, None, invalid)], OBJECTIVES) == ()
    assert feasible(invalid, OBJECTIVES) == (False, ())


@pytest.mark.parametrize(
    ("purposes", "want"),
    [(("Search", "Search"), 2), (("Confirmation", "Search"), 1), (("Search", "Confirmation"), 2)],
)
def test_confirmations_win_then_the_latest(purposes, want):
    records = [make_record(n, None, make_measurement(per_gpu=n), purpose=p) for n, p in enumerate(purposes, start=1)]
    assert [point.throughput for point in points(records, OBJECTIVES)] == [want]


def test_an_engine_that_does_not_last_has_no_points():
    died = Failure("EngineDied", "killed")
    records = [make_record(0), make_record(1, None, make_measurement(4), outcome="Infeasible", failure=died)]
    assert points(records, OBJECTIVES) == ()
