"""`frontier load`: one level of load on one engine."""

from pathlib import Path

import click


@click.command()
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
    import asyncio  # noqa: PLC0415 - see the package
    import json  # noqa: PLC0415 - see the package

    from frontier_tuner.durations import parse_duration  # noqa: PLC0415 - see the package
    from frontier_tuner.load.generator import generate  # noqa: PLC0415 - see the package
    from frontier_tuner.load.options import LoadOptions, parse_slo  # noqa: PLC0415 - see the package
    from frontier_tuner.measurement import Load  # noqa: PLC0415 - see the package

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
