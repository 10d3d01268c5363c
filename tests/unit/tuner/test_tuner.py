from dataclasses import replace

import pytest

from frontier_tuner.frontier import points
from frontier_tuner.objectives import Target
from frontier_tuner.samplers import create_sampler
from frontier_tuner.stopping import Budget, Plateau, Stability, Stop, Use
from frontier_tuner.trial import Failure
from frontier_tuner.tuner import Proposal, finalists, propose
from support.tuner_builders import make_configuration, make_measurement, make_objectives, make_record, make_space

SPACE = make_space()
NEVER = Stability(minimum=10**6)
OOM = Failure("EngineOutOfMemory", "CUDA out of memory")
LOST = Failure("PodLost", "the node went away")


def ask(journal=(), pending=(), **over):
    arguments = {
        "objectives": make_objectives(),
        "target": Target(),
        "budget": Budget(max_trials=None),
        "spent_seconds": 0.0,
        "seed": 1,
        "stability": NEVER,
    }
    return propose(over.pop("space", SPACE), journal, pending, **arguments | over)


def finish(number, configuration, outcome="Complete", failure=None):
    speed = 100 / configuration.integer("maxNumSeqs") * configuration.integer("tensorParallelSize")
    rung = make_measurement(speed=speed, per_gpu=configuration.integer("maxNumSeqs") * 10)
    return make_record(number, configuration, rung, outcome=outcome, failure=failure)


def study(trials, **over):
    journal = []
    for number in range(trials):
        answer = ask(journal, **over)
        if isinstance(answer, Stop):
            return journal, answer
        journal.append(finish(number, answer.configuration))
    return journal, None


def test_the_baseline_comes_first():
    answer = ask()
    assert answer.configuration == SPACE.baseline
    assert answer.reason.startswith("Baseline")


@pytest.mark.parametrize("sampler", ["Frontier", "TPE", "Random", "NSGAII", "FrontierSampler"])
def test_every_valid_configuration_is_proposed_once_and_then_the_space_is_exhausted(sampler):
    journal, stop = study(50, sampler=sampler)
    assert {record.configuration for record in journal} == set(SPACE.configurations())
    assert len(journal) == SPACE.size == 12
    assert stop == Stop("SearchSpaceExhausted", "all 12 valid configurations are tried or under way")


def test_the_same_journal_gives_the_same_proposal_whatever_its_order():
    journal, _ = study(9)
    assert ask(journal) == ask(list(reversed(journal))) == ask(journal)


def test_what_is_under_way_is_not_proposed_again():
    journal, _ = study(4)
    pending = []
    while isinstance(answer := ask(journal, pending), Proposal):
        pending.append(answer.configuration)
    assert len(set(pending)) == len(pending) == 8
    assert answer.reason == "SearchSpaceExhausted"


def test_a_failure_of_the_surroundings_is_tried_again_first_and_at_most_twice():
    failed = [make_record(0, SPACE.baseline, outcome="Failed", failure=LOST)]
    assert ask(failed) == Proposal(SPACE.baseline, "Retry 1 of 2 after PodLost")
    assert ask(failed, [SPACE.baseline]).configuration != SPACE.baseline
    failed.append(make_record(1, SPACE.baseline, outcome="Failed", failure=LOST))
    assert ask(failed).configuration == SPACE.baseline
    failed.append(make_record(2, SPACE.baseline, outcome="Failed", failure=LOST))
    assert ask(failed).configuration != SPACE.baseline
    assert ask([failed[0], finish(1, SPACE.baseline)]).configuration != SPACE.baseline


def test_infeasible_configurations_teach_and_are_never_tried_again():
    journal = [make_record(0, SPACE.baseline, outcome="Infeasible", failure=OOM)]
    for number in range(1, 12):
        answer = ask(journal)
        heavy = answer.configuration["maxNumSeqs"] == 64
        outcome, failure = ("Infeasible", OOM) if heavy else ("Complete", None)
        journal.append(finish(number, answer.configuration, outcome, failure))
    assert len({record.configuration for record in journal}) == 12


