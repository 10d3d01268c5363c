import json

import numpy as np
import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.explain import calibration_of, explain_study
from frontier_tuner.objectives import Target
from frontier_tuner.predict import Prediction
from frontier_tuner.stopping import Stop
from frontier_tuner.trial import Failure
from support.tuner_builders import make_measurement, make_objectives, make_record, make_space

SPACE = make_space()
BASE = SPACE.baseline
OOM = Failure("EngineOutOfMemory", "CUDA out of memory")


def changed(**values):
    return Configuration.of({**BASE, **values})


WINNER = changed(tensorParallelSize=2, enablePrefixCaching=False)


def trial(number, configuration, scale, **over):
    rungs = [
        make_measurement(load, speed=scale * 100 / (1 + load / 8), per_gpu=scale * load * 10, ttft=load / 10)
        for load in (4, 8, 16, 32)
    ]
    return make_record(number, configuration, *rungs, **over)


JOURNAL = [
    trial(0, BASE, 1.0, purpose="Baseline"),
    trial(1, WINNER, 1.5),
    trial(2, changed(tensorParallelSize=2), 1.2),
    make_record(3, changed(tensorParallelSize=4, enablePrefixCaching=False), outcome="Infeasible", failure=OOM),
    trial(4, WINNER, 1.4, purpose="Confirmation"),
]


def explained(journal=JOURNAL, objectives=None, target=None, **over):
    return explain_study(journal, SPACE, objectives or make_objectives(), target or Target(), **over)


def test_an_explanation_says_everything_that_is_known_of_the_choice():
    found = explained(stop=Stop("BudgetExhausted", "5 of 5 trials are used"), calibration=["throughput is 10 % high"])
    sections = dict(found.sections())
    assert list(sections) == [
        "Selection",
        "Binding",
        "What would unlock a better point",
        "Confirmation",
        "Cliffs beside the choice",
        "Techniques, winner against baseline",
        "Noise between engine starts",
        "Prior",
        "Stop",
    ]
    assert sections["Binding"] == ("ttft",)
    assert "ttft at 3.2 s instead of 2 s would give" in sections["What would unlock a better point"][0]
    assert sections["Confirmation"][0].startswith(
        "chosen by 1 second measurement: enablePrefixCaching=false maxNumSeqs=64"
    )
    assert sections["Confirmation"][1].startswith("the first measurement looked 1.07 (")
    assert "the engine cannot serve: EngineOutOfMemory" in sections["Cliffs beside the choice"][0]
    techniques = sections["Techniques, winner against baseline"]
    assert techniques[0].startswith("PrefixCaching: 1.17 (")
    assert "was not measured" in techniques[1]
    assert techniques[2].startswith("winner against baseline: 1.4 (")
    assert sections["Prior"] == ("throughput is 10 % high",)
    assert sections["Stop"] == ("BudgetExhausted: 5 of 5 trials are used",)


def test_an_explanation_is_a_json_document_too():
    document = json.loads(json.dumps(explained().encode(), allow_nan=False))
    assert document["policy"] == "MinCost"
    assert document["selected"]["trial"] == 4
    assert document["confirmed"]["repeats"] == 1
    assert document["unlocks"][0]["needed"] == pytest.approx(3.2)
    assert document["cliffs"][0]["worseConfiguration"]["tensorParallelSize"] == "4"
    assert "factor" not in document["cliffs"][0]
    assert [factor["state"] for factor in document["techniques"]["factors"]] == ["Measured", "NotMeasured"]
    assert len(document["notMeasured"]) == 1
    assert document["confidence"]["objective"] == "ttft"
    assert "stop" not in document


def test_finalists_that_were_not_measured_again_are_named():
    found = explained(JOURNAL[:4])
    assert found.confirmed is None
    assert found.unconfirmed == (WINNER,)
    assert dict(found.sections())["Confirmation"] == (f"{WINNER} was not measured again",)
    assert explained().unconfirmed == ()


def test_without_a_choice_the_nearest_point_and_what_to_relax_are_told():
    found = explained(objectives=make_objectives(ttft=0.001))
    sections = dict(found.sections())
    assert "nearest is" in sections["No feasible point"][0]
    assert sections["Binding"] == ("ttft",)
    assert "would give" in sections["What would unlock a better point"][0]
    assert "Techniques, winner against baseline" not in sections
    document = found.encode()
    assert "selected" not in document
    assert document["violations"]
    assert document["nearest"]["metrics"]["TTFT/95"]["value"] == pytest.approx(0.4)


def test_a_baseline_that_wins_owes_nothing_to_a_technique():
    assert explained([trial(0, BASE, 1.0)]).attribution is None


class Doubling:
    """A prior that expects twice what the trials of this module show at their best."""

    def predict(self, configurations, concurrency):
        shape = (len(configurations), concurrency.shape[1])
        speed, throughput = 200 / (1 + concurrency / 8), 20 * concurrency
        unknown = np.full(shape, np.nan)
        return Prediction(unknown, unknown, speed, throughput, unknown, unknown[:, 0], unknown[:, 0])


def test_a_prior_is_held_against_what_was_measured():
    sentences = calibration_of(JOURNAL[:1], Doubling())
    assert [sentence.partition(" (")[0] for sentence in sentences] == [
        "user speed: measured 0.50 times the prediction",
        "throughput per GPU: measured 0.50 times the prediction",
    ]
    assert calibration_of([], Doubling()) == ()


def test_nothing_measured_explains_itself():
    found = explained([])
    assert dict(found.sections())["No feasible point"] == ("no point has been measured",)
    assert json.dumps(found.encode())
