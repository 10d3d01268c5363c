"""`frontier plot`: a study as a picture."""

from pathlib import Path

import click

from frontier_tuner.cli.known import known_study


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: frontier-<study>.jsonl.")
@click.option(
    "--output",
    type=click.Choice(("svg", "html", "text")),
    help="Default: by the ending of --to, and without --to text.",
)
@click.option("--to", type=click.Path(dir_okay=False, path_type=Path), help="File to write; default: standard output.")
@click.option("--title", help="Default: the name of SOURCE.")
def plot(*, source: Path, journal: Path | None, output: str | None, to: Path | None, title: str | None) -> None:
    """Draw all curves, the frontier and the selected point of SOURCE: a manifest whose journal exists, or a journal.

    A journal alone (its name ends in .jsonl) is drawn without objectives, so that every point holds them. The picture
    is one file that needs nothing else.
    """
    from frontier_tuner import journal as journals  # noqa: PLC0415 - see the package
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.noise import estimate_noise  # noqa: PLC0415 - see the package
    from frontier_tuner.objectives import Objectives, Target  # noqa: PLC0415 - see the package
    from frontier_tuner.plotting import figure_of  # noqa: PLC0415 - see the package
    from frontier_tuner.plotting.page import page  # noqa: PLC0415 - see the package
    from frontier_tuner.plotting.svg import svg  # noqa: PLC0415 - see the package
    from frontier_tuner.plotting.text import text  # noqa: PLC0415 - see the package

    if source.suffix == ".jsonl":
        if journal is not None:
            raise click.UsageError("SOURCE is a journal itself; leave --journal out, or give a manifest")
        try:
            records, objectives, target = journals.read(source), Objectives(), Target()
        except TunerError as error:
            raise click.ClickException(str(error)) from error
    else:
        known = known_study(source, journal)
        records, objectives, target = known.records, known.spec.to_objectives(), known.spec.to_target()
    figure = figure_of(records, objectives, target, noise=estimate_noise(records))
    if not figure.curves:
        raise click.ClickException(f"{source} has no measured point yet; run frontier tune first")
    kind = output or {".svg": "svg", ".html": "html"}.get(to.suffix if to is not None else "", "text")
    name = title or source.stem
    drawn = {"svg": lambda: svg(figure, name), "html": lambda: page(figure, name), "text": lambda: text(figure)}[kind]()
    if to is None:
        click.echo(drawn)
        return
    try:
        to.write_text(drawn + "\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{to} cannot be written: {error.strerror}") from error
