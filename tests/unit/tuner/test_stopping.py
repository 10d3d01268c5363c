import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier_tuner.stopping import (
    Budget,
    Cost,
    FailureLimit,
    Plateau,
    Stability,
    Stop,
    Use,
    Verdict,
    expected_cost,
    failing,
    first_stop,
    pays_back,
    plateau,
    searched,
    stable,
    within_budget,
)
from frontier_tuner.trial import Failure
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record

OOM = Failure("EngineOutOfMemory", "CUDA out of memory")
LOST = Failure("PodLost", "the node went away")


def journal(*outcomes, gpus=2, gpu_seconds=1200.0):
    failures = {"Infeasible": OOM, "Failed": LOST}
    return [
        make_record(
            n,
            make_configuration(maxNumSeqs=n + 1),
            outcome=outcome,
            failure=failures.get(outcome),
            gpus=gpus,
            gpu_seconds=gpu_seconds,
        )
        for n, outcome in enumerate(outcomes)
    ]


def budget(spent=0.0, pending=0, records=(), cost=None, **limits):
    return within_budget(records, pending, Budget(**{"max_trials": None} | limits), spent, cost)


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (budget(max_trials=2, records=journal("Complete", "Infeasible")), "2 of 2 trials are used"),
        (budget(max_trials=2, records=journal("Complete"), pending=1), "2 of 2 trials are used"),
        (
            budget(max_trials=4, ablations=2, records=journal("Complete", "Complete")),
            "2 of 4 trials are used, 2 are kept for ablations",
        ),
        (budget(max_gpu_hours=0.5, records=journal("Complete", "Failed")), "0.67 of 0.5 GPU-hours are used"),
        (budget(spent=60.0, max_seconds=60.0), "60 of 60 seconds are used"),
        (
            budget(max_gpu_hours=1.0, records=journal("Complete", "Complete"), cost=Cost(1260.0)),
            "0.67 of 1 GPU-hours are used, 0.35 for the next trial do not fit",
        ),
        (
            budget(spent=50.0, max_seconds=60.0, cost=Cost(seconds=11.0)),
            "50 of 60 seconds are used, 11 for the next trial do not fit",
        ),
    ],
)
def test_a_budget_ends_a_study_when_the_next_trial_does_not_fit(verdict, words):
    assert verdict == (True, "BudgetExhausted", words)
    assert verdict.ends == Stop("BudgetExhausted", words)


@pytest.mark.parametrize(
    "verdict",
    [
        budget(max_trials=3, records=journal("Complete", "Failed", "Infeasible")),
        budget(max_gpu_hours=1.0, records=journal("Complete", "Complete"), cost=Cost(1200.0)),
        budget(spent=49.0, max_seconds=60.0, cost=Cost(seconds=11.0)),
        budget(spent=1e9, cost=Cost(1e9, 1e9), records=journal(*["Complete"] * 50)),
    ],
)
def test_a_budget_that_the_next_trial_fits_goes_on(verdict):
    assert verdict.stop is False
    assert verdict.reason == ""
    assert "trials and" in verdict.message
    assert verdict.ends is None


def test_trials_under_way_hold_their_share_of_the_gpu_hours():
    records = journal("Complete")
    assert not within_budget(records, 1, Budget(None, 1.0), 0, Cost(1200.0), pending_gpu_seconds=1200.0).stop
    assert within_budget(records, 1, Budget(None, 1.0), 0, Cost(1201.0), pending_gpu_seconds=1200.0).stop


def test_confirmations_are_no_trials_of_the_search_and_ablations_are_paid_from_its_budget():
    base = journal("Complete", "Complete", "Complete")
    records = [base[0], replace(base[1], purpose="Confirmation"), replace(base[2], purpose="Ablation")]
    assert searched(records) == (records[0],)
    assert within_budget(records, 0, Budget(2), 0.0).stop
    assert not within_budget(records, 0, Budget(3), 0.0).stop


@pytest.mark.parametrize(
    ("records", "gpus", "want"),
    [
        pytest.param([], 8, Cost(0.0, 0.0), id="nothing known"),
        pytest.param(journal("Complete", "Complete"), 8, Cost(4800.0, 600.0), id="by the GPUs of the next one"),
        pytest.param(journal("Complete", gpus=0, gpu_seconds=90.0), 0, Cost(90.0, 90.0), id="without GPUs"),
        pytest.param(
            [*journal("Complete", "Pruned"), make_record(9, outcome="Infeasible", failure=OOM, gpu_seconds=1.0)],
            1,
            Cost(600.0, 600.0),
            id="a crash is no measure",
        ),
        pytest.param(journal("Infeasible", gpu_seconds=100.0), 2, Cost(100.0, 50.0), id="unless there is nothing else"),
    ],
)
def test_the_next_trial_is_expected_to_take_what_earlier_ones_took(records, gpus, want):
    assert expected_cost(records, gpus) == want


@pytest.mark.parametrize(
    ("gains", "trials", "want"),
    [
        pytest.param([0.5, 0.009, 0.005, 0.009], 12, True, id="three times below"),
        pytest.param([0.005, 0.005, 0.01], 12, False, id="at the threshold"),
        pytest.param([0.005, 0.005, 0.3, 0.005], 12, False, id="not in a row"),
        pytest.param([0.005, 0.005], 12, False, id="twice"),
        pytest.param([0.0, 0.0, 0.0], 9, False, id="too early"),
        pytest.param([0.0, 0.0, 0.0], 10, True, id="at the minimum"),
        pytest.param([0.0, 0.0, math.nan], 12, False, id="unknown"),
        pytest.param([], 12, False, id="no expectation"),
        pytest.param([-0.1, -0.2, -0.1], 12, True, id="a loss is no gain"),
    ],
)
def test_a_plateau_needs_small_expectations_in_a_row_after_enough_trials(gains, trials, want):
    verdict = plateau(gains, trials)
    assert (verdict.stop, verdict.reason) == (want, "FrontierStable" if want else "")
    assert verdict.message


