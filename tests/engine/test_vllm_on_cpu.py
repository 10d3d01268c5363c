"""The assumptions that tuner, operator and demo make about vLLM, held against the real one."""

import json
import signal
import threading
import urllib.request

import pytest

from engine.conftest import START_SECONDS, eventually
from frontier_tuner.configuration import Configuration
from frontier_tuner.engines import vllm
from frontier_tuner.failures import classify_exit

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2400)]

SPECULATING = Configuration.of({"maxNumSeqs": 8, "maxNumBatchedTokens": 512, "numSpeculativeTokens": 3})
PROMPT = list(range(100, 164))


def stream(engine, output_tokens):
    """Return the chunks of a streamed completion of a prompt of token ids."""
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = {"model": "tiny", "prompt": PROMPT, "max_tokens": output_tokens, "temperature": 0}
    body |= {"ignore_eos": True, "stream": True, "stream_options": options}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{engine.url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        lines = [line.decode().strip() for line in answer]
    assert lines[-2] == "data: [DONE]"
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def metrics(engine):
    """Return the sum of every series by its name."""
    with urllib.request.urlopen(f"{engine.url}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    sums = {}
    for line in lines:
        if line.startswith("vllm:"):
            name = line.partition("{")[0]
            sums[name] = sums.get(name, 0.0) + float(line.rpartition(" ")[2])
    return sums


def test_the_model_is_the_same_in_two_processes_and_another_with_another_seed(make_model, tmp_path):
    first, second = make_model(tmp_path / "a"), make_model(tmp_path / "b")
    assert first.split()[-1] == second.split()[-1]
    assert make_model(tmp_path / "c", "--seed", "2").split()[-1] != first.split()[-1]
    assert make_model(tmp_path / "a").startswith("kept ")


def test_a_speculating_engine_streams_counts_and_drains(start_engine, model):
    engine = start_engine(model, *vllm.command_line(SPECULATING))
    eventually(engine.is_ready, START_SECONDS, "the engine is ready")

    chunks = stream(engine, 48)
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 48
    assert {chunk["usage"]["prompt_tokens"] for chunk in chunks} == {len(PROMPT)}
    assert chunks[-1]["choices"] == []

    seen = metrics(engine)
    assert seen["vllm:time_to_first_token_seconds_count"] == 1
    assert seen["vllm:generation_tokens_total"] == 48
    assert seen["vllm:prompt_tokens_total"] == len(PROMPT)
    assert seen["vllm:spec_decode_num_draft_tokens_total"] >= seen["vllm:spec_decode_num_accepted_tokens_total"] > 0

    in_flight = []
    client = threading.Thread(target=lambda: in_flight.extend(stream(engine, 1200)))
    client.start()
    eventually(lambda: metrics(engine)["vllm:num_requests_running"] == 1, 60, "the long request runs")
    engine.process.send_signal(signal.SIGTERM)
    client.join(timeout=120)
    assert in_flight[-1]["usage"]["completion_tokens"] == 1200
    assert engine.process.wait(timeout=120) == 0
    eventually(lambda: engine.processes() == 0, 30, "no process of the engine is left")


@pytest.mark.parametrize(
    ("arguments", "want_code", "want_words"),
    [
        (["--no-such-flag=3"], 2, "unrecognized arguments: --no-such-flag"),
        (["--max-num-seqs=256", "--max-num-batched-tokens=128"], 1, "max_num_batched_tokens (128) must be greater"),
    ],
)
def test_arguments_that_vllm_refuses_are_told_from_its_last_words(
    start_engine, model, arguments, want_code, want_words
):
    engine = start_engine(model, *arguments)
    assert engine.process.wait(timeout=START_SECONDS) == want_code
    failure = classify_exit(want_code, engine.last_words()[-2048:], was_ready=False)
    assert failure.reason == "EngineArgumentsRefused"
    assert want_words in failure.message
