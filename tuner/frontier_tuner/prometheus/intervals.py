"""How sure a number is: distribution-free intervals of quantiles and intervals of rates, both at 95 %."""

import math

_Z = 1.959963984540054
_TAIL = 0.025
_EXACT_UP_TO = 1000


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
