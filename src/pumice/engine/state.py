"""The engine's picture of the cluster: pods, PodGroups, queues and nodes, fed by watch events, and the ledger.

Every method is a synchronous function of values. Bad data sets aside the smallest thing: what was refused stands in
``problems`` by object, and everything else goes on (decision 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from pumice.engine.classes import Classes, PodClass
from pumice.engine.ledger import Hold, Holding, Ledger
from pumice.engine.model import (
    DONE_STATUSES,
    Job,
    QueueState,
    Status,
    Task,
    name_index,
    read_group,
    task_status,
)
from pumice.engine.node_book import NO_MARKS
from pumice.engine.volumes import Volumes
from pumice.families.seam import Family
from pumice.families.settings import Settings
from pumice.model.cards import Grant
from pumice.model.refusal import Refusal
from pumice.wire.names import DEFAULT_QUEUE, GROUP_NAME, QUEUE_NAME, ROOT_QUEUE, SCHEDULER_NAME
from pumice.wire.objects import Container, Meta, Node, Pod, PodSpec, Resources, decode
from pumice.wire.volcano import PodGroup, PriorityClass, Queue, group_name_for, seconds

SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
OWNED_WAIT = 1.0
"""Seconds that a bare pod with an owner waits for the PodGroup that its owner's annotations may shape."""
TASK_SPEC = "volcano.sh/task-spec"
TASK_PRIORITY = "volcano.sh/task-priority"

_pack = msgspec.json.Encoder().encode


