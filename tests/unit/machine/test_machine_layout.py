"""The Python mirror of the shared state has the offsets and sizes that the C compiler gives to state.h."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pumice.machine import layout

HEADER = Path(__file__).parents[3] / "native/machine/include/machine/state.h"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("layout")
    asked = ['printf("size %zu\\n", sizeof(struct machine_state));']
    for name, mirror in layout.MIRRORED.items():
        asked.append(f'printf("sizeof.{name} %zu\\n", sizeof(struct {name}));')
        for field in mirror._fields_:
            asked.append(f'printf("{name}.{field[0]} %zu\\n", offsetof(struct {name}, {field[0]}));')
    source = folder / "layout.c"
    source.write_text(
        '#include <stdio.h>\n#include "machine/state.h"\nint main(void)\n{\n' + "\n".join(asked) + "\nreturn 0;\n}\n"
    )
    subprocess.run(
        [compiler, "-std=c11", f"-I{HEADER.parents[1]}", str(source), "-o", str(folder / "layout")], check=True
    )
    printed = subprocess.run([str(folder / "layout")], check=True, capture_output=True, text=True).stdout
    return {name: int(number) for name, number in (line.split() for line in printed.splitlines())}


@pytest.mark.parametrize("name", list(layout.MIRRORED))
def test_every_structure_lies_as_the_compiler_lays_it(compiled: dict[str, int], name: str) -> None:
    mirror = layout.MIRRORED[name]
    assert {field[0]: getattr(mirror, field[0]).offset for field in mirror._fields_} == {
        key.split(".")[1]: value for key, value in compiled.items() if key.startswith(f"{name}.")
    }
    assert compiled[f"sizeof.{name}"] == layout.sizeof(mirror)


def test_the_mirror_names_every_structure_and_constant_of_the_header() -> None:
    text = HEADER.read_text()
    assert set(re.findall(r"^struct (machine_\w+) \{", text, re.M)) == set(layout.MIRRORED)
    for name, number in re.findall(r"^#define MACHINE_([A-Z]+) (\d+)\b", text, re.M):
        assert getattr(layout, name) == int(number), name
    assert f"MACHINE_MAGIC 0x{layout.MAGIC:x}ull" in text
    assert f"MACHINE_VERSION {layout.VERSION}u" in text


def test_field_names_of_the_mirror_are_those_of_the_header() -> None:
    """A field the mirror forgot would shift nothing if it sat in padding; count the names instead."""
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)
    for name, body in re.findall(r"^struct (machine_\w+) \{(.*?)^\};", text, re.S | re.M):
        declared = re.findall(r"(\w+)(?:\[\w+\])*\s*[,;]", body)
        assert declared == [field[0] for field in layout.MIRRORED[name]._fields_], name
