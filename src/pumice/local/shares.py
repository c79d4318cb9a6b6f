"""Who uses how much of what share: bookings beside what the library counts in their regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pumice.adapters.region import read_region
from pumice.adapters.region.extension import live_slots
from pumice.local.booking import Booking, holders, living
from pumice.local.place import Place
from pumice.model.refusal import BadInput
from pumice.node.sharing import MIB
from pumice.ports.region import BadRegion, DeviceUse, RegionSnapshot


@dataclass(frozen=True, slots=True)
class Share:
    """One booking with its use: bytes and percent now. ``pids`` keep it alive, ``note`` is what keeps it from being read."""

    booking: Booking
    place: Place
    pids: tuple[int, ...]
    memory: int = 0
    cores: int = 0
    launches_wait: bool = False
    note: str = ""

    @property
    def memory_limit(self) -> int:
        """Bytes."""
        return self.booking.device.memory * MIB


def shares(places: Sequence[Place]) -> list[Share]:
    """Every living share of these places. Raises BadInput on a damaged booking file."""
    return [share_of(booking, place) for place in places for booking in living(place.directory)]


def share_of(booking: Booking, place: Place) -> Share:
    """The share with what its living processes use; a region that cannot be read costs the numbers only."""
    pids = holders(booking)
    try:
        region = read_region(booking.region)
    except BadRegion as error:
        return Share(booking, place, pids, note=str(error))
    use = _use(region, booking)
    return Share(booking, place, pids, use.total, min(100, use.sm), region.recent_kernel < 0)


def used(booking: Booking) -> int:
    """Bytes that the living processes of a share use; 0 when its region cannot be read."""
    try:
        return _use(read_region(booking.region), booking).total
    except BadRegion:
        return 0


def _use(region: RegionSnapshot, booking: Booking) -> DeviceUse:
    alive = live_slots(booking.region)
    use = DeviceUse()
    for device in region.devices:
        if device.uuid == booking.device.uuid:
            use = sum((p.use[device.index] for p in region.processes if p.slot in alive and device.index in p.use), use)
    return use


def find(places: Sequence[Place], who: str) -> tuple[Booking, Place]:
    """The share of an id or of any process that lives in it. Raises BadInput."""
    there = shares(places)
    found = [share for share in there if who == share.booking.id or who in map(str, share.pids)]
    if len(found) == 1:
        return found[0].booking, found[0].place
    if found:
        wheres = " and ".join(str(share.place.directory) for share in found)
        raise BadInput(f"{who}: there is one on several machines ({wheres}); name it by its pid")
    known = ", ".join(f"{share.booking.id} (pid {share.booking.pid})" for share in there) or "none"
    raise BadInput(f"{who}: no program of `pumice run` has this id or pid; running now: {known}")
