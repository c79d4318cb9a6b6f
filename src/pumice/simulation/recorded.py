"""The world that a journal tells of, to be played with another configuration or summed up as it was.

Nodes, queues, PodGroups and pods come at their recorded times, and a pod runs for its recorded time from its new start. Answers
to decisions are not taken over: a Binding succeeds, an eviction is carried out at once. A pod that was evicted, or whose node
went, and the one that its controller made instead are one pod that began again, and count as such.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from pumice.effects.vocabulary import Bind
from pumice.journal.playing import inputs_of
from pumice.journal.reading import Part
from pumice.journal.records import Decided
from pumice.model.refusal import Refusal
from pumice.scheduler import inputs
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import KINDS, Configure, Drop, DropPod, Input, Put, PutPod, put_first_queues
from pumice.scheduler.state.known_claims import key_of
from pumice.scheduler.state.state import State
from pumice.simulation.manifests import unplaced
from pumice.simulation.play import Outage, PodRun, Simulation, Submission
from pumice.wire import names, volcano
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.pod_claims import claims_of
from pumice.wire.volcano import PodGroup

Json = dict[str, Any]

ANSWERS = (inputs.Bound, inputs.BindFailed, inputs.HoldBack, inputs.Evicting, inputs.EvictionRefused, inputs.GateStays,
           inputs.BeginFile)  # fmt: skip
"""Answers to a decision, which another decision would not have had, and records of the journal itself."""
OVER = ("Succeeded", "Failed")


@dataclass(slots=True, eq=False)
class Life:
    """A pod in the record; times are of the day. ``again``: the pod that its controller made when it had lost its place."""

    key: str
    pod: Pod
    arrived: float
    started: float | None = None
    ended: float | None = None
    node: str = ""
    notes: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    reason: str = ""
    again: Life | None = None

    def last(self) -> Life:
        found = self
        while found.again is not None:
            found = found.again
        return found

    def runs(self) -> float:
        """Return the seconds for which it runs, wherever it starts; infinity where the record does not say."""
        last = self.last()
        return last.ended - last.started if last.started is not None and last.ended is not None and not last.cut else inf

    def patience(self) -> float:
        last = self.last()
        return last.ended - self.arrived if last.started is None and last.ended is not None else inf


@dataclass(slots=True)
class Story:
    """The events between ``begin`` and ``end``. ``before``: what the scheduler had been told when it began to decide."""

    part: Part
    begin: float = 0.0
    end: float = 0.0
    conf: Configure | None = None
    before: list[Input] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    """Those that were there at the beginning."""
    told: list[tuple[float, Input]] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    """Pods of this scheduler, with those of the beginning."""
    claimed: list[Pod] = field(default_factory=list)
    """Pods of which it was told which claims were made for them."""

    def objects(self) -> dict[str, list[Json]]:
        """The nodes, PodGroups, claims and pods of the beginning as API objects."""
        found: dict[tuple[str, str], Json] = {}
        for one in self.before:
            if not isinstance(one, (Put, Drop)):
                continue
            if one.kind in ("Node", "PodGroup"):
                key = one.kind, f"{one.obj.metadata.namespace}/{one.obj.metadata.name}"
            elif one.kind in ("ResourceClaim", "ResourceSlice"):
                key = one.kind, key_of(one.obj)
            else:
                continue
            if isinstance(one, Put):
                found[key] = _bare(to_builtins(one.obj)) if KINDS[one.kind].slice_ is not None else one.obj
            else:
                found.pop(key, None)
        kinds = {"nodes": "Node", "podGroups": "PodGroup", "resourceClaims": "ResourceClaim", "resourceSlices": "ResourceSlice"}
        return {**{key: [obj for (known, _), obj in found.items() if known == kind] for key, kind in kinds.items()},
                "pods": [_bare(to_builtins(pod)) for pod in self.pods]}  # fmt: skip

    def ours(self) -> set[str]:
        """Return the uids of the pods of this scheduler."""
        found: set[str] = set()
        for life in self.lives:
            one: Life | None = life
            while one is not None:
                found.add(one.pod.metadata.uid)
                one = one.again
        return found

    def engine(self, conf: Configure | None = None) -> Engine:
        """An engine that has been told what was known at the beginning."""
        head = self.part.head
        engine = Engine(state=State(
            scheduler_names=frozenset(head.scheduler_names), default_queue=head.default_queue,
            implicit_groups=head.implicit_groups, names_groups=head.names_groups,
        ))  # fmt: skip
        put_first_queues(engine)
        for one in (conf or self.conf, *self.before):
            if one is not None:
                with contextlib.suppress(Exception):  # what could not be read then
                    one.apply(engine)
        for pod in self.pods:
            engine.state.pods.put(replace(pod, metadata=replace(pod.metadata)), self.begin)
        return engine


def story_of(part: Part) -> Story:
    """Read a part of a journal. Raises ``journal.playing.Broken``."""
    return _Reader(part).read()


class _Reader:
    def __init__(self, part: Part) -> None:
        self.story = Story(part)
        self.known: dict[str, Life] = {}
        self.keys: dict[str, int] = defaultdict(int)
        self.orphans: dict[str, list[Life]] = defaultdict(list)
        self.evicted: set[str] = set()
        self.nodes: set[str] = set()
        self.beginning: dict[str, Pod] = {}
        self.begun = False
        self.at = 0.0
        """The time of day of the last record."""

    def read(self) -> Story:
        story, snapshot = self.story, self.story.part.snapshot
        if snapshot is not None:
            story.conf = snapshot.conf
            for kind, obj in snapshot.objects:
                slice_ = KINDS[kind].slice_
                self._take(Put(kind, obj if slice_ is None else convert(slice_, obj)))
            for known in snapshot.pods:
                self._pod(known.pod)
        for at, found in _timed(list(inputs_of(story.part))):
            self.at = max(self.at, at)
            if isinstance(found, Decided):
                self._decided(found)
            else:
                self._take(found)
        story.pods = list(self.beginning.values())
        story.end = max(self.at, story.begin)
        return story

    def _decided(self, found: Decided) -> None:
        if not self.begun:
            self.begun, self.story.begin = True, found.wall
            for there in self.known.values():
                there.arrived = there.arrived or found.wall
                if there.node:
                    there.started = found.wall
        for uid, node in found.binds:
            if (life := self.known.get(str(uid))) is not None:
                life.started, life.node = found.wall, node
        for kind, effect in found.others:
            uid = effect.get("uid", "") if isinstance(effect, dict) else ""
            if kind == "Evict":
                self.evicted.add(uid)
            elif kind == "PodCondition" and uid in self.known:
                self.known[uid].reason = str(effect.get("message", ""))

    def _take(self, found: Input) -> None:
        if isinstance(found, PutPod):
            self._pod(found.pod)
        elif isinstance(found, DropPod):
            self._gone(found.pod)
        elif not isinstance(found, ANSWERS):
            if isinstance(found, Configure) and (not self.begun or self.story.conf is None):
                self.story.conf = found
                return
            if isinstance(found, (Put, Drop)) and found.kind == "Node":
                (self.nodes.add if isinstance(found, Put) else self.nodes.discard)(found.obj.metadata.name)
            if self.begun:
                self.story.told.append((self.at, found))
            else:
                self.story.before.append(found)

    def _pod(self, pod: Pod) -> None:
        meta, uid, over = pod.metadata, pod.metadata.uid, pod.status.phase in OVER
        if pod.status.resource_claim_statuses:
            self.story.claimed.append(pod)
        if pod.spec.scheduler_name not in self.story.part.head.scheduler_names:
            if self.begun:
                self.story.told.append((self.at, PutPod(pod, self.at)))
            elif not over:
                self.beginning[uid] = pod
            return
        life = self.known.get(uid)
        if life is None:
            if over:
                return
            self.keys[pod.key] += 1
            number = self.keys[pod.key]
            life = self.known[uid] = Life(pod.key if number == 1 else f"{pod.key}#{number}", pod, self.at)
            owner = _owner(pod)
            if owner and self.orphans[owner]:
                self.orphans[owner].pop(0).again = life
            else:
                self.story.lives.append(life)
        if not self.begun:
            self.beginning[uid] = pod
        if pod.spec.node_name:
            life.node, life.notes = pod.spec.node_name, meta.annotations
            if life.started is None and self.begun:
                life.started = self.at
        if over and life.ended is None:
            life.ended = self.at
            self.beginning.pop(uid, None) if not self.begun else None

    def _gone(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        if not self.begun:
            self.beginning.pop(uid, None)
        life = self.known.get(uid)
        if life is None:
            if self.begun:
                self.story.told.append((self.at, DropPod(pod)))
        elif life.ended is None:
            life.ended = self.at
            life.cut = uid in self.evicted or bool(life.node and life.node not in self.nodes)
            if life.cut and (owner := _owner(life.pod)):
                self.orphans[owner].append(life)


def _timed(found: list[Input | Decided]) -> list[tuple[float, Input | Decided]]:
    """The records with their times of day. One without a clock is of the next one's time: what happens wakes a scheduler."""
    ahead = next((one.wall - one.now for one in found if isinstance(one, Decided)), 0.0)
    times: list[float | None] = []
    for one in found:
        if isinstance(one, Decided):
            ahead = one.wall - one.now
            times.append(one.wall)
        else:
            times.append(one.now + ahead if isinstance(one, PutPod) else None)
    last = max((at for at in times if at is not None), default=0.0)
    for number in range(len(found) - 1, -1, -1):
        at = times[number]
        last = last if at is None else at
        times[number] = last
    return [(at or 0.0, one) for at, one in zip(times, found, strict=True)]


