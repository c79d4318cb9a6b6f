"""Owners may write on their pods: what a running pod holds stays held, whatever stands there and whenever a scheduler starts."""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import Json, node, pod

from pumice.wire import names
from pumice.wire.kubernetes import MIRROR
from pumice.wire.nvidia_vgpu import PodDevices, parse_pod_devices, render_handed_out

MIB = 8000
MEMORY = (2000, 3000, 5000, 8000)


class Tampered:
    """A cluster and what its plugins really handed out. Node ``ours`` publishes that, node ``theirs`` runs upstream's plugin."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.world = World(seed=seed)
        self.world.check = lambda: None  # type: ignore[method-assign]
        self.world.add(node("ours", cards=2, mib=MIB), node("theirs", cards=2, mib=MIB))
        self.handed: dict[str, tuple[str, PodDevices]] = {}
        self.spoilt: set[str] = set()
        self.partly: set[str] = set()
        """Pods of which the plugin has served the first container alone."""
        self.serial = 0

    def pods(self, *phases: str) -> list[Json]:
        return [p for p in self.world.pods.values() if p["spec"].get("nodeName") and p["status"]["phase"] in phases]

    def arrive(self) -> None:
        self.serial += 1
        cores = self.rng.choice((None, 20, 50, 100))
        made = pod(f"p{self.serial}", cards=self.rng.choice((1, 1, 2)), mib=self.rng.choice(MEMORY), cores=cores)
        if self.rng.random() < 0.4:
            second = pod("x", mib=self.rng.choice(MEMORY[:2]), cores=self.rng.choice((None, 20)))["spec"]["containers"][0]
            made["spec"]["containers"].append({**second, "name": "second"})
        self.world.add(made)

    def start(self) -> None:
        """The kubelet admits a pod. A plugin serves what the scheduler wrote, and refuses what somebody spoilt."""
        waiting = [p for p in self.pods("Pending") if p["metadata"]["uid"] not in self.handed]
        if not waiting:
            return
        chosen = self.rng.choice(waiting)
        meta = chosen["metadata"]
        if meta["uid"] in self.spoilt:
            self.world.set_phase(meta["name"], "Failed")
            return
        where = chosen["spec"]["nodeName"]
        self.handed[meta["uid"]] = where, parse_pod_devices(meta["annotations"][names.VGPU_IDS])
        if len(self.handed[meta["uid"]][1].containers) > 1 and self.rng.random() < 0.6:
            self.partly.add(meta["uid"])
        if self.rng.random() < 0.5:
            chosen["status"] = {"phase": "Pending", "startTime": "2026-01-01T00:00:05Z"}
            self.world.add(chosen)
        else:
            self.world.set_phase(meta["name"], "Running")
        self.publish()

    def serve_rest(self) -> None:
        if self.partly:
            self.partly.discard(self.rng.choice(sorted(self.partly)))
            self.publish()

    def publish(self) -> None:
        mine = {uid: devices.containers[:1] if uid in self.partly else devices.containers
                for uid, (where, devices) in self.handed.items() if where == "ours"}  # fmt: skip
        self.world.nodes["ours"]["metadata"]["annotations"][names.HANDED_OUT] = render_handed_out(mine)
        self.world.add(self.world.nodes["ours"])

    def tamper(self) -> None:
        bound = [pod for pod in self.pods("Pending", "Running") if pod["metadata"]["uid"] not in self.partly]
        if not bound:
            return
        chosen = self.rng.choice(bound)
        notes, uid = chosen["metadata"]["annotations"], chosen["metadata"]["uid"]
        where, started = chosen["spec"]["nodeName"], uid in self.handed
        tricks = [*SPOILING, *(PLAUSIBLE if where == "ours" and started else ())]
        self.rng.choice(tricks)(notes, self.rng)
        if not started:
            self.spoilt.add(uid)
        self.world.add(chosen)

    def leave(self) -> None:
        held = self.pods("Pending", "Running")
        if held:
            gone = self.rng.choice(held)
            self.handed.pop(gone["metadata"]["uid"], None)
            self.publish()
            if self.rng.random() < 0.5:
                self.world.delete_pod(gone["metadata"]["name"])
            else:
                self.world.set_phase(gone["metadata"]["name"], "Succeeded")

    def restart(self) -> None:
        self.world.engine = self.world.restarted()

    def check(self) -> None:
        """By what was handed out, and what the scheduler has promised since to pods that nobody spoilt."""
        held = dict(self.handed)
        for waiting in self.pods("Pending"):
            meta = waiting["metadata"]
            if meta["uid"] not in self.spoilt and meta["uid"] not in held:
                held[meta["uid"]] = waiting["spec"]["nodeName"], parse_pod_devices(meta["annotations"][names.VGPU_IDS])
        memory, cores = Counter[str](), Counter[str]()
        for _, devices in held.values():
            for device in (d for part in devices.containers for d in part):
                memory[device.uuid] += device.memory
                cores[device.uuid] += device.cores
        assert all(value <= MIB for value in memory.values()), memory
        assert all(value <= 100 for value in cores.values()), cores


def empty(notes: dict[str, str], rng: Random) -> None:
    notes[names.VGPU_IDS] = ""


def remove(notes: dict[str, str], rng: Random) -> None:
    for key in (names.VGPU_IDS, names.VGPU_NODE, names.BIND_PHASE, names.DEVICES_TO_ALLOCATE):
        notes.pop(key, None)


def other_node(notes: dict[str, str], rng: Random) -> None:
    notes[names.VGPU_NODE] = rng.choice(("ours ", "theirs ", "", "gone"))


def other_cards(notes: dict[str, str], rng: Random) -> None:
    notes[names.VGPU_IDS] = notes.get(names.VGPU_IDS, "").replace("GPU-", rng.choice(("GPU-x", "GPU-ours-theirs-", "")))


def less(notes: dict[str, str], rng: Random) -> None:
    tokens = [token.split(",") for token in notes.get(names.VGPU_IDS, "").split(":")]
    notes[names.VGPU_IDS] = ":".join(",".join([*f[:2], "1", *f[3:]]) for f in tokens if len(f) > 2)


def huge(notes: dict[str, str], rng: Random) -> None:
    notes[names.VGPU_IDS] = f"GPU-ours-0,NVIDIA,{rng.choice((2**31, 2**32 - 1, 2**64, 10**300))},0:"


def oversized(notes: dict[str, str], rng: Random) -> None:
    notes[names.VGPU_IDS] = "GPU-ours-0,NVIDIA,1,0:" * 5000


def garbage(notes: dict[str, str], rng: Random) -> None:
    notes[names.VGPU_IDS] = "".join(rng.choices("GPU-ours01,NVIDIA:;[]@ \n\0é", k=rng.randrange(1, 80)))


def swapped(notes: dict[str, str], rng: Random) -> None:
    """As good as true: the node's other card, with the right amounts."""
    text = notes.get(names.VGPU_IDS, "")
    notes[names.VGPU_IDS] = text.replace("-0,", "-2,").replace("-1,", "-0,").replace("-2,", "-1,")


