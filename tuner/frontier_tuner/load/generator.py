"""Holds one level of load on one engine, from the first scrape of zeros to the last scrape of the results.

A request belongs to the phase in which it was due; a token to the phase in which it arrived. The measured window
runs from the first request sent after the warm-up to the moment the sending stops, so tokens counted within it,
divided by its length, are the throughput. Requests in flight at its end are waited for within a bound. One that does
not make it is `cut`: its tokens so far count for TTFT and ITL, the time it waited in vain counts as a TTFT (a lower
bound, so that an overload cannot hide), and it gives no E2E latency; whoever reads a quantile of those must count it
as one of the longest.

A rule may end the window before its time, once what it shows is known well enough. Requests in flight then are waited
for as at any other end.

An open loop sends when a request is due, whatever became of those before it, and its latencies count from then: what
the generator itself is late by is part of them, and is exported on its own as its lag. A request that is not sent by
the end of the window is counted as unsent. Nothing backs off: a closed loop goes on with the next request when one
has failed.
"""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from frontier_tuner.load.answer import Answer
from frontier_tuner.load.client import Client
from frontier_tuner.load.connection import Connections
from frontier_tuner.load.exporter import Exporter, happens_within
from frontier_tuner.load.metrics import DRAIN, MEASURE, WARM_UP, LoadMetrics
from frontier_tuner.load.options import LoadOptions, exactly
from frontier_tuner.load.progress import EndingRule, Progress
from frontier_tuner.load.records import Records
from frontier_tuner.load.schedule import arrivals, recorded_arrivals, replayed_arrivals
from frontier_tuner.load.sessions import Position, SessionQueue
from frontier_tuner.load.summary import LoadSummary
from frontier_tuner.load.tally import Tally
from frontier_tuner.load.workload import Prompts, Workload, parse_workload
from frontier_tuner.measurement import Ending, Load

MAX_DRAIN_SECONDS = 10.0
_TICK_SECONDS = 0.02
_PAUSE_AFTER_FAILURE_SECONDS = 0.05
"""A slot of a closed loop whose request failed is used again after this: a server that is not there is no busy loop."""
_GRACE_SECONDS = 0.25
"""So long after the end of its phase a request that was due in it may still be sent."""
_PARTS = 10
"""Looks at a window before the earliest moment at which it may end: its intervals come from how its parts differ."""
_MAX_LOOK_SECONDS = 2.0
_MIN_LOOK_SECONDS = 0.2
_RAMP_SHARE = 0.5
"""A closed loop fills its slots over this share of the warm-up: requests of one length that start together would end
together, and their prompts would meet again and again."""


async def generate(options: LoadOptions, rule: EndingRule | None = None) -> LoadSummary:
    """Run the load and return its summary; the metrics are served while it runs.

    Args:
        options: What to send where.
        rule: Ends the window before its time. It is asked in a thread. A replay in a trace's own time has its rate only
            as a whole, and is never cut short.

    Raises:
        ValueError: The workload or the load cannot be; nothing was sent.
        OSError: The metrics cannot be served on the address, or the records cannot be written.
    """
    workload = parse_workload(options.resolved_workload)
    if options.time_scale is not None and workload.trace is None:
        raise ValueError("time scale: only a trace has a time of its own; give a request rate")
    connections = Connections(options.url, reuse=not options.new_connections)
    client = Client(connections, options.model, options.timeout_seconds, options.api_key)
    try:
        with Records(options.records) as records:
            return await _Generator(options, workload, client, records, rule).run()
    finally:
        connections.close()


