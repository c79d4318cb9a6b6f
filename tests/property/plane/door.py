"""The door of the whole plane: everything that decides runs in one process on one virtual clock."""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import DEFAULT, patch

from kit import objects
from kit.fake_cluster import Json, Store
from kit.faulty_cluster import SYSTEM, FaultyCluster, faulty_cluster
from kit.virtual_time import VirtualClock, VirtualLoop
from tests.property.history.door import Door
from tests.property.history.registry import Op, View
from tests.property.plane import claim_judge, claim_kinds, judge, npu_judge, npu_kinds
from tests.property.plane.caught import exceptions_told
from tests.property.plane.claims import ClaimingNode, claims_effects
from tests.property.plane.kinds import (
    ADMITTED,
    BOUND,
    BOUNDED,
    CENTRAL,
    CLAIMS,
    CUT,
    HAMI,
    MODE,
    MONITORED,
    NEVER,
    NODES,
    PLANE,
    PROCESSES,
    SLICED,
    URGENT,
    WRONG,
)
from tests.property.plane.monitors import MonitoredNode, monitors_effects
from tests.property.plane.node import LIFE, NUMBER, Node, Running
from tests.property.plane.npus import CHIP, CORE, CORES, MODEL, CutNode, HamiNode, NpuNode
from tests.property.plane.processes import Connection, Doom, Fault, Process
from tests.property.plane.webhooks import Desk, answered_by

from pumice.apps.scheduler import daemon as scheduler
from pumice.audit import claim_rules
from pumice.audit.auditor import shares_of
from pumice.audit.card_rules import HELD
from pumice.model.amount import MIB
from pumice.ports.cards import CardFacts
from pumice.ports.cluster import ApiError, Resource
from pumice.wire import kinds, volcano
from pumice.wire.kinds import LEASES
from pumice.wire.names import SCHEDULER_CONFIGMAP
from pumice_jobs.apps.controller import daemon as controller
from pumice_lab.controllers.shell import Controllers, ControllersSettings

RESOURCES: dict[str, Resource] = {
    "pods": kinds.PODS, "podgroups": volcano.POD_GROUPS, "jobs": volcano.JOBS, "deployments": kinds.DEPLOYMENTS,
    "resourceclaims": kinds.RESOURCE_CLAIMS}  # fmt: skip
OF_KIND = {"Pod": "pods", "PodGroup": "podgroups", "Job": "jobs", "Deployment": "deployments", "ResourceClaim": "resourceclaims"}
CARDS, MIB_EACH, MIB_SLICED = 2, 16000, 24576
CONFS = ("no shares", "NPUs cut on demand", "making room by importance", "capacity",
         "cards by claim as well", "NPUs in HAMi's mode", "making room by importance", "capacity")  # fmt: skip
"""The configurations of the histories, in turn by seed: where queues had shares, a gang that was let in would keep others out, as
in Volcano."""
OF_CONF = {"by claim": CLAIMS, "name: capacity": ADMITTED, "MindCluster": CUT, "AscendHAMi": HAMI,
           "preempt": MONITORED}
"""The plane of a configuration, by what is said in it."""
BIND_PHASES = ("volcano.sh/bind-phase", "hami.io/bind-phase")
LEASE, HANDED_OUT = "volcano", "pumice.io/vgpu-handed-out"
STORM = 800
"""So many writes within a second are more than any decision of one process needs in a cluster of three nodes. A new leader that
tells sixty pods why they wait, and again as others are bound, has needed 410 (seed 105)."""
TORN = 5.0
"""Seconds within which the Bindings of a gang are all answered where nothing befalls anybody."""
CALM, SWEPT = 240.0, 200.0
"""Seconds without faults after which everything that can run runs, and after which all that ended is swept."""
PROMPT = 45.0
"""Seconds without faults after which what a queue releases is had at once."""
WHOLE_CHIPS = {CUT: {CORE: str(CORES)}, HAMI: {CHIP: "1"}}
FOREVER = 1e9
"""The budget of a cycle: real time has no part in the story."""


