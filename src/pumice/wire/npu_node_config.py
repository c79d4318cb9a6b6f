"""``node-config.yaml`` of ConfigMap ``hami-device-node-config``: what one node's NPUs do differently (HAMi
ascend-device-plugin)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pumice.model.errors import BadInput, nearest

if TYPE_CHECKING:
    from pumice.wire.document import Field

_KEYS = ("name", "hami-vnpu-core", "vDeviceCount", "filterDevices")


@dataclass(frozen=True, slots=True)
class NpuNodeEntry:
    """``shares``: pods of one card, 0 for as many as it has smallest templates."""

    soft: bool = False
    shares: int = 0
    without_indices: frozenset[int] = frozenset()
    without_uuids: frozenset[str] = frozenset()


def parse_npu_node_config(text: str, node: str) -> tuple[NpuNodeEntry | None, tuple[str, ...]]:
    """The node's entry, None where there is none, and a sentence for each thing that is wrong in it.

    Raises BadInput where it is no such document."""
    from pumice.wire.document import read_document

    root = read_document(text).root
    listed = root["nodes"] if isinstance(root.value, dict) else root
    if root.value and not (isinstance(root.value, dict) and isinstance(root.value.get("nodes", []), list)):
        raise BadInput("expected a mapping with a list under nodes")
    for entry in listed.items() if listed.value else ():
        if isinstance(entry.value, dict) and entry.value.get("name") == node:
            problems: list[str] = []
            return _entry(entry, problems), tuple(problems)
    return None, ()


def _entry(entry: Field, problems: list[str]) -> NpuNodeEntry:
    problems += [f"{key}: unknown key{nearest(str(key.path[-1]), _KEYS)}" for key in entry.unknown(_KEYS)]
    soft, shares = entry.value.get("hami-vnpu-core", False), entry.value.get("vDeviceCount", 0)
    left_out = entry["filterDevices"]
    if not isinstance(soft, bool):
        problems.append(f"{entry['hami-vnpu-core']}: {soft!r} is neither true nor false; it counts as false")
    if type(shares) is not int or not 0 <= shares <= 1000:
        problems.append(f"{entry['vDeviceCount']}: {shares!r} is no number from 0 to 1000; it does not count")
        shares = 0
    if left_out.value and not isinstance(left_out.value, dict):
        problems.append(f"{left_out}: {left_out.value!r} is no mapping; nothing is left out")
    parts = left_out.mapping() if isinstance(left_out.value, dict) else {}
    indices = [value for value in _listed(parts.get("index"), int, problems) if type(value) is int]
    uuids = [value for value in _listed(parts.get("uuid"), str, problems) if isinstance(value, str)]
    return NpuNodeEntry(soft is True, shares, frozenset(indices), frozenset(uuids))


def _listed(field: Field | None, kind: type, problems: list[str]) -> list[Any]:
    if field is None or not field.value:
        return []
    values = field.value
    if isinstance(values, list) and all(type(value) is kind for value in values):
        return values
    problems.append(f"{field}: {values!r} is no list of {'numbers' if kind is int else 'texts'}")
    return values if isinstance(values, list) else []
