"""Nodes, and what the pods placed there hold: the ledger brought in line with what the API server shows.

What pods' objects say of their cards is cached, because cards may be registered late and device types may change. What
ConfigMaps of others say of a node is read as if the node said it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from sys import intern

from pumice.devices.protocol import NO_MARKS, DeviceSharing
from pumice.effects.object_cache import UidTracker
from pumice.model.cards import Allocation
from pumice.model.refusal import Refusal
from pumice.scheduler.state.classes import Classes, Kind
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.ledger import GOING, Ledger, Placement, PlacementState, Told
from pumice.scheduler.state.nodes import node_bytes
from pumice.scheduler.state.nominations import Nominations
from pumice.scheduler.state.queues import Charges, with_claims
from pumice.scheduler.state.resources import of_claims
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.scheduler.state.tasks import DONE_STATUSES, Status
from pumice.wire import names
from pumice.wire.device_reports import DOUBT, Reported
from pumice.wire.nvidia_vgpu import handed_to
from pumice.wire.objects import Container, Meta, Node, Pod, PodSpec, PodStatus, is_admitted, is_mirror, is_read

# -- what annotations say of the cards of placed pods ------------------------------------------------------------------


NAMES_KEPT = 4096
"""Sets of annotation names, and containers, that are recognised; what is in use lives on with its pods."""

UNREAD = frozenset((
    names.DEVICES_TO_ALLOCATE, names.VGPU_TIME, names.BIND_PHASE, names.BIND_TIME, names.PREDICATE_TIME,
))  # fmt: skip
"""Annotations of ours that repeat others or tell the time."""

_RUNNING, _ADMITTED, _AWAITED = PodStatus("Running"), PodStatus("Pending", start_time="then"), PodStatus("Pending")


class Assignments:
    """Reads and writes ``Placement.told``, with one copy of what many pods have in common; keeps per node what its plugin has
    handed out, as it wrote it."""

    def __init__(self) -> None:
        self._specs: dict[Hashable, PodSpec] = {}
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Names of all annotations of a pod to those that are read."""
        self._handed: dict[str, str] = {}

    def told_by(self, pod: Pod, name: str, kind: Kind) -> Told | None:
        """Return what the pod tells; None when it says nothing of cards: that it was admitted, and asks, is something."""
        notes, node, admitted = pod.metadata.annotations, pod.spec.node_name, is_admitted(pod)
        if not kind.requests_cards or is_mirror(pod) or not (notes or admitted):
            return None
        every = tuple(notes)
        read = self._names.get(every)
        if read is None:
            if len(self._names) > NAMES_KEPT:
                self._names.clear()
            read = self._names[every] = tuple([key for key in every if _is_read(key)])
        if not (read or admitted):
            return None
        values = tuple([value if (value := notes[key]) != node else node for key in read])
        status = _RUNNING if pod.status.phase == "Running" else _ADMITTED if admitted else _AWAITED
        return self._spec(pod.spec, kind), kind.features, name, read, values, status

    def pod(self, placement: Placement) -> Pod | None:
        """The pod as far as it tells which cards of its node it holds; None when it holds none."""
        if placement.told is None:
            return None
        spec, features, name, keys, values, status = placement.told
        notes = dict(zip(keys, values, strict=True))
        return Pod(
            Meta(name, features.namespace, placement.uid, labels=dict(features.labels), annotations=notes),
            PodSpec(placement.node, containers=spec.containers, init_containers=spec.init_containers),
            status,
        )

    def hand_out(self, node: str, text: str) -> bool:
        """Take over what the node's plugin says now. Return True when that is something else than before."""
        if self._handed.get(node, "") == text:
            return False
        self._handed[node] = text
        if not text:
            del self._handed[node]
        return True

    def handed(self, uid: str, node: str) -> str:
        """Return what that node's plugin says that it has handed to the pod; empty: it says nothing."""
        text = self._handed.get(node)
        return handed_to(text, uid) if text else ""

    def _spec(self, spec: PodSpec, kind: Kind) -> PodSpec:
        found = self._specs.get(kind.containers)
        if found is None:
            if len(self._specs) > NAMES_KEPT:
                self._specs.clear()
            found = self._specs[kind.containers] = PodSpec(
                containers=[Container(resources=c.resources) for c in spec.containers],
                init_containers=[
                    Container(resources=c.resources, restart_policy=c.restart_policy) for c in spec.init_containers
                ],
            )
        return found


