import json
import math
import random
import statistics
from itertools import pairwise

import pytest

from frontier_tuner.load.schedule import arrivals, position
from frontier_tuner.load.workload import Lengths, Prompts, parse_workload

PROFILE = {"profile": {"inputTokens": {"mean": 64}, "outputTokens": {"mean": 8}}}


def requests_of(body, count, seed=7, level="Concurrency:8", vocabulary=2000):
    workload = parse_workload(body)
    prompts = Prompts(workload, seed, level, vocabulary)
    return [prompts.request(*divmod(number, workload.turns)) for number in range(count)]


def test_a_thousand_prompts_are_distinct_and_reproducible_from_their_seed():
    first, second = requests_of(PROFILE, 1000), requests_of(PROFILE, 1000)
    assert first == second
    assert len({request.prompt for request in first}) == 1000


def test_another_level_or_seed_has_other_prompts_of_the_same_lengths():
    body = {"profile": {"inputTokens": {"mean": 64, "p95": 128}, "outputTokens": {"mean": 8, "p95": 16}}}
    here, there = requests_of(body, 50), requests_of(body, 50, level="Concurrency:16")
    assert [r.input_tokens for r in here] == [r.input_tokens for r in there]
    assert not {r.prompt for r in here} & {r.prompt for r in there}
    assert not {r.prompt for r in here} & {r.prompt for r in requests_of(body, 50, seed=8)}


def test_a_prompt_has_its_length_and_ids_within_the_vocabulary():
    for vocabulary in (2, 50, 2000):
        tokens = json.loads(requests_of(PROFILE, 1, vocabulary=vocabulary)[0].prompt)
        assert len(tokens) == 64
        assert all(0 <= token < vocabulary for token in tokens)


def test_lengths_are_fixed_without_a_p95_and_fit_mean_and_p95_with_one():
    assert {Lengths(256, 256).draw(random.Random(number)) for number in range(100)} == {256}
    generator = random.Random(1)
    drawn = [Lengths(1000, 2500).draw(generator) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(1000, rel=0.05)
    assert sorted(drawn)[int(0.95 * len(drawn))] == pytest.approx(2500, rel=0.05)


@pytest.mark.parametrize(
    ("mean", "p95", "words"), [(100, 50, "below the mean"), (100, 500, "no lognormal"), (0, 0, "at least 1")]
)
def test_lengths_that_cannot_be_are_refused_with_their_values(mean, p95, words):
    with pytest.raises(ValueError, match=words):
        Lengths(mean, p95)


def test_turns_of_a_session_share_a_prefix_and_sessions_do_not():
    body = {"profile": {**PROFILE["profile"], "session": {"turns": 3, "sharedPrefixPercent": 50, "thinkTime": "2s"}}}
    first, second, third, other = (json.loads(r.prompt) for r in requests_of(body, 4))
    assert first[:32] == second[:32] == third[:32]
    assert first[32:] != second[32:]
    assert first[:32] != other[:32]
    assert parse_workload(body).think_seconds == 2.0


def test_one_turn_sessions_share_one_prefix():
    body = {"profile": {**PROFILE["profile"], "session": {"turns": 1, "sharedPrefixPercent": 25}}}
    first, second = (json.loads(r.prompt) for r in requests_of(body, 2))
    assert first[:16] == second[:16]
    assert first[16:] != second[16:]


def test_a_trace_is_replayed_in_order_and_clipped(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n2023,3000,0\n")
    trace = {"path": str(path), "format": "AzureLLMInference", "maxInputTokens": 1500, "maxOutputTokens": 40}
    lengths = [(r.input_tokens, r.output_tokens) for r in requests_of({"trace": trace}, 3)]
    assert lengths == [(374, 40), (1500, 1), (374, 40)]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "exactly one of profile and trace"),
        ({"profile": {"inputTokens": {"mean": 1}}}, "workload.profile.outputTokens.mean"),
        ({"profile": {**PROFILE["profile"], "session": {"turns": 0}}}, "session.turns: 0"),
        (5, "workload: give exactly one"),
        ({"profile": None}, "workload.profile: must be an object"),
        ({"profile": {"session": [1]}}, "workload.profile.session: must be an object"),
        ({"trace": 5}, "workload.trace: must be an object"),
        ({"trace": {"format": "Mooncake", "path": "x"}}, "workload.trace.format: 'Mooncake'"),
        ({"trace": {"format": "AzureLLMInference", "path": "absent.csv"}}, "workload.trace.path: absent.csv"),
    ],
)
def test_a_wrong_workload_is_refused_with_its_field(body, words):
    with pytest.raises(ValueError, match=words):
        parse_workload(body)


@pytest.mark.parametrize("burstiness", [0.3, 1.0, 5.0])
def test_arrivals_are_fixed_by_the_seed_and_exactly_as_many_as_the_rate_asks(burstiness):
    schedule = arrivals(16, 30, burstiness, "7")
    assert schedule == arrivals(16, 30, burstiness, "7") != arrivals(16, 30, burstiness, "8")
    assert (len(schedule), schedule[0], schedule == sorted(schedule)) == (480, 0.0, True)
    assert schedule[-1] < 30
    gaps = [later - earlier for earlier, later in pairwise(schedule)]
    variation = statistics.stdev(gaps) / statistics.fmean(gaps)
    assert variation == pytest.approx(1 / math.sqrt(burstiness), rel=0.2)


def test_an_open_loop_gives_every_turn_of_every_session_once():
    seen = [position(arrival, turns=3, parallel=4) for arrival in range(24)]
    assert len(set(seen)) == 24
    assert {session for session, _ in seen} == set(range(8))
