from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_operator.api.v1alpha1 import parse
from frontier_operator.app.watching import watch
from frontier_operator.core import render, sharing
from frontier_operator.core.decide import decide
from frontier_operator.core.decision import (
    Announce,
    CreateTrial,
    FinishTrial,
    RecordRung,
    ReleaseTrial,
    StartEngine,
    StartLoad,
)
from frontier_operator.core.live_trials import LiveRules, Stay, at_one_level, find_breach, judge_live, live_window
from frontier_operator.core.observation import LiveView
from frontier_operator.core.report import report
from frontier_operator.core.trials import TrialRules, decide_trial
from frontier_tuner import journal
from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import RUNNING, Estimate, Load, Validity
from frontier_tuner.study import fingerprint, space_of
from support.in_memory import make_ports
from support.operator_builders import (
    NOW,
    TUNABLES,
    confirmed_trials,
    make_body,
    make_measurement,
    make_observation,
    make_pod,
    make_record,
    make_serving,
    make_spec,
    make_trial,
)

LIVE = make_spec(
    measurement={"mode": "Live", "warmUp": "10s", "maxRungDuration": "60s", "live": {"maxSharePercent": 10}}
)
BASELINE = space_of(LIVE).baseline
OTHER = next(c for c in space_of(LIVE).configurations() if c != BASELINE)
JOINED = NOW - timedelta(seconds=40)
RULES = LiveRules(guardrail_percent=20, min_requests=100, scrape_seconds=5.0)
OBJECTIVES = LIVE.to_objectives()  # ITL p95 within 50 ms


def live_trial(number=3, watched=None, **over):
    times = {"started_at": JOINED, "ready_at": JOINED}
    base = make_trial(number, OTHER, LIVE, live=True, levels=(), engine=make_pod(), watched=watched, **times)
    return replace(base, **over)


def view(engine=None, incumbent=None, *, over=False, engines=9):
    return LiveView(engine or make_measurement(), incumbent or make_measurement(ok=1800), engines, over)


def rules(**over):
    return TrialRules(NOW, OBJECTIVES, 600.0, 1, TUNABLES, may_start=True, live=replace(RULES, **over))


def replicas(count, ready=None, configuration=BASELINE):
    return make_serving(configuration, count, ready, LIVE)


def status(**over):
    incumbent = {
        "configuration": journal.encode_configuration(BASELINE),
        "revision": replicas(1).revision,
        "since": "2026-01-01T11:00:00Z",
    }
    return {"incumbent": incumbent, **over}


def observed(*trials, count=9, ready=None, **over):
    serving = (replicas(count, ready),)
    return make_observation(LIVE, trials=trials, serving=serving, status=status(), **over)


@pytest.mark.parametrize(
    ("ready", "percent", "most"), [(0, 10, 0), (8, 10, 0), (9, 10, 1), (18, 10, 2), (1, 50, 1), (98, 1, 0), (99, 1, 1)]
)
def test_trials_never_take_more_than_their_share(ready, percent, most):
    assert sharing.allowed(ready, percent) == most
    assert most == 0 or most / (most + ready) <= percent / 100
    assert sharing.needed(1, percent) <= ready or most == 0


def test_one_trial_at_a_time_starts_in_the_share_of_nine_replicas():
    decision = decide(observed())

    (first,) = [action for action in decision.actions if isinstance(action, CreateTrial)]
    assert (first.live, first.levels) == (True, ())
    waiting = live_trial(0, engine=None, started_at=None, ready_at=None)
    assert decide(observed(waiting)).actions == (StartEngine(waiting.name, OTHER, live=True),)


def test_a_second_trial_waits_until_the_first_has_left():
    waiting = live_trial(1, engine=None, started_at=None, ready_at=None)

    assert not decide(observed(live_trial(0), waiting)).actions
    leaving = live_trial(0, record=make_record(0, OTHER), engine=make_pod(terminating=True))
    assert StartEngine(waiting.name, OTHER, live=True) in decide(observed(leaving, waiting)).actions


