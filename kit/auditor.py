"""An independent audit of a cluster from its API objects alone: nothing of Pumice is imported here on purpose.

``audit`` returns one sentence per violation: a card over its memory, its cores or its share count, a MIG slot held twice, a
legacy card over its memory or shared although exclusive, a node over its allocatable, a gang that runs in part.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from kit.card_rules import HELD, cards_of, charge, wants
from kit.kube_rules import done, key_of, quantity, requests
from kit.npu_rules import npu_cards, npu_chips, says_how_much

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
