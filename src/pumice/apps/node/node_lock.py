"""Gives back the node lock that some schedulers take before they bind a pod (spec deviceshare-nvidia 12)."""

from __future__ import annotations

from pumice.apps.node.written_node import ANSWER, WrittenNode
from pumice.effects.vocabulary import PatchNode
from pumice.wire.objects import Node

LEFT = 20.0
"""Seconds after which a lock that nobody touches, while no pod waits for its devices, was left behind: a Binding takes a few.
Schedulers wait for one for a minute, and believe it for five."""


class NodeLock:
    """``key``: its annotation. It goes once a pod was dealt with. Where the watch showed it too late for that, or the write
    failed, it goes when it has lain about."""

    def __init__(self, own: WrittenNode, key: str) -> None:
        self._own, self._key = own, key
        self._value: str | None = None
        self._since = 0.0

    def busy(self) -> None:
        """A pod waits for its devices."""
        self._since = self._own.clock.monotonic()

    async def release(self) -> None:
        """The pod was dealt with."""
        node = self._own.node
        if node is not None and self._key in node.metadata.annotations:
            await self._own.perform_soon(PatchNode({self._key: None}), "releasing the node lock", ANSWER)

    def left(self, node: Node) -> list[PatchNode]:
        """How to take away one that was left behind: nothing, if somebody has taken it anew by then."""
        value, now = node.metadata.annotations.get(self._key), self._own.clock.monotonic()
        if value is None or value != self._value:
            self._value, self._since = value, now
        behind = value is not None and now - self._since >= LEFT
        return [PatchNode({self._key: None}, version=node.metadata.resource_version)] if behind else []
