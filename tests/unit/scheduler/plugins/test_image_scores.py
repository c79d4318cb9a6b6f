"""imagelocality: nodes that have a pod's images, and how many others have them (Volcano pkg/scheduler/plugins/nodeorder)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kit.engine_world import World
from kit.objects import node, pod
from kit.scheduler_confs import conf
from tests.unit.scheduler.plugins.test_node_scores import ONLY, engine_with, scores

from pumice.scheduler.state.nodes import Images
from pumice.wire.objects import NodeImage, Pod, convert

MIB = 2**20
CONF = conf("predicates", {"nodeorder": {"leastrequested.weight": 0, "balancedresource.weight": 0, "mostrequested.weight": 1}},
            actions="allocate")


def having(name: str, images: dict[str, int], **shape: Any) -> dict[str, Any]:
    made = node(name, **shape)
    made["status"]["images"] = [{"names": [image], "sizeBytes": size * MIB} for image, size in images.items()]
    return made


def running(name: str, *images: str, init: str = "", **shape: Any) -> dict[str, Any]:
    made = pod(name, **shape)
    resources = made["spec"]["containers"][0]["resources"]
    made["spec"]["containers"] = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    made["spec"]["containers"][0]["resources"] = resources
    if init:
        made["spec"]["initContainers"] = [{"name": "i", "image": init}]
    return made


# Images of n1, of n2; images of the pod; scores of n1 and n2. Thresholds: 23 MiB, and 1000 MiB per container.
CASES: dict[str, tuple[dict[str, int], dict[str, int], tuple[str, ...], tuple[int, int]]] = {
    "half of the nodes have it: half of its size counts": ({"big:1": 1000}, {}, ("big:1",), (48, 0)),
    "all have it": ({"big:1": 1000}, {"big:1": 1000}, ("big:1",), (100, 100)),
    "more than counts": ({"big:1": 9000}, {}, ("big:1",), (100, 0)),
    "too small to matter": ({"small:1": 40}, {}, ("small:1",), (0, 0)),
    "a name without a tag means latest": ({"repo.example.com:5000/big:latest": 1000}, {},
                                          ("repo.example.com:5000/big",), (48, 0)),
    "another tag is another image": ({"big:1": 1000}, {}, ("big:2",), (0, 0)),
    "of two containers one is there": ({"big:1": 1000}, {}, ("big:1", "other:1"), (24, 0)),
    "both are there, on different nodes": ({"big:1": 1000}, {"other:1": 500}, ("big:1", "other:1"), (24, 11)),
    "one image for two containers counts twice": ({"big:1": 1000}, {}, ("big:1", "big:1"), (49, 0)),
    "sizes that make no sense": ({"big:1": -5}, {"big:1": 2**42}, ("big:1",), (0, 100)),
    "nodes that disagree about its size": ({"big:1": 500}, {"big:1": 1000}, ("big:1",), (48, 100)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_image_locality(name: str) -> None:
    first, second, images, expected = CASES[name]
    engine = engine_with("nodeorder", {**ONLY, "mostrequested.weight": 0, "imagelocality.weight": 1}, having("n1", first),
                         having("n2", second))  # fmt: skip
    if expected == (0, 0):
        cls = engine.state.classes.of(_pod(running("p", *images)))
        assert engine.framework.scores(engine.state, cls, None) is None or not any(scores(engine, running("p", *images)).values())
        return
    assert tuple(scores(engine, running("p", *images)).values()) == expected


def _pod(obj: dict[str, Any]) -> Any:
    return convert(Pod, obj)


@pytest.mark.parametrize("images", [None, [], [{"names": None, "sizeBytes": 5}], [{"names": []}]])
def test_lists_of_images_that_say_nothing_are_none(images: Any) -> None:
    made = node("n1")
    made["status"]["images"] = images
    world = World(CONF)
    world.add(made, running("p", "big:1", cpu="1"))
    world.settle()
    assert world.node_of("p") == "n1"


def test_init_containers_count_too() -> None:
    engine = engine_with("nodeorder", ONLY, having("n1", {"big:1": 1000}), having("n2", {}))
    assert scores(engine, running("p", "other:1", init="big:1")) == {"n1": 24, "n2": 0}


def test_a_pod_goes_where_its_image_is_unless_the_weight_is_zero() -> None:
    for weight, expected in (("      imagelocality.weight: 1\n", "n2"), ("", "n2"), ("      imagelocality.weight: 0\n", "n1")):
        world = World(CONF + weight)
        world.add(having("n1", {}), having("n2", {"big:1": 1000}), running("p", "big:1", cpu="1"))
        world.settle()
        assert world.node_of("p") == expected


def test_an_image_that_is_pulled_while_a_pod_waits_counts() -> None:
    world = World(CONF)
    world.add(having("n1", {}, cpu="1"), having("n2", {}, cpu="1"), pod("a", cpu="1"), pod("b", cpu="1"))
    world.settle()
    world.add(running("p", "big:1", cpu="1"), running("q", "small:1", cpu="1"))
    world.settle()
    assert [world.node_of(name) for name in "pq"] == ["", ""]
    world.add(having("n2", {"big:1": 1000}, cpu="1"))
    world.delete_pod("a")
    world.delete_pod("b")
    world.settle()
    assert (world.node_of("p"), world.node_of("q")) == ("n2", "n1")


def test_what_is_remembered_of_a_class_follows_what_nodes_pull() -> None:
    world = World(CONF)
    world.add(having("n1", {"big:1": 500}), having("n2", {}), running("p", "big:1", cpu="1"))
    world.settle()
    world.add(having("n2", {"big:1": 1000}), running("q", "big:1", cpu="1"))
    world.settle()
    assert [world.node_of(name) for name in "pq"] == ["n1", "n2"]


def test_pods_are_told_apart_by_their_images_only_where_some_node_has_one() -> None:
    engine = engine_with("nodeorder", {}, having("n1", {"big:1": 1000}))
    one, two, three = (engine.state.classes.of(_pod(running("p", image))) for image in ("a:1", "b:1", "big:1"))
    assert one is two
    assert one is not three
    engine = engine_with("binpack", {}, having("n1", {"big:1": 1000}))
    one, three = (engine.state.classes.of(_pod(running("p", image))) for image in ("a:1", "big:1"))
    assert one is three


def test_whatever_nodes_come_go_and_pull_the_table_is_as_if_made_anew() -> None:
    rng, table, nodes = Random(5), Images(counted=True), {}
    names = [f"i{n}:1" for n in range(6)]
    for _ in range(300):
        row = rng.randrange(8)
        if rng.random() < 0.2:
            nodes.pop(row, None)
            table.remove(row, len(nodes))
        else:
            nodes[row] = [NodeImage([name], rng.choice((100, 700)) * MIB) for name in rng.sample(names, rng.randint(0, 4))]
            table.put(row, nodes[row], len(nodes))
        fresh = Images(counted=True)
        for other, listed in nodes.items():
            fresh.put(other, listed, len(nodes))
        for wanted in (("i0:1",), ("i1:1", "i2:1")):
            assert table.scores(wanted, 8).tolist() == fresh.scores(wanted, 8).tolist()
            assert table.matters(wanted) == fresh.matters(wanted)
    for row in list(nodes):
        table.remove(row, 0)
    assert (table._records, table._named, table._of_row) == ({}, {}, {})
