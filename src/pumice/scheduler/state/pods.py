"""Pods as the watch shows them: our tasks, their classes and jobs, and pods of other schedulers that hold a place."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from msgspec.structs import replace

from pumice.devices.protocol import NO_MARKS
from pumice.effects.object_cache import number_of
from pumice.scheduler.state.bookings import Bookings
from pumice.scheduler.state.classes import Classes, Kind, PodClass
from pumice.scheduler.state.groups import Groups
from pumice.scheduler.state.jobs import Task
from pumice.scheduler.state.ledger import Ledger
from pumice.scheduler.state.nodes import NodeTable, images_of
from pumice.scheduler.state.nominations import Nominations, TerminatingPods
from pumice.scheduler.state.queues import Charges
from pumice.scheduler.state.resources import Request, Vector, add, exceeded, repack, subtract
from pumice.scheduler.state.scheduling_queue import Hint, QueueEvent, SchedulingQueue
from pumice.scheduler.state.tasks import DONE_STATUSES, Gate, Status, moving, name_index, task_status, yielding
from pumice.wire.kubernetes import DEVICES_REFUSED
from pumice.wire.names import QUEUE_GATE, QUEUE_NAME, TASK_PRIORITY, TASK_SPEC
from pumice.wire.objects import Pod
from pumice.wire.times import seconds

# -- pods that no queue of ours pays for: of other schedulers, or bound by hand -----------------------------------------


class Foreign(NamedTuple):
    """Such a pod, which has a place. ``key``: namespace/name; ``request``: None of one that has ended."""

    key: str
    version: int
    node: str
    request: Request | None


@dataclass(slots=True)
class Elsewhere:
    """The pods by uid, and what they use by node and in all."""

    table: NodeTable
    pods: dict[str, Foreign] = field(default_factory=dict)
    _by_node: dict[str, Vector] = field(default_factory=dict)
    _allocated: Vector = field(default_factory=dict)
    """By those on nodes that are known."""
    _nodes: int = -1
    """Version of the nodes of which that is true."""

    def put(self, uid: str, pod: Foreign) -> None:
        """Such a pod has a place, asks for another amount there, or has ended."""
        self.drop(uid)
        self.pods[uid] = pod
        if pod.request is not None:
            add(self._by_node.setdefault(pod.node, {}), pod.request.items)
            if pod.node in self.table.row_of:
                add(self._allocated, pod.request.items)

    def drop(self, uid: str) -> None:
        """It is gone."""
        pod = self.pods.pop(uid, None)
        if pod is None or pod.request is None:
            return
        subtract(self._by_node[pod.node], pod.request.items)
        if not any(self._by_node[pod.node].values()):
            del self._by_node[pod.node]
        if pod.node in self.table.row_of:
            subtract(self._allocated, pod.request.items)

    def left(self) -> Vector:
        """Return what of the nodes queues can have; a resource of which nothing is left is named still."""
        if self._nodes != self.table.version:
            self._nodes, self._allocated = self.table.version, {}
            for node in self._by_node.keys() & self.table.row_of.keys():
                add(self._allocated, self._by_node[node].items())
        if not self._allocated:
            return self.table.total
        return {**dict.fromkeys(self.table.total, 0), **exceeded(self.table.total, self._allocated)}


# -- all pods ----------------------------------------------------------------------------------------------------------


SHUT = 10.0
"""Seconds after which a gate is tried again that could not be taken off."""


@dataclass(slots=True)
class Pods:
    """All pods that are known, by uid."""

    scheduling_queue: SchedulingQueue
    problems: dict[str, str]
    ledger: Ledger
    classes: Classes
    charges: Charges
    groups: Groups
    bookings: Bookings
    nominations: Nominations
    terminating: TerminatingPods
    tasks: dict[str, Task]
    scheduler_names: frozenset[str]
    elsewhere: Elsewhere
    tidied_after: int = 5000
    """At least so many pods go before the tables are made anew."""
    _gone: int = 0
    """Pods dropped since the tables were last made anew."""
    refused: dict[str, Task] = field(default_factory=dict)
    """By uid pods that their nodes refused for the cards that they were to have, and that a controller makes anew."""
    _namesakes: dict[str, dict[str, tuple[Pod, float]]] = field(default_factory=dict)
    """Uid to the pods that bear it though it belongs to another, by namespace/name, with the time they were seen."""

    def put(self, pod: Pod, now: float = 0.0) -> None:
        """A pod was added or changed."""
        meta = pod.metadata
        ours = pod.spec.scheduler_name in self.scheduler_names
        if not ours:
            self.groups.served_elsewhere(pod)
        if not ours and not pod.spec.node_name:
            return
        task, version = self.tasks.get(meta.uid), number_of(meta)
        known = task or self.elsewhere.pods.get(meta.uid)
        if known is not None and known.key != pod.key:
            self.problems[f"Pod {pod.key}"] = f"its uid {meta.uid} belongs to pod {known.key}; it is left alone"
            self._put_namesake(pod, now)
            return
        if known is not None and 0 < version <= known.version:
            return  # watches repeat themselves
        status, kind = task_status(pod), self.classes.kind(pod)
        if task is not None:
            task.version = version or task.version
        elif not ours:
            request = None if status in DONE_STATUSES else kind.request
            self.elsewhere.put(intern(meta.uid), Foreign(pod.key, version, intern(pod.spec.node_name), request))
        if known is not None:
            status = self.terminating.seen(meta.uid, status)
            if status is not Status.PENDING:
                self.nominations.claimant_gone(meta.uid)  # it needs a place no more, or has one
        if ours and task is None:  # what it holds is known before it joins its job: its queue is charged once
            task = self._new_task(pod, kind)
            if status is Status.PENDING:
                self.groups.note_pod(pod)
            self._hold(pod, kind, status)
            self._put_task(pod, kind, status, task, now)
        else:
            if task is not None:
                self._put_task(pod, kind, status, task, now)
            self._hold(pod, kind, status)
        if status is Status.RELEASING:
            grace = (meta.deletion_grace_period_seconds or 0) + self.scheduling_queue.patience.leaving
            self.ledger.expect_gone(meta.uid, now + grace)

    def drop(self, pod: Pod) -> None:
        """A pod is gone. Only the uid counts: a successor of the same name is somebody else."""
        uid = pod.metadata.uid
        if pod.spec.scheduler_name not in self.scheduler_names:
            self.groups.served_elsewhere(pod, gone=True)
        self.problems.pop(f"Pod {pod.key}", None)
        if self._owner(uid) not in ("", pod.key):
            self._drop_namesake(uid, pod.key)
            return
        task = self.tasks.get(uid)
        self.nominations.claimant_gone(uid)
        self.bookings.release(uid)
        self.ledger.device_claims.forget_pod(uid)
        if not self.ledger.device_claims.reserved_for(uid):
            self.nominations.left(uid)  # else its devices are not free before its claims say so
        self.terminating.gone(uid)
        self.elsewhere.drop(uid)
        self.refused.pop(uid, None)
        if task is not None:
            del self.tasks[uid]
            task.cls.users -= 1
            self.scheduling_queue.forget_pod(task)
            job = task.job
            if job is not None:
                if task.status is Status.PENDING:
                    self.scheduling_queue.released()  # its queue asks for less: the share of others grows
                job.leave(task)
                self.scheduling_queue.changed(job)
                self.groups.drop_if_empty(job)
        self._gone += 1
        if self._gone > self.tidied_after + (len(self.tasks) + len(self.elsewhere.pods)) // 2:
            self._gone = 0
            self._tidy()
        for other, now in list(self._namesakes.get(uid, {}).values()):  # the first of them is the owner now
            self._drop_namesake(uid, other.key)
            self.problems.pop(f"Pod {other.key}", None)
            self.put(other, now)

    def _hold(self, pod: Pod, kind: Kind, status: Status) -> None:
        if pod.spec.node_name and status not in DONE_STATUSES:
            self._notice(bool(kind.features.anti or kind.features.preferred))
        self.bookings.hold(pod, kind, status)

    # -- pods that bear the uid of another one: no API server should show them, and none of them may end a cycle ----------

    def name_of(self, uid: str) -> str:
        """Namespace and name of a pod that is known by its uid; the uid itself of one that is not."""
        return self._owner(uid) or uid

    def _owner(self, uid: str) -> str:
        """Namespace and name of the pod that this uid means; empty when it is not known."""
        known = self.tasks.get(uid) or self.elsewhere.pods.get(uid)
        return "" if known is None else known.key

    def _put_namesake(self, pod: Pod, now: float) -> None:
        """It is not placed. Where it runs already its node is charged for it, under a uid of our own making."""
        uid = pod.metadata.uid
        self._namesakes.setdefault(uid, {})[pod.key] = pod, now
        meta = replace(pod.metadata, uid=f"{uid} {pod.key}")
        self._hold(replace(pod, metadata=meta), self.classes.kind(pod), task_status(pod))

    def _drop_namesake(self, uid: str, key: str) -> None:
        others = self._namesakes.get(uid, {})
        others.pop(key, None)
        if not others:
            self._namesakes.pop(uid, None)
        self.bookings.release(f"{uid} {key}")

    def _tidy(self) -> None:
        """Make the tables of pods anew: with 50,000 bound pods they would be 12 MiB more after 40,000 more have come and gone."""
        repack(self.tasks)
        repack(self.elsewhere.pods)
        self.groups.tidy()
        self.ledger.tidy()

    def _has_its_place(self, task: Task, pod: Pod, kind: Kind) -> bool:
        """Return whether a place was assumed or nominated for a pod that is told to wait: a stale event must not undo that
        (Volcano pkg/scheduler/cache)."""
        if task.status in (Status.BINDING, Status.BOUND, Status.ALLOCATED):
            return True
        return task.uid in self.nominations.kept and self._still_nominated(task, pod, kind)

    def _put_task(self, pod: Pod, kind: Kind, status: Status, task: Task, now: float) -> None:
        before = (task.status, task.cls, task.gate, task.job, task.nominated)
        if task.job is not None:
            if status is Status.PENDING and self._has_its_place(task, pod, kind):
                return
            free = status is Status.PENDING and not self.ledger.placements.get(task.uid)
            if free or kind.features is not task.features or kind.request != task.request:
                task.features = kind.features  # a placed pod may be resized in place, or labelled anew: others see that
                self._reclass(task, pod, kind)
        task.node = intern(pod.spec.node_name) or (task.node if status is Status.PENDING else "")
        gate = _gate(pod, task)
        if task.job is None:
            task.gate = gate
        else:
            task.job.set_gate(task, gate)
        task.nominated = pod.status.nominated_node_name
        if task.yielding.cooldown:
            task.yielding = yielding(pod)
        task.moving, task.started = moving(pod), seconds(pod.status.start_time) if pod.status.start_time else 0.0
        task.queue = intern(pod.metadata.annotations.get(QUEUE_NAME, ""))
        if status is Status.PENDING:
            task.pod = pod
            for condition in pod.status.conditions:
                if condition.type == "PodScheduled" and condition.status == "False" and task.condition is None:
                    task.condition = (condition.reason, condition.message)
        else:
            task.pod = None
        if task.job is not None and task.cls.device_requests:
            task.marks = self.classes.marks(pod)  # its PodGroup may be named only now
        job = self.groups.job_of(pod, now)
        if task.job is not None and task.job is not job:
            old = task.job
            old.leave(task)
            self.groups.drop_if_empty(old)
            self.groups.ranked += bool(task.node)
        if task.job is None:
            task.status = status
            job.join(task)
        else:
            job.move(task, status)
        if pod.status.reason == DEVICES_REFUSED and status is Status.FAILED and task.controlled and task.cls.device_requests:
            self.refused[task.uid] = task
        if before != (task.status, task.cls, task.gate, task.job, task.nominated):
            self.scheduling_queue.changed(job)  # else it is an echo of our own writes, or says nothing that is read

    def gate_stays(self, uid: str, now: float) -> None:
        """The gate of a pod that its queue let in could not be taken off: it is looked at again after a while."""
        task = self.tasks.get(uid)
        if task is not None and task.job is not None and task.awaits_queue:
            task.job.set_gate(task, Gate.QUEUE)
            self.scheduling_queue.rest(task.job, QueueEvent.WRITE_REFUSED, Hint(now + SHUT))

    def _still_nominated(self, task: Task, pod: Pod, kind: Kind) -> bool:
        """Return whether the pod, which is nominated, still asks for what it was promised."""
        if self.classes.of(pod, kind) is task.cls and not pod.spec.scheduling_gates:
            task.pod = pod
            return True
        self.nominations.lapse_job(task)
        return False

    def _new_task(self, pod: Pod, kind: Kind) -> Task:
        meta = pod.metadata
        cls = self.classes.of(pod, kind)
        cls.users += 1
        if cls.shape is not None:
            self.classes.seen.came(cls.shape)
        self._notice_terms(cls)
        task = Task(
            uid=meta.uid,
            namespace=intern(meta.namespace),
            name=meta.name,
            created=seconds(meta.creation_timestamp),
            priority=_priority(pod),
            cls=cls,
            marks=self.classes.marks(pod) if cls.device_requests else NO_MARKS,
            features=kind.features,
            yielding=yielding(pod),
            role=meta.annotations.get(TASK_SPEC) or meta.labels.get(TASK_SPEC, ""),
            owner=next((intern(owner.uid) or "?" for owner in meta.owner_references if owner.controller), ""),
            index=name_index(meta.name),
            version=number_of(meta),
        )
        self.tasks[meta.uid] = task
        return task

    # -- classes of pending pods ----------------------------------------------------------------------------------

    def reclass(self) -> None:
        """Work out the class of every pending pod anew."""
        for task in self.tasks.values():
            if task.pod is not None:
                self._reclass(task, task.pod)
                if task.job is not None:
                    self.scheduling_queue.activate(task.job)

    def _sort(self, tasks: Iterable[Task]) -> None:
        """Those of these pods that wait may be of another class than before."""
        for task in list(tasks):
            before = task.cls
            if task.pod is not None:
                self._reclass(task, task.pod)
            if task.job is not None and task.cls is not before:
                self.scheduling_queue.activate(task.job)

    def reclass_placed(self) -> None:
        """The device types are others: what pods hold that were placed before is charged by what it is now known to be."""
        known: dict[Hashable, PodClass] = {}
        for task in self.tasks.values():
            placement = self.ledger.placements.get(task.uid) if task.pod is None else None
            pod = None if placement is None else self.bookings.assignments.pod(placement)
            if placement is not None and pod is not None and task.job is not None:
                cls = self.classes.again(task.cls, pod, known)
                task.cls.users, cls.users = task.cls.users - 1, cls.users + 1
                task.job.recharge(task, self.charges.of(cls, placement.allocations), cls)
                self.bookings.charge_claims(task)

    def claims_changed(self, uids: Iterable[str]) -> None:
        """Something else is known of claims that these pods name: those that wait may be pods of another class."""
        for uid in uids:
            task = self.tasks.get(uid)
            if task is not None and task.pod is not None and task.job is not None:
                before = task.cls
                self._reclass(task, task.pod)
                if task.cls is not before:
                    self.scheduling_queue.changed(task.job)

    def claims_charged(self, uids: Iterable[str]) -> None:
        """These pods use a claim that holds something else than before."""
        for uid in uids:
            task = self.tasks.get(uid)
            if task is not None and task.job is not None:
                self.bookings.charge_claims(task)

    def claims_freed(self, uid: str) -> None:
        """No claim is reserved for the pod any more."""
        self.scheduling_queue.released()
        if uid not in self.tasks:
            self.nominations.left(uid)

    def sort_by_images(self) -> None:
        """Nodes have images that none had before: pods that wait for a node with them are no longer like others."""
        images = self.classes.images
        fresh, images.fresh = images.fresh, set()
        if not images.counted:
            return
        self.classes.mind_images(fresh)
        self._sort(
            task for task in self.tasks.values() if task.pod is not None and not fresh.isdisjoint(images_of(task.pod.spec))
        )

    def sort_by_policies(self) -> None:
        """Queues name other card policies, or jobs stand in others: their pods that wait choose otherwise."""
        repoliced, self.groups.repoliced = self.groups.repoliced, {}
        for job in repoliced:
            self._sort(job.pending.values())

    def sort_by_workloads(self) -> None:
        """Services or controllers came, went or select others: pods there that wait may be spread otherwise."""
        workloads = self.classes.workloads
        stale, workloads.stale = workloads.stale, set()
        if not workloads.counted:
            return
        self._sort(task for task in self.tasks.values() if task.namespace in stale)

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
        task.cls, task.status, task.unresolvable = cls, status, False
        placement = self.ledger.placements.get(task.uid)
        task.charged = self.charges.of(cls, placement.allocations) if placement is not None else None
        task.shared_claims = ()
        if job is not None:
            job.join(task)
        if placement is not None and cls.device_claims:
            self.bookings.charge_claims(task)
        self._notice_terms(cls)

    def _notice_terms(self, cls: PodClass) -> None:
        self._notice(bool(cls.constraints.anti_affinity or cls.constraints.preferred_pods))

    def _notice(self, minds: bool) -> None:
        """Let labels tell classes apart once somebody minds other pods' labels."""
        if minds and not self.classes.labels_matter:
            self.classes.mind_labels()
            self.reclass()


def _gate(pod: Pod, task: Task) -> Gate:
    """Return what the pod's gates come to, of which its queue may have opened one already."""
    asks_queue, gates = pod.metadata.annotations.get(QUEUE_GATE) == "true", {gate.name for gate in pod.spec.scheduling_gates}
    if not gates:
        return Gate.OPENED if asks_queue else Gate.NONE
    if asks_queue and gates == {QUEUE_GATE}:
        return Gate.OPENING if task.let_in else Gate.QUEUE
    return Gate.HELD


def _priority(pod: Pod) -> int:
    """The annotation where it holds an integer, else the pod's own priority, else 1 (Volcano pkg/scheduler/api/job_info.go)."""
    try:
        return int(pod.metadata.annotations[TASK_PRIORITY])
    except (KeyError, ValueError):
        return 1 if pod.spec.priority is None else pod.spec.priority
