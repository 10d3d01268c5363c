from dataclasses import replace
from datetime import timedelta

import pytest

from frontier_operator.api.v1alpha1 import InferenceDeploymentStatus, parse
from frontier_operator.core.decide import decide
from frontier_operator.core.report import report
from frontier_tuner.study import space_of
from support.operator_builders import (
    NOW,
    confirmed_trials,
    finished_trials,
    make_body,
    make_observation,
    make_pod,
    make_serving,
    make_spec,
)

SPEC = make_spec()
BASELINE = space_of(SPEC).baseline

SITUATIONS = {
    "new": make_observation(),
    "baseline starting": make_observation(serving=(make_serving(BASELINE, ready=0),)),
    "trials": make_observation(serving=(make_serving(BASELINE),), trials=finished_trials()[:2]),
    "stopped": make_observation(serving=(make_serving(BASELINE),), trials=confirmed_trials()),
    "suspended": make_observation(make_spec(suspend=True), serving=(make_serving(BASELINE),)),
    "invalid": replace(make_observation(), spec=None, space=None, problems=tuple(parse(make_body(model__variants=[])))),
}


def by_type(status):
    return {condition["type"]: condition for condition in status["conditions"]}


@pytest.mark.parametrize("observation", SITUATIONS.values(), ids=SITUATIONS)
def test_conditions_keep_the_rules_of_kstatus(observation):
    status = report(observation, decide(observation))
    conditions = by_type(status)

    assert "Ready" in conditions
    assert not ("Reconciling" in conditions and "Stalled" in conditions)
    assert all(conditions[kind]["status"] == "True" for kind in ("Reconciling", "Stalled") if kind in conditions)
    assert not (conditions["Ready"]["status"] == "True" and "Stalled" in conditions)
    assert all(condition["observedGeneration"] == 1 for condition in conditions.values())
    assert status["observedGeneration"] == 1


@pytest.mark.parametrize("observation", SITUATIONS.values(), ids=SITUATIONS)
def test_the_status_has_the_shape_of_the_api(observation):
    status = report(observation, decide(observation))

    read = InferenceDeploymentStatus.model_validate(status).dump()

    empty = {"blocked", "frontier", "techniques"}
    assert set(read) - empty == set(status) - empty
    for name in ("study", "incumbent", "baseline", "selection", "summary"):
        assert set(status.get(name) or {}) <= set(read.get(name) or {}), name
    for have, want in zip(read["frontier"], status.get("frontier", []), strict=True):
        assert set(want) <= set(have)


@pytest.mark.parametrize("observation", SITUATIONS.values(), ids=SITUATIONS)
def test_a_status_changes_only_when_something_changed_108(observation):
    first = report(observation, decide(observation))
    later = replace(observation, status=first, now=NOW + timedelta(seconds=5))

    second = report(later, decide(later))

    volatile = {"Converged", "Reconciling"}  # their messages tell how long something takes
    assert {k: v for k, v in by_type(second).items() if k not in volatile} == {
        k: v for k, v in by_type(first).items() if k not in volatile
    }


def test_the_frontier_and_the_selection_are_in_the_status():
    observation = SITUATIONS["stopped"]

    status = report(observation, decide(observation))

    assert status["frontier"][0]["metrics"]
    assert status["selection"]["policy"] == "MinCost"
    assert status["study"]["trials"]["complete"] == 6
    assert status["study"]["stop"] == "BudgetExhausted"
    assert float(status["baseline"]["measured"]["costPerMillionOutputTokens"]) > 0


def test_why_the_baseline_does_not_come_up_is_told():
    pod = make_pod("chat-x", ready=False, waiting_reason="CrashLoopBackOff", last_words="ValueError: no such model")
    observation = make_observation(serving=(make_serving(BASELINE, ready=0, pods=(pod,)),))

    ready = by_type(report(observation, decide(observation)))["Ready"]

    assert ready["status"] == "False"
    assert "ValueError: no such model" in ready["message"]


def test_what_could_not_be_done_is_told():
    observation = SITUATIONS["trials"]

    status = report(observation, decide(observation), ["POST /api/v1/pods: pods is forbidden"])

    assert "forbidden" in by_type(status)["Reconciling"]["message"]
