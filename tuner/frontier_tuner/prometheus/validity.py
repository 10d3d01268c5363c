"""When a measured window counts.

Each rule is a pure function with a sentence and a name of its own (`Validity.check`), beside the reason that the API
knows. All of them are asked; the first that speaks decides.
"""

import math
from collections.abc import Callable

from frontier_tuner.measurement import Validity
from frontier_tuner.prometheus.evidence import Evidence, Limits
from frontier_tuner.prometheus.precision import needed_observations

__all__ = ["RULES", "Evidence", "Limits", "Rule", "judge", "violations"]

Rule = Callable[[Evidence, Limits], Validity | None]


def judge(evidence: Evidence, limits: Limits) -> Validity:
    """Return whether the window counts, with the first reason against it; a valid one tells what is odd about it."""
    against = violations(evidence, limits)
    return against[0] if against else Validity(valid=True, message="; ".join(evidence.oddities))


def violations(evidence: Evidence, limits: Limits) -> tuple[Validity, ...]:
    """Return every rule that the window violates, in the order of `RULES`."""
    return tuple(verdict for rule in RULES if (verdict := rule(evidence, limits)) is not None)


def check_window(evidence: Evidence, _: Limits) -> Validity | None:
    """`WindowInvalid`/`NoWindow`: there is no window, because an engine that answered nothing let none begin."""
    if evidence.summary.window.seconds > 0:
        return None
    message = f"no request could be sent after the warm-up: none was answered{_said(evidence)}"
    return _no("NoWindow", "WindowInvalid", message)


def check_scraped(evidence: Evidence, limits: Limits) -> Validity | None:
    """`MetricsMissing`: the load generator's last values or the engine's were never scraped.

    The checks are `GeneratorNotScraped`, `MetricsEndpointFailing` (the engine is a target, and its `/metrics` fails),
    `TargetNotScraped`, `TooFewScrapes` and `NotScrapedAfter`.
    """
    if not evidence.summary.scraped:
        message = "the load generator was not scraped after the window; is its pod a target?"
        return _no("GeneratorNotScraped", "MetricsMissing", message)
    if not evidence.engine_scrapes:
        if evidence.engine_up == 0:
            message = (
                "the engine is a target and its metrics endpoint answers no scrape; its configuration is not to blame"
            )
            return _no("MetricsEndpointFailing", "MetricsMissing", message)
        message = (
            "the engine was not scraped within the window; is its pod a target? A PodMonitor or ServiceMonitor counts "
            "only if Prometheus selects its labels"
        )
        return _no("TargetNotScraped", "MetricsMissing", message)
    if evidence.engine_scrapes < limits.min_scrapes:
        message = (
            f"the engine was scraped {evidence.engine_scrapes:g} times within "
            f"{evidence.summary.window.seconds:.3g} s, of {limits.min_scrapes} needed: scrape more often"
        )
        return _no("TooFewScrapes", "MetricsMissing", message)
    if not evidence.engine_scrapes_after:
        message = "the engine was not scraped after the end of the window"
        return _no("NotScrapedAfter", "MetricsMissing", message)
    return None


def check_gaps(evidence: Evidence, limits: Limits) -> Validity | None:
    """`MetricsStale`/`ScrapeGap`: Prometheus did not scrape the engine for a part of the window.

    What happened meanwhile is not known, and at an end of the window a rate would be too low.
    """
    allowed = max(
        limits.max_gap_scrapes * evidence.scrape_interval_seconds,
        limits.max_gap_percent / 100 * evidence.summary.window.seconds,
    )
    if evidence.engine_gap_seconds is None or evidence.engine_gap_seconds <= allowed:
        return None
    message = (
        f"the engine was not scraped for {evidence.engine_gap_seconds:.3g} s of the window, at most {allowed:.3g} s"
    )
    return _no("ScrapeGap", "MetricsStale", message)


def check_ends(evidence: Evidence, limits: Limits) -> Validity | None:
    """`MetricsStale`/`ScrapeGap`: a scrape is missing so near an end of the window that a rate is wrong."""
    counted, rated = evidence.engine_tokens, evidence.rated_tokens
    if not counted or rated is None:
        return None
    error = 100 * (rated / counted - 1)
    # Up to an interval at the window's ends is extrapolated in any case.
    unseen = 100 * evidence.scrape_interval_seconds / evidence.summary.window.seconds
    if abs(error) <= max(limits.max_rate_error_percent, unseen):
        return None
    message = f"the throughput would be {error:+.3g} % off: a scrape is missing near an end of the window"
    return _no("ScrapeGap", "MetricsStale", message)


def check_clocks(evidence: Evidence, limits: Limits) -> Validity | None:
    """`WindowInvalid`/`ClockSkew`: the window's times mean something else to Prometheus than to the load generator.

    The generator knows when its last scrape came. Where several jobs scrape it a further one may follow.
    """
    if evidence.client_scraped_at is None:
        return None
    ahead = (evidence.summary.scraped_at - evidence.client_scraped_at).total_seconds()
    behind_allowed = limits.max_skew_seconds + evidence.scrape_interval_seconds
    if -behind_allowed <= ahead <= limits.max_skew_seconds:
        return None
    word = "ahead of" if ahead > 0 else "behind"
    message = (
        f"the load generator's clock is about {abs(ahead):.3g} s {word} Prometheus's: synchronise the nodes' clocks"
    )
    return _no("ClockSkew", "WindowInvalid", message)


