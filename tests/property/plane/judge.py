"""Judges of the plane, by API objects, limits pages and the runtime's containers; they import nothing of Pumice but its auditor,
which imports nothing else of it."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kit.fake_cluster import Json

from pumice.audit.amounts import quantity
from pumice.audit.auditor import Books
from pumice.audit.card_rules import CORES, HELD, MEMORY, NUMBER, cards_of

PAGE = "/usr/local/vgpu/limits"
HEAD, CARD = struct.Struct("<6I256s"), struct.Struct("<96sQQ")
MAGIC = 0x314C5056
Grant = list[tuple[str, int, int]]
"""Of one container: card, MiB, per cent of its compute."""


def granted(pod: Json, container: str) -> Grant:
    """Return what the Binding gave to a container, by the annotation's place (`;` between containers, `:` after devices)."""
    parts = pod["metadata"]["annotations"].get(HELD, "").split(";")
    names = [c["name"] for c in pod["spec"]["containers"]]
    devices = [entry.split(",") for entry in parts[names.index(container)].split(":") if entry] if parts != [""] else []
    return sorted((uuid, int(memory), int(cores)) for uuid, _, memory, cores in devices)


def allowed(page: bytes) -> Grant:
    """Return what a limits page lets a container have."""
    magic, _, _, _, count, _, _ = HEAD.unpack_from(page)
    assert magic == MAGIC
    rows = [CARD.unpack_from(page, HEAD.size + at * CARD.size) for at in range(count)]
    return sorted((uuid.rstrip(b"\0").decode(), memory >> 20, cores) for uuid, memory, cores in rows)


def wrong_containers(running: Iterable[tuple[Json, str, Any]], given: dict[str, Json]) -> list[str]:
    """Return a sentence for each container that can do something else than was granted, and for each place that two share.
    ``given``: pods as they were bound, by UID."""
    found: list[str] = []
    places: dict[str, str] = {}
    for pod, container, seen in running:
        key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container}"
        bound = given.get(pod["metadata"]["uid"])
        due = granted(bound, container) if bound is not None and HELD in bound["metadata"].get("annotations", {}) else []
        if not due:
            continue
        if PAGE not in seen.mounts:
            found.append(f"{key} was granted {due} and runs without a limits page")
            continue
        may = allowed(Path(seen.mounts[PAGE]).read_bytes())
        if may != due:
            found.append(f"{key} was granted {due} and may have {may}")
        visible = sorted(seen.env.get("NVIDIA_VISIBLE_DEVICES", "").split(","))
        if visible != sorted({uuid for uuid, _, _ in due}):
            found.append(f"{key} was granted {due} and sees {visible}")
        other = places.setdefault(seen.mounts[PAGE], key)
        if other != key:
            found.append(f"{key} and {other} share one limits page")
    return found


def over(running: Iterable[tuple[Json, str, Any]], nodes: Iterable[Json]) -> list[str]:
    """Return a sentence for each card of which the containers that run may have more than there is."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for _, _, seen in running:
        if PAGE in seen.mounts:
            for uuid, memory, cores in allowed(Path(seen.mounts[PAGE]).read_bytes()):
                used[uuid].update(memory=memory, cores=cores, shares=1)
    found = []
    for node in nodes:
        for card in cards_of(node).values():
            have = used[card.uuid]
            if have["memory"] > card.total or have["cores"] > 100 or have["shares"] > card.limit:
                found.append(f"containers may have {dict(have)} of card {card.uuid}, which has {card.total} MiB")
    return found


def booked_twice(nodes: list[Json], pods: list[Json], refused: set[str]) -> list[str]:
    """Return a sentence for each card that the pods on nodes were given more of than there is. ``refused``: UIDs of pods that the
    plugin has refused for good; none of their containers will start."""
    books = Books(nodes)
    placed = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") not in ("Succeeded", "Failed")
              and p["metadata"]["uid"] not in refused]  # fmt: skip
    undecided = [text for pod in placed for text in books.take(pod)]
    return [*undecided, *(text for node in nodes for text in books.cards_over(node["metadata"]["name"]))]


def asleep(nodes: list[Json], pods: list[Json]) -> list[str]:
    """Return a sentence for each pod by itself that waits while a node has what it asks for."""
    found = []
    for pod in pods:
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or _gang(pod):
            continue
        if node := _place(pod, nodes, pods):
            found.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']} waits and fits on {node}")
    return found


def _place(pod: Json, nodes: list[Json], pods: list[Json]) -> str:
    """Return the first node that has what the pod asks for; empty where none has."""
    placed = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") not in ("Succeeded", "Failed")]
    for node in nodes:
        cards, name = cards_of(node), str(node["metadata"]["name"])
        for other in placed:
            for container in other["spec"]["containers"] if other["spec"]["nodeName"] == name else ():
                for uuid, memory, cores in granted(other, container["name"]):
                    if (card := cards.get(uuid)) is not None:
                        card.shares, card.memory, card.cores = card.shares + 1, card.memory + memory, card.cores + cores
        if _fits(pod, list(cards.values())):
            return name
    return ""


def _gang(pod: Json) -> bool:
    return "volcano.sh/job-name" in pod["metadata"].get("annotations", {}) or "gang" in pod["metadata"].get("labels", {})


def _fits(pod: Json, cards: list[Any]) -> bool:
    """Return whether cards are left for the only container: one share on each of so many."""
    if len(pod["spec"]["containers"]) != 1:
        return False
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    count, memory, cores = (int(quantity(limits.get(key, default))) for key, default in ((NUMBER, 0), (MEMORY, 0), (CORES, 0)))
    if not memory:
        return False
    return sum(card.takes(memory, cores) for card in cards) >= max(count, 1)


def half_gangs(nodes: list[Json], pods: list[Json], groups: list[Json]) -> list[str]:
    """Return a sentence for each gang of which fewer than its minimum have a node while another could have one. What ran of a
    gang that stood goes on where nothing is left for those that were lost; those that failed are nobody's any more (Volcano
    pkg/scheduler/plugins/gang: valid tasks)."""
    found = []
    for group in groups:
        name, minimum = group["metadata"]["name"], group["spec"].get("minMember", 1)
        members = [p for p in pods if p["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name") == name
                   and p["metadata"]["namespace"] == group["metadata"]["namespace"]
                   and p["status"].get("phase") != "Failed"]  # fmt: skip
        placed = [p for p in members if p["spec"].get("nodeName")]
        waiting = [p for p in members if not p["spec"].get("nodeName")]
        if placed and len(placed) < minimum and len(members) >= minimum and any(_place(p, nodes, pods) for p in waiting):
            found.append(f"gang {name}: {len(placed)} of at least {minimum} have a node, and one that waits would fit")
    return found


def left_behind(nodes: list[Json], groups: list[Json], files: Iterable[Path]) -> list[str]:
    """Return a sentence for each lock, booking, group and file that stays when all pods are gone."""
    found = [f"PodGroup {group['metadata']['name']} stays" for group in groups]
    for node in nodes:
        notes = node["metadata"].get("annotations", {})
        found += [f"node {node['metadata']['name']} still says {key}: {notes[key]}" for key in
                  ("pumice.io/vgpu-handed-out", "hami.io/mutex.lock") if notes.get(key)]  # fmt: skip
    return found + [f"{path.name} stays" for path in files]
