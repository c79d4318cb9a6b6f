"""``vcctl`` and its short forms: the same commands as ``pumice job``, ``queue`` and ``pod``, under Volcano's names."""

from __future__ import annotations

import json
import platform
import sys
from importlib import resources
from pathlib import PurePath

from pumice import __version__
from pumice.cli import ASK_FOR_WORDS
from pumice.cli.main import COMMANDS, run_app, run_command, run_safely

GROUPS = {"job": "Jobs", "queue": "Queues", "jobflow": "JobFlows", "jobtemplate": "JobTemplates",
          "pod": "Pods of Jobs and queues"}  # fmt: skip
SHORT = ("vsub", "vjobs", "vcancel", "vsuspend", "vresume", "vqueues")
COMPLETION, VERSION = "Words of vcctl and its short forms for bash, zsh and fish", "Which version this is"
UNKNOWN = "Not provided."
"""The words of upstream's vcctl for what its build did not know (pkg/version)."""
API_VERSION = "v1alpha1"


def main(argv: list[str] | None = None, called: str = "") -> None:
    """Entry point of vcctl and of each short form, which is told by the name it was called by."""
    called = called or PurePath(sys.argv[0]).name
    arguments = sys.argv[1:] if argv is None else argv
    if called in SHORT:
        run_safely(called, lambda: _short(called, arguments))
    else:
        run_safely("vcctl", lambda: _main(arguments))


def _short(called: str, arguments: list[str]) -> None:
    from pumice_jobs.cli.short_forms import APPS

    run_app(APPS[called], called, arguments)


def _main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        known = {**GROUPS, "completion": COMPLETION, "version": VERSION}
        width = max(map(len, known))
        print("Usage: vcctl COMMAND ...\n\n" + "\n".join(f"  {name:<{width}}  {text}" for name, text in known.items())
              + f"\n\nShort forms: {', '.join(SHORT)}.\n`vcctl COMMAND --help` explains each.")  # fmt: skip
    elif arguments[0] == "version":
        built = _built()
        print(f"API Version: {API_VERSION}\nVersion: {__version__}\nGit SHA: {built.get('commit') or UNKNOWN}\n"
              f"Built At: {built.get('at') or UNKNOWN}\nPython Version: {platform.python_version()}\n"
              f"OS/Arch: {platform.system().lower()}/{platform.machine()}")
    elif arguments[0] == ASK_FOR_WORDS:
        from pumice.cli.completion import answer

        own = {name: (COMMANDS[name][0], text) for name, text in GROUPS.items()}
        own |= {"completion": ("pumice.cli.completion", COMPLETION), "version": ("", VERSION)}
        if arguments[1:2] and arguments[1] in SHORT:
            own = {arguments[1]: (f"pumice_jobs.cli.short_forms:{arguments[1]}", "")}
        answer(arguments[1:], own)
    elif arguments[0] == "completion":
        _completion(arguments[1:])
    elif arguments[0] in GROUPS:
        run_command(arguments[0], arguments[1:], "vcctl")
    else:
        print(f"vcctl: there is no command {arguments[0]!r}; see `vcctl --help`", file=sys.stderr)
        raise SystemExit(2)


def _built() -> dict[str, str]:
    """Return what setup.py wrote into the wheel; nothing where the sources are used in place."""
    try:
        found: dict[str, str] = json.loads((resources.files("pumice") / "built.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found


def _completion(arguments: list[str]) -> None:
    from pumice.cli.completion import Shell, script

    if len(arguments) != 1 or arguments[0] not in list(Shell):
        print(f"vcctl completion: write one of {', '.join(Shell)}", file=sys.stderr)
        raise SystemExit(2)
    print(script(Shell(arguments[0]), "vcctl", SHORT), end="")
