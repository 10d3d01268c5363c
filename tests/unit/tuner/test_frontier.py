import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.axes import COST, PLANE, QUALITY, QUALITY_AXIS, SPEED, THROUGHPUT
from frontier_tuner.frontier import (
    SPEED_KEY,
    beats,
    dominates,
    feasible,
    frontier,
    hypervolume,
    non_dominated,
    points,
)
from frontier_tuner.measurement import THROUGHPUT_PER_GPU, Estimate
from frontier_tuner.noise import Noise
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.trial import Failure
from frontier_tuner.volumes import volume
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record

OBJECTIVES = make_objectives()
EXACT = Noise(start=0.0)
axes = st.tuples(st.integers(1, 50), st.integers(1, 50))
widths = st.floats(0.0, 0.3)
uncertain = st.tuples(st.integers(1, 50), widths, st.integers(1, 50), widths)
noises = st.sampled_from((EXACT, Noise(), Noise(0.1)))


def points_of(pairs):
    records = [
        make_record(n, make_configuration(maxNumSeqs=n), make_measurement(speed=s, per_gpu=t))
        for n, (s, t) in enumerate(pairs)
    ]
    return points(records, OBJECTIVES)


def uncertain_points(rows):
    """Points with intervals of their own: (speed, its half width, throughput, its half width)."""
    return tuple(
        replace(
            point,
            metrics={
                SPEED_KEY: Estimate(s, s * (1 - ds), s * (1 + ds), 9),
                THROUGHPUT_PER_GPU: Estimate(t, t * (1 - dt), t * (1 + dt), 9),
            },
        )
        for point, (s, ds, t, dt) in zip(points_of([(s, t) for s, _, t, _ in rows]), rows, strict=True)
    )


def cube(rows):
    """Points with a quality and a cost beside the plane."""
    return tuple(
        replace(
            point,
            metrics={
                **point.metrics,
                QUALITY: Estimate(q, q, q, 1),
                COST.key: Estimate(c, c, c, 1),
            },
        )
        for point, (_, _, q, c) in zip(points_of([row[:2] for row in rows]), rows, strict=True)
    )


def places(found):
    return [(point.speed, point.throughput) for point in found]


@given(st.lists(axes, max_size=12))
def test_no_member_dominates_another_and_every_other_point_is_beaten_or_equalled(pairs):
    candidates = points_of(pairs)
    members = frontier(candidates, noise=None)
    assert not any(dominates(one, other) for one in members for other in members)
    for point in candidates:
        beaten = any(dominates(member, point) for member in members)
        assert beaten or (point.speed, point.throughput) in places(members)
    assert len(set(places(members))) == len(members)


@given(st.lists(uncertain, max_size=12), noises)
def test_by_intervals_no_member_beats_another_and_every_other_point_is_beaten_by_a_member_or_equalled(rows, noise):
    candidates = uncertain_points(rows)
    members = frontier(candidates, noise=noise)
    assert not any(beats(one, other, noise) for one in members for other in members)
    for point in candidates:
        beaten = any(beats(member, point, noise) for member in members)
        assert beaten or (point.speed, point.throughput) in places(members)
    assert len(set(places(members))) == len(members)
    assert bool(members) is bool(rows)


@given(st.lists(uncertain, max_size=8), noises)
def test_two_points_never_beat_each_other_nor_do_more_in_a_circle(rows, noise):
    candidates = uncertain_points(rows)
    reached = {(i, j) for i, a in enumerate(candidates) for j, b in enumerate(candidates) if beats(a, b, noise)}
    for k, i, j in product(range(len(candidates)), repeat=3):
        if (i, k) in reached and (k, j) in reached:
            reached.add((i, j))
    assert not any((i, i) in reached for i in range(len(candidates)))


@given(st.lists(uncertain, max_size=10), noises, st.randoms(use_true_random=False))
def test_permuting_the_input_changes_nothing(rows, noise, random):
    candidates = list(uncertain_points(rows))
    shuffled = candidates.copy()
    random.shuffle(shuffled)
    assert frontier(shuffled, noise=noise) == frontier(candidates, noise=noise)
    assert frontier(shuffled, noise=None) == frontier(candidates, noise=None)
    assert hypervolume(shuffled) == pytest.approx(hypervolume(candidates))


