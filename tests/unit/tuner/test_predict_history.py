from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.measurement import Estimate, Load, Measurement, Validity, Window
from frontier_tuner.predict.calibration import calibrate, cannot_fit, fit_sentence
from frontier_tuner.predict.deployment import deployment_of_engine
from frontier_tuner.predict.history import History, PastStudy
from frontier_tuner.predict.observed import at_levels, curve_of
from frontier_tuner.predict.roofline import Roofline, Traffic
from frontier_tuner.trial import TrialRecord

LOADS = np.array([1.0, 8, 64])
WINDOW = Window(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=1))


def roofline(model="Qwen/Qwen3-32B", gpu="H200"):
    return Roofline(model_facts(model), gpu_facts(gpu), Traffic(4000, 1000), deployment_of_engine)


def configuration(tensor=1, tokens=8192, cache="auto"):
    return Configuration.of(
        {"tensorParallelSize": tensor, "maxNumBatchedTokens": tokens, "kvCacheDtype": cache, "maxNumSeqs": 256}
    )


def rung(level, metrics, *, valid=True, kind="Concurrency"):
    estimates = {name: Estimate(value, value, value, 100) for name, value in metrics.items()}
    return Measurement(Load(kind, level), WINDOW, 100, 100, 0, estimates, Validity(valid))


def trial(tried, prior, itl=1.0, ttft=1.0, throughput=1.0):
    """A trial that measured the prior's curve times some factors."""
    said = prior.predict([tried], LOADS[np.newaxis, :])
    rungs = tuple(
        rung(
            level,
            {
                "UserTokensPerSecond/50": said.user_speed[0, at] / itl,
                "TTFT/95": said.ttft[0, at] * ttft,
                "OutputTokensPerSecondPerGPU": said.throughput[0, at] * throughput,
            },
        )
        for at, level in enumerate(LOADS)
    )
    return TrialRecord(0, tried, "Search", "Complete", 1, rungs)


def both(asked, past, prior=None):
    prior = prior or roofline()
    loads = np.repeat(LOADS[np.newaxis, :], len(asked), axis=0)
    return History(prior, past).predict(asked, loads), prior.predict(asked, loads)


def test_without_a_past_the_roofline_answers():
    told, alone = both([configuration()], [])
    assert np.array_equal(told.itl, alone.itl)
    failed = TrialRecord(0, configuration(), "Search", "Infeasible", 1)
    told, alone = both([configuration()], [PastStudy([failed], roofline())])
    assert np.array_equal(told.itl, alone.itl)


def test_a_configuration_that_was_measured_gets_its_curve_back():
    past = [trial(configuration(1), roofline(), itl=1.5, ttft=3.0, throughput=0.6), trial(configuration(8), roofline())]
    told, alone = both([configuration(1)], [PastStudy(past, roofline())])
    assert told.itl == pytest.approx(1.5 * alone.itl)
    assert told.ttft == pytest.approx(3.0 * alone.ttft)
    assert told.throughput == pytest.approx(0.6 * alone.throughput)
    assert told.user_speed == pytest.approx(1 / told.itl)


def test_a_curve_of_another_product_is_moved_by_the_rooflines_ratio():
    past = PastStudy([trial(configuration(2), roofline(gpu="H100"), itl=1.3)], roofline(gpu="H100"))
    told, alone = both([configuration(2)], [past], roofline(gpu="B200"))
    assert told.itl == pytest.approx(1.3 * alone.itl)


def test_the_nearest_trial_counts_less_with_distance_and_what_all_share_remains():
    past = [trial(configuration(1), roofline(), itl=2.0)] + 2 * [trial(configuration(8, cache="fp8"), roofline())]
    asked = [configuration(1), configuration(1, tokens=16384), configuration(1, 2048, "fp8")]
    told, alone = both(asked, [PastStudy(past, roofline())])
    ratios = (told.itl / alone.itl)[:, 0]
    assert ratios[0] == pytest.approx(2.0)
    assert 1.0 < ratios[2] < ratios[1] < ratios[0]


def test_only_valid_rungs_of_closed_loops_are_a_curve():
    rungs = (
        rung(64.0, {"ITL/50": 0.02}),
        rung(8.0, {"ITL/50": 0.01, "ITL/99": 9.0, "TTFT/95": 0.5}),
        rung(1.0, {"ITL/50": 1.0}, valid=False),
        rung(2.0, {"ITL/50": 1.0}, kind="RequestRate"),
    )
    curve = curve_of(TrialRecord(0, configuration(), "Search", "Complete", 1, rungs))
    assert curve.concurrency.tolist() == [8.0, 64.0]
    assert curve.values["user_speed"].tolist() == pytest.approx([100.0, 50.0])
    found = at_levels(curve, LOADS)
    assert found["itl"].tolist() == pytest.approx([np.nan, 0.01, 0.02], nan_ok=True)
    assert found["ttft"].tolist() == pytest.approx([np.nan, 0.5, np.nan], nan_ok=True)
    assert curve_of(TrialRecord(0, configuration(), "Search", "Infeasible", 1)) is None


def test_calibration_tells_bias_and_both_spreads():
    asked = [configuration(1), configuration(2)]
    said = roofline().predict(asked, np.repeat(LOADS[np.newaxis, :], 2, axis=0))
    factors = np.array([[0.5, 1.0, 2.0], [2.0, 4.0, np.nan]])  # log2: -1, 0, 1 and 1, 2
    (itl,) = calibrate({"itl": said.itl * factors}, said)
    two = np.log(2)
    assert (itl.n, itl.configurations) == (5, 2)
    assert itl.factor == pytest.approx(2.0)
    assert itl.between == pytest.approx(0.75 * two)  # means of 0 and 1.5
    assert itl.over_load == pytest.approx(np.sqrt((1 + 0 + 1 + 0.25 + 0.25) / 5) * two)
    assert "2.00 times the prediction" in str(itl)


def test_what_was_not_measured_is_not_calibrated():
    said = roofline().predict([configuration()], LOADS[np.newaxis, :])
    assert calibrate({"ttft": np.full((1, 3), np.nan)}, said) == ()
    with pytest.raises(ValueError, match="speed"):
        calibrate({"speed": said.itl}, said)
    with pytest.raises(ValueError, match="shape"):
        calibrate({"itl": said.itl[0]}, said)


@pytest.mark.parametrize(("needed", "ruled_out"), [(79.9, False), (80.0, False), (87.9, False), (88.1, True)])
def test_only_what_exceeds_the_margin_cannot_fit(needed, ruled_out):
    said = roofline().predict([configuration()], LOADS[np.newaxis, :])
    said = replace(said, start_memory=np.array([needed * 1e9]), capacity=np.array([80e9]))
    assert cannot_fit(said).tolist() == [ruled_out]
    assert fit_sentence(said, 0).startswith("cannot start" if ruled_out else "may start")
    assert f"{needed:.1f} GB" in fit_sentence(said, 0)
    assert "88.0 GB" in fit_sentence(said, 0)


def test_an_unknown_capacity_rules_nothing_out():
    said = roofline().predict([configuration()], LOADS[np.newaxis, :])
    said = replace(said, capacity=np.array([np.nan]))
    assert cannot_fit(said).tolist() == [False]
    assert "not known" in fit_sentence(said, 0)
