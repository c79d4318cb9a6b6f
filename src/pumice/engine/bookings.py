"""What placed pods hold, and of which nodes: the ledger brought in line with what the API server shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pumice.engine.classes import Classes, PodClass
from pumice.engine.groups import Groups
from pumice.engine.ledger import Hold, Holding, Ledger
from pumice.engine.model import DONE_STATUSES, Status, Task
from pumice.engine.node_book import NO_MARKS
from pumice.engine.volumes import Volumes
from pumice.families.seam import Family
from pumice.families.settings import Settings
from pumice.model.cards import Grant
from pumice.model.refusal import Refusal
from pumice.wire.objects import Container, Meta, Node, Pod, PodSpec, Resources, decode

_pack = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Bookings(Groups):
    """Nodes, pods that are known, and the books."""

    ledger: Ledger = field(default_factory=Ledger)
    classes: Classes = field(default_factory=Classes)
    tasks: dict[str, Task] = field(default_factory=dict)
    volumes: Volumes = field(default_factory=Volumes)
    settings: Settings = field(default_factory=Settings)
    """The arguments of deviceshare: how much the cards' score counts between nodes."""
    evidence: dict[str, bytes] = field(default_factory=dict)
    """Trimmed pods that may hold cards, packed: what a new inventory or family is replayed from."""

    def _hold(self, pod: Pod, status: Status) -> None:
        """Bring the ledger in line with what the API server says of this pod."""
        uid, node = pod.metadata.uid, pod.spec.node_name
        if status in DONE_STATUSES:
            if self.ledger.release(uid):
                self.wake_waiting()
            self.evidence.pop(uid, None)
            return
        if not node:
            return
        grants = self._confirmed_grants(pod, node)
        task = self.tasks.get(uid)
        if task is not None and task.features is not None:
            request, features = task.request, task.features
            marks = task.marks
        else:
            request, features = self.classes.request(pod), self.classes.features(pod)
            marks = self.classes.marks(pod) if grants else NO_MARKS
        if (features.anti or features.preferred) and not self.classes.labels_matter:
            self.classes.labels_matter = True
            self.reclass_pending()
        self.ledger.confirm(Holding(uid, node, request, grants, Hold.CONFIRMED, marks, features))
        if pod.metadata.deletion_timestamp:
            self.ledger.terminate(uid)
            self.wake_waiting()

    # -- cards ----------------------------------------------------------------------------------------------------

    def _confirmed_grants(self, pod: Pod, node: str) -> tuple[Grant, ...]:
        uid = pod.metadata.uid
        if not self.ledger.books:
            if _may_hold_cards(pod):
                self.evidence[uid] = _pack(trim(pod))
            return ()
        held = self.ledger.holdings.get(uid)
        if held is not None and held.grants and held.node == node and held.state is Hold.CONFIRMED:
            return held.grants  # annotations of a running pod do not move its cards
        if _may_hold_cards(pod):
            self.evidence[uid] = _pack(trim(pod))
            return self._replay(pod, node)
        return ()

    def _replay(self, pod: Pod, node: str) -> tuple[Grant, ...]:
        grants = []
        for name, book in self.ledger.books.items():
            known = book.nodes.get(node)
            if known is None:
                continue
            found = book.family.replay(pod, node, known.inventory)
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
            packed = self.evidence.get(uid)
            holding = self.ledger.holdings[uid]
            if packed is not None and holding.state in (Hold.CONFIRMED, Hold.TERMINATING):
                pod = decode(Pod, packed)
                self.ledger.regrant(uid, self._replay(pod, node), self.classes.marks(pod))

    def set_families(self, families: Sequence[Family], settings: Settings) -> None:
        """Exchange the device families (the configuration or the device ConfigMap changed)."""
        self.settings = settings
        self.classes.set_families(families)
        self.ledger.set_families(families)
        for node in self.ledger.table.row_of:
            self._replay_node(node)
            self._note_inventory(node)
        self.reclass_pending()

    # -- nodes ----------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """A node was added or changed; a heartbeat that changes nothing that is read costs nothing."""
        name = node.metadata.name
        row = self.ledger.table.row_of.get(name)
        if row is not None:
            facts = self.ledger.table.facts[row]
            if facts is not None and _same_node(facts.node, node):
                return
        before = {family: book.nodes.get(name) for family, book in self.ledger.books.items()}
        self.ledger.put_node(node)
        if any(book.nodes.get(name) is not before[family] for family, book in self.ledger.books.items()):
            self._replay_node(name)
        self._note_inventory(name)
        self.wake_waiting()

    def drop_node(self, name: str) -> None:
        self.ledger.remove_node(name)
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
        self.ledger.terms.put_namespace(name, labels)

    def storage_changed(self) -> None:
        """Claims, volumes or storage classes changed: pods with claims may fit elsewhere now."""
        table = self.ledger.table
        for cls in list(self.sleeping):
            if cls.constraints.claims:
                self.wake(cls)
        if any(t.cls.constraints.claims for t in self.tasks.values() if t.pod is not None):
            for row in table.row_of.values():
                table.touch(row, gain=True)

    # -- classes of pending pods ----------------------------------------------------------------------------------

    def _reclass(self, task: Task, pod: Pod) -> None:
        """A pending pod may change what it asks for (annotations, gates, tolerations)."""
        cls = self.classes.of(pod)
        if cls is task.cls:
            return
        job, status = task.job, task.status
        if job is not None:
            job.leave(task)
        task.cls.users -= 1
        cls.users += 1
        task.cls, task.status = cls, status
        if job is not None:
            job.join(task)
        self._notice_terms(cls)

    def _revise(self, task: Task, pod: Pod) -> None:
        """A placed pod may be resized in place, or labelled anew: others see that."""
        features = self.classes.features(pod)
        if features is not task.features or self.classes.request(pod) != task.request:
            task.features = features
            self._reclass(task, pod)

    def _notice_terms(self, cls: PodClass) -> None:
        """Once somebody minds other pods' labels, labels must tell classes apart."""
        constraints = cls.constraints
        if self.classes.labels_matter or not (constraints.anti_affinity or constraints.preferred_pods):
            return
        self.classes.labels_matter = True
        self.reclass_pending()

    def reclass_pending(self) -> None:
        """Work out the class of every pending pod anew."""
        for task in self.tasks.values():
            if task.pod is not None:
                self._reclass(task, task.pod)
                if task.job is not None:
                    self.activate(task.job)


