"""Finds the efficient frontier of an LLM inference engine by measuring it, and picks the point to serve.

The usual way: make a space with `build_space`, ask `propose` for a configuration, measure its load ladder, keep a
`TrialRecord`, repeat until it answers `Stop`; then `points`, `frontier_of` and `select`.

Names are imported when they are first used: a load generator must not pay for the search.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frontier_tuner.configuration import Configuration, Value, digest
    from frontier_tuner.engines.vllm import baseline, build_space, command_line, gpus, tensor_parallel_sizes
    from frontier_tuner.errors import (
        FactsError,
        InvalidSpaceError,
        JournalError,
        MeasurementError,
        PlantError,
        TunerError,
    )
    from frontier_tuner.facts import GPUFacts, ModelFacts, gpu_facts, known_gpus, known_models, model_facts
    from frontier_tuner.frontier import Point, SLOViolation, feasible, hypervolume, non_dominated, points
    from frontier_tuner.frontier import frontier as frontier_of
    from frontier_tuner.ladder import LadderDone, NextRung, levels, next_rung
    from frontier_tuner.measurement import Estimate, Load, Measurement, Validity, Window
    from frontier_tuner.objectives import SLO, Objectives, Target
    from frontier_tuner.prior import roofline
    from frontier_tuner.selection import Selection, rank, select
    from frontier_tuner.space import (
        Argument,
        Parameter,
        Requirement,
        Restriction,
        Rule,
        SearchSpace,
        Violation,
        restrict,
    )
    from frontier_tuner.stopping import Budget, Stability, Stop
    from frontier_tuner.trial import Failure, TrialRecord
    from frontier_tuner.tuner import Proposal, finalists, propose

__all__ = [
    "SLO",
    "Argument",
    "Budget",
    "Configuration",
    "Estimate",
    "FactsError",
    "Failure",
    "GPUFacts",
    "InvalidSpaceError",
    "JournalError",
    "LadderDone",
    "Load",
    "Measurement",
    "MeasurementError",
    "ModelFacts",
    "NextRung",
    "Objectives",
    "Parameter",
    "PlantError",
    "Point",
    "Proposal",
    "Requirement",
    "Restriction",
    "Rule",
    "SLOViolation",
    "SearchSpace",
    "Selection",
    "Stability",
    "Stop",
    "Target",
    "TrialRecord",
    "TunerError",
    "Validity",
    "Value",
    "Violation",
    "Window",
    "baseline",
    "build_space",
    "command_line",
    "digest",
    "feasible",
    "finalists",
    "frontier_of",
    "gpu_facts",
    "gpus",
    "hypervolume",
    "known_gpus",
    "known_models",
    "levels",
    "model_facts",
    "next_rung",
    "non_dominated",
    "points",
    "propose",
    "rank",
    "restrict",
    "roofline",
    "select",
    "tensor_parallel_sizes",
]

_HOMES = {
    "configuration": ("Configuration", "Value", "digest"),
    "engines.vllm": ("baseline", "build_space", "command_line", "gpus", "tensor_parallel_sizes"),
    "errors": ("FactsError", "InvalidSpaceError", "JournalError", "MeasurementError", "PlantError", "TunerError"),
    "facts": ("GPUFacts", "ModelFacts", "gpu_facts", "known_gpus", "known_models", "model_facts"),
    "frontier": ("Point", "SLOViolation", "feasible", "frontier_of", "hypervolume", "non_dominated", "points"),
    "ladder": ("LadderDone", "NextRung", "levels", "next_rung"),
    "measurement": ("Estimate", "Load", "Measurement", "Validity", "Window"),
    "objectives": ("Objectives", "SLO", "Target"),
    "prior": ("roofline",),
    "selection": ("Selection", "rank", "select"),
    "space": ("Argument", "Parameter", "Requirement", "Restriction", "Rule", "SearchSpace", "Violation", "restrict"),
    "stopping": ("Budget", "Stability", "Stop"),
    "trial": ("Failure", "TrialRecord"),
    "tuner": ("Proposal", "finalists", "propose"),
}
_OWN_NAMES = {"frontier_of": "frontier"}
"""Names that differ from those in their modules: a function must not hide the module `frontier_tuner.frontier`."""


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), _OWN_NAMES.get(name, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
