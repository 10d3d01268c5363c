"""Plant tables: exhaustive measurements of many engine configurations under many loads, one row for each pair.

A table is a CSV file, plain or compressed with gzip. `COLUMNS` lists what it must have; further columns are ignored. A
row whose status is `nodata` says nothing and is dropped.
"""

import csv
import gzip
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.errors import TunerError
from frontier_tuner.predict import Floats, Prediction
from frontier_tuner.search.candidates import Candidates, Integers, Knob
from frontier_tuner.space import Parameter

Booleans = NDArray[np.bool_]

TEXT_KNOBS = ("mode", "gemm", "kvcache", "moe")
NUMBER_KNOBS = (
    *("tp", "pp", "attention_dp", "moe_tp", "moe_ep", "nextn", "ctx_tokens"),
    *("p_tp", "p_pp", "p_dp", "p_moe_tp", "p_moe_ep", "p_workers", "d_workers"),
)
GROUPS: Mapping[str, str] = {
    **dict.fromkeys(("tp", "pp", "attention_dp", "moe_tp", "moe_ep"), "layout"),
    **dict.fromkeys(("p_tp", "p_pp", "p_dp", "p_moe_tp", "p_moe_ep"), "prefill"),
    **dict.fromkeys(("p_workers", "d_workers"), "pools"),
    **dict.fromkeys(("gemm", "kvcache", "moe"), "precision"),
    "ctx_tokens": "batching",
    "nextn": "speculation",
}
"""Which knobs act together; `mode` acts alone."""
KNOBS = (
    *("mode", "tp", "pp", "attention_dp", "moe_tp", "moe_ep", "gemm", "kvcache", "moe", "nextn", "ctx_tokens"),
    *("p_tp", "p_pp", "p_dp", "p_moe_tp", "p_moe_ep", "p_workers", "d_workers"),
)
RESULTS = ("ttft_ms", "tpot_ms", "tok_s_user", "tok_s_gpu")
COLUMNS = ("engine_id", "gpus", *KNOBS, "batch", "concurrency", "status", *RESULTS)
OK, OUT_OF_MEMORY, CACHE_FULL, NO_DATA = "ok", "oom", "kv_oom", "nodata"
STATUSES = (OK, OUT_OF_MEMORY, CACHE_FULL, NO_DATA)


class TableError(TunerError):
    """A plant table cannot be read; the message names the file, the row and the column."""


@dataclass(frozen=True)
class Truth:
    """What n engines really do at L levels of load; not a number where an engine does not serve that level.

    Attributes:
        ttft: (n, L) mean time to first token, seconds.
        itl: (n, L) mean time between tokens, seconds.
        user_speed: (n, L) output tokens per second that one user sees.
        throughput: (n, L) output tokens per second per GPU.
    """

    ttft: Floats
    itl: Floats
    user_speed: Floats
    throughput: Floats


@dataclass(frozen=True)
class Table:
    """A plant table as arrays: n engines in the order of the file, L levels of load in ascending order.

    Attributes:
        path: Where it comes from.
        engine_ids: The n engines.
        configurations: The configuration of each; a knob that does not exist there is left out.
        parameters: The knobs that any engine has, with all their values.
        gpus: (n,) GPUs that one start holds.
        ranks: (n,) concurrency over batch, as in the engine's first row.
        batches: (L,) sequences for each attention rank.
        concurrency: (n, L) requests in flight over the deployment; not a number where there is no row.
        cache_full: (n, L) whether the level does not fit the cache.
        dead: (n,) whether the engine dies at start.
        truth: What the engines that start do.
    """

    path: Path
    engine_ids: tuple[str, ...]
    configurations: tuple[Configuration, ...]
    parameters: tuple[Parameter, ...]
    gpus: Floats
    ranks: Floats
    batches: Integers
    concurrency: Floats
    cache_full: Booleans
    dead: Booleans
    truth: Truth

    def __len__(self) -> int:
        return len(self.engine_ids)

    def column(self, name: str, missing: Value) -> list[Value]:
        """Return a knob's value for each engine, `missing` where the knob does not exist."""
        return [configuration.get(name, missing) for configuration in self.configurations]

    def candidates(self, prediction: Prediction | None = None) -> Candidates:
        """Return the engines as the candidates of a search, in the same order."""
        varied = [p for p in self.parameters if len({*self.column(p.name, "")}) > 1]
        levels = np.full((len(self), len(varied)), -1, dtype=np.int64)
        scale = np.full((len(self), len(varied)), -1.0)
        for column, parameter in enumerate(varied):
            places = {value: place for place, value in enumerate(parameter.values)}
            for row, value in enumerate(self.column(parameter.name, "")):
                if value in places:
                    levels[row, column] = places[value]
                    scale[row, column] = math.log2(max(float(value), 0.5)) if parameter.ordered else places[value]
        return Candidates(
            configurations=self.configurations,
            knobs=tuple(Knob(p.name, p.group, p.ordered) for p in varied),
            levels=levels,
            scale=scale,
            gpus=self.gpus,
            ranks=self.ranks,
            concurrency=self.concurrency,
            prediction=prediction,
        )