def _owner(pod: Pod) -> str:
    return next((owner.uid for owner in pod.metadata.owner_references if owner.controller), "")


def _bare(value: Any) -> Any:
    """Without what is empty, as an API server writes it."""
    if isinstance(value, dict):
        return {key: kept for key, one in value.items() if (kept := _bare(one)) not in (None, "", [], {}, False)}
    return [_bare(one) for one in value] if isinstance(value, list) else value


class Retold(Simulation):
    """A story with the engine of a configuration. ``conf`` None: that of the record, with its changes."""

    def __init__(self, story: Story, conf: Configure | None = None, engine: Engine | None = None) -> None:
        super().__init__(engine or story.engine(conf), story.begin, story.objects())
        self.story = story
        self._members: dict[str, set[str]] = defaultdict(set)
        self._ours = story.ours()
        by_uid = {one.pod.metadata.uid: one for one in reversed(story.lives)}  # of namesakes the first
        for uid, run in list(self._living.items()):
            life = by_uid.get(uid)
            if life is not None:
                run.patience = life.patience()
                self.runs_for(run, life.runs() if life.started is None or life.started > story.begin else _rest(life, story))
        for at, found in story.told:
            if conf is None or not isinstance(found, Configure):
                self._put(max(at, story.begin), "told", found)
        claims = {key_of(one.obj): one.obj for one in (*story.before, *(found for _, found in story.told))
                  if isinstance(one, Put) and one.kind == "ResourceClaim"}  # fmt: skip
        for pod in story.claimed:
            self.claims.learn(pod, claims)
        for run in self.runs:
            keys = claims_of(run.pod)
            if isinstance(keys, Refusal) or not self.claims.claims.keys() >= keys.keys():
                self.waits(run)  # its claims were made after the beginning

    def submissions(self) -> list[Submission]:
        templates: dict[bytes, Json] = {}
        there, found = {pod.metadata.uid for pod in self.story.pods}, list[Submission]()
        for life in self.story.lives:
            if life.pod.metadata.uid in there:
                continue
            name, _, number = life.key.partition("/")[2].partition("#")
            template = unplaced(_bare(to_builtins(life.pod)))
            template["metadata"] = {key: template["metadata"][key] for key in ("namespace", "labels", "annotations")
                                    if key in template["metadata"]}  # fmt: skip
            template = templates.setdefault(repr(template).encode(), template)
            if group := template["metadata"].get("annotations", {}).get(names.GROUP_NAME):
                self._members[f"{template['metadata'].get('namespace', 'default')}/{group}"].add(life.key)
            found.append(Submission(max(0.0, life.arrived - self.story.begin), name, (template,), 0, life.runs(), life.patience(),
                                    (f"{name}#{number}" if number else name,)))  # fmt: skip
        return found

    def tell(self) -> None:
        """Play until the record ends."""
        submissions = self.submissions()
        for _ in self.play(submissions):
            if self.now > self.story.end:
                break
        self.meter.advance(self.now - self.begin, arriving=False)

    def _happens(self, what: str, about: Any) -> None:
        if what == "told":
            self._told(about)
        else:
            super()._happens(what, about)

    def _told(self, found: Input) -> None:
        if isinstance(found, Put) and found.kind == "Node":
            node: Node = found.obj
            if node.metadata.name not in self.books.nodes:
                self.books.add(_bare(to_builtins(node)))
        elif isinstance(found, (Put, Drop)) and found.kind == "ResourceClaim":
            (self.claims.told if isinstance(found, Put) else self.claims.told_gone)(found.obj, self._ours)
            return
        elif isinstance(found, (Put, Drop)) and found.kind == "ResourceSlice":
            (self.claims.publish if isinstance(found, Put) else self.claims.withdraw)(found.obj)
        elif isinstance(found, Drop) and found.kind == "Node":
            self._fail(Outage(found.obj.metadata.name, 0.0))
            return
        elif isinstance(found, (Put, Drop)) and found.kind == "PodGroup":
            group: PodGroup = found.obj
            key = f"{group.metadata.namespace}/{group.metadata.name}"
            if isinstance(found, Drop):
                return  # it goes with the last of its pods
            if key in self._groups:
                known, members = self._groups[key]
                if known.spec == group.spec:
                    return  # what the scheduler wrote then
                group = replace(known, spec=group.spec)
            else:
                group, members = replace(group, status=type(group.status)(phase=volcano.PENDING)), self._members[key]
            self._groups[key] = group, members
            found = Put("PodGroup", group)
        with contextlib.suppress(Exception):
            found.apply(self.engine)


