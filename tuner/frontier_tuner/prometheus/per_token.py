"""Time per token from a histogram of engine steps; pure functions.

An engine's gaps are those between the steps of a request. With speculation a step brings several tokens, which share
its gap, as a client counts them that gets them in one chunk. Let s_k be the share of the steps that bring k tokens and
G the distribution of the gaps. A token comes from a step of k tokens with the weight w_k = k s_k / sum(j s_j), and the
share of the tokens whose time is at most t is

    F(t) = sum(w_k G(k t))

Assumed is that how many drafted tokens hold does not depend on how long the step takes. Dividing a quantile of G by the
mean number of tokens would promise more: the slowest tokens are those of steps that bring one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from frontier_tuner.measurement import Estimate
from frontier_tuner.objectives import SLO
from frontier_tuner.prometheus.estimates import answered, independent_of
from frontier_tuner.prometheus.histograms import Buckets, Unknown
from frontier_tuner.prometheus.intervals import quantile_ranks, share_interval
from frontier_tuner.prometheus.reader import Asked, HistogramReading


@dataclass(frozen=True)
class TokensPerStep:
    """How many tokens steps bring.

    Attributes:
        weights: The share of the tokens that come from steps of 1, 2, … tokens; their sum is 1.
    """

    weights: tuple[float, ...]

    @property
    def parts(self) -> tuple[tuple[int, float], ...]:
        """Tokens of a step with their weight, without those that no step brings."""
        return tuple((count, weight) for count, weight in enumerate(self.weights, start=1) if weight > 0)

    @property
    def single(self) -> bool:
        """Whether every step brings one token."""
        return len(self.parts) == 1 and self.parts[0][0] == 1


def tokens_per_step(steps: float, accepted: Sequence[float]) -> TokensPerStep:
    """Return how many tokens steps bring.

    A step brings its own token, and one more for every drafted token that holds. That of the k-th position holds only
    where those before it do.

    Args:
        steps: Gaps that were observed, above 0; a rate does as well.
        accepted: Drafted tokens that held, by position, in the same unit.
    """
    at_least = [1.0]
    for count in accepted:
        at_least.append(min(at_least[-1], max(0.0, count / steps)))
    shares = [now - after for now, after in pairwise([*at_least, 0.0])]
    mean = sum(at_least)
    return TokensPerStep(tuple(number * share / mean for number, share in enumerate(shares, start=1)))


@dataclass(frozen=True)
class TokenQuantile:
    """Where a quantile of the tokens lies among the steps.

    Attributes:
        fraction: Which quantile of the steps' gaps.
        tokens: By how many tokens it is to be divided.
    """

    fraction: float
    tokens: int


def locate(buckets: Buckets, tokens: TokensPerStep, fraction: float) -> TokenQuantile | Unknown:
    """Return the quantile of the steps that, shared among their tokens, is this quantile of the tokens.

    Of the steps that reach it, those that bring most of the tokens around it are taken.

    Args:
        buckets: Gaps of steps.
        tokens: How many tokens they bring.
        fraction: Which quantile of the tokens, above 0 and below 1.
    """
    grid = [max(0.0, buckets.floor), *_grid(buckets, tokens)]
    for left, right in pairwise(grid):
        below, above = (_share(buckets, tokens, time) for time in (left, right))
        if above < fraction or above <= below:
            continue
        time = left + (right - left) * max(0.0, fraction - below) / (above - below)
        count, _ = max(
            tokens.parts,
            key=lambda part: part[1] * (buckets.at_most(part[0] * right) - buckets.at_most(part[0] * left)),
        )
        return TokenQuantile(buckets.at_most(count * time) / buckets.total, count)
    return Unknown(f"at least {buckets.edges[-2]:g}, off the histogram's scale", "OffScale")


def estimate_token_quantile(
    reading: HistogramReading,
    tokens: TokensPerStep,
    fraction: float,
    place: TokenQuantile,
    asked: Asked,
    otherwise: float,
) -> Estimate | Unknown:
    """Return a quantile of the time per token; its interval reaches to where the steps' edges leave it.

    Args:
        reading: Gaps of steps.
        tokens: How many tokens they bring.
        fraction: Which quantile of the tokens.
        place: Where it lies among the steps.
        asked: What Prometheus answered there.
        otherwise: Independent steps where the window's course does not tell.
    """
    buckets, value = reading.buckets, answered(asked.answer)
    if isinstance(buckets, Unknown):
        return buckets
    if isinstance(value, Unknown):
        return value
    independent = independent_of(reading, value * place.tokens, place.fraction, otherwise)
    ranks = quantile_ranks(fraction, independent)
    low, high = _reach(buckets, tokens, ranks)
    return Estimate(value, min(low, value), max(high, value), round(reading.n), asked.query)


def estimate_token_share(reading: HistogramReading, slo: SLO, asked: Asked, otherwise: float) -> Estimate | Unknown:
    """Return the share of the tokens that keep an SLO's bound, where every multiple of it is an edge of the histogram.

    Args:
        reading: Gaps of steps.
        slo: Whose bound.
        asked: What Prometheus answered to the weighted sum of the shares.
        otherwise: Independent steps where the window's course does not tell.
    """
    share = answered(asked.answer)
    if isinstance(share, Unknown):
        return share
    effective = independent_of(reading, slo.bound, share, otherwise)
    low, high = share_interval(share, effective)
    return Estimate(share, low, high, round(reading.n), asked.query)


def _grid(buckets: Buckets, tokens: TokensPerStep) -> list[float]:
    return sorted({edge / count for edge in buckets.edges[:-1] for count, _ in tokens.parts})


def _share(buckets: Buckets, tokens: TokensPerStep, time: float) -> float:
    return sum(weight * buckets.at_most(count * time) for count, weight in tokens.parts) / buckets.total


def _reach(buckets: Buckets, tokens: TokensPerStep, ranks: tuple[float, float]) -> tuple[float, float]:
    """Return the least and the greatest time that these two shares of the tokens can have, whatever buckets hide."""
    grid = _grid(buckets, tokens)

    def bracket(time: float, side: int) -> float:
        parts = ((weight, buckets.bracket(count * time)[side]) for count, weight in tokens.parts)
        return sum(weight * held for weight, held in parts) / buckets.total

    spans = list(pairwise([max(0.0, buckets.floor), *grid]))
    low = next((left for left, right in spans if bracket(right, 1) >= ranks[0] * (1 - 1e-9)), grid[-1])
    high = next((time for time in grid if bracket(time, 0) >= ranks[1] * (1 - 1e-9)), grid[-1])
    return low, high
