"""The cards of one device type: of each node what it has, what is allocated on each, and the same as arrays.

Only the ledger writes here. ``Usage`` rows are exact (who holds what). Arrays repeat their sums so that a device type can rank
nodes at once (``card_states``). Both are changed by the same two functions, ``charge`` and ``discharge``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from pumice.devices.protocol import (
    NO_MARKS,
    DeviceRequest,
    DeviceSharing,
    Fit,
    Inventory,
    Marks,
    NodeCards,
    Ranking,
)
from pumice.model.cards import Allocation, Mode
from pumice.model.refusal import FitError, Refusal
from pumice.scheduler.state.card_states import CardStates, NamedNodes, State
from pumice.scheduler.state.node_devices import CardUse, NodeDevices

_UNUSED: CardUse = (0, 0, 0, -1)
ALIKE_KEPT = 2048
UNSURE_REFUSED = 32
"""Unlike states of which an ask cannot tell by arrays that are looked at in vain, in one ranking; the others are left out."""


class DeviceTable:
    """All nodes of one device type."""

    def __init__(self, device_type: DeviceSharing) -> None:
        self.device_type = device_type
        self._ranking = device_type.ranking
        self.nodes: dict[str, NodeDevices] = {}
        self.nodes_with: dict[str, tuple[str, ...]] = {}
        """By the UUID of a card; a UUID on two nodes is a mistake, and both are meant by it."""
        self.states = CardStates()
        self._rows: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._unsure = False
        """True where the last ranking of the device type left some nodes to the exact look."""
        self._named = NamedNodes(self.nodes)
        self._behind: dict[str, set[int]] = {}
        """Nodes whose state is not written yet, and the places of the cards that changed."""
        self._alike: dict[Any, Any] = {}
        """Values that many states have in common, each once."""
        self._empty: dict[Hashable, State] = {}
        """States of nodes on which nothing is booked: most of those that a new cluster shows are in one."""
        self.card_kinds: Counter[Hashable] = Counter()
        """``LateQuota.card_kinds`` of all nodes, and how many nodes have each."""
        self.card_kinds_version = 0
        """Raised when a kind comes or goes."""

    # -- nodes --------------------------------------------------------------------------------------------------

    def put(self, name: str, row: int, inventory: Inventory | None, rows: int) -> bool:
        """Set a node's inventory. True when it changed: usage is then empty and must be charged again."""
        old = self.nodes.get(name)
        if inventory is None:
            if old is None:
                return False
            self.remove(name)
            return True
        if old is not None and old.inventory == inventory and self._rows.get(name) == row:
            return False
        if old is not None:
            self._named.forget(old)
            self._behind.pop(name, None)  # its places may be fewer now
            self._count_kinds(old.inventory, -1)
            self._forget_cards(old)
        node_devices = NodeDevices.empty(name, inventory)
        for card in inventory.cards:
            self.nodes_with[card.uuid] = (*self.nodes_with.get(card.uuid, ()), name)
        self.nodes[name], self._rows[name], self._names[row] = node_devices, row, name
        self._named.add(node_devices)
        self._count_kinds(inventory, 1)
        self.states.fit_rows(rows)
        self._write_empty(node_devices, row)
        return True

    def remove(self, name: str) -> None:
        node_devices = self.nodes.pop(name, None)
        if node_devices is not None:
            self._named.forget(node_devices)
            self._behind.pop(name, None)
            self._count_kinds(node_devices.inventory, -1)
            self._forget_cards(node_devices)
        row = self._rows.pop(name, None)
        if row is not None:
            del self._names[row]
            self.states.put(row, None)

    def _forget_cards(self, node_devices: NodeDevices) -> None:
        for uuid in node_devices.by_uuid:
            left = tuple(name for name in self.nodes_with.pop(uuid, ()) if name != node_devices.name)
            if left:
                self.nodes_with[uuid] = left

    def _count_kinds(self, inventory: Inventory, sign: int) -> None:
        if self.device_type.late_quota is None:
            return
        before = len(self.card_kinds)
        for kind in self.device_type.late_quota.card_kinds(inventory):
            self.card_kinds[kind] += sign
            if not self.card_kinds[kind]:
                del self.card_kinds[kind]
                before = -1
        if len(self.card_kinds) != before:
            self.card_kinds_version += 1

    def kind_of(self, inventory: Inventory) -> Hashable:
        """Equal for nodes whose cards are alike while nothing is booked there; None where each has to be looked at."""
        return None if self._ranking is None else self._ranking.empty_kind(inventory)

    def view(self, name: str, *, without: Iterable[str] = (), plus: Mapping[str, Allocation] | None = None) -> NodeCards:
        """One node as ``DeviceSharing.fit`` sees it; see ``NodeDevices.view``."""
        return self.nodes[name].view(without=without, plus=plus)

    # -- usage --------------------------------------------------------------------------------------------------

    def charge(self, uid: str, allocation: Allocation, marks: Marks = NO_MARKS) -> None:
        """Book a grant. Pieces on cards that are not registered (any more) are not charged anywhere."""
        node_devices = self.nodes.get(allocation.node)
        if node_devices is None:
            return
        places = node_devices.charge(uid, allocation, marks)
        if uid in node_devices.marks:
            self._named.note(node_devices, node_devices.marks[uid], 1)
        if places or allocation.doubts:
            self._write(node_devices, places, facts=bool(allocation.doubts))

    def discharge(self, uid: str, allocation: Allocation) -> None:
        """The exact reverse of ``charge``."""
        node_devices = self.nodes.get(allocation.node)
        if node_devices is None:
            return
        if uid in node_devices.marks:
            self._named.note(node_devices, node_devices.marks[uid], -1)
        places, doubted = node_devices.discharge(uid)
        self._write(node_devices, places, facts=doubted)

    def quarantine(self, name: str, holder: str, doubts: tuple[Refusal, ...]) -> bool:
        """See ``NodeDevices.quarantine``."""
        node_devices = self.nodes[name]
        changed = node_devices.quarantine(holder, doubts)
        if changed:
            self._write(node_devices, (), facts=True)
        return changed

    def remark(self, uid: str, allocation: Allocation, marks: Marks) -> bool:
        """The marks of a pod that is booked here are others now. Whether some ask looks at marks."""
        node_devices = self.nodes.get(allocation.node)
        if node_devices is None:
            return False
        if uid in node_devices.marks:
            self._named.note(node_devices, node_devices.marks[uid], -1)
        node_devices.remark(uid, allocation, marks)
        if uid in node_devices.marks:
            self._named.note(node_devices, node_devices.marks[uid], 1)
        return self._ranking is None or self._named.asked_for_marks

    # -- arrays -------------------------------------------------------------------------------------------------

    def rank(
        self, device_request: DeviceRequest, rows: NDArray[np.intp] | None, capacity: int, among: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        """(may fit, score) of those rows of the node table, or of all, where ``among`` holds; None when the ask needs the
        exact look on every node. Nodes with cards or pods that the ask names are looked at exactly."""
        if self._ranking is None:
            return None
        split = self._ranking.without_constraints(device_request)
        plain = device_request if split is None else split.device_request
        ranked = None if plain is None else self._rank(self._ranking, plain, rows, capacity)
        if ranked is None:
            if plain is not None:
                return None
            size = capacity if rows is None else len(rows)
            ranked = np.zeros(size, bool), np.zeros(size)
        may, score = ranked
        if split is None and not self._unsure:
            return may, score
        exact = np.isnan(score)
        named = np.zeros(len(exact), bool)
        if split is not None:
            special = np.array([self._rows[name] for name in self._named.of(split)], np.intp)
            if rows is None:
                named[special] = True
            else:
                named |= np.isin(rows, special)
        exact |= named
        places = np.flatnonzero(exact if among is None else exact & among)
        known: dict[int, Fit | None] = {}
        refused = 0
        for place in places.tolist():
            row = place if rows is None else int(rows[place])
            name = self._names.get(row)
            state = 0 if named[place] else int(self.states.ids[row])  # nodes of one state answer alike, unless the ask names them
            if state in known:
                fit = known[state]
            elif name is None or (state and refused >= UNSURE_REFUSED):
                fit = None
            else:
                fit = self.device_type.quick(device_request, self.view(name))
                refused += bool(state) and fit is None
            if state:
                known[state] = fit
            may[place] = fit is not None
            score[place] = fit.score if fit is not None else 0.0
        return may, score

    def by_counters(self, device_request: DeviceRequest) -> bool:
        """Return whether nodes with equal cards, equally used, give equal answers to the ask."""
        ranking = self._ranking
        if ranking is None or ranking.without_constraints(device_request) is not None:
            return False
        return ranking.vector(device_request, self.states.part(slice(0, 1))) is not None

    def alike(self, device_request: DeviceRequest) -> Callable[[int], int | None]:
        """A row's number: nodes of one number refuse the ask in the same words, names and UUIDs apart. None: look at that node
        itself, because the ask names something there, or a card is closed for a reason that the arrays do not hold."""
        if self._ranking is None:
            return lambda row: None
        self._catch_up()
        split = self._ranking.without_constraints(device_request)
        named = set() if split is None else {self._rows[name] for name in self._named.of(split)}

        def number(row: int) -> int | None:
            found = int(self.states.ids[row]) if row < len(self.states.ids) and row not in named else 0
            state = self.states[found]
            return found if state is not None and all(facts[2] for facts in state[0]) else None

        return number

    def moved(self, fit_error: FitError, node: str, other: str) -> FitError:
        """A node's refusal as that of another node of the same number."""
        places, cards = self.nodes[node].by_uuid, self.nodes[other].inventory.cards
        own = tuple(replace(card, uuid=cards[places[card.uuid]].uuid) for card in fit_error.cards)
        return replace(fit_error, node=other, cards=own, detail="")

    def _rank(
        self, ranking: Ranking, device_request: DeviceRequest, rows: NDArray[np.intp] | None, capacity: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]] | None:
        self.states.fit_rows(capacity)
        self._catch_up()
        ids = self.states.ids[:capacity] if rows is None else self.states.ids[rows]
        used = len(self.states)
        chosen: Any = slice(0, used)
        place: NDArray[Any] = ids
        if rows is not None and len(rows) < used:
            chosen, place = np.unique(ids, return_inverse=True)
        ranked = ranking.vector(device_request, self.states.part(chosen))
        if ranked is None:
            return None
        self._unsure = bool(np.isnan(ranked[1]).any())
        return ranked[0][place] & (ids > 0), ranked[1][place]

    def has_cards(self, rows: NDArray[np.intp] | None, capacity: int) -> NDArray[np.bool_]:
        self.states.fit_rows(capacity)
        self._catch_up()
        return np.asarray((self.states.ids[:capacity] if rows is None else self.states.ids[rows]) > 0)

    def state_of(self, row: int) -> int:
        """Number of the state of a row's cards: equal numbers mean equal cards, equally used (uuids apart)."""
        self._catch_up()
        return int(self.states.ids[row])

    def states_of(self, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        """Return the same of many rows."""
        self._catch_up()
        return self.states.ids[rows]

    def devices_on(self, row: int) -> NodeDevices | None:
        """Return the node's cards of that row; None where there are none."""
        name = self._names.get(row)
        return None if name is None else self.nodes[name]

    def free(self, rows: NDArray[np.intp] | None, capacity: int) -> NDArray[np.float64]:
        """Per row how many cards' worth of memory is left on open cards."""
        self.states.fit_rows(capacity)
        self._catch_up()
        ids = self.states.ids[:capacity] if rows is None else self.states.ids[rows]
        chosen: Any = slice(0, len(self.states)) if rows is None else ids
        columns = self.states.columns
        total, memory, open_cards = columns.total[chosen], columns.memory[chosen], columns.flags[chosen]
        left = np.where(open_cards, np.maximum(total - memory, 0) / np.maximum(total, 1), 0.0).sum(axis=1)
        return np.asarray(left[ids] if rows is None else left)

    def free_memory(self, rows: NDArray[np.intp], capacity: int) -> NDArray[np.int64]:
        """Per row what is left of the cards' memory, in its units, whether somebody may have it or not."""
        self.states.fit_rows(capacity)
        self._catch_up()
        ids = self.states.ids[rows]
        columns = self.states.columns
        return np.asarray(np.maximum(columns.total[ids] - columns.memory[ids], 0).sum(axis=1))

    def largest(self) -> int:
        """Memory of the largest card, in its units; 0 without cards."""
        self._catch_up()
        return int(self.states.columns.total.max(initial=0))

    def _write(self, node_devices: NodeDevices, places: Iterable[int], *, facts: bool) -> None:
        """Usage of some cards changed, or what the cards are. The arrays follow when they are next looked at: a pod that
        comes with thousands of others costs one writing a node, not one each."""
        node_devices.version += 1
        if facts:
            self._write_facts(node_devices)
        behind = self._behind.get(node_devices.name)
        if behind is None:
            self._behind[node_devices.name] = set(places)
        else:
            behind.update(places)

    def _write_empty(self, node_devices: NodeDevices, row: int) -> None:
        """A node comes on which nothing is booked yet. Where an equal one is known its state is, and the first decision of a
        new cluster has no node to look through."""
        places = range(len(node_devices.usages))
        kind = self.kind_of(node_devices.inventory)
        if kind is None:
            self._write(node_devices, places, facts=True)
            return
        node_devices.version += 1
        self._write_facts(node_devices)
        key = node_devices.facts, kind
        state = self._empty.get(key)
        if state is None:
            if len(self._empty) > ALIKE_KEPT:
                self._empty.clear()
            state = self._empty[key] = node_devices.facts, self._used(node_devices, row, places)
        self.states.put(row, state if node_devices.facts else None)

    def _write_facts(self, node_devices: NodeDevices) -> None:
        closed = node_devices.quarantined() if node_devices.doubts else {}
        written = tuple(
            (card.total, card.shares, card.healthy and not card.blocked and place not in closed,
             card.mode is Mode.MIG, self.states.type_id(card.type))
            for place, card in enumerate(node_devices.inventory.cards)
        )  # fmt: skip
        node_devices.facts = self._alike.setdefault(written, written)

    def _catch_up(self) -> None:
        """Bring the state of every node that changed up to date."""
        if not self._behind:
            return
        if len(self._alike) > ALIKE_KEPT:
            self._alike.clear()
        for name, places in self._behind.items():
            node_devices, row = self.nodes[name], self._rows[name]
            self.states.put(row, (node_devices.facts, self._used(node_devices, row, places)) if node_devices.facts else None)
        self._behind.clear()

    def _used(self, node_devices: NodeDevices, row: int, places: Iterable[int]) -> tuple[CardUse, ...]:
        before = self.states.of(row)
        used = [_UNUSED] * len(node_devices.usages)
        if before is not None and len(before[1]) == len(used):
            used[:] = before[1]
        for place in places:
            u = node_devices.usages[place]
            state = -1 if self._ranking is None else self._ranking.card_state(place, u, node_devices.inventory)
            use = (u.memory, u.cores, u.shares, state)
            used[place] = self._alike.setdefault(use, use)
        return tuple(used)