def _is_read(key: str) -> bool:
    """Device decisions are annotations with a domain."""
    return "/" in key and is_read(key) and key not in UNREAD


# -- what ConfigMaps of others say of nodes; a bad entry for one node reaches no other node ----------------------------


_NOTHING: Mapping[str, str] = {}


@dataclass(slots=True)
class Reports:
    """The nodes' reports of devices. ``problems`` is told what is wrong, by ConfigMap."""

    problems: dict[str, str]
    _said: dict[str, Reported] = field(default_factory=dict)
    """By ConfigMap (namespace/name)."""
    _of: dict[str, dict[str, str]] = field(default_factory=dict)
    """By node, what its reports say."""
    _sources: dict[str, set[str]] = field(default_factory=dict)
    """By node, the ConfigMaps that speak of it."""

    def of(self, node: str) -> dict[str, str]:
        return dict(self._of.get(node, _NOTHING))

    def put(self, where: str, found: Reported | None) -> set[str]:
        """Take over what a ConfigMap says now (None: it is gone); the nodes of which something else is known than before."""
        before = self._said.pop(where, None) or Reported()
        after = None if found is None else _keeping(found, before)
        if after is not None and (after.said or after.doubts):
            self._said[where] = after
        touched = {node for node in (*before.said, *before.doubts) if node}
        touched |= {node for node in (*(after.said if after else ()), *(after.doubts if after else ())) if node}
        changed = set()
        for node in touched:
            sources = self._sources.setdefault(node, set())
            if after is not None and (node in after.said or node in after.doubts):
                sources.add(where)
            else:
                sources.discard(where)
            if self._merge(node):
                changed.add(node)
        self._note(where, after)
        return changed

    def forget(self) -> set[str]:
        """Nobody is listened to any more; the nodes of which something was known."""
        known = set(self._of)
        for where in list(self._said):
            self.put(where, None)
        return known

    def _merge(self, node: str) -> bool:
        sources = sorted(self._sources.get(node, ()))
        merged: dict[str, str] = {}
        for where in sources:  # the first by name counts where two say the same sort of thing
            said = self._said.get(where, Reported())
            if node in said.said:
                merged.setdefault(said.about, said.said[node])
            if node in said.doubts:
                merged.setdefault(DOUBT, f"ConfigMap {where}: {said.doubts[node]}")
        if not sources:
            self._sources.pop(node, None)
        if merged == self._of.get(node, _NOTHING):
            return False
        self._of[node] = merged
        if not merged:
            del self._of[node]
        return True

    def _note(self, where: str, after: Reported | None) -> None:
        doubts = [f"{node}: {text}" if node else text for node, text in (after.doubts.items() if after else ())]
        if doubts:
            more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
            self.problems[f"ConfigMap {where}"] = f"{doubts[0]}; what was said before counts{more}"
        else:
            self.problems.pop(f"ConfigMap {where}", None)


def _keeping(found: Reported, before: Reported) -> Reported:
    """Return what counts now: of nodes in doubt what was said before."""
    if "" in found.doubts:
        return Reported(found.about or before.about, before.said, found.doubts)
    kept = {node: before.said[node] for node in found.doubts if node in before.said}
    return Reported(found.about, {**kept, **found.said}, found.doubts)


# -- nodes and placed pods ---------------------------------------------------------------------------------------------


_container_devices = attrgetter("container_devices")


def _doubtful(placement: Placement) -> bool:
    """Return whether something that its pod claims cannot be true, or is not known yet."""
    return any(allocation.doubts or allocation.pending for allocation in placement.allocations)


