"""A tenant's writes into the region give nobody a byte beyond the limits page, and stop no program.

The witness is the emulated card: what it gave at its highest, which no book knows of.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import random
import struct
import time
from pathlib import Path

import pytest
from kit.seeds import chosen_seed
from kit.vgpu_kit import MIB, MIXES, PROGRAMS, Mix, build, on_a_switch, python, read_region
from kit.vgpu_talk import Tenant
from kit.walled import Walled, page_of

from pumice.wire.limits_page import GrantedCard
from pumice_lab import machine
from tests.native.region_writes import damage

LIMIT = 8000 * MIB
BLOCK = 64 * MIB
PATHS = (
    "linear managed pitched array mipmapped physical multicast stream-ordered own_pool graph heap context green exported "
    "described passed_on"
)
MANY, FEW = 1_000_000, 10_000


@pytest.fixture
def walled(tmp_path: Path) -> Walled:
    build()
    model = on_a_switch("H100-SXM5-80GB")
    machine.create(model, tmp_path / "m")
    return Walled(
        tmp_path / "m", tmp_path, {"LIBCUDA_LOG_LEVEL": "0"}, page=page_of(GrantedCard(model.cards[0].uuid, LIMIT))
    )


def peak(container: Walled) -> int:
    return machine.open_machine(container.machine).peak(0)


def blocks_of_another(container: Walled, what: str = "nothing") -> int:
    """How many a program gets that does this first and then takes all there is."""
    _, count = json.loads(container.run(*python("attempt.py", what)).out)
    return int(count)


def not_the_librarys(err: str) -> str:
    """It says that it made the region anew."""
    return "".join(line for line in err.splitlines(keepends=True) if not line.startswith("libvgpu["))


DAMAGES = (
    "zero the extension's head", "zero the region's head", "zero every process", "zero the joints", "zero the region's limits",
    "say that no process was ever there", "rename the region's cards", "fill the region with processes",
)  # fmt: skip


@pytest.mark.parametrize("damages", [*itertools.permutations(DAMAGES[:3]), DAMAGES, DAMAGES[::-1]], ids=", ".join)
def test_what_a_program_holds_is_nobody_elses_whatever_is_zeroed_meanwhile(
    walled: Walled, damages: tuple[str, ...]
) -> None:
    """Eight zeroed bytes gave a second share: the file was taken for one of another library."""
    tenant = walled.start(*python("attempt.py", "nothing"))
    assert tenant.stdout is not None
    assert json.loads(tenant.stdout.readline())[1] > 0
    for what in damages:
        assert blocks_of_another(walled, what) == 0
        assert peak(walled) <= LIMIT
    tenant.communicate("\n", timeout=60)
    assert blocks_of_another(walled) > 0
    assert peak(walled) <= LIMIT


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_random_and_aimed_writes_while_programs_allocate_give_never_a_byte_more(walled: Walled, count: int) -> None:
    seed = chosen_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    mill = walled.start(PROGRAMS / "mill", "12", str(3 * count), str(300 * MIB), *PATHS.split())
    for _ in range(count // 20):
        damage(walled.region, rng, 20)
        time.sleep(0.002)
    out, err = mill.communicate(timeout=600)
    assert (mill.returncode, not_the_librarys(err)) == (0, ""), err
    assert sum(granted for granted, _ in json.loads(out).values()) > count / 10
    assert peak(walled) <= LIMIT
    assert blocks_of_another(walled) * BLOCK > LIMIT - 600 * MIB  # all is there again but a context


def test_a_program_goes_on_and_is_told_what_it_holds_once_nobody_damages_the_region_any_more(walled: Walled) -> None:
    tenant = Tenant(walled)
    assert tenant.ask(f"alloc {1000 * MIB}") == 0
    before = read_region(walled.region)
    damage(walled.region, random.Random(chosen_seed()), 20_000)
    begun = time.monotonic()
    while time.monotonic() - begun < 30:
        slots = [slot for slot in read_region(walled.region).slots if slot.pid == tenant.pid]
        if slots and slots[0].used[0][4] == 1000 * MIB + slots[0].used[0][0] and slots[0].used[0][0] > 0:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("its slot never said again what it holds")
    time.sleep(1.1)
    after = read_region(walled.region)
    for what in ("magic", "version", "device_num", "uuids", "limit", "sm_limit"):
        assert getattr(after, what) == getattr(before, what), what
    assert tenant.ask(f"alloc {1000 * MIB}") == 0
    assert peak(walled) <= LIMIT
    tenant.end()


def test_who_asks_while_the_region_is_damaged_has_an_answer_within_a_second(walled: Walled) -> None:
    rng = random.Random(chosen_seed())
    asking = walled.start(*python("ask_again.py", "300"))
    assert asking.stdout is not None
    asking.stdout.readline()
    while asking.poll() is None:
        damage(walled.region, rng, 50)
        time.sleep(0.001)
    longest, answers = json.loads(asking.stdout.read())
    assert answers == 300
    assert longest < 1


def test_locks_that_a_tenant_adds_make_his_share_smaller_and_no_longer_than_they_last(walled: Walled) -> None:
    first, bytes_, set_lock = 1 << 60, 4000 * MIB, 37  # F_OFD_SETLK
    everything = blocks_of_another(walled)
    with walled.region.open("r+b") as file:
        lane = first + 900 * (1 << 44)  # of a slot that nobody has
        fcntl.fcntl(file, set_lock, struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, lane, bytes_, 0))
        assert blocks_of_another(walled) == everything - bytes_ // BLOCK
    assert blocks_of_another(walled) == everything


@pytest.mark.parametrize("mix", MIXES, ids=lambda mix: mix.paths)
def test_twelve_processes_under_a_limits_page_by_many_paths_at_once_never_exceed_it(tmp_path: Path, mix: Mix) -> None:
    build()
    model = on_a_switch("H100-SXM5-80GB")
    machine.create(model, tmp_path / "m")
    page = page_of(GrantedCard(model.cards[0].uuid, mix.limit))
    container = Walled(tmp_path / "m", tmp_path, {"LIBCUDA_LOG_LEVEL": "0"}, page=page)
    ran = container.run(PROGRAMS / "mill", "12", "10000", str(mix.largest), *mix.paths.split())
    assert (ran.code, ran.err) == (0, "")
    assert sum(refused for _, refused in ran.json().values()) > 0
    assert peak(container) <= mix.limit
