import asyncio
import json
from contextlib import asynccontextmanager
from time import perf_counter

import pytest

from frontier_tuner.load.answer import Answer, EventReader
from frontier_tuner.load.client import Client
from frontier_tuner.load.connection import Connections, Inbox
from frontier_tuner.load.metrics import MEASURE, LoadMetrics
from frontier_tuner.load.tally import Tally
from frontier_tuner.load.workload import Request


def event(tokens, text="x"):
    return (
        b'data: {"id":"c","choices":[{"index":0,"text":"%s","finish_reason":null}],'
        b'"usage":{"prompt_tokens":9,"total_tokens":%d,"completion_tokens":%d}}\n\n'
        % (text.encode(), 9 + tokens, tokens)
    )


END = b'data: {"choices":[],"usage":{"completion_tokens": 5,"prompt_tokens_details":{"cached_tokens":7}}}\n\n'
DONE = b"data: [DONE]\n\n"
STREAM = event(1) + event(2) + event(5) + END + DONE
SILENT_USAGE = b'data: {"choices":[{"text":"a"}],"usage":null}\n\n'


def read(*pieces):
    reader = EventReader()
    return reader, [reader.feed(piece) for piece in pieces]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_tokens_are_counted_whatever_pieces_the_stream_arrives_in(size):
    reader, counts = read(*(STREAM[start : start + size] for start in range(0, len(STREAM), size)))
    assert sum(counts) == 5
    assert (reader.done, reader.error, reader.total, reader.cached) == (True, "", 5, 7)


def test_every_event_of_a_running_usage_is_read_on_its_own():
    reader, counts = read(event(1), event(2) + event(3), event(7), END, DONE)
    assert counts == [1, 2, 4, 0, 0]
    assert reader.running
    assert reader.done


def test_without_running_usage_a_chunk_is_a_token_and_the_end_says_how_many_there_were():
    reader, counts = read(SILENT_USAGE, SILENT_USAGE * 2, END, DONE)
    assert counts == [1, 2, 0, 0]
    assert (reader.running, reader.total, reader.done) == (False, 5, True)


