"""The last words of a load generator: one JSON object, small enough for a container's termination message."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from frontier_tuner.errors import MeasurementError
from frontier_tuner.measurement import Ending, Load, LoadKind, Window

MAX_ERROR_CHARACTERS = 500
MAX_ENDING_CHARACTERS = 300
_REASONS: dict[str, Literal["Tight", "TimeUp"]] = {"Tight": "Tight", "TimeUp": "TimeUp"}
_KINDS: dict[str, LoadKind] = {"Concurrency": "Concurrency", "RequestRate": "RequestRate"}


@dataclass(frozen=True)
class LoadSummary:
    """What one run of the load generator did; times are aware UTC, in whole milliseconds.

    Attributes:
        load: The level that was asked for.
        begin: When the first request, warm-up included, could be sent.
        start: When the first measured request was sent.
        end: When the sending stopped.
        scraped_at: When the last values were scraped, or the waiting for it ended.
        sent: Measured requests sent: `ok + failed + cut`.
        ok: Of these, answered completely.
        failed: Of these, refused, broken or timed out.
        cut: Of these, still unanswered when the drain ended.
        input_tokens: Prompt tokens of the measured requests.
        output_tokens: Tokens that arrived between start and end.
        lag_p99_seconds: 99th percentile of how late the generator itself was.
        late_seconds: How long after its planned time the first measured request left.
        scraped: Whether the final values were scraped.
        first_error: What the first failed request said, or empty.
        lag_max_seconds: The latest that the generator itself was.
        unsent: Requests of an open loop that were due within the window and could not be sent in time.
        malformed: Of the failed, those whose times cannot be.
        cpu_percent: CPU time of the generator within the window, in percent of one core.
        shared_tokens: Of the prompt tokens, those that earlier requests of the run had in common.
        ended: Why the sending stopped; None where the load generator does not say, as an older one does not.
    """

    load: Load
    begin: datetime
    start: datetime
    end: datetime
    scraped_at: datetime
    sent: int
    ok: int
    failed: int
    cut: int
    input_tokens: int
    output_tokens: int
    lag_p99_seconds: float
    late_seconds: float
    scraped: bool
    first_error: str = ""
    lag_max_seconds: float = 0.0
    unsent: int = 0
    malformed: int = 0
    cpu_percent: int = 0
    shared_tokens: int = 0
    ended: Ending | None = None

    @property
    def window(self) -> Window:
        """The measured window, warm-up and drain excluded."""
        return Window(self.start, self.end)

    def encode(self) -> str:
        """Return the summary as one line of JSON, at most 4 KiB."""
        return json.dumps(
            {
                "start": format_time(self.start),
                "end": format_time(self.end),
                "load": {"kind": self.load.kind, "value": self.load.value},
                "sent": self.sent,
                "ok": self.ok,
                "failed": self.failed,
                "cut": self.cut,
                "unsent": self.unsent,
                "malformed": self.malformed,
                "inputTokens": self.input_tokens,
                "sharedTokens": self.shared_tokens,
                "outputTokens": self.output_tokens,
                "lagP99Seconds": round(self.lag_p99_seconds, 6),
                "lagMaxSeconds": round(self.lag_max_seconds, 6),
                "lateSeconds": round(self.late_seconds, 6),
                "cpuPercent": self.cpu_percent,
                "scraped": self.scraped,
                "firstError": self.first_error[:MAX_ERROR_CHARACTERS],
                "begin": format_time(self.begin),
                "scrapedAt": format_time(self.scraped_at),
                **({"ended": _encode_ending(self.ended)} if self.ended is not None else {}),
            },
        )


def _encode_ending(ending: Ending) -> dict[str, object]:
    return {"reason": ending.reason, "open": list(ending.open), "message": ending.message[:MAX_ENDING_CHARACTERS]}


def format_time(moment: datetime) -> str:
    """Return a time as RFC 3339 in UTC with milliseconds: `2026-01-02T03:04:05.678Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_summary(text: str) -> LoadSummary:
    """Return the summary that a load generator wrote.

    Raises:
        MeasurementError: The text is not a complete summary; nothing is filled in with zeros.
    """
    try:
        body = json.loads(text)
        load = Load(_KINDS[body["load"]["kind"]], float(body["load"]["value"]))
        return LoadSummary(
            load=load,
            begin=_time(body["begin"]),
            start=_time(body["start"]),
            end=_time(body["end"]),
            scraped_at=_time(body["scrapedAt"]),
            sent=int(body["sent"]),
            ok=int(body["ok"]),
            failed=int(body["failed"]),
            cut=int(body["cut"]),
            input_tokens=int(body["inputTokens"]),
            output_tokens=int(body["outputTokens"]),
            lag_p99_seconds=float(body["lagP99Seconds"]),
            late_seconds=float(body["lateSeconds"]),
            scraped=bool(body["scraped"]),
            first_error=str(body["firstError"]),
            lag_max_seconds=float(body["lagMaxSeconds"]),
            unsent=int(body["unsent"]),
            malformed=int(body["malformed"]),
            cpu_percent=int(body["cpuPercent"]),
            shared_tokens=int(body["sharedTokens"]),
            ended=decode_ending(body.get("ended")),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        shown = text[:200] + ("…" if len(text) > 200 else "")  # noqa: PLR2004 - enough to recognise what it was
        message = f"the load generator's summary is incomplete ({type(error).__name__}: {error}): {shown!r}"
        raise MeasurementError(message) from error


def decode_ending(body: Mapping[str, Any] | None) -> Ending | None:
    """Return why a window ended, from the object that says so, or None where there is none.

    Raises:
        KeyError: The reason is missing, or no reason.
    """
    if not body:
        return None
    return Ending(_REASONS[body["reason"]], tuple(map(str, body.get("open", ()))), str(body.get("message", "")))


def _time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"time {text!r} has no time zone")
    return moment.astimezone(UTC)
