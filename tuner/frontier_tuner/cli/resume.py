"""`frontier resume`: a study that was interrupted goes on."""

from pathlib import Path

import click

from frontier_tuner.cli.known import known_study
from frontier_tuner.cli.tune import tune_on_this_machine


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine-command", help="Command that the engine's arguments are appended to; default: vLLM.")
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: frontier-<study>.jsonl.")
@click.option("--starts", type=click.IntRange(min=1), help="Engine starts after which to stop in any case.")
@click.option(
    "--work", type=click.Path(file_okay=False, path_type=Path), help="Directory for logs; default: temporary."
)
def resume(
    *, file: Path, engine_command: str | None, journal: Path | None, starts: int | None, work: Path | None
) -> None:
    """Go on with the study of FILE where its journal ends, with the proposals that an uninterrupted run would make.

    Unlike tune it never begins one: it refuses where there is no journal, or where the journal is another study's.
    """
    known = known_study(file, journal)
    click.echo(f"trials in {known.path}: {len(known.records)}")
    tune_on_this_machine(file, known.path, engine_command, starts, work)
