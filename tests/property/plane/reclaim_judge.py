"""Judges of queues that claim back what others borrowed, by API objects alone; like ``judge`` they import no decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kit.fake_cluster import Json
from tests.property.plane import judge

from pumice.audit.amounts import quantity
from pumice.audit.card_rules import NUMBER

QUEUE = "scheduling.volcano.sh/queue-name"


def queue_of(pod: Json) -> str:
    return str(pod["metadata"].get("annotations", {}).get(QUEUE, "default"))


def asked(pod: Json) -> int:
    """Return how many shares of cards the pod asks for."""
    return sum(int(quantity(c["resources"].get("limits", {}).get(NUMBER, 0))) for c in pod["spec"]["containers"])


def held(pods: Iterable[Json], *, going: bool) -> Counter[str]:
    """Return how many shares each queue has; with those of pods that were told to go where ``going``."""
    found = Counter[str]()
    for pod in pods:
        stays = going or not pod["metadata"].get("deletionTimestamp")
        if pod["spec"].get("nodeName") and stays and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            found[queue_of(pod)] += asked(pod)
    return found


def deserved(queue: Json) -> int:
    return int(quantity(queue["spec"].get("deserved", {}).get(NUMBER, 0)))


def _waiting(pods: Iterable[Json]) -> list[Json]:
    return [p for p in pods if not p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")
            and p["status"].get("phase") == "Pending"]  # fmt: skip


def taken_wrongly(pod: Json, pods: list[Json], queues: dict[str, Json]) -> str:
    """Return why no other queue may claim a pod by itself that is told to go. Empty where one may."""
    mine, has = queue_of(pod), held(pods, going=False)
    key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if judge.in_gang(pod):
        return ""
    if queues[mine]["spec"].get("reclaimable") is False:
        return f"{key} is told to go, and queue {mine} gives nothing back"
    if has[mine] <= deserved(queues[mine]):
        return f"{key} is told to go, and queue {mine} has {has[mine]} of {deserved(queues[mine])} shares that it deserves"
    if not any(queue_of(p) != mine and has[queue_of(p)] + asked(p) <= deserved(queues[queue_of(p)]) for p in _waiting(pods)):
        return f"{key} is told to go, and no other queue has a claim"
    return ""


def owed(nodes: list[Json], pods: list[Json], queues: dict[str, Json]) -> list[str]:
    """Return a sentence for each queue that has less than it deserves while one of its pods by itself would fit without one pod
    that another queue has beyond its own share. Whose group has its minimum already claims nothing (Volcano
    pkg/scheduler/plugins/gang: starving jobs)."""
    every, staying = held(pods, going=True), held(pods, going=False)
    placed = {judge.group_of(p) for p in pods if p["spec"].get("nodeName")}
    found = []
    for name, queue in queues.items():
        claims = [p for p in _waiting(pods) if queue_of(p) == name and not judge.in_gang(p)
                  and judge.group_of(p) not in placed and every[name] + asked(p) <= deserved(queue)]  # fmt: skip
        given = [p for p in pods if p["status"].get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")
                 and queue_of(p) != name and queues[queue_of(p)]["spec"].get("reclaimable") is not False
                 and staying[queue_of(p)] > deserved(queues[queue_of(p)]) and not judge.in_gang(p)]  # fmt: skip
        room = next((one for one in given if any(judge.place(p, nodes, [o for o in pods if o is not one]) for p in claims)), None)
        if room is not None:
            found.append(f"queue {name} has {every[name]} of {deserved(queue)} shares that it deserves, and "
                         f"{room['metadata']['name']} of queue {queue_of(room)} stays")  # fmt: skip
    return found
