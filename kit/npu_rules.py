"""What holds for NPUs in HAMi's form, read from API objects alone: nothing of Pumice is imported here on purpose."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Json = Mapping[str, Any]

REGISTER, HELD_BEFORE, HELD_AFTER = "hami.io/node-register-", "hami.io/", "-devices-allocated"
PARAMETERS = ("-memory", "-core")


def says_how_much(resource: str) -> bool:
    """Whether a name of an NPU's says what of a card is wanted; no node offers these."""
    return resource.startswith("huawei.com/Ascend") and resource.endswith(PARAMETERS)


def npu_cards(nodes: Iterable[Json], placed: Iterable[Json]) -> list[str]:
    """Cards over their memory, their count or, where soft, their cores."""
    room: dict[str, Json] = {}
    for node in nodes:
        for key, text in node["metadata"].get("annotations", {}).items():
            if key.startswith(REGISTER):
                room |= {card["id"]: card for card in json.loads(text)}
    memory, cores, shares = Counter[str](), Counter[str](), Counter[str]()
    found = []
    for pod in placed:
        for key, text in pod["metadata"].get("annotations", {}).items():
            if not (key.startswith(HELD_BEFORE) and key.endswith(HELD_AFTER)):
                continue
            held = [token.split(",") for slot in text.split(";") for token in slot.split(":") if "," in token]
            if len({fields[0] for fields in held}) < len(held):
                found.append(f"pod {pod['metadata']['name']} holds one NPU twice: {text}")
            for uuid, _, size, share in held:
                memory[uuid] += int(size)
                cores[uuid] += int(share)
                shares[uuid] += 1
    for uuid, card in room.items():
        if memory[uuid] > card.get("devmem", 0) or shares[uuid] > card.get("count", 0) or cores[uuid] > 100:
            found.append(f"NPU {uuid}: {memory[uuid]} MB of {card.get('devmem')}, {shares[uuid]} pods of {card.get('count')}, "
                         f"{cores[uuid]} % of its cores")  # fmt: skip
    return found
