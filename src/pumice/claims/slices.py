"""The pools of devices that a node can use: generations, completeness, validity, and the order in which devices are tried.

A pool belongs to a driver; its slices may lie on several nodes. Kubernetes' rules are kept to the letter, since drivers rely on
them: what a node does not see does not matter as long as the slices that it sees are as many as their pool says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from pumice.claims.attributes import cards_of
from pumice.claims.objects import Amount, Counter, CounterConsumption, Device, DeviceID, ResourceSlice, plain
from pumice.claims.partitions import Amounts, Layout, PartitionedPool, Place, partitioned_pool, size_of
from pumice.claims.selecting import Selections
from pumice.wire.objects import parse_node_term

PoolID = tuple[str, str]
"""Driver and pool."""


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def is_selected(self, by: Device | ResourceSlice) -> bool:
        """Return whether a slice, or a device of one that leaves it to its devices, is for this node."""
        spec = by.spec if isinstance(by, ResourceSlice) else by
        if spec.node_name:
            return spec.node_name == self.name
        return spec.all_nodes or (spec.node_selector is not None and self._is_in(spec.node_selector))

    def _is_in(self, selector: Mapping[str, Any]) -> bool:
        """Terms are alternatives; an empty one selects nothing."""
        terms = map(parse_node_term, selector.get("nodeSelectorTerms") or ())
        return any(
            term is not None and all(one.accepts(self.name if one.field else self.labels.get(one.key)) for one in term)
            for term in terms
        )


@dataclass(frozen=True, slots=True)
class PooledDevice:
    """A device where it is published. ``size``: its memory, where it is for one claim alone."""

    id: DeviceID
    device: Device
    slice: ResourceSlice
    size: Amount = 0


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool as one node sees it. Where ``problem`` is set, nothing is allocated from it."""

    id: PoolID
    devices: tuple[PooledDevice, ...] = ()
    counters: Mapping[str, Mapping[str, Counter]] = field(default_factory=dict)
    has_binding_conditions: bool = False
    problem: str = ""

    @property
    def name(self) -> str:
        return "/".join(self.id)


