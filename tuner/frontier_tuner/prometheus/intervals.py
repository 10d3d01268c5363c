"""How sure a number is, at 95 %: distribution-free intervals of quantiles and shares, intervals of rates.

Requests that wait in one queue are not independent, so a count of them says too little about how sure a number is.
Where a window can be cut into batches the spread between the batches is what decides:

1. A share (of the observations at or below a threshold) and a rate are ratios of two sums over the batches; the
   variance of such a ratio follows from its residuals per batch (W. G. Cochran, Sampling Techniques, 2.11).
2. Neighbouring batches are joined until their residuals are uncorrelated by the test of G. S. Fishman (Grouping
   observations in digital simulation, Management Science 24, 1978), down to eight batches; 10 to 30 are enough and more
   gain little (B. Schmeiser, Batch size effects in the analysis of simulation output, Operations Research 30, 1982).
   What correlation is then left widens the interval, as in the method Skart (A. Tafazzoli et al., 2011).
3. The variance of a share is turned into the number of independent observations that would have it, with Student's
   factor for the few batches (E. L. Korn and B. I. Graubard, Survey Methodology 24, 1998), and the exact binomial
   ranks of that many observations give the interval of the share.
4. The interval of a quantile is that of its share, read off the histogram (R. S. Woodruff, JASA 47, 1952), from the
   lower edge of the bucket at its lower end to the upper edge of the bucket at its upper end.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

_Z = 1.959963984540054
_TAIL = 0.025
_EXACT_UP_TO = 1000
MIN_BATCHES = 8
MAX_BATCHES = 32
_UNCORRELATED_Z = 1.2815515655446004
"""Neighbouring batches count as correlated above the 90th percentile of what uncorrelated ones show."""
_MAX_CORRELATION = 0.9


def quantile_ranks(fraction: float, n: float) -> tuple[float, float]:
    """Return two ranks, each a share of n in (0, 1], between whose order statistics the true quantile lies with 95 %.

    With B ~ Binomial(n, fraction) the interval from the l-th to the u-th smallest observation covers the quantile
    with probability P(l <= B <= u - 1); l is the largest and u the smallest rank that leaves at most 2.5 % on its
    side (W. J. Conover, Practical Nonparametric Statistics, 3.2). Above 1,000 observations the normal approximation
    of B is used. Where n is too small for a rank to exist the smallest or largest observation stands in, and the
    interval covers less than 95 %.
    """
    count = max(1, math.floor(n))
    if count > _EXACT_UP_TO:
        spread = _Z * math.sqrt(count * fraction * (1 - fraction))
        low, high = math.floor(count * fraction - spread), math.ceil(count * fraction + spread) + 1
    else:
        low, high = _exact_ranks(fraction, count)
    return max(1, low) / count, min(count, high) / count


def _exact_ranks(fraction: float, count: int) -> tuple[int, int]:
    log_p, log_q, below = math.log(fraction), math.log1p(-fraction), 0.0
    low, high = 0, count + 1
    for successes in range(count + 1):
        below += math.exp(
            math.lgamma(count + 1)
            - math.lgamma(successes + 1)
            - math.lgamma(count - successes + 1)
            + successes * log_p
            + (count - successes) * log_q,
        )
        if below <= _TAIL:
            low = successes + 1
        if below >= 1 - _TAIL:
            high = successes + 1
            break
    return low, high


def share_interval(share: float, n: float) -> tuple[float, float]:
    """Return the interval of a share that n independent observations show (E. B. Wilson, JASA 22, 1927)."""
    n = max(1.0, n)
    middle = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    spread = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    # Rounding must not put the end of the interval on the wrong side of a share of 0 or 1.
    return max(0.0, min(middle - spread, share)), min(1.0, max(middle + spread, share))


def poisson_factors(events: int) -> tuple[float, float]:
    """Return the factors by which a rate over this many events may be too high or too low: low <= 1 <= high.

    Byar's approximation of the exact Poisson interval (N. E. Breslow and N. E. Day, Statistical Methods in Cancer
    Research II, 2.3). Without events the interval is from 0 to 1, since it has no scale.
    """
    if events < 1:
        return 0.0, 1.0
    above = events + 1
    low = events * (1 - 1 / (9 * events) - _Z / (3 * math.sqrt(events))) ** 3
    high = above * (1 - 1 / (9 * above) + _Z / (3 * math.sqrt(above))) ** 3
    return max(0.0, low) / events, high / events


def student(freedom: int) -> float:
    """Return the 97.5th percentile of Student's t, from 5 degrees of freedom on within 0.2 %.

    The expansion around the normal percentile (M. Abramowitz and I. A. Stegun, Handbook of Mathematical Functions,
    26.7.5).
    """
    z, v = _Z, float(freedom)
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def lag_one(values: Sequence[float]) -> float:
    """Return the correlation of neighbouring values; 0 where they do not vary."""
    mean = fmean(values)
    spread = sum((value - mean) ** 2 for value in values)
    if spread <= 0:
        return 0.0
    return sum((a - mean) * (b - mean) for a, b in pairwise(values)) / spread


def ratio_deviation(parts: Sequence[float], totals: Sequence[float]) -> tuple[float, int] | None:
    """Return the standard deviation of `sum(parts) / sum(totals)`, and its degrees of freedom.

    See points 1 and 2 of the module; None where there are fewer than eight batches or the totals add up to nothing.

    Args:
        parts: One number for each batch, in the order of time.
        totals: What each is a part of.
    """
    whole = sum(totals)
    if len(parts) < MIN_BATCHES or whole <= 0:
        return None
    ratio = sum(parts) / whole
    residuals = [part - ratio * total for part, total in zip(parts, totals, strict=True)]
    while len(residuals) >= 2 * MIN_BATCHES and _correlated(residuals):
        residuals = _joined(residuals)
    count = len(residuals)
    variance = count / (count - 1) * sum(residual**2 for residual in residuals) / whole**2
    found = lag_one(residuals)
    # So few residuals show less correlation than there is (F. H. C. Marriott and J. A. Pope, Biometrika 41, 1954).
    correlation = max(0.0, min(_MAX_CORRELATION, found + (1 + 3 * found) / count))
    variance *= (1 + correlation) / (1 - correlation)
    return math.sqrt(variance), count - 1


def _correlated(residuals: Sequence[float]) -> bool:
    count = len(residuals)
    return lag_one(residuals) > _UNCORRELATED_Z * math.sqrt((count - 2) / (count**2 - 1))


def _joined(values: Sequence[float]) -> list[float]:
    """Return the sums of neighbouring pairs; a last one without a neighbour joins the pair before it."""
    pairs = [a + b for a, b in zip(values[::2], values[1::2], strict=False)]
    if len(values) % 2:
        pairs[-1] += values[-1]
    return pairs


def effective_observations(parts: Sequence[float], totals: Sequence[float], share: float) -> float | None:
    """Return how many independent observations would show a share as surely as these batches do.

    See point 3 of the module. Never more than there are: an interval from batches is not allowed to be narrower than
    one from independent observations. None where the batches do not tell.

    Args:
        parts: Observations at or below the threshold, by batch.
        totals: All observations, by batch.
        share: The share of all, which the parts add up to within rounding.
    """
    spread = ratio_deviation(parts, totals)
    if spread is None:
        return None
    deviation, freedom = spread
    n = sum(totals)
    if deviation <= 0 or not 0 < share < 1:
        return n
    return min(n, share * (1 - share) / deviation**2 * (_Z / student(freedom)) ** 2)


def rate_half_width(amounts: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Return half the interval of a rate, in its unit, from the amounts and lengths of batches; None without enough."""
    spread = ratio_deviation(amounts, seconds)
    return None if spread is None else spread[0] * student(spread[1])
