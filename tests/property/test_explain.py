"""Each change that ``explain`` offers is true and minimal: applied, a fresh scheduler binds the pod; one unit less, not."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from typing import Any

import msgspec
import pytest
from kit.device_world import A100, V100, TinyLedger, card, device_settings, fingerprint, limits, pod_of, vgpu_node
from kit.scheduler_confs import conf, sharing
from kit.seeds import chosen_seed

from pumice.cli.cluster_snapshot import ClusterSnapshot, engine_of, trimmed
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.offers import Change
from pumice.devices.protocol import Fit
from pumice.effects.vocabulary import Bind
from pumice.scheduler.explaining.explain import explain
from pumice.wire import names
from pumice.wire.objects import Node, Pod

CONF = conf("gang", "predicates", "proportion", sharing("VGPU", SchedulePolicy="binpack", MigOffGroup=True))
KINDS = ("memory", "cores", "cards", "mode", "constraint", "evict", "combined")


def random_world(rng: random.Random) -> tuple[list[Node], list[Pod]]:
    """One to three nodes with bound pods on them, written as the API server has them."""
    ledger = TinyLedger(NvidiaVgpu(None, device_settings(policy=rng.choice(("binpack", "spread")), mig_off_group=True)))
    nodes, bound = [], []
    for n in range(rng.randint(1, 3)):
        mig = rng.random() < 0.3
        kind, total = (A100, 40960) if mig or rng.random() < 0.3 else (V100, 16384)
        cards = [
            card(f"GPU-{n}{i}", total, rng.choice((2, 4, 10)), kind, healthy=rng.random() > 0.1,
                 mode="mig" if mig else "hami-core", places=mig and rng.random() < 0.4)
            for i in range(rng.randint(1, 3))
        ]  # fmt: skip
        node = vgpu_node(f"n{n}", *cards)
        node.status.allocatable |= {"pods": 110, "cpu": "64", "memory": "256Gi"}
        ledger.add_node(node)
        nodes.append(node)
        for i in range(rng.randint(0, 5)):
            cores = rng.choice((0, 10, 40, 70, 100))
            pod = pod_of(f"b{n}{i}", limits(rng.choice((1, 1, 2)), rng.choice((2000, 5000, 9000, 16000)), cores),
                         annotations={names.GROUP_NAME: f"g{i % 2}"})  # fmt: skip
            if isinstance(ledger.place(pod, node.metadata.name), Fit):
                pod.metadata.annotations |= {
                    names.VGPU_IDS: ledger.ids(pod), names.VGPU_NODE: node.metadata.name
                }  # fmt: skip
                pod.metadata.annotations.pop(names.GROUP_NAME)  # bound by itself, not as part of a gang
                pod.spec.node_name, pod.status.phase = node.metadata.name, "Running"
                bound.append(pod)
    return nodes, bound


def random_queue(rng: random.Random, bound: list[Pod]) -> list[dict[str, Any]]:
    """Now and then some of the bound pods are of a queue with limits, of which they may use more than it has."""
    if rng.random() > 0.4:
        return []
    for pod in bound:
        if rng.random() < 0.5:
            pod.metadata.annotations[names.QUEUE_NAME] = "team"
    limits_of = {names.VGPU_MEMORY: (4000, 12000, 30000), names.VGPU_CORES: (60, 150), names.VGPU_NUMBER: (1, 2, 4)}
    chosen = {name: str(rng.choice(values)) for name, values in limits_of.items() if rng.random() < 0.5}
    return [{"metadata": {"name": "team", "uid": "team"}, "spec": {"weight": 1, "capability": chosen}}]


def random_question(rng: random.Random, queues: list[dict[str, Any]]) -> Pod:
    notes: dict[str, str] = {names.QUEUE_NAME: "team"} if queues and rng.random() < 0.7 else {}
    match rng.choice(("plain", "plain", "mode", "mode", "type", "uuid")):
        case "mode":
            notes[names.VGPU_MODE] = rng.choice(("mig", "hami-core"))
        case "type":
            notes[rng.choice((names.USE_GPU_TYPE, names.NOUSE_GPU_TYPE))] = rng.choice(("A100", "V100", "H100"))
        case "uuid":
            notes[rng.choice((names.USE_GPU_UUID, names.NOUSE_GPU_UUID))] = "GPU-00,GPU-10"
    if rng.random() < 0.25:  # little memory and much time: refused for its cores or not at all
        count, memory, cores = 1, rng.choice((500, 1000, 2000)), rng.choice((50, 70, 90, 100))
    else:
        memory = rng.choice((None, 1000, 8000, 14000, 16384, 24000, 50000))
        count, cores = rng.choice((1, 1, 1, 2, 3, 5)), rng.choice((0, 20, 50, 90, 100))
    pod = pod_of("asked", limits(count, memory, cores), annotations=notes)
    for _ in range(rng.choice((0, 0, 1, 2))):
        further = limits(1, rng.choice((2000, 6000, 12000)), rng.choice((0, 10, 60)))
        pod.spec.containers.append(pod_of("x", further).spec.containers[0])
    pod.spec.scheduler_name, pod.status.phase = "volcano", "Pending"
    return pod


def case_of(nodes: list[Node], pods: list[Pod], queues: list[dict[str, Any]]) -> ClusterSnapshot:
    def plain(obj: Any, kind: type[Any]) -> dict[str, Any]:
        return trimmed(msgspec.to_builtins(obj), kind)

    objects = {"nodes": [plain(n, Node) for n in nodes], "pods": [plain(p, Pod) for p in pods], "queues": queues}
    return ClusterSnapshot(now=1000.0, scheduler_conf=CONF, objects=objects)


World = tuple[list[Node], list[Pod], list[dict[str, Any]]]


def is_bound(world: World, pods: list[Pod], pod: Pod) -> bool:
    """Return whether a scheduler that never heard of the question binds the pod in its first cycle."""
    nodes, _, queues = world
    plan = engine_of(case_of(nodes, [*pods, pod], queues)).cycle(1000.0)
    return any(isinstance(effect, Bind) and effect.uid == pod.metadata.uid for effect in plan.effects)


def verify(change: Change, world: World, pod: Pod) -> None:
    bound = world[1]
    staying = [p for p in bound if p.metadata.uid not in change.evict]
    assert is_bound(world, staying, change.pod), f"not true: {change.text}"
    for smaller in change.smaller:
        assert not is_bound(world, bound, smaller), f"not minimal: {change.text}"
    for node in world[0] if change.evict else ():
        theirs = [p for p in bound if p.spec.node_name == node.metadata.name]
        for fewer in (some for size in range(len(change.evict)) for some in combinations(theirs, size)):
            staying = [p for p in bound if p not in fewer]
            assert not is_bound(world, staying, pod), f"not the fewest: {change.text}, when {[p.key for p in fewer]} would do"


def run_worlds(count: int, seed: int, questions: int = 1) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for number in range(count):
        rng = random.Random(f"{seed}-{number}")
        nodes, bound = random_world(rng)
        queues = random_queue(rng, bound)
        for _ in range(questions):
            kinds.update(ask((nodes, bound, queues), random_question(rng, queues)))
    return kinds


def ask(world: World, pod: Pod) -> list[str]:
    """The kinds of changes that were offered for the pod, each of them tried."""
    nodes, bound, queues = world
    found = explain(engine_of(case_of(nodes, [*bound, pod], queues)), pod, now=1000.0)
    placed = is_bound(world, bound, pod)
    assert bool(found.node and not found.gates) == placed, (found.summary, found.gates)
    for change in found.changes:
        verify(change, world, pod)
    if not placed and not world[2] and "evict" not in {change.kind for change in found.changes}:
        for node in nodes:
            assert not is_bound(world, [p for p in bound if p.spec.node_name != node.metadata.name], pod), "who could leave?"
    kinds = [f"{change.kind} for the queue" if found.gates else change.kind for change in found.changes]
    return [*kinds, "fits"] if placed else [*(kinds or ["nothing helps"]), "refused"]


def test_every_change_that_is_offered_is_true_and_minimal() -> None:
    seed = chosen_seed()
    print("seed", seed)
    kinds = run_worlds(25, seed)
    print(dict(kinds))
    assert kinds["refused"] > 3


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_kind_of_change_a_hundred_times_on_a_thousand_worlds() -> None:
    kinds = run_worlds(1000, 1, questions=3)
    print(dict(kinds))
    assert all(kinds[kind] >= 100 for kind in KINDS), dict(kinds)


def test_explaining_changes_nothing() -> None:
    rng = random.Random(7)
    nodes, bound = random_world(rng)
    case = case_of(nodes, [*bound, random_question(rng, [])], [])
    engine = engine_of(case)
    before = fingerprint(engine.state.ledger)
    for number in range(20):
        question = random_question(random.Random(number), [])
        explain(engine, replace_uid(question, number), gates=False)
    assert fingerprint(engine.state.ledger) == before


def replace_uid(pod: Pod, number: int) -> Pod:
    pod.metadata = msgspec.structs.replace(pod.metadata, uid=f"q{number}", name=f"q{number}")
    return pod


