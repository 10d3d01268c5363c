from dataclasses import replace

import pytest

from frontier_operator.api.v1alpha1 import InferenceDeploymentStatus, parse
from frontier_operator.core import render, views
from frontier_operator.core.decide import decide
from frontier_operator.core.decision import CreateTrial, FinishTrial, ReleaseTrial, Serve, StartEngine, StartLoad
from frontier_operator.core.render import revision
from frontier_operator.core.report import report
from frontier_tuner.configuration import Configuration
from frontier_tuner.study import fingerprint, space_of
from frontier_tuner.trial import Failure
from support.operator_builders import (
    NOW,
    confirmed_trials,
    finished_trials,
    make_body,
    make_observation,
    make_pod,
    make_record,
    make_serving,
    make_spec,
    make_trial,
)

SPEC = make_spec()
BASELINE = space_of(SPEC).baseline


def created(decision):
    return [action for action in decision.actions if isinstance(action, CreateTrial)]


def test_the_first_pass_serves_the_baseline_and_tries_nothing():
    decision = decide(make_observation())

    assert decision.actions == (Serve(BASELINE, revision(SPEC, BASELINE), 1),)
    assert decision.reason == "WaitingForBaseline"


def test_trials_begin_when_the_baseline_serves_and_stay_within_the_gpu_cap():
    decision = decide(make_observation(serving=(make_serving(BASELINE),)))

    first, second = created(decision)
    assert (first.number, first.purpose, first.configuration) == (0, "Baseline", BASELINE)
    assert (second.number, second.purpose) == (1, "Search")
    assert second.configuration != BASELINE
    assert first.name == f"chat-{fingerprint(SPEC)[:6]}-000"


def test_trials_begin_although_the_baseline_cannot_start():
    failing = make_serving(BASELINE, ready=0, pods=(make_pod(ready=False, restarts=2),))

    assert created(decide(make_observation(serving=(failing,))))


@pytest.mark.parametrize(("held", "want"), [(0, 1), (1, 1), (2, 0)])
def test_gpus_of_engines_that_are_not_gone_yet_count(held, want):
    trials = finished_trials()[:2]
    trials = tuple(replace(t, engine=make_pod() if i < held else None) for i, t in enumerate(trials))

    decision = decide(make_observation(trials=trials, serving=(make_serving(BASELINE),)))

    assert len(created(decision)) == want


def test_a_trial_that_exists_without_an_engine_is_started_after_a_restart():
    trial = make_trial(0, BASELINE)

    decision = decide(make_observation(trials=(trial,), serving=(make_serving(BASELINE),)))

    assert StartEngine(trial.name, BASELINE) in decision.actions


def test_the_same_observation_gives_the_same_decision():
    observation = make_observation(trials=finished_trials()[:2], serving=(make_serving(BASELINE),))

    assert decide(observation) == decide(observation)


def test_no_configuration_is_tried_twice_71():
    trials = finished_trials()[:1]
    decision = decide(make_observation(trials=trials, serving=(make_serving(BASELINE),)))

    assert BASELINE not in {action.configuration for action in created(decision)}


def test_after_the_last_trial_finalists_and_the_incumbent_are_measured_again():
    trials = finished_trials()

    decision = decide(make_observation(trials=trials, serving=(make_serving(BASELINE),)))

    again = created(decision)
    assert {action.purpose for action in again} == {"Confirmation"}
    assert again[0].configuration == trials[2].configuration
    assert BASELINE in {action.configuration for action in again}
    assert [action.number for action in again] == [3, 4, 5]
    assert decision.reason == "ConfirmingFinalists"


def test_the_stop_is_recorded_once_every_finalist_is_confirmed():
    decision = decide(make_observation(trials=confirmed_trials(), serving=(make_serving(BASELINE),)))

    assert decision.study.stop == "BudgetExhausted"
    assert created(decision) == []


