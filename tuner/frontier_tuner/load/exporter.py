"""Serves the generator's metrics, and waits until they were scraped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from frontier_tuner.load.metrics import LoadMetrics


class Exporter:
    """Serves metrics; a scrape is written in a thread, because it takes as long as hundreds of tokens.

    Args:
        metrics: What is served.
    """

    def __init__(self, metrics: LoadMetrics) -> None:
        self._registry = metrics.registry()
        self._waits = 0
        self._scraped = asyncio.Event()

    @asynccontextmanager
    async def serve(self, listen: str) -> AsyncIterator[None]:
        """Serve on `HOST:PORT` within the context; on leaving it, let a scrape that is being answered finish."""
        host, _, port = listen.rpartition(":")
        app = web.Application()
        app.router.add_get("/metrics", self._answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host or "0.0.0.0", int(port)).start()
            yield
        finally:
            await runner.cleanup()

    async def wait_for_scrape(self, seconds: float) -> bool:
        """Return whether a scrape that began after this call was answered within so many seconds."""
        self._waits += 1
        self._scraped.clear()
        return await happens_within(self._scraped, seconds)

    async def _answer(self, _: web.Request) -> web.Response:
        wait = self._waits
        body = await asyncio.to_thread(generate_latest, self._registry)
        if wait == self._waits:
            self._scraped.set()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event happened within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
