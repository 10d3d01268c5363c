import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from frontier_tuner import cli
from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.compare import OURS, Comparison, compare, figures_of, installed, run_ours, run_rival
from frontier_tuner.load.rivals import RIVALS, Figures, Task
from frontier_tuner.measurement import Load

TASK = Task("http://h:1", "m", Load("Concurrency", 8), 256, 64, 20, 100, 30.0, seed=3, tokenizer="/models/tiny")
OPEN = Task("http://h:1", "m", Load("RequestRate", 2.5), 256, 64, 20, 75, 30.0, seed=3)

REPORTS = {
    "vllm": (
        "result.json",
        {
            "completed": 99,
            "output_throughput": 170.5,
            "p50_ttft_ms": 40.0,
            "p95_ttft_ms": 80.0,
            "p50_itl_ms": 22.0,
            "p95_itl_ms": 30.0,
        },
    ),
    "aiperf": (
        "profile_export_aiperf.json",
        {
            "request_count": {"avg": 99.0},
            "output_token_throughput": {"avg": 170.5},
            "time_to_first_token": {"p50": 40.0, "p95": 80.0},
            "inter_chunk_latency": {"p50": 22.0, "p95": 30.0},
            "inter_token_latency": {"p50": 1.0, "p95": 1.0},
        },
    ),
    "guidellm": (
        "result.json",
        {
            "benchmarks": [
                {
                    "metrics": {
                        "request_totals": {"successful": 99},
                        "output_tokens_per_second": {"successful": {"mean": 170.5}},
                        "time_to_first_token_ms": {"successful": {"percentiles": {"p50": 40.0, "p95": 80.0}}},
                        "inter_token_latency_ms": {"successful": {"percentiles": {"p50": 22.0, "p95": 30.0}}},
                    }
                }
            ]
        },
    ),
    "inference-perf": (
        "summary_lifecycle_metrics.json",
        {
            "successes": {
                "count": 99,
                "throughput": {"output_tokens_per_sec": 170.5},
                "latency": {
                    "time_to_first_token": {"median": 0.04, "p95": 0.08},
                    "inter_token_latency": {"median": 0.022, "p95": 0.03},
                },
            }
        },
    ),
}
EXPECTED = Figures(0.04, 0.08, 0.022, 0.03, 170.5, 99)


@pytest.mark.parametrize("name", RIVALS)
def test_what_each_generator_writes_is_read(tmp_path, name):
    file, body = REPORTS[name]
    (tmp_path / file).write_text(json.dumps(body))
    assert RIVALS[name].read(tmp_path) == EXPECTED


@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.parametrize("text", [None, "", "{", "{}", "[]", '"x"'])
def test_case_128_a_result_that_is_missing_cut_or_incomplete_is_an_error_that_names_the_file(tmp_path, name, text):
    file = tmp_path / REPORTS[name][0]
    if text is not None:
        file.write_text(text)
    with pytest.raises(MeasurementError, match=str(file)):
        RIVALS[name].read(tmp_path)


@pytest.mark.parametrize("name", RIVALS)
def test_case_128_no_figure_is_filled_in_where_one_is_missing(tmp_path, name):
    file, body = REPORTS[name]
    text = json.dumps(body).replace("ttft", "x").replace("time_to_first_token", "x")
    (tmp_path / file).write_text(text)
    with pytest.raises(MeasurementError, match="is incomplete"):
        RIVALS[name].read(tmp_path)


@pytest.mark.parametrize("name", ["vllm", "aiperf", "guidellm"])
@pytest.mark.parametrize("task", [TASK, OPEN], ids=["closed", "open"])
def test_every_generator_is_told_the_same_load(tmp_path, name, task):
    arguments = " ".join(RIVALS[name].arguments(task, tmp_path))
    assert "http://h:1" in arguments
    assert str(task.requests) in arguments
    assert str(tmp_path) in arguments
    assert ("/models/tiny" in arguments) == bool(task.tokenizer)
    level = {
        ("vllm", "Concurrency"): "--max-concurrency 8",
        ("vllm", "RequestRate"): "--request-rate 2.5",
        ("aiperf", "Concurrency"): "--concurrency 8",
        ("aiperf", "RequestRate"): "--request-rate 2.5 --arrival-pattern poisson",
        ("guidellm", "Concurrency"): "kind=concurrent,streams=8",
        ("guidellm", "RequestRate"): "kind=poisson,rate=2.5",
    }
    assert level[name, task.load.kind] in arguments


