"""What holds for NPUs in HAMi's form and for chips cut on demand, read from API objects alone: nothing of Pumice is imported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

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
