"""When a measured window counts.

Each rule is a pure function with a reason and a sentence of its own; the first that speaks decides.
"""

from collections.abc import Callable
from dataclasses import dataclass

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import Validity


@dataclass(frozen=True)
class Limits:
    """What a window must reach to count.

    Attributes:
        min_requests: Answered requests.
        max_failed_percent: Failed requests in percent of those sent.
        max_cut_percent: Requests unanswered at the end of the drain, in percent of those sent.
        min_rate_percent: Achieved request rate in percent of the requested one, for an open loop.
        max_lag_seconds: 99th percentile of the load generator's own lateness.
        max_late_percent: Delay of the first measured request in percent of the window.
        max_disagreement_percent: Difference between the requests that client and engine counted.
        min_scrapes: Scrapes of the engine within the window.
    """

    min_requests: int = 20
    max_failed_percent: float = 5.0
    max_cut_percent: float = 50.0
    min_rate_percent: float = 95.0
    max_lag_seconds: float = 0.25
    max_late_percent: float = 5.0
    max_disagreement_percent: float = 2.0
    min_scrapes: int = 3


@dataclass(frozen=True)
class Evidence:
    """What is known about a window apart from its metrics; a number is None where Prometheus did not know it.

    Attributes:
        summary: What the load generator did.
        engine_scrapes: Scrapes of the engine within the window.
        engine_scrapes_after: Scrapes of the engine after the window and before the evaluation.
        engine_restarts: Counter resets and process starts since the load began.
        engine_finished: Requests that the engine finished since the load began.
        client_finished: Requests that the load generator saw answered, warm-up included.
        missing: Keys of needed metrics with why they are missing.
    """

    summary: LoadSummary
    engine_scrapes: float | None
    engine_scrapes_after: float | None
    engine_restarts: float | None
    engine_finished: float | None
    client_finished: float | None
    missing: tuple[str, ...] = ()


Rule = Callable[[Evidence, Limits], Validity | None]


def judge(evidence: Evidence, limits: Limits) -> Validity:
    """Return whether the window counts, with the first reason against it."""
    for rule in RULES:
        verdict = rule(evidence, limits)
        if verdict is not None:
            return verdict
    return Validity(valid=True)


def check_scraped(evidence: Evidence, limits: Limits) -> Validity | None:
    """`MetricsMissing`: the load generator's last values or the engine's were never scraped.

    `WindowInvalid`: there is no window, because an engine that answered nothing let none begin.
    """
    if evidence.summary.window.seconds <= 0:
        return _no("WindowInvalid", f"no request could be sent after the warm-up: none was answered{_said(evidence)}")
    if not evidence.summary.scraped:
        return _no("MetricsMissing", "the load generator was not scraped after the window; is its pod a target?")
    if not evidence.engine_scrapes:
        return _no("MetricsMissing", "the engine was not scraped within the window; is its pod a target?")
    if evidence.engine_scrapes < limits.min_scrapes:
        message = (
            f"the engine was scraped {evidence.engine_scrapes:g} times within "
            f"{evidence.summary.window.seconds:.3g} s, of {limits.min_scrapes} needed: scrape more often"
        )
        return _no("MetricsMissing", message)
    if not evidence.engine_scrapes_after:
        return _no("MetricsMissing", "the engine was not scraped after the end of the window")
    return None


def check_restarts(evidence: Evidence, _: Limits) -> Validity | None:
    """`WindowInvalid`: an engine process was replaced while it was under load."""
    if evidence.engine_restarts:
        return _no("WindowInvalid", "the engine restarted during the load: its counters began anew")
    return None


def check_failures(evidence: Evidence, limits: Limits) -> Validity | None:
    """`WindowInvalid`: too many requests failed or were cut at the end."""
    summary = evidence.summary
    if summary.sent and summary.failed * 100 > summary.sent * limits.max_failed_percent:
        return _no("WindowInvalid", f"{summary.failed} of {summary.sent} requests failed{_said(evidence)}")
    if summary.sent and summary.cut * 100 > summary.sent * limits.max_cut_percent:
        message = f"{summary.cut} of {summary.sent} requests were still unanswered when the drain ended: measure longer"
        return _no("WindowInvalid", message)
    return None


def check_rate(evidence: Evidence, limits: Limits) -> Validity | None:
    """`WindowInvalid`: an open loop did not reach its rate, or the generator itself was late."""
    summary = evidence.summary
    seconds = summary.window.seconds
    if summary.load.kind == "RequestRate" and seconds > 0:
        achieved = summary.sent / seconds
        if achieved * 100 < summary.load.value * limits.min_rate_percent:
            message = f"the load generator sent {achieved:.3g} requests/s of {summary.load.value:g}: give it more CPU"
            return _no("WindowInvalid", message)
    if summary.lag_p99_seconds > limits.max_lag_seconds:
        message = f"the load generator was up to {summary.lag_p99_seconds:.3g} s late: give it more CPU"
        return _no("WindowInvalid", message)
    if summary.late_seconds * 100 > seconds * limits.max_late_percent:
        return _no("WindowInvalid", f"the first measured request left {summary.late_seconds:.3g} s late")
    return None


def check_samples(evidence: Evidence, limits: Limits) -> Validity | None:
    """`InsufficientSamples`: too few requests were answered for a percentile."""
    if evidence.summary.ok < limits.min_requests:
        message = f"{evidence.summary.ok} answered requests, of {limits.min_requests} needed: measure longer"
        return _no("InsufficientSamples", message)
    return None


def check_metrics(evidence: Evidence, _: Limits) -> Validity | None:
    """`MetricsMissing`: a needed metric is absent or not a number."""
    if evidence.missing:
        return _no("MetricsMissing", "; ".join(evidence.missing))
    return None


def check_agreement(evidence: Evidence, limits: Limits) -> Validity | None:
    """`MeasurementDisagrees`: client and engine counted different numbers of requests.

    `MetricsMissing`: one of the counts is unknown.
    """
    engine, client = evidence.engine_finished, evidence.client_finished
    if engine is None or client is None:
        side = "engine's" if engine is None else "load generator's"
        return _no("MetricsMissing", f"the {side} count of requests is missing")
    summary = evidence.summary
    # One request may be on either side of a scrape; what the client gave up may have been finished by the engine.
    tolerance = 1 + summary.failed + summary.cut + client * limits.max_disagreement_percent / 100
    if abs(engine - client) > tolerance:
        message = (
            f"the engine finished {engine:g} requests, its client saw {client:g} answered: is there other traffic?"
        )
        return _no("MeasurementDisagrees", message)
    return None


RULES: tuple[Rule, ...] = (
    check_scraped,
    check_restarts,
    check_failures,
    check_rate,
    check_samples,
    check_metrics,
    check_agreement,
)
"""In the order a person would ask: was it seen, did it run, was it loaded as asked, is it enough, whole and true."""


def _said(evidence: Evidence) -> str:
    return f"; the first said: {evidence.summary.first_error}" if evidence.summary.first_error else ""


def _no(reason: str, message: str) -> Validity:
    return Validity(valid=False, reason=reason, message=message)
