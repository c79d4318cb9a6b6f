"""The ConfigMaps in which MindCluster's components report on nodes (Volcano pkg/scheduler/api/devices/ascend/mindcluster):
which chips are free and which are
unhealthy, and the state of the host. Read with what is wrong in it; rendered for those who play the components.

What a node's entry says becomes a text of the node (``Node.reports``), the same text for the same meaning: a report that is
written anew every few seconds with another time in it is no news.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from msgspec import DecodeError, Struct
from msgspec.json import decode

from pumice.model.hardware.npu import slice_kinds
from pumice.wire.objects import ConfigMap

DEVICES: Final = "devices"
HOST: Final = "host"
DOUBT: Final = "doubt"
"""Keys of ``Node.reports``: the lists of chips; the state of the host; why the newest word on the node does not count."""

GATHERED_LABEL: Final = "mx-consumer-volcano=true"
GATHERED_NAMESPACE: Final = "mindx-dl"
OWN_LABEL: Final = "mx-consumer-cim=true"
"""ClusterD's ConfigMaps, which gather all nodes; those that each node's components write themselves."""
_DEVICE_PREFIX: Final = "mindx-dl-deviceinfo-"
_NODE_PREFIX: Final = "mindx-dl-nodeinfo-"
_GATHERED_DEVICES: Final = "cluster-info-device-"
_GATHERED_NODES: Final = "cluster-info-node-cm"
_DEVICE_KEY: Final = "DeviceInfoCfg"
_NODE_KEY: Final = "NodeInfo"
_OWN: Final = (
    (DEVICES, "kube-system", _DEVICE_PREFIX, _DEVICE_KEY),
    (HOST, GATHERED_NAMESPACE, _NODE_PREFIX, _NODE_KEY),
)
"""The places to which a node's components write. Whoever may write ConfigMaps elsewhere is no component: names, labels and check
codes are anybody's."""

LISTS: Final = ("", "-Unhealthy", "-Recovering")
"""Endings of the lists that are read; empty: the chips that are healthy, free and carry no vNPU."""
_SEPARATED: Final = "SeparateNPU"
"""The treatment of an unhealthy chip: it takes no pods."""
NOT_ENABLED: Final = "device info or clusterd info is not enable"


@dataclass(frozen=True, slots=True)
class Reported:
    """The content of one ConfigMap, by node. A node in ``doubts``, or every one where ``doubts`` has an empty key, keeps what
    was said of it before. ``about``: which of a node's reports it is."""

    about: str = ""
    said: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)


class ChipLists(Struct, frozen=True):
    """The lists of one node, as written but for what names no chip."""

    free: tuple[str, ...] = ()
    unhealthy: tuple[str, ...] = ()
    recovering: tuple[str, ...] = ()


def parse_chip_lists(text: str) -> ChipLists | None:
    """A text that ``read_gathered`` or ``read_own`` has made; None where the node has no chips of this kind."""
    if not text:
        return None
    free, unhealthy, recovering = text.split(";")
    return ChipLists(*(tuple(part for part in listed.split(",") if part) for listed in (free, unhealthy, recovering)))


# -- reading ------------------------------------------------------------------------------------------------------------


def read_gathered(found: ConfigMap) -> Reported:
    """Parse a ConfigMap of ClusterD's: the entries of all nodes under its own name."""
    name = found.metadata.name
    about = DEVICES if name.startswith(_GATHERED_DEVICES) else HOST if name == _GATHERED_NODES else ""
    if not about:
        return Reported()
    if name not in found.data and about == DEVICES:
        return Reported(about, doubts={"": f"it has no key {name}"})
    text = found.data.get(name, "")
    entries = {} if about == HOST and not text else _json(text)  # no host has anything to report
    if not isinstance(entries, dict):
        return Reported(about, doubts={"": f"its key {name} holds no JSON map"})
    said: dict[str, str] = {}
    doubts: dict[str, str] = {}
    prefix = _DEVICE_PREFIX if about == DEVICES else _NODE_PREFIX
    for key, entry in entries.items():
        node = key.removeprefix(prefix)
        if node == key or not node:
            continue
        read = _device_list(entry) if about == DEVICES else _host_state(entry)
        if read is None:
            doubts[node] = f"the entry {key} is not as ClusterD writes it" + _age(entry)
        else:
            said[node] = read
    return Reported(about, said, doubts)


