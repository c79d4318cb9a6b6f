"""What queues are guaranteed and do not use: it is kept from all others, at every level of the tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pumice.engine.plugins.allotments import Allotment, Allotments
from pumice.engine.state.jobs import QueueState
from pumice.engine.state.resources import PODS, Vector, add

Held = Callable[[QueueState], Vector]


@dataclass(slots=True)
class Kept:
    """By queue what of its guarantee is not in use, below it or by itself. ``None`` stands for above all queues."""

    made: Allotments
    held: Held
    unmet: dict[QueueState, Vector] = field(default_factory=dict)
    below: dict[QueueState | None, Vector] = field(default_factory=dict)
    """What of their guarantees the children of a queue do not use, together."""

    @property
    def any(self) -> bool:
        return bool(self.below)

    def recount(self, queues: Iterable[QueueState]) -> None:
        """What these hold has changed, and so has what all above them hold."""
        known = [(found, queue) for queue in queues if (found := self.made.of.get(queue)) is not None and found.guarantee]
        for found, queue in sorted(known, key=lambda each: -len(each[0].path)):
            held, below, before = self.held(queue), self.below.get(queue, {}), self.unmet.get(queue, {})
            after = {name: max(below.get(name, 0), value - held.get(name, 0), 0) for name, value in found.guarantee.items()}
            if after != before:
                self.unmet[queue] = after
                parent = self.below.setdefault(_parent(found), {})
                add(parent, ((name, value - before.get(name, 0)) for name, value in after.items()))

    def refuses(self, queue: QueueState, amounts: Vector, all_held: Vector, total: Vector) -> tuple[QueueState | None, str]:
        """Above which queue so much more for this one would be taken from what others are guaranteed, and of which resource;
        no resource where it would not."""
        path = self.made.of[queue].path
        for name, value in amounts.items():
            if not value or name == PODS:
                continue
            drawn = min(value, self.unmet.get(queue, {}).get(name, 0))
            for each in (*path[1:], None):
                if drawn == value:
                    break  # it takes what was kept for it
                held = all_held if each is None else self.held(each)
                most = total if each is None else self.made.of[each].most
                below = self.below.get(each, {}).get(name, 0)
                if below and held.get(name, 0) + below + value - drawn > most.get(name, 0):
                    return each, name
                if each is not None:
                    before = self.unmet.get(each, {}).get(name, 0)
                    wanting = self.made.of[each].guarantee.get(name, 0) - held.get(name, 0) - value
                    drawn = before - max(below - drawn, wanting, 0)
        return None, ""


def _parent(found: Allotment) -> QueueState | None:
    return found.path[1] if len(found.path) > 1 else None
