import numpy as np
import pytest

from frontier_tuner.bench.arena import Rung
from frontier_tuner.bench.goal import GoalError, make_goal, parse_slo
from frontier_tuner.bench.tables import Truth


@pytest.mark.parametrize(
    ("text", "metric", "maximum", "minimum"),
    [
        ("TTFT<=3000ms", "TTFT", 3.0, None),
        ("ITL<=30ms", "ITL", 0.03, None),
        ("E2E <= 20s", "E2E", 20.0, None),
        ("UserTokensPerSecond>=50", "UserTokensPerSecond", None, 50.0),
    ],
)
def test_an_slo_is_read(text, metric, maximum, minimum):
    slo = parse_slo(text)
    assert (slo.metric, slo.maximum, slo.minimum) == (metric, maximum, minimum)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("TTFT", "'TTFT' is not an SLO on a mean; write it like TTFT<=3000ms"),
        ("TPOT<=3ms", "'TPOT<=3ms' is not an SLO"),
        ("TTFT/95<=3s", "names a percentile, but a table has only means"),
        ("TTFT>=3s", "bounds TTFT from the wrong side"),
        ("UserTokensPerSecond<=3", "bounds UserTokensPerSecond from the wrong side"),
        ("TTFT<=3", "'3' is not a duration"),
        ("UserTokensPerSecond>=fast", "cannot be read"),
        ("TTFT<=0ms", "must be above 0"),
        ("UserTokensPerSecond>=nan", "must be above 0"),
    ],
)
def test_what_is_no_slo_is_refused_with_a_way_out(text, words):
    with pytest.raises(GoalError) as error:
        parse_slo(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("policy", "slos", "words"),
    [
        ("Cheapest", (), "policy 'Cheapest' is unknown; known are MinCost"),
        ("AtUserSpeed", (), "needs --user-tokens-per-second"),
        ("AtCost", (), "needs --max-cost"),
        ("MinCost", ("E2E<=20s",), "needs --output-tokens"),
    ],
)
def test_a_goal_without_its_figures_is_refused(policy, slos, words):
    with pytest.raises(GoalError, match=words):
        make_goal(policy, slos)


def test_every_demand_must_hold():
    goal = make_goal(
        "MaxThroughput", ("TTFT<=200ms", "ITL<=20ms", "E2E<=2s", "UserTokensPerSecond>=50"), output_tokens=100
    )
    assert goal.feasible(Rung(0, 0.1, 0.015, 66.0, 10.0))
    assert not goal.feasible(Rung(0, 0.3, 0.015, 66.0, 10.0))
    assert not goal.feasible(Rung(0, 0.1, 0.021, 66.0, 10.0))
    assert not goal.feasible(Rung(0, 0.1, 0.0195, 51.0, 10.0))
    assert not goal.feasible(Rung(0, 0.1, 0.015, 49.0, 10.0))
    assert not goal.feasible(Rung(0, 0.1, 0.015, 66.0, float("nan")))


def test_end_to_end_time_is_the_first_token_and_all_others():
    goal = make_goal("MinCost", ("E2E<=2s",), output_tokens=101)
    [(_, slack)] = goal.slacks(Rung(0, 0.5, 0.02, 50.0, 1.0))
    assert slack == pytest.approx(1 - 2.5 / 2)


def test_only_the_first_token_decides_who_belongs_to_the_frontier():
    goal = make_goal("MaxThroughput", ("TTFT<=200ms", "UserTokensPerSecond>=50", "ITL<=10ms"))
    values = np.array([[0.1, 0.3]])
    curves = Truth(ttft=values, itl=np.full((1, 2), 1.0), user_speed=np.full((1, 2), 1.0), throughput=np.ones((1, 2)))
    assert goal.responsive(curves).tolist() == [[True, False]]
    assert goal.feasible(curves).tolist() == [[False, False]]


def test_targets_with_a_figure_demand_it():
    at_speed = make_goal("AtUserSpeed", (), user_tokens_per_second=40)
    assert at_speed.feasible(Rung(0, 1, 0.02, 40.0, 1.0))
    assert not at_speed.feasible(Rung(0, 1, 0.02, 39.0, 1.0))
    # 1000 tokens/s/GPU are 3.6 million an hour, so at 3.6 an hour a million costs 1.
    at_cost = make_goal("AtCost", (), max_cost=1.0, gpu_price=3.6)
    assert at_cost.cost(Rung(0, 1, 0.02, 40.0, 1000.0)) == pytest.approx(1.0)
    assert at_cost.feasible(Rung(0, 1, 0.02, 40.0, 1001.0))
    assert not at_cost.feasible(Rung(0, 1, 0.02, 40.0, 999.0))
