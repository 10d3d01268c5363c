import pytest

from frontier_tuner.measurement import Estimate
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.prometheus.precision import Precision, enough, needed_observations, slo_verdict

TTFT = SLO("ttft", "TTFT", 95, maximum=2.0)
SPEED = SLO("speed", "UserTokensPerSecond", 5, minimum=40.0)


@pytest.mark.parametrize(
    ("percentile", "beyond", "want"),
    [(95, 10, 200), (99, 10, 1000), (50, 10, 20), (5, 10, 200), (95, 1, 20), (99, 1, 100), (90, 10, 100)],
)
def test_case_62_a_percentile_needs_observations_beyond_it(percentile, beyond, want):
    assert needed_observations(percentile, beyond) == want


@pytest.mark.parametrize(
    ("slo", "estimate", "verdict", "reason"),
    [
        (TTFT, Estimate(1.5, 1.4, 1.9, 500), "Met", ""),
        (TTFT, Estimate(1.5, 1.4, 2.0, 500), "Met", ""),
        (TTFT, Estimate(2.5, 2.1, 2.9, 500), "Missed", ""),
        (TTFT, Estimate(1.9, 1.5, 2.4, 500), "Unknown", "Undecided"),
        (TTFT, Estimate(1.5, 1.4, 1.6, 199), "Unknown", "InsufficientSamples"),
        (TTFT, None, "Unknown", "MetricsMissing"),
        (SPEED, Estimate(50.0, 41.0, 60.0, 200), "Met", ""),
        (SPEED, Estimate(30.0, 25.0, 39.0, 200), "Missed", ""),
        (SPEED, Estimate(41.0, 39.0, 50.0, 200), "Unknown", "Undecided"),
        (SLO("p99", "TTFT", 99, maximum=2.0), Estimate(1.0, 0.9, 1.1, 999), "Unknown", "InsufficientSamples"),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side_and_enough_observations(slo, estimate, verdict, reason):
    found = slo_verdict(slo, estimate)
    assert (found.verdict, found.reason) == (verdict, reason)
    assert slo.key in found.message


THROUGHPUT = {"OutputTokensPerSecond": Estimate(1000.0, 950.0, 1050.0, 500)}


def ask(metrics, elapsed=30.0, objectives=Objectives(slos=(TTFT,)), **precision):  # noqa: B008 - frozen
    return enough(
        THROUGHPUT | metrics,
        objectives,
        elapsed_seconds=elapsed,
        max_seconds=120.0,
        precision=Precision(**precision),
    )


def test_a_rung_ends_when_everything_is_tight():
    found = ask({"TTFT/95": Estimate(1.9, 1.75, 2.1, 500)})
    assert (found.stop, found.reason, found.open) == (True, "Tight", ())
    assert "after 30 s TTFT/95, OutputTokensPerSecond" in found.message


def test_a_wide_interval_that_decides_the_slo_is_enough():
    assert ask({"TTFT/95": Estimate(0.5, 0.1, 1.2, 500)}).reason == "Tight"
    assert ask({"TTFT/95": Estimate(9.0, 2.1, 20.0, 500)}).reason == "Tight"


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({}, "TTFT/95: not known"),
        ({"TTFT/95": Estimate(0.5, 0.49, 0.51, 199)}, "TTFT/95: 199 observations of 200"),
        ({"TTFT/95": Estimate(1.9, 1.0, 2.5, 500)}, "TTFT/95: 1.9, between 1 and 2.5"),
    ],
)
def test_it_goes_on_while_something_is_open_and_ends_when_its_time_is_up(metrics, words):
    going = ask(metrics)
    assert (going.stop, going.reason, going.open) == (False, "Continue", ("TTFT/95",))
    assert words in going.message
    over = ask(metrics, elapsed=120.0)
    assert (over.stop, over.reason, over.open) == (True, "TimeUp", ("TTFT/95",))
    assert "the time of 120 s is up" in over.message
    assert words in over.message


def test_without_slos_the_usual_percentiles_and_the_throughput_are_wanted():
    found = ask({"TTFT/95": Estimate(1.0, 0.95, 1.05, 50)}, objectives=Objectives())
    assert found.open == ("ITL/95",)
    loose = enough({}, Objectives(), elapsed_seconds=1.0, max_seconds=2.0)
    assert loose.open == ("TTFT/95", "ITL/95", "OutputTokensPerSecond")


def test_what_is_tight_is_for_the_caller_to_say():
    metrics = {"TTFT/95": Estimate(1.9, 1.75, 2.1, 500)}
    assert not ask(metrics, percent=5.0).stop
    assert not ask(metrics, beyond=50.0).stop
