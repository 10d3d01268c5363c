import json
import random
import statistics
from collections import Counter
from itertools import pairwise

import pytest

from frontier_tuner.load.lengths import Empirical, Fitted, parse_lengths
from frontier_tuner.load.sessions import Position, SessionQueue
from frontier_tuner.load.tokens import PAGE_TOKENS, Vocabulary
from frontier_tuner.load.workload import Prompts, parse_workload

PROFILE = {"profile": {"inputTokens": {"mean": 64}, "outputTokens": {"mean": 8}}}
AGENTIC = {
    "profile": {
        "inputTokens": {"mean": 32000, "p95": 64000},
        "outputTokens": {"mean": 512, "p95": 1500},
        "session": {"turns": 12, "sharedPrefixPercent": 80, "thinkTime": "4s"},
    }
}


def make_prompts(body, seed=7, level="Concurrency:8", vocabulary=2000):
    return Prompts(parse_workload(body), seed, level, vocabulary)


def requests_of(body, count, **how):
    turns = parse_workload(body).turns
    prompts = make_prompts(body, **how)
    return [prompts.request(Position(*divmod(number, turns))) for number in range(count)]


def tokens_of(request):
    return json.loads(request.prompt)


def served_share(requests, block=16):
    """Return the share of prompt tokens that a prefix cache without end serves: whole blocks, never the last token."""
    seen, served, total = set(), 0, 0
    for request in requests:
        tokens, key, hit = tokens_of(request), 0, True
        total += len(tokens)
        for number in range(len(tokens) // block):
            key = hash((key, *tokens[number * block : (number + 1) * block]))
            hit = hit and key in seen and (number + 1) * block < len(tokens)
            served += block * hit
            seen.add(key)
    return served / total


def test_case_127_a_thousand_prompts_are_distinct_and_reproducible_whoever_sends_them():
    first, second = make_prompts(PROFILE), make_prompts(PROFILE)
    whole = [first.request(Position(number)) for number in range(1000)]
    by_eight = [[second.request(Position(number)) for number in range(worker, 1000, 8)] for worker in range(8)]
    assert len({request.prompt for request in whole}) == 1000
    assert {request.prompt for request in whole} == {request.prompt for share in by_eight for request in share}
    assert served_share(whole) < 0.01


def test_another_level_or_seed_has_other_prompts_of_the_same_lengths():
    body = {"profile": {"inputTokens": {"mean": 64, "p95": 128}, "outputTokens": {"mean": 8, "p95": 16}}}
    here, there = requests_of(body, 50), requests_of(body, 50, level="Concurrency:16")
    assert [r.input_tokens for r in here] == [r.input_tokens for r in there]
    assert not {r.prompt for r in here} & {r.prompt for r in there}
    assert not {r.prompt for r in here} & {r.prompt for r in requests_of(body, 50, seed=8)}


def test_case_54_a_second_run_on_the_same_engine_finds_nothing_in_its_cache_unless_it_repeats_the_seed():
    first, again, other = (requests_of(PROFILE, 200, seed=seed) for seed in (1, 1, 2))
    alone = served_share(first)
    assert served_share(first + other) == pytest.approx(alone, abs=0.01)
    assert served_share(first + again) > 0.3


@pytest.mark.parametrize("size", [2, 5, 12, 50, 100, 2000, 10_001, 32_000, 100_005, 128_256, 151_936])
def test_token_ids_lie_within_the_vocabulary_and_have_one_width(size):
    vocabulary = Vocabulary(size)
    text = vocabulary.text("any", 0, 3000)
    tokens = json.loads(b"[" + text[:-1] + b"]")
    assert len(text) == 3000 * vocabulary.stride
    assert 0 <= min(tokens) <= max(tokens) < size
    assert len(set(tokens)) > min(size, 3000) / 4


def test_any_stretch_of_a_stream_is_the_same_as_cut_out_of_the_whole():
    vocabulary = Vocabulary(32_000)
    whole = vocabulary.text("any", 0, 2 * PAGE_TOKENS + 7)
    for start, end in ((0, 1), (3, 3), (5, 1001), (PAGE_TOKENS - 1, PAGE_TOKENS + 1), (17, 2 * PAGE_TOKENS + 3)):
        assert vocabulary.text("any", start, end) == whole[start * vocabulary.stride : end * vocabulary.stride]


def test_a_vocabulary_of_one_is_refused():
    with pytest.raises(ValueError, match="vocabulary 1 must be at least 2"):
        make_prompts(PROFILE, vocabulary=1)


def test_lengths_are_fixed_without_a_p95_and_fit_mean_and_p95_with_one():
    assert {Fitted(256, 256).draw(random.Random(number)) for number in range(100)} == {256}
    generator = random.Random(1)
    drawn = [Fitted(1000, 2500).draw(generator) for _ in range(20_000)]
    assert statistics.fmean(drawn) == pytest.approx(1000, rel=0.05)
    assert sorted(drawn)[int(0.95 * len(drawn))] == pytest.approx(2500, rel=0.05)


def test_empirical_lengths_come_as_often_as_they_were_counted():
    lengths = Empirical([(100, 1), (400, 0), (500, 3)])
    generator = random.Random(1)
    drawn = [lengths.draw(generator) for _ in range(20_000)]
    buckets = Counter(0 if length <= 100 else 1 if length <= 400 else 2 for length in drawn)
    assert set(buckets) == {0, 2}
    assert buckets[2] / len(drawn) == pytest.approx(0.75, abs=0.01)
    assert (min(drawn), max(drawn)) == (1, 500)
    assert statistics.fmean(drawn) == pytest.approx(lengths.mean, rel=0.01)
    assert sorted(drawn)[len(drawn) // 2] == pytest.approx(lengths.quantile(0.5), rel=0.01)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"mean": 100, "p95": 50}, "x: p95 50 is below the mean"),
        ({"mean": 100, "p95": 500}, "x: p95 500 .* no lognormal"),
        ({"mean": 0}, "x: mean 0 must be at least 1"),
        ({"mean": float("nan")}, "x: mean nan"),
        ({"mean": "many"}, "x: could not convert"),
        ({}, "x.mean: required"),
        ([], "x.mean: required"),
        ({"histogram": []}, "x.histogram: upTo must rise"),
        ({"histogram": [{"upTo": 5, "weight": 1}, {"upTo": 5, "weight": 1}]}, "x.histogram: upTo must rise"),
        ({"histogram": [{"upTo": 5, "weight": 0}]}, "x.histogram: weights must be"),
        ({"histogram": [{"upTo": 5}]}, "x.histogram: needs 'weight'"),
        ({"histogram": 5}, "x.histogram: .* write a list"),
    ],
)
def test_lengths_that_cannot_be_are_refused_with_their_field(body, words):
    with pytest.raises(ValueError, match=words):
        parse_lengths(body, "x")


