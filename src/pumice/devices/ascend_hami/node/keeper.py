"""Claims to slices and sweeps over them, with the driver and the journal behind their ports. A slice is destroyed by one call
and its entry goes afterwards: who is killed in between finds no slice and forgets the entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from pumice.devices.ascend_hami.node.ownership import Holds, Sweeper, claim, look
from pumice.ports.slices import Journal, Place
from pumice.ports.vnpus import NpuRefused, Vnpu, Vnpus


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep destroyed (or would have: ``dry``), how many idle slices of each card are somebody else's, and the templates
    of those, idle or not, that no scheduler has booked."""

    destroyed: tuple[Place, ...] = ()
    foreign: Mapping[str, int] = field(default_factory=dict)
    dry: bool = False
    strange: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Keeper:
    """Synchronous, as a driver is: callers run it in a thread."""

    def __init__(self, vnpus: Vnpus, journal: Journal, mode: str = "owned", *, dry: bool = False) -> None:
        self._vnpus, self._journal, self._sweeper, self._dry = vnpus, journal, Sweeper(mode), dry

    def claim(self, places: Sequence[Place], owner: str, owner_of: Mapping[int, str]) -> None:
        """Write down what the runtime may make for this pod from now on. Raises Unavailable."""
        with self._journal.alone():
            before = self._journal.read()
            seen = {place.card: self._vnpus.list(place.card) for place in places}
            entries = look(before, seen, owner_of)
            for place in places:
                entries = claim(entries, place, owner, seen[place.card])
            if entries != before:
                self._journal.write(entries)

    def sweep(self, cards: Iterable[str], holds: Holds, owner_of: Mapping[int, str]) -> Swept:
        """Raises Unavailable where the journal cannot be written; a card that does not answer is left alone."""
        with self._journal.alone():
            before = self._journal.read()
            seen: dict[str, tuple[Vnpu, ...]] = {}
            for card in cards:
                with suppress(NpuRefused):
                    seen[card] = self._vnpus.list(card)
            entries, due = self._sweeper.sweep(look(before, seen, owner_of), seen, holds)
            if entries != before:
                self._journal.write(entries)
            strange = self._sweeper.strangers(entries, seen, owner_of)
            if self._dry:
                return Swept(tuple(due), self._sweeper.foreign(entries, seen), dry=True, strange=strange)
            destroyed = [place for place in due if self._destroyed(place)]
            if destroyed:
                self._journal.write(entry for entry in entries if entry.place not in destroyed)
            return Swept(tuple(destroyed), self._sweeper.foreign(entries, seen), strange=strange)

    def _destroyed(self, place: Place) -> bool:
        with suppress(NpuRefused):  # a container has opened it meanwhile: the next sweep sees it
            self._vnpus.destroy(place.card, place.start)
            return True
        return False
