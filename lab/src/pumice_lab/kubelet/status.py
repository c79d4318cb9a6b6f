"""Pod status as kubectl users know it, from the records of a pod's containers. Pure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pumice.effects.backoff import Backoff
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import PODS
from pumice.wire.times import stamp
from pumice_lab.kubelet.records import Ended, Record

Json = dict[str, Any]
_OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
Health = Mapping[str, Sequence[tuple[str, Sequence[tuple[str, str]]]]]


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts of a pod that only the node knows. ``start_time``: Unix seconds of the admission."""

    host_ip: str
    pod_ip: str
    start_time: float


def rejected_status(pod: Mapping[str, Any], reason: str, text: str, now: float) -> Json:
    """A refusal at admission, as a merge patch: no conditions and no container statuses are left (observed)."""
    status: Json = {
        "phase": "Failed", "reason": reason, "message": f"Pod was rejected: {text}", "startTime": stamp(now),
        "conditions": None, "containerStatuses": None, "initContainerStatuses": None, "podIP": None, "podIPs": None,
        "hostIP": None, "hostIPs": None,
    }  # fmt: skip
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    return status


def pod_status(pod: Mapping[str, Any], records: Sequence[Record], facts: PodFacts, now: float, *,
               health: Health, guests: Sequence[Record] = (), over: str = "", reason: str = "", message: str = "") -> Json:
    """The whole status as a merge patch. ``over``: the final phase, when nothing will run any more; ``guests``: ephemeral
    containers, which nothing else follows."""
    policy = pod["spec"].get("restartPolicy") or "Always"
    phase = over or phase_of(records, policy)
    images = {c["name"]: c.get("image", "") for c in _containers(pod)}
    statuses = {r.name: _container_status(r, images[r.name], health.get(r.name, ())) for r in (*records, *guests)}
    status: Json = {
        "phase": phase, "startTime": stamp(facts.start_time),
        "hostIP": facts.host_ip, "hostIPs": [{"ip": facts.host_ip}],
        "podIP": facts.pod_ip, "podIPs": [{"ip": facts.pod_ip}],
        "containerStatuses": [statuses[r.name] for r in records if r.kind == "app"],
        "conditions": _conditions(pod, records, phase, now),
        "reason": reason or None, "message": message or None,
    }  # fmt: skip
    inits = [statuses[r.name] for r in records if r.kind != "app"]
    if inits:
        status["initContainerStatuses"] = inits
    if guests:
        status["ephemeralContainerStatuses"] = [{**statuses[guest.name], "ready": False} for guest in guests]
    if generation := pod["metadata"].get("generation"):
        status["observedGeneration"] = generation
    return status


def phase_of(records: Sequence[Record], policy: str) -> str:
    """Kubernetes' phase: Pending until every container started once; an ended container that will restart is Running."""
    for record in records:
        if record.kind == "init" and not record.succeeded and not _initialised(records):
            return "Failed" if record.failed and policy == "Never" else "Pending"
    apps = [r for r in records if r.kind == "app"]
    if any(not app.ever_ran for app in apps):
        return "Pending"
    if any(app.state == "running" for app in apps) or policy == "Always":
        return "Running"
    if all(app.succeeded for app in apps):
        return "Succeeded"
    return "Failed" if policy == "Never" and all(app.state == "terminated" for app in apps) else "Running"


def _initialised(records: Sequence[Record]) -> bool:
    return any(r.ever_ran for r in records if r.kind == "app") or all(
        r.succeeded if r.kind == "init" else r.started for r in records if r.kind != "app")


def _containers(pod: Mapping[str, Any]) -> list[Json]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"], *(spec.get("ephemeralContainers") or ())]


