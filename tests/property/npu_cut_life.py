"""Pods come and go on one node of 310P chips: the scheduler decides, the plugin's mind has the emulated driver make the slices,
and tells what it made.   PUMICE_MACHINE=DIR python -m tests.property.npu_cut_life SEED STEPS

A program of its own, because the driver's library serves one machine in one process. Prints as JSON what was refused that the
scheduler had decided, and how many pods of each template were served.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from kit.engine_world import World
from kit.npu_core_world import CORE, core_node_object, core_pod_object, gathered
from kit.scheduler_confs import conf, sharing

from pumice.adapters.dcmi import DcmiCards, DcmiVnpus
from pumice.adapters.journal import FileJournal
from pumice.devices.ascend_mindcluster.node.allocator import ChipAllocator
from pumice.devices.ascend_mindcluster.node.keeper import ChipKeeper, ids_text, realised, report
from pumice.model.hardware.npu import slice_kinds
from pumice.node.pods import NodePod
from pumice.node.protocol import Partition
from pumice.ports.slices import NpuRefused
from pumice.wire.objects import convert
from pumice_lab.machine.native import library_dir

NODE = "n1"
CONF = conf("predicates", sharing("AscendMindClusterVNPU"))
BOUND = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}


class Life:
    def __init__(self, seed: int, machine: Path) -> None:
        self.rng = random.Random(seed)
        place = str(library_dir())
        self.kind = slice_kinds()["Ascend310P"]
        self.cards = DcmiCards(place).facts()
        self.chips = ChipAllocator(NODE, self.kind, 8)
        self.chips.show(self.cards)
        self.keeper = ChipKeeper(self.kind.name, DcmiVnpus(place), FileJournal(machine / "cut.json"))
        self.world = World(CONF)
        self.world.add(core_node_object(NODE, len(self.cards)), gathered({NODE: len(self.cards)}))
        self.record: dict[str, str] = {}
        self.refused: list[str] = []
        self.served: Counter[str] = Counter()
        self.count = 0

    def step(self) -> None:
        act = self.rng.choices([self.arrive, self.serve, self.announce, self.leave], [4, 5, 4, 2])[0]
        act()
        self.world.settle()

    # -- what happens ------------------------------------------------------------------------------------------------------

    def arrive(self) -> None:
        if len([pod for pod in self.world.pods.values() if not pod["spec"].get("nodeName")]) < 4:
            self.count += 1
            cores = self.rng.choices([1, 2, 4, 8], [4, 3, 2, 1])[0]
            dvpp = self.rng.choice(["null", "null", "yes", "no"]) if cores == 4 else "null"
            self.world.add(core_pod_object(f"p{self.count}", cores, self.rng.choice(["low", "high"]), dvpp))

    def serve(self) -> None:
        """The kubelet asks for a pod that was bound, with whatever ids are free."""
        waiting = [pod for pod in self.bound() if pod["metadata"]["uid"] not in self.record]
        if not waiting:
            return
        cores = int(waiting[0]["spec"]["containers"][0]["resources"]["limits"][CORE])
        taken = {one for text in self.record.values() for one in text.split(",")}
        ids = self.rng.sample(sorted({f"npu-core-{at}" for at in range(8 * len(self.cards))} - taken), cores)
        decision = self.chips.allocate([self.as_seen(pod) for pod in waiting], ids)
        if not isinstance(decision, Partition):
            self.refused.append(f"{waiting[0]['metadata']['annotations']}: {decision}")
            return
        template = decision.places[0].profile or "whole"
        try:
            given, _ = self.keeper.give(decision.places, decision.pod.uid, ids, self.chips.chips.values(), self)
        except NpuRefused as error:
            self.refused.append(f"{decision.pod.key} {template}: {error}")
            return
        serve = decision.then(given)
        self.record[decision.pod.uid] = ids_text(ids)
        assert serve.patch is not None
        self.annotate(serve.patch.name, serve.patch.annotations)
        self.served[template] += 1

    def announce(self) -> None:
        state = self.keeper.sweep(self.chips.chips.values(), self, self.record, set(self.record))
        for patch in list(realised(map(self.as_seen, self.bound()), self.record, state, self.chips.chips, self.kind)):
            self.annotate(patch.name, patch.annotations)
        self.world.add(gathered({NODE: report(self.kind.name, self.chips.chips, {}, state, 1)}))

    def leave(self) -> None:
        if self.world.pods:
            pod = self.rng.choice(sorted(self.world.pods.values(), key=lambda found: found["metadata"]["name"]))
            self.record.pop(pod["metadata"]["uid"], None)
            self.world.delete_pod(pod["metadata"]["name"])

    # -- what is there -----------------------------------------------------------------------------------------------------

    def bound(self) -> list[Any]:
        return [pod for pod in self.world.pods.values() if pod["spec"].get("nodeName")]

    def as_seen(self, pod: Any) -> NodePod:
        return convert(NodePod, {**pod, "status": BOUND})

    def annotate(self, name: str, notes: Any) -> None:
        pod = self.world.pods[f"default/{name}"]
        pod["metadata"]["annotations"] |= notes
        self.world.add(pod)

    def runs(self, uid: str) -> str:
        return uid if any(pod["metadata"]["uid"] == uid for pod in self.world.pods.values()) else ""

    holds = runs


def main(seed: int, steps: int) -> None:
    life = Life(seed, Path(os.environ["PUMICE_MACHINE"]))
    for _ in range(steps):
        life.step()
    print(json.dumps({"refused": life.refused, "served": life.served}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
