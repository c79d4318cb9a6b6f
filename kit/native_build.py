"""Building what the tests of the native libraries run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[1] / "native"
MACHINE = NATIVE.parent / "lab" / "native"
"""The emulated machine's sources."""


@cache
def build(*targets: str) -> None:
    """Makes them; nothing to do takes a few milliseconds. Tests that run side by side build one after the other."""
    folder = os.open(NATIVE, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        done = subprocess.run(["make", "-s", "-C", NATIVE, *targets], capture_output=True, text=True)
    finally:
        os.close(folder)
    assert done.returncode == 0, done.stderr


# -- What the C compiler makes of expressions over a header, to hold a Python mirror against it


def compiled(header: Path, include: str, expressions: Iterable[str], folder: Path) -> dict[str, int]:
    """The value of each expression (as unsigned 64 bit) where ``include`` is found below ``header``'s include directory."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    requested = list(expressions)
    prints = "".join(f'    printf("%llu\\n", (unsigned long long)({one}));\n' for one in requested)
    source, program = folder / "ask.c", folder / "ask"
    includes = f'#include <stddef.h>\n#include <stdio.h>\n#include "{include}"\n'
    source.write_text(f"{includes}int main(void)\n{{\n{prints}    return 0;\n}}\n")
    subprocess.run([compiler, "-std=c11", f"-I{header.parents[1]}", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return dict(zip(requested, map(int, printed.split()), strict=True))
