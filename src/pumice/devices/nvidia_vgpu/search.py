"""Another look at a node where one walk, container by container, finds too few cards for a pod of several parts.

What an earlier container takes can be what only a later one could have used. So the largest parts are tried first; and then
all that differs is, within a number of steps. Cards that are alike, and states that failed before, are looked at once.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from pumice.devices.nvidia_vgpu.device_request import ContainerRequest, VgpuRequest
from pumice.devices.nvidia_vgpu.draft import Chosen, Draft, charge, ordered, passes
from pumice.devices.nvidia_vgpu.mig import TANGLED
from pumice.devices.nvidia_vgpu.rows import Row

STEPS = 200
"""Choices of a card that one search may try: some milliseconds at the very worst."""

MOST_PARTS = 64
"""Cards of one pod; beyond that nothing is searched."""


class OutOfSteps(Exception):
    """The search was not complete."""


def largest_first(device_request: VgpuRequest, containers: Sequence[Sequence[Row]]) -> list[int]:
    """Numbers of the containers. Those without cores come first of all: beside cards whose cores are all taken they find no
    place, while the others do not mind them."""

    def size(number: int) -> tuple[bool, int, int, int]:
        container = device_request.containers[number]
        need = max((row.need for row in containers[number]), default=0)
        return (container.cores != 0, -need, -container.cores, -container.count)

    return sorted(range(len(device_request.containers)), key=size)


@dataclass(slots=True)
class Search:
    """Depth first over the cards and slots of every container. ``draft`` is as it was found once ``run`` returns."""

    device_request: VgpuRequest
    containers: Sequence[Sequence[Row]]
    order: Sequence[int]
    draft: Draft
    closed: Collection[int]
    mig: bool
    steps: int
    kinds: dict[int, int] = field(default_factory=dict)
    """Card to the number of its kind; cards of one kind differ in what is used of them only."""
    failed: set[Hashable] = field(default_factory=set)
    taken: dict[int, list[Chosen]] = field(default_factory=dict)

    def run(self) -> dict[int, list[Chosen]] | None:
        """Per container its cards; None when there is no way. Raises OutOfSteps when that cannot be told."""
        if sum(container.count for container in self.device_request.containers) > MOST_PARTS:
            raise OutOfSteps
        by_card = [{row.card: row for row in rows} for rows in self.containers]
        numbers: dict[Hashable, int] = {}
        for card in {row.card for rows in self.containers for row in rows}.difference(self.closed):
            found = [rows.get(card) for rows in by_card]
            alike = tuple(row and (row.total, row.limit, row.need, row.need_mib, id(row.geometry)) for row in found)
            self.kinds[card] = numbers.setdefault(alike, len(numbers))
        return self.taken if self._container(0) else None

    def _container(self, at: int) -> bool:
        if at == len(self.order):
            return True
        state: Hashable = (at, tuple(sorted((kind, self._use(card)) for card, kind in self.kinds.items())))
        if state in self.failed:
            return False
        number = self.order[at]
        rest = self.order[at:]
        if all(self._possible(later, rest) for later in rest):
            rows = [
                row
                for row in ordered(self.containers[number], self.device_request.card_policy, self.draft)
                if row.card in self.kinds
            ]
            self.taken[number] = []
            if self._part(at, rows, 0):
                return True
        self.failed.add(state)
        return False

    def _part(self, at: int, rows: Sequence[Row], first: int) -> bool:
        """One more card for the container; its parts are equal, so they are taken in the order of the cards."""
        number = self.order[at]
        container, mine = self.device_request.containers[number], self.taken[self.order[at]]
        if len(mine) == container.count:
            return self._container(at + 1)
        tried: set[Hashable] = set()
        for place in range(first, len(rows)):
            row = rows[place]
            if not passes(row, container.cores, self.draft):
                continue
            like = (self.kinds[row.card], self._use(row.card))
            if like in tried:
                continue
            tried.add(like)
            for group, slot in self._slots(row):
                self.steps -= 1
                if self.steps < 0:
                    raise OutOfSteps
                before = self._use(row.card)
                charge(self.draft, row, container, "", group, slot)
                mine.append((row, group, slot))
                if self._part(at, rows, place if self.mig else place + 1):
                    return True
                mine.pop()
                self._restore(row.card, before)
        return False

    def _slots(self, row: Row) -> Iterator[tuple[int, int]]:
        """Of a MIG card the slots that are large enough, those that waste least first."""
        geometry = row.geometry
        if geometry is None:
            yield -1, -1
            return
        active, used = self.draft.group[row.card], self.draft.used[row.card]
        if active != TANGLED:
            yield from sorted(geometry.choices(active, used, row.need_mib), key=lambda choice: geometry.memory(*choice))

    def _possible(self, number: int, rest: Sequence[int]) -> bool:
        """Return whether the cards have room for as many parts of this size as the container and the larger ones of the ``rest``
        want: what others take never makes it more."""
        device_requests, container = self.device_request.containers, self.device_request.containers[number]
        larger = [other for other in rest if device_requests[other].at_least(container)]
        wanted = sum(device_requests[other].count for other in larger)
        room = 0
        for row in self.containers[number]:
            if row.card in self.kinds and passes(row, container.cores, self.draft):
                room += self._room(row, container, len(larger))
                if room >= wanted:
                    return True
        return False

    def _room(self, row: Row, container: ContainerRequest, containers: int) -> int:
        """At most how many parts of this size the card takes, of so many containers."""
        draft, card = self.draft, row.card
        if row.geometry is not None:
            active = draft.group[card]
            return 0 if active == TANGLED else row.geometry.room(active, draft.used[card], row.need_mib)
        room = min(containers, row.limit - draft.shares[card])
        if row.need:
            room = min(room, (row.total - draft.memory[card]) // row.need)
        return min(room, (100 - draft.cores[card]) // container.cores) if container.cores else room

    def _use(self, card: int) -> tuple[int, int, int, int, int]:
        draft = self.draft
        return draft.shares[card], draft.memory[card], draft.cores[card], draft.group[card], draft.used[card]

    def _restore(self, card: int, use: tuple[int, int, int, int, int]) -> None:
        draft = self.draft
        draft.shares[card], draft.memory[card], draft.cores[card], draft.group[card], draft.used[card] = use
