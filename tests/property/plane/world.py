"""What there is on the plane, and what befalls it: one API server, daemons as processes, and nodes."""

from __future__ import annotations

import asyncio
import tempfile
from abc import abstractmethod
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random

from kit import objects
from kit.fake_cluster import Json
from kit.faulty_cluster import SYSTEM, FaultyCluster, faulty_cluster
from kit.virtual_time import VirtualClock
from tests.property.history.checker import told
from tests.property.history.door import Door
from tests.property.history.registry import Op, View
from tests.property.plane import claim_kinds, judge, last_release, reclaim_kinds, releases
from tests.property.plane.caught import exceptions_told
from tests.property.plane.claims import ClaimingNode
from tests.property.plane.kinds import (
    ADMITTED,
    BESIDE_UPSTREAM,
    BOUND,
    BOUNDED,
    CENTRAL,
    CLAIMS,
    CUT,
    HAMI,
    MONITORED,
    NODES,
    PLANE,
    PROCESSES,
    RECLAIMING,
    SERVED,
    SLICED,
    URGENT,
    thinned,
    troubled,
)
from tests.property.plane.monitors import MonitoredNode
from tests.property.plane.mps import MpsNode
from tests.property.plane.mps_kinds import BY_MPS
from tests.property.plane.node import NUMBER, Node, Running
from tests.property.plane.npus import MODEL, CutNode, HamiNode, NpuNode
from tests.property.plane.processes import Connection, Doom, Fault, Process, Struck
from tests.property.plane.upstream import UpstreamNode
from tests.property.plane.webhooks import Desk, answered_by

from pumice.model.amount import MIB
from pumice.ports.cards import CardFacts
from pumice.ports.cluster import ApiError, Resource
from pumice.wire import kinds, volcano
from pumice.wire.names import SCHEDULER_CONFIGMAP
from pumice_jobs.apps.controller import daemon as controller
from pumice_lab.controllers.manager import Controllers, ControllersSettings

RESOURCES: dict[str, Resource] = {
    "pods": kinds.PODS, "podgroups": volcano.POD_GROUPS, "jobs": volcano.JOBS, "deployments": kinds.DEPLOYMENTS,
    "resourceclaims": kinds.RESOURCE_CLAIMS}  # fmt: skip
OF_KIND = {"Pod": "pods", "PodGroup": "podgroups", "Job": "jobs", "Deployment": "deployments", "ResourceClaim": "resourceclaims"}
CARDS, MIB_EACH, MIB_SLICED = 2, 16000, 24576
CONFS = ("cards shared by MPS", "NPUs cut on demand", "making room by importance", "capacity",
         "cards by claim as well", "NPUs in HAMi's mode", "beside upstream's plugin", "reclaim between queues")  # fmt: skip
"""The configurations of the histories, in turn by seed: where queues had shares, a gang that was let in would keep others out, as
in Volcano."""
OF_CONF = {"by claim": CLAIMS, "by MPS": SERVED, "reclaim": RECLAIMING, "name: capacity": ADMITTED, "MindCluster": CUT,
           "AscendHAMi": HAMI, "NodeLock": BESIDE_UPSTREAM, "preempt": MONITORED}
"""The plane of a configuration, by what is said in it."""
CONF_FILE = "volcano-scheduler.conf"
UPSTREAMS = "n0"
"""The node whose plugin is upstream's, where one is."""
FOREVER = 1e9
"""The budget of a cycle: real time has no part in the story."""


def conf_of(seed: int) -> str:
    """Return under which configuration a history of that seed is played."""
    return CONFS[seed % len(CONFS)]


