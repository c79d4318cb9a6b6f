"""What the C compiler makes of expressions over a header, to hold a Python mirror against it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest


def compiled(header: Path, include: str, expressions: Iterable[str], folder: Path) -> dict[str, int]:
    """The value of each expression (as unsigned 64 bit) where ``include`` is found below ``header``'s include directory."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    asked = list(expressions)
    prints = "".join(f'    printf("%llu\\n", (unsigned long long)({one}));\n' for one in asked)
    source, program = folder / "ask.c", folder / "ask"
    includes = f'#include <stddef.h>\n#include <stdio.h>\n#include "{include}"\n'
    source.write_text(f"{includes}int main(void)\n{{\n{prints}    return 0;\n}}\n")
    subprocess.run([compiler, "-std=c11", f"-I{header.parents[1]}", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    return dict(zip(asked, map(int, printed.split()), strict=True))