def test_nothing_but_infeasible_trials_still_gives_proposals():
    journal = []
    for number in range(9):
        journal.append(finish(number, ask(journal, max_failed=100).configuration, "Infeasible", OOM))
    assert len({record.configuration for record in journal}) == 9


@pytest.mark.parametrize(
    ("over", "reason", "words"),
    [
        ({"budget": Budget(max_trials=4)}, "BudgetExhausted", "4 of 4 trials"),
        ({"budget": Budget(None, max_gpu_hours=0.5)}, "BudgetExhausted", "GPU-hours"),
        ({"budget": Budget(None, max_seconds=60), "spent_seconds": 61.0}, "BudgetExhausted", "61 of 60 seconds"),
        ({"stability": Stability(window=2, minimum=4)}, "FrontierStable", "last 2 trials"),
    ],
)
def test_a_study_ends_for_its_reason(over, reason, words):
    same = [make_record(n, c) for n, c in enumerate(SPACE.configurations()[:4])]
    answer = ask(same, **over)
    assert (answer.reason, words in answer.message) == (reason, True)


def test_trials_under_way_count_against_the_budget_and_failed_ones_do_not():
    journal = [finish(0, SPACE.baseline), make_record(1, SPACE.configurations()[0], outcome="Failed", failure=LOST)]
    assert isinstance(ask(journal, budget=Budget(max_trials=2)), Proposal)
    assert ask(journal, [SPACE.configurations()[0]], budget=Budget(max_trials=2)).reason == "BudgetExhausted"


def test_too_many_failures_in_a_row_end_the_study_with_the_last_words():
    bad = [finish(n, c, "Infeasible", OOM) for n, c in enumerate(SPACE.configurations()[:3])]
    answer = ask(bad, max_failed=3)
    assert answer.reason == "TooManyFailures"
    assert "CUDA out of memory" in answer.message
    assert isinstance(ask([*bad[:2], finish(2, SPACE.configurations()[2])], max_failed=3), Proposal)


def flat_study(gains):
    """Return a journal of six finished trials, of which the last were expected to gain so much."""
    journal, _ = study(6)
    padded = [0.5] * (5 - len(gains)) + gains
    return [journal[0], *(replace(r, expected_gain=g) for r, g in zip(journal[1:], padded, strict=True))]


EAGER = Plateau(gain=10.0, in_a_row=3, minimum=6)
"""Any finite expectation is too small for it, so that only how many there are in a row decides."""


def test_a_study_ends_where_recorded_and_present_expectations_are_small_in_a_row():
    answer = ask(flat_study([0.1, 0.1]), flat=EAGER)
    assert answer.reason == "FrontierStable"
    assert answer.message.endswith("below 1000 % for 3 proposals in a row")
    assert isinstance(ask(flat_study([0.1, 0.1]), flat=replace(EAGER, in_a_row=7)), Proposal)
    assert isinstance(ask(flat_study([0.1, 0.1]), flat=replace(EAGER, minimum=7)), Proposal)
    unknown = flat_study([None, 0.1])
    assert isinstance(ask(unknown, flat=EAGER), Proposal)


def test_trials_that_may_be_under_way_at_once_make_a_plateau_longer():
    journal = flat_study([0.1] * 5)
    assert ask(journal, flat=EAGER, parallel=4).reason == "FrontierStable"
    assert isinstance(ask(journal, flat=EAGER, parallel=5), Proposal)
    under_way = ask(journal).configuration
    assert ask(journal, [under_way], flat=EAGER, pending_gains=[0.1], parallel=5).reason == "FrontierStable"
    assert isinstance(ask(journal, [under_way], flat=EAGER, pending_gains=[None], parallel=5), Proposal)


