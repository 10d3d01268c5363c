r"""What `frontier tune` finds on a real engine within a few starts, held against a sweep of the whole space.

The sweep starts every valid configuration of the spec once, in an order drawn by chance, and climbs the spec's ladder
with it; `frontier tune` then makes its own starts and measures for itself. Both go through the same plant, ladder and
queries. Each start is in a journal as soon as it ends, so an interrupted run goes on where it was, and a run that
reaches its time limit compares what it has. What tune tried and chose is judged by the sweep's figures: the sweep's
luck is the same for both sides, tune's own is not counted in its favour.

    python benchmarks/vllm_sweep.py RESULTS --models DIRECTORY \
        --engine-command "PYTHON -m vllm.entrypoints.openai.api_server"
"""

import argparse
import json
import math
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from frontier_tuner import journal
from frontier_tuner.engines.vllm import gpus
from frontier_tuner.frontier import Point, frontier, hypervolume, points
from frontier_tuner.measurement import ITL, TTFT, Measurement, key
from frontier_tuner.plants import report
from frontier_tuner.plants.process import ProcessPlant
from frontier_tuner.plants.setup import process_settings, read_spec
from frontier_tuner.plants.study import Progress, choice_from, read_journal, run_study
from frontier_tuner.plants.trials import Assignment, run_trial
from frontier_tuner.spec import StudySpec
from frontier_tuner.study import fingerprint, ladder_of, space_of
from frontier_tuner.trial import TrialRecord

SPEC = Path(__file__).parents[1] / "examples" / "tune-vllm-cpu.yaml"
CONSOLE = Console(width=160)


def main() -> None:
    options = parse()
    # A kill must go through the plant's exit, or an engine would be left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    # All starts are for the search: what measures finalists again finds nothing new.
    spec = read_spec(options.spec, finalists=0)
    options.results.mkdir(parents=True, exist_ok=True)
    files = Files(options.results / "sweep.jsonl", options.results / "tune.jsonl")
    if not options.compare:
        settings = process_settings(spec, options.results / "work", options.engine_command, options.models)
        with ProcessPlant(settings) as plant:
            sweep(spec, plant, files.sweep, time.monotonic() + 60 * options.minutes)
            tune(spec, plant, files.tune, options.starts)
    compare(spec, files, options.results / "comparison.json")


@dataclass(frozen=True)
class Files:
    """The journals of the two sides."""

    sweep: Path
    tune: Path


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, help="directory for journals, logs and the comparison")
    parser.add_argument("--spec", type=Path, default=SPEC)
    parser.add_argument("--models", type=Path, help="as for frontier tune")
    parser.add_argument("--engine-command", help="as for frontier tune")
    parser.add_argument("--starts", type=int, default=8, help="engine starts of frontier tune")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which the sweep makes no further start")
    parser.add_argument("--compare", action="store_true", help="start nothing, compare what the journals hold")
    return parser.parse_args()


def sweep(spec: StudySpec, plant: ProcessPlant, path: Path, deadline: float) -> None:
    """Start every configuration that the journal does not have yet, as long as there is time."""
    space, study = space_of(spec), fingerprint(spec)
    order = list(space.configurations())
    random.Random(spec.search.seed).shuffle(order)
    done = {record.configuration for record in read_journal(path, space, study)}
    left = [(number, configuration) for number, configuration in enumerate(order) if configuration not in done]
    begun = time.monotonic()
    for position, (number, configuration) in enumerate(left):
        now = time.monotonic()
        each = (now - begun) / position if position else 0.0
        if now + each > deadline:
            CONSOLE.print(f"out of time: {len(left) - position} of {len(order)} configurations were not started")
            return
        CONSOLE.print(
            f"{len(order) - len(left) + position + 1}/{len(order)}, {each * (len(left) - position) / 60:.0f} min left: "
            f"{configuration}",
            highlight=False,
        )
        assignment = Assignment(
            number=number,
            configuration=configuration,
            purpose="Search",
            reason="sweep",
            gpus=gpus(configuration),
            loads=ladder_of(spec),
            objectives=spec.to_objectives(),
            # Prompts differ from those of frontier tune: the two sides must not agree by sharing their luck.
            seed=1_000_000 + number,
        )
        record = run_trial(plant, assignment, time.monotonic, show_rung)
        journal.append(path, record, study)
        show_trial(record)


def tune(spec: StudySpec, plant: ProcessPlant, path: Path, starts: int) -> None:
    """Make the starts of `frontier tune` that the journal does not have yet."""
    have = len(read_journal(path, space_of(spec), fingerprint(spec)))
    if have >= starts:
        return
    progress = Progress(
        on_proposal=lambda number, proposal: CONSOLE.print(
            f"tune {number + 1}/{starts}: {proposal.configuration} ({proposal.reason})", highlight=False
        ),
        on_rung=show_rung,
        on_trial=show_trial,
    )
    stop = run_study(spec, plant, path, time.monotonic, starts - have, progress)
    CONSOLE.print(f"tune stopped: {stop.reason}: {stop.message}", highlight=False)


