"""Claims to slices and sweeps over them, with the driver and the journal behind their ports. A slice is destroyed by one call
and its entry goes afterwards: who is killed in between finds no slice and forgets the entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pumice.devices.ascend_hami.node.ownership import Holds, Sweeper, claim, look
from pumice.node.slices.manager import Plan, Remove, SliceManager, Step
from pumice.ports.slices import Journal, Place
from pumice.ports.vnpus import Vnpus


@dataclass(frozen=True, slots=True)
class Swept:
    """The result of one sweep: what it destroyed (or would have: ``dry``), how many idle slices of each card are somebody
    else's, and the templates of those, idle or not, that no scheduler has booked."""

    destroyed: tuple[Place, ...] = ()
    foreign: Mapping[str, int] = field(default_factory=dict)
    dry: bool = False
    strange: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Keeper:
    """Synchronous, as a driver is: callers run it in a thread."""

    def __init__(self, vnpus: Vnpus, journal: Journal, mode: str = "owned", *, dry: bool = False) -> None:
        self._vnpus, self._sweeper, self._dry = vnpus, Sweeper(mode), dry
        self._manager = SliceManager(journal, vnpus.list, self._act)

    def claim(self, places: Sequence[Place], owner: str, owner_of: Mapping[int, str]) -> None:
        """Write down what the runtime may make for this pod from now on. Raises Unavailable."""
        with self._manager.alone() as before:
            seen = {place.card: self._vnpus.list(place.card) for place in places}
            entries = look(before, seen, owner_of)
            for place in places:
                entries = claim(entries, place, owner, seen[place.card])
            self._manager.carry_out(Plan(entries))

    def sweep(self, cards: Iterable[str], holds: Holds, owner_of: Mapping[int, str]) -> Swept:
        """Destroy what nobody holds. Raises Unavailable where the journal cannot be written; a card that does not answer is left
        alone."""
        with self._manager.alone() as before:
            seen = self._manager.observe(cards)
            entries, due = self._sweeper.sweep(look(before, seen, owner_of), seen, holds)
            strange = self._sweeper.strangers(entries, seen, owner_of)
            steps = () if self._dry else tuple(map(Remove, due))
            taken = self._manager.carry_out(Plan(entries, steps)).taken  # what a container has opened meanwhile stays
            destroyed = tuple(due) if self._dry else tuple(step.place for step in taken)
            return Swept(destroyed, self._sweeper.foreign(entries, seen), dry=self._dry, strange=strange)

    def _act(self, step: Step) -> str:
        self._vnpus.destroy(step.place.card, step.place.start)
        return ""
