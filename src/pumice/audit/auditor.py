"""An independent audit of a cluster from its API objects alone: nothing else of Pumice is imported here on purpose.

``audit`` returns one sentence per violation: a card over its memory, its cores or its share count, a MIG slot held twice, a
legacy card over its memory or shared although exclusive, a node over its allocatable, a gang that runs in part, a device that
claims hold twice, a card with claims and annotated shares. ``Books`` are the same sums, kept while pods come and go; ``over`` is
their audit of one node.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pumice.audit import claim_rules
from pumice.audit.amounts import Amounts, Json, done, key_of, quantity, requests
from pumice.audit.card_rules import HELD, Card, Device, cards_of, charge, container_devices, discharge, wants

GROUP = "scheduling.k8s.io/group-name"


def audit(
    nodes: Iterable[Json], pods: Iterable[Json], groups: Iterable[Json] = (), claims: Iterable[Json] = (),
    slices: Iterable[Json] = (),
) -> list[str]:  # fmt: skip
    """Every violation found, as sentences; empty when all is well."""
    claims, slices = list(claims), list(slices)
    nodes, pods = list(nodes), list(pods)
    placed = [p for p in pods if p["spec"].get("nodeName") and not done(p)]
    books = Books(nodes)
    undecided = [text for pod in placed for text in books.take(pod)]
    return [
        *(text for node in nodes for text in books.node_over(node["metadata"]["name"])),
        *undecided,
        *(text for node in nodes for text in books.cards_over(node["metadata"]["name"])),
        *_legacy_cards(nodes, placed),
        *npu_cards(nodes, placed),
        *npu_chips(nodes, placed),
        *_gangs(pods, groups),
        *claim_rules.overbooked(claims, slices),
        *claim_rules.in_two_worlds(claims, slices, shares_of(placed)),
    ]


def shares_of(placed: Iterable[Json]) -> Iterator[tuple[str, str, str]]:
    """Yield UUID, pod and node of each share of a card by annotation."""
    for pod in placed:
        for device in container_devices((pod["metadata"].get("annotations") or {}).get(HELD, "")):
            yield device[0], key_of(pod), pod["spec"].get("nodeName", "")


class Books:
    """The sums of what pods hold of nodes and of their vGPUs."""

    def __init__(self, nodes: Iterable[Json]) -> None:
        self.nodes: dict[str, Json] = {}
        self.cards: dict[str, Card] = {}
        """By UUID."""
        self.cards_on: dict[str, list[Card]] = {}
        self.have: dict[str, Amounts] = {}
        self.used: dict[str, Amounts] = defaultdict(Counter)
        self.held: Amounts = Counter()
        """Cards' memory, cores and shares, and CPUs of nodes with cards, over the whole cluster."""
        self._held: dict[str, tuple[str, Amounts, list[Device]]] = {}
        """Node, request and vGPUs of each pod, by its uid or else its key."""
        self._others: dict[str, dict[str, Json]] = defaultdict(dict)
        """By node the pods that hold legacy shares, NPUs or parts of them, by the same key."""
        for node in nodes:
            self.add(node)

    def add(self, node: Json) -> None:
        name, cards = node["metadata"]["name"], cards_of(node)
        self.nodes[name] = node
        self.cards |= cards
        self.cards_on[name] = list(cards.values())
        have = (node.get("status") or {}).get("allocatable", {})
        self.have[name] = Counter({resource: quantity(amount) for resource, amount in have.items()})

    def remove(self, name: str) -> None:
        """The node is gone; its pods were given back before."""
        del self.nodes[name]
        for card in self.cards_on.pop(name):
            del self.cards[card.uuid]

    @staticmethod
    def asked(pod: Json) -> Amounts:
        """Return what a pod takes of its node."""
        found = requests(pod)
        for name in [name for name in found if name.endswith("-percentage") or says_how_much(name)]:
            del found[name]
        found["pods"] += 1
        return found

    def take(self, pod: Json, asked: Amounts | None = None) -> list[str]:
        """Book a pod on its node. Returns a sentence where it asks for cards and nobody decided about them. ``asked``: of its
        template, where thousands of pods have one."""
        node, notes = pod["spec"]["nodeName"], pod["metadata"].get("annotations") or {}
        text, asked, key = notes.get(HELD, ""), asked or self.asked(pod), pod["metadata"].get("uid") or key_of(pod)
        devices = list(container_devices(text))
        charge(self.cards, devices)
        self._book(node, asked, devices, 1)
        self._held[key] = node, asked, devices
        if any(decides_of_others(name) for name in notes):
            self._others[node][key] = pod
        return [f"pod {key_of(pod)} runs on {node} without a decision about its cards"] if not text and wants(pod) else []

    def give(self, pod: Json) -> None:
        """Take a pod that was booked off again."""
        key = pod["metadata"].get("uid") or key_of(pod)
        node, asked, devices = self._held.pop(key)
        discharge(self.cards, devices)
        self._book(node, asked, devices, -1)
        self._others[node].pop(key, None)

    def _book(self, node: str, asked: Amounts, devices: list[Device], sign: int) -> None:
        used, held = self.used[node], self.held
        for resource, amount in asked.items():
            used[resource] += sign * amount
        for _, _, memory, cores in devices:
            held["memory"] += sign * memory
            held["cores"] += sign * cores
        held["shares"] += sign * len(devices)
        if self.cards_on.get(node):
            held["cpu"] += sign * asked["cpu"]

    def capacity(self) -> Amounts:
        """Return what ``held`` is a part of."""
        total = Counter({"memory": 0, "cores": 0, "shares": 0, "cpu": 0})
        for name, cards in self.cards_on.items():
            total.update({"memory": sum(card.total for card in cards), "cores": 100 * len(cards),
                          "shares": sum(card.limit for card in cards),
                          "cpu": self.have[name]["cpu"] if cards else 0})  # fmt: skip
        return total

    def shares_on(self, name: str) -> Iterator[tuple[str, str, str]]:
        """Yield UUID, pod (its uid, or else its key) and node of each share of the node's cards."""
        if any(card.shares for card in self.cards_on[name]):
            yield from ((device[0], key, name) for key, (node, _, devices) in self._held.items() if node == name
                        for device in devices)  # fmt: skip

    def node_over(self, name: str) -> list[str]:
        have = self.have[name]
        over = [(resource, amount) for resource, amount in self.used[name].items() if amount > have[resource]]
        written = (self.nodes[name].get("status") or {}).get("allocatable", {}) if over else {}
        return [f"node {name}: {resource} {float(amount)} of {written.get(resource, 0)}" for resource, amount in over]

    def cards_over(self, name: str) -> list[str]:
        return [text for card in self.cards_on[name] for text in card.over()]

    def others_over(self, name: str) -> list[str]:
        """Legacy shares and NPUs."""
        node, pods = [self.nodes[name]], list(self._others.get(name, {}).values())
        return [*_legacy_cards(node, pods), *npu_cards(node, pods), *npu_chips(node, pods)] if pods else []

    def over(self, name: str) -> list[str]:
        """Every violation on a node."""
        return [*self.node_over(name), *self.cards_over(name), *self.others_over(name)]


