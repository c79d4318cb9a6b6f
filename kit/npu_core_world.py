"""Nodes whose Ascend chips MindCluster cuts on demand, what it reports of them, and pods that ask for AI cores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from msgspec.structs import replace

from kit.device_world import TinyLedger, device_settings
from kit.engine_world import World
from kit.objects import pod
from pumice.devices.ascend_mindcluster import inventory
from pumice.devices.ascend_mindcluster.scheduling import AscendMindCluster, Left
from pumice.model.hardware.npu import SliceKind, SliceTemplate, slice_kinds
from pumice.wire import device_reports
from pumice.wire.device_reports import HOST, check_code, read_gathered, render_gathered_devices
from pumice.wire.mindcluster import RealSlice, chip_number, render_real_slice
from pumice.wire.objects import ConfigMap, Node, Pod, convert

Json = dict[str, Any]
LABELS = {"accelerator": "huawei-Ascend310P", "servertype": "Ascend310P-8", "node.kubernetes.io/npu.chip.name": "310P3"}
CORE = "huawei.com/npu-core"

device_info = partial(device_reports.device_info, kind="Ascend310P")


def core_device_type(**settings: Any) -> AscendMindCluster:
    return AscendMindCluster(device_settings(**settings), slice_kinds()["Ascend310P"])


@dataclass(frozen=True, slots=True)
class ChipBoard:
    """A chip to plan on. Slices are made at once: of chips that wait for one in the making, nothing can be planned."""

    kind: SliceKind
    cores: int
    """Of an empty chip."""

    def ways(self, state: Left, need: tuple[SliceTemplate, ...]) -> Iterable[tuple[Left, SliceTemplate | None, float]]:
        if not need:
            if state[0] == self.cores and inventory.untouched(0, state[2]):
                yield (0, 0, state[2]), None, 0.0
            return
        for template in need:
            if inventory.takes(template, *state):
                yield inventory.after(template, *state), template, 0.0

    def left(self, state: Left) -> float:
        return inventory.value(self.kind, *state)


def chips(*numbers: int) -> list[str]:
    return [f"Ascend310P-{number}" for number in numbers]


def core_node_object(
    name: str, count: int = 1, *, labels: Mapping[str, str | None] | None = None, capacity: Any = None, base: Any = None,
    annotations: Mapping[str, str] | None = None, each: int = 8,
) -> Json:  # fmt: skip
    """A node with so many chips of ``each`` cores; a label of None is left out."""
    room = {CORE: str(each * count if capacity is None else capacity), "cpu": "64", "memory": "256Gi", "pods": "110"}
    usual = {**LABELS, "servertype": f"Ascend310P-{each}"}
    found = {key: value for key, value in {**usual, **(labels or {})}.items() if value is not None}
    listed = {chip: {"IP": "", "SuperDeviceID": 0} for chip in chips(*range(count))}
    notes = {"baseDeviceInfos": str(listed).replace("'", '"') if base is None else base, **(annotations or {})}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": notes, "labels": found},
        "spec": {}, "status": {"allocatable": room, "capacity": dict(room)},
    }  # fmt: skip


def gathered(nodes: Mapping[str, int | Json], number: int = 0) -> Json:
    """ClusterD's ConfigMap: per node how many chips are free, or its ``DeviceInfo``."""
    return render_gathered_devices(
        {name: device_info(chips(*range(info))) if isinstance(info, int) else info for name, info in nodes.items()}, number
    )


def core_node(
    name: str, count: int = 1, *, info: Json | None = None, host: str = "", reported: bool = True, **more: Any
) -> Node:
    """The same as a value, with what ClusterD reports of it."""
    node = convert(Node, core_node_object(name, count, **more))
    if reported:
        node.reports = report_of(name, gathered({name: count if info is None else info}))
    if host:
        node.reports["host"] = host
    return node


def report_of(node: str, config_map: Json) -> dict[str, str]:
    found = read_gathered(convert(ConfigMap, config_map))
    return {found.about: found.said[node]} if node in found.said else {}


