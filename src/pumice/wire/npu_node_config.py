"""``node-config.yaml`` of ConfigMap ``hami-device-node-config``: what one node's NPUs do differently (spec ascend 15.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pumice.model.errors import BadInput
from pumice.wire.nearest import nearest

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
    from pumice.wire.yaml_lines import load_lined

    document = load_lined(text).value
    listed = (document or {}).get("nodes", []) if isinstance(document or {}, dict) else None
    if not isinstance(listed, list):
        raise BadInput("expected a mapping with a list under nodes")
    for entry in listed:
        if isinstance(entry, dict) and entry.get("name") == node:
            problems: list[str] = []
            return _entry(entry, problems), tuple(problems)
    return None, ()


def _entry(entry: dict[str, Any], problems: list[str]) -> NpuNodeEntry:
    problems += [f"unknown key {key!r}{nearest(str(key), _KEYS)}" for key in entry if key not in _KEYS]
    soft, shares = entry.get("hami-vnpu-core", False), entry.get("vDeviceCount", 0)
    left_out = entry.get("filterDevices") or {}
    if not isinstance(soft, bool):
        problems.append(f"hami-vnpu-core: {soft!r} is neither true nor false; it counts as false")
    if type(shares) is not int or not 0 <= shares <= 1000:
        problems.append(f"vDeviceCount: {shares!r} is no number from 0 to 1000; it does not count")
        shares = 0
    if not isinstance(left_out, dict):
        problems.append(f"filterDevices: {left_out!r} is no mapping; nothing is left out")
        left_out = {}
    indices = [value for value in _listed(left_out, "index", problems) if type(value) is int]
    uuids = [value for value in _listed(left_out, "uuid", problems) if isinstance(value, str)]
    return NpuNodeEntry(soft is True, shares, frozenset(indices), frozenset(uuids))


def _listed(left_out: dict[str, Any], key: str, problems: list[str]) -> list[Any]:
    values = left_out.get(key) or []
    if isinstance(values, list) and all(type(value) is {"index": int, "uuid": str}[key] for value in values):
        return values
    problems.append(f"filterDevices.{key}: {values!r} is no list of {'numbers' if key == 'index' else 'texts'}")
    return values if isinstance(values, list) else []
