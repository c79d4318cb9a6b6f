"""The command ``pumice``. Commands are imported when they are used, so that help and short commands stay quick."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from pumice.cli import ASK_FOR_WORDS
from pumice.cli.streams import end_by, give_up_output, prepare, said_by_the_system

if TYPE_CHECKING:
    from pumice.cli.flags import App

GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    # name: (module or module:app, empty for the laboratory's; one line for the overview)
    "One machine, no cluster": {
        "run": ("pumice.cli.run", "Run a program with a share of a card"),
        "docker": ("pumice.cli.docker", "Run a container with a share of a card"),
        "slurm": ("pumice.cli.slurm", "Give Slurm's jobs shares of a card"),
        "share": ("pumice.cli.share", "Make shares with a name, for containers by CDI"),
        "ps": ("pumice.cli.ps", "List the programs that share this machine's cards"),
        "top": ("pumice.cli.top", "Watch cards and who uses them, live"),
        "limit": ("pumice.cli.limit", "Change the limits of a running program"),
        "vgpu": ("pumice.cli.vgpu", "Look into the shared region of a program or container"),
        "burn": ("pumice.cli.burn", "Load a card: allocate memory, launch kernels"),
        "mig": ("pumice.cli.mig", "Cut cards into MIG slices as a file says"),
        "jupyter": ("pumice.cli.jupyter", "Make notebooks' kernels with a share"),
        "machine": ("", "Make and change an emulated machine"),
    },
    "A cluster on this machine": {
        "up": ("", "Bring up a cluster, with real or emulated cards"),
        "status": ("", "Say what runs, and who is on which card"),
        "down": ("", "Stop the cluster of a data dir"),
    },
    "Pods, before and while they wait": {
        "explain": ("pumice.cli.explain", "Say why a pod waits and what would let it in"),
        "fits": ("pumice.cli.fits", "Say whether a pod or a claim not there yet would fit"),
        "claim": ("pumice.cli.fits:claim", "Say whether claims fit (as `pumice fits`)"),
        "lint": ("pumice.cli.lint", "Check scheduler, device and pod files"),
        "convert": ("pumice.cli.convert", "Write HAMi's files in our words, and back"),
        "dump": ("pumice.cli.dump", "Write what the scheduler sees to a file"),
        "diff": ("pumice.cli.replay:compared", "Compare two journals, or one under two configurations"),
        "replay": ("pumice.cli.replay", "Repeat the decisions of a dump"),
        "defrag": ("pumice.cli.defrag", "Move pods so that a waiting one starts, or cards are free"),
        "simulate": ("pumice.cli.simulate", "Compare policies, nodes and cuts in simulated time"),
    },
    "Jobs and queues (as vcctl, too)": {
        "job": ("pumice_jobs.cli.job", "Run, list, view, suspend, resume, delete Jobs"),
        "queue": ("pumice_jobs.cli.queue", "Create, list, open, close, delete queues"),
        "jobflow": ("pumice_jobs.cli.jobflow", "Create, list, show, delete JobFlows"),
        "jobtemplate": ("pumice_jobs.cli.jobtemplate", "Create, list, show, delete JobTemplates"),
        "pod": ("pumice_jobs.cli.pod", "List the pods of Jobs and queues"),
    },
    "Nodes of a Kubernetes cluster": {
        "doctor": ("pumice.cli.doctor", "Say what is wrong with a node or a cluster"),
        "inspect": ("pumice.cli.inspect", "Show the memory of shared cards, node by node"),
        "usage": ("pumice.cli.usage", "Say who held how many hours of which cards"),
        "web": ("pumice.cli.web", "Show a cluster in a browser"),
    },
    "Daemons of a Kubernetes cluster": {
        "scheduler": ("pumice.cli.scheduler", "The batch scheduler"),
        "controller": ("pumice_jobs.cli.controller", "Jobs, PodGroups and queues"),
        "webhook": ("pumice_jobs.cli.webhook", "Admission of Volcano's kinds, and of pods"),
        "device-plugin": ("pumice.cli.node_daemons:device_plugin", "The node's device plugins"),
        "dra-driver": ("pumice.cli.node_daemons:dra_driver", "The node's drivers of claims"),
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


def main(argv: list[str] | None = None) -> None:
    """Entry point. Errors that a person can mend are one line on stderr and exit code 2, never a traceback."""
    arguments = sys.argv[1:] if argv is None else argv
    run_safely("pumice", lambda: _main(arguments))


def complete_for_kubectl() -> None:
    """Entry point of the program that kubectl asks for the words of its plugin ``pumice``. The last line says that files may
    stand in their place (cobra, ShellCompDirectiveDefault)."""
    run_safely("pumice", lambda: _main([ASK_FOR_WORDS, *sys.argv[1:]]))
    print(":0")


def run_safely(program: str, run: Callable[[], None]) -> None:
    """Run a program of ours: signals, closed pipes and what the system refuses end it as they should."""
    try:
        prepare()
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


def _main(arguments: list[str]) -> None:
    if not arguments or arguments in (["-h"], ["--help"], ["help"]):
        print(overview())
        return
    if arguments[0] in ("-V", "--version", "version"):
        from pumice import __version__

        print(f"pumice {__version__}")
        return
    name, *rest = _command_first(arguments)
    if name == ASK_FOR_WORDS:
        from pumice.cli.completion import answer

        answer(rest, _completed(rest[0] if rest else ""))
        return
    if name == "help" and rest:
        name, rest = rest[0], ["--help"]
    run_command(name, rest)


def _command_first(arguments: list[str]) -> list[str]:
    """The words with the command before the options that were written ahead of it, as kubectl takes them: each with its value."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] not in ("-", "--"):
        at += 1 if "=" in arguments[at] or arguments[at] in ("-h", "--help") else 2
    if at == 0 or at >= len(arguments):
        return arguments
    ahead, rest = arguments[:at], arguments[at:]
    end = rest.index("--") if "--" in rest else len(rest)
    return [*rest[:end], *ahead, *rest[end:]]


