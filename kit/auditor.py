"""An independent audit of a cluster from its API objects alone: nothing of Pumice is imported here on purpose.

``audit`` returns one sentence per violation: a card over its memory, its cores or its share count, a MIG slot held twice, a
legacy card over its memory or shared although exclusive, a node over its allocatable, a gang that runs in part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

Json = Mapping[str, Any]

_SUFFIX = {"m": Fraction(1, 1000), "k": 1000, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30,
           "Ti": 2**40, "": 1}  # fmt: skip
GROUP = "scheduling.k8s.io/group-name"


def audit(nodes: Iterable[Json], pods: Iterable[Json], groups: Iterable[Json] = ()) -> list[str]:
    """Every violation found, as sentences; empty when all is well."""
    nodes, pods = list(nodes), list(pods)
    placed = [p for p in pods if p["spec"].get("nodeName") and not _done(p)]
    return [
        *_nodes(nodes, placed),
        *_vgpu_cards(nodes, placed),
        *_legacy_cards(nodes, placed),
        *_gangs(pods, groups),
    ]


def _done(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def quantity(text: Any) -> Fraction:
    digits = str(text)
    for suffix in ("Ki", "Mi", "Gi", "Ti", "m", "k", "M", "G", "T"):
        if digits.endswith(suffix):
            return Fraction(digits[: -len(suffix)]) * _SUFFIX[suffix]
    return Fraction(digits)


def _nodes(nodes: list[Json], placed: list[Json]) -> list[str]:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in placed:
        used[pod["spec"]["nodeName"]]["pods"] += 1
        for container in pod["spec"].get("containers", ()):
            resources = container.get("resources", {})
            for name, value in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
                if not name.endswith("-percentage"):
                    used[pod["spec"]["nodeName"]][name] += quantity(value)  # type: ignore[assignment]
    found = []
    for node in nodes:
        name, have = node["metadata"]["name"], node["status"].get("allocatable", {})
        for resource, amount in used[name].items():
            if amount > quantity(have.get(resource, 0)):
                found.append(f"node {name}: {resource} {float(amount)} of {have.get(resource, 0)}")
    return found


def _vgpu_cards(nodes: list[Json], placed: list[Json]) -> list[str]:
    cards: dict[str, tuple[int, int]] = {}  # uuid -> (shares, memory)
    for node in nodes:
        register = node["metadata"].get("annotations", {}).get("volcano.sh/node-vgpu-register", "")
        for entry in register.split(":"):
            fields = entry.split(",")
            if len(fields) >= 6:
                cards[fields[0]] = (int(fields[1]), int(fields[2]))
    memory: Counter[str] = Counter()
    cores: Counter[str] = Counter()
    shares: Counter[str] = Counter()
    slots: dict[str, list[str]] = defaultdict(list)
    found = []
    for pod in placed:
        text = pod["metadata"].get("annotations", {}).get("volcano.sh/vgpu-ids-new", "")
        wanted = _asks_vgpu(pod)
        if wanted and not text:
            found.append(f"pod {_key(pod)} runs on {pod['spec']['nodeName']} without a decision about its cards")
        for piece in text.replace(";", "").split(":"):
            fields = piece.split(",")
            if len(fields) < 4:
                continue
            uuid, bracket, slot = fields[0].partition("[")
            shares[uuid] += 1
            memory[uuid] += int(fields[2])
            cores[uuid] += int(fields[3])
            if bracket:
                slots[uuid].append(slot.rstrip("]"))
    for uuid in shares:
        if uuid not in cards:
            continue
        limit, total = cards[uuid]
        if memory[uuid] > total:
            found.append(f"card {uuid}: memory {memory[uuid]} of {total}")
        if not slots[uuid] and cores[uuid] > 100:
            found.append(f"card {uuid}: cores {cores[uuid]} of 100")
        if shares[uuid] > limit:
            found.append(f"card {uuid}: {shares[uuid]} shares of {limit}")
        twice = [slot for slot, number in Counter(slots[uuid]).items() if number > 1]
        if twice:
            found.append(f"card {uuid}: MIG slots {twice} are held twice")
        if len({slot.rpartition("-")[0] for slot in slots[uuid]}) > 1:
            found.append(f"card {uuid}: MIG slots of two geometries at once: {sorted(slots[uuid])}")
    return found


def _asks_vgpu(pod: Json) -> bool:
    for container in pod["spec"].get("containers", ()):
        limits = container.get("resources", {}).get("limits", {})
        if quantity(limits.get("volcano.sh/vgpu-number", 0)) > 0 or "volcano.sh/vgpu-memory" in limits:
            return True
    return False


def _legacy_cards(nodes: list[Json], placed: list[Json]) -> list[str]:
    memory: Counter[tuple[str, str]] = Counter()
    holders: Counter[tuple[str, str]] = Counter()
    exclusive: set[tuple[str, str]] = set()
    for pod in placed:
        index = pod["metadata"].get("annotations", {}).get("volcano.sh/gpu-index", "")
        limits = [c.get("resources", {}).get("limits", {}) for c in pod["spec"].get("containers", ())]
        wanted = sum(quantity(entry.get("volcano.sh/gpu-memory", 0)) for entry in limits)
        whole = any("volcano.sh/gpu-number" in entry for entry in limits)
        for card in filter(None, index.split(",")):
            where = (pod["spec"]["nodeName"], card)
            memory[where] += wanted  # type: ignore[assignment]
            holders[where] += 1
            if whole:
                exclusive.add(where)
    found = [f"card {card} of {node} is held by {holders[node, card]} pods although exclusive"
             for node, card in exclusive if holders[node, card] > 1]  # fmt: skip
    for node in nodes:
        capacity = node["status"].get("capacity", {})
        number = int(quantity(capacity.get("volcano.sh/gpu-number", 0)))
        if not number:
            continue
        each = int(quantity(capacity.get("volcano.sh/gpu-memory", 0))) // number
        name = node["metadata"]["name"]
        found += [f"card {card} of {name}: memory {float(amount)} of {each}"
                  for (owner, card), amount in memory.items() if owner == name and amount > each]  # fmt: skip
    return found


def _gangs(pods: list[Json], groups: Iterable[Json]) -> list[str]:
    members: dict[str, list[Json]] = defaultdict(list)
    for pod in pods:
        name = pod["metadata"].get("annotations", {}).get(GROUP)
        if name:
            members[f"{pod['metadata']['namespace']}/{name}"].append(pod)
    found = []
    for group in groups:
        meta = group["metadata"]
        key, least = f"{meta['namespace']}/{meta['name']}", group["spec"].get("minMember", 0)
        if group.get("status", {}).get("phase") in ("Running", "Unknown", "Completed"):
            continue  # it stood once; members may come and go since
        standing = [p for p in members[key] if p["spec"].get("nodeName")]
        if standing and len(standing) < least and len(members[key]) >= least:
            found.append(f"gang {key}: {len(standing)} of at least {least} pods have a node")
    return found


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