def core_labels(level: str | None = "low", dvpp: str | None = "null", ring: str | None = "ascend-310P") -> dict[str, str]:
    found = {"ring-controller.atlas": ring, "vnpu-level": level, "vnpu-dvpp": dvpp}
    return {key: value for key, value in found.items() if value is not None}


def core_pod_object(name: str, cores: Any, level: str | None = "low", dvpp: str | None = "null", **more: Any) -> Json:
    return pod(name, limits={CORE: str(cores)}, labels=core_labels(level, dvpp), **more)


def core_pod(
    name: str, *cores: Any, level: str | None = "low", dvpp: str | None = "null", ring: str | None = "ascend-310P",
    init: Sequence[Any] = (), annotations: Mapping[str, str] | None = None, node: str = "",
    status: Mapping[str, Any] | None = None,
) -> Pod:  # fmt: skip
    """A pod whose containers want so many AI cores; None for one that wants none."""

    def containers(amounts: Iterable[Any], prefix: str) -> list[Json]:
        wanted = [{} if amount is None else {CORE: amount} for amount in amounts]
        return [{"name": f"{prefix}{at}", "resources": {"limits": w, "requests": w}} for at, w in enumerate(wanted)]

    return convert(Pod, {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": dict(annotations or {}),
                     "labels": core_labels(level, dvpp, ring)},
        "spec": {"nodeName": node, "containers": containers(cores, "c"), "initContainers": containers(init, "i")},
        "status": dict(status or {}),
    })  # fmt: skip


def slice_made(ledger: TinyLedger, pod: Pod, rng: Random) -> None:
    """The node's plugin has made what the scheduler decided for a placed pod, in some free vGroup, and says so."""
    placed, allocation = ledger.allocated[pod.metadata.uid]
    slot = allocation.container_devices[0].slot
    notes = ledger.device_type.annotations(allocation, 0)
    if slot is not None:
        allocated = [
            container_device
            for usage in ledger.usages(allocation.node)
            for container_devices in usage.holders.values()
            for container_device in container_devices
        ]
        beside = {
            container_device.slot.number
            for container_device in allocated
            if container_device.card == allocation.container_devices[0].card and container_device.slot is not None
        }
        group = rng.choice([number for number in range(4) if number not in beside] or [rng.randrange(4)])
        chip = chip_number("Ascend310P", allocation.container_devices[0].uuid) or 0
        made = RealSlice("Ascend310P", slice_kinds()["Ascend310P"].templates[slot.profile].word, 100 + 16 * chip, chip, group)
        notes["huawei.com/AscendReal"] = render_real_slice(made)
    ledger.replay(replace(placed, metadata=replace(placed.metadata, annotations=notes),
                          spec=replace(placed.spec, node_name=allocation.node)), allocation.node)  # fmt: skip


def cut_world(conf: str, *nodes: Sequence[Sequence[str]]) -> World:
    """Nodes n0, n1, … under a scheduler, with chips on which slices of these templates are."""
    world, templates = World(conf), slice_kinds()["Ascend310P"].templates
    world.add(*(core_node_object(f"n{at}", len(allocated)) for at, allocated in enumerate(nodes)))
    world.add(gathered({f"n{at}": len(allocated) for at, allocated in enumerate(nodes)}))
    for at, allocated in enumerate(nodes):
        for chip, names in enumerate(allocated):
            for number, name in enumerate(names):
                template = templates[name]
                real = render_real_slice(RealSlice("Ascend310P", template.word, 100 + 16 * chip + number, chip, number))
                notes = {CORE: f"{chip}-{name}", "huawei.com/AscendReal": real, "predicate-time": "1"}
                level = "high" if template.cpus == template.cores > 1 else "low"
                one = core_pod_object(f"r{at}-{chip}-{number}", template.cores, level, annotations=notes, nodeName=f"n{at}")
                world.add({**one, "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}})
    world.settle()
    return world


def own_host(node: str, info: Mapping[str, Any]) -> dict[str, Any]:
    """The ConfigMap of a node's NodeD."""
    body = json.dumps({"NodeInfo": info, "CheckCode": check_code(info, HOST)})
    meta = {"name": f"mindx-dl-nodeinfo-{node}", "namespace": "mindx-dl", "labels": {"mx-consumer-cim": "true"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"NodeInfo": body}}
