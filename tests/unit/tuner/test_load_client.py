import pytest

from frontier_tuner.load.client import Answer, EventReader


def event(tokens, text="x"):
    return (
        b'data: {"id":"c","choices":[{"index":0,"text":"%s","finish_reason":null}],'
        b'"usage":{"prompt_tokens":9,"total_tokens":%d,"completion_tokens":%d}}\n\n'
        % (text.encode(), 9 + tokens, tokens)
    )


STREAM = event(1) + event(2) + event(5) + b'data: {"choices":[],"usage":{"completion_tokens": 5}}\n\ndata: [DONE]\n\n'


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_tokens_are_counted_whatever_pieces_the_stream_arrives_in(size):
    reader = EventReader()
    counts = [reader.feed(STREAM[start : start + size]) for start in range(0, len(STREAM), size)]
    assert sum(counts) == 5
    assert reader.done
    assert not reader.error


def test_without_running_usage_a_chunk_is_a_token():
    reader = EventReader()
    assert reader.feed(b'data: {"choices":[{"text":"a"}]}\n\ndata: {"choices":[{"text":"b"}]}\r\n\r\n') == 2


def test_an_error_in_the_stream_is_reported():
    reader = EventReader()
    reader.feed(event(1) + b'data: {"error": {"message": "engine dead"}}\n\n')
    assert "engine dead" in reader.error


def test_several_tokens_of_one_chunk_share_its_time():
    answer = Answer(sent=0.0)
    answer.add(1, 0.5)
    answer.add(4, 0.9)
    assert (answer.first, answer.last, answer.tokens) == (0.5, 0.9, 5)
    assert answer.gaps == [(pytest.approx(0.1), 4)]


def test_more_than_one_token_at_once_leaves_no_time_between_them():
    answer = Answer(sent=0.0)
    answer.add(3, 0.5)
    assert answer.gaps == [(0.0, 2)]
