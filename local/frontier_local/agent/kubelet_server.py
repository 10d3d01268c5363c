"""The kubelet API of a node, as far as `kubectl logs` needs it: HTTPS, for clients that the cluster vouches for."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

_POLL_SECONDS = 0.1
_CHUNK = 1 << 16


@dataclass(frozen=True)
class LogSource:
    """Where the logs of one container are.

    Attributes:
        directory: Holds one file for each start, `<restart count>.log`.
        running: Returns the restart count of the process that runs now, or None.
    """

    directory: Path
    running: Callable[[], int | None]

    def starts(self) -> list[int]:
        """Return the restart counts that there is a log of, ascending."""
        return sorted(int(file.stem) for file in self.directory.glob("*.log") if file.stem.isdigit())

    def file(self, start: int) -> Path:
        """Return the log of one start."""
        return self.directory / f"{start}.log"


FindLogs = Callable[[str, str, str], LogSource | None]
"""Takes namespace, pod and container; returns None if this node has no such pod or container."""


class KubeletServer:
    """Serves `/containerLogs/{namespace}/{pod}/{container}`; says that it cannot exec, attach or forward ports."""

    def __init__(self, find: FindLogs, certificate: Path, key: Path, client_ca: Path) -> None:
        """Take where logs are found, the serving certificate and the CA of those who may ask."""
        self._find = find
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client_ca))
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._context.load_cert_chain(certificate, key)
        self._runner: web.AppRunner | None = None

    async def start(self, addresses: Sequence[str], port: int) -> None:
        """Listen on the port of these addresses.

        Raises:
            OSError: An address cannot be listened on.
        """
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_get("/healthz", self._healthz)
        for verb in ("exec", "attach", "portForward", "run"):
            app.router.add_route("*", f"/{verb}/{{rest:.*}}", self._refuse)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await self._runner.setup()
        for address in addresses:
            await web.TCPSite(self._runner, address, port, ssl_context=self._context).start()

    async def stop(self) -> None:
        """Stop listening and cut what is being followed."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _refuse(self, request: web.Request) -> web.Response:
        verb = request.path.split("/")[1]
        return web.Response(status=501, text=f"the node agent runs pods as local processes and cannot {verb}\n")

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        names = request.match_info
        source = self._find(names["namespace"], names["pod"], names["container"])
        if source is None:
            text = f'container "{names["container"]}" of pod "{names["pod"]}" is not on this node\n'
            return web.Response(status=404, text=text)
        query = request.query
        for option in ("timestamps", "sinceSeconds", "sinceTime"):
            if query.get(option, "false") != "false":
                text = f"the node agent keeps logs without times: option {option} is not available\n"
                return web.Response(status=400, text=text)
        starts = source.starts()
        previous = query.get("previous") == "true"
        if len(starts) < (2 if previous else 1):
            what = f'previous terminated container "{names["container"]}" in pod "{names["pod"]}" not found\n'
            waiting = f'container "{names["container"]}" in pod "{names["pod"]}" is waiting to start\n'
            return web.Response(status=400, text=what if previous else waiting)
        start = starts[-2] if previous else starts[-1]
        limit = int(query["limitBytes"]) if "limitBytes" in query else None
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        follow = query.get("follow") == "true" and not previous
        await _send(response, source, start, tail=int(query.get("tailLines", -1)), limit=limit, follow=follow)
        await response.write_eof()
        return response


async def _send(
    response: web.StreamResponse, source: LogSource, start: int, *, tail: int, limit: int | None, follow: bool
) -> None:
    """Send a log: its last `tail` lines (all if negative), at most `limit` bytes, and what is added while it grows."""
    with source.file(start).open("rb") as log:
        log.seek(tail_offset(source.file(start), tail))
        left = limit
        while True:
            # Asked before reading: what a process wrote before its end is there once it is known to have ended.
            running = source.running() == start
            while data := log.read(_CHUNK if left is None else min(_CHUNK, left)):
                await response.write(data)
                left = None if left is None else left - len(data)
            if not follow or not running or left == 0:
                return
            await asyncio.sleep(_POLL_SECONDS)


def tail_offset(path: Path, lines: int) -> int:
    """Return where the last `lines` lines of a file begin; 0 for all of them if negative."""
    size = path.stat().st_size
    if lines < 0:
        return 0
    if lines == 0:
        return size
    position, seen = size, 0
    with path.open("rb") as file:
        while position > 0:
            step = min(_CHUNK, position)
            position -= step
            file.seek(position)
            block = file.read(step)
            end = step
            if position + step == size and block.endswith(b"\n"):
                end -= 1
            while (found := block.rfind(b"\n", 0, end)) >= 0:
                seen += 1
                if seen == lines:
                    return position + found + 1
                end = found
    return 0
