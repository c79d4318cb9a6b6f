"""Use by share: bookings beside the counts of libvgpu.so in their regions."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from pumice.adapters.bookings.book import BookedCard, Booking, alive, holders, living
from pumice.adapters.bookings.processes import region_of
from pumice.adapters.region import read_region
from pumice.adapters.region.extension import DeviceBudget, locked_slots
from pumice.adapters.regular_files import variable_of
from pumice.local.place import Place
from pumice.model.amount import MIB
from pumice.model.errors import BadInput
from pumice.ports.region import BadRegion, DeviceUse, RegionDevice, RegionSnapshot
from pumice.wire import variables
from pumice.wire.nvidia_vgpu import PodDevice


class CardShare(Struct, frozen=True):
    """A program's share of one card and its use now: bytes and percent."""

    card: BookedCard
    device: PodDevice
    memory: int = 0
    cores: int = 0

    @property
    def memory_limit(self) -> int:
        """Bytes."""
        return self.device.memory * MIB


class Share(Struct, frozen=True):
    """One booking with its use, card by card. ``pids`` keep it alive, ``note`` is what keeps it from being read."""

    booking: Booking
    place: Place
    pids: tuple[int, ...]
    cards: tuple[CardShare, ...]
    launches_wait: bool = False
    note: str = ""

    @property
    def pid(self) -> int:
        """Its leader; of a container's share the first process that is known, 0 where there is none."""
        return next(iter(self.pids), 0) if self.booking.keeper else self.booking.pid


def shares(places: Sequence[Place]) -> list[Share]:
    """Every living share of these places. Raises BadInput on a damaged booking file."""
    return [share_of(booking, place) for place in places for booking in living(place.directory)]


LOOKS = 3
"""Looks at a region that seems damaged: one that is being written looks like that for a moment."""
PAUSE = 0.02


def share_of(booking: Booking, place: Place) -> Share:
    """The share with what its living processes use; a region that cannot be read, or says what cannot be, costs the numbers."""
    pids = holders(booking)
    try:
        region = _whole(booking)
    except BadRegion as error:
        return Share(booking, place, pids, tuple(CardShare(card, device) for card, device in booking.allocated), note=str(error))
    slots = alive(booking)
    cards = []
    for card, device in booking.allocated:
        use = _use(region, slots, device.uuid)
        cards.append(CardShare(card, device, use.total, min(100, use.sm)))
    return Share(booking, place, pids, tuple(cards), region.recent_kernel < 0)


def _whole(booking: Booking) -> RegionSnapshot:
    """The region, unless what it says cannot be. Raises BadRegion."""
    for look in range(LOOKS):
        region = read_region(booking.region)
        damage = _damage(booking, region, locked_slots(booking.region))
        if not damage:
            return region
        if look + 1 < LOOKS:
            time.sleep(PAUSE)
    raise BadRegion(f"{booking.region}: damaged, {damage}")


def _damage(booking: Booking, region: RegionSnapshot, locked: Collection[int]) -> str:
    """Return why figures of this region are none; empty where nothing speaks against them."""
    said = {process.slot: process for process in region.processes}
    if any(slot not in said or said[slot].pid <= 0 for slot in locked):
        return "it does not name a process that lives in it"
    totals = {device.uuid: card.total * MIB for card, device in booking.allocated}
    for device in region.devices:
        most = totals.get(device.uuid, 0)
        uses = [said[slot].use[device.index] for slot in locked if device.index in said[slot].use]
        if most and any(max(use.total, use.context, use.module, use.data) > most or use.sm > 100 for use in uses):
            return "a process uses more than there is of a card"
        if any(use.total != use.context + use.module + use.data for use in uses):
            return "what a process uses is not the sum of its parts"
    return ""


def used(booking: Booking, uuid: str) -> int:
    """Bytes that the living processes of a share use of one card; 0 when its region does not tell."""
    try:
        return _use(_whole(booking), alive(booking), uuid).total
    except BadRegion:
        return 0


def _use(region: RegionSnapshot, slots: Collection[int], uuid: str) -> DeviceUse:
    use = DeviceUse()
    for device in region.devices:
        if device.uuid == uuid:
            use = sum((p.use[device.index] for p in region.processes if p.slot in slots and device.index in p.use), use)
    return use


def find(places: Sequence[Place], who: str) -> tuple[Booking, Place]:
    """The share of an id or of any process that lives in it, whether it uses a card or not. Raises BadInput."""
    there = shares(places)
    found = [share for share in there if who == share.booking.id or who in map(str, share.pids)]
    if not found and who.isdigit():
        region = region_of(int(who))
        found = [share for share in there if share.booking.region == region]
    if len(found) == 1:
        return found[0].booking, found[0].place
    if found:
        wheres = " and ".join(str(share.place.directory) for share in found)
        raise BadInput(f"{who}: there is one on several machines ({wheres}); name it by its pid")
    known = ", ".join(f"{share.booking.id} ({share.booking.who})" for share in there) or "none"
    raise BadInput(f"{who}: no program of `pumice run` has this id or pid; running now: {known}")


# -- A region in words: limits, use, who is let through, and why the limiter of compute stands idle -----------------


QUIET = 10
"""Seconds without a kernel after which a container counts as idle, as two rounds of a monitor have it."""
POLICY = variables.CORE_POLICY


@dataclass(frozen=True, slots=True)
class DeviceStory:
    """One card of a region. ``idle`` says why nobody is held back; empty while the limiter is at work."""

    device: RegionDevice
    use: DeviceUse
    idle: str
    budget: DeviceBudget | None = None


def stories(region: RegionSnapshot, alive: Mapping[int, int], budgets: tuple[DeviceBudget, ...], policies: Mapping[int, str],
            now: float) -> list[DeviceStory]:  # fmt: skip
    """Each card of the region. ``alive`` maps slots to living pids, ``policies`` pids to their core policy as far as it can
    be read, ``now`` is Unix time."""
    return [
        DeviceStory(
            device,
            sum((p.use[device.index] for p in region.processes if p.slot in alive and device.index in p.use), DeviceUse()),
            idle(region, device, alive, policies, now),
            budgets[device.index] if device.index < len(budgets) else None,
        )
        for device in region.devices
    ]


def idle(region: RegionSnapshot, device: RegionDevice, alive: Mapping[int, int], policies: Mapping[int, str],
         now: float) -> str:  # fmt: skip
    """Return why the compute of this card is not limited at the moment; empty when it is (HAMi-core src, HAMi
    cmd/vGPUmonitor/feedback.go)."""
    known = {policy.lower() for pid, policy in policies.items() if pid in alive.values()}
    if not alive:
        return "no living process uses the region"
    if not 0 < device.sm_limit < 100:
        return "no core limit is set"
    if known == {"disable"}:
        return f"switched off by {POLICY}=disable"
    if region.utilization_switch == 0 and known != {"force"}:
        return f"switched off by the monitor because the container is alone on its cards; {POLICY}=force keeps it on"
    if region.last_kernel and now - region.last_kernel > QUIET:
        return f"no kernel was launched for {int(now - region.last_kernel)} s"
    if not region.last_kernel and region.version != "0":
        return "no kernel was launched yet"
    return ""


def gate(region: RegionSnapshot) -> str:
    """Return whether launches pass, by the monitor's word."""
    if region.recent_kernel < 0:
        return "launches wait: a container of higher priority uses a card of this one"
    return "launches pass"


def policy_of(pid: int) -> str:
    """The core policy in a process's environment; empty when it has none or belongs to somebody else."""
    return variable_of(pid, POLICY).decode("utf-8", "replace")
