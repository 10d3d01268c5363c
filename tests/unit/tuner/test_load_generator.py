import asyncio
import json
import socket
import statistics
import time
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import pairwise

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
    return LoadOptions(url, "m", **{"workload": WORKLOAD, **values, **over})


async def test_a_closed_loop_counts_what_it_sends_and_asks_for_exact_lengths():
    async with engine(tokens) as (url, seen):
        begun = time.monotonic()
        summary = await generate(make_options(url))
        took = time.monotonic() - begun
    assert summary.sent == summary.ok > 3
    assert (summary.failed, summary.cut, summary.first_error, summary.scraped) == (0, 0, "", False)
    assert summary.input_tokens == 8 * summary.sent
    assert 0.35 <= summary.window.seconds <= took
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


def records_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


class Stalling:
    """An engine that answers at once, but says nothing at all from one moment to another."""

    def __init__(self, start, end):
        self.start, self.end = start, end
        self.began = None

    async def __call__(self, body, response):
        now = time.monotonic()
        self.began = self.began or now
        since = now - self.began
        if self.start <= since < self.end:
            await asyncio.sleep(self.end - since)
        await response.write(b'data: {"choices":[{"text":"x"}],"usage":{"completion_tokens":1}}\n\ndata: [DONE]\n\n')


async def test_an_open_loop_omits_nothing_while_the_server_stalls(tmp_path):
    """A generator that waited for the stall to end would see one slow request; all that were due saw it."""
    path = tmp_path / "records.jsonl"
    async with engine(Stalling(0.5, 1.5)) as (url, _):
        options = make_options(
            url,
            load=Load("RequestRate", 100),
            arrivals="Constant",
            warm_up_seconds=0.0,
            duration_seconds=2.0,
            records=str(path),
        )
        summary = await generate(options)
    assert (summary.sent, summary.ok, summary.unsent) == (200, 200, 0)
    waited = sorted(record["ttft"] for record in records_of(path))
    # Half of the requests were due in the stall, and waited from a whole second down to nothing: evenly.
    slow = [each for each in waited if each > 0.05]
    assert len(slow) >= 85
    assert statistics.median(slow) > 0.3
    assert waited[-1] > 0.9


async def test_latencies_of_an_open_loop_count_from_when_a_request_was_due(tmp_path):
    """The generator itself is stopped for 0.3 s: what it sends late is late, in its lag and in its latencies."""
    path = tmp_path / "records.jsonl"

    async def stop_the_world():
        await asyncio.sleep(0.5)
        time.sleep(0.3)  # noqa: ASYNC251 - on purpose

    async with engine(Stalling(9, 9)) as (url, _):
        options = make_options(
            url,
            load=Load("RequestRate", 100),
            arrivals="Constant",
            warm_up_seconds=0.0,
            duration_seconds=1.0,
            records=str(path),
        )
        stopper = asyncio.create_task(stop_the_world())
        summary = await generate(options)
        await stopper
    late = [record for record in records_of(path) if record["sent"] > 0.05]
    assert len(late) >= 15
    assert all(record["ttft"] >= record["sent"] for record in late)
    assert max(record["ttft"] for record in late) > 0.25
    assert summary.lag_max_seconds > 0.25
    assert summary.lag_p99_seconds > 0.2


async def test_case_122_and_123_a_starved_generator_says_how_late_it_was_and_what_it_never_sent():
    """It has the CPU for a small part of the time only."""
    starving = True

    async def starve():
        while starving:
            time.sleep(0.09)  # noqa: ASYNC251 - on purpose
            await asyncio.sleep(0)

    async with engine(Stalling(9, 9)) as (url, _):
        options = make_options(
            url, load=Load("RequestRate", 400), arrivals="Constant", warm_up_seconds=0.0, duration_seconds=1.0
        )
        hog = asyncio.create_task(starve())
        summary = await generate(options)
        starving = False
        await hog
    assert summary.unsent > 0
    assert summary.sent + summary.unsent == 400
    assert summary.sent / summary.window.seconds < 0.95 * 400
    assert summary.lag_p99_seconds > 0.25
    assert summary.window.seconds < 2


async def test_case_59_a_late_first_request_is_reported_and_the_window_begins_with_it():
    async def stop_the_world():
        await asyncio.sleep(0.15)
        time.sleep(0.2)  # noqa: ASYNC251 - on purpose

    async with engine(Stalling(9, 9)) as (url, _):
        options = make_options(url, load=Load("RequestRate", 50), arrivals="Constant", warm_up_seconds=0.2)
        stopper = asyncio.create_task(stop_the_world())
        summary = await generate(options)
        await stopper
    assert summary.late_seconds > 0.1
    waited = (summary.start - summary.begin).total_seconds()
    assert waited == pytest.approx(0.2 + summary.late_seconds, abs=0.05)


async def test_case_129_a_load_on_a_server_that_hangs_ends_by_itself():
    async with engine(one_token_then_nothing) as (url, _):
        for load in (Load("Concurrency", 3), Load("RequestRate", 10)):
            options = make_options(url, load=load, timeout_seconds=0.5, warm_up_seconds=0.2)
            begun = time.monotonic()
            summary = await generate(options)
            assert time.monotonic() - begun < options.longest_seconds
            assert summary.ok == 0
            assert summary.failed + summary.cut == summary.sent > 0


