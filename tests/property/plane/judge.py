"""Judges of the plane, by API objects, limits pages and the runtime's containers; they import nothing of Pumice but its auditor,
which imports nothing else of it."""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kit.fake_cluster import Json
from tests.property.plane import mps_judge, npu_judge, upstream_judge

from pumice.audit.amounts import quantity
from pumice.audit.auditor import Books
from pumice.audit.card_rules import CORES, HELD, MEMORY, NUMBER, cards_of

PAGE = "/usr/local/vgpu/limits"
HEAD, CARD = struct.Struct("<6I256s"), struct.Struct("<96sQQ")
MAGIC = 0x314C5056
MIB_OF = 1 << 20
Grant = list[tuple[str, int, int]]
"""Of one container: card, MiB, per cent of its compute."""


def granted(pod: Json, container: str) -> Grant:
    """Return what the Binding gave to a container, by the annotation's place (`;` between containers, `:` after devices)."""
    parts = pod["metadata"]["annotations"].get(HELD, "").split(";")
    names = [c["name"] for c in pod["spec"]["containers"]]
    devices = [entry.split(",") for entry in parts[names.index(container)].split(":") if entry] if parts != [""] else []
    return sorted((uuid, int(memory), int(cores)) for uuid, _, memory, cores in devices)


def holds(pod: Json, container: str) -> bool:
    return HELD in pod["metadata"].get("annotations", {}) and bool(granted(pod, container))


def allowed(page: bytes) -> Grant:
    """Return what a limits page lets a container have."""
    magic, _, _, _, count, _, _ = HEAD.unpack_from(page)
    assert magic == MAGIC
    rows = [CARD.unpack_from(page, HEAD.size + at * CARD.size) for at in range(count)]
    return sorted((uuid.rstrip(b"\0").decode(), memory >> 20, cores) for uuid, memory, cores in rows)


def said_by_variables(seen: Any) -> Grant | None:
    """Return what a container may have by its environment: its cards are shared by MPS, or upstream's plugin has served it."""
    if mps_judge.PIPES in seen.env:
        return mps_judge.allowed(seen)
    return upstream_judge.allowed(seen) if upstream_judge.MARK in seen.env else None


SLOTS = {"group1": ("1g.6gb", (0, 1, 2, 3), 6144), "group2": ("2g.12gb", (0, 2), 12288), "group3": ("4g.24gb", (0,), 24576)}
"""The profile of a slot of an A30, where its slots begin, and the MiB of each, by the name of the group (NVIDIA's MIG user guide,
and the ConfigMap that is shipped)."""
Lies = dict[str, tuple[str, str, int]]
"""Card, profile and begin of each slice that is there, by its UUID."""


def _slot(name: str) -> tuple[str, str, int] | None:
    """Return the place of a granted slice; None where a part of a shared card is named."""
    card, bracket, slot = name.rstrip("]").partition("[")
    group, _, number = slot.rpartition("-")
    return (card, SLOTS[group][0], SLOTS[group][1][int(number)]) if bracket else None


def wrong_containers(running: Iterable[tuple[Json, str, Any]], given: dict[str, Json], lies: Lies) -> list[str]:
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
        visible = sorted(seen.env.get("NVIDIA_VISIBLE_DEVICES", "").split(","))
        slots = [slot for uuid, _, _ in due if (slot := _slot(uuid)) is not None]
        if slots:
            sees = sorted(lies.get(uuid, ("", uuid, -1)) for uuid in visible)
            if sees != sorted(slots):
                found.append(f"{key} was granted {due} and sees {sees}")
            others = {places.setdefault(uuid, key) for uuid in visible} - {key}
            found += [f"{key} and {other} see one slice" for other in sorted(others)]
            continue
        may = said_by_variables(seen)
        by_page = may is None
        if by_page and PAGE not in seen.mounts:
            found.append(f"{key} was granted {due} and runs without a limits page")
            continue
        may = allowed(Path(seen.mounts[PAGE]).read_bytes()) if may is None else may
        if may != due:
            found.append(f"{key} was granted {due} and may have {may}")
        if visible != sorted({uuid for uuid, _, _ in due}):
            found.append(f"{key} was granted {due} and sees {visible}")
        other = places.setdefault(seen.mounts[PAGE], key) if by_page else key
        if other != key:
            found.append(f"{key} and {other} share one limits page")
    return found


