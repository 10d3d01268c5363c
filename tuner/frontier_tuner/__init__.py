"""Finds the efficient frontier of an LLM inference engine by measuring it, and picks the point to serve.

The usual way: make a space with `build_space`, ask `propose` for a configuration, measure its load ladder, keep a
`TrialRecord`, repeat until it answers `Stop`; then `points`, `frontier_of` and `select`.

Names are imported when they are first used: a load generator must not pay for the search.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from frontier_tuner.axes import Axis
    from frontier_tuner.cliffs import Cliff, find_cliffs
    from frontier_tuner.configuration import Configuration, Value, digest
    from frontier_tuner.confirming import Confirmed, Rerun, confirmed, finalist_plan
    from frontier_tuner.engines.vllm import baseline, build_space, command_line, gpus, tensor_parallel_sizes
    from frontier_tuner.errors import (
        FactsError,
        InvalidSpaceError,
        JournalError,
        MeasurementError,
        PlantError,
        TunerError,
    )
    from frontier_tuner.explain import Explanation, explain_study
    from frontier_tuner.factors import Attribution, Factor, leave_one_out_plan, technique_factors
    from frontier_tuner.facts import GPUFacts, ModelFacts, gpu_facts, known_gpus, known_models, model_facts
    from frontier_tuner.frontier import Point, SLOViolation, beats, feasible, hypervolume, non_dominated, points
    from frontier_tuner.frontier import frontier as frontier_of
    from frontier_tuner.ladder import LadderDone, NextRung, levels, next_rung
    from frontier_tuner.measurement import Estimate, Load, Measurement, Validity, Window
    from frontier_tuner.noise import Noise, Ratio, estimate_noise
    from frontier_tuner.objectives import SLO, Objectives, Target
    from frontier_tuner.predict import Prediction, PriorModel
    from frontier_tuner.predict.roofline import Roofline, Traffic
    from frontier_tuner.search.sampler import FrontierSampler
    from frontier_tuner.selection import Confidence, Selection, confidence, rank, select
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
    from frontier_tuner.stopping import (
        Budget,
        Cost,
        FailureLimit,
        Plateau,
        Stability,
        Stop,
        Use,
        Verdict,
        expected_cost,
        failing,
        first_stop,
        pays_back,
        plateau,
        stable,
        within_budget,
    )
    from frontier_tuner.trial import Failure, TrialRecord
    from frontier_tuner.tuner import Proposal, finalists, propose
    from frontier_tuner.unlocks import Unlock

__all__ = [
    "SLO",
    "Argument",
    "Attribution",
    "Axis",
    "Budget",
    "Cliff",
    "Confidence",
    "Configuration",
    "Confirmed",
    "Cost",
    "Estimate",
    "Explanation",
    "Factor",
    "FactsError",
    "Failure",
    "FailureLimit",
    "FrontierSampler",
    "GPUFacts",
    "InvalidSpaceError",
    "JournalError",
    "LadderDone",
    "Load",
    "Measurement",
    "MeasurementError",
    "ModelFacts",
    "NextRung",
    "Noise",
    "Objectives",
    "Parameter",
    "PlantError",
    "Plateau",
    "Point",
    "Prediction",
    "PriorModel",
    "Proposal",
    "Ratio",
    "Requirement",
    "Rerun",
    "Restriction",
    "Roofline",
    "Rule",
    "SLOViolation",
    "SearchSpace",
    "Selection",
    "Stability",
    "Stop",
    "Target",
    "Traffic",
    "TrialRecord",
    "TunerError",
    "Unlock",
    "Use",
    "Validity",
    "Value",
    "Verdict",
    "Violation",
    "Window",
    "baseline",
    "beats",
    "build_space",
    "command_line",
    "confidence",
    "confirmed",
    "digest",
    "estimate_noise",
    "expected_cost",
    "explain_study",
    "failing",
    "feasible",
    "finalist_plan",
    "finalists",
    "find_cliffs",
    "first_stop",
    "frontier_of",
    "gpu_facts",
    "gpus",
    "hypervolume",
    "known_gpus",
    "known_models",
    "leave_one_out_plan",
    "levels",
    "model_facts",
    "next_rung",
    "non_dominated",
    "pays_back",
    "plateau",
    "points",
    "propose",
    "rank",
    "restrict",
    "select",
    "stable",
    "technique_factors",
    "tensor_parallel_sizes",
    "within_budget",
]

_HOMES = {
    "axes": ("Axis",),
    "cliffs": ("Cliff", "find_cliffs"),
    "configuration": ("Configuration", "Value", "digest"),
    "confirming": ("Confirmed", "Rerun", "confirmed", "finalist_plan"),
    "engines.vllm": ("baseline", "build_space", "command_line", "gpus", "tensor_parallel_sizes"),
    "errors": ("FactsError", "InvalidSpaceError", "JournalError", "MeasurementError", "PlantError", "TunerError"),
    "explain": ("Explanation", "explain_study"),
    "factors": ("Attribution", "Factor", "leave_one_out_plan", "technique_factors"),
    "facts": ("GPUFacts", "ModelFacts", "gpu_facts", "known_gpus", "known_models", "model_facts"),
    "frontier": ("Point", "SLOViolation", "beats", "feasible", "frontier_of", "hypervolume", "non_dominated", "points"),
    "ladder": ("LadderDone", "NextRung", "levels", "next_rung"),
    "measurement": ("Estimate", "Load", "Measurement", "Validity", "Window"),
    "noise": ("Noise", "Ratio", "estimate_noise"),
    "objectives": ("Objectives", "SLO", "Target"),
    "predict": ("Prediction", "PriorModel"),
    "predict.roofline": ("Roofline", "Traffic"),
    "search.sampler": ("FrontierSampler",),
    "space": ("Argument", "Parameter", "Requirement", "Restriction", "Rule", "SearchSpace", "Violation", "restrict"),
    "selection": ("Confidence", "Selection", "confidence", "rank", "select"),
    "stopping": (
        "Budget",
        "Cost",
        "FailureLimit",
        "Plateau",
        "Stability",
        "Stop",
        "Use",
        "Verdict",
        "expected_cost",
        "failing",
        "first_stop",
        "pays_back",
        "plateau",
        "stable",
        "within_budget",
    ),
    "trial": ("Failure", "TrialRecord"),
    "tuner": ("Proposal", "finalists", "propose"),
    "unlocks": ("Unlock",),
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
