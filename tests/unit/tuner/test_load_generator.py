import asyncio
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from frontier_tuner.load.generator import generate
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.measurement import Load

WORKLOAD = {"profile": {"inputTokens": {"mean": 8}, "outputTokens": {"mean": 4}}}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@asynccontextmanager
async def engine(answer):
    """An engine whose completions are what `answer(body, response)` writes."""
    seen = []

    async def complete(request):
        body = await request.json()
        seen.append(body)
        if answer == "refuse":
            return web.json_response({"error": "no room"}, status=503)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await answer(body, response)
        return response

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}", seen
    finally:
        await runner.cleanup()


async def tokens(body, response):
    for count in range(1, body["max_tokens"] + 1):
        await asyncio.sleep(0.002)
        await response.write(b'data: {"choices":[{"text":"x"}],"usage":{"completion_tokens":%d}}\n\n' % count)
    await response.write(b"data: [DONE]\n\n")


async def one_token_then_nothing(_, response):
    await response.write(b'data: {"choices":[{"text":"x"}],"usage":{"completion_tokens":1}}\n\n')
    await asyncio.sleep(60)


def make_options(url, **over):
    values = {
        "load": Load("Concurrency", 3),
        "duration_seconds": 0.4,
        "warm_up_seconds": 0.1,
        "scrape_wait_seconds": 0.0,
        "timeout_seconds": 5.0,
        "metrics_listen": f"127.0.0.1:{free_port()}",
    }
    return LoadOptions(url, "m", workload=WORKLOAD, **{**values, **over})


async def test_a_closed_loop_counts_what_it_sends_and_asks_for_exact_lengths():
    async with engine(tokens) as (url, seen):
        summary = await generate(make_options(url))
    assert summary.sent == summary.ok > 3
    assert (summary.failed, summary.cut, summary.first_error, summary.scraped) == (0, 0, "", False)
    assert summary.input_tokens == 8 * summary.sent
    assert summary.window.seconds == pytest.approx(0.4, abs=0.3)
    assert {(len(body["prompt"]), body["max_tokens"], body["stream"], body["ignore_eos"]) for body in seen} == {
        (8, 4, True, True)
    }
    assert len({tuple(body["prompt"]) for body in seen}) == len(seen)


async def test_an_open_loop_sends_as_many_as_its_rate_asks_whatever_the_server_does():
    async with engine(one_token_then_nothing) as (url, _):
        load = Load("RequestRate", 50)
        summary = await generate(make_options(url, load=load, warm_up_seconds=0.0, timeout_seconds=0.6))
    assert summary.sent == 20
    assert summary.failed + summary.cut == 20


async def test_refused_requests_are_failed_and_say_why():
    async with engine("refuse") as (url, _):
        summary = await generate(make_options(url))
    assert (summary.ok, summary.cut) == (0, 0)
    assert summary.failed == summary.sent > 0
    assert summary.first_error.startswith("HTTP 503")
    assert "no room" in summary.first_error


async def test_an_engine_that_is_not_there_is_not_flooded():
    summary = await generate(make_options(f"http://127.0.0.1:{free_port()}"))
    assert summary.ok == 0
    assert 0 < summary.failed < 100


async def test_it_waits_for_a_scrape_of_zeros_and_for_one_of_the_final_values():
    async with engine(tokens) as (url, seen):
        options = make_options(url, scrape_wait_seconds=30.0)
        run = asyncio.create_task(generate(options))
        scrapes = []
        async with aiohttp.ClientSession() as session:
            while not run.done():
                try:
                    async with session.get(f"http://{options.metrics_listen}/metrics") as response:
                        scrapes.append((len(seen), samples(await response.text())))
                except aiohttp.ClientError:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
        summary = await run
    assert summary.scraped
    asked, first = scrapes[0]
    assert asked == 0
    assert set(first.values()) == {0.0}
    last = scrapes[-1][1]
    assert last["frontier_load_requests_total", "measure", "ok"] == summary.ok
    assert last["frontier_load_e2e_seconds_count", "measure", ""] == summary.ok + summary.cut
    assert last["frontier_load_ttft_seconds_count", "measure", ""] == summary.ok + summary.cut
    assert last["frontier_load_itl_seconds_count", "measure", ""] == 3 * summary.ok
    assert last["frontier_load_output_tokens_total", "measure", ""] == summary.output_tokens


async def test_failed_requests_leave_no_latency():
    answered = 0

    async def sometimes(body, response):
        nonlocal answered
        answered += 1
        if answered % 2:
            await response.write(b'data: {"error": "broken"}\n\n')
        else:
            await tokens(body, response)

    async with engine(sometimes) as (url, _):
        options = make_options(url, scrape_wait_seconds=30.0)
        run = asyncio.create_task(generate(options))
        text = ""
        async with aiohttp.ClientSession() as session:
            while not run.done():
                try:
                    async with session.get(f"http://{options.metrics_listen}/metrics") as response:
                        text = await response.text()
                except aiohttp.ClientError:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.05)
        summary = await run
    assert summary.failed > 0 < summary.ok
    assert "broken" in summary.first_error
    assert samples(text)["frontier_load_ttft_seconds_count", "measure", ""] == summary.ok + summary.cut


def samples(text):
    return {
        (sample.name, sample.labels.get("phase", ""), sample.labels.get("result", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
