"""Pods of one claim each in process: 5,000 nodes of 8 GPUs that publish slices, and pods that wait for a device by claim.

Decisions a second of CPU time, with the binding of each shown before the next cycle, and the longest cycle, within the bound that
the daemon has. Beside it Kubernetes' own allocator, made of all slices for each pod and asked about one node, where `make kube`
built it; its scheduler asks it about hundreds.
`python -m benchmarks.claims [--quick] [--save]`
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from kit.claims import Cluster, asks, claim, device, published
from kit.objects import node, pod, queue
from kit.results import arguments

from benchmarks.goals import goals_of
from benchmarks.report import conclude, median
from pumice.apps.service.garbage import Garbage
from pumice.audit import claim_rules
from pumice.effects.vocabulary import Bind
from pumice.scheduler.engine import Engine
from pumice.wire.objects import Node, Pod, convert
from pumice.wire.scheduler_conf import parse_scheduler_conf
from pumice.wire.volcano import Queue
from pumice_lab.first_objects import SCHEDULER_CONF

MINUTES = 1
CARDS = 8
BUDGET = 0.035
"""Of a cycle, as the daemon's."""
GPU = {"kind": "DeviceClass", "metadata": {"name": "gpu"},
       "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}}  # fmt: skip
Json = dict[str, Any]


class Claiming:
    """An engine, what its drivers publish, and the pods and claims that come."""

    def __init__(self, nodes: int) -> None:
        self.engine = Engine(parse_scheduler_conf(SCHEDULER_CONF))
        self.state = self.engine.state
        self.version = 0
        self.claims: dict[str, Json] = {}
        self.slices = [_slice(f"n{at:04d}") for at in range(nodes)]
        for name in ("root", "default"):
            self.state.groups.put_queue(convert(Queue, queue(name)))
        self.state.device_claims.put_class(GPU)
        for one in self.slices:
            self.state.bookings.put_node(convert(Node, node(one["spec"]["nodeName"], cpu="96")))
            self.state.device_claims.put_slice(one)

    def come(self, name: str) -> None:
        """A pod with a claim made of a template."""
        uid, key = f"uid-{name}", f"default/{name}-gpu"
        owner = {"kind": "Pod", "name": name, "uid": uid, "controller": True}
        made = {"kind": "ResourceClaim", "spec": claim(asks())["spec"],
                "metadata": {"name": f"{name}-gpu", "namespace": "default", "uid": f"claim-{name}", "ownerReferences": [owner]}}
        self._show(key, made)
        obj = pod(name, cpu="1", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}])
        obj["metadata"]["uid"] = uid
        obj["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]
        self.state.pods.put(convert(Pod, obj))

    def _show(self, key: str, made: Json) -> None:
        self.version += 1
        made["metadata"]["resourceVersion"] = str(self.version)
        self.claims[key] = made
        self.state.device_claims.put_claim(made)

    def bound(self, effect: Bind) -> None:
        """The claims were written; the pod is bound."""
        (one,) = effect.device_claims
        key = f"{one.namespace}/{one.name}"
        status = {"allocation": one.allocation, "reservedFor": [{"resource": "pods", "name": effect.name, "uid": effect.uid}]}
        self._show(key, {**self.claims[key], "status": status})
        self.engine.bound(effect.uid)

    def play(self, pods: int) -> tuple[float, float]:
        """Let so many come at once, and place all of them. Returns CPU seconds of all cycles, and of the longest."""
        for at in range(pods):
            self.come(f"p{at}")
        garbage, rng, cycles, now, placed = Garbage(), random.Random(1), list[float](), 1.0, 0
        garbage.hold_back()
        try:
            while placed < pods and len(cycles) < 100 * pods:
                began = time.process_time()
                plan = self.engine.cycle(now, rng, budget=BUDGET, tick=time.process_time)
                cycles.append(time.process_time() - began)
                bindings = [effect for effect in plan.effects if isinstance(effect, Bind)]
                for effect in bindings:
                    self.bound(effect)
                placed += len(bindings)
                now += 0.1
                garbage.tidy(idle=False)
        finally:
            garbage.let_go()
        self.check(pods)
        return sum(cycles), max(cycles)

    def check(self, pods: int) -> None:
        """Every pod has one device of its own."""
        results = [one for made in self.claims.values() for one in claim_rules.results(made)]
        held = [(one["driver"], one["pool"], one["device"]) for one in results]
        assert len(held) == len(set(held)) == pods, f"{pods} pods hold {len(held)} devices, {len(set(held))} of them different"
        assert not (found := list(claim_rules.overbooked(self.claims.values(), self.slices))), found[:3]


def _slice(name: str) -> Json:
    devices = (device(f"gpu-{at}", attributes={"uuid": {"string": f"GPU-{name}-{at}"}}) for at in range(CARDS))
    return {"kind": "ResourceSlice", **published(*devices, name=f"s-{name}", pool=name, nodeName=name)}


def kubernetes(nodes: int, questions: int) -> float | str:
    """Return how many such claims a second of CPU time its allocator serves on the first of the nodes, made of all slices as its
    scheduler makes one for each pod; or why that is not known."""
    path = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nowhere"), "allocator")
    if not path.exists():
        return "its allocator is not in KUBEBUILDER_ASSETS: make kube"
    asked = Cluster(*(_slice(f"n{at}") for at in range(1, nodes + 1))).question(claim(asks()))
    line = json.dumps(asked) + "\n"
    said = subprocess.run([path], input=line * questions, capture_output=True, text=True, check=True).stdout
    answers = [json.loads(one) for one in said.splitlines()]
    assert len(answers) == questions
    assert all(one["allocations"] for one in answers)
    if "seconds" not in answers[0]:
        return "its allocator was built before it said what an answer takes: make kube"
    return questions / max(1e-9, sum(one["seconds"] for one in answers))


def main(argv: list[str] | None = None) -> int:
    options = arguments(__doc__, quick="200 nodes, one run").parse_args(argv)
    nodes, pods, runs = (200, 400, 1) if options.quick else (5000, 4000, 3)
    Claiming(20).play(40)  # warm-up
    found = [Claiming(nodes).play(pods) for _ in range(runs)]
    rates, longest = [pods / total for total, _ in found], [1e3 * most for _, most in found]
    result: dict[str, Any] = {
        "nodes": nodes, "pods": pods, "decisions_a_second": median(rates), "longest_cycle_ms": median(longest),
    }  # fmt: skip
    values = {"decisions a second": median(rates)["median"], "longest cycle": median(longest)["median"]}
    theirs = kubernetes(nodes, 10)
    if isinstance(theirs, str):
        result["kubernetes"] = f"not measured: {theirs}"
    else:
        result["kubernetes_allocators_claims_a_second"] = round(theirs, 1)
        values["beside Kubernetes' allocator"] = values["decisions a second"] / theirs
    return conclude("claims", result, goals_of("claims", values), keep=options.save, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
