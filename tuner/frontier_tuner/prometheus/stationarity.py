"""Whether a window shows one steady state: a series of equal stretches of it is tested for a start-up and for a trend.

Both tests ask for evidence and for size: a change that is significant but small spoils no number, and one that is
large but could be chance proves nothing.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median, stdev

from frontier_tuner.prometheus.intervals import MIN_BATCHES, lag_one

_TREND_Z = 3.290526731491926
"""Two-sided at one in a thousand: a ladder of many rungs must not lose one to chance."""
_SETTLING_Z = 4.0
"""Stricter by the number of places at which a series could have been cut."""


@dataclass(frozen=True)
class Trend:
    """A monotone change over a series.

    Attributes:
        z: Standardised; above 0 it rises.
        share: Change from the first to the last stretch, relative to the median.
    """

    z: float
    share: float

    @property
    def significant(self) -> bool:
        """Whether it is hardly chance."""
        return abs(self.z) > _TREND_Z


@dataclass(frozen=True)
class Settling:
    """A first part that differs from the rest.

    Attributes:
        stretches: Length of the first part; 0 where nothing needs to be cut.
        z: Difference of the two parts' means, standardised; above 0 the first part is higher.
        share: By how much the first part moves the mean of all, relative to the mean of the rest.
        freedom: Degrees of freedom of the spread that standardises it.
        apart: Whether every stretch of the first part lies beyond all of the rest: a queue that swings back and forth
            gives means that differ, and no clean cut.
    """

    stretches: int
    z: float
    share: float
    freedom: int
    apart: bool

    @property
    def significant(self) -> bool:
        """Whether it is hardly chance; the fewer stretches tell the spread, the more it takes."""
        return self.apart and abs(self.z) > _SETTLING_Z * (1 + (_SETTLING_Z**2 + 1) / (4 * self.freedom))


def trend(values: Sequence[float]) -> Trend | None:
    """Return the trend of a series, or None where it has fewer than eight values.

    The test of Mann (1945) and Kendall with the variance corrected for autocorrelation by K. H. Hamed and A. R. Rao
    (Journal of Hydrology 204, 1998), simplified to the first lag; the size is the median of all pairwise slopes
    (P. K. Sen, JASA 63, 1968).
    """
    count = len(values)
    if count < MIN_BATCHES:
        return None
    pairs = [(j - i, b - a) for (i, a), (j, b) in combinations(enumerate(values), 2)]
    score = sum((rise > 0) - (rise < 0) for _, rise in pairs)
    slope = median(rise / run for run, rise in pairs)
    variance = count * (count - 1) * (2 * count + 5) / 18
    level = abs(median(values))
    # What is left of a perfectly straight line is rounding, and must not look like a pattern.
    detrended = [round(value - slope * position, _digits(level)) for position, value in enumerate(values)]
    correlation = max(0.0, lag_one(_ranks(detrended)))
    variance *= 1 + 2 * (count - 1) * (count - 2) * (count - 3) / (count * (count - 1) * (count - 2)) * correlation
    z = 0.0 if score == 0 else (score - math.copysign(1, score)) / math.sqrt(variance)
    return Trend(z, slope * (count - 1) / level if level > 0 else 0.0)


def settling(values: Sequence[float]) -> Settling | None:
    """Return the start-up of a series, or None where it has fewer than eight values.

    Where to cut is the minimum of the marginal standard error (K. P. White, Simulation 69, 1997), looked for in the
    first half; whether the part that it cuts differs is Welch's statistic of the two means, with the variance of the
    rest widened for its autocorrelation.
    """
    count = len(values)
    if count < MIN_BATCHES:
        return None
    cut = min(range(count // 2 + 1), key=lambda start: _marginal_error(values[start:]))
    if cut == 0:
        return Settling(0, 0.0, 0.0, 0, apart=False)
    first, rest = values[:cut], values[cut:]
    correlation = max(0.0, min(0.8, lag_one(rest)))
    spread = stdev(rest) * math.sqrt((1 + correlation) / (1 - correlation))
    error = spread * math.sqrt(1 / len(first) + 1 / len(rest))
    difference, level = fmean(first) - fmean(rest), abs(fmean(rest))
    z = difference / error if error > 0 else math.copysign(math.inf, difference)
    share = (fmean(values) - fmean(rest)) / level if level > 0 else 0.0
    apart = min(first) > max(rest) or max(first) < min(rest)
    return Settling(cut, z, share, len(rest) - 1, apart)


def _marginal_error(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values) / len(values) ** 2


def _digits(level: float) -> int:
    """Return the decimals that a number of this size keeps for six significant digits."""
    return 6 - (math.ceil(math.log10(level)) if level > 0 else 0)


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the position of each value in their order; equal values share the middle of theirs."""
    ordered = sorted(values)
    return [(bisect_left(ordered, value) + bisect_right(ordered, value) - 1) / 2 for value in values]
