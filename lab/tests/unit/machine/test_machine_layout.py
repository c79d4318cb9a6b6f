"""The Python mirror of the shared state has the offsets and sizes that the C compiler gives to state.h."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.native_build import compiled

from pumice_lab.machine import layout

HEADER = Path(__file__).parents[3] / "native/include/machine/state.h"


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    asked = [f"sizeof(struct {name})" for name in layout.MIRRORED]
    asked += [f"offsetof(struct {name}, {field[0]})" for name, mirror in layout.MIRRORED.items() for field in mirror._fields_]
    return compiled(HEADER, "machine/state.h", asked, tmp_path_factory.mktemp("layout"))


@pytest.mark.parametrize("name", list(layout.MIRRORED))
def test_every_structure_lies_as_the_compiler_lays_it(laid_out: dict[str, int], name: str) -> None:
    mirror = layout.MIRRORED[name]
    for field in mirror._fields_:
        assert getattr(mirror, field[0]).offset == laid_out[f"offsetof(struct {name}, {field[0]})"], field[0]
    assert layout.sizeof(mirror) == laid_out[f"sizeof(struct {name})"]


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
