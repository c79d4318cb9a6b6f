"""Random MIG placements and departures: no slot twice, none lost, against a checker that shares nothing with the product."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from kit.device_world import A100, card, device_settings, limits, pod_of, vgpu_node
from kit.mig_rules import RULES, Partitioned
from kit.seeds import chosen_seed

from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest, Fit
from pumice.model.cards import Allocation
from pumice.scheduler.state.cards import DeviceTable
from pumice.wire import names
from pumice.wire.nvidia_vgpu import parse_pod_devices
from pumice.wire.objects import Pod

# model -> (registered memory, product name, NVIDIA's rules, group -> [(profile, MiB)] in slot order), typed by hand
MODELS = {
    "A100-40": (40960, A100, "A100-SXM4-40GB", {
        "group1": [("1g.5gb", 5120)] * 7,
        "group2": [("2g.10gb", 10240)] * 3 + [("1g.5gb", 5120)],
        "group3": [("3g.20gb", 20480)] * 2,
        "group4": [("7g.40gb", 40960)],
    }),
    "A100-80": (81920, "NVIDIA-NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB", {
        "group1": [("1g.10gb", 9728)] * 7,
        "group2": [("2g.20gb", 19968)] * 3 + [("1g.10gb", 9728)],
        "group3": [("3g.40gb", 40192)] * 2,
        "group4": [("7g.80gb", 80896)],
    }),
    "A30": (24576, "NVIDIA-NVIDIA A30", "A30", {
        "group1": [("1g.6gb", 6144)] * 4, "group2": [("2g.12gb", 12288)] * 2, "group3": [("4g.24gb", 24576)],
    }),
}  # fmt: skip


# What requests are cut to, and where the slots of the groups lie: typed by hand, too.
MEMORY = {
    "A100-SXM4-40GB": {"1g.5gb": 5120, "1g.10gb": 10240, "2g.10gb": 10240, "3g.20gb": 20480, "4g.20gb": 20480,
                       "7g.40gb": 40960},
    "A100-SXM4-80GB": {"1g.10gb": 9728, "1g.20gb": 19968, "2g.20gb": 19968, "3g.40gb": 40192, "4g.40gb": 40192,
                       "7g.80gb": 80896},
    "A30": {"1g.6gb": 6144, "2g.12gb": 12288, "4g.24gb": 24576},
}  # fmt: skip
SEVEN = {"group1": (0, 1, 2, 3, 4, 5, 6), "group2": (0, 2, 4, 6), "group3": (0, 4), "group4": (0,)}
HOMES = {"A100-SXM4-40GB": SEVEN, "A100-SXM4-80GB": SEVEN,
         "A30": {"group1": (0, 1, 2, 3), "group2": (0, 2), "group3": (0,)}}  # fmt: skip


@dataclass
class Checker:
    """The holders of the slots of cards, by the annotations alone."""

    models: dict[str, str]
    anywhere: bool = False
    allocated: dict[str, dict[int, str]] = field(default_factory=dict)
    group: dict[str, str] = field(default_factory=dict)
    lying: dict[str, Partitioned] = field(default_factory=dict)
    """Where slices may lie anywhere: the card as the driver sees it, by NVIDIA's own rules."""
    keys: dict[tuple[str, int], str] = field(default_factory=dict)
    outside: int = 0

    def take_anywhere(self, who: str, ids: str, needs: list[int]) -> None:
        devices = [device for part in parse_pod_devices(ids).containers for device in part]
        assert len(devices) == len(needs), ids
        for device, need in zip(devices, needs, strict=True):
            _, _, rules_name, groups = MODELS[self.models[device.uuid]]
            rules = RULES[rules_name]
            card = self.lying.setdefault(device.uuid, Partitioned(rules))
            profile, start = device.profile, device.slot
            if device.group:
                profile, start = groups[device.group][device.slot][0], HOMES[rules_name][device.group][device.slot]
            number = next(number for number, rule in rules.items() if rule.name == profile)
            assert MEMORY[rules_name][profile] >= need, f"{device.id} is smaller than {need}"
            key = max([0, *(k for _, k in self.keys)]) + 1
            card.place(key, number, start)
            self.keys[device.uuid, key] = who
            self.outside += bool(device.profile)

    def leave_anywhere(self, who: str) -> None:
        for uuid, key in [place for place, holder in self.keys.items() if holder == who]:
            self.lying[uuid].remove(key)
            del self.keys[uuid, key]

    def room_anywhere(self, need: int) -> bool:
        for uuid, model in self.models.items():
            rules_name = MODELS[model][2]
            card = self.lying.setdefault(uuid, Partitioned(RULES[rules_name]))
            for number, rule in RULES[rules_name].items():
                if not rule.media and MEMORY[rules_name][rule.name] >= need and card.open_begins(number):
                    return True
        return False

    def take(self, who: str, ids: str, needs: list[int]) -> None:
        devices = [device for part in parse_pod_devices(ids).containers for device in part]
        assert len(devices) == len(needs), ids
        for device, need in zip(devices, needs, strict=True):
            groups = MODELS[self.models[device.uuid]][3]
            slots = self.allocated.setdefault(device.uuid, {})
            assert device.slot not in slots, f"{device.id} is held by {slots[device.slot]}, and now by {who}"
            assert not slots or self.group[device.uuid] == device.group, f"{device.id}: the card is in another group"
            assert groups[device.group][device.slot][1] >= need, f"{device.id} is smaller than {need}"
            slots[device.slot] = who
            self.group[device.uuid] = device.group

    def leave(self, who: str) -> None:
        for uuid in list(self.allocated):
            self.allocated[uuid] = {slot: holder for slot, holder in self.allocated[uuid].items() if holder != who}

    def room(self, need: int) -> bool:
        """Return whether any card has a free slot of that size in a group that it may be in."""
        for uuid, model in self.models.items():
            slots = self.allocated.get(uuid) or {}
            for group, sizes in MODELS[model][3].items():
                if slots and self.group[uuid] != group:
                    continue
                if any(memory >= need and slot not in slots for slot, (_, memory) in enumerate(sizes)):
                    return True
        return False

    def hardware_agrees(self, uuid: str) -> None:
        """The driver can lay out the group's instances that are in use (larger ones first)."""
        _, _, rules_name, groups = MODELS[self.models[uuid]]
        rules = RULES[rules_name]
        ids = {rule.name: number for number, rule in rules.items()}
        lying = Partitioned(rules)
        in_use = [groups[self.group[uuid]][slot][0] for slot in self.allocated[uuid]]
        for key, profile in enumerate(sorted(in_use, key=lambda name: -rules[ids[name]].length)):
            lying.place(key, ids[profile], lying.open_begins(ids[profile])[0])


