"""The command ``pumice``. Commands are imported when they are used, so that help and short commands stay quick."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pumice.cli.asking import ASK_FOR_WORDS
from pumice.cli.streams import end_by, give_up_output, prepare, said_by_the_system

if TYPE_CHECKING:
    from types import ModuleType

    import typer

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    # name: (module, one line for the overview)
    "One machine, no cluster": {
        "run": ("pumice.cli.run", "Run a program with a share of a card"),
        "ps": ("pumice.cli.ps", "List the programs that share this machine's cards"),
        "top": ("pumice.cli.top", "Watch cards and who uses them, live"),
        "limit": ("pumice.cli.limit", "Change the limits of a running program"),
        "vgpu": ("pumice.cli.vgpu", "Look into the shared region of a program or container"),
        "burn": ("pumice.cli.burn", "Load a card: allocate memory, launch kernels"),
        "mig": ("pumice.cli.mig", "Cut cards into MIG slices as a file says"),
        "machine": ("pumice.cli.machine", "Make and change an emulated machine"),
    },
    "A cluster on this machine": {
        "up": ("pumice.cli.up", "Bring up a cluster, with real or emulated cards"),
        "status": ("pumice.cli.status", "Say what runs, and who is on which card"),
        "down": ("pumice.cli.down", "Stop the cluster of a data dir"),
    },
    "Pods, before and while they wait": {
        "explain": ("pumice.cli.explain", "Say why a pod waits and what would let it in"),
        "fits": ("pumice.cli.fits", "Say whether a pod that does not exist yet would fit"),
        "lint": ("pumice.cli.lint", "Check scheduler, device and pod files"),
        "dump": ("pumice.cli.dump", "Write what the scheduler sees to a file"),
        "replay": ("pumice.cli.replay", "Repeat the decisions of a dump"),
    },
    "Jobs and queues (as vcctl, too)": {
        "job": ("pumice.cli.job", "Run, list, view, suspend, resume, delete Jobs"),
        "queue": ("pumice.cli.queue", "Create, list, open, close, delete queues"),
        "jobflow": ("pumice.cli.jobflow", "Create, list, show, delete JobFlows"),
        "jobtemplate": ("pumice.cli.jobtemplate", "Create, list, show, delete JobTemplates"),
        "pod": ("pumice.cli.pod", "List the pods of Jobs and queues"),
    },
    "Nodes of a Kubernetes cluster": {
        "doctor": ("pumice.cli.doctor", "Say what is wrong with a node, and how it is mended"),
        "inspect": ("pumice.cli.inspect", "Show the memory of shared cards, node by node"),
    },
    "Daemons of a Kubernetes cluster": {
        "scheduler": ("pumice.cli.scheduler", "The batch scheduler"),
        "controller": ("pumice.cli.controller", "Jobs, PodGroups and queues"),
        "webhook": ("pumice.cli.webhook", "Admission of Volcano's kinds, and of pods"),
        "device-plugin": ("pumice.cli.device_plugin", "The node's device plugins"),
        "monitor": ("pumice.cli.monitor", "Metrics of cards and containers"),
    },
    "The project": {
        "bench": ("pumice.cli.bench", "Run the benchmarks"),
        "completion": ("pumice.cli.completion", "Complete words in bash, zsh and fish"),
    },
}
COMMANDS = {name: row for group in GROUPS.values() for name, row in group.items()}

EXAMPLES = (
    ("pumice run --memory 3000 --cores 50 -- python train.py", "half of a card"),
    ("pumice run --emulated --memory 40% -- pumice burn", "without a card"),
    ("pumice up -d", "a cluster, here"),
    ("pumice explain pod my-pod", "why it waits"),
)
INTERRUPTED = 130


def main(argv: list[str] | None = None) -> None:
    """Entry point. Errors that a person can mend are one line on stderr and exit code 2, never a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    run_safely("pumice", lambda: _main(arguments))


def run_safely(program: str, run: Callable[[], None]) -> None:
    """Run a program of ours: signals, closed pipes and what the system refuses end it as they should."""
    prepare()
    try:
        try:
            run()
        finally:
            sys.stdout.flush()  # here, where what is refused can be told
    except KeyboardInterrupt:
        end_by(signal.SIGINT)
    except BrokenPipeError:  # the reader has what it wanted
        end_by(signal.SIGPIPE)
    except OSError as error:
        give_up_output()
        print(f"{program}: {said_by_the_system(error)}", file=sys.stderr)
        raise SystemExit(2) from error
    except ModuleNotFoundError as error:
        if (error.name or "pumice").partition(".")[0] == "pumice":
            raise
        print(f"{program}: the Python package {error.name} is missing; `make setup` or `pip install 'pumice[local]'` brings it",
              file=sys.stderr)  # fmt: skip
        raise SystemExit(2) from error


