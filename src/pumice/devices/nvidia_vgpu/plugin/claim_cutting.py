"""MIG slices for claims: cut by the plan and in the journal by which the node's plugin cuts them for pods."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from pumice.devices.nvidia_vgpu.node.mig_slices import CLAIM, Cutter, Holds, of_claim
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.node.pods import NodePod, Status
from pumice.node.slices import Owners
from pumice.ports.slices import CutRefused, Journal, Place, SliceProfile, Slices
from pumice.wire.objects import Meta

log = logging.getLogger("pumice.node")


class ClaimSlices:
    """Synchronous and slow, as a driver is: callers run it in a thread, one call at a time."""

    def __init__(self, slices: Slices, journal: Journal) -> None:
        self._slices, self._cutter = slices, Cutter(slices, journal, of_claim)
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

    def unsettled(self, cards: Iterable[str]) -> list[str]:
        """The cards whose slices and journal were not brought together yet."""
        return [card for card in cards if card not in self._settled]

    def settle(self, cards: Iterable[str], holds: Holds) -> None:
        """Once a card: bring together what a crash, a reset or a boot has left of claims' slices; those of pods are left to the
        node's plugin. Raises Unavailable."""
        if new := self.unsettled(cards):
            self._cutter.start(new, holds)
            self._settled.update(new)

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


class Holders:
    """The holders of slices: claims by their names in the journal, and pods as the node's plugin counts them."""

    def __init__(self) -> None:
        self._pods = Owners()

    def look(self, pods: Iterable[Any], now: float) -> None:
        """These pods, as the API server tells them, are there at this moment of a monotonic clock."""
        self._pods.look([_seen(pod) for pod in pods], now)

    def ask(self, claims: Iterable[PreparedClaim], recorded: Iterable[str]) -> Holds:
        """Return who holds what now. ``recorded``: UIDs of pods that have cards by the kubelet's record, which is late."""
        self._pods.ask({(uid, ""): frozenset() for uid in recorded})
        found = self._pods.holders() | {claim.owner: f"{CLAIM}{claim.key}" for claim in claims}
        return lambda uid: found.get(uid, "")


def _seen(pod: Any) -> NodePod:
    meta, phase = pod["metadata"], (pod.get("status") or {}).get("phase") or ""
    return NodePod(Meta(meta["name"], meta["namespace"], meta["uid"]), status=Status(phase))


def _place(share: ClaimShare) -> Place:
    assert share.slice is not None
    return Place(share.card, share.slice.profile, share.slice.start)


def _told(places: Sequence[Place]) -> str:
    return ",".join(f"{place}:{place.card}" for place in places) or "nothing"