def test_the_choice_is_by_the_second_measurement_and_says_how_lucky_the_first_was():
    """The search's best looked 1.5 times the baseline and is 1.05; its runner-up stays at 1.1."""
    trials = confirmed_trials()
    again = make_record(3, trials[2].configuration, purpose="Confirmation", factor=1.05)
    trials = (*trials[:3], replace(trials[3], record=again), *trials[4:])

    observation = make_observation(trials=trials, serving=(make_serving(BASELINE),))
    decision = decide(observation)
    selection = report(observation, decision)["selection"]

    assert decision.study.stop == "BudgetExhausted"
    assert decision.rollout.candidate.configuration == trials[1].configuration
    assert selection["configurationHash"] == trials[1].configuration.hash
    assert selection["confirmations"] == 1
    assert selection["optimism"]["value"] == "1"
    assert float(selection["optimism"]["low"]) < 1 < float(selection["optimism"]["high"])
    assert "chosen by 1 second measurement; the first measurement looked 1 (" in selection["message"]


def test_a_lucky_winner_that_stays_the_best_is_worth_its_second_measurement():
    trials = confirmed_trials()
    again = make_record(3, trials[2].configuration, purpose="Confirmation", factor=1.2)
    trials = (*trials[:3], replace(trials[3], record=again), *trials[4:])

    observation = make_observation(trials=trials, serving=(make_serving(BASELINE),))
    status = report(observation, decide(observation))

    assert status["selection"]["optimism"]["value"] == "1.25"
    assert status["selection"]["load"]["value"] == "64"


def test_neighbours_of_the_best_are_confirmed_with_trials_that_are_left_over():
    spec = make_spec(
        search__parameters=[
            *make_body()["spec"]["search"]["parameters"][2:],
            {"name": "maxNumSeqs", "values": [64, 128, 256]},
            {"name": "maxNumBatchedTokens", "value": 2048},
        ],
        search__budget={"maxTrials": 9},
        search__confirmation={"finalists": 1},
    )
    space = space_of(spec)
    order = sorted(space.configurations(), key=lambda c: (c != space.baseline, c["maxNumSeqs"]))
    factors = {64: 1.5, 128: 1.1, 256: 1.0}
    trials = tuple(
        make_trial(i, c, spec, record=make_record(i, c, factor=factors[c["maxNumSeqs"]])) for i, c in enumerate(order)
    )

    decision = decide(make_observation(spec, trials=trials, serving=(make_serving(order[0], spec=spec),)))

    again = created(decision)
    assert [action.configuration["maxNumSeqs"] for action in again] == [64, 256, 128]
    assert [action.reason.split()[0] for action in again] == ["finalist", "incumbent", "neighbour"]


ABLATED = make_spec(search__budget={"maxTrials": 5, "ablations": 2})
"""The best trial of `finished_trials` differs from the baseline in both batch limits: one technique."""


def test_the_search_leaves_the_trials_that_ablations_are_to_have():
    decision = decide(make_observation(ABLATED, trials=finished_trials(ABLATED), serving=(make_serving(BASELINE),)))

    assert {action.purpose for action in created(decision)} == {"Confirmation"}


def two_techniques(ablated=()):
    """A finished search whose best trial has two techniques: depth of speculation and batch limits."""
    spec = make_spec(
        search__parameters=[
            {"name": "maxNumSeqs", "values": [64, 256]},
            {"name": "maxNumBatchedTokens", "value": 2048},
            {"name": "numSpeculativeTokens", "value": 0},
            {"name": "enablePrefixCaching", "values": [True, False]},
            {"name": "tensorParallelSize", "value": 1},
        ],
        search__budget={"maxTrials": 4, "ablations": 2},
        search__confirmation={"finalists": 1, "neighbours": 0},
    )
    base = space_of(spec).baseline
    best = Configuration.of({**base, "maxNumSeqs": 64, "enablePrefixCaching": False})
    records = [
        make_record(0, base, purpose="Baseline"),
        make_record(1, best, factor=3.0),
        make_record(2, best, purpose="Confirmation", factor=3.0),
        make_record(3, base, purpose="Confirmation"),
    ]
    for changes, factor in ablated:
        records.append(
            make_record(len(records), Configuration.of({**best, **changes}), purpose="Ablation", factor=factor)
        )
    trials = tuple(make_trial(r.number, r.configuration, spec, purpose=r.purpose, record=r) for r in records)
    return make_observation(spec, trials=trials, serving=(make_serving(base, spec=spec),)), base, best


