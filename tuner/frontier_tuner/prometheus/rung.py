"""Measures one rung of a load ladder from what Prometheus scraped of the engine and of the load generator.

Latencies and user speed are the client's: histograms of the requests sent in the window, read at their final values,
so that no extrapolation enters and SLO thresholds lie on bucket edges. Throughput and request rate are the engine's
counters over exactly the window. Every query is made for the time `window.end`; evaluated there again it gives the
same value.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import REQUEST_RATE, THROUGHPUT, USER_SPEED, Estimate, Measurement, key
from frontier_tuner.objectives import Objectives
from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.answers import MetricsSource
from frontier_tuner.prometheus.client_view import ClientView, ClientWindow, slo_estimates, view_client
from frontier_tuner.prometheus.cost import Prices
from frontier_tuner.prometheus.engine_view import EngineView, EngineWindow, Found, view_engines
from frontier_tuner.prometheus.estimates import missing_sentences
from frontier_tuner.prometheus.evidence import Evidence, Limits
from frontier_tuner.prometheus.gather import LOOK_BACK_SECONDS, Loaded, gather
from frontier_tuner.prometheus.histograms import Unknown
from frontier_tuner.prometheus.precision import slo_verdict
from frontier_tuner.prometheus.queries import Span
from frontier_tuner.prometheus.reader import Reader
from frontier_tuner.prometheus.validity import judge


@dataclass(frozen=True)
class Scope:
    """Whose series make up a measurement, and what is known of them beforehand.

    Attributes:
        engine: Labels that select the engine's series and no others.
        load: Labels that select the load generator's series and no others.
        gpus: GPUs that the engine holds.
        price_per_gpu_hour: Money, or None where it is unknown.
        scrape_interval_seconds: How often Prometheus scrapes both.
        cached_input_percent: What a cached input token counts in the cost of input, in percent of an uncached one.
        configuration: Requested values by parameter name; the engine's own report of its cache is held against them.
        declared_hit_percent: Share of the prompt tokens that the workload repeats, where the load generator does not
            count them itself; None where it is not known.
        engine_since: When this engine began, where others had the same labels before it; None where none had. Another
            engine's last counts would else be taken for its own.
        mismatches: Requested options that are known not to be in force, as sentences.
    """

    engine: Mapping[str, str]
    load: Mapping[str, str]
    gpus: int
    price_per_gpu_hour: float | None = None
    scrape_interval_seconds: float = 5.0
    cached_input_percent: float = 100.0
    configuration: Mapping[str, object] | None = None
    declared_hit_percent: float | None = None
    engine_since: datetime | None = None
    mismatches: tuple[str, ...] = ()

    @property
    def prices(self) -> Prices | None:
        """What the user pays, or None."""
        if self.price_per_gpu_hour is None:
            return None
        return Prices(self.price_per_gpu_hour, self.gpus, self.cached_input_percent)


def evaluation_time(scope: Scope, summary: LoadSummary) -> datetime:
    """Return the time from which `measure_rung` may be called: by then both were scraped again after the drain."""
    return summary.scraped_at + timedelta(seconds=2 * scope.scrape_interval_seconds)


def measure_rung(
    source: MetricsSource,
    scope: Scope,
    summary: LoadSummary,
    objectives: Objectives,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Measurement:
    """Return what a rung showed, valid or with the reason why it does not count; call it after `evaluation_time`.

    The validity's reason may be `MetricsMissing`, `MetricsStale`, `WindowInvalid`, `InsufficientSamples` or
    `MeasurementDisagrees`; its check names the rule. A quantile beyond the last bucket is left out of the metrics
    without making the window invalid.

    Raises:
        MeasurementError: Prometheus could not be asked.
    """
    reader = Reader(source, summary.end)
    loaded = _loaded(reader, scope, summary)
    if summary.window.seconds <= 0:
        evidence = Evidence(summary, scope.scrape_interval_seconds)
        return _measurement(summary, {}, evidence, limits)
    engine = view_engines(loaded.engine, summary.ok, scope.gpus, scope.prices)
    client = view_client(_client_window(loaded, scope), objectives, limits.max_edge_percent)
    found: Found = {**engine.found, **client.found}
    evidence = gather(
        loaded,
        engine,
        client,
        configuration=scope.configuration,
        declared_hit_percent=scope.declared_hit_percent,
        mismatches=scope.mismatches,
        slo_observations=_observations(client, objectives),
        slo_missed=_missed(client, objectives),
        missing=_missing(found, summary, objectives),
        oddities=_oddities(engine),
    )
    return _measurement(summary, found, evidence, limits)


def _measurement(summary: LoadSummary, found: Found, evidence: Evidence, limits: Limits) -> Measurement:
    return Measurement(
        load=summary.load,
        window=summary.window,
        sent=summary.sent,
        ok=summary.ok,
        failed=summary.failed,
        metrics={name: estimate for name, estimate in found.items() if isinstance(estimate, Estimate)},
        validity=judge(evidence, limits),
        ended=summary.ended,
    )


def _loaded(reader: Reader, scope: Scope, summary: LoadSummary) -> Loaded:
    settle = (evaluation_time(scope, summary) - summary.end).total_seconds()
    whole = (summary.end - summary.begin).total_seconds()
    # Counters are wanted from before the load on: what is between two scrapes belongs to both sides.
    raw = Span(whole + settle + 2 * scope.scrape_interval_seconds, settle)
    interval = scope.scrape_interval_seconds
    return Loaded(
        summary=summary,
        engine=EngineWindow(reader, queries.matchers(scope.engine), summary.start, summary.end, raw, interval),
        client=queries.matchers(scope.load),
        whole=Span(whole + settle, settle),
        after=Span(settle, settle),
        measured=Span(summary.window.seconds + settle, settle),
        before=Span(_look_back(scope, summary)),
    )


def _look_back(scope: Scope, summary: LoadSummary) -> float:
    if scope.engine_since is None:
        return LOOK_BACK_SECONDS
    return min(LOOK_BACK_SECONDS, max(0.001, (summary.begin - scope.engine_since).total_seconds()))


def _client_window(loaded: Loaded, scope: Scope) -> ClientWindow:
    summary = loaded.summary
    warm_up = (summary.start - summary.begin).total_seconds()
    return ClientWindow(
        reader=loaded.engine.reader,
        where=f'{loaded.client},phase="measure"',
        summary=summary,
        measured=loaded.measured,
        course=Span(warm_up + loaded.after.seconds + 2 * scope.scrape_interval_seconds),
        parts=loaded.engine.stretches,
    )


def _observations(client: ClientView, objectives: Objectives) -> tuple[tuple[str, int, float], ...]:
    """Return how many observations each SLO's percentile rests on; one that is missing has a rule of its own."""
    counted = ((slo, client.observations.get(slo.metric, 0.0)) for slo in objectives.slos)
    return tuple((slo.key, slo.percentile, n) for slo, n in counted if n > 0)


def _missed(client: ClientView, objectives: Objectives) -> bool:
    known = slo_estimates(client.found, objectives)
    verdicts = [slo_verdict(slo, known.get(slo.key), 1.0).verdict for slo in objectives.slos]
    beyond = [client.found.get(slo.key) for slo in objectives.slos]
    return "Missed" in verdicts or any(isinstance(why, Unknown) and why.off_scale for why in beyond)


def _missing(found: Found, summary: LoadSummary, objectives: Objectives) -> tuple[tuple[str, str], ...]:
    """Return check and sentence of each metric whose absence makes the window invalid."""
    needed = {THROUGHPUT, REQUEST_RATE, key("TTFT", 95), *(slo.key for slo in objectives.slos)}
    if summary.output_tokens > summary.sent:
        needed.update((key("ITL", 95), key(USER_SPEED, 50)))
    return missing_sentences((name, why) for name, why in found.items() if isinstance(why, Unknown) and name in needed)


def _oddities(engine: EngineView) -> tuple[str, ...]:
    refused = [why.why for why in engine.found.values() if isinstance(why, Unknown) and why.check == "ImpossibleValue"]
    if engine.tokens.duplicates:
        refused.append("several jobs scrape the engine; each of its series is counted once")
    return tuple(refused)
