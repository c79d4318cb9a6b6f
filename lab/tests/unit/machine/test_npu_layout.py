"""The layout of the emulated NPUs' state, and of what their driver is asked with; which machines cannot be made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from kit.native_build import compiled

from pumice.adapters.dcmi import driver as structures
from pumice_lab.machine import MachineError, npus

HEADER = Path(__file__).parents[3] / "native/include/machine/npu.h"


def test_every_structure_lies_as_the_compiler_lays_it(tmp_path: Path) -> None:
    asked = [f"sizeof(struct {name})" for name in npus.MIRRORED]
    asked += [f"offsetof(struct {name}, {field[0]})" for name, mirror in npus.MIRRORED.items() for field in mirror._fields_]
    laid_out = compiled(HEADER, "machine/npu.h", asked, tmp_path)
    for name, mirror in npus.MIRRORED.items():
        for field in mirror._fields_:
            assert getattr(mirror, field[0]).offset == laid_out[f"offsetof(struct {name}, {field[0]})"], (name, field[0])
        assert npus.sizeof(mirror) == laid_out[f"sizeof(struct {name})"], name


def test_the_mirror_has_the_constants_of_the_header() -> None:
    text = HEADER.read_text()
    for name, number in re.findall(r"^#define NPU_(CHIPS|TEMPLATES|SLICES|PROCESSES|ERRORS|FAULTS) (\d+)\b", text, re.M):
        assert getattr(npus, name) == int(number), name
    assert f"NPU_MAGIC 0x{npus.MAGIC:x}ull" in text
    assert f"NPU_VERSION {npus.VERSION}u" in text


@pytest.mark.parametrize(
    ("mirror", "size"),
    [("ChipInfo", 132), ("CreateIn", 104), ("CreateOut", 52), ("Base", 64), ("Computing", 96), ("Media", 56), ("SliceInfo", 256),
     ("One", 264), ("Totals", 360), ("Free", 224)],
)  # fmt: skip
def test_the_driver_interface_has_the_sizes_that_programs_were_built_with(mirror: str, size: int) -> None:
    assert npus.sizeof(getattr(structures, mirror)) == size


def test_machines_that_cannot_be_made_say_why(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"910B5: no such NPU; did you mean"):
        npus.create_npus(["910B5"], tmp_path / "a")
    with pytest.raises(MachineError, match=r"1 to 16 NPUs, not 17"):
        npus.create_npus(["910A"] * 17, tmp_path / "a")
    npus.create_npus(["910A"], tmp_path / "a")
    with pytest.raises(MachineError, match="there are emulated NPUs already"):
        npus.create_npus(["910A"], tmp_path / "a")