def test_no_trial_starts_beside_a_canary():
    waiting = live_trial(0, engine=None, started_at=None, ready_at=None)
    candidate = {"candidate": {"revision": "r"}}

    assert sharing.room(replace(observed(waiting), status=status(**candidate))) == 0


def test_too_few_replicas_stall_with_the_ways_out():
    observation = observed(count=3)

    decision = decide(observation)
    conditions = {c["type"]: c for c in report(observation, decision)["conditions"]}

    assert not [action for action in decision.actions if isinstance(action, CreateTrial)]
    stalled = conditions["Stalled"]
    assert (stalled["status"], stalled["reason"]) == ("True", "TooFewReplicas")
    for words in ("maxSharePercent is 10", "25 % of the traffic", "run 9 replicas", "maxSharePercent to 25"):
        assert words in stalled["message"]
    assert "Reconciling" not in conditions
    again = replace(observation, status=report(observation, decision), now=NOW + timedelta(seconds=9))
    assert report(again, decide(again))["conditions"] == again.status["conditions"]
    enough = replace(again, serving=(replicas(9),))
    assert "Stalled" not in {c["type"] for c in report(enough, decide(enough))["conditions"]}


def test_when_replicas_go_away_the_trial_leaves_and_is_not_blamed():
    finish, release = decide(observed(live_trial(), count=9, ready=8)).actions

    assert isinstance(finish, FinishTrial)
    assert (finish.record.outcome, finish.record.failure.reason) == ("Failed", "ShareExceeded")
    assert release == ReleaseTrial(live_trial().name)


def test_the_youngest_trial_leaves_first():
    old = live_trial(0, created=NOW - timedelta(hours=1))
    young = live_trial(1)

    assert sharing.excess(observed(young, old, count=18)) == frozenset()
    assert sharing.excess(observed(young, old, count=17)) == {young.name}


def test_an_engine_that_joins_is_watched_at_least_once_a_scrape_and_gets_no_load():
    observation = observed(live_trial(watched=view()))

    decision = decide(observation)

    assert not decision.actions
    assert decision.requeue_after <= observation.tunables.scrape_seconds / 2
    assert not [action for action in decision.actions if isinstance(action, StartLoad)]


def test_a_breach_ends_the_trial_and_takes_it_out_of_the_service_in_the_same_pass():
    slow = make_measurement(itl=0.08, ok=100, valid=False, reason="InsufficientSamples")
    trial = live_trial(watched=view(slow))

    finish, release, told = decide_trial(trial, rules())

    assert (finish.record.outcome, finish.record.failure.reason) == ("Pruned", "GuardrailBreached")
    assert "ITL/95 is 0.08" in finish.record.failure.message
    assert "incumbent has 0.02" in finish.record.failure.message
    (measured,) = finish.record.measurements
    assert measured.validity.valid
    assert measured.value("ITL/95") == 0.08
    assert finish.record.beside == view().incumbent
    assert release == ReleaseTrial(trial.name)
    assert isinstance(told, Announce)
    assert (told.reason, told.warning) == ("GuardrailBreached", True)


@pytest.mark.parametrize(
    ("itl", "other", "ok", "breached"),
    [
        (0.061, 0.02, 200, True),
        (0.058, 0.02, 200, False),  # beyond the bound and within the guardrail: users bear that much
        (0.061, 0.02, 90, False),  # too few of them to be no accident
        (0.061, 0.055, 200, False),  # the incumbent misses it too, by half as much
        (0.069, 0.055, 200, True),
        (0.09, 0.09, 200, False),
    ],
)
def test_the_guardrail_judges_against_bound_and_incumbent(itl, other, ok, breached):
    found = find_breach(view(make_measurement(itl=itl, ok=ok), make_measurement(itl=other)), OBJECTIVES, 20)

    assert bool(found) == breached


