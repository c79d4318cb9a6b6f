"""The engine's picture of the cluster: pods, PodGroups, queues and nodes, fed by watch events, and the ledger.

Every method is a synchronous function of values. Bad data sets aside the smallest thing: what was refused stands in
``problems`` by object, and everything else goes on (decision 10). The picture is built in layers, each knowing those before
it: ``Waiting`` (who takes part), ``Groups`` (jobs and queues), ``Bookings`` (nodes and what is held), ``State`` (pods).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from sys import intern
from typing import Any

from msgspec.structs import replace

from pumice.engine.state.bookings import Bookings
from pumice.engine.state.classes import Kind, PodClass
from pumice.engine.state.jobs import Status, Task, name_index, task_status
from pumice.wire.names import SCHEDULER_NAME, TASK_PRIORITY, TASK_SPEC
from pumice.wire.objects import Pod
from pumice.wire.volcano import seconds

SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
GONE_AT_LEAST = 5000


@dataclass(slots=True)
class State(Bookings):
    """Everything that decisions look at."""

    scheduler_names: frozenset[str] = frozenset({SCHEDULER_NAME})
    taint_verdicts: dict[Hashable, Any] = field(default_factory=dict)
    """What ``plugins.taints`` remembers per list of tolerations."""
    _gone: int = 0
    """Pods dropped since the tables were last made anew."""
    _strangers: dict[str, str] = field(default_factory=dict)
    """Placed pods that are not ours: uid to namespace/name."""
    _namesakes: dict[str, dict[str, tuple[Pod, float]]] = field(default_factory=dict)
    """Uid to the pods that bear it though it belongs to another, by namespace/name, with the time they were seen."""

    # -- pods -----------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod, now: float = 0.0) -> None:
        """A pod was added or changed."""
        meta = pod.metadata
        ours = pod.spec.scheduler_name in self.scheduler_names
        if not ours and not pod.spec.node_name:
            return
        owner = self._owner(meta.uid)
        if owner and owner != pod.key:
            self.problems[f"Pod {pod.key}"] = f"its uid {meta.uid} belongs to pod {owner}; it is left alone"
            self._put_namesake(pod, now)
            return
        if self._stale(meta):
            return
        task = self.tasks.get(meta.uid)
        if not ours and not owner:
            self._strangers[intern(meta.uid)] = pod.key
        status, kind = task_status(pod), self.classes.kind(pod)
        if status in (Status.BOUND, Status.RUNNING) and self.ledger.is_terminating(meta.uid):
            if meta.uid in self.evictions:
                self.evictions[meta.uid] = self.evictions[meta.uid][0], status
            status = Status.RELEASING  # what has begun to go does not come back by an older event
        elif status not in (Status.PENDING, Status.UNKNOWN):
            self.evictions.pop(meta.uid, None)  # it goes, or has ended, whatever becomes of our own eviction
        if ours:
            self._put_task(pod, kind, status, task, now)
        self._hold(pod, kind, status)
        if status is Status.RELEASING and meta.uid not in self.leaving and self.ledger.is_terminating(meta.uid):
            self.leaving[meta.uid] = now + (meta.deletion_grace_period_seconds or 0) + self.patience.leaving

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone. Only the uid counts: a successor of the same name is somebody else."""
        uid = pod.metadata.uid
        self.problems.pop(f"Pod {pod.key}", None)
        if self._owner(uid) not in ("", pod.key):
            self._drop_namesake(uid, pod.key)
            return
        task = self.tasks.get(uid)
        if self.ledger.release(uid):
            self.wake_waiting()
        self.ledger.unpipeline(uid)
        self.evictions.pop(uid, None)
        self.assignments.drop(uid)
        self.leaving.pop(uid, None)
        self._versions.pop(uid, None)
        self._strangers.pop(uid, None)
        if task is not None:
            del self.tasks[uid]
            task.cls.users -= 1
            if task.cls in self.unexplained:
                self.unexplained[task.cls].pop(task, None)
            job = task.job
            if job is not None:
                if task.status is Status.PENDING:
                    self.wake_waiting()  # its queue asks for less: the share of others grows
                job.leave(task)
                self._touch(job)
                self._drop_if_empty(job)
        self._gone += 1
        if self._gone > GONE_AT_LEAST + len(self._versions) // 2:
            self._gone = 0
            self._tidy()
        for other, now in list(self._namesakes.get(uid, {}).values()):  # the first of them is the owner now
            self._drop_namesake(uid, other.key)
            self.problems.pop(f"Pod {other.key}", None)
            self.put_pod(other, now)

    # -- pods that bear the uid of another one: no API server should show them, and none of them may end a cycle ----------

    def name_of(self, uid: str) -> str:
        """Namespace and name of a pod that is known by its uid; the uid itself of one that is not."""
        return self._owner(uid) or uid

    def _owner(self, uid: str) -> str:
        """Namespace and name of the pod that this uid means; empty when it is not known."""
        task = self.tasks.get(uid)
        return task.key if task is not None else self._strangers.get(uid, "")

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
        self.assignments.drop(f"{uid} {key}")
        if self.ledger.release(f"{uid} {key}"):
            self.wake_waiting()

    def _tidy(self) -> None:
        """Make the tables of pods anew. A dict keeps the places of what was deleted, and doubles when these are used up: with
        50,000 bound pods that would be 12 MiB after 40,000 more have come and gone."""
        self.tasks = dict(self.tasks)
        self.jobs = dict(self.jobs)
        self._versions = dict(self._versions)
        self._strangers = dict(self._strangers)
        self.assignments.tidy()
        self.ledger.holdings = dict(self.ledger.holdings)
        for queue in self.queues.values():
            queue.jobs = set(queue.jobs)

    def _put_task(self, pod: Pod, kind: Kind, status: Status, task: Task | None, now: float) -> None:
        before = None if task is None else (task.status, task.cls, task.gated, task.job, task.nominated)
        if task is None:
            task = self._new_task(pod, kind)
        elif status is Status.PENDING and task.status in (Status.BINDING, Status.BOUND, Status.ALLOCATED):
            return  # a stale event must not undo an assumed placement (spec 5)
        elif status is Status.PENDING and not self.ledger.holdings.get(task.uid):
            task.features = kind.features
            self._reclass(task, pod, kind)
        else:
            self._revise(task, pod, kind)
        task.node = intern(pod.spec.node_name) or (task.node if status is Status.PENDING else "")
        gated = bool(pod.spec.scheduling_gates)
        if task.job is None:
            task.gated = gated
        else:
            task.job.mark(task, gated=gated, hopeless=task.hopeless)
        task.nominated = pod.status.nominated_node_name
        if status is Status.PENDING:
            task.pod = pod
            for condition in pod.status.conditions:
                if condition.type == "PodScheduled" and condition.status == "False" and task.told is None:
                    task.told = (condition.reason, condition.message)
        else:
            task.pod = None
        if task.cls.asks:
            task.marks = self.classes.marks(pod)  # its PodGroup may be named only now
        job = self._job_of(pod, now)
        if task.job is not None and task.job is not job:
            old = task.job
            old.leave(task)
            self._drop_if_empty(old)
        if task.job is None:
            task.status = status
            job.join(task)
        else:
            job.move(task, status)
        if before != (task.status, task.cls, task.gated, task.job, task.nominated):
            self._touch(job)  # else it is an echo of our own writes, or says nothing that is read

    def _new_task(self, pod: Pod, kind: Kind) -> Task:
        meta, spec = pod.metadata, pod.spec
        cls = self.classes.of(pod, kind)
        cls.users += 1
        self._notice_terms(cls)
        task = Task(
            uid=meta.uid,
            namespace=intern(meta.namespace),
            name=meta.name,
            created=seconds(meta.creation_timestamp),
            priority=_priority(pod),
            cls=cls,
            features=kind.features,
            role=meta.annotations.get(TASK_SPEC) or meta.labels.get(TASK_SPEC, ""),
            system=spec.priority_class_name in SYSTEM_CLASSES or meta.namespace == "kube-system",
            controlled=any(owner.controller for owner in meta.owner_references),
            index=name_index(meta.name),
        )
        self.tasks[meta.uid] = task
        return task

    # -- what the placer asks -------------------------------------------------------------------------------------

    def has_preferences(self, cls: PodClass) -> bool:
        """Whether some score of this class is relative to the other nodes that fit."""
        constraints = cls.constraints
        return bool(
            constraints.preferred
            or constraints.preferred_pods
            or any(not rule.hard for rule in constraints.spread)
            or self.ledger.terms.any_wishing
            or self.ledger.table.soft_taints
        )


def _priority(pod: Pod) -> int:
    """The annotation where it holds an integer, else the pod's own priority, else 1 (spec 4.3)."""
    try:
        return int(pod.metadata.annotations[TASK_PRIORITY])
    except (KeyError, ValueError):
        return 1 if pod.spec.priority is None else pod.spec.priority
