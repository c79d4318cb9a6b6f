"""The play: arrivals, departures and failures of nodes go into the engine as the watch would tell them, its effects are carried
out at once, and time jumps to the next moment at which something happens.

An evicted pod, and one whose node fails, is made anew at once, as its controller makes it, and runs from its beginning. Each
Binding is booked a second time by the auditor (``pumice.audit``), which knows nothing of the engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from pumice.audit.amounts import Amounts
from pumice.audit.auditor import Books
from pumice.effects.vocabulary import (
    Bind,
    Deallocate,
    Evict,
    GroupStatus,
    Nominate,
    OpenGate,
    PodCondition,
    SchedulerEffect,
)
from pumice.scheduler.engine import Engine
from pumice.simulation.claims import PlayedClaims
from pumice.simulation.manifests import unplaced
from pumice.simulation.meter import Meter
from pumice.wire import names, volcano
from pumice.wire.objects import Meta, Node, Pod, PodStatus, convert
from pumice.wire.quantity import milli
from pumice.wire.times import stamp
from pumice.wire.volcano import PodGroup

Json = dict[str, Any]

WINDOW, STATUS_WINDOW = 0.002, 0.25
"""Seconds between two cycles of a moment, and until one that has only status to write, as the daemon waits for company."""
FUTILE = 50
"""Cycles of one moment without a placement or an eviction, after which the next moment comes."""
RUNNING = PodStatus(phase="Running")
STOOD = ("Running", "Unknown", "Completed")
"""Phases of a PodGroup that has stood once."""
LAST_TRIES = 130.0
"""Seconds without a change, beyond the longest backoff, after which nobody who waits will be placed any more."""


@dataclass(frozen=True, slots=True)
class Submission:
    """Pods that arrive together, ``at`` seconds from the beginning, one for each template: of a gang, so many at least start
    together. ``runs``: the seconds from a pod's start to its end; ``patience``: after so many one without a place leaves."""

    at: float
    name: str
    templates: Sequence[Mapping[str, Any]]
    gang: int = 0
    runs: float = inf
    patience: float = inf
    names: Sequence[str] = ()
    """Of the pods, where they are not called by the submission's own name and a number."""

    def keys(self) -> list[str]:
        """Return namespace and name of each pod."""
        many = len(self.templates) > 1
        called = self.names or [f"{self.name}-{number}" if many else self.name for number in range(len(self.templates))]
        return [f"{template['metadata'].get('namespace') or 'default'}/{name}" for template, name in
                zip(self.templates, called, strict=True)]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outage:
    """A node that fails, ``at`` seconds from the beginning, and comes back after so many."""

    node: str
    at: float
    seconds: float = inf


@dataclass(slots=True, eq=False)
class PodRun:
    """The life of one pod. ``arrived`` and ``started`` are seconds from the beginning; before it for those that ran then."""

    key: str
    template: Mapping[str, Any]
    pod: Pod
    arrived: float
    runs: float = inf
    patience: float = inf
    started: float | None = None
    node: str = ""
    cards: str = ""
    ended: float | None = None
    restarts: int = 0
    reason: str = ""
    """Why it was not placed, as it was last said."""
    queue: str = names.DEFAULT_QUEUE


