import json
from itertools import pairwise
from pathlib import Path

import pytest

from frontier_tuner.load.schedule import recorded_arrivals, replayed_arrivals
from frontier_tuner.load.sessions import Position
from frontier_tuner.load.traces import read_trace
from frontier_tuner.load.workload import Prompts, parse_workload

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,3000,0
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURST_GPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118,GPT-4,417,276,693,API log
"""
BURST_GPT_2 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
0.5,a1,1.2,ChatGPT,100,10,110,Conversation log
"""
MOONCAKE = [
    {"timestamp": 0, "input_length": 1200, "output_length": 50, "hash_ids": [0, 1, 2]},
    {"timestamp": 1500, "input_length": 1100, "output_length": 60, "hash_ids": [0, 1, 3]},
    {"timestamp": 3000, "input_length": 1024, "output_length": 7, "hash_ids": [0, 1]},
    {"timestamp": 3000, "input_length": 600, "output_length": 7, "hash_ids": [9, 1]},
]


@pytest.fixture
def write(tmp_path):
    def write_(text, name="trace"):
        path = tmp_path / name
        path.write_text(text if isinstance(text, str) else "".join(json.dumps(row) + "\n" for row in text))
        return path

    return write_


def lengths(trace):
    return [(request.input_tokens, request.output_tokens) for request in trace.requests]


@pytest.mark.parametrize(
    ("name", "text", "expected", "moments"),
    [
        ("AzureLLMInference", AZURE_2023, [(374, 44), (396, 109), (3000, 1)], [0, 4.314579, 4.541877]),
        ("AzureLLMInference", AZURE_2024, [(2162, 5), (2399, 6)], [0, 0.007405]),
        ("BurstGPT", BURST_GPT, [(472, 18), (417, 276)], [0, 113]),
        ("BurstGPT", BURST_GPT_2, [(100, 10)], [0]),
        ("Mooncake", MOONCAKE, [(1200, 50), (1100, 60), (1024, 7), (600, 7)], [0, 1.5, 3, 3]),
    ],
)
def test_every_format_is_read_with_its_times(write, name, text, expected, moments):
    trace = read_trace(write(text), name)
    assert lengths(trace) == expected
    assert [request.at_seconds for request in trace.requests] == pytest.approx(moments, abs=1e-6)


def test_lengths_are_cut_and_requests_sorted_by_time(write):
    rows = AZURE_2023.splitlines()
    path = write("\n".join([rows[0], *reversed(rows[1:])]))
    trace = read_trace(path, "AzureLLMInference", max_input_tokens=380, max_output_tokens=40)
    assert lengths(trace) == [(374, 40), (380, 40), (380, 1)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("AzureLLMInference", AZURE_2023 + "2023-11-16 18:16:00,many,4\n", "line 5, column ContextTokens: 'many'"),
        ("AzureLLMInference", AZURE_2023 + "yesterday,3,4\n", "line 5, column TIMESTAMP: 'yesterday' is not a time"),
        ("AzureLLMInference", AZURE_2023 + "2023-11-16 18:16:00,3\n", "line 5: column GeneratedTokens is missing"),
        ("AzureLLMInference", BURST_GPT, "line 2: column TIMESTAMP is missing; the columns are Timestamp, Model"),
        ("AzureLLMInference", "TIMESTAMP,ContextTokens,GeneratedTokens\n", "has no requests"),
        ("BurstGPT", BURST_GPT + "soon,GPT-4,1,1,2,API log\n", "line 5, column Timestamp: 'soon'"),
        ("BurstGPT", BURST_GPT + "9,GPT-4,1,-1,2,API log\n", "line 5, column Response tokens: '-1'"),
        ("Mooncake", '{"timestamp": 0}\n', "line 1: column input_length is missing"),
        ("Mooncake", '\n{"timestamp": 0, "input_length": 1.5, "output_length": 1}', "line 2, column input_length: 1.5"),
        ("Mooncake", "[1]\n", "line 1: must be a JSON object"),
        ("Mooncake", '{"timestamp": 0,\n', "line 1, column 17: is no JSON"),
        (
            "Mooncake",
            '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [1, "2"]}',
            "line 1, column hash_ids: .* is not a list of whole numbers",
        ),
        (
            "Mooncake",
            '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1, 2, 3, 4]}',
            "line 1, column hash_ids: 4 blocks of 512 tokens are no prompt of 600 tokens; say with blockTokens",
        ),
    ],
)
def test_what_is_wrong_in_a_trace_is_named_with_file_line_and_column(write, name, text, words):
    path = write(text)
    with pytest.raises(ValueError, match=words) as caught:
        read_trace(path, name)
    assert str(path) in str(caught.value)


