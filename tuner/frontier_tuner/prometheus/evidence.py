"""What is known about a window apart from its metrics, and what it must reach to count."""

from dataclasses import dataclass
from datetime import datetime

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.prometheus.steadiness import STEADY, Steadiness


@dataclass(frozen=True)
class Limits:
    """What a window must reach to count.

    Attributes:
        min_requests: Answered requests.
        min_beyond: Observations beyond each percentile that an SLO bounds: 1 asks for 20 requests for a p95 and for 100
            for a p99, the fewest with which the percentile is not merely the largest value.
        max_failed_percent: Failed requests in percent of those sent.
        max_malformed_percent: Answers whose times cannot be, in percent of the requests sent.
        max_cut_percent: Requests unanswered at the end of the drain, in percent of those sent.
        min_rate_percent: Achieved request rate in percent of the requested one, for an open loop.
        max_lag_seconds: 99th percentile of the load generator's own lateness.
        max_late_percent: Delay of the first measured request in percent of the window.
        max_disagreement_percent: Difference between the requests that client and engine counted.
        max_token_disagreement_percent: Difference between the output tokens that client and engine counted.
        max_time_disagreement_percent: Difference between the mean times of whole requests that both saw.
        max_time_disagreement_seconds: What the network and the HTTP servers may add to such a time.
        min_scrapes: Scrapes of the engine within the window.
        max_gap_scrapes: Scrape intervals that may pass without a scrape.
        max_gap_percent: Share of the window that may pass without a scrape, where that is longer.
        max_rate_error_percent: Difference between a rate by PromQL, which sees the scrapes within the window, and by
            those around it as well: without a scrape near its ends PromQL makes it too low.
        max_skew_seconds: Difference of the clocks of load generator and Prometheus.
        max_hit_excess_percent: Prefix cache hits beyond the declared ones, in percent of the prompt tokens.
        max_edge_percent: Distance of the histogram's edges around an SLO's bound, in percent of the bound.
        max_drift_percent: Change over the window that makes it no steady state, in percent.
        max_settling_percent: By how much a start-up within the window may move the mean, in percent.
    """

    min_requests: int = 20
    min_beyond: float = 1.0
    max_failed_percent: float = 5.0
    max_malformed_percent: float = 1.0
    max_cut_percent: float = 50.0
    min_rate_percent: float = 95.0
    max_lag_seconds: float = 0.25
    max_late_percent: float = 5.0
    max_disagreement_percent: float = 2.0
    max_token_disagreement_percent: float = 10.0
    max_time_disagreement_percent: float = 30.0
    max_time_disagreement_seconds: float = 0.1
    min_scrapes: int = 3
    max_gap_scrapes: float = 5.0
    max_gap_percent: float = 25.0
    max_rate_error_percent: float = 5.0
    max_skew_seconds: float = 1.0
    max_hit_excess_percent: float = 1.0
    max_edge_percent: float = 15.0
    max_drift_percent: float = 20.0
    max_settling_percent: float = 5.0


@dataclass(frozen=True)
class Evidence:
    """What is known about a window apart from its metrics; a number is None where Prometheus did not know it.

    Attributes:
        summary: What the load generator did.
        scrape_interval_seconds: How often Prometheus scrapes both.
        engine_up: Highest value of `up` within the window: 0 where the engine was a target and no scrape succeeded.
        engine_scrapes: Scrapes of the engine within the window.
        engine_scrapes_after: Scrapes of the engine after the window and before the evaluation.
        engine_gap_seconds: Longest time within the window without a scrape of the engine.
        client_scraped_at: When the load generator was scraped for the last time, on Prometheus's clock.
        engine_resets: Counter resets since the load began.
        engine_starts: Process starts since the load began.
        engine_finished: Requests that the engine finished since the load began.
        client_finished: Requests that the load generator saw answered, warm-up included.
        engine_tokens: Output tokens that the engine counted within the window, between the scrapes around its ends.
        rated_tokens: The same by the rate that is reported.
        engine_seconds: Mean time of a whole request by the engine's clock.
        client_seconds: The same as the client saw it.
        hit_percent: Prompt tokens found in the prefix cache, in percent, within the window.
        declared_hit_percent: What the workload declares, or None where it declares nothing.
        mismatches: Requested options that are not in force.
        loose_bounds: SLOs whose bound lies between edges that are too far apart.
        unsent: Requests of an open loop whose time lay in the window and that were never sent.
        malformed: Answers, counted as failed, whose times cannot be.
        cpu_percent: CPU time of the load generator in the window, in percent of one core; 0 where it does not tell.
        slo_observations: Percentile and observations of each SLO's metric, by its key.
        slo_missed: Whether some SLO is missed by its whole interval.
        steadiness: What the course of the window shows.
        missing: Check and sentence of each needed metric that is missing.
        oddities: What is odd and spoils nothing.
    """

    summary: LoadSummary
    scrape_interval_seconds: float = 5.0
    engine_up: float | None = None
    engine_scrapes: float | None = None
    engine_scrapes_after: float | None = None
    engine_gap_seconds: float | None = None
    client_scraped_at: datetime | None = None
    engine_resets: float | None = None
    engine_starts: float | None = None
    engine_finished: float | None = None
    client_finished: float | None = None
    engine_tokens: float | None = None
    rated_tokens: float | None = None
    engine_seconds: float | None = None
    client_seconds: float | None = None
    hit_percent: float | None = None
    declared_hit_percent: float | None = None
    mismatches: tuple[str, ...] = ()
    loose_bounds: tuple[str, ...] = ()
    unsent: int = 0
    malformed: int = 0
    cpu_percent: int = 0
    slo_observations: tuple[tuple[str, int, float], ...] = ()
    slo_missed: bool = False
    steadiness: Steadiness = STEADY
    missing: tuple[tuple[str, str], ...] = ()
    oddities: tuple[str, ...] = ()
