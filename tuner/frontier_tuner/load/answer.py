"""What came back for one request, and how its tokens are counted from the stream."""

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

_COUNT = b'"completion_tokens":'
_CACHED = b'"cached_tokens":'
_DATA = b"data:"
_DONE = b"[DONE]"
_NO_CHOICES = b'"choices":[]'
_EMPTY_TEXT = (b'"text":""', b'"content":""')


@dataclass(slots=True)
class Answer:
    """One request's answer; times are seconds of a monotonic clock.

    Attributes:
        intended: When it should have been sent: what latencies are counted from.
        sent: When it was.
        times: When tokens arrived, one per arrival.
        counts: How many arrived then.
        cached_tokens: Prompt tokens that the engine says it found in its cache, or None where it does not say.
        error: Why it failed, or empty.
        done: Whether the stream ended as it should.
    """

    intended: float
    sent: float = 0.0
    times: "array[float]" = field(default_factory=lambda: array("d"))
    counts: "array[int]" = field(default_factory=lambda: array("L"))
    cached_tokens: int | None = None
    error: str = ""
    done: bool = False

    @property
    def first(self) -> float | None:
        """When its first token arrived, or None."""
        return self.times[0] if self.times else None

    @property
    def last(self) -> float | None:
        """When its last token so far arrived, or None."""
        return self.times[-1] if self.times else None

    @property
    def tokens(self) -> int:
        """Tokens that arrived."""
        return sum(self.counts)

    @property
    def malformed(self) -> bool:
        """Whether its times cannot be: not numbers, before it was sent, or running backwards."""
        before = self.intended
        for moment in self.times:
            if not math.isfinite(moment) or moment < before:
                return True
            before = moment
        return False

    def add(self, tokens: int, now: float) -> None:
        """Take note of tokens that arrived together."""
        self.times.append(now)
        self.counts.append(tokens)

    def spread(self, total: int) -> None:
        """Spread the true number of tokens evenly over the arrivals, of which each was taken for one token.

        An engine that reports its usage only at the end says how many tokens its chunks held together, not each.
        """
        arrivals = len(self.times)
        shares = [total * (index + 1) // arrivals - total * index // arrivals for index in range(arrivals)]
        kept = [(moment, share) for moment, share in zip(self.times, shares, strict=True) if share]
        self.times = array("d", (moment for moment, _ in kept))
        self.counts = array("L", (share for _, share in kept))

    def gaps(self) -> Iterator[tuple[float, int]]:
        """Yield the time per token and the number of tokens of every arrival; together one fewer than all tokens.

        Tokens of one chunk share the time since the chunk before; of the first chunk all but one came at once.
        """
        before: float | None = None
        for moment, count in zip(self.times, self.counts, strict=True):
            if before is not None:
                yield (moment - before) / count, count
            elif count > 1:
                yield 0.0, count - 1
            before = moment


class EventReader:
    """Counts tokens in a stream of server-sent events that arrives in pieces of any size.

    Where the engine puts its running usage into every chunk, the last number in a piece is all that is read of it: at
    tens of thousands of tokens a second, decoding each event would make the generator the bottleneck. Otherwise every
    chunk with text counts as one token, whether it is part of the answer or of the reasoning before it.

    Attributes:
        done: Whether the end mark was seen.
        error: What the engine said went wrong, or empty.
        total: Tokens of the whole answer by the engine's usage at its end, or None.
        cached: Prompt tokens that the engine found in its cache, or None where it does not say.
        running: Whether chunks carry the running usage.
    """

    __slots__ = ("_counted", "_rest", "cached", "done", "error", "running", "total")

    def __init__(self) -> None:
        self.done = False
        self.error = ""
        self.total: int | None = None
        self.cached: int | None = None
        self.running = False
        self._rest = b""
        self._counted = 0

    def feed(self, piece: bytes) -> int:
        """Return how many more tokens have arrived with this piece."""
        before = self._counted
        if self.running and not self._rest and piece.endswith(b"}\n\n") and b'"error"' not in piece:
            at = piece.rfind(_COUNT)
            if at >= 0 and _NO_CHOICES not in piece:
                count = _leading_integer(piece, at + len(_COUNT))
                self._counted = max(before, count)
                return self._counted - before
        data = self._rest + piece
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        for line in data[:end].split(b"\n"):
            if line.startswith(_DATA):
                self._event(line)
        return self._counted - before

    def _event(self, line: bytes) -> None:
        if line[len(_DATA) :].strip() == _DONE:
            self.done = True
            return
        at = line.rfind(_COUNT)
        if at >= 0:
            self._usage(line, _leading_integer(line, at + len(_COUNT)))
        elif b'"error"' in line:
            self.error = self.error or line[len(_DATA) :].strip().decode(errors="replace")[:300]
        elif b'"choices"' in line and _NO_CHOICES not in line and not _silent(line):
            self._counted += 1

    def _usage(self, line: bytes, count: int) -> None:
        if _NO_CHOICES in line.replace(b" ", b""):
            self.total = count
        else:
            self.running = True
        if self.running:
            self._counted = max(self._counted, count)
        at = line.rfind(_CACHED)
        if at >= 0:
            self.cached = _leading_integer(line, at + len(_CACHED))


def _silent(line: bytes) -> bool:
    """Return whether an event says nothing: the one that opens a chat, or one that only ends it."""
    compact = line.replace(b'": "', b'":"')
    spoken = (b'"text":"', b'"content":"', b'"reasoning":"', b'"reasoning_content":"', b'"tool_calls":[')
    return sum(map(compact.count, spoken)) == sum(map(compact.count, _EMPTY_TEXT))


def _leading_integer(line: bytes, at: int) -> int:
    while line[at : at + 1] == b" ":
        at += 1
    end = at
    while line[end : end + 1].isdigit():
        end += 1
    return int(line[at:end] or b"0")
