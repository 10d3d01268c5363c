"""A trial on real traffic: may its engine stay in the Service, and what is recorded when it leaves.

    engine ready: it is in the Service ──► window so far, judged on every pass ──► window over ──► Complete, or Failed
                                              ├─ an SLO missed beyond the guardrail ─────────────► Pruned
                                              ├─ Prometheus does not see it ─────────────────────► Failed
                                              └─ replicas of the incumbent went away ────────────► Failed

The incumbent is measured over the same window: what it suffers too is not the trial's doing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median

from frontier_operator.api import conditions as reasons
from frontier_operator.api.v1alpha1 import InferenceDeploymentSpec
from frontier_operator.core.judging import ENOUGH_FOR_FAILURES
from frontier_operator.core.observation import LiveView, TrialView
from frontier_tuner.measurement import RUNNING, Estimate, Load, Measurement, Validity, Window, within_slo
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.trial import Failure, TrialRecord

BLIND_SCRAPES = 12
"""So many scrape intervals after it joined, an engine that Prometheus does not see may not stay in the traffic."""

ENOUGH_FOR_AN_SLO = 20
"""Observations from which on a percentile can breach the guardrail."""

ENOUGH_MISSES = 5
"""Observations beyond an SLO's bound from which on they are no accident."""

HANGING = 0.5
"""An engine that answers nothing hangs where it has so many requests in flight on average; else it only gets none."""

UNSEEN = frozenset({"TargetNotScraped", "ScrapeGap"})
"""Checks that say that Prometheus does not see the engine."""


@dataclass(frozen=True)
class LiveRules:
    """What holds for every live trial of a study.

    Attributes:
        guardrail_percent: How far beyond an SLO's bound its traffic may be served, in percent of the bound.
        min_requests: Answered requests from which on its window counts.
        scrape_seconds: How often engines are scraped.
        excess: Names of the trials that must leave, because replicas went away.
    """

    guardrail_percent: int
    min_requests: int
    scrape_seconds: float
    excess: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Stay:
    """The engine stays in the Service."""

    message: str


@dataclass(frozen=True)
class Leave:
    """The engine leaves the Service now, and the trial ends.

    Attributes:
        failure: Why it ends before its time or counts for nothing; None where its window counts.
        measurement: What is recorded of its traffic, or None.
        beside: What is recorded of the incumbent's engines in the same window, or None.
    """

    failure: Failure | None = None
    measurement: Measurement | None = None
    beside: Measurement | None = None


def joined_at(trial: TrialView) -> datetime | None:
    """Return when its engine joined the Service, or None before."""
    return trial.ready_at or (trial.engine.ready_at if trial.engine is not None else None)


def live_window(
    trial: TrialView, spec: InferenceDeploymentSpec, now: datetime, scrape_seconds: float
) -> tuple[Window, bool] | None:
    """Return the window to look at and whether it is the one to record; None where there is nothing to look at.

    Until the trial's time is up that is all since it joined, its warm-up included: users are served by it. Then it is
    the measured window, without the warm-up. An engine that has ended is looked at until its end.
    """
    joined = joined_at(trial)
    if trial.finished or trial.engine is None or joined is None:
        return None
    start = joined + spec.measurement.warm_up
    end = start + spec.measurement.max_rung_duration
    if now >= end + timedelta(seconds=scrape_seconds):
        return Window(start, end), True
    until = min(now, trial.engine.finished_at or now)
    return (Window(joined, until), False) if until > joined else None


def judge_live(trial: TrialView, rules: LiveRules, objectives: Objectives, now: datetime) -> Stay | Leave:
    """Return whether a trial's engine may stay in the Service; the engine is ready and runs."""
    if trial.name in rules.excess:
        return Leave(Failure("ShareExceeded", "too few ready replicas are left beside it for its share of the traffic"))
    view, joined = trial.watched, joined_at(trial)
    if view is None or view.engine is None or view.engine.validity.check in UNSEEN:
        since = (now - joined).total_seconds() if joined else 0.0
        why = view.engine.validity.message if view and view.engine else view.error if view else "it just joined"
        if since > BLIND_SCRAPES * rules.scrape_seconds:
            return Leave(Failure("MetricsMissing", f"it may not take traffic that nobody watches: {why}"))
        return Stay(why)
    breach = find_breach(view, objectives, rules.guardrail_percent)
    if breach:
        return Leave(Failure(reasons.GUARDRAIL_BREACHED, breach), _evidence(view.engine), view.incumbent)
    if not view.over:
        return Stay(f"{view.engine.ok} requests answered")
    return Leave(_invalid(view.engine, rules), view.engine, view.incumbent)


def asks_incumbent(view: LiveView, objectives: Objectives, guardrail_percent: int) -> bool:
    """Return whether the incumbent's window matters: to record it, or to tell whether it suffers what the trial does.

    On every other pass it is left alone: it has many engines, and asking for all of them would delay the next look.
    """
    if view.engine is None:
        return False
    silent = not view.engine.sent and _in_flight(view.engine) >= HANGING
    return view.over or silent or bool(find_breach(view, objectives, guardrail_percent))