@pytest.mark.parametrize(
    ("turns", "percent", "lengths"),
    [
        (1, 30, {"mean": 1024, "p95": 3072}),
        (1, 75, {"mean": 512}),
        (4, 80, {"mean": 1024, "p95": 3072}),
        (6, 50, {"mean": 512}),
        (12, 80, {"mean": 2048, "p95": 4096}),
        (12, 92, {"mean": 2048, "p95": 4096}),
        (3, 0, {"mean": 512, "p95": 1024}),
    ],
)
def test_a_prefix_cache_serves_the_share_that_was_declared(turns, percent, lengths):
    session = {"turns": turns, "sharedPrefixPercent": percent}
    body = {"profile": {"inputTokens": lengths, "outputTokens": {"mean": 8}, "session": session}}
    requests = requests_of(body, 1200)
    promised = sum(request.shared_tokens for request in requests) / sum(request.input_tokens for request in requests)
    assert promised == pytest.approx(percent / 100, abs=0.015)
    assert served_share(requests) == pytest.approx(promised, abs=0.01)


def test_shares_are_met_in_blocks_of_another_size_where_they_are_declared():
    session = {"turns": 4, "sharedPrefixPercent": 60, "blockTokens": 128}
    body = {"profile": {"inputTokens": {"mean": 600, "p95": 900}, "outputTokens": {"mean": 8}, "session": session}}
    assert served_share(requests_of(body, 1200), block=128) == pytest.approx(0.6, abs=0.02)


def test_prompts_of_a_session_grow_and_each_begins_like_the_one_before():
    prompts = make_prompts(AGENTIC)
    turns = [prompts.request(Position(3, turn)) for turn in range(12)]
    lengths = [request.input_tokens for request in turns]
    assert lengths == sorted(lengths)
    for earlier, later in pairwise(turns):
        assert tokens_of(later)[: later.shared_tokens] == tokens_of(earlier)[: later.shared_tokens]
    assert sum(request.shared_tokens for request in turns[1:]) > 0.7 * sum(lengths)
    assert tokens_of(turns[0])[:64] != tokens_of(prompts.request(Position(4)))[:64]


