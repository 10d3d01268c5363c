import numpy as np
import pytest

from frontier_tuner.bench.arena import StartLog
from frontier_tuner.bench.goal import GoalError, make_goal
from frontier_tuner.bench.report import marks, rows
from frontier_tuner.bench.score import Scorer, hypervolume
from support.plant_tables import row, small_rows, table_of

SLOS = ("TTFT<=500ms", "UserTokensPerSecond>=50")


@pytest.fixture
def table(tmp_path):
    return table_of(tmp_path, small_rows())


def start(index, levels, outcome="Complete"):
    return StartLog(index, "", outcome, levels, 0.5)


def test_the_area_of_two_steps():
    # 120 wide up to 40, then 50 wide from there to 90.
    assert hypervolume(np.array([120.0, 50.0, 40.0]), np.array([40.0, 90.0, 60.0])) == 120 * 40 + 50 * 50


def test_figures_are_those_computed_by_hand(table):
    # Within 500 ms: (60, 30), (50, 90), (120, 40), (80, 60); the frontier lacks the first.
    whole = 120 * 40 + 80 * 20 + 50 * 30
    scorer = Scorer(table, make_goal("MaxThroughput", SLOS))
    log = [start(2, [], "Infeasible"), start(1, [0]), start(0, [0, 2]), start(0, [1])]
    first, second, third, fourth = scorer.score(log, (1, 2, 3, 4)).checkpoints
    assert (first.hypervolume, first.target, first.died) == (0, 0, 1)
    assert second.hypervolume == pytest.approx(120 * 40 / whole)
    assert second.target == pytest.approx(40 / 90)
    assert third.hypervolume == pytest.approx(120 * 40 / whole)
    assert fourth.hypervolume == pytest.approx((120 * 40 + 50 * 50) / whole)
    assert fourth.target == 1
    # A crash of one GPU, then 2 GPUs with a rung, 4 with two and 4 with one.
    hours = [4 / 60, 2 * 9.5 / 60, 4 * 11 / 60, 4 * 9.5 / 60]
    assert [point.gpu_hours for point in (first, second, third, fourth)] == pytest.approx(np.cumsum(hours))


def test_a_rung_that_misses_an_slo_counts_for_nothing(table):
    score = Scorer(table, make_goal("MaxThroughput", SLOS)).score([start(0, [2])], (1,))
    assert (score.checkpoints[0].hypervolume, score.checkpoints[0].target) == (0, 0)


def test_a_bound_on_speed_does_not_cut_the_frontier(table):
    slow = Scorer(table, make_goal("MaxThroughput", ("TTFT<=500ms",)))
    fast = Scorer(table, make_goal("MaxThroughput", ("TTFT<=500ms", "UserTokensPerSecond>=70")))
    log = [start(0, [1])]
    assert slow.score(log, (1,)).checkpoints[0].hypervolume == fast.score(log, (1,)).checkpoints[0].hypervolume
    assert (slow.score(log, (1,)).checkpoints[0].target, fast.score(log, (1,)).checkpoints[0].target) == (1, 0)


def test_a_log_that_measured_everything_is_perfect(table):
    scorer = Scorer(table, make_goal("MinLatency", SLOS))
    score = scorer.score([start(0, [0, 1, 2]), start(1, [0, 1])], (2,))
    assert score.checkpoints[0].hypervolume == pytest.approx(1)
    assert score.checkpoints[0].target == pytest.approx(1)


@pytest.mark.parametrize(
    ("policy", "figures", "best"),
    [
        ("MinCost", {}, 90),
        ("MaxThroughput", {}, 90),
        ("MinLatency", {}, 120),
        ("AtUserSpeed", {"user_tokens_per_second": 70}, 60),
        # At 3.6 a GPU-hour a million tokens costs 1000 over the throughput, so at most 20 asks for 50 or more.
        ("AtCost", {"max_cost": 20.0, "gpu_price": 3.6}, 80),
        # From (50, 90) to (120, 40): (80, 60) lies at 30/70 + 20/50 = 0.83, the ends at 1.
        ("Knee", {}, 1.0),
    ],
)
def test_the_best_is_that_of_the_policy(table, policy, figures, best):
    assert Scorer(table, make_goal(policy, SLOS, **figures)).best == pytest.approx(best)


def test_a_knee_that_sticks_out_beats_the_ends(tmp_path):
    rows_ = [row("a", 1, 10, 100, 10), row("a", 2, 10, 90, 90), row("a", 4, 10, 10, 100)]
    scorer = Scorer(table_of(tmp_path, rows_), make_goal("Knee", ()))
    assert scorer.best == pytest.approx(2 * 80 / 90)
    assert scorer.score([start(0, [0])], (1,)).checkpoints[0].target == pytest.approx(1 / scorer.best)


def test_hours_to_the_target_end_with_the_start_that_reached_it(table):
    scorer = Scorer(table, make_goal("MaxThroughput", SLOS))
    assert scorer.score([start(1, [0]), start(0, [1]), start(1, [1])], (3,)).hours_to_target == pytest.approx(57 / 60)
    assert scorer.score([start(1, [0, 1])], (1,)).hours_to_target is None


def test_a_log_that_ends_early_stands_still(table):
    score = Scorer(table, make_goal("MaxThroughput", SLOS)).score([start(0, [1])], (1, 8))
    one, eight = score.checkpoints
    assert (one.hypervolume, one.gpu_hours) == (eight.hypervolume, eight.gpu_hours)
    assert eight.starts == 8


def test_nothing_to_find_is_an_error(table):
    with pytest.raises(GoalError, match=r"no point of .*plant.csv holds TTFT<=1ms, UserTokensPerSecond>=50"):
        Scorer(table, make_goal("MaxThroughput", ("TTFT<=1ms", "UserTokensPerSecond>=50")))


@pytest.mark.parametrize(
    ("starts", "expected"),
    [(4, (4,)), (8, (8,)), (24, (8, 16, 24)), (40, (8, 16, 24, 32, 40)), (48, (8, 16, 24, 32, 48))],
)
def test_a_run_is_judged_at_the_marks_and_at_its_end(starts, expected):
    assert marks(starts) == expected


def test_rows_tell_mean_and_worst_over_seeds(table):
    scorer = Scorer(table, make_goal("MaxThroughput", SLOS))
    [only] = rows(scorer, "mine", {0: [start(0, [1])], 1: [start(1, [0])]}, 1)
    assert only.target == pytest.approx(((1 + 40 / 90) / 2, 40 / 90))
    assert only.reached == 0.5
    assert only.hours_to_target is None
    assert only.seconds == 0.5
    assert only.gpu_hours == pytest.approx((38 + 19) / 60 / 2)
