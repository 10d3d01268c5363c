"""The operator's process: `frontier-operator run`."""

import asyncio
import logging

import click
import kopf
from prometheus_client import start_http_server

from frontier_operator.handlers import probes, startup, tuning
from frontier_operator.settings import Settings
from frontier_operator.wiring import build


@click.group()
def main() -> None:
    """Find and serve the right point on the efficient frontier of LLM inference."""


@main.command()
@click.option("--verbose", is_flag=True, help="Log every decision.")
def run(*, verbose: bool) -> None:
    """Run the operator until it is told to stop."""
    kopf.configure(verbose=verbose)
    for noisy in ("kubernetes", "kopf.objects", "kopf.activities.probe", "aiohttp.access"):
        # They tell that handlers ran and probes came; what was decided is told by the loops.
        logging.getLogger(noisy).setLevel(logging.DEBUG if verbose else logging.WARNING)
    asyncio.run(serve(Settings()))


async def serve(settings: Settings, stop: asyncio.Event | None = None) -> None:
    """Run the operator with these settings until `stop` is set or the process is signalled."""
    context = build(settings)
    server, thread = start_http_server(settings.metrics_port, settings.listen_host)
    registry = kopf.OperatorRegistry()
    for part in (startup, tuning, probes):
        part.configure(registry, context)
    try:
        await kopf.operator(
            registry=registry,
            standalone=True,
            clusterwide=not settings.namespace_list,
            namespaces=settings.namespace_list,
            liveness_endpoint=f"http://{settings.listen_host}:{settings.health_port}/healthz",
            stop_flag=stop,
        )
    finally:
        server.shutdown()
        thread.join()


if __name__ == "__main__":
    main()