class Slices:
    """All slices of a cluster, found by node. A slice that changes is ``put`` again; a search that was begun before must not go
    on."""

    def __init__(self, slices: Iterable[ResourceSlice] = ()) -> None:
        self.selections = Selections()
        """The results of selectors on these devices."""
        self._known: dict[str, ResourceSlice] = {}
        self._by_pool: dict[PoolID, list[ResourceSlice]] = defaultdict(list)
        self._of_node: dict[str, set[PoolID]] = defaultdict(set)
        self._of_any: set[PoolID] = set()
        self._places: dict[PoolID, frozenset[str]] = {}
        """Nodes that the slices of a pool name; an empty name stands for slices of more than one."""
        self._named: dict[PoolID, dict[str, list[tuple[int, str, Device]]]] = {}
        """Devices by name with their generations and their only node, of pools that were asked for."""
        self._pools: dict[str, tuple[Node, list[NodePool]]] = {}
        self._make_numbers: dict[Hashable, int] = {}
        self._makes: dict[str, frozenset[int]] = {}
        """By slice the capacities of its devices, whichever devices have them."""
        self._cards: dict[PoolID, tuple[int, dict[str, Mapping[str, Counter]]]] = {}
        self._partitioned: dict[PoolID, PartitionedPool] = {}
        self._layouts: dict[tuple[Amounts, tuple[Place, ...]], Layout] = {}
        for one in slices:
            self.put(one)

    def put(self, one: ResourceSlice) -> set[PoolID]:
        """Take over a slice. Returns the pools that are other than before."""
        changed = self.remove(one.name)
        self._known[one.name] = one
        self._by_pool[one.pool].append(one)
        self._makes[one.name] = frozenset(
            self._make_numbers.setdefault(
                (device.allow_multiple_allocations, tuple(sorted(device.capacity.items(), key=itemgetter(0)))),
                len(self._make_numbers),
            )
            for device in one.spec.devices
        )
        self._index(one.pool)
        if len(newest := self._newest(one.pool)) == one.spec.pool.resource_slice_count and newest[-1] is one:
            self.partitioned_pool(one.pool)  # here, so that no cycle waits for it
        return changed | {one.pool}

    def remove(self, name: str) -> set[PoolID]:
        """Forget a slice. Returns the pools that are other than before."""
        one = self._known.pop(name, None)
        if one is None:
            return set()
        self._by_pool[one.pool].remove(one)
        del self._makes[one.name]
        self._index(one.pool)
        self.selections.forget(one.name)
        return {one.pool}

    def get(self, name: str) -> ResourceSlice | None:
        return self._known.get(name)

    def nodes_of(self, pool: PoolID) -> set[str] | None:
        """Return the nodes that alone can use the pool; None where more than its slices' own nodes may."""
        return None if pool in self._of_any else set(self._places.get(pool, ()))

    def may_concern(self, node: str) -> set[PoolID]:
        """Return the pools that the node may have devices of."""
        return self._of_node.get(node, set()) | self._of_any

    def makes_of(self, node: str) -> frozenset[int]:
        """Return a value that is the same for nodes whose devices have the same capacities, whatever is in use of them."""
        return frozenset().union(*(self._makes[one.name] for pool in self.may_concern(node) for one in self._by_pool[pool]))

    def cards_in(self, pool: PoolID) -> tuple[int, dict[str, Mapping[str, Counter]]]:
        """Return how many cards the newest generation of a pool has, each a device or a counter set, and the counter sets."""
        if pool not in self._cards:
            specs = [one.spec for one in self._newest(pool)]
            sets: dict[str, Mapping[str, Counter]] = {}
            for spec in specs:
                sets.update((one.name, one.counters) for one in spec.shared_counters)
            alone = sum(not device.consumes_counters for spec in specs for device in spec.devices)
            self._cards[pool] = alone + len(sets), sets
        return self._cards[pool]

    def partitioned_pool(self, pool: PoolID) -> PartitionedPool:
        """Return how the newest generation of a pool cuts its cards into partitions."""
        if pool not in self._partitioned:
            self._partitioned[pool] = partitioned_pool(self._newest(pool), self.cards_in(pool)[1], self._layouts)
        return self._partitioned[pool]

    def _newest(self, pool: PoolID) -> list[ResourceSlice]:
        slices = self._by_pool.get(pool, ())
        newest = max((one.spec.pool.generation for one in slices), default=0)
        return [one for one in slices if one.spec.pool.generation == newest]

    def device_of(self, id_: DeviceID) -> Device | None:
        """Return a published device of the newest generation that has it; None of one that is not published."""
        named = self._devices_named(id_)
        return named[0][1] if named else None

    def concerns(self, node: str) -> bool:
        """Return whether there is such a pool."""
        return bool(self._of_any or self._of_node.get(node))

    def pools_of(self, node: Node) -> list[NodePool]:
        """Return the pools whose devices the node may use, in the order in which they are tried: those without binding conditions
        first, then by driver and name."""
        known = self._pools.get(node.name)
        if known is not None and known[0] == node:
            return known[1]
        pools = [pool for id_ in sorted(self.may_concern(node.name)) if (pool := self._pool(id_, node)) is not None]
        pools.sort(key=lambda pool: pool.has_binding_conditions)
        self._pools[node.name] = node, pools
        return pools

    def _index(self, pool: PoolID) -> None:
        """Find the pool by the nodes of its slices, and forget what was put together of it."""
        slices = self._by_pool[pool]
        before, now = self._places.get(pool, frozenset()), frozenset(one.spec.node_name for one in slices)
        for node in before - now:
            self._of_node[node].discard(pool)
        for node in now - before:
            self._of_node[node].add(pool)
        if "" in before | now or pool in self._of_any:
            self._pools.clear()
        for node in before | now:
            self._pools.pop(node, None)
        self._of_any.discard(pool)
        if "" in now:
            self._of_any.add(pool)
        self._places[pool] = now
        self._named.pop(pool, None)
        self._cards.pop(pool, None)
        self._partitioned.pop(pool, None)
        if not slices:
            del self._by_pool[pool], self._places[pool]

    def consumption_of(self, id_: DeviceID) -> tuple[CounterConsumption, ...] | None:
        """Return the counters of a published device, of the newest generation that has it; None of one that is not published.

        Where slices of other nodes publish the same name, nobody knows which one is meant: all of them are counted."""
        named = self._devices_named(id_)
        return None if named is None else tuple(part for _, one in named for part in one.consumes_counters)

    def cards_of(self, id_: DeviceID) -> tuple[tuple[str, str], ...] | None:
        """Return the cards that a published device is of, each as the only node of its slice (empty: more than one) and a UUID;
        None of a device that is not published. Whoever publishes for one node says nothing of the cards of others."""
        named = self._devices_named(id_)
        return None if named is None else tuple((node, card) for node, one in named for card in cards_of(one, id_.driver))

    def _devices_named(self, id_: DeviceID) -> list[tuple[str, Device]] | None:
        pool = (id_.driver, id_.pool)
        if pool not in self._named:
            devices = self._named[pool] = defaultdict(list)
            for one in self._by_pool.get(pool, ()):
                for device in one.spec.devices:
                    node = one.spec.node_name or (device.node_name if one.spec.per_device_node_selection else "")
                    devices[device.name].append((one.spec.pool.generation, node, device))
        named = self._named[pool].get(id_.device)
        if not named:
            return None
        newest = max(generation for generation, _, _ in named)
        return [(node, one) for generation, node, one in named if generation == newest]

    def _pool(self, id_: PoolID, node: Node) -> NodePool | None:
        here = [one for one in self._by_pool[id_] if _concerns(one, node)]
        if not here:
            return None
        sets = [one for one in self._by_pool[id_] if one.spec.shared_counters and one not in here]
        generation = max(one.spec.pool.generation for one in here + sets)
        seen = [one for one in here + sets if one.spec.pool.generation == generation]
        everywhere, wanted = seen, seen[0].spec.pool.resource_slice_count
        if len(seen) != wanted:
            if any(one.spec.pool.generation > generation for one in self._by_pool[id_]):
                return None  # the driver replaces it, and the newer one has nothing for this node so far
            everywhere = [one for one in self._by_pool[id_] if one.spec.pool.generation == generation]
            if len(everywhere) != wanted:
                return NodePool(
                    id_, problem=f"incomplete, generation {generation}: {len(everywhere)} of {wanted} slices are there"
                )
        seen.sort(key=lambda one: one.name)
        problem = next(_flaws(seen, everywhere), "")
        if problem:
            return NodePool(id_, problem=f"invalid, generation {generation}: {problem}")
        counters = {one.name: one.counters for slice_ in seen for one in slice_.spec.shared_counters}
        conditions = any(device.binding_conditions for one in seen for device in one.spec.devices)
        return NodePool(id_, tuple(_devices(seen, node)), counters, conditions)


