"""One streamed completion as a client sees it.

Lines of the event stream are read by hand: at thousands of tokens a second, decoding each as JSON would make the
generator the bottleneck. The number of tokens that a chunk brought is taken from the running usage that the engine
was asked to put into every chunk.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

import aiohttp

from frontier_tuner.load.workload import Request

_COUNT = b'"completion_tokens":'
_DATA = b"data:"
_DONE = b"[DONE]"


@dataclass
class Answer:
    """What came back for one request; times are seconds of a monotonic clock.

    Attributes:
        sent: When it was sent.
        first: When its first token arrived, or None.
        last: When its last token so far arrived, or None.
        tokens: Tokens that arrived.
        gaps: Time per token and number of tokens, for every chunk after the first.
        error: Why it failed, or empty.
        done: Whether the stream ended as it should.
    """

    sent: float
    first: float | None = None
    last: float | None = None
    tokens: int = 0
    gaps: list[tuple[float, int]] = field(default_factory=list)
    error: str = ""
    done: bool = False

    def add(self, tokens: int, now: float) -> None:
        """Take note of tokens that arrived together."""
        if self.first is None or self.last is None:
            self.first = now
            if tokens > 1:
                self.gaps.append((0.0, tokens - 1))
        else:
            self.gaps.append(((now - self.last) / tokens, tokens))
        self.last = now
        self.tokens += tokens


class Client:
    """Sends completions to one engine."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str, timeout_seconds: float) -> None:
        self._session = session
        self._url = f"{url.rstrip('/')}/v1/completions"
        self._timeout_seconds = timeout_seconds
        self._head = '{"model":' + json.dumps(model) + ',"prompt":'
        self._tail = (
            ',"stream":true,"ignore_eos":true,"temperature":0,'
            '"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":'
        )

    async def complete(self, request: Request, answer: Answer, on_tokens: Callable[[int], None]) -> None:
        """Send a request and fill `answer` as its tokens arrive; `on_tokens` is told of each arrival.

        A refused, broken or late answer is described in `answer.error`; only cancellation is raised.
        """
        body = f"{self._head}{request.prompt}{self._tail}{request.output_tokens}}}"
        answer.sent = perf_counter()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._stream(body, answer, on_tokens)
        except TimeoutError:
            answer.error = f"no complete answer within {self._timeout_seconds:g} s"
        except (aiohttp.ClientError, OSError) as error:
            answer.error = f"{type(error).__name__}: {error}"

    async def _stream(self, body: str, answer: Answer, on_tokens: Callable[[int], None]) -> None:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._url, data=body.encode(), headers=headers) as response:
            if response.status != 200:  # noqa: PLR2004 - the one status that starts a stream
                answer.error = f"HTTP {response.status}: {(await response.text(errors='replace'))[:300]}"
                return
            reader = EventReader()
            async for chunk in response.content.iter_any():
                tokens = reader.feed(chunk)
                if tokens:
                    answer.add(tokens, perf_counter())
                    on_tokens(tokens)
        answer.error = reader.error
        if not answer.error and not (reader.done and answer.tokens):
            answer.error = f"the stream ended after {answer.tokens} tokens without its end mark"
        answer.done = not answer.error


class EventReader:
    """Counts tokens in a stream of server-sent events that arrives in pieces of any size.

    Attributes:
        done: Whether the end mark was seen.
        error: What the engine said went wrong, or empty.
    """

    def __init__(self) -> None:
        self.done = False
        self.error = ""
        self._rest = b""
        self._counted = 0

    def feed(self, piece: bytes) -> int:
        """Return how many more tokens have arrived with this piece."""
        data = self._rest + piece if self._rest else piece
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        before = self._counted
        for line in data[:end].split(b"\n"):
            if line.startswith(_DATA):
                self._event(line)
        return self._counted - before

    def _event(self, line: bytes) -> None:
        at = line.rfind(_COUNT)
        if at >= 0:
            self._counted = max(self._counted, _leading_integer(line, at + len(_COUNT)))
        elif line[len(_DATA) :].strip() == _DONE:
            self.done = True
        elif b'"error"' in line:
            self.error = self.error or line[len(_DATA) :].strip().decode(errors="replace")[:300]
        elif b'"choices"' in line and b'"choices":[]' not in line:
            self._counted += 1


def _leading_integer(line: bytes, at: int) -> int:
    while line[at : at + 1] == b" ":
        at += 1
    end = at
    while line[end : end + 1].isdigit():
        end += 1
    return int(line[at:end] or b"0")