class Simulation:
    """One engine and all that was ever submitted to it. ``objects`` are what it has seen already, by kind as in a case file."""

    def __init__(self, engine: Engine, begin: float, objects: Mapping[str, list[Json]], period: float = 0.0) -> None:
        """``period``: the least seconds between cycles; 0: as the daemon does, as soon as something happens."""
        self.engine, self.begin, self.now, self.period = engine, begin, begin, period
        self.books = Books(objects.get("nodes", ()))
        self.claims = PlayedClaims(engine.state.device_claims, objects)
        self.runs: list[PodRun] = []
        self.violations: list[str] = []
        """Sentences of the auditor: what is over, and was not before the play began."""
        self.evictions = self.failures = self.cycles = 0
        self._due: list[tuple[float, int, str, Any]] = []
        self._serial = 0
        self._cycled, self._stirred = -inf, inf
        """When the last cycle was; since when there is something that a cycle should look at."""
        self._living: dict[str, PodRun] = {}
        self._groups: dict[str, tuple[PodGroup, set[str]]] = {}
        self._parsed: dict[int, Pod] = {}
        self._asked: dict[int, Amounts] = {}
        """The pod of each template and the auditor's reading of it, by the template's identity: thousands of pods share one."""
        self._standing: Counter[str] = Counter()
        """Pods of each gang that have a place."""
        self._bound: set[str] = set()
        """Gangs of which pods got a place at this moment."""
        for group in objects.get("podGroups", ()):
            found = convert(PodGroup, group)
            key = f"{found.metadata.namespace}/{found.metadata.name}"
            self._groups[key] = found, {key}  # which no pod is called: it stays
            self._standing[key] = 0
        for pod in objects.get("pods", ()):
            self._adopt(pod)
        self._stood = {key for key, number in self._standing.items() if number or self._groups[key][0].status.phase in STOOD}
        self._known = {text for name in self.books.nodes for text in self.books.over(name)}
        self.meter = Meter(self.books, ())

    def play(self, submissions: Sequence[Submission], outages: Iterable[Outage] = ()) -> Iterator[int]:
        """Play everything, and yield the number of submissions so far after each moment: who asks for no more has a play that
        ends there, with what is known until then. Submissions are in the order of their time."""
        there = [run.template for run in self._living.values()]
        self.meter = Meter(self.books, [*there, *(template for one in submissions for template in one.templates)])
        for outage in outages:
            self._put(self.begin + outage.at, "fail", outage)
        every, arrived, last = max(1, len(submissions) // 60), 0, self.begin
        while (moment := self._next(submissions, arrived, last)) < inf:
            self.now = max(self.now, moment)
            self.meter.advance(self.now - self.begin, arriving=arrived < len(submissions))
            before = len(self.runs), self.evictions, arrived
            while self._due and self._due[0][0] <= self.now:
                _, _, what, about = heappop(self._due)
                self._happens(what, about)
                last = self.now
            while arrived < len(submissions) and self.begin + submissions[arrived].at <= self.now:
                self._arrive(submissions[arrived])
                arrived, last = arrived + 1, self.now
            settled = self._settle()
            self._audit_gangs()
            changed = settled or before[:2] != (len(self.runs), self.evictions)
            if changed:
                last = self.now
            alone = not submissions and (changed or not self.meter.samples)  # who waits in the dump is played, nobody comes
            if alone or arrived // every != before[2] // every or (arrived == len(submissions) != before[2]):
                waiting = sum(1 for run in self._living.values() if run.started is None)
                self.meter.sample(self.now - self.begin, waiting)
            yield arrived

    def settle(self, seconds: float = 0.0) -> None:
        """Let so much time pass in which nobody comes or ends."""
        end = self.now + seconds
        self._settle()
        while (wake := self.engine.next_wake()) is not None and max(wake, self.now + WINDOW) < end:
            self.now = max(wake, self.now + WINDOW)
            self._settle()
        self.now = max(self.now, end)

    def restart(self, uid: str) -> PodRun:
        """Evict a pod that runs; its controller makes it anew."""
        run = self._living[uid]
        self._again(run)
        return run

    def run_of(self, uid: str) -> PodRun:
        return self._living[uid]

    def _next(self, submissions: Sequence[Submission], arrived: int, last: float) -> float:
        """Return the next moment at which something happens; infinity at the end."""
        coming = self.begin + submissions[arrived].at if arrived < len(submissions) else inf
        due = self._due[0][0] if self._due else inf
        wake = self.engine.next_wake()
        tries = max(self.now + WINDOW, wake) if wake is not None else inf
        if self.engine.needs_cycle:
            tries = min(tries, min(self.now, self._stirred) + STATUS_WINDOW)
        tries = max(tries, self._cycled + self.period)
        if min(coming, due) == inf and tries > last + LAST_TRIES:
            return inf
        return min(coming, due, tries)

    def runs_alive(self) -> Sequence[PodRun]:
        """The pods that run and that wait."""
        return tuple(self._living.values())

    def runs_for(self, run: PodRun, still: float) -> None:
        """A pod that runs ends after so many seconds; one that waits, so many after its start."""
        run.runs = still
        if run.started is not None and still < inf:
            self._put(self.now + still, "end", (run.pod.metadata.uid, run.restarts))

    # -- what happens -------------------------------------------------------------------------------------------

    def _put(self, at: float, what: str, about: Any) -> None:
        self._serial += 1
        heappush(self._due, (at, self._serial, what, about))

    def _happens(self, what: str, about: Any) -> None:
        match what:
            case "end" | "leave":
                uid, restarts = about
                run = self._living.get(uid)
                if run is not None and run.restarts == restarts and (what == "end" or run.started is None):
                    run.ended = self.now - self.begin
                    self._drop(run)
                    run.pod = self._shape(run.template)  # of a million that are gone nobody asks for more than their figures
            case "fail":
                self._fail(about)
            case "return":
                self.books.add(about)
                self.engine.state.bookings.put_node(convert(Node, about))

    def _arrive(self, submission: Submission) -> None:
        group = self._new_group(submission) if submission.gang else ""
        for template, key in zip(submission.templates, submission.keys(), strict=True):
            namespace, _, name = key.partition("/")
            shape = self._shape(template)
            notes = shape.metadata.annotations | ({names.GROUP_NAME: group} if group else {})
            meta = Meta(name, namespace, f"{namespace}-{name}-{len(self.runs)}", labels=shape.metadata.labels, annotations=notes,
                        creation_timestamp=stamp(self.now))  # fmt: skip
            run = PodRun(key, template, replace(shape, metadata=meta), self.now - self.begin,
                         submission.runs, submission.patience)  # fmt: skip
            run.queue = self._queue_of(run)
            self.runs.append(run)
            self._submit(run)

    def _shape(self, template: Mapping[str, Any]) -> Pod:
        found = self._parsed.get(id(template))
        if found is None:
            found = self._parsed[id(template)] = convert(Pod, template)
        return found

    def _new_group(self, submission: Submission) -> str:
        """The PodGroup of a gang, as its controller makes it. Returns its name."""
        first, name = self._shape(submission.templates[0]), submission.name
        namespace = first.metadata.namespace or "default"
        queue = first.metadata.annotations.get(names.QUEUE_NAME, names.DEFAULT_QUEUE)
        least: dict[str, str] = {}
        for template in submission.templates[: submission.gang]:
            for container in self._shape(template).spec.containers:
                for resource, amount in {**container.resources.limits, **container.resources.requests}.items():
                    least[resource] = f"{int(least.get(resource, '0m')[:-1]) + milli(amount)}m"
        spec = {"minMember": submission.gang, "queue": queue, "minResources": least,
                **({"priorityClassName": p} if (p := first.spec.priority_class_name) else {})}  # fmt: skip
        meta = {"name": name, "namespace": namespace, "uid": f"group-{namespace}-{name}",
                "creationTimestamp": stamp(self.now)}  # fmt: skip
        group = convert(PodGroup, {"metadata": meta, "spec": spec, "status": {"phase": volcano.PENDING}})
        self._groups[f"{namespace}/{name}"] = group, set(submission.keys())
        self.engine.state.groups.put_group(group)
        return name

    def _submit(self, run: PodRun) -> None:
        uid = run.pod.metadata.uid
        self._living[uid] = run
        self.waits(run)
        if run.patience < inf:
            self._put(self.now + run.patience, "leave", (uid, run.restarts))

    def waits(self, run: PodRun) -> None:
        """A pod that waits comes, or claims can be made for it now."""
        if run.pod.spec.resource_claims:
            made = self.claims.made_for(run.pod)
            run.pod = replace(run.pod, status=replace(run.pod.status, resource_claim_statuses=made))
        self.engine.state.pods.put(run.pod, self.now)

    def _adopt(self, pod: Json) -> None:
        """Take up a pod that the engine has seen already."""
        value = convert(Pod, pod)
        if value.status.phase in ("Succeeded", "Failed"):
            return
        value = replace(value, metadata=replace(value.metadata, resource_version=""))  # what comes of it is newer than the dump
        run = PodRun(value.key, unplaced(pod), value, 0.0, node=value.spec.node_name)
        run.queue = self._queue_of(run)
        self._living[value.metadata.uid] = run
        if run.node:
            run.started, run.arrived = 0.0, -inf
            if run.node in self.books.nodes:
                self.books.take(pod, self.claims.beside(self.books.asked(pod), self.books.have[run.node]))
            if (group := self._gang_of(run)) in self._groups:
                self._standing[group] += 1
        elif value.spec.scheduler_name in self.engine.state.pods.scheduler_names:
            self.runs.append(run)

    def _drop(self, run: PodRun) -> None:
        """The pod is gone."""
        meta = run.pod.metadata
        self.engine.state.pods.drop(run.pod)
        del self._living[meta.uid]
        self.claims.gone(meta.uid)
        if run.node in self.books.nodes:
            self.books.give({"metadata": {"uid": meta.uid}})
            self.meter.touch(run.node)
        key = self._gang_of(run)
        if key in self._groups and run.node:
            self._standing[key] -= 1
        if key in self._groups and run.ended is not None:
            group, members = self._groups[key]
            members.discard(run.key)
            if not members:
                del self._groups[key]
                self._stood.discard(key)
                self.engine.state.groups.drop_group(group)

    def _again(self, run: PodRun) -> None:
        """The pod loses its place, and is made anew under its name."""
        self._drop(run)
        if run.arrived == -inf:  # it ran before the play began, and is one of those that wait from now on
            run.arrived = self.now - self.begin
            self.runs.append(run)
        run.restarts += 1
        run.started, run.node, run.cards = None, "", ""
        meta, spec = run.pod.metadata, run.pod.spec
        notes = dict(self._shape(run.template).metadata.annotations)
        if names.GROUP_NAME in meta.annotations:
            notes[names.GROUP_NAME] = meta.annotations[names.GROUP_NAME]
        fresh = replace(meta, uid=f"{meta.uid.partition('~')[0]}~{run.restarts}", annotations=notes,
                        creation_timestamp=stamp(self.now))  # fmt: skip
        run.pod = replace(run.pod, metadata=fresh, spec=replace(spec, node_name=""), status=PodStatus(phase="Pending"))
        self._submit(run)

    def _fail(self, outage: Outage) -> None:
        node = self.books.nodes.get(outage.node)
        if node is None:  # it is down already
            return
        self.failures += 1
        lost = [run for run in self._living.values() if run.node == outage.node]
        for run in lost:
            self._again(run)
        self.books.remove(outage.node)
        self.engine.state.bookings.drop_node(outage.node)
        if outage.seconds < inf:
            self._put(self.now + outage.seconds, "return", node)

    # -- what the engine decides --------------------------------------------------------------------------------

    def _settle(self) -> bool:
        """Run cycles until there is nothing to do at this moment. Returns whether a pod was placed or evicted."""
        changed, futile = False, 0
        while self._should_cycle() and futile < FUTILE:
            effects = self.engine.cycle(self.now).effects
            self.cycles, self._cycled = self.cycles + 1, self.now
            moved = False
            for effect in effects:
                moved = self._perform(effect) or moved
            changed, futile = changed or moved, 0 if moved else futile + 1
            self.now += WINDOW
        return changed

    def _should_cycle(self) -> bool:
        """Return whether a cycle is due now: status alone waits for more of its kind, as in the daemon."""
        if self.now < self._cycled + self.period:
            return False
        if not self.engine.needs_cycle:
            self._stirred = inf
            return self.engine.has_work(self.now)
        self._stirred = min(self._stirred, self.now)
        return self.engine.pressing or self.now >= self._stirred + STATUS_WINDOW

    def _perform(self, effect: SchedulerEffect) -> bool:
        """Carry an effect out. Returns whether a pod got a place or lost it."""
        match effect:
            case Bind():
                self._bind(effect)
                return True
            case Evict():
                run = self._living.get(effect.uid)
                if run is not None:
                    self.evictions += 1
                    self._again(run)
                return True
            case GroupStatus():
                key = f"{effect.namespace}/{effect.name}"
                if key in self._groups:
                    group, members = self._groups[key]
                    status = {"phase": effect.phase, "running": effect.running, "succeeded": effect.succeeded,
                              "failed": effect.failed, "conditions": to_builtins(effect.conditions)}  # fmt: skip
                    group = replace(group, status=convert(type(group.status), status))
                    self._groups[key] = group, members
                    self.engine.state.groups.put_group(group)
            case PodCondition():
                if (run := self._living.get(effect.uid)) is not None:
                    run.reason = effect.message
            case Deallocate():
                self.claims.deallocate(effect)
            case OpenGate():
                run = self._living[effect.uid]
                gates = [gate for gate in run.pod.spec.scheduling_gates if gate.name != names.QUEUE_GATE]
                run.pod = replace(run.pod, spec=replace(run.pod.spec, scheduling_gates=gates))
                self.engine.state.pods.put(run.pod, self.now)
            case Nominate():
                if (run := self._living.get(effect.uid)) is not None:
                    run.pod = replace(run.pod, status=replace(run.pod.status, nominated_node_name=effect.node))
                    self.engine.state.pods.put(run.pod, self.now)
        return False

    def _bind(self, effect: Bind) -> None:
        run = self._living.get(effect.uid)
        if run is None:  # it was evicted in the same cycle
            self.engine.bind_failed(effect.uid, self.now)
            return
        meta = replace(run.pod.metadata, annotations={**run.pod.metadata.annotations, **effect.annotations})
        status = replace(run.pod.status, phase="Running") if effect.device_claims else RUNNING
        run.pod = replace(run.pod, metadata=meta, spec=replace(run.pod.spec, node_name=effect.node), status=status)
        run.node, run.started = effect.node, self.now - self.begin
        run.cards = effect.annotations.get(names.VGPU_IDS, "")
        self.claims.bound(effect)
        self.engine.bound(effect.uid)
        self.engine.state.pods.put(run.pod, self.now)
        seen = {"metadata": {"uid": meta.uid, "namespace": meta.namespace, "name": meta.name, "annotations": meta.annotations},
                "spec": {**run.template["spec"], "nodeName": effect.node}}  # fmt: skip
        asked = self._asked.get(id(run.template)) or self._asked.setdefault(id(run.template), self.books.asked(seen))
        asked = self.claims.beside(asked, self.books.have.get(effect.node) or Counter())
        found = self.books.take(seen, asked) + self.books.over(effect.node)
        found += self.claims.over(effect.node, self.books.shares_on(effect.node))
        self.violations += [text for text in found if text not in self._known]
        self._known.update(found)
        self.meter.touch(effect.node)
        if (group := self._gang_of(run)) in self._groups:
            self._standing[group] += 1
            self._bound.add(group)
        if run.runs < inf:
            self._put(self.now + run.runs, "end", (effect.uid, run.restarts))

    @staticmethod
    def _gang_of(run: PodRun) -> str:
        """Return namespace and name of the pod's PodGroup; empty where it has none."""
        name = run.pod.metadata.annotations.get(names.GROUP_NAME)
        return f"{run.pod.metadata.namespace}/{name}" if name else ""

    def _queue_of(self, run: PodRun) -> str:
        """Return the queue of the pod's PodGroup, or the one that it names itself."""
        group = self._groups.get(self._gang_of(run))
        return group[0].spec.queue if group else run.pod.metadata.annotations.get(names.QUEUE_NAME, names.DEFAULT_QUEUE)

    def _audit_gangs(self) -> None:
        """A gang starts with as many pods as it needs; once it stood, its pods come and go."""
        for key in self._bound:
            if key in self._groups and key not in self._stood:
                self._stood.add(key)
                least, standing = self._groups[key][0].spec.min_member, self._standing[key]
                if standing < least:
                    self.violations.append(f"gang {key}: {standing} of at least {least} pods have a node")
        self._bound.clear()

    # -- the end ------------------------------------------------------------------------------------------------

    def stayed(self) -> list[str]:
        """Return the pods that have run since before the beginning."""
        return [run.key for run in self._living.values() if run.arrived == -inf]

    def fit_no_node(self) -> dict[str, str]:
        """Return the pods that wait and that no node would take were it empty, with the engine's reason. The play is over: all
        that has a place is taken off the ledger."""
        waiting = [run for run in self._living.values() if not run.node and run.arrived != -inf]
        if not waiting:
            return {}
        state, reasons = self.engine.state, dict[int, str]()
        for run in self._living.values():
            if run.node:
                state.pods.drop(run.pod)
                self.claims.gone(run.pod.metadata.uid)
        found: dict[str, str] = {}
        for run in waiting:
            cls = state.classes.of(run.pod)
            if id(cls) not in reasons:
                reasons[id(cls)] = "" if self.engine.placer.choose(cls) is not None else self.engine.placer.why(cls).text
            if reasons[id(cls)]:
                found[run.key] = reasons[id(cls)]
        return found
