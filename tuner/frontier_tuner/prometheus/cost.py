"""Money: what a million tokens cost, from price, GPUs and time."""

from dataclasses import dataclass

from frontier_tuner.measurement import COST, INPUT_COST, TOTAL_COST, Estimate
from frontier_tuner.prometheus.estimates import answered
from frontier_tuner.prometheus.histograms import Unknown
from frontier_tuner.prometheus.reader import Reader

_MILLION = 1e6
_SECONDS_PER_HOUR = 3600


@dataclass(frozen=True)
class Prices:
    """What the user pays.

    Attributes:
        per_gpu_hour: Money for one GPU and one hour.
        gpus: GPUs that are held.
        cached_input_percent: What an input token that is found in the prefix cache counts, in percent of one that is
            not: 100 where the price list makes no difference, 0 where cached tokens are free.
    """

    per_gpu_hour: float
    gpus: int
    cached_input_percent: float = 100.0

    @property
    def per_second(self) -> float:
        """Money for all GPUs and one second."""
        return self.per_gpu_hour * self.gpus / _SECONDS_PER_HOUR


def costs(
    reader: Reader,
    prices: Prices,
    output: Estimate | Unknown,
    inputs: Estimate | Unknown,
    cached: Estimate | Unknown,
) -> dict[str, Estimate | Unknown]:
    """Return the money that a million output tokens, input tokens, and tokens of either kind cost, by key.

    Each is all of the money divided by that kind of tokens, so the three are not parts of one sum.

    Args:
        reader: Asks for the values.
        prices: What the user pays.
        output: Output tokens per second.
        inputs: Input tokens per second, those from the prefix cache included.
        cached: Of these, the ones from the prefix cache; not needed where they count like all others.
    """
    counted = _counted(inputs, cached, prices.cached_input_percent / 100)
    return {
        COST: _cost(reader, COST, prices, output),
        INPUT_COST: _cost(reader, INPUT_COST, prices, counted),
        TOTAL_COST: _cost(reader, TOTAL_COST, prices, _sum(output, counted)),
    }


def _counted(inputs: Estimate | Unknown, cached: Estimate | Unknown, weight: float) -> Estimate | Unknown:
    """Return the input tokens per second as the price list counts them."""
    if weight == 1 or isinstance(inputs, Unknown):
        return inputs
    if isinstance(cached, Unknown):
        return cached
    value = inputs.value - (1 - weight) * cached.value
    if value <= 0 or inputs.value <= 0:
        return Unknown("no input token has a price", "NoTraffic")
    # Cached and uncached tokens come with the same requests, so the whole is as uncertain as all input tokens are.
    low, high = (value * end / inputs.value for end in (inputs.low, inputs.high))
    return Estimate(value, low, high, inputs.n, f"({inputs.query} - {1 - weight:.9g} * {cached.query})")


def _sum(first: Estimate | Unknown, second: Estimate | Unknown) -> Estimate | Unknown:
    if isinstance(first, Unknown):
        return first
    if isinstance(second, Unknown):
        return second
    query = f"({first.query} + {second.query})"
    return Estimate(first.value + second.value, first.low + second.low, first.high + second.high, first.n, query)


def _cost(reader: Reader, name: str, prices: Prices, rate: Estimate | Unknown) -> Estimate | Unknown:
    if isinstance(rate, Unknown):
        return rate
    if rate.value <= 0 or rate.low <= 0:
        return Unknown(f"{name} has no value without tokens", "NoTraffic")
    money = prices.per_second * _MILLION
    asked = reader.ask(f"{money!r} / {rate.query}")
    value = answered(asked.answer)
    if isinstance(value, Unknown):
        return value
    return Estimate(value, money / rate.high, money / rate.low, rate.n, asked.query)
