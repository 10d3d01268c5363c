"""`python -m frontier_local.agent --config FILE`: run the node agent in the foreground."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import click

from frontier_local.agent.agent import run
from frontier_local.errors import LocalError
from frontier_local.node_spec import AgentConfig


@click.command()
@click.option(
    "--config",
    "config_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The agent's configuration, as `frontier-local up` writes it.",
)
@click.option("--verbose", is_flag=True, help="Say what is tried again, too.")
def main(config_file: Path, verbose: bool) -> None:
    """Run the node agent until SIGTERM."""
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        config = AgentConfig.from_json(config_file.read_text())
        asyncio.run(run(config))
    except (ValueError, LocalError) as error:
        raise click.ClickException(f"{config_file}: {error}") from error
    # A thread may still be making an image's environment; its processes are gone, and nobody waits for the result.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