LEGACY = "volcano.sh/gpu-index"


def decides_of_others(annotation: str) -> bool:
    """Return whether an annotation says which legacy card or which NPU a pod holds."""
    return annotation in (LEGACY, DECIDED) or (annotation.endswith(HELD_AFTER) and annotation.startswith(HELD_BEFORE))


def _legacy_cards(nodes: list[Json], placed: list[Json]) -> list[str]:
    memory: Counter[tuple[str, str]] = Counter()
    holders: Counter[tuple[str, str]] = Counter()
    exclusive: set[tuple[str, str]] = set()
    for pod in placed:
        index = pod["metadata"].get("annotations", {}).get(LEGACY, "")
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
        capacity = (node.get("status") or {}).get("capacity", {})
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


# -- NPUs in HAMi's form, and chips cut on demand


REGISTER, HELD_BEFORE, HELD_AFTER = "hami.io/node-register-", "hami.io/", "-devices-allocated"
PARAMETERS = ("-memory", "-core")
AI_CPUS = {"Ascend310P": {0: 7, 3072: 1, 6144: 2, 12288: 4}, "Ascend910B2": {0: 6, 8192: 1, 16384: 1, 32768: 3}}
"""Of a chip, and of its slices by their MB, where they can run out (Volcano pkg/scheduler/api/devices/config/vnpu.go)."""


def says_how_much(resource: str) -> bool:
    """Return whether a name of an NPU's says what of a card is wanted; no node offers these."""
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


# -- Chips that are cut on demand (Volcano pkg/scheduler/api/devices/ascend) ------------------------------------------

DECIDED, SERVER_TYPE = "huawei.com/npu-core", "servertype"


class Chip(NamedTuple):
    """A model of chip as the auditor knows it. ``cpus``: AI CPUs of a chip by its AI cores. ``templates``: AI cores and AI
    CPUs of a slice. ``media``: those that take all media units, and those that take none."""

    cpus: dict[int, int]
    templates: dict[str, tuple[int, int]]
    media: tuple[str, str] = ("", "")


CHIPS = {
    "Ascend310P": Chip(
        {8: 7, 10: 7},
        {"vir01": (1, 1), "vir02": (2, 2), "vir02_1c": (2, 1), "vir04": (4, 4), "vir04_3c": (4, 3), "vir04_3c_ndvpp": (4, 3),
         "vir04_4c_dvpp": (4, 4)},
        ("vir04_4c_dvpp", "vir04_3c_ndvpp"),
    ),
}  # fmt: skip
"""By what their node's label says before the number of AI cores."""


def npu_chips(nodes: Iterable[Json], placed: Iterable[Json]) -> list[str]:
    """Chips over their AI cores or AI CPUs, whole ones that are not, and media units that are given twice."""
    held: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for pod in placed:
        text = pod["metadata"].get("annotations", {}).get(DECIDED, "")
        chip, dash, template = text.partition("-")
        for number in [chip] if dash else text.split(",") if text else []:
            held.setdefault((pod["spec"]["nodeName"], number), []).append((pod["metadata"]["name"], template))
    chips_on = {node["metadata"]["name"]: _chip_of(node) for node in nodes}
    found = []
    for (node, number), slices in held.items():
        if node not in chips_on:
            continue
        chip, has = chips_on[node]
        names = [template for _, template in slices]
        cores, cpus = (sum(chip.templates.get(name, has)[at] for name in names) for at in (0, 1))
        every = chip.media[0]
        media = every in names and (set(names) - set(chip.media) or names.count(every) > 1)
        if cores > has[0] or cpus > has[1] or media:
            found.append(f"chip {number} of {node}: {cores} AI cores of {has[0]}, {cpus} AI CPUs of {has[1]}, {slices}")
    return found


def _chip_of(node: Json) -> tuple[Chip, tuple[int, int]]:
    """Return the kind of the node's chips by its label, and the AI cores and AI CPUs of each; the first kind where the label is
    missing or unknown."""
    kind, _, size = (node["metadata"].get("labels") or {}).get(SERVER_TYPE, "").partition("-")
    chip = CHIPS.get(kind) or next(iter(CHIPS.values()))
    cores = next((cores for cores in chip.cpus if str(cores) == size), min(chip.cpus))
    return chip, (cores, chip.cpus[cores])