def _container_status(record: Record, image: str, health: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> Json:
    out: Json = {
        "name": record.name, "image": image, "imageID": image, "ready": _is_ready(record),
        "started": record.state == "running" and record.started, "restartCount": record.restarts,
        "state": _state(record), "lastState": {"terminated": _terminated(record.last)} if record.last else {},
    }  # fmt: skip
    shown = record.container_id or (record.last.container_id if record.last else "")
    if shown:
        out["containerID"] = f"pumice://{shown}"
    if health:
        out["allocatedResourcesStatus"] = [
            {"name": resource, "resources": [{"resourceID": ident, "health": word} for ident, word in devices]}
            for resource, devices in health]
    return out


def _is_ready(record: Record) -> bool:
    return record.succeeded if record.kind == "init" else record.state == "running" and record.ready


def _state(record: Record) -> Json:
    if record.state == "running":
        return {"running": {"startedAt": stamp(record.started_at)}}
    if record.state == "terminated" and record.ended:
        return {"terminated": _terminated(record.ended)}
    waiting = {"reason": record.reason or "ContainerCreating"}
    return {"waiting": {**waiting, "message": record.message} if record.message else waiting}


def _terminated(ended: Ended) -> Json:
    out: Json = {
        "exitCode": ended.code, "reason": ended.reason,
        "startedAt": stamp(ended.started_at), "finishedAt": stamp(ended.finished_at),
    }  # fmt: skip
    if ended.message:
        out["message"] = ended.message
    if ended.signal:
        out["signal"] = ended.signal
    if ended.container_id:
        out["containerID"] = f"pumice://{ended.container_id}"
    return out


def _conditions(pod: Mapping[str, Any], records: Sequence[Record], phase: str, now: float) -> list[Json]:
    """Our five; the others' are kept. A condition's time changes with its status only."""
    before = {c["type"]: c for c in (pod.get("status") or {}).get("conditions") or ()}
    waiting = [r.name for r in records if r.kind != "app" and not (r.succeeded if r.kind == "init" else r.started)]
    unready = [r.name for r in records if r.kind != "init" and not _is_ready(r)]
    initialised = _initialised(records) or phase == "Succeeded"
    if phase == "Succeeded":
        ready: Json = {"status": "False", "reason": "PodCompleted"}
    elif phase == "Failed":
        ready = {"status": "False", "reason": "PodFailed"}
    elif unready:
        ready = {"status": "False", "reason": "ContainersNotReady",
                 "message": f"containers with unready status: [{' '.join(unready)}]"}
    else:
        ready = {"status": "True"}
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates") or ()]
    closed = [gate for gate in gates if before.get(gate, {}).get("status") != "True"]
    pod_ready = ready if ready["status"] == "False" or not closed else {
        "status": "False", "reason": "ReadinessGatesNotReady",
        "message": f'the status of pod readiness gate "{closed[0]}" is not "True", but False'}
    initialised_condition: Json = {"status": "True"} if initialised else {
        "status": "False", "reason": "ContainersNotInitialized",
        "message": f"containers with incomplete status: [{' '.join(waiting)}]"}
    if phase == "Succeeded" and initialised:
        initialised_condition["reason"] = "PodCompleted"
    wanted = {
        "PodReadyToStartContainers": {"status": "False" if phase in ("Succeeded", "Failed") else "True"},
        "Initialized": initialised_condition, "Ready": pod_ready, "ContainersReady": ready,
        "PodScheduled": {"status": "True"},
    }  # fmt: skip
    out = [c for name, c in before.items() if name not in _OURS]
    for name in _OURS:
        same = before.get(name, {}).get("status") == wanted[name]["status"]
        since = before[name].get("lastTransitionTime") if same else None
        condition = {"type": name, "lastProbeTime": None, "lastTransitionTime": since or stamp(now), **wanted[name]}
        if generation := pod["metadata"].get("generation"):
            condition["observedGeneration"] = generation
        out.append(condition)
    return out


# -- Pod status writes: one at a time per pod, the latest wins, equal ones are dropped -------------------------------

log = logging.getLogger("pumice.kubelet")
AGAIN = Backoff(0.1, 10.0)


class StatusWriter:
    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster, self.clock = cluster, clock
        self._wanted: dict[str, tuple[str, str, dict[str, Any]]] = {}  # uid -> (namespace, name, status)
        self._written: dict[str, dict[str, Any]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def write(self, pod: Mapping[str, Any], status: dict[str, Any]) -> None:
        """Returns at once; ``flush`` waits."""
        meta = pod["metadata"]
        uid = meta["uid"]
        if uid not in self._wanted and self._written.get(uid) == status:
            return
        self._wanted[uid] = (meta.get("namespace", ""), meta["name"], status)
        if uid not in self._tasks:
            self._tasks[uid] = asyncio.create_task(self._write(uid), name=f"status of {meta['name']}")

    async def flush(self, uid: str = "") -> None:
        tasks = [task for key, task in self._tasks.items() if not uid or key == uid]
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, uid: str) -> None:
        self._wanted.pop(uid, None)
        self._written.pop(uid, None)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, uid: str) -> None:
        tries = 0
        try:
            while uid in self._wanted:
                namespace, name, status = self._wanted[uid]
                try:
                    # The uid is a precondition: a pod of the same name that came later is not touched.
                    await self.cluster.patch(PODS, name, {"metadata": {"uid": uid}, "status": status}, namespace,
                                             subresource="status", kind="merge")
                except ApiError as error:
                    if error.code in (404, 409, 410):
                        self._wanted.pop(uid, None)
                        return
                    log.warning("pod status not written pod=%s/%s cause=%s", namespace, name, error)
                    await self.clock.sleep(AGAIN.pause(tries))
                    tries += 1
                    continue
                tries = 0
                self._written[uid] = status
                if self._wanted.get(uid, ("", "", {}))[2] is status:
                    del self._wanted[uid]
        finally:
            self._tasks.pop(uid, None)