@pytest.mark.parametrize(
    ("task", "stage"),
    [(TASK, {"concurrency_level": 8, "num_requests": 100}), (OPEN, {"rate": 2.5, "duration": 30})],
    ids=["closed", "open"],
)
def test_a_generator_that_reads_a_file_finds_it_written(tmp_path, task, stage):
    rival = RIVALS["inference-perf"]
    rival.prepare(task, tmp_path)
    path = Path(rival.arguments(task, tmp_path)[1])
    config = json.loads(path.read_text())
    assert config["load"]["stages"] == [stage]
    assert config["data"]["input_distribution"]["min"] == 204
    assert config["data"]["input_distribution"]["max"] == 308
    assert config["storage"]["local_storage"]["path"] == str(tmp_path)


def test_where_none_is_installed_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="none of vllm, aiperf, guidellm, inference-perf is installed here; install"):
        installed({})


def test_one_on_the_path_is_found(monkeypatch, tmp_path):
    program = tmp_path / "aiperf"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installed({}) == {"aiperf": [str(program)]}
    assert installed({"guidellm": "uvx guidellm"}) == {"guidellm": ["uvx", "guidellm"]}


def test_vllm_may_be_given_as_a_python_that_has_it():
    command = installed({"vllm": "/opt/vllm/bin/python3.11"})["vllm"]
    assert command[:2] == ["/opt/vllm/bin/python3.11", "-c"]
    compile(command[2], "given", "exec")


def test_an_unknown_generator_is_refused():
    with pytest.raises(ValueError, match="locust is not known; known are vllm"):
        installed({"locust": "locust"})


def test_figures_are_those_of_every_token_and_every_request():
    rows = [
        {"ttft": 0.1, "arrivals": [[0.1, 1], [0.2, 1], [0.6, 4]]},
        {"ttft": 0.3, "arrivals": [[0.3, 2], [0.4, 1]]},
    ]
    figures = figures_of(rows, 42.0)
    assert figures.ttft_p50 == pytest.approx(0.2)
    assert figures.itl_p50 == pytest.approx(0.1)
    assert (figures.throughput, figures.answered) == (42.0, 2)
    with pytest.raises(MeasurementError, match="no answer of more than one token"):
        figures_of([{"ttft": 0.1, "arrivals": [[0.1, 1]]}], 1.0)


def make_figures(scale=1.0, answered=50):
    return Figures(0.04 * scale, 0.08 * scale, 0.02 * scale, 0.03 * scale, 100 / scale, answered)


def test_the_table_has_medians_ranges_and_a_verdict_for_each():
    near = [make_figures(1.01), make_figures(1.02), make_figures(1.04)]
    far = [make_figures(1.5), make_figures(1.2)]
    seen = Comparison({OURS: [make_figures()] * 3, "vllm": near, "guidellm": far}, {"aiperf": "ended with exit code 1"})
    table = seen.markdown(5.0)
    assert "| TTFT p50, ms | 40 (40 to 40) | 40.8 (40.4 to 41.6), +2.0 % | 54 (48 to 60), +35.0 % |" in table
    assert "* vllm, within 5 %: agrees in every figure." in table
    assert "* guidellm, within 5 %: differs by more: TTFT p50 +35.0 %, TTFT p95 +35.0 %" in table
    assert "throughput -25.0 %. (its ITL percentiles are of means per request)" in table
    assert "* aiperf failed: ended with exit code 1" in table


WRITES_A_RESULT = """
import json, sys
directory = sys.argv[sys.argv.index("--result-dir") + 1]
print("hello")
open(directory + "/result.json", "w").write({body!r})
"""


def fake_vllm(tmp_path, body):
    program = tmp_path / "bench.py"
    program.write_text(WRITES_A_RESULT.format(body=json.dumps(body)))
    return [sys.executable, str(program)]