def test_a_few_outliers_breach_nothing():
    engine = make_measurement(itl=0.07, ok=60)

    def missing(share):
        within = Estimate(1 - share, 1 - share, 1 - share, 60, "q")
        return find_breach(view(replace(engine, metrics={**engine.metrics, "ITLWithinSLO/95": within})), OBJECTIVES, 20)

    assert not missing(4 / 60)
    assert missing(6 / 60)
    assert not find_breach(view(engine), OBJECTIVES, 20)


def test_a_speed_is_bounded_below():
    slos = [{"name": "speed", "metric": "UserTokensPerSecond", "percentile": 5, "min": "40"}]
    objectives = make_spec(objectives__slos=slos).to_objectives()

    assert find_breach(view(make_measurement(speed=30)), objectives, 20)
    assert not find_breach(view(make_measurement(speed=45)), objectives, 20)


def test_failed_requests_breach_unless_the_incumbent_fails_them_too():
    failing = replace(
        make_measurement(ok=40), sent=50, failed=10, validity=Validity(False, "WindowInvalid", "m", "TooManyFailed")
    )

    assert "10 of 50 requests failed" in find_breach(view(failing), OBJECTIVES, 20)
    assert not find_breach(view(failing, failing), OBJECTIVES, 20)


def test_an_engine_that_takes_requests_and_answers_none_breaches():
    idle = replace(make_measurement(ok=0), metrics={})
    hanging = replace(idle, metrics={RUNNING: Estimate(4.0, 4.0, 4.0, 0, "q")})

    assert "none of its requests was answered" in find_breach(view(hanging), OBJECTIVES, 20)
    assert not find_breach(view(idle), OBJECTIVES, 20)
    assert not find_breach(view(hanging, make_measurement(ok=90)), OBJECTIVES, 20)


def test_nobody_is_served_by_an_engine_that_nobody_sees():
    validity = Validity(False, "MetricsMissing", "not scraped: p", "TargetNotScraped")
    unseen = replace(make_measurement(), validity=validity)
    late = JOINED + timedelta(seconds=61)

    for watched in (None, LiveView(None, None, 9, False, "no answer"), view(unseen)):
        assert isinstance(judge_live(live_trial(watched=watched), RULES, OBJECTIVES, NOW), Stay)
        left = judge_live(live_trial(watched=watched), RULES, OBJECTIVES, late)
        assert left.failure.reason == "MetricsMissing"


def test_a_window_that_is_over_completes_the_trial_beside_the_incumbent():
    trial = live_trial(watched=view(make_measurement(itl=0.055), over=True))

    rung, finish, release = decide_trial(trial, rules())

    assert isinstance(rung, RecordRung)
    assert (finish.record.outcome, finish.record.failure) == ("Complete", None)
    assert finish.record.beside.ok == 1800
    assert release == ReleaseTrial(trial.name)
    assert journal.decode(journal.encode(finish.record)) == finish.record


@pytest.mark.parametrize(
    ("reason", "failure"), [("InsufficientSamples", "TooLittleTraffic"), ("WindowInvalid", "WindowInvalid")]
)
def test_a_window_that_does_not_count_gives_the_trial_back(reason, failure):
    over = view(make_measurement(ok=12, valid=False, reason=reason), over=True)

    finish, release = decide_trial(live_trial(watched=over), rules())

    assert (finish.record.outcome, finish.record.failure.reason) == ("Failed", failure)
    assert isinstance(release, ReleaseTrial)


