"""The search: what a curve adds, what dies, which rung is worth its time, and which start comes next."""

import math

import numpy as np
import pytest

from frontier_tuner.frontier import SPEED_KEY
from frontier_tuner.measurement import THROUGHPUT_PER_GPU, Load
from frontier_tuner.objectives import SLO, Objectives, Target
from frontier_tuner.search import gain, starts
from frontier_tuner.search.goal import Bound, Goal
from frontier_tuner.search.kernel import KnobKernel
from frontier_tuner.search.proposing import goal_of, next_start
from frontier_tuner.search.rungs import Ladder
from frontier_tuner.search.search import Search, Started
from frontier_tuner.trial import Failure
from support.tuner_builders import make_measurement, make_record, make_space
from unit.tuner.test_search_surrogate import LOAD, grid, truth

KEYS = (SPEED_KEY, THROUGHPUT_PER_GPU, "TTFT/95")
FREE = Goal(KEYS, (), 1)
BOUND = Goal(KEYS, (Bound(2, math.log(2.0), below=True), Bound(0, math.log(50.0), below=False)), 1)


def curve(*points):
    """Return (1, L, 3) logarithms of (speed, throughput, time to first token) points."""
    return np.log(np.array([points], dtype=float))


ROUGH = curve((100, 10, 0.5), (80, 30, 1.0), (40, 50, 1.5), (20, 60, 3.0))


def test_the_target_is_worth_its_best_level_that_holds_all_bounds():
    scale = np.array([1.0, 1.0])
    assert gain.values(FREE, ROUGH, scale) == pytest.approx([60])
    assert gain.values(BOUND, ROUGH, scale) == pytest.approx([30])
    assert gain.values(Goal(KEYS, BOUND.bounds, 0), ROUGH, scale) == pytest.approx([100])
    assert gain.values(Goal(KEYS, (), None), ROUGH, np.array([100.0, 60.0])) == pytest.approx([0.8 + 0.5])
    nothing = Goal(KEYS, (Bound(2, math.log(0.1), below=True),), 1)
    assert gain.values(nothing, ROUGH, scale) == pytest.approx([0])


def test_a_bound_on_speed_does_not_cut_the_frontier_and_one_on_the_first_token_does():
    speeds = np.array([10.0, 30.0, 60.0, 90.0, 120.0])
    assert gain.heights(FREE, ROUGH, speeds)[0] == pytest.approx([60, 50, 30, 10, 0])
    assert gain.heights(BOUND, ROUGH, speeds)[0] == pytest.approx([50, 50, 30, 10, 0])


def test_levels_that_do_not_exist_count_for_nothing():
    holed = ROUGH.copy()
    holed[0, 2] = np.nan
    assert gain.heights(FREE, holed, np.array([10.0, 30.0, 60.0]))[0] == pytest.approx([60, 30, 30])


def test_nothing_reached_is_a_standing_of_nothing():
    here = gain.standing(BOUND, np.zeros((0, 4, 3)), 100.0, 50.0)
    assert (here.best, here.area) == (0, 0)
    assert here.speeds[-1] == 100
    assert len(here.speeds) == gain.GRID


def test_a_failed_start_makes_its_like_less_likely_and_a_single_one_condemns_nothing():
    kernel, mean = KnobKernel(grid()), np.full(16, 2.0)
    before = starts.chance(kernel, mean, np.array([], dtype=np.int64), np.array([]))
    once = starts.chance(kernel, mean, np.array([0]), np.array([0.0]))
    often = starts.chance(kernel, mean, np.array([0, 1, 2, 3]), np.zeros(4))
    # 0 to 3 share a degree that the others do not have; 15 differs from them in every knob.
    assert (once < before).all()
    assert once[1] < once[15]
    assert often[:4].max() < 0.5
    assert once[0] > often[0]
    fine = starts.chance(kernel, mean, np.arange(4), np.ones(4))
    assert (fine > once).all()
    assert fine[:4].min() > fine[4:].max()
    assert fine.max() <= 1 - starts.FLAKES


def make_ladder(goal=BOUND, others=None, expected=None, levels=range(8)):
    curves = np.zeros((0, 8, 3)) if others is None else others
    flat = np.tile(np.log([60.0, 30.0, 1.0]), (8, 1)) if expected is None else expected
    return Ladder(goal, list(levels), flat, gain.standing(goal, curves, 120.0, 80.0))


def climb(ladder, answer):
    measured = {}
    while (level := ladder.following(measured)) is not None:
        assert level not in measured
        measured[level] = np.log(answer(level))
    return measured


