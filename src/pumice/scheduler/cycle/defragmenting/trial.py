"""Pods taken off the ledger and put elsewhere on trial, on the live ledger, undone last step first.

Statuses and queues are left alone: whoever is moved holds as much afterwards as before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pumice.model.cards import Allocation
from pumice.model.refusal import Refusal
from pumice.scheduler.cycle.cycle import Cycle
from pumice.scheduler.cycle.queueing import agreed
from pumice.scheduler.placing.evaluation import Among, Choice
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.ledger import Placement, Receipt
from pumice.scheduler.state.resources import Request

CLOSED = "it is kept free by a plan"
NOTHING = Request((), (0, 0))
ELSEWHERE = 8
"""Nodes beside the best one that are looked at for a pod."""
LATE_EVERY = 8
"""Looks between two questions whether it is late: each may read a clock, and is noted in a journal."""
OTHER_CARDS = 6
"""Choices of cards beside the first on one node."""


@dataclass(slots=True)
class Trial:
    """A trial of moves, taken back. ``left``: how many more looks for a place are allowed. ``late`` says whether none is from
    now on."""

    cycle: Cycle
    left: int
    late: Callable[[], bool] = lambda: False
    over: bool = False
    """True once it was late."""
    spent: int = 0
    _steps: list[Receipt] = field(default_factory=list)
    _serial: int = 0

    # -- steps ----------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        return len(self._steps)

    def back(self, mark: int = 0) -> None:
        """Undo whatever was done since the mark."""
        while len(self._steps) > mark:
            self.cycle.state.ledger.undo(self._steps.pop())

    def lift(self, tasks: Iterable[Task]) -> None:
        """Take pods off the ledger."""
        for task in tasks:
            receipt = self.cycle.state.ledger.lift(task.uid)
            assert receipt is not None, task.story()
            self._steps.append(receipt)

    def place(self, task: Task, choice: Choice) -> None:
        held = Placement(task.uid, choice.node, task.request, choice.allocations, marks=task.marks, features=task.features)
        self._steps.append(self.cycle.state.ledger.reserve(held))

    def close(self, node: str, device_type: str, uuids: Iterable[str]) -> None:
        """Let nobody come onto these cards; who is there stays."""
        self._serial += 1
        allocation = Allocation(device_type, node, (), tuple(Refusal(uuid, CLOSED) for uuid in uuids))
        held = Placement(f"closed {self._serial}", node, NOTHING, (allocation,))
        self._steps.append(self.cycle.state.ledger.reserve(held))

    # -- places ---------------------------------------------------------------------------------------------------

    def place_of(self, task: Task, node: str = "") -> Choice | None:
        """The best place for a pod, or the best one on that node."""
        self.left -= 1
        self.spent += 1
        if self.spent % LATE_EVERY == 0:
            self.look_at_the_time()
        self.cycle.placer.reconsider((task.cls,))  # what was refused on trial says nothing
        return self.cycle.placer.choose(task.cls, node, self._agreed(task), self._among(task))

    def look_at_the_time(self) -> None:
        if self.late():
            self.left, self.over = 0, True

    def places_of(self, task: Task) -> Iterator[Choice]:
        """The best place, other cards of its node, then other nodes; nothing else is on trial between two of them."""
        best = self.place_of(task)
        if best is None:
            return
        yield from self.cards_of(task, best)
        table = self.cycle.state.ledger.table
        self.cycle.placer.reconsider((task.cls,))
        rows = self.cycle.placer.open_to(task.cls, self._among(task)).nonzero()[0].tolist()
        for row in rows[: ELSEWHERE + 1]:
            if row != best.row and self.left > 0 and (choice := self.place_of(task, table.name(row))) is not None:
                yield from self.cards_of(task, choice)

    def cards_of(self, task: Task, choice: Choice) -> Iterator[Choice]:
        """That choice, and what would be chosen on its node without one or more of its cards."""
        yield choice
        tried = {_cards(choice)}
        todo = deque([(choice, frozenset[tuple[str, str]]())])
        while todo:
            found, closed = todo.popleft()
            for card in sorted(_cards(found)):
                if self.left <= 0:
                    return
                mark = self.mark()
                for device_type, uuid in sorted(closed | {card}):
                    self.close(choice.node, device_type, (uuid,))
                other = self.place_of(task, choice.node)
                self.back(mark)
                if other is None or _cards(other) in tried:
                    continue
                yield other
                tried.add(_cards(other))
                if len(tried) > OTHER_CARDS:
                    return
                todo.append((other, closed | {card}))

    def with_cards(self, task: Task, node: str, allocations: Sequence[Allocation]) -> Choice | None:
        """The place on that node with just these cards, where the pod would get it."""
        wanted = cards_in(allocations)
        best = self.place_of(task, node)
        return None if best is None else next((one for one in self.cards_of(task, best) if _cards(one) == wanted), None)

    def _agreed(self, task: Task) -> Callable[[Choice], bool] | None:
        """A pod that is moved keeps what it holds of its queue."""
        return None if task.node else agreed(self.cycle, task)

    def _among(self, task: Task) -> Among | None:
        return self.cycle.among(task)


def _cards(choice: Choice) -> frozenset[tuple[str, str]]:
    return cards_in(choice.allocations)


def cards_in(allocations: Iterable[Allocation]) -> frozenset[tuple[str, str]]:
    """Device types and UUIDs of the cards."""
    return frozenset((given.device_type, piece.uuid) for given in allocations for piece in given.container_devices)