class _Generator:
    """The state of one run; see the module for the rules."""

    def __init__(
        self, options: LoadOptions, workload: Workload, client: Client, records: Records, rule: EndingRule | None
    ) -> None:
        self._rule = rule
        self._course: list[Progress] = []
        self._ending: Ending | None = None
        self._options = options
        self._workload = workload
        self._client = client
        self._records = records
        self._metrics = LoadMetrics(options.slos)
        self._exporter = Exporter(self._metrics)
        self._tally = Tally(self._metrics)
        level = f"{options.load.kind}:{exactly(options.load.value)}"
        self._prompts = Prompts(workload, options.seed, level, options.vocabulary)
        self._queue = SessionQueue(workload.turns, workload.think_seconds, f"{options.seed}:{level}")
        self._load = options.load
        self._phase = WARM_UP
        self._may_measure = False
        self._stopping = asyncio.Event()
        self._started = asyncio.Event()
        self._wall = datetime.now(UTC)
        self._zero = perf_counter()
        self._start = self._end = self._zero
        self._cpu_seconds = 0.0
        self._late_seconds = 0.0
        self._sent = self._unsent = self._launched = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self) -> LoadSummary:
        wait = self._options.scrape_wait_seconds
        async with self._exporter.serve(self._options.metrics_listen):
            await self._exporter.wait_for_scrape(wait)
            begin = perf_counter()
            ticker = asyncio.create_task(self._watch_lag())
            try:
                await self._hold()
                await self._drain()
            finally:
                ticker.cancel()
                await self._abandon()
            ending = self._ending or await self._time_up()
            scraped = await self._exporter.wait_for_scrape(wait)
            return self._summary(begin, perf_counter(), ending, scraped=scraped)

    async def _hold(self) -> None:
        """Hold the load until its time is up or its rule ends it."""
        closed = self._options.load.kind == "Concurrency"
        loop = asyncio.create_task(self._closed_loop() if closed else self._open_loop())
        watch = asyncio.create_task(self._watch_course(loop))
        try:
            await loop
        except asyncio.CancelledError:
            if self._ending is None:
                raise
        finally:
            self._stop()
            watch.cancel()
        if watch.done() and not watch.cancelled():
            watch.result()

    async def _watch_course(self, loop: asyncio.Task[None]) -> None:
        """End the loop once the rule says so."""
        options, rule = self._options, self._rule
        if rule is None:
            return
        await self._started.wait()
        look = min(max(options.min_window_seconds / _PARTS, _MIN_LOOK_SECONDS), _MAX_LOOK_SECONDS)
        while True:
            self._course.append(self._progress(perf_counter()))
            if options.time_scale is None and self._course[-1].seconds >= options.min_window_seconds:
                self._ending = await asyncio.to_thread(rule, tuple(self._course), over=False)
                if self._ending is not None:
                    loop.cancel()
                    return
            await asyncio.sleep(look)

    async def _time_up(self) -> Ending:
        """Return what the rule says of the whole window."""
        ending = None
        if self._rule is not None:
            ending = await asyncio.to_thread(self._rule, tuple(self._course), over=True)
        return ending or Ending("TimeUp", (), f"the time of {self._options.duration_seconds:g} s is up")

    def _progress(self, now: float) -> Progress:
        metrics = self._metrics
        return Progress(
            seconds=max(0.0, now - self._start),
            histograms=metrics.measured(),
            output_tokens=metrics.output_tokens[MEASURE],
            sent=self._sent,
            answered=metrics.requests[MEASURE, "ok"],
            in_flight=metrics.in_flight,
        )

    async def _closed_loop(self) -> None:
        slots = max(1, round(self._options.load.value))
        ramp = self._options.warm_up_seconds * _RAMP_SHARE
        for slot in range(slots):
            self._run(self._fill_slot(ramp * slot / slots))
        await asyncio.sleep(self._options.warm_up_seconds)
        self._may_measure = True
        if await happens_within(self._started, self._options.timeout_seconds):
            await _sleep_until(self._start + self._options.duration_seconds)
        else:
            self._start = perf_counter()

    async def _fill_slot(self, delay: float) -> None:
        await happens_within(self._stopping, delay)
        while not self._stopping.is_set():
            now = perf_counter()
            answered = await self._send(self._queue.take(now), now, measured=self._may_measure)
            if not answered:
                await happens_within(self._stopping, _PAUSE_AFTER_FAILURE_SECONDS)

    async def _open_loop(self) -> None:
        options = self._options
        start = perf_counter()
        for phase, length in ((WARM_UP, options.warm_up_seconds), (MEASURE, options.duration_seconds)):
            moments = self._schedule(phase, length) if length else []
            if phase == MEASURE:
                self._may_measure, self._start = True, start
                if options.time_scale is not None:
                    self._load = Load("RequestRate", max(1, len(moments)) / length)
            for index, moment in enumerate(moments):
                await _sleep_until(start + moment)
                if perf_counter() > start + length + _GRACE_SECONDS:
                    self._unsent += (len(moments) - index) if self._may_measure else 0
                    break
                position = self._queue.take(perf_counter())
                self._run(self._send(position, start + moment, measured=self._may_measure))
            self._launched += len(moments)
            start += length
            await _sleep_until(start)

    def _schedule(self, phase: str, length: float) -> list[float]:
        options, workload = self._options, self._workload
        if workload.trace is not None and options.time_scale is not None:
            start = options.warm_up_seconds if phase == MEASURE else 0.0
            return replayed_arrivals(workload.trace, self._launched, start, length, options.time_scale)
        if workload.trace is not None and workload.arrivals.pattern == "Recorded":
            return recorded_arrivals(workload.trace, self._launched, options.load.value, length)
        return arrivals(options.load.value, length, workload.arrivals.shape, f"{options.seed}:{phase}")

    def _run(self, sending: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(sending)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self) -> None:
        self._stopping.set()
        self._phase = DRAIN
        self._end = perf_counter()
        self._course.append(self._progress(self._end))
        self._cpu_seconds = time.process_time() - self._cpu_seconds if self._started.is_set() else 0.0

    async def _send(self, position: Position, intended: float, *, measured: bool) -> bool:
        request = self._prompts.request(position)
        phase = MEASURE if measured else WARM_UP
        metrics = self._metrics
        metrics.input_tokens[phase] += request.input_tokens
        metrics.shared_tokens[phase] += request.shared_tokens
        metrics.in_flight += 1
        answer, cut = Answer(intended), False
        if self._options.load.kind == "RequestRate":
            metrics.observe_lag(phase, perf_counter() - intended)
        if measured:
            self._enter_window(intended)
        try:
            await self._client.complete(request, answer, self._count_tokens)
        except asyncio.CancelledError:
            cut = True
        metrics.in_flight -= 1
        now = perf_counter()
        result = self._tally.record(phase, answer, now, cut=cut)
        if result == "ok":
            self._queue.answered(position, now)
        self._records.write(position, request, phase, result, answer, self._time(intended, 6))
        return result == "ok"

    def _enter_window(self, intended: float) -> None:
        self._sent += 1
        if not self._started.is_set():
            self._start = perf_counter()
            self._cpu_seconds = time.process_time()
            self._phase = MEASURE
            self._late_seconds = self._start - intended
            self._started.set()

    def _count_tokens(self, tokens: int) -> None:
        self._metrics.output_tokens[self._phase] += tokens

    async def _drain(self) -> None:
        seen = max(histogram.quantile(0.95) for histogram in self._metrics.e2e.values())
        bound = min(self._options.timeout_seconds, MAX_DRAIN_SECONDS, 2 * seen or MAX_DRAIN_SECONDS)
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=bound)

    async def _abandon(self) -> None:
        """Cancel what is still under way, so that no connection outlives the run."""
        left = tuple(self._tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _watch_lag(self) -> None:
        while True:
            due = perf_counter() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            phase = MEASURE if self._phase == MEASURE else WARM_UP
            self._metrics.observe_lag(phase, perf_counter() - due)

    def _summary(self, begin: float, scraped_at: float, ending: Ending, *, scraped: bool) -> LoadSummary:
        metrics = self._metrics
        length = self._end - self._start
        return LoadSummary(
            load=self._load,
            begin=self._time(begin),
            start=self._time(self._start),
            end=self._time(self._end),
            scraped_at=self._time(scraped_at),
            sent=self._sent,
            ok=metrics.requests[MEASURE, "ok"],
            failed=metrics.requests[MEASURE, "failed"],
            cut=metrics.requests[MEASURE, "cut"],
            input_tokens=metrics.input_tokens[MEASURE],
            output_tokens=metrics.output_tokens[MEASURE],
            lag_p99_seconds=min(metrics.lag[MEASURE].quantile(0.99), metrics.lag_max[MEASURE]),
            late_seconds=self._late_seconds,
            scraped=scraped,
            first_error=self._tally.first_error,
            lag_max_seconds=metrics.lag_max[MEASURE],
            unsent=self._unsent,
            malformed=self._tally.malformed,
            cpu_percent=round(100 * self._cpu_seconds / length) if length > 0 else 0,
            shared_tokens=metrics.shared_tokens[MEASURE],
            ended=ending,
        )

    def _time(self, moment: float, digits: int = 3) -> datetime:
        seconds = round(self._wall.timestamp() + moment - self._zero, digits)
        return datetime.fromtimestamp(seconds, UTC)


async def _sleep_until(moment: float) -> None:
    """Return at a moment, or at once where it has passed, but never without giving others their turn."""
    await asyncio.sleep(moment - perf_counter())
    # An event loop's timers are in whole milliseconds and may fire before their time.
    while (rest := moment - perf_counter()) > 0:  # noqa: ASYNC110 - time is no event
        await asyncio.sleep(rest)