def test_an_engine_that_dies_says_what_its_users_felt():
    seen = make_measurement(ok=30)
    seen = replace(seen, metrics={**seen.metrics, RUNNING: Estimate(2.5, 2.5, 2.5, 30, "q")})
    dead = make_pod(ready=False, exit_code=1, last_words="CUDA error", phase="Failed")

    (finish,) = decide_trial(live_trial(engine=dead, watched=view(seen)), rules())
    (unknown,) = decide_trial(live_trial(engine=dead), rules())

    message = finish.record.failure.message
    assert finish.record.failure.reason == "EngineDied"
    assert "30 of its users' requests were answered, 0 failed, and about 2.5 were in flight" in message
    assert "is not known" in unknown.record.failure.message


def test_a_node_that_ends_the_pod_because_nobody_else_did_is_not_the_configurations_fault():
    ended = make_pod(ready=False, exit_code=143, phase="Failed", termination_reason="DeadlineExceeded")

    (finish,) = decide_trial(live_trial(engine=ended), rules())

    assert (finish.record.outcome, finish.record.failure.reason) == ("Failed", "PodLost")


def test_a_superseded_trial_leaves_the_service_in_the_same_pass():
    observation = observed(stale_trials=(live_trial(),))

    finish, release = decide(observation).actions[:2]

    assert finish.record.failure.reason == "Superseded"
    assert release == ReleaseTrial(live_trial().name)


def test_the_window_begins_when_it_joins_and_the_measured_one_after_the_warm_up():
    def at(seconds):
        return live_window(live_trial(), LIVE, JOINED + timedelta(seconds=seconds), 5.0)

    guard, over = at(30)
    assert (guard.start, guard.seconds, over) == (JOINED, 30, False)
    assert at(74)[1] is False
    measured, over = at(75)
    assert (measured.start, measured.seconds, over) == (JOINED + timedelta(seconds=10), 60, True)
    assert at(500)[0] == measured
    assert live_window(live_trial(record=make_record(3, OTHER)), LIVE, NOW, 5.0) is None
    ended = live_trial(engine=make_pod(finished_at=JOINED + timedelta(seconds=20)))
    assert live_window(ended, LIVE, NOW, 5.0)[0].seconds == 20


