"""The engine's HTTP side: the OpenAI API, health and metrics over one or more replicas."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from itertools import cycle
from time import monotonic, time

from aiohttp import ClientConnectionResetError, web

from frontier_local.engine.arguments import EngineArguments
from frontier_local.engine.environment import Environment
from frontier_local.engine.errors import EngineEndedError
from frontier_local.engine.metrics import EngineCollector, Source, render
from frontier_local.engine.plan import EnginePlan
from frontier_local.engine.protocol import Request, RequestRefusedError, Served, Writer, read_request
from frontier_local.engine.replica import Answer, Replica
from frontier_local.engine.scheduler import RunningSequence
from frontier_local.engine.text import Speech

VERSION = "0.33.0"
LARGEST_BODY = 64 * 1024**2
MEAN_NATURAL_TOKENS = 200
"""Where the end is left to the model, answers have this many tokens on average."""
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Engine:
    """A started engine.

    Args:
        arguments: What was typed.
        plan: What it means.
        environment: The simulation's settings.
        crash: Ends the process; called when the fault is due.

    The noise follows the seed, the arguments and the address: other configurations and other pods draw their own, and
    the same command line draws the same again.
    """

    def __init__(
        self,
        arguments: EngineArguments,
        plan: EnginePlan,
        environment: Environment,
        crash: Callable[[EngineEndedError], None],
    ) -> None:
        self._faults = environment.faults
        self._crash = crash
        self._served = Served(arguments.served_model_name, plan.shape.model.vocabulary, plan.max_model_len)
        self._speech = Speech(plan.shape.model.vocabulary)
        self._created = int(time())
        self._arrived = 0
        self._draining = False
        self.replicas = [
            Replica(
                plan,
                time_scale=environment.time_scale,
                noise_percent=environment.noise_percent,
                acceptance=environment.acceptance_percent / 100,
                seed=f"{environment.seed} {arguments} {index}",
            )
            for index in range(arguments.data_parallel_size)
        ]
        self._turn = cycle(self.replicas)
        self._collector = EngineCollector(
            arguments.served_model_name[0],
            [Source(replica.metrics, replica.scheduler) for replica in self.replicas],
            _cache_config(arguments, plan),
            nan=self._faults.nan_metrics,
        )

    def application(self) -> web.Application:
        """Return the HTTP application; the replicas step while it runs."""
        application = web.Application(client_max_size=LARGEST_BODY)
        application.add_routes(
            [
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
            ]
        )
        application.cleanup_ctx.append(self._run_replicas)
        return application

    async def drain(self, seconds: float) -> None:
        """Refuse new requests and wait until the others are answered, for at most so many seconds."""
        self._draining = True
        idle = asyncio.gather(*(replica.idle.wait() for replica in self.replicas))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(idle, seconds)

    async def _run_replicas(self, _: web.Application) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(replica.run()) for replica in self.replicas]
        if self._faults.reset_counters_after_seconds is not None:
            tasks.append(asyncio.create_task(self._reset_counters(self._faults.reset_counters_after_seconds)))
        yield
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _reset_counters(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        for replica in self.replicas:
            replica.metrics.reset()

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=503 if self._draining else 200)

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _models(self, _: web.Request) -> web.Response:
        models = [
            {
                "id": name,
                "object": "model",
                "created": self._created,
                "owned_by": "vllm",
                "root": self._served.names[0],
                "parent": None,
                "max_model_len": self._served.max_model_len,
            }
            for name in self._served.names
        ]
        return web.json_response({"object": "list", "data": models})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=render(self._collector), headers={"Content-Type": METRICS_TYPE})

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        return await self._serve(http, chat=False)

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        return await self._serve(http, chat=True)

    async def _serve(self, http: web.Request, *, chat: bool) -> web.StreamResponse:
        arrived = monotonic()
        try:
            request = read_request(await _json(http), self._served, chat=chat)
            self._count_arrival()
        except RequestRefusedError as refusal:
            return web.json_response(refusal.body(), status=refusal.status)
        answer = self._answer(request, arrived)
        replica = next(self._turn)
        replica.submit(answer)
        try:
            if request.stream:
                return await _stream(http, request, answer)
            while answer.finish_reason is None:
                await answer.take()
            text = answer.utterance.text(0, answer.generated)
            cached = answer.sequence.cached_tokens or 0
            return web.json_response(Writer(request).whole(text, answer.generated, cached, answer.finish_reason))
        finally:
            replica.abort(answer)

    def _count_arrival(self) -> None:
        if self._draining:
            message = "the engine is shutting down"
            raise RequestRefusedError(message, status=503, kind="ServiceUnavailableError")
        self._arrived += 1
        if self._arrived == self._faults.crash_after_requests:
            self._crash(EngineEndedError("The engine core died while it executed the model; see the log above."))
        if self._arrived == self._faults.hang_after_requests:
            for replica in self.replicas:
                replica.hung = True
        if self._arrived == self._faults.slow_after_requests:
            for replica in self.replicas:
                replica.slowness = self._faults.slow_factor

    def _answer(self, request: Request, arrived: float) -> Answer:
        utterance = self._speech.start(request.prompt, request.seed)
        stop = None
        if not request.ignore_eos:
            natural = 1 + int(-math.log(1 - utterance.uniform()) * MEAN_NATURAL_TOKENS)
            stop = max(natural, request.min_tokens)
        sequence = RunningSequence(
            tokens=list(request.prompt),
            prompt_tokens=len(request.prompt),
            max_tokens=request.max_tokens,
            stop_after=stop,
            next_token=utterance.token,
        )
        return Answer(sequence, utterance, arrived)


async def _json(http: web.Request) -> object:
    try:
        return await http.json()
    except ValueError as error:
        raise RequestRefusedError(f"the body is no JSON: {error}") from error


async def _stream(http: web.Request, request: Request, answer: Answer) -> web.StreamResponse:
    """Write one chunk for each step's tokens; a client that has gone ends the stream quietly."""
    writer = Writer(request)
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    response.enable_chunked_encoding()
    try:
        await response.prepare(http)
        if opening := writer.opening():
            await response.write(opening)
        finished = False
        while not finished:
            new = await answer.take()
            taken = answer.taken
            finished = answer.finish_reason is not None
            text = answer.utterance.text(taken - new, new)
            chunk = writer.chunk(text, taken, answer.finish_reason)
            if finished:
                chunk += writer.closing(taken, answer.sequence.cached_tokens or 0)
            await response.write(chunk)
        await response.write_eof()
    except (ClientConnectionResetError, ConnectionResetError):
        pass
    return response


def _cache_config(arguments: EngineArguments, plan: EnginePlan) -> dict[str, str]:
    return {
        "block_size": str(plan.limits.block_size),
        "cache_dtype": arguments.kv_cache_dtype,
        "enable_prefix_caching": str(plan.limits.prefix_caching),
        "gpu_memory_utilization": str(arguments.gpu_memory_utilization),
        "num_gpu_blocks": str(plan.limits.blocks),
        "sliding_window": str(plan.shape.model.sliding_window or None),
    }