def check_restarts(evidence: Evidence, _: Limits) -> Validity | None:
    """`WindowInvalid`: a process was replaced under load (`EngineRestarted`), or its counters fell (`CounterReset`)."""
    if evidence.engine_starts:
        message = "the engine restarted during the load: its process is another one than at the start"
        return _no("EngineRestarted", "WindowInvalid", message)
    if evidence.engine_resets:
        message = "the engine restarted during the load: its counters began anew"
        return _no("CounterReset", "WindowInvalid", message)
    return None


def check_configuration(evidence: Evidence, _: Limits) -> Validity | None:
    """`WindowInvalid`/`EffectiveConfigMismatch`: the engine runs with something else than the configuration says."""
    if not evidence.mismatches:
        return None
    return _no("EffectiveConfigMismatch", "WindowInvalid", "; ".join(evidence.mismatches))


def check_failures(evidence: Evidence, limits: Limits) -> Validity | None:
    """`WindowInvalid`: `TooManyMalformed` answers, `TooManyFailed` requests, or `TooManyCut` at the end."""
    summary = evidence.summary
    if evidence.malformed * 100 > summary.sent * limits.max_malformed_percent:
        message = f"{evidence.malformed} of {summary.sent} answers have times that cannot be"
        return _no("TooManyMalformed", "WindowInvalid", message)
    if summary.sent and summary.failed * 100 > summary.sent * limits.max_failed_percent:
        message = f"{summary.failed} of {summary.sent} requests failed{_said(evidence)}"
        return _no("TooManyFailed", "WindowInvalid", message)
    if summary.sent and summary.cut * 100 > summary.sent * limits.max_cut_percent:
        message = f"{summary.cut} of {summary.sent} requests were still unanswered when the drain ended: measure longer"
        return _no("TooManyCut", "WindowInvalid", message)
    return None


def check_rate(evidence: Evidence, limits: Limits) -> Validity | None:
    """`WindowInvalid`: `RateNotReached` by an open loop, `GeneratorLate`, or a `LateStart` that eats the window."""
    summary, seconds = evidence.summary, evidence.summary.window.seconds
    remedy = "give it more CPU" + (f", it used {evidence.cpu_percent} % of a core" if evidence.cpu_percent else "")
    if evidence.unsent:
        message = f"the load generator never sent {evidence.unsent} requests that were due in the window: {remedy}"
        return _no("RateNotReached", "WindowInvalid", message)
    if summary.load.kind == "RequestRate" and seconds > 0:
        achieved = summary.sent / seconds
        if achieved * 100 < summary.load.value * limits.min_rate_percent:
            message = f"the load generator sent {achieved:.3g} requests/s of {summary.load.value:g}: {remedy}"
            return _no("RateNotReached", "WindowInvalid", message)
    if summary.lag_p99_seconds > limits.max_lag_seconds:
        message = f"the load generator was up to {summary.lag_p99_seconds:.3g} s late: {remedy}"
        return _no("GeneratorLate", "WindowInvalid", message)
    if summary.late_seconds * 100 > seconds * limits.max_late_percent:
        message = f"the first measured request left {summary.late_seconds:.3g} s late"
        return _no("LateStart", "WindowInvalid", message)
    return None


def check_samples(evidence: Evidence, limits: Limits) -> Validity | None:
    """`InsufficientSamples`/`TooFewRequests`: too few requests were answered for a percentile."""
    ok = evidence.summary.ok
    if ok < limits.min_requests:
        message = f"{ok} answered requests, of {limits.min_requests} needed: measure longer"
        return _no("TooFewRequests", "InsufficientSamples", message)
    for name, percentile, observations in evidence.slo_observations:
        needed = needed_observations(percentile, limits.min_beyond)
        if observations < needed:
            message = f"{name} rests on {observations:g} observations, of {needed} needed: measure longer"
            return _no("TooFewRequests", "InsufficientSamples", message)
    return None


def check_metrics(evidence: Evidence, _: Limits) -> Validity | None:
    """`MetricsMissing`: a needed metric is not known; the check says why, see `Unknown`."""
    if not evidence.missing:
        return None
    check, _sentence = evidence.missing[0]
    return _no(check, "MetricsMissing", "; ".join(sentence for _, sentence in evidence.missing))