def test_without_any_usage_chunks_are_counted():
    reader, counts = read(b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b"}]}\r\n\r\n', DONE)
    assert counts == [2, 0]
    assert reader.total is None


def chat(**delta):
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


def test_case_58_the_first_token_may_be_one_of_reasoning():
    opening = chat(role="assistant", content="")
    for name in ("reasoning", "reasoning_content"):
        _, counts = read(opening, chat(**{name: "hm"}), chat(content="yes"), chat())
        assert counts == [0, 1, 1, 0]


def test_an_error_in_the_stream_is_reported():
    for before in (b"", event(1)):
        reader, _ = read(before, event(2) + b'data: {"error": {"message": "engine dead"}}\n\n')
        assert "engine dead" in reader.error


def make_answer(*arrivals, intended=0.0):
    answer = Answer(intended)
    for moment, tokens in arrivals:
        answer.add(tokens, moment)
    answer.done = True
    return answer


def test_several_tokens_of_one_chunk_share_its_time():
    answer = make_answer((0.5, 1), (0.9, 4))
    assert (answer.first, answer.last, answer.tokens) == (0.5, 0.9, 5)
    assert list(answer.gaps()) == [(pytest.approx(0.1), 4)]


def test_more_than_one_token_at_once_leaves_no_time_between_them():
    assert list(make_answer((0.5, 3)).gaps()) == [(0.0, 2)]


def test_gaps_add_up_to_the_time_from_first_to_last_token():
    gaps = list(make_answer((0.5, 3), (0.7, 1), (1.5, 4)).gaps())
    assert sum(count for _, count in gaps) == 7
    assert sum(gap * count for gap, count in gaps) == pytest.approx(1.0)


def test_a_number_of_tokens_known_only_at_the_end_is_spread_over_the_chunks():
    answer = make_answer((1.0, 1), (2.0, 1), (3.0, 1), (4.0, 1))
    answer.spread(10)
    assert list(answer.counts) == [2, 3, 2, 3]
    answer.spread(2)
    assert (list(answer.times), list(answer.counts)) == ([2.0, 4.0], [1, 1])


def ttft(metrics):
    return metrics.ttft[MEASURE]


def test_case_56_failed_requests_do_not_touch_latencies():
    metrics = LoadMetrics([])
    tally = Tally(metrics)
    for _ in range(95):
        tally.record(MEASURE, make_answer((0.40, 1)), 1.0)
    for _ in range(5):
        refused = Answer(0.0, error="OSError: refused")
        assert tally.record(MEASURE, refused, 0.01) == "failed"
    assert ttft(metrics).quantile(0.95) == pytest.approx(0.40, rel=0.13)
    assert ttft(metrics).quantile(0.01) == ttft(metrics).quantile(0.99)
    assert (metrics.requests[MEASURE, "ok"], metrics.requests[MEASURE, "failed"]) == (95, 5)
    assert tally.first_error == "OSError: refused"


@pytest.mark.parametrize("moment", [-1_750_878_498.066, float("nan"), float("inf")])
def test_case_57_an_answer_from_before_its_request_is_malformed_and_failed(moment):
    metrics = LoadMetrics([])
    tally = Tally(metrics)
    results = [tally.record(MEASURE, make_answer((first, 1)), 1.0) for first in (0.21, 0.19, moment)]
    assert results == ["ok", "ok", "failed"]
    assert tally.malformed == 1
    assert ttft(metrics).buckets()[1] / 2 == pytest.approx(0.20)


def test_tokens_that_run_backwards_are_malformed():
    assert make_answer((0.5, 1), (0.4, 1)).malformed
    assert not make_answer((0.5, 1), (0.5, 1)).malformed


def test_a_cut_request_counts_the_time_it_waited_in_vain():
    metrics = LoadMetrics([])
    assert Tally(metrics).record(MEASURE, Answer(0.0), 7.0, cut=True) == "cut"
    assert ttft(metrics).buckets()[1] == 7.0
    assert metrics.e2e[MEASURE].buckets()[1] == 0.0


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
GOOD = HEAD + b"Content-Length: %d\r\n\r\n" % len(STREAM) + STREAM


@asynccontextmanager
async def server(*answers):
    """A server that gives the n-th answer, bytes or what a function of its streams does, to the n-th request."""
    waiting = list(answers)
    seen = []

    async def serve(reader, writer):
        try:
            while waiting:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                seen.append((writer.get_extra_info("peername"), head, await reader.readexactly(length)))
                answer = waiting.pop(0)
                if callable(answer):
                    await answer(reader, writer)
                else:
                    writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", seen
    finally:
        listener.close()
        await listener.wait_closed()


async def ask(client):
    answer = Answer(0.0)
    await client.complete(Request(b"[1,2]", 2, 5), answer, lambda _: None)
    return answer


def make_client(url, timeout=5.0, reuse=True, key=""):
    return Client(Connections(url, reuse=reuse), "m", timeout, key)


async def test_a_connection_is_used_again_unless_every_request_is_to_have_its_own():
    for reuse, ports in ((True, 1), (False, 3)):
        async with server(GOOD, GOOD, GOOD) as (url, seen):
            client = make_client(f"{url}/base/", reuse=reuse, key="secret")
            answers = [await ask(client) for _ in range(3)]
        assert [(answer.done, answer.tokens, answer.cached_tokens) for answer in answers] == [(True, 5, 7)] * 3
        assert len({peer for peer, _, _ in seen}) == ports
        assert seen[0][1].startswith(b"POST /base/v1/completions HTTP/1.1\r\n")
        assert b"Authorization: Bearer secret\r\n" in seen[0][1]
        assert json.loads(seen[0][2]) == {
            "model": "m",
            "prompt": [1, 2],
            "stream": True,
            "ignore_eos": True,
            "temperature": 0,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
            "max_tokens": 5,
        }


async def closing(_, writer):
    writer.write(GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    writer.close()


async def dropping(_, writer):
    writer.close()


async def test_a_kept_connection_that_the_server_closes_is_replaced_once():
    async with server(GOOD, dropping, GOOD, dropping) as (url, seen):
        client = make_client(url)
        assert (await ask(client)).done
        assert (await ask(client)).done
        fresh = make_client(url)
        broken = await ask(fresh)
    assert len(seen) == 4
    assert broken.error.startswith("ConnectionResetError: the connection was closed")


async def test_an_answer_that_closes_its_connection_is_whole():
    unbounded = HEAD + b"\r\n" + STREAM

    async def until_the_end(_, writer):
        writer.write(unbounded)
        await writer.drain()
        writer.close()

    async with server(closing, until_the_end) as (url, seen):
        client = make_client(url)
        assert [(await ask(client)).done for _ in range(2)] == [True, True]
    assert len({peer for peer, _, _ in seen}) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 7\r\n\r\nno room", "HTTP 503: no room"),
        (b"HTTP/1.1 429 Slow\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", "HTTP 429: "),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer is no HTTP"),
        (HEAD + b"Content-Length: %d\r\n\r\n" % len(event(3)) + event(3), "ended after 3 tokens without its end mark"),
        (HEAD + b"Content-Length: %d\r\n\r\n" % len(DONE) + DONE, "ended after 0 tokens"),
    ],
)
async def test_what_is_no_whole_answer_is_failed_and_says_why(answer, words):
    async with server(answer) as (url, _):
        got = await ask(make_client(url))
    assert not got.done
    assert words in got.error


async def test_a_request_that_takes_too_long_is_failed_and_its_connection_closed():
    gone = asyncio.Event()

    async def hang(reader, writer):
        writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        assert await reader.read() == b""
        gone.set()

    async with server(hang) as (url, _):
        got = await ask(make_client(url, timeout=0.2))
        async with asyncio.timeout(5):
            await gone.wait()
    assert got.error == "no complete answer within 0.2 s"


async def test_a_server_that_is_not_there_is_said_to_be_so():
    async with server() as (url, _):
        pass
    assert "Connect" in (await ask(make_client(url))).error


@pytest.mark.parametrize("url", ["10.0.0.1:8000", "ftp://h", "http://"])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(ValueError, match="must be like http://"):
        Connections(url)


async def test_what_is_readable_together_is_looked_at_only_when_all_of_it_has_been_read():
    class Slow:
        def parse(self, data, now):
            looked_at.append((data, now, perf_counter()))

    looked_at = []
    inbox = Inbox(asyncio.get_running_loop())
    for data in (b"a", b"b", b"c"):
        inbox.put(Slow(), data)
    assert looked_at == []
    await asyncio.sleep(0)
    assert [data for data, _, _ in looked_at] == [b"a", b"b", b"c"]
    assert max(read_at for _, read_at, _ in looked_at) <= min(at for _, _, at in looked_at)
