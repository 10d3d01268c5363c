"""Sends completions to one engine and takes note of what comes back, token by token."""

import asyncio
import json
from collections.abc import Callable
from time import perf_counter

from frontier_tuner.load.answer import Answer, EventReader
from frontier_tuner.load.connection import Body, Connections
from frontier_tuner.load.workload import Request

_SHOWN = 300


class Client:
    """Sends completions to one engine.

    Args:
        connections: To the engine.
        model: Served model name.
        timeout_seconds: After this a request has failed.
        api_key: Sent as a bearer token where not empty.
    """

    def __init__(self, connections: Connections, model: str, timeout_seconds: float, api_key: str = "") -> None:
        self._connections = connections
        self._timeout_seconds = timeout_seconds
        bearer = f"Authorization: Bearer {api_key}\r\n" if api_key else ""
        self._head = (
            f"POST {connections.path}/v1/completions HTTP/1.1\r\nHost: {connections.authority}\r\n{bearer}"
            "Content-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: "
        ).encode()
        self._before = b'{"model":' + json.dumps(model).encode() + b',"prompt":'
        self._after = (
            b',"stream":true,"ignore_eos":true,"temperature":0,'
            b'"stream_options":{"include_usage":true,"continuous_usage_stats":true},"max_tokens":%d}'
        )

    async def complete(self, request: Request, answer: Answer, on_tokens: Callable[[int], None]) -> None:
        """Send a request and fill `answer` as its tokens arrive; `on_tokens` is told of each arrival.

        A refused, broken or late answer is described in `answer.error`; only cancellation is raised. Nothing is
        repeated, except on a new connection where the server closed the one it had kept before it saw the request.
        """
        content = b"".join((self._before, request.prompt, self._after % request.output_tokens))
        head = self._head + b"%d\r\n\r\n" % len(content)
        reader = EventReader()

        def take(piece: bytes, now: float) -> None:
            tokens = reader.feed(piece)
            if tokens:
                answer.add(tokens, now)
                on_tokens(tokens)

        body = Body(take)
        answer.sent = perf_counter()
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._exchange(head, content, body, reader)
        except TimeoutError:
            answer.error = f"no complete answer within {self._timeout_seconds:g} s"
        except OSError as error:
            answer.error = f"{type(error).__name__}: {error}"
        _close(answer, body, reader)

    async def _exchange(self, head: bytes, content: bytes, body: Body, reader: EventReader) -> None:
        connection = await self._connections.take()
        for may_repeat in (True, False):
            try:
                try:
                    await connection.ask(head, content, body)
                except ConnectionError:
                    if may_repeat and connection.used and not body.started:
                        connection = await self._connections.take(fresh=True)
                        continue
                    if not reader.done:
                        raise
                self._connections.give_back(connection)
            except BaseException:  # also a cancellation: the engine must see that nobody listens any more
                connection.close()
                raise
            return


def _close(answer: Answer, body: Body, reader: EventReader) -> None:
    """Say how an answer ended."""
    answer.cached_tokens = reader.cached
    if not answer.error and body.status != 200:  # noqa: PLR2004 - the one status that starts a stream
        answer.error = f"HTTP {body.status}: {body.refusal.decode(errors='replace')[:_SHOWN]}"
    answer.error = answer.error or reader.error
    if not answer.error and not (reader.done and answer.times):
        answer.error = f"the stream ended after {answer.tokens} tokens without its end mark"
    answer.done = not answer.error
    if answer.done and not reader.running and reader.total and reader.total != answer.tokens:
        answer.spread(reader.total)
