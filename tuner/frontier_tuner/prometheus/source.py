"""Asks Prometheus, or what answers like it, one question at one explicit time.

Nothing here interprets a value or turns a missing one into a number. Thanos, Mimir and VictoriaMetrics are asked to
refuse rather than to answer in part, and an answer that still comes with a warning is an error.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests
import urllib3

from frontier_tuner.durations import format_duration
from frontier_tuner.errors import MeasurementError
from frontier_tuner.prometheus.answers import (
    Answer,
    Empty,
    MalformedAnswerError,
    MetricsSource,
    NotANumber,
    PartialAnswerError,
    RefusedError,
    Sample,
    Series,
    Stale,
    UnreachableError,
    Value,
    read_matrix,
    read_vector,
    single,
)
from frontier_tuner.prometheus.credentials import Credentials, Secret
from frontier_tuner.prometheus.retries import Attempt, RetryBudget, attempts

__all__ = [
    "Answer",
    "Empty",
    "MetricsSource",
    "NotANumber",
    "PrometheusSource",
    "Sample",
    "Series",
    "Stale",
    "Value",
    "single",
]

TENANT_HEADER = "X-Scope-OrgID"
"""Names the tenant to Mimir, Cortex and Loki-style gateways."""
_WHOLE_ANSWERS = {"partial_response": "false", "deny_partial_response": "1"}
"""Thanos and VictoriaMetrics then refuse instead of leaving data out; others ignore both."""
_INFO_PREFIX = "PromQL info:"
"""Servers between 2.48 and 2.53, and Thanos of that time, list mere hints among the warnings."""
_LONGEST_GET = 2000
"""Longer expressions go by POST, because proxies bound the length of a URL."""
_MAX_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 256 * 1024
_RETRYABLE = {408, 425, 429, 500, 502, 503, 504}


class PrometheusSource:
    """A real Prometheus, or anything with its HTTP API.

    Args:
        url: Base URL; a path is kept.
        timeout_seconds: Bound on every attempt, the reading of the answer included.
        deadline_seconds: Bound on a question with all its attempts; None is three times the timeout.
        max_attempts: Attempts of one question.
        bearer_token_file: File that holds a token; read anew for every request because tokens rotate.
        basic_auth: User and password; a path is a file with the password, read anew for every request.
        client_certificate: Files of certificate and key, for mutual TLS.
        ca_file: Certificates to trust instead of the system's.
        verify: False accepts any certificate.
        tenant: Value of the header `X-Scope-OrgID`.
        headers: Further headers of every request.
        clock: Seconds of a monotonic clock.
        sleep: Waits so many seconds.

    Raises:
        ValueError: Both a token and a user are given.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float = 10.0,
        deadline_seconds: float | None = None,
        max_attempts: int = 3,
        bearer_token_file: Path | None = None,
        basic_auth: tuple[str, Secret] | None = None,
        client_certificate: tuple[Path, Path] | None = None,
        ca_file: Path | None = None,
        verify: bool = True,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._timeout = timeout_seconds
        self._deadline = deadline_seconds if deadline_seconds is not None else 3 * timeout_seconds
        self._max_attempts = max_attempts
        self._clock = clock
        self._sleep = sleep
        self._budget = RetryBudget()
        self._auth = Credentials(bearer_token_file, basic_auth)
        self._verify = str(ca_file) if ca_file is not None and verify else verify
        self._certificate = (
            None if client_certificate is None else (str(client_certificate[0]), str(client_certificate[1]))
        )
        self._session = requests.Session()
        self._session.headers.update({**(headers or {}), **({TENANT_HEADER: tenant} if tenant else {})})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def query(self, expression: str, at: datetime) -> Answer:
        """Return the one value of an expression at a time; see `MetricsSource`."""
        return single(expression, self.vector(expression, at))

    def vector(self, expression: str, at: datetime) -> list[Sample]:
        """Return every series of an expression at a time; see `MetricsSource`."""
        return read_vector(expression, self._ask("query", expression, "vector", {"time": _seconds(at)}))

    def matrix(self, expression: str, at: datetime) -> list[Series]:
        """Return the raw samples that a range selector covers at a time; see `MetricsSource`."""
        return read_matrix(expression, self._ask("query", expression, "matrix", {"time": _seconds(at)}))

    def range(self, expression: str, start: datetime, end: datetime, step_seconds: float) -> list[Series]:
        """Return every series of an expression at equal steps; see `MetricsSource`."""
        times = {"start": _seconds(start), "end": _seconds(end), "step": f"{step_seconds:.3f}"}
        return read_matrix(expression, self._ask("query_range", expression, "matrix", times))

    def _ask(self, endpoint: str, expression: str, kind: str, times: Mapping[str, str]) -> object:
        error: MeasurementError | None = None
        for attempt in attempts(
            self._max_attempts, self._deadline, self._timeout, self._budget, self._clock, self._sleep, random.random
        ):
            try:
                result = self._once(endpoint, expression, kind, times, attempt)
            except _RetryableError as failure:
                error = failure.error
                attempt.failed(failure.retry_after_seconds)
                continue
            self._budget.succeeded()
            return result
        if error is None:
            raise UnreachableError(f"Prometheus at {self.url} was not asked: no attempt was allowed")
        raise error

    def _once(self, endpoint: str, expression: str, kind: str, times: Mapping[str, str], attempt: Attempt) -> object:
        parameters = {
            "query": expression,
            **times,
            **_WHOLE_ANSWERS,
            "timeout": format_duration(max(0.001, attempt.timeout_seconds)),
        }
        with self._send(endpoint, parameters, attempt.timeout_seconds) as response:
            status, text = response.status_code, self._read(response, attempt)
            retry_after = response.headers.get("Retry-After", "")
            location = response.headers.get("Location", "")
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise RefusedError(f"Prometheus at {self.url} answers with a redirect to {location}: give its own address")
        body = _decode(text)
        if status == HTTPStatus.OK and body is not None:
            return self._result(expression, kind, body)
        said = str(body.get("error") or "") if body is not None else " ".join(text[:300].split())
        message = f"Prometheus at {self.url} refused {expression}: HTTP {status} {said}".rstrip()
        if status in _RETRYABLE:
            raise _RetryableError(UnreachableError(message), _retry_after(retry_after))
        if status == HTTPStatus.OK:
            raise MalformedAnswerError(f"{self.url} does not answer like Prometheus: {said[:200]!r}")
        raise RefusedError(message)

    @contextmanager
    def _send(self, endpoint: str, parameters: Mapping[str, str], timeout: float) -> Iterator[requests.Response]:
        post = len(parameters["query"]) > _LONGEST_GET
        try:
            with self._session.request(
                "POST" if post else "GET",
                f"{self.url}/api/v1/{endpoint}",
                params=None if post else parameters,
                data=parameters if post else None,
                auth=self._auth,
                verify=self._verify,
                cert=self._certificate,
                timeout=timeout,
                allow_redirects=False,  # a login page is no answer, and credentials go to one address only
                stream=True,
            ) as response:
                yield response
        except requests.exceptions.SSLError as error:
            raise UnreachableError(f"Prometheus at {self.url} cannot be trusted: {error}") from error
        except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
            raise _RetryableError(
                UnreachableError(f"Prometheus at {self.url} cannot be reached: {error}"), None
            ) from error
        except OSError as error:
            raise MeasurementError(f"a credential for Prometheus cannot be read: {error}") from error

    def _read(self, response: requests.Response, attempt: Attempt) -> str:
        """Return the body; a server that sends it drop by drop is late like one that sends nothing."""
        pieces, size = [], 0
        # The library's own iterator waits until a whole chunk is there, however long each byte takes.
        while piece := response.raw.read1(_CHUNK_BYTES, decode_content=True):
            pieces.append(piece)
            size += len(piece)
            if size > _MAX_BYTES:
                raise RefusedError(f"the answer of Prometheus at {self.url} is longer than {_MAX_BYTES} bytes")
            if self._clock() > attempt.ends_at:
                raise requests.Timeout(f"the answer was not complete within {attempt.timeout_seconds:g} s")
        return b"".join(pieces).decode(errors="replace")

    def _result(self, expression: str, kind: str, body: Mapping[str, Any]) -> object:
        warnings = [str(text) for text in body.get("warnings") or () if not str(text).startswith(_INFO_PREFIX)]
        if warnings or body.get("isPartial"):
            raise PartialAnswerError(
                f"Prometheus at {self.url} does not fully answer {expression}: "
                + ("; ".join(warnings) or "data of some storage nodes is missing")
            )
        data = body.get("data")
        if body.get("status") != "success" or not isinstance(data, Mapping):
            raise MalformedAnswerError(f"{self.url} does not answer like Prometheus: {str(dict(body))[:200]!r}")
        if data.get("resultType") != kind:
            raise MalformedAnswerError(
                f"Prometheus at {self.url} answered {expression} with a {data.get('resultType')}, not a {kind}"
            )
        return data.get("result")


class _RetryableError(Exception):
    def __init__(self, error: MeasurementError, retry_after_seconds: float | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after_seconds = retry_after_seconds


def _decode(text: str) -> Mapping[str, Any] | None:
    try:
        body = json.loads(text)
    except ValueError:
        return None
    return body if isinstance(body, Mapping) else None


def _retry_after(text: str) -> float | None:
    return float(text) if text.isdecimal() else None


def _seconds(moment: datetime) -> str:
    return f"{moment.timestamp():.3f}"
