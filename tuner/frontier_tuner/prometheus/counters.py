"""Counters as raw samples: increases over any stretch, safe against resets, and how densely they were scraped."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from frontier_tuner.prometheus.answers import Series
from frontier_tuner.prometheus.queries import IDENTITY


@dataclass(frozen=True)
class Counters:
    """Counters of one metric, each scraped by one job.

    Attributes:
        series: One for each pod, rank and model.
        duplicates: How many further series told the same, because several jobs scrape the same pods.
    """

    series: tuple[Series, ...]
    duplicates: int = 0

    @property
    def known(self) -> bool:
        """Whether there is any sample."""
        return bool(self.series)


def one_of_each(series: Sequence[Series]) -> Counters:
    """Return the counters with the duplicates of several scraping jobs left out; the most scraped one stays."""
    best: dict[tuple[str, ...], Series] = {}
    for each in series:
        identity = tuple(each.labels.get(label, "") for label in IDENTITY)
        if each.times and (identity not in best or len(each.times) > len(best[identity].times)):
            best[identity] = each
    return Counters(tuple(best.values()), sum(bool(each.times) for each in series) - len(best))


def increases(counters: Counters, times: Sequence[float]) -> list[float]:
    """Return by how much the counters rose together between each two neighbouring times.

    Between two scrapes a counter is taken to rise evenly, and outside of all scrapes not at all. After a reset it has
    risen by its new value.
    """
    totals = [0.0] * (len(times) - 1)
    for series in counters.series:
        risen = _risen(series.values)
        at = [_interpolated(series.times, risen, moment) for moment in times]
        totals = [total + after - before for total, (before, after) in zip(totals, pairwise(at), strict=True)]
    return totals


def scrapes(counters: Counters, start: float, end: float) -> int:
    """Return how often the least scraped counter was scraped from start to end, both included."""
    counts = (bisect_right(series.times, end) - bisect_left(series.times, start) for series in counters.series)
    return min(counts, default=0)


def longest_gap(counters: Counters, start: float, end: float) -> float:
    """Return the longest time within a window in which some counter was not scraped.

    The gaps at its ends reach to the nearest scrapes outside, or to the ends themselves where there is none.
    """
    return max((_longest_gap(series.times, start, end) for series in counters.series), default=end - start)


def _longest_gap(times: Sequence[float], start: float, end: float) -> float:
    first, last = bisect_left(times, start), bisect_right(times, end)
    inside = list(times[first:last])
    before = times[first - 1] if first else start
    after = times[last] if last < len(times) else end
    return max(b - a for a, b in pairwise([before, *inside, after]))


def newest(counters: Counters) -> float | None:
    """Return the time of the newest scrape of any of the counters."""
    return max((series.times[-1] for series in counters.series), default=None)


def _risen(values: Sequence[float]) -> list[float]:
    risen = [0.0]
    for before, after in pairwise(values):
        risen.append(risen[-1] + (after - before if after >= before else after))
    return risen


def _interpolated(times: Sequence[float], risen: Sequence[float], moment: float) -> float:
    index = bisect_left(times, moment)
    if index == 0:
        return risen[0]
    if index == len(times):
        return risen[-1]
    share = (moment - times[index - 1]) / (times[index] - times[index - 1])
    return risen[index - 1] + share * (risen[index] - risen[index - 1])
