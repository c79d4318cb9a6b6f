"""Files that the last release left on a disk are read by this one, and written again they are the same.

Daemons and programs of one version run on over an upgrade of the other: a node's plugin finds the journal of its slices, a
`pumice ps` the bookings and regions of programs that still run, a library of before the page of its limits. The samples in
``last_release`` were written by that release and are never written anew; a form that comes later gets a sample beside them.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from pumice.adapters.bookings.book import BOOK, booked, opened
from pumice.adapters.journal import FileJournal
from pumice.adapters.region import read_region
from pumice.adapters.region.extension import read_extension
from pumice.adapters.region.writer import set_limits
from pumice.cli.cluster_snapshot import decisions_of, load, save
from pumice.ports.slices import Entry, Phase, Place
from pumice.wire import limits_page, names
from pumice.wire.limits_page import GrantedCard, LimitsPage

SAMPLES = Path(__file__).parent / "last_release"
CARD = "GPU-826013cb-7e2a-5af7-a08f-185bcc72b9b5"


def test_a_dump_is_decided_as_it_was_and_written_as_it_was() -> None:
    case = load(SAMPLES / "dump.json")
    assert decisions_of(case) == case.decisions
    assert save(case) == (SAMPLES / "dump.json").read_text("utf-8")


@pytest.mark.parametrize("file", ["bookings.json", "bookings_of_version_1.json"])
def test_the_bookings_of_programs_that_run_are_known(tmp_path: Path, file: str) -> None:
    shutil.copy(SAMPLES / file, tmp_path / BOOK)
    (one,) = booked(tmp_path)
    assert (one.id, one.pid, one.start, one.user, one.priority) == ("r1", 15304, 112973, 0, 1)
    assert one.command == ["pumice", "burn", "--memory", "1000", "--seconds", "12"]
    assert one.region == "/tmp/m/run/regions/r1_15304-112973/vgpu.cache"
    assert [(card.index, card.model, card.total, device.uuid, device.memory, device.cores) for card, device in one.allocated] == [
        (0, "NVIDIA A100-SXM4-40GB", 40960, CARD, 3000, 30)
    ]
    assert one.annotations[names.BIND_PHASE] == "allocating"
    assert one.limits == {0: (3000 << 20, 30)}


def test_bookings_are_written_as_they_were(tmp_path: Path) -> None:
    text = (SAMPLES / "bookings.json").read_text("utf-8")
    (tmp_path / BOOK).write_text(text, "utf-8")
    kept = booked(tmp_path)
    (tmp_path / BOOK).write_text('{"version": 2, "next": 2, "bookings": []}', "utf-8")
    with opened(tmp_path) as book:
        for one in kept:
            book.add(one)
        book.save()
    assert json.loads((tmp_path / BOOK).read_text("utf-8")) == json.loads(text)


def test_the_journal_of_a_node_that_cuts_cards(tmp_path: Path) -> None:
    entries = (
        Entry(Place("GPU-a", "2g.10gb", 4), "uid-1", Phase.MADE, "MIG-1"),
        Entry(Place("GPU-a", "1g.5gb", 6), "uid-2", Phase.MAKING, was="MIG-2"),
        Entry(Place("GPU-b", "1g.5gb", 0), "uid-3", Phase.REMOVING, "MIG-3"),
    )
    assert FileJournal(SAMPLES / "mig.json").read() == entries
    FileJournal(tmp_path / "mig.json").write(entries)
    assert (tmp_path / "mig.json").read_bytes() == (SAMPLES / "mig.json").read_bytes()


def test_the_limits_page_of_a_container_that_runs() -> None:
    content = (SAMPLES / "limits").read_bytes()
    page = LimitsPage((GrantedCard("GPU-1", 3000 << 20, 50), GrantedCard("MIG-2")), "/tmp/vgpu/x.cache", True, False, True, 0, 5)
    assert limits_page.parse(content) == page
    assert limits_page.render(page).rstrip(b"\0") == content.rstrip(b"\0")  # what came later stands behind it, as zeros


def test_the_region_of_a_program_that_runs(tmp_path: Path) -> None:
    """As libvgpu.so left it: 1000 MiB allocated of 3000, some seconds under a limit of 30 %."""
    path = tmp_path / "vgpu.cache"
    path.write_bytes(gzip.decompress((SAMPLES / "region.cache.gz").read_bytes()))
    region = read_region(path)
    assert (region.version, region.priority, region.recent_kernel, region.utilization_switch) == ("1.2", 1, 2, 1)
    assert [(card.index, card.uuid, card.limit, card.sm_limit) for card in region.devices] == [(0, CARD, 3000 << 20, 30)]
    assert [(one.slot, one.pid) for one in region.processes] == [(0, 15304)]
    assert region.used(0).data == 1000 << 20
    extension = read_extension(path)
    assert extension is not None
    set_limits(path, {0: (4000 << 20, 50)})
    assert [(card.limit, card.sm_limit) for card in read_region(path).devices] == [(4000 << 20, 50)]
    assert os.stat(path).st_size == 2736128
