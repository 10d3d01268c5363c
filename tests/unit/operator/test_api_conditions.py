from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from frontier_operator.api import conditions
from frontier_operator.api.conditions import is_true, set_condition

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
API_REASONS = """InvalidSpec, Suspended, WaitingForBaseline, WaitingForGPUs, TrialRunning, MetricsMissing, MetricsStale,
InsufficientSamples, WindowInvalid, MeasurementDisagrees, BudgetExhausted, FrontierStable, NoFeasiblePoint,
ConfirmingFinalists, CanaryRunning, GuardrailBreached, RolledBack, AwaitingApproval, SLOMet, SLOMissed, WorkloadDrifted,
OutsideWindow, Serving"""


def test_a_new_condition_carries_all_fields():
    assert set_condition([], "Ready", "True", "Serving", "all well", 3, NOW) == [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "all well",
            "observedGeneration": 3,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    ]


def test_the_transition_time_moves_only_with_the_status():
    first = set_condition([], "Ready", "False", "WaitingForBaseline", "", 1, NOW)
    second = set_condition(first, "Ready", "False", "TrialRunning", "", 2, LATER)
    third = set_condition(second, "Ready", "True", "Serving", "", 2, LATER)
    assert second[0]["lastTransitionTime"] == first[0]["lastTransitionTime"]
    assert second[0]["observedGeneration"] == 2
    assert third[0]["lastTransitionTime"] == "2026-01-02T03:05:05Z"


def test_setting_the_same_again_changes_nothing_and_the_input_stays():
    before = set_condition([], "Ready", "True", "Serving", "", 1, NOW)
    frozen = [dict(condition) for condition in before]
    assert set_condition(before, "Ready", "True", "Serving", "", 1, LATER) == before
    set_condition(before, "Ready", "False", "TrialRunning", "", 1, LATER)
    assert before == frozen


def test_reconciling_and_stalled_are_there_only_while_true_and_never_together():
    steps = list(product(("Reconciling", "Stalled"), ("True", "False", "Unknown")))
    for first, second in product(steps, steps):
        held = set_condition([], *first, "TrialRunning", "", 1, NOW)
        held = set_condition(held, *second, "InvalidSpec", "", 1, NOW)
        assert all(condition["status"] == "True" for condition in held)
        assert len(held) <= 1
    assert is_true(set_condition([], "Stalled", "True", "InvalidSpec", "", 1, NOW), "Stalled")


def test_a_message_fits_the_api():
    (condition,) = set_condition([], "Ready", "True", "Serving", "x" * 40_000, 1, NOW)
    assert len(condition["message"]) == 32_768


def test_every_reason_of_the_api_is_a_constant():
    beyond = {"SearchSpaceExhausted", "TooFewReplicas", "TooManyFailures", "MeasuringTechniques", "PayBackExceeded"}
    assert {word.strip() for word in API_REASONS.split(",")} | beyond == conditions.REASONS


def test_every_constant_is_documented():
    page = (Path(__file__).parents[3] / "docs/reference/conditions.md").read_text()
    source = Path(conditions.__file__).read_text()
    for name in (*conditions.DEPLOYMENT_CONDITIONS, *conditions.TRIAL_CONDITIONS, *conditions.REASONS):
        assert f"`{name}`" in page, name
        assert f'= "{name}"\n"""' in source, name


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
def test_the_order_of_conditions_stays(status):
    held = set_condition([], "Ready", "True", "Serving", "", 1, NOW)
    held = set_condition(held, "Measured", "True", "Serving", "", 1, NOW)
    assert [c["type"] for c in set_condition(held, "Ready", status, "Serving", "", 1, LATER)] == ["Ready", "Measured"]
