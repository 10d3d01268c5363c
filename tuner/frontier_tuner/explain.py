"""Why this point: everything that a journal says about the choice, as sentences and as data.

Nothing is measured and nothing decided here; the parts come from selection, confirmation, cliffs, factors and the
stopping rules, each of which can be had alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frontier_tuner.cliffs import Cliff, beside, find_cliffs
from frontier_tuner.configuration import Configuration
from frontier_tuner.confirming import Confirmed, confirmed, finalist_plan
from frontier_tuner.factors import Attribution, Without, leave_one_out_plan, technique_factors
from frontier_tuner.frontier import Point, points
from frontier_tuner.journal import encode_configuration
from frontier_tuner.lessons import lessons
from frontier_tuner.measurement import ITL, THROUGHPUT_PER_GPU, TTFT, USER_SPEED, key
from frontier_tuner.noise import Noise, Ratio, estimate_noise
from frontier_tuner.objectives import Objectives, Target
from frontier_tuner.predict import PriorModel
from frontier_tuner.predict.calibration import calibrate
from frontier_tuner.selection import Selection, select
from frontier_tuner.space import SearchSpace
from frontier_tuner.stopping import Stop
from frontier_tuner.trial import TrialRecord
from frontier_tuner.unlocks import figures

_PREDICTED = {
    "ttft": key(TTFT, 50),
    "itl": key(ITL, 50),
    "user_speed": key(USER_SPEED, 50),
    "throughput": THROUGHPUT_PER_GPU,
}
"""What a prior predicts, and what it is compared with."""

Sections = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Explanation:
    """What is known about the choice.

    Attributes:
        target: What was asked for.
        noise: Between engine starts, as far as repeats show it.
        selection: The choice among everything measured.
        confirmed: The choice among second measurements, or None where nothing was measured again.
        unconfirmed: Configurations that would have to be measured again first.
        cliffs: Neighbours of the choice at which something falls, the steepest first.
        attribution: What each technique contributed; None without a choice, or where it is the baseline.
        missing: What would have to be measured to know every factor.
        stop: Why the study ended, or None where it would go on.
        calibration: What the search learnt about its prior, as sentences.
        refused: Why some configurations are not tried any more, by the words of engines that refused their like.
    """

    target: Target
    noise: Noise
    selection: Selection
    confirmed: Confirmed | None
    unconfirmed: tuple[Configuration, ...]
    cliffs: tuple[Cliff, ...]
    attribution: Attribution | None
    missing: tuple[Without, ...]
    stop: Stop | None
    calibration: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def sections(self) -> Sections:
        """Return the explanation as titled sentences; a section without one is left out."""
        unlocks = [f"{unlock.message}" for unlock in self.selection.unlocks]
        found = (
            ("Selection" if self.selection.point else "No feasible point", (self.selection.message,)),
            ("Binding", (self.selection.binding,) if self.selection.binding != "none" else ()),
            ("What would unlock a better point", tuple(unlocks)),
            ("Confirmation", self._confirmation()),
            ("Cliffs beside the choice", tuple(cliff.message for cliff in self.cliffs)),
            ("Techniques, winner against baseline", () if self.attribution is None else self.attribution.sentences()),
            ("Noise between engine starts", (f"{self.noise.start * 100:.2g} % of a value",)),
            ("Not tried any more", self.refused),
            ("Prior", self.calibration),
            ("Stop", (f"{self.stop.reason}: {self.stop.message}",) if self.stop else ("the study would go on",)),
        )
        return tuple((title, sentences) for title, sentences in found if sentences)

    def encode(self) -> dict[str, Any]:
        """Return the explanation as a JSON document; what is not known is absent."""
        selection = self.selection
        return _known(
            {
                "policy": self.target.policy,
                "headroomPercent": self.target.headroom_percent,
                "selected": _point(selection.point),
                "nearest": _point(selection.nearest),
                "violations": [violation.message for violation in selection.violations],
                "binding": selection.binding,
                "message": selection.message,
                "runnerUp": _point(selection.runner_up),
                "margin": _ratio(selection.margin),
                "alternative": _point(selection.alternative),
                "confidence": None
                if selection.confidence is None
                else {
                    "objective": selection.confidence.objective,
                    "probability": selection.confidence.probability,
                },
                "unlocks": [
                    _known(
                        {
                            "objective": unlock.objective,
                            "metric": unlock.key,
                            "declared": unlock.declared,
                            "needed": unlock.needed,
                            "headroomPercent": unlock.headroom_percent,
                            "gain": unlock.gain,
                            "point": _point(unlock.point),
                        }
                    )
                    for unlock in selection.unlocks
                ],
                "confirmed": None if self.confirmed is None else _confirmed(self.confirmed),
                "unconfirmed": [encode_configuration(configuration) for configuration in self.unconfirmed],
                "cliffs": [_cliff(cliff) for cliff in self.cliffs],
                "techniques": None if self.attribution is None else _attribution(self.attribution),
                "notMeasured": [encode_configuration(each.configuration) for each in self.missing],
                "startNoise": self.noise.start,
                "calibration": list(self.calibration),
                "refused": list(self.refused),
                "stop": None if self.stop is None else {"reason": self.stop.reason, "message": self.stop.message},
            }
        )

    def _confirmation(self) -> tuple[str, ...]:
        sentences: list[str] = []
        if self.confirmed is not None:
            sentences += self.confirmed.sentences()
            if self.confirmed.selection.point is not None:
                sentences[0] += f": {figures(self.confirmed.selection.point)}"
        sentences += [f"{configuration} was not measured again" for configuration in self.unconfirmed]
        return tuple(sentences)


def explain_study(
    journal: Sequence[TrialRecord],
    space: SearchSpace,
    objectives: Objectives,
    target: Target,
    *,
    stop: Stop | None = None,
    calibration: Sequence[str] = (),
) -> Explanation:
    """Return what a journal says about the choice for the objectives and the target.

    Args:
        journal: Finished trials.
        space: The study's space; its baseline is what the winner is compared with.
        objectives: What must hold.
        target: Which point is wanted.
        stop: Why the study ended, where it did.
        calibration: What the search says about its prior.
    """
    noise = estimate_noise(journal)
    selection = select(points(journal, objectives), objectives, target, noise=noise)
    again = any(record.purpose == "Confirmation" for record in journal)
    chosen = selection.point
    plan = finalist_plan(journal, objectives, target, space=space, max_starts=len(journal) + 2, count=1)
    attribution: Attribution | None = None
    missing: tuple[Without, ...] = ()
    if chosen is not None and chosen.configuration != space.baseline:
        arguments = (journal, space, chosen.configuration, space.baseline, objectives, target)
        attribution = technique_factors(*arguments, noise=noise)
        missing = leave_one_out_plan(space, chosen.configuration, space.baseline, journal)
    return Explanation(
        target=target,
        noise=noise,
        selection=selection,
        confirmed=confirmed(journal, objectives, target, noise=noise) if again else None,
        unconfirmed=tuple(rerun.configuration for rerun in plan if rerun.reason.startswith("finalist")),
        cliffs=() if chosen is None else beside(chosen, find_cliffs(journal, objectives, space=space, noise=noise)),
        attribution=attribution,
        missing=missing,
        stop=stop,
        calibration=tuple(calibration),
        refused=lessons(journal, space.configurations()).sentences,
    )


def calibration_of(journal: Sequence[TrialRecord], prior: PriorModel) -> tuple[str, ...]:
    """Return sentences on how far a prior was off, over everything that was measured under a number of users.

    Args:
        journal: Finished trials.
        prior: What predicted them.
    """
    known = [point for point in points(journal, Objectives()) if point.load.kind == "Concurrency"]
    configurations = list(dict.fromkeys(point.configuration for point in known))
    levels = sorted({point.load.value for point in known})
    if not known:
        return ()
    measured = {metric: np.full((len(configurations), len(levels)), math.nan) for metric in _PREDICTED}
    for point in known:
        place = configurations.index(point.configuration), levels.index(point.load.value)
        for metric, name in _PREDICTED.items():
            measured[metric][place] = point.measured.value(name) or math.nan
    prediction = prior.predict(configurations, np.tile(np.array(levels), (len(configurations), 1)))
    return tuple(str(each) for each in calibrate(measured, prediction))


def _known(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None and value != []}


def _point(point: Point | None) -> dict[str, Any] | None:
    if point is None:
        return None
    return {
        "configuration": encode_configuration(point.configuration),
        "load": {"kind": point.load.kind, "value": point.load.value},
        "trial": point.trial,
        "metrics": {
            name: {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}
            for name, estimate in sorted(point.metrics.items())
        },
    }


def _ratio(value: Ratio | None) -> dict[str, float] | None:
    if value is None:
        return None
    return {"value": value.value, "low": value.low, **({"high": value.high} if math.isfinite(value.high) else {})}


def _confirmed(found: Confirmed) -> dict[str, Any]:
    return _known(
        {
            "selected": _point(found.selection.point),
            "message": found.selection.message,
            "repeats": found.repeats,
            "optimism": _ratio(found.optimism),
            "refuted": [_point(point) for point in found.refuted],
        }
    )


def _cliff(cliff: Cliff) -> dict[str, Any]:
    return _known(
        {
            "kind": cliff.kind,
            "knob": cliff.knob or None,
            "metric": cliff.key or None,
            "factor": cliff.factor if math.isfinite(cliff.factor) else None,
            "better": _point(cliff.better),
            "worse": _point(cliff.worse),
            "worseConfiguration": encode_configuration(cliff.worse_configuration),
            "message": cliff.message,
        }
    )


def _attribution(found: Attribution) -> dict[str, Any]:
    return _known(
        {
            "gains": found.gains,
            "total": _ratio(found.total),
            "product": _ratio(found.product),
            "interaction": _ratio(found.interaction),
            "factors": [
                _known(
                    {
                        "technique": factor.technique,
                        "knobs": list(factor.knobs),
                        "state": factor.state,
                        "factor": _ratio(factor.factor),
                        "effect": factor.effect,
                        "message": factor.message,
                    }
                )
                for factor in found.factors
            ],
        }
    )
