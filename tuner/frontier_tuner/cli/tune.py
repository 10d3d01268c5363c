"""`frontier tune`: a whole study on this machine."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from frontier_tuner.cli.outcome import print_outcome

OPTIONS = (
    click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.option("--engine-command", help="Command that the engine's arguments are appended to; default: vLLM."),
    click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: frontier-<study>.jsonl."),
    click.option("--starts", type=click.IntRange(min=1), help="Engine starts after which to stop in any case."),
    click.option(
        "--finalists",
        type=click.IntRange(min=0, max=8),
        help="Best configurations to start again beside the baseline once the search has stopped; 0 for none. "
        "Default: search.confirmation.finalists of FILE, or 2.",
    ),
    click.option(
        "--ablations",
        type=click.IntRange(min=0),
        help="Trials of the budget to keep for measuring the choice with one technique set back at a time. "
        "Default: search.budget.ablations of FILE, or 0.",
    ),
    click.option(
        "--work", type=click.Path(file_okay=False, path_type=Path), help="Directory for logs; default: temporary."
    ),
    click.option(
        "--models",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Directory that holds what pvc://CLAIM/PATH names as PATH; default: /models.",
    ),
)
"""What a study on this machine is asked with: the arguments of `tune_on_this_machine`."""


def study_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of a study on this machine."""
    for add in reversed(OPTIONS):
        command = add(command)
    return command


@click.command()
@study_options
def tune(
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
    """Tune the InferenceDeployment in FILE on this machine, without a cluster; goes on from its journal."""
    tune_on_this_machine(file, journal, engine_command, starts, work, models, finalists=finalists, ablations=ablations)


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end the command the way an error does, so that it takes its engine along."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def tune_on_this_machine(
    file: Path,
    journal: Path | None,
    engine_command: str | None,
    starts: int | None,
    work: Path | None,
    models: Path | None,
    *,
    finalists: int | None,
    ablations: int | None,
) -> None:
    """Run a study with local engines and print its outcome; exits with 3 where no point is feasible.

    Args:
        file: The manifest.
        journal: The journal to begin or to go on from; None for `frontier-<study>.jsonl`.
        engine_command: What the engine's arguments are appended to; None for vLLM.
        starts: Engine starts after which to stop in any case, or None.
        work: Directory for logs; None for a temporary one.
        models: Where the files of `pvc://` sources are; None for `/models`.
        finalists: Configurations to measure again; None for what the manifest says.
        ablations: Trials kept for ablations; None for what the manifest says.

    Raises:
        click.ClickException: The manifest, the journal or the surroundings cannot be used.
    """
    import tempfile  # noqa: PLC0415 - see the package
    import time  # noqa: PLC0415 - see the package

    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.plants import report  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.process import ProcessPlant  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.setup import process_settings, read_spec  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.study import Progress, run_study  # noqa: PLC0415 - see the package
    from frontier_tuner.study import fingerprint  # noqa: PLC0415 - see the package

    console = report.make_console()
    progress = Progress(
        on_proposal=lambda number, proposal: console.print(
            f"[bold]Trial {number}[/]: {proposal.configuration} ({proposal.reason})", highlight=False, soft_wrap=True
        ),
        on_rung=lambda measurement: report.print_rung(console, measurement),
        on_trial=lambda record: console.print(
            f"  {record.outcome}" + (f": {record.failure.reason}: {record.failure.message}" if record.failure else ""),
            highlight=False,
            markup=False,
            soft_wrap=True,
        ),
    )
    try:
        spec = read_spec(file, finalists=finalists, ablations=ablations)
        path = journal or Path(f"frontier-{fingerprint(spec)}.jsonl")
        with _ending_in_order(), tempfile.TemporaryDirectory(prefix="frontier-") as scratch:
            settings = process_settings(spec, work or Path(scratch), engine_command, models)
            with ProcessPlant(settings) as plant:
                stop = run_study(spec, plant, path, time.monotonic, starts, progress)
        console.print(f"Stopped: {stop.reason}: {stop.message}; the journal is {path}", highlight=False)
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    print_outcome(file, path, ablations)
