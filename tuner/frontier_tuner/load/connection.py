"""HTTP/1.1 connections that note when data came before they look at it.

An engine ends a step for all its streams at once, so hundreds of sockets become readable together. Each piece is put
aside with its time, and parsed once all of them have been read: the last stream's time is late by the reading of the
others, not by their parsing. At a thousand streams this halves both the work and the error of a general client.
"""

import asyncio
import ssl
from collections.abc import Callable
from time import perf_counter
from urllib.parse import urlsplit

import httptools


class Body:
    """Takes in one answer.

    Args:
        on_data: Called with every piece of the body of a good answer and the time it came.

    Attributes:
        status: HTTP status, 0 before it is known.
        refusal: Body of an answer with another status than 200.
        started: Whether anything of the answer has come.
    """

    __slots__ = ("_on_data", "refusal", "started", "status")

    def __init__(self, on_data: Callable[[bytes, float], None]) -> None:
        self.status = 0
        self.refusal = b""
        self.started = False
        self._on_data = on_data

    def feed(self, data: bytes, now: float) -> None:
        """Take in a piece of the body."""
        if self.status == 200:  # noqa: PLR2004 - the one status that starts a stream
            self._on_data(data, now)
        else:
            self.refusal += data


class Inbox:
    """What has been read from sockets and not parsed yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[Connection, bytes | None, float]] = []

    def put(self, connection: "Connection", data: bytes | None) -> None:
        """Put aside what a connection read, or None for its end, until every readable socket has been read."""
        if not self._waiting:
            self._loop.call_soon(self._parse)
        self._waiting.append((connection, data, perf_counter()))

    def _parse(self) -> None:
        waiting, self._waiting = self._waiting, []
        for connection, data, now in waiting:
            if data is None:
                connection.end()
            else:
                connection.parse(data, now)


class Connection(asyncio.Protocol):
    """One connection, for one request at a time.

    Attributes:
        used: Whether it has carried a request before the present one.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._now = 0.0
        self._body: Body | None = None
        self._complete: asyncio.Future[bool] | None = None
        self.used = False

    @property
    def open(self) -> bool:
        """Whether another request can be sent."""
        return self._transport is not None and not self._transport.is_closing() and self._complete is None

    def ask(self, head: bytes, content: bytes, body: Body) -> "asyncio.Future[bool]":
        """Send a request and return the future that says, once the answer is complete, whether it was well formed.

        The future fails with `ConnectionError` where the connection ends first.
        """
        if self._transport is None:
            raise ConnectionResetError("the connection is closed")
        self._body = body
        self._complete = asyncio.get_running_loop().create_future()
        self._transport.write(head + content)
        return self._complete

    def close(self) -> None:
        """Close at once; the engine sees that nobody listens any more, and what it still says is not taken in."""
        self._body = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = transport  # type: ignore[assignment] # a stream transport, by the way it is created

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._inbox.put(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._transport = None
        self._inbox.put(self, None)

    def parse(self, data: bytes, now: float) -> None:
        """Take in what was read at a time."""
        self._now = now
        if self._body is not None:
            self._body.started = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._finish(ConnectionError(f"the answer is no HTTP: {error}"))
            self.close()

    def end(self) -> None:
        """Take note that the connection has ended."""
        self._finish(ConnectionResetError("the connection was closed before the answer was complete"))

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if self._body is not None:
            self._body.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Called by the parser."""
        if self._body is not None:
            self._body.feed(data, self._now)

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if not self._parser.should_keep_alive():
            self.close()
        self._finish(None)

    def _finish(self, error: ConnectionError | None) -> None:
        complete, self._complete, self._body = self._complete, None, None
        self.used = True
        if complete is None or complete.done():
            return
        if error is None:
            complete.set_result(True)
        else:
            complete.set_exception(error)


class Connections:
    """Connections to one server; a request never waits for a free one.

    Args:
        url: Base URL; its path is kept in front of every request's.
        reuse: Whether a connection carries another request after it was answered.

    Raises:
        ValueError: The URL is neither http nor https, or has no host.
    """

    def __init__(self, url: str, *, reuse: bool = True) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"url: {url!r} must be like http://10.0.0.1:8000")
        self._host = parts.hostname
        self._ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._ssl else 80)
        self._reuse = reuse
        self._idle: list[Connection] = []
        self._inbox: Inbox | None = None
        self.path = parts.path.rstrip("/")
        self.authority = parts.netloc.rpartition("@")[2]

    async def take(self, *, fresh: bool = False) -> Connection:
        """Return a connection that is ready to send on, the one used last where one is idle.

        Raises:
            OSError: No connection can be opened.
        """
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.open:
                return connection
        loop = asyncio.get_running_loop()
        inbox = self._inbox = self._inbox or Inbox(loop)
        _, connection = await loop.create_connection(lambda: Connection(inbox), self._host, self._port, ssl=self._ssl)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it."""
        if self._reuse and connection.open:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()
