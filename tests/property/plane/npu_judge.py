"""Judges of NPUs in the plane, by API objects, the environment of containers and the driver's slices; like ``judge`` they import
nothing of Pumice but its auditor."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from kit.fake_cluster import Json

from pumice.audit.amounts import quantity
from pumice.audit.auditor import CHIPS

CORE, CHIP = "huawei.com/npu-core", "huawei.com/Ascend310P"
MEMORY, HELD = f"{CHIP}-memory", "hami.io/Ascend310P-devices-allocated"
SIZES = {3072: "vir01", 6144: "vir02", 12288: "vir04"}
"""The template of a slice of so many MB (HAMi's device-config)."""
SMALLEST = {1: "vir01", 2: "vir02_1c", 4: "vir04_3c"}
"""What a request of so many AI cores is cut to at the lowest level, where it leaves the media units to others."""
TEMPLATES = CHIPS["Ascend310P"].templates
CORES, CPUS, GROUPS = 8, 7, 4
Slices = dict[str, list[tuple[int, str]]]
"""The containers, by the driver's number, and templates of what lies on each chip."""


def wrong_containers(running: Iterable[Any], given: dict[str, Json], slices: Slices, chips: dict[int, str]) -> list[str]:
    """Return a sentence for each container of a node that can do something else than was granted, and for each chip that one has
    whole beside others. ``given``: pods as they were bound, by UID; ``chips``: UUIDs by number."""
    found, holders = [], defaultdict[str, list[tuple[str, bool]]](list)
    for one in running:
        key = f"{one.pod['metadata']['namespace']}/{one.pod['metadata']['name']}/{one.container}"
        bound = given.get(one.pod["metadata"]["uid"])
        due = granted(bound, one.container, chips) if bound is not None else []
        if not due:
            continue
        has = sorted((chip, name) for chip, here in slices.items() for number, name in here if number == one.number)
        visible = [int(number) for number in one.seen.env.get("ASCEND_VISIBLE_DEVICES", "").split(",") if number]
        whole = sorted((chips.get(number, ""), "") for number in visible)
        if (has or whole) != sorted(due):
            found.append(f"{key} was granted {due} and has {has or whole}")
        for chip, template in due:
            holders[chip].append((key, not template))
    for chip, held in holders.items():
        if len(held) > 1 and any(alone for _, alone in held):
            found.append(f"one of {sorted(held)} has chip {chip} whole")
    return found


def granted(pod: Json, container: str, chips: dict[int, str]) -> list[tuple[str, str]]:
    """Return the chips that the Binding gave to a container, each with the template of its slice; empty: the whole chip."""
    notes = pod["metadata"].get("annotations", {})
    asking = [c["name"] for c in pod["spec"]["containers"] if {CORE, CHIP} & set(c["resources"].get("limits") or {})]
    if container not in asking:
        return []
    if text := notes.get(CORE, ""):
        number, dash, template = text.partition("-")
        return [(chips[int(one)], template if dash else "") for one in (number if dash else text).split(",")]
    if text := notes.get(HELD, ""):
        slots = [slot for slot in text.split(";") if slot]
        devices = [token.split(",") for token in slots[asking.index(container)].split(":") if token]
        return [(uuid, SIZES.get(int(memory), "")) for uuid, _, memory, _ in devices]
    return []


def place(pod: Json, nodes: list[Json], pods: list[Json]) -> str:
    """Return the first node that has what the only container of a pod with NPUs asks for; empty where that is not certain: of
    chips with slices it is said only where these leave a vGroup for each."""
    placed = [p for p in pods if p["spec"].get("nodeName") and p["status"].get("phase") not in ("Succeeded", "Failed")]
    limits = pod["spec"]["containers"][0]["resources"].get("limits", {})
    cores, number, memory = (int(quantity(limits.get(key, 0))) for key in (CORE, CHIP, MEMORY))
    for node in nodes if len(pod["spec"]["containers"]) == 1 else ():
        name, have = node["metadata"]["name"], node["status"].get("allocatable", {})
        if not int(quantity(have.get(CORE if cores else CHIP, 0))):
            continue
        held = [text for p in placed if p["spec"]["nodeName"] == name for text in _held(p)]
        shared = cores == 0 or pod["metadata"].get("labels", {}).get("vnpu-dvpp") == "null"
        free = sum(str(chip) not in {one for one, _ in held} for chip in range(2))
        need = cores // CORES if cores >= CORES else number if number and not memory else 0
        rest = any(_takes([t for c, t in held if c == str(chip)], cores, memory) for chip in range(2))
        if free >= max(need, 1) or (not need and shared and rest):
            return str(name)
    return ""


def _held(pod: Json) -> list[tuple[str, str]]:
    """Return the numbers of the chips that a pod holds, each with its template."""
    chips = {at: str(at) for at in range(2)}
    return [(chip.rpartition("-")[2], template) for container in pod["spec"]["containers"]
            for chip, template in granted(pod, container["name"], chips)]  # fmt: skip


def _takes(templates: list[str], cores: int, memory: int) -> bool:
    new = SMALLEST.get(cores, "") if cores else SIZES.get(memory, "")
    if not new or "" in templates or any("dvpp" in one for one in templates):
        return False
    used = [sum(TEMPLATES[one][at] for one in (*templates, new)) for at in (0, 1)]
    return used[0] <= CORES and used[1] <= CPUS and len(templates) + TEMPLATES[new][0] // 2 < GROUPS


def asks(pod: Json) -> bool:
    return any({CORE, CHIP} & set(c["resources"].get("limits") or {}) for c in pod["spec"]["containers"])