def _rest(life: Life, story: Story) -> float:
    """The seconds from the beginning for which a pod runs that ran then."""
    return life.ended - story.begin if life.ended is not None and not life.cut else life.runs()


class _Nobody:
    """Stands where an engine would, and decides nothing."""

    needs_cycle = pressing = False
    problems: Mapping[str, str] = {}

    def __init__(self, scheduler_names: Iterable[str] = ()) -> None:
        self.scheduler_names = frozenset(scheduler_names)

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> None:
        return None


class AsItWas(Retold):
    """The same with the recorded decisions: where each pod was placed, and when it lost its place."""

    def __init__(self, story: Story) -> None:
        super().__init__(story, engine=_Nobody(story.part.head.scheduler_names))  # type: ignore[arg-type]
        self._runs = {run.key: run for run in self._living.values()}
        self._early: dict[str, tuple[Life, Life]] = {}
        """Starts of pods that come at the same moment, as far as clocks tell."""
        for life in story.lives:
            one: Life | None = life
            while one is not None:
                if one.started is not None and (one.started > story.begin or not one.pod.spec.node_name):
                    self._put(one.started, "start", (life, one))
                if one.again is not None and one.ended is not None:
                    self._put(one.ended, "evict", life)
                one = one.again

    def _submit(self, run: PodRun) -> None:
        super()._submit(run)
        self._runs[run.key] = run
        if (early := self._early.pop(run.key, None)) is not None:
            self._happens("start", early)

    def _happens(self, what: str, about: Any) -> None:
        if what == "start":
            life, one = about
            run = self._runs.get(life.key)
            if run is None:
                self._early[life.key] = about
            elif not run.node and run.ended is None:
                meta = run.pod.metadata
                self._bind(Bind(meta.uid, meta.namespace, meta.name, one.node, dict(one.notes)))
        elif what == "evict":
            run = self._runs.get(about.key)
            if run is not None and run.node and run.ended is None:
                self.evictions += 1
                self._again(run)
        else:
            super()._happens(what, about)

    def tell(self) -> None:
        super().tell()
        self.violations.clear()  # what was placed was judged by whoever was there
        reasons = {life.key: life.last().reason for life in self.story.lives}
        for run in self.runs:
            run.reason = run.reason or reasons.get(run.key, "")

    def fit_no_node(self) -> dict[str, str]:
        return {}
