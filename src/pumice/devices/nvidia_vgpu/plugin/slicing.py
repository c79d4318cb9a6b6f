"""Has cards cut for pods, off the loop: the driver is slow, and only the pod that waits for it shall wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from pumice.apps.node.written_node import WrittenNode
from pumice.apps.service.worker import Worker
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter, Given
from pumice.model.errors import Unavailable
from pumice.node.effects import EndPod, Tell
from pumice.node.pods import Held
from pumice.node.protocol import Conflict, Cut, Serve
from pumice.node.slices.owners import Owners
from pumice.ports.cards import CardFacts
from pumice.ports.cluster import ApiError
from pumice.wire import names
from pumice.wire.objects import Meta

log = logging.getLogger("pumice.node")
T = TypeVar("T")

GONE = "SliceGone"
"""The Event of a pod that is failed because what its containers were given names nothing any more."""


class Slicing:
    """One brand's slices on one node. ``held``: whom the kubelet has given devices."""

    def __init__(self, cutter: Cutter, own: WrittenNode, held: Callable[[], Held | None]) -> None:
        self._cutter, self._own, self._held = cutter, own, held
        self._owners = Owners()
        self._driver = Worker("slices")
        self.closed = cutter.closed

    def look(self) -> None:
        """Take notice of the pods as they are now."""
        self._owners.look(self._own.pods, self._own.clock.monotonic())

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
        """The pod's slices, found or made; a conflict where they cannot be had as things are."""
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

    async def keep(self) -> None:
        """Cards are cut when a pod needs it, and slices lie until they are in the way."""

    def close(self) -> None:
        self._driver.close()

    async def _fail(self, pod: Meta, message: str) -> None:
        try:
            await self._own.perform(EndPod.of(pod, names.SLICE_GONE, message))
        except ApiError as error:
            log.warning("pod %s/%s could not be failed, and is tried again at the next start: %s", pod.namespace, pod.name, error)
            return
        await self._own.perform(Tell.of_pod(pod, GONE, message))

    async def _ask(self) -> None:
        self.look()
        self._owners.ask(await asyncio.to_thread(self._held))

    def _told(self, wanted: Cut, given: Given) -> Tell:
        made, removed = (", ".join(str(place) for place in places) for places in (given.made, given.removed))
        text = "; ".join(part for part in (made and f"cut {made}", removed and f"removed {removed}") if part)
        card = ", ".join(dict.fromkeys(place.card for place in wanted.places))
        log.info("card %s for pod=%s: %s", card, wanted.pod.key, text)
        return Tell("Node", "", self._own.name, self._own.name, "MIGRecut",
                    f"card {card} for pod {wanted.pod.key}: {text}", warning=False)  # fmt: skip

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._driver.call(work)
