"""The vector path ranks nodes exactly as the scalar path decides, on random nodes, usage and requests."""

from __future__ import annotations

import random

import numpy as np
import pytest
from kit.device_world import A100, V100, TinyLedger, card, device_settings, limits, pod_of, vgpu_node
from kit.npu_core_world import chips, core_device_type, core_node, core_pod, device_info, slice_made
from kit.npu_world import chip, npu_device_type, npu_limits, npu_node, npu_pod

from pumice.devices.nvidia_gpushare.scheduling import NvidiaGpushare
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import Columns, DeviceRequest, DeviceSharing, Fit
from pumice.model.cards import Mode
from pumice.wire import names
from pumice.wire.objects import Node, Pod, convert

TYPES = (V100, A100, "NVIDIA-NVIDIA A100-SXM4-80GB", "NVIDIA-Tesla T4")


def columns_of(ledger: TinyLedger, nodes: list[str], width: int) -> Columns:
    """Return the scheduler's state, written the plain way."""
    shape = (len(nodes), width)
    numbers = {name: np.zeros(shape, np.int64) for name in ("total", "memory", "cores", "shares", "share_limit")}
    flags, mig = np.zeros(shape, bool), np.zeros(shape, bool)
    type_id, state = np.full(shape, -1, np.int32), np.full(shape, -1, np.int32)
    types: dict[str, int] = {}
    for row, name in enumerate(nodes):
        inventory = ledger.inventories.get(name)
        for at, usage in enumerate(ledger.usages(name) if inventory else ()):
            assert inventory is not None
            facts = inventory.cards[at]
            numbers["total"][row, at], numbers["share_limit"][row, at] = facts.total, facts.shares
            numbers["memory"][row, at], numbers["cores"][row, at] = usage.memory, usage.cores
            numbers["shares"][row, at] = usage.shares
            flags[row, at] = facts.healthy and not facts.blocked and at not in ledger.doubts.get(name, {})
            mig[row, at] = facts.mode is Mode.MIG
            type_id[row, at] = types.setdefault(facts.type, len(types))
            state[row, at] = ledger.device_type.ranking.card_state(at, usage, inventory)
    return Columns(**numbers, flags=flags, mig=mig, type_id=type_id, types=tuple(types), state=state)


def random_node(rng: random.Random, name: str, *, places: bool = False) -> Node:
    kind, mode = rng.choice(TYPES), rng.choice(("hami-core", "hami-core", "mig", "both"))
    total = {A100: 40960, TYPES[2]: 81920}.get(kind, 16384)
    cards = [
        card(f"GPU-{name}-{i}", total, rng.choice((2, 10)), kind, healthy=rng.random() > 0.1,
             mode=rng.choice(("mig", "hami-core")) if mode == "both" else mode, places=places)
        for i in range(rng.randint(0, 8))
    ]  # fmt: skip
    notes = {names.CORDONED_CARDS: "0"} if rng.random() < 0.1 else {}
    if rng.random() < 0.3:
        peers = [(f"GPU-{name}-{rng.randint(0, 7)}", rng.randint(1, 4)) for _ in cards]
        notes[names.CARD_TOPOLOGY] = "".join(
            f"GPU-{name}-{i},{rng.randint(0, 1)},{peer}={width}:" for i, (peer, width) in enumerate(peers)
        )
    return vgpu_node(name, *cards, annotations=notes)


def random_pod(rng: random.Random, number: int) -> Pod:
    containers = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        cores = rng.choice((0, 0, 10, 50, 100, 101))
        count = rng.choice((1, 1, 1, 2, 3, 8))
        kind = rng.random()
        if kind < 0.2:
            containers.append(limits(count, None, cores, rng.choice((None, 0, 12, 30, 50, 99, 100, 150))))
        else:
            containers.append(limits(count, rng.choice((100, 3000, 5120, 8000, 10000, 16384, 20000, 70000)), cores))
    notes = {}
    if rng.random() < 0.4:
        notes[names.VGPU_MODE] = rng.choice(("mig", "hami-core", ""))
    if rng.random() < 0.2:
        notes[names.USE_GPU_TYPE] = rng.choice(("a100", "v100,t4"))
    if rng.random() < 0.2:
        notes[names.CARD_POLICY] = rng.choice(("spread", "binpack"))
    if rng.random() < 0.2:
        notes[names.NODE_POLICY] = rng.choice(("spread", "binpack"))
    return pod_of(f"p{number}", *containers, annotations=notes)


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
@pytest.mark.parametrize("mig_policy", ["listed", "tightest", "expected"])
@pytest.mark.parametrize("off_group", [False, True])
def test_the_vector_path_says_what_the_scalar_path_decides(policy: str, mig_policy: str, off_group: bool) -> None:
    ranked = 0
    for seed in range(4):
        rng = random.Random(f"{seed}{policy}{mig_policy}")
        settings = device_settings(policy=policy, mig_policy=mig_policy, mig_off_group=off_group)
        ledger = TinyLedger(NvidiaVgpu(None, settings))
        nodes = [f"n{i}" for i in range(6)]
        for name in nodes:
            ledger.add_node(random_node(rng, name, places=off_group and rng.random() < 0.6))
        for number in range(40):
            pod = random_pod(rng, number)
            node = rng.choice(nodes)
            if number % 4 == 0:
                ranked += check(ledger, nodes, pod)
            if node in ledger.inventories:
                ledger.place(pod, node)
    assert ranked > 15


