"""Has cards cut into slices, off the loop: the driver is slow, and only the pod that waits for it shall wait."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TypeVar

from pumice.apps.node.written_node import WrittenNode
from pumice.apps.service.worker import PATIENCE, Worker
from pumice.node.pods import Held
from pumice.node.protocol import Conflict, Cut, Serve
from pumice.node.slices.owners import Owners
from pumice.ports.cards import CardFacts

T = TypeVar("T")


class Slicer(ABC):
    """The slices of one device type on one node. ``held``: the containers for which the kubelet has written devices down.

    It knows whose slices are whose, by the watch and by the kubelet's record, and has a thread of its own for the driver.
    """

    def __init__(self, own: WrittenNode, held: Callable[[], Held | None], thread: str) -> None:
        self._own, self._held = own, held
        self._owners = Owners()
        self._driver = Worker(thread)

    @abstractmethod
    async def start(self, cards: Iterable[CardFacts]) -> None:
        """Put right what a crash or a boot has left."""

    @abstractmethod
    async def cut(self, wanted: Cut) -> Serve | Conflict:
        """The pod's slices, found or made; a conflict where they cannot be had as things are."""

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """The cards that cannot be cut, and why. Blocks, and is called from another thread."""
        return {}

    async def keep(self) -> None:
        """Do what is due from time to time, beside everything else, until cancelled."""
        return

    def look(self) -> None:
        """Take notice of the pods as they are now."""
        self._owners.look(self._own.pods, self._own.clock.monotonic())

    def close(self, patience: float = PATIENCE) -> None:
        self._driver.close(patience=patience)

    async def _ask(self) -> Held | None:
        """The kubelet's record as it is now, which tells whose slices are held."""
        self.look()
        found = await asyncio.to_thread(self._held)
        self._owners.ask(found)
        return found

    async def _call(self, work: Callable[[], T]) -> T:
        """Return what the driver's thread answers. Raises Unavailable."""
        return await self._driver.call(work)
