from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_operator.api import names
from frontier_operator.core.decide import decide
from frontier_operator.core.decision import Announce, Expose, Retire, Scale, Serve
from frontier_operator.core.render import revision
from frontier_operator.core.report import report
from frontier_tuner import journal
from frontier_tuner.measurement import Validity
from frontier_tuner.study import fingerprint, space_of
from support.operator_builders import (
    NOW,
    confirmed_trials,
    make_measurement,
    make_observation,
    make_pod,
    make_serving,
    make_spec,
)

SPEC = make_spec()
BASELINE = space_of(SPEC).baseline
TRIALS = confirmed_trials()
BEST = TRIALS[2].configuration
OLD, NEW = revision(SPEC, BASELINE), revision(SPEC, BEST)
DONE = {"fingerprint": fingerprint(SPEC), "stop": "BudgetExhausted", "stopMessage": "3 trials"}


def rfc(seconds_ago):
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def entry(configuration, spec=SPEC, **more):
    return {
        "configuration": journal.encode_configuration(configuration),
        "configurationHash": configuration.hash,
        "revision": revision(spec, configuration),
        **more,
    }


def status(candidate=None, step=0, began=60, step_began=30, waiting=None, **more):
    found = {"study": DONE, "incumbent": entry(BASELINE, since=rfc(900), replicas=1), **more}
    if candidate is not None:
        found["candidate"] = entry(candidate, step=step, startedAt=rfc(began), verdicts=[])
        if step_began is not None:
            found["candidate"]["stepStartedAt"] = rfc(step_began)
        if waiting is not None:
            found["candidate"]["waitingSince"] = rfc(waiting)
    return found


def observe(spec=SPEC, **over):
    base = {"trials": TRIALS, "status": status(), "serving": (make_serving(BASELINE),)}
    return make_observation(spec, **{**base, **over})


def during_canary(live=None, incumbent=None, **over):
    windows = {}
    if live is not None:
        windows[NEW] = live
    if incumbent is not None:
        windows[OLD] = incumbent
    serving = (make_serving(BASELINE), make_serving(BEST))
    return observe(**{"status": status(BEST), "serving": serving, "live": windows, **over})


def test_the_selected_point_becomes_a_canary_beside_the_incumbent():
    decision = decide(observe())

    assert decision.rollout.candidate.configuration == BEST
    assert decision.actions[-1] == Serve(BEST, NEW, 1)
    assert any(isinstance(action, Announce) and action.reason == "CanaryRunning" for action in decision.actions)


def test_a_step_begins_when_its_pods_are_ready():
    waiting = during_canary(
        status=status(BEST, step_began=None), serving=(make_serving(BASELINE), make_serving(BEST, ready=0))
    )
    ready = during_canary(status=status(BEST, step_began=None))

    assert decide(waiting).rollout.candidate.step_started_at is None
    assert decide(ready).rollout.candidate.step_started_at == NOW


def test_a_good_step_leads_to_the_next_one():
    decision = decide(during_canary(live=make_measurement(itl=0.03), incumbent=make_measurement(itl=0.03)))

    assert decision.rollout.candidate.step == 1
    assert decision.rollout.candidate.step_started_at is None
    assert decision.rollout.candidate.verdicts[0]["verdict"] == "Pass"


def test_the_last_good_step_promotes_without_another_engine_start():
    observation = during_canary(live=make_measurement(itl=0.03), status=status(BEST, step=1))

    decision = decide(observation)

    assert decision.rollout.incumbent == BEST
    assert decision.rollout.candidate is None
    assert not any(isinstance(action, Serve | Retire) for action in decision.actions)

    persisted = replace(observation, status=report(observation, decision))
    assert Retire(f"chat-{OLD}") in decide(persisted).actions


