"""What several subcommands begin with: a manifest, and the journal that its study already has."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from frontier_tuner.space import SearchSpace
    from frontier_tuner.spec import StudySpec
    from frontier_tuner.trial import TrialRecord


@dataclass(frozen=True)
class KnownStudy:
    """A study that has begun.

    Attributes:
        spec: As the manifest has it now.
        space: Its search space.
        path: Its journal.
        records: The trials of the journal.
    """

    spec: "StudySpec"
    space: "SearchSpace"
    path: Path
    records: tuple["TrialRecord", ...]


def known_study(file: Path, journal: Path | None) -> KnownStudy:
    """Return the study of a manifest with its journal.

    Args:
        file: The manifest.
        journal: The journal, or None for the one that `frontier tune` writes for this study beside which it is run.

    Raises:
        click.ClickException: The manifest is wrong, or the journal is missing, unreadable or of another study.
    """
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.setup import read_spec  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.study import read_journal  # noqa: PLC0415 - see the package
    from frontier_tuner.study import fingerprint, space_of  # noqa: PLC0415 - see the package

    try:
        spec = read_spec(file)
        path = journal or Path(f"frontier-{fingerprint(spec)}.jsonl")
        if not path.exists():
            raise click.ClickException(
                f"there is no journal {path}; run frontier tune first, or name one with --journal"
            )
        space = space_of(spec)
        return KnownStudy(spec, space, path, read_journal(path, space, fingerprint(spec)))
    except TunerError as error:
        raise click.ClickException(str(error)) from error
