"""Gauges: the newest value with its age, and what a window shows of one; impossible numbers are refused."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime

from frontier_tuner.prometheus import queries
from frontier_tuner.prometheus.answers import (
    Empty,
    Impossible,
    MetricsSource,
    NotANumber,
    Reading,
    Series,
    Stale,
    Value,
)
from frontier_tuner.prometheus.counters import one_of_each
from frontier_tuner.prometheus.engine_metrics import TABLE, names_of, resolve
from frontier_tuner.prometheus.histograms import Unknown
from frontier_tuner.prometheus.queries import Span


def latest(
    source: MetricsSource,
    fact: str,
    where: str,
    at: datetime,
    *,
    max_age_seconds: float,
    look_back_seconds: float = 300.0,
) -> Reading:
    """Return the newest value of a gauge, summed over the ranks of the selected pods.

    Each rank of a data-parallel engine has a series of its own, and picking one would show a part of the queue. The
    oldest of the newest samples decides whether the whole is stale.

    Args:
        source: Prometheus.
        fact: Key of `engine_metrics.TABLE`.
        where: Matchers that select the engines' series.
        at: When.
        max_age_seconds: Age from which on a value is stale, some scrape intervals.
        look_back_seconds: How far back samples are looked for; what has none is `Empty`.

    Raises:
        MeasurementError: Prometheus could not be asked.
    """
    span = Span(look_back_seconds)
    name = resolve(source, [fact], where, span, at).names.get(fact)
    if name is None:
        return Empty()
    series = one_of_each(source.matrix(queries.selector(name, where, span), at)).series
    return combine(series, at.timestamp(), max_age_seconds, TABLE[fact].highest)


def combine(series: Sequence[Series], now: float, max_age_seconds: float, highest: float = math.inf) -> Reading:
    """Return the sum of the newest samples of gauges, or why there is none.

    Args:
        series: One for each rank.
        now: Seconds since the epoch.
        max_age_seconds: See `latest`.
        highest: Largest value that one series can have.
    """
    if not series:
        return Empty()
    age = now - min(each.times[-1] for each in series)
    if age > max_age_seconds:
        return Stale(age)
    if any(not math.isfinite(each.values[-1]) for each in series):
        return NotANumber()
    for each in series:
        if not 0 <= each.values[-1] <= highest:
            return Impossible(each.values[-1], written(each.labels))
    return Value(sum(each.values[-1] for each in series))


def written(labels: Mapping[str, str]) -> str:
    """Return a series as Prometheus writes it: `vllm:num_requests_waiting{pod="a"}`."""
    rest = {name: value for name, value in sorted(labels.items()) if name != "__name__"}
    return f"{labels.get('__name__', '')}{{{queries.matchers(rest)}}}"


def checked(fact: str, name: str | None, low: float | None, high: float | None) -> Unknown | None:
    """Return why the extremes of a gauge over a window cannot be believed, or None where they can.

    Args:
        fact: Key of `engine_metrics.TABLE`.
        name: Its name at these engines, or None.
        low: The lowest value over all ranks.
        high: The highest value over all ranks.
    """
    if name is None:
        return Unknown(f"none of {names_of(fact)} is in Prometheus")
    if low is None or high is None:
        return Unknown(f"{name} is not a number", "NotANumber")
    highest = TABLE[fact].highest
    for value in (low, high):
        if not 0 <= value <= highest:
            limit = f"between 0 and {highest:g}" if math.isfinite(highest) else "at least 0"
            return Unknown(f"{name} is {value:g} and must be {limit}", "ImpossibleValue")
    return None
