"""The specification of a cluster: the flags of ``pumice up`` or a ``cluster.yaml``, checked.

    nodes:
    - cards: 8                     # one node of eight A100, emulated
      model: A100-SXM4-80GB
    - {name: old, count: 2, machine: two-1080ti.yaml, cpu: 16, memory: 64Gi}
    - {name: side-by-side, model: A100-SXM4-40GB, sharing: mps}    # cards shared by MPS instead of the library
    - {name: inference, npus: 2, npu: 310P3, labels: {host-arch: huawei-arm}}   # Ascend NPUs, and no graphics cards
    controlPlane: embedded         # or kube: the real etcd and kube-apiserver
    podNetwork: auto               # or a range such as 10.77.0.0/16, or none: pods share the machine's
    admission: [/jobs/mutate, /jobs/validate]    # what is decided, by path, as --enabled-admission of pumice webhook
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pumice.model.errors import BadInput
from pumice.model.hardware import preset_names
from pumice.model.hardware.npu import driver_chips
from pumice.wire.quantity import parse_quantity
from pumice_lab.machine.document import Field, read_file

DEFAULT_MODEL = "GeForce-GTX-1080-Ti"  # the 11,178 MiB card of the published user guides
DEFAULT_NPU = "310P3"
MAX_CARDS = 16
MAX_NODES = 1000
CONTROL_PLANES = ("embedded", "kube")
SHARING = ("hami-core", "mps")
SMALLEST_POD_NETWORK = 24


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
    npus: int = 0
    npu: str = DEFAULT_NPU
    labels: tuple[tuple[str, str], ...] = ()
    sharing: str = "hami-core"  # or mps
    asked: bool = True  # whether somebody asked for these cards; else those stay that the data dir has

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
    pod_network: str = "auto"  # a range, or "none": pods share the machine's network
    bare: bool = False  # control plane and nodes only: the daemons come by manifests
    admission: tuple[str, ...] | None = None  # paths; None: those of a chart of Volcano

    @property
    def summary(self) -> str:
        """In one line, for people."""
        cards, npus = sum(node.cards for node in self.nodes), sum(node.npus for node in self.nodes)
        emulated = f"{cards} emulated card{'s' if cards != 1 else ''}"
        kinds = "real cards by NVML" if any(node.real for node in self.nodes) else emulated
        if npus:
            named = f"{npus} emulated NPU{'s' if npus != 1 else ''}"
            kinds = f"{kinds}, {named}" if any(node.has_cards for node in self.nodes) else named
        count = len(self.nodes)
        return f"{count} node{'s' if count != 1 else ''}, {kinds}, {self.control_plane} control plane"


def uniform(nodes: int, cards: int, model: str, *, real: bool = False, mig: bool = False, asked: bool = True,
            control_plane: str = "embedded", port: int = 0, pod_network: str = "auto", bare: bool = False) -> ClusterSpec:
    """``nodes`` alike nodes named node-1, node-2, ... Raises BadInput on numbers out of range."""
    _within("--nodes", nodes, 1, MAX_NODES)
    _within("--cards", cards, 0, MAX_CARDS)
    return _checked(ClusterSpec(
        nodes=tuple(NodeSpec(f"node-{i + 1}", cards, model, real=real, mig=mig, asked=asked) for i in range(nodes)),
        control_plane=control_plane, port=port, pod_network=pod_network, bare=bare), "command line")  # fmt: skip


_KEYS = ("nodes", "controlPlane", "address", "port", "images", "podNetwork", "bare", "admission")
_NODE_KEYS = (
    "name", "count", "cards", "model", "machine", "mig", "cpu", "memory", "pods", "real", "npus", "npu", "labels", "sharing",
)  # fmt: skip


def load(path: Path) -> ClusterSpec:
    """Read a cluster file. Raises BadInput with file, line, key and the nearest right word."""
    keys = read_file(path).mapping(_KEYS)
    nodes: list[NodeSpec] = []
    parts = keys["nodes"].items() if "nodes" in keys and keys["nodes"].value is not None else []
    for part in parts:
        nodes += _nodes(part, path.parent, first=len(nodes) + 1)
    return _checked(ClusterSpec(tuple(nodes) or (NodeSpec("node-1"),), **dict(_settings(keys))), str(path))


OVERRULING: Final = frozenset(("bare", "control_plane", "emulated", "pod_network", "port"))


def overruled(spec: ClusterSpec, said: Mapping[str, Any]) -> ClusterSpec:
    """A cluster file with what the command line says of ``OVERRULING``. Raises BadInput."""
    said = dict(said)
    if said.pop("emulated", False):
        spec = replace(spec, nodes=tuple(replace(node, real=False) for node in spec.nodes))
    return _checked(replace(spec, **said), "command line")


def _settings(keys: Mapping[str, Field]) -> Iterator[tuple[str, Any]]:
    if part := keys.get("controlPlane"):
        yield "control_plane", part.word(CONTROL_PLANES)
    if part := keys.get("address"):
        yield "address", part.text()
    if part := keys.get("port"):
        yield "port", part.integer(most=65535)
    if part := keys.get("images"):
        yield "pumice_images", tuple(image.text() for image in part.items())
    if part := keys.get("podNetwork"):
        yield "pod_network", part.text()
    if part := keys.get("bare"):
        yield "bare", part.flag()
    if part := keys.get("admission"):
        yield "admission", _paths(part)


def _paths(part: Field) -> tuple[str, ...]:
    from pumice_jobs.admission.rules import BY_PATH  # with all rules, which `pumice up --help` does not need

    return tuple(path.word(tuple(BY_PATH)) for path in part.items())


def _nodes(part: Field, folder: Path, first: int) -> list[NodeSpec]:
    """The nodes of one entry (``count`` of them); those without a name are numbered from ``first`` on."""
    keys = part.mapping(_NODE_KEYS)
    node = NodeSpec(_name(keys["name"]) if "name" in keys else "", **dict(_node_facts(keys, folder)))
    count = keys["count"].integer(least=1, most=MAX_NODES) if "count" in keys else 1
    if node.name and count == 1:
        return [node]
    start = 1 if node.name else first
    return [replace(node, name=f"{node.name or 'node'}-{i}") for i in range(start, start + count)]


def _node_facts(keys: Mapping[str, Field], folder: Path) -> Iterator[tuple[str, Any]]:
    if part := keys.get("cards"):
        if not isinstance(part.value, int) or isinstance(part.value, bool):
            raise part.error(f"must be a whole number, not {part.value!r}; what cards they are stands beside it, "
                             "as in {cards: 2, model: Tesla-T4}")  # fmt: skip
        yield "cards", part.integer(most=MAX_CARDS)
    elif "npus" in keys:
        yield "cards", 0
    if part := keys.get("model"):
        yield "model", part.word(preset_names())
    if part := keys.get("npus"):
        yield "npus", part.integer(most=MAX_CARDS)
    if part := keys.get("npu"):
        yield "npu", part.word(tuple(driver_chips()))
    if part := keys.get("sharing"):
        yield "sharing", part.word(SHARING)
    if part := keys.get("machine"):
        yield "machine", folder / part.text()
    if part := keys.get("labels"):
        yield "labels", _labels(part)
    if part := keys.get("pods"):
        yield "pods", part.integer(least=1)
    for key in ("cpu", "memory"):
        if part := keys.get(key):
            yield key, _quantity(part)
    for key in ("mig", "real"):
        if part := keys.get(key):
            yield key, part.flag()


def _name(part: Field) -> str:
    # It comes with the whole API server, which `pumice up --help` does not need.
    from pumice_lab.apiserver.names import bad_subdomain

    name = part.text()
    if why := bad_subdomain(name):
        raise part.error(f"{name!r} cannot be a node's name: {why}")
    return name


def _labels(part: Field) -> tuple[tuple[str, str], ...]:
    from pumice_lab.apiserver.names import bad_label_value, bad_qualified

    given = part.mapping(part.value or (), wanted="a mapping of labels to values")
    labels = {key: "" if value.value == "" else value.text() for key, value in given.items()}  # as roles of nodes are
    for key, text in labels.items():
        if why := bad_qualified(key) or bad_label_value(text):
            raise part[key].error(f"cannot be a node's label: {why}")
    return tuple(labels.items())


def _quantity(part: Field) -> str:
    try:
        amount = parse_quantity(part.value)
    except ValueError as error:
        raise part.error(str(error)) from error
    if amount <= 0:
        raise part.error(f"must be above zero, not {part.value}")
    return str(part.value)


def _checked(spec: ClusterSpec, where: str) -> ClusterSpec:
    if spec.control_plane not in CONTROL_PLANES:
        raise BadInput(f"{where}: control plane {spec.control_plane!r}: it is one of {', '.join(CONTROL_PLANES)}")
    if not 0 <= spec.port < 65536:
        raise BadInput(f"{where}: port {spec.port} is outside 0..65535")
    _check_pod_network(spec.pod_network, where)
    names = [node.name for node in spec.nodes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise BadInput(f"{where}: two nodes are named {twice!r}")
    if sum(node.real for node in spec.nodes) > 1:
        raise BadInput(f"{where}: this machine's real cards belong to one node only")
    return spec


def _check_pod_network(given: str, where: str) -> None:
    if given in ("auto", "none"):
        return
    try:
        network = ipaddress.IPv4Network(given)
    except ValueError as error:
        raise BadInput(f"{where}: pod network {given!r}: it is auto, none, or a range such as 10.77.0.0/16") from error
    if network.prefixlen > SMALLEST_POD_NETWORK or not network.is_private or network.is_loopback:
        raise BadInput(f"{where}: pod network {given}: it is a private range of /{SMALLEST_POD_NETWORK} or larger")


def _within(where: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadInput(f"{where}: {value} is outside {low}..{high}")
