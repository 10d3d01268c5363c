"""The roofline bends in the directions, and at the places, where real engines bend."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from frontier_local.engine.roofline import (
    Shape,
    StepWork,
    graph_sizes,
    padded_tokens,
    step_seconds,
    weight_bytes_per_gpu,
)
from frontier_local.engine.scheduler import Limits, RunningSequence, Scheduler
from frontier_tuner.facts import gpu_facts, model_facts

LLAMA = model_facts("meta-llama/Llama-3.1-8B", {})
QWEN = model_facts("Qwen/Qwen3-32B", {})
MOE = model_facts("Qwen/Qwen3-235B-A22B", {})
H200 = gpu_facts("NVIDIA-H200")
L40S = gpu_facts("NVIDIA-L40S")


def make_shape(**over):
    return Shape(**{"model": LLAMA, "gpu": L40S, "graph_sizes": graph_sizes(512), **over})


def decode(batch, context=512, drafts=0):
    rows = batch * (1 + drafts)
    return StepWork(rows, batch, rows, batch * context, rows * context)


def prefill(tokens):
    return StepWork(tokens, 1, 1, tokens, tokens * tokens // 2)


def tokens_per_second(shape, limits, concurrency, acceptance=0.6, requests_per_user=3):
    """Serve a closed loop of 128-in/32-out requests in simulated time."""
    dice, scheduler, now, generated = random.Random(1), Scheduler(limits), 0.0, 0
    left = concurrency * (requests_per_user - 1)

    def accept(drafts):
        return next((index for index in range(drafts) if dice.random() >= acceptance), drafts)

    def send():
        scheduler.add(RunningSequence([dice.randrange(32000) for _ in range(128)], 128, 32))

    for _ in range(concurrency):
        send()
    while scheduler.busy:
        step = scheduler.schedule()
        now += step_seconds(shape, step.work())
        for output in scheduler.complete(step, accept):
            generated += len(output.tokens)
            if output.finish_reason and left:
                left -= 1
                send()
    return generated / now


def make_limits(**over):
    return Limits(**{"max_num_seqs": 512, "max_num_batched_tokens": 4096, "blocks": 20000, **over})


@pytest.mark.parametrize("model", [LLAMA, QWEN, MOE], ids=lambda model: model.name)
def test_a_larger_batch_is_slower_for_each_user_and_faster_in_sum(model):
    shape = make_shape(model=model, gpu=H200, tensor_parallel=8)
    seconds = [step_seconds(shape, decode(batch)) for batch in (1, 4, 16, 64, 256)]
    assert seconds == sorted(seconds)
    speeds = [batch / second for batch, second in zip((1, 4, 16, 64, 256), seconds, strict=True)]
    assert speeds == sorted(speeds)


@pytest.mark.parametrize("work", [decode(1), decode(32), prefill(2048)], ids=["decode 1", "decode 32", "prefill"])
def test_tensor_parallelism_lowers_latency_but_not_in_proportion(work):
    one, two, four = (step_seconds(make_shape(gpu=H200, tensor_parallel=ranks), work) for ranks in (1, 2, 4))
    assert one > two > four > one / 4


def test_slow_links_eat_up_what_tensor_parallelism_gains_in_prefill():
    def gain(gpu):
        one, two = (step_seconds(make_shape(gpu=gpu, tensor_parallel=ranks), prefill(2048)) for ranks in (1, 2))
        return one / two

    assert gain(L40S) < 1.4 < gain(H200)


def test_tensor_parallelism_beyond_the_node_falls_off_a_cliff():
    inside, beyond = (
        step_seconds(make_shape(model=QWEN, gpu=H200, tensor_parallel=ranks), decode(16)) for ranks in (8, 16)
    )
    assert beyond > 2 * inside
    wide = make_shape(model=QWEN, gpu=H200, tensor_parallel=16, gpus_per_node=16)
    assert step_seconds(wide, decode(16)) < beyond / 2


def test_more_memory_bandwidth_and_fewer_weight_bits_speed_up_decoding():
    base = step_seconds(make_shape(), decode(1))
    assert step_seconds(make_shape(model=replace(LLAMA, weight_bits=8)), decode(1)) < 0.6 * base
    assert step_seconds(make_shape(gpu=H200), decode(1)) < 0.4 * base


def test_fp8_cache_halves_the_bytes_of_a_token():
    assert make_shape(kv_bits=8).kv_bytes_per_token * 2 == make_shape().kv_bytes_per_token
    assert step_seconds(make_shape(kv_bits=8), decode(64, 4096)) < step_seconds(make_shape(), decode(64, 4096))


def test_a_batch_that_misses_a_captured_size_by_one_costs_a_jump():
    shape = make_shape(gpu=H200)
    steps = [step_seconds(shape, decode(batch)) for batch in range(249, 259)]
    rises = [after - before for before, after in pairwise(steps)]
    assert max(rises) == rises[256 - 249]
    assert max(rises) > 3 * sorted(rises)[-2]


def test_a_batch_beyond_the_largest_captured_size_is_launched_kernel_by_kernel():
    shape = make_shape(gpu=H200, graph_sizes=graph_sizes(64))
    assert step_seconds(shape, decode(65)) > 1.2 * step_seconds(shape, decode(64))
    assert padded_tokens(shape, 64) == (64, True)
    assert padded_tokens(shape, 65) == (96, False)


def test_captured_sizes_are_those_of_the_engine():
    assert graph_sizes(1) == (1,)
    assert graph_sizes(40) == (1, 2, 4, 8, 16, 24, 32, 40)
    assert graph_sizes(300)[-4:] == (248, 256, 272, 288)
    assert graph_sizes(512)[-1] == 512


def test_speculation_helps_small_batches_and_hurts_large_ones():
    plain, drafting = make_shape(gpu=H200, model=QWEN), make_shape(gpu=H200, model=QWEN, speculative_tokens=4)
    limits = make_limits()
    with_drafts = replace(limits, speculative_tokens=4)

    def gain(users, requests):
        drafted = tokens_per_second(drafting, with_drafts, users, requests_per_user=requests)
        return drafted / tokens_per_second(plain, limits, users, requests_per_user=requests)

    assert gain(2, 4) > 1.4
    assert gain(400, 2) < 0.95


def test_speculation_with_no_accepted_token_only_costs():
    limits = make_limits()
    drafting = tokens_per_second(make_shape(speculative_tokens=4), replace(limits, speculative_tokens=4), 8, 0.0)
    assert drafting < tokens_per_second(make_shape(), limits, 8)


def test_pipeline_stages_help_full_batches_and_leave_a_single_user_waiting():
    one, two = make_shape(gpu=H200), make_shape(gpu=H200, pipeline_parallel=2)
    assert step_seconds(two, decode(1)) > step_seconds(one, decode(1))
    assert step_seconds(two, decode(512)) < step_seconds(one, decode(512))
    assert weight_bytes_per_gpu(two) * 2 == weight_bytes_per_gpu(one)


def test_experts_are_read_as_far_as_the_batch_touches_them():
    shape = make_shape(model=MOE, gpu=H200, tensor_parallel=8)
    dense = make_shape(model=QWEN, gpu=H200, tensor_parallel=8)
    growth = step_seconds(shape, decode(32)) / step_seconds(shape, decode(1))
    assert growth > 1.5 * step_seconds(dense, decode(32)) / step_seconds(dense, decode(1))


def test_replicas_of_a_mixture_of_experts_share_its_experts():
    alone = make_shape(model=MOE, gpu=H200, tensor_parallel=4)
    shared = replace(alone, data_parallel=4, expert_parallel=True)
    assert weight_bytes_per_gpu(shared) < 0.4 * weight_bytes_per_gpu(alone)
    assert step_seconds(shared, decode(64)) < step_seconds(alone, decode(64))
    assert step_seconds(replace(shared, gpus_per_node=16), decode(64)) < step_seconds(shared, decode(64))


def test_slices_of_experts_that_get_too_thin_lose_to_whole_experts_in_prefill():
    sliced = make_shape(model=MOE, gpu=H200, tensor_parallel=8)
    assert step_seconds(replace(sliced, expert_parallel=True), prefill(4096)) < step_seconds(sliced, prefill(4096))


def test_async_scheduling_and_captured_graphs_save_time_at_every_step():
    base = step_seconds(make_shape(), decode(1))
    assert step_seconds(make_shape(async_scheduling=False), decode(1)) > base
    assert step_seconds(make_shape(graph_sizes=()), decode(1)) > base
