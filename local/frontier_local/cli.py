"""The command `frontier-local`: a real Kubernetes control plane on one machine, without containers and without root."""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from frontier_local.assets import NAMES, Resolver
from frontier_local.cluster import Cluster, ClusterSpec, ClusterStatus
from frontier_local.errors import LocalError

_Command = TypeVar("_Command", bound=Callable[..., Any])


def main() -> None:
    """Run the command; an error that is meant for a person is printed without a traceback."""
    try:
        commands()
    except LocalError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)


def _located(command: _Command) -> _Command:
    """Add the options that say which cluster is meant."""
    name = click.option("--name", help="Name of the cluster.  [default: frontier]")
    directory = click.option(
        "--directory",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where the cluster keeps its files.  [default: ~/.frontier-local/NAME]",
    )
    return name(directory(command))


def _cluster(directory: Path | None, name: str | None, spec: ClusterSpec | None = None) -> Cluster:
    place = directory or Path.home() / ".frontier-local" / (name or ClusterSpec().name)
    return Cluster(place, spec, progress=_progress())


def _progress() -> Callable[[str], None]:
    """Return a function that prints lines with the time since now."""
    begun = time.monotonic()
    return lambda line: click.echo(f"[{time.monotonic() - begun:5.0f} s] {line}", err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """Run a real Kubernetes control plane, Prometheus and a node agent as processes of this machine."""


@commands.command()
@_located
@click.option("--nodes", type=int, help="Number of nodes.  [default: 1]")
@click.option("--gpu-product", help="GPU product of every node.  [default: NVIDIA-L40S]")
@click.option("--gpus-per-node", type=int, help="GPUs of every node.  [default: 8]")
@click.option("--gpu-memory", help="Memory of each GPU.  [default: 48Gi]")
@click.option("--gpu-resource", help="Extended resource of the GPUs.  [default: nvidia.com/gpu]")
@click.option("--cpus-per-node", type=int, help="CPU cores of every node.  [default: 64]")
@click.option("--memory-per-node", help="Memory of every node.  [default: 512Gi]")
@click.option(
    "--image-map", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="What image names mean."
)
@click.option("--scrape-interval", help="How often Prometheus scrapes pods; at least 250ms.  [default: 500ms]")
def up(directory: Path | None, name: str | None, image_map: Path | None, **wanted: int | str | None) -> None:
    """Start a cluster, or what does not run of it; returns when it is ready.

    An option that is not given is as the last time.
    """
    given: dict[str, Any] = {field: value for field, value in wanted.items() if value is not None}
    if image_map is not None:
        given["image_map"] = str(image_map.absolute())
    last = _cluster(directory, name).spec
    spec = replace(last, name=name or last.name, **given)
    _print(_cluster(directory, name, spec).up())


@commands.command()
@_located
@click.option("--delete", is_flag=True, help="Remove the cluster's files, too.")
def down(directory: Path | None, name: str | None, *, delete: bool) -> None:
    """Stop every process of a cluster, pods included; its data is kept."""
    _cluster(directory, name).down(delete=delete)


@commands.command()
@_located
def status(directory: Path | None, name: str | None) -> None:
    """Show a cluster; exits with 1 unless it is ready."""
    current = _cluster(directory, name).status()
    _print(current)
    sys.exit(0 if current.ready else 1)


@commands.command()
@_located
def kubeconfig(directory: Path | None, name: str | None) -> None:
    """Print the path of the administrator's kubeconfig."""
    cluster = _cluster(directory, name)
    if not cluster.kubeconfig.exists():
        raise LocalError(f"{cluster.directory} holds no embedded cluster; start one with `frontier-local up`")
    click.echo(cluster.kubeconfig)


@commands.command()
@click.option("--checksums", type=click.Path(path_type=Path), help="Digests of releases that may be downloaded.")
def assets(checksums: Path | None) -> None:
    """Find, fetch or build the binaries, and say where they are.

    Looks in the directory that FRONTIER_ASSETS names, in the PATH (Prometheus only), in the cache, then among the
    official releases whose checksum is listed, and builds what is still missing.
    """
    for asset in Resolver.default(_progress(), checksums).resolve(NAMES).values():
        click.echo(f"{asset.name:24} {asset.origin:16} {asset.path}")


def _print(current: ClusterStatus) -> None:
    """Print a cluster for a person."""
    if current.spec is None:
        click.echo(f"{current.directory}: never started")
        return
    click.echo(f"cluster     {current.spec.name} ({'ready' if current.ready else 'not ready'})")
    click.echo(f"directory   {current.directory}")
    gpus = f", each {current.spec.gpus_per_node} x {current.spec.gpu_product}" if current.spec.nodes else ""
    click.echo(f"nodes       {current.spec.nodes}{gpus}")
    click.echo(f"API server  {current.api_server}")
    click.echo(f"Prometheus  {current.prometheus_url}")
    for component in current.components:
        state = f"process {component.pid}" if component.pid else f"not running, see {component.log}"
        click.echo(f"  {component.name:24} {state}")
    click.echo(f"export KUBECONFIG={current.directory / 'kubeconfig'}")


if __name__ == "__main__":
    main()