@dataclass(slots=True)
class State:
    """Everything that decisions look at."""

    scheduler_names: frozenset[str] = frozenset({SCHEDULER_NAME})
    default_queue: str = DEFAULT_QUEUE
    implicit_groups: bool = True
    """Whether a bare pod is scheduled at once as a group of one, before any PodGroup exists for it."""
    ledger: Ledger = field(default_factory=Ledger)
    classes: Classes = field(default_factory=Classes)
    tasks: dict[str, Task] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    queues: dict[str, QueueState] = field(default_factory=dict)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    volumes: Volumes = field(default_factory=Volumes)
    problems: dict[str, str] = field(default_factory=dict)
    dirty: dict[Job, None] = field(default_factory=dict)
    """Jobs whose status must be looked at when the cycle closes."""
    waiting: dict[Job, float] = field(default_factory=dict)
    """Jobs that wait for a time: queue quota, enqueue, back-off."""
    sleeping: dict[PodClass, dict[Job, None]] = field(default_factory=dict)
    """Jobs that wait until something that their class needs changes."""
    unexplained: dict[PodClass, dict[Task, None]] = field(default_factory=dict)
    """Pods that fitted nowhere and whose reason is still to be worked out: beside the placing, not in its way."""
    next_due: float = float("inf")
    """No job waits for an earlier time than this."""
    released: bool = False
    """Something was released since jobs were last woken for it."""
    woken_at: int = -1
    """How far the table's gains have been offered to every sleeping class."""
    settings: Settings = field(default_factory=Settings)
    """The arguments of deviceshare: how much the cards' score counts between nodes."""
    evidence: dict[str, bytes] = field(default_factory=dict)
    """Trimmed pods that may hold cards, packed: what a new inventory or family is replayed from."""
    _versions: dict[str, int] = field(default_factory=dict)
    _soft: tuple[int, bool] = (-1, False)

    # -- pods ---------------------------------------------------------------------------------------------------

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
        status = task_status(pod)
        if ours:
            self._put_task(pod, status, task, now)
        self._hold(pod, status)

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
        self.evidence.pop(uid, None)
        self._versions.pop(uid, None)
        self.problems.pop(f"Pod {pod.key}", None)
        if task is not None:
            del self.tasks[uid]
            task.cls.users -= 1
            if task.cls in self.unexplained:
                self.unexplained[task.cls].pop(task, None)
            job = task.job
            if job is not None:
                job.leave(task)
                self._touch(job)
                self._drop_if_empty(job)

    def _stale(self, meta: Meta) -> bool:
        """Whether an event is older than, or the same as, what is known (watches repeat themselves)."""
        version = int(meta.resource_version) if meta.resource_version.isdecimal() else 0
        known = self._versions.get(meta.uid)
        if version and known is not None and version <= known:
            return True
        if version:
            self._versions[meta.uid] = version
        return False

    def _put_task(self, pod: Pod, status: Status, task: Task | None, now: float) -> None:
        before = None if task is None else (task.status, task.cls, task.gated, task.job, task.nominated)
        if task is None:
            task = self._new_task(pod)
        elif status is Status.PENDING and task.status in (Status.BINDING, Status.BOUND, Status.ALLOCATED):
            return  # a stale event must not undo an assumed placement (spec 5)
        elif status is Status.PENDING and not self.ledger.holdings.get(task.uid):
            self._reclass(task, pod)
        task.phase = pod.status.phase
        task.node = pod.spec.node_name or (task.node if status is Status.PENDING else "")
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

    def _new_task(self, pod: Pod) -> Task:
        meta, spec = pod.metadata, pod.spec
        cls = self.classes.of(pod)
        cls.users += 1
        self._notice_terms(cls)
        written = meta.annotations.get(TASK_PRIORITY, "")
        priority = spec.priority if spec.priority is not None else 1
        task = Task(
            uid=meta.uid,
            namespace=meta.namespace,
            name=meta.name,
            created=seconds(meta.creation_timestamp),
            priority=int(written) if written.lstrip("-").isdecimal() else priority,
            request=cls.request,
            cls=cls,
            features=self.classes.features(pod),
            role=meta.annotations.get(TASK_SPEC) or meta.labels.get(TASK_SPEC, ""),
            system=spec.priority_class_name in SYSTEM_CLASSES or meta.namespace == "kube-system",
            index=name_index(meta.name),
        )
        self.tasks[meta.uid] = task
        return task

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
        task.cls, task.request, task.status = cls, cls.request, status
        if job is not None:
            job.join(task)
        self._notice_terms(cls)

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

    # -- cards --------------------------------------------------------------------------------------------------

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

    # -- nodes --------------------------------------------------------------------------------------------------

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

    def storage_changed(self) -> None:
        """Claims, volumes or storage classes changed: pods with claims may fit elsewhere now."""
        table = self.ledger.table
        for cls in list(self.sleeping):
            if cls.constraints.claims:
                self.wake(cls)
        if any(t.cls.constraints.claims for t in self.tasks.values() if t.pod is not None):
            for row in table.row_of.values():
                table.touch(row, gain=True)

    # -- PodGroups, queues, priority classes --------------------------------------------------------------------

    def put_group(self, group: PodGroup) -> None:
        meta = group.metadata
        key = f"{meta.namespace}/{meta.name}"
        if self._stale(meta):
            return
        job = self.jobs.get(key)
        if job is None:
            job = self._new_job(key, meta.namespace, meta.name, group.spec.queue)
        elif group.spec.queue or not job.implicit:
            job.attach(self.queue(group.spec.queue or self.default_queue))
        echo = job.group is not None and job.group.spec == group.spec and job.group.status == group.status
        read_group(job, group, self._priority(job, group.spec.priority_class_name))
        if echo:
            return
        if job.min_available > 0 and group.spec.min_member < 0:
            job.problem = "minMember is negative; it counts as 0"
        self._touch(job)

    def drop_group(self, group: PodGroup) -> None:
        key = f"{group.metadata.namespace}/{group.metadata.name}"
        self._versions.pop(group.metadata.uid, None)
        job = self.jobs.get(key)
        if job is not None:
            job.group = None
            self._drop_if_empty(job)

    def put_queue(self, queue: Queue) -> None:
        name = queue.metadata.name
        if self._stale(queue.metadata):
            return
        state = self.queue(name)
        state.read(queue)
        state.problem = self._queue_problem(name)
        if state.problem:
            self.problems[f"Queue {name}"] = state.problem
        else:
            self.problems.pop(f"Queue {name}", None)
        meaning = (queue.spec, queue.status.state)
        if state.meaning == meaning:
            return  # only the echo of the allocation that we wrote ourselves
        state.meaning = meaning
        for job in state.jobs:
            self._touch(job)
        self.wake_waiting()

    def drop_queue(self, name: str, uid: str = "") -> None:
        self._versions.pop(uid, None)
        self.problems.pop(f"Queue {name}", None)
        state = self.queues.get(name)
        if state is not None:
            state.present, state.meaning = False, None
            if not state.jobs:
                del self.queues[name]

    def queue(self, name: str) -> QueueState:
        """The queue of that name, known or not (an unknown one is not present)."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueState(name)
        return found

    def ancestors(self, queue: QueueState) -> list[QueueState]:
        """The queue's parents up to the root; a circle ends where it closes."""
        found: list[QueueState] = []
        seen = {queue.name}
        parent = queue.parent or (ROOT_QUEUE if queue.name != ROOT_QUEUE else "")
        while parent and parent not in seen and parent in self.queues:
            seen.add(parent)
            found.append(self.queues[parent])
            parent = self.queues[parent].parent or (ROOT_QUEUE if parent != ROOT_QUEUE else "")
        return found

    def put_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Labels of a namespace, which pod (anti-)affinity may select by; None when it is gone."""
        self.ledger.terms.put_namespace(name, labels)

    def put_priority_class(self, cls: PriorityClass) -> None:
        self.priority_classes[cls.metadata.name] = cls
        self._reprioritise()

    def drop_priority_class(self, name: str) -> None:
        self.priority_classes.pop(name, None)
        self._reprioritise()

    def _reprioritise(self) -> None:
        for job in self.jobs.values():
            if job.group is not None and job.pending:
                job.priority = self._priority(job, job.group.spec.priority_class_name)
                job.sort_key = None

    def _priority(self, job: Job, name: str) -> int:
        cls = self.priority_classes.get(name)
        job.problem = "" if cls is not None or not name else f"priority class {name!r} does not exist; 0 is used"
        if cls is not None:
            return cls.value
        return next((c.value for c in self.priority_classes.values() if c.global_default), 0)

    def _queue_problem(self, name: str) -> str:
        seen: list[str] = []
        at = name
        while at and at != ROOT_QUEUE:
            if at in seen:
                return f"queue {name} is its own ancestor ({' > '.join([*seen, at])}); its parents are ignored"
            seen.append(at)
            at = self.queues[at].parent if at in self.queues else ""
        return ""

    # -- jobs ---------------------------------------------------------------------------------------------------

    def _job_of(self, pod: Pod, now: float) -> Job:
        meta = pod.metadata
        named = meta.annotations.get(GROUP_NAME, "")
        owner = next((o for o in meta.owner_references if o.controller), None)
        name = named or group_name_for(owner.uid if owner else meta.uid)
        key = f"{meta.namespace}/{name}"
        job = self.jobs.get(key)
        if job is None:
            job = self._new_job(key, meta.namespace, name, meta.annotations.get(QUEUE_NAME, ""))
            job.implicit = not named and self.implicit_groups
            job.created, job.uid = seconds(meta.creation_timestamp), meta.uid
            job.priority = pod.spec.priority or 0
            job.sort_key = None
            job.first_seen = now
            if job.implicit and owner is not None:
                job.wait_until = now + OWNED_WAIT
        return job

    def _new_job(self, key: str, namespace: str, name: str, queue: str) -> Job:
        state = self.queue(queue or self.default_queue)
        job = self.jobs[key] = Job(key, namespace, name, state)
        state.jobs.add(job)
        return job

    def _drop_if_empty(self, job: Job) -> None:
        if job.tasks or job.group is not None:
            return
        job.detach()
        self.jobs.pop(job.key, None)
        self.dirty.pop(job, None)
        self.waiting.pop(job, None)
        if not job.queue.present and not job.queue.jobs:
            self.queues.pop(job.queue.name, None)

    def _touch(self, job: Job) -> None:
        self.dirty[job] = None
        self.activate(job)

    def activate(self, job: Job) -> None:
        """Let the job take part in the next cycle, unless its PodGroup is still to come."""
        self.waiting.pop(job, None)
        if (job.pending and job.implicit) or (job.group is not None and (job.pending or job.is_pending())):
            job.queue.active[job] = None

    def wait(self, job: Job, until: float) -> None:
        """Leave the job alone until then (or until resources are released)."""
        job.queue.active.pop(job, None)
        job.rest()
        self.waiting[job] = until
        self.next_due = min(self.next_due, until)

    def sleep(self, job: Job, classes: Iterable[PodClass]) -> None:
        """Leave the job alone until one of these classes may fit somewhere."""
        job.queue.active.pop(job, None)
        if job.inqueue:
            job.rest()
            self.wake_waiting()
        for cls in classes:
            self.sleeping.setdefault(cls, {})[job] = None

    def wake_waiting(self) -> None:
        """Resources were released or promises changed: whoever waits for room may try again in the next cycle."""
        self.released = True

    def wake_due(self, now: float) -> None:
        """Activate the jobs whose time has come, and after a release those that wait for room."""
        if self.released:
            self.released = False
            for job in list(self.waiting):
                if job.retry_at <= 0:
                    self.activate(job)
        if self.next_due <= now:
            for job, until in list(self.waiting.items()):
                if until <= now:
                    job.retry_at = 0.0
                    self.activate(job)
            self.next_due = min(self.waiting.values(), default=float("inf"))

    def wake(self, cls: PodClass) -> None:
        for job in self.sleeping.pop(cls, {}):
            if job.key in self.jobs:
                self.activate(job)

    # -- what the placer asks -----------------------------------------------------------------------------------

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
