"""Builds PromQL, and only builds.

Every expression is safe against counter resets and explicit about its window and its series. The same pod may be
scraped by two jobs, or by two replicas of Prometheus, so series are first reduced to one for each pod, engine rank and
model, and only then summed. Final values of an ended process are read with `last_over_time`, which a staleness mark
does not hide; a negative offset lets them be asked for at the end of the measured window although the last scrape is
later.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from frontier_tuner.durations import format_duration

CLIENT_METRICS: Mapping[str, str] = {
    "TTFT": "frontier_load_ttft_seconds",
    "ITL": "frontier_load_itl_seconds",
    "E2E": "frontier_load_e2e_seconds",
    "UserTokensPerSecond": "frontier_load_user_tokens_per_second",
}
"""Histograms of the load generator by metric."""
CLIENT_REQUESTS = "frontier_load_requests_total"

IDENTITY = ("pod", "engine", "model_name", "finished_reason", "phase", "result")
"""Labels that tell apart what must be added; all others only say who scraped it."""
_ONE = f"by ({', '.join(IDENTITY)})"
_ONE_BUCKET = f"by (le, {', '.join(IDENTITY)})"
MIN_SCRAPES_IN_WINDOW = 4
"""Scrape intervals that a window must hold: a rate over fewer is empty, or an answer by luck of alignment."""


@dataclass(frozen=True)
class Span:
    """A stretch of time relative to the evaluation time of a query.

    Attributes:
        seconds: Its length.
        after_seconds: How long after the evaluation time it ends; below 0, before it.
    """

    seconds: float
    after_seconds: float = 0.0

    def __str__(self) -> str:
        offset = f" offset {format_duration(-self.after_seconds)}" if round(self.after_seconds * 1000) else ""
        return f"[{format_duration(self.seconds)}]{offset}"


def window_problem(seconds: float, scrape_interval_seconds: float) -> str | None:
    """Return why a window is too short to be measured at this scrape interval, or None where it is not."""
    needed = MIN_SCRAPES_IN_WINDOW * scrape_interval_seconds
    if seconds >= needed:
        return None
    return (
        f"a window of {seconds:g} s is shorter than {MIN_SCRAPES_IN_WINDOW} scrape intervals of "
        f"{scrape_interval_seconds:g} s: measure for at least {needed:g} s or scrape more often"
    )


def quote(value: str) -> str:
    """Return a string literal of PromQL, whatever the text contains."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def matchers(labels: Mapping[str, str]) -> str:
    """Return equality matchers without braces: `namespace="ml",pod="a"`."""
    return ",".join(f"{name}={quote(value)}" for name, value in labels.items())


def pod_matchers(namespace: str, pods: Sequence[str]) -> str:
    """Return matchers for exactly these pods of a namespace.

    Raises:
        ValueError: There are no pods; a selector of none would match series without a pod.
    """
    if not pods:
        raise ValueError("a selector needs at least one pod")
    return f"namespace={quote(namespace)},pod=~{quote('|'.join(re.escape(pod) for pod in sorted(pods)))}"


def selector(name: str, where: str, span: Span) -> str:
    """Return the raw samples of a metric within a span."""
    return f"{name}{{{where}}}{span}"


def rate(name: str, where: str, span: Span) -> str:
    """Return the increase per second of a counter over all pods and ranks."""
    return f"sum(max {_ONE} (rate({name}{{{where}}}{span})))"


def increase(name: str, where: str, span: Span, by: str = "") -> str:
    """Return the increase of a counter over all pods and ranks, one for each value of the label `by` where given."""
    total = f"sum by ({by}) " if by else "sum"
    return f"{total}(max {_ONE} (increase({name}{{{where}}}{span})))"


def rate_by(label: str, name: str, where: str, span: Span) -> str:
    """Return the increase per second of a counter over all pods and ranks, one for each value of a label."""
    return f"sum by ({label}) (max by ({', '.join((label, *IDENTITY))}) (rate({name}{{{where}}}{span})))"


def final(name: str, where: str, span: Span) -> str:
    """Return the sum of the last values of a counter or gauge within a span."""
    return f"sum(max {_ONE} (last_over_time({name}{{{where}}}{span})))"


def quantile(fraction: float, buckets: str) -> str:
    """Return the quantile, 0 to 1, that buckets give."""
    return f"histogram_quantile({fraction:.9g}, {buckets})"


