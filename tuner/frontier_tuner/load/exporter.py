"""Serves the generator's metrics, and waits until they were scraped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from frontier_tuner.load.metrics import LoadMetrics


@asynccontextmanager
async def serve(metrics: LoadMetrics, listen: str) -> AsyncIterator[None]:
    """Serve the metrics on `HOST:PORT`; on leaving, let a scrape that is being answered finish."""
    host, _, port = listen.rpartition(":")
    registry = metrics.registry()

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or "0.0.0.0", int(port)).start()
        yield
    finally:
        await runner.cleanup()


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Return whether an event happened within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
