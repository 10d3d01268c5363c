"""`frontier resume`: a study that was interrupted goes on."""

from pathlib import Path

import click

from frontier_tuner.cli.known import known_study
from frontier_tuner.cli.tune import study_options, tune_on_this_machine


@click.command()
@study_options
def resume(
    *,
    file: Path,
    engine_command: str | None,
    journal: Path | None,
    starts: int | None,
    finalists: int | None,
    ablations: int | None,
    work: Path | None,
    models: Path | None,
) -> None:
    """Go on with the study of FILE where its journal ends, with the proposals that an uninterrupted run would make.

    Unlike tune it never begins one: it refuses where there is no journal, or where the journal is another study's.
    """
    known = known_study(file, journal)
    click.echo(f"trials in {known.path}: {len(known.records)}")
    tune_on_this_machine(
        file, known.path, engine_command, starts, work, models, finalists=finalists, ablations=ablations
    )