def _main(arguments: list[str]) -> None:
    if not arguments or arguments in (["-h"], ["--help"], ["help"]):
        print(overview())
        return
    if arguments[0] in ("-V", "--version", "version"):
        from pumice import __version__

        print(f"pumice {__version__}")
        return
    name, *rest = arguments
    if name == ASK_FOR_WORDS:
        from pumice.cli.completion import answer

        answer(rest, COMMANDS)
        return
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    run_command(name, rest)


def run_command(name: str, rest: list[str], program: str = "pumice") -> None:
    """One command with its arguments. What a person can mend is one line."""

    def run() -> None:
        module = _module(name)
        if getattr(module, "PLAIN", False):  # parses its own arguments, because the framework takes longer to import than it runs
            raise SystemExit(module.main(rest))
        _framework(load(name), f"{program} {name}", with_bare_options(rest, getattr(module, "BARE", ())))

    _told_in_a_line(program, run)


def run_app(app: typer.Typer, program: str, arguments: list[str]) -> None:
    """A program that is one command."""
    app.rich_markup_mode = None
    _told_in_a_line(program, lambda: _framework(app, program, arguments))


def _told_in_a_line(program: str, run: Callable[[], None]) -> None:
    from pumice.model.errors import PumiceError

    try:
        run()
    except PumiceError as error:
        print(f"{program}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def _framework(app: typer.Typer, called: str, arguments: list[str]) -> None:
    """Run a command of the framework, ``called`` by these words. What it says of wrong usage becomes one line."""
    import typer

    usage_error: type[Exception] = typer.BadParameter.__bases__[0]  # of which all of them are; it has no name of its own there
    command = typer.main.get_command(app)
    command.context_settings = {**command.context_settings, "help_option_names": ["-h", "--help"]}
    try:
        # Its own main() would hide signals and closed pipes.
        with command.make_context(called, arguments) as context:
            command.invoke(context)
    except usage_error as error:
        said = str(error.format_message())  # type: ignore[attr-defined]
        if "\n" in said:  # the help of a command that was given nothing
            print(said, file=sys.stderr)
        else:
            said = said.replace("Value error, ", "").rstrip(".")
            print(f"{called}: {said[:1].lower()}{said[1:]}; see `{called} --help`", file=sys.stderr)
        raise SystemExit(2) from error
    except typer.Exit as ended:  # after help
        raise SystemExit(ended.exit_code) from None
    except typer.Abort:
        raise SystemExit(INTERRUPTED) from None
    raise SystemExit(0)


def with_bare_options(arguments: Sequence[str], bare: Sequence[str]) -> list[str]:
    """Options that may stand without a value get an empty one, which the framework has no word for."""
    after = [*arguments[1:], "-"]
    return [f"{word}=" if word in bare and after[at].startswith("-") else word for at, word in enumerate(arguments)]


def load(name: str) -> typer.Typer:
    """The typer application of one command. Raises BadInput with the nearest right name."""
    app: typer.Typer = _module(name).app
    app.rich_markup_mode = None  # plain help never cuts an option's name in a narrow terminal
    return app


def _module(name: str) -> ModuleType:
    import importlib

    if name not in COMMANDS:
        import difflib

        from pumice.model.errors import BadInput

        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see `pumice --help`"
        raise BadInput(f"there is no command {name!r}; {hint}")
    return importlib.import_module(COMMANDS[name][0])


def overview() -> str:
    width = max(map(len, COMMANDS))
    groups = "\n\n".join(
        f"{title}:\n" + "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in group.items())
        for title, group in GROUPS.items()
    )
    longest = max(len(line) for line, _ in EXAMPLES)
    examples = "\n".join(f"  {line:<{longest}}   {text}" for line, text in EXAMPLES)
    return (
        "Usage: pumice COMMAND [OPTIONS] [ARGUMENTS]\n\n"
        "Fractions of GPUs and NPUs, on one machine or a Kubernetes cluster.\n\n"
        f"{groups}\n\nExamples:\n{examples}\n\n`pumice COMMAND --help` explains each."
    )


if __name__ == "__main__":
    main()
