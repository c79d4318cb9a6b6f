"""Directories and the library on the host: modes as promised, nothing followed that somebody planted."""

from __future__ import annotations

import os

import pytest

from pumice.apps.files import digests, install_files, make_directory
from pumice.model.refusal import BadInput
from pumice.node.effects import MakeDirectory
from pumice.node.library import install


def test_a_directory_has_its_mode_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        make_directory(MakeDirectory(str(tmp_path / "a/b"), 0o1777))
    finally:
        os.umask(before)
    assert (tmp_path / "a/b").stat().st_mode & 0o7777 == 0o1777


def test_a_fresh_directory_is_empty_and_another_keeps_its_files(tmp_path):
    old = tmp_path / "d" / "old.cache"
    old.parent.mkdir()
    old.write_text("x")
    make_directory(MakeDirectory(str(old.parent)))
    assert old.exists()
    make_directory(MakeDirectory(str(old.parent), fresh=True))
    assert list(old.parent.iterdir()) == []


def test_a_link_in_the_way_is_refused_and_its_target_untouched(tmp_path):
    target = tmp_path / "etc"
    target.mkdir(mode=0o700)
    (target / "passwd").write_text("x")
    (tmp_path / "vgpulock").symlink_to(target)
    for fresh in (False, True):
        with pytest.raises(BadInput, match=r"cannot make the directory .*vgpulock"):
            make_directory(MakeDirectory(str(tmp_path / "vgpulock"), fresh=fresh))
    assert (target / "passwd").exists()
    assert target.stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_way_is_one_line(tmp_path):
    (tmp_path / "hook").write_text("x")
    with pytest.raises(BadInput, match=r"cannot make the directory .*hook: File exists"):
        make_directory(MakeDirectory(str(tmp_path / "hook")))
    with pytest.raises(BadInput, match=r"cannot write .*hook/libvgpu\.so: "):
        install_files(install(str(tmp_path / "hook"), b"lib", {}))


def test_only_changed_files_are_written_and_no_scrap_is_left(tmp_path):
    install_files(install(str(tmp_path), b"one", digests(tmp_path)))
    assert install(str(tmp_path), b"one", digests(tmp_path)) == []
    assert [file.path for file in install(str(tmp_path), b"two", digests(tmp_path))] == [f"{tmp_path}/libvgpu.so"]
    (tmp_path / "ld.so.preload").write_text("/somebody/elses.so")
    changed = install(str(tmp_path), b"one", digests(tmp_path))
    install_files(changed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ld.so.preload", "libvgpu.so"]
    assert (tmp_path / "ld.so.preload").read_text() == "/usr/local/vgpu/libvgpu.so"
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"libvgpu.so": 0o755, "ld.so.preload": 0o644}
