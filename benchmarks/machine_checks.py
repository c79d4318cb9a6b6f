"""The common part of the long checks of the emulated machine: a machine of its own, a result, one sentence where it is broken."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.results import arguments, save


def run_check(name: str, about: str | None, argv: list[str] | None, run: Callable[[int, int, Path], dict[str, Any]], *, unit: str,
          many: int, broken: type[Exception]) -> int:  # fmt: skip
    """Run it with so many of a unit (kills, calls) and a seed as the command line says; its exit code."""
    parser = arguments(about, quick=f"a twentieth of the {unit}")
    parser.add_argument(f"--{unit}", dest="many", type=int, default=many)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        try:
            save(name, run(given.many // (20 if given.quick else 1), given.seed, Path(folder) / "machine"), keep=given.save)
        except broken as error:
            print(error, file=sys.stderr)
            return 1
    return 0
