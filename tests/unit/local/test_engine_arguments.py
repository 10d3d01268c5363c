"""The command line is vLLM's, and what a real engine refuses is refused with the same exit code and meaning."""

import json

import pytest

from frontier_local.engine.arguments import parse_arguments
from frontier_local.engine.environment import Environment, Faults, read_environment
from frontier_local.engine.errors import ArgumentsRefusedError, OutOfMemoryError
from frontier_local.engine.plan import plan_engine
from frontier_tuner.facts import gpu_facts, model_facts

LLAMA = "meta-llama/Llama-3.1-8B"


def plan(*argv, model=LLAMA, gpu="NVIDIA-L40S", **environment):
    arguments = parse_arguments(["--model", model, *argv])
    return plan_engine(arguments, model_facts(model, {}), gpu_facts(gpu), Environment(**environment))


def speculation(method, tokens=3):
    return ("--speculative-config", json.dumps({"method": method, "num_speculative_tokens": tokens}))


@pytest.mark.parametrize(
    "argv",
    [
        ["--model", LLAMA, "--max-num-seqs", "8", "-tp", "2"],
        ["--model", LLAMA, "--max-num-seqs=8", "--tensor-parallel-size=2"],
        [LLAMA, "--max_num_seqs", "8", "--tensor_parallel_size", "2"],
        [f"--model={LLAMA}", "--max_num_seqs=8", "-tp=2"],
    ],
)
def test_options_may_be_written_in_every_way_of_the_real_command_line(argv):
    arguments = parse_arguments(argv)
    assert (arguments.model, arguments.max_num_seqs, arguments.tensor_parallel_size) == (LLAMA, 8, 2)


def test_every_option_of_a_rendered_pod_is_understood():
    plain = (
        f"--model {LLAMA} --served-model-name one two --host 127.0.0.2 --port 8000 --max-model-len 32k --dtype auto "
        "--gpu-memory-utilization 0.85 --quantization fp8 --seed 3 --enforce-eager --block-size 32 --trust-remote-code "
        "--no-enable-prefix-caching --no-enable-chunked-prefill --enable-expert-parallel --kv-cache-dtype fp8 -pp 2 "
        "--data-parallel-size 2 --max-num-batched-tokens 32K --async-scheduling --tensor-parallel-size 4"
    )
    objects = [
        "--kv-transfer-config",
        '{"kv_connector":"X"}',
        "--compilation-config",
        '{"max_cudagraph_capture_size":64}',
    ]
    arguments = parse_arguments([*plain.split(), *objects, *speculation("ngram")])
    assert arguments.served_model_name == ("one", "two")
    assert (arguments.max_model_len, arguments.max_num_batched_tokens) == (32000, 32768)
    assert (arguments.enable_prefix_caching, arguments.enable_chunked_prefill) == (False, False)
    assert arguments.speculative_config == {"method": "ngram", "num_speculative_tokens": 3}
    assert arguments.compilation_config == {"max_cudagraph_capture_size": 64}


@pytest.mark.parametrize(
    ("argv", "want_last_line"),
    [
        (["--model", "m", "--no-such-flag", "3"], "error: unrecognized arguments: --no-such-flag 3"),
        ([], "error: the following arguments are required: --model"),
        (["a", "--model", "b"], "error: the model is given twice: a and --model b; give one"),
        (["--model", "m", "--max-num-seqs", "0"], "error: argument --max-num-seqs: 0 is no whole number of at least 1"),
        (["--model", "m", "--max-num-seqs", "many"], "--max-num-seqs: many is no whole number of at least 1"),
        (["--model", "m", "--gpu-memory-utilization", "1.5"], "1.5 is no share of the memory"),
        (["--model", "m", "--speculative-config", "{"], "error: argument --speculative-config: { is no JSON"),
        (["--model", "m", "--speculative-config", "3"], "error: argument --speculative-config: 3 is no JSON object"),
        (["--model", "m", "--max-model-len", "8q"], "8q is no number of tokens"),
        (["--model", "m", "--port", "70000"], "70000 is no port"),
    ],
)
def test_a_command_line_that_cannot_be_read_ends_with_code_2(argv, want_last_line, capsys):
    with pytest.raises(SystemExit) as ending:
        parse_arguments(argv)
    assert ending.value.code == 2
    assert want_last_line in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("over", "argv", "want_message"),
    [
        ({}, ["--max-num-seqs", "256", "--max-num-batched-tokens", "128"], r"\(128\) must be greater than or equal to"),
        ({}, ["--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"], "smaller than max_model_len"),
        ({}, ["-tp", "3"], r"attention heads \(32\) must be divisible by tensor parallel size \(3\)"),
        ({}, ["-pp", "33"], "greater than the number of layers"),
        ({}, ["--enable-expert-parallel"], "Number of experts"),
        ({"gpu": "NVIDIA-A100-SXM4-80GB"}, ["--kv-cache-dtype", "fp8"], "needs compute capability 8.9"),
        ({"gpu": "Tesla-V100-SXM2-32GB"}, ["--dtype", "bfloat16"], "Bfloat16 is only supported"),
        ({}, ["--quantization", "fp3"], "Unknown quantization method: fp3"),
        ({}, ["--quantization", "awq"], "Cannot find a quantization config"),
        ({}, ["--max-model-len", "200000"], "greater than the derived max_model_len"),
        ({"gpu": "NVIDIA-L4"}, ["--max-model-len", "100000"], "To serve at least one request"),
        ({}, ["-tp", "4", "-dp", "2"], r"World size \(8\) is larger than the number of available GPUs \(4\)"),
        ({}, speculation("mtp"), "has none"),
        ({}, speculation("telepathy"), "method is 'telepathy'"),
        ({}, speculation("ngram", 0), "num_speculative_tokens is 0"),
        ({}, (*speculation("eagle"), "-pp", "2"), "not supported with pipeline parallelism"),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "gpu": "NVIDIA-H200"}, ["-tp", "8"], "not divisible by weight quantiz"),
        ({"model": "Qwen/Qwen3-8B-FP8"}, ["--quantization", "mxfp8"], "Unknown quantization method"),
    ],
)
def test_arguments_that_cannot_work_are_refused_with_the_reason(over, argv, want_message):
    with pytest.raises(ArgumentsRefusedError, match=want_message) as refusal:
        plan(*argv, **{"visible_gpus": 4 if "-dp" in argv else None, **over})
    assert refusal.value.last_line.startswith("ValueError: ")
    assert "\n" not in refusal.value.last_line


