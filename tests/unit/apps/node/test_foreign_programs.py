"""Programs of ``pumice run`` and a node plugin on one machine: whoever comes second leaves the card to the first."""

from __future__ import annotations

import fcntl
import os
import subprocess
import threading
from pathlib import Path

import grpc
import pytest
from kit.node_objects import NODE, A, B, gives, pod_object
from tests.unit.devices.nvidia_vgpu.plugin.test_vgpu_plugin import NUMBER, in_a_world

from pumice.adapters.bookings.book import BookedCard, Booking, lasts, opened
from pumice.adapters.bookings.foreign import ForeignPrograms, booking_dirs
from pumice.adapters.bookings.processes import start_time
from pumice.local.allocator import Allocator
from pumice.local.plugin import serving
from pumice.local.request import Request
from pumice.ports.cards import CardFacts
from pumice.wire import names

MIB = 1 << 20


def book(directory: Path, facts: tuple[CardFacts, ...], pid: int, *cards: str) -> None:
    """A living program's share of those cards, as `pumice run` books it."""
    directory.mkdir(exist_ok=True)
    with opened(directory) as bookings:
        allocator, number = Allocator(facts, bookings.all), bookings.new_id()
        allocation = allocator.place(Request(memory=3000, cores=40, cards=cards, count=len(cards)), number)
        allocated = [BookedCard(card.index, card.name, card.memory // MIB) for card in allocator.facts(allocation)]
        bookings.add(Booking(id=number, pid=pid, start=start_time(pid), user=0, command=["train"], cards=allocated,
                             region=str(directory / "regions" / number / "vgpu.cache"),
                             annotations=allocator.annotations(allocation, 10**18), created=0.0))  # fmt: skip
        bookings.save()


@in_a_world
async def test_a_plugin_that_starts_later_leaves_a_card_that_a_program_holds_until_it_ends(world):
    program = subprocess.Popen(["sleep", "60"])
    book(world.root / "run", world.cards.facts(), program.pid, A)
    try:
        async with world.plugin(booking_dirs=(world.root / "run",)):
            devices = await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
            assert {id.rsplit("-", 1)[0] for id, healthy in devices.items() if healthy} == {B}
            register = world.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER]
            assert f"{A},10,32768,NVIDIA-Tesla V100-SXM2-32GB,false," in register
            assert world.cluster.found("nodes", NODE)["status"]["capacity"][names.VGPU_MEMORY] == "32768"
            world.cluster.put(pod_object("p", gives(A)))
            why = rf"held by `pumice run`: r1 \(pid {program.pid}, 3000 MiB, 40 % of the cores\)"
            with pytest.raises(grpc.aio.AioRpcError, match=why):
                await world.kubelet.allocate(NUMBER, 1, [f"{A}-0"])
            program.kill()
            program.wait()
            await world.kubelet.until(NUMBER, lambda d: len(d) == 20 and all(d.values()))
            await world.cluster.until(lambda: ",false," not in world.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER])
            await world.cluster.until(lambda: world.cluster.events[-1]["reason"] == "CardRecovered")
            (reported,) = [event for event in world.cluster.events if event["reason"] == "CardUnhealthy"]
            assert f"card {A}: held by `pumice run`: r1 (pid {program.pid}" in reported["message"]
    finally:
        program.kill()
        program.wait()


@in_a_world
async def test_a_program_that_booked_while_the_plugin_started_is_seen(world):
    program = subprocess.Popen(["sleep", "60"])
    try:
        async with world.plugin(booking_dirs=(world.root / "run",)):
            await world.kubelet.until(NUMBER, lambda d: len(d) == 20 and all(d.values()))
            book(world.root / "run", world.cards.facts(), program.pid, B)
            await world.kubelet.until(NUMBER, lambda d: not any(healthy for id, healthy in d.items() if id.startswith(B)))
            await world.cluster.until(lambda: any("held by `pumice run`" in event["message"] for event in world.cluster.events))
    finally:
        program.kill()
        program.wait()


@in_a_world
async def test_a_program_that_starts_later_is_sent_to_the_plugin(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        assert serving(None, kubelet=world.root / "plugins").endswith("nvidia-vgpu-number.sock")
    assert serving(None, kubelet=world.root / "plugins") == ""


FACTS = (CardFacts(0, A, "Tesla T4", 15360 * MIB, minor=0), CardFacts(1, B, "Tesla T4", 15360 * MIB, minor=1))


def test_every_card_of_a_program_is_held(tmp_path: Path) -> None:
    book(tmp_path, FACTS, os.getpid(), A, B)
    assert set(ForeignPrograms([tmp_path, tmp_path / "nowhere"]).look()) == {A, B}


def test_a_damaged_book_leaves_the_last_good_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    programs = ForeignPrograms([tmp_path])
    book(tmp_path, FACTS, os.getpid(), A)
    good = programs.look()
    (tmp_path / "bookings.json").write_bytes(b"{")
    assert programs.look() == programs.look() == good
    assert len(caplog.records) == 1


def test_a_program_that_ended_is_not_asked_for_again(tmp_path: Path) -> None:
    program = subprocess.Popen(["sleep", "60"])
    book(tmp_path, FACTS, program.pid, A)
    requested: list[str] = []
    programs = ForeignPrograms([tmp_path], lambda booking: (requested.append(booking.id), lasts(booking))[1])
    assert set(programs.look()) == {A}
    program.kill()
    program.wait()
    assert programs.look() == {}
    assert len(requested) == 2
    assert programs.look() == {}
    assert len(requested) == 2


def test_a_settled_look_waits_for_whoever_is_booking(tmp_path: Path) -> None:
    """The plugin's socket answers, the program looked before it did: it has the lock still and saves now."""
    tmp_path.mkdir(exist_ok=True)
    lock = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX)
    found: dict[str, str] = {}
    looking = threading.Thread(target=lambda: found.update(ForeignPrograms([tmp_path]).look(wait=True)))
    looking.start()
    book(tmp_path / "aside", FACTS, os.getpid(), A)
    os.rename(tmp_path / "aside" / "bookings.json", tmp_path / "bookings.json")
    os.close(lock)
    looking.join(20)
    assert set(found) == {A}


def test_the_books_are_looked_for_where_programs_put_them() -> None:
    assert booking_dirs({"PUMICE_MACHINE": "/m", "PUMICE_RUN_DIR": "/r"}) == (Path("/m/run"),)
    assert booking_dirs({"PUMICE_RUN_DIR": "/r"}) == (Path("/r"),)
    assert booking_dirs({})[0] == Path("/run/pumice")