def removable_regions(running: Iterable[tuple[Json, str, Any]]) -> list[str]:
    """Return a sentence for each container that can remove the region that its limits page names: it is not mounted."""
    found = []
    for pod, container, seen in running:
        if PAGE not in seen.mounts or pod["spec"].get("resourceClaims") or not Path(seen.mounts[PAGE]).is_file():
            continue
        region = HEAD.unpack_from(Path(seen.mounts[PAGE]).read_bytes())[-1].rstrip(b"\0").decode()
        if region not in seen.mounts:
            found.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}/{container} can remove its region {region}")
    return found


def over(running: Iterable[tuple[Json, str, Any]], nodes: Iterable[Json]) -> list[str]:
    """Return a sentence for each card of which the containers that run may have more than there is."""
    used: dict[str, Counter[str]] = defaultdict(Counter)
    pages: set[str] = set()  # pods that share a claim have one
    for _, _, seen in running:
        for uuid, memory, cores in said_by_variables(seen) or ():
            used[uuid].update(memory=memory, cores=cores, shares=1)
        if PAGE in seen.mounts and seen.mounts[PAGE] not in pages and Path(seen.mounts[PAGE]).is_file():
            pages.add(seen.mounts[PAGE])
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
    names = [node["metadata"]["name"] for node in nodes]
    return [*undecided, *(text for name in names for text in (*books.cards_over(name), *books.others_over(name)))]


ENDED = ("pumice.io/devices-refused", "pumice.io/slice-gone")


def ended_for_nothing(pods: Iterable[Json], forged: set[str], hurt: set[str]) -> list[str]:
    """Return a sentence for each pod that its node's plugin ended, although nobody wrote on it and nothing befell the cards and
    records of the node: that writes were refused, and processes killed, is no reason."""
    found = []
    for pod in pods:
        notes = pod["metadata"].get("annotations", {})
        if pod["metadata"]["uid"] not in forged and pod["spec"].get("nodeName") not in hurt:
            found += [f"{pod['metadata']['namespace']}/{pod['metadata']['name']}: {notes[key]}" for key in ENDED if key in notes]
    return found


def asleep(nodes: list[Json], pods: list[Json]) -> list[str]:
    """Return a sentence for each pod by itself that waits while a node has what it asks for."""
    found = []
    for pod in pods:
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or in_gang(pod):
            continue
        if node := place(pod, nodes, pods):
            found.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']} waits and fits on {node}")
    return found


