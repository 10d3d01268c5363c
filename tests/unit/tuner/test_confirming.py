import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.confirming import confirmed, finalist_plan, finalists
from frontier_tuner.frontier import points
from frontier_tuner.noise import Noise
from frontier_tuner.objectives import Target
from frontier_tuner.space import Parameter, SearchSpace
from frontier_tuner.trial import Failure
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record

OBJECTIVES = make_objectives()
TARGET = Target()
SPACE = SearchSpace((Parameter("maxNumSeqs", (1, 2, 3, 4, 5, 6, 7, 8)), Parameter("kvCacheDtype", ("auto", "fp8"))))
LOST = Failure("PodLost", "the node went away")
DIED = Failure("EngineDied", "killed")


def configured(sequences, cache="auto"):
    return make_configuration(maxNumSeqs=sequences, kvCacheDtype=cache)


def trial(number, sequences, per_gpu, *, cache="auto", loads=(4, 8, 16), ttft=0.5, **over):
    rungs = [make_measurement(load, per_gpu=per_gpu * load / 16, ttft=ttft) for load in loads]
    return make_record(number, configured(sequences, cache), *rungs, **over)


def again(number, sequences, per_gpu, **over):
    return trial(number, sequences, per_gpu, purpose="Confirmation", **over)


JOURNAL = [trial(0, 1, 100), trial(1, 4, 300), trial(2, 5, 280), trial(3, 8, 290), trial(4, 4, 150, cache="fp8")]


def sequences(plan):
    return [(rerun.configuration["maxNumSeqs"], rerun.configuration["kvCacheDtype"]) for rerun in plan]


def test_the_best_the_incumbent_and_the_neighbours_of_the_best_are_measured_again():
    plan = finalist_plan(JOURNAL, OBJECTIVES, TARGET, space=SPACE, incumbent=configured(1))
    assert sequences(plan) == [(4, "auto"), (8, "auto"), (1, "auto"), (5, "auto"), (4, "fp8")]
    assert [rerun.reason.split()[0] for rerun in plan] == [
        "finalist",
        "finalist",
        "incumbent",
        "neighbour",
        "neighbour",
    ]
    assert {tuple(load.value for load in rerun.loads) for rerun in plan} == {(8, 16)}


def test_the_rung_that_matters_is_climbed_with_those_beside_it():
    inside = Target("AtUserSpeed", user_tokens_per_second=60.0)
    rungs = [make_measurement(load, speed=100 - load, per_gpu=load) for load in (4, 8, 16, 32, 64)]
    (rerun,) = finalist_plan([make_record(0, configured(1), *rungs)], OBJECTIVES, inside)
    assert [load.value for load in rerun.loads] == [16, 32, 64]


def test_rounds_are_interleaved_and_few_configurations_go_before_half_a_round():
    plan = finalist_plan(JOURNAL, OBJECTIVES, TARGET, space=SPACE, repeats=2, max_starts=6)
    assert sequences(plan) == [(4, "auto"), (8, "auto"), (5, "auto")] * 2
    assert [rerun.round for rerun in plan] == [1, 1, 1, 2, 2, 2]


def test_a_plan_goes_on_where_its_journal_stands_until_nothing_is_left():
    journal = list(JOURNAL)
    seen = []
    while plan := finalist_plan(journal, OBJECTIVES, TARGET, space=SPACE, repeats=2, max_starts=6):
        seen += sequences(plan[:1])
        first = next(r for r in JOURNAL if r.configuration == plan[0].configuration)
        journal.append(replace(first, number=len(journal), purpose="Confirmation"))
    assert seen == [(4, "auto"), (8, "auto"), (5, "auto")] * 2


def test_whatever_leads_when_the_finalists_fell_is_confirmed_too():
    journal = [*JOURNAL, again(5, 4, 90), again(6, 8, 90), again(7, 5, 90), again(8, 4, 90, cache="fp8")]
    assert sequences(finalist_plan(journal, OBJECTIVES, TARGET, space=SPACE)) == [(1, "auto")]
    assert finalist_plan(journal, OBJECTIVES, TARGET, space=SPACE, max_starts=4) == ()


