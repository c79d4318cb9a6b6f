"""A monitor's reading of a region, in one sweep over all slots, says what the careful one says."""

from __future__ import annotations

import random

import pytest
from kit.region_files import GPU, Proc, region_bytes, write

from pumice.adapters.region import read_region
from pumice.adapters.region.reader import header_of
from pumice.adapters.region.reports import NAMED, ReportReader
from pumice.adapters.region.writer import write_host_pid
from pumice.ports.region import BadRegion

CARDS = [GPU.format(i) for i in range(3)]


def some_processes(rng: random.Random, most: int) -> tuple[Proc, ...]:
    return tuple(
        Proc(rng.randrange(1, 99), {d: tuple(rng.randrange(1 << 40) for _ in range(4)) for d in range(3)},
             {0: rng.randrange(100)}, status=rng.choice((0, 1, 2)), sequence=rng.choice((0, 2, 3)))  # type: ignore[misc]
        for _ in range(rng.randrange(most))
    )  # fmt: skip


@pytest.mark.parametrize("version", ["0", "1.1", "1.2"])
def test_it_says_what_the_reading_slot_by_slot_says(tmp_path, version):
    rng, reader = random.Random(7), ReportReader()
    for most in (2, 20, 200):
        path = write(tmp_path / "x.cache", region_bytes(version, 3, some_processes(rng, most), last=rng.randrange(1 << 31)))
        slow, fast = read_region(path), reader.read(path, CARDS[1:])
        assert fast.cards.keys() == set(CARDS[1:])
        for device in slow.devices[1:]:
            reported = fast.cards[device.uuid]
            assert (reported.limit, reported.sm_limit, reported.use) == (device.limit, device.sm_limit, slow.used(device.index))
        assert fast.processes == tuple((p.slot, p.pid, p.host_pid) for p in slow.processes)[:NAMED]
        reported = fast.version, fast.recent_kernel, fast.utilization_switch, fast.last_kernel
        assert reported == (slow.version, slow.recent_kernel, slow.utilization_switch, slow.last_kernel)


def test_a_card_that_is_named_twice_counts_once(tmp_path):
    same = {i: CARDS[0].encode() for i in range(16)}
    procs = (Proc(1, dict.fromkeys(range(16), (0, 0, 5, 5))),)
    path = write(tmp_path / "x.cache", region_bytes(devices=16, procs=procs, uuids=same))
    assert ReportReader().read(path, CARDS).cards[CARDS[0]].use.total == 5


def test_nothing_of_the_file_before_is_left_in_the_next_one(tmp_path):
    reader = ReportReader()
    full = write(tmp_path / "full", region_bytes(procs=tuple(Proc(i + 1, {0: (1, 1, 1, 1)}) for i in range(90))))
    empty = write(tmp_path / "empty", region_bytes(procs=(Proc(1, {0: (0, 0, 2, 2)}),)))
    assert reader.read(full, CARDS).cards[CARDS[0]].use.total == 90
    assert reader.read(empty, CARDS).cards[CARDS[0]].use.total == 2


def test_a_file_that_is_cut_among_its_slots_says_so(tmp_path):
    data = region_bytes("1.2", procs=tuple(Proc(i + 1) for i in range(9)))
    path = write(tmp_path / "x", data)
    reader = ReportReader()
    reader.read(path, CARDS)
    path.write_bytes(data[:5000])
    with pytest.raises(BadRegion):
        reader.read(path, CARDS)


@pytest.mark.parametrize("version", ["0", "1.2"])
def test_a_process_gets_the_hosts_number_once_and_nothing_else_changes(tmp_path, version):
    path = write(tmp_path / "x", region_bytes(version, procs=(Proc(7), Proc(8))))
    before = header_of(path)
    write_host_pid(path, 1, 8, 900)
    write_host_pid(path, 1, 8, 901)  # it has one
    write_host_pid(path, 0, 8, 902)  # somebody else by now
    assert [p.host_pid for p in read_region(path).processes] == [0, 900]
    assert header_of(path) == before