def run(operations: int, seed: int, mig_policy: str, *, anywhere: bool = False) -> dict[str, int]:
    rng = random.Random(f"{seed}-{mig_policy}")
    policy = rng.choice(("binpack", "spread", ""))
    device_type = NvidiaVgpu(None, device_settings(policy=policy, mig_policy=mig_policy, mig_off_group=anywhere))
    device_table = DeviceTable(device_type)
    checker = Checker({}, anywhere)
    for row, model in enumerate(MODELS):
        memory, product, _, _ = MODELS[model]
        uuids = [f"GPU-{model}-{i}" for i in range(3)]
        checker.models |= dict.fromkeys(uuids, model)
        node = vgpu_node(model, *(card(uuid, memory, 100, product, mode="mig", places=anywhere) for uuid in uuids))
        device_table.put(model, row, device_type.inventory(node), 3)
    living: dict[str, Allocation] = {}
    counts = {"placed": 0, "refused": 0, "left": 0, "rebuilt": 0}
    for number in range(operations):
        if living and rng.random() < 0.45:
            who = rng.choice(list(living)) if number % 50 else next(iter(living))
            device_table.discharge(who, living.pop(who))
            (checker.leave_anywhere if anywhere else checker.leave)(who)
            counts["left"] += 1
            continue
        pod, needs = random_pod(f"p{number}", rng)
        device_request = device_type.device_request(pod)
        assert isinstance(device_request, DeviceRequest)
        nodes = list(MODELS)
        rng.shuffle(nodes)
        fits = (device_type.fit(device_request, device_table.view(node)) for node in nodes)
        fit = next((outcome for outcome in fits if isinstance(outcome, Fit)), None)
        if fit is None:
            counts["refused"] += 1
            room = checker.room_anywhere(needs[0]) if anywhere else checker.room(needs[0])
            assert len(needs) > 1 or not room, f"a slot of {needs[0]} is free and was not found"
            continue
        uid = pod.metadata.uid
        ids = device_type.annotations(fit.allocation, 0)[names.VGPU_IDS]
        if anywhere:
            checker.take_anywhere(uid, ids, needs)
        else:
            checker.take(uid, ids, needs)
            for container_device in fit.allocation.container_devices:
                checker.hardware_agrees(container_device.uuid)
        device_table.charge(uid, fit.allocation)
        living[uid] = fit.allocation
        counts["placed"] += 1
        if number % 97 == 0:
            pod.metadata.annotations[names.VGPU_IDS] = ids
            pod.spec.node_name = fit.allocation.node
            assert (
                device_type.replay(pod, fit.allocation.node, device_table.nodes[fit.allocation.node].inventory)
                == fit.allocation
            )
            counts["rebuilt"] += 1
    for uid, allocation in living.items():
        device_table.discharge(uid, allocation)
    for node_book in device_table.nodes.values():
        assert all((u.shares, u.memory, u.cores, u.group, u.slots) == (0, 0, 0, "", set()) for u in node_book.usages)
    return counts | ({"outside groups": checker.outside} if anywhere else {})


SIZES = (1, 3000, 5120, 9728, 10240, 15000, 20480, 24576, 40192)


def random_pod(name: str, rng: random.Random) -> tuple[Pod, list[int]]:
    """One container with several slots, or several containers with one each, of sizes of their own; and the sizes in order."""
    needs = rng.choices(SIZES, k=rng.choice((1, 1, 1, 2, 3, 4)))
    if rng.random() < 0.5:
        needs = needs[:1] * len(needs)
        return pod_of(name, limits(len(needs), needs[0])), needs
    return pod_of(name, *(limits(1, need) for need in needs)), needs


@pytest.mark.parametrize("mig_policy", ["listed", "tightest", "expected"])
def test_random_mig_operations_share_no_slot_and_lose_none(mig_policy: str) -> None:
    seed = chosen_seed()
    print("seed", seed)
    print(run(3_400, seed, mig_policy))


@pytest.mark.parametrize("mig_policy", ["listed", "tightest", "expected"])
def test_slices_outside_the_groups_lie_where_the_driver_takes_them_and_none_is_lost(mig_policy: str) -> None:
    seed = chosen_seed()
    print("seed", seed)
    counts = run(3_400, seed, mig_policy, anywhere=True)
    print(counts)
    assert counts["outside groups"] > 100


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_mig_operations_outside_the_groups() -> None:
    for mig_policy in ("listed", "tightest", "expected"):
        print(mig_policy, run(334_000, 1, mig_policy, anywhere=True))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_mig_operations() -> None:
    for mig_policy in ("listed", "tightest", "expected"):
        print(mig_policy, run(334_000, 1, mig_policy))
