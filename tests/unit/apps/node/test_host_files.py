"""Directories and the library on the host: modes as promised, nothing followed that somebody planted."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys

import grpc
import pytest
from kit.node_objects import A, B, gives, pod_object
from kit.plugin_world import in_a_world

from pumice.apps.node.files import digests, install_files, make_directory
from pumice.devices.nvidia_vgpu.node.answer import NAMES, install
from pumice.effects.vocabulary import MakeDirectory
from pumice.model.errors import BadInput
from pumice.wire import names


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
    install_files(install(str(tmp_path), b"one", digests(tmp_path, NAMES)))
    assert install(str(tmp_path), b"one", digests(tmp_path, NAMES)) == []
    assert [file.path for file in install(str(tmp_path), b"two", digests(tmp_path, NAMES))] == [f"{tmp_path}/libvgpu.so"]
    (tmp_path / "ld.so.preload").write_text("/somebody/elses.so")
    changed = install(str(tmp_path), b"one", digests(tmp_path, NAMES))
    install_files(changed)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ld.so.preload", "libvgpu.so"]
    assert (tmp_path / "ld.so.preload").read_text() == "/usr/local/vgpu/libvgpu.so"
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"libvgpu.so": 0o755, "ld.so.preload": 0o644}


FULL = """
import resource, sys
from pathlib import Path
from pumice.apps.node.files import digests, install_files
from pumice.model.errors import BadInput
from pumice.devices.nvidia_vgpu.node.answer import NAMES, install
from pumice.wire import names
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    install_files(install(sys.argv[1], b"new" * 4096, digests(Path(sys.argv[1]), NAMES)))
except BadInput as error:
    print(error)
"""


def test_a_disk_that_is_full_leaves_the_old_library_and_no_scrap(tmp_path):
    install_files(install(str(tmp_path), b"old", {}))
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"cannot write {tmp_path}/libvgpu.so: File too large\n", done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ld.so.preload", "libvgpu.so"]
    assert (tmp_path / "libvgpu.so").read_bytes() == b"old"


def test_a_process_that_has_the_old_library_mapped_keeps_it(tmp_path):
    install_files(install(str(tmp_path), b"old" * 4096, {}))
    with (tmp_path / "libvgpu.so").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        install_files(install(str(tmp_path), b"new", digests(tmp_path, NAMES)))
        assert mapped[:] == b"old" * 4096
    assert (tmp_path / "libvgpu.so").read_bytes() == b"new"


@in_a_world
async def test_what_lies_in_the_way_of_one_pods_folder_costs_no_other_pod_its_cards(world):
    folder = world.root / "hook/vgpu/containers/u1_train"
    folder.parent.mkdir(parents=True)
    folder.write_text("somebody's")
    world.cluster.put(pod_object("p", gives(B), uid="u1"), pod_object("q", gives(A), uid="u2"))
    async with world.plugin():
        with pytest.raises(grpc.aio.AioRpcError, match=r"pod ns1/p: cannot make the directory .*u1_train: File exists"):
            await world.kubelet.allocate(names.VGPU_NUMBER, 1)
        assert (await world.kubelet.allocate(names.VGPU_NUMBER, 1)).envs["NVIDIA_VISIBLE_DEVICES"] == A
