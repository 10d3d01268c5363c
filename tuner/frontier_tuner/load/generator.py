"""Holds one level of load on one engine, from the first scrape of zeros to the last scrape of the results.

A request belongs to the phase in which it was sent; a token to the phase in which it arrived. The measured window
runs from the first request sent after the warm-up to the moment the sending stops, so tokens counted within it,
divided by its length, are the throughput. Requests in flight at its end are waited for within a bound. One that does
not make it is `cut`: its tokens so far count for TTFT and ITL, the time it waited in vain counts as a TTFT (a lower
bound, so that an overload cannot hide), and it gives no E2E latency; whoever reads a quantile of those must count it
as one of the longest.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from frontier_tuner.load.client import Answer, Client
from frontier_tuner.load.metrics import DRAIN, MEASURE, WARM_UP, LoadMetrics
from frontier_tuner.load.options import LoadOptions, exactly
from frontier_tuner.load.schedule import arrivals, position
from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.load.workload import Prompts, Workload, parse_workload

MAX_DRAIN_SECONDS = 10.0
_TICK_SECONDS = 0.05
_PAUSE_AFTER_FAILURE_SECONDS = 0.05


async def generate(options: LoadOptions) -> LoadSummary:
    """Run the load and return its summary; the metrics are served while it runs.

    Raises:
        ValueError: The workload or the load cannot be; nothing was sent.
        OSError: The metrics cannot be served on the address.
    """
    workload = parse_workload(options.workload)
    connector = aiohttp.TCPConnector(limit=0, force_close=options.new_connections)
    no_limit = aiohttp.ClientTimeout(total=None, sock_connect=options.timeout_seconds)
    async with aiohttp.ClientSession(connector=connector, timeout=no_limit) as session:
        client = Client(session, options.url, options.model, options.timeout_seconds)
        return await _Generator(options, workload, client).run()


class _Generator:
    """The state of one run; see the module for the rules."""

    def __init__(self, options: LoadOptions, workload: Workload, client: Client) -> None:
        self._options = options
        self._workload = workload
        self._client = client
        self._scraped = asyncio.Event()
        self._metrics = LoadMetrics(options.slos, on_collect=self._scraped.set)
        level = f"{options.load.kind}:{exactly(options.load.value)}"
        self._prompts = Prompts(workload, options.seed, level, options.vocabulary)
        self._phase = WARM_UP
        self._may_measure = False
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._wall = datetime.now(UTC)
        self._zero = perf_counter()
        self._start = self._end = self._zero
        self._late_seconds = 0.0
        self._sent = 0
        self._first_error = ""
        self._next_session = 0
        self._in_flight: set[asyncio.Task[Any]] = set()

    async def run(self) -> LoadSummary:
        async with _serve(self._metrics, self._options.metrics_listen):
            await self._wait_for_scrape()
            begin = perf_counter()
            ticker = asyncio.create_task(self._watch_lag())
            closed = self._options.load.kind == "Concurrency"
            await (self._closed_loop() if closed else self._open_loop())
            await self._drain()
            ticker.cancel()
            scraped = await self._wait_for_scrape()
            return self._summary(begin, perf_counter(), scraped=scraped)

    async def _closed_loop(self) -> None:
        workers = [asyncio.create_task(self._worker()) for _ in range(max(1, round(self._options.load.value)))]
        self._in_flight.update(workers)
        await asyncio.sleep(self._options.warm_up_seconds)
        self._may_measure = True
        await self._hold_window()

    async def _hold_window(self) -> None:
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                await self._started.wait()
        except TimeoutError:
            self._start = perf_counter()
        else:
            await asyncio.sleep(self._start + self._options.duration_seconds - perf_counter())
        self._stop()

    def _stop(self) -> None:
        self._stopping.set()
        self._phase = DRAIN
        self._end = perf_counter()

    async def _worker(self) -> None:
        while not self._stopping.is_set():
            session, self._next_session = self._next_session, self._next_session + 1
            for turn in range(self._workload.turns):
                if turn and self._workload.think_seconds and await self._stopped_within(self._workload.think_seconds):
                    return
                answered = await self._send(session, turn)
                # A server that refuses at once would otherwise be flooded.
                if not answered and await self._stopped_within(_PAUSE_AFTER_FAILURE_SECONDS):
                    return
                if self._stopping.is_set():
                    return

    async def _stopped_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    async def _open_loop(self) -> None:
        options = self._options
        parallel = (
            max(1, round(options.load.value * max(1.0, self._workload.think_seconds)))
            if self._workload.turns > 1
            else 1
        )
        count, start = 0, perf_counter()
        for phase, length in ((WARM_UP, options.warm_up_seconds), (MEASURE, options.duration_seconds)):
            self._may_measure = phase == MEASURE
            schedule = (
                arrivals(options.load.value, length, options.burstiness, f"{options.seed}:{phase}") if length else []
            )
            for moment in schedule:
                await asyncio.sleep(max(0.0, start + moment - perf_counter()))
                lag = perf_counter() - start - moment
                self._metrics.lag[phase].observe(max(0.0, lag))
                if self._may_measure and not self._started.is_set():
                    self._late_seconds = lag
                task = asyncio.create_task(self._send(*position(count, self._workload.turns, parallel)))
                self._in_flight.add(task)
                task.add_done_callback(self._in_flight.discard)
                count += 1
            start += length
            await asyncio.sleep(max(0.0, start - perf_counter()))
        self._stop()

    async def _send(self, session: int, turn: int) -> bool:
        request = self._prompts.request(session, turn)
        phase = self._enter_phase()
        self._metrics.input_tokens[phase] += request.input_tokens
        answer = Answer(perf_counter())
        try:
            await self._client.complete(request, answer, self._count_tokens)
        except asyncio.CancelledError:
            self._record(phase, "cut", answer)
            return False
        self._record(phase, "ok" if answer.done else "failed", answer)
        if answer.error and not self._first_error:
            self._first_error = answer.error
        return answer.done

    def _enter_phase(self) -> str:
        if self._may_measure:
            if not self._started.is_set():
                self._start = perf_counter()
                self._phase = MEASURE
                self._started.set()
            self._sent += 1
            return MEASURE
        return WARM_UP

    def _count_tokens(self, tokens: int) -> None:
        self._metrics.output_tokens[self._phase] += tokens

    def _record(self, phase: str, result: str, answer: Answer) -> None:
        metrics = self._metrics
        metrics.requests[phase, result] += 1
        if result == "failed":
            return
        metrics.ttft[phase].observe((answer.first or perf_counter()) - answer.sent)
        itl = metrics.itl[phase]
        for gap, tokens in answer.gaps:
            itl.observe(gap, tokens)
        if result == "ok" and answer.first is not None and answer.last is not None:
            metrics.e2e[phase].observe(answer.last - answer.sent)
            if answer.last > answer.first:
                metrics.user_speed[phase].observe((answer.tokens - 1) / (answer.last - answer.first))

    async def _drain(self) -> None:
        seen = max(histogram.quantile(0.95) for histogram in self._metrics.e2e.values())
        bound = min(self._options.timeout_seconds, MAX_DRAIN_SECONDS, 2 * seen or MAX_DRAIN_SECONDS)
        if not self._in_flight:
            return
        _, pending = await asyncio.wait(tuple(self._in_flight), timeout=bound)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)

    async def _watch_lag(self) -> None:
        while True:
            before = perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            phase = MEASURE if self._phase == MEASURE else WARM_UP
            self._metrics.lag[phase].observe(max(0.0, perf_counter() - before - _TICK_SECONDS))

    async def _wait_for_scrape(self) -> bool:
        self._scraped.clear()
        try:
            async with asyncio.timeout(self._options.scrape_wait_seconds):
                await self._scraped.wait()
        except TimeoutError:
            return False
        return True

    def _summary(self, begin: float, scraped_at: float, *, scraped: bool) -> LoadSummary:
        requests = self._metrics.requests
        return LoadSummary(
            load=self._options.load,
            begin=self._time(begin),
            start=self._time(self._start),
            end=self._time(self._end),
            scraped_at=self._time(scraped_at),
            sent=self._sent,
            ok=requests[MEASURE, "ok"],
            failed=requests[MEASURE, "failed"],
            cut=requests[MEASURE, "cut"],
            input_tokens=self._metrics.input_tokens[MEASURE],
            output_tokens=self._metrics.output_tokens[MEASURE],
            lag_p99_seconds=self._metrics.lag[MEASURE].quantile(0.99),
            late_seconds=self._late_seconds,
            scraped=scraped,
            first_error=self._first_error,
        )

    def _time(self, moment: float) -> datetime:
        seconds = round(self._wall.timestamp() + moment - self._zero, 3)
        return datetime.fromtimestamp(seconds, UTC)


@asynccontextmanager
async def _serve(metrics: LoadMetrics, listen: str) -> AsyncIterator[None]:
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