def read_own(found: ConfigMap) -> Reported:
    """Parse a ConfigMap of a node's own, with a check code over its content."""
    about, node, key = _own(found)
    if not about:
        return Reported()
    body, sound = _body(found, about, key)
    if body is None:
        return Reported(about, doubts={node: f"its key {key} is not as the node's components write it"})
    if not sound:
        return Reported(about, doubts={node: f"the CheckCode in its key {key} is not that of what it says: it is stale, or "
                                             "somebody else has written it"})  # fmt: skip
    read = _device_list(body) if about == DEVICES else _host_state(body)
    if read is None:
        return Reported(about, doubts={node: f"its key {key} is not as the node's components write it" + _age(body)})
    return Reported(about, {node: read})


def own_body(found: ConfigMap) -> tuple[str, str, Mapping[str, Any] | None]:
    """(what it is about, node, what it says) of one of a node's own; empty words where it is none, and nothing said where its
    check code is wrong."""
    about, node, key = _own(found)
    if not about:
        return "", "", None
    body, sound = _body(found, about, key)
    return about, node, body if sound else None


def _own(found: ConfigMap) -> tuple[str, str, str]:
    """(what it is about, node, key); empty words where it is not of a node's component."""
    name = found.metadata.name
    for about, namespace, prefix, key in _OWN:
        if found.metadata.namespace == namespace and name.startswith(prefix) and name != prefix:
            return about, name.removeprefix(prefix), key
    return "", "", ""


def _body(found: ConfigMap, about: str, key: str) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the content, and whether its check code matches."""
    whole = _json(found.data.get(key, ""))
    body = whole.get("DeviceInfo" if about == DEVICES else "NodeInfo") if isinstance(whole, dict) else None
    if not isinstance(body, dict):
        return None, False
    return body, whole.get("CheckCode") == check_code(body, about)


def _device_list(entry: Any) -> str | None:
    """The lists as one text, empty where it has none of this kind of chip; None where they cannot be read."""
    if not isinstance(entry, dict):
        return None
    listed, time = entry.get("DeviceList"), entry.get("UpdateTime")
    if not isinstance(listed, dict) or type(time) is not int or time <= 0:
        return None
    from pumice.wire.mindcluster import whole_chips

    name = next((name for name in map(whole_chips, slice_kinds()) if name in listed), "")
    if not name:
        return ""
    lists = [listed.get(f"{name}{ending}", "") for ending in LISTS]
    if not all(isinstance(text, str) and ";" not in text for text in lists):
        return None
    return ";".join(",".join(sorted(part.strip() for part in text.split(",") if part.strip())) for text in lists)


def _age(entry: Any) -> str:
    never = isinstance(entry, dict) and entry.get("UpdateTime") in (0, None)
    return ": its UpdateTime says that it was never written" if never else ""


def _host_state(entry: Any) -> str | None:
    state = entry.get("NodeStatus") if isinstance(entry, dict) else None
    return state if isinstance(state, str) else None


def _json(text: str) -> Any:
    try:
        return decode(text.encode())
    except (DecodeError, UnicodeEncodeError, RecursionError):
        return None


# -- the check code -------------------------------------------------------------------------------------------------------

_ITEM: Final = ("DeviceType", "DeviceId", "FaultCode", "FaultLevel")


def check_code(body: Mapping[str, Any], about: str = DEVICES) -> str:
    """SHA-256 over the body as Go prints it: fields in the order of their declaration, the keys of maps sorted by bytes, no
    blanks, and ``<``, ``>``, ``&`` and the two line separators escaped (Volcano pkg/scheduler/api/devices/ascend/mindcluster)."""
    if about == DEVICES:
        listed = body.get("DeviceList")
        ordered: dict[str, Any] = {
            "DeviceList": dict(sorted(listed.items(), key=lambda item: item[0].encode("utf-8", "surrogatepass")))
            if isinstance(listed, dict) else listed,
            "UpdateTime": body.get("UpdateTime", 0),
        }  # fmt: skip
    else:
        items = body.get("FaultDevList")
        ordered = {
            "FaultDevList": [{key: item.get(key) for key in _ITEM} if isinstance(item, dict) else item for item in items]
            if isinstance(items, list) else None,
            "NodeStatus": body.get("NodeStatus", ""),
        }  # fmt: skip
    text = json.dumps(ordered, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    import hashlib  # here: every program of `pumice run` imports this module by way of the families

    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# -- rendering ------------------------------------------------------------------------------------------------------------


def device_info(
    free: Sequence[str], unhealthy: Sequence[str] = (), time: int = 1, *, kind: str, recovering: Sequence[str] = (),
    faults: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, Any]:  # fmt: skip
    """The ``DeviceInfo`` of a node with these chips, all of one kind. ``faults``: the driver's error codes by chip."""
    from pumice.wire.mindcluster import whole_chips

    name = whole_chips(kind)
    listed = {name: ",".join(free), f"{name}-Unhealthy": ",".join(unhealthy),
              f"{name}-Fault": _dump([_fault(chip, codes) for chip, codes in faults.items()])}  # fmt: skip
    if recovering:
        listed[f"{name}-Recovering"] = ",".join(recovering)
    return {"DeviceList": listed, "UpdateTime": time}


