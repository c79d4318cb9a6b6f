"""Histories on the engine alone, in virtual time: events go in as the daemon's informers read them, effects are carried out at
once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from random import Random
from typing import Any

import msgspec
from kit.fake_cluster import Json, merged
from kit.kube_rules import PREEMPTABLE, Cluster, leaving
from kit.queue_rules import GROUP, QUEUE
from tests.property.history.claim_api import ClaimApi, Killed
from tests.property.history.door import Door
from tests.property.history.one_reason import contradictions, other_counts, unlike_events, unlike_explanations
from tests.property.history.registry import ENGINE, Op

from pumice.apps.scheduler.informers import Informers
from pumice.devices.protocol import DeviceSharing
from pumice.effects.vocabulary import (
    Bind,
    Deallocate,
    Evict,
    GroupStatus,
    Nominate,
    PodCondition,
    QueueAllocated,
    SchedulerEffect,
)
from pumice.journal.recorder import Doorway
from pumice.ports.cluster import WatchEvent
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import BindFailed, Bound, EvictionRefused
from pumice.scheduler.state.resources import Vector, add
from pumice.scheduler.state.state import State
from pumice.scheduler.state.tasks import ALLOCATED_STATUSES, Status
from pumice.wire.scheduler_conf import SchedulerConf, parse_scheduler_conf

JUMPS = 0.01
"""Of the looks at a cycle's clock, those before which a second has passed: a search may find itself late anywhere."""
PING_PONG = 60
"""Evictions within one wait, after which two take from each other by turns."""
LEFT_ALONE = 4.0
"""Seconds after a refused eviction within which nobody asks for the pod again."""
RESTLESS = 400
"""Cycles within one wait after which nothing will ever be at rest."""
SETTLED = 1.5
"""Seconds after which a pod with a controller no longer waits for the PodGroup that may be on its way."""
RECOUNTED = 61.0
"""Seconds after which every condition counts the nodes that there are: they are counted anew after half of it at most, and a
condition of which only numbers change is written anew after as long."""
SLOW = 200.0
"""Seconds for which a refused pod may wait for another try."""
GOING: Json = {"metadata": {"deletionTimestamp": "2026-01-01T00:01:00Z"}}
LISTS = {"Node": "nodes", "Namespace": "namespaces", "PriorityClass": "priorityclasses", "Queue": "queues",
         "PodGroup": "podgroups", "Pod": "pods", "PersistentVolumeClaim": "claims", "PersistentVolume": "volumes",
         "DeviceClass": "deviceclasses", "ResourceSlice": "resourceslices", "ResourceClaim": "resourceclaims"}  # fmt: skip
"""The informers by kind, in the order in which lists come in."""
_encode = msgspec.json.Encoder().encode


@cache
def parsed(text: str) -> SchedulerConf:
    return parse_scheduler_conf(text)


def wrong_sums(state: State) -> Iterator[str]:
    """Yield the sums of queues that are not those of their pods."""
    for queue in state.queues.values():
        tasks = [task for job in queue.jobs for task in job.tasks.values()]
        sums: dict[str, Vector] = {"allocated": {}, "awaited": {}, "pending": {}}
        for task in tasks:
            if task.status in ALLOCATED_STATUSES:
                add(sums["allocated"], task.amounts.items())
            elif task.status is Status.PIPELINED:
                add(sums["awaited"], task.cls.amounts.items())
            elif task.status is Status.PENDING:
                add(sums["pending"], task.cls.demand)
        used = {part for task in tasks if task.status in ALLOCATED_STATUSES for part in task.shared_claims}
        for _, amounts in used:  # a claim that several pods use is charged once
            add(sums["allocated"], amounts)
        for name, right in sums.items():
            kept = {what: value for what, value in getattr(queue, name).items() if value}
            if kept != {what: value for what, value in right.items() if value}:
                yield f"queue {queue.name} counts {kept} as {name}, and its pods and their claims come to {right}"