class PlaneWorld(Door):
    name = PLANE
    pauses = (0.2, 1.0, 5.0)
    quiet = 15.0

    def __init__(self, conf: str, rng: Random) -> None:
        super().__init__(conf, rng)
        self.makes_room, self.bounds_queues = "preempt" in conf, "name: capacity" in conf
        self.claims, self.reclaims = "by claim" in conf, "reclaim" in conf
        self.name = next((name for word, name in OF_CONF.items() if word in conf), PLANE)
        self.clock = VirtualClock()
        self.struck = Struck()
        self.calm_since = FOREVER
        """Since when nothing befalls anybody."""
        self._seen, self._looks = -1, 0
        self._shares_since = 0.0
        """Since when queues deserve what they do."""
        self._rows: dict[str, tuple[tuple[int, int], int]] = {}
        """By scheduler how many cycles it has begun in a row, and when and at which revision of the API server."""
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
        self.last_release: set[str] = set()
        """Processes that are of the last release."""
        self.played_last: set[str] = set()
        """Those that were at some time."""

    def beginning(self, view: View, rng: Random) -> list[Op]:
        return releases.beginning(self.name, rng)

    def amid(self, ops: list[Op], view: View, rng: Random) -> list[Op]:
        return [*thinned(view, rng), *troubled(ops, rng)]

    def _node(self, name: str, rng: Random) -> Node:
        whole = ClaimingNode if self.claims else MonitoredNode if self.name == MONITORED else Node
        sort = {CUT: CutNode, HAMI: HamiNode}.get(self.name, whole) if name == SLICED else whole
        sort = {(SERVED, BY_MPS): MpsNode, (BESIDE_UPSTREAM, UPSTREAMS): UpstreamNode}.get((self.name, name), sort)
        return sort(name, _cards(name, npus=issubclass(sort, NpuNode)), self.root / name, rng, self._started)

    async def begin(self) -> None:
        self._leave = ExitStack()
        self._leave.enter_context(answered_by(self.desk))
        self._leave.enter_context(exceptions_told(partial(self.checker.complain, "caught")))
        self.hands: FaultyCluster = await faulty_cluster(self.clock)
        self.api = self.hands.api
        await self.hands.create(kinds.CONFIGMAPS, {"metadata": {"name": SCHEDULER_CONFIGMAP, "namespace": SYSTEM},
                                                   "data": {CONF_FILE: self.conf}}, SYSTEM)  # fmt: skip
        await self.hands.create(kinds.PRIORITY_CLASSES, objects.priority_class(URGENT, 100))
        await self.hands.create(volcano.QUEUES, objects.queue(BOUNDED, capability={NUMBER: str(BOUND)}))
        for name, spec in reclaim_kinds.QUEUES.items() if self.reclaims else ():
            await self.hands.create(volcano.QUEUES, objects.queue(name, **spec))
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
        last = cluster.name in self.last_release
        scheduler = last_release.code("apps.scheduler.daemon", last=last)
        settings = scheduler.Settings(listen="", leader_elect=True, budget=FOREVER, identity=f"{cluster.name} {rng.random()}")
        own = last_release.client(cluster, last=last)
        await scheduler.run(settings, cluster=own, clock=clock, rng=rng, stop=stop)

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
            case "queue":
                self._shares_since = self.clock.monotonic()
                await self.hands.patch(volcano.QUEUES, op["queue"], {"spec": op["spec"]})
            case _:
                await self.befall(op)

    async def befall(self, op: Op) -> None:
        if op["do"] == "release" and not self._exchange(op):
            return
        if op["do"] not in ("wait", "calm", "rest"):
            self.calm_since = FOREVER
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
            case "rest":
                await self._rest()
            case "kill" if process is not None:
                if op["at once"]:
                    self.struck.faults += process.alive
                    await process.kill()
                else:
                    process.connection.doom = Doom(op["writes"], op["done"], op.get("only", ""))
            case "end" if process is not None:
                self.struck.faults += process.alive
                await self._while_ending(process)
            case "release" if process is not None:
                self.struck.faults += process.alive
                await (process.kill() if op["killed"] else self._while_ending(process))
            case "fault" if process is not None:
                process.connection.faults.append(Fault(op["code"], op["count"], op["done"], op.get("only", "")))
                if op.get("only", "").endswith(" slice"):  # the pod for which it cuts is ended by design
                    self.hurt.add(SLICED)
            case "away" if process is not None:
                process.connection.go_away(self.clock.monotonic() + op["seconds"], lists=op["lists"])
            case "stop" if process is not None:
                process.stop_until(self.clock.monotonic() + op["seconds"])
            case "hang up" if process is not None:
                self.struck.faults += process.connection.hang_up(forget=op["forget"], seconds=op["seconds"])
            case "clock" if process is not None:
                process.clock.offset += op["seconds"]
                self.struck.faults += process.alive
            case "configure":
                self.struck.faults += await self._configure(self.conf if op["text"] is None else op["text"])
            case _ if node is not None:
                self.struck.faults += await self._befall_node(node, op)

    async def _befall_node(self, node: Node, op: Op) -> bool:
        """Return whether it changed anything."""
        match op["do"]:
            case "reboot":
                for part in ("kubelet", "plugin", "driver", "monitor"):
                    if (running := self.processes.get(f"{part} {node.name}")) is not None:
                        await running.kill()
                node.reboot()
            case "restart containers":
                ran = bool(node.running)
                node.restart_containers()
                return ran
            case "lose record":
                recorded = bool(node.kubelet.pod_devices.entries)
                await self.processes[f"kubelet {node.name}"].kill()
                node.lose_record()
                return recorded
            case "card":
                uuid = node.cards.cards[op["card"] % len(node.cards.cards)].uuid
                if op["lost"] == (uuid in node.cards.lost):
                    return False
                if op["lost"]:
                    node.lose(uuid)
                else:
                    node.cards.lost.discard(uuid)
            case "damage book":
                node.damage_book(op["text"])
            case "daemon":
                node.befall_daemon(op["card"], op["what"])
            case "take slices":
                mine = [one for one in self._listed(kinds.RESOURCE_SLICES) if one["spec"].get("nodeName") == node.name]
                for one in mine:
                    with suppress(ApiError):
                        await self.hands.delete(kinds.RESOURCE_SLICES, one["metadata"]["name"])
                return bool(mine)
        return True

    async def _configure(self, text: str) -> bool:
        """Write the schedulers' configuration; return whether it was another."""
        before = await self.hands.get(kinds.CONFIGMAPS, SCHEDULER_CONFIGMAP, SYSTEM)
        await self.hands.patch(kinds.CONFIGMAPS, SCHEDULER_CONFIGMAP, {"data": {CONF_FILE: text}}, SYSTEM)
        return bool(before["data"][CONF_FILE] != text)

    def _exchange(self, op: Op) -> bool:
        """Say of which release the process is from its next start; return whether one has to end for it."""
        name = op["process"]
        if not releases.exchangeable(name, self.name, self.nodes) or op["last"] == (name in self.last_release):
            return False
        self.last_release ^= {name}
        self.played_last |= self.last_release
        if (node := self.nodes.get(name.removeprefix("plugin "))) is not None:
            node.last, node.was_last = op["last"], node.was_last or op["last"]
        self.struck["rolled back" if op["last"] else "upgraded", name.split()[0]] += bool(self.processes)
        return bool(self.processes)

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
                    self.checker.complain("crash", f"{process.name} ended by {told(process.crash)}")
                    process.crash = None

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
        await self._configure(self.conf)
        self.calm_since = self.clock.monotonic()

    # -- what is seen of it -----------------------------------------------------------------------------------------------

    @abstractmethod
    async def _rest(self) -> None:
        """Nothing befalls anybody until everything that can run runs."""

    @abstractmethod
    def _written(self, process: Connection, effect: str) -> None:
        """A write arrives, or a scheduler begins a cycle."""

    @abstractmethod
    def _started(self, node: Node, one: Running) -> None:
        """A container starts."""

    @abstractmethod
    def _listed(self, resource: Resource) -> list[Json]:
        """Return the objects as the API server has them."""


def _cards(node: str, *, npus: bool) -> tuple[CardFacts, ...]:
    if npus:
        return tuple(CardFacts(at, f"NPU-{node}-{at}", MODEL, 24 << 30, minor=at) for at in range(CARDS))
    if node == SLICED:
        return tuple(CardFacts(at, f"GPU-{node}-{at}", "NVIDIA A30", MIB_SLICED * MIB, minor=at, mig=True) for at in range(CARDS))
    return tuple(CardFacts(at, f"GPU-{node}-{at}", "Tesla V100-SXM2-16GB", MIB_EACH * MIB, minor=at) for at in range(CARDS))
