"""``pumice vgpu status``: every layout explained, damage in one sentence and exit code 2."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
from kit.command_line import call
from kit.region_files import GPU, Proc, region_bytes, write

from pumice.adapters.region.extension import WAITS_AT
from pumice.adapters.region.writer import create_region
from pumice.cli.vgpu import app
from pumice.model.errors import BadInput

MIB = 1 << 20


@pytest.mark.parametrize("version", ["0", "1.1", "1.2"])
def test_every_layout_is_read(tmp_path: Path, version: str) -> None:
    proc = Proc(pid=os.getpid(), used={0: (100 * MIB, 0, 900 * MIB, 1000 * MIB)}, sm={0: 33})
    path = write(tmp_path / "a.cache", region_bytes(version, procs=(proc,)))
    reported = json.loads(call(app, ["status", str(path), "-o", "json"]).stdout)
    assert reported["layout"] == version
    assert reported["extension"] is False
    assert reported["devices"][0]["memoryLimitBytes"] == 3000 * MIB
    assert reported["devices"][0]["used"]["total"] == 1000 * MIB
    assert reported["processes"][0]["alive"] is True
    text = call(app, ["status", str(path)]).stdout
    assert "1000 of 3000 MiB (contexts 100, modules 0, data 900)" in text
    assert "1 more visible, not in use" in text
    assert GPU.format(0) in text


@pytest.mark.parametrize(("late", "words"), [(0, "none given up"), (2, "2 of them given up")])
def test_waits_for_locks_are_told(tmp_path: Path, late: int, words: str) -> None:
    region = tmp_path / "r1" / "vgpu.cache"
    create_region(region, {0: (3000 * MIB, 50)})
    assert "waits for locks" not in call(app, ["status", str(region)]).stdout
    with region.open("r+b") as file:
        file.seek(WAITS_AT)
        file.write(struct.pack("<4Q", 7_250_000, 9_000_000, 12, late))
    text = call(app, ["status", str(region)]).stdout
    assert f"12 waits for locks so far, the longest of 7.2 ms, {words}" in text
    reported = json.loads(call(app, ["status", str(region), "-o", "json"]).stdout)
    assert reported["lockWaits"] == {"longest_ns": 7_250_000, "total_ns": 9_000_000, "count": 12, "late": late}


def test_a_folder_of_containers_is_told_one_by_one(tmp_path: Path) -> None:
    for name in ("uid_a", "uid_b"):
        write(tmp_path / name / "x.cache", region_bytes())
    reported = json.loads(call(app, ["status", str(tmp_path), "-o", "json"]).stdout)
    assert [Path(one["path"]).parent.name for one in reported] == ["uid_a", "uid_b"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "no shared region"), (b"\0" * 5000, "no shared region"), (b"ELF" * 9999, "no shared region"),
     (bytes(region_bytes())[:3000], "no known layout"), (bytes(region_bytes())[:2008900], "no known layout")],
)  # fmt: skip
def test_a_damaged_file_is_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = write(tmp_path / "a.cache", bytearray(content))
    done = call(app, ["status", str(path)])
    assert isinstance(done.exception, BadInput)
    assert words in str(done.exception)
    assert str(path) in str(done.exception)
    assert done.stdout == ""


def test_a_folder_without_regions_is_one_sentence(tmp_path: Path) -> None:
    assert "no region in this folder" in str(call(app, ["status", str(tmp_path)]).exception)


def test_one_damaged_region_does_not_hide_the_others(tmp_path: Path) -> None:
    write(tmp_path / "uid_a" / "x.cache", bytearray(b"?"))
    write(tmp_path / "uid_b" / "x.cache", region_bytes())
    done = call(app, ["status", str(tmp_path)])
    assert "uid_b" in done.stdout
    assert "uid_a" in str(done.exception)
