"""Settings of one node that differ from the cluster's: ``config.json`` for its cards and ``node-config.yaml`` for its NPUs.

Formats: HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu/config; HAMi ascend-device-plugin, ``hami-device-node-config``."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pumice.model.errors import BadInput, nearest

if TYPE_CHECKING:
    from pumice.wire.document import Field

LIST = "nodeconfig"
"""The one key of the cards' document: an entry for each node."""
KEYS = (
    "name", "operatingmode", "devicememoryscaling", "devicecorescaling", "devicesplitcount", "migstrategy",
    "filterdevices", "libcudaloglevel", "preconfigureddevicememory", "enablenumatopology",
    "enablegetpreferredallocation",
)  # fmt: skip
NPU_KEYS = ("name", "hami-vnpu-core", "vDeviceCount", "filterDevices")
WITHOUT_EFFECT = {
    "preconfigureddevicememory": "a card that does not tell its memory is left out",
    "migstrategy": "operatingmode mig is meant",
}


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


class NpuNodeEntry(Struct, frozen=True):
    """The entry of a node with NPUs. ``shares``: pods of one card, 0 for as many as it has smallest templates."""

    soft: bool = False
    shares: int = 0
    without_indices: frozenset[int] = frozenset()
    without_uuids: frozenset[str] = frozenset()


def parse_node_config(text: str | bytes) -> NodeConfig:
    """Parse the cards' file. Raises BadInput where it has not the right shape; strange values are warnings."""
    warnings: list[str] = []
    entries = []
    for entry in _listed_under(LIST, text, '{"nodeconfig": [{"name": "..."}]}', "no JSON"):
        if not isinstance(entry.value, dict) or not isinstance(entry.value.get("name"), str):
            warnings.append(f"{entry}: an entry needs a name; ignored")
        else:
            entries.append(_entry(entry, warnings))
    return NodeConfig(tuple(entries), tuple(warnings))


def parse_npu_node_config(text: str, node: str) -> tuple[NpuNodeEntry | None, tuple[str, ...]]:
    """The node's entry, None where there is none, and a sentence for each thing that is wrong in it.

    Raises BadInput where it is no such document."""
    problems: list[str] = []
    for entry in _listed_under("nodes", text, "a mapping with a list under nodes", "no YAML", may_be_empty=True):
        if isinstance(entry.value, dict) and entry.value.get("name") == node:
            _unknown(entry, NPU_KEYS, problems)
            uuids, indices = _left_out(entry["filterDevices"], problems)
            shares = entry["vDeviceCount"]
            valid = not shares.given or (type(shares.value) is int and 0 <= shares.value <= 1000)
            problems += [] if valid else [f"{shares}: {shares.value!r} is no number from 0 to 1000; it does not count"]
            soft = _switch(entry["hami-vnpu-core"], problems)
            return NpuNodeEntry(soft is True, (shares.value or 0) if valid else 0, indices, uuids), tuple(problems)
    return None, ()


def _listed_under(key: str, text: str | bytes, shape: str, otherwise: str, *, may_be_empty: bool = False) -> list[Field]:
    from pumice.wire.document import read_document  # here: who runs without a cluster parses no YAML

    try:
        root = read_document(text).root
    except BadInput as error:
        raise BadInput(f"the node configuration is {otherwise}: {error}") from error
    if may_be_empty and not root.value:
        return []
    if not isinstance(root.value, dict) or not isinstance(root.value.get(key) or [], list):
        raise BadInput(f"the node configuration must be {shape}")
    return root[key].items() if root.value.get(key) else []


def _entry(entry: Field, warnings: list[str]) -> NodeEntry:
    _unknown(entry, KEYS, warnings)
    warnings += [f"{entry[key]} has no effect; {why}" for key, why in WITHOUT_EFFECT.items() if entry[key].value]
    uuids, indices = _left_out(entry["filterdevices"], warnings)
    mode, level = entry["operatingmode"].value, entry["libcudaloglevel"].value
    return NodeEntry(
        name=entry.value["name"],
        mode=mode if isinstance(mode, str) else "",
        memory_scaling=_positive(entry["devicememoryscaling"], warnings),
        core_scaling=_positive(entry["devicecorescaling"], warnings),
        split=int(_positive(entry["devicesplitcount"], warnings)),
        without_uuids=uuids,
        without_indices=indices,
        prefers=_switch(entry["enablegetpreferredallocation"], warnings),
        numa=_switch(entry["enablenumatopology"], warnings),
        log_level=str(level) if type(level) is int and 0 <= level <= 4 else "",
    )


def _unknown(entry: Field, keys: Collection[str], problems: list[str]) -> None:
    problems += [f"{key}: unknown key{nearest(str(key.path[-1]), keys)}" for key in entry.unknown(keys)]


def _switch(field: Field, problems: list[str]) -> bool | None:
    if isinstance(field.value, bool):
        return field.value
    if not field.given:
        return None
    problems.append(f"{field} must be true or false, not {field.value!r}; ignored")
    return None


def _positive(field: Field, problems: list[str]) -> float:
    value = field.value
    if value is None or value == 0:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        problems.append(f"{field} must be a number above 0, not {value!r}; ignored")
        return 0.0
    return float(value)


def _left_out(field: Field, problems: list[str]) -> tuple[frozenset[str], frozenset[int]]:
    """The cards that are not shared, by UUID and by index."""
    if not field.value:
        return frozenset(), frozenset()
    if not isinstance(field.value, dict):
        problems.append(f"{field} must hold the lists uuid and index; ignored")
        return frozenset(), frozenset()
    return frozenset(_listed(field["uuid"], str, problems)), frozenset(_listed(field["index"], int, problems))


def _listed(field: Field, kind: type, problems: list[str]) -> list[Any]:
    values = field.value or []
    if not isinstance(values, list) or any(type(value) is not kind for value in values):
        problems.append(f"{field}: {values!r} is no list of {'numbers' if kind is int else 'texts'}")
    return [value for value in values if type(value) is kind] if isinstance(values, list) else []