def test_a_study_of_eight_trials_never_ends_for_what_it_expects():
    journal = [replace(record, expected_gain=0.0) for record in study(8)[0]]
    assert isinstance(ask(journal, budget=Budget(max_trials=9)), Proposal)


def test_second_measurements_do_not_change_what_the_search_would_do_next():
    journal, _ = study(6)
    before = ask(journal)
    again = replace(finish(6, journal[1].configuration), purpose="Confirmation")
    slow = replace(again, measurements=(make_measurement(speed=1.0, per_gpu=1.0),))
    assert ask([*journal, slow]) == before
    assert before.gain > 0
    more = finish(7, before.configuration)
    assert ask([*journal, slow, more]) != ask([*journal, replace(more, number=6)])


def test_a_trial_that_would_not_pay_back_ends_the_study():
    journal, _ = study(3)
    dear = [replace(record, gpu_seconds=36000.0 * record.gpus, gpus=1) for record in journal]
    assert isinstance(ask(journal), Proposal)
    assert isinstance(ask(journal, use=Use(1e6)), Proposal)
    answer = ask(dear, use=Use(0.1))
    assert answer.reason == "PayBackExceeded"
    assert "and is expected to save" in answer.message
    assert "over 0.1 GPU-hours" in answer.message
    assert isinstance(ask(use=Use(0.1)), Proposal)


def test_the_next_trial_must_fit_what_is_left_of_the_budget():
    journal = [replace(record, gpu_seconds=600.0 * record.gpus) for record in study(3)[0]]
    held = sum(record.gpu_seconds for record in journal) / 3600
    answer = ask(journal, budget=Budget(None, max_gpu_hours=held + 0.1))
    assert answer.reason == "BudgetExhausted"
    assert answer.message.endswith("for the next trial do not fit")
    assert ask(journal, budget=Budget(None, max_seconds=1000), spent_seconds=500.0).reason == "BudgetExhausted"
    assert isinstance(ask(journal, budget=Budget(None, max_seconds=1000), spent_seconds=300.0), Proposal)


def test_a_study_whose_surroundings_fail_too_often_ends():
    lost = [finish(0, SPACE.baseline)]
    for number, configuration in enumerate(SPACE.configurations()[:4]):
        for _ in range(2):
            lost.append(make_record(len(lost), configuration, outcome="Failed", failure=LOST))
        if number % 2:
            lost.append(finish(len(lost), configuration))
    answer = ask(lost, max_failed=6)
    assert answer.reason == "TooManyFailures"
    assert "of the last 10 trials failed for a reason of their surroundings" in answer.message


def test_a_baseline_from_outside_the_space_is_no_obstacle():
    stranger = make_configuration(maxNumSeqs=3)
    journal = [
        make_record(0, stranger, purpose="Baseline"),
        *(finish(n, c) for n, c in enumerate(SPACE.configurations()[:8], 1)),
    ]
    assert SPACE.violations(ask(journal, [stranger]).configuration) == ()


def test_the_opening_of_optunas_samplers_covers_every_value_soon():
    journal, _ = study(3, sampler="TPE")
    for parameter in SPACE.parameters:
        assert {record.configuration[parameter.name] for record in journal} == set(parameter.values)


def test_finalists_are_distinct_and_best_first():
    journal = [
        make_record(
            n, make_configuration(maxNumSeqs=n), make_measurement(8, per_gpu=t), make_measurement(16, per_gpu=t + 1)
        )
        for n, t in enumerate((100, 300, 200))
    ]
    found = finalists(points(journal, make_objectives()), make_objectives(), Target(), 2)
    assert [(configuration["maxNumSeqs"], load.value) for configuration, load in found] == [(1, 16), (2, 16)]
    assert finalists([], make_objectives(), Target(), 2) == ()


def test_an_unknown_sampler_is_named():
    with pytest.raises(ValueError, match="TPE"):
        create_sampler("Oracle", 1)
