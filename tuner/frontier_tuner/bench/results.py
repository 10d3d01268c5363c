"""The benchmark's own record: what each method started and measured, so that anyone can score it again."""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from frontier_tuner.bench.arena import StartLog
from frontier_tuner.bench.tables import Table
from frontier_tuner.errors import TunerError

Logs = Mapping[str, Mapping[int, Sequence[StartLog]]]
"""Method → seed → its starts."""


class ResultsError(TunerError):
    """A record of a benchmark cannot be read; the message names the place."""


def encode(logs: Logs, table: Table) -> dict[str, Any]:
    """Return the logs as JSON values; a rung is the `batch` of its row."""

    def start(each: StartLog) -> dict[str, Any]:
        return {
            "engine_id": each.engine_id,
            "outcome": each.outcome,
            "rungs": [int(table.batches[level]) for level in each.levels],
            "seconds": round(each.seconds, 6),
        }

    return {
        "methods": {
            method: [{"seed": seed, "starts": [start(each) for each in runs[seed]]} for seed in sorted(runs)]
            for method, runs in logs.items()
        }
    }


def decode(content: Any, table: Table) -> dict[str, dict[int, list[StartLog]]]:
    """Return the logs that `encode` wrote, or another program in the same form.

    Raises:
        ResultsError: It has another form, or names an engine or a batch that the table does not have.
    """
    places = {engine: place for place, engine in enumerate(table.engine_ids)}
    levels = {int(batch): level for level, batch in enumerate(table.batches)}

    def start(each: Mapping[str, Any]) -> StartLog:
        place = places[each["engine_id"]]
        if each["outcome"] not in ("Complete", "Infeasible"):
            raise ValueError(f"outcome {each['outcome']!r} is neither Complete nor Infeasible")
        return StartLog(
            index=place,
            engine_id=each["engine_id"],
            outcome=each["outcome"],
            levels=[levels[batch] for batch in each["rungs"]],
            seconds=float(each["seconds"]),
        )

    try:
        return {
            method: {int(run["seed"]): [start(each) for each in run["starts"]] for run in runs}
            for method, runs in content["methods"].items()
        }
    except KeyError as error:
        raise ResultsError(f"the results name {error}, which {table.path} or the record does not have") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ResultsError(f"the results have another form: {error}") from error


def check_writable(path: Path | None) -> None:
    """Raise before hours are spent where a record could not be written.

    Raises:
        ResultsError: There is no such directory, or nothing can be written to it.
    """
    if path is not None and not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
        raise ResultsError(f"{path} cannot be written: {path.parent} is no directory that takes files")


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON so that a reader finds the old file or the whole new one.

    Raises:
        ResultsError: The file cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                json.dump(content, stream, indent=1)
                stream.write("\n")
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error}") from error
