import numpy as np
import pytest

from frontier_tuner.configuration import Configuration
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.predict.aiconfigurator import AIConfigurator
from frontier_tuner.predict.choice import prior_model
from frontier_tuner.predict.efficiency import EFFICIENCIES, efficiencies_of
from frontier_tuner.predict.history import History, PastStudy
from frontier_tuner.predict.roofline import Roofline, Traffic

FACTS, GPU, TRAFFIC = model_facts("Qwen/Qwen3-8B"), gpu_facts("L40S"), Traffic(1000, 200)


@pytest.mark.parametrize(
    ("name", "kind"), [("Auto", Roofline), ("Roofline", Roofline), ("AIConfigurator", AIConfigurator)]
)
def test_a_prior_is_chosen_by_name(name, kind):
    assert isinstance(prior_model(name, FACTS, GPU, TRAFFIC), kind)


def test_no_prior_where_none_is_wanted_or_facts_are_missing():
    assert prior_model("None", FACTS, GPU, TRAFFIC) is None
    assert prior_model("Auto", None, GPU, TRAFFIC) is None
    assert prior_model("Auto", {}, GPU, TRAFFIC) is None
    assert prior_model("Auto", FACTS, None, TRAFFIC) is None


def test_past_studies_are_laid_over_it():
    roofline = prior_model("Auto", FACTS, GPU, TRAFFIC)
    told = prior_model("Auto", FACTS, GPU, TRAFFIC, past=[PastStudy((), roofline)])
    assert isinstance(told, History)
    asked = ([Configuration.of({})], np.array([[1.0, 8.0]]))
    assert told.predict(*asked).itl == pytest.approx(roofline.predict(*asked).itl)


def test_an_engine_without_efficiencies_of_its_own_gets_those_of_all():
    assert efficiencies_of("nobody") is EFFICIENCIES
    assert efficiencies_of("VLLM") != EFFICIENCIES