def test_after_the_finalists_the_choice_is_measured_without_each_technique():
    observation, base, best = two_techniques()

    decision = decide(observation)

    again = created(decision)
    assert [(action.purpose, action.levels) for action in again] == [("Ablation", (4.0, 16.0, 64.0))] * 2
    assert again[0].configuration == Configuration.of({**best, "enablePrefixCaching": True})
    assert again[1].configuration == Configuration.of({**best, "maxNumSeqs": base["maxNumSeqs"]})
    assert decision.reason == "MeasuringTechniques"
    assert decision.study.stop == ""


def test_the_status_tells_the_factor_of_each_technique_and_their_product():
    observation, *_ = two_techniques(
        [({"enablePrefixCaching": True}, 1.5), ({"maxNumSeqs": 256}, 2.0)],
    )

    decision = decide(observation)
    status = report(observation, decision)
    techniques = {each["name"]: each for each in status["techniques"]}

    assert created(decision) == []
    assert decision.study.stop == "BudgetExhausted"
    assert {name: each["factor"] for name, each in techniques.items()} == {"PrefixCaching": "2", "BatchLimits": "1.5"}
    # The builders' records serve more tokens at the same speed: the curve only goes further.
    assert {each["effect"] for each in techniques.values()} == {"MovesAlong"}
    assert all(float(each["low"]) > 1.2 for each in techniques.values())
    assert status["advantage"]["total"]["value"] == "3"
    assert status["advantage"]["product"]["value"] == "3"
    assert status["advantage"]["interaction"]["value"] == "1"
    assert InferenceDeploymentStatus.model_validate(status).dump()["techniques"] == status["techniques"]


def test_an_ablation_under_way_is_waited_for():
    observation, base, _ = two_techniques()
    running = make_trial(4, base, observation.spec, purpose="Ablation", engine=make_pod())

    decision = decide(replace(observation, trials=(*observation.trials, running)))

    assert created(decision) == []
    assert decision.reason == "MeasuringTechniques"


def test_what_a_trial_is_expected_to_gain_is_kept_on_it_and_read_back():
    trials = finished_trials()[:2]

    (action,) = created(decide(make_observation(trials=trials, serving=(make_serving(BASELINE),))))
    manifest = render.trial(action, SPEC, "ml", render.Owner("InferenceDeployment", "chat", "u1"), fingerprint(SPEC))
    manifest["metadata"]["creationTimestamp"] = "2026-01-01T12:00:00Z"

    assert action.expected_gain > 0
    assert float(manifest["spec"]["expectedGain"]) == action.expected_gain
    view = views.trial(manifest, None, ())
    assert view.expected_gain == action.expected_gain
    lost = views.trial({**manifest, "status": {"outcome": "Failed"}}, None, ())
    assert lost.record.expected_gain == action.expected_gain


def pay_back(horizon, trials, status=None, **over):
    spec = make_spec(search__budget={"maxTrials": 9, "payBack": horizon, **over})
    return make_observation(spec, trials=trials, status=status or {}, serving=(make_serving(BASELINE),))


def test_trials_that_would_not_pay_back_are_the_last():
    trials = finished_trials()[:2]

    assert created(decide(pay_back("720h", trials)))
    decision = decide(pay_back("1ms", trials))

    assert {action.purpose for action in created(decision)} == {"Confirmation"}