def conf_of(seed: int) -> str:
    """Return under which configuration a history of that seed is played."""
    return CONFS[seed % len(CONFS)]


class PlaneDoor(Door):
    name = PLANE
    pauses = (0.2, 1.0, 5.0)

    def __init__(self, conf: str, rng: Random) -> None:
        super().__init__(conf, rng)
        self.makes_room, self.bounds_queues = "preempt" in conf, "name: capacity" in conf
        self.claims = "by claim" in conf
        self.name = next((name for word, name in OF_CONF.items() if word in conf), PLANE)
        self.clock = VirtualClock()
        self.struck: Counter[tuple[str, str]] = Counter()
        self.faults = 0
        """How many were ordered."""
        self.calm_since = FOREVER
        """Since when nothing befalls anybody."""
        self._seen, self._looks = -1, 0
        self._second, self._writes = 0, Counter[str]()
        self._decoded: dict[str, dict[tuple[str, str, int], Json]] = {}
        self.stood: set[str] = set()
        """UIDs of PodGroups whose minimum had nodes once."""
        self.disturbed: set[str] = set()
        """UIDs of PodGroups that lost a pod to somebody else than the scheduler."""
        self.forged: set[str] = set()
        """UIDs of pods on which somebody wrote what a scheduler would."""
        self.schedulers_hurt = False
        self.torn: dict[str, float] = {}
        """Sentences of gangs that stand in part although nothing has befallen a scheduler yet, and since when."""
        self.hurt: set[str] = set()
        """Nodes that were rebooted, or lost a card or a record."""
        self.given: dict[str, Json] = {}
        """Pods as they were first seen on a node, by UID."""
        self.root = Path(tempfile.mkdtemp(prefix="plane", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        self.nodes = {name: self._node(name, Random(rng.random())) for name in NODES}
        self.processes: dict[str, Process] = {}
        self.desk = Desk()

    def beginning(self, view: View, rng: Random) -> list[Op]:
        return []

    def _node(self, name: str, rng: Random) -> Node:
        whole = ClaimingNode if self.claims else MonitoredNode if self.name == MONITORED else Node
        sort = {CUT: CutNode, HAMI: HamiNode}.get(self.name, whole) if name == SLICED else whole
        return sort(name, _cards(name, npus=sort is not whole), self.root / name, rng, self._started)

    async def begin(self) -> None:
        self._leave = ExitStack()
        self._leave.enter_context(answered_by(self.desk))
        self._leave.enter_context(exceptions_told(partial(self.checker.complain, "caught")))
        self.hands: FaultyCluster = await faulty_cluster(self.clock)
        self.api = self.hands.api
        await self.hands.create(kinds.CONFIGMAPS, {"metadata": {"name": SCHEDULER_CONFIGMAP, "namespace": SYSTEM},
                                                   "data": {"volcano-scheduler.conf": self.conf}}, SYSTEM)  # fmt: skip
        await self.hands.create(kinds.PRIORITY_CLASSES, objects.priority_class(URGENT, 100))
        await self.hands.create(volcano.QUEUES, objects.queue(BOUNDED, capability={NUMBER: str(BOUND)}))
        runs = {"scheduler a": self._run_scheduler, "scheduler b": self._run_scheduler, "controller": self._run_controller,
                "kube-controllers": self._run_kube_controllers}  # fmt: skip
        for node in self.nodes.values():
            runs[f"kubelet {node.name}"], runs[f"plugin {node.name}"] = node.run_kubelet, node.run_plugin
            if isinstance(node, ClaimingNode):
                runs[f"driver {node.name}"] = node.run_driver
            if isinstance(node, MonitoredNode):
                runs[f"monitor {node.name}"] = node.run_monitor
        if self.name == ADMITTED:
            runs["webhook"] = self.desk.run
        names = (*PROCESSES, *(name for name in runs if name not in PROCESSES))
        for name in names:
            self.processes[name] = Process(name, self.api, runs[name], Random(self.rng.random()), self.struck, self._written)
        for node in self.nodes.values():
            self.processes[f"plugin {node.name}"].on_kill = node.link.cut
            if isinstance(node, ClaimingNode):
                self.processes[f"driver {node.name}"].on_kill = node.claim_link.cut
        if self.claims:
            await self._name_claims()
        if self.name == ADMITTED:
            self.processes["webhook"].on_kill = self.desk.cut
        for name in names:
            self.processes[name].start()
            if name not in CENTRAL:
                await self.clock.sleep(0.1)
        await self._wait(6.0)

    async def _name_claims(self) -> None:
        """The classes and templates that pods name."""
        for name, selectors in claim_kinds.CLASSES.items():
            await self.hands.create(kinds.DEVICE_CLASSES, {"metadata": {"name": name}, "spec": {"selectors": selectors}})
        for name, asked in claim_kinds.ASKS.items():
            template = {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": claim_kinds.spec_of(asked)}}
            await self.hands.create(kinds.RESOURCE_CLAIM_TEMPLATES, template, "default")

    # -- the processes ----------------------------------------------------------------------------------------------------

    async def _run_scheduler(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        settings = scheduler.Settings(listen="", leader_elect=True, budget=FOREVER, identity=f"{cluster.name} {rng.random()}")
        await scheduler.run(settings, cluster=cluster, clock=clock, rng=rng, stop=stop)

    async def _run_controller(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        settings = controller.Settings(listen="127.0.0.1:0", share_hours=False)
        running = controller.Controller(settings, cluster, clock, rng, stop)
        running.jobs.effects.keys = lambda: ("PRIVATE", "ssh-rsa PUBLIC\n")
        await running.run()

    async def _run_kube_controllers(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        await Controllers(ControllersSettings(), cluster, clock, rng).run(stop, None)

    # -- operations -------------------------------------------------------------------------------------------------------

    async def perform(self, op: Op) -> None:
        match op["do"]:
            case "create":
                with suppress(ApiError):
                    await self.hands.create(RESOURCES[op["resource"]], op["object"], "default")
            case "delete":
                with suppress(ApiError):
                    if (gone := self.store.tables["Pod"].get(op["key"])) and op["kind"] == "Pod":
                        group = self.store.tables["PodGroup"].get(judge.group_of(gone))
                        self.disturbed |= {group["metadata"]["uid"]} if group else set()
                    space, _, name = op["key"].rpartition("/")
                    await self.hands.delete(RESOURCES[OF_KIND[op["kind"]]], name, space, grace=0 if op["now"] else None)
            case "annotate":
                if (pod := self.store.tables["Pod"].get(op["key"])) is not None:
                    self.forged.add(pod["metadata"]["uid"])
                with suppress(ApiError):
                    space, _, name = op["key"].rpartition("/")
                    await self.hands.patch(kinds.PODS, name, {"metadata": {"annotations": op["annotations"]}}, space)
            case _:
                await self.befall(op)

    async def befall(self, op: Op) -> None:
        if op["do"] not in ("wait", "calm"):
            self.faults, self.calm_since = self.faults + 1, FOREVER
        process = self.processes.get(op.get("process", ""))
        node = self.nodes.get(op.get("node", ""))
        if node is not None:
            self.hurt.add(node.name)
        if op["do"] == "configure" or op.get("process", "").startswith("scheduler"):
            self.schedulers_hurt = True
        match op["do"]:
            case "wait":
                await self._wait(op["seconds"])
            case "calm":
                await self._calm()
            case "kill" if process is not None:
                if op["at once"]:
                    await process.kill()
                else:
                    process.connection.doom = Doom(op["writes"], op["done"], op.get("only", ""))
            case "end" if process is not None:
                await self._while_ending(process)
            case "fault" if process is not None:
                process.connection.faults.append(Fault(op["code"], op["count"], op["done"], op.get("only", "")))
                if op.get("only", "").endswith(" slice"):  # the pod for which it cuts is ended by design
                    self.hurt.add(SLICED)
            case "away" if process is not None:
                until = self.clock.monotonic() + op["seconds"]
                if op["lists"]:
                    process.connection.deaf_until = until
                else:
                    process.connection.away_until = until
                process.connection.hang_up(forget=False, seconds=op["seconds"])
            case "stop" if process is not None:
                process.clock.stopped_until = self.clock.monotonic() + op["seconds"]
            case "hang up" if process is not None:
                process.connection.hang_up(forget=op["forget"], seconds=op["seconds"])
            case "clock" if process is not None:
                process.clock.offset += op["seconds"]
            case "reboot" if node is not None:
                for part in ("kubelet", "plugin", "driver", "monitor"):
                    if (running := self.processes.get(f"{part} {node.name}")) is not None:
                        await running.kill()
                node.reboot()
            case "restart containers" if node is not None:
                node.restart_containers()
            case "lose record" if node is not None:
                await self.processes[f"kubelet {node.name}"].kill()
                node.lose_record()
            case "card" if node is not None:
                uuid = node.cards.cards[op["card"] % len(node.cards.cards)].uuid
                if op["lost"]:
                    node.lose(uuid)
                else:
                    node.cards.lost.discard(uuid)
            case "damage book" if node is not None:
                node.damage_book(op["text"])
            case "take slices" if node is not None:
                for one in self._listed(kinds.RESOURCE_SLICES):
                    if one["spec"].get("nodeName") == node.name:
                        with suppress(ApiError):
                            await self.hands.delete(kinds.RESOURCE_SLICES, one["metadata"]["name"])
            case "configure":
                data = {"volcano-scheduler.conf": self.conf if op["text"] is None else op["text"]}
                await self.hands.patch(kinds.CONFIGMAPS, SCHEDULER_CONFIGMAP, {"data": data}, SYSTEM)

    async def _while_ending(self, process: Process) -> None:
        ending = asyncio.create_task(process.end())
        await self._wait(1.0)
        if not ending.done():
            await self._wait(30.0)
        if not ending.done():
            ending.cancel()
            await process.kill()

    async def _wait(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while (left := end - self.clock.monotonic()) > 0:
            await self.clock.sleep(min(left, 0.5))
            for process in self.processes.values():
                process.supervise(self.clock.monotonic())
                if process.crash is not None:
                    self.checker.complain("crash", f"{process.name} ended by {process.crash!r}")
                    process.crash = None

    def _written(self, process: Connection, effect: str) -> None:
        """Watch who binds while somebody else leads, and who writes without end."""
        if (second := int(self.clock.monotonic())) != self._second:
            self._second, self._writes = second, Counter()
        self._writes[process.name] += 1
        if self._writes[process.name] > STORM:
            self.checker.complain("storm", f"{process.name} wrote {STORM} times within a second, at last: {effect}")
            raise ApiError(429, "TooManyRequests", "this is a storm", retry_after=1.0)
        if effect == "DELETE pods" and process.name.startswith("scheduler") and not self.schedulers_hurt:
            self._evicted(process)
        if effect != "POST pods binding":
            return
        found = self.api.storage.get(_stored(LEASES), SYSTEM, LEASE)
        holder = found.value()["spec"].get("holderIdentity") or "" if found is not None else ""
        if holder and not holder.startswith(f"{process.name} "):
            self.checker.complain("lease", f"{process.name} binds a pod while {holder.rpartition(' ')[0]} has the lease")

    def _evicted(self, process: Connection) -> None:
        pods = self._listed(kinds.PODS)
        name = process.writes_to.rpartition("/")[2]
        for pod in pods:
            if pod["metadata"]["name"] == name and (why := judge.evicted_for_nobody(pod, pods)):
                self.checker.complain("evicted", why)

    # -- what holds -------------------------------------------------------------------------------------------------------

    def _started(self, node: Node, one: Running) -> None:
        for text in judge.wrong_containers([(one.pod, one.container, one.seen)], self.given, node.lies()):
            self.checker.complain("grant", f"at its start on {node.name}: {text}")

    def _listed(self, resource: Resource) -> list[Json]:
        """Return the objects as the API server has them; one that has not changed since is not decoded again."""
        before, now = self._decoded.get(resource.plural, {}), {}
        for one in self.api.storage.objects(_stored(resource)):
            key = one.namespace, one.name, one.revision
            now[key] = before.get(key) or one.value()
        self._decoded[resource.plural] = now
        return list(now.values())

    def _see(self) -> None:
        """Remember pods as they are bound, and let kinds of steps see what there is."""
        if self.api.storage.revision == self._seen:
            return
        self._seen = self.api.storage.revision
        for kind, name in OF_KIND.items():
            self.store.tables[kind] = {Store.key(obj): obj for obj in self._listed(RESOURCES[name])}
        for pod in self.store.tables["Pod"].values():
            if pod["spec"].get("nodeName"):
                self.given.setdefault(pod["metadata"]["uid"], _bound(pod))
        placed = Counter(judge.group_of(pod) for pod in self.store.tables["Pod"].values() if pod["spec"].get("nodeName"))
        for key, group in self.store.tables["PodGroup"].items():
            if placed[key] >= group["spec"].get("minMember", 1):
                self.stood.add(group["metadata"]["uid"])

    def _running(self) -> Iterator[tuple[Json, str, Any]]:
        for node in self.nodes.values():
            for one in node.running.values():
                yield one.pod, one.container, one.seen

    def _lies(self) -> judge.Lies:
        """The slices of all nodes, by UUID."""
        return {uuid: place for node in self.nodes.values() for uuid, place in node.lies().items()}

    def _unforged(self) -> list[Json]:
        """Return the pods with what they were bound with, whatever their owners wrote on them since."""
        pods = self.store.tables["Pod"].values()
        claimed = claim_judge.stand_ins(self.store.tables["ResourceClaim"].values(), self._listed(kinds.NODES))
        return [*(self.given.get(pod["metadata"]["uid"], pod) | {"status": pod["status"]} for pod in pods), *claimed]

    async def look(self) -> None:
        if not self.processes:
            return
        self._looks += 1
        if self._looks % 16 == 0:
            gc.collect()
        self._see()
        nodes = self._listed(kinds.NODES)
        for text in judge.wrong_containers(self._running(), self.given, self._lies()):
            self.checker.complain("grant", text)
        for text in (text for node in self.nodes.values() if isinstance(node, NpuNode) for text in node.wrong(self.given)):
            self.checker.complain("grant", text)
        for node in self.nodes.values():
            for text in node.told():
                self.checker.complain("monitor", text)
        if self.claims:
            for text in self._wrong_claims():
                self.checker.complain("claims", text)
        for key in self.store.tables["Job"] if self.name == ADMITTED else ():
            if key.startswith(f"default/{WRONG}"):
                self.checker.complain("admission", f"Job {key} is there, which no webhook lets in")
        for text in judge.over(self._running(), nodes):
            self.checker.complain("over", text)
        runs = {pod["metadata"]["uid"] for pod, _, _ in self._running()}
        refused = {pod["metadata"]["uid"] for pod in self.store.tables["Pod"].values()
                   if "failed" in map(pod["metadata"].get("annotations", {}).get, BIND_PHASES)} - runs  # fmt: skip
        for text in judge.impossible_gangs(list(self.store.tables["Pod"].values()), NEVER):
            self.checker.complain("gang", text)
        torn = [] if self.schedulers_hurt else judge.torn_gangs(self._unforged(), list(self.store.tables["PodGroup"].values()),
                                                                self.stood, self.disturbed, owned=False)  # fmt: skip
        self.torn = {text: self.torn.get(text, self.clock.monotonic()) for text in torn}
        for text, since in self.torn.items():
            if self.clock.monotonic() > since + TORN:
                self.checker.complain("gang", text)
        for text in judge.ended_for_nothing(self.store.tables["Pod"].values(), self.forged, self.hurt):
            self.checker.complain("ended", text)
        calm = self.bounds_queues and self.clock.monotonic() > self.calm_since + PROMPT
        if calm and judge.bounded_asleep(nodes, self._unforged(), BOUNDED, BOUND):  # it may have been released just now
            await self._wait(2.0)
            self._see()
            for text in judge.bounded_asleep(self._listed(kinds.NODES), self._unforged(), BOUNDED, BOUND):
                self.checker.complain("prompt", text)
        for text in judge.booked_twice(nodes, self._unforged(), refused):
            self.checker.complain("booked", text)

    async def end(self) -> None:
        try:
            if self.processes and not self.checker.complaints:
                await self._come_to_rest()
        finally:
            for process in self.processes.values():
                if process.alive:
                    process._cancel()
            await asyncio.gather(*(p.task for p in self.processes.values() if p.task is not None), return_exceptions=True)
            self._leave.close()
            shutil.rmtree(self.root, ignore_errors=True)

    async def _calm(self) -> None:
        """From now on nothing befalls anybody."""
        for process in self.processes.values():
            process.connection.faults.clear()
            process.connection.doom = None
            process.connection.away_until = process.connection.deaf_until = process.clock.stopped_until = 0.0
            process.connection.hang_up(forget=False, seconds=0.0)  # who was to be silent for longer answers again
        for node in self.nodes.values():
            node.cards.lost.clear()
            node.rest()
        await self.hands.patch(kinds.CONFIGMAPS, SCHEDULER_CONFIGMAP, {"data": {"volcano-scheduler.conf": self.conf}}, SYSTEM)
        self.calm_since = self.clock.monotonic()

    async def _come_to_rest(self) -> None:
        """Without faults: everything that can run runs, and all that ended is swept."""
        await self._calm()
        for text in await self._until_none(self._not_at_rest, CALM):
            self.checker.complain("rest", text)
        await self.look()
        if self.checker.complaints:
            return
        for kind in ("Deployment", "Job", "PodGroup", "Pod", "ResourceClaim"):
            for obj in self._listed(RESOURCES[OF_KIND[kind]]):
                with suppress(ApiError):
                    await self.hands.delete(RESOURCES[OF_KIND[kind]], obj["metadata"]["name"], "default")
        for text in await self._until_none(self._left_behind, SWEPT):
            self.checker.complain("left behind", text)
        if not self.checker.complaints:
            await self._serve_everybody()

    async def _serve_everybody(self) -> None:
        """In the empty cluster, pods that want whole cards get all there are."""
        by_claim = self.claims and self.rng.random() < 0.5
        for at in range(CARDS * len(NODES)):
            sliced = at < CARDS
            if by_claim:
                pod = claim_kinds.by_claim(f"last-{at}", self.rng, template="large-slice" if sliced else "all")
            elif sliced and (whole := WHOLE_CHIPS.get(self.name)) is not None:
                pod = objects.pod(f"last-{at}", limits=whole, labels=npu_kinds.cores(self.rng)[1])
            else:
                pod = objects.pod(f"last-{at}", mib=MIB_SLICED if sliced else MIB_EACH, cores=None if sliced else 100,
                                  annotations={MODE: "mig"} if sliced else None)  # fmt: skip
            pod["metadata"] = {key: pod["metadata"][key] for key in ("name", "namespace", "annotations", "labels")}
            pod.pop("status", None)
            pod["metadata"]["annotations"].pop(LIFE, None)
            await self.hands.create(kinds.PODS, pod, "default")
        for text in await self._until_none(self._unserved, CALM):
            self.checker.complain("served", text)
        await self.look()

    async def _unserved(self) -> list[str]:
        self._see()
        return [f"{key} wants a card in an empty cluster, and is {pod['status'].get('phase')}: {pod['status'].get('message', '')}"
                for key, pod in self.store.tables["Pod"].items() if pod["status"].get("phase") != "Running"]  # fmt: skip

    async def _until_none(self, find: Callable[[], Awaitable[list[str]]], seconds: float) -> list[str]:
        """Return what is still to be complained of after so long; sooner where there is nothing."""
        end = self.clock.monotonic() + seconds
        while (found := await find()) and self.clock.monotonic() < end:
            await self._wait(10.0)
        return found

    async def _not_at_rest(self) -> list[str]:
        self._see()
        nodes = self._listed(kinds.NODES)
        pods, groups = self._unforged(), list(self.store.tables["PodGroup"].values())
        bound = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") in ("Pending", None)]
        starving = judge.urgent_asleep(nodes, pods) if self.makes_room else []
        if self.bounds_queues:  # where queues have shares, a gang that was let in keeps others out, as in Volcano
            waiting = judge.bounded_asleep(nodes, pods, BOUNDED, BOUND)
        else:
            waiting = [*judge.asleep(nodes, pods), *judge.whole_gangs_asleep(nodes, pods, groups)]
        torn = judge.torn_gangs(pods, groups, self.stood, self.disturbed)
        if self.claims:
            waiting += self._claims_at_rest(pods)
        waiting += [text for node in self.nodes.values() for text in await node.said_wrongly(self.given, self._alive())]
        return [*waiting, *starving, *judge.half_gangs(nodes, pods, groups), *torn,
                *(f"{Store.key(pod)} is bound and does not start" for pod in bound), *self._said_wrongly(nodes),
                *(f"{name} does not run" for name, process in self.processes.items() if not process.alive)]  # fmt: skip

    def _alive(self) -> set[str]:
        return {key for key, pod in self.store.tables["Pod"].items() if pod["status"].get("phase") not in ("Succeeded", "Failed")}

    def _wrong_claims(self) -> list[str]:
        claims, slices = list(self.store.tables["ResourceClaim"].values()), self._listed(kinds.RESOURCE_SLICES)
        there = {pod["metadata"]["uid"]: pod for pod in self.store.tables["Pod"].values()}
        return [*claim_rules.overbooked(claims, slices),
                *claim_judge.wrong_containers(self._running(), claim_judge.by_name(claims), there, self._lies())]  # fmt: skip

    def _claims_at_rest(self, pods: list[Json]) -> list[str]:
        claims, slices = self.store.tables["ResourceClaim"], self._listed(kinds.RESOURCE_SLICES)
        placed = [pod for pod in pods if pod["spec"].get("nodeName") and pod["status"].get("phase") in ("Pending", "Running")]
        there = {pod["metadata"]["uid"]: pod for pod in pods}
        return [*claim_judge.asleep(pods, claims, slices, {uuid for uuid, _, _ in shares_of(placed)}),
                *claim_judge.reserved_for_nobody(claims.values(), there)]  # fmt: skip

    def _said_wrongly(self, nodes: list[Json]) -> list[str]:
        """Return a sentence for each container of which the API server knows otherwise, or that could not start again."""
        notes = {node["metadata"]["name"]: node["metadata"].get("annotations", {}).get(HANDED_OUT, "") for node in nodes}
        running = {key: (node, one) for node in self.nodes.values() for key, one in node.running.items()}
        said = [(Store.key(pod), (pod["metadata"]["uid"], container["name"])) for pod in self.store.tables["Pod"].values()
                if pod["status"].get("phase") == "Running" for container in pod["spec"]["containers"]]  # fmt: skip
        found = [f"container {key[1]} of {pod} runs by what is said, and does not" for pod, key in said if key not in running]
        for (uid, container), (node, one) in running.items():
            name = f"container {container} of {Store.key(one.pod)}"
            bound = self.given.get(uid)
            if bound is not None and uid not in self.forged and judge.holds(bound, container) and uid not in notes[node.name]:
                found.append(f"{name} runs with cards, and {node.name} does not say that they were handed out")
            if not node.could_start(uid, container):
                found.append(f"{name} could not start again: what its answer names is not there")
        return found

    async def _left_behind(self) -> list[str]:
        self._see()
        for node in self.nodes.values():  # the kubelet writes its record anew with the next pod alone
            node.kubelet.pod_devices.save(node.plugins)
        files = [path for node in self.nodes.values() for path in node.cdi.iterdir()]
        left = judge.left_behind(self._listed(kinds.NODES), self._listed(volcano.POD_GROUPS), files)
        journals = [(node, node.root / "hook" / "vgpu" / "mig.json") for node in self.nodes.values()]
        cut = [text for node, path in journals for text in
               judge.left_of_cutting(path.read_text() if path.exists() else "", node.lies(), node.halves())]  # fmt: skip
        stays = [text for node in self.nodes.values() for text in node.stays()]
        named = [f"claim {name} stays" for name in self.store.tables["ResourceClaim"]]
        return [*(f"{pod} stays" for pod in self.store.tables["Pod"]), *named, *left, *cut, *stays]


def _stored(resource: Resource) -> str:
    """Return the name of the API server's table of them."""
    return f"{resource.group or 'v1'}/{resource.plural}"


def _bound(pod: Json) -> Json:
    """Return a pod without the shares that its owner alone says it has: it asks for NPUs, or has a claim."""
    if not (npu_judge.asks(pod) or pod["spec"].get("resourceClaims")):
        return pod
    notes = {key: text for key, text in pod["metadata"].get("annotations", {}).items() if key != HELD}
    return {**pod, "metadata": {**pod["metadata"], "annotations": notes}}


def _cards(node: str, *, npus: bool) -> tuple[CardFacts, ...]:
    if npus:
        return tuple(CardFacts(at, f"NPU-{node}-{at}", MODEL, 24 << 30, minor=at) for at in range(CARDS))
    if node == SLICED:
        return tuple(CardFacts(at, f"GPU-{node}-{at}", "NVIDIA A30", MIB_SLICED * MIB, minor=at, mig=True) for at in range(CARDS))
    return tuple(CardFacts(at, f"GPU-{node}-{at}", "Tesla V100-SXM2-16GB", MIB_EACH * MIB, minor=at) for at in range(CARDS))


def _hash(self: Any) -> int:
    """Return a number and not the address: sets of tasks, as asyncio keeps them, are then in one order in each run."""
    if not hasattr(self, "number"):
        self.number = next(self.get_loop().numbers)
    return int(self.number)


class _Task(asyncio.Task):  # type: ignore[type-arg]
    __hash__ = _hash


class _Future(asyncio.Future):  # type: ignore[type-arg]
    __hash__ = _hash


class PlaneLoop(VirtualLoop):
    """A seed plays the same story each time: work for threads is done at once, and real time has no part."""

    def __init__(self) -> None:
        super().__init__()
        self._jumping.deaf = True
        self.numbers = count()
        self.set_task_factory(lambda loop, work, **more: _Task(work, loop=loop, **more))

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


def virtually(work: Coroutine[Any, Any, Any]) -> Any:
    """Drive a history of this door. What the garbage collector ends, it ends between steps."""
    _warm_up()
    gc.collect()
    gc.freeze()  # what was there before is not looked through again, neither between steps nor by the next history
    gc.disable()
    try:
        still = patch("pumice.effects.tasks.perf_counter", lambda: 0.0)
        effects = (claims_effects(), monitors_effects(), _garbage_left_alone())
        with asyncio.Runner(loop_factory=PlaneLoop) as runner, still, ExitStack() as patches:
            for each in effects:
                patches.enter_context(each)
            return runner.run(work)
    finally:
        gc.enable()


@contextmanager
def _garbage_left_alone() -> Iterator[None]:
    """A daemon sets aside what its process has, and turns the collector on again; here it would do so to all others."""
    with patch.multiple(gc, enable=DEFAULT, freeze=DEFAULT, get_freeze_count=lambda: 0):
        yield


@cache
def _warm_up() -> None:
    """Make the first objects once: later API servers read them, and the first history shall be played like every other."""
    with asyncio.Runner(loop_factory=PlaneLoop) as runner:
        runner.run(faulty_cluster(VirtualClock()))