@given(st.lists(uncertain, min_size=1, max_size=10), uncertain, noises)
def test_adding_a_dominated_point_changes_nothing(rows, extra, noise):
    *candidates, added = uncertain_points([*rows, extra])
    by_values, by_intervals = frontier(candidates, noise=None), frontier(candidates, noise=noise)
    if any(dominates(member, added) for member in by_values):
        assert frontier([*candidates, added], noise=None) == by_values
        assert hypervolume([*candidates, added]) == pytest.approx(hypervolume(candidates))
    if any(beats(member, added, noise) for member in by_intervals):
        assert frontier([*candidates, added], noise=noise) == by_intervals


@given(st.lists(axes, max_size=12))
def test_without_noise_both_rules_are_the_same(pairs):
    exact = [(s, 0.0, t, 0.0) for s, t in pairs]
    candidates = uncertain_points(exact)
    assert frontier(candidates, noise=EXACT) == frontier(candidates, noise=None)


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        pytest.param([(100, 0.01, 100, 0.1), (120, 0.01, 97, 0.1)], [1], id="a gain beyond noise for a loss within"),
        pytest.param([(100, 0.01, 100, 0.01), (120, 0.01, 90, 0.01)], [0, 1], id="a trade"),
        pytest.param([(100, 0.1, 100, 0.1), (103, 0.1, 104, 0.1)], [0, 1], id="near ties are both kept"),
        pytest.param([(100, 0.1, 100, 0.1), (130, 0.1, 130, 0.1)], [1], id="better on both"),
        pytest.param([(100, 0.1, 100, 0.1), (100, 0.2, 100, 0.2)], [0], id="equal values are one point, the earliest"),
        pytest.param(
            [(100, 0.02, 100, 0.02), (96, 0.0, 102, 0.0), (92, 0.0, 104, 0.0), (88, 0.0, 106, 0.0)],
            [0, 2, 3],
            id="small steps do not drive out the far end",
        ),
    ],
)
def test_by_intervals_a_point_leaves_only_when_a_member_is_better_beyond_noise(rows, want):
    members = frontier(uncertain_points(rows), noise=EXACT)
    assert sorted(point.trial for point in members) == want


def test_the_noise_between_starts_is_not_counted_between_rungs_of_one_start():
    measured = [make_measurement(4, speed=100, per_gpu=100), make_measurement(8, speed=93, per_gpu=100.5)]
    tight = [
        replace(m, metrics={k: replace(e, low=e.value * 0.99, high=e.value * 1.01) for k, e in m.metrics.items()})
        for m in measured
    ]
    one_start = points([make_record(0, None, *tight)], OBJECTIVES)
    two_starts = points(
        [make_record(n, make_configuration(maxNumSeqs=n + 1), m) for n, m in enumerate(tight)], OBJECTIVES
    )
    assert places(frontier(one_start, noise=Noise(0.05))) == [(100, 100)]
    assert places(frontier(two_starts, noise=Noise(0.05))) == [(100, 100), (93, 100.5)]


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


@given(st.lists(axes, min_size=1, max_size=10), st.data(), st.floats(0.01, 100), st.floats(0.01, 100))
def test_a_ratio_of_hypervolumes_does_not_depend_on_the_units(pairs, data, speed, throughput):
    some = data.draw(st.lists(st.sampled_from(pairs), min_size=1))
    scaled = [[(s * speed, t * throughput) for s, t in chosen] for chosen in (some, pairs)]
    want = hypervolume(points_of(some)) / hypervolume(points_of(pairs))
    assert hypervolume(points_of(scaled[0])) / hypervolume(points_of(scaled[1])) == pytest.approx(want)
    assert want <= 1


small = st.lists(st.tuples(*[st.integers(0, 6)] * 4), max_size=8)


@given(small)
def test_in_more_dimensions_hypervolume_is_counted_cell_by_cell_too(rows):
    want = sum(any(all(v > c for v, c in zip(row, cell, strict=True)) for row in rows) for cell in CELLS)
    assert volume(rows, (0,) * 4) == pytest.approx(want)
    assert volume([row[:1] for row in rows], (0,)) == max((row[0] for row in rows), default=0)


