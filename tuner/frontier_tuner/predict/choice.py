"""Which prior a study gets: the roofline, aiconfigurator's data, or either moved by what past studies measured."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from frontier_tuner.configuration import Configuration
from frontier_tuner.facts import GPUFacts, ModelFacts
from frontier_tuner.predict import PriorModel
from frontier_tuner.predict.aiconfigurator import AIConfigurator
from frontier_tuner.predict.deployment import Deployment, deployment_of_engine
from frontier_tuner.predict.efficiency import efficiencies_of
from frontier_tuner.predict.history import History, PastStudy
from frontier_tuner.predict.roofline import Roofline, Traffic

__all__ = ["PriorName", "prior_model"]

PriorName = Literal["Auto", "Roofline", "AIConfigurator", "None"]


def prior_model(
    name: PriorName,
    models: ModelFacts | Mapping[str, ModelFacts] | None,
    gpu: GPUFacts | None,
    traffic: Traffic,
    *,
    deployment_of: Callable[[Configuration], Deployment] = deployment_of_engine,
    engine: str = "vllm",
    source: str = "",
    past: Sequence[PastStudy] = (),
) -> PriorModel | None:
    """Return the prior of a study, or None where none is wanted or facts are missing.

    `Auto` is the roofline: its efficiencies are fitted to measured points, and it knows every model and product that
    has facts.

    Args:
        name: Which prior.
        models: Facts of the model, or by variant; None where unknown.
        gpu: The accelerator; None where unknown or on CPU.
        traffic: What a request looks like, on average.
        deployment_of: What a configuration deploys.
        engine: The engine's name.
        source: What aiconfigurator calls the model, or a directory with its `config.json`.
        past: Studies of the same model family or accelerator.
    """
    if name == "None" or not models or gpu is None:
        return None
    prior: PriorModel = Roofline(models, gpu, traffic, deployment_of, efficiencies_of(engine))
    if name == "AIConfigurator":
        prior = AIConfigurator(source, gpu, engine, traffic, deployment_of, fallback=prior)
    return History(prior, past) if past else prior