@pytest.mark.parametrize(
    ("over", "argv"),
    [
        ({"gpu": "Tesla-T4"}, []),
        ({"model": "Qwen/Qwen3-32B", "gpu": "NVIDIA-L40S"}, []),
        ({"gpu": "NVIDIA-L4"}, ["--max-num-batched-tokens", "131072"]),
        ({"gpu": "NVIDIA-L40S"}, ["--gpu-memory-utilization", "0.3"]),
    ],
)
def test_weights_and_activations_that_do_not_fit_run_out_of_memory(over, argv):
    with pytest.raises(OutOfMemoryError) as ending:
        plan("--max-model-len", "2048", *argv, **over)
    assert ending.value.last_line.startswith("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ")
    assert "GiB. GPU 0 has a total capacity of" in ending.value.last_line


@pytest.mark.parametrize(
    ("over", "argv"),
    [
        ({"model": "Qwen/Qwen3-32B", "gpu": "NVIDIA-L40S"}, ["-tp", "4"]),
        ({"model": "Qwen/Qwen3-32B", "gpu": "NVIDIA-L40S"}, ["-pp", "4"]),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "gpu": "NVIDIA-H200"}, ["-tp", "8", "--enable-expert-parallel"]),
        ({"model": "deepseek-ai/DeepSeek-V3", "gpu": "NVIDIA-H200"}, ["-tp", "8", *speculation("mtp", 1)]),
    ],
)
def test_what_fits_a_real_machine_starts(over, argv):
    assert plan("--max-model-len", "8192", *argv, **over).limits.blocks > 512


def test_fp8_cache_doubles_the_tokens_that_fit():
    whole, half = (plan("--max-model-len", "8192", "--kv-cache-dtype", kind).limits.blocks for kind in ("auto", "fp8"))
    assert half == pytest.approx(2 * whole, abs=1)


def test_a_larger_budget_costs_cache():
    small, large = (plan("--max-model-len", "8192", "--max-num-batched-tokens", size) for size in ("2048", "16384"))
    assert large.limits.blocks < small.limits.blocks


def test_the_engines_own_defaults_depend_on_the_gpu():
    small, large = plan("--max-model-len", "8192").limits, plan("--max-model-len", "8192", gpu="NVIDIA-H200").limits
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    assert (large.max_num_seqs, large.max_num_batched_tokens) == (1024, 8192)


def test_bigger_weights_and_more_graphs_take_longer_to_start():
    base = plan("--max-model-len", "8192")
    assert plan("--max-model-len", "8192", "--enforce-eager").start_seconds < base.start_seconds
    assert plan("--max-model-len", "8192", "-dp", "4").start_seconds > base.start_seconds


def test_the_environment_is_read():
    environment = read_environment(
        {
            "FRONTIER_SIM_GPU": "NVIDIA-H200",
            "FRONTIER_SIM_TIME_SCALE": "4",
            "FRONTIER_SIM_START_SECONDS": "0",
            "FRONTIER_SIM_FAULTS": '{"crashAfterRequests": 1, "nanMetrics": true, "resetCountersAfterSeconds": 0.5}',
            "CUDA_VISIBLE_DEVICES": "0,1",
        }
    )
    assert environment == Environment(
        gpu="NVIDIA-H200",
        time_scale=4,
        start_seconds=0,
        visible_gpus=2,
        faults=Faults(crash_after_requests=1, nan_metrics=True, reset_counters_after_seconds=0.5),
    )
    assert read_environment({}) == Environment()


@pytest.mark.parametrize(
    ("name", "value", "want_message"),
    [
        ("TIME_SCALE", "0", "FRONTIER_SIM_TIME_SCALE=0 must be a number from 0.001"),
        ("NOISE_PERCENT", "much", "FRONTIER_SIM_NOISE_PERCENT=much must be a number"),
        ("ACCEPTANCE_PERCENT", "101", "must be a number from 0 to 100"),
        ("FAULTS", "{", "FRONTIER_SIM_FAULTS={ is no JSON"),
        ("FAULTS", "[]", "must be a JSON object"),
        ("FAULTS", '{"explode": 1}', "unknown fault explode; known are crashAfterRequests"),
        ("FAULTS", '{"nanMetrics": 1}', "nanMetrics is 1 and must be true or false"),
        ("FAULTS", '{"crashAfterRequests": "1"}', "crashAfterRequests is '1' and must be a number"),
    ],
)
def test_an_environment_that_cannot_be_read_is_refused_by_name_and_value(name, value, want_message):
    with pytest.raises(ArgumentsRefusedError, match=want_message.replace("{", r"\{").replace("[", r"\[")):
        read_environment({f"FRONTIER_SIM_{name}": value})
