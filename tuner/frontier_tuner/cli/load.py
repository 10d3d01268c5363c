"""`frontier load`: one level of load on one engine; `frontier load compare`: the same beside other generators."""

from pathlib import Path
from typing import Any

import click

_REQUIRED = ("url", "model", "workload")


@click.group(invoke_without_command=True)
@click.option("--url", help="Base URL of the engine, such as http://10.0.0.1:8000. Required.")
@click.option("--model", help="Served model name. Required.")
@click.option("--concurrency", type=click.IntRange(min=1), help="Closed loop: requests in flight.")
@click.option("--request-rate", type=click.FloatRange(min=0, min_open=True), help="Open loop: requests per second.")
@click.option(
    "--time-scale",
    type=click.FloatRange(min=0, min_open=True),
    help="Open loop: replay a trace in its own time, so many times as fast.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["Poisson", "Gamma", "Constant", "Recorded"]),
    default=None,
    help="Of an open loop. [default: the workload's; Poisson for a profile, Recorded for a trace]",
)
@click.option(
    "--burstiness",
    type=click.FloatRange(min=0, min_open=True),
    help="Shape of gamma-distributed gaps: 1 is Poisson, below 1 is burstier. [default: the workload's]",
)
@click.option("--duration", default="30s", show_default=True, help="Length of the measured window.")
@click.option("--warm-up", default="5s", show_default=True, help="Load before the window.")
@click.option("--workload", help="JSON object with profile or trace, or @FILE. Required.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--slo", "slos", multiple=True, help="Such as TTFT/95<=2s or UserTokensPerSecond/5>=40; repeatable.")
@click.option(
    "--precision-percent",
    type=click.FloatRange(0, 100),
    default=0.0,
    show_default=True,
    help="End the window once throughput and each SLO's metric are known to so many percent; 0 never ends it early.",
)
@click.option("--min-window", default="0s", show_default=True, help="The window never ends before this.")
@click.option(
    "--min-requests", type=click.IntRange(0), default=0, show_default=True, help="Nor before so many were answered."
)
@click.option("--metrics-listen", default="0.0.0.0:9100", show_default=True, help="HOST:PORT of the metrics.")
@click.option("--scrape-wait", default="5s", show_default=True, help="Bound on waiting for a scrape.")
@click.option("--summary", default="-", help="File for the summary; - is standard output.")
@click.option("--records", default="", help="File for one line of JSON per request.")
@click.option("--timeout", default="60s", show_default=True, help="After this a request counts as failed.")
@click.option("--vocabulary", type=click.IntRange(min=2), default=2000, show_default=True)
@click.option("--new-connections", is_flag=True, help="Open a connection for every request, as many users do.")
@click.option("--api-key-file", default="", help="File with the key that the engine asks for.")
@click.pass_context
def load(context: click.Context, /, **given: Any) -> None:
    """Hold one level of load on an engine and export what its clients see."""
    if context.invoked_subcommand is not None:
        return
    from frontier_tuner.load.generator import generate  # noqa: PLC0415 - see the package
    from frontier_tuner.load.loop import run  # noqa: PLC0415 - see the package

    rule = None
    summary, listen = given["summary"], given["metrics_listen"]
    try:
        options = _options(given)
        if options.precision_percent:
            from frontier_tuner.prometheus.ending import WellEnough  # noqa: PLC0415 - see the package

            rule = WellEnough.of(options)
        result = run(generate(options, rule))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        message = f"{error}; the metrics are to be served on {listen}"
        raise click.ClickException(message) from error
    try:
        if summary == "-":
            click.echo(result.encode())
        else:
            Path(summary).write_text(result.encode())
    except OSError as error:
        raise click.ClickException(f"the summary cannot be written: {error}") from error


