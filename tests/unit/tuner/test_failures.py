import pytest

from frontier_tuner.failures import classify_exit, hides_its_cause, start_timeout

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has 8 GiB"
NO_ROOM = (
    "ValueError: To serve at least one request with the model's max seq len (40960), 5.6 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (2.1 GiB)."
)
INVALID = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n  Value error, Unknown x"
CORE = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"


@pytest.mark.parametrize(
    ("code", "words", "reason", "telling"),
    [
        (1, f"INFO loading\n(EngineCore pid=7) ERROR {OOM}\n{CORE}", "EngineOutOfMemory", "CUDA out of memory"),
        (
            1,
            "ValueError: No available memory for the cache blocks. Try a higher one.",
            "EngineOutOfMemory",
            "cache blocks",
        ),
        (
            1,
            NO_ROOM,
            "EngineOutOfMemory",
            "larger than",
        ),
        (137, "OOMKilled", "EngineOutOfMemory", "OOMKilled"),
        (
            2,
            "usage: api_server.py\napi_server.py: error: unrecognized arguments: --nope",
            "EngineArgumentsRefused",
            "--nope",
        ),
        (2, "", "EngineArgumentsRefused", "exit code 2"),
        (
            1,
            f"ValueError: max_num_batched_tokens (8) is below max_num_seqs (16)\n{CORE}",
            "EngineArgumentsRefused",
            "below",
        ),
        (
            1,
            INVALID,
            "EngineArgumentsRefused",
            "Value error, Unknown x",
        ),
        (1, f"OSError: cannot open the model\n{CORE}", "EngineStartFailed", "cannot open the model"),
        (1, "INFO Available KV cache memory: 3.2 GiB\nSegmentation fault", "EngineStartFailed", "Segmentation fault"),
        (-9, "", "EngineStartFailed", "exit code -9"),
        (None, "", "EngineStartFailed", "unknown exit code"),
    ],
)
def test_an_engine_that_never_was_ready(code, words, reason, telling):
    failure = classify_exit(code, words, was_ready=False)
    assert failure.reason == reason
    assert telling in failure.message
    assert failure.failure_class == "Configuration"


@pytest.mark.parametrize(
    ("words", "reason"), [("ValueError: bad token", "EngineDied"), ("", "EngineDied"), (OOM, "EngineOutOfMemory")]
)
def test_an_engine_that_was_ready_has_died_or_run_out_of_memory(words, reason):
    assert classify_exit(1, words, was_ready=True).reason == reason


def test_a_slow_start_says_how_long_it_was_waited_for():
    failure = start_timeout(90, "INFO compiling\n")
    assert failure.reason == "EngineStartTimeout"
    assert failure.message == "not ready within 90 s; its last words: INFO compiling"


def test_a_message_stays_short():
    assert len(classify_exit(1, "E" * 100_000, was_ready=False).message) <= 1000


@pytest.mark.parametrize(
    ("words", "want"),
    [
        (CORE, True),
        (f"(EngineCore) ERROR ValueError: no such thing\n{CORE}", True),
        (f"{NO_ROOM}\n{CORE}", False),
        ("api_server.py: error: unrecognized arguments: --nope", False),
        ("", False),
    ],
)
def test_words_that_only_point_at_a_cause_ask_for_more_of_the_log(words, want):
    assert hides_its_cause(words) is want
