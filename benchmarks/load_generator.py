"""How many streams the load generator holds on one core, against a server that does nothing but stream.

    python benchmarks/load_generator.py --streams 250 --streams 1000 --rival aiperf=/opt/aiperf/bin/aiperf

The server runs in a process of its own and gives every stream a token each interval, so the true ITL is known and the
throughput that a perfect client sees is streams / interval. Where the machine has several CPUs, the server has one and
each generator another. A level is sustained where a generator got 97 % of the tokens and saw an ITL within 2 % of the
truth at the median, and, where it says how late it was itself, that is below 10 ms at the 99th percentile. The server's
own lateness is printed beside: where it is high, the machine was the limit.
"""

import json
import os
import resource
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.compare import figures_of, run_rival
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.load.rivals import RIVALS, Figures, Task
from frontier_tuner.load.summary import parse_summary
from frontier_tuner.measurement import Load

INPUT_TOKENS, OUTPUT_TOKENS = 64, 100
LEAST_SHARE, LARGEST_ERROR, LARGEST_LAG = 0.97, 0.02, 0.010
COLUMNS = (
    *("streams", "generator", "tokens/s", "ITL p50 ms", "ITL p95 ms", "TTFT p95 ms"),
    *("lag p99 ms", "lag max ms", "CPU", "server's lag p99 ms", "sustained"),
)


@contextmanager
def on_cpu(index: int) -> Iterator[None]:
    """Start processes on one CPU, where the machine has several."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > 1:
        os.sched_setaffinity(0, {cpus[index]})
    yield
    os.sched_setaffinity(0, cpus)


@contextmanager
def server(interval: float) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with on_cpu(0):
        script = Path(__file__).with_name("streaming_server.py")
        process = subprocess.Popen([sys.executable, str(script), str(port), str(interval)])
    try:
        for _ in range(200):
            try:
                server_lag(url)
                break
            except OSError:
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def server_lag(url: str) -> float:
    with urllib.request.urlopen(f"{url}/lag", timeout=5) as answer:
        return float(json.load(answer)["lag"])


def row(streams: int, name: str, seen: Figures, interval: float, own: Sequence[str], url: str, *, on_time: bool) -> str:
    right = abs(seen.itl_p50 / interval - 1) <= LARGEST_ERROR and seen.throughput * interval >= LEAST_SHARE * streams
    cells = [
        *(str(streams), name, f"{seen.throughput:.0f} of {streams / interval:.0f}"),
        *(f"{1000 * seen.itl_p50:.2f}", f"{1000 * seen.itl_p95:.2f}", f"{1000 * seen.ttft_p95:.1f}", *own),
        *(f"{1000 * server_lag(url):.2f}", "yes" if right and on_time else "no"),
    ]
    return "| " + " | ".join(cells) + " |"


def ours(url: str, streams: int, seconds: float, interval: float, directory: Path) -> str:
    summary, records = directory / "summary.json", directory / "records.jsonl"
    options = LoadOptions(
        url,
        "m",
        Load("Concurrency", streams),
        {"profile": {"inputTokens": {"mean": INPUT_TOKENS}, "outputTokens": {"mean": OUTPUT_TOKENS}}},
        duration_seconds=seconds,
        warm_up_seconds=2 * OUTPUT_TOKENS * interval,
        scrape_wait_seconds=0.0,
        metrics_listen="127.0.0.1:0",
        summary=str(summary),
        records=str(records),
    )
    with on_cpu(-1):
        subprocess.run([sys.executable, "-m", "frontier_tuner.cli", "load", *options.arguments()], check=True)
    told = parse_summary(summary.read_text())
    rows = (json.loads(line) for line in records.read_text().splitlines())
    answered = [each for each in rows if each["phase"] == "measure" and each["result"] == "ok"]
    seen = figures_of(answered, told.output_tokens / told.window.seconds)
    lag, worst = told.lag_p99_seconds, told.lag_max_seconds
    own = [f"{1000 * lag:.2f}", f"{1000 * worst:.1f}", f"{told.cpu_percent} %"]
    on_time = lag <= LARGEST_LAG and told.failed == 0
    return row(streams, "frontier", seen, interval, own, url, on_time=on_time)


def theirs(rival: str, url: str, streams: int, seconds: float, interval: float, tokenizer: str, within: Path) -> str:
    name, _, program = rival.partition("=")
    # Whole rounds of all streams: a rival's throughput is that of its whole run, its end included.
    requests = streams * max(2, round(seconds / (OUTPUT_TOKENS * interval)))
    level = Load("Concurrency", streams)
    task = Task(url, "m", level, INPUT_TOKENS, OUTPUT_TOKENS, 0, requests, seconds, 1, tokenizer)
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    try:
        command = RIVALS[name].command(shlex.split(program)) or []
        with on_cpu(-1):
            seen = run_rival(RIVALS[name], command, task, within / name)
    except MeasurementError as error:
        return f"| {streams} | {name} | {error} |" + " |" * (len(COLUMNS) - 3)
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begun
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / took
    own = ["not told", "not told", f"{100 * cpu:.0f} % of {took:.0f} s, start included"]
    return row(streams, name, seen, interval, own, url, on_time=True)


@click.command()
@click.option("--streams", type=int, multiple=True, default=(250, 500, 1000, 2000), show_default=True)
@click.option("--interval", type=float, default=0.05, show_default=True, help="Seconds between a stream's tokens.")
@click.option("--seconds", type=float, default=10.0, show_default=True, help="Length of each window.")
@click.option("--rival", "rivals", multiple=True, metavar="NAME=COMMAND", help="Another generator to run beside.")
@click.option("--tokenizer", default="", help="For the rival's prompts.")
@click.option("--markdown", type=click.Path(path_type=Path), help="File that receives the table too.")
def main(
    *,
    streams: tuple[int, ...],
    interval: float,
    seconds: float,
    rivals: tuple[str, ...],
    tokenizer: str,
    markdown: Path | None,
) -> None:
    """Print what the load generator sustains on one core, and what others do in the same run."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "| --- " * len(COLUMNS) + "|"]
    click.echo("\n".join(lines))
    for level in streams:
        with TemporaryDirectory() as directory, server(interval) as url:
            lines.append(ours(url, level, seconds, interval, Path(directory)))
            click.echo(lines[-1])
            for rival in rivals:
                lines.append(theirs(rival, url, level, seconds, interval, tokenizer, Path(directory)))
                click.echo(lines[-1])
    if markdown is not None:
        markdown.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
