"""The rules on evidence alone; `tests/integration/test_rung_rules.py` has the same on a real Prometheus."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import Load
from frontier_tuner.prometheus.evidence import Evidence, Limits
from frontier_tuner.prometheus.steadiness import Steadiness
from frontier_tuner.prometheus.validity import check_cache, judge, violations

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SUMMARY = LoadSummary(
    load=Load("Concurrency", 8),
    begin=NOW - timedelta(seconds=5),
    start=NOW,
    end=NOW + timedelta(seconds=60),
    scraped_at=NOW + timedelta(seconds=62),
    sent=300,
    ok=300,
    failed=0,
    cut=0,
    input_tokens=76_800,
    output_tokens=72_000,
    lag_p99_seconds=0.004,
    late_seconds=0.0,
    scraped=True,
)
GOOD = Evidence(
    summary=SUMMARY,
    engine_up=1.0,
    engine_scrapes=12,
    engine_scrapes_after=3,
    engine_gap_seconds=5.0,
    client_scraped_at=NOW + timedelta(seconds=62),
    engine_resets=0,
    engine_starts=0,
    engine_finished=340,
    client_finished=340,
    engine_tokens=71_500,
    rated_tokens=71_900,
    engine_seconds=1.5,
    client_seconds=1.55,
    hit_percent=0.2,
    declared_hit_percent=0.0,
    slo_observations=(("TTFT/95", 95, 300.0),),
)


def test_good_evidence_violates_nothing_and_tells_what_is_odd():
    assert violations(GOOD, Limits()) == ()
    assert judge(replace(GOOD, oddities=("one", "two")), Limits()).message == "one; two"


def test_what_is_not_known_and_not_needed_violates_nothing():
    unknown = replace(
        GOOD,
        engine_up=None,
        engine_gap_seconds=None,
        client_scraped_at=None,
        engine_resets=None,
        engine_starts=None,
        engine_tokens=None,
        engine_seconds=None,
        client_seconds=None,
        hit_percent=None,
        declared_hit_percent=None,
    )
    assert judge(unknown, Limits()).valid


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"engine_scrapes": None}, "TargetNotScraped"),
        ({"engine_scrapes": None, "engine_up": 0.0}, "MetricsEndpointFailing"),
        ({"engine_scrapes": 2}, "TooFewScrapes"),
        ({"engine_scrapes_after": 0}, "NotScrapedAfter"),
        ({"engine_gap_seconds": 25.1}, "ScrapeGap"),
        ({"rated_tokens": 65_500}, "ScrapeGap"),
        ({"rated_tokens": 77_500}, "ScrapeGap"),
        ({"client_scraped_at": NOW + timedelta(seconds=60.9)}, "ClockSkew"),
        ({"client_scraped_at": NOW + timedelta(seconds=68.1)}, "ClockSkew"),
        ({"engine_starts": 1}, "EngineRestarted"),
        ({"engine_resets": 1}, "CounterReset"),
        ({"mismatches": ("kvCacheDtype",)}, "EffectiveConfigMismatch"),
        ({"malformed": 4}, "TooManyMalformed"),
        ({"unsent": 1}, "RateNotReached"),
        ({"slo_observations": (("TTFT/99", 99, 99.0),)}, "TooFewRequests"),
        ({"missing": (("InvalidHistogram", "TTFT/95: no"),)}, "InvalidHistogram"),
        ({"engine_finished": None}, "MetricMissing"),
        ({"engine_finished": 349}, "CountsDisagree"),
        ({"engine_tokens": 96_000, "rated_tokens": 96_000}, "CountsDisagree"),
        ({"client_seconds": 2.1}, "TimesDisagree"),
        ({"client_seconds": float("inf")}, "TimesDisagree"),
        ({"hit_percent": 1.1}, "WarmCache"),
        ({"loose_bounds": ("TTFT/95",)}, "BoundOffEdges"),
        ({"steadiness": Steadiness((10.0,) * 4 + (100.0, 101.0) * 8, (), 5.0)}, "NotWarm"),
        ({"steadiness": Steadiness((), tuple(1.0 + step for step in range(16)), 5.0)}, "Overloaded"),
    ],
)
def test_each_rule_speaks_alone(change, check):
    found = violations(replace(GOOD, **change), Limits())
    assert [validity.check for validity in found] == [check]
    assert found[0].message
    assert not found[0].valid


@pytest.mark.parametrize(
    ("change", "check"),
    [
        ({"scraped": False}, "GeneratorNotScraped"),
        ({"failed": 16, "ok": 284}, "TooManyFailed"),
        ({"cut": 151, "ok": 149}, "TooManyCut"),
        ({"load": Load("RequestRate", 5.3)}, "RateNotReached"),
        ({"lag_p99_seconds": 0.3}, "GeneratorLate"),
        ({"late_seconds": 3.1}, "LateStart"),
        ({"output_tokens": 0}, "InconsistentResult"),
    ],
)
def test_each_rule_on_what_the_load_generator_says_speaks(change, check):
    evidence = replace(GOOD, summary=replace(SUMMARY, **change))
    assert check in [validity.check for validity in violations(evidence, Limits())]


def test_case_57_more_than_one_percent_of_malformed_answers_spoil_a_window():
    assert judge(replace(GOOD, malformed=3), Limits()).valid
    found = judge(replace(GOOD, malformed=4), Limits())
    assert (found.check, found.message) == ("TooManyMalformed", "4 of 300 answers have times that cannot be")


@pytest.mark.parametrize(
    "change",
    [
        {"engine_gap_seconds": 25.0},
        {"client_scraped_at": NOW + timedelta(seconds=61.1)},
        {"client_scraped_at": NOW + timedelta(seconds=67.9)},
        {"engine_finished": 347},
        {"client_seconds": 2.0},
        {"hit_percent": 1.0},
        {"hit_percent": 70.0, "declared_hit_percent": 80.0},
        {"slo_observations": (("TTFT/99", 99, 100.0),)},
        {"malformed": 3},
    ],
)
def test_what_is_just_within_its_limit_counts(change):
    assert judge(replace(GOOD, **change), Limits()).valid


def test_a_growing_queue_does_not_save_an_slo_that_is_missed_already():
    growing = Steadiness((), tuple(1.0 + step for step in range(16)), 5.0)
    assert judge(replace(GOOD, steadiness=growing, slo_missed=True), Limits()).valid
    cold = Steadiness((10.0,) * 4 + (100.0, 101.0) * 8, (), 5.0)
    assert judge(replace(GOOD, steadiness=cold, slo_missed=True), Limits()).check == "NotWarm"


def test_a_starved_generator_is_told_how_much_of_a_core_it_used():
    evidence = replace(GOOD, summary=replace(SUMMARY, lag_p99_seconds=0.3), cpu_percent=99)
    assert judge(evidence, Limits()).message == (
        "the load generator was up to 0.3 s late: give it more CPU, it used 99 % of a core"
    )


def test_case_62_verdicts_can_be_made_to_need_more():
    few = replace(GOOD, slo_observations=(("TTFT/95", 95, 199.0),))
    assert judge(few, Limits()).valid
    assert judge(few, Limits(min_beyond=10.0)).check == "TooFewRequests"


def test_the_first_rule_decides_and_the_others_are_there_to_be_asked():
    evidence = replace(GOOD, engine_resets=1, hit_percent=50.0)
    assert judge(evidence, Limits()).check == "CounterReset"
    assert [validity.check for validity in violations(evidence, Limits())] == ["CounterReset", "WarmCache"]


@pytest.mark.parametrize(
    ("hits", "concurrency", "sent", "check"),
    [
        # 100 * sqrt(0.474 * 0.526 * 2 * 8) / 36 is 5.5 percent, and a twelfth of it in a window twelve times as long.
        (49.3, 8, 36, ""),
        (53.8, 8, 36, ""),
        (54.0, 8, 36, "WarmCache"),
        (48.8, 8, 432, ""),
        (49.3, 8, 432, "WarmCache"),
    ],
)
def test_case_54_requests_at_the_ends_of_a_short_window_are_no_warm_cache(hits, concurrency, sent, check):
    summary = replace(SUMMARY, load=Load("Concurrency", concurrency), sent=sent, ok=sent)
    evidence = replace(GOOD, summary=summary, hit_percent=hits, declared_hit_percent=47.4)
    found = check_cache(evidence, Limits())
    assert (found.check if found else "") == check