def test_the_old_incumbent_stays_until_the_new_one_carries_the_load_101_102():
    spec = make_spec(workload={"profile": {}, "requestRate": "100"})
    trials = confirmed_trials(spec)
    done = {**DONE, "fingerprint": fingerprint(spec)}
    observation = observe(
        spec,
        trials=trials,
        status={"study": done, "incumbent": entry(BEST, since=rfc(9), replicas=2)},
        serving=(make_serving(BASELINE, 2), make_serving(BEST, 2, ready=1)),
    )

    decision = decide(observation)

    assert decision.rollout.replicas == 2
    assert decision.actions == (Scale(f"chat-{OLD}", 1),)


HOLDS = {
    "no live metrics yet": {},
    "too few requests": {"live": make_measurement(ok=49)},
    "step not long enough": {"live": make_measurement(), "status": status(BEST, step_began=5)},
    "prometheus unreachable, 106": {"live_errors": {NEW: "connection refused"}},
    "window invalid": {"live": make_measurement(valid=False, reason="MetricsMissing")},
}


@pytest.mark.parametrize("over", HOLDS.values(), ids=HOLDS)
def test_a_step_holds(over):
    decision = decide(during_canary(**over))

    assert decision.rollout.candidate.step == 0
    assert decision.rollout.incumbent == BASELINE


@pytest.mark.parametrize("over", [{}, {"live": make_measurement(ok=3)}], ids=["no traffic, 94", "one request, 62"])
def test_missing_evidence_is_rolled_back_at_the_deadline_and_never_promoted(over):
    decision = decide(during_canary(**{"status": status(BEST, step_began=121), **over}))

    assert decision.rollout.candidate is None
    assert decision.rollout.incumbent == BASELINE
    assert decision.rollout.blocked[0].revision == NEW
    assert decision.reason == "RolledBack"


def test_a_canary_that_misses_an_slo_is_rolled_back_and_its_gpus_are_given_back_103():
    observation = during_canary(live=make_measurement(itl=0.2), incumbent=make_measurement(itl=0.02))

    decision = decide(observation)

    assert decision.rollout.incumbent == BASELINE
    assert "itl" in decision.message
    assert any(isinstance(action, Announce) and action.reason == "GuardrailBreached" for action in decision.actions)
    assert not any(isinstance(action, Retire) for action in decision.actions)

    persisted = replace(observation, status=report(observation, decision), live={})
    assert Retire(f"chat-{NEW}") in decide(persisted).actions


def test_an_slo_that_the_incumbent_misses_as_badly_does_not_roll_back():
    decision = decide(during_canary(live=make_measurement(itl=0.08), incumbent=make_measurement(itl=0.08)))

    assert decision.rollout.candidate.step == 1


def test_a_canary_that_never_becomes_ready_is_rolled_back():
    observation = during_canary(
        status=status(BEST, began=4000, step_began=None, waiting=4000),
        serving=(make_serving(BASELINE), make_serving(BEST, ready=0)),
    )

    assert decide(observation).reason == "RolledBack"


def test_another_selection_during_the_analysis_starts_anew_97():
    spec = make_spec(target__policy="MinLatency")
    trials = confirmed_trials(spec, factors=(1.0, 2.0, 1.5))
    observation = during_canary(
        live=make_measurement(), spec=spec, trials=trials, status={**status(BEST, step=1), "study": {**DONE}}
    )

    decision = decide(observation)

    assert decision.rollout.candidate.configuration == trials[1].configuration
    assert decision.rollout.candidate.step == 0
    persisted = replace(observation, status=report(observation, decision))
    assert Retire(f"chat-{NEW}") in decide(persisted).actions


def test_a_blocked_point_stays_out_for_the_cool_down_and_comes_back_after_it_100():
    blocked = [{"revision": NEW, "since": rfc(60), "until": rfc(-60), "message": "m", "reason": "RolledBack"}]
    expired = [{**blocked[0], "until": rfc(1)}]

    kept_out = decide(observe(status=status(blocked=blocked)))
    again = decide(observe(status=status(blocked=expired)))

    assert kept_out.rollout.candidate is None
    assert kept_out.reason == "RolledBack"
    assert again.rollout.candidate.configuration == BEST