def test_the_engine_joins_the_service_drains_and_ends_without_an_operator():
    owner = render.Owner("TuningTrial", "t", "u")
    pod = render.trial_engine("t", LIVE, OTHER, "ml", "chat", owner, live=True)
    apart = render.trial_engine("t", LIVE, OTHER, "ml", "chat", owner)
    deployment = render.serving_deployment("chat", LIVE, OTHER, 1, "ml", owner)
    selector = render.service("chat", "ml", owner)["spec"]["selector"]

    assert selector.items() <= pod["metadata"]["labels"].items()
    assert not selector.items() <= apart["metadata"]["labels"].items()
    assert not deployment["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    serving = deployment["spec"]["template"]["spec"]
    assert pod["spec"]["containers"] == serving["containers"]
    assert pod["spec"]["terminationGracePeriodSeconds"] == serving["terminationGracePeriodSeconds"]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["activeDeadlineSeconds"] > 1800 + 10 + 60
    assert "activeDeadlineSeconds" not in apart["spec"]


def test_a_live_trial_is_written_without_a_ladder():
    action = CreateTrial("t", 0, "Baseline", BASELINE, (), "first", live=True)
    manifest = render.trial(action, LIVE, "ml", render.Owner("InferenceDeployment", "chat", "u1"), "f")

    assert manifest["spec"]["mode"] == "Live"
    assert "ladder" not in manifest["spec"]


class LiveMetrics:
    """Answers with one measurement for every set of pods, or not at all for some."""

    def __init__(self, silent=(), measured=None):
        self.asked = []
        self.silent = silent
        self.measured = measured or make_measurement()

    def live(self, request):
        self.asked.append(request)
        if set(request.pods) & set(self.silent):
            raise MeasurementError("no answer")
        return replace(self.measured, load=Load("RequestRate", 1.234 * len(request.pods)))


BREACH = make_measurement(itl=0.2)


def test_while_all_is_well_only_the_trial_is_asked_for():
    metrics = LiveMetrics()

    (trial,) = watch(observed(live_trial()), LIVE, replace(make_ports(None), metrics=metrics)).trials

    assert [request.pods for request in metrics.asked] == [(trial.name,)]
    assert isinstance(judge_live(trial, RULES, OBJECTIVES, NOW), Stay)


def test_trial_and_incumbent_are_asked_for_the_same_minutes():
    observation, metrics = observed(live_trial()), LiveMetrics(measured=BREACH)

    (trial,) = watch(observation, LIVE, replace(make_ports(None), metrics=metrics)).trials

    alone, beside = metrics.asked
    assert alone.pods == (trial.name,)
    assert len(beside.pods) == 9
    assert beside.window == alone.window
    assert (alone.pricing.gpus, beside.pricing.gpus) == (1, 9)
    assert trial.watched.engine.load == trial.watched.incumbent.load == Load("RequestRate", 1.2)
    assert trial.watched.engines == 9
    assert alone.up_to_now


def test_what_is_recorded_waits_for_its_last_scrape_and_has_the_incumbent_beside_it():
    metrics, later = LiveMetrics(), JOINED + timedelta(seconds=75)

    (trial,) = watch(observed(live_trial(), now=later), LIVE, replace(make_ports(None), metrics=metrics)).trials

    assert trial.watched.over
    assert trial.watched.incumbent is not None
    assert [request.up_to_now for request in metrics.asked] == [False, False]


def test_an_unknown_incumbent_does_not_hide_the_trial():
    observation = observed(live_trial())
    pods = [pod.name for pod in observation.serving[0].pods]

    (trial,) = watch(observation, LIVE, replace(make_ports(None), metrics=LiveMetrics(pods, BREACH))).trials
    (unseen,) = watch(observation, LIVE, replace(make_ports(None), metrics=LiveMetrics([trial.name]))).trials

    assert trial.watched.engine is not None
    assert trial.watched.incumbent is None
    assert (unseen.watched.engine, unseen.watched.error) == (None, "Prometheus does not show its window")


def test_a_study_of_real_traffic_goes_on_although_no_two_trials_saw_the_same_load():
    def record(number, configuration, rate):
        rung = replace(make_measurement(at=number * 100), load=Load("RequestRate", rate))
        return replace(make_record(number, configuration), measurements=(rung,))

    chosen = list(space_of(LIVE).configurations())
    done = [
        live_trial(number, configuration=c, engine=None, record=record(number, c, rate))
        for number, (c, rate) in enumerate(zip(chosen, (1.2, 0.4), strict=False))
    ]

    (third,) = [a for a in decide(observed(*done)).actions if isinstance(a, CreateTrial)]

    assert third.number == 2
    assert third.configuration not in chosen[:2]


def test_a_second_measurement_under_other_traffic_confirms_all_the_same():
    trials = []
    rates = iter((1.0, 1.2, 0.9, 1.4, 0.7, 1.1))
    for trial in confirmed_trials(LIVE):
        rung = replace(trial.record.measurements[0], load=Load("RequestRate", next(rates)))
        trials.append(replace(trial, live=True, record=replace(trial.record, measurements=(rung,))))

    decision = decide(observed(*trials))

    assert decision.study.stop == "BudgetExhausted"
    assert decision.study.choice.confirmed is not None
    assert not [action for action in decision.actions if isinstance(action, CreateTrial)]
    assert {m.load.value for m in at_one_level([t.record for t in trials])[0].measurements} == {1.05}


def test_real_traffic_and_the_tuners_own_load_are_studies_of_their_own():
    assert fingerprint(LIVE) != fingerprint(make_spec(measurement={"warmUp": "10s", "maxRungDuration": "60s"}))


def test_a_share_without_the_mode_is_refused():
    (problem,) = parse(make_body(measurement={"live": {"maxSharePercent": 20}}))

    assert problem.path == "spec.measurement.live"
    assert "mode: Live" in problem.message
