"""A real vLLM on the CPU, in the environment that its image map entry describes, and the model that it serves."""

import os
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request
from importlib.resources import files
from pathlib import Path

import pytest

from frontier_local.cache import cache_directory
from frontier_local.images import ImageMap

IMAGE = "vllm/vllm-openai-cpu:v0.32.0"
MODEL_SCRIPT = Path(str(files("frontier_local") / "tiny_model.py"))
FIXED_ARGUMENTS = ["--enforce-eager", "--max-model-len=2048", "--disable-uvicorn-access-log", "--shutdown-timeout=30"]
START_SECONDS = 900.0


def eventually(reached, seconds, what):
    """Return the first true value of `reached`, or fail after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := reached()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.25)
    return value


class Engine:
    """A running server and all its processes, which share one session."""

    def __init__(self, command, environment, address, log):
        self.url = f"http://{address}:8000"
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def last_words(self):
        return self.log.read_text(errors="replace")[-4000:]

    def is_ready(self):
        assert self.process.poll() is None, f"ended with {self.process.returncode}: {self.last_words()}"
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    def processes(self):
        """Return how many processes of the engine's group live, zombies left out."""
        group = self.process.pid
        states = [_group_and_state(path) for path in Path("/proc").glob("[0-9]*/stat")]
        return sum(1 for found, state in states if found == group and state != "Z")

    def end(self):
        if self.processes():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=60)


def _group_and_state(path):
    try:
        fields = path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0, ""
    return int(fields[2]), fields[0]


@pytest.fixture(scope="session")
def vllm_image():
    """What the image means here; skips where it would first have to be installed, unless it is required."""
    entry = Path(str(files("frontier_local") / "vllm_image.yaml"))
    if shutil.which("uv") is None:
        pytest.skip("no uv to make the engine's environment with")
    if os.environ.get("REQUIRE_ENGINE") != "1" and not list((cache_directory() / "environments").glob("*/bin/python")):
        pytest.skip("no environment of the engine in the cache (6 GB); REQUIRE_ENGINE=1 makes it")
    return ImageMap.load(entry).resolve(IMAGE)


@pytest.fixture(scope="session")
def make_model(vllm_image):
    """Make the tiny model in a directory, in a process of its own; returns what the script printed."""

    def make(directory, *arguments):
        command = [*vllm_image.entrypoint[:-2], str(MODEL_SCRIPT), "--output", str(directory), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return make


@pytest.fixture(scope="session")
def model(make_model, tmp_path_factory):
    """The directory of the tiny model."""
    directory = tmp_path_factory.mktemp("models") / "tiny"
    make_model(directory)
    return directory


@pytest.fixture
def start_engine(vllm_image, tmp_path):
    """Start engines on addresses of their own; whatever is left of them at the end is killed."""
    engines = []

    def start(model, *arguments):
        address = f"127.77.0.{len(engines) + 2}"
        served = ["--model", str(model), "--served-model-name", "tiny", "--host", address, "--port", "8000"]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)} | vllm_image.environment
        log = tmp_path / f"engine-{len(engines)}.log"
        engine = Engine([*vllm_image.entrypoint, *served, *FIXED_ARGUMENTS, *arguments], environment, address, log)
        engines.append(engine)
        return engine

    yield start
    for engine in engines:
        engine.end()
