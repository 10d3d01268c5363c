"""`frontier space`: the valid configurations of a model on some hardware."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from frontier_tuner.engines.surroundings import Surroundings
    from frontier_tuner.engines.vllm import SpaceRequest
    from frontier_tuner.space import Restriction, SearchSpace

TABLE_ROWS = 20
"""Rows of a table unless --limit says otherwise; other outputs have all."""
WIDEST = 10
"""Columns that a table may have for values; more stand in one."""
_GIB = 2**30
_MEMORY_NAMES = ("weights GiB", "cache GiB", "tokens")


@click.command()
@click.argument("file", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--model", "models", multiple=True, help="Name, or directory with a config.json; repeat for variants.")
@click.option("--gpu", help="Product of GPU, such as H200; without it nothing is checked against hardware.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), default=8, show_default=True)
@click.option("--max-gpus", type=click.IntRange(min=1), help="GPUs that one engine may hold. Default: those of a node.")
@click.option("--several-nodes", is_flag=True, help="One engine may spread over nodes.")
@click.option("--max-model-len", type=click.IntRange(min=1), help="Longest context to serve. Default: the model's own.")
@click.option("--engine-version", default="", help="Such as 0.33.0. Default: the strictest known.")
@click.option(
    "--parameter",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE[,VALUE…]|NAME=MIN..MAX",
    help="Restrict a parameter.",
)
@click.option("--engine-argument", "arguments", multiple=True, help="Argument that every engine gets; repeatable.")
@click.option("--invalid", is_flag=True, help="Also why the other combinations are invalid.")
@click.option("--memory", is_flag=True, help="Also what becomes of the memory of a GPU.")
@click.option("--output", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@click.option("--limit", type=click.IntRange(min=0), help=f"Configurations to list. Default: {TABLE_ROWS} in a table.")
def space(
    *,
    file: Path | None,
    models: tuple[str, ...],
    invalid: bool,
    memory: bool,
    output: str,
    limit: int | None,
    **hardware: Any,
) -> None:
    """List the valid configurations of a model on some hardware, with the reasons of those that are not.

    The model and the hardware come from an InferenceDeployment in FILE, or from --model and --gpu. Exits with 1 where
    nothing is valid.
    """
    from frontier_tuner.engines.vllm import space_of_request  # noqa: PLC0415 - see the package
    from frontier_tuner.errors import InvalidSpaceError, TunerError  # noqa: PLC0415 - see the package
    from frontier_tuner.listing import space_document, space_rows  # noqa: PLC0415 - see the package

    if (file is None) == (not models):
        raise click.UsageError("give either FILE or --model")
    try:
        request = _of_file(file) if file is not None else _of_options(models, **hardware)
        found = space_of_request(request)
    except InvalidSpaceError as error:
        _print_problems(error)
        raise SystemExit(1) from None
    except TunerError as error:
        raise click.ClickException(str(error)) from error
    around = request.surroundings
    if output == "json":
        import json  # noqa: PLC0415 - see the package

        document = space_document(found, around, memory=memory, invalid=invalid, limit=limit)
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif output == "csv":
        _print_csv(*space_rows(found, around, memory=memory, limit=limit))
    else:
        _print_table(found, around, memory=memory, limit=TABLE_ROWS if limit is None else limit)
        if invalid:
            _print_reasons(found.reasons)


def _of_file(file: Path) -> "SpaceRequest":
    from frontier_tuner.plants.setup import read_spec  # noqa: PLC0415 - see the package
    from frontier_tuner.study import space_request  # noqa: PLC0415 - see the package

    return space_request(read_spec(file))


def _of_options(
    models: Sequence[str],
    *,
    gpu: str | None,
    gpus_per_node: int,
    max_gpus: int | None,
    several_nodes: bool,
    max_model_len: int | None,
    engine_version: str,
    parameters: Sequence[str],
    arguments: Sequence[str],
) -> "SpaceRequest":
    from frontier_tuner.engines.vllm import FEATURES, SpaceRequest  # noqa: PLC0415 - see the package
    from frontier_tuner.facts import gpu_facts, model_facts  # noqa: PLC0415 - see the package

    restrictions = [_restriction(text) for text in parameters]
    products = next((entry.values or (entry.value,) for entry in restrictions if entry.name == "gpuProduct"), ())
    variants = {_variant(model): model_facts(model) for model in models}
    return SpaceRequest(
        models=variants,
        gpu=_gpu(gpu) if gpu else None,
        gpus_per_node=gpus_per_node,
        variants=tuple(variants),
        max_gpus=max_gpus or gpus_per_node,
        restrictions=restrictions,
        fixed_args=arguments,
        max_model_len=max_model_len,
        engine_version=engine_version,
        products={str(name): gpu_facts(str(name)) for name in products},
        supports=FEATURES,
        several_nodes=several_nodes,
    )


def _variant(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2].lower()


def _gpu(name: str) -> Any:
    from frontier_tuner.errors import FactsError  # noqa: PLC0415 - see the package
    from frontier_tuner.facts import gpu_facts  # noqa: PLC0415 - see the package

    try:
        return gpu_facts(name)
    except FactsError:
        return gpu_facts(f"NVIDIA-{name}")


def _restriction(text: str) -> "Restriction":
    from frontier_tuner.restriction import Restriction  # noqa: PLC0415 - see the package

    name, given, values = text.partition("=")
    low, ranged, high = values.partition("..")
    if not name or not given or not values:
        raise click.UsageError(f"--parameter {text!r} is not NAME=VALUE, NAME=VALUE,VALUE or NAME=MIN..MAX")
    if ranged and low.isdigit() and high.isdigit():
        return Restriction(name, minimum=int(low), maximum=int(high))
    return Restriction(name, values=tuple(part.strip() for part in values.split(",")))


def _print_problems(error: Any) -> None:
    click.echo("Error: no configuration is valid", err=True)
    problems = dict.fromkeys((*error.reasons, *(problem for problem in error.problems if not error.reasons)))
    for problem in problems:
        click.echo(f"  {problem}", err=True)


def _print_csv(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    import csv  # noqa: PLC0415 - see the package
    import sys  # noqa: PLC0415 - see the package

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def _print_table(found: "SearchSpace", around: "Surroundings", *, memory: bool, limit: int) -> None:
    from frontier_tuner.listing import memory_of  # noqa: PLC0415 - see the package
    from frontier_tuner.parameter import shown  # noqa: PLC0415 - see the package
    from frontier_tuner.plants.report import make_console  # noqa: PLC0415 - see the package

    console = make_console()
    forbidden = sum(found.reasons.values())
    console.print(f"{found.size} valid configurations; {forbidden} combinations are invalid", highlight=False)
    for parameter in found.parameters:
        condition = f", with {parameter.requires}" if parameter.requires else ""
        values = " ".join(shown(value) for value in parameter.values)
        console.print(f"  {parameter.name}: {values} ({parameter.moves}{condition})", highlight=False, markup=False)
    _print_configurations(console, found, around, memory=memory, limit=limit)
    if limit < found.size:
        console.print(f"… and {found.size - limit} more; --limit lists them", highlight=False)
    if memory:
        for role, plan in memory_of(around, found.baseline).items():
            place = f"Baseline {found.baseline.hash}{', ' if role else ''}{role}"
            console.print(f"{place}: {plan.text}", highlight=False, soft_wrap=True)


def _print_configurations(
    console: "Console", found: "SearchSpace", around: "Surroundings", *, memory: bool, limit: int
) -> None:
    from rich.table import Table  # noqa: PLC0415 - see the package

    from frontier_tuner.listing import memory_of, space_rows  # noqa: PLC0415 - see the package
    from frontier_tuner.parameter import shown  # noqa: PLC0415 - see the package

    varied = [parameter.name for parameter in found.parameters if len(parameter.values) > 1 or parameter.requires]
    narrow = len(varied) > WIDEST
    table = Table()
    for name in ("hash", "gpus", *(("values",) if narrow else varied), *(_MEMORY_NAMES if memory else ())):
        table.add_column(name, overflow="fold", no_wrap=name == "hash")
    names, rows = space_rows(found, around, limit=limit)
    for row, configuration in zip(rows, found.configurations(), strict=False):
        values = [row[names.index(name)] for name in varied]
        if narrow:
            present = [name for name in varied if name in configuration]
            values = [" ".join(f"{name}={shown(configuration[name])}" for name in present)]
        plans = memory_of(around, configuration).values() if memory else ()
        sums = [
            " + ".join(f"{plan.weights / _GIB:.1f}" for plan in plans),
            " + ".join(f"{plan.cache / _GIB:.1f}" for plan in plans),
            " + ".join(str(plan.tokens) for plan in plans),
        ]
        table.add_row(*row[:2], *values, *(sums if memory else ()))
    if rows:
        console.print(table)


def _print_reasons(reasons: Any) -> None:
    from frontier_tuner.listing import invalid_document  # noqa: PLC0415 - see the package

    click.echo("Invalid combinations by their reason:")
    for entry in invalid_document(reasons):
        click.echo(f"  {entry['combinations']:>8}  {entry['reason']}")
