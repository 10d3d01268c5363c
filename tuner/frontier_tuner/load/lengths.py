"""How long prompts and answers are: fixed, lognormal, or as a histogram says."""

import math
import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol

_Z95 = 1.6448536269514722
"""95th percentile of the standard normal distribution."""
MAX_P95_OF_MEAN = math.exp(_Z95**2 / 2)
"""No lognormal distribution has a 95th percentile that is more than this multiple of its mean, 3.87."""
_TAIL = 2.0
"""Fitted lengths are clipped at this multiple of their p95: a tail without end would exceed any model's context."""


class Lengths(Protocol):
    """A distribution of token counts, each at least 1."""

    @property
    def mean(self) -> float:
        """Mean number of tokens."""
        ...

    def draw(self, generator: random.Random) -> int:
        """Return one length."""
        ...


@dataclass(frozen=True)
class Fitted:
    """Fixed at `mean` where `p95` equals it, else lognormal with this mean and 95th percentile."""

    mean: float
    p95: float

    def __post_init__(self) -> None:
        if not 1 <= self.mean < math.inf:
            raise ValueError(f"mean {self.mean:g} must be at least 1 token")
        if not self.p95 >= self.mean:
            raise ValueError(f"p95 {self.p95:g} is below the mean {self.mean:g}; give a p95 at or above it")
        if self.p95 > self.mean * MAX_P95_OF_MEAN:
            raise ValueError(
                f"p95 {self.p95:g} is more than {MAX_P95_OF_MEAN:.2f} times the mean {self.mean:g}, "
                "which no lognormal distribution has; raise the mean, or give a histogram or a trace",
            )

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm; 0 where the length is fixed."""
        return _Z95 - math.sqrt(max(0.0, _Z95**2 - 2 * math.log(self.p95 / self.mean)))

    def draw(self, generator: random.Random) -> int:
        """Return one length."""
        sigma = self.sigma
        if sigma == 0:
            return max(1, round(self.mean))
        length = generator.lognormvariate(math.log(self.mean) - sigma**2 / 2, sigma)
        return max(1, min(round(length), round(self.p95 * _TAIL)))


class Empirical:
    """Lengths as counted: a bucket in proportion to its weight, and evenly within it, as PromQL reads buckets.

    Args:
        buckets: Pairs of the largest length in a bucket and the bucket's weight; a bucket begins above the one before
            it, the first at 1.

    Raises:
        ValueError: The edges do not rise from at least 1, a weight is below 0, or all are 0.
    """

    def __init__(self, buckets: Sequence[tuple[int, float]]) -> None:
        edges = [edge for edge, _ in buckets]
        if not edges or any(low >= high for low, high in zip([0, *edges], edges, strict=False)):
            raise ValueError(f"upTo must rise from bucket to bucket and be at least 1, not {edges}")
        weights = [weight for _, weight in buckets]
        if not all(0 <= weight < math.inf for weight in weights) or sum(weights) <= 0:
            raise ValueError(f"weights must be at least 0 and not all 0, not {weights}")
        self._edges = [0, *edges]
        self._cumulative = list(accumulate(weights))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Empirical) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((*self._edges, *self._cumulative))

    @property
    def mean(self) -> float:
        """Mean number of tokens."""
        total, before = 0.0, 0.0
        for index, until in enumerate(self._cumulative):
            total += (until - before) * (self._edges[index] + 1 + self._edges[index + 1]) / 2
            before = until
        return total / self._cumulative[-1]

    def quantile(self, fraction: float) -> float:
        """Return the length below which this share of all lies."""
        wanted = fraction * self._cumulative[-1]
        index = bisect_left(self._cumulative, wanted)
        before = self._cumulative[index - 1] if index else 0.0
        inside = (wanted - before) / (self._cumulative[index] - before) if self._cumulative[index] > before else 1.0
        return self._edges[index] + inside * (self._edges[index + 1] - self._edges[index])

    def draw(self, generator: random.Random) -> int:
        """Return one length."""
        index = bisect_left(self._cumulative, (1 - generator.random()) * self._cumulative[-1])
        return generator.randint(self._edges[index] + 1, self._edges[index + 1])


def parse_lengths(body: object, name: str) -> Lengths:
    """Return the lengths of an object with `mean` and perhaps `p95`, or with `histogram`.

    Args:
        body: The object; a histogram is a list of `{"upTo": tokens, "weight": number}`.
        name: Where it stands, for messages.

    Raises:
        ValueError: The object has neither, or values that cannot be; the message names the field.
    """
    if not isinstance(body, Mapping):
        raise ValueError(f"{name}.mean: required")  # noqa: TRY004 - callers catch ValueErrors only
    if body.get("histogram") is not None:
        return _parse_histogram(body["histogram"], f"{name}.histogram")
    if body.get("mean") is None:
        raise ValueError(f"{name}.mean: required")
    try:
        mean = float(body["mean"])
        return Fitted(mean, float(body.get("p95") or mean))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


def _parse_histogram(body: Any, name: str) -> Empirical:
    try:
        return Empirical([(int(bucket["upTo"]), float(bucket["weight"])) for bucket in body])
    except (TypeError, KeyError, ValueError) as error:
        words = f"needs {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f'{name}: {words}; write a list like [{{"upTo": 512, "weight": 3}}]') from error
