"""What placed pods hold, and of which nodes: the ledger brought in line with what the API server shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import intern

from pumice.engine.state.assignment_cache import AssignmentCache
from pumice.engine.state.classes import Classes, Kind, PodClass
from pumice.engine.state.device_table import NO_MARKS
from pumice.engine.state.groups import Groups
from pumice.engine.state.images import Images, images_of
from pumice.engine.state.jobs import DONE_STATUSES, Status, Task
from pumice.engine.state.ledger import GOING, Hold, Holding, Ledger, Receipt
from pumice.engine.state.nodes import node_bytes
from pumice.engine.state.queues import QueueState
from pumice.engine.state.resources import Vector, shared
from pumice.engine.state.volumes import Volumes
from pumice.families.protocol import Family
from pumice.families.settings import Settings
from pumice.model.cards import Grant
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.objects import Node, Pod


def _doubtful(holding: Holding) -> bool:
    """Whether something that its pod claims cannot be true."""
    return any(grant.doubts for grant in holding.grants)


@dataclass(slots=True)
class Bookings(Groups):
    """Nodes, pods that are known, and the books."""

    ledger: Ledger = field(default_factory=Ledger)
    classes: Classes = field(default_factory=Classes)
    tasks: dict[str, Task] = field(default_factory=dict)
    volumes: Volumes = field(default_factory=Volumes)
    settings: Settings = field(default_factory=Settings)
    """The arguments of deviceshare: how much the cards' score counts between nodes."""
    assignments: AssignmentCache = field(default_factory=AssignmentCache)
    """Of the pods that may hold cards: what a new inventory or family is replayed from."""
    evictions: dict[str, tuple[Receipt, Status]] = field(default_factory=dict)
    """Pods that are being evicted and of which the watch shows nothing of it yet: proof of the end in the ledger, and what it
    shows instead."""
    leaving: dict[str, float] = field(default_factory=dict)
    """Terminating pods by uid, and when they should be gone at the latest."""
    _expected: dict[PodClass, tuple[int, Vector]] = field(default_factory=dict)

    @property
    def images(self) -> Images:
        """Which images the nodes have."""
        return self.classes.images

    def _hold(self, pod: Pod, kind: Kind, status: Status) -> None:
        """Bring the ledger in line with what the API server says of this pod."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if status in DONE_STATUSES:
            if self.ledger.release(uid):
                self.wake_waiting()
            self.assignments.drop(uid)
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
        if (features.anti or features.preferred) and not self.classes.labels_matter:
            self.classes.mind_labels()
            self.reclass_pending()
        before = self.ledger.holdings.get(uid)
        if before is not None and before.request != request:
            self.wake_waiting()  # resized in place: its queue may have room now
        self.ledger.confirm(Holding(uid, node, request, grants, Hold.CONFIRMED, marks, features))
        if task is not None and task.cls.quota_known_late:
            self._recharge(task, grants)
        if pod.metadata.deletion_timestamp:
            self.ledger.terminate(uid)
            self.wake_waiting()

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
                self.wake_waiting()

    def _regrant(self, uid: str, pod: Pod, grants: tuple[Grant, ...]) -> None:
        task = self.tasks.get(uid)
        self.ledger.regrant(uid, grants, self.classes.marks(pod))
        if task is not None and task.cls.quota_known_late:
            self._recharge(task, grants)

    # -- what queues are charged for cards ------------------------------------------------------------------------

    def charged(self, cls: PodClass, grants: Sequence[Grant]) -> Vector | None:
        """What a queue is charged for a pod with these cards; None where that is what the class says, or no card is known."""
        if not cls.quota_known_late:
            return None
        wanted = {ask.family for ask in cls.quota_known_late}
        amounts: Vector = {}
        for grant in grants:
            book = self.ledger.books.get(grant.family)
            if book is not None and grant.family in wanted and grant.pieces:
                amounts.update((name, value * 1000) for name, value in book.family.quota_of_grant(grant).items())
        if all(cls.amounts.get(name, 0) == value for name, value in amounts.items()):
            return None
        return shared({**cls.amounts, **amounts})

    def expected_of(self, queue: QueueState) -> Vector:
        """The most that the queue's pending pods of quota_known_late classes may come to, over its ``pending``."""
        version = sum(book.card_kinds_version for book in self.ledger.books.values())
        if queue.expected is None or queue.expected[0] != version:
            queue.expected, queue.news = (version, {}), list(queue.quota_known_late.items())
        total = queue.expected[1]
        for cls, number in queue.news:
            for name, value in self._over_demand(cls, version).items():
                total[name] = total.get(name, 0) + value * number
        queue.news.clear()
        return total

    def _over_demand(self, cls: PodClass, version: int) -> Vector:
        """The most that one pod of a vague class may come to, over its ``demand``."""
        known = self._expected.get(cls)
        if known is None or known[0] != version:
            more: Vector = {}
            for ask in cls.quota_known_late:
                book = self.ledger.books.get(ask.family)
                if book is not None:
                    most = book.family.quota_bound(ask, book.card_kinds)
                    over = {name: value * 1000 - cls.amounts.get(name, 0) for name, value in most.items()}
                    more |= {name: value for name, value in over.items() if value > 0}
            if len(self._expected) > 10_000:
                self._expected.clear()
            known = self._expected[cls] = version, more
        return known[1]

    def _recharge(self, task: Task, grants: Sequence[Grant]) -> None:
        if task.job is not None:
            task.job.recharge(task, self.charged(task.cls, grants))

    def set_families(self, families: Sequence[Family], settings: Settings) -> None:
        """Exchange the device families (the configuration or the device ConfigMap changed)."""
        self.settings = settings
        self.classes.set_families(families)
        self._expected.clear()
        for queue in self.queues.values():
            queue.expected = None
            queue.news.clear()
        self.ledger.set_families(families)
        for node in self.ledger.table.row_of:
            self._replay_node(node)
            self._note_inventory(node)
        self.reclass_pending()

    # -- nodes ----------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """A node was added or changed; a heartbeat that changes nothing that is read costs nothing."""
        name = node.metadata.name
        if self.bearers.comes("Node", name, node.metadata.uid):
            self._forget_node(name)
        row = self.ledger.table.row_of.get(name)
        news = self.assignments.hand_out(name, node.metadata.annotations.get(names.HANDED_OUT, ""))
        if row is not None:
            facts = self.ledger.table.facts[row]
            if facts is not None and facts.written == node_bytes(node):
                self.images.put(row, node.status.images or (), len(self.ledger.table))
                if news:
                    self._heed_plugin(name)
                return
        before = {family: book.nodes.get(name) for family, book in self.ledger.books.items()}
        row = self.ledger.put_node(node)
        self.images.put(row, node.status.images or (), len(self.ledger.table))
        if any(book.nodes.get(name) is not before[family] for family, book in self.ledger.books.items()):
            self._replay_node(name)
        elif news:
            self._heed_plugin(name)
        self._note_inventory(name)
        self.wake_waiting()

    def drop_node(self, name: str, uid: str = "") -> None:
        if self.bearers.goes("Node", name, uid):
            self._forget_node(name)

    def _forget_node(self, name: str) -> None:
        row = self.ledger.table.row_of.get(name)
        self.ledger.remove_node(name)
        self.wake_waiting()  # whoever was kept away from other nodes by the pods that were seen there
        if row is not None:
            self.images.remove(row, len(self.ledger.table))
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
        if self.sleeping and self.ledger.terms.version != before:  # who refuses to be near whom may have changed anywhere
            for row in self.ledger.table.row_of.values():
                self.ledger.table.touch(row, gain=True)

    def count_images(self, *, counted: bool) -> None:
        """Whether some plugin scores by images."""
        if self.images.counted != counted:
            self.images.counted = counted
            self.classes.set_families(self.classes.families)  # no class is what it was
            self.reclass_pending()

    def sort_by_images(self) -> None:
        """Nodes have images that none had before: pods that wait for a node with them are no longer like others."""
        fresh, self.images.fresh = self.images.fresh, set()
        if not self.images.counted:
            return
        self.classes.mind_images(fresh)
        for job in self.jobs.values():
            for task in list(job.pending.values()):
                if task.pod is not None and not fresh.isdisjoint(images_of(task.pod.spec)):
                    self._reclass(task, task.pod)
                    self.activate(job)

    def storage_changed(self) -> None:
        """Claims, volumes, storage classes or what nodes may attach changed: pods with claims may fit elsewhere now."""
        self.volumes.version += 1

    # -- classes of pending pods ----------------------------------------------------------------------------------

    def _reclass(self, task: Task, pod: Pod, kind: Kind | None = None) -> None:
        """A pending pod may change what it asks for (annotations, gates, tolerations)."""
        cls = self.classes.of(pod, kind)
        if cls is task.cls:
            return
        job, status = task.job, task.status
        if job is not None:
            job.leave(task)
        task.cls.users -= 1
        cls.users += 1
        task.cls, task.status, task.hopeless = cls, status, False
        holding = self.ledger.holdings.get(task.uid)
        task.charged = self.charged(cls, holding.grants) if holding is not None else None
        if job is not None:
            job.join(task)
        self._notice_terms(cls)

    def _revise(self, task: Task, pod: Pod, kind: Kind) -> None:
        """A placed pod may be resized in place, or labelled anew: others see that."""
        if kind.features is not task.features or kind.request != task.request:
            task.features = kind.features
            self._reclass(task, pod, kind)

    def _notice_terms(self, cls: PodClass) -> None:
        """Once somebody minds other pods' labels, labels must tell classes apart."""
        constraints = cls.constraints
        if self.classes.labels_matter or not (constraints.anti_affinity or constraints.preferred_pods):
            return
        self.classes.mind_labels()
        self.reclass_pending()

    def reclass_pending(self) -> None:
        """Work out the class of every pending pod anew."""
        for task in self.tasks.values():
            if task.pod is not None:
                self._reclass(task, task.pod)
                if task.job is not None:
                    self.activate(task.job)
