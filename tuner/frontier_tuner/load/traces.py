"""Recorded workloads: when requests came, how long they were, and what their prompts had in common.

* `AzureLLMInference`: the CSV of 2023 or 2024 with `TIMESTAMP` (date and time), `ContextTokens`, `GeneratedTokens`.
* `BurstGPT`: the CSV of either release with `Timestamp` (seconds), `Request tokens`, `Response tokens`. Those without
  response tokens have failed and are left out.
* `Mooncake`: one JSON object per line with `timestamp` (milliseconds), `input_length`, `output_length`, and perhaps
  `hash_ids`, one for each block of the prompt.

Requests are sorted by their time; only the first `MAX_REQUESTS` are read.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeVar

MAX_REQUESTS = 200_000
"""Enough for hours of load, and read within a second or two."""
MOONCAKE_BLOCK_TOKENS = 512

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request of a trace.

    Attributes:
        at_seconds: When it came, after the first one.
        input_tokens: Length of its prompt.
        output_tokens: Length of its answer.
        blocks: Names of the prompt's blocks in order; equal names are equal tokens. Empty where nothing is known.
        shared_tokens: Prompt tokens that requests before it have in common with it.
    """

    at_seconds: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    shared_tokens: int = 0


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their time; the first is at 0.

    Attributes:
        requests: At least one.
        block_tokens: Tokens of a block.
    """

    requests: tuple[Recorded, ...]
    block_tokens: int = MOONCAKE_BLOCK_TOKENS

    @property
    def period_seconds(self) -> float:
        """How long one pass takes as recorded, up to the first request of the next; 0 where all came at once."""
        length, gaps = self.requests[-1].at_seconds, len(self.requests) - 1
        return length * (gaps + 1) / gaps if gaps else 0.0

    def moment(self, number: int) -> float:
        """Return when the n-th request came, in seconds after the first; after the last one the trace begins anew."""
        passes, index = divmod(number, len(self.requests))
        return passes * self.period_seconds + self.requests[index].at_seconds


@dataclass(frozen=True)
class _Format:
    rows: Callable[[TextIO], Iterator[tuple[int, Mapping[str, Any]]]]
    time: str
    seconds: Callable[[Any], float]
    inputs: str
    outputs: str
    blocks: str = ""
    skip_unanswered: bool = False


def _csv_rows(file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(file, skipinitialspace=True)
    for row in reader:
        yield reader.line_num, row


def _json_rows(file: TextIO) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.rstrip())
        except json.JSONDecodeError as error:
            raise ValueError(f"line {number}, column {error.colno}: is no JSON: {error.msg}") from error
        if not isinstance(row, dict):
            raise ValueError(f"line {number}: must be a JSON object")  # noqa: TRY004 - callers catch ValueErrors only
        yield number, row


def _date(value: Any) -> float:
    moment = datetime.fromisoformat(str(value).strip())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _milliseconds(value: Any) -> float:
    return float(value) / 1000


FORMATS: Mapping[str, _Format] = {
    "AzureLLMInference": _Format(_csv_rows, "TIMESTAMP", _date, "ContextTokens", "GeneratedTokens"),
    "BurstGPT": _Format(_csv_rows, "Timestamp", float, "Request tokens", "Response tokens", skip_unanswered=True),
    "Mooncake": _Format(_json_rows, "timestamp", _milliseconds, "input_length", "output_length", "hash_ids"),
}
"""Readers by the name of the format."""


def read_trace(
    path: Path,
    format_name: str,
    *,
    max_input_tokens: int | None = None,
    max_output_tokens: int | None = None,
    block_tokens: int = MOONCAKE_BLOCK_TOKENS,
) -> Trace:
    """Return the requests that a file records.

    Args:
        path: The file.
        format_name: One of `FORMATS`.
        max_input_tokens: Longer prompts are cut to this.
        max_output_tokens: Longer answers are cut to this.
        block_tokens: Tokens that one of Mooncake's `hash_ids` stands for.

    Raises:
        ValueError: The format is unknown, or the file cannot be read or has a value that cannot be; the message names
            the file, and the line and column of the value.
    """
    if format_name not in FORMATS:
        raise ValueError(f"format: {format_name!r} is not known; use one of {', '.join(FORMATS)}")
    layout = FORMATS[format_name]
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = layout.rows(file)
            read = (_read(layout, line, row, block_tokens) for line, row in islice(rows, MAX_REQUESTS))
            found = [request for request in read if request is not None]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"path: {path} cannot be read: {error}") from error
    except ValueError as error:
        raise ValueError(f"path: {path} is no {format_name} trace: {error}") from error
    if not found:
        raise ValueError(f"path: {path} has no requests")
    longest = (max_input_tokens, max_output_tokens)
    return Trace(tuple(_arranged(found, block_tokens, longest)), block_tokens)


def _read(layout: _Format, line: int, row: Mapping[str, Any], block_tokens: int) -> Recorded | None:
    """Return the request of one row, or None where it was not answered and the format counts such as failures."""
    at = _field(row, line, layout.time, layout.seconds, "a time")
    inputs = _field(row, line, layout.inputs, _tokens, "a whole number of tokens")
    outputs = _field(row, line, layout.outputs, _tokens, "a whole number of tokens")
    if layout.skip_unanswered and outputs == 0:
        return None
    blocks: tuple[int, ...] = ()
    if row.get(layout.blocks) is not None:
        blocks = _field(row, line, layout.blocks, _blocks, "a list of whole numbers")
    if blocks and not inputs // block_tokens <= len(blocks) <= -(-inputs // block_tokens):
        raise ValueError(
            f"line {line}, column {layout.blocks}: {len(blocks)} blocks of {block_tokens} tokens are no prompt of "
            f"{inputs} tokens; say with blockTokens how long a block is"
        )
    return Recorded(at, max(1, inputs), max(1, outputs), blocks)


def _field(row: Mapping[str, Any], line: int, column: str, read: Callable[[Any], _T], wanted: str) -> _T:
    if row.get(column) is None:
        raise ValueError(f"line {line}: column {column} is missing; the columns are {', '.join(map(str, row))}")
    try:
        return read(row[column])
    except (TypeError, ValueError) as error:
        raise ValueError(f"line {line}, column {column}: {row[column]!r} is not {wanted}") from error


def _tokens(value: Any) -> int:
    number = float(value)
    if isinstance(value, bool) or not 0 <= number < 1e9 or number != int(number):  # noqa: PLR2004 - no context is longer
        raise ValueError(value)
    return int(number)


def _blocks(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(block) is int for block in value):
        raise ValueError(value)
    return tuple(value)


def _arranged(
    requests: Sequence[Recorded], block_tokens: int, longest: tuple[int | None, int | None]
) -> Iterator[Recorded]:
    """Yield the requests by time, cut to the longest lengths, with what each shares with those before it."""
    first = min(request.at_seconds for request in requests)
    seen: set[int] = set()
    for request in sorted(requests, key=lambda request: request.at_seconds):
        inputs = min(request.input_tokens, longest[0] or request.input_tokens)
        known = 0
        for block in request.blocks:
            if block not in seen:
                break
            known += block_tokens
        seen.update(request.blocks[: -(-inputs // block_tokens)])
        yield Recorded(
            request.at_seconds - first,
            inputs,
            min(request.output_tokens, longest[1] or request.output_tokens),
            request.blocks,
            min(known, inputs - 1),
        )