def test_pay_back_is_recorded_and_a_longer_one_goes_on():
    trials = confirmed_trials()

    short = pay_back("1ms", trials)
    ended = decide(short)
    status = report(short, ended)
    again = decide(replace(short, status=status))
    longer = decide(pay_back("87600h", trials, status))

    assert (ended.study.stop, again.study.stop) == ("PayBackExceeded", "PayBackExceeded")
    assert "is expected to save" in status["study"]["stopMessage"]
    assert created(again) == []
    assert {action.purpose for action in created(longer)} == {"Search"}


def test_as_many_replicas_as_serve_must_pay_back():
    """The trial costs the same; ten replicas use what it finds ten times as much."""
    spec = make_spec(search__budget={"maxTrials": 9, "payBack": "36s"})
    one = decide(make_observation(spec, trials=confirmed_trials(), serving=(make_serving(BASELINE),)))
    busy = {"incumbent": {"replicas": 1000, "configuration": {}, "revision": "", "since": "2026-01-01T12:00:00Z"}}
    many = decide(make_observation(spec, trials=confirmed_trials(), status=busy, serving=(make_serving(BASELINE),)))

    assert one.study.stop == "PayBackExceeded"
    assert {action.purpose for action in created(many)} == {"Search"}


def test_the_noise_between_starts_is_what_repeats_show():
    """Repeats that agree better than their windows' intervals say lower the assumed 3 %: sqrt((4 * 0.03² - 3 * w) / 7).

    Their windows' own standard deviation is w = ((ln(1 / 0.95) + ln 1.05) / 3.92)².
    """
    once = make_observation(trials=finished_trials(), serving=(make_serving(BASELINE),))
    again = make_observation(trials=confirmed_trials(), serving=(make_serving(BASELINE),))

    assert report(once, decide(once))["study"]["startNoisePercent"] == "3.00"
    assert report(again, decide(again))["study"]["startNoisePercent"] == "1.53"


def test_noisy_repeats_keep_near_ties_on_the_frontier():
    trials = confirmed_trials(factors=(1.0, 1.0, 1.2))
    calm = decide(make_observation(trials=trials, serving=(make_serving(BASELINE),)))
    again = make_record(5, trials[0].configuration, purpose="Confirmation", factor=0.4)
    noisy = (*trials[:5], replace(trials[5], record=again))
    wild = decide(make_observation(trials=noisy, serving=(make_serving(BASELINE),)))

    assert calm.study.noise.start < 0.03
    assert wild.study.noise.start > 0.15
    tied = trials[1].configuration
    assert tied not in {point.configuration for point in calm.study.frontier}
    assert tied in {point.configuration for point in wild.study.frontier}


def test_what_an_engine_refused_is_left_out_and_told():
    spec = make_spec(
        search__parameters=[
            {"name": "maxNumSeqs", "values": [64, 256]},
            {"name": "maxNumBatchedTokens", "value": 2048},
            {"name": "numSpeculativeTokens", "value": 0},
            {"name": "enablePrefixCaching", "value": True},
            {"name": "tensorParallelSize", "value": 1},
            {"name": "pipelineParallelSize", "values": [1, 2]},
        ],
        search__budget={"maxTrials": 9},
    )
    space = space_of(spec)
    refused = next(c for c in space.configurations() if c["pipelineParallelSize"] == 2)
    words = Failure("EngineStartFailed", "Pipeline parallelism is not supported for this model. (exit code 1)")
    records = [
        make_record(0, space.baseline, purpose="Baseline"),
        make_record(1, refused, outcome="Infeasible", failure=words),
    ]
    trials = tuple(make_trial(r.number, r.configuration, spec, record=r) for r in records)
    observation = make_observation(spec, trials=trials, serving=(make_serving(space.baseline, spec=spec),))

    decision = decide(observation)
    status = report(observation, decision)

    assert [action.configuration["pipelineParallelSize"] for action in created(decision)] == [1]
    (sentence,) = status["study"]["refused"]
    assert sentence.startswith("the engine refused pipelineParallelSize 2 in an earlier trial")
    assert InferenceDeploymentStatus.model_validate(status).study.refused == (sentence,)


