"""What a method is told beforehand: a roofline's curves, the same made wrong on purpose, or nothing."""

import math
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from frontier_tuner.bench.tables import Table
from frontier_tuner.errors import TunerError
from frontier_tuner.facts import ModelFacts, gpu_facts, model_facts
from frontier_tuner.predict import Prediction
from frontier_tuner.predict.deployment import deployment_of_table
from frontier_tuner.predict.roofline import Roofline, Traffic

PriorKind = Literal["roofline", "wrong", "none"]
WRONG_KNOBS = ("gemm", "moe", "mode", "tp", "moe_ep", "kvcache")
"""A wrong prior errs on each level of these."""
WRONG_BY = 2.0
"""By at most this factor, either way."""
SEED_OFFSET = 77


class PriorError(TunerError):
    """A prior cannot be made; the message names the option that is missing or wrong."""


@dataclass(frozen=True)
class Served:
    """What a table is of, as far as it was said.

    Attributes:
        model: Name of a known model, or None.
        model_config: Its `config.json`, or None.
        gpu: The GPU product, or None.
        input_tokens: Tokens of the prompt.
        output_tokens: Tokens of the answer.
        cached_tokens: Tokens of the prompt that are in the prefix cache.
    """

    model: str | None = None
    model_config: Path | None = None
    gpu: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int = 0


def roofline(table: Table, served: Served) -> Prediction:
    """Return what the roofline predicts of each engine of a table.

    Raises:
        PriorError: Something that the roofline needs was not said.
        FactsError: The model or the GPU is not known.
    """
    missing = [
        option
        for option, value in (
            ("--model or --model-config", served.model or served.model_config),
            ("--gpu", served.gpu),
            ("--input-tokens", served.input_tokens),
            ("--output-tokens", served.output_tokens),
        )
        if not value
    ]
    if missing:
        raise PriorError(f"the roofline needs {', '.join(missing)}; --prior none goes without")
    try:
        traffic = Traffic(served.input_tokens or 0, served.output_tokens or 0, served.cached_tokens)
    except ValueError as error:
        raise PriorError(f"the traffic cannot be: {error}") from error
    model = Roofline(_model(served), gpu_facts(served.gpu or ""), traffic, deployment_of_table)
    return model.predict(table.configurations, table.concurrency)


def wrong(prediction: Prediction, table: Table, seed: int) -> Prediction:
    """Return a prediction with seeded errors that no memory figure corrects.

    Each level of each of `WRONG_KNOBS` makes the engines that have it faster or slower by a factor of its own, drawn
    log-uniformly from 1/2 to 2 with `default_rng(seed + 77)`, knob after knob, a knob's levels in the order of their
    text. Times shrink as speeds grow. How much memory an engine may use is not known.
    """
    rng = np.random.default_rng(seed + SEED_OFFSET)
    factors = np.ones(len(table))
    for name in WRONG_KNOBS:
        labels = [str(value) for value in table.column(name, "")]
        drawn = {label: math.exp(rng.uniform(-1, 1) * math.log(WRONG_BY)) for label in sorted({*labels})}
        factors *= np.array([drawn[label] for label in labels])
    faster = factors[:, None]
    return replace(
        prediction,
        ttft=prediction.ttft / faster,
        itl=prediction.itl / faster,
        user_speed=prediction.user_speed * faster,
        throughput=prediction.throughput * faster,
        capacity=np.full(len(table), np.nan),
    )


def _model(served: Served) -> ModelFacts:
    if served.model_config is None:
        return model_facts(served.model or "")
    with tempfile.TemporaryDirectory() as folder:
        # Facts are read from a directory with a `config.json`; this one may have another name.
        try:
            shutil.copyfile(served.model_config, Path(folder) / "config.json")
        except OSError as error:
            raise PriorError(f"--model-config {served.model_config} cannot be read: {error}") from error
        facts = model_facts(folder)
    return replace(facts, name=served.model or served.model_config.stem)
