"""`frontier bench`: search methods side by side on a table of measured or computed truth."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from frontier_tuner.bench.report import Row


def _list(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from frontier_tuner.bench.methods import METHODS  # noqa: PLC0415 - see the package

    for name, entry in METHODS.items():
        click.echo(f"{name:16} {entry.summary}")
    context.exit()


@click.command(epilog="See docs/reference/bench.md for the form of a table and how a method is judged.")
@click.option("--plant", type=click.Path(dir_okay=False, path_type=Path), required=True, help="FILE.csv or .csv.gz.")
@click.option("--model", help="Name of a known model, for the roofline.")
@click.option("--model-config", type=click.Path(dir_okay=False, path_type=Path), help="Its config.json instead.")
@click.option("--gpu", help="GPU product, such as B200, for the roofline.")
@click.option(
    "--engine",
    type=click.Choice(["vllm", "sglang", "trtllm"]),
    help="Engine that the table is of; the roofline takes all alike.",
)
@click.option("--input-tokens", type=click.IntRange(min=1), help="Length of a prompt.")
@click.option("--output-tokens", type=click.IntRange(min=1), help="Length of an answer.")
@click.option("--cached-tokens", type=click.IntRange(min=0), default=0, show_default=True, help="Of the prompt.")
@click.option("--policy", default="MaxThroughput", show_default=True, help="What is best, as in a target's policy.")
@click.option(
    "--slo", "slos", multiple=True, help="TTFT<=3000ms, ITL<=30ms, E2E<=20s, UserTokensPerSecond>=50; repeat."
)
@click.option("--user-tokens-per-second", type=click.FloatRange(min=0, min_open=True), help="For AtUserSpeed.")
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), help="Per million tokens, for AtCost.")
@click.option("--gpu-price", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True)
@click.option("--starts", type=click.IntRange(min=1), default=24, show_default=True, help="Engine starts of each run.")
@click.option("--seeds", type=click.IntRange(min=1), default=5, show_default=True, help="Runs of each method: 0, 1, …")
@click.option("--methods", default="ours,tpe", show_default=True, help="Comma-separated; --list-methods tells them.")
@click.option(
    "--noise",
    type=click.FloatRange(min=0, max=1),
    default=0.04,
    show_default=True,
    help="Of a start; half of it of a rung. Above 0, TTFT has 10 % and 3 % of the starts fail.",
)
@click.option("--prior", type=click.Choice(["roofline", "none", "wrong"]), default="roofline", show_default=True)
@click.option("--bend", type=click.IntRange(min=0), metavar="SEED", help="Bend the truth by a seeded error field.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Record every start there.")
@click.option(
    "--list-methods",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list,
    help="Show the methods and leave.",
)
def bench(
    *,
    plant: Path,
    policy: str,
    slos: tuple[str, ...],
    user_tokens_per_second: float | None,
    max_cost: float | None,
    gpu_price: float,
    starts: int,
    seeds: int,
    methods: str,
    noise: float,
    prior: str,
    bend: int | None,
    jobs: int,
    out: Path | None,
    **told: object,
) -> None:
    """Run search methods side by side on a table; a method sees only what it has measured.

    Hypervolume: of user speed x throughput per GPU, within the SLOs on TTFT, over that of the whole table. Target: the
    best measured point that truly holds all SLOs over the best of the table. GPU-hours: a start costs its GPUs x
    (8 min + 1.5 min for each rung), one that dies its GPUs x 4 min.
    """
    import os  # noqa: PLC0415 - see the package

    # As many threads as processors in every process would only stand in each other's way.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from rich.console import Console  # noqa: PLC0415 - see the package
    from rich.progress import Progress  # noqa: PLC0415 - see the package

    from frontier_tuner.bench import priors, results, runner  # noqa: PLC0415 - see the package
    from frontier_tuner.bench.bend import bend as bent  # noqa: PLC0415 - see the package
    from frontier_tuner.bench.goal import make_goal  # noqa: PLC0415 - see the package
    from frontier_tuner.bench.methods import names_of  # noqa: PLC0415 - see the package
    from frontier_tuner.bench.report import rows  # noqa: PLC0415 - see the package
    from frontier_tuner.bench.score import Scorer  # noqa: PLC0415 - see the package
    from frontier_tuner.bench.tables import read_table  # noqa: PLC0415 - see the package
    from frontier_tuner.errors import TunerError  # noqa: PLC0415 - see the package

    try:
        names = names_of(methods)
        served = priors.Served(**{name: value for name, value in told.items() if name != "engine"})  # type: ignore[arg-type]
        goal = make_goal(
            policy,
            slos,
            output_tokens=served.output_tokens,
            user_tokens_per_second=user_tokens_per_second,
            max_cost=max_cost,
            gpu_price=gpu_price,
        )
        results.check_writable(out)
        table = read_table(plant)
        prediction = None if prior == "none" else priors.roofline(table, served)
        table = table if bend is None else bent(table, bend)
        scorer = Scorer(table, goal)
        experiment = runner.Experiment(table, goal, starts, noise, prior, prediction)  # type: ignore[arg-type]
        console = Console(stderr=True)
        with Progress(console=console, disable=not console.is_terminal) as progress:
            task = progress.add_task("Runs", total=len(names) * seeds)
            logs = runner.run(
                experiment, names, range(seeds), jobs=jobs, on_done=lambda *_: progress.update(task, advance=1)
            )
        if out is not None:
            results.write(out, results.encode(logs, table))
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    _print([row for name in names for row in rows(scorer, name, logs[name], starts)])


def _print(rows: "list[Row]") -> None:
    from rich.table import Table  # noqa: PLC0415 - see the package

    from frontier_tuner.plants.report import make_console  # noqa: PLC0415 - see the package

    table = Table(title="Mean / worst seed")
    for heading in ("method", "starts", "hypervolume", "target", "GPU-hours", "died", "GPU-hours to 0.95", "s/start"):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    for row in rows:
        last = row is rows[-1] or rows[rows.index(row) + 1].method != row.method
        reached = f"{row.hours_to_target:.1f}" if row.hours_to_target is not None else "-"
        table.add_row(
            row.method,
            str(row.starts),
            f"{row.hypervolume[0]:.3f} / {row.hypervolume[1]:.3f}",
            f"{row.target[0]:.3f} / {row.target[1]:.3f}",
            f"{row.gpu_hours:.1f}",
            f"{row.died:.1f}",
            f"{reached} ({row.reached:.0%})" if last else "",
            f"{row.seconds:.3f}" if last else "",
            end_section=last,
        )
    make_console().print(table)