def show_rung(measurement: Measurement) -> None:
    report.print_rung(CONSOLE, measurement)


def show_trial(record: TrialRecord) -> None:
    why = f": {record.failure.reason}: {record.failure.message}" if record.failure else ""
    ready = f", ready after {record.engine_start_seconds:.0f} s" if record.engine_start_seconds else ""
    CONSOLE.print(f"  {record.outcome}{why}, {record.gpu_seconds / max(1, record.gpus):.0f} s{ready}", highlight=False)


def compare(spec: StudySpec, files: Files, path: Path) -> None:
    """Print both frontiers, and tune's share of the sweep's by the sweep's figures."""
    space, study, objectives = space_of(spec), fingerprint(spec), spec.to_objectives()
    swept = read_journal(files.sweep, space, study)
    tuned = read_journal(files.tune, space, study)
    everything, own = points(swept, objectives), points(tuned, objectives)
    tried = {record.configuration for record in tuned}
    seen = [point for point in everything if point.configuration in tried]
    print_frontier("Frontier of the sweep, by values", frontier(everything, noise=None), tried)
    print_frontier("Frontier of frontier tune, by its own measurements", frontier(own, noise=None), tried)
    chosen = choice_from(spec, tuned).selection.point
    figures = {
        "configurations": space.size,
        "swept": len(swept),
        "sweepSeconds": sum(record.gpu_seconds / max(1, record.gpus) for record in swept),
        "starts": len(tuned),
        "tuneSeconds": sum(record.gpu_seconds / max(1, record.gpus) for record in tuned),
        "hypervolumeRatio": ratio(hypervolume(seen), hypervolume(everything)),
        "ownHypervolumeRatio": ratio(hypervolume(own), hypervolume(everything)),
        "bestTriedRatio": ratio(best(seen), best(everything)),
        "chosenRatio": chosen and chosen_again(chosen, everything),
        "ownChosenRatio": chosen and ratio(chosen.throughput, best(everything)),
        "chosen": None if chosen is None else f"{chosen.configuration} at {chosen.load}",
        "sameStartAgain": again(everything, own),
    }
    path.write_text(json.dumps(figures, indent=1) + "\n")
    for name, value in figures.items():
        CONSOLE.print(f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}", highlight=False)


def best(candidates: Sequence[Point]) -> float:
    """Return the highest throughput per GPU of the feasible points, 0 where there is none: the target MaxThroughput."""
    return max((point.throughput for point in candidates if point.feasible), default=0.0)


def chosen_again(chosen: Point, swept: Sequence[Point]) -> float | None:
    """Return the chosen point over the best one by the sweep; None where the sweep's window of it did not count."""
    found = [point for point in swept if place(point) == place(chosen)]
    return ratio(best(found), best(swept)) if found else None


def ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def place(point: Point) -> tuple[object, object]:
    return point.configuration, point.load


def again(swept: Sequence[Point], tuned: Sequence[Point]) -> dict[str, float]:
    """Return how far two measurements of one configuration and load differ: median and most, as a factor."""
    first = {place(point): point for point in swept}
    found: dict[str, float] = {}
    for name, value in (("throughput", lambda p: p.throughput), ("speed", lambda p: p.speed)):
        factors = [
            math.exp(abs(math.log(value(point) / value(first[place(point)]))))
            for point in tuned
            if place(point) in first
        ]
        if factors:
            found |= {f"{name}Median": round(median(factors), 3), f"{name}Most": round(max(factors), 3)}
    return found


def print_frontier(title: str, members: Sequence[Point], tried: set[object]) -> None:
    table = Table(title=title, title_justify="left")
    for name in ("tok/s/user", "tok/s/GPU", "TTFT p95 ms", "ITL p95 ms", "load", "TP", "DP", "seqs", "tokens"):
        table.add_column(name, justify="right")
    for name in ("n-gram", "prefix caching", "tried by tune"):
        table.add_column(name)
    names = ("tensorParallelSize", "dataParallelSize", "maxNumSeqs", "maxNumBatchedTokens", "numSpeculativeTokens")
    for point in members:
        latencies = [f"{1000 * (point.measured.value(key(metric, 95)) or 0):.0f}" for metric in (TTFT, ITL)]
        table.add_row(
            f"{point.speed:.1f}",
            f"{point.throughput:.1f}",
            *latencies,
            f"{point.load.value:g}",
            *(str(point.configuration[name]) for name in names),
            str(point.configuration["enablePrefixCaching"]),
            "yes" if point.configuration in tried else "no",
        )
    CONSOLE.print(table)


if __name__ == "__main__":
    main()