def test_a_plateau_says_what_is_expected():
    stop, reason, message = plateau([0.005, 0.0065, 0.0071], 10)
    assert (stop, reason) == (True, "FrontierStable")
    assert message == "the best next start is expected to gain 0.71 %, below 1 % for 3 proposals in a row"
    assert plateau([0.04, 0.04], 5, Plateau(gain=0.05, in_a_row=2, minimum=5)).stop


@pytest.mark.parametrize(
    ("outcomes", "limit", "words"),
    [
        (["Infeasible"] * 5, None, "5 trials in a row did not complete; the last one: EngineOutOfMemory"),
        (["Complete", "Failed", "Infeasible", "Failed"], FailureLimit(3), "3 trials in a row"),
        (["Complete", "Failed", "Failed"] * 4, None, "7 of the last 10 trials failed for a reason"),
        (["Complete"] + ["Failed"] * 5, FailureLimit(0, window=6), "5 of the last 6 trials"),
    ],
)
def test_trials_that_come_to_nothing_end_a_study_with_the_last_words(outcomes, limit, words):
    verdict = failing(journal(*outcomes), limit)
    assert (verdict.stop, verdict.reason) == (True, "TooManyFailures")
    assert verdict.message.startswith(words)


@pytest.mark.parametrize(
    ("outcomes", "limit"),
    [
        ([], None),
        (["Infeasible"] * 4, None),
        (["Infeasible"] * 4 + ["Complete"] + ["Infeasible"] * 4, None),
        (["Complete", "Failed"] * 10, None),
        (["Failed"] * 4, None),
        (["Failed"] * 40, FailureLimit(0, share=1.0)),
    ],
)
def test_configurations_that_cannot_serve_teach_and_end_nothing_by_their_share(outcomes, limit):
    assert not failing(journal(*outcomes), limit).stop


def test_case_76_three_failures_in_a_row_stop_the_study():
    verdict = failing(journal("Infeasible", "Infeasible", "Infeasible"), FailureLimit(in_a_row=3))
    assert (verdict.stop, verdict.reason) == (True, "TooManyFailures")


@pytest.mark.parametrize(
    ("gain", "gpu_seconds", "use", "want"),
    [
        # 10 % more throughput saves 1/11 of 1,000 GPU-hours at 3: 273; 8 GPUs for 10 minutes cost 4.
        (0.1, 4800.0, Use(1000.0, 3.0), False),
        (0.1, 4800.0, Use(10.0, 3.0), True),
        (0.0, 4800.0, Use(1e6, 3.0), True),
        (-0.1, 4800.0, Use(1e6, 3.0), True),
        (math.nan, 4800.0, Use(0.0), False),
        (0.0, 0.0, Use(0.0), False),
        (0.1, 4800.0, Use(10.0, 3.0, trial_price_per_gpu_hour=0.5), False),
    ],
)
def test_a_trial_must_be_expected_to_save_more_than_it_costs(gain, gpu_seconds, use, want):
    verdict = pays_back(gain, Cost(gpu_seconds), use)
    assert (verdict.stop, verdict.reason) == (want, "PayBackExceeded" if want else "")


def test_the_pay_back_tells_both_sums():
    message = pays_back(0.1, Cost(4800.0), Use(1000.0, 3.0)).message
    assert message == "the next trial costs 4 and is expected to save 273 over 1000 GPU-hours"


@given(st.floats(0, 10), st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0.1, 10))
def test_more_use_never_ends_a_study_that_paid_back_with_less(gain, seconds, hours, more, price):
    if not pays_back(gain, Cost(seconds), Use(hours, price)).stop:
        assert not pays_back(gain, Cost(seconds), Use(hours + more, price)).stop


def test_a_frontier_that_no_longer_grows_is_stable_and_one_without_a_point_is_not():
    same = [make_record(n, make_configuration(maxNumSeqs=n + 1)) for n in range(10)]
    assert stable(same, make_objectives()).ends == Stop(
        "FrontierStable", "the last 6 trials added 0 % to the frontier's hypervolume"
    )
    assert not stable(same[:9], make_objectives()).stop
    assert not stable(same, make_objectives(ttft=0.001)).stop
    grown = [*same[:9], make_record(9, make_configuration(maxNumSeqs=10), make_measurement(per_gpu=800))]
    assert stable(grown, make_objectives()).message == "the last 6 trials added 100 % to the frontier's hypervolume"
    assert stable(same[:4], make_objectives(), Stability(window=2, minimum=3)).stop


def test_the_first_rule_that_stops_gives_the_reason_and_later_ones_are_not_asked():
    asked = []

    def rules():
        for verdict in (Verdict(False, "", "goes on"), Verdict(True, "A", "a"), Verdict(True, "B", "b")):
            asked.append(verdict.reason)
            yield verdict

    assert first_stop(rules()) == Stop("A", "a")
    assert asked == ["", "A"]
    assert first_stop([Verdict(False, "", "goes on")]) is None


def test_ablations_that_cannot_serve_are_answers_and_no_failures():
    needed = [replace(record, purpose="Ablation") for record in journal(*["Infeasible"] * 6)]
    assert not failing(needed).stop
    assert failing(journal(*["Infeasible"] * 6)).stop
