"""The project's load generator and others on one endpoint in turn, and what the medians of each say."""

import json
import os
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from frontier_tuner.errors import MeasurementError
from frontier_tuner.load.options import LoadOptions
from frontier_tuner.load.rivals import RIVALS, Figures, Rival, Task
from frontier_tuner.load.summary import parse_summary

OURS = "frontier"
_ROWS = {
    "ttft_p50": ("TTFT p50", "ms", 1000.0),
    "ttft_p95": ("TTFT p95", "ms", 1000.0),
    "itl_p50": ("ITL p50", "ms", 1000.0),
    "itl_p95": ("ITL p95", "ms", 1000.0),
    "throughput": ("throughput", "tokens/s", 1.0),
}
_SLACK_SECONDS = 600.0
"""A rival may take this beyond three times the load's length: it loads a tokenizer and makes its prompts first."""


@dataclass(frozen=True)
class Comparison:
    """What was seen.

    Attributes:
        figures: By generator, one entry for each time it was run; the project's own is `frontier`.
        failures: By generator, why it has fewer.
    """

    figures: Mapping[str, Sequence[Figures]]
    failures: Mapping[str, str]

    def medians(self, generator: str) -> Mapping[str, float]:
        """Return the median of each figure of a generator, in seconds and tokens per second."""
        return {name: statistics.median(getattr(each, name) for each in self.figures[generator]) for name in _ROWS}

    def differences(self, generator: str) -> Mapping[str, float]:
        """Return how far each median of a generator is from the project's own, in percent of the latter."""
        ours, theirs = self.medians(OURS), self.medians(generator)
        return {name: 100 * (theirs[name] / ours[name] - 1) if ours[name] else 0.0 for name in _ROWS}

    def markdown(self, tolerance_percent: float) -> str:
        """Return the medians as a table, with smallest and largest, and for each other generator whether it agrees."""
        others = [name for name in self.figures if name != OURS]
        lines = ["| median (range) | " + " | ".join(self.figures) + " |", "| --- |" + " --- |" * len(self.figures)]
        for name, (title, unit, scale) in _ROWS.items():
            cells = [self._cell(generator, name, scale) for generator in self.figures]
            lines.append(f"| {title}, {unit} | " + " | ".join(cells) + " |")
        runs = [f"{len(figures)} of {_answered(figures)}" for figures in self.figures.values()]
        lines += ["| runs of so many answered requests | " + " | ".join(runs) + " |", ""]
        for generator in others:
            far = {n: d for n, d in self.differences(generator).items() if abs(d) > tolerance_percent}
            words = ", ".join(f"{_ROWS[name][0]} {difference:+.1f} %" for name, difference in far.items())
            verdict = f"differs by more: {words}" if far else "agrees in every figure"
            note = RIVALS[generator].note
            lines.append(f"* {generator}, within {tolerance_percent:g} %: {verdict}." + (f" ({note})" if note else ""))
        lines += [f"* {generator} failed: {reason}" for generator, reason in self.failures.items()]
        return "\n".join(lines) + "\n"

    def _cell(self, generator: str, name: str, scale: float) -> str:
        values = [getattr(each, name) * scale for each in self.figures[generator]]
        cell = f"{statistics.median(values):.4g} ({min(values):.4g} to {max(values):.4g})"
        return cell if generator == OURS else f"{cell}, {self.differences(generator)[name]:+.1f} %"


