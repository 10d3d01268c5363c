"""Builders of the tuner's value types with sensible values; every argument can be overridden."""

from datetime import UTC, datetime, timedelta

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.frontier import SPEED_KEY
from frontier_tuner.measurement import (
    COST,
    THROUGHPUT,
    THROUGHPUT_PER_GPU,
    Estimate,
    Load,
    Measurement,
    Validity,
    Window,
)
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.space import Parameter, Rule, SearchSpace
from frontier_tuner.trial import Failure, Outcome, Purpose, TrialRecord

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_configuration(**values: Value) -> Configuration:
    return Configuration.of(values or {"maxNumSeqs": 16, "tensorParallelSize": 1})


def make_estimate(value: float) -> Estimate:
    return Estimate(value, value * 0.9, value * 1.1, 100, "up")


def make_measurement(
    load: float = 8,
    *,
    speed: float = 50.0,
    per_gpu: float = 400.0,
    total: float | None = None,
    ttft: float | None = 0.5,
    cost: float | None = None,
    valid: bool = True,
) -> Measurement:
    values = {SPEED_KEY: speed, THROUGHPUT_PER_GPU: per_gpu, THROUGHPUT: per_gpu if total is None else total}
    if ttft is not None:
        values["TTFT/95"] = ttft
    if cost is not None:
        values[COST] = cost
    return Measurement(
        Load("Concurrency", load),
        Window(START, START + timedelta(seconds=60)),
        100,
        100,
        0,
        {name: make_estimate(value) for name, value in values.items()},
        Validity(valid, "" if valid else "WindowInvalid", "" if valid else "the pod restarted"),
    )


def make_record(
    number: int = 0,
    configuration: Configuration | None = None,
    *measurements: Measurement,
    purpose: Purpose = "Search",
    outcome: Outcome = "Complete",
    failure: Failure | None = None,
    gpus: int = 1,
    gpu_seconds: float = 600.0,
) -> TrialRecord:
    rungs = measurements if outcome in ("Failed", "Infeasible") else measurements or (make_measurement(),)
    chosen = configuration or make_configuration()
    return TrialRecord(number, chosen, purpose, outcome, gpus, rungs, failure, gpu_seconds, 30.0, "because")


def make_objectives(ttft: float = 2.0, **over: float) -> Objectives:
    return Objectives((SLO("ttft", "TTFT", 95, maximum=ttft),), **over)


def make_space(*rules: Rule) -> SearchSpace:
    return SearchSpace(
        (
            Parameter("tensorParallelSize", (1, 2, 4), bounds=(1, 64)),
            Parameter("maxNumSeqs", (16, 64), bounds=(1, 1024)),
            Parameter("enablePrefixCaching", (False, True)),
        ),
        rules,
        {"tensorParallelSize": 1, "maxNumSeqs": 256, "enablePrefixCaching": True},
    )
