"""A TCP listener that passes each connection on to one of several addresses."""

import asyncio
import contextlib
import secrets
import socket
import struct

_CHUNK = 1 << 16
_CONNECT_SECONDS = 2.0

Address = tuple[str, int]


class Forwarder:
    """Listens on one address while it has somewhere to pass connections on to; else connections are refused."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._backends: tuple[Address, ...] = ()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()

    async def set_backends(self, backends: tuple[Address, ...]) -> None:
        """Pass new connections on to these addresses; none closes the listener. Open connections stay as they are.

        Raises:
            OSError: The address cannot be listened on.
        """
        async with self._lock:
            self._backends = backends
            if backends and self._server is None:
                self._server = await asyncio.start_server(self._accept, *self.address, backlog=1024)
            elif not backends and self._server is not None:
                self._server.close()
                self._server = None

    async def close(self) -> None:
        """Stop listening and cut all connections."""
        await self.set_backends(())
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        backend = await self._connect()
        if backend is None:
            _reset(writer)
            return
        to_reader, to_writer = backend
        pumps = [asyncio.create_task(_pump(reader, to_writer)), asyncio.create_task(_pump(to_reader, writer))]
        try:
            await asyncio.gather(*pumps)
        except OSError:
            # One side broke the connection: break the other as well, so that it does not take this for an end.
            _reset(writer)
            _reset(to_writer)
        finally:
            for pump in pumps:
                pump.cancel()
            writer.close()
            to_writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Return a connection to a random address that accepts one, or None if none does."""
        left = list(self._backends)
        while left:
            chosen = secrets.choice(left)
            left.remove(chosen)
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    return await asyncio.open_connection(*chosen)
            except OSError:
                continue
        return None


def _reset(writer: asyncio.StreamWriter) -> None:
    """Break the connection with a reset, as a refused one looks like to the client."""
    sock = writer.get_extra_info("socket")
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, then end the other direction too."""
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof() and not writer.is_closing():
        writer.write_eof()
