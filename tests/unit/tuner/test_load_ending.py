"""When the load generator ends a window before its time, against a server that streams."""

import asyncio
import contextlib
import socket

import pytest

from frontier_tuner.load.generator import generate
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.measurement import Ending, Load
from frontier_tuner.objectives import SLO
from frontier_tuner.prometheus.ending import WellEnough

WORKLOAD = {"profile": {"inputTokens": {"mean": 8}, "outputTokens": {"mean": 4}}}
SLOW = SLO("ttft", "TTFT", 95, maximum=5.0)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


async def answer(reader, writer):
    """Answer every request of a connection with four tokens, 5 ms apart."""
    while head := await reader.readuntil(b"\r\n\r\n"):
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(length)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for count in range(1, 5):
            await asyncio.sleep(0.005)
            event = b'data: {"choices":[{"text":"x"}],"usage":{"completion_tokens":%d}}\n\n' % count
            writer.write(b"%x\r\n%s\r\n" % (len(event), event))
        end = b"data: [DONE]\n\n"
        writer.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(end), end))
        await writer.drain()


@pytest.fixture
async def url():
    connections = set()

    async def serve(reader, writer):
        connections.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer(reader, writer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    # The load generator has closed its connections: each handler ends with its own.
    await asyncio.wait_for(asyncio.gather(*connections), 10)


def make_options(url, **over):
    values = {
        "load": Load("Concurrency", 4),
        "duration_seconds": 60.0,
        "warm_up_seconds": 0.1,
        "scrape_wait_seconds": 0.0,
        "metrics_listen": f"127.0.0.1:{free_port()}",
        "slos": (SLOW,),
        "precision_percent": 50.0,
        "min_window_seconds": 2.0,
        "min_requests": 20,
    }
    return LoadOptions(url, "m", workload=WORKLOAD, **{**values, **over})


class After:
    """A rule that ends a window as soon as a certain number was answered."""

    def __init__(self, answered):
        self.answered = answered
        self.asked = []

    def __call__(self, course, *, over):
        self.asked.append((course[-1], over))
        return Ending("Tight", (), "enough") if course[-1].answered >= self.answered else None


@pytest.mark.parametrize("load", [Load("Concurrency", 4), Load("RequestRate", 80)], ids=["closed", "open"])
async def test_a_window_ends_once_everything_is_known(url, load):
    options = make_options(url, load=load)
    summary = await generate(options, WellEnough.of(options))
    assert summary.ended.reason == "Tight"
    assert summary.ended.open == ()
    assert "TTFT/95, OutputTokensPerSecond are known to 50 % or decided" in summary.ended.message
    assert 2.0 <= summary.window.seconds < 45.0
    assert summary.ok >= 200  # ten beyond the p95
    assert (summary.cut, summary.unsent, summary.failed) == (0, 0, 0)
    if load.kind == "RequestRate":
        assert summary.sent / summary.window.seconds == pytest.approx(80, rel=0.05)


async def test_a_window_lasts_its_time_where_nothing_is_tight_enough_and_says_what_is_open(url):
    options = make_options(url, duration_seconds=1.0, min_window_seconds=0.3)
    summary = await generate(options, WellEnough.of(options))
    assert 0.95 <= summary.window.seconds < 60
    assert (summary.ended.reason, summary.ended.open) == ("TimeUp", ("TTFT/95",))
    assert summary.ended.message.startswith("the time of 1 s is up; ")
    assert "observations of 200" in summary.ended.message


async def test_without_a_rule_the_time_ends_it(url):
    summary = await generate(make_options(url, duration_seconds=0.3))
    assert summary.ended == Ending("TimeUp", (), "the time of 0.3 s is up")


async def test_the_rule_is_asked_from_the_shortest_window_on_and_what_it_sees_is_what_comes_out(url):
    rule = After(100)
    summary = await generate(make_options(url, min_window_seconds=0.5), rule)
    assert summary.ended == Ending("Tight", (), "enough")
    assert not any(over for _, over in rule.asked)
    assert min(progress.seconds for progress, _ in rule.asked) >= 0.5
    last = rule.asked[-1][0]
    assert 100 <= last.answered <= summary.ok
    assert 0.5 <= last.seconds <= summary.window.seconds < 60
    assert set(last.histograms) == {"TTFT", "ITL", "E2E", "UserTokensPerSecond"}
    assert last.histograms["E2E"].counts[-1] == last.answered
    assert last.histograms["ITL"].counts[-1] == 3 * last.answered
    assert 0 < last.in_flight <= 4  # a slot may be between two requests


async def test_a_rule_that_fails_ends_the_run_with_its_error(url):
    def broken(course, *, over):
        raise ZeroDivisionError(len(course) and over)

    with pytest.raises(ZeroDivisionError):
        await generate(make_options(url, duration_seconds=1.0, min_window_seconds=0.2), broken)
