"""MIG slices for claims: cut by the plan and in the journal by which the node's plugin cuts them for pods."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pumice.devices.nvidia_vgpu.node.mig_slices import CLAIM, Cutter, Holds
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.ports.slices import CutRefused, Journal, Place, SliceProfile, Slices

log = logging.getLogger("pumice.node")
T = TypeVar("T")


class ClaimSlices:
    """Synchronous and slow, as a driver is: callers run it in a thread, one call at a time."""

    def __init__(self, slices: Slices, journal: Journal) -> None:
        self._slices, self._cutter = slices, Cutter(slices, journal)
        self._offers: dict[str, tuple[SliceProfile, ...]] = {}
        self._settled: set[str] = set()
        """Cards of which journal and slices have been brought together."""

    @property
    def offers(self) -> Mapping[str, Sequence[SliceProfile]]:
        """The driver's profiles of cards in MIG mode, by UUID. What it has said once stays published."""
        return self._offers

    def learn(self, cards: Iterable[str]) -> None:
        """Ask the driver about cards that it was not asked about yet."""
        for card in cards:
            if not self._offers.get(card):
                try:
                    self._offers[card] = self._slices.profiles(card)
                except CutRefused as error:
                    log.warning("not published: %s", error)

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """The cards that cannot be cut, and why."""
        return self._cutter.closed(cards)

    def settle(self, cards: Iterable[str], holds: Holds) -> bool:
        """Once a card: bring together what a crash, a reset or a boot has left. Return whether there was such a card. Raises
        Unavailable."""
        new = [card for card in cards if card not in self._settled]
        if new:
            self._cutter.start(new, holds)
            self._settled.update(new)
        return bool(new)

    def cut(self, claim: PreparedClaim, holds: Holds) -> PreparedClaim | str:
        """Return the claim with the UUIDs of its slices, made where they are missing; or why it cannot have them. Raises
        Unavailable."""
        places = [_place(share) for share in claim.shares if share.slice is not None]
        if not places:
            return claim
        given = self._cutter.cut(places, claim.owner, holds)
        if isinstance(given, str):
            return f"claim {claim.key}: {given}"
        if given.made or given.removed:
            log.info("claim=%s: cut %s; removed %s", claim.key, _told(given.made), _told(given.removed))
        shares = []
        for share in claim.shares:
            if share.slice is not None:
                uuid = given.slices[_place(share)].uuid
                share = msgspec.structs.replace(share, slice=msgspec.structs.replace(share.slice, uuid=uuid))
            shares.append(share)
        return msgspec.structs.replace(claim, shares=tuple(shares))


def holder(claims: Iterable[PreparedClaim], pods: Iterable[Any], recorded: Collection[str]) -> Holds:
    """Return who holds slices: claims by their names in the journal, and pods by UID. ``recorded``: UIDs of pods that
    hold cards by the kubelet's record, be they there or not."""
    found = {uid: f"of UID {uid}" for uid in recorded}
    for pod in pods:
        meta = pod["metadata"]
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            found[meta["uid"]] = f"{meta['namespace']}/{meta['name']}"
    found |= {claim.owner: f"{CLAIM}{claim.key}" for claim in claims}
    return lambda uid: found.get(uid, "")


def _place(share: ClaimShare) -> Place:
    assert share.slice is not None
    return Place(share.card, share.slice.profile, share.slice.start)


def _told(places: Sequence[Place]) -> str:
    return ",".join(f"{place}:{place.card}" for place in places) or "nothing"


async def in_thread(work: Callable[[], T]) -> T:
    """Do it in a thread, to its end also when the kubelet has given the call up: whoever comes next must find it done."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