def find_breach(view: LiveView, objectives: Objectives, guardrail_percent: int) -> str:
    """Return how the traffic of a trial breaches the guardrail, empty where it does not.

    An SLO is breached where its value lies beyond the bound by more than the guardrail. The value decides and not its
    interval: it is what users have felt, and no guess at what others would. Where the incumbent misses the SLO in the
    same window, the trial must be worse than that by the guardrail.
    """
    engine, incumbent = view.engine, view.incumbent
    if engine is None:
        return ""
    if _many_failed(engine) and not (incumbent is not None and _many_failed(incumbent)):
        return f"{engine.failed} of {engine.sent} requests failed, beside the incumbent's {_failed(incumbent)}"
    hangs = _hangs(view)
    if hangs:
        return hangs
    for slo in objectives.slos:
        found = engine.metrics.get(slo.key)
        other = incumbent.metrics.get(slo.key) if incumbent is not None else None
        if found is None or _misses(slo, found, engine) < ENOUGH_MISSES:
            continue
        if _beyond(slo, found, other, guardrail_percent / 100):
            return (
                f"SLO {slo.name}: {slo.key} is {found.value:.4g} with {found.n} observations, more than "
                f"{guardrail_percent} % beyond its bound {slo.bound:.4g}; the incumbent has {_shown(other)}"
            )
    return ""


def felt_by_users(failure: Failure, trial: TrialView) -> Failure:
    """Return the failure of an engine that ended, with what its end cost the users that it served."""
    if joined_at(trial) is None:
        return failure
    seen = trial.watched.engine if trial.watched is not None else None
    running = seen.metrics.get(RUNNING) if seen is not None else None
    if seen is None or running is None:
        felt = "how many requests of its users were cut off is not known"
    else:
        felt = f"{seen.ok} of its users' requests were answered, {seen.failed} failed"
        felt += f", and about {running.value:.1f} were in flight and are cut off"
    return Failure(failure.reason, f"{failure.message}; under real traffic: {felt}")


def at_one_level(records: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """Return live trials as if all had been measured at one level of load, the median of what they saw.

    Traffic is what it is: no two windows see the same rate, and a study that takes each for a level of its own could
    neither compare two trials nor measure one again. What each saw stays in its TuningTrial.
    """
    rates = [measured.load.value for record in records for measured in record.measurements]
    if not rates:
        return tuple(records)
    level = Load("RequestRate", median(rates))
    return tuple(
        replace(record, measurements=tuple(replace(measured, load=level) for measured in record.measurements))
        for record in records
    )


def _beyond(slo: SLO, found: Estimate, other: Estimate | None, guardrail: float) -> bool:
    told = other is not None and other.n >= ENOUGH_FOR_AN_SLO
    reach = min(0.0, slo.slack(other.value)) if other is not None and told else 0.0
    return found.n >= ENOUGH_FOR_AN_SLO and slo.slack(found.value) < reach - guardrail


def _misses(slo: SLO, found: Estimate, engine: Measurement) -> float:
    """Return how many observations lie beyond the bound; where it is not known, how many do if the SLO is missed."""
    within = engine.value(within_slo(slo.key))
    tail = 1 - slo.percentile / 100 if slo.maximum is not None else slo.percentile / 100
    return found.n * (tail if within is None else 1 - within)


def _many_failed(measurement: Measurement) -> bool:
    return measurement.sent >= ENOUGH_FOR_FAILURES and measurement.validity.check == "TooManyFailed"


def _hangs(view: LiveView) -> str:
    engine, incumbent = view.engine, view.incumbent
    if engine is None or incumbent is None or engine.sent or _in_flight(engine) < HANGING:
        return ""
    each = incumbent.ok / max(1, view.engines)
    if each < ENOUGH_FOR_FAILURES:
        return ""
    words = f"none of its requests was answered and {_in_flight(engine):.1f} are in flight"
    return f"{words}; an engine of the incumbent answered {each:.0f}"


def _in_flight(engine: Measurement) -> float:
    return engine.value(RUNNING) or 0.0


def _failed(incumbent: Measurement | None) -> str:
    return f"{incumbent.failed} of {incumbent.sent}" if incumbent is not None else "unknown number"


def _shown(other: Estimate | None) -> str:
    return f"{other.value:.4g} in the same window" if other is not None else "no value of it"


def _evidence(engine: Measurement) -> Measurement:
    """A breach was felt, however few requests it took: the sampler may learn from it."""
    if engine.validity.reason != "InsufficientSamples":
        return engine
    message = f"ended by the guardrail after {engine.ok} requests"
    return replace(engine, validity=Validity(valid=True, message=message))


def _invalid(engine: Measurement, rules: LiveRules) -> Failure | None:
    validity = engine.validity
    if validity.valid:
        return None
    if validity.reason == "InsufficientSamples":
        way = "raise measurement.maxRungDuration, lower measurement.minRequests, or wait for more traffic"
        return Failure("TooLittleTraffic", f"{engine.ok} of {rules.min_requests} requests in the window; {way}")
    reason = "MetricsMissing" if validity.reason == "MetricsMissing" else "WindowInvalid"
    return Failure(reason, f"{validity.reason}: {validity.message}")
