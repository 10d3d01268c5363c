"""What a workload declares to share is what the prefix cache of an engine serves: seen in the engine's own counters."""

import json
import socket
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from frontier_local.engine.arguments import parse_arguments
from frontier_local.engine.environment import Environment
from frontier_local.engine.plan import plan_engine
from frontier_local.engine.server import Engine
from frontier_tuner.facts import gpu_facts, model_facts
from frontier_tuner.load.generator import generate
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.measurement import Load

MODEL = "meta-llama/Llama-3.1-8B"
QUERIES, HITS = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"


@asynccontextmanager
async def simulated_engine(*argv):
    arguments = parse_arguments(["--model", MODEL, "--served-model-name", "m", "--max-model-len", "16384", *argv])
    environment = Environment(gpu="NVIDIA-H200", time_scale=200)
    plan = plan_engine(arguments, model_facts(MODEL, {}), gpu_facts("NVIDIA-H200"), environment)
    engine = Engine(arguments, plan, environment, pytest.fail)
    runner = web.AppRunner(engine.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield "http://{}:{}".format(*runner.addresses[0][:2])
    finally:
        await runner.cleanup()


async def counters(url):
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        families = text_string_to_metric_families(await response.text())
        samples = [sample for family in families for sample in family.samples]
    return {name: sum(sample.value for sample in samples if sample.name == name) for name in (QUERIES, HITS)}


async def measure(url, workload, load, tmp_path, seed=1):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    path = tmp_path / "records.jsonl"
    options = LoadOptions(
        url,
        "m",
        load,
        workload,
        duration_seconds=1.5,
        warm_up_seconds=0.5,
        scrape_wait_seconds=0.0,
        seed=seed,
        metrics_listen=f"127.0.0.1:{port}",
        records=str(path),
        vocabulary=32_000,
    )
    summary = await generate(options)
    return summary, [json.loads(line) for line in path.read_text().splitlines()]


def profile(turns, percent, think="0s", **lengths):
    session = {"turns": turns, "sharedPrefixPercent": percent, "thinkTime": think}
    return {"profile": {"inputTokens": lengths, "outputTokens": {"mean": 4}, "session": session}}


def share(records, name):
    return sum(record[name] for record in records) / sum(record["inputTokens"] for record in records)


@pytest.mark.parametrize("load", [Load("Concurrency", 4), Load("RequestRate", 100)], ids=str)
@pytest.mark.parametrize(
    ("workload", "percent"),
    [
        (profile(1, 40, mean=512, p95=1024), 40),
        (profile(4, 80, mean=512, p95=1024), 80),
        (profile(8, 50, mean=512, think="20ms"), 50),
        (profile(12, 80, mean=1024, p95=2048, think="50ms"), 80),
        (profile(3, 0, mean=512), 0),
    ],
    ids=["common-40", "chat-80", "fixed-50", "agentic-80", "none"],
)
async def test_the_engines_hit_rate_is_the_declared_one(tmp_path, workload, percent, load):
    async with simulated_engine() as url:
        summary, records = await measure(url, workload, load, tmp_path)
        seen = await counters(url)
    measured = [record for record in records if record["phase"] == "measure"]
    # The last requests may be cut before they are admitted; what was admitted is in the counters.
    answered = [record for record in records if record["cachedTokens"] is not None]
    assert len(answered) >= 0.7 * len(records) > 50
    assert seen[HITS] / seen[QUERIES] == pytest.approx(share(answered, "cachedTokens"), abs=0.01)
    assert summary.shared_tokens / summary.input_tokens == pytest.approx(share(measured, "sharedTokens"), abs=1e-9)
    whole = [record for record in measured if record["result"] == "ok"]
    assert share(whole, "cachedTokens") == pytest.approx(share(whole, "sharedTokens"), abs=0.02)
    assert share(whole, "cachedTokens") == pytest.approx(percent / 100, abs=0.06)


async def test_a_mooncake_trace_hits_as_its_hash_ids_say(tmp_path):
    rows, fresh = [], 100
    for number in range(80):
        common = [0, 1] if number % 2 else [0, 1, 2, 3]
        rows.append({"timestamp": 25 * number, "input_length": 512 * (len(common) + 1), "output_length": 2})
        rows[-1]["hash_ids"] = [*common, fresh + number]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    workload = {"trace": {"path": str(path), "format": "Mooncake"}}
    async with simulated_engine() as url:
        _, records = await measure(url, workload, Load("RequestRate", 40), tmp_path)
    measured = [record for record in records if record["phase"] == "measure"]
    assert share(measured, "cachedTokens") == pytest.approx(share(measured, "sharedTokens"), abs=0.01)
    assert share(measured, "cachedTokens") == pytest.approx((2 + 4) / (3 + 5), abs=0.05)


async def test_case_54_a_second_run_finds_only_what_it_shares_itself(tmp_path):
    workload = profile(1, 0, mean=512)
    async with simulated_engine() as url:
        await measure(url, workload, Load("RequestRate", 60), tmp_path, seed=1)
        before = await counters(url)
        summary, _ = await measure(url, workload, Load("RequestRate", 60), tmp_path, seed=2)
        after = await counters(url)
        await measure(url, workload, Load("RequestRate", 60), tmp_path, seed=2)
        repeated = await counters(url)
    assert summary.shared_tokens == 0
    assert (after[HITS] - before[HITS]) / (after[QUERIES] - before[QUERIES]) < 0.01
    assert (repeated[HITS] - after[HITS]) / (repeated[QUERIES] - after[QUERIES]) > 0.5
