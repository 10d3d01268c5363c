"""The project's load generator and others on one running vLLM in turn: five runs each, medians, and whether they agree.

    python benchmarks/load_compare.py --python VENV/bin/python --model MODEL_DIRECTORY --markdown compare.md

It starts the vLLM of that Python on the CPU as the image map entry has it, or takes a running engine with `--url`, and
runs `frontier load compare` at each level of load with the `vllm bench serve` of the same Python and any `--program`.
Run it on a quiet machine: the load averages before and after are part of what it writes.
"""

import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import click
import yaml

from frontier_tuner.load.compare import Comparison, compare, installed
from frontier_tuner.load.rivals import Task
from frontier_tuner.measurement import Load

START_SECONDS = 900.0
SERVED = "tiny"
ARGUMENTS = ("--enforce-eager", "--max-model-len", "2048", "--disable-uvicorn-access-log")


def engine_environment(python: Path) -> Mapping[str, str]:
    """Return the environment of the image map's vLLM, for an interpreter of its own."""
    entry = yaml.safe_load(Path(str(files("frontier_local") / "vllm_image.yaml")).read_text())["images"][0]
    scripts = str(python.parent)
    own = {name: value.replace("{scripts}", scripts) for name, value in entry["environment"].items()}
    return {**os.environ, **own, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def engine(python: Path, model: Path, log: Path, port: int = 8811) -> Iterator[str]:
    """Start vLLM and give its URL once it is ready; end all its processes afterwards."""
    command = [
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--served-model-name", SERVED, "--host", "127.0.0.1", "--port", str(port), *ARGUMENTS),
    ]
    url = f"http://127.0.0.1:{port}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the engine is ended too
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=engine_environment(python), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_ready(url):
            if process.poll() is not None or time.monotonic() > deadline:
                raise click.ClickException(f"the engine did not become ready; see {log}")
            time.sleep(1)
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)  # noqa: PLR2004 - HTTP's good answer
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def machine() -> str:
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    return f"{os.cpu_count()} CPUs, load averages {load}"


@click.command()
@click.option("--python", type=click.Path(exists=True, path_type=Path), help="Interpreter that has vLLM.")
@click.option("--model", type=click.Path(exists=True, path_type=Path), required=True, help="Model and its tokenizer.")
@click.option("--url", help="A running engine that serves the model under --served; none is started.")
@click.option("--served", default=SERVED, show_default=True)
@click.option("--concurrency", type=int, multiple=True, default=(1, 8), show_default=True)
@click.option("--request-rate", type=float, multiple=True, default=(1.5,), show_default=True)
@click.option("--input-tokens", default=256, show_default=True)
@click.option("--output-tokens", default=64, show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="Length of one run of each.")
@click.option("--alternations", default=5, show_default=True)
@click.option("--tolerance-percent", default=5.0, show_default=True)
@click.option("--program", "programs", multiple=True, metavar="NAME=COMMAND", help="Further generators.")
@click.option("--directory", type=click.Path(path_type=Path), default=Path("load-compare"), show_default=True)
@click.option("--markdown", type=click.Path(path_type=Path), default=Path("load-compare.md"), show_default=True)
def main(
    *,
    python: Path | None,
    model: Path,
    url: str | None,
    served: str,
    concurrency: tuple[int, ...],
    request_rate: tuple[float, ...],
    input_tokens: int,
    output_tokens: int,
    seconds: float,
    alternations: int,
    tolerance_percent: float,
    programs: tuple[str, ...],
    directory: Path,
    markdown: Path,
) -> None:
    """Compare load generators on a real engine and write the tables as markdown."""
    if python is None and (url is None or not programs):
        raise click.UsageError("give --python of a vLLM, or --url of a running engine with --program of another")
    given = dict(program.split("=", 1) for program in programs)
    if python is not None:
        given.setdefault("vllm", str(python))
    levels = [Load("Concurrency", each) for each in concurrency] + [Load("RequestRate", each) for each in request_rate]
    directory.mkdir(parents=True, exist_ok=True)
    head = [
        f"# Load generators on one engine, {alternations} runs of {seconds:g} s each in turn",
        "",
        f"{input_tokens} tokens in and {output_tokens} out on average, uniform within 20 %; {machine()} before.",
        "",
    ]

    def run(at: str) -> list[str]:
        lines = []
        for number, level in enumerate(levels):
            task = Task(
                *(at, served, level, input_tokens, output_tokens, 20, 0, seconds),
                seed=1000 * (number + 1),
                tokenizer=str(model),
            )
            seen: Comparison = compare(
                task, 10.0, installed(given), alternations, directory / str(level).replace("/", "-"), say=click.echo
            )
            lines += [f"## {level}", "", seen.markdown(tolerance_percent), f"{machine()} after.", ""]
            markdown.write_text("\n".join([*head, *lines]))
        return lines

    if url is not None:
        run(url)
    elif python is not None:
        with engine(python, model, directory / "engine.log") as started:
            run(started)
    click.echo(markdown.read_text())


if __name__ == "__main__":
    main()
