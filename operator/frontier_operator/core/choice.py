"""What the status says of the choice: why it, how sure, and what each technique contributed to it."""

import math
from typing import Any

from frontier_operator.core.decision import Decision
from frontier_operator.core.observation import Observation
from frontier_tuner import journal
from frontier_tuner.factors import Attribution, Factor, technique_factors
from frontier_tuner.noise import Ratio

MAX_MESSAGE = 1024
"""Characters of a technique's message in the API."""


def selection_of(observation: Observation, decision: Decision) -> dict[str, Any]:
    """Return `status.selection`; empty before the first trial."""
    choice = decision.study.choice
    if choice is None or observation.spec is None or not observation.trials:
        return {}
    selection, again = choice.selection, choice.confirmed
    entry: dict[str, Any] = {"policy": observation.spec.to_target().policy, "message": choice.message}
    if selection.binding:
        entry["binding"] = selection.binding
    if selection.point is not None:
        entry["configuration"] = journal.encode_configuration(selection.point.configuration)
        entry["configurationHash"] = selection.point.configuration.hash
        entry["load"] = journal.encode_measurement(selection.point.measured)["load"]
    if selection.runner_up is not None:
        entry["runnerUp"] = f"{selection.runner_up.configuration} at {selection.runner_up.load}"
    if again is not None:
        entry["confirmations"] = again.repeats
        entry["optimism"] = _ratio(again.optimism)
    return {name: value for name, value in entry.items() if value is not None}


def techniques_of(observation: Observation, decision: Decision) -> dict[str, Any]:
    """Return `status.techniques` and `status.advantage`; both empty unless ablations were asked for or made."""
    attribution = _attribution(observation, decision)
    if attribution is None:
        return {"techniques": None, "advantage": None}
    ratios = {"total": attribution.total, "product": attribution.product, "interaction": attribution.interaction}
    advantage = {"gains": attribution.gains, **{name: _ratio(ratio) for name, ratio in ratios.items()}}
    return {
        "techniques": [_technique(factor) for factor in attribution.factors],
        "advantage": {name: value for name, value in advantage.items() if value is not None},
    }


def _attribution(observation: Observation, decision: Decision) -> Attribution | None:
    spec, space, selection = observation.spec, observation.space, decision.study.selection
    records = [trial.record for trial in observation.trials if trial.record is not None]
    asked = spec is not None and spec.search.budget.ablations > 0
    if not (asked or any(record.purpose == "Ablation" for record in records)) or not decision.study.stop:
        return None
    if spec is None or space is None or selection is None or selection.point is None:
        return None
    winner = selection.point.configuration
    if winner == space.baseline:
        return None
    return technique_factors(
        records,
        space,
        winner,
        space.baseline,
        spec.to_objectives(),
        spec.to_target(),
        noise=decision.study.noise,
    )


def _technique(factor: Factor) -> dict[str, Any]:
    measured = _ratio(factor.factor) or {}
    found = {
        "name": factor.technique,
        "state": factor.state,
        "factor": measured.get("value"),
        "low": measured.get("low"),
        "high": measured.get("high"),
        "effect": factor.effect,
        "message": factor.message[:MAX_MESSAGE],
    }
    return {name: value for name, value in found.items() if value is not None}


def _ratio(ratio: Ratio | None) -> dict[str, str] | None:
    """Return a ratio with its interval; an end that is not known is absent."""
    if ratio is None:
        return None
    ends = {"value": ratio.value, "low": ratio.low, "high": ratio.high}
    return {name: journal.decimal(float(f"{value:.4g}")) for name, value in ends.items() if math.isfinite(value)}
