"""A node's counters while a pod's cards are being chosen, and the checks that look at them (Volcano
pkg/scheduler/api/devices/nvidia/vgpu)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.devices.card_policies import POLICIES
from pumice.devices.nvidia_vgpu.device_request import ContainerRequest
from pumice.devices.nvidia_vgpu.inventory import Facts
from pumice.devices.nvidia_vgpu.rows import Row
from pumice.model.cards import ContainerDevice, Mode, Usage

Chosen = tuple[Row, int, int]
"""A card, and of a MIG card the group and the slot (else -1)."""


@dataclass(slots=True)
class Draft:
    """The attempt to fit the containers of a pod. ``failed`` is the container that found too few cards, ``found`` how many it
    found; ``complete``: no other choice for the containers before it would have helped."""

    shares: list[int]
    memory: list[int]
    cores: list[int]
    group: list[int]
    used: list[int]
    failed: int = -1
    found: int = 0
    complete: bool = True


def draft_of(usages: Sequence[Usage], facts: Facts, mode: Mode, failed: int = -1) -> Draft:
    group, used = [-1] * len(usages), [0] * len(usages)
    if mode is Mode.MIG:
        for index, geometry in enumerate(facts.geometries):
            holders = usages[index].holders
            if geometry is not None and holders:
                group[index], used[index] = geometry.allocated(usages[index])
    return Draft([u.shares for u in usages], [u.memory for u in usages], [u.cores for u in usages], group, used, failed)


def copied(draft: Draft) -> Draft:
    return Draft(draft.shares[:], draft.memory[:], draft.cores[:], draft.group[:], draft.used[:])


def passes(row: Row, cores: int, draft: Draft) -> bool:
    """Return whether a share, the memory and the cores are left on the card, and whether others may share it: Volcano's checks
    in their order, without those of the card's type, UUID and mode."""
    index, total, limit, need, _, _ = row
    shares, used = draft.shares[index], draft.cores[index]
    if shares >= limit or total - draft.memory[index] < need or used + cores > 100:
        return False
    return not ((cores == 100 and shares) or (cores == 0 and used >= 100))


def ordered(rows: Sequence[Row], policy: str, draft: Draft) -> list[Row]:
    """Return the cards in the order in which the policy takes them at the start of a container."""
    known = POLICIES.get(policy)
    if known is None:
        return list(reversed(rows))
    memory, shares, cores = draft.memory, draft.shares, draft.cores

    def place(row: Row) -> tuple[int, int]:
        card = row.card
        return -known.rank(memory[card], shares[card], cores[card], row.total or 1), card

    return sorted(rows, key=place)


def charge(draft: Draft, row: Row, device_request: ContainerRequest, uuid: str, group: int, slot: int) -> ContainerDevice:
    index = row.card
    memory, place = row.need, None
    if row.geometry is not None:
        place = row.geometry.slot(group, slot)
        memory = place.memory
        draft.group[index], draft.used[index] = row.geometry.taken(draft.group[index], draft.used[index], group, slot)
    draft.shares[index] += 1
    draft.memory[index] += memory
    draft.cores[index] += device_request.cores
    return ContainerDevice(index, uuid, memory, device_request.cores, row.need, place)