def copied(notes: dict[str, str], rng: Random) -> None:
    """A forged annotation of the plugin on the pod."""
    notes[names.HANDED_OUT] = notes.pop(names.VGPU_IDS, "")


SPOILING = (empty, remove, other_node, other_cards, less, huge, oversized, garbage, copied)
PLAUSIBLE = (swapped,)


@pytest.mark.parametrize("seed", range(30))
def test_no_card_is_given_twice_whatever_owners_write_on_their_pods_and_whenever_the_scheduler_restarts(seed: int) -> None:
    play = Tampered(seed)
    steps: list[Any] = [play.arrive, play.arrive, play.start, play.start, play.tamper, play.leave, play.restart, play.serve_rest]
    for _ in range(70):
        play.rng.choice(steps)()
        play.world.settle(0.5)
        play.check()


def test_a_container_that_the_plugin_has_not_served_yet_keeps_its_part_of_a_card() -> None:
    world = World()
    old = pod("old", mib=1000, cores=50)
    old["spec"]["containers"].append({**pod("x", mib=1000, cores=10)["spec"]["containers"][0], "name": "second"})
    world.add(node("ours", cards=1, mib=MIB), old)
    world.settle()
    old = world.pods["default/old"]
    parts = parse_pod_devices(old["metadata"]["annotations"][names.VGPU_IDS]).containers
    world.nodes["ours"]["metadata"]["annotations"][names.HANDED_OUT] = render_handed_out({old["metadata"]["uid"]: parts[:1]})
    world.add(world.nodes["ours"], pod("rival", mib=1000, cores=50))
    world.settle()
    assert world.node_of("rival") == "", "60 of 100 % are granted, though 50 are handed out"


