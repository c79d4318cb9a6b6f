"""``pumice jupyter``: notebooks whose kernel has a share of a card."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

from pumice.adapters.regular_files import replace_file
from pumice.cli import flags
from pumice.local.request import Request, parse_cards, parse_priority, parse_shares
from pumice.model.errors import BadInput, Unavailable

app = flags.App(group=True, help="Make Jupyter kernels that have a share of a card.",
                  epilog="Example: pumice jupyter install --memory 25% --cores 50")  # fmt: skip

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""A kernel's name, as jupyter_client's kernelspec.py has it."""


@app.command(epilog="Examples: pumice jupyter install --memory 25%;  "
                    "pumice jupyter install --memory 3GiB --name small --python ~/v/bin/python")  # fmt: skip
def install(
    memory: Annotated[str | None, flags.Option(
        metavar="AMOUNT|P%", help="Memory: MiB, with a unit as 3GiB, or percent of the card's (default: all of it).")
    ] = None,
    cores: Annotated[str, flags.Option(
        metavar="P", show_default=False, help="Percent of the card's compute (default: no limit).")
    ] = "0",
    gpu: Annotated[str | None, flags.Option(
        metavar="CARD", help="Number or UUID of the card, several as 0,1; auto: where most is free when the kernel starts; all "
        "(default: 0).")
    ] = None,
    gpus: Annotated[str | None, flags.Option(metavar="N|all", help="So many cards, those where most is free.")] = None,
    priority: Annotated[str, flags.Option(metavar="N", show_default=False, help="0 high, 1 low (the default).")] = "1",
    emulated: Annotated[str | None, flags.Option(
        metavar="[MODEL|DIR]", bare=True, help="On an emulated machine, as `pumice run --emulated`.")
    ] = None,
    name: Annotated[str, flags.Option(help="The kernel's name; an older kernel of this name is replaced.")] = "pumice",
    display_name: Annotated[str, flags.Option(
        metavar="TEXT", show_default=False, help="What the launcher shows (default: the share).")
    ] = "",
    python: Annotated[str, flags.Option(
        metavar="PROGRAM", show_default=False, help="The Python of the kernel, with ipykernel (default: python3 of PATH).")
    ] = "",
    prefix: Annotated[Path | None, flags.Option(
        metavar="DIR", help="Install below DIR/share/jupyter/kernels, as into a virtual environment (default: for this user).")
    ] = None,
) -> None:  # fmt: skip
    """Make a kernel whose notebooks have a share of a card, from the start of each to its end."""
    if not NAME.fullmatch(name):
        raise BadInput(f"--name {name}: a kernel's name has letters, digits, dots, underscores and hyphens only")
    cards = parse_cards(gpu, gpus, None)
    request = parse_shares(memory, cores, cards.cards, cards.number, parse_priority(priority), cards.source)
    program = _interpreter(python or "python3")
    if emulated and os.path.exists(emulated):
        emulated = os.path.abspath(emulated)  # a kernel starts in the folder of its notebook
    options = {"memory": memory, "cores": cores if cores != "0" else None, "gpu": gpu, "gpus": gpus,
               "priority": priority if priority != "1" else None, "emulated": emulated}  # fmt: skip
    data = prefix.absolute() / "share/jupyter" if prefix else _data_directory(os.environ, sys.platform)
    folder = data / "kernels" / name.lower()
    _write(folder, kernel(options, program, display_name or _display(request)))
    print(f"{name.lower()}: {folder}\nRemove it by: jupyter kernelspec remove {name.lower()}")


def kernel(options: dict[str, str | None], program: str, display_name: str) -> dict[str, Any]:
    """Return the kernel.json (jupyter_client, docs/kernels.rst). ``options`` are those of ``pumice run``, None for the ones not
    given. ``pumice run`` becomes the kernel's process, so that interrupts and restarts reach the kernel itself."""
    given = [f"--{option}={value}" if value else f"--{option}" for option, value in options.items() if value is not None]
    run = [sys.executable, "-m", "pumice", "run", *given, "--"]
    return {
        "argv": [*run, program, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": display_name,
        "language": "python",
        "metadata": {"debugger": True},
    }


def _display(request: Request) -> str:
    cards = f"{request.count} GPUs, " if request.count > 1 else ""
    return f"Python 3 ({cards}{request.words})"


def _interpreter(python: str) -> str:
    """Return the path of a Python that has ipykernel. Raises Unavailable."""
    program = shutil.which(os.path.expanduser(python))
    if program is None:
        raise Unavailable(f"--python {python}: no such program")
    program = os.path.abspath(program)  # not resolved: a link in a virtual environment is what makes it one
    found = subprocess.run([program, "-c", "import importlib.util as u, sys; sys.exit(0 if u.find_spec('ipykernel') else 3)"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # fmt: skip
    if found.returncode == 3:
        raise Unavailable(f"{program} has no ipykernel; install it with `{program} -m pip install ipykernel`, or name another "
                          "one with --python")  # fmt: skip
    if found.returncode:
        said = found.stderr.strip().splitlines()[-1:] or [f"exit code {found.returncode}"]
        raise Unavailable(f"--python {python}: not a Python that works: {said[0]}")
    return program


def _data_directory(environment: os._Environ[str] | dict[str, str], platform: str) -> Path:
    """Return the user's data directory of Jupyter (jupyter_core, paths.py)."""
    if directory := environment.get("JUPYTER_DATA_DIR"):
        return Path(directory)
    if platform == "darwin":
        return Path.home() / "Library/Jupyter"
    return Path(environment.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "jupyter"


def _write(folder: Path, spec: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "kernel.json", f"{json.dumps(spec, indent=1)}\n".encode(), 0o644, durable=False)