def _fault(chip: str, codes: Sequence[str]) -> dict[str, str]:
    return {
        "fault_type": "CardUnhealthy", "npu_name": chip, "large_model_fault_level": _SEPARATED, "fault_level": _SEPARATED,
        "fault_handling": _SEPARATED, "fault_code": ",".join(codes),
    }  # fmt: skip


def node_info(state: str, faults: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    return {"FaultDevList": [dict(fault) for fault in faults], "NodeStatus": state}


def render_own_devices(node: str, info: Mapping[str, Any], code: str = "") -> dict[str, Any]:
    """The ConfigMap of a node's device plugin; ``code`` in place of the right one."""
    body = {"DeviceInfo": info, "SuperPodID": -1, "ServerIndex": -1, "CheckCode": code or check_code(info)}
    return _config_map(f"{_DEVICE_PREFIX}{node}", "kube-system", OWN_LABEL, {_DEVICE_KEY: _dump(body)})


def render_gathered_devices(nodes: Mapping[str, Mapping[str, Any]], number: int = 0) -> dict[str, Any]:
    """ClusterD's ConfigMap over the devices of these nodes."""
    entries = {
        f"{_DEVICE_PREFIX}{node}": {**info, "CmName": f"{_DEVICE_PREFIX}{node}", "SuperPodID": -1, "ServerIndex": -1}
        for node, info in nodes.items()
    }
    name = f"{_GATHERED_DEVICES}{number}"
    return _config_map(name, GATHERED_NAMESPACE, GATHERED_LABEL, {name: _dump(entries)})


def render_gathered_hosts(nodes: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """ClusterD's ConfigMap over the hosts that have something to report."""
    entries = {f"{_NODE_PREFIX}{node}": dict(info) for node, info in nodes.items()}
    return _config_map(_GATHERED_NODES, GATHERED_NAMESPACE, GATHERED_LABEL, {_GATHERED_NODES: _dump(entries) if entries else ""})


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _config_map(name: str, namespace: str, label: str, data: Mapping[str, str]) -> dict[str, Any]:
    key, _, value = label.partition("=")
    meta = {"name": name, "namespace": namespace, "labels": {key: value}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": dict(data)}
