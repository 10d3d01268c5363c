"""One line of JSON for each request, for whoever wants to see more than percentiles."""

import json
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from frontier_tuner.load.answer import Answer
from frontier_tuner.load.sessions import Position
from frontier_tuner.load.workload import Request

_BUFFER_BYTES = 1 << 20


def record(
    position: Position, request: Request, phase: str, result: str, answer: Answer, intended: datetime
) -> dict[str, Any]:
    """Return what is written of one request.

    All times but `intended` are seconds after it. `arrivals` holds pairs of a time and the number of tokens that came
    then. What is not known is null.
    """

    def after(moment: float | None) -> float | None:
        return None if moment is None else round(moment - answer.intended, 6)

    arrivals = zip(answer.times, answer.counts, strict=True)
    return {
        "session": position.session,
        "turn": position.turn,
        "phase": phase,
        "result": result,
        "error": answer.error,
        "intended": intended.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "sent": after(answer.sent),
        "ttft": after(answer.first),
        "e2e": after(answer.last) if result == "ok" else None,
        "inputTokens": request.input_tokens,
        "sharedTokens": request.shared_tokens,
        "cachedTokens": answer.cached_tokens,
        "askedTokens": request.output_tokens,
        "outputTokens": answer.tokens,
        "arrivals": [(after(moment), count) for moment, count in arrivals],
    }


class Records:
    """A file of records that is written as answers end, within its context; there is none where the path is empty."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if self._path:
            self._file = Path(self._path).open("w", buffering=_BUFFER_BYTES)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def write(
        self, position: Position, request: Request, phase: str, result: str, answer: Answer, intended: datetime
    ) -> None:
        """Add one request; see `record`."""
        if self._file is not None:
            line = record(position, request, phase, result, answer, intended)
            self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
