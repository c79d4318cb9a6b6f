"""HyperNodes as the watch shows them, and the tree that they and the nodes make, grown when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pumice.engine.state.agenda import Agenda
from pumice.engine.state.domains import Claim, Tree, grow
from pumice.engine.state.ledger import Ledger
from pumice.wire.topology import Condition, HyperNode, HyperNodeStatus

ACCEPTED = "Accepted"
MOST_WORDS = 1024


@dataclass(slots=True)
class HyperNodes:
    agenda: Agenda
    ledger: Ledger
    problems: dict[str, str]
    known: dict[str, HyperNode] = field(default_factory=dict)
    untold: bool = False
    """Something changed since the objects' statuses were last compared with the tree."""
    _tree: Tree | None = None

    def put(self, hyper_node: HyperNode) -> None:
        name = hyper_node.metadata.name
        before = self.known.get(name)
        self.known[name] = hyper_node
        self.untold = True
        if before is None or before.spec != hyper_node.spec or before.metadata.uid != hyper_node.metadata.uid:
            self._changed()

    def drop(self, name: str) -> None:
        if self.known.pop(name, None) is not None:
            self.problems.pop(f"HyperNode {name}", None)
            self._changed()

    def nodes_changed(self) -> None:
        """A node came or went, or has other labels."""
        self._tree = None
        self.untold = self.untold or bool(self.known)

    def _changed(self) -> None:
        self.nodes_changed()
        self.agenda.wake_waiting()  # who waits for room behind one switch is looked at anew

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            terms, table = self.ledger.terms, self.ledger.table
            self._tree = grow(self.known.values(), table.row_of, terms.labels, table.capacity)
        return self._tree

    def news(self, now: str) -> Iterator[HyperNode]:
        """HyperNodes whose status does not say what became of them, with one that does: how many nodes they have, and whether
        all of their members count. What is told is taken for written."""
        if not self.untold:
            return
        self.untold = False
        for name, claim in self.tree.claims.items():
            known, number, condition = self.known[name], len(self.tree.domains[name].members), _condition(claim)
            mine = next((mine for mine in known.status.conditions if mine.type == ACCEPTED), None)
            if claim.refused:
                self.problems[f"HyperNode {name}"] = "; ".join(claim.refused)
            else:
                self.problems.pop(f"HyperNode {name}", None)
            if known.status.node_count == number and mine is not None and mine.same(condition):
                continue
            if mine is None or mine.status != condition.status:
                condition.last_transition_time = now
            else:
                condition.last_transition_time = mine.last_transition_time or now
            others = [other for other in known.status.conditions if other is not mine]
            known.status = HyperNodeStatus(number, [*others, condition])
            yield known


def _condition(claim: Claim) -> Condition:
    text = "; ".join([*claim.refused, *claim.remarks])[:MOST_WORDS]
    if claim.refused:
        return Condition(ACCEPTED, "False", "MembersRefused", text)
    return Condition(ACCEPTED, "True", "MembersMissing" if claim.remarks else ACCEPTED, text)
