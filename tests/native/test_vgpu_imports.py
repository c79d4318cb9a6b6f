"""Memory that several processes hold: it is paid for until the last of them lets go, by one of those who still hold it."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit.vgpu_kit import MIB, Container, build, on_a_switch, read_region
from kit.vgpu_talk import Tenant

from pumice_lab import machine

LIMIT, CONTEXT, PIECE, OUT_OF_MEMORY = 4000 * MIB, 414 * MIB, 1000 * MIB, 2
Start = Callable[[], Tenant]


@pytest.fixture
def container(tmp_path: Path) -> Container:
    build()
    machine.create(machine.machine_of("2xA100-SXM4-40GB"), tmp_path / "m")
    return Container(tmp_path / "m", tmp_path, {"CUDA_DEVICE_MEMORY_LIMIT": str(LIMIT), "LIBCUDA_LOG_LEVEL": "0"})


@pytest.fixture
def start(container: Container) -> Iterator[Start]:
    with ExitStack() as stack:
        yield lambda: stack.enter_context(Tenant(container, script="sharer.py"))


class Way:
    """How memory is passed on: ``hand_over`` from one to the other, ``give_up`` by who made it, ``let_go`` by who got it."""

    make, give_up, let_go = "", "", ""

    @staticmethod
    def hand_over(maker: Tenant, taker: Tenant) -> int:
        raise NotImplementedError


class ByHandle(Way):
    make, give_up, let_go = "alloc", "free", "close"

    @staticmethod
    def hand_over(maker: Tenant, taker: Tenant) -> int:
        return int(taker.ask(f"open {maker.ask('export')}"))


class ByDescriptor(Way):
    make, give_up, let_go = "create", "release", "release"

    @staticmethod
    def hand_over(maker: Tenant, taker: Tenant) -> int:
        pid, descriptor = maker.ask("descriptor")
        return int(taker.ask(f"import {pid} {descriptor}"))


WAYS = pytest.mark.parametrize("way", [ByHandle, ByDescriptor])


def booked(container: Container) -> dict[int, int]:
    return {slot.pid: slot.used[0][4] for slot in read_region(container.region).live}


def card_used(container: Container) -> int:
    return machine.open_machine(container.machine).witness().bytes(0)


@WAYS
def test_memory_that_its_maker_let_go_is_paid_for_by_who_imported_it(
    container: Container, start: Start, way: type[Way]
) -> None:
    maker, taker = start(), start()
    assert maker.ask(f"{way.make} {PIECE}") == 0
    assert way.hand_over(maker, taker) == 0
    assert booked(container) == {maker.pid: CONTEXT + PIECE, taker.pid: CONTEXT}
    assert maker.ask(way.give_up) == 0
    assert booked(container) == {maker.pid: CONTEXT, taker.pid: CONTEXT + PIECE}
    assert card_used(container) == sum(booked(container).values())
    assert maker.ask("fill 2097152") == (LIMIT - 2 * CONTEXT - PIECE) // (2 * MIB)
    assert machine.open_machine(container.machine).peak(0) <= LIMIT
    assert taker.ask(way.let_go) == 0
    assert card_used(container) == sum(booked(container).values()) == LIMIT - PIECE


def test_a_handle_by_a_pointer_into_the_middle_stands_for_all_of_it(container: Container, start: Start) -> None:
    maker, taker = start(), start()
    assert maker.ask(f"alloc {PIECE}") == 0
    assert taker.ask(f"open {maker.ask(f'export {PIECE // 2}')}") == 0
    assert booked(container) == {maker.pid: CONTEXT + PIECE, taker.pid: CONTEXT}
    assert maker.ask("free") == 0
    assert booked(container) == {maker.pid: CONTEXT, taker.pid: CONTEXT + PIECE}


@WAYS
def test_nobody_gets_more_by_passing_on_what_he_lets_go(container: Container, start: Start, way: type[Way]) -> None:
    maker, taker = start(), start()
    for _ in range(12):
        if maker.ask(f"{way.make} {PIECE}") == OUT_OF_MEMORY:
            break
        assert way.hand_over(maker, taker) == 0
        assert maker.ask(way.give_up) == 0
    assert machine.open_machine(container.machine).peak(0) <= LIMIT
    assert card_used(container) == 2 * CONTEXT + 3 * PIECE


@WAYS
@pytest.mark.parametrize("end", ["end", "kill"])
def test_memory_of_who_died_is_paid_for_by_who_imported_it(
    container: Container, start: Start, way: type[Way], end: str
) -> None:
    maker, taker, third = start(), start(), start()
    assert maker.ask(f"{way.make} {PIECE}") == 0
    assert way.hand_over(maker, taker) == way.hand_over(maker, third) == 0
    getattr(maker, end)()
    assert card_used(container) == 2 * CONTEXT + PIECE
    third.ask("info")  # who asks what is free sweeps
    assert booked(container) == {taker.pid: CONTEXT + PIECE, third.pid: CONTEXT}
    assert third.ask("fill 2097152") == (LIMIT - 2 * CONTEXT - PIECE) // (2 * MIB)
    taker.kill()
    assert card_used(container) == LIMIT - CONTEXT
    third.ask("info")
    assert booked(container) == {third.pid: LIMIT - CONTEXT}
    assert third.ask(way.let_go) == 0
    assert booked(container) == {third.pid: LIMIT - CONTEXT - PIECE}
    assert machine.open_machine(container.machine).peak(0) <= LIMIT


@WAYS
def test_what_is_passed_on_is_paid_for_once(container: Container, start: Start, way: type[Way]) -> None:
    maker, takers = start(), [start() for _ in range(3)]
    assert maker.ask(f"{way.make} {PIECE}") == 0
    for taker in takers:
        assert way.hand_over(maker, taker) == way.hand_over(maker, taker) == 0
    assert sum(booked(container).values()) == 4 * CONTEXT + PIECE
    for taker in takers:
        assert taker.ask(way.let_go) == taker.ask(way.let_go) == 0
    assert maker.ask(way.give_up) == 0
    assert set(booked(container).values()) == {CONTEXT}


def test_several_files_of_several_pieces_are_told_apart(container: Container, start: Start) -> None:
    maker, taker = start(), start()
    for size in (100, 200, 300):
        assert maker.ask(f"create {size * MIB}") == 0
        assert ByDescriptor.hand_over(maker, taker) == ByDescriptor.hand_over(maker, taker) == 0
        assert maker.ask("release") == 0
        assert booked(container)[taker.pid] == CONTEXT + size * MIB
        assert taker.ask("release") == taker.ask("release") == 0
        assert booked(container)[taker.pid] == CONTEXT


def test_a_mapping_holds_what_was_imported(container: Container, start: Start) -> None:
    maker, taker = start(), start()
    assert maker.ask(f"create {PIECE}") == 0
    assert ByDescriptor.hand_over(maker, taker) == taker.ask(f"map {PIECE}") == 0
    assert maker.ask("release") == taker.ask("release") == 0
    assert booked(container) == {maker.pid: CONTEXT, taker.pid: CONTEXT + PIECE}
    assert taker.ask("unmap") == 0
    assert booked(container) == {maker.pid: CONTEXT, taker.pid: CONTEXT}


def test_a_small_one_is_passed_on_with_its_whole_block(container: Container, start: Start) -> None:
    maker, taker = start(), start()
    assert maker.ask("alloc 700") == 0
    assert ByHandle.hand_over(maker, taker) == 0
    assert maker.ask("free") == 0
    assert booked(container) == {maker.pid: CONTEXT, taker.pid: CONTEXT + 2 * MIB}
    assert taker.ask("close") == 0
    assert booked(container) == {maker.pid: CONTEXT, taker.pid: CONTEXT}


@WAYS
def test_memory_of_another_container_is_paid_for_by_who_imports_it(
    container: Container, start: Start, tmp_path: Path, way: type[Way]
) -> None:
    (tmp_path / "other").mkdir()
    with Tenant(Container(container.machine, tmp_path / "other"), script="sharer.py") as stranger:
        taker = start()
        assert stranger.ask(f"{way.make} {PIECE}") == 0
        for count in range(1, 4):
            assert way.hand_over(stranger, taker) == 0
            if way is ByDescriptor:
                assert taker.ask(f"map {PIECE}") == 0
                break
            assert booked(container) == {taker.pid: CONTEXT + count * PIECE}
        assert booked(container)[taker.pid] > CONTEXT
        assert stranger.ask(f"{way.make} {2 * LIMIT}") == 0
        while stranger.ask(way.give_up):
            time.sleep(0.1)


def test_contexts_take_along_what_they_imported(container: Container, start: Start) -> None:
    maker, taker = start(), start()
    assert maker.ask(f"alloc {PIECE}") == 0
    assert ByHandle.hand_over(maker, taker) == 0
    assert taker.ask("leave") == 0
    assert maker.ask("free") == 0
    assert sum(booked(container).values()) - 2 * CONTEXT < PIECE
    assert card_used(container) <= sum(booked(container).values())


def test_any_order_of_passing_on_letting_go_and_dying_leaves_books_and_card_agreed(container: Container) -> None:
    """And the card never held a byte above the limit."""
    rng = random.Random(5)
    with ExitStack() as stack:

        def another() -> Tenant:
            return stack.enter_context(Tenant(container, script="sharer.py"))

        live = [another() for _ in range(4)]
        made, opened = Counter[int](), Counter[int]()
        for _ in range(900):
            one, other = rng.choice(live), rng.choice(live)
            match rng.choices(["make", "free", "pass on", "close", "kill"], [30, 20, 25, 15, 2])[0]:
                case "make":
                    made[one.pid] += one.ask(f"alloc {rng.choice([2, 3, 200, 700]) * MIB}") == 0
                case "free" if made[one.pid]:
                    made[one.pid] -= one.ask("free") == 0
                case "pass on" if made[one.pid] and other is not one:
                    opened[other.pid] += other.ask(f"open {one.ask('export')}") == 0
                case "close" if opened[one.pid]:
                    opened[one.pid] -= one.ask("close") == 0
                case "kill" if len(live) > 2:
                    one.kill()
                    live.remove(one)
                    assert card_used(container) > 0  # the dead are taken out, as the driver does
                    live[0].ask("info")
                    if card_used(container) + CONTEXT <= LIMIT:
                        live.append(another())
        live[0].ask("info")
        assert card_used(container) == sum(booked(container).values()) > len(live) * CONTEXT
        assert machine.open_machine(container.machine).peak(0) <= LIMIT
        for tenant in live:
            assert [tenant.ask("free") for _ in range(made[tenant.pid])] == [0] * made[tenant.pid]
            assert [tenant.ask("close") for _ in range(opened[tenant.pid])] == [0] * opened[tenant.pid]
        live[0].ask("info")
        assert card_used(container) == sum(booked(container).values()) == len(live) * CONTEXT


@pytest.fixture
def switched(tmp_path: Path) -> Container:
    """With multicast, and nobody looks at NVML but where something is asked for."""
    build()
    machine.create(on_a_switch("2xH100-SXM5-80GB"), tmp_path / "m")
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": str(LIMIT), "LIBCUDA_LOG_LEVEL": "0", "PUMICE_VGPU_RECONCILE_MS": "0"}
    return Container(tmp_path / "m", tmp_path, limits)


def test_what_another_made_and_this_one_bound_is_paid_for_by_this_one_when_the_other_let_go(switched: Container) -> None:
    with Tenant(switched, script="sharer.py") as maker, Tenant(switched, script="sharer.py") as taker:
        context = booked(switched)[maker.pid]
        assert maker.ask(f"create {PIECE}") == taker.ask(f"team {PIECE} 1") == taker.ask("join") == 0
        assert ByDescriptor.hand_over(maker, taker) == 0
        assert taker.ask(f"bind {PIECE}") == taker.ask("release") == maker.ask("release") == 0
        assert booked(switched) == {maker.pid: context, taker.pid: context + PIECE}
        assert card_used(switched) == 2 * context + PIECE
        assert taker.ask("release_team") == 0
        assert booked(switched) == {maker.pid: context, taker.pid: context}
        assert card_used(switched) == 2 * context


@pytest.mark.parametrize("end", ["unbind", "release_team", "kill"])
def test_each_process_of_a_multicast_object_pays_for_what_it_bound_until_it_lets_go(
    switched: Container, end: str
) -> None:
    container = switched
    with Tenant(container, 0, script="sharer.py") as first, Tenant(container, 1, script="sharer.py") as second:
        assert first.ask(f"team {PIECE} 2") == 0
        pid, descriptor = first.ask("export_team")
        assert second.ask(f"import_team {pid} {descriptor}") == 0
        assert first.ask(f"create {PIECE}") == second.ask(f"create {PIECE}") == first.ask("join") == 0
        first.report(f"bind {PIECE}")  # waits for the other card
        time.sleep(0.2)
        assert not first.has_answered()
        assert second.ask("join") == first.hear() == second.ask(f"bind {PIECE}") == 0
        assert first.ask("release") == second.ask("release") == 0
        booked = [sum(slot.used[card][4] for slot in read_region(container.region).live) for card in (0, 1)]
        witness = machine.open_machine(container.machine).witness
        assert booked == [witness().bytes(0), witness().bytes(1)]
        assert min(booked) > PIECE
        assert second.ask("fill 2097152") == (LIMIT - booked[1]) // (2 * MIB)  # it is still counted
        if end == "kill":
            second.kill()
            first.ask("info")
        else:
            assert second.ask(f"{end} {PIECE}" if end == "unbind" else end) == 0
        reported = [sum(slot.used[card][4] for slot in read_region(container.region).live) for card in (0, 1)]
        assert reported == [witness().bytes(0), witness().bytes(1)]
        assert reported == [booked[0], 0 if end == "kill" else LIMIT - PIECE]
        assert first.ask("release_team") == 0
        assert witness().bytes(0) == booked[0] - PIECE
        assert machine.open_machine(container.machine).peak(1) <= LIMIT
