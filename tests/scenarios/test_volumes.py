"""Pods with volumes: where they may go, what is said, and what lets them in later (Volcano pkg/scheduler/plugins/predicates,
filters 6, 7, 9)."""

from __future__ import annotations

import pytest
from kit.engine_world import World
from kit.objects import node, pod
from kit.storage_objects import (
    THIN,
    ZONE,
    Json,
    capacity,
    claim,
    driver,
    limit,
    storage_class,
    store,
    using,
    volume,
)


def world_of(*objects: Json) -> World:
    world = World()
    world.add(node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}))
    store(world, storage_class("later"), storage_class("now", immediate=True), storage_class("zonal", zones=("b",)),
          storage_class("local", "kubernetes.io/no-provisioner"), *objects)  # fmt: skip
    return world


NEVER = "no node"
CASES: dict[str, tuple[list[Json], str, str]] = {
    "a claim that does not exist": ([], NEVER, 'persistentvolumeclaim "c" not found'),
    "a claim that waits for nobody and is not bound": ([claim("c", kind="now")], NEVER,
                                                       "pod has unbound immediate PersistentVolumeClaims"),
    "a claim without a class that is not bound": ([claim("c", kind="")], NEVER,
                                                  "pod has unbound immediate PersistentVolumeClaims"),
    "a volume of one node": ([claim("c", volume="v"), volume("v", claimed="c", nodes=("n2",))], "n2", ""),
    "a volume of a node that is not there": ([claim("c", volume="v"), volume("v", claimed="c", nodes=("n9",))], NEVER,
                                             "2 node(s) had volume node affinity conflict"),
    "a volume of a zone": ([claim("c", volume="v"), volume("v", claimed="c", zone="b")], "n2", ""),
    "a volume of another zone": ([claim("c", volume="v"), volume("v", claimed="c", zone="z")], NEVER,
                                 "2 node(s) had no available volume zone"),
    "a volume still to be made": ([claim("c")], "n1", ""),
    "a volume still to be made in some zones": ([claim("c", kind="zonal")], "n2", ""),
    "a volume that is being made for a node": ([claim("c", selected="n2")], "n2", ""),
    "a local volume that is free": ([claim("c", kind="local"), volume("v", kind="local", nodes=("n2",))], "n2", ""),
    "local volumes that are all too small": ([claim("c", kind="local", size="2Gi"), volume("v", kind="local", nodes=("n2",))],
                                             NEVER, "2 node(s) didn't find available persistent volumes to bind"),
    "local volumes that belong to others": ([claim("c", kind="local"), volume("v", kind="local", claimed="d")], NEVER,
                                            "2 node(s) didn't find available persistent volumes to bind"),
    "a node that may attach no more": ([claim("c"), limit("n1", 0)], "n2", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_where_a_pod_with_a_claim_goes(name: str) -> None:
    objects, where, text = CASES[name]
    world = world_of(*objects)
    world.add(using("p", "c"))
    world.settle()
    assert world.node_of("p") == ("" if where == NEVER else where)
    assert text in world.condition("p").get("message", "")


def test_an_ephemeral_volume_waits_for_its_claim() -> None:
    world = world_of()
    world.add(pod("p", cpu="1", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]))
    world.settle()
    assert 'persistentvolumeclaim "p-scratch" not found' in world.condition("p")["message"]
    store(world, claim("p-scratch", kind="zonal"))
    world.settle()
    assert [dict(b.claims) for b in world.bindings] == [{"default/p-scratch": ""}]
    assert world.node_of("p") == "n2"


def test_two_claims_of_one_pod_need_two_volumes() -> None:
    world = world_of(claim("c", kind="local"), claim("d", kind="local"), volume("v1", kind="local", nodes=("n1", "n2")),
                     volume("v2", kind="local", nodes=("n2",)))  # fmt: skip
    world.add(using("p", "c", "d"))
    world.settle()
    assert world.node_of("p") == "n2"


def test_volumes_that_are_attached_already_cost_nothing_and_attachments_without_pods_count() -> None:
    names = ("shared", "own", "idle")
    world = world_of(*(claim(n, volume=n) for n in names), *(volume(n, claimed=n) for n in names), limit("n1", 2), limit("n2", 0))
    store(world, {"kind": "VolumeAttachment", "metadata": {"name": "a"},
                  "spec": {"nodeName": "n1", "source": {"persistentVolumeName": "idle"}}})  # fmt: skip
    world.add(using("first", "shared"), using("second", "shared"))
    world.settle()
    assert [world.node_of(n) for n in ("first", "second")] == ["n1", "n1"]
    world.add(using("third", "own"))
    world.settle()
    assert world.node_of("third") == ""
    assert "2 node(s) exceed max volume count" in world.condition("third")["message"]
    world.engine.state.volumes.drop("VolumeAttachment", {"metadata": {"name": "a"}})
    world.settle()
    assert world.node_of("third") == "n1"


def test_a_pod_wakes_when_its_claim_comes_and_for_nothing_else() -> None:
    world = world_of()
    world.add(using("p", "c"), pod("other", cpu="99"))
    world.settle()
    assert not world.engine.has_work(world.now)
    store(world, claim("c", volume="v"), volume("v", claimed="c"))
    assert world.engine.has_work(world.now)
    world.settle()
    assert (world.node_of("p"), world.node_of("other")) == ("n1", "")


@pytest.mark.parametrize(("switch", "refusal"), [
    ("predicate.NodeVolumeLimitsEnable", [limit("n1", 0), limit("n2", 0)]),
    ("predicate.VolumeZoneEnable", [volume("v", claimed="c", zone="z")]),
    ("predicate.VolumeBindingEnable", [volume("v", claimed="c", nodes=("n9",))]),
])  # fmt: skip
def test_each_filter_of_volumes_has_its_switch(switch: str, refusal: list[Json]) -> None:
    for on in (True, False):
        text = f'actions: "allocate"\ntiers:\n- plugins:\n  - name: predicates\n    arguments:\n      {switch}: {on}\n'
        world = World(text)
        world.add(node("n1", labels={ZONE: "a"}), node("n2", labels={ZONE: "b"}))
        store(world, storage_class("later"), claim("c", volume="v"), volume("v", claimed="c"), *refusal)
        world.add(using("p", "c"))
        world.settle()
        assert bool(world.node_of("p")) is not on


def test_the_binding_names_what_becomes_of_each_claim_and_a_free_volume_is_given_once() -> None:
    world = world_of(claim("c"), claim("d", kind="local"), claim("e", kind="local"), volume("v", kind="local", nodes=("n2",)))
    world.add(using("p", "c", "d"), using("q", "e"))
    world.settle()
    assert [dict(b.claims) for b in world.bindings] == [{"default/c": "", "default/d": "v"}]
    assert (world.node_of("p"), world.node_of("q")) == ("n2", "")


def test_a_volume_that_was_chosen_is_free_again_when_the_binding_is_refused() -> None:
    world = world_of(claim("d", kind="local"), claim("e", kind="local"), volume("v", kind="local"))
    world.refuse = lambda bind: bind.name == "p"
    world.add(using("p", "d"))
    world.cycle()
    world.add(using("q", "e"))
    world.settle(0)
    assert world.node_of("q") != ""


# -- what drivers can still make (CSIStorageCapacity) --------------------------------------------------------------

NO_ROOM = "did not have enough free storage"
ROOM: dict[str, tuple[list[Json], str, str]] = {
    "a driver that tells nothing of it yet": ([], NEVER, f"2 node(s) {NO_ROOM}"),
    "enough everywhere": ([capacity("x", "thin", "2Gi")], "n1", ""),
    "enough in one zone": ([capacity("x", "thin", "1Gi", zone="a"), capacity("y", "thin", "2Gi", zone="b")], "n2", ""),
    "not enough in any": ([capacity("x", "thin", "1Gi", zone="a"), capacity("y", "thin", "1Gi", zone="b")], NEVER,
                          f"2 node(s) {NO_ROOM}"),
    "enough, but of another class": ([capacity("x", "later", "9Gi")], NEVER, f"2 node(s) {NO_ROOM}"),
    "enough in all, and no single volume so large": (
        [capacity("x", "thin", "9Gi", largest="1Gi")], NEVER, f"2 node(s) {NO_ROOM}"),
    "a largest volume alone": ([capacity("x", "thin", "", zone="b", largest="2Gi")], "n2", ""),
    "an amount that nobody told": ([capacity("x", "thin", "")], NEVER, f"2 node(s) {NO_ROOM}"),
}  # fmt: skip


@pytest.mark.parametrize("name", ROOM)
def test_a_volume_is_made_where_its_driver_has_room_for_it(name: str) -> None:
    said, where, text = ROOM[name]
    world = world_of(storage_class("thin", THIN), driver(), claim("c", kind="thin", size="2Gi"), *said)
    world.add(using("p", "c"))
    world.settle()
    assert world.node_of("p") == ("" if where == NEVER else where)
    assert text in world.condition("p").get("message", "")


def test_a_driver_that_does_not_ask_for_it_is_not_asked_and_a_free_volume_needs_no_room() -> None:
    world = world_of(storage_class("thin", THIN), claim("c", kind="thin", size="2Gi"))
    world.add(using("p", "c"))
    world.settle()
    assert world.node_of("p") == "n1"
    world = world_of(storage_class("thin", THIN), driver(), claim("c", kind="thin", size="2Gi"),
                     volume("v", kind="thin", size="2Gi", nodes=("n2",)))  # fmt: skip
    world.add(using("p", "c"))
    world.settle()
    assert (world.node_of("p"), [dict(b.claims) for b in world.bindings]) == ("n2", [{"default/c": "v"}])


def test_a_pod_wakes_when_its_driver_has_room_again() -> None:
    world = world_of(storage_class("thin", THIN), driver(), claim("c", kind="thin", size="2Gi"), capacity("x", "thin", "1Gi"))
    world.add(using("p", "c"))
    world.settle()
    assert (world.node_of("p"), world.engine.has_work(world.now)) == ("", False)
    store(world, capacity("x", "thin", "3Gi"))
    world.settle()
    assert world.node_of("p") == "n1"


# -- claims for one pod alone (ReadWriteOncePod) -------------------------------------------------------------------


def alone(name: str) -> Json:
    made = claim(name, volume="v")
    made["spec"]["accessModes"] = ["ReadWriteOncePod"]
    return made


def test_a_claim_for_one_pod_alone_keeps_every_other_pod_from_every_node_until_it_is_free() -> None:
    world = world_of(alone("c"), volume("v", claimed="c"))
    world.add(using("first", "c"), using("second", "c"), using("third", "c"))
    world.settle()
    placed = [name for name in ("first", "second", "third") if world.node_of(name)]
    assert len(placed) == 1
    waiting = next(name for name in ("first", "second", "third") if name not in placed)
    text = "2 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
    assert text in world.condition(waiting)["message"]
    assert not world.engine.has_work(world.now)
    # where it ran there is no room any more: the others must look at all nodes
    where = world.node_of(placed[0])
    world.delete_pod(placed[0])
    world.add(pod("blocker", cpu="16", nodeName=where))
    world.settle()
    assert sum(bool(world.node_of(name)) for name in ("first", "second", "third") if f"default/{name}" in world.pods) == 1