@dataclass
class _Row:
    """One row, read."""

    number: int
    engine: str
    gpus: int
    configuration: Configuration
    batch: int
    concurrency: float
    status: str
    results: tuple[float, ...]


@dataclass
class _Engine:
    """The rows of one engine, by batch."""

    first: _Row
    rows: dict[int, _Row] = field(default_factory=dict)


def read_table(path: Path) -> Table:
    """Return the plant table in a file.

    Raises:
        TableError: The file cannot be read, has a column missing, no rows, or a cell that is not possible.
    """
    engines: dict[str, _Engine] = {}
    for row in _rows(path):
        engine = engines.setdefault(row.engine, _Engine(row))
        first = engine.first
        if (first.gpus, first.configuration) != (row.gpus, row.configuration):
            raise _error(path, row.number, "engine_id", f"{row.engine} had other knobs or GPUs in row {first.number}")
        if row.batch in engine.rows:
            twice = engine.rows[row.batch].number
            raise _error(path, row.number, "batch", f"{row.engine} has batch {row.batch} in row {twice} already")
        engine.rows[row.batch] = row
    if not engines:
        raise TableError(f"{path} has no rows with data")
    return _table(path, list(engines.values()))


def _table(path: Path, engines: Sequence[_Engine]) -> Table:
    batches = sorted({batch for engine in engines for batch in engine.rows})
    shape = (len(engines), len(batches))
    concurrency = np.full(shape, np.nan)
    results = np.full((len(RESULTS), *shape), np.nan)
    cache_full, dead = np.zeros(shape, bool), np.zeros(len(engines), bool)
    for n, engine in enumerate(engines):
        for level, batch in enumerate(batches):
            row = engine.rows.get(batch)
            if row is None:
                continue
            concurrency[n, level] = row.concurrency
            cache_full[n, level] = row.status == CACHE_FULL
            if row.status == OK:
                results[:, n, level] = row.results
        statuses = {row.status for row in engine.rows.values()}
        dead[n] = OUT_OF_MEMORY in statuses or OK not in statuses
    configurations = tuple(engine.first.configuration for engine in engines)
    return Table(
        path=path,
        engine_ids=tuple(engine.first.engine for engine in engines),
        configurations=configurations,
        parameters=tuple(_parameters(configurations)),
        gpus=np.array([engine.first.gpus for engine in engines], dtype=float),
        ranks=np.array([engine.first.concurrency / engine.first.batch for engine in engines]),
        batches=np.array(batches, dtype=np.int64),
        concurrency=concurrency,
        cache_full=cache_full,
        dead=dead,
        truth=Truth(results[0] / 1000, results[1] / 1000, results[2], results[3]),
    )


def _parameters(configurations: Sequence[Configuration]) -> Iterator[Parameter]:
    for name in KNOBS:
        found = {configuration[name] for configuration in configurations if name in configuration}
        if found:
            values = sorted(found, key=lambda value: (str(value) if name in TEXT_KNOBS else "", value))
            yield Parameter(name, tuple(values), group=GROUPS.get(name, ""))


def _rows(path: Path) -> Iterator[_Row]:
    try:
        with _open(path) as stream:
            reader = csv.DictReader(stream)
            absent = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if absent:
                raise TableError(
                    f"{path} lacks the columns {', '.join(absent)}; a plant table has {', '.join(COLUMNS)}"
                )
            for number, cells in enumerate(reader, start=2):
                if cells["status"] != NO_DATA:
                    yield _row(path, number, cells)
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"{path} cannot be read as a table: {error}") from error


def _open(path: Path) -> Any:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _row(path: Path, number: int, cells: Mapping[str, str | None]) -> _Row:
    absent = next((name for name in COLUMNS if cells[name] is None), None)
    if absent is not None:
        raise _error(path, number, absent, "the row ends before it")
    text = {name: (cells[name] or "").strip() for name in COLUMNS}
    if text["status"] not in STATUSES:
        raise _error(path, number, "status", f"{text['status']!r} is not one of {', '.join(STATUSES)}")
    if not text["engine_id"]:
        raise _error(path, number, "engine_id", "is empty")
    knobs: dict[str, Value] = {name: text[name] for name in TEXT_KNOBS if text[name]}
    knobs |= {name: _whole(path, number, name, text[name], least=0) for name in NUMBER_KNOBS if text[name]}
    served = text["status"] == OK
    return _Row(
        number=number,
        engine=text["engine_id"],
        gpus=_whole(path, number, "gpus", text["gpus"], least=1),
        configuration=Configuration.of(knobs),
        batch=_whole(path, number, "batch", text["batch"], least=1),
        concurrency=_positive(path, number, "concurrency", text["concurrency"]),
        status=text["status"],
        results=tuple(_positive(path, number, name, text[name]) for name in RESULTS) if served else (),
    )


def _whole(path: Path, number: int, column: str, text: str, *, least: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= least or value % 1:
        raise _error(path, number, column, f"{text!r} is not a whole number of at least {least}")
    return int(value)


def _positive(path: Path, number: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise _error(path, number, column, f"{text!r} is not a number above 0")
    return value


def _error(path: Path, number: int, column: str, what: str) -> TableError:
    return TableError(f"{path}, row {number}, column {column}: {what}")
