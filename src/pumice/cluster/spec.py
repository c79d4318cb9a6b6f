"""What cluster to bring up: the flags of ``pumice up`` or a ``cluster.yaml``, checked.

    nodes:
    - cards: 8                     # one node of eight A100, emulated
      model: A100-SXM4-80GB
    - {name: old, count: 2, machine: two-1080ti.yaml, cpu: 16, memory: 64Gi}
    controlPlane: embedded         # or kube: the real etcd and kube-apiserver
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from pumice.model.refusal import BadInput
from pumice.wire.quantity import parse_quantity

DEFAULT_MODEL = "GeForce-GTX-1080-Ti"  # the 11,178 MiB card of the published user guides
MAX_CARDS = 16
MAX_NODES = 1000
CONTROL_PLANES = ("embedded", "kube")


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One emulated node, or the node of this machine's real cards (``real``; then cards and model come from NVML)."""

    name: str
    cards: int = 2
    model: str = DEFAULT_MODEL
    machine: Path | None = None  # a machine model file instead of cards and model
    mig: bool = False
    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    real: bool = False

    @property
    def has_cards(self) -> bool:
        return bool(self.cards or self.machine or self.real)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    nodes: tuple[NodeSpec, ...]
    control_plane: str = "embedded"
    address: str = "127.0.0.1"
    port: int = 0  # 0: the port of the last time, or a free one
    pumice_images: tuple[str, ...] = field(default=("pumice",))
    bare: bool = False  # control plane and nodes only: the daemons come by manifests


def uniform(nodes: int, cards: int, model: str, *, real: bool = False, mig: bool = False,
            control_plane: str = "embedded", port: int = 0, bare: bool = False) -> ClusterSpec:
    """``nodes`` alike nodes named node-1, node-2, ... Raises BadInput on numbers out of range."""
    _within("--nodes", nodes, 1, MAX_NODES)
    _within("--cards", cards, 0, MAX_CARDS)
    return _checked(ClusterSpec(
        nodes=tuple(NodeSpec(f"node-{i + 1}", cards, model, real=real, mig=mig) for i in range(nodes)),
        control_plane=control_plane, port=port, bare=bare), "command line")  # fmt: skip


def load(path: Path) -> ClusterSpec:
    """Read a cluster file. Raises BadInput with file, line and the nearest right word."""
    try:
        text = path.read_text()
        root = yaml.compose(text)
        config = yaml.safe_load(text) or {}
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict):
        raise BadInput(f"{path}: expected a mapping with the key 'nodes'")
    _known_keys(path, root, config, {"nodes", "controlPlane", "address", "port", "images", "bare"})
    nodes: list[NodeSpec] = []
    entries = config.get("nodes") or [{}]
    if not isinstance(entries, list):
        raise BadInput(f"{path}: 'nodes' must be a list")
    for position, entry in enumerate(entries):
        nodes.extend(_node_entry(path, root, position, entry, first=len(nodes) + 1))
    spec = ClusterSpec(tuple(nodes), str(config.get("controlPlane", "embedded")),
                       str(config.get("address", "127.0.0.1")), _integer(path, "port", config.get("port", 0)),
                       tuple(map(str, config.get("images") or ("pumice",))), bool(config.get("bare")))
    return _checked(spec, str(path))


_NODE_KEYS = {"name", "count", "cards", "model", "machine", "mig", "cpu", "memory", "pods", "real"}


def _node_entry(path: Path, root: Any, position: int, entry: Any, first: int) -> list[NodeSpec]:
    where = f"nodes[{position}]"
    if not isinstance(entry, dict):
        raise BadInput(f"{path}: {where} must be a mapping")
    _known_keys(path, root, entry, _NODE_KEYS, where)
    count = _integer(path, f"{where}.count", entry.get("count", 1))
    cards = _integer(path, f"{where}.cards", entry.get("cards", 2))
    _within(f"{path}: {where}.count", count, 1, MAX_NODES)
    _within(f"{path}: {where}.cards", cards, 0, MAX_CARDS)
    for key in ("cpu", "memory"):
        try:
            if parse_quantity(entry.get(key, 1)) <= 0:
                raise ValueError(f"{entry[key]!r} is not above zero")
        except ValueError as error:
            raise BadInput(f"{path}: {where}.{key}: {error}") from error
    node = NodeSpec(
        name=str(entry.get("name", "")), cards=cards, model=str(entry.get("model", DEFAULT_MODEL)),
        machine=path.parent / str(entry["machine"]) if entry.get("machine") else None, mig=bool(entry.get("mig")),
        cpu=str(entry.get("cpu", "8")), memory=str(entry.get("memory", "32Gi")),
        pods=_integer(path, f"{where}.pods", entry.get("pods", 110)), real=bool(entry.get("real")),
    )  # fmt: skip
    if node.name and count == 1:
        return [node]
    start = 1 if node.name else first
    return [replace(node, name=f"{node.name or 'node'}-{i}") for i in range(start, start + count)]


def _checked(spec: ClusterSpec, where: str) -> ClusterSpec:
    if spec.control_plane not in CONTROL_PLANES:
        raise BadInput(f"{where}: control plane {spec.control_plane!r}: it is one of {', '.join(CONTROL_PLANES)}")
    if not 0 <= spec.port < 65536:
        raise BadInput(f"{where}: port {spec.port} is outside 0..65535")
    names = [node.name for node in spec.nodes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise BadInput(f"{where}: two nodes are named {twice!r}")
    if sum(node.real for node in spec.nodes) > 1:
        raise BadInput(f"{where}: this machine's real cards belong to one node only")
    return spec


def _known_keys(path: Path, root: Any, mapping: Mapping[str, Any], known: set[str], where: str = "") -> None:
    for key in mapping:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            place = f" in {where}" if where else ""
            raise BadInput(f"{path}{_line_of(root, str(key))}: unknown key {key!r}{place}; {hint}")


def _line_of(node: Any, key: str) -> str:
    """``:LINE`` of the first mapping key of that name in a composed YAML document."""
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == key:
                return f":{name.start_mark.line + 1}"
            if found := _line_of(value, key):
                return found
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            if found := _line_of(value, key):
                return found
    return ""


def _integer(path: Path, where: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{path}: {where}: {value!r} is not a whole number")
    return value


def _within(where: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadInput(f"{where}: {value} is outside {low}..{high}")
