"""What a crash, a reset or a reboot has left, compared with the journal: reality wins.

| journal | there is | what follows |
|---|---|---|
| making | nothing | forgotten: nobody was answered |
| making | half a slice | finished for a pod that still holds it, else removed |
| making | a slice | it was made: the next pod of the place gets it |
| made | nothing | made again for a pod that still holds it (a boot takes all slices away), else forgotten |
| made | half a slice | filled again for a pod that still holds it, else left until it lies in the way |
| made | that slice | nothing to do |
| removing | half a slice, or that slice with nobody on it | removed |
| any | another slice at the place | it is somebody else's, and nobody touches it; a pod that was given ours is told |

A slice that the journal does not know is somebody else's. One that stands exactly where one was being made when the process
died cannot be told from our own and counts as ours (ADR 58).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pumice.node.cutting.plan import Books, Fill, Holds, Make, Plan, Remove, Step, ours, removal
from pumice.ports.slices import Entry, Phase, Place, Slice


@dataclass(frozen=True, slots=True)
class Lost:
    """A pod's slice is not what its containers were given."""

    owner: str
    place: Place
    was: str
    now: str = ""


def recover(seen: Sequence[Slice], books: Books, holds: Holds) -> Plan:
    """What brings journal and cards together."""
    there = {slice_.place: slice_ for slice_ in seen}
    after: dict[Place, Entry] = {}
    removals: list[Step] = []
    makes: list[Step] = []
    for place, entry in sorted(books.items()):
        found, held = there.get(place), bool(holds(entry.owner))
        given = (entry.was or (entry.uuid if entry.phase is Phase.MADE else "")) if held else ""
        if entry.phase is Phase.LOST or (found is not None and not ours(found, books)):
            if given:
                after[place] = replace(entry, phase=Phase.LOST, uuid="", was=given)
        elif found is None:
            if given:
                makes += [Make(place), Fill(place)]
                after[place] = replace(entry, phase=Phase.MAKING, uuid="", was=given)
        elif entry.phase is Phase.REMOVING and not found.busy:
            removals += removal(found)
            after[place] = entry
        elif not found.half:
            after[place] = replace(entry, phase=Phase.MADE, uuid=found.uuid, was=given if given != found.uuid else "")
        elif held:
            makes.append(Fill(place))
            after[place] = replace(entry, phase=Phase.MAKING, uuid="", was=given)
        elif entry.phase is Phase.MAKING:
            removals.append(Remove(place))
            after[place] = replace(entry, phase=Phase.REMOVING)
        else:
            after[place] = entry
    return Plan(after, (*removals, *makes))


def lost(books: Books, holds: Holds) -> list[Lost]:
    """The pods that were given what is not there any more."""
    return [Lost(e.owner, place, e.was, e.uuid) for place, e in sorted(books.items()) if e.was and holds(e.owner)]


def known(entries: Iterable[Entry]) -> dict[Place, Entry]:
    """A journal's entries as books."""
    return {entry.place: entry for entry in entries}
