"""Usage of nodes by pods that no queue of ours pays for: those of other schedulers, and those that were bound by hand."""

from __future__ import annotations

from dataclasses import dataclass, field

from pumice.engine.state.nodes import NodeTable
from pumice.engine.state.resources import Request, Vector, add, exceeded, subtract


@dataclass(slots=True)
class Elsewhere:
    """By node and in all, kept up as such pods come and go."""

    table: NodeTable
    _by_uid: dict[str, tuple[str, Request]] = field(default_factory=dict)
    _by_node: dict[str, Vector] = field(default_factory=dict)
    _held: Vector = field(default_factory=dict)
    """By those on nodes that are known."""
    _nodes: int = -1
    """Version of the nodes of which that is true."""

    def hold(self, uid: str, node: str, request: Request) -> None:
        """Such a pod has a place, or asks for another amount there."""
        if self._by_uid.get(uid) == (node, request):
            return
        self.release(uid)
        self._by_uid[uid] = node, request
        add(self._by_node.setdefault(node, {}), request.items)
        if node in self.table.row_of:
            add(self._held, request.items)

    def release(self, uid: str) -> None:
        """It has ended, or is gone."""
        found = self._by_uid.pop(uid, None)
        if found is None:
            return
        node, request = found
        subtract(self._by_node[node], request.items)
        if not any(self._by_node[node].values()):
            del self._by_node[node]
        if node in self.table.row_of:
            subtract(self._held, request.items)

    def left(self) -> Vector:
        """Return what of the nodes queues can have; a resource of which nothing is left is named still."""
        if self._nodes != self.table.version:
            self._nodes, self._held = self.table.version, {}
            for node in self._by_node.keys() & self.table.row_of.keys():
                add(self._held, self._by_node[node].items())
        if not self._held:
            return self.table.total
        return {**dict.fromkeys(self.table.total, 0), **exceeded(self.table.total, self._held)}
