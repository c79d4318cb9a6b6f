"""Asks that name cards, PodGroups or exclusivity rules: ranked by arrays where nothing named is, exactly where it is."""

from __future__ import annotations

import random

import pytest
from kit.device_world import A100, V100, card, device_settings, limits, pod_of, vgpu_node

from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest, Fit, Marks
from pumice.model.cards import Allocation
from pumice.scheduler.state.cards import DeviceTable
from pumice.wire import names
from pumice.wire.objects import Node, Pod

RULES = ((("app", "training"),), (("team", "ml"),))
NODES = 12


def random_node(rng: random.Random, number: int) -> Node:
    mode = rng.choice(("hami-core", "mig"))
    kind, memory = (A100, 40960) if mode == "mig" else (V100, 16384)
    return vgpu_node(f"n{number}", *(card(f"GPU-{number}-{i}", memory, 6, kind, mode=mode) for i in range(rng.randint(1, 4))))


def random_pod(rng: random.Random, number: int) -> Pod:
    notes = {names.GROUP_NAME: f"job-{rng.randint(0, 3)}"} if rng.random() < 0.6 else {}
    if rng.random() < 0.4:
        notes[names.PODGROUP_POLICY] = "spread"
    for key in (names.USE_GPU_UUID, names.NOUSE_GPU_UUID):
        if rng.random() < 0.3:
            uuids = (f"GPU-{rng.randint(0, NODES)}-{rng.randint(0, 4)}" for _ in range(rng.randint(1, 4)))
            notes[key] = ",".join(uuids)
    labels = {key: value for key, value in (("app", "training"), ("team", "ml")) if rng.random() < 0.4}
    containers = [limits(rng.choice((1, 1, 2)), rng.choice((2000, 5000, 9000)), rng.choice((0, 20)))] * rng.choice((1, 1, 2))
    return pod_of(f"p{number}", *containers, annotations=notes, labels=labels)


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
@pytest.mark.parametrize("mig_policy", ["listed", "tightest"])
def test_the_books_rank_as_the_exact_look_decides_whatever_a_pod_names(policy: str, mig_policy: str) -> None:
    compared = special = 0
    for seed in range(3):
        rng = random.Random(f"{seed}{policy}{mig_policy}")
        device_type = NvidiaVgpu(None, device_settings(policy=policy, mig_policy=mig_policy, rules=RULES))
        device_table = DeviceTable(device_type)
        for number in range(NODES):
            device_table.put(f"n{number}", number, device_type.inventory(random_node(rng, number)), NODES)
        held: dict[str, tuple[Allocation, Marks]] = {}
        for step in range(120):
            pod = random_pod(rng, step)
            device_request = device_type.device_request(pod)
            assert isinstance(device_request, DeviceRequest)
            special += device_type.ranking.without_constraints(device_request) is not None
            found = {
                n: device_type.fit(device_request, device_table.view(f"n{n}"))
                for n in range(NODES)
                if f"n{n}" in device_table.nodes
            }
            fits = {n: fit for n, fit in found.items() if isinstance(fit, Fit)}
            ranked = device_table.rank(device_request, None, NODES)
            assert ranked is not None
            assert {n for n in range(NODES) if ranked[0][n]} == set(fits)
            assert all(ranked[1][n] == fit.score for n, fit in fits.items())
            compared += len(fits)
            change(rng, device_table, device_type, pod, fits, held)
        for uid, (allocation, _) in held.items():
            device_table.discharge(uid, allocation)
        assert not device_table._named.marks
    assert compared > 1000
    assert special > 300


def change(rng: random.Random, device_table: DeviceTable, device_type: NvidiaVgpu, pod: Pod, fits: dict[int, Fit],
           held: dict[str, tuple[Allocation, Marks]]) -> None:  # fmt: skip
    """Place it, or let somebody leave, or take a node away or bring one with other cards."""
    if fits and rng.random() < 0.6:
        fit = fits[rng.choice(list(fits))]
        held[pod.metadata.uid] = fit.allocation, device_type.marks(pod)
        device_table.charge(pod.metadata.uid, *held[pod.metadata.uid])
    elif held and rng.random() < 0.7:
        uid = rng.choice(list(held))
        device_table.discharge(uid, held.pop(uid)[0])
    else:
        number = rng.randrange(NODES)
        if rng.random() < 0.5:
            device_table.remove(f"n{number}")
        elif not device_table.put(f"n{number}", number, device_type.inventory(random_node(rng, number)), NODES):
            return
        for uid in [uid for uid, (allocation, _) in held.items() if allocation.node == f"n{number}"]:
            del held[uid]
