"""The journal: trials as plain JSON in the shape that resources use, and as a file with one trial a line.

Names are camelCase and numbers that can have a fraction are decimal strings, exactly; reading back gives the same
values. A line carries the version of its format.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from frontier_tuner.configuration import Configuration, Value
from frontier_tuner.engines.vllm import CATALOGUE, DEFAULTS
from frontier_tuner.errors import JournalError
from frontier_tuner.load.summary import decode_ending
from frontier_tuner.measurement import Ending, Estimate, Load, Measurement, Validity, Window, key
from frontier_tuner.space import SearchSpace
from frontier_tuner.trial import Failure, TrialRecord

VERSION = 1

TYPES: Mapping[str, type] = {p.name: type(DEFAULTS.get(p.name, "")) for p in CATALOGUE}
"""Types of the parameters by name; a parameter that is not here is text."""


def encode_configuration(configuration: Configuration) -> dict[str, str]:
    """Return a configuration as text by parameter name, with `true` and `false` for booleans."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in configuration.items()
    }


def decode_configuration(document: Mapping[str, str], space: SearchSpace | None = None) -> Configuration:
    """Return a configuration from text by parameter name; inverse of `encode_configuration`.

    Args:
        document: The values as text.
        space: Gives the types; without it, or for a parameter that it lacks, the engine's catalogue does.

    Raises:
        JournalError: A value is not of its parameter's type.
    """
    types = dict(TYPES)
    if space is not None:
        types |= {parameter.name: type(parameter.values[0]) for parameter in space.parameters if parameter.values}
    return Configuration.of({name: _value(name, text, types.get(name, str)) for name, text in document.items()})


def encode_measurement(measurement: Measurement) -> dict[str, Any]:
    """Return a measurement as a JSON document."""
    return {
        "load": {"kind": measurement.load.kind, "value": decimal(measurement.load.value)},
        "window": {"start": encode_time(measurement.window.start), "end": encode_time(measurement.window.end)},
        "sent": measurement.sent,
        "ok": measurement.ok,
        "failed": measurement.failed,
        "metrics": [_encode_estimate(name, estimate) for name, estimate in sorted(measurement.metrics.items())],
        "valid": measurement.validity.valid,
        "reason": measurement.validity.reason,
        "message": measurement.validity.message,
        **({"check": measurement.validity.check} if measurement.validity.check else {}),
        **({"ended": _encode_ending(measurement.ended)} if measurement.ended is not None else {}),
    }