def test_a_run_leaves_its_log_and_its_raw_result(tmp_path):
    figures = run_rival(RIVALS["vllm"], fake_vllm(tmp_path, REPORTS["vllm"][1]), TASK, tmp_path / "run")
    assert figures == EXPECTED
    log = (tmp_path / "run/log").read_text()
    assert "--max-concurrency 8" in log.splitlines()[0]
    assert "hello" in log
    assert (tmp_path / "run/result.json").exists()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ([sys.executable, "-c", "raise SystemExit(3)"], "exit code 3; see .*log"),
        ([sys.executable, "-c", "pass"], "result.json cannot be read"),
        (["/no/such/program"], "cannot be started"),
    ],
)
def test_a_generator_that_fails_is_an_error_that_says_where_to_look(tmp_path, program, words):
    with pytest.raises(MeasurementError, match=words):
        run_rival(RIVALS["vllm"], program, TASK, tmp_path)


def test_a_generator_that_was_answered_nothing_is_no_result(tmp_path):
    program = fake_vllm(tmp_path, {**REPORTS["vllm"][1], "completed": 0})
    with pytest.raises(MeasurementError, match="vllm answered with"):
        run_rival(RIVALS["vllm"], program, TASK, tmp_path)


@pytest.fixture
def streaming_server():
    """The server of the benchmarks, in a process of its own: a token every 10 ms."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    script = Path(__file__).parents[3] / "benchmarks/streaming_server.py"
    process = subprocess.Popen([sys.executable, str(script), str(port), "0.01"])
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"{url}/v1/models", timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)
    yield url
    process.terminate()
    process.wait()


def test_ours_is_run_as_a_process_and_sees_what_the_server_does(streaming_server, tmp_path):
    task = Task(streaming_server, "m", Load("Concurrency", 4), 16, 20, 50, 0, 2.0, seed=1)
    figures = run_ours(task, 0.5, tmp_path)
    assert figures.itl_p50 == pytest.approx(0.01, rel=0.2)
    assert figures.throughput == pytest.approx(400, rel=0.25)
    assert figures.answered > 10


def test_generators_take_turns_and_the_others_send_as_many_requests(streaming_server, tmp_path):
    said = []
    task = Task(streaming_server, "m", Load("Concurrency", 4), 16, 20, 50, 0, 1.0, seed=1)
    programs = {
        "vllm": fake_vllm(tmp_path, REPORTS["vllm"][1]),
        "aiperf": [sys.executable, "-c", "raise SystemExit(1)"],
    }
    seen = compare(task, 0.2, programs, 2, tmp_path, say=said.append)
    assert [len(seen.figures[name]) for name in (OURS, "vllm")] == [2, 2]
    assert set(seen.failures) == {"aiperf"}
    assert [sentence.split()[0] for sentence in said] == [OURS, "vllm", "aiperf:", OURS, "vllm"]
    for number, mine in enumerate(seen.figures[OURS], 1):
        command = (tmp_path / f"vllm-{number}/log").read_text().splitlines()[0]
        assert f"--num-prompts {mine.answered} " in command
        assert f"--seed {number} " in command


def test_the_command_prints_the_table(streaming_server, tmp_path):
    (tmp_path / "python").symlink_to(sys.executable)
    rival = " ".join(fake_vllm(tmp_path, REPORTS["vllm"][1]))
    arguments = ["--url", streaming_server, "--model", "m", "--concurrency", "2", "--output-tokens", "8"]
    more = ["--duration", "1s", "--warm-up", "0s", "--alternations", "1", "--directory", str(tmp_path / "d")]
    table = tmp_path / "table.md"
    result = CliRunner().invoke(
        cli.main, ["load", "compare", *arguments, *more, "--program", f"vllm={rival}", "--markdown", str(table)]
    )
    assert result.exit_code == 0, result.output
    assert table.read_text() in result.output
    assert table.read_text().startswith("| median (range) | frontier | vllm |")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "exactly one of --concurrency and --request-rate"),
        (["--concurrency", "1", "--program", "vllm"], "must be like aiperf="),
        (["--concurrency", "1", "--program", "x=y"], "x is not known"),
        (["--concurrency", "1", "--duration", "soon"], "is not a duration"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(arguments, words):
    result = CliRunner().invoke(cli.main, ["load", "compare", "--url", "http://h:1", "--model", "m", *arguments])
    assert result.exit_code == 2
    assert words in result.output
