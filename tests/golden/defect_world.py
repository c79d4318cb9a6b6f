"""A cluster in a few lines for the tests of upstream's defects (``tests/golden/test_defects_*``)."""

from __future__ import annotations

from typing import Any

from kit.device_world import A100, TinyLedger, card, device_settings, limits, pod_of, vgpu_node

from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.scheduler.state.state import State
from pumice.wire import names, volcano
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.nvidia_vgpu import parse_pod_devices
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue

VGPU = {"deviceshare.VGPUEnable": True, "deviceshare.SchedulePolicy": "binpack"}


def conf(arguments: dict[str, Any] | None = None, plugins: tuple[str, ...] = ("predicates",)) -> str:
    lines = ['actions: "enqueue, allocate, backfill"', "tiers:", "- plugins:"]
    lines += [f"  - name: {name}" for name in ("gang", *plugins)]
    lines += ["  - name: deviceshare", "    arguments:"]
    return "\n".join([*lines, *(f"      {key}: {value!r}".replace("True", "true") for key, value in (arguments or VGPU).items())])


def engine(*nodes: Node, text: str | None = None) -> Engine:
    made = Engine(parse_scheduler_conf(text or conf()), None, State())
    made.state.groups.put_queue(convert(Queue, volcano.default_queue("default", reclaimable=True)))
    for node in nodes:
        node.status.allocatable |= {"pods": 110}
        made.state.bookings.put_node(node)
    return made


def pending(name: str, *containers: dict[str, Any], **more: Any) -> Pod:
    pod = pod_of(name, *containers, **more)
    pod.spec.scheduler_name, pod.status.phase = "volcano", "Pending"
    return pod


def bound(name: str, ids: str, node: str = "n1", written_for: str = "", **more: Any) -> Pod:
    """A running pod that asks for what ``ids`` give it."""
    parts = parse_pod_devices(ids).containers
    pod = pod_of(name, *(limits(len(d), d[0].memory, d[0].cores) for d in parts), node=node, **more)
    pod.metadata.annotations |= {names.VGPU_IDS: ids, names.VGPU_NODE: written_for or node}
    pod.spec.scheduler_name, pod.status.phase = "volcano", "Running"
    return pod


def binds(made: Engine, now: float = 10.0) -> dict[str, str]:
    return {e.name: e.annotations[names.VGPU_IDS] for e in made.cycle(now).effects if isinstance(e, Bind)}


def used(made: Engine, node: str = "n1") -> list[tuple[int, int, int]]:
    return [(u.shares, u.memory, u.cores) for u in made.state.ledger.device_tables["nvidia-vgpu"].nodes[node].usages]


def two_cards() -> Node:
    return vgpu_node("n1", card("GPU-aaa"), card("GPU-bbb"))


def ledger(node: Node, policy: str = "binpack", config: str = "", **settings: Any) -> TinyLedger:
    device_type = NvidiaVgpu(parse_device_config(config), device_settings(policy=policy, **settings))
    made = TinyLedger(device_type)
    made.add_node(node)
    return made


def mig_node() -> Node:
    return vgpu_node("n1", card("GPU-m1", 40960, 10, A100, mode="mig"))