def share_at_most(le: str, buckets: Callable[[str], str], where: str) -> str:
    """Return the share of a histogram's observations that are at or below one of its edges.

    Args:
        le: The edge, as its label reads in Prometheus.
        buckets: From matchers to the expression of the buckets.
        where: The matchers.
    """
    below, all_ = (buckets(f"{where},le={quote(label)}") for label in (le, "+Inf"))
    return f"sum({below}) / sum({all_})"


def native_share_at_most(bound: float, histogram: str) -> str:
    """Return the share of a native histogram's observations that are at or below a bound."""
    return f"histogram_fraction(-Inf, {bound!r}, {histogram})"


def part_of(expression: str, parts: int) -> str:
    """Return an expression divided by a whole number of parts."""
    return expression if parts == 1 else f"{expression} / {parts}"


def weighted(parts: Sequence[tuple[float, str]]) -> str:
    """Return a sum of expressions, each times its weight."""
    return " + ".join(f"{weight:.9g} * ({expression})" for weight, expression in parts)


def peak(name: str, where: str, span: Span) -> str:
    """Return the highest value of a gauge within a span over all pods and ranks; an instant would miss it."""
    return f"max(max_over_time({name}{{{where}}}{span}))"


def lowest(name: str, where: str, span: Span) -> str:
    """Return the lowest value of a gauge within a span over all pods and ranks."""
    return f"min(min_over_time({name}{{{where}}}{span}))"


def average(name: str, where: str, span: Span) -> str:
    """Return the mean over time of a gauge within a span, summed over all pods and ranks."""
    return f"sum(max {_ONE} (avg_over_time({name}{{{where}}}{span})))"


def scrapes(name: str, where: str, span: Span) -> str:
    """Return how often the least scraped pod was scraped within a span."""
    return f"min(max by (pod, engine) (count_over_time({name}{{{where}}}{span})))"


def restarts(counter: str, where: str, span: Span) -> tuple[str, str]:
    """Return two expressions: resets of a counter, and process starts, within a span."""
    return (
        f"sum(max by (pod, engine) (resets({counter}{{{where}}}{span})))",
        f"sum(max by (pod) (changes(process_start_time_seconds{{{where}}}{span})))",
    )


def presence(names: Sequence[str], where: str, span: Span) -> str:
    """Return an expression with one series, labelled `__name__`, for each of these series that exists in a span."""
    pattern = "|".join(re.escape(name) for name in names)
    return f"count by (__name__) (last_over_time({{__name__=~{quote(pattern)},{where}}}{span}))"


@dataclass(frozen=True)
class Histogram:
    """A histogram, stored as series of buckets or as native histograms, which have no such series.

    Native ones are not reduced by their maximum, which histograms do not have, but by their mean: duplicates that
    several jobs scraped are equal but for the time of the scrape.

    Attributes:
        name: The metric, without the suffix of a series.
        native: How it is stored. Classic buckets that the server converts are native ones with the same edges.
    """

    name: str
    native: bool = False

    def final(self, where: str, span: Span) -> str:
        """Return its last state within a span: cumulative buckets by `le`, or one native histogram."""
        return self._summed("last_over_time", where, span)

    def rate(self, where: str, span: Span) -> str:
        """Return its increase per second over a span: buckets by `le`, or one native histogram."""
        return self._summed("rate", where, span)

    def _summed(self, function: str, where: str, span: Span) -> str:
        if self.native:
            return f"sum(avg {_ONE} ({function}({self.name}{{{where}}}{span})))"
        return f"sum by (le) (max {_ONE_BUCKET} ({function}({self.name}_bucket{{{where}}}{span})))"

    def final_sum(self, where: str, span: Span) -> str:
        """Return the sum of all observations, as last known within a span."""
        if self.native:
            return f"histogram_sum({self.final(where, span)})"
        return final(f"{self.name}_sum", where, span)

    def final_count(self, where: str, span: Span) -> str:
        """Return the number of all observations, as last known within a span."""
        if self.native:
            return f"histogram_count({self.final(where, span)})"
        return final(f"{self.name}_count", where, span)

    def mean(self, where: str, span: Span) -> str:
        """Return the mean of the observations within a span."""
        if self.native:
            rising = self.rate(where, span)
            return f"histogram_sum({rising}) / histogram_count({rising})"
        return f"{rate(self.name + '_sum', where, span)} / {rate(self.name + '_count', where, span)}"

    def final_mean(self, where: str, span: Span) -> str:
        """Return the mean of all observations, as last known within a span."""
        return f"{self.final_sum(where, span)} / {self.final_count(where, span)}"