def jumping(rng: Random) -> Iterator[float]:
    """A clock that stands still and jumps now and then, the same way each time: a history is played again as it was."""
    at = 0.0
    while True:
        at += rng.random() < JUMPS
        yield at


class Ears(Informers):
    """The daemon's informers without watches: who takes the events of each kind, by its name."""

    def watch(self, name: str, resource: Any, handle: Any, *_: Any, **__: Any) -> Any:
        if not hasattr(self, "takes"):
            self.takes: dict[str, Any] = {}
        self.takes[name] = handle


class EngineDoor(Door):
    name = ENGINE
    with_claims = True
    device_types: list[DeviceSharing] | None = None

    def __init__(self, conf: str, rng: Random) -> None:
        super().__init__(conf, rng)
        self.checker.serves_claims = True
        self.claims = ClaimApi(self.store, self._answered)
        self.at = 1_800_000_000.0 if "defrag" in conf else 1_000_000.0  # who was made long ago may be moved
        self.arrival = self.at
        self.deaf = False
        self.every = self.count = 0
        """Every so many Bindings of single pods are refused; 0: none."""
        self.sparing = self.evicted = 0
        """Every so many evictions are refused; 0: none. And how many there were in this wait."""
        self.leaving: dict[str, tuple[float, str]] = {}
        """Evicted pods by uid: when they are gone, and their key."""
        self.left_alone: dict[str, float] = {}
        """Pods whose eviction was refused, and until when nobody may ask for them again."""
        self.hurried = self.ticks = 0
        """So many cycles end after so many looks at the clock, with one job tried at least."""
        self.reported: dict[str, dict[str, Json]] = {}
        """The objects that the scheduler has seen, by kind and key."""
        self.assumed: dict[str, Json] = {}
        """Bindings and evictions that were accepted and that the watch has not shown yet: uid to pod."""
        self.nodes_since = self.at
        """When a node came or went last, as far as the scheduler heard of it."""
        self.store.heard.append(self._hear)
        self._start()

    # -- what the engine hears ----------------------------------------------------------------------------------

    def now(self) -> float:
        return self.at

    monotonic = now

    def make(self) -> Ears:
        """An engine that has heard nothing, and who takes the events of each kind."""
        engine = Engine(parsed(self.conf), state=State())
        if self.device_types is not None:
            engine.configure(parsed(self.conf), device_types=self.device_types)
        ears = Ears(None, self, engine, asyncio.Event(), enter=Doorway(engine))  # type: ignore[arg-type]
        ears.watches()
        return ears

    def _start(self) -> None:
        ears = self.make()
        self.engine, self.enter, handlers = ears.engine, ears.enter, ears.takes
        self.handlers = {kind: handlers[name] for kind, name in LISTS.items()}
        self.reported = {kind: {} for kind in self.handlers}
        self.assumed.clear()
        self._list()

    def _hear(self, change: str, obj: Json) -> None:
        if change == "ADDED":
            self.arrival = self.at
        if not self.deaf:
            self._report(change, obj)

    def _answered(self, claim: Json) -> None:
        """The answer to a write is told the engine, whether its watches are broken or not."""
        if self.deaf:
            self._report("MODIFIED", claim)

    def _report(self, change: str, obj: Json) -> None:
        kind, key = obj["kind"], self.store.key(obj)
        if kind == "Node" and change != "MODIFIED":
            self.nodes_since = self.at
        if change == "DELETED":
            known = self.reported[kind].get(key)
            if known is not None and known["metadata"]["uid"] == obj["metadata"]["uid"]:
                del self.reported[kind][key]
        else:
            self.reported[kind][key] = obj
        assumed = self.assumed.get(obj["metadata"]["uid"]) if kind == "Pod" else None
        if assumed is not None and (change == "DELETED" or _shows(obj, assumed)):
            del self.assumed[obj["metadata"]["uid"]]
        self.handlers[kind](WatchEvent(change, _encode(obj)))  # type: ignore[arg-type]

    def _list(self) -> None:
        """Return the events of a reflector after a 410: what is there and new, then what has gone, of which it knows the names
        only."""
        for kind in self.handlers:
            before, table = dict(self.reported[kind]), self.store.tables[kind]
            for key, obj in table.items():
                if before.get(key) is not obj:
                    same = key in before and before[key]["metadata"]["uid"] == obj["metadata"]["uid"]
                    self._report("MODIFIED" if same else "ADDED", obj)
            fresh = {obj["metadata"]["uid"] for obj in table.values()}
            for old in before.values():
                if old["metadata"]["uid"] not in fresh:
                    meta = {k: v for k, v in old["metadata"].items() if k in ("name", "namespace", "uid")}
                    self._report("DELETED", {"kind": kind, "metadata": meta})

    # -- what befalls it ----------------------------------------------------------------------------------------

    async def befall(self, op: Op) -> None:
        match op["do"]:
            case "wait":
                self._wait(op["seconds"])
            case "restart":
                self.deaf, self.arrival = False, self.at
                self.left_alone.clear()
                self._start()
            case "deaf":
                self.deaf = True
            case "relist":
                self.deaf, self.arrival = False, self.at
                self._list()
            case "again":
                if not self.deaf:
                    for kind in ("Node", "Pod"):
                        for obj in list(self.store.tables[kind].values()):
                            self._report("MODIFIED", obj)
            case "stale":
                pod = self.reported["Pod"].get(op["key"])
                if pod is not None:  # as it was at first, whatever has become of it since
                    past = {"metadata": {"resourceVersion": "1", "labels": {"app": "old"}, "deletionTimestamp": None},
                            "spec": {"nodeName": None} if op["unbound"] else {}, "status": {"phase": "Pending"}}  # fmt: skip
                    self.handlers["Pod"](WatchEvent("MODIFIED", _encode(merged(pod, past))))
            case "spare":
                self.sparing = op["every"]
            case "hurry":
                self.hurried, self.ticks = op["cycles"], op["ticks"]
            case "claims rest":
                self.claims.resting = op["for"]
            case "refuse claims":
                self.claims.refused = op["next"]
            case "kill amid claims":
                self.claims.left = op["after"]
            case "refuse":
                self.every = op["every"]

    def _wait(self, seconds: float) -> None:
        end, cycles = self.at + seconds, 0
        self.evicted = 0
        self.claims.resting -= self.claims.resting > 0
        while True:
            self._let_go()
            self._run_bound()
            self.claims.control()
            if self.engine.has_work(self.at):
                self._cycle()
                cycles += 1
                if cycles > RESTLESS:
                    self.checker.complain("restless", f"{RESTLESS} cycles in {seconds} s")
                    return
                if self.evicted > PING_PONG:
                    self.checker.complain("restless", f"{self.evicted} evictions in {seconds} s")
                    return
            if self.at >= end:
                return
            self.at = min(end, self.at + 0.25)

    async def look(self) -> None:
        self.checker.whole(self.store.tables)
        self._validate_queue()
        moving = self.engine.state.moves.plan is not None  # its places are held, for a pod that may never be made anew
        if not self.deaf and self.at > self.arrival + SETTLED and not moving and not self.engine.has_work(self.at):
            self.checker.asleep(self.store.tables, self.at)
            for text in contradictions(self.engine, self.store.tables, self.at):
                self.checker.complain("reasons", text)
            if self.at > self.nodes_since + RECOUNTED:
                for text in other_counts(self.engine, self.store.tables, self.at):
                    self.checker.complain("reasons", text)
            for text in unlike_explanations(self._fresh(), self.at):
                self.checker.complain("reasons", text)
            for text in unsettled(self.engine):
                self.checker.complain("promised", text)

    def _fresh(self) -> Engine:
        """An engine that has read the objects as they are, like that of a command."""
        ears = EngineDoor.make(self)  # of which a door that keeps a journal shall note nothing
        for kind, name in LISTS.items():
            for obj in self.store.tables[kind].values():
                ears.takes[name](WatchEvent("ADDED", _encode(obj)))
        return ears.engine

    # -- what it decides ----------------------------------------------------------------------------------------

    def seen(self) -> Cluster:
        """The cluster as the engine must take it to be."""
        pods = {key: self.assumed.get(pod["metadata"]["uid"], pod) for key, pod in self.reported["Pod"].items()}
        return Cluster({**self.reported, "Pod": pods})

    def _cycle(self) -> None:
        seen: Cluster | None = None
        short: dict[str, Any] = {"tick": jumping(Random(self.at)).__next__}
        if self.hurried:
            self.hurried -= 1
            short = {"budget": self.ticks, "tick": count().__next__, "at_least": 1}
        effects = self.enter.cycle(self.at, self.rng, **short).effects
        for text in unlike_events(effects):
            self.checker.complain("reasons", text)
        if evictions := [effect for effect in effects if isinstance(effect, Evict)]:
            self.checker.evicted([(effect.uid, effect.reason) for effect in evictions], self.seen())
        for number, effect in enumerate(effects):
            try:
                if isinstance(effect, Bind):
                    seen = seen or self.seen()
                    self._bind(effect, seen)
                else:
                    self._perform(effect)
            except Killed:
                self._die(effects[number:], evictions)
                return
        for effect in evictions:
            self._evict(effect)
        self._validate_queue()

    def _validate_queue(self) -> None:
        """Complain where the scheduling queue is not what its table allows."""
        state = self.engine.state
        for text in (*state.scheduling_queue.validate(state.jobs.values()), *wrong_sums(state)):
            self.checker.complain("queue", text)

    def _bind(self, effect: Bind, seen: Cluster) -> None:
        key = f"{effect.namespace}/{effect.name}"
        known = self.reported["Pod"].get(key)
        if known is None or known["metadata"]["uid"] != effect.uid:
            self.checker.complain("forbidden", f"{key} was bound though it is gone")
            return
        self.checker.placed(known, effect.node, effect.annotations, seen)
        self.count += 1
        pod = self.store.tables["Pod"].get(key)
        refused = self.every and not effect.gang and self.count % self.every == 0
        fresh = {f"{one.namespace}/{one.name}" for one in effect.device_claims}
        fresh = {key for key in fresh if not self.reported["ResourceClaim"].get(key, {}).get("status", {}).get("allocation")}
        reserved = self.claims.reserve(effect)
        if reserved:
            self.checker.claimed(known, effect.node, fresh, self.reported, seen)
        if pod is None or pod["metadata"]["uid"] != effect.uid or refused or not reserved:
            if reserved:
                self.claims.undo(effect)
            self.checker.granted.pop(effect.uid, None)
            self.checker.slow[effect.uid] = self.at + SLOW
            self.checker.disturb(known)
            self.enter(BindFailed(effect.uid, self.at))
            return
        change = {"spec": {"nodeName": effect.node}, "metadata": {"annotations": effect.annotations}}
        self.assumed[effect.uid] = merged(known, change)
        self.enter(Bound(effect.uid))
        self.store.patch("Pod", key, change)

    def _die(self, undone: Sequence[SchedulerEffect], evictions: Iterable[Evict]) -> None:
        """The scheduler is killed: what it was about to send nobody gets, and its successor knows the objects only."""
        for effect in undone:
            pod = self.store.tables["Pod"].get(f"{effect.namespace}/{effect.name}") if isinstance(effect, Bind) else None
            if pod is not None:
                self.checker.granted.pop(pod["metadata"]["uid"], None)
                self.checker.disturb(pod)
        self.checker.evictions.going -= {effect.uid for effect in evictions}
        self.deaf, self.arrival = False, self.at
        self.left_alone.clear()
        self._start()

    def _evict(self, effect: Evict) -> None:
        self.evicted += 1
        key = f"{effect.namespace}/{effect.name}"
        if self.at < (until := self.left_alone.get(effect.uid, 0.0)):
            self.checker.complain("restless", f"{key} is told to go again {until - self.at:g} s too soon")
        pod = self.store.tables["Pod"].get(key)
        if self.sparing and self.evicted % self.sparing == 0:
            self.checker.evictions.going.discard(effect.uid)
            self.left_alone[effect.uid] = self.at + LEFT_ALONE
            self.enter(EvictionRefused(effect.uid, self.at))
        elif pod is not None and pod["metadata"]["uid"] == effect.uid:
            self.checker.disturb(pod)
            self.leaving[effect.uid] = self.at + self.rng.choice((0.0, 0.0, 1.0, 30.0)), key
            known = self.assumed.get(effect.uid) or self.reported["Pod"].get(key)
            if known is not None and known["metadata"]["uid"] == effect.uid:
                self.assumed[effect.uid] = merged(known, GOING)  # it was let go, whatever the watch has shown
            self.store.patch("Pod", key, GOING)

    def _run_bound(self) -> None:
        """A kubelet, where only running pods are moved; else steps alone say which of them run."""
        for key, pod in list(self.store.tables["Pod"].items()) if "defrag" in self.conf else ():
            if pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending" and not leaving(pod):
                self.store.patch("Pod", key, {"status": {"phase": "Running"}})

    def _let_go(self) -> None:
        """Evicted pods are gone when their time has come; controllers make them anew."""
        for uid, (until, key) in list(self.leaving.items()):
            if until > self.at:
                continue
            del self.leaving[uid]
            pod = self.store.tables["Pod"].get(key)
            if pod is None or pod["metadata"]["uid"] != uid:
                continue
            self.store.delete("Pod", key)
            if any(owner.get("controller") for owner in pod["metadata"].get("ownerReferences", ())):
                self.store.create(_heir(pod, f"e{self.store.version}"))

    def _perform(self, effect: SchedulerEffect) -> None:
        match effect:
            case PodCondition():
                reported = {"type": "PodScheduled", "status": "False", "reason": effect.reason, "message": effect.message}
                self.store.patch("Pod", f"{effect.namespace}/{effect.name}", {"status": {"conditions": [reported]}})
            case GroupStatus():
                conditions = [{"type": c.type, "status": c.status, "reason": c.reason, "message": c.message,
                               "transitionID": c.transition_id, "lastTransitionTime": c.last_transition_time}
                              for c in effect.conditions]  # fmt: skip
                self.store.patch("PodGroup", f"{effect.namespace}/{effect.name}", {"status": {
                    "phase": effect.phase, "running": effect.running, "succeeded": effect.succeeded, "failed": effect.failed,
                    "conditions": conditions}})  # fmt: skip
            case Nominate():
                nominated = {"status": {"nominatedNodeName": effect.node or None}}
                self.store.patch("Pod", f"{effect.namespace}/{effect.name}", nominated)
            case Deallocate():
                self.claims.deallocate(effect)
            case QueueAllocated():
                self.store.patch("Queue", effect.name, {"status": {"allocated": effect.allocated}})


def unsettled(engine: Engine) -> Iterator[str]:
    """Jobs whose queue counts another amount as promised to them than they still lack."""
    for job in engine.state.jobs.values():
        counted = dict(job.inqueue), dict(job.elastic)
        job.recount()
        if (dict(job.inqueue), dict(job.elastic)) != counted:
            yield f"{job.key} is promised {job.inqueue}, its queue counts {counted[0]}; elastic {job.elastic}, {counted[1]}"


def _shows(pod: Json, assumed: Json) -> bool:
    """Return whether the watch has come as far as what is known of the pod."""
    return bool(pod["spec"].get("nodeName")) and (leaving(pod) or not leaving(assumed))


def _heir(pod: Json, name: str) -> Json:
    """As its controller makes it anew."""
    notes = {k: v for k, v in pod["metadata"].get("annotations", {}).items() if k in (QUEUE, GROUP, PREEMPTABLE)}
    kept = {k: v for k, v in pod["metadata"].items() if k in ("namespace", "labels", "ownerReferences")}
    spec = {k: v for k, v in pod["spec"].items() if k != "nodeName"}
    return {**pod, "metadata": {**kept, "name": name, "annotations": notes}, "spec": spec, "status": {"phase": "Pending"}}