def _options(given: dict[str, Any]) -> Any:
    """Return the `LoadOptions` that were typed.

    Raises:
        UsageError: A required one is missing, or several levels are given.
        ValueError: A value cannot be read.
    """
    from frontier_tuner.durations import parse_duration  # noqa: PLC0415 - see the package
    from frontier_tuner.load.options import LoadOptions, parse_slo, replayed_load  # noqa: PLC0415 - see the package
    from frontier_tuner.measurement import Load  # noqa: PLC0415 - see the package

    for name in _REQUIRED:
        if given[name] is None:
            raise click.UsageError(f"Missing option '--{name}'.")
    levels = {name: given.pop(name) for name in ("concurrency", "request_rate")}
    concurrency, rate, scale = levels["concurrency"], levels["request_rate"], given["time_scale"]
    if [concurrency, rate, scale].count(None) != 2:  # noqa: PLR2004 - of the three, one
        raise click.UsageError("give exactly one of --concurrency and --request-rate, or --time-scale for a trace")
    workload = read_workload(given.pop("workload"))
    level = Load("Concurrency", concurrency) if concurrency is not None else Load("RequestRate", rate or 1)
    if scale is not None:
        level = replayed_load(workload, scale)
    for name in ("duration", "warm_up", "scrape_wait", "timeout", "min_window"):
        given[f"{name}_seconds"] = parse_duration(given.pop(name))
    slos = tuple(map(parse_slo, given.pop("slos")))
    given["arrivals"] = given["arrivals"] or ""
    return LoadOptions(load=level, workload=workload, slos=slos, **given)


def read_workload(text: str) -> dict[str, Any]:
    """Return the workload that an option gives as JSON or as `@FILE`.

    Raises:
        ValueError: It is no JSON object.
        OSError: The file cannot be read.
    """
    import json  # noqa: PLC0415 - see the package

    body = json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    if not isinstance(body, dict):
        raise ValueError("workload: must be a JSON object with exactly one of profile and trace")  # noqa: TRY004 - callers catch ValueErrors only
    return body


@load.command()
@click.option("--url", required=True, help="Base URL of the engine, such as http://10.0.0.1:8000.")
@click.option("--model", required=True, help="Served model name.")
@click.option("--tokenizer", default="", help="Name or directory, for the others' prompts. [default: the model's name]")
@click.option("--concurrency", type=click.IntRange(min=1), help="Closed loop: requests in flight.")
@click.option("--request-rate", type=click.FloatRange(min=0, min_open=True), help="Open loop: requests per second.")
@click.option("--input-tokens", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--output-tokens", type=click.IntRange(min=2), default=64, show_default=True)
@click.option(
    "--spread-percent",
    type=click.IntRange(0, 100),
    default=20,
    show_default=True,
    help="Lengths are uniform within this around their mean.",
)
@click.option("--duration", default="60s", show_default=True, help="Of one run of each.")
@click.option("--warm-up", default="5s", show_default=True)
@click.option("--alternations", type=click.IntRange(min=1), default=3, show_default=True, help="Runs of each.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--tolerance-percent", type=click.FloatRange(min=0), default=5.0, show_default=True)
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="NAME=COMMAND",
    help="Where a generator is: vllm, aiperf, guidellm, inference-perf; repeatable. [default: those on the PATH]",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("load-compare"),
    show_default=True,
    help="For logs and raw results.",
)
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="File that receives the table too.")
def compare(
    *,
    concurrency: int | None,
    request_rate: float | None,
    duration: str,
    warm_up: str,
    alternations: int,
    tolerance_percent: float,
    programs: tuple[str, ...],
    directory: Path,
    markdown: Path | None,
    **task: Any,
) -> None:
    """Run this generator and others in turn on one endpoint and print the medians of each side by side."""
    from frontier_tuner.durations import parse_duration  # noqa: PLC0415 - see the package
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.load import compare as comparing  # noqa: PLC0415 - see the package
    from frontier_tuner.load.rivals import Task  # noqa: PLC0415 - see the package
    from frontier_tuner.measurement import Load  # noqa: PLC0415 - see the package

    if (concurrency is None) == (request_rate is None):
        raise click.UsageError("give exactly one of --concurrency and --request-rate")
    level = Load("Concurrency", concurrency) if concurrency is not None else Load("RequestRate", request_rate or 0)
    try:
        given = dict(_named(program) for program in programs)
        wanted = Task(load=level, requests=0, seconds=parse_duration(duration), **task)
        warm_up_seconds = parse_duration(warm_up)
        found = comparing.installed(given)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    try:
        seen = comparing.compare(wanted, warm_up_seconds, found, alternations, directory, say=_say)
    except (TunerError, OSError) as error:
        raise click.ClickException(f"{error}; logs are in {directory}") from error
    table = seen.markdown(tolerance_percent)
    click.echo(table)
    if markdown is not None:
        markdown.write_text(table)
    if set(seen.figures) == {comparing.OURS}:
        raise click.ClickException("no other generator gave a result")


def _say(sentence: str) -> None:
    click.echo(sentence, err=True)


def _named(program: str) -> tuple[str, str]:
    name, _, command = program.partition("=")
    if not command:
        raise ValueError(f"--program {program!r} must be like aiperf=/opt/aiperf/bin/aiperf")
    return name, command
