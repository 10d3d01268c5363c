"""`frontier explain`: why this point, and what else is known about it."""

import json
from pathlib import Path

import click

from frontier_tuner.cli.known import known_study
from frontier_tuner.cli.outcome import NO_FEASIBLE_POINT


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: frontier-<study>.jsonl.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def explain(*, file: Path, journal: Path | None, as_json: bool) -> None:
    """Explain the point that the target of FILE selects from a journal; nothing is measured.

    Says what binds, the runner-up, what would unlock a better point, how sure the objectives hold, the second
    measurements, cliffs beside the choice, what each technique contributed, how far the prior was off, and whether the
    study would go on. Exits with 3 where no point is feasible.
    """
    from frontier_tuner.explain import calibration_of, explain_study  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.study import next_proposal  # noqa: PLC0415 - see the package
    from frontier_tuner.stopping import Stop  # noqa: PLC0415 - see the package
    from frontier_tuner.study import prior_of  # noqa: PLC0415 - see the package

    known = known_study(file, journal)
    objectives = known.spec.to_objectives()
    spent = sum(record.gpu_seconds / max(1, record.gpus) for record in known.records)
    prior = prior_of(known.spec)
    following = next_proposal(known.spec, known.space, known.records, prior, spent)
    found = explain_study(
        known.records,
        known.space,
        objectives,
        known.spec.to_target(),
        stop=following if isinstance(following, Stop) else None,
        calibration=() if prior is None else calibration_of(known.records, prior),
    )
    if as_json:
        click.echo(json.dumps(found.encode(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        for title, sentences in found.sections():
            click.echo(click.style(title, bold=True))
            for sentence in sentences:
                click.echo(f"  {sentence}")
    if found.selection.point is None:
        raise SystemExit(NO_FEASIBLE_POINT)
