"""Keeps the books of NPU slices off the loop, and sweeps once in a while (spec ascend 17)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from pumice.apps.node.npu_metrics import short_id
from pumice.apps.node.slicing import Slicer
from pumice.apps.node.written_node import WrittenNode
from pumice.devices.ascend_hami.node.keeper import Keeper, Swept
from pumice.effects.vocabulary import Event
from pumice.model.errors import Unavailable
from pumice.node.pods import Held, NodePod
from pumice.node.protocol import Conflict, Cut, Serve
from pumice.ports.cards import CardFacts

log = logging.getLogger("pumice.node")


class NpuSlices(Slicer):
    """Slices that the runtime makes: claims to them, and sweeps ``every`` so many seconds."""

    def __init__(self, keeper: Keeper, every: float, own: WrittenNode, held: Callable[[], Held | None]) -> None:
        super().__init__(own, held, "vnpus")
        self._keeper, self._every = keeper, every
        self._cards: tuple[str, ...] = ()
        self._told: dict[str, int] = {}
        self._strange: Mapping[str, tuple[str, ...]] = {}

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        """Chips with slices that nobody has booked: what schedulers put there the driver may refuse. Which of them can be cut in
        any way is all the same here."""
        return {card: f"slices of it were made by somebody else ({', '.join(found)})" for card, found in self._strange.items()}

    async def start(self, cards: Iterable[CardFacts]) -> None:
        self._cards = tuple(card.uuid for card in cards)
        await self._sweep()

    async def keep(self) -> None:
        while True:
            await self._own.clock.sleep(self._every)
            await self._sweep()

    async def cut(self, wanted: Cut) -> Serve | Conflict:
        """Its claim is on disk before the runtime hears of it."""
        try:
            owner_of = containers(self._own.pods)
            await self._call(lambda: self._keeper.claim(wanted.places, wanted.pod.uid, owner_of))
        except Unavailable as error:
            return Conflict(wanted.pod, str(error))
        return wanted.then({})

    async def _sweep(self) -> None:
        await self._ask()
        owner_of = containers(self._own.pods)
        try:
            swept = await self._call(lambda: self._keeper.sweep(self._cards, self._owners.holds, owner_of))
        except Unavailable as error:
            log.error("slices are left as they are: %s", error)
            return
        await self._tell(swept)

    async def _tell(self, swept: Swept) -> None:
        self._strange = swept.strange
        verb = "would be destroyed" if swept.dry else "destroyed"
        for place in swept.destroyed:
            text = f"idle slice {place.start} ({place.profile}) of card {place.card} {verb}: its pod is gone"
            log.info(text)
            if not swept.dry:
                await self._own.perform(Event.on_node(self._own.name, "Normal", "VNPUDestroyed", text))
        if swept.foreign != self._told:
            self._told = dict(swept.foreign)
            for card, count in swept.foreign.items():
                log.warning("%d idle slices of card %s were made by somebody else and are left alone", count, card)


def containers(pods: Iterable[NodePod]) -> dict[int, str]:
    """The pod of each container that the kubelet has told of, by the id that the driver has of it."""
    return {
        short: pod.uid
        for pod in pods
        for status in pod.container_statuses
        if (short := short_id(status.container_id))
    }