def check(ledger: TinyLedger, nodes: list[str], pod: Pod) -> int:
    device_request = ledger.device_type.device_request(pod)
    assert isinstance(device_request, DeviceRequest)
    answer = ledger.device_type.ranking.vector(device_request, columns_of(ledger, nodes, 8))
    if answer is None:
        return 0
    for row, name in enumerate(nodes):
        outcome = ledger.try_pod(pod, name)
        if np.isnan(answer[1][row]):
            assert answer[0][row], "what only the scalar path can tell is kept open"
            continue
        assert answer[0][row] == isinstance(outcome, Fit), f"{pod} on {name}: {outcome}"
        if isinstance(outcome, Fit):
            assert answer[1][row] == outcome.score, f"{pod} on {name}"  # bit for bit: ties decide
    return 1 - int(np.isnan(answer[1]).all())


@pytest.mark.parametrize("number", [False, True])
def test_the_legacy_vector_path_agrees_too(number: bool) -> None:
    rng = random.Random(int(number))
    device_type: DeviceSharing = NvidiaGpushare(number=number)
    ledger = TinyLedger(device_type)
    nodes = [f"n{i}" for i in range(5)]
    for name in nodes:
        capacity = {names.GPU_MEMORY: 8000 * rng.randint(1, 4), names.GPU_NUMBER: rng.randint(1, 8)}
        notes = {names.NODE_GPU_UNHEALTHY_IDS: "1"}
        ledger.add_node(
            convert(Node, {"metadata": {"name": name, "annotations": notes}, "status": {"capacity": capacity}})
        )
    for step in range(60):
        amount = rng.randint(1, 3) if number else rng.choice((500, 1500, 4000))
        pod = pod_of(f"p{step}", {names.GPU_NUMBER if number else names.GPU_MEMORY: amount})
        assert check(ledger, nodes, pod)
        ledger.place(pod, rng.choice(nodes))


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
@pytest.mark.parametrize("kind", ["310P3", "910B3", "Ascend910"])
def test_the_vector_path_of_npus_agrees_too(kind: str, policy: str) -> None:
    ranked = 0
    for seed in range(4):
        rng = random.Random(f"{seed}{kind}{policy}")
        ledger = TinyLedger(npu_device_type(kind, policy))
        nodes = [f"n{i}" for i in range(5)]
        for name in nodes:
            unhealthy = tuple(at for at in range(8) if rng.random() < 0.1)
            ledger.add_node(
                npu_node(name, chip(kind), rng.randint(0, 8), unhealthy=unhealthy, soft=rng.choice((None, True, False)))
            )
        for step in range(60):
            soft = rng.random() < 0.4
            device_requests = [
                npu_limits(chip(kind), rng.choice((1, 1, 1, 2)), rng.choice((None, 1024, 3072, 9000, 20000)),
                           rng.choice((None, 20, 50, 100)) if soft else None)
                for _ in range(rng.choice((1, 1, 1, 2)))
            ]  # fmt: skip
            pod = npu_pod(f"p{step}", *device_requests, soft=soft)
            if isinstance(ledger.device_type.device_request(pod), DeviceRequest):
                ranked += check(ledger, nodes, pod)
            node = rng.choice(nodes)
            if node in ledger.inventories:
                ledger.place(pod, node)
    assert ranked > 15


def test_the_vector_path_of_chips_cut_on_demand_agrees_too() -> None:
    ranked = 0
    for seed in range(5):
        rng = random.Random(seed)
        ledger = TinyLedger(core_device_type(weight=rng.choice((None, 1)), npu_self_maintained=rng.random() < 0.5))
        nodes = [f"n{i}" for i in range(5)]
        for name in nodes:
            count = rng.randint(1, 4)
            listed = [chip for chip in range(count) if rng.random() < 0.8]
            unhealthy = [chip for chip in range(count) if rng.random() < 0.1]
            labels = {"servertype": rng.choice(("Ascend310P-8",) * 6 + ("Ascend310P-10", "x"))}
            info = device_info(chips(*listed), chips(*unhealthy))
            ledger.add_node(core_node(name, count, capacity=40 * count, labels=labels, info=info))
        for step in range(60):
            pod = core_pod(f"p{step}", rng.choice((1, 2, 2, 4, 4, 8, 10, 16)), level=rng.choice(("low", "high")),
                           dvpp=rng.choice(("null", "null", "null", "yes", "no")))  # fmt: skip
            if isinstance(ledger.device_type.device_request(pod), DeviceRequest):
                ranked += check(ledger, nodes, pod)
            if isinstance(ledger.place(pod, rng.choice(nodes)), Fit) and rng.random() < 0.8:
                slice_made(ledger, pod, rng)
            if ledger.allocated and rng.random() < 0.2:
                ledger.leave(ledger.allocated[rng.choice(sorted(ledger.allocated))][0])
    assert ranked > 15
