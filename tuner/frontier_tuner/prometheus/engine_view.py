"""What the engines' own series say of a window: rates, saturation and money. Rungs and live windows share it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from frontier_tuner.measurement import (
    CACHED_INPUT_THROUGHPUT,
    INPUT_THROUGHPUT,
    KV_CACHE_PEAK,
    REQUEST_RATE,
    RUNNING,
    THROUGHPUT,
    THROUGHPUT_PER_GPU,
    WAITING,
    Estimate,
)
from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.cost import Prices, costs
from frontier_tuner.prometheus.counters import Counters, increases
from frontier_tuner.prometheus.engine_metrics import FINISHED, INPUT_TOKENS, OUTPUT_TOKENS, Resolved, names_of, resolve
from frontier_tuner.prometheus.estimates import Course, answered, estimate_rate, scaled
from frontier_tuner.prometheus.gauges import checked
from frontier_tuner.prometheus.histograms import Unknown
from frontier_tuner.prometheus.queries import Span
from frontier_tuner.prometheus.reader import Reader, Stretches, stretches

Found = dict[str, Estimate | Unknown]
"""What is known of each metric, by its key."""
FACTS = (
    "TTFT",
    "ITL",
    "E2E",
    "TPOT",
    "KVCacheUsage",
    "Waiting",
    "Running",
    "PrefixCacheHits",
    "PrefixCacheQueries",
    "AcceptedByPosition",
)
_ANSWERED = 'finished_reason!="abort"'


@dataclass(frozen=True)
class EngineWindow:
    """A window of some engines; every time is evaluated relative to its end.

    Attributes:
        reader: Asks for the window's end.
        where: Matchers that select the engines' series.
        start: Start of the window.
        end: End of the window, the evaluation time.
        raw: Within which raw samples of counters are read: the window and what lies around it.
        scrape_interval_seconds: How often the engines are scraped.
    """

    reader: Reader
    where: str
    start: datetime
    end: datetime
    raw: Span
    scrape_interval_seconds: float

    @property
    def span(self) -> Span:
        """The window."""
        return Span((self.end - self.start).total_seconds())

    @property
    def stretches(self) -> Stretches:
        """The window in equal parts."""
        return stretches(self.start, self.end, self.scrape_interval_seconds)


@dataclass(frozen=True)
class EngineView:
    """What the engines showed.

    Attributes:
        resolved: Their metrics' names.
        tokens: Raw samples of the output tokens.
        found: Throughput, request rate, input tokens, saturation and money, by key.
    """

    resolved: Resolved
    tokens: Counters
    found: Found


def view_engines(window: EngineWindow, ok: int, gpus: int, prices: Prices | None) -> EngineView:
    """Return what the engines showed in a window.

    Args:
        window: Whose series, and when.
        ok: Answered requests, the events behind every rate.
        gpus: GPUs that the engines hold together.
        prices: What the user pays, or None.
    """
    reader, where, span, parts = window.reader, window.where, window.span, window.stretches
    tokens = reader.counters(OUTPUT_TOKENS, where, window.raw)
    finished = f"{where},{_ANSWERED}"
    requests = reader.counters(FINISHED, finished, window.raw)
    resolved = resolve(reader.source, FACTS, where, span, reader.at)
    throughput = _spanning(
        estimate_rate(reader.ask(queries.rate(OUTPUT_TOKENS, where, span)), ok, _course(tokens, parts)), tokens, window
    )
    inputs = estimate_rate(reader.ask(queries.rate(INPUT_TOKENS, where, span)), ok)
    cached = _cached(window, resolved, ok)
    found: Found = {
        THROUGHPUT: throughput,
        REQUEST_RATE: estimate_rate(reader.ask(queries.rate(FINISHED, finished, span)), ok, _course(requests, parts)),
        INPUT_THROUGHPUT: inputs,
        CACHED_INPUT_THROUGHPUT: cached,
        **_saturation(window, resolved, ok),
    }
    if isinstance(throughput, Estimate):
        found[THROUGHPUT_PER_GPU] = scaled(throughput, 1 / gpus, reader.ask(f"{throughput.query} / {gpus}"))
    if prices is not None:
        found.update(costs(reader, prices, throughput, inputs, cached))
    return EngineView(resolved, tokens, found)


def _spanning(estimate: Estimate | Unknown, counters: Counters, window: EngineWindow) -> Estimate | Unknown:
    """Return a rate whose interval holds the one between the scrapes around the window's ends as well.

    PromQL sees only the scrapes within the window and extrapolates to its ends; which of both is nearer the truth is
    not known.
    """
    if isinstance(estimate, Unknown) or not counters.known:
        return estimate
    (risen,) = increases(counters, (window.start.timestamp(), window.end.timestamp()))
    other = risen / window.span.seconds
    return replace(estimate, low=min(estimate.low, other), high=max(estimate.high, other))


def course_of(counters: Counters, parts: Stretches) -> tuple[float, ...]:
    """Return the rate of a counter in each part of a window; empty where there are too few parts."""
    if parts.count == 0 or not counters.known:
        return ()
    return tuple(amount / parts.seconds for amount in increases(counters, parts.times))


def _course(counters: Counters, parts: Stretches) -> Course | None:
    rates = course_of(counters, parts)
    return Course([rate * parts.seconds for rate in rates], [parts.seconds] * parts.count) if rates else None


def _cached(window: EngineWindow, resolved: Resolved, ok: int) -> Estimate | Unknown:
    name = resolved.names.get("PrefixCacheHits")
    if name is None:
        return Unknown(f"none of {names_of('PrefixCacheHits')} is in Prometheus")
    return estimate_rate(window.reader.ask(queries.rate(name, window.where, window.span)), ok)


def hit_percent(window: EngineWindow, resolved: Resolved) -> float | None:
    """Return the prompt tokens that were found in the prefix cache, in percent of those looked up; None if unknown."""
    hits, lookups = (resolved.names.get(fact) for fact in ("PrefixCacheHits", "PrefixCacheQueries"))
    if hits is None or lookups is None:
        return None
    rates = (queries.rate(name, window.where, window.span) for name in (hits, lookups))
    return window.reader.number(f"100 * {' / '.join(rates)}")


def _saturation(window: EngineWindow, resolved: Resolved, ok: int) -> Found:
    """Return the highest use of the KV cache and the mean numbers of waiting and of running requests."""
    found: Found = {}
    for fact, key, expression in (
        ("KVCacheUsage", KV_CACHE_PEAK, queries.peak),
        ("Waiting", WAITING, queries.average),
        ("Running", RUNNING, queries.average),
    ):
        name = resolved.names.get(fact)
        low, high = _extremes(window, name)
        why = checked(fact, name, low, high)
        if name is None or why is not None:
            found[key] = why or Unknown(f"none of {names_of(fact)} is in Prometheus")
            continue
        asked = window.reader.ask(expression(name, window.where, window.span))
        value = answered(asked.answer)
        found[key] = value if isinstance(value, Unknown) else Estimate(value, value, value, ok, asked.query)
    return found


def _extremes(window: EngineWindow, name: str | None) -> Iterable[float | None]:
    if name is None:
        return None, None
    return (
        window.reader.number(expression(name, window.where, window.span))
        for expression in (queries.lowest, queries.peak)
    )
