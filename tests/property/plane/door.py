"""The door of the whole plane: what must hold after each step, and at the end."""

from __future__ import annotations

import asyncio
import gc
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kit import objects
from kit.fake_cluster import Json, Store
from tests.property.plane import claim_judge, claim_kinds, judge, npu_kinds, reclaim_judge, releases
from tests.property.plane.kinds import (
    ADMITTED,
    BESIDE_UPSTREAM,
    BOUND,
    BOUNDED,
    CUT,
    HAMI,
    MODE,
    NEVER,
    NODES,
    SERVED,
    WRONG,
)
from tests.property.plane.node import LIFE
from tests.property.plane.npus import CHIP, CORE, CORES, NpuNode
from tests.property.plane.seen import SeenPlane
from tests.property.plane.upstream import LOCK, UpstreamNode
from tests.property.plane.world import CARDS, MIB_EACH, MIB_SLICED, OF_KIND, RESOURCES

from pumice.audit import claim_rules
from pumice.audit.auditor import shares_of
from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano

BIND_PHASES = ("volcano.sh/bind-phase", "hami.io/bind-phase")
HANDED_OUT = "pumice.io/vgpu-handed-out"
TORN = 5.0
"""Seconds within which the Bindings of a gang are all answered where nothing befalls anybody."""
CALM, SWEPT = 240.0, 200.0
"""Seconds without faults after which everything that can run runs, and after which all that ended is swept."""
EXPIRES = 360.0
"""Seconds after which a node's lock that upstream's plugin has not given back stands in nobody's way."""
GIVEN_BACK = 25.0
"""Seconds without faults after which a queue has its share back: who goes has up to 20 for it."""
WHOLE_CHIPS = {CUT: {CORE: str(CORES)}, HAMI: {CHIP: "1"}}


class PlaneDoor(SeenPlane):
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
                self.checker.complain("mps" if self.name == SERVED else "monitor", text)
        if self.claims:
            for text in self._wrong_claims():
                self.checker.complain("claims", text)
        for key in self.store.tables["Job"] if self.name == ADMITTED else ():
            if key.startswith(f"default/{WRONG}"):
                self.checker.complain("admission", f"Job {key} is there, which no webhook lets in")
        for text in judge.removable_regions((one.pod, one.container, one.seen) for node in self.nodes.values()
                                            if not node.was_last for one in node.running.values()):  # fmt: skip
            self.checker.complain("region", text)
        for text in judge.over(self._running(), nodes):
            self.checker.complain("over", text)
        runs = {pod["metadata"]["uid"] for pod, _, _ in self._running()}
        refused = {pod["metadata"]["uid"] for pod in self.store.tables["Pod"].values()
                   if "failed" in map(pod["metadata"].get("annotations", {}).get, BIND_PHASES)} - runs  # fmt: skip
        for text in judge.impossible_gangs(list(self.store.tables["Pod"].values()), NEVER):
            self.checker.complain("gang", text)
        groups = [] if self.schedulers_hurt or self.name == BESIDE_UPSTREAM else list(self.store.tables["PodGroup"].values())
        torn = judge.torn_gangs(self._unforged(), groups, self.stood, self.disturbed, owned=False)
        self.torn = {text: self.torn.get(text, self.clock.monotonic()) for text in torn}
        for text, since in self.torn.items():
            if self.clock.monotonic() > since + TORN:
                self.checker.complain("gang", text)
        for text in judge.ended_for_nothing(self.store.tables["Pod"].values(), self.forged | self._too_wide(), self.hurt):
            self.checker.complain("ended", text)
        calm = self.bounds_queues and not self._unrested()
        if calm and self.reclaims:
            for text in await self._owed():
                self.checker.complain("owed", text)
        if calm and judge.bounded_asleep(nodes, self._unforged(), BOUNDED, BOUND):  # it may have been released just now
            await self._wait(2.0)
            self._see()
            for text in judge.bounded_asleep(self._listed(kinds.NODES), self._unforged(), BOUNDED, BOUND):
                self.checker.complain("prompt", text)
        for text in judge.booked_twice(nodes, self._unforged(), refused):
            self.checker.complain("booked", text)

    async def _owed(self) -> list[str]:
        """Return a sentence for each queue that was to have its share back by now."""
        end = self.clock.monotonic() + GIVEN_BACK
        while found := reclaim_judge.owed(self._listed(kinds.NODES), self._unforged(), self._queues()):
            if self.clock.monotonic() >= end:
                break
            await self._wait(5.0)
            self._see()
        return found

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

    async def _rest(self) -> None:
        await self._calm()
        for text in await self._until_none(self._not_at_rest, self._patience()):
            self.checker.complain("rest", text)

    async def _come_to_rest(self) -> None:
        """Without faults: everything that can run runs, and all that ended is swept."""
        await self._rest()
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
        for text in await self._until_none(self._unserved, self._patience()):
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

    def _patience(self) -> float:
        """Longer where a scheduler may have died with a node's lock: the next one gives back what it took itself."""
        locked = any(LOCK in node["metadata"].get("annotations", {}) for node in self._listed(kinds.NODES))
        return CALM + (EXPIRES if locked else 0.0)

    async def _not_at_rest(self) -> list[str]:
        self._see()
        nodes = self._listed(kinds.NODES)
        pods, groups = self._unforged(), list(self.store.tables["PodGroup"].values())
        bound = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") in ("Pending", None)
                 and not self.nodes[p["spec"]["nodeName"]].held_up(p)]  # fmt: skip
        starving = judge.urgent_asleep(nodes, pods) if self.makes_room else []
        if self.bounds_queues:  # where queues have shares, a gang that was let in keeps others out, as in Volcano
            waiting = judge.bounded_asleep(nodes, pods, BOUNDED, BOUND)
        else:
            waiting = [*judge.asleep(nodes, pods), *judge.whole_gangs_asleep(nodes, pods, groups)]
        if self.reclaims:
            waiting += reclaim_judge.owed(nodes, pods, self._queues())
        torn = judge.torn_gangs(pods, groups, self.stood, self.disturbed)
        if self.claims:
            waiting += self._claims_at_rest(pods)
        waiting += [text for node in self.nodes.values() for text in await node.said_wrongly(self.given, self._alive())]
        return [*waiting, *releases.unexcused([*starving, *torn], self.played_last), *judge.half_gangs(nodes, pods, groups),
                *(f"{Store.key(pod)} is bound and does not start" for pod in bound), *self._said_wrongly(nodes),
                *(f"{name} does not run" for name, process in self.processes.items() if not process.alive)]  # fmt: skip

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
            bound = self.given.get(uid) if not isinstance(node, UpstreamNode) else None
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