def test_a_confirmation_that_failed_is_tried_once_more_and_one_that_died_never():
    lost = again(5, 4, 300, outcome="Failed", failure=LOST)
    assert (4, "auto") in sequences(finalist_plan([*JOURNAL, lost], OBJECTIVES, TARGET, space=SPACE))
    twice = [*JOURNAL, lost, replace(lost, number=6)]
    assert (4, "auto") not in sequences(finalist_plan(twice, OBJECTIVES, TARGET, space=SPACE))
    died = again(5, 4, 300, outcome="Infeasible", failure=DIED)
    assert (4, "auto") not in sequences(finalist_plan([*JOURNAL, died], OBJECTIVES, TARGET, space=SPACE))


def test_without_a_feasible_point_there_is_nothing_to_confirm():
    assert finalist_plan([trial(0, 1, 100, ttft=9.0)], OBJECTIVES, TARGET) == ()
    assert finalists([], OBJECTIVES, TARGET, 2) == ()


def test_the_second_measurement_chooses_and_the_first_does_not_count():
    journal = [*JOURNAL, again(5, 4, 260), again(6, 8, 285)]
    found = confirmed(journal, OBJECTIVES, TARGET, noise=Noise(0.0))
    assert found.selection.point.configuration == configured(8)
    assert found.selection.point.throughput == pytest.approx(285)
    assert found.repeats == 1
    assert found.optimism.value == pytest.approx(290 / 285)
    without = [record for record in journal if record.purpose == "Confirmation"]
    assert confirmed(without, OBJECTIVES, TARGET, noise=Noise(0.0)).selection == found.selection
    assert confirmed(without, OBJECTIVES, TARGET).optimism is None


def test_repeats_are_pooled_and_the_interval_holds_the_noise_between_starts():
    journal = [*JOURNAL, again(5, 4, 200), again(6, 8, 190), again(7, 4, 242), again(8, 8, 190)]
    found = confirmed(journal, OBJECTIVES, TARGET, noise=Noise(0.05))
    estimate = found.selection.point.metrics["OutputTokensPerSecondPerGPU"]
    assert found.repeats == 2
    assert estimate.value == pytest.approx(220)
    within = math.log(1.1) / math.sqrt(2)
    between = 1.96 * 0.05 / math.sqrt(2)
    assert math.log(estimate.high / estimate.value) == pytest.approx(math.hypot(within, between), rel=1e-3)
    assert found.selection.point.measured.sent == 200


def test_a_finalist_that_misses_its_objectives_the_second_time_is_refuted():
    journal = [*JOURNAL, again(5, 4, 300, ttft=2.2), again(6, 8, 250)]
    found = confirmed(journal, OBJECTIVES, TARGET)
    assert found.selection.point.configuration == configured(8)
    assert {point.configuration for point in found.refuted} == {configured(4)}


def test_nothing_confirmed_is_no_choice():
    found = confirmed(JOURNAL, OBJECTIVES, TARGET)
    assert (found.selection.point, found.repeats, found.optimism, found.refuted) == (None, 0, None, ())
    died = [*JOURNAL, again(5, 4, 300), again(6, 4, 300, outcome="Infeasible", failure=DIED)]
    assert confirmed(died, OBJECTIVES, TARGET).selection.point is None


@given(st.permutations(range(9)))
def test_the_order_of_the_journal_changes_neither_plan_nor_choice(order):
    journal = [*JOURNAL, again(5, 4, 200), again(6, 8, 190), again(7, 4, 242), again(8, 8, 190)]
    shuffled = [journal[i] for i in order]
    assert confirmed(shuffled, OBJECTIVES, TARGET) == confirmed(journal, OBJECTIVES, TARGET)
    assert finalist_plan(shuffled, OBJECTIVES, TARGET) == finalist_plan(journal, OBJECTIVES, TARGET)


def test_the_second_measurement_of_a_winner_is_true_on_average_and_the_first_is_not():
    random = np.random.default_rng(5)
    first, second = [], []
    for _ in range(300):
        luck = np.exp(random.normal(0, 0.05, 9))
        journal = [trial(n, n + 1, 100 * luck[n], loads=(16,)) for n in range(8)]
        (rerun,) = finalist_plan(journal, OBJECTIVES, TARGET, count=1, max_starts=1)
        journal.append(again(8, rerun.configuration["maxNumSeqs"], 100 * luck[8], loads=(16,)))
        found = confirmed(journal, OBJECTIVES, TARGET)
        first.append(max(point.throughput for point in points(journal[:8], OBJECTIVES)))
        second.append(found.selection.point.throughput)
    assert np.mean(second) == pytest.approx(100, rel=0.01)
    assert np.mean(first) > 106
