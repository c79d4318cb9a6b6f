"""The cost of the first pod of a class on 1,000 nodes of 8 cards, no two alike, by the shape of the request.

The first pod of a class looks at every node, by arrays where the shape allows it. Printed beside it: the same class looked at
node by node (``fit`` alone). Both must find the same nodes and scores. ``python -m benchmarks.class_cost [--quick] [--save]``
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kit.device_world import A100, V100, card, device_settings, limits, pod_of, vgpu_node
from kit.results import arguments, save

from benchmarks.report import median
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest, Fit
from pumice.scheduler.state.cards import DeviceTable
from pumice.wire import names
from pumice.wire.objects import Pod

MINUTES = 1
RULES = ((("app", "training"),),)
SHAPES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "one share": ("hami-core", {"containers": [limits(1, 3000, 20)]}),
    "two cards": ("hami-core", {"containers": [limits(2, 3000, 20)]}),
    "eight cards": ("hami-core", {"containers": [limits(8, 1000, 10)]}),
    "whole cards": ("hami-core", {"containers": [limits(2)]}),
    "three containers": ("hami-core", {"containers": [limits(1, 3000, 10)] * 3}),
    "allowed cards": ("hami-core", {
        "containers": [limits(1, 3000, 20)],
        "annotations": {names.USE_GPU_UUID: ",".join(f"GPU-{n}-{n % 8}" for n in range(0, 1000, 50))}}),
    "denied cards": ("hami-core", {
        "containers": [limits(1, 3000, 20)],
        "annotations": {names.NOUSE_GPU_UUID: ",".join(f"GPU-{n}-{n % 8}" for n in range(0, 1000, 50))}}),
    "PodGroup spread": ("hami-core", {
        "containers": [limits(1, 3000, 20)],
        "annotations": {names.PODGROUP_POLICY: "spread", names.GROUP_NAME: "job-3"}}),
    "exclusive rule": ("hami-core", {"containers": [limits(1, 3000, 20)], "labels": {"app": "training"}}),
    "one MIG slot": ("mig", {"containers": [limits(1, 3000)]}),
    "two MIG slots": ("mig", {"containers": [limits(2, 3000)]}),
    "eight MIG slots": ("mig", {"containers": [limits(8, 3000)]}),
    "MIG, two containers": ("mig", {"containers": [limits(1, 3000), limits(1, 9000)]}),
}  # fmt: skip


def world(mode: str, nodes: int, mig_policy: str) -> DeviceTable:
    """Nodes of eight cards with random pods on them; every twentieth node has one of PodGroup job-3 and of the rule."""
    device_type = NvidiaVgpu(None, device_settings(policy="binpack", mig_policy=mig_policy, rules=RULES))
    device_table = DeviceTable(device_type)
    rng = random.Random(7)
    for number in range(nodes):
        cards = (card(f"GPU-{number}-{i}", 40960 if mode == "mig" else 16384, 10, A100 if mode == "mig" else V100, mode=mode)
                 for i in range(8))  # fmt: skip
        name = f"n{number}"
        device_table.put(name, number, device_type.inventory(vgpu_node(name, *cards)), nodes)
        for pod_number in range(rng.randint(3, 10)):
            wanted = limits(1, rng.choice((4000, 9000, 18000)) if mode == "mig" else rng.randint(500, 5000), 5)
            special = number % 20 == 0 and pod_number == 0
            notes = {names.GROUP_NAME: "job-3" if special else f"job-{rng.randint(4, 99)}"}
            pod = pod_of(f"b{number}-{pod_number}", wanted, annotations=notes, labels={"app": "training"} if special else None)
            device_request = device_type.device_request(pod)
            assert isinstance(device_request, DeviceRequest)
            fit = device_type.fit(device_request, device_table.view(name))
            if isinstance(fit, Fit):
                device_table.charge(pod.metadata.uid, fit.allocation, device_type.marks(pod))
    return device_table


def by_node(device_table: DeviceTable, device_request: DeviceRequest, nodes: int) -> tuple[list[bool], list[float]]:
    found = [device_table.device_type.fit(device_request, device_table.view(f"n{number}")) for number in range(nodes)]
    return [isinstance(f, Fit) for f in found], [f.score if isinstance(f, Fit) else 0.0 for f in found]


def measure(shape: str, nodes: int, runs: int, mig_policy: str = "listed") -> dict[str, Any]:
    mode, wanted = SHAPES[shape]
    device_table = world(mode, nodes, mig_policy)
    first, scalar = [], []
    for number in range(runs):
        # Another amount of memory each time: a class that was never seen.
        containers = [{**c, **({names.VGPU_MEMORY: c[names.VGPU_MEMORY] + number} if names.VGPU_MEMORY in c else {})}
                      for c in wanted["containers"]]  # fmt: skip
        pod = pod_of(f"p{number}", *containers, annotations=wanted.get("annotations"), labels=wanted.get("labels"))
        begin = time.perf_counter()
        may, score = everywhere(device_table, pod, nodes)
        first.append(1e3 * (time.perf_counter() - begin))
        device_request = device_table.device_type.device_request(pod)
        assert isinstance(device_request, DeviceRequest)
        begin = time.perf_counter()
        fits, scores = by_node(device_table, device_request, nodes)
        scalar.append(1e3 * (time.perf_counter() - begin))
        assert may.tolist() == fits, shape
        assert np.where(may, score, 0.0).tolist() == scores, shape
    return {"first_ms": median(first), "node_by_node_ms": median(scalar), "nodes_that_fit": int(may.sum())}


def everywhere(device_table: DeviceTable, pod: Pod, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The first look of a class at every node, as the placer does it."""
    device_request = device_table.device_type.device_request(pod)
    assert isinstance(device_request, DeviceRequest)
    found = device_table.rank(device_request, None, nodes)
    if found is not None:
        return found
    fits, scores = by_node(device_table, device_request, nodes)
    return np.array(fits), np.array(scores)


def main() -> int:
    options = arguments(__doc__, quick="200 nodes, three runs")
    chosen = options.parse_args()
    nodes, runs = (200, 3) if chosen.quick else (1000, 9)
    result = {
        f"{shape}{f', {policy}' if mode == 'mig' else ''}": measure(shape, nodes, runs, policy)
        for shape, (mode, _) in SHAPES.items()
        for policy in (("listed", "tightest") if mode == "mig" else ("listed",))
    }
    save("class_cost", {"nodes": nodes, "cards": 8 * nodes, "shapes": result}, keep=chosen.save)
    worst = max(found["first_ms"]["median"] for found in result.values())
    print(f"dearest shape: {worst:.2f} ms", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