@dataclass(slots=True)
class Bookings:
    """Nodes, and what the pods there hold. ``tasks`` is the table that ``Pods`` writes."""

    scheduling_queue: SchedulingQueue
    uids: UidTracker
    problems: dict[str, str]
    ledger: Ledger
    classes: Classes
    charges: Charges
    nominations: Nominations
    tasks: Mapping[str, Task]
    nodes_changed: Callable[[], None] = lambda: None
    """Told that a node came or went, or has other labels."""
    node_seen: Callable[[str, int], None] = lambda name, row: None
    """Told of each node that comes or changes, and its row."""
    places_held: Callable[[str, str], None] = lambda name, text: None
    """Told which places a node says are held; empty: none."""
    reports: Reports = field(init=False)
    assignments: Assignments = field(default_factory=Assignments)

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
        before = self.ledger.placements.get(uid)
        allocations, told = self._confirmed(before, pod, kind, name, node)
        if task is not None and task.features is not None:
            request, features, marks = task.request, task.features, task.marks
        else:
            request, features = kind.request, kind.features
            marks = self.classes.marks(pod) if allocations else NO_MARKS
        if before is not None and (before.request != request or before.allocations != allocations):
            self.scheduling_queue.released()  # resized in place, or its node has made what it has: there may be room now
        self.ledger.confirm(Placement(uid, node, request, allocations, PlacementState.CONFIRMED, marks, features, told=told))
        if task is not None and task.cls.quota_known_late:
            self._recharge(task, allocations)
        if task is not None and pod.spec.resource_claims:
            self.charge_claims(task)
        if pod.metadata.deletion_timestamp:
            self.ledger.terminate(uid, shown=True)
            self.scheduling_queue.released()

    # -- cards ----------------------------------------------------------------------------------------------------

    def _confirmed(
        self, before: Placement | None, pod: Pod, kind: Kind, name: str, node: str
    ) -> tuple[tuple[Allocation, ...], Told | None]:
        """Return what the pod holds, and what it tells of that."""
        if (
            before is not None
            and before.allocations
            and before.node == node
            and before.state is PlacementState.CONFIRMED
            and not _doubtful(before)
        ):
            told = before.told
            if pod.status.phase == "Running" and any(allocation.starting for allocation in before.allocations):
                return tuple(one.started() for one in before.allocations), None if told is None else (*told[:-1], _RUNNING)
            return before.allocations, told  # annotations of a running pod do not move its cards
        told = self.assignments.told_by(pod, name, kind)
        return ((), None if before is None else before.told) if told is None else (self._replay(pod, node), told)

    def _replay(self, pod: Pod, node: str) -> tuple[Allocation, ...]:
        allocations = []
        for name, device_table in self.ledger.device_tables.items():
            known = device_table.nodes.get(node)
            if known is None:
                continue
            found = device_table.device_type.replay(pod, node, known.inventory, self.assignments.handed(pod.metadata.uid, node))
            if isinstance(found, Refusal):
                found = Allocation(name, node, (), (found,))
            if found is not None:
                allocations.append(found)
                if found.doubts:
                    self.problems[f"Pod {pod.key}"] = f"{name}: {found.doubts[0].field}: {found.doubts[0].text}"
        return tuple(allocations)

    def _replay_node(self, node: str) -> None:
        """A node's cards are new or different: read again what its pods hold."""
        for uid in list(self.ledger.by_node.get(node, ())):
            placement = self.ledger.placements[uid]
            if placement.state in (PlacementState.CONFIRMED, *GOING):
                pod = self.assignments.pod(placement)
                if pod is not None:
                    self._regrant(uid, pod, self._replay(pod, node))

    def _heed_plugin(self, node: str) -> None:
        """The node's plugin says something new of what it has handed out; nobody else writes that, so it counts."""
        for uid, placement in list(self.ledger.by_node.get(node, {}).items()):
            if placement.state not in (PlacementState.CONFIRMED, *GOING) or not (
                _doubtful(placement) or self.assignments.handed(uid, node)
            ):
                continue
            pod = self.assignments.pod(placement)
            if pod is not None and (allocations := self._replay(pod, node)) != placement.allocations:
                self._regrant(uid, pod, allocations)
                self.scheduling_queue.released()

    def _regrant(self, uid: str, pod: Pod, allocations: tuple[Allocation, ...]) -> None:
        task = self.tasks.get(uid)
        self.ledger.regrant(uid, allocations, self.classes.marks(pod))
        if task is not None and task.cls.quota_known_late:
            self._recharge(task, allocations)

    def _recharge(self, task: Task, allocations: Sequence[Allocation]) -> None:
        """Cards that are not registered for the moment (a plugin that restarts) cost its queue what they did; those of which
        nobody can tell which they are, as much as they may come to."""
        known = any(map(_container_devices, allocations))
        if known or (task.charged is None and any(allocation.doubts for allocation in allocations)):
            claims = {name: value for name, value in (task.charged or {}).items() if of_claims(name)}
            charged = self.charges.of(task.cls, allocations, claims)
            if task.job is None:
                task.charged = charged  # it is about to join one
            else:
                task.job.recharge(task, charged)

    def charge_claims(self, task: Task) -> None:
        """Something else is known of the claims of a pod that has a place: its queue is charged what they come to."""
        placement = self.ledger.placements.get(task.uid)
        if placement is None:
            return
        own, shared = self.ledger.device_claims.charge_of(task.uid, ((one.key, one.allocation) for one in placement.claims))
        if not (own or shared or task.shared_claims or task.charged):
            return
        charged = with_claims(task.cls, task.charged, own)
        if task.job is None:
            task.charged, task.shared_claims = charged, shared
        else:
            task.job.recharge(task, charged, shared_claims=shared)

    def set_device_types(self, device_types: Sequence[DeviceSharing]) -> None:
        """Exchange the device types: read every node and its pods anew."""
        self.charges.forget()
        self.nominations.drop_all()
        self.ledger.set_device_types(device_types)
        for node in self.ledger.table.row_of:
            self._replay_node(node)
            self._note_inventory(node)

    # -- nodes ----------------------------------------------------------------------------------------------------

    def put_node(self, node: Node) -> None:
        """A node was added or changed; a heartbeat that changes nothing that is read costs nothing."""
        name = node.metadata.name
        node.reports = self.reports.of(name)
        if self.uids.comes("Node", name, node.metadata.uid):
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
        self.places_held(name, node.metadata.annotations.get(names.HELD_PLACES, ""))
        self.classes.images.put(row, node.status.images or (), len(self.ledger.table))
        if news and not replayed:
            self._heed_plugin(name)

    def _take_in(self, node: Node) -> tuple[int, bool]:
        """Its row, and whether its cards are others than before and its pods were read again."""
        name = node.metadata.name
        before = {device_type: device_table.nodes.get(name) for device_type, device_table in self.ledger.device_tables.items()}
        row = self.ledger.put_node(node)
        self.node_seen(name, row)
        replayed = any(
            device_table.nodes.get(name) is not before[device_type]
            for device_type, device_table in self.ledger.device_tables.items()
        )
        if replayed:
            self._replay_node(name)
        self._note_inventory(name)
        self.scheduling_queue.released()
        return row, replayed

    def put_report(self, where: str, found: Reported | None) -> None:
        """Take over what a ConfigMap (namespace/name) says of nodes; None when it is gone. A report that says the same
        as before costs nothing."""
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
        if self.ledger.release(uid):
            self.scheduling_queue.released()

    def drop_node(self, name: str, uid: str = "") -> None:
        if self.uids.goes("Node", name, uid):
            self._forget_node(name)

    def _forget_node(self, name: str) -> None:
        row = self.ledger.table.row_of.get(name)
        self.nominations.drop_node(name)
        self.places_held(name, "")
        self.ledger.remove_node(name)
        self.nodes_changed()
        self.scheduling_queue.released()  # whoever was kept away from other nodes by the pods that were seen there
        if row is not None:
            self.classes.images.remove(row, len(self.ledger.table))
        self.assignments.hand_out(name, "")
        self.problems.pop(f"Node {name}", None)

    def _note_inventory(self, name: str) -> None:
        found = [
            f"{device_type}: {problem}"
            for device_type, device_table in self.ledger.device_tables.items()
            if name in device_table.nodes
            for problem in device_table.nodes[name].inventory.problems
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
        self.scheduling_queue.released()  # who refuses to be near whom may have changed anywhere
