from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_tuner.confirming import choose, finalist_plan
from frontier_tuner.finishing import Finish, last_starts
from frontier_tuner.measurement import Load
from frontier_tuner.noise import Noise
from frontier_tuner.objectives import SLO, Objectives, Target
from frontier_tuner.plants.study import attribution_from, choice_from, read_journal, run_study
from frontier_tuner.spec import ConfirmationSpec, StudySpec
from frontier_tuner.stopping import Budget
from frontier_tuner.study import fingerprint, space_of
from frontier_tuner.trial import Failure
from support.tuner_builders import (
    START,
    make_configuration,
    make_measurement,
    make_objectives,
    make_record,
    make_space,
)

SPACE = make_space()
BASE = SPACE.baseline
OBJECTIVES = make_objectives()
TARGET = Target()


def changed(**values):
    return make_configuration(**{**BASE, **values})


def trial(number, configuration, per_gpu, *, loads=(4, 8, 16), **over):
    rungs = [make_measurement(load, speed=400 / load, per_gpu=per_gpu * load / 16) for load in loads]
    return make_record(number, configuration, *rungs, **over)


FAST, NEAR, WIDE = changed(tensorParallelSize=2), changed(tensorParallelSize=4), changed(maxNumSeqs=16)
JOURNAL = [trial(0, BASE, 100, purpose="Baseline"), trial(1, FAST, 300), trial(2, NEAR, 280), trial(3, WIDE, 200)]


BUDGET = Budget(max_trials=4)


def missing(journal=JOURNAL, budget=BUDGET, spent=0.0, **finish):
    found = last_starts(
        journal,
        SPACE,
        OBJECTIVES,
        TARGET,
        finish=Finish(**finish),
        budget=budget,
        incumbent=BASE,
        spent_seconds=spent,
    )
    return [start.configuration for start in found]


def test_neighbours_are_measured_again_only_with_trials_that_the_budget_has_left():
    beside = changed(tensorParallelSize=2, enablePrefixCaching=False)
    journal = [*JOURNAL, trial(4, beside, 150)]
    assert missing(journal, Budget(max_trials=5)) == [FAST, NEAR, BASE]
    assert missing(journal, Budget(max_trials=6)) == [FAST, NEAR, BASE, beside]
    assert missing(journal, Budget(max_trials=6, max_seconds=60), spent=61) == [FAST, NEAR, BASE]
    assert missing(journal, Budget(max_trials=5), neighbours=3) == [FAST, NEAR, BASE, beside]


def test_without_finalists_nothing_is_measured_again():
    assert missing(finalists=0) == []
    assert choose(JOURNAL, OBJECTIVES, TARGET).confirmed is None


def test_rounds_are_interleaved_however_many_starts_they_take():
    assert missing(finalists=3, rounds=2) == [FAST, NEAR, WIDE, BASE] * 2


def test_the_second_measurements_choose_once_the_best_has_one():
    lucky = trial(4, FAST, 240, purpose="Confirmation")
    first = choose([*JOURNAL, lucky], OBJECTIVES, TARGET, noise=Noise(0.0))
    assert first.selection.point.configuration == NEAR
    assert first.confirmed is None
    journal = [*JOURNAL, lucky, trial(5, NEAR, 270, purpose="Confirmation")]
    found = choose(journal, OBJECTIVES, TARGET, noise=Noise(0.0))
    assert found.selection.point.throughput == pytest.approx(270)
    assert found.confirmed.optimism.value == pytest.approx(280 / 270)
    assert "chosen by 1 second measurement; the first measurement looked 1.04 (" in found.message


def test_another_target_goes_by_first_measurements_where_its_point_has_no_second():
    journal = [
        *JOURNAL,
        *(trial(4 + i, c, 250 - i, loads=(8, 16), purpose="Confirmation") for i, c in enumerate((FAST, NEAR))),
    ]
    assert choose(journal, OBJECTIVES, TARGET).confirmed.repeats == 1
    fast = choose(journal, OBJECTIVES, Target("MinLatency"))
    assert (fast.selection.point.load, fast.confirmed) == (Load("Concurrency", 4), None)
    assert finalist_plan(journal, OBJECTIVES, Target("MinLatency"), count=1)[0].loads[0] == Load("Concurrency", 4)


def test_a_confirmation_that_ended_below_its_load_has_confirmed_it():
    slow = make_record(4, FAST, make_measurement(8, per_gpu=150, ttft=9.0), purpose="Confirmation")
    low = make_record(4, FAST, make_measurement(8, per_gpu=150), purpose="Confirmation")
    assert FAST not in [each.configuration for each in finalist_plan([*JOURNAL, slow], OBJECTIVES, TARGET)]
    assert FAST in [each.configuration for each in finalist_plan([*JOURNAL, low], OBJECTIVES, TARGET)]


