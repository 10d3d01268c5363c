"""What a study is worth to a reader: its trials, its frontier and the point that its target selects."""

from pathlib import Path

import click

NO_FEASIBLE_POINT = 3
"""Exit code where everything was measured and nothing holds the objectives."""


def print_outcome(file: Path, path: Path, ablations: int | None = None) -> None:
    """Print trials, frontier, selection and, where they were asked for, techniques; exit with 3 without a point.

    Args:
        file: The manifest.
        path: The journal.
        ablations: Overrides the manifest's.
    """
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.lessons import lessons  # noqa: PLC0415 - see the package
    from frontier_tuner.plants import report  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.setup import read_spec  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.study import attribution_from, choice_from, read_journal  # noqa: PLC0415 - see the package
    from frontier_tuner.study import fingerprint, space_of  # noqa: PLC0415 - see the package

    console = report.make_console()
    try:
        spec = read_spec(file, ablations=ablations)
        records = read_journal(path, space_of(spec), fingerprint(spec))
        choice = choice_from(spec, records)
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    objectives = spec.to_objectives()
    report.print_trials(console, records, objectives)
    report.print_lessons(console, lessons(records, space_of(spec).configurations()).sentences)
    report.print_frontier(console, records, objectives)
    report.print_choice(console, choice, report.best_of(records, objectives, 0))
    attribution = attribution_from(spec, records, choice)
    if attribution is not None:
        report.print_techniques(console, attribution)
    if choice.selection.point is None:
        raise SystemExit(NO_FEASIBLE_POINT)
