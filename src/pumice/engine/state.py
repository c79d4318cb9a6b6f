"""The engine's picture of the cluster: pods, PodGroups, queues and nodes, fed by watch events, and the ledger.

Every method is a synchronous function of values. Bad data sets aside the smallest thing: what was refused stands in
``problems`` by object, and everything else goes on (decision 10). The picture is built in layers, each knowing those before
it: ``Waiting`` (who takes part), ``Groups`` (jobs and queues), ``Bookings`` (nodes and what is held), ``State`` (pods).
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import intern

from pumice.engine.bookings import Bookings
from pumice.engine.classes import Kind, PodClass
from pumice.engine.model import Status, Task, name_index, task_status
from pumice.wire.names import SCHEDULER_NAME
from pumice.wire.objects import Pod
from pumice.wire.volcano import seconds

SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
TASK_SPEC = "volcano.sh/task-spec"
GONE_AT_LEAST = 5000
TASK_PRIORITY = "volcano.sh/task-priority"


@dataclass(slots=True)
class State(Bookings):
    """Everything that decisions look at."""

    scheduler_names: frozenset[str] = frozenset({SCHEDULER_NAME})
    _soft: tuple[int, bool] = (-1, False)
    _gone: int = 0
    """Pods dropped since the tables were last made anew."""

    # -- pods -----------------------------------------------------------------------------------------------------

    def put_pod(self, pod: Pod, now: float = 0.0) -> None:
        """A pod was added or changed."""
        meta = pod.metadata
        ours = pod.spec.scheduler_name in self.scheduler_names
        if not ours and not pod.spec.node_name:
            return
        if self._stale(meta):
            return
        task = self.tasks.get(meta.uid)
        if task is not None and task.key != pod.key:
            self.problems[f"Pod {pod.key}"] = f"its uid {meta.uid} belongs to pod {task.key}; it is left alone"
            return
        status, kind = task_status(pod), self.classes.kind(pod)
        if status in (Status.BOUND, Status.RUNNING) and self.ledger.is_terminating(meta.uid):
            status = Status.RELEASING  # what has begun to go does not come back by an older event
        if ours:
            self._put_task(pod, kind, status, task, now)
        self._hold(pod, kind, status)

    def drop_pod(self, pod: Pod) -> None:
        """A pod is gone. Only the uid counts: a successor of the same name is somebody else."""
        uid = pod.metadata.uid
        task = self.tasks.get(uid)
        if task is not None and task.key != pod.key:
            self.problems.pop(f"Pod {pod.key}", None)
            return
        if self.ledger.release(uid):
            self.wake_waiting()
        self.ledger.unpipeline(uid)
        self.evidence.drop(uid)
        self._versions.pop(uid, None)
        self.problems.pop(f"Pod {pod.key}", None)
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

    def _tidy(self) -> None:
        """Make the tables of pods anew. A dict keeps the places of what was deleted, and doubles when these are used up: with
        50,000 bound pods that would be 12 MiB after 40,000 more have come and gone."""
        self.tasks = dict(self.tasks)
        self.jobs = dict(self.jobs)
        self._versions = dict(self._versions)
        self.evidence.tidy()
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
        task.gated = bool(pod.spec.scheduling_gates)
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
            index=name_index(meta.name),
        )
        self.tasks[meta.uid] = task
        return task

    # -- what the placer asks -------------------------------------------------------------------------------------

    def sees_pods(self, cls: PodClass) -> bool:
        """Whether the verdicts of this class depend on which pods run where."""
        terms = self.ledger.terms
        return cls.constraints.topological or bool(terms.anti) or bool(terms.preferred)

    def has_preferences(self, cls: PodClass) -> bool:
        """Whether some score of this class is relative to the other nodes that fit."""
        constraints = cls.constraints
        return bool(
            constraints.preferred
            or constraints.preferred_pods
            or any(not rule.hard for rule in constraints.spread)
            or self.ledger.terms.preferred
            or self.soft_taints()
        )

    def soft_taints(self) -> bool:
        """Whether any node carries a PreferNoSchedule taint."""
        table = self.ledger.table
        if self._soft[0] != table.version:
            found = any(t.effect == "PreferNoSchedule" for f in table.facts if f is not None for t in f.taints)
            self._soft = (table.version, found)
        return self._soft[1]


def _priority(pod: Pod) -> int:
    """The annotation where it holds an integer, else the pod's own priority, else 1 (spec 4.3)."""
    try:
        return int(pod.metadata.annotations[TASK_PRIORITY])
    except (KeyError, ValueError):
        return 1 if pod.spec.priority is None else pod.spec.priority