def test_real_traffic_confirms_at_the_level_that_it_has():
    own = make_record(4, FAST, make_measurement(7, per_gpu=150), purpose="Confirmation")
    live = replace(own, beside=make_measurement(7))
    assert FAST in [each.configuration for each in finalist_plan([*JOURNAL, own], OBJECTIVES, TARGET)]
    assert FAST not in [each.configuration for each in finalist_plan([*JOURNAL, live], OBJECTIVES, TARGET)]


def test_a_search_that_goes_on_has_confirming_starts_again():
    again = [trial(4 + i, FAST, 300, purpose="Confirmation") for i in range(6)]
    assert missing([*JOURNAL, *again]) == []
    assert (
        missing([*JOURNAL, *again, trial(10, changed(enablePrefixCaching=False), 320)])[0]["enablePrefixCaching"]
        is False
    )


BOTH = changed(tensorParallelSize=2, enablePrefixCaching=False)
SETTLED = [
    trial(0, BASE, 100, purpose="Baseline"),
    trial(1, BOTH, 300),
    trial(2, BOTH, 300, purpose="Confirmation"),
    trial(3, BASE, 100, purpose="Confirmation"),
]


def ablated(journal, ablations=4, **over):
    return last_starts(
        journal,
        SPACE,
        OBJECTIVES,
        TARGET,
        finish=Finish(finalists=1, neighbours=0),
        budget=Budget(max_trials=6, ablations=ablations, **over),
        incumbent=BASE,
        spent_seconds=0.0,
    )


def test_once_the_choice_stands_it_is_measured_with_one_technique_set_back_at_a_time():
    assert [start.purpose for start in ablated(SETTLED[:2])] == ["Confirmation", "Confirmation"]
    plan = ablated(SETTLED)
    assert [(start.purpose, start.loads) for start in plan] == [("Ablation", ())] * 2
    assert [start.configuration for start in plan] == [
        changed(tensorParallelSize=2),
        changed(enablePrefixCaching=False),
    ]
    assert plan[0].reason == "PrefixCaching set back to the baseline: its factor at the target"


def test_ablations_stay_within_the_trials_and_the_gpu_hours_that_were_kept_for_them():
    assert len(ablated(SETTLED, ablations=1)) == 1
    assert ablated(SETTLED, ablations=0) == ()
    one = trial(4, changed(tensorParallelSize=2), 200, purpose="Ablation")
    assert [start.configuration for start in ablated([*SETTLED, one])] == [changed(enablePrefixCaching=False)]
    assert ablated([*SETTLED, one], ablations=1) == ()
    spent = 4 * 600 / 3600
    assert len(ablated(SETTLED, max_gpu_hours=spent + 599 / 3600)) == 0
    assert len(ablated(SETTLED, max_gpu_hours=spent + 601 / 3600)) == 1


def test_an_ablation_is_tried_twice_where_its_surroundings_fail_and_once_where_it_cannot_serve():
    lost = make_record(
        4, changed(tensorParallelSize=2), purpose="Ablation", outcome="Failed", failure=Failure("PodLost", "m")
    )
    assert len(ablated([*SETTLED, lost])) == 2
    assert [start.configuration for start in ablated([*SETTLED, lost, replace(lost, number=5)])] == [
        changed(enablePrefixCaching=False)
    ]
    died = replace(lost, outcome="Infeasible", failure=Failure("EngineOutOfMemory", "m"))
    assert len(ablated([*SETTLED, died])) == 1


def test_a_choice_that_is_the_baseline_has_no_techniques():
    assert ablated([trial(0, BASE, 100, purpose="Baseline"), trial(1, BASE, 100, purpose="Confirmation")]) == ()


SPEC = StudySpec.model_validate(
    {
        "model": {"variants": [{"name": "bf16", "source": "hf://Qwen/Qwen3-8B"}]},
        "engine": {"image": "vllm/vllm-openai:v0.33.0"},
        "hardware": {"gpusPerNode": 1},
        "objectives": {"slos": [{"name": "ttft", "metric": "TTFT", "percentile": 95, "max": "2s"}]},
        "search": {
            "parameters": [
                {"name": "maxNumSeqs", "values": [16, 64, 128, 256]},
                {"name": "maxNumBatchedTokens", "value": 2048},
                {"name": "numSpeculativeTokens", "value": 0},
                {"name": "enablePrefixCaching", "values": [True, False]},
            ],
            "ladder": {"levels": ["4", "16", "64"]},
            "budget": {"maxTrials": 5},
        },
    }
)


