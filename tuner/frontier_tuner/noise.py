"""How far two measurements must be apart to differ: intervals of ratios, and the noise between engine starts.

The interval of an estimate says how sure one window is. Two starts of the same configuration differ by more than that:
memory, kernels and neighbours fall differently each time. `Noise` carries this second part.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from frontier_tuner.axes import PLANE
from frontier_tuner.measurement import Estimate
from frontier_tuner.trial import TrialRecord

Z95 = 1.959963984540054
"""Half the width of a normal distribution's 95 % interval, in standard deviations."""
TINY = 1e-12
"""Stands for zero where a logarithm is taken."""
ASSUMED_PAIRS = 4.0
"""So many repeated starts are worth as much as the assumption that `estimate_noise` begins with."""


@dataclass(frozen=True)
class Noise:
    """What intervals of windows do not hold.

    Attributes:
        start: Standard deviation of the logarithm of a metric between two starts of one configuration.
    """

    start: float = 0.03


ASSUMED = Noise()
"""What is taken where nothing was repeated: 3 % between starts."""


@dataclass(frozen=True)
class Ratio:
    """How many times one value is another, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        """Whether the first value is larger beyond noise."""
        return self.low > 1

    @property
    def below(self) -> bool:
        """Whether the first value is smaller beyond noise."""
        return self.high < 1

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True)
class Spread:
    """A value and its interval as a logarithm.

    Attributes:
        log: Natural logarithm of the value.
        down: From the interval's lower end to the value; infinite where the lower end is not above 0.
        up: From the value to the interval's upper end.
    """

    log: float
    down: float
    up: float


def spread(estimate: Estimate) -> Spread:
    """Return an estimate's value and interval as a logarithm; a value of 0 counts as 1e-12."""
    value = max(estimate.value, TINY)
    # Nothing measured is nothing for sure: only its upper end says how much it may have been.
    down = 0.0 if value == TINY else (math.log(value / estimate.low) if estimate.low > 0 else math.inf)
    return Spread(math.log(value), max(0.0, down), max(0.0, math.log(max(estimate.high, TINY) / value)))


def ratio(one: Estimate, other: Estimate, noise: Noise, *, same_start: bool = False) -> Ratio:
    """Return how many times `one` is `other`.

    The interval is recovered from those of the two estimates (G. Y. Zou and A. Donner, Construction of confidence
    limits about effect measures, Statistics in Medicine 27, 2008), on logarithms, since noise is a share of the value.

    Args:
        one: The first value.
        other: The value it is compared with.
        noise: Between starts.
        same_start: Whether both are of one engine start, which share its luck.
    """
    first, second = spread(one), spread(other)
    between = 0.0 if same_start else 2 * (Z95 * noise.start) ** 2
    log = first.log - second.log
    return Ratio(
        math.exp(log),
        math.exp(log - math.sqrt(first.down**2 + second.up**2 + between)),
        math.exp(log + math.sqrt(first.up**2 + second.down**2 + between)),
    )


def combined(terms: Sequence[tuple[float, Estimate]], noise: Noise) -> Ratio:
    """Return the product of estimates, each to the power of its weight, as a ratio with its interval.

    Every estimate must be of another engine start. The rule of `ratio`, for any number of terms.
    """
    log, below, above = 0.0, 0.0, 0.0
    for weight, estimate in terms:
        each = spread(estimate)
        between = (Z95 * noise.start) ** 2
        down, up = (each.down, each.up) if weight > 0 else (each.up, each.down)
        log += weight * each.log
        below += weight**2 * (down**2 + between)
        above += weight**2 * (up**2 + between)
    return Ratio(math.exp(log), math.exp(log - math.sqrt(below)), math.exp(log + math.sqrt(above)))


def pooled(estimates: Sequence[Estimate], noise: Noise) -> Estimate:
    """Return one estimate from those of several starts: the geometric mean, and an interval that holds their noise.

    Args:
        estimates: At least one, each of another engine start.
        noise: Between starts.
    """
    spreads = [spread(estimate) for estimate in estimates]
    count = len(spreads)
    between = (Z95 * noise.start) ** 2 / count
    log = sum(each.log for each in spreads) / count
    down = math.sqrt(sum(each.down**2 for each in spreads) / count**2 + between)
    up = math.sqrt(sum(each.up**2 for each in spreads) / count**2 + between)
    value = math.exp(log) if count > 1 else estimates[0].value
    seen = sum(estimate.n for estimate in estimates)
    return Estimate(value, value * math.exp(-down), value * math.exp(up), seen, estimates[-1].query)


def estimate_noise(journal: Iterable[TrialRecord], assumed: Noise = ASSUMED) -> Noise:
    """Return the noise between starts that repeated configurations show.

    What their windows' own intervals explain is taken off. The assumption counts as much as four repeats, so a few
    repeats move it a little.

    Args:
        journal: Finished trials; rungs of the same configuration and load are compared.
        assumed: What to expect without repeats.
    """
    usable = [record for record in journal if record.outcome != "Failed" and record.measurements]
    by_configuration = sorted(usable, key=lambda record: (record.configuration.hash, record.number))
    total, repeats = ASSUMED_PAIRS * assumed.start**2, ASSUMED_PAIRS
    for _, group in groupby(by_configuration, key=lambda record: record.configuration.hash):
        variance, degrees = _between(list(group))
        total += degrees * variance
        repeats += degrees
    return Noise(math.sqrt(max(0.0, total / repeats)))


def _between(records: Sequence[TrialRecord]) -> tuple[float, int]:
    """Return the variance between starts beyond that within windows, and its degrees of freedom."""
    found: dict[tuple[object, str], list[Spread]] = {}
    for record in records:
        for measurement in record.measurements:
            if not measurement.validity.valid:
                continue
            for axis in PLANE:
                estimate = measurement.metrics.get(axis.key)
                if estimate is not None and estimate.value > 0 and estimate.low > 0:
                    found.setdefault((measurement.load, axis.key), []).append(spread(estimate))
    repeated = [spreads for spreads in found.values() if len(spreads) > 1]
    if not repeated:
        return 0.0, 0
    variances = []
    for spreads in repeated:
        mean = sum(each.log for each in spreads) / len(spreads)
        within = sum(((each.down + each.up) / (2 * Z95)) ** 2 for each in spreads) / len(spreads)
        variances.append(sum((each.log - mean) ** 2 for each in spreads) / (len(spreads) - 1) - within)
    # The rungs of one start share its luck, so they count as one observation of it and not as many.
    return sum(variances) / len(variances), max(len(spreads) for spreads in repeated) - 1
