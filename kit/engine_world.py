"""A small cluster around the engine, in virtual time: objects, the events that they make, and effects carried out.

``World`` plays the API server for one engine. Tests may hold events back, repeat them or refuse Bindings; after every step
the auditor looks at the objects.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from random import Random
from typing import Any

from msgspec import to_builtins

from kit.objects import queue
from kit.scheduler_confs import conf, sharing
from pumice.audit.auditor import audit
from pumice.devices.protocol import DeviceSharing
from pumice.effects.vocabulary import (
    Bind,
    Event,
    Evict,
    GroupStatus,
    HyperNodeStatus,
    Nominate,
    OpenGate,
    PodCondition,
    QueueAllocated,
    SchedulerEffect,
)
from pumice.scheduler.engine import Engine
from pumice.scheduler.inputs import KINDS, Drop, Put
from pumice.scheduler.state.state import State
from pumice.wire import names
from pumice.wire.names import QUEUE_GATE
from pumice.wire.objects import Pod, convert
from pumice.wire.scheduler_conf import SchedulerConf, parse_scheduler_conf
from pumice_lab.first_objects import SCHEDULER_CONF

Json = dict[str, Any]

ALL_PLUGINS = SCHEDULER_CONF  # what a new cluster is given
DEVICES_ONLY = conf("predicates", sharing("VGPU", SchedulePolicy="%s"))


@cache
def _parsed(text: str) -> SchedulerConf:
    return parse_scheduler_conf(text)


class World:
    """Objects by kind and key, and the engine that watches them."""

    def __init__(self, conf: str = ALL_PLUGINS, *, device_types: list[DeviceSharing] | None = None, seed: int = 1) -> None:
        self.conf = conf
        self.device_types = device_types
        self.rng = Random(seed)
        self.now = 1_000_000.0
        self.version = 0
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.groups: dict[str, Json] = {}
        self.queues: dict[str, Json] = {}
        self.hyper_nodes: dict[str, Json] = {}
        self.quotas: dict[str, Json] = {}
        self.classes: dict[str, Json] = {}
        self.budgets: dict[str, Json] = {}
        self.config_maps: dict[str, Json] = {}
        self.events: list[Event] = []
        self.bindings: list[Bind] = []
        self.evictions: list[Evict] = []
        self.stays: Callable[[Evict], bool] = lambda evict: False
        """True if the API server refuses to delete a pod."""
        self.unanswered: list[Evict] | None = None
        """Where evictions go that nobody carries out, while somebody collects them (``answer``)."""
        self.grace = False
        """True if evicted pods are terminating until the test lets them go (``delete_pod``)."""
        self.effects: list[SchedulerEffect] = []
        self.refuse: Callable[[Bind], bool] = lambda bind: False
        self.disturbed: set[str] = set()
        """PodGroups that lost members by other hands: what is left of such a gang may stand."""
        self.deliver = True
        """True if the watch tells the engine about Bindings at once."""
        self.engine = self._engine()
        self.add(queue("default"))

    def _engine(self) -> Engine:
        conf = _parsed(self.conf)
        engine = Engine(conf, state=State())
        if self.device_types is not None:
            engine.configure(conf, device_types=self.device_types)
        return engine

    # -- objects ------------------------------------------------------------------------------------------------

    def add(self, *objects: Json) -> None:
        """Create or replace objects and tell the engine."""
        for obj in objects:
            self.store(obj)
            self.report(obj)

    def store(self, obj: Json) -> None:
        """Create or replace an object; the engine does not hear of it."""
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self._table(obj["kind"])[self._key(obj)] = obj

    def report(self, obj: Json) -> None:
        """The watch event of an object as it is."""
        if obj["kind"] == "Pod":
            self.engine.state.pods.put(convert(Pod, copy.deepcopy(obj)), self.now)
        else:
            self._enter(Put, obj)

    def _enter(self, what: type[Put] | type[Drop], obj: Json) -> None:
        """Tell the engine of an object but a pod, as informers do."""
        value, slice_ = copy.deepcopy(obj), KINDS[obj["kind"]].slice_
        what(obj["kind"], value if slice_ is None else convert(slice_, value)).apply(self.engine)

    def remove(self, kind: str, key: str) -> None:
        obj = self._table(kind).pop(key, None)
        if obj is None:
            return
        if kind == "Pod":
            self.forget_pod(obj)
        else:
            self._enter(Drop, obj)

    def forget_pod(self, obj: Json) -> None:
        """The watch event of a pod that is gone."""
        self.engine.state.pods.drop(convert(Pod, copy.deepcopy(obj)))

    def delete_pod(self, name: str, namespace: str = "default") -> None:
        self.remove("Pod", f"{namespace}/{name}")

    def set_phase(self, name: str, phase: str, namespace: str = "default") -> None:
        obj = self.pods[f"{namespace}/{name}"]
        obj["status"] = {**obj.get("status", {}), "phase": phase}
        self.add(obj)

    def terminate(self, name: str, namespace: str = "default") -> None:
        obj = self.pods[f"{namespace}/{name}"]
        obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
        self.add(obj)

    def _table(self, kind: str) -> dict[str, Json]:
        return {"Node": self.nodes, "Pod": self.pods, "PodGroup": self.groups, "Queue": self.queues,
                "PriorityClass": self.classes, "HyperNode": self.hyper_nodes, "ConfigMap": self.config_maps,
                "PodDisruptionBudget": self.budgets, "ResourceQuota": self.quotas}[kind]  # fmt: skip

    @staticmethod
    def _key(obj: Json) -> str:
        meta = obj["metadata"]
        return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else str(meta["name"])

    # -- time ---------------------------------------------------------------------------------------------------

    def cycle(self) -> list[SchedulerEffect]:
        """One cycle, with its effects carried out."""
        plan = self.engine.cycle(self.now, self.rng)
        for effect in plan.effects:
            self.perform(effect)
        self.effects = plan.effects
        self.check()
        return plan.effects

    def settle(self, seconds: float = 3.0) -> None:
        """Cycles until nothing is left to do for that long."""
        end = self.now + seconds
        while self.now <= end:
            if self.engine.has_work(self.now):
                self.cycle()
            self.now += 0.25

    def perform(self, effect: SchedulerEffect) -> None:
        match effect:
            case Bind():
                self.bindings.append(effect)
                self._bind(effect)
            case PodCondition():
                self._condition(effect)
            case GroupStatus():
                self._group_status(effect)
            case QueueAllocated():
                if effect.name in self.queues:
                    self.queues[effect.name].setdefault("status", {})["allocated"] = effect.allocated
            case HyperNodeStatus():
                status = {"nodeCount": effect.node_count, "conditions": to_builtins(effect.conditions)}
                self.hyper_nodes[effect.name]["status"] = status
                self.add(self.hyper_nodes[effect.name])
            case Event():
                self.events.append(effect)
            case Evict():
                self.evictions.append(effect)
                self._evict(effect)
            case Nominate():
                self._nominate(effect)
            case OpenGate():
                self._open_gate(effect)

    def _bind(self, effect: Bind) -> None:
        obj = self.pods.get(f"{effect.namespace}/{effect.name}")
        if obj is None or obj["metadata"]["uid"] != effect.uid or self.refuse(effect):
            self.engine.bind_failed(effect.uid, self.now)
            return
        obj["spec"]["nodeName"] = effect.node
        obj["metadata"]["annotations"].update(effect.annotations)
        self.store(obj)
        self.engine.bound(effect.uid)
        if self.deliver:
            self.report(obj)

    def _evict(self, effect: Evict) -> None:
        key = f"{effect.namespace}/{effect.name}"
        obj = self.pods.get(key)
        if obj is None or obj["metadata"]["uid"] != effect.uid:
            return
        if self.unanswered is not None:
            self.unanswered.append(effect)
        elif self.stays(effect):
            self.engine.state.terminating.refused(effect.uid, self.now)
        elif self.grace:
            self.terminate(effect.name, effect.namespace)
        else:
            self.remove("Pod", key)

    def answer(self) -> None:
        """Carry out, or refuse, the evictions that waited for it."""
        reported, self.unanswered = self.unanswered or [], None
        for effect in reported:
            self._evict(effect)

    def _nominate(self, effect: Nominate) -> None:
        obj = self.pods.get(f"{effect.namespace}/{effect.name}")
        if obj is not None:
            obj["status"]["nominatedNodeName"] = effect.node
            self.add(obj)

    def _open_gate(self, effect: OpenGate) -> None:
        obj = self.pods.get(f"{effect.namespace}/{effect.name}")
        if obj is not None:
            obj["spec"]["schedulingGates"] = [g for g in obj["spec"]["schedulingGates"] if g["name"] != QUEUE_GATE]
            self.add(obj)

    def _condition(self, effect: PodCondition) -> None:
        obj = self.pods.get(f"{effect.namespace}/{effect.name}")
        if obj is None:
            return
        conditions = [c for c in obj["status"].get("conditions", ()) if c["type"] != "PodScheduled"]
        conditions.append(
            {"type": "PodScheduled", "status": "False", "reason": effect.reason, "message": effect.message}
        )
        obj["status"]["conditions"] = conditions
        self.add(obj)
        self.events.append(Event("Pod", "v1", effect.namespace, effect.name, effect.uid, "Warning",
                                 "FailedScheduling", effect.message))  # fmt: skip

    def _group_status(self, effect: GroupStatus) -> None:
        obj = self.groups.get(f"{effect.namespace}/{effect.name}")
        if obj is None:
            return
        obj["status"] = {
            "phase": effect.phase, "running": effect.running, "succeeded": effect.succeeded, "failed": effect.failed,
            "conditions": [
                {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message,
                 "transitionID": c.transition_id, "lastTransitionTime": c.last_transition_time} for c in effect.conditions
            ],
        }  # fmt: skip
        self.add(obj)

    # -- looking ------------------------------------------------------------------------------------------------

    def nodes_as_counted(self) -> Iterable[Json]:
        """Return the nodes by which the auditor counts what pods hold."""
        return self.nodes.values()

    def check(self) -> None:
        gangs = any(plugin.name == "gang" for plugin in self.engine.framework.plugins)
        groups = [g for g in self.groups.values() if gangs and g["metadata"]["name"] not in self.disturbed]
        assert audit(self.nodes_as_counted(), self.pods.values(), groups) == []

    def node_of(self, name: str, namespace: str = "default") -> str:
        return str(self.pods[f"{namespace}/{name}"]["spec"].get("nodeName", ""))

    def card_of(self, name: str, namespace: str = "default") -> str:
        """``node/card`` numbers as the decision's annotation has them; several cards are joined by ``+``."""
        obj = self.pods[f"{namespace}/{name}"]
        where = str(obj["spec"].get("nodeName", ""))
        text = obj["metadata"]["annotations"].get("volcano.sh/vgpu-ids-new", "")
        cards = [
            container_device.split(",")[0].rsplit("-", 1)[-1]
            for container_device in text.replace(";", "").split(":")
            if container_device
        ]
        return f"{where}/{'+'.join(cards)}" if cards else where

    def placements(self) -> dict[str, str]:
        return {obj["metadata"]["name"]: self.card_of(obj["metadata"]["name"], obj["metadata"]["namespace"])
                for obj in self.pods.values()}  # fmt: skip

    def condition(self, name: str, namespace: str = "default") -> Json:
        found = self.pods[f"{namespace}/{name}"]["status"].get("conditions", ())
        return next((c for c in found if c["type"] == "PodScheduled"), {})

    def restarted(self) -> Engine:
        """A second engine that has seen the objects only."""
        mine = self.engine
        self.engine = self._engine()
        try:
            for table in (self.queues, self.quotas, self.hyper_nodes, self.classes, self.groups, self.config_maps, self.nodes,
                          self.pods):
                for obj in table.values():
                    self.report(obj)
            return self.engine
        finally:
            self.engine = mine


