"""The `frontier` command. Each subcommand imports what it needs when it runs: a load generator must start at once."""

from pathlib import Path

import click

NO_FEASIBLE_POINT = 3
"""Exit code where everything was measured and nothing holds the objectives."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def main() -> None:
    """Find and serve the right point on the efficient frontier of LLM inference."""


@main.command()
@click.option("--url", required=True, help="Base URL of the engine, such as http://10.0.0.1:8000.")
@click.option("--model", required=True, help="Served model name.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Closed loop: requests in flight.")
@click.option("--request-rate", type=click.FloatRange(min=0, min_open=True), help="Open loop: requests per second.")
@click.option("--burstiness", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--duration", default="30s", show_default=True, help="Length of the measured window.")
@click.option("--warm-up", default="5s", show_default=True, help="Load before the window.")
@click.option("--workload", required=True, help="JSON object with profile or trace.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--slo", "slos", multiple=True, help="Such as TTFT/95<=2s or UserTokensPerSecond/5>=40; repeatable.")
@click.option("--metrics-listen", default="0.0.0.0:9100", show_default=True, help="HOST:PORT of the metrics.")
@click.option("--scrape-wait", default="5s", show_default=True, help="Bound on waiting for a scrape.")
@click.option("--summary", default="-", help="File for the summary; - is standard output.")
@click.option("--timeout", default="60s", show_default=True, help="After this a request counts as failed.")
@click.option("--vocabulary", type=click.IntRange(min=2), default=2000, show_default=True)
@click.option("--new-connections", is_flag=True, help="Open a connection for every request, as many users do.")
def load(
    *,
    concurrency: int | None,
    request_rate: float | None,
    duration: str,
    warm_up: str,
    workload: str,
    slos: tuple[str, ...],
    scrape_wait: str,
    timeout: str,
    summary: str,
    **rest: object,
) -> None:
    """Hold one level of load on an engine and export what its clients see."""
    import asyncio  # noqa: PLC0415 - see the module
    import json  # noqa: PLC0415 - see the module

    from frontier_tuner.durations import parse_duration  # noqa: PLC0415 - see the module
    from frontier_tuner.load.generator import generate  # noqa: PLC0415 - see the module
    from frontier_tuner.load.options import LoadOptions, parse_slo  # noqa: PLC0415 - see the module
    from frontier_tuner.measurement import Load  # noqa: PLC0415 - see the module

    if (concurrency is None) == (request_rate is None):
        raise click.UsageError("give exactly one of --concurrency and --request-rate")
    level = Load("Concurrency", concurrency) if concurrency is not None else Load("RequestRate", request_rate or 0)
    try:
        options = LoadOptions(
            load=level,
            workload=json.loads(workload),
            duration_seconds=parse_duration(duration),
            warm_up_seconds=parse_duration(warm_up),
            slos=tuple(map(parse_slo, slos)),
            scrape_wait_seconds=parse_duration(scrape_wait),
            timeout_seconds=parse_duration(timeout),
            summary=summary,
            **rest,  # type: ignore[arg-type] # the options whose text needs no reading, under their own names
        )
        result = asyncio.run(generate(options))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"the metrics cannot be served on {rest['metrics_listen']}: {error}") from error
    try:
        if summary == "-":
            click.echo(result.encode())
        else:
            Path(summary).write_text(result.encode())
    except OSError as error:
        raise click.ClickException(f"the summary cannot be written: {error}") from error


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--engine-command", help="Command that the engine's arguments are appended to; default: vLLM.")
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: frontier-<study>.jsonl.")
@click.option("--starts", type=click.IntRange(min=1), help="Engine starts after which to stop in any case.")
@click.option(
    "--work", type=click.Path(file_okay=False, path_type=Path), help="Directory for logs; default: temporary."
)
def tune(
    *, file: Path, engine_command: str | None, journal: Path | None, starts: int | None, work: Path | None
) -> None:
    """Tune the InferenceDeployment in FILE on this machine, without a cluster; goes on from its journal."""
    import tempfile  # noqa: PLC0415 - see the module
    import time  # noqa: PLC0415 - see the module

    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the module
    from frontier_tuner.plants import report  # noqa: PLC0415 - see the module
    from frontier_tuner.plants.process import ProcessPlant  # noqa: PLC0415 - see the module
    from frontier_tuner.plants.setup import process_settings, read_spec  # noqa: PLC0415 - see the module
    from frontier_tuner.plants.study import Progress, run_study  # noqa: PLC0415 - see the module
    from frontier_tuner.study import fingerprint  # noqa: PLC0415 - see the module

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
        spec = read_spec(file)
        path = journal or Path(f"frontier-{fingerprint(spec)}.jsonl")
        with tempfile.TemporaryDirectory(prefix="frontier-") as scratch:
            settings = process_settings(spec, work or Path(scratch), engine_command)
            with ProcessPlant(settings) as plant:
                stop = run_study(spec, plant, path, time.monotonic, starts, progress)
        console.print(f"Stopped: {stop.reason}: {stop.message}; the journal is {path}", highlight=False)
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    _print_outcome(file, path)


@main.command(name="select")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--journal", type=click.Path(dir_okay=False, path_type=Path), help="Default: frontier-<study>.jsonl.")
def select_(*, file: Path, journal: Path | None) -> None:
    """Select again from a journal, for the objectives and the target that FILE has now; nothing is measured."""
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the module
    from frontier_tuner.plants.setup import read_spec  # noqa: PLC0415 - see the module
    from frontier_tuner.study import fingerprint  # noqa: PLC0415 - see the module

    try:
        path = journal or Path(f"frontier-{fingerprint(read_spec(file))}.jsonl")
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    if not path.exists():
        raise click.ClickException(f"there is no journal {path}; run frontier tune first, or name one with --journal")
    _print_outcome(file, path)


def _print_outcome(file: Path, path: Path) -> None:
    """Print trials, frontier and selection; exit with 3 where no point is feasible."""
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the module
    from frontier_tuner.plants import report  # noqa: PLC0415 - see the module
    from frontier_tuner.plants.setup import read_spec  # noqa: PLC0415 - see the module
    from frontier_tuner.plants.study import read_journal, select_from  # noqa: PLC0415 - see the module
    from frontier_tuner.study import fingerprint, space_of  # noqa: PLC0415 - see the module

    console = report.make_console()
    try:
        spec = read_spec(file)
        records = read_journal(path, space_of(spec), fingerprint(spec))
        selection = select_from(spec, records)
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    objectives = spec.to_objectives()
    report.print_trials(console, records, objectives)
    report.print_frontier(console, records, objectives)
    report.print_selection(console, selection, report.best_of(records, objectives, 0))
    if selection.point is None:
        raise SystemExit(NO_FEASIBLE_POINT)


if __name__ == "__main__":
    main()
