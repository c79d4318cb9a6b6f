"""A case file for the commands that answer from one."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kit.device_world import V100, card, limits, pod_of, vgpu_node
from kit.scheduler_confs import conf, sharing
from pumice.cli.casefile import Case, decisions_of, save, trimmed
from pumice.wire import names
from pumice.wire.objects import Node, Pod

CONF = conf("gang", "predicates", sharing("VGPU", SchedulePolicy="binpack"), actions="enqueue, allocate")


def write_case(folder: Path) -> Path:
    """Two V100 on one node, one of them half full, and pods that wait."""
    node = vgpu_node("n1", card("GPU-aaa", 16384, 10, V100), card("GPU-bbb", 16384, 10, V100))
    node.status.allocatable["pods"] = 110
    old = pod_of("old", limits(1, 10000), node="n1", annotations={names.VGPU_IDS: "GPU-aaa,NVIDIA,10000,0:"})
    old.status.phase = "Running"
    pods = [old]
    for name, wanted in {"both": limits(2, 8000), "gib": limits(1, "8Gi"), "bytes": limits(1, 8589934592 // 4)}.items():
        pod = pod_of(name, wanted)
        pod.spec.scheduler_name, pod.status.phase = "volcano", "Pending"
        pods.append(pod)
    objects = {
        "nodes": [trimmed(msgspec.to_builtins(node), Node)],
        "pods": [trimmed(msgspec.to_builtins(pod), Pod) for pod in pods],
    }
    case = Case(now=1000.0, scheduler_conf=CONF, objects=objects)
    case.decisions = decisions_of(case)
    path = folder / "case.json"
    path.write_text(save(case))
    return path
