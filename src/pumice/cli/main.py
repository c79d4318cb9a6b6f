"""The command ``pumice``. Commands are imported when they are used, so that help and short commands stay quick."""

from __future__ import annotations

import difflib
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from pumice import __version__
from pumice.model.refusal import BadInput, PumiceError

if TYPE_CHECKING:
    import typer

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


EXAMPLES = """Examples:
  pumice up                                            a cluster on this machine, emulated cards if there are none
  pumice run --memory 3000 --cores 50 -- python train.py   one program, half a card, no cluster
  pumice explain pod my-pod                            why it waits, and what would let it in"""


def main(argv: list[str] | None = None) -> None:
    """Entry point. Errors that a person can mend are one line on stderr and exit code 2, never a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return
    if arguments[0] in ("-V", "--version", "version"):
        print(f"pumice {__version__}")
        return
    name, *rest = arguments
    try:
        module = _module(name)
        if getattr(module, "PLAIN", False):  # parses its own arguments, because the framework takes longer to import than it runs
            raise SystemExit(module.main(rest))
        import typer

        command = typer.main.get_command(load(name))
        command(args=rest, prog_name=f"pumice {name}")
    except PumiceError as error:
        print(f"pumice: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def load(name: str) -> typer.Typer:
    """The typer application of one command. Raises BadInput with the nearest right name."""
    app: typer.Typer = _module(name).app
    app.rich_markup_mode = None  # plain help never cuts an option's name in a narrow terminal
    return app


def _module(name: str) -> ModuleType:
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see `pumice --help`"
        raise BadInput(f"there is no command {name!r}; {hint}")
    return importlib.import_module(COMMANDS[name][0])


def overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items())
    return (
        "Usage: pumice COMMAND [OPTIONS] [ARGUMENTS]\n\n"
        "Fractions of GPUs and NPUs, on one machine or a Kubernetes cluster.\n\n"
        f"Commands (`pumice COMMAND --help` explains each):\n{rows}\n\n{EXAMPLES}"
    )


if __name__ == "__main__":
    main()