def test_a_pod_whose_plugin_says_what_it_holds_closes_nothing_when_its_annotation_is_emptied() -> None:
    world = World()
    world.add(node("ours", cards=2, mib=MIB), pod("old", mib=5000))
    world.settle()
    old = world.pods["default/old"]
    held = parse_pod_devices(old["metadata"]["annotations"][names.VGPU_IDS])
    line = render_handed_out({old["metadata"]["uid"]: held.containers})
    world.nodes["ours"]["metadata"]["annotations"][names.HANDED_OUT] = line
    world.add(world.nodes["ours"])
    old["metadata"]["annotations"][names.VGPU_IDS] = ""
    world.set_phase("old", "Running")
    world.engine = world.restarted()
    world.add(pod("small", mib=3000), pod("large", mib=8000))
    world.check = lambda: None  # type: ignore[method-assign]
    world.settle()
    mine = held.containers[0][0].uuid
    cards = [world.card_of(name).split("/")[1] for name in ("small", "large")]
    assert cards == [mine[-1], "1" if mine[-1] == "0" else "0"]


def test_where_no_plugin_says_it_the_nodes_cards_are_closed_until_the_pod_is_gone_and_the_pod_is_named() -> None:
    world = World()
    world.add(node("theirs", cards=2, mib=MIB), pod("old", mib=5000))
    world.settle()
    world.pods["default/old"]["metadata"]["annotations"] = {}
    world.set_phase("old", "Running")
    world.engine = world.restarted()
    world.check = lambda: None  # type: ignore[method-assign]
    world.add(pod("next", mib=3000))
    world.settle()
    assert world.node_of("next") == ""
    assert "quarantined 2 of 2 cards" in json.dumps(world.condition("next"))
    assert "pod default/old holds cards and nothing says for certain which" in world.engine.state.problems["Pod default/old"]
    world.delete_pod("old")
    world.settle()
    assert world.node_of("next") == "theirs"


def test_what_a_plugin_says_comes_later_and_opens_the_other_cards_again() -> None:
    world = World()
    world.add(node("ours", cards=2, mib=MIB), pod("old", mib=8000))
    world.settle()
    old = world.pods["default/old"]
    text = old["metadata"]["annotations"].pop(names.VGPU_IDS)
    world.set_phase("old", "Running")
    world.engine = world.restarted()
    world.check = lambda: None  # type: ignore[method-assign]
    world.add(pod("next", mib=8000))
    world.settle()
    assert world.node_of("next") == ""
    held = {old["metadata"]["uid"]: parse_pod_devices(text).containers}
    world.nodes["ours"]["metadata"]["annotations"][names.HANDED_OUT] = render_handed_out(held)
    world.add(world.nodes["ours"])
    world.settle()
    assert world.node_of("next") == "ours"
    assert world.pods["default/next"]["metadata"]["annotations"][names.VGPU_IDS] != text


def test_a_mirror_pod_holds_no_cards_whatever_is_written_on_it() -> None:
    world = World()
    forged = "GPU-ours-0,NVIDIA,8000,0:GPU-ours-1,NVIDIA,8000,0:"
    notes = {MIRROR: "1", names.VGPU_NODE: "ours", names.VGPU_IDS: forged}
    ghost = pod("ghost", mib=8000, nodeName="ours", annotations=notes)
    world.add(node("ours", cards=2, mib=MIB), ghost, pod("real", mib=8000))
    world.check = lambda: None  # type: ignore[method-assign]
    world.settle()
    assert world.node_of("real") == "ours"