def scenario(
    title: str, *, nodes: list[Json], arriving: list[Json], expect: Mapping[str, str], conf: str = ALL_PLUGINS,
    having: list[Json] | None = None,
) -> World:  # fmt: skip
    """Let pods arrive, settle, and compare where they are: ``node``, ``node/card`` or empty for pending."""
    world = World(conf)
    world.add(*nodes)
    world.add(*having or ())
    world.add(*arriving)
    world.settle()
    found = world.placements()
    got = {name: found[name] if "/" in where or not where else found[name].partition("/")[0]
           for name, where in expect.items()}  # fmt: skip
    assert got == dict(expect), title
    return world


# -- A world in which pods are moved: evicted ones are made anew by their controllers, and what is bound runs -------


class MovingWorld(World):
    """A world with a controller that makes evicted pods anew, and a kubelet that runs what is bound, while they are there."""

    def __init__(self, conf: str, *, seed: int = 1) -> None:
        super().__init__(conf, seed=seed)
        self.now = 1.8e9
        self.controller = self.kubelet = True
        self.made = 0
        self.gone: list[Json] = []

    def _evict(self, effect: Evict) -> None:
        old = self.pods.get(f"{effect.namespace}/{effect.name}")
        super()._evict(effect)
        if old is not None and f"{effect.namespace}/{effect.name}" not in self.pods:
            self.gone.append(old)

    def cycle(self) -> Any:
        found = super().cycle()
        self.live()
        return found

    def live(self) -> None:
        while self.controller and self.gone:
            self.made += 1
            old = self.gone.pop(0)
            fresh = copy.deepcopy(old)
            kept = {key: text for key, text in old["metadata"]["annotations"].items() if not key.startswith("volcano.sh/")}
            fresh["metadata"] |= {"name": f"{old['metadata']['name'].partition('-')[0]}-{self.made}", "annotations": kept,
                                  "uid": f"{old['metadata']['uid']}-{self.made}"}  # fmt: skip
            fresh["spec"].pop("nodeName")
            fresh["status"] = {"phase": "Pending"}
            self.add(fresh)
        for one in list(self.pods.values()) if self.kubelet else ():
            if one["spec"].get("nodeName") and one["status"]["phase"] == "Pending":
                self.set_phase(one["metadata"]["name"], "Running", one["metadata"]["namespace"])

    def on_card(self, card: str, *pods: Json) -> None:
        """Run pods on that card and no other."""
        every = [f"GPU-{name}-{i}" for name in self.nodes for i in range(4)]
        self.cordon(*(one for one in every if one != card))
        self.add(*pods)
        self.settle()
        self.cordon()

    def cordon(self, *cards: str) -> None:
        for found in self.nodes.values():
            found["metadata"]["annotations"][names.CORDONED_CARDS] = ",".join(cards)
            self.add(found)

    def where(self, start: str) -> str:
        return next((self.card_of(one["metadata"]["name"]) for one in self.pods.values()
                     if one["metadata"]["name"].partition("-")[0] == start), "gone")  # fmt: skip

    def told(self, reason: str) -> list[str]:
        return [event.message for event in self.events if event.reason == reason]

    @property
    def nothing_held(self) -> bool:
        held = [uid for uid in self.engine.state.ledger.placements if uid.startswith("held for")]
        return not held and not self.engine.state.nominations.kept and self.engine.state.moves.plan is None