def test_prompt_lengths_of_sessions_keep_the_distribution_that_was_asked_for():
    lengths = sorted(request.input_tokens for request in requests_of(AGENTIC, 1200))
    assert statistics.fmean(lengths) == pytest.approx(32000, rel=0.05)
    assert lengths[int(0.95 * len(lengths))] == pytest.approx(64000, rel=0.08)


def test_a_session_that_begins_in_its_middle_has_shown_the_engine_nothing():
    prompts = make_prompts(AGENTIC)
    usual, first = prompts.request(Position(0, 7)), prompts.request(Position(0, 7, unseen=True))
    assert usual.prompt == first.prompt
    assert usual.shared_tokens > first.shared_tokens == 0


def test_one_turn_sessions_share_one_prefix():
    body = {"profile": {**PROFILE["profile"], "session": {"turns": 1, "sharedPrefixPercent": 25}}}
    first, second = (tokens_of(request) for request in requests_of(body, 2))
    assert first[:16] == second[:16]
    assert first[16:] != second[16:]


def test_a_session_waits_for_its_answer_and_its_think_time_and_then_comes_before_new_ones():
    queue = SessionQueue(turns=3, think_seconds=2.0, seed="x")
    first = queue.take(0.0)
    while first.turn == 2:
        first = queue.take(0.0)
    queue.answered(first, 10.0)
    assert queue.take(11.9).session != first.session
    assert queue.take(12.0) == Position(first.session, first.turn + 1)
    later = queue.take(13.0)
    assert later == Position(later.session, 0)


def test_sessions_begin_at_every_turn_until_the_first_comes_back():
    queue = SessionQueue(turns=4, think_seconds=1.0, seed="x")
    begun = [queue.take(0.0) for _ in range(400)]
    turns = Counter(position.turn for position in begun)
    assert set(turns) == {0, 1, 2, 3}
    assert min(turns.values()) > 60
    assert all(position.unseen == (position.turn > 0) for position in begun)


def test_the_longest_ready_session_is_next_and_the_last_turn_ends_it():
    queue = SessionQueue(turns=2, think_seconds=0.0, seed="x")
    queue.answered(Position(8, 0), 5.0)
    queue.answered(Position(9, 0), 4.0)
    queue.answered(Position(7, 1), 3.0)
    assert [queue.take(9.0) for _ in range(2)] == [Position(9, 1), Position(8, 1)]
    assert queue.take(9.0).session == 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "exactly one of profile and trace"),
        ({"profile": {"inputTokens": {"mean": 1}}}, "workload.profile.outputTokens.mean"),
        ({"profile": {**PROFILE["profile"], "session": {"turns": 0}}}, "session.turns: 0"),
        ({"profile": {**PROFILE["profile"], "session": {"sharedPrefixPercent": 101}}}, "sharedPrefixPercent: 101"),
        ({"profile": {**PROFILE["profile"], "session": {"blockTokens": -1}}}, "session.blockTokens: -1"),
        (5, "workload: give exactly one"),
        ({"profile": None}, "workload.profile: must be an object"),
        ({"profile": {"session": [1]}}, "workload.profile.session: must be an object"),
        ({"trace": 5}, "workload.trace: must be an object"),
        ({"trace": {"format": "Moon", "path": "x"}}, "workload.trace.format: 'Moon' is not known"),
        ({"trace": {"format": "AzureLLMInference", "path": "absent.csv"}}, "workload.trace.path: absent.csv"),
        ({"trace": {"path": "x", "maxInputTokens": 0}}, "workload.trace.maxInputTokens: 0"),
        ({**PROFILE, "arrivals": 5}, "workload.arrivals: must be an object"),
        ({**PROFILE, "arrivals": {"pattern": "Recorded"}}, "workload.arrivals.pattern: Recorded needs a trace"),
        ({**PROFILE, "arrivals": {"pattern": "Uniform"}}, "workload.arrivals.pattern: 'Uniform' is not known"),
        ({**PROFILE, "arrivals": {"pattern": "Gamma"}}, "workload.arrivals.burstiness: is required"),
        ({**PROFILE, "arrivals": {"pattern": "Poisson", "burstiness": 2}}, "only with pattern Gamma, not Poisson"),
        ({**PROFILE, "arrivals": {"burstiness": "-1"}}, "workload.arrivals.burstiness: '-1' must be"),
    ],
)
def test_a_wrong_workload_is_refused_with_its_field(body, words):
    with pytest.raises(ValueError, match=words):
        parse_workload(body)
