"""Pods of several containers, against a search that shares nothing with the product and tries everything."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Any

import pytest
from kit.device_world import A100, V100, TinyLedger, card, device_settings, limits, pod_of, vgpu_node
from kit.seeds import chosen_seed

from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import Fit
from pumice.devices.settings import Settings
from pumice.model.refusal import FitError
from pumice.wire.objects import Pod

A100_80 = "NVIDIA-NVIDIA A100-SXM4-80GB"
GROUPS = {  # typed by hand
    40960: ((5120,) * 7, (10240, 10240, 10240, 5120), (20480, 20480), (40960,)),
    81920: ((9728,) * 7, (19968, 19968, 19968, 9728), (40192, 40192), (80896,)),
}  # fmt: skip

Part = tuple[int, int, int]
"""How many cards, memory and cores of each."""
Share = tuple[int, int, int, int]
"""A HAMi-core card: total, memory, cores and shares in use."""


def by_shares(parts: list[Part], cards: list[Share], limit: int) -> bool:
    """Return whether the parts fit in any order, each card at most once for each part."""
    return any(_shares(order, cards, limit) for order in set(permutations(parts)))


def _shares(parts: tuple[Part, ...], cards: list[Share], limit: int) -> bool:
    if not parts:
        return True
    (count, memory, cores), rest = parts[0], parts[1:]
    for chosen in combinations(range(len(cards)), count):
        after = list(cards)
        for at in chosen:
            total, used, busy, shares = cards[at]
            whole = memory or total
            if shares >= limit or used + whole > total or busy + cores > 100:
                break
            if (cores == 100 and shares) or (cores == 0 and busy >= 100):
                break
            after[at] = total, used + whole, busy + cores, shares + 1
        else:
            if _shares(rest, after, limit):
                return True
    return False


Slots = tuple[int, int, frozenset[int]]
"""A MIG card: total, its group or -1, the slots in use."""


def by_slots(needs: list[int], cards: list[Slots]) -> bool:
    """Return whether every need finds a slot of its own; cards without any may take any group."""
    if not needs:
        return True
    for at, (total, group, used) in enumerate(cards):
        for number, sizes in enumerate(GROUPS[total]):
            if used and number != group:
                continue
            seen = set()
            for slot, size in enumerate(sizes):
                if slot in used or size < needs[0] or size in seen:
                    continue
                seen.add(size)
                if by_slots(needs[1:], [*cards[:at], (total, number, used | {slot}), *cards[at + 1 :]]):
                    return True
    return False


def pods(rng: random.Random, amounts: tuple[int, ...], most: int) -> Iterator[tuple[Pod, list[Part]]]:
    while True:
        parts = [(rng.choice((1, 1, 1, 2)), rng.choice(amounts), rng.choice((0, 0, 10, 50, 100)))
                 for _ in range(rng.choice((1, 2, 2, 3)))]  # fmt: skip
        if sum(count for count, _, _ in parts) <= most:
            yield pod_of("asked", *(limits(*part) for part in parts)), parts


def seed() -> int:
    found = chosen_seed()
    print("seed", found)
    return found


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
def test_shares_for_several_containers_are_found_wherever_there_are_some(policy: str) -> None:
    rng = random.Random(f"{seed()}{policy}")
    fitted = refused = 0
    for number in range(250):
        limit = rng.choice((3, 10))
        ledger = TinyLedger(NvidiaVgpu(None, Settings(policy=policy)))
        width = rng.randint(1, 4)
        ledger.add_node(vgpu_node("n", *(card(f"GPU-{i}", 16384, limit, V100) for i in range(width))))
        for filler in range(rng.randint(0, 4)):
            ledger.place(pod_of(f"f{filler}", limits(1, rng.choice((2000, 6000, 9000)), rng.choice((0, 20, 50)))), "n")
        pod, parts = next(pods(rng, (3000, 6000, 8192, 10000, 16384), 4))
        cards = [(16384, u.memory, u.cores, u.shares) for u in ledger.usages("n")]
        outcome = ledger.try_pod(pod, "n")
        assert isinstance(outcome, Fit) == by_shares(parts, cards, limit), (number, parts, cards)
        fitted, refused = fitted + isinstance(outcome, Fit), refused + isinstance(outcome, FitError)
        if isinstance(outcome, FitError) and outcome.final:
            assert not by_shares(parts, [(16384, 0, 0, 0)] * width, limit)
    assert min(fitted, refused) > 40


@pytest.mark.parametrize("mig_policy", ["listed", "tightest", "expected"])
@pytest.mark.parametrize(("kind", "total"), [(A100, 40960), (A100_80, 81920)])
def test_slots_for_several_containers_are_found_wherever_there_are_some(mig_policy: str, kind: str, total: int) -> None:
    rng = random.Random(f"{seed()}{mig_policy}{total}")
    fitted = refused = 0
    for number in range(150):
        policy = rng.choice(("", "binpack", "spread"))
        ledger = TinyLedger(NvidiaVgpu(None, device_settings(policy=policy, mig_policy=mig_policy)))
        width = rng.randint(1, 2)
        ledger.add_node(vgpu_node("n", *(card(f"GPU-{i}", total, 10, kind, mode="mig") for i in range(width))))
        for filler in range(rng.randint(0, 3)):
            ledger.place(pod_of(f"f{filler}", limits(1, rng.choice((3000, 9000, 18000)) * total // 40960)), "n")
        needs = [rng.choice((3000, 9500, 19000)) * total // 40960 for _ in range(rng.choice((2, 2, 3, 4)))]
        pod = pod_of("asked", *(limits(1, need) for need in needs))
        names = [{f"group{i + 1}": i for i in range(4)}.get(u.group, -1) for u in ledger.usages("n")]
        cards = [(total, group, u.slots) for group, u in zip(names, ledger.usages("n"), strict=True)]
        outcome = ledger.try_pod(pod, "n")
        assert isinstance(outcome, Fit) == by_slots(needs, cards), (number, needs, cards)
        fitted, refused = fitted + isinstance(outcome, Fit), refused + isinstance(outcome, FitError)
        if isinstance(outcome, FitError) and outcome.final:
            assert not by_slots(needs, [(total, -1, frozenset())] * width)
    assert min(fitted, refused) > 20


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
def test_the_order_of_the_containers_decides_nothing(policy: str) -> None:
    for parts in permutations((6000, 6000, 16384)):
        ledger = TinyLedger(NvidiaVgpu(None, Settings(policy=policy)))
        ledger.add_node(vgpu_node("n", card("GPU-a"), card("GPU-b")))
        assert isinstance(ledger.try_pod(pod_of("p", *(limits(1, m) for m in parts)), "n"), Fit), parts
    for slots in ((3000, 10000), (10000, 3000)):
        ledger = TinyLedger(NvidiaVgpu(None, device_settings(policy=policy, mig_policy="listed")))
        ledger.add_node(vgpu_node("n", card("GPU-m", 40960, 10, A100, mode="mig")))
        assert isinstance(ledger.try_pod(pod_of("p", *(limits(1, m) for m in slots)), "n"), Fit), slots


def test_a_refusal_is_final_only_when_every_way_was_tried() -> None:
    parts: list[Any] = [limits(1, memory) for memory in (10000, 7000, 5000, 5000, 5000)]
    finals = {}
    for steps in (1, 200):
        ledger = TinyLedger(NvidiaVgpu(None, Settings(), search_steps=steps))
        ledger.add_node(vgpu_node("n", card("GPU-a"), card("GPU-b")))
        outcome = ledger.try_pod(pod_of("p", *parts), "n")
        assert isinstance(outcome, FitError)
        finals[steps] = outcome.final
    assert finals == {1: False, 200: True}