def test_a_trace_that_is_not_text_or_not_there_is_refused_with_its_name(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00\x81")
    for name in ("binary", "absent"):
        with pytest.raises(ValueError, match=f"{name} cannot be read"):
            read_trace(tmp_path / name, "BurstGPT")


def prompts_of(path, name, count, **over):
    workload = parse_workload({"trace": {"path": str(path), "format": name, **over}})
    prompts = Prompts(workload, 1, "Concurrency:1", 32_000)
    return [prompts.request(Position(number)) for number in range(count)]


def test_equal_hash_ids_are_equal_tokens_and_others_are_not(write):
    requests = prompts_of(write(MOONCAKE), "Mooncake", 4)
    first, second, third, other = (json.loads(request.prompt) for request in requests)
    assert first[:1024] == second[:1024] == third
    assert first[1024:1100] != second[1024:1100]
    assert other[:512] != first[:512]
    assert other[512:600] == first[512:600]
    # The last token of a prompt is always computed; a block counts only behind a prefix that was seen.
    assert [request.shared_tokens for request in requests] == [0, 1024, 1023, 0]


def test_a_trace_begins_anew_with_other_tokens(write):
    requests = prompts_of(write(MOONCAKE), "Mooncake", 8)
    assert [r.input_tokens for r in requests[4:]] == [r.input_tokens for r in requests[:4]]
    assert not {tuple(json.loads(r.prompt)[:16]) for r in requests[:4]} & {
        tuple(json.loads(r.prompt)[:16]) for r in requests[4:]
    }


def test_blocks_of_another_length_are_read_where_it_is_said(write):
    rows = [{"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [5, 6, 7]}] * 2
    requests = prompts_of(write(rows), "Mooncake", 2, blockTokens=16)
    assert requests[0].prompt == requests[1].prompt
    assert requests[1].shared_tokens == 39


def test_requests_without_hash_ids_share_nothing(write):
    requests = prompts_of(write(AZURE_2024), "AzureLLMInference", 4)
    assert len({request.prompt for request in requests}) == 4
    assert {request.shared_tokens for request in requests} == {0}


def test_a_recorded_pattern_is_scaled_to_the_rate_with_exactly_its_requests(write):
    trace = read_trace(write(MOONCAKE), "Mooncake")
    moments = recorded_arrivals(trace, 0, rate=2.0, duration_seconds=2.0)
    # 0, 1.5, 3 and 3 s recorded; the next pass begins at 4 s.
    assert moments == pytest.approx([0, 0.75, 1.5, 1.5])
    later = recorded_arrivals(trace, 2, rate=4.0, duration_seconds=1.0)
    assert later == pytest.approx([0, 0, 0.25, 0.625])


def test_a_replay_keeps_the_traces_own_time_but_for_the_scale(write):
    trace = read_trace(write(MOONCAKE), "Mooncake")
    warm_up = replayed_arrivals(trace, 0, start=0.0, duration_seconds=0.5, time_scale=2.0)
    assert warm_up == [0]
    window = replayed_arrivals(trace, len(warm_up), start=0.5, duration_seconds=2.0, time_scale=2.0)
    assert window == pytest.approx([0.25, 1.0, 1.0, 1.5])


def test_a_trace_whose_requests_all_came_at_once_has_no_time_to_replay(write):
    trace = read_trace(write([MOONCAKE[0], MOONCAKE[0]]), "Mooncake")
    with pytest.raises(ValueError, match="all its requests came at once"):
        replayed_arrivals(trace, 0, 0.0, 1.0, 1.0)
    assert recorded_arrivals(trace, 0, 2.0, 1.0) == [0, 0]


def test_the_excerpt_that_ships_is_read():
    path = Path(__file__).parents[3] / "local/frontier_local/data/azure_2023_conv_500.csv"
    trace = read_trace(path, "AzureLLMInference")
    assert len(trace.requests) == 500
    assert all(early.at_seconds <= late.at_seconds for early, late in pairwise(trace.requests))
