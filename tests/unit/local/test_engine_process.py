"""The engine as a process: exit codes, last words, readiness, signals."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

MODEL = "meta-llama/Llama-3.1-8B"


def start(*argv, **environment):
    names = {f"FRONTIER_SIM_{name.upper()}": str(value) for name, value in environment.items()}
    return subprocess.Popen(
        [sys.executable, "-m", "frontier_local.engine", *argv],
        env={**os.environ, "FRONTIER_SIM_GPU": "NVIDIA-L40S", **names},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process):
    """Return the exit code and the last line on standard error."""
    _, errors = process.communicate(timeout=20)
    return process.returncode, (errors.splitlines() or [""])[-1]


@contextlib.contextmanager
def running(*argv, **environment):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--model", MODEL, "--host", "127.0.0.1", "--port", str(port), "--max-model-len", "8192")
    process = start(*options, *argv, **environment)
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.communicate()


def ask(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=10) as response:
        return response.status, response.read()


def wait_until_ready(url, seconds=20.0):
    """Return how often the health check was refused before it passed."""
    refused, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            ask(url + "/health")
        except OSError:
            refused += 1
            time.sleep(0.02)
        else:
            return refused
    pytest.fail("the engine was not ready in time")


@pytest.mark.parametrize(
    ("argv", "environment", "want_code", "want_last_line"),
    [
        (["--model", MODEL, "--frobnicate"], {}, 2, "error: unrecognized arguments: --frobnicate"),
        (["--model", MODEL, "-tp", "3"], {}, 1, "ValueError: Total number of attention heads (32)"),
        (["--model", MODEL], {"gpu": "Tesla-T4"}, 1, "torch.OutOfMemoryError: CUDA out of memory."),
        (["--model", "no/such-model"], {}, 1, "ValueError: the shape of model 'no/such-model' is not known"),
        (["--model", MODEL], {"gpu": "ABACUS"}, 1, "ValueError: the figures of GPU product 'ABACUS' are not known"),
        (["--model", MODEL], {"faults": "[]"}, 1, "ValueError: FRONTIER_SIM_FAULTS=[] must be a JSON object"),
    ],
)
def test_an_engine_that_cannot_start_says_why_in_its_last_line(argv, environment, want_code, want_last_line):
    code, last_line = end(start(*argv, **environment))
    assert code == want_code
    assert last_line.startswith(want_last_line)


def test_a_port_in_use_is_told_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, last_line = end(start("--model", MODEL, "--max-model-len", "8192", "--host", "127.0.0.1", "--port", port))
    assert code == 1
    assert last_line == f"RuntimeError: --host 127.0.0.1 --port {port} cannot be listened on: Address already in use"


def test_the_engine_refuses_connections_until_it_is_ready_and_ends_cleanly():
    with running(start_seconds=0.5, time_scale=50) as (process, url):
        assert wait_until_ready(url) > 0
        status, body = ask(url + "/v1/completions", {"prompt": "hello", "max_tokens": 3, "ignore_eos": True})
        assert (status, json.loads(body)["usage"]["completion_tokens"]) == (200, 3)
        process.send_signal(signal.SIGTERM)
        assert end(process)[0] == 0


def test_a_request_in_flight_is_answered_after_sigterm():
    with running(start_seconds=0) as (process, url):
        wait_until_ready(url)
        body = json.dumps({"prompt": [1], "max_tokens": 40, "ignore_eos": True, "stream": True}).encode()
        with urllib.request.urlopen(urllib.request.Request(url + "/v1/completions", body), timeout=20) as response:
            first = response.readline()
            process.send_signal(signal.SIGTERM)
            rest = response.read()
        assert first.startswith(b"data: ")
        assert rest.endswith(b"data: [DONE]\n\n")
        assert end(process)[0] == 0


def test_sigterm_during_the_start_ends_the_engine():
    with running(start_seconds=60) as (process, _):
        assert any("Loading the model, ready in 60.0 s" in line for line in iter(process.stdout.readline, ""))
        process.send_signal(signal.SIGTERM)
        assert end(process)[0] == 0


def test_a_crash_under_load_ends_the_process_with_last_words():
    with running(start_seconds=0, faults='{"crashAfterRequests": 1}') as (process, url):
        wait_until_ready(url)
        with pytest.raises((OSError, urllib.error.URLError)):
            ask(url + "/v1/completions", {"prompt": [1], "max_tokens": 1})
        assert end(process) == (
            1,
            "RuntimeError: The engine core died while it executed the model; see the log above.",
        )
