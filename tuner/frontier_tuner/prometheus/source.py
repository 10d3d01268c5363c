"""Asks Prometheus one question at one explicit time and says which of three kinds of answer came back.

Nothing here interprets a value, waits, or turns a missing one into a number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import requests
from prometheus_api_client import PrometheusConnect
from prometheus_api_client.exceptions import PrometheusApiClientException
from urllib3.util import Retry

from frontier_tuner.errors import MeasurementError


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


Answer = Value | Empty | NotANumber


@dataclass(frozen=True)
class Sample:
    """One series of an instant vector; the value may be NaN or infinite."""

    labels: Mapping[str, str]
    value: float


class MetricsSource(Protocol):
    """What measuring needs of Prometheus."""

    def query(self, expression: str, at: datetime) -> Answer:
        """Return the one value of an expression at a time.

        Raises:
            MeasurementError: Prometheus cannot be asked, refuses, or answers with several series.
        """
        ...

    def vector(self, expression: str, at: datetime) -> list[Sample]:
        """Return every series of an expression at a time.

        Raises:
            MeasurementError: Prometheus cannot be asked, refuses, or answers with something else than an instant
                vector.
        """
        ...


class PrometheusSource:
    """A real Prometheus, or anything with its HTTP API.

    Args:
        url: Base URL; a path is kept.
        timeout_seconds: Bound on every request.
        bearer_token_file: File that holds a token; read anew for every request because tokens rotate.
        basic_auth: User and password.
        ca_file: Certificates to trust instead of the system's.
        verify: False accepts any certificate.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 10.0,
        bearer_token_file: Path | None = None,
        basic_auth: tuple[str, str] | None = None,
        ca_file: Path | None = None,
        verify: bool = True,
    ) -> None:
        self.url = url.rstrip("/")
        self._token_file = bearer_token_file
        session = requests.Session()
        session.verify = str(ca_file) if ca_file is not None and verify else verify
        self._connect = PrometheusConnect(
            url=self.url,
            auth=basic_auth,
            session=session,
            timeout=timeout_seconds,
            retry=Retry(total=2, backoff_factor=0.2, status_forcelist=[408, 429, 502, 503, 504], raise_on_status=False),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connect.close()

    def query(self, expression: str, at: datetime) -> Answer:
        """Return the one value of an expression at a time; see `MetricsSource`."""
        return single(expression, self.vector(expression, at))

    def vector(self, expression: str, at: datetime) -> list[Sample]:
        """Return every series of an expression at a time; see `MetricsSource`."""
        return [_sample(expression, item) for item in self._ask(expression, at)]

    def _ask(self, expression: str, at: datetime) -> list[Any]:
        try:
            if self._token_file is not None:
                self._connect.headers = {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
            result = self._connect.custom_query(expression, params={"time": f"{at.timestamp():.3f}"})
        except requests.RequestException as error:
            raise MeasurementError(f"Prometheus at {self.url} cannot be reached: {error}") from error
        except PrometheusApiClientException as error:
            raise MeasurementError(f"Prometheus at {self.url} refused {expression}: {error}") from error
        except (KeyError, TypeError, ValueError) as error:
            raise MeasurementError(f"{self.url} does not answer like Prometheus: {error!r}") from error
        except OSError as error:
            raise MeasurementError(f"the token for Prometheus cannot be read: {error}") from error
        if not isinstance(result, list):
            raise MeasurementError(f"Prometheus at {self.url} answered {expression} with {type(result).__name__}")
        return result


def single(expression: str, samples: list[Sample]) -> Answer:
    """Return the answer that at most one series gives.

    Raises:
        MeasurementError: There are several series, of which none may be picked.
    """
    if not samples:
        return Empty()
    if len(samples) > 1:
        raise MeasurementError(f"{len(samples)} series answer {expression}, which must give one")
    value = samples[0].value
    return Value(value) if math.isfinite(value) else NotANumber()


def _sample(expression: str, item: object) -> Sample:
    if not isinstance(item, Mapping) or "value" not in item:
        raise MeasurementError(f"{expression} does not give an instant vector")
    return Sample(labels=dict(item.get("metric") or {}), value=float(item["value"][1]))
