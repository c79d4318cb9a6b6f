"""A node that shares its NPUs softly: the library is put in place and every chip is switched, or takes no pods (Volcano
pkg/scheduler/api/devices/ascend/hami
18)."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.npu_nodes import npu_machine

from pumice.devices.ascend_hami.plugin import daemon as soft_npus
from pumice.model.errors import BadInput
from pumice_lab.machine.npus import NpuFaultModel, set_npu_fault

SHARE = """
import json
from pumice.devices.ascend_hami.plugin.daemon import open_shared
from pumice_lab.machine.native import library_dir
cards = open_shared(str(library_dir()), "310P3")
print(json.dumps(cards.subscribe([card.uuid for card in cards.facts()])))
"""


def test_the_library_is_copied_once_and_again_when_it_is_another(tmp_path: Path) -> None:
    assets, hook, region = tmp_path / "assets", tmp_path / "hook", str(tmp_path / "region")
    with pytest.raises(BadInput, match=r"soft sharing needs libvnpu\.so"):
        soft_npus.install_library(assets, hook, region)
    assets.mkdir()
    for name in soft_npus.NAMES:
        (assets / name).write_text(name)
    soft_npus.install_library(assets, hook, region)
    first = (hook / "libvnpu.so").stat().st_ino
    soft_npus.install_library(assets, hook, region)
    assert (hook / "libvnpu.so").stat().st_ino == first
    (assets / "libvnpu.so").write_text("newer")
    soft_npus.install_library(assets, hook, region)
    assert (hook / "libvnpu.so").read_text() == "newer"
    assert Path(region).stat().st_mode & 0o777 == 0o777


def test_a_chip_that_refuses_takes_no_pods_and_the_others_are_shared(tmp_path: Path) -> None:
    machine = npu_machine(tmp_path / "m", "310P3", "310P3")
    set_npu_fault(machine.directory, NpuFaultModel("dcmi_set_device_info", code=-8020))
    ill = machine.python(SHARE)
    assert [row.share for row in machine.state.chips[:2]] == [0, 1]
    assert len(ill) == 1
    assert "it cannot be shared softly: dcmi_set_device_info: the resource is busy" in next(iter(ill.values()))
