from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_operator.api import names
from frontier_operator.core.decide import decide
from frontier_operator.core.decision import Announce, Retire, Serve
from frontier_operator.core.report import report
from frontier_tuner import journal
from frontier_tuner.study import fingerprint, space_of
from support.operator_builders import (
    NOW,
    confirmed_trials,
    make_measurement,
    make_observation,
    make_serving,
    make_spec,
)

SPEC = make_spec()
BASELINE = space_of(SPEC).baseline
TRIALS = confirmed_trials()
BEST = TRIALS[2].configuration
DONE = {"fingerprint": fingerprint(SPEC), "stop": "BudgetExhausted", "stopMessage": "3 trials"}


def rfc(seconds_ago):
    return (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


def entry(configuration, **more):
    return {
        "configuration": journal.encode_configuration(configuration),
        "configurationHash": configuration.hash,
        **more,
    }


def status(candidate=None, step=0, began=60, step_began=30, **more):
    found = {"study": DONE, "incumbent": entry(BASELINE, since=rfc(900), replicas=1), **more}
    if candidate is not None:
        found["candidate"] = entry(candidate, step=step, startedAt=rfc(began), verdicts=[])
        if step_began is not None:
            found["candidate"]["stepStartedAt"] = rfc(step_began)
    return found


def observe(spec=SPEC, **over):
    base = {"trials": TRIALS, "status": status(), "serving": (make_serving(BASELINE),)}
    return make_observation(spec, **{**base, **over})


def during_canary(live=None, incumbent=None, **over):
    windows = {}
    if live is not None:
        windows[BEST.hash] = live
    if incumbent is not None:
        windows[BASELINE.hash] = incumbent
    serving = (make_serving(BASELINE), make_serving(BEST))
    return observe(**{"status": status(BEST), "serving": serving, "live": windows, **over})


def test_the_selected_point_becomes_a_canary_beside_the_incumbent():
    decision = decide(observe())

    assert decision.rollout.candidate.configuration == BEST
    assert Serve(BASELINE, 1) in decision.actions
    assert Serve(BEST, 1) in decision.actions
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
    assert Serve(BEST, 1) in decision.actions
    assert Retire(f"chat-{BASELINE.hash}") in decision.actions


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
    assert not any(isinstance(action, Retire) for action in decision.actions)


HOLDS = {
    "no live metrics yet": {},
    "too few requests": {"live": make_measurement(ok=49)},
    "step not long enough": {"live": make_measurement(), "status": status(BEST, step_began=5)},
    "prometheus unreachable, 106": {"live_errors": {BEST.hash: "connection refused"}},
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
    assert decision.rollout.blocked[0].configuration_hash == BEST.hash
    assert decision.reason == "RolledBack"


def test_a_canary_that_misses_an_slo_is_rolled_back_and_its_gpus_are_given_back_103():
    decision = decide(during_canary(live=make_measurement(itl=0.2), incumbent=make_measurement(itl=0.02)))

    assert decision.rollout.incumbent == BASELINE
    assert Retire(f"chat-{BEST.hash}") in decision.actions
    assert Serve(BASELINE, 1) in decision.actions
    assert "itl" in decision.message


def test_an_slo_that_the_incumbent_misses_as_badly_does_not_roll_back():
    decision = decide(during_canary(live=make_measurement(itl=0.08), incumbent=make_measurement(itl=0.08)))

    assert decision.rollout.candidate.step == 1


def test_a_canary_that_never_becomes_ready_is_rolled_back():
    observation = during_canary(
        status=status(BEST, began=4000, step_began=None), serving=(make_serving(BASELINE), make_serving(BEST, ready=0))
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
    assert Retire(f"chat-{BEST.hash}") in decision.actions


def test_a_blocked_point_stays_out_for_the_cool_down_and_comes_back_after_it_100():
    blocked = [
        {"configurationHash": BEST.hash, "since": rfc(60), "until": rfc(-60), "message": "m", "reason": "RolledBack"}
    ]
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
    assert decision.actions == (Serve(BASELINE, 1),)
    assert written["recommended"]["configurationHash"] == BEST.hash
    assert '"Deployment"' in written["recommended"]["manifest"]


def test_approve_waits_for_the_hash():
    spec = make_spec(rollout__mode="Approve")

    waiting = decide(observe(spec))
    wrong = decide(observe(spec, annotations={names.ANNOTATION_APPROVE: "other"}))
    approved = decide(observe(spec, annotations={names.ANNOTATION_APPROVE: BEST.hash}))

    assert waiting.reason == wrong.reason == "AwaitingApproval"
    assert BEST.hash in waiting.message
    assert approved.rollout.candidate.configuration == BEST


def test_a_lost_status_is_rebuilt_from_what_serves():
    decision = decide(observe(status={}, trials=(), serving=(make_serving(BEST, 2),)))

    assert decision.rollout.incumbent == BEST
    assert Serve(BEST, 2) in decision.actions


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
