"""Reading a container's region, whoever wrote it and whatever is in it (HAMi volcano-vgpu-device-plugin cmd/vgpu-monitor,
HAMi-core src/multiprocess/multiprocess_memory_limit.h)."""

from __future__ import annotations

import os

import pytest
from kit.region_files import GPU, Proc, region_bytes, write

from pumice.adapters.region import ContainerFolders, read_region
from pumice.ports.region import BadRegion, DeviceUse

MIB = 1 << 20


@pytest.mark.parametrize("version", ["0", "1.1", "1.2"])
def test_every_layout_tells_the_same(tmp_path, version):
    procs = (
        Proc(7, {0: (10, 0, 90, 100), 1: (1, 2, 3, 6)}, {0: 40}),
        Proc(8, {0: (10, 0, 40, 50)}, {0: 20}),
    )
    seen = read_region(write(tmp_path / "x.cache", region_bytes(version, procs=procs)))
    assert seen.version == version
    assert [(d.index, d.uuid, d.limit, d.sm_limit) for d in seen.devices] == [
        (i, GPU.format(i), 3000 * MIB, 50) for i in (0, 1)
    ]
    assert [(p.pid, p.status) for p in seen.processes] == [(7, 1), (8, 1)]
    assert seen.used(0) == DeviceUse(context=20, data=130, total=150, sm=60)
    assert seen.used(1) == DeviceUse(context=1, module=2, data=3, total=6)
    assert (seen.priority, seen.recent_kernel, seen.utilization_switch) == (1, 2, 1)


def test_the_time_of_the_last_kernel_exists_from_layout_1_on(tmp_path):
    assert read_region(write(tmp_path / "a", region_bytes("1.2", last=1760000000))).last_kernel == 1760000000
    assert read_region(write(tmp_path / "b", region_bytes("0"))).last_kernel == 0


def test_a_file_with_our_extension_behind_is_read_like_any_other(tmp_path):
    data = region_bytes("1.2", procs=(Proc(1, {0: (0, 0, 5, 5)}),)) + bytes(2342912 - 2008953)
    assert read_region(write(tmp_path / "x", data)).used(0).total == 5


def test_free_slots_and_slots_past_the_mark_do_not_count(tmp_path):
    procs = (Proc(1, {0: (0, 0, 5, 5)}, status=0), Proc(2, {0: (0, 0, 7, 7)}), Proc(3, {0: (0, 0, 9, 9)}))
    seen = read_region(write(tmp_path / "x", region_bytes(procs=procs, proc_num=2)))
    assert [p.pid for p in seen.processes] == [2]
    assert seen.used(0).total == 7


def test_hostile_counts_and_uuids_are_cut_to_what_can_be(tmp_path):
    data = region_bytes(devices=16, device_num=2**63, proc_num=2**31 - 1, priority=-7, uuids={3: b"GPU-\xff\xfe"})
    seen = read_region(write(tmp_path / "x", data))
    assert [d.index for d in seen.devices] == [i for i in range(10) if i != 3]  # GPU-...010 has one digit too many
    assert seen.processes == ()
    assert seen.priority == 0


def test_a_slot_whose_writer_died_in_the_middle_is_read_all_the_same(tmp_path):
    procs = (Proc(1, {0: (0, 0, 5, 5)}, sequence=7),)
    assert read_region(write(tmp_path / "x", region_bytes("1.2", procs=procs))).used(0).total == 5


@pytest.mark.parametrize(
    ("data", "reason", "early"),
    [
        (b"", "0 bytes are too few", True),
        (bytes(2008953), "no region yet", True),
        (region_bytes()[:2000], "2000 bytes with version 1.2 are no known layout", False),
        (region_bytes("1.1") + bytes(32), "2008985 bytes with version 1.1 are no known layout", False),
    ],
)
def test_what_is_no_region_says_why(tmp_path, data, reason, early):
    with pytest.raises(BadRegion, match=reason) as caught:
        read_region(write(tmp_path / "x", data))
    assert caught.value.early is early


def test_a_link_or_a_pipe_is_not_followed(tmp_path):
    real = write(tmp_path / "real", region_bytes())
    (tmp_path / "link").symlink_to(real)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(BadRegion):
            read_region(tmp_path / name)


def test_folders_of_containers_are_found_read_and_swept(tmp_path):
    write(tmp_path / "u1_train" / "abc.cache", region_bytes(procs=(Proc(1, {0: (0, 0, 5, 5)}),)))
    (tmp_path / "u2_idle").mkdir()
    (tmp_path / "nonsense").mkdir()
    (tmp_path / "u3_link").symlink_to(tmp_path / "u1_train")
    folders = ContainerFolders(tmp_path)
    found = folders.containers()
    assert sorted(found) == [("u1", "train"), ("u2", "idle")]
    assert folders.region(found["u1", "train"]) == tmp_path / "u1_train" / "abc.cache"
    assert folders.region(found["u2", "idle"]) is None
    now = (tmp_path / "u2_idle").stat().st_mtime
    assert folders.sweep({"u1"}, now + 299) == []
    assert folders.sweep({"u1"}, now + 300) == [tmp_path / "u2_idle"]
    assert sorted(folders.containers()) == [("u1", "train")]
    assert ContainerFolders(tmp_path / "missing").containers() == {}
