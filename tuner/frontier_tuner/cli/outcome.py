"""What a study is worth to a reader: its trials, its frontier and the point that its target selects."""

from pathlib import Path

import click

NO_FEASIBLE_POINT = 3
"""Exit code where everything was measured and nothing holds the objectives."""


def print_outcome(file: Path, path: Path) -> None:
    """Print trials, frontier and selection; exit with 3 where no point is feasible."""
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.plants import report  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.setup import read_spec  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.study import choice_from, read_journal  # noqa: PLC0415 - see the package
    from frontier_tuner.study import fingerprint, space_of  # noqa: PLC0415 - see the package

    console = report.make_console()
    try:
        spec = read_spec(file)
        records = read_journal(path, space_of(spec), fingerprint(spec))
        choice = choice_from(spec, records)
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    objectives = spec.to_objectives()
    report.print_trials(console, records, objectives)
    report.print_frontier(console, records, objectives)
    report.print_choice(console, choice, report.best_of(records, objectives, 0))
    if choice.selection.point is None:
        raise SystemExit(NO_FEASIBLE_POINT)