def test_no_finalists_let_the_first_measurement_decide():
    spec = make_spec(search__confirmation={"finalists": 0})
    trials = finished_trials(spec)

    decision = decide(make_observation(spec, trials=trials, serving=(make_serving(BASELINE, spec=spec),)))

    assert created(decision) == []
    assert decision.study.stop == "BudgetExhausted"
    assert decision.rollout.candidate.configuration == trials[2].configuration


def test_an_edited_target_selects_again_without_trials():
    spec = make_spec(target__policy="MinLatency")
    status = {"study": {"fingerprint": fingerprint(spec), "stop": "BudgetExhausted", "stopMessage": "m"}}
    trials = confirmed_trials(spec)

    before = decide(make_observation(make_spec(), trials=trials, status=status, serving=(make_serving(BASELINE),)))
    after = decide(make_observation(spec, trials=trials, status=status, serving=(make_serving(BASELINE),)))

    assert created(after) == []
    assert before.study.selection.point.load.value == 64.0
    assert after.study.selection.point.load.value == 4.0


def test_a_larger_budget_goes_on_with_the_study():
    spec = make_spec(search__budget={"maxTrials": 5})
    status = {"study": {"fingerprint": fingerprint(spec), "stop": "BudgetExhausted", "stopMessage": "m"}}

    decision = decide(
        make_observation(spec, trials=confirmed_trials(spec), status=status, serving=(make_serving(BASELINE),))
    )

    assert [action.purpose for action in created(decision)] == ["Search", "Search"]


@pytest.mark.parametrize(
    ("edit", "same"),
    [
        ({"target__policy": "MinLatency"}, True),
        ({"objectives__slos": []}, True),
        ({"hardware__pricePerGPUHour": "9"}, True),
        ({"search__budget": {"maxTrials": 99}}, True),
        ({"rollout__mode": "Recommend"}, True),
        ({"engine__image": "vllm/vllm-openai:v0.34.0"}, False),
        ({"engine__args": ["--max-model-len=4096"]}, False),
        ({"hardware__gpusPerNode": 8}, False),
        ({"search__maxTrialGPUs": 4}, False),
        ({"workload": {"profile": {"inputTokens": {"mean": 9}}}}, False),
        ({"search__parameters": []}, False),
    ],
)
def test_the_fingerprint_changes_with_what_is_measured_and_with_nothing_else_75(edit, same):
    assert (fingerprint(make_spec(**edit)) == fingerprint(SPEC)) == same


def test_suspend_starts_nothing_and_serves_on():
    spec = make_spec(suspend=True)

    decision = decide(make_observation(spec, serving=(make_serving(BASELINE),)))

    assert decision.actions == ()
    assert decision.reason == "Suspended"


def test_an_invalid_spec_changes_nothing_and_names_every_problem():
    problems = parse(make_body(search__maxTrialGPUs=0, model__variants=[]))
    observation = replace(make_observation(), spec=None, space=None, problems=tuple(problems))

    decision = decide(observation)

    assert decision.actions == ()
    assert "spec.model.variants" in decision.message
    assert "spec.search.maxTrialGPUs" in decision.message


def test_no_feasible_point_is_said_and_nothing_is_rolled_out_4():
    spec = make_spec(objectives__slos=[{"name": "itl", "metric": "ITL", "percentile": 95, "max": "1ms"}])
    status = {"study": {"fingerprint": fingerprint(spec), "stop": "BudgetExhausted", "stopMessage": "m"}}

    decision = decide(
        make_observation(spec, trials=confirmed_trials(spec), status=status, serving=(make_serving(BASELINE),))
    )

    assert decision.study.selection.point is None
    assert decision.rollout.candidate is None
    assert "itl" in decision.study.selection.message.lower()


def test_time_since_the_first_trial_counts_against_the_budget():
    spec = make_spec(search__budget={"maxTrials": 9, "maxDuration": "30s"})
    trials = finished_trials(spec)[:1]

    decision = decide(make_observation(spec, trials=trials, serving=(make_serving(BASELINE),), now=NOW))

    assert all(action.purpose == "Confirmation" for action in created(decision))


