"""The scheduler loses nothing, never holds more than it has, and shares what is equal."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontier_local.engine.blocks import BlockPool
from frontier_local.engine.scheduler import Limits, RunningSequence, Scheduler


def make_limits(**over):
    return Limits(**{"max_num_seqs": 8, "max_num_batched_tokens": 64, "blocks": 100, "block_size": 4, **over})


def make_sequence(prompt=10, output=5, first=0, **over):
    return RunningSequence(list(range(first, first + prompt)), prompt, output, next_token=lambda index: index, **over)


def none_accepted(_):
    return 0


def all_accepted(drafts):
    return drafts


def run(scheduler, accept=none_accepted, most=10000):
    steps = []
    while scheduler.busy:
        assert len(steps) < most, "the scheduler makes no progress"
        step = scheduler.schedule()
        steps.append((step, scheduler.complete(step, accept)))
    return steps


def outputs_of(steps, sequence):
    return [output for _, outputs in steps for output in outputs if output.sequence is sequence]


def test_a_sequence_gets_exactly_its_tokens_and_ends_for_its_length():
    scheduler, sequence = Scheduler(make_limits()), make_sequence(output=5)
    scheduler.add(sequence)
    outputs = outputs_of(run(scheduler), sequence)
    assert [output.tokens for output in outputs] == [[0], [1], [2], [3], [4]]
    assert [output.finish_reason for output in outputs] == [None, None, None, None, "length"]


def test_a_model_that_ends_by_itself_stops_earlier():
    scheduler, sequence = Scheduler(make_limits()), make_sequence(output=5, stop_after=3)
    scheduler.add(sequence)
    assert outputs_of(run(scheduler), sequence)[-1].finish_reason == "stop"
    assert sequence.generated == 3


def test_a_long_prompt_is_computed_in_chunks_beside_running_sequences():
    scheduler = Scheduler(make_limits(max_num_batched_tokens=16))
    short, long = make_sequence(4, 20), make_sequence(40, 2, first=1000)
    scheduler.add(short)
    scheduler.complete(scheduler.schedule(), none_accepted)
    scheduler.add(long)
    chunks = []
    while long.generated == 0:
        step = scheduler.schedule()
        assert step.work().tokens <= 16
        chunks += [share.new for share in step.shares if share.sequence is long]
        scheduler.complete(step, none_accepted)
    assert chunks == [15, 15, 10]
    assert short.generated == 4


def test_without_chunked_prefill_a_prompt_waits_until_it_fits_whole():
    scheduler = Scheduler(make_limits(max_num_batched_tokens=16, chunked_prefill=False))
    first, second = make_sequence(12, 3), make_sequence(12, 3, first=1000)
    scheduler.add(first)
    scheduler.add(second)
    step = scheduler.schedule()
    assert [(share.sequence, share.new) for share in step.shares] == [(first, 12)]


def test_no_more_sequences_run_than_allowed():
    scheduler = Scheduler(make_limits(max_num_seqs=2))
    for index in range(5):
        scheduler.add(make_sequence(first=index * 100))
    assert max(len(step.shares) for step, _ in run(scheduler)) == 2


def test_when_the_cache_is_full_the_latest_sequence_is_computed_anew():
    scheduler = Scheduler(make_limits(blocks=8, prefix_caching=False))
    early, late = make_sequence(8, 20), make_sequence(8, 20, first=1000)
    scheduler.add(early)
    scheduler.add(late)
    run(scheduler)
    assert (early.preemptions, early.generated) == (0, 20)
    assert (late.preemptions > 0, late.generated) == (True, 20)
    assert scheduler.pool.free == 8


def test_equal_prefixes_are_found_in_the_cache_but_the_last_token_is_computed():
    scheduler = Scheduler(make_limits())
    scheduler.add(make_sequence(16, 2))
    run(scheduler)
    again, longer, other = make_sequence(16, 2), make_sequence(24, 2), make_sequence(16, 2, first=1)
    for sequence in (again, longer, other):
        scheduler.add(sequence)
        run(scheduler)
    assert (again.cached_tokens, longer.cached_tokens, other.cached_tokens) == (12, 16, 0)


def test_answers_are_found_again_in_the_next_turn():
    scheduler, first = Scheduler(make_limits()), make_sequence(16, 9)
    scheduler.add(first)
    run(scheduler)
    second = RunningSequence([*first.tokens, 7, 7, 7], len(first.tokens) + 3, 2)
    scheduler.add(second)
    run(scheduler)
    assert second.cached_tokens == 24


def test_the_prefix_used_longest_ago_is_forgotten_first():
    scheduler = Scheduler(make_limits(blocks=8))
    for first in (0, 1000, 2000):
        scheduler.add(make_sequence(16, 1, first=first))
        run(scheduler)
    newest, oldest = make_sequence(16, 1, first=2000), make_sequence(16, 1, first=0)
    for sequence in (newest, oldest):
        scheduler.add(sequence)
        run(scheduler)
    assert (newest.cached_tokens, oldest.cached_tokens) == (12, 0)


def test_without_prefix_caching_nothing_is_found():
    scheduler = Scheduler(make_limits(prefix_caching=False))
    for _ in range(2):
        sequence = make_sequence(16, 2)
        scheduler.add(sequence)
        run(scheduler)
    assert sequence.cached_tokens == 0


def test_accepted_guesses_come_out_together_and_never_beyond_the_length():
    scheduler, sequence = Scheduler(make_limits(speculative_tokens=3)), make_sequence(output=10)
    scheduler.add(sequence)
    sizes = [len(output.tokens) for output in outputs_of(run(scheduler, all_accepted), sequence)]
    assert sizes == [1, 4, 4, 1]


def test_an_aborted_sequence_frees_its_blocks_even_within_a_step():
    scheduler = Scheduler(make_limits())
    gone, stays = make_sequence(), make_sequence(first=1000)
    scheduler.add(gone)
    scheduler.add(stays)
    step = scheduler.schedule()
    scheduler.abort(gone)
    assert [output.sequence for output in scheduler.complete(step, none_accepted)] == [stays]
    scheduler.abort(gone)
    run(scheduler)
    assert scheduler.pool.free == 100


def test_the_work_of_a_step_counts_tokens_context_pairs_and_logits():
    scheduler = Scheduler(make_limits())
    scheduler.add(make_sequence(10, 5))
    step = scheduler.schedule()
    work = step.work()
    assert (work.tokens, work.sequences, work.logits, work.context_tokens, work.attention_pairs) == (10, 1, 1, 10, 50)


def test_a_pool_refuses_more_blocks_than_are_free():
    pool = BlockPool(3)
    pool.allocate(2)
    with pytest.raises(IndexError, match="2 blocks were asked for, 1 are free"):
        pool.allocate(2)


REQUESTS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 24), st.integers(0, 3)), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    requests=REQUESTS,
    blocks=st.integers(16, 40),
    seqs=st.integers(1, 6),
    spare=st.integers(0, 60),
    drafts=st.integers(0, 4),
    chunked=st.booleans(),
    caching=st.booleans(),
    data=st.data(),
)
def test_every_sequence_ends_and_the_cache_is_never_overdrawn(
    requests, blocks, seqs, spare, drafts, chunked, caching, data
):
    limits = Limits(seqs, (seqs if chunked else 64) + spare, blocks, 4, chunked, caching, drafts)
    scheduler = Scheduler(limits)
    todo = [make_sequence(prompt, output, first=family * 1000) for prompt, output, family in requests]
    everyone, ended, steps = list(todo), [], 0
    while todo or scheduler.busy:
        if todo and (not scheduler.busy or data.draw(st.booleans())):
            scheduler.add(todo.pop())
        step = scheduler.schedule()
        assert step.shares
        assert step.work().tokens <= limits.max_num_batched_tokens
        assert len(step.shares) <= limits.max_num_seqs
        held = {block for sequence in scheduler.running for block in sequence.blocks}
        assert len(held) + scheduler.pool.free == blocks
        for share in step.shares:
            assert share.sequence.computed + share.new <= len(share.sequence.blocks) * 4
        outputs = scheduler.complete(step, lambda most: data.draw(st.integers(0, most)))
        ended += [output.sequence for output in outputs if output.finish_reason]
        steps += 1
        assert steps < 5000
    assert sorted(map(id, ended)) == sorted(map(id, everyone))
    assert all(sequence.generated == sequence.max_tokens for sequence in everyone)
    assert scheduler.pool.free == blocks
