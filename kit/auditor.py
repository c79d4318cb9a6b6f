"""An independent audit of a cluster from its API objects alone: nothing of Pumice is imported here on purpose.

``audit`` returns one sentence per violation: a card over its memory, its cores or its share count, a MIG slot held twice, a
legacy card over its memory or shared although exclusive, a node over its allocatable, a gang that runs in part.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kit.card_rules import HELD, cards_of, charge, wants
from kit.kube_rules import done, key_of, quantity, requests

Json = Mapping[str, Any]

GROUP = "scheduling.k8s.io/group-name"


def audit(nodes: Iterable[Json], pods: Iterable[Json], groups: Iterable[Json] = ()) -> list[str]:
    """Every violation found, as sentences; empty when all is well."""
    nodes, pods = list(nodes), list(pods)
    placed = [p for p in pods if p["spec"].get("nodeName") and not done(p)]
    return [
        *_nodes(nodes, placed),
        *_vgpu_cards(nodes, placed),
        *_legacy_cards(nodes, placed),
        *npu_cards(nodes, placed),
        *npu_chips(nodes, placed),
        *_gangs(pods, groups),
    ]


def _nodes(nodes: list[Json], placed: list[Json]) -> list[str]:
    used: dict[str, Counter[str]] = defaultdict(Counter)
    for pod in placed:
        used[pod["spec"]["nodeName"]]["pods"] += 1
        asked = {n: v for n, v in requests(pod).items() if not n.endswith("-percentage") and not says_how_much(n)}
        used[pod["spec"]["nodeName"]].update(asked)
    found = []
    for node in nodes:
        name, have = node["metadata"]["name"], node["status"].get("allocatable", {})
        for resource, amount in used[name].items():
            if amount > quantity(have.get(resource, 0)):
                found.append(f"node {name}: {resource} {float(amount)} of {have.get(resource, 0)}")
    return found


def _vgpu_cards(nodes: list[Json], placed: list[Json]) -> list[str]:
    cards = {uuid: card for node in nodes for uuid, card in cards_of(node).items()}
    found = []
    for pod in placed:
        text = pod["metadata"].get("annotations", {}).get(HELD, "")
        if wants(pod) and not text:
            found.append(f"pod {key_of(pod)} runs on {pod['spec']['nodeName']} without a decision about its cards")
        charge(cards, text)
    return [*found, *(text for card in cards.values() for text in card.over())]


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


# -- What holds for NPUs in HAMi's form and for chips cut on demand, read from API objects alone: nothing of P


REGISTER, HELD_BEFORE, HELD_AFTER = "hami.io/node-register-", "hami.io/", "-devices-allocated"
PARAMETERS = ("-memory", "-core")
AI_CPUS = {"Ascend310P": {0: 7, 3072: 1, 6144: 2, 12288: 4}, "Ascend910B2": {0: 6, 8192: 1, 16384: 1, 32768: 3}}
"""Of a chip, and of its slices by their MB, where they can run out (spec ascend 4)."""


def says_how_much(resource: str) -> bool:
    """Whether a name of an NPU's says what of a card is wanted; no node offers these."""
    return resource.startswith("huawei.com/Ascend") and resource.endswith(PARAMETERS)


def npu_cards(nodes: Iterable[Json], placed: Iterable[Json]) -> list[str]:
    """Cards over their memory, their count, their AI CPUs or, where soft, their cores."""
    room: dict[str, Json] = {}
    for node in nodes:
        for key, text in node["metadata"].get("annotations", {}).items():
            if key.startswith(REGISTER):
                room |= {card["id"]: card for card in json.loads(text)}
    memory, cores, shares, cpus = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    found = []
    for pod in placed:
        for key, text in pod["metadata"].get("annotations", {}).items():
            if not (key.startswith(HELD_BEFORE) and key.endswith(HELD_AFTER)):
                continue
            held = [token.split(",") for slot in text.split(";") for token in slot.split(":") if "," in token]
            if len({fields[0] for fields in held}) < len(held):
                found.append(f"pod {pod['metadata']['name']} holds one NPU twice: {text}")
            for uuid, kind, size, share in held:
                memory[uuid] += int(size)
                cpus[uuid] += AI_CPUS.get(kind, {}).get(int(size), 0) if share == "0" else 0
                cores[uuid] += int(share)
                shares[uuid] += 1
    for uuid, card in room.items():
        most = AI_CPUS.get(card.get("type", ""), {}).get(0, cpus[uuid])
        if cpus[uuid] > most:
            found.append(f"NPU {uuid}: slices of {cpus[uuid]} AI CPUs of {most}")
        if memory[uuid] > card.get("devmem", 0) or shares[uuid] > card.get("count", 0) or cores[uuid] > 100:
            found.append(f"NPU {uuid}: {memory[uuid]} MB of {card.get('devmem')}, {shares[uuid]} pods of {card.get('count')}, "
                         f"{cores[uuid]} % of its cores")  # fmt: skip
    return found


# -- chips that are cut on demand (spec ascend 27, 31, 34) ----------------------------------------------------------------

DECIDED = "huawei.com/npu-core"
TEMPLATES = {"vir01": (1, 1), "vir02": (2, 2), "vir02_1c": (2, 1), "vir04": (4, 4), "vir04_3c": (4, 3), "vir04_3c_ndvpp": (4, 3),
             "vir04_4c_dvpp": (4, 4)}  # fmt: skip


def npu_chips(nodes: Iterable[Json], placed: Iterable[Json]) -> list[str]:
    """Chips over their AI cores or AI CPUs, whole ones that are not, and media units that are given twice."""
    held: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for pod in placed:
        text = pod["metadata"].get("annotations", {}).get(DECIDED, "")
        chip, dash, template = text.partition("-")
        for number in [chip] if dash else text.split(",") if text else []:
            held.setdefault((pod["spec"]["nodeName"], number), []).append((pod["metadata"]["name"], template))
    known = {node["metadata"]["name"] for node in nodes}
    found = []
    for (node, chip), slices in held.items():
        names = [template for _, template in slices]
        cores, cpus = (sum(TEMPLATES.get(name, (8, 7))[at] for name in names) for at in (0, 1))
        media = "vir04_4c_dvpp" in names and set(names) - {"vir04_4c_dvpp", "vir04_3c_ndvpp"}
        if node in known and (cores > 8 or cpus > 7 or media or names.count("vir04_4c_dvpp") > 1):
            found.append(f"chip {chip} of {node}: {cores} AI cores of 8, {cpus} AI CPUs of 7, {slices}")
    return found
