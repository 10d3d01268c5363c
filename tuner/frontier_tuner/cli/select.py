"""`frontier select`: another point of a known frontier."""

from pathlib import Path

import click

from frontier_tuner.cli.outcome import print_outcome


@click.command(name="select")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: frontier-<study>.jsonl.")
def select(*, file: Path, journal: Path | None) -> None:
    """Select again from a journal, for the objectives and the target that FILE has now; nothing is measured."""
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.setup import read_spec  # noqa: PLC0415 - see the package
    from frontier_tuner.study import fingerprint  # noqa: PLC0415 - see the package

    try:
        path = journal or Path(f"frontier-{fingerprint(read_spec(file))}.jsonl")
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    if not path.exists():
        raise click.ClickException(f"there is no journal {path}; run frontier tune first, or name one with --journal")
    print_outcome(file, path)
