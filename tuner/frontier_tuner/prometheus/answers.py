"""What Prometheus can answer, as types: a number that is not known is never a number.

One value is a `Value`; everything else that a question may meet has a type of its own, so that no caller can take
missing data for 0. What makes the question itself fail is an exception below `MeasurementError`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from frontier_tuner.errors import MeasurementError


class UnreachableError(MeasurementError):
    """Prometheus did not answer in time or at all; the message names the address and the error."""


class RefusedError(MeasurementError):
    """Prometheus, or what stands before it, refused the question: wrong PromQL, no permission, too expensive."""


class PartialAnswerError(MeasurementError):
    """A part of the data is missing from the answer, or it came with a warning: no number of it may be used."""


class MalformedAnswerError(MeasurementError):
    """The answer is not what was asked for: not JSON, another type of result, several series for one."""


@dataclass(frozen=True)
class Value:
    """A finite number."""

    value: float


@dataclass(frozen=True)
class Empty:
    """No series answers the query: nothing was scraped, or the selector is wrong."""


@dataclass(frozen=True)
class NotANumber:
    """NaN or infinite: series exist, but the value cannot be known from them."""


@dataclass(frozen=True)
class Stale:
    """There was a value, but it is too old to stand for now.

    Attributes:
        seconds: Age of the newest sample.
    """

    seconds: float


@dataclass(frozen=True)
class Impossible:
    """A number that the metric cannot have; it is refused, and never clipped.

    Attributes:
        value: The number.
        series: The series that shows it, as Prometheus writes it.
    """

    value: float
    series: str


Answer = Value | Empty | NotANumber
"""What an expression gives at a time."""
Reading = Value | Empty | NotANumber | Stale | Impossible
"""What the newest sample of a gauge says."""


@dataclass(frozen=True)
class NativeHistogram:
    """A native histogram, classic buckets that the server has converted to one included.

    Attributes:
        count: Observations.
        sum: Sum of the observations.
        buckets: Lower edge, upper edge and observations of each bucket that has any, ascending.
    """

    count: float
    sum: float
    buckets: tuple[tuple[float, float, float], ...]


@dataclass(frozen=True)
class Sample:
    """One series of an instant vector; the value may be NaN or infinite, and is NaN beside a native histogram."""

    labels: Mapping[str, str]
    value: float
    histogram: NativeHistogram | None = None


@dataclass(frozen=True)
class Series:
    """One series over time.

    Attributes:
        labels: Its labels.
        times: Times of its samples in seconds since the epoch, ascending.
        values: Its samples; may be NaN or infinite.
    """

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


class MetricsSource(Protocol):
    """What measuring needs of Prometheus. Every time is explicit; nothing is asked for "now"."""

    def query(self, expression: str, at: datetime) -> Answer:
        """Return the one value of an expression at a time.

        Raises:
            MeasurementError: Prometheus cannot be asked, refuses, answers in part, or with several series.
        """
        ...

    def vector(self, expression: str, at: datetime) -> list[Sample]:
        """Return every series of an expression at a time.

        Raises:
            MeasurementError: Prometheus cannot be asked, refuses, answers in part, or with something else than an
                instant vector.
        """
        ...

    def matrix(self, expression: str, at: datetime) -> list[Series]:
        """Return the raw samples that a range selector such as `up[5m]` covers at a time.

        Raises:
            MeasurementError: As for `vector`.
        """
        ...

    def range(self, expression: str, start: datetime, end: datetime, step_seconds: float) -> list[Series]:
        """Return every series of an expression, evaluated from `start` to `end` every `step_seconds`.

        Raises:
            MeasurementError: As for `vector`.
        """
        ...


def single(expression: str, samples: Sequence[Sample]) -> Answer:
    """Return the answer that at most one series gives.

    Raises:
        MalformedAnswerError: There are several series, of which none may be picked, or it is a histogram.
    """
    if not samples:
        return Empty()
    if len(samples) > 1:
        raise MalformedAnswerError(f"{len(samples)} series answer {expression}, which must give one")
    if samples[0].histogram is not None:
        raise MalformedAnswerError(f"{expression} gives a histogram, and must give a number")
    value = samples[0].value
    return Value(value) if math.isfinite(value) else NotANumber()


def read_vector(expression: str, result: object) -> list[Sample]:
    """Return the samples of a decoded `vector` result.

    Raises:
        MalformedAnswerError: It is something else.
    """
    try:
        return [_sample(item) for item in _items(result)]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MalformedAnswerError(f"{expression} does not give an instant vector: {error!r}") from error


def read_matrix(expression: str, result: object) -> list[Series]:
    """Return the series of a decoded `matrix` result.

    Raises:
        MalformedAnswerError: It is something else, or holds native histograms.
    """
    try:
        return [_series(item) for item in _items(result)]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise MalformedAnswerError(f"{expression} does not give series of numbers over time: {error!r}") from error


def _items(result: object) -> Sequence[Mapping[str, object]]:
    if not isinstance(result, list) or not all(isinstance(item, Mapping) for item in result):
        raise TypeError(f"{str(result)[:100]} is no list of series")
    return result


def _sample(item: Mapping[str, object]) -> Sample:
    labels = _labels(item)
    if "histogram" in item:
        return Sample(labels, math.nan, _histogram(item["histogram"]))
    pair = item["value"]
    if not isinstance(pair, list):
        raise TypeError(f"the value is {pair!r}")
    return Sample(labels, float(pair[1]))


def _series(item: Mapping[str, object]) -> Series:
    pairs = item["values"]
    if not isinstance(pairs, list):
        raise TypeError(f"the values are {pairs!r}")
    return Series(_labels(item), tuple(float(time) for time, _ in pairs), tuple(float(value) for _, value in pairs))


def _labels(item: Mapping[str, object]) -> dict[str, str]:
    labels = item.get("metric") or {}
    if not isinstance(labels, Mapping):
        raise TypeError(f"the labels are {labels!r}")
    return {str(name): str(value) for name, value in labels.items()}


def _histogram(pair: object) -> NativeHistogram:
    if not isinstance(pair, list) or not isinstance(pair[1], Mapping):
        raise TypeError(f"the histogram is {pair!r}")
    body = pair[1]
    buckets = ((float(left), float(right), float(count)) for _, left, right, count in body.get("buckets") or [])
    return NativeHistogram(float(body["count"]), float(body["sum"]), tuple(buckets))