class LuckyPlant:
    """Engines whose throughput grows with their batch; each start has a luck of its own."""

    def __init__(self, luck=(), worth=None):
        self.luck, self.starts = list(luck), []
        self.worth = worth or (lambda c: 1.0 + (not c["enablePrefixCaching"]) + c["maxNumSeqs"] / 1000)

    def start(self, configuration):
        self.starts.append(configuration)
        place = len(self.starts) - 1
        return LuckyEngine(self.worth(configuration) * (self.luck[place] if place < len(self.luck) else 1.0))


class LuckyEngine:
    start_seconds = 1.0

    def __init__(self, scale):
        self.scale = scale

    def measure(self, load, seed):
        level, more = load.value, timedelta(seconds=seed)
        found = make_measurement(level, speed=self.scale * 100 / level, per_gpu=self.scale * level * 10)
        return replace(found, window=replace(found.window, start=START + more, end=START + more + timedelta(seconds=9)))

    def stop(self):
        pass


def study(tmp_path, plant, spec=SPEC, **over):
    path = tmp_path / "journal.jsonl"
    stop = run_study(spec, plant, path, lambda: 0.0, **over)
    return stop, read_journal(path, space_of(spec), fingerprint(spec))


def test_a_study_on_a_desk_measures_its_finalists_again_and_chooses_by_that(tmp_path):
    # The search's last trial is lucky: it looks best and is not.
    stop, records = study(tmp_path, LuckyPlant(luck=[1, 1, 1, 1, 3]))
    assert stop.reason == "BudgetExhausted"
    assert [record.purpose for record in records] == [
        "Baseline",
        *["Search"] * 4,
        *["Confirmation"] * (len(records) - 5),
    ]
    assert len(records) in (8, 9)
    choice = choice_from(SPEC, records)
    second = [record for record in records if record.purpose == "Confirmation"]
    assert choice.selection.point.trial in {record.number for record in second}
    assert choice.selection.point.configuration != records[4].configuration
    assert records[4].configuration in {record.configuration for record in second}
    assert all(len(record.measurements) == 2 for record in second)


def test_a_study_on_a_desk_that_is_killed_ends_as_if_it_had_not_been(tmp_path):
    (tmp_path / "whole").mkdir()
    _, whole = study(tmp_path / "whole", LuckyPlant())
    for killed in range(1, len(whole)):
        folder = tmp_path / str(killed)
        folder.mkdir()
        assert study(folder, LuckyPlant(), starts=killed)[0].reason == "StartsUsed"
        _, records = study(folder, LuckyPlant())
        assert [(r.purpose, r.configuration, r.reason) for r in records] == [
            (r.purpose, r.configuration, r.reason) for r in whole
        ]


def test_a_study_on_a_desk_tells_what_each_technique_contributed(tmp_path):
    """The plant's knobs multiply: twice without prefix caching, 1.5 times with 64 sequences."""
    budget = SPEC.search.budget.model_copy(update={"max_trials": 8, "ablations": 2})
    spec = SPEC.model_copy(update={"search": SPEC.search.model_copy(update={"budget": budget})})
    base = space_of(spec).baseline

    def worth(configuration):
        best = configuration["maxNumSeqs"] == 64
        return (2.0 if not configuration["enablePrefixCaching"] else 1.0) * (1.5 if best else 1.0)

    _, records = study(tmp_path, LuckyPlant(worth=worth), spec)
    choice = choice_from(spec, records)
    assert choice.selection.point.configuration.integer("maxNumSeqs") == 64
    found = attribution_from(spec, records, choice)
    assert base.integer("maxNumSeqs") != 64
    assert {factor.technique: factor.factor.value for factor in found.factors} == pytest.approx(
        {"PrefixCaching": 2.0, "BatchLimits": 1.5}
    )
    assert found.total.value == pytest.approx(3.0)
    assert found.product.value == pytest.approx(3.0)
    assert found.interaction.value == pytest.approx(1.0)
    assert {factor.effect for factor in found.factors} == {"PushesOut"}
    counted = [record for record in records if record.purpose != "Confirmation"]
    assert len(counted) <= 8


def test_no_finalists_on_a_desk_where_none_are_asked_for(tmp_path):
    spec = SPEC.model_copy(
        update={"search": SPEC.search.model_copy(update={"confirmation": ConfirmationSpec(finalists=0)})}
    )
    _, records = study(tmp_path, LuckyPlant(), spec)
    assert len(records) == 5
    assert choice_from(SPEC, records).confirmed is None


def test_an_unused_objective_still_chooses_by_the_second_measurement():
    again = [trial(4, FAST, 290, purpose="Confirmation"), trial(5, NEAR, 295, purpose="Confirmation")]
    tight = Objectives((SLO("speed", "UserTokensPerSecond", 50, minimum=20.0),))
    found = choose([*JOURNAL, *again], tight, TARGET, noise=Noise(0.0))
    assert found.selection.point.configuration == NEAR
