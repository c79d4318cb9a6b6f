"""The booking file: whole after any crash, dead entries gone, damage told in one sentence."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from pumice.adapters.bookings import book as bookings_module
from pumice.adapters.bookings.book import BookedCard, Booking, holders, lasts, living, opened
from pumice.adapters.bookings.foreign import ForeignPrograms
from pumice.adapters.bookings.processes import boot, heirs, is_held, lives, mark, start_time
from pumice.local.allocator import Allocator, Refused
from pumice.local.place import of_cards
from pumice.local.plugin import serving
from pumice.local.request import Request
from pumice.model.errors import BadInput, Unavailable
from pumice.ports.cards import CardFacts

MIB = 1 << 20
UUID = "GPU-0a0a0a0a-0000-4000-8000-00000000000{}"
CARDS = tuple(CardFacts(index, UUID.format(index), "Tesla T4", 15360 * MIB, minor=index) for index in range(2))


def booking(number: str = "r1", pid: int = 0, start: int = 0, request: Request | None = None, region: str = "") -> Booking:
    allocator = Allocator(CARDS, ())
    allocation = allocator.place(request or Request(memory=3000, cores=50), number)
    pid = pid or os.getpid()
    return Booking(
        id=number, pid=pid, start=start or start_time(pid), user=0, command=["train"],
        cards=[BookedCard(fact.index, fact.name, fact.memory // MIB) for fact in allocator.facts(allocation)],
        region=region or f"/nowhere/{number}/vgpu.cache", annotations=allocator.annotations(allocation, 10**18), created=0.0,
    )  # fmt: skip


def put(directory: Path, *made: Booking) -> None:
    with opened(directory) as there:
        for one in made:
            there.add(one)
        there.save()


def test_what_was_saved_is_there_for_the_next(tmp_path: Path) -> None:
    put(tmp_path, booking())
    (found,) = living(tmp_path)
    assert (found.devices[0].memory, found.devices[0].cores, found.devices[0].uuid) == (3000, 50, CARDS[0].uuid)


def test_ids_are_never_given_twice(tmp_path: Path) -> None:
    given = []
    for _ in range(3):
        with opened(tmp_path) as there:
            given.append(there.new_id())
            there.save()
    assert given == ["r1", "r2", "r3"]


def test_a_later_process_of_the_same_number_keeps_no_booking_alive(tmp_path: Path) -> None:
    put(tmp_path, booking(start=start_time(os.getpid()) - 1))
    assert living(tmp_path) == []
    with opened(tmp_path) as there:
        assert there.all == []
    assert b'"bookings": []' in (tmp_path / "bookings.json").read_bytes()


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    begun = start_time(child.pid)
    assert lives(child.pid, begun)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not reaped
    assert not lives(child.pid, begun)
    child.communicate()


def test_a_process_that_would_open_the_region_keeps_the_booking(tmp_path: Path) -> None:
    region = str(tmp_path / "regions" / "r1_1-1" / "vgpu.cache")
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, env={"CUDA_DEVICE_MEMORY_SHARED_CACHE": region})  # fmt: skip
    assert child.stdout is not None
    child.stdout.readline()
    try:
        assert heirs(region, 0) == (child.pid,)
        put(tmp_path, booking(start=1, region=region))
        assert [one.id for one in living(tmp_path)] == ["r1"]
    finally:
        child.communicate(b"\n")
    assert living(tmp_path) == []


FORGETFUL = """
import os, subprocess, sys
from pumice.adapters.bookings.processes import put_mark, start_time
put_mark(os.getpid(), start_time(os.getpid()))
left = subprocess.Popen(["sleep", "60"], env={}, start_new_session=True, close_fds=True, stdout=subprocess.DEVNULL)
print(start_time(os.getpid()), left.pid, flush=True)
"""


def test_what_closed_its_files_left_its_session_and_lost_its_environment_keeps_the_booking(tmp_path: Path) -> None:
    leader = subprocess.Popen([sys.executable, "-c", FORGETFUL], stdout=subprocess.PIPE, text=True)
    reported, _ = leader.communicate()
    begun, left = map(int, reported.split())
    share = booking(pid=leader.pid, start=begun)
    try:
        assert not lives(leader.pid, begun)
        assert holders(share) == (left,)
        put(tmp_path, share, booking("r2", pid=leader.pid, start=begun - 1))  # of another program of the same number
        assert [one.id for one in living(tmp_path)] == ["r1"]
    finally:
        os.kill(left, 9)
    deadline = time.monotonic() + 60
    while lasts(share) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not lasts(share)


def test_a_mark_limits_nothing_and_is_no_other_programs() -> None:
    hour = 3600 * 10**6
    marks = {mark(pid, start) for pid in (1, 2, (1 << 22) - 1) for start in (1, 2, 100 * 10**9)}
    assert len(marks) == 9
    assert all(10**6 * hour < one < 1 << 63 for one in marks)


def test_a_book_that_outlasts_the_machines_boot_holds_nobody(tmp_path: Path) -> None:
    """A program of the new boot may have both the number and the start time of one of the old."""
    before = msgspec.structs.replace(booking(), boot="0f0f0f0f-0000-4000-8000-000000000000")
    now = msgspec.structs.replace(booking("r2"), boot=boot())
    put(tmp_path, before, now)
    assert [one.id for one in living(tmp_path)] == ["r2"]
    with opened(tmp_path) as there:
        assert [one.id for one in there.all] == ["r2"]


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, booking())
    before = (tmp_path / "bookings.json").read_bytes()

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bookings_module.os, "rename", fail)
    with opened(tmp_path) as there:
        there.remove("r1")
        with pytest.raises(Unavailable, match="No space left"):
            there.save()
    assert (tmp_path / "bookings.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "bookings.json"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"version": 4}', b'{"bookings": [{"id": "r1"}]}', b'{"bookings": 7}', b"\xff\xfe"],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bookings.json").write_bytes(content)
    with pytest.raises(BadInput) as reported:
        living(tmp_path)
    assert str(tmp_path / "bookings.json") in str(reported.value)
    assert "\n" not in str(reported.value)


def test_a_booking_without_a_card_is_damage(tmp_path: Path) -> None:
    put(tmp_path, booking())
    path = tmp_path / "bookings.json"
    path.write_bytes(path.read_bytes().replace(b"volcano.sh/vgpu-ids-new", b"elsewhere"))
    with pytest.raises(BadInput, match="damaged"):
        living(tmp_path)


def test_a_lock_that_is_never_given_back_ends_in_a_sentence(tmp_path: Path) -> None:
    holder = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    clock = iter(range(1000))
    with pytest.raises(Unavailable, match="held by another pumice"), opened(tmp_path, lambda: next(clock), lambda _: None):
        pass
    os.close(holder)


def test_only_regions_in_our_own_folder_are_ever_removed(tmp_path: Path) -> None:
    place, elsewhere = tmp_path / "run", tmp_path / "precious"
    ours = place / "regions" / "r7_1-1"
    for folder in (ours, elsewhere):
        folder.mkdir(parents=True)
        (folder / "vgpu.cache").write_bytes(b"")
    put(place, booking(start=1, region=str(elsewhere / "vgpu.cache")))  # dead, and its path is a lie
    with opened(place) as there:
        assert there.all == []
    assert (elsewhere / "vgpu.cache").exists()
    assert not ours.exists()


@pytest.mark.parametrize("folder", ["regions", "limits"])
def test_nothing_is_removed_through_a_link_that_somebody_put_in_place_of_our_folder(tmp_path: Path, folder: str) -> None:
    place, theirs = tmp_path / "place", tmp_path / "home"
    (theirs / "papers").mkdir(parents=True)
    place.mkdir()
    (place / folder).symlink_to(theirs)
    with opened(place) as bookings:
        bookings.sweep()
    assert (theirs / "papers").exists()


def test_a_command_cannot_give_orders_to_the_terminal_of_who_lists_it() -> None:
    loud = msgspec.structs.replace(booking(), command=["train\x1b]0;owned\x07", "a\nb"])
    assert loud.line == "train?]0;owned? a?b"


def test_looking_makes_nothing(tmp_path: Path) -> None:
    place = of_cards({"XDG_RUNTIME_DIR": str(tmp_path)}, shared=[tmp_path / "shared"])
    assert living(place.directory) == []
    assert list(tmp_path.iterdir()) == []


# ---- who may join


def test_the_desk_decides_as_the_scheduler_does() -> None:
    allocator = Allocator(CARDS, [booking("r1", request=Request(memory=10000, cores=70))])
    assert allocator.place(Request(memory=5360, cores=30), "r2").container_devices[0].uuid == CARDS[0].uuid
    with pytest.raises(Refused) as reported:
        allocator.place(Request(memory=5361, cores=30), "r2")
    assert str(reported.value).splitlines() == [
        "card 0 has no room for 5361 MiB and 30 % of the cores",
        "  card 0 (Tesla T4, 15360 MiB): 5360 MiB and 30 % of the cores are free",
        f"    r1  pid {os.getpid()}  10000 MiB  70 %  train",
        "  card 1 has room for it: --gpu 1, or --gpu auto",
    ]


def test_what_would_fit_does_fit() -> None:
    allocator = Allocator(CARDS[:1], [booking("r1", request=Request(memory=10000, cores=70))])
    with pytest.raises(Refused, match=r"what would fit on card 0: --memory 5360 --cores 30$"):
        allocator.place(Request(percent=50, cores=50), "r2")
    assert allocator.place(Request(memory=5360, cores=30), "r2")


def test_a_share_makes_room_for_itself_when_it_changes() -> None:
    allocator = Allocator(CARDS, [booking("r1", request=Request(memory=10000, cores=70))])
    assert allocator.place(Request(memory=15360, cores=100, cards=(CARDS[0].uuid,)), "r1", without="r1")


def test_to_hold_less_needs_nobodys_leave() -> None:
    first, second = booking("r1", request=Request(memory=5000)), booking("r2", request=Request(memory=5000, cores=100 - 1))
    allocator = Allocator(CARDS[:1], [first, second, booking("r3", request=Request(memory=100, cores=1))])
    card = (first.devices[0].uuid,)
    with pytest.raises(Refused):
        allocator.place(Request(memory=4000, cards=card), "r1", without="r1")  # a newcomer without a core limit may not join now
    assert allocator.resize(Request(memory=4000, cards=card), first).container_devices[0].memory == 4000
    assert allocator.resize(Request(percent=10, cores=30, cards=card), first).container_devices[0].cores == 30
    with pytest.raises(Refused):
        allocator.resize(Request(memory=5001, cards=card), first)


def test_a_card_in_mig_mode_takes_nobody() -> None:
    allocator = Allocator([replace(CARDS[0], mig=True), CARDS[1]], ())
    with pytest.raises(Refused, match="in MIG mode"):
        allocator.place(Request(memory=100), "r1")
    assert allocator.place(Request(memory=100, cards=()), "r1").container_devices[0].uuid == CARDS[1].uuid


def test_auto_prefers_the_emptier_card() -> None:
    allocator = Allocator(CARDS, [booking("r1")])
    assert allocator.place(Request(memory=100, cards=()), "r2").container_devices[0].uuid == CARDS[1].uuid


@pytest.mark.parametrize("card", ["2", "GPU-ffff", "GPU-0a0a"])
def test_a_card_that_is_not_there_or_not_clear_is_named(card: str) -> None:
    with pytest.raises(BadInput, match=f"--gpu {card}: "):
        Allocator(CARDS, ()).place(Request(memory=100, cards=(card,)), "r1")


# ---- where it all lies


def test_without_a_shared_directory_the_user_has_one_alone_and_is_told(tmp_path: Path) -> None:
    place = of_cards({"XDG_RUNTIME_DIR": str(tmp_path)}, shared=[tmp_path / "no" / "pumice"], user=os.getuid())
    assert place.directory == tmp_path / "pumice"
    assert "programs of other users are not seen" in place.note
    assert not place.used
    place.prepare()
    put(place.directory, booking())
    assert place.used  # by which the sentence is said once


def test_a_directory_for_everybody_is_made_where_that_is_allowed(tmp_path: Path) -> None:
    place = of_cards({}, shared=[tmp_path / "pumice"])
    place.prepare()
    assert place.note == ""
    assert (tmp_path / "pumice").stat().st_mode & 0o777 == 0o777
    assert place.neighbours.stat().st_mode & 0o777 == 0o777


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "pumice").symlink_to("/etc")
    with pytest.raises(Unavailable, match="belongs to somebody else"):
        of_cards({"XDG_RUNTIME_DIR": str(tmp_path)}, shared=[], user=os.getuid())


def test_a_link_that_is_put_there_meanwhile_is_not_followed(tmp_path: Path) -> None:
    place = of_cards({"XDG_RUNTIME_DIR": str(tmp_path)}, shared=[], user=os.getuid())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pumice").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unavailable, match="belongs to somebody else"):
        place.prepare()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_plugin_in_a_closed_folder_is_found_by_the_kernels_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "device-plugins"
    listed = tmp_path / "unix"
    listed.write_text(
        "Num       RefCount Protocol Flags    Type St Inode Path\n"
        f"0000000000000000: 00000002 00000000 00000000 0001 03 10 {folder}/nvidia-gpu.sock\n"
        "0000000000000000: 00000002 00000000 00010000 0001 01 11\n"
        f"0000000000000000: 00000002 00000000 00010000 0001 01 12 {folder}/nvidia-vgpu-number.sock\n"
    )

    def closed(self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", closed)
    assert serving(None, folder, listed) == f"{folder}/nvidia-vgpu-number.sock"


# ---- who holds a region


HOLDER = """
import subprocess, sys
from pumice.adapters.bookings.processes import hold
hold(sys.argv[1])
print(flush=True)
if len(sys.argv) > 2:  # a child that takes the files along, and goes on when its parent has ended
    subprocess.Popen(["sleep", "60"], close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    print(flush=True)
input()
"""


def test_a_region_is_held_by_what_a_program_starts_and_becomes_until_all_have_ended(tmp_path: Path) -> None:
    region = tmp_path / "vgpu.cache"
    region.write_bytes(b"")
    assert not is_held(region)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(region), "child"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, start_new_session=True) as program:  # fmt: skip
        assert program.stdout is not None
        program.stdout.readline()
        assert is_held(region)
        program.stdout.readline()
        program.kill()
        program.wait()
        assert is_held(region)  # by the child
        os.killpg(program.pid, 9)
        deadline = time.monotonic() + 60
        while is_held(region) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not is_held(region)
    assert not is_held(tmp_path / "nowhere")


def test_a_held_region_keeps_a_booking_whose_processes_cannot_be_seen(tmp_path: Path) -> None:
    """As from another user's account, or another PID namespace."""
    region = tmp_path / "vgpu.cache"
    region.write_bytes(b"")
    unseen = booking(start=1, region=str(region))
    assert not lasts(unseen)
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(region)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        assert lasts(unseen)
        program.kill()
    assert not lasts(unseen)


@pytest.mark.parametrize("text", ['{"x":' + "[" * 100_000, '{"version": 1, "bookings": -1}', '{"version": 1, "bookings": 1e308}'])
def test_what_another_user_wrote_into_the_shared_book_is_told_and_ends_no_plugin(tmp_path: Path, text: str) -> None:
    (tmp_path / "bookings.json").write_text(text)
    with pytest.raises(BadInput, match=r"bookings\.json: damaged"):
        living(tmp_path)
    assert ForeignPrograms((tmp_path,)).look() == {}


@pytest.mark.parametrize("lies", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_nobody_waits_at_a_pipe_or_reads_a_device_in_the_place_of_the_book(tmp_path: Path, lies: Callable[[Path], None]) -> None:
    lies(tmp_path / "bookings.json")
    with pytest.raises(Unavailable, match=r"bookings\.json: "):
        living(tmp_path)
