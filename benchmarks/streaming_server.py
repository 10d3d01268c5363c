"""A server that does nothing but stream: every request gets a token each interval, on time.

    python benchmarks/streaming_server.py PORT INTERVAL_SECONDS

It answers completions and chats of any prompt, the list of models, and at `/lag` how late its own tokens were.
"""

import asyncio
import json
import re
import sys
import time
from typing import Any

from frontier_tuner.load.loop import allow_open_files, run

PROMPT_TOKENS = 64
DEFAULT_TOKENS = 100
MOST_TOKENS = 4096
SLOTS = 50
"""An interval is divided into so many moments, over which the streams are spread."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def framed(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(choices: list[dict[str, Any]], tokens: int) -> bytes:
    total = PROMPT_TOKENS + tokens
    usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": total, "completion_tokens": tokens}
    body = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m"}
    text = json.dumps({**body, "choices": choices, "usage": usage}, separators=(",", ":"))
    return framed(b"data: " + text.encode() + b"\n\n")


CHOICE = {"index": 0, "text": " word", "logprobs": None, "finish_reason": None, "stop_reason": None}
EVENTS = [event([CHOICE], number) for number in range(1, MOST_TOKENS + 1)]
END = framed(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Streams:
    """All streams, spread over the slots of an interval, and how late their tokens were."""

    def __init__(self, interval: float) -> None:
        self.slots: list[set[Stream]] = [set() for _ in range(SLOTS)]
        self.interval = interval
        self.opened = 0
        self.late: list[float] = []

    async def beat(self) -> None:
        """Send every stream its tokens, for ever."""
        due, slot = time.perf_counter(), 0
        while True:
            due += self.interval / SLOTS
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            self.late = [*self.late[-5000:], time.perf_counter() - due]
            ended = [stream for stream in list(self.slots[slot]) if stream.beat()]
            self.slots[slot].difference_update(ended)
            slot = (slot + 1) % SLOTS

    def lag(self) -> float:
        """Return the 99th percentile of how late tokens were lately."""
        late = sorted(self.late) or [0.0]
        return late[int(0.99 * (len(late) - 1))]


class Stream(asyncio.Protocol):
    """One connection."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.waiting = b""
        self.transport: asyncio.WriteTransport
        self.left = self.sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self.transport = transport  # type: ignore[assignment] # a stream's, which can be written to

    def connection_lost(self, _: Exception | None) -> None:
        """Called by the event loop."""
        for slot in self.streams.slots:
            slot.discard(self)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self.waiting += data
        head, found, body = self.waiting.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        size = int(length[1]) if length else 0
        if not found or len(body) < size:
            return
        self.waiting = body[size:]
        if head.startswith(b"POST"):
            asked = json.loads(body[:size])
            tokens = asked.get("max_tokens") or asked.get("max_completion_tokens") or DEFAULT_TOKENS
            self.left, self.sent = min(tokens, MOST_TOKENS), 0
            self.transport.write(HEAD)
            self.streams.slots[self.streams.opened % SLOTS].add(self)
            self.streams.opened += 1
        else:
            said = json.dumps({"lag": self.streams.lag()}).encode() if b" /lag" in head else MODELS
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))

    def beat(self) -> bool:
        """Send a token; return whether it was the last."""
        self.transport.write(EVENTS[self.sent])
        self.sent += 1
        if self.sent < self.left:
            return False
        self.transport.write(event([], self.sent) + END)
        return True


async def serve(port: int, interval: float) -> None:
    streams = Streams(interval)
    loop = asyncio.get_running_loop()
    async with await loop.create_server(lambda: Stream(streams), "127.0.0.1", port, backlog=8192):
        await streams.beat()


if __name__ == "__main__":
    allow_open_files()
    run(serve(int(sys.argv[1]), float(sys.argv[2])))
