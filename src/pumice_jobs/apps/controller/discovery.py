"""The network as the nodes' labels tell of it: HyperNodes are made, changed and deleted as the labels change."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from pumice.apps.service.watches import ABSENT_OR_FORBIDDEN, SELDOM, Watcher
from pumice.effects.performer import Performer
from pumice.effects.vocabulary import Create, Delete, Event, Patch
from pumice.effects.work_queue import WorkQueue
from pumice.model.errors import BadInput
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json, WatchEvent
from pumice.wire import kinds, volcano
from pumice.wire.controller_conf import CONFIG_KEY, CONFIG_MAP, LABEL, SOURCE, Discovery, parse_controller_conf
from pumice.wire.objects import ConfigMap, decode
from pumice_jobs.controllers import hypernodes

log = logging.getLogger("pumice.controller")

KIND: Final = "topology"
PAUSE: Final = 0.5
"""Seconds in which further changes of labels are waited for."""
AWAITED: Final = frozenset(("nodes", "hypernodes"))


@dataclass(slots=True)
class Topology:
    """Nothing of it is watched but the configuration until that asks for it. What was discovered stays when nobody asks for it
    any more: jobs may stand on it."""

    cluster: Cluster
    clock: Clock
    performer: Performer
    work: WorkQueue
    namespace: str
    conf: Discovery = field(default_factory=Discovery)
    """The last one that could be read."""
    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Labels by name."""
    there: dict[str, Json] = field(default_factory=dict)
    """The HyperNodes that were discovered, by name."""
    _map: ConfigMap | None = None
    _reported: set[str] = field(default_factory=set)
    """The warnings that were written about the present configuration."""
    _due: bool = False
    """True while it will be reconciled in a moment anyway."""
    _requested: asyncio.Event = field(default_factory=asyncio.Event)
    _arrived: set[str] = field(default_factory=set)

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """No start waits for them."""
        watcher = Watcher(self.cluster, self.clock, log, self._list_is_there, absent=ABSENT_OR_FORBIDDEN, pause=SELDOM)
        name = f"metadata.name={CONFIG_MAP}"
        return [
            watcher.watch("configuration", kinds.CONFIGMAPS, partial(watcher.taken, "configuration", self._on_map),
                          self.namespace, field_selector=name),
            self._when_asked(watcher.watch("nodes", kinds.NODES, partial(watcher.taken, "nodes", self._on_node))),
            self._when_asked(watcher.watch("hypernodes", volcano.HYPER_NODES,
                                           partial(watcher.taken, "hypernodes", self._on_hypernode),
                                           label_selector=f"{SOURCE}={LABEL}")),
        ]  # fmt: skip

    async def _when_asked(self, watching: Coroutine[Any, Any, None]) -> None:
        try:
            await self._requested.wait()
        except asyncio.CancelledError:
            watching.close()
            raise
        await watching

    async def reconcile(self, key: str) -> None:
        """Tell what was found wrong, then bring the HyperNodes in line."""
        self._due = False
        await self._say_of_configuration()
        if self.conf.profiles is None or not self._arrived >= AWAITED:
            return
        try:
            wanted = hypernodes.discover(self.conf.profiles, self.nodes)
        except ValueError as error:
            await self._report("TopologyRefused", f"the labels of the nodes make no tree, so nothing is changed: {error}")
            return
        for effect in hypernodes.changes(wanted, self.there):
            await self._perform(effect)

    async def _perform(self, effect: Create | Patch | Delete) -> None:
        name = effect.obj["metadata"]["name"] if isinstance(effect, Create) else effect.name
        try:
            answer = await self.performer.perform(effect)
        except ApiError as error:
            if not isinstance(effect, Create) or error.code != 409:
                raise
            await self._report("TopologyRefused", f"HyperNode {name} is there and was not discovered; it is left alone")
            return
        self.there.pop(name, None)
        if answer is not None and not isinstance(effect, Delete):
            self.there[name] = answer

    async def _say_of_configuration(self) -> None:
        if self._map is None:
            return
        try:
            others = parse_controller_conf(self._map.data.get(CONFIG_KEY, "")).others
        except BadInput as error:
            await self._report("ConfigurationRefused", f"{error}; the last good one goes on")
            return
        for source in others:
            await self._report("WithoutEffect", f"networkTopologyDiscovery: source {source} is not read here; {LABEL} is")

    async def _report(self, reason: str, text: str) -> None:
        """Once for each text while the configuration is as it is."""
        if self._map is None or text in self._reported:
            return
        self._reported.add(text)
        log.warning("%s: %s", CONFIG_MAP, text)
        meta = self._map.metadata
        await self.performer.perform(Event("ConfigMap", "v1", meta.namespace, meta.name, meta.uid, "Warning", reason, text))

    # -- watches ------------------------------------------------------------------------------------------------------

    def _list_is_there(self, name: str) -> None:
        self._arrived.add(name)
        self._changed()

    def _changed(self) -> None:
        if not self._due:
            self._due = True
            self.work.add_later(KIND, "", PAUSE)

    def _on_map(self, event: WatchEvent) -> None:
        self._reported.clear()
        if event.type == "DELETED":
            self._map, self.conf = None, Discovery()
            return
        self._map = decode(ConfigMap, event.raw)
        self._changed()
        try:
            self.conf = parse_controller_conf(self._map.data.get(CONFIG_KEY, ""))
        except BadInput:
            return  # told when it is reconciled
        if self.conf.profiles is not None:
            self._requested.set()

    def _on_node(self, event: WatchEvent) -> None:
        meta = decode(ConfigMap, event.raw).metadata  # only its metadata counts
        if event.type == "DELETED":
            if self.nodes.pop(meta.name, None) is not None:
                self._changed()
        elif self.nodes.get(meta.name) != meta.labels:
            self.nodes[meta.name] = meta.labels
            self._changed()

    def _on_hypernode(self, event: WatchEvent) -> None:
        found = msgspec.json.decode(event.raw)
        name = found["metadata"]["name"]
        known = self.there.pop(name, None)
        if event.type != "DELETED":
            self.there[name] = found
            if known is not None and known.get("spec") == found.get("spec"):
                return  # only its status
        self._changed()