def check_counts(evidence: Evidence, limits: Limits) -> Validity | None:
    """`MeasurementDisagrees`/`CountsDisagree`: client and engine counted different numbers of requests or of tokens.

    `MetricsMissing`/`MetricMissing`: one of the counts of requests is unknown. `WindowInvalid`/`InconsistentResult`:
    requests were answered without any token.
    """
    engine, client, summary = evidence.engine_finished, evidence.client_finished, evidence.summary
    if engine is None or client is None:
        side = "engine's" if engine is None else "load generator's"
        return _no("MetricMissing", "MetricsMissing", f"the {side} count of requests is missing")
    # One request may be on either side of a scrape; what the client gave up may have been finished by the engine.
    tolerance = 1 + summary.failed + summary.cut + client * limits.max_disagreement_percent / 100
    if abs(engine - client) > tolerance:
        message = (
            f"the engine finished {engine:g} requests, its client saw {client:g} answered: is there other traffic?"
        )
        return _no("CountsDisagree", "MeasurementDisagrees", message)
    if summary.ok and not summary.output_tokens:
        message = f"{summary.ok} requests were answered and not one token arrived: the report contradicts itself"
        return _no("InconsistentResult", "WindowInvalid", message)
    return _tokens_disagree(evidence, limits)


def _tokens_disagree(evidence: Evidence, limits: Limits) -> Validity | None:
    summary, counted = evidence.summary, evidence.engine_tokens
    if counted is None or summary.window.seconds <= 0:
        return None
    # The engine's count is known at scrapes only, which lie up to an interval off either end of the window.
    edges = 2 * evidence.scrape_interval_seconds / summary.window.seconds
    tolerance = summary.output_tokens * (limits.max_token_disagreement_percent / 100 + edges) + summary.sent
    if abs(counted - summary.output_tokens) <= tolerance:
        return None
    message = f"the engine counted {counted:.6g} output tokens in the window, its client {summary.output_tokens}"
    return _no("CountsDisagree", "MeasurementDisagrees", message)


def check_times(evidence: Evidence, limits: Limits) -> Validity | None:
    """`MeasurementDisagrees`/`TimesDisagree`: whole requests took another time for the client than for the engine.

    A client that has too little CPU sees slow answers of a fast engine.
    """
    engine, client = evidence.engine_seconds, evidence.client_seconds
    if engine is None or client is None or evidence.summary.cut * 20 > evidence.summary.sent:
        return None
    tolerance = limits.max_time_disagreement_seconds + engine * limits.max_time_disagreement_percent / 100
    if math.isfinite(client) and abs(client - engine) <= tolerance:
        return None
    message = (
        f"a request took {client:.3g} s on average for the client and {engine:.3g} s for the engine: "
        "the load generator, the network or another client is in the way"
    )
    return _no("TimesDisagree", "MeasurementDisagrees", message)


def check_cache(evidence: Evidence, limits: Limits) -> Validity | None:
    """`WindowInvalid`/`WarmCache`: prompts were found in the prefix cache that the workload does not repeat.

    A request that is in flight at an end of the window counts in it for only one of client and engine; what that
    moves the share by, at one standard deviation, is no excess. It is nothing where nothing is declared.
    """
    measured, declared = evidence.hit_percent, evidence.declared_hit_percent
    if measured is None or declared is None:
        return None
    summary = evidence.summary
    seconds = (evidence.engine_seconds or 0.0) if summary.load.kind == "RequestRate" else 1.0
    at_both_ends = 2 * summary.load.value * seconds
    share = min(1.0, declared / 100)
    moved = 100 * math.sqrt(share * (1 - share) * at_both_ends) / max(1, summary.sent)
    if measured <= declared + limits.max_hit_excess_percent + moved:
        return None
    message = (
        f"{measured:.3g} % of the prompt tokens came from the prefix cache, the workload repeats {declared:.3g} %: "
        "an earlier run has filled it; use another seed or reset the cache"
    )
    return _no("WarmCache", "WindowInvalid", message)


def check_edges(evidence: Evidence, _: Limits) -> Validity | None:
    """`WindowInvalid`/`BoundOffEdges`: an SLO would be decided by interpolation inside a wide bucket."""
    if not evidence.loose_bounds:
        return None
    return _no("BoundOffEdges", "WindowInvalid", "; ".join(evidence.loose_bounds))


def check_steady(evidence: Evidence, limits: Limits) -> Validity | None:
    """`WindowInvalid`: the window is not one steady state: `NotWarm`, or a queue grows: `Overloaded`.

    A queue that grows makes every latency a lower bound: where an SLO is missed already, that is certain, and counts.
    """
    found = evidence.steadiness.problem(limits.max_drift_percent, limits.max_settling_percent)
    if found is None or (found.check == "Overloaded" and evidence.slo_missed):
        return None
    return _no(found.check, "WindowInvalid", found.message)


RULES: tuple[Rule, ...] = (
    check_window,
    check_scraped,
    check_clocks,
    check_gaps,
    check_restarts,
    check_configuration,
    check_failures,
    check_rate,
    check_samples,
    check_metrics,
    check_counts,
    check_times,
    check_cache,
    check_edges,
    check_steady,
    check_ends,
)
"""In the order a person would ask: was it seen, did it run, was it loaded as asked, is it enough, whole and true."""


def _said(evidence: Evidence) -> str:
    return f"; the first said: {evidence.summary.first_error}" if evidence.summary.first_error else ""


def _no(check: str, reason: str, message: str) -> Validity:
    return Validity(valid=False, reason=reason, message=message, check=check)
