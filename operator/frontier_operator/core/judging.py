"""What live traffic says of a canary. Missing evidence never promotes; a breach ends it at once."""

from dataclasses import dataclass
from typing import Literal

from frontier_operator.core.decision import Candidate
from frontier_operator.core.observation import Observation
from frontier_tuner.measurement import Measurement
from frontier_tuner.objectives import Objectives

WORSE_PERCENT = 10
"""A canary that misses an SLO which the incumbent misses too is rolled back only where it is this much worse."""

ENOUGH_FOR_FAILURES = 20
"""Requests from which on a share of failures is one, and not an accident."""


@dataclass(frozen=True)
class Judgement:
    """What the live windows say of a canary's step.

    Attributes:
        verdict: `Pass`, `Fail` or `Hold`.
        message: The sentence that says why.
        breach: Whether a guardrail was breached; False where only evidence lacks.
    """

    verdict: Literal["Pass", "Fail", "Hold"]
    message: str
    breach: bool = False


def judge(observation: Observation, incumbent_revision: str, candidate: Candidate) -> Judgement:
    """Return what the live windows of canary and incumbent say of the current step.

    A step needs its duration and its minimum of requests; without them it holds, and fails at the analysis deadline. An
    engine that restarted, a share of failures or a missed SLO fails it at once.
    """
    spec, since = observation.spec, candidate.step_started_at
    if spec is None or since is None:
        return Judgement("Hold", "the step has not begun")
    canary = spec.rollout.canary
    elapsed = (observation.now - since).total_seconds()
    live = observation.live.get(candidate.revision)
    broken = _broken(observation, candidate, live, canary.min_requests)
    if broken:
        return Judgement("Fail", broken, breach=True)
    if live is None or not live.validity.valid or live.ok < canary.min_requests:
        lack = _lack(observation, candidate, live, canary.min_requests)
        if elapsed > canary.analysis_deadline.total_seconds():
            return Judgement("Fail", f"not enough evidence after {elapsed:.0f} s: {lack}")
        return Judgement("Hold", lack)
    comparison = compare(spec.to_objectives(), live, observation.live.get(incumbent_revision))
    if comparison.verdict != "Fail" and elapsed < canary.step_duration.total_seconds():
        return Judgement("Hold", f"{live.ok} requests in {elapsed:.0f} s, the step lasts {canary.step_duration}")
    return comparison


def step_percent(observation: Observation, candidate: Candidate) -> int:
    """Return the share of traffic at the candidate's step; the last one where the steps were shortened under it."""
    steps = observation.spec.rollout.canary.steps if observation.spec else (100,)
    return steps[min(candidate.step, len(steps) - 1)]


def _broken(observation: Observation, candidate: Candidate, live: Measurement | None, minimum: int) -> str:
    view = observation.serving_of(candidate.revision)
    restarted = [pod for pod in view.pods if pod.restarts > 0] if view else []
    if restarted:
        words = f": {restarted[0].last_words[-300:]}" if restarted[0].last_words else ""
        return f"engine {restarted[0].name} of the canary restarted{words}"
    invalid = live is not None and live.validity.reason == "WindowInvalid"
    if live is not None and invalid and live.sent >= min(minimum, ENOUGH_FOR_FAILURES):
        return f"the canary's live window shows trouble: {live.validity.message}"
    return ""


def _lack(observation: Observation, candidate: Candidate, live: Measurement | None, minimum: int) -> str:
    if live is None:
        return observation.live_errors.get(candidate.revision, "no live metrics of the canary yet")
    if not live.validity.valid:
        return f"{live.validity.reason}: {live.validity.message}"
    return f"InsufficientSamples: {live.ok} of {minimum} requests"


def compare(objectives: Objectives, canary: Measurement, incumbent: Measurement | None) -> Judgement:
    """Return `Pass` where every SLO holds on the canary, or is lost on the incumbent no less; else `Fail` or `Hold`."""
    notes: list[str] = []
    for slo in objectives.slos:
        value = canary.value(slo.key)
        if value is None:
            return Judgement("Hold", f"{slo.name} ({slo.key}) is unknown on the canary")
        notes.append(f"{slo.name} {value:.4g} against {slo.bound:.4g}")
        if slo.slack(value) >= 0:
            continue
        other = incumbent.value(slo.key) if incumbent is not None and incumbent.validity.valid else None
        if other is None or slo.slack(other) >= 0 or slo.slack(value) < slo.slack(other) - WORSE_PERCENT / 100:
            return Judgement("Fail", f"SLO {slo.name} is missed: {value:.4g} against {slo.bound:.4g}", breach=True)
        notes.append(f"the incumbent misses it too with {other:.4g}")
    return Judgement("Pass", f"{canary.ok} requests; " + ("; ".join(notes) or "no SLO is declared"))
