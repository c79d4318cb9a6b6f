"""Has cards cut for pods, off the loop: the driver is slow, and only the pod that waits for it shall wait."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from pumice.apps.node.slicing import Slicer
from pumice.apps.node.written_node import WrittenNode
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter, Given
from pumice.effects.vocabulary import EndPod, Event
from pumice.model.errors import Unavailable
from pumice.node.pods import Held
from pumice.node.protocol import Conflict, Cut, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.cluster import ApiError
from pumice.wire import names
from pumice.wire.objects import Meta

log = logging.getLogger("pumice.node")

GONE = "SliceGone"
"""The Event of a pod that is failed because what its containers were given names nothing any more."""


class Slicing(Slicer):
    """MIG slices: cards are cut when a pod needs it, and slices lie until they are in the way."""

    def __init__(self, cutter: Cutter, own: WrittenNode, held: Callable[[], Held | None]) -> None:
        super().__init__(own, held, "slices")
        self._cutter = cutter

    def closed(self, cards: Iterable[str]) -> dict[str, str]:
        return self._cutter.closed(cards)

    async def start(self, cards: Iterable[CardFacts]) -> None:
        """Put right what a crash or a boot has left, and fail the pods that lost their slices by it."""
        await self._ask()
        try:
            lost = await self._call(lambda: self._cutter.start([card.uuid for card in cards if card.mig], self._owners.holds))
        except Unavailable as error:
            log.error("slices are left as they are: %s", error)
            return
        pods = {pod.uid: pod.metadata for pod in self._own.pods}
        for one in lost:
            what = f"it was given {one.was}, and that slice ({one.place} of card {one.place.card}) is not there any more"
            message = f"{what}; what lies there now is {one.now}" if one.now else what
            log.warning("failing pod=%s: %s", self._owners.holds(one.owner), message)
            if (meta := pods.get(one.owner)) is not None:
                await self._fail(meta, message)

    async def cut(self, wanted: Cut) -> Serve | Conflict:
        await self._ask()
        try:
            given = await self._call(lambda: self._cutter.cut(wanted.places, wanted.pod.uid, self._owners.holds))
        except Unavailable as error:
            given = str(error)
        if isinstance(given, str):
            return Conflict(wanted.pod, given, self._owners.vanishing)
        if given.made or given.removed:
            await self._own.perform(self._told(wanted, given))
        return wanted.then(given.slices)

    async def _fail(self, pod: Meta, message: str) -> None:
        try:
            await self._own.perform(EndPod.of(pod, names.SLICE_GONE, message))
        except ApiError as error:
            log.warning("pod %s/%s could not be failed, and is tried again at the next start: %s", pod.namespace, pod.name, error)
            return
        await self._own.perform(Event.on_pod(pod, "Warning", GONE, message))

    def _told(self, wanted: Cut, given: Given) -> Event:
        made, removed = (", ".join(str(place) for place in places) for places in (given.made, given.removed))
        text = "; ".join(part for part in (made and f"cut {made}", removed and f"removed {removed}") if part)
        card = ", ".join(dict.fromkeys(place.card for place in wanted.places))
        log.info("card %s for pod=%s: %s", card, wanted.pod.key, text)
        return Event.on_node(self._own.name, "Normal", "MIGRecut", f"card {card} for pod {wanted.pod.key}: {text}")