def bounded_asleep(nodes: list[Json], pods: list[Json], queue: str, limit: int) -> list[str]:
    """Return a sentence if pods of a queue wait that fit on a node, and the queue has less than its limit of shares."""
    mine = [p for p in pods if p["metadata"].get("annotations", {}).get("scheduling.volcano.sh/queue-name") == queue]
    held = [p for p in mine if p["spec"].get("nodeName") and p["status"].get("phase") not in ("Succeeded", "Failed")]
    pending = [p for p in mine if not p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")]
    fit = sum(bool(place(p, nodes, pods)) for p in pending)
    return [f"queue {queue} has {len(held)} of {limit} shares, and {fit} pods wait that fit"] if fit and len(held) < limit else []


def urgent_asleep(nodes: list[Json], pods: list[Json]) -> list[str]:
    """Return a sentence for each pod by itself that waits although a node would have what it asks for without the less important
    ones there that are by themselves as well."""
    found = []
    for pod in pods:
        least = pod["spec"].get("priority", 0)
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp") or in_gang(pod) or least <= 0:
            continue
        stays = [p for p in pods if in_gang(p) or p["spec"].get("priority", 0) >= least or p["status"].get("phase") != "Running"]
        if node := place(pod, nodes, stays):
            key = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            found.append(f"{key} waits, and less important pods stay on {node}")
    return found


def evicted_for_nobody(pod: Json, pods: Iterable[Json]) -> str:
    """Return why a pod by itself is told to go for nobody: no pod that is more important waits. Empty where one does."""
    mine = pod["spec"].get("priority", 0)
    waiting = [p for p in pods if not p["spec"].get("nodeName") and p["spec"].get("priority", 0) > mine]
    if in_gang(pod) or waiting:
        return ""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']} is told to go, and nobody more important waits"


def _sliced_place(pod: Json, nodes: list[Json], placed: list[Json]) -> str:
    """Return the first node that has free slots for the only container of a pod that wants slices: one on each card."""
    containers = pod["spec"]["containers"]
    limits = containers[0]["resources"].get("limits", {})
    count, memory = int(quantity(limits.get(NUMBER, 0))), int(quantity(limits.get(MEMORY, 0)))
    held: dict[str, list[str]] = defaultdict(list)
    cores: Counter[str] = Counter()
    for other in placed:
        for container in other["spec"]["containers"]:
            for name, _, percent in granted(other, container["name"]):
                card, _, slot = name.rstrip("]").partition("[")
                held[card].append(slot.rpartition("-")[0])
                cores[card] += percent
    for node in nodes if len(containers) == 1 and memory else ():
        cards = [card for card in cards_of(node).values() if card.mig and card.healthy and cores[card.uuid] < 100]
        if sum(_has_slot(held[card.uuid], memory) for card in cards) >= max(count, 1):
            return str(node["metadata"]["name"])
    return ""


def _has_slot(groups: list[str], memory: int) -> bool:
    """Return whether a card whose slots of these groups are held has a free one of that size; a card is cut in one way."""
    if not groups:
        return any(size >= memory for _, _, size in SLOTS.values())
    _, begins, size = SLOTS[groups[0]]
    return size >= memory and len(groups) < len(begins)


def place(pod: Json, nodes: list[Json], pods: list[Json]) -> str:
    """Return the first node that has what the pod asks for; empty where none has."""
    if npu_judge.asks(pod):
        return npu_judge.place(pod, nodes, pods)
    placed = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") not in ("Succeeded", "Failed")]
    if pod["metadata"].get("annotations", {}).get("volcano.sh/vgpu-mode") == "mig":
        return _sliced_place(pod, nodes, placed)
    for name, cards in _cards_with_what_is_held(nodes, pods).items():
        if _fits(pod, list(cards.values())):
            return name
    return ""


def in_gang(pod: Json) -> bool:
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


def whole_gangs_asleep(nodes: list[Json], pods: list[Json], groups: list[Json]) -> list[str]:
    """Return a sentence for each gang of pods alike of which nobody has a node, and whose minimum would fit. Each pod's shares
    are laid where the first card takes them, so that no claim is made that is not certain."""
    found = []
    for group in groups:
        name, minimum = group["metadata"]["name"], group["spec"].get("minMember", 1)
        members = _members(group, pods)
        if len(members) < minimum or any(p["spec"].get("nodeName") or p["metadata"].get("deletionTimestamp")
                                         or p["status"].get("phase") != "Pending" for p in members):  # fmt: skip
            continue
        containers = [p["spec"]["containers"] for p in members]
        wanted = [c[0]["resources"].get("limits", {}) for c in containers if len(c) == 1]
        sliced = any(p["metadata"]["annotations"].get("volcano.sh/vgpu-mode") == "mig" for p in members)
        if sliced or len(wanted) < len(members) or any(one != wanted[0] for one in wanted):
            continue
        room = [dict(cards) for cards in _cards_with_what_is_held(nodes, pods).values()]
        if all(any(_put(wanted[0], list(cards.values())) for cards in room) for _ in range(minimum)):
            found.append(f"gang {name} waits, and {minimum} of its pods fit")
    return found


def group_of(pod: Json) -> str:
    """Return the key of the pod's PodGroup."""
    return f"{pod['metadata']['namespace']}/{pod['metadata'].get('annotations', {}).get('scheduling.k8s.io/group-name')}"


def _members(group: Json, pods: list[Json]) -> list[Json]:
    key = f"{group['metadata']['namespace']}/{group['metadata']['name']}"
    return [pod for pod in pods if group_of(pod) == key]


def _cards_with_what_is_held(nodes: list[Json], pods: list[Json]) -> dict[str, dict[str, Any]]:
    """Return the cards of each node that has shared ones, charged with what its pods hold."""
    placed = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") not in ("Succeeded", "Failed")]
    found = {}
    for node in nodes:
        found[node["metadata"]["name"]] = cards = cards_of(node)
        for other in placed:
            for container in other["spec"]["containers"] if other["spec"]["nodeName"] == node["metadata"]["name"] else ():
                for uuid, memory, cores in granted(other, container["name"]):
                    if (card := cards.get(uuid)) is not None:
                        card.shares, card.memory, card.cores = card.shares + 1, card.memory + memory, card.cores + cores
    return found


def _put(limits: Json, cards: list[Any]) -> bool:
    """Charge one container to the first cards that take it; False where too few do."""
    count, memory, cores = (int(quantity(limits.get(key, default))) for key, default in ((NUMBER, 1), (MEMORY, 0), (CORES, 0)))
    taking = [card for card in cards if memory and card.takes(memory, cores)][:count]
    if len(taking) < count or not taking:
        return False
    for card in taking:
        card.shares, card.memory, card.cores = card.shares + 1, card.memory + memory, card.cores + cores
    return True


def impossible_gangs(pods: list[Json], never: str) -> list[str]:
    """Return a sentence for each pod with a node whose gang can never stand, as its name says."""
    return [f"{group_of(pod)} can never stand, and {pod['metadata']['name']} has a node" for pod in pods
            if pod["spec"].get("nodeName") and group_of(pod).partition("/")[2].startswith(never)]  # fmt: skip


def torn_gangs(pods: list[Json], groups: list[Json], stood: set[str], disturbed: set[str], *, owned: bool = True) -> list[str]:
    """Return a sentence for each gang that never stood whole and of which a part has nodes. ``stood``: UIDs of groups;
    ``disturbed``: of those of which others took a pod away; ``owned``: those alone that a controller would make anew. Who failed
    holds nothing, and whether his gang goes on is the controller's to say."""
    found = []
    for group in groups:
        uid, minimum = group["metadata"]["uid"], group["spec"].get("minMember", 1)
        members = [p for p in _members(group, pods) if p["status"].get("phase") != "Failed"]
        placed = [p for p in members if p["spec"].get("nodeName")]
        again = all(any(o.get("controller") for o in p["metadata"].get("ownerReferences", ())) for p in placed)
        if placed and (again or not owned) and len(placed) < minimum <= len(members) and uid not in stood | disturbed:
            found.append(f"gang {group['metadata']['name']}: {len(placed)} of at least {minimum} have a node, and it never stood")
    return found


def half_gangs(nodes: list[Json], pods: list[Json], groups: list[Json]) -> list[str]:
    """Return a sentence for each gang of which fewer than its minimum have a node while another could have one. What ran of a
    gang that stood goes on where nothing is left for those that were lost; those that failed are nobody's any more (Volcano
    pkg/scheduler/plugins/gang: valid tasks)."""
    found = []
    for group in groups:
        name, minimum = group["metadata"]["name"], group["spec"].get("minMember", 1)
        members = [p for p in _members(group, pods) if p["status"].get("phase") != "Failed"]
        placed = [p for p in members if p["spec"].get("nodeName")]
        waiting = [p for p in members if not p["spec"].get("nodeName")]
        if placed and len(placed) < minimum and len(members) >= minimum and any(place(p, nodes, pods) for p in waiting):
            found.append(f"gang {name}: {len(placed)} of at least {minimum} have a node, and one that waits would fit")
    return found


def left_of_cutting(journal: str, lies: Lies, halves: Iterable[str]) -> list[str]:
    """Return a sentence for each slice that was neither made nor removed to its end, and for each that nobody knows."""
    entries = {(one["place"]["card"], one["place"]["profile"], one["place"]["start"]): one["phase"]
               for one in (json.loads(journal)["slices"] if journal else ())}  # fmt: skip
    whole = set(lies.values())
    return [*(f"slice {half} has no second half" for half in halves),
            *(f"slice {place} stays {phase}" for place, phase in entries.items()
              # what the driver refused to remove is nobody's, and lies there whole until it is in the way
              if phase != "made" and not (phase == "removing" and place in whole)),
            *(f"slice {place} is there, and no journal has it" for place in lies.values() if place not in entries)]  # fmt: skip


def left_behind(nodes: list[Json], groups: list[Json], files: Iterable[Path]) -> list[str]:
    """Return a sentence for each lock, booking, group and file that stays when all pods are gone."""
    found = [f"PodGroup {group['metadata']['name']} stays" for group in groups]
    for node in nodes:
        notes = node["metadata"].get("annotations", {})
        found += [f"node {node['metadata']['name']} still says {key}: {notes[key]}" for key in
                  ("pumice.io/vgpu-handed-out", "hami.io/mutex.lock") if notes.get(key)]  # fmt: skip
        found += [f"card {card.uuid} takes nobody" for card in cards_of(node).values() if not card.healthy]
    return found + [f"{path.name} stays" for path in files]
