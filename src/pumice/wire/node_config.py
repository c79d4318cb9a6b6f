"""``config.json`` of the node ConfigMap: what one node does differently (HAMi volcano-vgpu-device-plugin
pkg/plugin/vgpu/config)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from pumice.model.errors import BadInput

LIST = "nodeconfig"
"""The one key of the document: an entry for each node."""
KEYS = (
    "name", "operatingmode", "devicememoryscaling", "devicecorescaling", "devicesplitcount", "migstrategy",
    "filterdevices", "libcudaloglevel", "preconfigureddevicememory", "enablenumatopology",
    "enablegetpreferredallocation",
)  # fmt: skip


class NodeEntry(Struct, frozen=True):
    """One entry; 0, empty and None mean that the entry says nothing about it. ``prefers``: whether the kubelet asks which shares
    to hand out; ``numa``: whether it is told on which NUMA node each lies."""

    name: str
    mode: str = ""
    memory_scaling: float = 0.0
    core_scaling: float = 0.0
    split: int = 0
    without_uuids: frozenset[str] = frozenset()
    without_indices: frozenset[int] = frozenset()
    log_level: str = ""
    prefers: bool | None = None
    numa: bool | None = None


class NodeConfig(Struct, frozen=True):
    """Every entry in file order; ``warnings`` name what was ignored."""

    entries: tuple[NodeEntry, ...] = ()
    warnings: tuple[str, ...] = ()

    def of(self, node: str) -> tuple[NodeEntry, ...]:
        """The entries for one node, in order: later ones win."""
        return tuple(entry for entry in self.entries if entry.name == node)


def parse_node_config(text: str | bytes) -> NodeConfig:
    """Parse the file. Raises BadInput when it is no JSON of the right shape; strange values are warnings."""
    try:
        document = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BadInput(f"the node configuration is no JSON: {error}") from error
    listed = document.get(LIST, []) if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise BadInput('the node configuration must be {"nodeconfig": [{"name": "..."}]}')
    entries: list[NodeEntry] = []
    warnings: list[str] = []
    for position, item in enumerate(listed):
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            warnings.append(f"nodeconfig[{position}]: an entry needs a name; ignored")
            continue
        where = f"nodeconfig[{position}] of node {item['name']}"
        warnings += [f"{where}: unknown key {key!r}" for key in item if key not in KEYS]
        if item.get("preconfigureddevicememory"):
            warnings.append(f"{where}: preconfigureddevicememory has no effect; a card that does not tell its memory is left out")
        if item.get("migstrategy"):
            warnings.append(f"{where}: migstrategy has no effect; operatingmode mig is meant")
        entries.append(_entry(item, where, warnings))
    return NodeConfig(tuple(entries), tuple(warnings))


def _entry(item: dict[str, Any], where: str, warnings: list[str]) -> NodeEntry:
    left_out = item.get("filterdevices") or {}
    if not isinstance(left_out, dict):
        warnings.append(f"{where}: filterdevices must hold the lists uuid and index; ignored")
        left_out = {}
    uuids = left_out.get("uuid") or []
    indices = left_out.get("index") or []
    level = item.get("libcudaloglevel")
    return NodeEntry(
        name=item["name"],
        mode=item["operatingmode"] if isinstance(item.get("operatingmode"), str) else "",
        memory_scaling=_positive(item, "devicememoryscaling", where, warnings),
        core_scaling=_positive(item, "devicecorescaling", where, warnings),
        split=int(_positive(item, "devicesplitcount", where, warnings)),
        without_uuids=frozenset(u for u in uuids if isinstance(u, str)) if isinstance(uuids, list) else frozenset(),
        without_indices=frozenset(i for i in indices if type(i) is int) if isinstance(indices, list) else frozenset(),
        prefers=_switch(item, "enablegetpreferredallocation", where, warnings),
        numa=_switch(item, "enablenumatopology", where, warnings),
        log_level=str(level) if type(level) is int and 0 <= level <= 4 else "",
    )


def _switch(item: dict[str, Any], key: str, where: str, warnings: list[str]) -> bool | None:
    value = item.get(key)
    if value is None or isinstance(value, bool):
        return value
    warnings.append(f"{where}: {key} must be true or false, not {value!r}; ignored")
    return None


def _positive(item: dict[str, Any], key: str, where: str, warnings: list[str]) -> float:
    value = item.get(key)
    if value is None or value == 0:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        warnings.append(f"{where}: {key} must be a number above 0, not {value!r}; ignored")
        return 0.0
    return float(value)