def ended(decision):
    return [action.record for action in decision.actions if isinstance(action, FinishTrial)]


def test_a_trial_of_an_older_study_ends_and_gets_no_load_of_the_new_one():
    waiting = replace(make_trial(0, BASELINE), fingerprint="old")
    running = replace(make_trial(1, BASELINE, engine=make_pod(), started_at=NOW, ready_at=NOW), fingerprint="old")

    decision = decide(make_observation(stale_trials=(waiting, running), serving=(make_serving(BASELINE),)))

    assert [record.failure.reason for record in ended(decision)] == ["Superseded", "Superseded"]
    assert not any(isinstance(action, StartLoad) for action in decision.actions)


def test_a_deleted_trial_does_not_wedge_the_study():
    spec = make_spec(search__budget={"maxTrials": 6})
    trials = finished_trials(spec)

    decision = decide(make_observation(spec, trials=(trials[0], trials[2]), serving=(make_serving(BASELINE),)))

    assert [action.number for action in created(decision)] == [3, 4]


def test_a_confirmation_that_failed_confirms_nothing():
    trials = confirmed_trials()
    lost = replace(trials[3].record, outcome="Failed", measurements=(), failure=Failure("PodLost", "m"))
    trials = (*trials[:3], replace(trials[3], record=lost), *trials[4:])

    decision = decide(make_observation(trials=trials, serving=(make_serving(BASELINE),)))

    assert trials[3].configuration in {action.configuration for action in created(decision)}
    assert decision.study.stop == ""


def test_a_configuration_that_wins_because_the_finalists_died_is_confirmed_first():
    spec = make_spec(search__budget={"maxTrials": 4})
    space = space_of(spec)
    chosen = [space.baseline, *(c for c in space.configurations() if c != space.baseline)][:4]
    trials = [
        make_trial(i, c, spec, purpose=purpose, record=make_record(i, c, purpose=purpose, factor=factor))
        for i, (c, factor) in enumerate(zip(chosen, (1.0, 1.1, 1.4, 1.5), strict=True))
        for purpose in ["Baseline" if i == 0 else "Search"]
    ]
    died = {"purpose": "Confirmation", "outcome": "Infeasible", "failure": Failure("EngineDied", "m")}
    for number, i in ((4, 3), (5, 2)):
        record = make_record(number, chosen[i], **died)
        trials.append(make_trial(number, chosen[i], spec, purpose="Confirmation", record=record))
    record = make_record(6, chosen[0], purpose="Confirmation")
    trials.append(make_trial(6, chosen[0], spec, purpose="Confirmation", record=record))

    decision = decide(make_observation(spec, trials=tuple(trials), serving=(make_serving(BASELINE),)))

    assert [action.configuration for action in created(decision)] == [chosen[1]]
    assert decision.study.stop == ""


def test_a_recorded_stop_stands_when_an_slo_is_edited():
    spec = make_spec(
        search__budget={"maxTrials": 40}, objectives__slos=[{"name": "itl", "metric": "ITL", "max": "9ms"}]
    )
    done = {"fingerprint": fingerprint(spec), "stop": "FrontierStable", "stopMessage": "m"}

    decision = decide(
        make_observation(spec, trials=confirmed_trials(spec), status={"study": done}, serving=(make_serving(BASELINE),))
    )

    assert created(decision) == []
    assert decision.study.stop == "FrontierStable"


def test_an_invalid_spec_gives_back_the_gpus_of_ended_trials():
    trial = replace(finished_trials()[0], engine=make_pod())
    observation = replace(make_observation(stale_trials=(trial,)), spec=None, space=None)

    assert decide(observation).actions == (ReleaseTrial(trial.name),)


def test_asking_for_a_new_study_makes_one():
    assert fingerprint(SPEC, "2026-01-01T00:00:00Z") != fingerprint(SPEC)