def _answered(figures: Sequence[Figures]) -> str:
    counts = {each.answered for each in figures}
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def installed(given: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the start of the command line of each rival that can be run.

    Args:
        given: Commands by rival's name, instead of what the PATH has.

    Raises:
        ValueError: A name is no rival's, or no rival is installed.
    """
    unknown = set(given) - set(RIVALS)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} is not known; known are {', '.join(RIVALS)}")
    commands = {name: rival.command(shlex.split(given.get(name, ""))) for name, rival in RIVALS.items()}
    found = {name: command for name, command in commands.items() if command and (not given or name in given)}
    if not found:
        raise ValueError(
            f"none of {', '.join(RIVALS)} is installed here; install one, such as with pip install aiperf, "
            "or say where one is: --program aiperf=/opt/aiperf/bin/aiperf",
        )
    return found


def compare(
    task: Task,
    warm_up_seconds: float,
    programs: Mapping[str, Sequence[str]],
    alternations: int,
    directory: Path,
    say: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Run every generator in turn, as often as asked, and return what each saw; raw results stay in the directory.

    Ours goes first, for the task's seconds, and says how many requests the others are to send. Every run has a seed of
    its own, so that no prompt is in the engine's prefix cache.

    Raises:
        MeasurementError: The project's own generator failed.
    """
    figures: dict[str, list[Figures]] = {name: [] for name in (OURS, *programs)}
    failures: dict[str, str] = {}
    for number in range(alternations):
        mine = replace(task, seed=task.seed + number)
        figures[OURS].append(run_ours(mine, warm_up_seconds, directory / f"{OURS}-{number + 1}"))
        say(f"{OURS} {number + 1}/{alternations}: {_sentence(figures[OURS][-1])}")
        mine = replace(mine, requests=figures[OURS][-1].answered)
        for name, program in programs.items():
            if name in failures:
                continue
            try:
                figures[name].append(run_rival(RIVALS[name], program, mine, directory / f"{name}-{number + 1}"))
                say(f"{name} {number + 1}/{alternations}: {_sentence(figures[name][-1])}")
            except MeasurementError as error:
                failures[name] = str(error)
                say(f"{name}: {error}")
    return Comparison({name: runs for name, runs in figures.items() if runs}, failures)


def run_ours(task: Task, warm_up_seconds: float, directory: Path) -> Figures:
    """Run the project's generator as a process of its own and return what it saw in its window.

    Raises:
        MeasurementError: It failed, or nothing was answered.
    """
    directory.mkdir(parents=True, exist_ok=True)
    summary, records = directory / "summary.json", directory / "records.jsonl"

    def uniform(mean: int) -> dict[str, Any]:
        low, high = task.lengths(mean)
        below = [{"upTo": low - 1, "weight": 0}] if low > 1 else []
        return {"histogram": [*below, {"upTo": high, "weight": 1}]}

    profile = {"inputTokens": uniform(task.input_tokens), "outputTokens": uniform(task.output_tokens)}
    options = LoadOptions(
        url=task.url,
        model=task.model,
        load=task.load,
        workload={"profile": profile},
        duration_seconds=task.seconds,
        warm_up_seconds=warm_up_seconds,
        seed=task.seed,
        metrics_listen="127.0.0.1:0",
        scrape_wait_seconds=0.0,
        summary=str(summary),
        records=str(records),
    )
    command = [sys.executable, "-m", "frontier_tuner.cli", "load", *options.arguments()]
    _run(command, options.longest_seconds, directory / "log")
    read = parse_summary(summary.read_text())
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    answered = [row for row in rows if row["phase"] == "measure" and row["result"] == "ok"]
    return figures_of(answered, read.output_tokens / read.window.seconds)


def figures_of(answered: Sequence[Mapping[str, Any]], throughput: float) -> Figures:
    """Return the figures of answered requests, as `--records` has them.

    Raises:
        MeasurementError: Nothing was answered, or no answer had two tokens.
    """
    gaps = [gap for row in answered for gap in _gaps(row["arrivals"])]
    if not gaps:
        raise MeasurementError("the project's load generator saw no answer of more than one token")
    ttft = [row["ttft"] for row in answered]
    return Figures.of(
        (_percentile(values, percentile) for values in (ttft, gaps) for percentile in (50, 95)),
        throughput,
        len(answered),
    )


def _gaps(arrivals: Sequence[tuple[float, int]]) -> Iterator[float]:
    for (before, _), (moment, count) in pairwise(arrivals):
        yield from [(moment - before) / count] * count


def _percentile(values: Sequence[float], percentile: int) -> float:
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1]


def run_rival(rival: Rival, program: Sequence[str], task: Task, directory: Path) -> Figures:
    """Run a rival and return what it wrote.

    Raises:
        MeasurementError: It failed, took too long, or its result cannot be read; the message names its log.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rival.prepare(task, directory)
    command = [*program, *rival.arguments(task, directory.resolve())]
    _run(command, 3 * task.seconds + _SLACK_SECONDS, directory / "log")
    figures = rival.read(directory)
    values = [getattr(figures, field.name) for field in fields(figures)]
    if not all(isinstance(value, int | float) and value >= 0 for value in values) or figures.answered == 0:
        raise MeasurementError(f"{rival.name} answered with {figures}; its log is {directory / 'log'}")
    return figures


def _run(command: Sequence[str], seconds: float, log: Path) -> None:
    with log.open("w") as file:
        file.write(shlex.join(command) + "\n")
        file.flush()
        try:
            done = subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, timeout=seconds, check=False, env=dict(os.environ)
            )
        except subprocess.TimeoutExpired as error:
            raise MeasurementError(f"{Path(command[0]).name} did not end within {seconds:.0f} s; see {log}") from error
        except OSError as error:
            raise MeasurementError(f"{command[0]} cannot be started: {error}") from error
    if done.returncode != 0:
        raise MeasurementError(f"{Path(command[0]).name} ended with exit code {done.returncode}; see {log}")


def _sentence(figures: Figures) -> str:
    cells = (f"{title} {getattr(figures, name) * scale:.4g} {unit}" for name, (title, unit, scale) in _ROWS.items())
    return f"{figures.answered} answered, " + ", ".join(cells)
