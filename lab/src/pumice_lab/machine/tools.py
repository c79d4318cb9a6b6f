"""The tools that lie beside an emulated machine, for the PATH of whatever runs on it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from pumice.adapters.regular_files import replace_file
from pumice_lab.machine.native import MachineError, library_dir

MPS_CONTROL: Final = "nvidia-cuda-mps-control"
_FORMER: Final = "pumice.machine."
"""The package of the tools' modules before the laboratory was a package of its own."""


def place_tool(directory: Path, name: str, what: str) -> None:
    """``DIR/bin/NAME``, which shows ``what`` of the machine. It runs the module of that name."""
    tool = directory / "bin" / name
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(
        "#!/bin/sh\n"
        f"# {name} of an emulated machine: it shows {what} of PUMICE_MACHINE, or of the directory it lies in.\n"
        'if [ -z "$PUMICE_MACHINE" ]; then\n'
        '    PUMICE_MACHINE=$(cd "$(dirname "$0")/.." && pwd)\n'
        "    export PUMICE_MACHINE\n"
        "fi\n"
        f"{_exec_line(name)}\n"
    )
    tool.chmod(0o755)


def _exec_line(name: str) -> str:
    return f'exec {shlex.quote(sys.executable)} -m pumice_lab.machine.{name.replace("-", "_")} "$@"'


def renew_tools(directory: Path) -> None:
    """Let the tools of a machine that an earlier release made, or an installation that is gone, run from this installation."""
    for tool in (directory / "bin").glob("*-smi"):
        with contextlib.suppress(OSError, ValueError, IndexError):  # another user's machine is served as it is
            lines = tool.read_text().splitlines()
            if _runs_nowhere(lines[-1]):
                content = "\n".join([*lines[:-1], _exec_line(tool.name), ""]).encode()
                replace_file(tool, content, 0o755, durable=False)
    control = directory / "bin" / MPS_CONTROL
    if control.is_symlink() and not control.exists():
        with contextlib.suppress(OSError):
            place_mps(directory)


def _runs_nowhere(line: str) -> bool:
    """Return whether a tool's last line names an interpreter that is gone, or a module where an earlier release had it."""
    match shlex.split(line):
        case ["exec", python, "-m", module, _]:
            return module.startswith(_FORMER) or not os.access(python, os.X_OK)
    return False


def place_mps(directory: Path) -> None:
    """``DIR/bin/nvidia-cuda-mps-control``: the emulated one, where it is built."""
    try:
        program = library_dir() / MPS_CONTROL
    except MachineError:
        return
    tool = directory / "bin" / MPS_CONTROL
    if program.exists():
        tool.unlink(missing_ok=True)
        tool.symlink_to(program)