def trim(pod: Pod) -> Pod:
    """The part of a pod that tells which cards it holds."""
    meta = pod.metadata
    return Pod(
        Meta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            labels=meta.labels,
            annotations={k: v for k, v in meta.annotations.items() if "/" in k},
        ),
        PodSpec(
            node_name=pod.spec.node_name,
            scheduler_name=pod.spec.scheduler_name,
            containers=[Container(c.name, "", Resources(c.resources.limits, c.resources.requests))
                        for c in pod.spec.containers],
            init_containers=[
                Container(c.name, "", Resources(c.resources.limits, c.resources.requests), [], c.restart_policy)
                for c in pod.spec.init_containers
            ],
        ),
    )  # fmt: skip


def _may_hold_cards(pod: Pod) -> bool:
    """Device decisions are annotations with a domain; pods without any hold no card."""
    return any("/" in key for key in pod.metadata.annotations) and any(
        "/" in name for c in (*pod.spec.containers, *pod.spec.init_containers) for name in c.resources.limits
    )


def _same_node(old: Node, new: Node) -> bool:
    """Whether an update changes nothing that is read."""
    return (
        old.status.allocatable == new.status.allocatable
        and old.status.capacity == new.status.capacity
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.spec.unschedulable == new.spec.unschedulable
        and old.spec.taints == new.spec.taints
    )