def decode_measurement(document: Mapping[str, Any]) -> Measurement:
    """Return a measurement from its JSON document; inverse of `encode_measurement`.

    Raises:
        JournalError: A field is missing or of the wrong form.
    """
    try:
        return Measurement(
            load=Load(document["load"]["kind"], float(document["load"]["value"])),
            window=Window(decode_time(document["window"]["start"]), decode_time(document["window"]["end"])),
            sent=int(document["sent"]),
            ok=int(document["ok"]),
            failed=int(document["failed"]),
            metrics=dict(_decode_estimate(each) for each in document.get("metrics", [])),
            validity=Validity(document["valid"], *(document.get(word, "") for word in ("reason", "message", "check"))),
            ended=decode_ending(document.get("ended")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"a measurement cannot be read: {_cause(error)}") from error


def encode(record: TrialRecord) -> dict[str, Any]:
    """Return a trial as a JSON document; fields that are not known are absent."""
    document: dict[str, Any] = {
        "number": record.number,
        "configuration": encode_configuration(record.configuration),
        "purpose": record.purpose,
        "outcome": record.outcome,
        "gpus": record.gpus,
        "measurements": [encode_measurement(measurement) for measurement in record.measurements],
        "gpuSeconds": decimal(record.gpu_seconds),
        "reason": record.reason,
    }
    if record.failure is not None:
        failure = record.failure
        document["failure"] = {
            "class": failure.failure_class,
            "reason": failure.reason,
            "message": failure.message,
        }
    if record.beside is not None:
        document["incumbent"] = encode_measurement(record.beside)
    if record.engine_start_seconds is not None:
        document["engineStartSeconds"] = decimal(record.engine_start_seconds)
    if record.expected_gain is not None:
        document["expectedGain"] = decimal(record.expected_gain)
    return document


def decode(document: Mapping[str, Any], space: SearchSpace | None = None) -> TrialRecord:
    """Return a trial from its JSON document; inverse of `encode`.

    Args:
        document: The document; fields that are not known here are ignored.
        space: Gives the types of the parameters, as for `decode_configuration`.

    Raises:
        JournalError: A field is missing or of the wrong form.
    """
    try:
        failure = document.get("failure")
        start, gain = document.get("engineStartSeconds"), document.get("expectedGain")
        beside = document.get("incumbent")
        return TrialRecord(
            number=int(document["number"]),
            configuration=decode_configuration(document["configuration"], space),
            purpose=document["purpose"],
            outcome=document["outcome"],
            gpus=int(document["gpus"]),
            measurements=tuple(decode_measurement(each) for each in document.get("measurements", [])),
            failure=Failure(failure["reason"], failure.get("message", "")) if failure else None,
            gpu_seconds=float(document.get("gpuSeconds", "0")),
            engine_start_seconds=None if start is None else float(start),
            reason=document.get("reason", ""),
            beside=decode_measurement(beside) if beside else None,
            expected_gain=None if gain is None else float(gain),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalError(f"a trial cannot be read: {_cause(error)}") from error


def check_writable(path: Path) -> None:
    """Make the journal file where there is none, so that nothing is measured that cannot be kept.

    Raises:
        JournalError: The file cannot be written.
    """
    try:
        path.open("ab").close()
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be written: {error.strerror}") from error


def append(path: Path, record: TrialRecord, study: str = "") -> None:
    """Add a trial to a journal file and flush it to the disk; a broken last line of an interrupted write is cut off.

    Several writers wait for each other.

    Args:
        path: The file.
        record: The trial.
        study: Fingerprint of its study, or nothing.
    """
    document = {"version": VERSION, **({"study": study} if study else {}), **encode(record)}
    line = json.dumps(document, separators=(",", ":"), ensure_ascii=False)
    with path.open("a+b") as file:
        # Two writers would cut off each other's lines as broken; the lock goes with the file.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            if _parsed(content[whole:]) is None:
                file.truncate(whole)
            else:
                line = "\n" + line
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read(path: Path, space: SearchSpace | None = None, study: str = "") -> tuple[TrialRecord, ...]:
    """Return the trials of a journal file in their order; none where there is no file.

    A last line that an interrupted write left broken is ignored, and so is a trial that was written again as it is.

    Args:
        path: The file.
        space: Gives the types of the parameters, as for `decode`.
        study: Fingerprint of the only study that the trials may be of; nothing accepts any.

    Raises:
        JournalError: Another line cannot be read, has a version that is not known, is of another study, or has the
            number of another trial; names the line.
    """
    if not path.exists():
        return ()
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be read: {error.strerror}") from error
    records: dict[int, TrialRecord] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        document = _parsed(line)
        if document is None:
            if number == len(lines):
                break
            raise JournalError(f"{path} line {number} is not JSON")
        if document.get("version") != VERSION:
            raise JournalError(
                f"{path} line {number} has version {document.get('version')!r}, this program reads {VERSION}; "
                f"move the file away to begin a new journal"
            )
        if study and document.get("study", study) != study:
            raise JournalError(
                f"{path} line {number} was measured for another model, engine, hardware, workload or search space, "
                "and may not be mixed with this study; give another --journal"
            )
        try:
            record = decode(document, space)
        except JournalError as error:
            raise JournalError(f"{path} line {number}: {error}") from error
        if records.setdefault(record.number, record) != record:
            raise JournalError(
                f"{path} line {number} is another trial with the number {record.number}, as two studies at once would "
                "write; give each a --journal of its own"
            )
    return tuple(records.values())


def decimal(number: float) -> str:
    """Return a number as a decimal string without an exponent, exactly: `float` of it gives the same number."""
    text = format(Decimal(repr(float(number))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def encode_time(moment: datetime) -> str:
    """Return an aware time as RFC 3339 in UTC with microseconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def decode_time(text: str) -> datetime:
    """Return an aware time from RFC 3339.

    Raises:
        ValueError: The text is not a time, or has no zone.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text} has no zone")
    return moment.astimezone(UTC)


def _encode_ending(ending: Ending) -> dict[str, Any]:
    return {"reason": ending.reason, "open": list(ending.open), "message": ending.message}


def _encode_estimate(name: str, estimate: Estimate) -> dict[str, Any]:
    metric, _, percentile = name.partition("/")
    return {
        "name": metric,
        **({"percentile": int(percentile)} if percentile else {}),
        "value": decimal(estimate.value),
        "low": decimal(estimate.low),
        "high": decimal(estimate.high),
        "n": estimate.n,
        "query": estimate.query,
    }


def _decode_estimate(document: Mapping[str, Any]) -> tuple[str, Estimate]:
    value, low, high = (float(document[end]) for end in ("value", "low", "high"))
    estimate = Estimate(value, low, high, int(document["n"]), document.get("query", ""))
    return key(document["name"], document.get("percentile")), estimate


def _value(name: str, text: str, kind: type) -> Value:
    if kind is bool and text in ("true", "false"):
        return text == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise JournalError(f"{name} must be a whole number, not {text!r}") from None
    if kind is bool:
        raise JournalError(f"{name} must be true or false, not {text!r}")
    return text


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _cause(error: Exception) -> str:
    return f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
