"""What a person sees of a study in a terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from frontier_tuner.configuration import Configuration
from frontier_tuner.confirming import Choice
from frontier_tuner.factors import Attribution
from frontier_tuner.frontier import Point, frontier, points
from frontier_tuner.measurement import COST, ITL, THROUGHPUT_PER_GPU, TTFT, USER_SPEED, Measurement, key
from frontier_tuner.noise import estimate_noise
from frontier_tuner.objectives import Objectives
from frontier_tuner.trial import TrialRecord

_COLUMNS = (
    ("tok/s/GPU", THROUGHPUT_PER_GPU, 1.0),
    ("tok/s/user", key(USER_SPEED, 50), 1.0),
    ("TTFT p95 ms", key(TTFT, 95), 1000.0),
    ("ITL p95 ms", key(ITL, 95), 1000.0),
    ("cost/Mtok", COST, 1.0),
)


_MIN_WIDTH = 140


def make_console() -> Console:
    """Return a console for standard output; where that is no terminal it is wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=_MIN_WIDTH)


def print_rung(console: Console, measurement: Measurement) -> None:
    """Print one line for a rung."""
    if not measurement.validity.valid:
        console.print(
            f"  {measurement.load}: [yellow]{measurement.validity.reason}[/]: {escape(measurement.validity.message)}"
        )
        return
    figures = ", ".join(f"{title} {_figure(measurement, name, factor)}" for title, name, factor in _COLUMNS)
    text = f"  {measurement.load}: {figures}, {measurement.ok} requests in {measurement.window.seconds:.3g} s"
    console.print(f"{text}{_ended(measurement)}", highlight=False, soft_wrap=True)


def _ended(measurement: Measurement) -> str:
    """Return why a rung ended, where somebody looked."""
    ended = measurement.ended
    if ended is None or (ended.reason == "TimeUp" and not ended.open):
        return ""
    return f", {ended.reason}" + (f" (open: {', '.join(ended.open)})" if ended.open else "")


def print_trials(console: Console, records: Sequence[TrialRecord], objectives: Objectives) -> None:
    """Print the trial table: each trial's best feasible throughput and speed, or why it has none."""
    table = Table(title="Trials", title_justify="left")
    for title in ("#", "outcome", "rungs", "best tok/s/GPU", "best tok/s/user", "configuration or reason"):
        table.add_column(title, justify="left" if title in {"outcome", "configuration or reason"} else "right")
    everything = points(records, objectives)
    for record in records:
        own = [point for point in everything if point.trial == record.number and point.feasible]
        throughput = f"{max(point.throughput for point in own):.4g}" if own else "–"  # noqa: RUF001 - a dash for no value
        speed = f"{max(point.speed for point in own):.4g}" if own else "–"  # noqa: RUF001 - a dash for no value
        why = f"\n{record.failure.reason}: {record.failure.message}" if record.failure is not None else ""
        valid = sum(measurement.validity.valid for measurement in record.measurements)
        rungs = f"{valid}/{len(record.measurements)}"
        text = escape(_varying(record.configuration, records) + why)
        table.add_row(str(record.number), record.outcome, rungs, throughput, speed, text)
    console.print(table)


def print_frontier(console: Console, records: Sequence[TrialRecord], objectives: Objectives) -> None:
    """Print the frontier, fastest first."""
    table = Table(title="Frontier", title_justify="left")
    for title in ("trial", "load", *(title for title, _, _ in _COLUMNS), "configuration"):
        table.add_column(title, justify="left" if title in {"load", "configuration"} else "right")
    for point in frontier(points(records, objectives), noise=estimate_noise(records)):
        figures = [_figure(point.measured, name, factor) for _, name, factor in _COLUMNS]
        table.add_row(str(point.trial), str(point.load), *figures, _varying(point.configuration, records))
    console.print(table)


def print_choice(console: Console, choice: Choice, baseline: Point | None) -> None:
    """Print the chosen point, or the nearest one, with the reason and what its second measurement says."""
    selection = choice.selection
    console.print("[bold]Selection[/]" if selection.point is not None else "[bold red]No feasible point[/]")
    console.print(choice.message, soft_wrap=True, highlight=False)
    if selection.point is not None and baseline is not None and baseline.throughput > 0:
        factor = selection.point.throughput / baseline.throughput
        console.print(f"{factor:.2f} times the baseline's best tokens/s/GPU within the SLOs", highlight=False)


def print_techniques(console: Console, attribution: Attribution) -> None:
    """Print what each technique contributed to the choice."""
    console.print("[bold]Techniques, winner against baseline[/]")
    for sentence in attribution.sentences():
        console.print(f"  {sentence}", soft_wrap=True, highlight=False, markup=False)


def print_lessons(console: Console, sentences: Sequence[str]) -> None:
    """Print why some configurations are not tried any more; nothing where all are."""
    for sentence in sentences:
        console.print(f"Not tried any more: {sentence}", soft_wrap=True, highlight=False, markup=False)


def best_of(records: Sequence[TrialRecord], objectives: Objectives, trial: int) -> Point | None:
    """Return the feasible point of a trial with the highest throughput per GPU."""
    own = [point for point in points(records, objectives) if point.trial == trial and point.feasible]
    return max(own, key=lambda point: point.throughput, default=None)


def _figure(measurement: Measurement, name: str, factor: float) -> str:
    value = measurement.value(name)
    return "–" if value is None else f"{value * factor:.4g}"  # noqa: RUF001 - a dash for no value


def _varying(configuration: Configuration, records: Sequence[TrialRecord]) -> str:
    """Return the parameters that differ between trials; all of them where there is only one trial."""
    first = records[0].configuration if records else configuration
    names = [
        name for name in configuration if any(record.configuration.get(name) != first.get(name) for record in records)
    ]
    return str(Configuration.of({name: configuration[name] for name in names or configuration}))
