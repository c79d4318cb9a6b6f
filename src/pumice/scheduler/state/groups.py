"""PodGroups, queues and priority classes as the watch shows them, the jobs that they make, and the tree of queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pumice.effects.object_cache import UidTracker, number_of
from pumice.scheduler.state.jobs import Job, QueueState
from pumice.scheduler.state.resources import NOTHING, Vector, add, repack, subtract, vector
from pumice.scheduler.state.scheduling_queue import SchedulingQueue
from pumice.wire.names import DEFAULT_QUEUE, GROUP_NAME, GROUP_NAME_VOLCANO, QUEUE_NAME, ROOT_QUEUE
from pumice.wire.objects import Pod
from pumice.wire.times import seconds
from pumice.wire.volcano import PENDING, PodGroup, PriorityClass, Queue, group_name_for
from pumice.wire.without_effect import Row, Shown, asked_by_pod

# -- the tree of queues: what each holds together with those below it, kept up to date ---------------------------------


@dataclass(slots=True)
class QueueTree:
    """The queues by their parents. A queue that names none, or is its own ancestor, stands directly below the root."""

    queues: Mapping[str, QueueState] = field(default_factory=dict)
    version: int = 0
    """Raised when a queue comes, goes, or says something else."""
    changed: dict[QueueState, None] = field(default_factory=dict)
    """Queues whose own sums changed since they were counted here."""
    _built: int = -1
    _above: dict[QueueState, tuple[QueueState, ...]] = field(default_factory=dict)
    _counted: dict[QueueState, tuple[Vector, Vector, Vector]] = field(default_factory=dict)
    """Each queue's own part of the sums."""
    _usage: dict[QueueState, Vector] = field(default_factory=dict)
    _awaited: dict[QueueState, Vector] = field(default_factory=dict)
    _started: dict[QueueState, Vector] = field(default_factory=dict)
    """Amounts reserved for Inqueue jobs, without what they hold beyond their minimum (inqueue less elastic)."""
    _everything: Vector = field(default_factory=dict)
    _touched: dict[QueueState, None] = field(default_factory=dict)
    _moved: dict[QueueState, None] = field(default_factory=dict)

    def above(self, queue: QueueState) -> tuple[QueueState, ...]:
        """The queue's parents up to the root. A queue that is its own ancestor has none."""
        if self._built != self.version:  # who stands above whom hangs on no sum, and is asked for each pod
            self._build()
        return self._above.get(queue, ())

    def usage(self, queue: QueueState) -> Vector:
        """Return what it and all below it are charged. Nobody may change it in place."""
        self._count()
        return self._usage.get(queue, {})

    def taken(self, queue: QueueState) -> Vector:
        """The same with what they wait for because it was promised to them."""
        self._count()
        return together(self._usage.get(queue, {}), self._awaited.get(queue, {}))

    def all_taken(self) -> Vector:
        """Return what all queues have taken."""
        self._count()
        return self._everything

    def spoken_for(self, queue: QueueState, name: str) -> int:
        """Return how much of a resource it and all below it hold or were promised, beyond which a job may be started (Volcano
        pkg/scheduler/plugins/proportion)."""
        self._count()
        return self._usage.get(queue, {}).get(name, 0) + self._started.get(queue, {}).get(name, 0)

    def take_touched(self) -> list[QueueState]:
        """The queues of which what they hold may have changed since this was asked last."""
        self._count()
        touched, self._touched = list(self._touched), {}
        return touched

    def take_moved(self) -> list[QueueState]:
        """The same for what they have taken."""
        self._count()
        moved, self._moved = list(self._moved), {}
        return moved

    def _count(self) -> None:
        if self._built != self.version:
            self._build()
        if not self.changed:
            return
        for queue in self.changed:
            if queue not in self._counted:
                continue  # it is gone
            usage, awaited, started = self._counted[queue]
            lineage = (queue, *self._above[queue])
            if more := _difference(queue.allocated, usage):
                _apply(more, usage, self._everything, *(self._usage[each] for each in lineage))
                for each in lineage:
                    self._touched[each] = self._moved[each] = None
            if more := _difference(queue.awaited, awaited):
                _apply(more, awaited, self._everything, *(self._awaited[each] for each in lineage))
                self._moved.update(dict.fromkeys(lineage))
            if more := _difference(queue.inqueue, started, minus=queue.elastic):
                _apply(more, started, *(self._started[each] for each in lineage))
        self.changed.clear()

    def _build(self) -> None:
        self._built = self.version
        queues, before = list(self.queues.values()), self._usage
        self._above = {queue: self._path(queue) for queue in queues}
        self._counted = {queue: ({}, {}, {}) for queue in queues}
        self._usage, self._awaited, self._started = ({queue: Vector() for queue in queues} for _ in range(3))
        self._everything, self._moved = {}, dict.fromkeys(queues)
        self._touched.update(dict.fromkeys(queue for queue in queues if before.get(queue)))
        self.changed.update(dict.fromkeys(queues))

    def _path(self, queue: QueueState) -> tuple[QueueState, ...]:
        found: list[QueueState] = []
        at = queue
        while not at.problem and at.name != ROOT_QUEUE:
            parent = self.queues.get(at.parent or ROOT_QUEUE)
            if parent is None or parent in found:
                break
            found.append(parent)
            at = parent
        return tuple(found)


