"""The tools that lie beside an emulated machine, for the PATH of whatever runs on it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Final

from pumice_lab.machine.native import MachineError, library_dir

MPS_CONTROL: Final = "nvidia-cuda-mps-control"


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
        f'exec {shlex.quote(sys.executable)} -m pumice_lab.machine.{name.replace("-", "_")} "$@"\n'
    )
    tool.chmod(0o755)


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
