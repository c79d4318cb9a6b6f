"""What is seen of the plane: objects as the API server has them, containers that run, and each write as it arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from kit.fake_cluster import Json, Store
from kit.faulty_cluster import SYSTEM
from tests.property.plane import claim_judge, judge, npu_judge, reclaim_judge
from tests.property.plane.mps import MpsNode
from tests.property.plane.node import NUMBER, Node, Running
from tests.property.plane.processes import CYCLE, Connection
from tests.property.plane.upstream import UpstreamNode
from tests.property.plane.world import OF_KIND, RESOURCES, PlaneWorld

from pumice.audit.card_rules import HELD
from pumice.ports.cluster import ApiError, Resource
from pumice.wire import kinds, volcano
from pumice.wire.kinds import LEASES

LEASE = "volcano"
STORM = 800
"""So many writes within a second are more than any decision of one process needs in a cluster of three nodes. A new leader that
tells sixty pods why they wait, and again as others are bound, has needed 410 (seed 105)."""
RESTLESS = 50
"""So many cycles within a second in which nothing changes are more than any retry needs."""
PROMPT = 45.0
"""Seconds without faults after which what a queue releases is had at once."""
TOLD = 2.0
"""Seconds within which all know of what a queue deserves."""


class SeenPlane(PlaneWorld):
    # -- objects and containers -------------------------------------------------------------------------------------------

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
                if not (isinstance(node, UpstreamNode) and one.pod["metadata"]["uid"] in self.forged):
                    yield one.pod, one.container, one.seen

    def _too_wide(self) -> set[str]:
        """UIDs of pods that were placed where no container has two cards: one that is shared by MPS reaches one of them."""
        return {pod["metadata"]["uid"] for pod in self.store.tables["Pod"].values()
                if isinstance(self.nodes.get(pod["spec"].get("nodeName", "")), MpsNode)
                and any(int(c["resources"].get("limits", {}).get(NUMBER, 0)) > 1 for c in pod["spec"]["containers"])}  # fmt: skip

    def _lies(self) -> judge.Lies:
        """The slices of all nodes, by UUID."""
        return {uuid: place for node in self.nodes.values() for uuid, place in node.lies().items()}

    def _unforged(self) -> list[Json]:
        """Return the pods with what they were bound with, whatever their owners wrote on them since."""
        pods = self.store.tables["Pod"].values()
        claimed = claim_judge.stand_ins(self.store.tables["ResourceClaim"].values(), self._listed(kinds.NODES))
        return [*(self.given.get(pod["metadata"]["uid"], pod) | {"status": pod["status"]} for pod in pods), *claimed]

    def _queues(self) -> dict[str, Json]:
        return {queue["metadata"]["name"]: queue for queue in self._listed(volcano.QUEUES)}

    def _alive(self) -> set[str]:
        return {key for key, pod in self.store.tables["Pod"].items() if pod["status"].get("phase") not in ("Succeeded", "Failed")}

    # -- as it happens ----------------------------------------------------------------------------------------------------

    def _started(self, node: Node, one: Running) -> None:
        if isinstance(node, UpstreamNode) and one.pod["metadata"]["uid"] in self.forged:
            return
        for text in judge.wrong_containers([(one.pod, one.container, one.seen)], self.given, node.lies()):
            self.checker.complain("grant", f"at its start on {node.name}: {text}")

    def _written(self, process: Connection, effect: str) -> None:
        """Watch who binds while somebody else leads, and who writes or decides without end."""
        if effect == CYCLE:
            self._decides(process)
            return
        if (second := int(self.clock.monotonic())) != self._second:
            self._second, self._writes = second, Counter()
        self._writes[process.name] += 1
        if self._writes[process.name] > STORM:
            self.checker.complain("storm", f"{process.name} wrote {STORM} times within a second, at last: {effect}")
            raise ApiError(429, "TooManyRequests", "this is a storm", retry_after=1.0)
        if effect == "DELETE pods" and process.name.startswith("scheduler") and not (self.schedulers_hurt and self._unrested()):
            self._evicted(process)
        if effect != "POST pods binding":
            return
        found = self.api.storage.get(_stored(LEASES), SYSTEM, LEASE)
        holder = found.value()["spec"].get("holderIdentity") or "" if found is not None else ""
        if holder and not holder.startswith(f"{process.name} "):
            self.checker.complain("lease", f"{process.name} binds a pod while {holder.rpartition(' ')[0]} has the lease")

    def _decides(self, process: Connection) -> None:
        """A scheduler begins a cycle: the next of a row, where nothing has changed since the last one within this second."""
        now = (int(self.clock.monotonic()), self.api.storage.revision)
        before, number = self._rows.get(process.name, (now, 0))
        self._rows[process.name] = now, number + 1 if before == now else 1
        if number >= RESTLESS:
            self.checker.complain("restless", f"{process.name} began {number} cycles within a second in which nothing changed")
            process.process_clock.stopped_until = self.clock.monotonic() + 1.0

    def _evicted(self, process: Connection) -> None:
        pods = self._listed(kinds.PODS)
        name = process.writes_to.rpartition("/")[2]
        for pod in pods:
            if pod["metadata"]["name"] != name:
                continue
            if not self.reclaims and (why := judge.evicted_for_nobody(pod, pods)):
                self.checker.complain("evicted", why)
            known = self.clock.monotonic() > self._shares_since + TOLD
            if self.reclaims and known and (why := reclaim_judge.taken_wrongly(pod, pods, self._queues())):
                self.checker.complain("taken wrongly", why)

    def _unrested(self) -> bool:
        """Return whether something befell somebody a moment ago."""
        return self.clock.monotonic() <= self.calm_since + PROMPT


def _stored(resource: Resource) -> str:
    """Return the name of the API server's table of them."""
    return f"{resource.group or 'v1'}/{resource.plural}"


def _bound(pod: Json) -> Json:
    """Return a pod without the shares that its owner alone says it has: it asks for NPUs, or has a claim."""
    if not (npu_judge.asks(pod) or pod["spec"].get("resourceClaims")):
        return pod
    notes = {key: text for key, text in pod["metadata"].get("annotations", {}).items() if key != HELD}
    return {**pod, "metadata": {**pod["metadata"], "annotations": notes}}
