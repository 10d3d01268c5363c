"""How true a measurement is: one point of the simulated engine is measured many times and held against its truth.

The truth comes from windows that are longer together, are spread among the measured ones, and have histogram edges one
to four percent apart where it matters. A window in which a busy machine kept the simulation from its own clock shows
another engine, so to say, and is left out of both. Printed are, for each metric, how many of the stated 95 % intervals
hold the truth, the bias, the spread and the width of the intervals.

    python benchmarks/measurement.py --repeats 30 --seconds 20
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from frontier_tuner.configuration import Configuration
from frontier_tuner.measurement import Load, Measurement
from frontier_tuner.objectives import SLO, Objectives
from frontier_tuner.plants.process import ENGINE_POD, LOAD_POD, NAMESPACE, ProcessEngine, ProcessPlant, ProcessSettings
from frontier_tuner.prometheus import Limits, Value, queries
from frontier_tuner.prometheus.histograms import Buckets, read_buckets
from frontier_tuner.prometheus.queries import CLIENT_METRICS, Histogram, Span

WORKLOAD = {"profile": {"inputTokens": {"mean": 256, "p95": 512}, "outputTokens": {"mean": 32, "p95": 64}}}
QUANTILES = ("TTFT/95", "ITL/95")
METRICS = (*QUANTILES, "OutputTokensPerSecond")
EVERY = 5
"""Measured windows between two windows of the truth."""
MAX_LAG_PERCENT = 0.5
ATTEMPTS = 5


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as directory, ProcessPlant(settings(options, Path(directory))) as plant:
        engine = plant.start(Configuration.of({"kvCacheDtype": "auto"}))
        load = Load(options.kind, options.load)
        pilot = engine.measure(load, seed=1)
        about = {name: pilot.metrics[name].value for name in QUANTILES}
        print(f"pilot: {pilot.validity.check or 'valid'}; {show(pilot)}", flush=True)
        precise = engine.measured_as(objectives=dense(about), duration_seconds=options.truth_seconds)
        measured, truths = [], []
        for number in range(options.repeats):
            if number % EVERY == 0:
                truths.append(undisturbed(plant, precise, load, seed=100_000 + number))
            rung = engine.measure(load, seed=1000 + number)
            late = lag_percent(plant, rung)
            print(f"{number + 1}: {rung.validity.check or 'valid'}, {late:.2f} % late; {show(rung)}", flush=True)
            if late <= MAX_LAG_PERCENT:
                measured.append(rung)
        report(measured, pooled(truths), options)


def lag_percent(plant: ProcessPlant, rung: Measurement) -> float:
    """Return by how much of a window the simulation fell behind its own clock, in percent."""
    where = queries.matchers({"namespace": NAMESPACE, "pod": ENGINE_POD})
    expression = f"100 * {queries.rate('frontier_sim:lag_seconds_total', where, Span(rung.window.seconds))}"
    answer = plant.source.query(expression, rung.window.end)
    return answer.value if isinstance(answer, Value) else 100.0


def undisturbed(plant: ProcessPlant, engine: ProcessEngine, load: Load, seed: int) -> "Truth":
    """Return a window of the truth in which nothing kept the simulation from its clock."""
    for attempt in range(ATTEMPTS):
        rung = engine.measure(load, seed + attempt)
        if lag_percent(plant, rung) <= MAX_LAG_PERCENT:
            return truth_of(plant, rung)
    sys.exit(f"the machine is too busy: {ATTEMPTS} windows in a row disturbed the simulation")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of a measured window")
    parser.add_argument("--truth-seconds", type=float, default=60.0, help="length of each window of the truth")
    parser.add_argument("--kind", choices=("Concurrency", "RequestRate"), default="Concurrency")
    parser.add_argument("--load", type=float, default=8.0)
    parser.add_argument("--time-scale", type=float, default=4.0)
    parser.add_argument("--json", type=Path, help="file that receives the figures")
    return parser.parse_args()


def settings(options: argparse.Namespace, directory: Path) -> ProcessSettings:
    def command_line(_: Configuration, host: str, port: int) -> list[str]:
        model = ["--model", "Qwen/Qwen3-8B", "--served-model-name", "m", "--host", host, "--port", str(port)]
        return [
            sys.executable,
            "-m",
            "frontier_local.engine",
            *model,
            "--max-model-len",
            "4096",
            "--max-num-seqs",
            "64",
        ]

    return ProcessSettings(
        directory=directory,
        command_line=command_line,
        model="m",
        workload=WORKLOAD,
        objectives=Objectives(),
        gpus=lambda _: 1,
        environment={
            "FRONTIER_SIM_GPU": "NVIDIA-L40S",
            "FRONTIER_SIM_TIME_SCALE": str(options.time_scale),
            "FRONTIER_SIM_START_SECONDS": "0.1",
        },
        limits=Limits(),
        start_timeout_seconds=60.0,
        warm_up_seconds=3.0,
        duration_seconds=options.seconds,
        request_timeout_seconds=30.0,
    )


def dense(about: dict[str, float]) -> Objectives:
    """Return objectives whose bounds put edges one to four percent apart about each value.

    Not more of them: to write out thousands of buckets at every scrape would hold up the load generator's own clock.
    """
    steps = (0.84, 1.0, 1.19)
    return Objectives(
        slos=tuple(
            SLO(f"{name}-{step:.3f}", "TTFT" if name.startswith("TTFT") else "ITL", 95, maximum=value * step)
            for name, value in about.items()
            for step in steps
        )
    )


@dataclass(frozen=True)
class Truth:
    """One window of the truth, or several together.

    Attributes:
        buckets: Histogram of each quantile's metric.
        tokens: Output tokens that arrived.
        seconds: Length.
    """

    buckets: dict[str, Buckets]
    tokens: float
    seconds: float

    def value(self, name: str) -> float:
        """Return the true value of a metric."""
        if name not in self.buckets:
            return self.tokens / self.seconds
        return self.buckets[name].quantile(0.95)


def truth_of(plant: ProcessPlant, rung: Measurement) -> Truth:
    """Return what the load generator itself counted in a window."""
    where = queries.matchers({"namespace": NAMESPACE, "pod": LOAD_POD, "phase": "measure"})
    span, at = Span(rung.window.seconds + 5, 5), rung.window.end
    found = {}
    for name in QUANTILES:
        histogram = Histogram(CLIENT_METRICS[name.split("/", maxsplit=1)[0]])
        buckets = read_buckets(plant.source.vector(histogram.final(where, span), at))
        if not isinstance(buckets, Buckets):
            sys.exit(f"the truth of {name} is not known: {buckets.why}")
        found[name] = buckets
    (tokens,) = plant.source.vector(queries.final("frontier_load_output_tokens_total", where, span), at)
    return Truth(found, tokens.value, rung.window.seconds)


def pooled(truths: list[Truth]) -> Truth:
    """Return several windows of the truth as one."""

    def together(name: str) -> Buckets:
        all_ = [truth.buckets[name] for truth in truths]
        counts = tuple(map(sum, zip(*(buckets.counts for buckets in all_), strict=True)))
        return Buckets(all_[0].edges, counts, all_[0].labels, all_[0].floor)

    return Truth(
        {name: together(name) for name in QUANTILES},
        sum(truth.tokens for truth in truths),
        sum(truth.seconds for truth in truths),
    )


def show(rung: Measurement) -> str:
    found = ((name, rung.metrics.get(name)) for name in METRICS)
    return ", ".join(
        f"{name} {each.value:.4g} ({each.low:.4g} to {each.high:.4g})" for name, each in found if each is not None
    )


def figures(measured: list[Measurement], truth: Truth) -> Iterator[dict[str, float | str]]:
    """Yield the figures of each metric over the windows that count."""
    for name in METRICS:
        true = truth.value(name)
        estimates = [rung.metrics[name] for rung in measured if rung.validity.valid and name in rung.metrics]
        values = [each.value / true for each in estimates]
        yield {
            "metric": name,
            "truth": true,
            "windows": len(estimates),
            "covered": sum(each.low <= true <= each.high for each in estimates),
            "biasPercent": 100 * (fmean(values) - 1),
            "spreadPercent": 100 * stdev(values),
            "halfWidthPercent": 50 * median((each.high - each.low) / each.value for each in estimates),
        }


def report(measured: list[Measurement], truth: Truth, options: argparse.Namespace) -> None:
    valid = sum(rung.validity.valid for rung in measured)
    print(f"\n{options.repeats - len(measured)} windows were disturbed and are left out")
    print(f"{valid} of {len(measured)} windows of {options.seconds:g} s count at {options.load:g} {options.kind}")
    if valid < 2:  # noqa: PLR2004 - a spread needs two
        sys.exit("too few windows count for figures")
    rows = list(figures(measured, truth))
    print(f"{'metric':24} {'truth':>10} {'covered':>9} {'bias':>8} {'spread':>8} {'half width':>11}")
    for row in rows:
        covered = f"{row['covered']}/{row['windows']}"
        print(
            f"{row['metric']:24} {row['truth']:10.4g} {covered:>9} {row['biasPercent']:7.2f}% "
            f"{row['spreadPercent']:7.2f}% {row['halfWidthPercent']:10.2f}%"
        )
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