def together(usage: Vector, awaited: Vector) -> Vector:
    """Return what is held and what is waited for."""
    if not awaited:
        return usage
    total = dict(usage)
    add(total, awaited.items())
    return total


def _difference(now: Vector, before: Vector, *, minus: Vector | None = None) -> Vector:
    """By how much each amount changed."""
    if minus:
        now = dict(now)
        subtract(now, minus.items())
    if now == before:
        return {}
    return {name: value for name in {**now, **before} if (value := now.get(name, 0) - before.get(name, 0))}


def _apply(more: Vector, *sums: Vector) -> None:
    """Amounts that are nothing are left out, so that what is equal compares as equal."""
    less = [(name, -value) for name, value in more.items()]
    for total in sums:
        subtract(total, less)


# -- a PodGroup's fields in its job ------------------------------------------------------------------------------------


def read_group(job: Job, group: PodGroup, priority: int) -> None:
    """Take over what a PodGroup object says; the phase in memory may be ahead of the object."""
    spec = group.spec
    job.group = group
    job.sort_key = None
    job.uid = group.metadata.uid
    created = seconds(group.metadata.creation_timestamp)
    if created != job.created:
        job.created, job.waits_since = created, None
    job.min_available = max(0, spec.min_member)
    job.role_minimum = dict(spec.min_task_member)
    job.min_resources = None if spec.min_resources is None else vector(spec.min_resources)
    job.priority = priority
    job.conditions = {c.type: c for c in group.status.conditions}
    ahead = job.phase not in ("", PENDING) and group.status.phase in ("", PENDING)
    if not ahead:
        job.phase = group.status.phase
    job.weigh()


def drop_group(job: Job) -> None:
    """Its PodGroup is gone: nothing is promised to the pods that are left, and none of them is started that needs the group."""
    job.group = None
    job.sort_key = None
    job.min_resources, job.phase, job.conditions, job.announced = None, "", NOTHING, ("", "")
    job.whole, job.waits_since = False, None
    if job.implicit:  # it is again what its pods alone say: whoever lacks no others may start
        first = min(job.tasks.values(), key=lambda task: task.name, default=None)
        job.min_available, job.role_minimum = 1, NOTHING
        job.priority = 0 if first is None else first.priority
    job.recount()
    job.weigh()


# -- PodGroups, queues and priority classes ----------------------------------------------------------------------------


OWNED_WAIT = 1.0
"""Seconds that a bare pod with an owner waits for the PodGroup that its owner's annotations may shape."""