def rising(level):
    """Return a curve that loses the bound on the first token between levels 4 and 5."""
    return [120 / (1 + 0.3 * level), 10 * (1 + level) ** 0.8, 0.3 * 1.5**level]


def test_a_ladder_climbs_coarsely_and_then_closes_in_on_the_crossing():
    measured = climb(make_ladder(), rising)
    assert list(measured)[:2] == [0, 3]
    assert {4, 5} <= set(measured)


def test_a_ladder_that_is_beaten_everywhere_is_left_after_its_least_rungs():
    better = np.log(np.array([[rising(level) for level in range(8)]]) * [4, 4, 0.1])
    assert len(climb(make_ladder(others=better), rising)) <= 3
    assert len(climb(make_ladder(), rising)) > 3


def test_a_ladder_without_levels_has_no_rung():
    assert make_ladder(levels=[]).following({}) is None


def search_of(goal=FREE, seed=0):
    return Search(grid(), goal, seed)


def history_of(places):
    values = truth()
    return [Started(place, tuple(range(len(LOAD))), values[place]) for place in places]


def test_the_best_is_found_within_half_of_the_candidates():
    values = truth()
    best = int(values[..., 1].max(1).argmax())
    search, tried = search_of(), []
    while best not in tried:
        tried.append(search.choose(history_of(tried)).candidate)
    assert len(tried) <= 8
    assert len(set(tried)) == len(tried)


def test_the_same_history_gives_the_same_choice_in_a_new_search():
    history = history_of([0, 5, 10])
    assert search_of().choose(history) == search_of().choose(history)
    warm = search_of()
    for known in range(4):
        warm.choose(history[:known])
    assert warm.choose(history) == search_of().choose(history)


def test_a_batch_spreads_and_repeats_nothing():
    search, pending = search_of(), []
    for _ in range(6):
        pending.append(search.choose(history_of([0]), pending).candidate)
    assert len({0, *pending}) == 7


def test_what_is_known_to_die_is_not_started_again():
    search = search_of()
    history = [*history_of([0, 5]), Started(15, died=True)]
    assert search.choose(history, known=[15]).candidate not in {0, 5, 15}
    everything = [place for place in range(16) if place != 7]
    assert search.choose(history_of([0]), known=everything).candidate == 7


SPACE = make_space()
LOADS = tuple(Load("Concurrency", value) for value in (1.0, 4.0, 16.0))


def test_objectives_become_bounds_with_the_targets_headroom_and_price():
    objectives = Objectives(
        (SLO("ttft", "TTFT", 95, maximum=2.0), SLO("speed", "UserTokensPerSecond", 5, minimum=20.0)), max_cost=0.5
    )
    goal = goal_of(objectives, Target("AtUserSpeed", user_tokens_per_second=60.0, headroom_percent=10), price=3.6)
    assert goal.keys == (SPEED_KEY, THROUGHPUT_PER_GPU, "TTFT/95", "UserTokensPerSecond/5")
    assert [(b.metric, round(math.exp(b.edge), 6), b.below) for b in goal.bounds] == [
        (2, 1.8, True), (3, 22.0, False), (0, 60.0, False), (1, 2000.0, False),
    ]  # fmt: skip
    assert [goal.keys[b.metric] for b in goal.frontier] == ["TTFT/95"]
    assert goal_of(objectives, Target("MinLatency")).axis == 0
    assert goal_of(objectives, Target("Knee")).axis is None


def ask(journal, pending=()):
    return next_start(
        SPACE, journal, pending, objectives=Objectives(), target=Target(), loads=LOADS, seed=1, prior=None
    )  # fmt: skip


def done(number, configuration, **over):
    rung = make_measurement(speed=50, per_gpu=100)
    return make_record(number, configuration, rung, **over)


def test_a_failure_of_the_surroundings_teaches_nothing_and_one_of_the_configuration_does():
    first, second, *_ = SPACE.configurations()
    lost = done(1, second, outcome="Failed", failure=Failure("PodLost", "gone"))
    dead = make_record(1, second, outcome="Infeasible", failure=Failure("EngineOutOfMemory", "out of memory"))
    base = [done(0, first)]
    assert ask([*base, dead]).configuration not in {first, second}
    assert ask([*base, lost]).configuration not in {first, second}
    assert ask([*base, dead]).chance < ask(base).chance


def test_a_proposal_is_a_valid_member_that_is_neither_known_nor_under_way():
    members = SPACE.configurations()
    start = ask([done(0, members[0])], members[1:-1])
    assert start.configuration == members[-1]
    assert start.gain >= 0
    assert 0 < start.chance <= 1
