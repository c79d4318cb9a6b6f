"""The tools that lie beside an emulated machine, for the PATH of whatever runs on it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from pathlib import Path
from typing import Final

from pumice_lab.machine.native import MachineError, library_dir

MPS_CONTROL: Final = "nvidia-cuda-mps-control"
FORMER, NOW = " -m pumice.machine.", " -m pumice_lab.machine."


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
        f'exec {shlex.quote(sys.executable)}{NOW}{name.replace("-", "_")} "$@"\n'
    )
    tool.chmod(0o755)


def renew_tools(directory: Path) -> None:
    """Let the tools of a machine that an earlier release made run the module where it is now."""
    for tool in (directory / "bin").glob("*-smi"):
        with contextlib.suppress(OSError, UnicodeDecodeError):  # another user's machine is served as it is
            text = tool.read_text()
            if FORMER in text:
                draft = tool.with_name(f".{tool.name}.{os.getpid()}")
                draft.write_text(text.replace(FORMER, NOW))
                draft.chmod(0o755)
                draft.rename(tool)


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
