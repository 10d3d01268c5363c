"""Stands before a simulated engine and does to it what a cluster would: replace its process, or lose requests.

Run as a program: `faulty_engine.py PLAN -- ENGINE COMMAND`. It takes over the engine's `--port`, and the engine listens
on a free one. The plan is JSON: `failEvery` answers each n-th completion with HTTP 500, `restartAfter` replaces the
engine's process so many seconds after the first completion.
"""

import asyncio
import json
import socket
import sys
from contextlib import suppress

import aiohttp
from aiohttp import web


class FaultyEngine:
    def __init__(self, plan, command):
        self._plan = plan
        at = command.index("--port") + 1
        self._host, self._port = command[command.index("--host") + 1], int(command[at])
        with socket.socket() as free:
            free.bind((self._host, 0))
            inner = free.getsockname()[1]
        self._command = [*command[:at], str(inner), *command[at + 1 :]]
        self._inner = f"http://{self._host}:{inner}"
        self._completions = 0
        self._engine = self._restarting = None

    async def run(self):
        self._engine = await asyncio.create_subprocess_exec(*self._command)
        timeout, connector = aiohttp.ClientTimeout(total=None), aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as self._session:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self._forward)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, self._host, self._port).start()
            await self._engine.wait()
            await self._restarting
            await self._engine.wait()

    async def _forward(self, request):
        if request.path == "/v1/completions":
            self._completions += 1
            if self._completions == 1 and "restartAfter" in self._plan:
                self._restarting = asyncio.create_task(self._restart())
            if self._completions % self._plan.get("failEvery", sys.maxsize) == 0:
                return web.json_response({"error": "on purpose"}, status=500)
        body, response = await request.read(), web.StreamResponse()
        headers = {"Content-Type": request.headers.get("Content-Type", "application/json")}
        try:
            async with self._session.request(
                request.method, self._inner + request.path, data=body, headers=headers
            ) as got:
                response.set_status(got.status)
                response.headers["Content-Type"] = got.headers.get("Content-Type", "text/plain")
                await response.prepare(request)
                async for chunk in got.content.iter_any():
                    await response.write(chunk)
        except aiohttp.ClientError:
            if not response.prepared:
                return web.Response(status=503)
        with suppress(ConnectionResetError):
            await response.write_eof()
        return response

    async def _restart(self):
        await asyncio.sleep(self._plan["restartAfter"])
        self._engine.kill()
        await self._engine.wait()
        self._engine = await asyncio.create_subprocess_exec(*self._command)


if __name__ == "__main__":
    split = sys.argv.index("--")
    asyncio.run(FaultyEngine(json.loads(sys.argv[1]), sys.argv[split + 1 :]).run())
