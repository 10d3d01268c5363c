"""`python -m frontier_local.engine`: start, serve, and end as a real engine does.

Exit codes: 0 after SIGTERM or SIGINT, 1 when the engine cannot start or dies, 2 when the command line cannot be read.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from typing import NoReturn

from aiohttp import web

from frontier_local.engine.arguments import EngineArguments, parse_arguments
from frontier_local.engine.environment import Environment, read_environment
from frontier_local.engine.errors import ArgumentsRefusedError, EngineEndedError
from frontier_local.engine.plan import EnginePlan, plan_engine
from frontier_local.engine.server import Engine
from frontier_tuner.errors import FactsError
from frontier_tuner.facts import gpu_facts, model_facts

DRAIN_SECONDS = 30.0
BACKLOG = 2048

_log = logging.getLogger("frontier_local.engine")


def main() -> int:
    """Run the engine of this process's command line and environment; return the exit code."""
    arguments = parse_arguments(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(levelname)s %(asctime)s %(message)s")
    try:
        environment = read_environment(os.environ, " ".join(sys.argv[1:]))
        plan = _plan(arguments, environment)
        asyncio.run(_serve(arguments, plan, environment))
    except EngineEndedError as error:
        _log.error("The engine cannot start.")
        sys.stdout.flush()
        sys.stderr.write(error.last_line + "\n")
        return 1
    return 0


def _plan(arguments: EngineArguments, environment: Environment) -> EnginePlan:
    try:
        model, gpu = model_facts(arguments.model, {}), gpu_facts(environment.gpu)
    except FactsError as error:
        raise ArgumentsRefusedError(str(error)) from error
    plan = plan_engine(arguments, model, gpu, environment)
    _log.info("Simulating %s on %s, %g times as fast as real", model.name, gpu.product, environment.time_scale)
    capacity = plan.limits.blocks * plan.limits.block_size
    _log.info("GPU KV cache size: %s tokens", f"{capacity:,}")
    concurrency = capacity / plan.max_model_len
    _log.info("Maximum concurrency for %s tokens per request: %.2fx", f"{plan.max_model_len:,}", concurrency)
    return plan


async def _serve(arguments: EngineArguments, plan: EnginePlan, environment: Environment) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    # Taken at once, listened on when ready: a port in use is known early, and callers are refused until then.
    taken = _take_port(arguments.host, arguments.port)
    try:
        seconds = _start_seconds(plan, environment)
        _log.info("Loading the model, ready in %.1f s", seconds)
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        await _serve_until(stop, Engine(arguments, plan, environment, _die), taken)
    finally:
        taken.close()


async def _serve_until(stop: asyncio.Event, engine: Engine, taken: socket.socket) -> None:
    # A client that goes away must free its sequence at once, so its handler is cancelled.
    runner = web.AppRunner(engine.application(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    site = web.SockSite(runner, taken, backlog=BACKLOG)
    await site.start()
    host, port = taken.getsockname()[:2]
    _log.info("Application startup complete on http://%s:%d", host, port)
    await stop.wait()
    _log.info("Shutting down")
    drain = asyncio.create_task(engine.drain(DRAIN_SECONDS))
    await site.stop()
    await drain
    await runner.cleanup()


def _take_port(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind((host, port))
    except OSError as error:
        taken.close()
        raise EngineEndedError(f"--host {host} --port {port} cannot be listened on: {error.strerror}") from error
    return taken


def _start_seconds(plan: EnginePlan, environment: Environment) -> float:
    planned = plan.start_seconds / environment.time_scale
    given = environment.start_seconds
    return (planned if given is None else given) + environment.faults.start_delay_seconds


def _die(error: EngineEndedError) -> NoReturn:
    """End at once, as a crashed engine core does: no answer, no clean-up."""
    sys.stdout.flush()
    sys.stderr.write(error.last_line + "\n")
    sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
