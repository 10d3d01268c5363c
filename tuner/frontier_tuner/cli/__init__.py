"""The `frontier` command. Each subcommand imports what it needs when it runs: a load generator must start at once."""

import importlib

import click

COMMANDS = {name: name for name in ("bench", "explain", "load", "plot", "resume", "select", "space", "tune")}
"""Subcommand → module of this package that has it, under the same name."""


class LazyGroup(click.Group):
    """A group whose subcommands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return sorted({*super().list_commands(ctx), *COMMANDS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the subcommand of a name, or None where there is none."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
def main() -> None:
    """Find and serve the right point on the efficient frontier of LLM inference."""
