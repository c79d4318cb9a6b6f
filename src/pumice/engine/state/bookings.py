"""What placed pods hold, and of which nodes: the ledger brought in line with what the API server shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from sys import intern

from pumice.devices.protocol import NO_MARKS, Family
from pumice.engine.state.agenda import Agenda
from pumice.engine.state.assignment_cache import AssignmentCache
from pumice.engine.state.bearers import Bearers
from pumice.engine.state.charges import Charges
from pumice.engine.state.classes import Classes, Kind
from pumice.engine.state.holdings import GOING, Hold, Holding
from pumice.engine.state.jobs import Task
from pumice.engine.state.ledger import Ledger
from pumice.engine.state.nodes import node_bytes
from pumice.engine.state.promises import Promises
from pumice.engine.state.reports import Reports
from pumice.engine.state.statuses import DONE_STATUSES, Status
from pumice.model.cards import Grant
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.device_reports import Reported
from pumice.wire.objects import Node, Pod

_pieces = attrgetter("pieces")


def _doubtful(holding: Holding) -> bool:
    """Whether something that its pod claims cannot be true, or is not known yet."""
    return any(grant.doubts or grant.pending for grant in holding.grants)


@dataclass(slots=True)
class Bookings:
    """Nodes, and what the pods there hold. ``tasks`` is the table that ``Pods`` writes."""

    agenda: Agenda
    bearers: Bearers
    problems: dict[str, str]
    ledger: Ledger
    classes: Classes
    charges: Charges
    promises: Promises
    tasks: Mapping[str, Task]
    nodes_changed: Callable[[], None] = lambda: None
    """Told that a node came or went, or has other labels."""
    reports: Reports = field(init=False)
    assignments: AssignmentCache = field(default_factory=AssignmentCache)
    """Of the pods that may hold cards: what a new inventory or family is replayed from."""

    def __post_init__(self) -> None:
        self.reports = Reports(self.problems)

    def hold(self, pod: Pod, kind: Kind, status: Status) -> None:
        """Bring the ledger in line with what the API server says of this pod."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if status in DONE_STATUSES:
            self.release(uid)
            return
        if not node:
            return
        task, name = self.tasks.get(uid), pod.metadata.name
        node = intern(node)
        if task is not None:
            uid, name = task.uid, task.name  # one string each, however many keep it
        grants = self._confirmed_grants(pod, kind, uid, name, node)
        if task is not None and task.features is not None:
            request, features, marks = task.request, task.features, task.marks
        else:
            request, features = kind.request, kind.features
            marks = self.classes.marks(pod) if grants else NO_MARKS
        before = self.ledger.holdings.get(uid)
        if before is not None and before.request != request:
            self.agenda.wake_waiting()  # resized in place: its queue may have room now
        self.ledger.confirm(Holding(uid, node, request, grants, Hold.CONFIRMED, marks, features))
        if task is not None and task.cls.quota_known_late:
            self._recharge(task, grants)
        if pod.metadata.deletion_timestamp:
            self.ledger.terminate(uid, shown=True)
            self.agenda.wake_waiting()

    # -- cards ----------------------------------------------------------------------------------------------------

    def _confirmed_grants(self, pod: Pod, kind: Kind, uid: str, name: str, node: str) -> tuple[Grant, ...]:
        held = self.ledger.holdings.get(uid)
        if held is not None and held.grants and held.node == node and held.state is Hold.CONFIRMED and not _doubtful(held):
            return held.grants  # annotations of a running pod do not move its cards
        return self._replay(pod, node) if self.assignments.keep(uid, name, pod, kind) else ()

    def _replay(self, pod: Pod, node: str) -> tuple[Grant, ...]:
        grants = []
        for name, book in self.ledger.books.items():
            known = book.nodes.get(node)
            if known is None:
                continue
            found = book.family.replay(pod, node, known.inventory, self.assignments.handed(pod.metadata.uid, node))
            if isinstance(found, Refusal):
                found = Grant(name, node, (), (found,))
            if found is not None:
                grants.append(found)
                if found.doubts:
                    self.problems[f"Pod {pod.key}"] = f"{name}: {found.doubts[0].field}: {found.doubts[0].text}"
        return tuple(grants)

    def _replay_node(self, node: str) -> None:
        """A node's cards are new or different: read again what its pods hold."""
        for uid in list(self.ledger.by_node.get(node, ())):
            holding = self.ledger.holdings[uid]
            if holding.state in (Hold.CONFIRMED, *GOING):
                pod = self.assignments.pod(uid, node)
                if pod is not None:
                    self._regrant(uid, pod, self._replay(pod, node))

    def _heed_plugin(self, node: str) -> None:
        """The node's plugin says something new of what it has handed out; nobody else writes that, so it counts."""
        for uid, holding in list(self.ledger.by_node.get(node, {}).items()):
            if holding.state not in (Hold.CONFIRMED, *GOING) or not (
                _doubtful(holding) or self.assignments.handed(uid, node)
            ):
                continue
            pod = self.assignments.pod(uid, node)
            if pod is not None and (grants := self._replay(pod, node)) != holding.grants:
                self._regrant(uid, pod, grants)
                self.agenda.wake_waiting()

    def _regrant(self, uid: str, pod: Pod, grants: tuple[Grant, ...]) -> None:
        task = self.tasks.get(uid)
        self.ledger.regrant(uid, grants, self.classes.marks(pod))
        if task is not None and task.cls.quota_known_late:
            self._recharge(task, grants)

    def _recharge(self, task: Task, grants: Sequence[Grant]) -> None:
        """Cards that are not registered for the moment (a plugin that restarts) cost its queue what they did; those of which
        nobody can tell which they are, as much as they may come to."""
        known = any(map(_pieces, grants))
        if known or (task.charged is None and any(grant.doubts for grant in grants)):
            charged = self.charges.of(task.cls, grants)
            if task.job is None:
                task.charged = charged  # it is about to join one
            else:
                task.job.recharge(task, charged)

    def set_families(self, families: Sequence[Family]) -> None:
        """Exchange the device families: read every node and its pods anew."""
        self.charges.forget()
        self.promises.drop_all()
        self.ledger.set_families(families)
        for node in self.ledger.table.row_of:
            self._replay_node(node)
            self._note_inventory(node)

    # -- nodes ----------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """A node was added or changed; a heartbeat that changes nothing that is read costs nothing."""
        name = node.metadata.name
        node.reports = self.reports.of(name)
        if self.bearers.comes("Node", name, node.metadata.uid):
            self._forget_node(name)
        row = self.ledger.table.row_of.get(name)
        news = self.assignments.hand_out(name, node.metadata.annotations.get(names.HANDED_OUT, ""))
        facts = self.ledger.table.facts[row] if row is not None else None
        if row is not None and facts is not None and facts.written == node_bytes(node):
            self.classes.images.put(row, node.status.images or (), len(self.ledger.table))
            if news:
                self._heed_plugin(name)
            return
        if row is None or facts is None or facts.labels != node.metadata.labels:
            self.nodes_changed()
        row, replayed = self._take_in(node)
        self.classes.images.put(row, node.status.images or (), len(self.ledger.table))
        if news and not replayed:
            self._heed_plugin(name)

    def _take_in(self, node: Node) -> tuple[int, bool]:
        """Its row, and whether its cards are others than before and its pods were read again."""
        name = node.metadata.name
        before = {family: book.nodes.get(name) for family, book in self.ledger.books.items()}
        row = self.ledger.put_node(node)
        replayed = any(book.nodes.get(name) is not before[family] for family, book in self.ledger.books.items())
        if replayed:
            self._replay_node(name)
        self._note_inventory(name)
        self.agenda.wake_waiting()
        return row, replayed

    def put_report(self, where: str, found: Reported | None) -> None:
        """What a ConfigMap (namespace/name) says of nodes; None when it is gone. A report that says the same as before costs
        nothing."""
        self._report(self.reports.put(where, found))

    def forget_reports(self) -> None:
        """Nobody follows the ConfigMaps any more."""
        self._report(self.reports.forget())

    def _report(self, changed: Iterable[str]) -> None:
        for name in changed:
            row = self.ledger.table.row_of.get(name)
            facts = self.ledger.table.facts[row] if row is not None else None
            if facts is not None:
                node = facts.node
                node.reports = self.reports.of(name)
                self._take_in(node)

    def release(self, uid: str) -> None:
        """The pod holds nothing any more."""
        self.assignments.drop(uid)
        if self.ledger.release(uid):
            self.agenda.wake_waiting()

    def tidy(self) -> None:
        """Give back the room of pods that are gone."""
        self.assignments.tidy()
        self.ledger.tidy()

    def drop_node(self, name: str, uid: str = "") -> None:
        if self.bearers.goes("Node", name, uid):
            self._forget_node(name)

    def _forget_node(self, name: str) -> None:
        row = self.ledger.table.row_of.get(name)
        self.promises.drop_node(name)
        self.ledger.remove_node(name)
        self.nodes_changed()
        self.agenda.wake_waiting()  # whoever was kept away from other nodes by the pods that were seen there
        if row is not None:
            self.classes.images.remove(row, len(self.ledger.table))
        self.assignments.hand_out(name, "")
        self.problems.pop(f"Node {name}", None)

    def _note_inventory(self, name: str) -> None:
        found = [
            f"{family}: {problem}"
            for family, book in self.ledger.books.items()
            if name in book.nodes
            for problem in book.nodes[name].inventory.problems
        ]
        if found:
            self.problems[f"Node {name}"] = "; ".join(found)
        else:
            self.problems.pop(f"Node {name}", None)

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Labels of a namespace, which pod (anti-)affinity may select by; None when it is gone."""
        before = self.ledger.terms.version
        self.ledger.terms.put_namespace(name, labels)
        if self.ledger.terms.version == before:
            return
        self.agenda.wake_waiting()  # who refuses to be near whom may have changed anywhere
        if self.agenda.sleeping:
            for row in self.ledger.table.row_of.values():
                self.ledger.table.touch(row, gain=True)
