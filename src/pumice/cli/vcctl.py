"""``vcctl`` and its short forms: the same commands as ``pumice job``, ``queue`` and ``pod``, under Volcano's names."""

from __future__ import annotations

import sys
from pathlib import PurePath

from pumice import __version__
from pumice.cli.main import run_command, run_safely

GROUPS = {"job": "Jobs", "queue": "Queues", "jobflow": "JobFlows", "jobtemplate": "JobTemplates",
          "pod": "Pods of Jobs and queues"}  # fmt: skip
SHORT = {
    "vsub": ("job", "run"), "vjobs": ("job", "list"), "vcancel": ("job", "delete"), "vsuspend": ("job", "suspend"),
    "vresume": ("job", "resume"), "vqueues": ("queue", "list"),
}  # fmt: skip
API_VERSION = "v1alpha1"


def main(argv: list[str] | None = None, called: str = "") -> None:
    """Entry point of vcctl and of each short form, which is told by the name it was called by."""
    called = called or PurePath(sys.argv[0]).name
    arguments = sys.argv[1:] if argv is None else argv
    run_safely("vcctl", lambda: _main([*SHORT.get(called, ()), *arguments]))


def _main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        width = max(map(len, GROUPS))
        print("Usage: vcctl COMMAND ...\n\n" + "\n".join(f"  {name:<{width}}  {text}" for name, text in GROUPS.items())
              + f"\n  version\n\nShort forms: {', '.join(SHORT)}.\n`vcctl COMMAND --help` explains each.")  # fmt: skip
    elif arguments[0] == "version":
        print(f"API Version: {API_VERSION}\nVersion: {__version__}\nGit SHA: -\nBuilt At: -")
    elif arguments[0] in GROUPS:
        run_command(arguments[0], arguments[1:], "vcctl")
    else:
        print(f"vcctl: there is no command {arguments[0]!r}; see `vcctl --help`", file=sys.stderr)
        raise SystemExit(2)