@dataclass(slots=True)
class Groups:
    """Jobs and queues."""

    scheduling_queue: SchedulingQueue
    uids: UidTracker
    """Of the names of everything but pods, which go by uid, and PodGroups, which are as many and kept whole by their jobs."""
    problems: dict[str, str]
    default_queue: str = DEFAULT_QUEUE
    implicit_groups: bool = True
    """Schedule a bare pod at once as a group of one, before any PodGroup exists for it."""
    names_groups: bool = False
    """Let Bindings name the PodGroups that a controller makes for pods that name none: one write less for each."""
    jobs: dict[str, Job] = field(default_factory=dict)
    queues: dict[str, QueueState] = field(default_factory=dict)
    elsewhere: dict[str, set[str]] = field(default_factory=dict)
    """By PodGroup the uids of pods of other schedulers that name it."""
    _named_elsewhere: dict[str, str] = field(default_factory=dict)
    """By uid of such a pod the PodGroup: its owner may name another one."""
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    tree: QueueTree = field(init=False)
    notes: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Fields of queues that have no effect yet: kind and key to uid and words."""
    unsaid: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Those of them that nobody was told of."""
    repoliced: dict[Job, None] = field(default_factory=dict)
    """Jobs that have another queue than before, or whose queue says otherwise, with another card policy by that."""
    _with_policies: set[str] = field(default_factory=set)
    """Names of the queues that name a card policy."""
    ranked: int = 0
    """Raised when pods that hold places may count for another queue or with another priority than before."""
    _borrowed: int = 0
    """Number of times that a queue borrowed something beyond its share."""

    _remarks: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tree = QueueTree(self.queues)

    # -- PodGroups ------------------------------------------------------------------------------------------------

    def put_group(self, group: PodGroup) -> None:
        meta = group.metadata
        key = f"{meta.namespace}/{meta.name}"
        job = self.jobs.get(key)
        known = None if job is None or job.group is None else job.group.metadata
        if known is not None and known.uid == meta.uid and 0 < number_of(meta) <= number_of(known):
            return  # watches repeat themselves
        if job is not None and job.group is not None and job.group.metadata.uid != meta.uid:
            self.drop_group(job.group)
            job = self.jobs.get(key)
        before = None if job is None else (job.queue, job.priority)
        policies = NOTHING if job is None else job.queue.policies
        if job is None:
            job = self._new_job(key, meta.namespace, meta.name, group.spec.queue)
        elif group.spec.queue or not job.implicit:
            job.attach(self.queue(group.spec.queue or self.default_queue))
        echo = job.group is not None and job.group.spec == group.spec and job.group.status == group.status
        read_group(job, group, self._priority(job, group))
        if job.ready_count and before != (job.queue, job.priority):
            self.ranked += 1
        if job.queue.policies != policies:
            self.repoliced[job] = None
        if not echo:
            self.scheduling_queue.changed(job)

    def drop_group(self, group: PodGroup) -> None:
        key = f"{group.metadata.namespace}/{group.metadata.name}"
        job = self.jobs.get(key)
        if job is not None and job.group is not None and job.group.metadata.uid != group.metadata.uid:
            return
        self.problems.pop(f"PodGroup {key}", None)
        if job is not None:
            drop_group(job)  # a successor of the same name starts anew
            self.scheduling_queue.released()  # for what was promised to it
            self.drop_if_empty(job)
            if job.known:
                self._leave_queue(job)

    def _leave_queue(self, job: Job) -> None:
        """Nobody else remembers the queue that the PodGroup named: its members stand where a scheduler that never saw it
        would put them, in the queue of the first one in the API server's order."""
        left = job.queue
        first = min(job.tasks.values(), key=lambda task: task.name)
        job.attach(self.queue(first.queue or self.default_queue))
        self.ranked += 1
        if job.queue.policies != left.policies:
            self.repoliced[job] = None
        if not left.present and not left.jobs:
            self._drop_queue(left.name)
        self.scheduling_queue.write_queues([left.name])
        self.scheduling_queue.changed(job)

    def _note(self, kind: str, key: str, uid: str, requested: Sequence[Row]) -> None:
        if not requested:
            self.notes.pop((kind, key), None)
            return
        note = uid, "; ".join(row.field_text for row in requested)
        if self.notes.get((kind, key)) != note:
            self.notes[kind, key] = self.unsaid[kind, key] = note

    def note_pod(self, pod: Pod) -> None:
        """Report once on a new pod the preferences that have no effect; what it demands is a reason to wait."""
        preferred = [row for row in asked_by_pod(pod) if row.reported is Shown.EVENT]
        if preferred:
            self.unsaid["Pod", pod.key] = pod.metadata.uid, "; ".join(row.field_text for row in preferred)

    # -- queues ---------------------------------------------------------------------------------------------------

    def put_queue(self, queue: Queue) -> None:
        name = queue.metadata.name
        known, version = self.queues.get(name), number_of(queue.metadata)
        if known is not None and known.uid == queue.metadata.uid and 0 < version <= known.object_version:
            return
        if self.uids.comes("Queue", name, queue.metadata.uid):
            self._forget_queue(name)
        state = self.queue(name)
        parent, policies = state.parent, state.policies
        state.read(queue)
        state.object_version = version
        self._follow_policies(state, policies)
        self._note("Queue", name, state.uid, state.unserved)
        if state.parent != parent:
            self.scheduling_queue.write_queues([parent])  # what it and its own parents hold is less now
            self._look_for_circles(name)
        meaning = (queue.spec, queue.status.state, state.hierarchy, state.misplaced, state.policies, state.misnamed)
        if state.meaning == meaning:
            return  # only the echo of the allocation that we wrote ourselves
        state.meaning = meaning
        self.tree.version += 1
        for job in state.jobs:
            self.scheduling_queue.changed(job)
        self.scheduling_queue.released()

    def drop_queue(self, name: str, uid: str = "") -> None:
        if self.uids.goes("Queue", name, uid):
            self._forget_queue(name)

    def _forget_queue(self, name: str) -> None:
        state = self.queues.get(name)
        if state is not None:
            policies = state.policies
            state.forget()
            self._follow_policies(state, policies)
            self.tree.version += 1
            self.notes.pop(("Queue", name), None)
            if not state.jobs:
                self._drop_queue(name)
            self._look_for_circles(name)
            self.scheduling_queue.released()  # for what was guaranteed to it

    def _follow_policies(self, queue: QueueState, before: Mapping[str, str]) -> None:
        """Note what the queue says of card policies now."""
        (self._with_policies.add if queue.policies else self._with_policies.discard)(queue.name)
        if queue.policies != before:
            self.repoliced.update(dict.fromkeys(queue.jobs))

    def policies_for(self, pod: Pod) -> Mapping[str, str]:
        """The card policies that the queue of a pod names, as annotations."""
        if not self._with_policies:
            return NOTHING
        job = self.jobs.get(f"{pod.metadata.namespace}/{_named(pod) or _own_group(pod)[0]}")
        if job is not None:
            return job.queue.policies
        queue = self.queues.get(pod.metadata.annotations.get(QUEUE_NAME, "") or self.default_queue)
        return NOTHING if queue is None else queue.policies

    def queue(self, name: str) -> QueueState:
        """The queue of that name, known or not (an unknown one is not present)."""
        found = self.queues.get(name)
        if found is None:
            found = self.queues[name] = QueueState(name, changed=self.tree.changed)
            self.tree.version += 1
        return found

    def _drop_queue(self, name: str) -> None:
        """Neither an object nor a job speaks of it."""
        if self.queues.pop(name, None) is not None:
            self.tree.version += 1

    def note_borrowed(self, queue: QueueState) -> None:
        """The queue borrowed something beyond its share."""
        self._borrowed += 1
        queue.last_borrowed = self._borrowed

    def tidy(self) -> None:
        """Give back the room of jobs that are gone."""
        repack(self.jobs)
        for queue in self.queues.values():
            repack(queue.jobs)

    def remark(self, who: str, remarks: Mapping[str, str]) -> None:
        """Replace what a plugin finds wrong with queues, by their names. A circle is the graver thing."""
        if remarks == self._remarks.get(who, {}):
            return
        before = {name for said in self._remarks.values() for name in said}
        self._remarks[who] = remarks
        for name in before | remarks.keys():
            queue = self.queues.get(name)
            if queue is None or not queue.problem:
                words = [said[name] for said in self._remarks.values() if name in said]
                self.problems.pop(f"Queue {name}", None)
                if words and queue is not None:
                    self.problems[f"Queue {name}"] = "; ".join(words)

    def forget_remarks(self) -> None:
        """Other plugins look at the queues now."""
        for who in self._remarks:
            self.remark(who, {})

    def _look_for_circles(self, changed: str) -> None:
        """Name the queues that are their own ancestors, after the parent of one has changed. Mending one mends its circle."""
        doubtful = {changed, *self._path(changed), *(name for name, queue in self.queues.items() if queue.problem)}
        self.problems.pop(f"Queue {changed}", None)
        self.scheduling_queue.write_queues(doubtful)
        self.tree.version += 1
        for name in doubtful & self.queues.keys():
            path = self._path(name)
            self.queues[name].problem = ""
            self.problems.pop(f"Queue {name}", None)
            if len(path) > 1 and path[-1] == name:
                text = f"queue {name} is its own ancestor ({' > '.join(path)}); its parents are ignored"
                self.queues[name].problem = self.problems[f"Queue {name}"] = text

    def _path(self, name: str) -> list[str]:
        """A queue and its parents as they are named, up to the first name that comes again."""
        path = [name]
        while path[-1] != ROOT_QUEUE and path[-1] in self.queues:
            parent = self.queues[path[-1]].parent
            if not parent:
                break
            if parent in path:
                return [*path, parent]
            path.append(parent)
        return path

    # -- priority classes -----------------------------------------------------------------------------------------

    def put_priority_class(self, cls: PriorityClass) -> None:
        self.uids.comes("PriorityClass", cls.metadata.name, cls.metadata.uid)
        self.priority_classes[cls.metadata.name] = cls
        self._reprioritise()

    def drop_priority_class(self, name: str, uid: str = "") -> None:
        if self.uids.goes("PriorityClass", name, uid):
            self.priority_classes.pop(name, None)
            self._reprioritise()

    def _reprioritise(self) -> None:
        self.ranked += 1
        for job in self.jobs.values():
            if job.group is not None:
                job.priority = self._priority(job, job.group)
                job.sort_key = None
                job.queue.active.renew(job)

    def _priority(self, job: Job, group: PodGroup) -> int:
        """The value of the class that the group names, else of the global default, else 0 (Volcano
        pkg/scheduler/api/job_info.go)."""
        name = group.spec.priority_class_name
        cls = self.priority_classes.get(name)
        usual = next((c.value for c in self.priority_classes.values() if c.global_default), 0)
        job.problem = "" if cls is not None or not name else f"priority class {name!r} does not exist; {usual} is used"
        if group.spec.min_member < 0:
            job.problem = "minMember is negative; it counts as 0"
        if job.problem:
            self.problems[f"PodGroup {job.key}"] = job.problem
        else:
            self.problems.pop(f"PodGroup {job.key}", None)
        return usual if cls is None else cls.value

    # -- jobs -----------------------------------------------------------------------------------------------------

    def job_of(self, pod: Pod, now: float) -> Job:
        """The job of a pod, made when it is the first one seen of it."""
        meta = pod.metadata
        named, (own, owned) = _named(pod), _own_group(pod)
        name = named or own
        key, bare = f"{meta.namespace}/{name}", name == own and self.implicit_groups
        job = self.jobs.get(key)
        if job is None:
            job = self._new_job(key, meta.namespace, name, meta.annotations.get(QUEUE_NAME, ""))
            job.implicit = bare
            job.created, job.uid = seconds(meta.creation_timestamp), meta.uid
            job.priority = pod.spec.priority or 0
            job.sort_key = None
            if job.implicit and owned:
                job.wait_until = now + OWNED_WAIT
        job.implicit = job.implicit or bare  # its PodGroup may have been seen first, and may go first
        return job

    def served_elsewhere(self, pod: Pod, *, gone: bool = False) -> None:
        """A pod of another scheduler: where only such name a PodGroup, it is told by that one."""
        uid, named = pod.metadata.uid, "" if gone else _named(pod)
        if before := self._named_elsewhere.pop(uid, ""):
            self.elsewhere[before].remove(uid)
            if not self.elsewhere[before]:
                del self.elsewhere[before]
        if named:
            key = self._named_elsewhere[uid] = f"{pod.metadata.namespace}/{named}"
            self.elsewhere.setdefault(key, set()).add(uid)

    def _new_job(self, key: str, namespace: str, name: str, queue: str) -> Job:
        state = self.queue(queue or self.default_queue)
        job = self.jobs[key] = Job(key, namespace, name, state)
        state.jobs[job] = None
        state.version += 1
        return job

    def drop_if_empty(self, job: Job) -> None:
        """A job is what its PodGroup or its pods say; without either there is none."""
        if job.tasks or job.group is not None:
            return
        job.detach()
        if job.queue.one_by_one:
            self.scheduling_queue.released()  # for who came after it
        self.jobs.pop(job.key, None)
        self.scheduling_queue.forget(job)
        if not job.queue.present and not job.queue.jobs:
            self._drop_queue(job.queue.name)


def _own_group(pod: Pod) -> tuple[str, bool]:
    """The PodGroup of a pod that names none, and whether an owner shapes it."""
    meta = pod.metadata
    owner = next((o for o in meta.owner_references if o.controller), None) if meta.owner_references else None
    return group_name_for(owner.uid if owner else meta.uid), owner is not None


def _named(pod: Pod) -> str:
    """The PodGroup that a pod names itself."""
    annotations = pod.metadata.annotations
    return annotations.get(GROUP_NAME) or annotations.get(GROUP_NAME_VOLCANO, "")
