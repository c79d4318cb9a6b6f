"""The command ``pumice``. Commands are imported when they are used, so that help and short commands stay quick."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click
import typer

from pumice.model.refusal import PumiceError

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, one line for the overview)
    "up": ("pumice.cli.up", "Bring up a cluster on this machine, with real or emulated cards"),
    "down": ("pumice.cli.down", "Stop the cluster of a data dir"),
    "status": ("pumice.cli.status", "Say what runs"),
    "run": ("pumice.cli.run", "Run a program with a share of a card, without a cluster"),
    "ps": ("pumice.cli.ps", "List the programs that share this machine's cards"),
    "top": ("pumice.cli.top", "Watch cards and who uses them, live"),
    "limit": ("pumice.cli.limit", "Change the limits of a running program"),
    "explain": ("pumice.cli.explain", "Say why a pod waits and what would let it in"),
    "fits": ("pumice.cli.fits", "Say whether a pod that does not exist yet would fit"),
    "lint": ("pumice.cli.lint", "Check scheduler, device and pod files"),
    "dump": ("pumice.cli.dump", "Write what the scheduler sees to a file"),
    "replay": ("pumice.cli.replay", "Repeat the decisions of a dump"),
    "scheduler": ("pumice.cli.scheduler", "Daemon: the batch scheduler"),
    "controller": ("pumice.cli.controller", "Daemon: PodGroups and queues"),
    "device-plugin": ("pumice.cli.device_plugin", "Daemon: the node's device plugins"),
    "monitor": ("pumice.cli.monitor", "Daemon: metrics of cards and containers"),
    "vgpu": ("pumice.cli.vgpu", "Look into the shared region of a container"),
    "machine": ("pumice.cli.machine", "Make and change an emulated machine"),
    "burn": ("pumice.cli.burn", "Load a card: allocate memory, launch kernels"),
    "bench": ("pumice.cli.bench", "Run the project's benchmarks"),
}


class LazyGroup(click.Group):
    """Subcommands by name, each living in a module of its own that holds ``app`` (a typer application)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(importlib.import_module(COMMANDS[cmd_name][0]).app)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def main(argv: list[str] | None = None) -> Any:
    """Entry point. Errors that a person can mend are one line on stderr and exit code 2, never a traceback."""
    try:
        return root.main(args=argv, prog_name="pumice", standalone_mode=True)
    except PumiceError as error:
        print(f"pumice: {error}", file=sys.stderr)
        raise SystemExit(2) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
             epilog="Start with: pumice up, or without a cluster: pumice run --memory 3000 --cores 50 -- python train.py")
@click.version_option(package_name="pumice")
def root() -> None:
    """Fractions of GPUs and NPUs, on one machine or a Kubernetes cluster."""


if __name__ == "__main__":
    main()
