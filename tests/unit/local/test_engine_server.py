"""A live engine over loopback: what clients stream, what they are told, and what Prometheus scrapes."""

import asyncio
import contextlib
import json
import math

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from frontier_local.engine.arguments import parse_arguments
from frontier_local.engine.environment import Environment, Faults
from frontier_local.engine.plan import plan_engine
from frontier_local.engine.server import Engine
from frontier_tuner.facts import gpu_facts, model_facts

MODEL = "meta-llama/Llama-3.1-8B"
USAGE = {"include_usage": True, "continuous_usage_stats": True}


class Client:
    def __init__(self, session, url, engine):
        self.session, self.url, self.engine = session, url, engine

    async def post(self, path, **body):
        async with self.session.post(self.url + path, json=body) as response:
            return response.status, await response.json()

    async def complete(self, **body):
        return await self.post("/v1/completions", **{"prompt": [1, 2, 3], "max_tokens": 4, "ignore_eos": True, **body})

    async def stream(self, path="/v1/completions", **body):
        body = {
            "prompt": [1, 2, 3],
            "max_tokens": 4,
            "ignore_eos": True,
            "stream_options": USAGE,
            **body,
            "stream": True,
        }
        async with self.session.post(self.url + path, json=body) as response:
            assert response.status == 200
            assert response.content_type == "text/event-stream"
            text = await response.text()
        events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]

    async def get(self, path):
        async with self.session.get(self.url + path) as response:
            return response.status, await response.text()

    async def metrics(self):
        _, text = await self.get("/metrics")
        return list(text_string_to_metric_families(text))

    async def value(self, name, **labels):
        found = [
            sample.value
            for family in await self.metrics()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no sample {name} with {labels}"
        return sum(found)


@contextlib.asynccontextmanager
async def serving(*argv, crash=None, **environment):
    arguments = parse_arguments(["--model", MODEL, "--served-model-name", "m", "--max-model-len", "8192", *argv])
    settings = Environment(**{"gpu": "NVIDIA-H200", "time_scale": 100, **environment})
    plan = plan_engine(arguments, model_facts(MODEL, {}), gpu_facts(settings.gpu), settings)
    engine = Engine(arguments, plan, settings, crash or pytest.fail)
    runner = web.AppRunner(engine.application(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    async with aiohttp.ClientSession() as session:
        yield Client(session, f"http://{host}:{port}", engine)
    await runner.cleanup()


async def eventually(condition, tries=500):
    for _ in range(tries):
        if await condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not happen in time")


async def test_a_stream_has_one_chunk_per_step_its_usage_and_an_end():
    async with serving() as client:
        chunks = await client.stream(max_tokens=20)
    said = [chunk for chunk in chunks if chunk["choices"]]
    assert [chunk["usage"]["completion_tokens"] for chunk in said][-1] == 20
    assert all(chunk["usage"]["prompt_tokens"] == 3 for chunk in said)
    assert all(chunk["choices"][0]["text"] for chunk in said)
    assert [chunk["choices"][0]["finish_reason"] for chunk in said] == [None] * (len(said) - 1) + ["length"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 20
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


async def test_a_stream_without_options_carries_no_usage():
    async with serving() as client:
        chunks = await client.stream(stream_options=None)
    assert not any("usage" in chunk for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)


async def test_chats_are_answered_whole_and_streamed():
    messages = [{"role": "user", "content": "What is a frontier?"}]
    async with serving() as client:
        status, whole = await client.post(
            "/v1/chat/completions", model="m", messages=messages, max_tokens=8, ignore_eos=True
        )
        chunks = await client.stream("/v1/chat/completions", messages=messages, max_tokens=8)
    assert (status, whole["object"], whole["usage"]["completion_tokens"]) == (200, "chat.completion", 8)
    streamed = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])
    assert streamed == whole["choices"][0]["message"]["content"]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"


async def test_a_model_left_to_itself_stops_but_not_before_min_tokens():
    async with serving() as client:
        _, free = await client.complete(ignore_eos=False, max_tokens=4000)
        _, held = await client.complete(ignore_eos=False, max_tokens=4000, min_tokens=3000)
    assert free["choices"][0]["finish_reason"] == "stop"
    assert free["usage"]["completion_tokens"] < 3000 <= held["usage"]["completion_tokens"]


async def test_the_next_turn_finds_the_last_one_in_the_cache():
    async with serving() as client:
        prompt = "one two three " * 40
        _, first = await client.complete(prompt=prompt, max_tokens=64)
        turn = prompt + first["choices"][0]["text"] + " and then?"
        _, second = await client.complete(prompt=turn)
        hits = await client.value("vllm:prefix_cache_hits_total")
        queries = await client.value("vllm:prefix_cache_queries_total")
    cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > first["usage"]["prompt_tokens"] + 32
    assert hits == cached
    assert queries == first["usage"]["prompt_tokens"] + second["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("body", "want_status", "want_parameter", "want_message"),
    [
        ({"prompt": [1] * 8192}, 400, "input_tokens", "maximum context length is 8192 tokens"),
        ({"max_tokens": 8190}, 400, "input_tokens", "you requested 8190 output tokens and your prompt contains 3"),
        ({"model": "other"}, 404, "model", "`other` does not exist; served are m"),
        ({"prompt": []}, 400, "prompt", "at least one token"),
        ({"prompt": ["a", "b"]}, 400, "prompt", "one text or one list of token ids"),
        ({"prompt": [10**9]}, 400, "prompt", "out of vocabulary"),
        ({"max_tokens": 0}, 400, "max_tokens", "at least 1, got 0"),
        ({"max_tokens": "many"}, 400, "max_tokens", "got 'many'"),
        ({"n": 2}, 400, "n", "only 1 is supported"),
        ({"stream_options": 3}, 400, "stream_options", "must be an object"),
    ],
)
async def test_bad_requests_are_refused_with_field_and_value(body, want_status, want_parameter, want_message):
    async with serving() as client:
        status, answer = await client.complete(**body)
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (want_status, want_status, want_parameter)
    assert want_message in answer["error"]["message"]


async def test_a_body_that_is_no_json_is_refused():
    async with serving() as client, client.session.post(client.url + "/v1/completions", data=b"{") as response:
        assert response.status == 400
        assert "no JSON" in (await response.json())["error"]["message"]


async def test_health_version_and_models_are_told():
    async with serving() as client:
        assert await client.get("/health") == (200, "")
        assert json.loads((await client.get("/version"))[1])["version"]
        model = json.loads((await client.get("/v1/models"))[1])["data"][0]
    assert (model["id"], model["max_model_len"]) == ("m", 8192)


async def test_metrics_count_every_request_and_token():
    async with serving("--max-num-seqs", "4") as client:
        await asyncio.gather(*(client.complete(prompt=[index, 2, 3], max_tokens=6) for index in range(10)))
        families = {family.name: family for family in await client.metrics()}
        totals = {name: await client.value(f"vllm:{name}_total") for name in ("prompt_tokens", "generation_tokens")}
        success = await client.value("vllm:request_success_total", finished_reason="length", model_name="m", engine="0")
    assert totals == {"prompt_tokens": 30, "generation_tokens": 60}
    assert success == 10
    reasons = {sample.labels["finished_reason"] for sample in families["vllm:request_success"].samples}
    assert reasons == {"stop", "length", "abort", "error", "repetition"}
    for family in families.values():
        if family.type == "histogram" and family.name.startswith("vllm:"):
            count = next(sample.value for sample in family.samples if sample.name.endswith("_count"))
            infinite = next(sample.value for sample in family.samples if sample.labels.get("le") == "+Inf")
            want = {"vllm:inter_token_latency_seconds": 50, "vllm:iteration_tokens_total": count}.get(family.name, 10)
            assert (family.name, count, infinite) == (family.name, want, want)
    bounds = [sample.labels["le"] for sample in families["vllm:time_to_first_token_seconds"].samples[:3]]
    assert bounds == ["0.001", "0.005", "0.01"]
    assert families["vllm:kv_cache_usage_perc"].samples[0].value == 0
    assert "vllm:spec_decode_num_drafts" not in families


async def test_the_effective_settings_are_exported():
    async with serving("--kv-cache-dtype", "fp8", "--no-enable-prefix-caching", "--block-size", "32") as client:
        families = {family.name: family for family in await client.metrics()}
    labels = families["vllm:cache_config_info"].samples[0].labels
    assert (labels["cache_dtype"], labels["enable_prefix_caching"], labels["block_size"]) == ("fp8", "False", "32")
    assert int(labels["num_gpu_blocks"]) > 1000
    assert labels["engine"] == "0"


async def test_speculation_brings_several_tokens_in_a_chunk_and_counts_them():
    config = json.dumps({"method": "ngram", "num_speculative_tokens": 3})
    async with serving("--speculative-config", config, acceptance_percent=100) as client:
        chunks = await client.stream(max_tokens=13)
        names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
        counts = [await client.value(f"vllm:spec_decode_{name}_total") for name in names]
        first = await client.value("vllm:spec_decode_num_accepted_tokens_per_pos_total", position="0")
    assert chunks[-1]["usage"]["completion_tokens"] == 13
    assert counts == [3, 9, 9]
    assert first == 3


async def test_replicas_take_turns_under_their_own_label():
    async with serving("-dp", "2") as client:
        for _ in range(4):
            await client.complete()
        counts = [await client.value("vllm:request_success_total", engine=engine) for engine in "01"]
    assert counts == [2, 2]


async def test_a_client_that_goes_away_frees_its_sequence():
    async with serving("--max-num-seqs", "1", time_scale=1) as client:
        body = {"prompt": [1], "max_tokens": 8000, "ignore_eos": True, "stream": True}
        running = await client.session.post(client.url + "/v1/completions", json=body)
        await running.content.readany()
        waiting = asyncio.create_task(client.complete(max_tokens=8000))
        await eventually(lambda: _equals(client, "vllm:num_requests_waiting", 1))
        waiting.cancel()
        running.close()
        await eventually(lambda: _equals(client, "vllm:request_success_total", 2, finished_reason="abort"))
        assert await client.value("vllm:kv_cache_usage_perc") == 0


async def _equals(client, name, want, **labels):
    return await client.value(name, **labels) == want


async def test_draining_refuses_new_requests_and_answers_the_others():
    async with serving(time_scale=4) as client:
        answer = asyncio.create_task(client.complete(max_tokens=200))
        await eventually(lambda: _equals(client, "vllm:num_requests_running", 1))
        drain = asyncio.create_task(client.engine.drain(10))
        await asyncio.sleep(0)
        status, refusal = await client.complete()
        await drain
        assert (await answer)[1]["usage"]["completion_tokens"] == 200
    assert (status, refusal["error"]["message"]) == (503, "the engine is shutting down")


async def test_the_crash_is_called_for_at_the_request_that_is_due():
    crashes = []
    async with serving(crash=crashes.append, faults=Faults(crash_after_requests=2)) as client:
        await client.complete()
        assert not crashes
        await client.complete()
    assert [crash.last_line.split(":")[0] for crash in crashes] == ["RuntimeError"]


async def test_a_hung_engine_is_healthy_and_silent():
    async with serving(faults=Faults(hang_after_requests=2)) as client:
        await client.complete()
        silent = asyncio.create_task(client.complete())
        await eventually(lambda: _equals(client, "vllm:num_requests_waiting", 1))
        assert (await client.get("/health"))[0] == 200
        assert not silent.done()
        silent.cancel()


async def test_a_slow_engine_is_slow_from_the_request_on_that_makes_it_so():
    async with serving(faults=Faults(slow_after_requests=2, slow_factor=20), time_scale=5) as client:
        times = []
        for _ in range(2):
            started = asyncio.get_running_loop().time()
            await client.complete(max_tokens=16)
            times.append(asyncio.get_running_loop().time() - started)
    assert times[1] > 3 * times[0]


async def test_nan_metrics_are_nan_everywhere():
    async with serving(faults=Faults(nan_metrics=True)) as client:
        samples = [
            sample for family in await client.metrics() if family.name.startswith("vllm:") for sample in family.samples
        ]
    assert samples
    assert all(math.isnan(sample.value) for sample in samples)


async def test_counters_fall_to_zero_once():
    async with serving(faults=Faults(reset_counters_after_seconds=0.2)) as client:
        await client.complete()
        await eventually(lambda: _equals(client, "vllm:generation_tokens_total", 0))
        await client.complete()
        assert await client.value("vllm:generation_tokens_total") == 4


async def test_the_same_prompt_is_answered_the_same_way_and_another_differently():
    async with serving() as client:
        texts = [
            (await client.complete(prompt=prompt, max_tokens=12))[1]["choices"][0]["text"]
            for prompt in ("hello", "hello", "goodbye")
        ]
    assert texts[0] == texts[1] != texts[2]
