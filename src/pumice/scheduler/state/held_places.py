"""Places that nodes' annotations hold for pods that are moved (``wire.held_places``), in the ledger until their time is over.

Held cards take nobody else; whoever a place is held for is tried before all others (``cycle.defragmenting.held``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from pumice.model.cards import Allocation
from pumice.model.refusal import Refusal
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.ledger import Ledger, Placement
from pumice.scheduler.state.resources import Request
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.wire.held_places import LONGEST, HeldPlace, parse_held_places
from pumice.wire.times import moment

NOTHING = Request((), (0, 0))
AT_ONCE: Final = 2048
"""Places and their cards that one cycle puts in the ledger: forged ones must not make it long."""


@dataclass(slots=True, eq=False)
class Hold:
    """A place that is held for a pod. ``known``: who it is for was there, and asked for ``request``, when the node said so
    first. ``tried``: when that pod was tried last, by the clock of the cycles."""

    node: str
    number: int
    asked: HeldPlace
    known: bool = False
    request: Request = NOTHING
    until: float = 0.0
    tried: float = -inf

    @property
    def uid(self) -> str:
        """The uid of its placement in the ledger."""
        return f"place {self.number} held on {self.node}"


@dataclass(slots=True)
class HeldPlaces:
    ledger: Ledger
    scheduling_queue: SchedulingQueue
    problems: dict[str, str]
    tasks: Mapping[str, Task]
    holds: dict[str, list[Hold]] = field(default_factory=dict)
    """By node, those that are in the ledger."""
    fresh: dict[str, list[Hold]] = field(default_factory=dict)
    """By node what was read and is not looked at yet."""
    _said: dict[str, str] = field(default_factory=dict)
    _first_end: float | None = inf
    """The earliest end of one of them; None: to be looked up."""

    def put(self, node: str, text: str) -> None:
        """A node says so; empty: nothing."""
        if self._said.get(node, "") == text:
            return
        self._said[node] = text
        if not text:
            del self._said[node]
        self.problems.pop(_about(node), None)
        self._release(node)
        self.fresh.pop(node, None)
        found = parse_held_places(text)
        if isinstance(found, str):
            self.problems[_about(node)] = found
        elif found:
            self.fresh[node] = [Hold(node, number, place) for number, place in enumerate(found)]
            for hold in self.fresh[node]:
                self._know(hold, ())  # the pod may be gone when the next cycle comes
            self.scheduling_queue.released()  # a cycle puts it in the ledger

    def anew(self) -> None:
        """Device types are others: everything is looked at again."""
        for node, text in list(self._said.items()):
            self.put(node, "")
            self.put(node, text)

    def __bool__(self) -> bool:
        return bool(self.holds or self.fresh)

    def __iter__(self) -> Iterator[Hold]:
        return (hold for holds in self.holds.values() for hold in holds)

    @property
    def first_end(self) -> float:
        if self._first_end is None:
            self._first_end = min((hold.until for hold in self), default=inf)
        return self._first_end

    def take_up(self, wall: float) -> None:
        """Put in the ledger what is to be held from now on, and remove what is over. What is too much at once stays fresh."""
        owners = {task.owner for task in self.tasks.values()} if self.fresh else ()
        left = AT_ONCE
        for node in list(self.fresh):
            if left <= 0:
                break
            troubles, holds = [], self.fresh.pop(node)
            for hold in holds:
                left -= 1 + len(hold.asked.cards)
                trouble = self._trouble(hold, wall, owners)
                if trouble:
                    troubles.append(trouble)
                elif hold.until > wall:
                    self.holds.setdefault(node, []).append(hold)
                    self._reserve(hold)
            if troubles:
                self.problems[_about(node)] = "; ".join(troubles)
        for hold in [hold for hold in self if hold.until <= wall]:
            self.end(hold)

    def _know(self, hold: Hold, owners: Collection[str]) -> None:
        pod, controller = self.tasks.get(hold.asked.pod), hold.asked.controller
        if pod is not None and controller in ("", pod.owner):
            hold.known, hold.request = True, pod.request
        else:
            hold.known = controller in owners if controller else not hold.asked.pod

    def _reserve(self, hold: Hold) -> None:
        """The cards take nobody, and what the pod asks for beside them is taken."""
        doubts = {
            name: tuple(Refusal(uuid, "it is held for a pod that is moved") for uuid in hold.asked.cards if uuid in cards)
            for name, cards in self._cards(hold.node).items()
        }
        given = tuple(Allocation(name, hold.node, (), refusals) for name, refusals in doubts.items() if refusals)
        self.ledger.reserve(Placement(hold.uid, hold.node, hold.request, given))
        self._first_end = min(self.first_end, hold.until)

    def end(self, hold: Hold) -> None:
        """Its place is free, or had by who it was for."""
        there = self.holds[hold.node]
        there.remove(hold)
        if not there:
            del self.holds[hold.node]
        if hold.until == self._first_end:
            self._first_end = None
        self.ledger.release(hold.uid)
        self.scheduling_queue.released()

    def others(self, hold: Hold) -> dict[str, list[str]]:
        """By device type the cards of its node that are not held by it."""
        return {name: [uuid for uuid in cards if uuid not in hold.asked.cards] for name, cards in self._cards(hold.node).items()}

    def _release(self, node: str) -> None:
        for hold in list(self.holds.get(node, ())):
            self.end(hold)

    def _cards(self, node: str) -> dict[str, dict[str, int]]:
        return {name: table.nodes[node].by_uuid for name, table in self.ledger.device_tables.items() if node in table.nodes}

    def _trouble(self, hold: Hold, wall: float, owners: Collection[str]) -> str:
        """Return why it is not held; empty: it is."""
        asked, until = hold.asked, moment(hold.asked.until)
        if until is None:
            return f"{asked.until[:64]!r} is no time in RFC 3339"
        if until > wall + LONGEST:
            return f"{asked.until} is more than {LONGEST:.0f} s ahead"
        known = {uuid for cards in self._cards(hold.node).values() for uuid in cards}
        if not asked.cards or not known.issuperset(asked.cards):
            return f"{', '.join(sorted(set(asked.cards) - known))[:64] or 'nothing'} is no card of the node"
        if not hold.known:
            self._know(hold, owners)  # a scheduler that starts is told of nodes before pods
        if not hold.known:
            return f"no pod of {f'controller {asked.controller[:64]}' if asked.controller else f'uid {asked.pod[:64]}'} is known"
        hold.until = until
        return ""


def _about(node: str) -> str:
    return f"Node {node}: held places"