async def test_a_closed_loop_never_backs_off_from_failures():
    answered = []

    async def refuse_every_other(body, response):
        answered.append(time.monotonic())
        if len(answered) % 2:
            await response.write(b'data: {"error": "broken"}\n\n')
        else:
            await tokens(body, response)

    async with engine(refuse_every_other) as (url, _):
        summary = await generate(make_options(url, load=Load("Concurrency", 1), duration_seconds=1.5))
    gaps = [later - earlier for earlier, later in pairwise(answered)]
    first, second = gaps[: len(gaps) // 2], gaps[len(gaps) // 2 :]
    assert statistics.median(second) < 2 * statistics.median(first)
    assert summary.failed > 5 < summary.ok


async def test_records_have_every_request_and_every_arrival(tmp_path):
    path = tmp_path / "records.jsonl"
    async with engine(tokens) as (url, _):
        summary = await generate(make_options(url, records=str(path)))
    records = records_of(path)
    measured = [record for record in records if record["phase"] == "measure"]
    assert {record["phase"] for record in records} == {"warmup", "measure"}
    assert len(measured) == summary.sent
    for record in measured:
        assert record["result"] == "ok"
        assert [count for _, count in record["arrivals"]] == [1] * 4
        moments = [moment for moment, _ in record["arrivals"]]
        assert 0 <= record["sent"] <= record["ttft"] == moments[0] <= moments[-1] == record["e2e"]
        assert (record["inputTokens"], record["outputTokens"], record["askedTokens"]) == (8, 4, 4)
        intended = datetime.fromisoformat(record["intended"])
        assert -0.01 <= (intended - summary.start).total_seconds() <= summary.window.seconds + 0.01


@pytest.mark.parametrize("load", [Load("Concurrency", 2), Load("RequestRate", 60)], ids=str)
async def test_turns_follow_their_answers_and_the_think_time(tmp_path, load):
    profile = {**WORKLOAD["profile"], "session": {"turns": 3, "thinkTime": "50ms"}}
    path = tmp_path / "records.jsonl"
    async with engine(tokens) as (url, _):
        summary = await generate(make_options(url, load=load, workload={"profile": profile}, records=str(path)))
    by_session = {}
    for record in records_of(path):
        by_session.setdefault(record["session"], []).append(record)
    followed = 0
    for turns in by_session.values():
        assert [turn["turn"] for turn in turns] == list(range(turns[0]["turn"], turns[-1]["turn"] + 1))
        for before, after in pairwise(turns):
            later = datetime.fromisoformat(after["intended"]) - datetime.fromisoformat(before["intended"])
            assert later.total_seconds() + after["sent"] >= before["e2e"] + 0.05
            followed += 1
    assert followed > 5
    assert summary.ok == summary.sent > 5


async def test_think_time_takes_no_request_out_of_flight():
    """The answers of a closed loop of two overlap all the time, although each session thinks much longer."""
    busy, most, shares = 0, 0, []

    async def count(body, response):
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        shares.append(busy)
        await tokens(body, response)
        busy -= 1

    profile = {**WORKLOAD["profile"], "session": {"turns": 4, "thinkTime": "200ms"}}
    async with engine(count) as (url, _):
        summary = await generate(make_options(url, load=Load("Concurrency", 2), workload={"profile": profile}))
    assert most == 2
    assert statistics.fmean(shares) > 1.3
    assert summary.ok == summary.sent > 5


async def test_a_trace_is_replayed_in_its_own_time(tmp_path):
    trace, path = tmp_path / "trace.jsonl", tmp_path / "records.jsonl"
    moments = [0, 100, 200, 1000, 1100, 1400, 1900, 2100]
    trace.write_text("".join(f'{{"timestamp": {t}, "input_length": 8, "output_length": 2}}\n' for t in moments))
    async with engine(tokens) as (url, _):
        options = make_options(
            url,
            load=Load("RequestRate", 1),
            time_scale=2.0,
            workload={"trace": {"path": str(trace), "format": "Mooncake"}},
            warm_up_seconds=0.4,
            duration_seconds=0.5,
            records=str(path),
        )
        summary = await generate(options)
    # The window holds the recorded seconds 0.8 to 1.8, in half their time.
    sent = [datetime.fromisoformat(record["intended"]).timestamp() for record in records_of(path)]
    assert [each - sent[0] for each in sent] == pytest.approx([0, 0.05, 0.1, 0.5, 0.55, 0.7], abs=0.001)
    assert (summary.sent, summary.load) == (3, Load("RequestRate", 6.0))


async def test_only_a_trace_has_a_time_of_its_own():
    with pytest.raises(ValueError, match="time scale: only a trace"):
        await generate(make_options("http://127.0.0.1:9", load=Load("RequestRate", 1), time_scale=1.0))


def samples(text):
    return {
        (sample.name, sample.labels.get("phase", ""), sample.labels.get("result", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