def run_command(name: str, rest: list[str], program: str = "pumice") -> None:
    """One command with its arguments. What a person can mend is one line."""

    def run() -> None:
        _read(load(name), f"{program} {name}", rest)

    _refused_in_one_line(program, run, f"{program} {name}")


def run_app(app: App, program: str, arguments: list[str]) -> None:
    """A program that is one command."""
    _refused_in_one_line(program, lambda: _read(app, program, arguments), program)


def _refused_in_one_line(program: str, run: Callable[[], None], command: str) -> None:
    from pumice.model.errors import PumiceError

    try:
        try:
            run()
        except ModuleNotFoundError as error:
            from pumice.cli.extras import missing

            raise missing(f"`{command}`", error) from error
    except PumiceError as error:
        print(f"{program}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def _read(app: App, called: str, words: list[str]) -> None:
    """Run the command that is meant, ``called`` by these words. What is wrong with them becomes one line."""
    from pumice.cli.reading import HelpWanted, Mistake, run

    try:
        run(app.build(), words)
    except HelpWanted as wanted:
        from pumice.cli.reading import help_of

        print(help_of(wanted.command, " ".join([called, *wanted.words])), file=sys.stderr if wanted.unasked else sys.stdout)
        raise SystemExit(2 if wanted.unasked else 0) from None
    except Mistake as mistake:
        meant = " ".join([called, *mistake.words])
        print(f"{meant}: {mistake}; see `{meant} --help`", file=sys.stderr)
        raise SystemExit(2) from mistake
    raise SystemExit(0)


def load(name: str) -> App:
    """The application of one command. Raises BadInput with the nearest right name."""
    import importlib

    if name not in COMMANDS:
        from pumice.model.errors import BadInput, nearest

        raise BadInput(f"there is no command {name!r}{nearest(name, COMMANDS) or '; see `pumice --help`'}")
    module, _, attribute = _place_of(name).partition(":")
    app: App = getattr(importlib.import_module(module), attribute or "app")
    return app


def _place_of(name: str) -> str:
    """Return the module of a command, or ``module:app``. Raises Unavailable where it is the laboratory's, which is not here."""
    if not COMMANDS[name][0]:
        from pumice.cli import laboratory

        return laboratory.command(name)
    return COMMANDS[name][0]


def _installed() -> dict[str, tuple[str, str]]:
    """Return the commands without the laboratory's where there is none."""
    from pumice.cli import laboratory

    return COMMANDS if laboratory.is_here() else {name: row for name, row in COMMANDS.items() if row[0]}


def _completed(first: str) -> dict[str, tuple[str, str]]:
    """Return the commands whose words can be completed, and where ``first`` is."""
    from pumice.model.errors import Unavailable

    commands = _installed()
    try:
        return {**commands, first: (_place_of(first), commands[first][1])} if first in commands else commands
    except Unavailable:  # a laboratory of another version: no error is told in the middle of somebody's line
        return {name: row for name, row in commands.items() if row[0]}


def overview() -> str:
    width, here = max(map(len, COMMANDS)), _installed()
    lines = {title: [f"  {name:<{width}}  {text}" for name, (_, text) in group.items() if name in here]
             for title, group in GROUPS.items()}  # fmt: skip
    groups = "\n\n".join("\n".join([f"{title}:", *rows]) for title, rows in lines.items() if rows)
    longest = max(len(line) for line, _ in EXAMPLES)
    examples = "\n".join(f"  {line:<{longest}}   {text}" for line, text in EXAMPLES)
    return (
        "Usage: pumice COMMAND [OPTIONS] [ARGUMENTS]\n\n"
        "Fractions of GPUs and NPUs, on one machine or a Kubernetes cluster.\n\n"
        f"{groups}\n\nExamples:\n{examples}\n\n`pumice COMMAND --help` explains each."
    )


if __name__ == "__main__":
    main()