def _concerns(slice_: ResourceSlice, node: Node) -> bool:
    if slice_.spec.per_device_node_selection:
        return bool(slice_.spec.shared_counters) or any(map(node.is_selected, slice_.spec.devices))
    return node.is_selected(slice_)


def _devices(slices: Iterable[ResourceSlice], node: Node) -> Iterator[PooledDevice]:
    for slice_ in slices:
        for device in slice_.spec.devices:
            if not slice_.spec.per_device_node_selection or node.is_selected(device):
                size = 0 if device.allow_multiple_allocations else plain(size_of(device))
                yield PooledDevice(slice_.id_of(device), device, slice_, size)


def _flaws(seen: Iterable[ResourceSlice], everywhere: Iterable[ResourceSlice]) -> Iterator[str]:
    """Names that stand twice, and counters that no set has."""
    names: set[str] = set()
    sets: dict[str, Mapping[str, Counter]] = {}
    for slice_ in seen:
        for device in slice_.spec.devices:
            if device.name in names:
                yield f"two devices have the name {device.name}"
            names.add(device.name)
        for one in slice_.spec.shared_counters:
            if one.name in sets:
                yield f"two counter sets have the name {one.name}"
            sets[one.name] = one.counters
    for slice_ in everywhere:
        for device in slice_.spec.devices:
            for consumption in device.consumes_counters:
                missing = consumption.counters.keys() - sets.get(consumption.counter_set, {}).keys()
                if consumption.counter_set not in sets or missing:
                    lacking = f"counter {min(missing)} of " if consumption.counter_set in sets else ""
                    yield f"device {device.name} draws on {lacking}counter set {consumption.counter_set}, which is not there"