def test_recommend_touches_nothing_and_writes_the_manifest():
    spec = make_spec(rollout__mode="Recommend")
    observation = observe(spec)

    decision = decide(observation)
    written = report(observation, decision)

    assert decision.rollout.candidate is None
    assert decision.actions == ()
    assert written["recommended"]["configurationHash"] == BEST.hash
    assert '"Deployment"' in written["recommended"]["manifest"]


def test_approve_waits_for_the_hash():
    spec = make_spec(rollout__mode="Approve")

    waiting = decide(observe(spec))
    wrong = decide(observe(spec, annotations={names.ANNOTATION_APPROVE: "other"}))
    approved = decide(observe(spec, annotations={names.ANNOTATION_APPROVE: NEW}))

    assert waiting.reason == wrong.reason == "AwaitingApproval"
    assert NEW in waiting.message
    assert approved.rollout.candidate.configuration == BEST


def test_a_lost_status_is_rebuilt_from_what_serves():
    decision = decide(observe(status={}, trials=(), serving=(make_serving(BEST, 2),)))

    assert decision.rollout.incumbent == BEST
    assert decision.rollout.replicas == 2
    assert not any(isinstance(action, Serve | Scale | Retire) for action in decision.actions)


def test_replicas_carry_the_request_rate_with_headroom():
    # 2,000 tok/s at 64 concurrent are 40 requests/s in the builders, times 1.5; half of it is headroom.
    spec = make_spec(workload={"profile": {}, "requestRate": "100"}, target__headroomPercent=50)
    trials = confirmed_trials(spec)
    done = {**DONE, "fingerprint": fingerprint(spec)}
    observation = observe(
        spec,
        trials=trials,
        status={"study": done, "incumbent": entry(BEST, since=rfc(9), replicas=1)},
        serving=(make_serving(BEST),),
    )

    decision = decide(observation)

    want = -(-100 // (decision.study.selection.point.metrics["RequestsPerSecond"].value * 0.5))
    assert decision.rollout.replicas == want > 1


def test_the_state_survives_the_status_unchanged():
    observation = during_canary(live=make_measurement(ok=10))
    decision = decide(observation)

    written = report(observation, decision)
    again = decide(replace(observation, status=written))

    assert again.rollout == decision.rollout


def test_a_later_step_gets_the_whole_start_time_for_its_new_pods():
    found = status(BEST, step=1, began=2400, step_began=None)
    found["incumbent"]["replicas"] = 4
    serving = (make_serving(BASELINE, 4), make_serving(BEST, 1))

    decision = decide(during_canary(status=found, serving=serving))

    assert decision.rollout.candidate.waiting_since == NOW
    assert Scale(f"chat-{NEW}", 4) in decision.actions


def test_one_unready_moment_late_in_a_step_does_not_roll_back():
    observation = during_canary(
        live=make_measurement(),
        status=status(BEST, began=9000, step_began=8000),
        serving=(make_serving(BASELINE), make_serving(BEST, 1, ready=0)),
    )

    assert decide(observation).rollout.candidate is not None


def test_steps_that_are_shortened_under_a_canary_do_not_stop_it():
    canary = {"steps": [50], "stepDuration": "10s", "minRequests": 50}
    observation = during_canary(
        spec=make_spec(rollout__canary=canary), live=make_measurement(ok=3), status=status(BEST, step=1)
    )

    written = report(observation, decide(observation))

    assert written["candidate"]["stepPercent"] == 50


def test_a_canary_that_answers_with_errors_is_rolled_back_at_once():
    live = replace(
        make_measurement(ok=10), sent=510, failed=500, validity=Validity(False, "WindowInvalid", "500 of 510 failed")
    )

    assert decide(during_canary(live=live)).reason == "RolledBack"


def test_a_canary_whose_engine_restarted_is_rolled_back_at_once():
    pods = (make_pod(restarts=1, last_words="RuntimeError: no kernel"),)
    observation = during_canary(serving=(make_serving(BASELINE), make_serving(BEST, pods=pods)))

    decision = decide(observation)

    assert decision.reason == "RolledBack"
    assert "no kernel" in decision.message


def test_a_breach_does_not_wait_for_the_end_of_the_step():
    observation = during_canary(
        live=make_measurement(itl=0.2), incumbent=make_measurement(itl=0.02), status=status(BEST, step_began=5)
    )

    assert decide(observation).reason == "RolledBack"


def test_an_invalid_window_of_the_incumbent_excuses_nothing():
    beside = make_measurement(itl=0.08, ok=1, valid=False, reason="InsufficientSamples")

    assert decide(during_canary(live=make_measurement(itl=0.08), incumbent=beside)).reason == "RolledBack"


def test_a_rolled_back_canary_leaves_although_the_incumbent_is_not_whole():
    found = status(BEST)
    found["incumbent"]["replicas"] = 2
    observation = during_canary(
        live=make_measurement(itl=0.2),
        status=found,
        serving=(make_serving(BASELINE, 2, ready=1), make_serving(BEST)),
    )
    first = decide(observation)

    later = decide(replace(observation, status=report(observation, first), live={}))

    assert Retire(f"chat-{NEW}") in later.actions


def test_an_edited_engine_never_changes_the_pods_that_serve():
    edited = make_spec(engine__image="vllm/vllm-openai:v0.34.0")

    decision = decide(observe(edited, trials=()))

    assert decision.rollout.incumbent == BASELINE
    assert decision.rollout.revision == OLD
    assert not any(isinstance(action, Serve | Scale | Retire) for action in decision.actions)


def test_an_edited_engine_ends_a_canary_97():
    edited = make_spec(engine__image="vllm/vllm-openai:v0.34.0")
    observation = during_canary(spec=edited, live=make_measurement(), trials=(), status=status(BEST, step=1))

    decision = decide(observation)

    assert (decision.rollout.candidate, decision.rollout.incumbent) == (None, BASELINE)


def test_an_edited_engine_replaces_a_baseline_that_never_served():
    edited = make_spec(engine__image="vllm/vllm-openai:v0.34.0")
    observation = observe(edited, trials=(), serving=(make_serving(BASELINE, ready=0),))

    decision = decide(observation)

    assert decision.rollout.revision == revision(edited, BASELINE)
    assert Serve(BASELINE, revision(edited, BASELINE), 1) in decision.actions


def test_an_incumbent_whose_variant_left_the_spec_serves_on():
    renamed = make_spec(model__variants=[{"name": "full", "source": "hf://Qwen/Qwen3-8B"}])

    decision = decide(observe(renamed, trials=()))

    assert decision.rollout.revision == OLD
    assert decision.actions == () or not any(isinstance(a, Serve | Retire) for a in decision.actions)


@pytest.mark.parametrize("edit", [{"rollout__mode": "Recommend"}, {"rollout__mode": "Approve"}, {"suspend": True}])
def test_an_edit_that_forbids_rollouts_promotes_nothing(edit):
    observation = during_canary(spec=make_spec(**edit), live=make_measurement(), status=status(BEST, step=1))

    assert decide(observation).rollout.incumbent == BASELINE


def test_suspend_starts_no_rollout():
    assert decide(observe(make_spec(suspend=True))).rollout.candidate is None


def test_the_rollback_annotation_ends_a_canary_and_keeps_others_from_beginning():
    asked = {names.ANNOTATION_ROLLBACK: "now"}

    assert decide(during_canary(live=make_measurement(), annotations=asked)).rollout.candidate is None
    assert decide(observe(annotations=asked)).rollout.candidate is None


def test_replicas_that_somebody_set_are_kept_where_no_rate_is_known_105():
    found = {"study": DONE, "incumbent": entry(BEST, since=rfc(9), replicas=1)}

    decision = decide(observe(status=found, serving=(make_serving(BEST, 3),)))

    assert decision.rollout.replicas == 3
    assert decision.actions == ()


def test_arguments_that_somebody_changed_are_restored_105():
    changed = make_serving(BASELINE, args=("--model", "other"))

    assert Serve(BASELINE, OLD, 1) in decide(observe(serving=(changed,), trials=())).actions


def test_a_missing_service_is_made():
    assert decide(observe(service="Missing", trials=())).actions[0] == Expose()