CELLS = list(product(range(6), repeat=4))


@given(st.lists(st.tuples(*[st.floats(0.1, 9)] * 3), min_size=1, max_size=20))
def test_hypervolume_agrees_with_another_implementation(rows):
    np = pytest.importorskip("numpy")
    theirs = pytest.importorskip("optuna._hypervolume").compute_hypervolume
    assert volume(rows, (0, 0, 0)) == pytest.approx(theirs(-np.array(rows), np.zeros(3)))


def test_the_reference_point_cuts_the_area():
    assert hypervolume(points_of([(10, 10), (4, 20)]), (5, 5)) == pytest.approx(25)


def test_cost_and_quality_are_axes_and_less_cost_is_more():
    #         speed, throughput, quality, cost
    candidates = cube([(10, 10, 90, 2.0), (10, 10, 100, 1.0), (20, 5, 90, 4.0)])
    axes = (SPEED, COST, QUALITY_AXIS)
    assert [point.trial for point in frontier(candidates, noise=None, axes=axes)] == [2, 1]
    assert [point.trial for point in frontier(candidates, noise=EXACT, axes=axes)] == [2, 1]
    assert hypervolume(candidates, (0, 5.0, 0), axes) == pytest.approx(10 * 4 * 100 + 10 * 1 * 90)
    assert dominates(candidates[1], candidates[0], axes)


def test_points_that_lack_an_axis_are_left_out_of_its_frontier():
    candidates = [*cube([(10, 10, 90, 2.0)]), *points_of([(5, 5), (99, 99)])[1:]]
    assert [point.trial for point in frontier(candidates, axes=(SPEED, QUALITY_AXIS))] == [0]
    assert hypervolume(candidates, axes=(SPEED, QUALITY_AXIS)) == pytest.approx(900)


@given(st.lists(st.tuples(*[st.integers(1, 5)] * 4), max_size=10))
def test_any_number_of_axes_gives_the_points_that_no_other_dominates(rows):
    axes = (SPEED, THROUGHPUT, QUALITY_AXIS, COST)
    candidates = cube([tuple(map(float, row)) for row in rows])
    want = {
        (p.speed, p.throughput, p.metrics[QUALITY].value, p.metrics[COST.key].value)
        for p in candidates
        if not any(dominates(q, p, axes) for q in candidates)
    }
    members = non_dominated(candidates, axes)
    found = [(p.speed, p.throughput, p.metrics[QUALITY].value, p.metrics[COST.key].value) for p in members]
    assert set(found) == want
    assert len(found) == len(want)


@pytest.mark.parametrize(
    ("reference", "axes", "words"),
    [(None, (SPEED, COST), "no natural worst value"), ((1.0,), PLANE, "one value for each of 2 axes, not 1")],
)
def test_a_reference_must_suit_the_axes(reference, axes, words):
    with pytest.raises(ValueError, match=words):
        hypervolume(points_of([(5, 5)]), reference, axes)


def test_throughput_of_nothing_is_beaten_by_any_and_has_no_volume():
    candidates = points_of([(10, 0), (10, 5)])
    assert [point.trial for point in frontier(candidates)] == [1]
    assert hypervolume(candidates[:1]) == 0
    assert math.isfinite(hypervolume(candidates))


def test_equal_points_are_kept_once_the_earliest_one():
    for noise in (None, Noise()):
        assert [point.trial for point in frontier(points_of([(5, 5), (5, 5)]), noise=noise)] == [0]


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


def test_costs_are_counted_at_the_price_of_today():
    old = make_record(0, make_configuration(maxNumSeqs=1), make_measurement(per_gpu=1000, cost=9.0))
    priced = make_objectives(max_cost=1.0, price_per_gpu_hour=3.6)
    (point,) = points([old], priced)
    cost = point.metrics[COST.key]
    assert (cost.value, cost.low, cost.high) == pytest.approx((1.0, 1 / 1.1, 1 / 0.9))
    assert cost.query == "1000.0 / (up)"
    assert point.feasible
    assert not points([old], make_objectives(max_cost=1.0))[0].feasible
    asleep = make_record(1, None, make_measurement(per_gpu=0))
    assert points([asleep], priced)[0].violations[0].value is None


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
