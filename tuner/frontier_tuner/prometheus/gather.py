"""Gathers the evidence that the validity rules judge a rung by. It judges nothing."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.measurement import THROUGHPUT, Estimate
from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.answers import Empty, Value
from frontier_tuner.prometheus.client_view import ClientView
from frontier_tuner.prometheus.counters import increases, longest_gap, newest, scrapes
from frontier_tuner.prometheus.effective import cache_config_mismatches
from frontier_tuner.prometheus.engine_metrics import CACHE_CONFIG, FINISHED, OUTPUT_TOKENS
from frontier_tuner.prometheus.engine_view import EngineView, EngineWindow, course_of, hit_percent
from frontier_tuner.prometheus.evidence import Evidence
from frontier_tuner.prometheus.queries import CLIENT_REQUESTS, Span
from frontier_tuner.prometheus.reader import Reader, moment
from frontier_tuner.prometheus.steadiness import Steadiness

LOOK_BACK_SECONDS = 300.0
"""How old the last scrape of the engine before the load may be."""
_ENDED = 'finished_reason!="abort"'


@dataclass(frozen=True)
class Loaded:
    """An engine under load; spans are relative to the end of the window.

    Attributes:
        summary: What the load generator did.
        engine: The window of the engine.
        client: Matchers that select the load generator's series.
        whole: From the first request, warm-up included, to the evaluation time.
        after: From the end of the window to the evaluation time.
        measured: From the start of the window to the evaluation time.
        before: Before the load, within which the engine was scraped for the last time; nothing else under its labels.
    """

    summary: LoadSummary
    engine: EngineWindow
    client: str
    whole: Span
    after: Span
    measured: Span
    before: Span


def gather(
    loaded: Loaded,
    engine: EngineView,
    client: ClientView,
    *,
    configuration: Mapping[str, object] | None,
    declared_hit_percent: float | None,
    mismatches: tuple[str, ...],
    slo_observations: tuple[tuple[str, int, float], ...],
    slo_missed: bool,
    missing: tuple[tuple[str, str], ...],
    oddities: tuple[str, ...],
) -> Evidence:
    """Return the evidence of a rung; see `Evidence` for what is passed on as it is."""
    summary, window, tokens = loaded.summary, loaded.engine, engine.tokens
    reader, where = window.reader, window.where
    start, end = summary.start.timestamp(), summary.end.timestamp()
    resets, starts = (reader.number(text) for text in queries.restarts(OUTPUT_TOKENS, where, loaded.whole))
    return Evidence(
        summary=summary,
        scrape_interval_seconds=window.scrape_interval_seconds,
        engine_up=reader.number(queries.peak("up", where, window.span)),
        engine_scrapes=scrapes(tokens, start, end) if tokens.known else None,
        engine_scrapes_after=scrapes(tokens, end, end + loaded.after.seconds) if tokens.known else None,
        engine_gap_seconds=longest_gap(tokens, start, end) if tokens.known else None,
        client_scraped_at=_client_scraped_at(reader, loaded),
        engine_resets=resets,
        engine_starts=starts,
        engine_finished=_engine_finished(reader, loaded),
        client_finished=reader.number(queries.final(CLIENT_REQUESTS, f'{loaded.client},result="ok"', loaded.whole)),
        engine_tokens=increases(tokens, (start, end))[0] if tokens.known else None,
        rated_tokens=_rated_tokens(engine, summary),
        engine_seconds=_engine_seconds(reader, loaded, engine),
        client_seconds=client.seconds,
        hit_percent=hit_percent(window, engine.resolved),
        declared_hit_percent=_declared(summary, declared_hit_percent),
        mismatches=(*mismatches, *_mismatches(reader, where, window.span, configuration)),
        loose_bounds=client.loose_bounds,
        unsent=summary.unsent,
        malformed=summary.malformed,
        cpu_percent=summary.cpu_percent,
        slo_observations=slo_observations,
        slo_missed=slo_missed,
        steadiness=_steadiness(loaded, engine, client),
        missing=missing,
        oddities=oddities,
    )


def _rated_tokens(engine: EngineView, summary: LoadSummary) -> float | None:
    throughput = engine.found.get(THROUGHPUT)
    return throughput.value * summary.window.seconds if isinstance(throughput, Estimate) else None


def _declared(summary: LoadSummary, otherwise: float | None) -> float | None:
    """Return the share of prompt tokens that the load repeats, in percent, as the load generator counted it itself.

    A load generator that counts nothing may be one that cannot: then what was declared beforehand holds.
    """
    if summary.shared_tokens and summary.input_tokens:
        return 100 * summary.shared_tokens / summary.input_tokens
    return otherwise


def _steadiness(loaded: Loaded, engine: EngineView, client: ClientView) -> Steadiness:
    parts = loaded.engine.stretches
    closed = loaded.summary.load.kind == "Concurrency"
    return Steadiness(course_of(engine.tokens, parts) if closed else (), client.first_tokens, parts.seconds)


def _client_scraped_at(reader: Reader, loaded: Loaded) -> datetime | None:
    seconds = newest(reader.counters(CLIENT_REQUESTS, loaded.client, loaded.whole))
    return None if seconds is None else moment(seconds)


def _engine_finished(reader: Reader, loaded: Loaded) -> float | None:
    where = f"{loaded.engine.where},{_ENDED}"
    after = reader.ask(queries.final(FINISHED, where, loaded.whole)).answer
    before = reader.source.query(queries.final(FINISHED, where, loaded.before), loaded.summary.begin)
    match before, after:
        case Value(low), Value(high):
            return high - low
        case Empty(), Value(high):
            return high
        case _:
            return None


def _engine_seconds(reader: Reader, loaded: Loaded, engine: EngineView) -> float | None:
    histogram = engine.resolved.histograms.get("E2E")
    return None if histogram is None else reader.number(histogram.mean(loaded.engine.where, loaded.measured))


def _mismatches(reader: Reader, where: str, span: Span, configuration: Mapping[str, object] | None) -> tuple[str, ...]:
    if configuration is None:
        return ()
    shown = reader.source.vector(f"last_over_time({queries.selector(CACHE_CONFIG, where, span)})", reader.at)
    found = (sentence for sample in shown for sentence in cache_config_mismatches(configuration, sample.labels))
    return tuple(dict.fromkeys(found))
