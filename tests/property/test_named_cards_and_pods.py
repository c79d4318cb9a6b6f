"""Asks that name cards, PodGroups or exclusivity rules: ranked by arrays where nothing named is, exactly where it is."""

from __future__ import annotations

import random

import pytest
from kit.device_settings import device_settings
from kit.device_world import A100, V100, card, limits, pod_of, vgpu_node

from pumice.devices.nvidia_vgpu.family import NvidiaVgpu
from pumice.devices.protocol import Ask, Fit, Marks
from pumice.engine.state.cards import DeviceTable
from pumice.model.cards import Grant
from pumice.wire import names
from pumice.wire.objects import Node, Pod

RULES = ((("app", "training"),), (("team", "ml"),))
NODES = 12


def random_node(dice: random.Random, number: int) -> Node:
    mode = dice.choice(("hami-core", "mig"))
    kind, memory = (A100, 40960) if mode == "mig" else (V100, 16384)
    return vgpu_node(f"n{number}", *(card(f"GPU-{number}-{i}", memory, 6, kind, mode=mode) for i in range(dice.randint(1, 4))))


def random_pod(dice: random.Random, number: int) -> Pod:
    notes = {names.GROUP_NAME: f"job-{dice.randint(0, 3)}"} if dice.random() < 0.6 else {}
    if dice.random() < 0.4:
        notes[names.PODGROUP_POLICY] = "spread"
    for key in (names.USE_GPU_UUID, names.NOUSE_GPU_UUID):
        if dice.random() < 0.3:
            uuids = (f"GPU-{dice.randint(0, NODES)}-{dice.randint(0, 4)}" for _ in range(dice.randint(1, 4)))
            notes[key] = ",".join(uuids)
    labels = {key: value for key, value in (("app", "training"), ("team", "ml")) if dice.random() < 0.4}
    containers = [limits(dice.choice((1, 1, 2)), dice.choice((2000, 5000, 9000)), dice.choice((0, 20)))] * dice.choice((1, 1, 2))
    return pod_of(f"p{number}", *containers, annotations=notes, labels=labels)


@pytest.mark.parametrize("policy", ["", "binpack", "spread"])
@pytest.mark.parametrize("mig_policy", ["listed", "tightest"])
def test_the_books_rank_as_the_exact_look_decides_whatever_a_pod_names(policy: str, mig_policy: str) -> None:
    compared = special = 0
    for seed in range(8):
        dice = random.Random(f"{seed}{policy}{mig_policy}")
        family = NvidiaVgpu(None, device_settings(policy=policy, mig_policy=mig_policy, rules=RULES))
        book = DeviceTable(family)
        for number in range(NODES):
            book.put(f"n{number}", number, family.inventory(random_node(dice, number)), NODES)
        held: dict[str, tuple[Grant, Marks]] = {}
        for step in range(120):
            pod = random_pod(dice, step)
            ask = family.ask(pod)
            assert isinstance(ask, Ask)
            special += family.ranking.without_constraints(ask) is not None
            found = {n: family.fit(ask, book.view(f"n{n}")) for n in range(NODES) if f"n{n}" in book.nodes}
            fits = {n: fit for n, fit in found.items() if isinstance(fit, Fit)}
            ranked = book.rank(ask, None, NODES)
            assert ranked is not None
            assert {n for n in range(NODES) if ranked[0][n]} == set(fits)
            assert all(ranked[1][n] == fit.score for n, fit in fits.items())
            compared += len(fits)
            change(dice, book, family, pod, fits, held)
        for uid, (grant, _) in held.items():
            book.discharge(uid, grant)
        assert not book._named.marks
    assert compared > 1000
    assert special > 300


def change(dice: random.Random, book: DeviceTable, family: NvidiaVgpu, pod: Pod, fits: dict[int, Fit],
           held: dict[str, tuple[Grant, Marks]]) -> None:  # fmt: skip
    """Place it, or let somebody leave, or take a node away or bring one with other cards."""
    if fits and dice.random() < 0.6:
        fit = fits[dice.choice(list(fits))]
        held[pod.metadata.uid] = fit.grant, family.marks(pod)
        book.charge(pod.metadata.uid, *held[pod.metadata.uid])
    elif held and dice.random() < 0.7:
        uid = dice.choice(list(held))
        book.discharge(uid, held.pop(uid)[0])
    else:
        number = dice.randrange(NODES)
        if dice.random() < 0.5:
            book.remove(f"n{number}")
        elif not book.put(f"n{number}", number, family.inventory(random_node(dice, number)), NODES):
            return
        for uid in [uid for uid, (grant, _) in held.items() if grant.node == f"n{number}"]:
            del held[uid]
