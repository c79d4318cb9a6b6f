"""The scheduler's part in sharing a cluster: which nodes it may use is agreed with the schedulers of other shards.

A node changes hands in three steps. Who is to lose it decides nothing for it any more, waits for the Bindings on their way
there, and says then that it uses the node no longer. Who is to have it waits for that, says that it uses the node, and looks
again: where another one has said the same meanwhile, it takes its word back. Then it waits until its watch has shown the pods
that are bound there. The word belongs to the shard: a stand-by that takes the lease over has the nodes of the one before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from pumice.effects.vocabulary import Bind
from pumice.journal.recorder import Doorway
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.scheduler.inputs import Sharded
from pumice.scheduler.state.shards import Shard, assigned, moves
from pumice.wire.kinds import NODES, PODS
from pumice.wire.objects import Meta, Pod, convert
from pumice.wire.sharding import NODE_SHARDS, SHARD, USED_BY, Mode, NodeShard, Source, status_of
from pumice.wire.times import stamp

log = logging.getLogger("pumice.scheduler.shard")

LOOK, PATIENCE = 0.1, 5.0
"""Seconds between two looks whether the watch has shown the pods of new nodes, and for which one round waits for them."""
AT_ONCE = 16
"""Requests in flight at once."""


class Words(Protocol):
    """The place where schedulers say which nodes they use."""

    async def read(self) -> Mapping[str, Shard]:
        """All shards by name. Raises ApiError."""
        ...

    async def claim(self, nodes: frozenset[str]) -> frozenset[str]:
        """Say that we use these nodes. Return those that nobody else uses; of the others the word is taken back."""
        ...

    async def release(self, nodes: frozenset[str]) -> None:
        """Say that we use these nodes no longer."""
        ...


# -- NodeShards -----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeShards:
    """Volcano's kind. An object's status is written by the scheduler of that shard alone, on top of the version that it read."""

    cluster: Cluster
    clock: Clock
    mine: str
    _shards: dict[str, Shard] = field(default_factory=dict)
    _version: str = ""

    async def read(self) -> Mapping[str, Shard]:
        found = [convert(NodeShard, item) for item in (await self.cluster.list(NODE_SHARDS))["items"]]
        self._shards = {one.metadata.name: Shard(frozenset(one.spec.nodes_desired), one.in_use) for one in found}
        self._version = next((one.metadata.resource_version for one in found if one.metadata.name == self.mine), "")
        return self._shards

    async def claim(self, nodes: frozenset[str]) -> frozenset[str]:
        await self._write(self._shards[self.mine].in_use | nodes)
        shards = await self.read()
        owner = assigned(shards)
        used = {node for name, shard in shards.items() if name != self.mine for node in shard.in_use}
        granted = frozenset(node for node in nodes if node not in used and owner.get(node) == self.mine)
        if granted != nodes:
            await self.release(nodes - granted)
        return granted

    async def release(self, nodes: frozenset[str]) -> None:
        await self._write(self._shards[self.mine].in_use - nodes)

    async def _write(self, in_use: frozenset[str]) -> None:
        desired, written = self._shards[self.mine]
        if in_use == written:
            return
        body = {"metadata": {"resourceVersion": self._version}, "status": status_of(desired, in_use, stamp(self.clock.now()))}
        found = convert(NodeShard, await self.cluster.patch(NODE_SHARDS, self.mine, body, subresource="status"))
        self._version = found.metadata.resource_version
        self._shards[self.mine] = Shard(desired, in_use)


# -- labels of nodes ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeLabels:
    """A label says whose a node is to be, an annotation who uses it. It is written on top of the version that was read, so that
    of two that reach for a node one has it."""

    cluster: Cluster
    mine: str
    desired: dict[str, str] = field(default_factory=dict)
    """By node the shard of its label, as the watch has shown it."""
    users: dict[str, str] = field(default_factory=dict)
    _shards: dict[str, Shard] | None = None
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def seen(self, meta: Meta, *, gone: bool) -> None:
        """Take over what the watch shows of a node."""
        for known, shard in ((self.desired, meta.labels.get(SHARD, "")), (self.users, meta.annotations.get(USED_BY, ""))):
            self._note(known, meta.name, "" if gone else shard)

    def _note(self, known: dict[str, str], node: str, shard: str) -> None:
        if known.get(node, "") != shard:
            self._shards = None
            known[node] = shard
            if not shard:
                del known[node]

    async def read(self) -> Mapping[str, Shard]:
        if self._shards is None:
            desired, users = _by_shard(self.desired), _by_shard(self.users)
            self._shards = {
                name: Shard(frozenset(desired.get(name, ())), frozenset(users.get(name, ())))
                for name in {*desired, *users}
            }
        return self._shards

    async def claim(self, nodes: frozenset[str]) -> frozenset[str]:
        return await self._all(nodes, "", self.mine)

    async def release(self, nodes: frozenset[str]) -> None:
        left = nodes - await self._all(nodes, self.mine, "")
        if left:
            raise ApiError(409, "Conflict", f"{len(left)} nodes are still said to be used")

    async def _all(self, nodes: Iterable[str], before: str, after: str) -> frozenset[str]:
        line = sorted(nodes)
        done = await asyncio.gather(*(self._one(node, before, after) for node in line))
        return frozenset(node for node, good in zip(line, done, strict=True) if good)

    async def _one(self, node: str, before: str, after: str) -> bool:
        async with self._room:
            try:
                meta = convert(Meta, (await self.cluster.get(NODES, node))["metadata"])
                user = meta.annotations.get(USED_BY, "")
                if after and (user not in ("", after) or meta.labels.get(SHARD) != after):
                    return False
                if user != after and user in ("", before):
                    change = {"resourceVersion": meta.resource_version, "annotations": {USED_BY: after or None}}
                    await self.cluster.patch(NODES, node, {"metadata": change})
            except ApiError as error:
                if error.code == 404:
                    return not after
                log.info("node=%s user=%s not written: %s", node, after or "nobody", error)
                return False
            self._note(self.users, node, after if after or user == before else user)
            return True


def _by_shard(of: Mapping[str, str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node, shard in of.items():
        found.setdefault(shard, set()).add(node)
    return found


# -- the scheduler's own --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sharding:
    """The share of the nodes that this scheduler has. ``on_way`` counts the Bindings on their way to a node; ``leads`` is True
    while nobody else may have the lease."""

    cluster: Cluster
    clock: Clock
    enter: Doorway
    wake: asyncio.Event
    mine: str
    peers: tuple[str, ...]
    mode: Mode
    source: Source
    period: float
    on_way: Callable[[], Collection[str]]
    leads: Callable[[], Awaitable[bool]]
    ours: frozenset[str] = frozenset()
    owner: Mapping[str, str] = field(default_factory=dict)
    labels: NodeLabels = field(init=False)
    _words: Words | None = None
    _told: tuple[frozenset[str], Mapping[str, str]] | None = None
    _absent: bool = False

    def __post_init__(self) -> None:
        self.labels = NodeLabels(self.cluster, self.mine)

    async def begin(self) -> None:
        """Take over the nodes that the shard used last; before that nothing is decided."""
        while self._words is None:
            try:
                words = await self._find()
                shards = await words.read()
            except ApiError as error:
                log.error("shards cannot be read: %s", error)
                await self.clock.sleep(self.period)
                continue
            self._words, self.owner = words, assigned(shards)
            self.ours = frozenset(
                node for node in shards.get(self.mine, Shard()).in_use if self.owner.get(node) == self.mine
            )  # fmt: skip
            log.info("shard=%s peers=%s mode=%s source=%s nodes=%d", self.mine, ",".join(self.peers) or "-", self.mode.value,
                     "labels" if words is self.labels else "nodeshards", len(self.ours))  # fmt: skip
            self._say(shards)
            self._tell()

    async def _find(self) -> Words:
        there = NodeShards(self.cluster, self.clock, self.mine)
        if self.source is Source.LABELS:
            return self.labels
        try:
            await there.read()
        except ApiError as error:
            if error.code != 404 or self.source is Source.NODESHARDS:
                raise
            return self.labels
        return there

    async def run(self) -> None:
        """Follow the shards for ever."""
        while True:
            try:
                if await self.leads():
                    await self._round()
            except ApiError as error:
                log.info("shards: %s", error)
            await self.clock.sleep(self.period)

    def refusal(self, effect: Bind) -> str:
        """Return why a Binding is not sent any more: its node is somebody else's by now. Empty where it may be sent."""
        if effect.node in self.ours or (self.mode is Mode.SOFT and not (effect.allocations or effect.device_claims)):
            return ""
        shard = self.owner.get(effect.node, "")
        return f"node {effect.node} is {f'in shard {shard}' if shard else 'in no shard'} now"

    # -- a round ----------------------------------------------------------------------------------------------------------

    async def _round(self) -> None:
        assert self._words is not None, "begun"
        shards = await self._words.read()
        said = shards.get(self.mine, Shard()).in_use
        kept = self.ours & said  # what is ours no longer by the API server's word is asked for anew
        self.owner = assigned(shards)
        step = moves(self.mine, shards, self.owner, kept)
        self.ours = kept - step.leave
        self._say(shards)
        self._tell()
        if self.mine not in shards:
            return
        left = said - self.ours - step.take - frozenset(self.on_way())
        if left:
            await self._words.release(left)
            log.info("let go nodes=%d", len(left))
        if step.take:
            granted = await self._words.claim(step.take)
            taken = await self._caught_up(granted)
            self.ours |= taken
            log.info("taken nodes=%d refused=%d", len(taken), len(step.take) - len(granted))
            self._tell()

    def _say(self, shards: Mapping[str, Shard]) -> None:
        absent = self.mine not in shards
        if absent and not self._absent:
            log.warning("no node is in shard %s, and nothing says that it exists: no pod is placed", self.mine)
        self._absent = absent

    def _tell(self) -> None:
        if self._told == (self.ours, self.owner):
            return
        self._told = self.ours, self.owner
        self.enter(Sharded(self.mine, self.peers, dict(self.owner), tuple(sorted(self.ours)), self.mode is Mode.SOFT))
        self.wake.set()

    async def _caught_up(self, nodes: frozenset[str]) -> frozenset[str]:
        """Return those of the nodes on which the watch has shown every pod that the one before has bound there. It is given a
        while for that; the other nodes stay claimed and are asked about again in the next round."""
        room = asyncio.Semaphore(AT_ONCE)
        line = sorted(nodes)
        found = await asyncio.gather(*(self._unseen(node, room) for node in line))
        behind = {node: uids for node, uids in zip(line, found, strict=True) if uids}
        end = self.clock.monotonic() + PATIENCE
        while behind and self.clock.monotonic() < end:
            await self.clock.sleep(LOOK)
            behind = {node: uids for node, uids in behind.items() if not self._seen(uids)}
        if behind:
            node, uids = next(iter(behind.items()))
            log.warning("not taken yet nodes=%d: the watch has not shown their pods, as %s on %s", len(behind), uids[0], node)
        return nodes - behind.keys()

    async def _unseen(self, node: str, room: asyncio.Semaphore) -> list[str]:
        """Return the uids of the pods on a node that have not ended and that the watch has not shown."""
        async with room:
            found = (await self.cluster.list(PODS, field_selector=f"spec.nodeName={node}"))["items"]
        running = (pod for pod in found if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed"))
        return [pod["metadata"]["uid"] for pod in running if not self._seen([pod["metadata"]["uid"]]) and _readable(pod)]

    def _seen(self, uids: Iterable[str]) -> bool:
        placements = self.enter.engine.state.ledger.placements
        return all(uid in placements for uid in uids)


def _readable(pod: Mapping[str, Any]) -> bool:
    """Return whether the watch can take it over: what cannot be read is set aside there, and must not keep a node for ever."""
    try:
        convert(Pod, pod)
    except (msgspec.MsgspecError, ValueError):
        return False
    return True
