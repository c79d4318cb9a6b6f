"""HyperNodes that the controller makes of the nodes' labels, where its ConfigMap asks for it."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from kit.job_world import JobWorld, job_world
from kit.objects import node
from kit.virtual_time import run_virtually

from pumice.model.errors import BadInput
from pumice.ports.cluster import ApiError, Json
from pumice.wire import kinds, volcano
from pumice.wire.controller_conf import parse_controller_conf

RACKS = """
networkTopologyDiscovery:
- source: label
  enabled: true
  config:
    networkTopologyTypes:
      gpu: [{nodeLabel: net/spine}, {nodeLabel: net/rack}, {nodeLabel: kubernetes.io/hostname}]
"""
PROFILES = """
networkTopologyDiscovery:
- source: ufm
  enabled: true
- source: label
  enabled: true
  interval: 10m
  config:
    networkTopologyTypes:
      shallow:
        nodeSelector: {matchLabels: {net: shallow}}
        levels: [{nodeLabel: net/rack, tierName: rack}, {nodeLabel: kubernetes.io/hostname}]
      deep:
        nodeSelector: {matchLabels: {net: deep}}
        levels:
        - {nodeLabel: net/spine, tierName: spine}
        - {nodeLabel: net/rack, tierName: rack}
        - {nodeLabel: kubernetes.io/hostname}
"""


async def configure(world: JobWorld, text: str) -> None:
    body = {"metadata": {"name": "volcano-controller-configmap"}, "data": {"volcano-controller.conf": text}}
    try:
        await world.hands.create(kinds.CONFIGMAPS, body, "volcano-system")
    except ApiError:
        await world.hands.patch(kinds.CONFIGMAPS, "volcano-controller-configmap", body, "volcano-system")
    await world.rest()


async def label(world: JobWorld, name: str, **labels: str | None) -> None:
    """``net__rack="a"`` is the label ``net/rack``."""
    said = {key.replace("__", "/"): value for key, value in labels.items()}
    try:
        await world.hands.patch(kinds.NODES, name, {"metadata": {"labels": said}})
    except ApiError:
        made = node(name)
        made["metadata"] = {"name": name, "labels": said}
        await world.hands.create(kinds.NODES, made)
    await world.rest()


async def tree(world: JobWorld) -> dict[str, tuple[int, str, list[str]]]:
    """Name to tier, its name, and members."""
    found = (await world.hands.list(volcano.HYPER_NODES))["items"]
    return {each["metadata"]["name"]: (each["spec"]["tier"], each["spec"].get("tierName", ""),
            [member["selector"]["exactMatch"]["name"] for member in each["spec"]["members"]]) for each in found}  # fmt: skip


async def hypernode(world: JobWorld, name: str) -> Json:
    return await world.hands.get(volcano.HYPER_NODES, name)


def test_switches_are_made_of_labels_and_follow_them() -> None:
    async def story() -> None:
        async with job_world() as world:
            for name, rack, spine in (("n1", "a", "s"), ("n2", "a", "s"), ("n3", "B_1", "s")):
                await label(world, name, net__rack=rack, net__spine=spine)
            await label(world, "aside")
            assert await tree(world) == {}, "nobody asked for it"
            await configure(world, RACKS)
            found = await tree(world)
            b = next(name for name in found if name.startswith("gpu-tier1-b-1-"))
            assert found == {
                "gpu-tier1-a": (1, "net/rack", ["n1", "n2"]), b: (1, "net/rack", ["n3"]),
                "gpu-tier2-s": (2, "net/spine", ["gpu-tier1-a", b]),
            }  # fmt: skip
            assert (await hypernode(world, "gpu-tier1-a"))["metadata"]["labels"] == {
                "volcano.sh/network-topology-source": "label", "net/rack": "a"}  # fmt: skip
            await label(world, "n2", net__rack="B_1")
            await world.hands.delete(kinds.NODES, "n1")
            await world.rest()
            assert await tree(world) == {b: (1, "net/rack", ["n2", "n3"]), "gpu-tier2-s": (2, "net/spine", [b])}

    run_virtually(story())


def test_a_switch_that_somebody_changed_or_deleted_comes_back_and_others_are_left_alone() -> None:
    async def story() -> None:
        async with job_world() as world:
            await label(world, "n1", net__rack="a", net__spine="s")
            await label(world, "n2", net__rack="b")
            mine = {"metadata": {"name": "gpu-tier1-b"}, "spec": {"tier": 7, "members": [
                {"type": "Node", "selector": {"exactMatch": {"name": "n9"}}}]}}  # fmt: skip
            await world.hands.create(volcano.HYPER_NODES, mine)
            await configure(world, RACKS)
            await world.hands.delete(volcano.HYPER_NODES, "gpu-tier1-a")
            await world.hands.patch(volcano.HYPER_NODES, "gpu-tier2-s", {"spec": {"tier": 5}})
            await world.rest()
            found = await tree(world)
            assert (found["gpu-tier1-a"], found["gpu-tier2-s"][0]) == ((1, "net/rack", ["n1"]), 2)
            assert (await hypernode(world, "gpu-tier1-b"))["spec"] == mine["spec"]
            assert await world.events("TopologyRefused") == [
                "HyperNode gpu-tier1-b is there and was not discovered; it is left alone"]  # fmt: skip
            sent = {**world.cluster.requests, "GET": 0}
            await world.rest(300)
            assert {**world.cluster.requests, "GET": 0} == sent, "it comes to rest"

    run_virtually(story())


def test_trees_of_unlike_depth_stand_side_by_side() -> None:
    async def story() -> None:
        async with job_world() as world:
            await label(world, "n1", net="shallow", net__rack="a")
            await label(world, "n2", net="deep", net__rack="a", net__spine="s")
            await configure(world, PROFILES)
            assert await tree(world) == {
                "shallow-tier1-a": (1, "rack", ["n1"]), "deep-tier1-a": (1, "rack", ["n2"]),
                "deep-tier2-s": (2, "spine", ["deep-tier1-a"]),
            }  # fmt: skip
            labels = (await hypernode(world, "deep-tier1-a"))["metadata"]["labels"]
            assert labels["volcano.sh/network-topology-profile"] == "deep"
            assert await world.events("WithoutEffect") == ["networkTopologyDiscovery: source ufm is not read here; label is"]

    run_virtually(story())


@pytest.mark.parametrize(("name", "labels", "words"), [
    ("n3", {"net": "deep", "net__rack": "a"}, "node n3 of profile deep has no label net/spine"),
    ("n3", {"net": "deep", "net__rack": "a", "net__spine": "t"}, "net/rack=a lies in net/spine=s and, by node n3, in t"),
])
def test_labels_that_make_no_tree_change_nothing_and_are_told_once(name: str, labels: dict[str, str], words: str) -> None:
    async def story() -> None:
        async with job_world() as world:
            await label(world, "n2", net="deep", net__rack="a", net__spine="s")
            await configure(world, PROFILES)
            before = await tree(world)
            await label(world, name, **labels)
            await label(world, "n4", net="shallow", net__rack="c")
            assert await tree(world) == before
            assert await world.events("TopologyRefused") == [
                f"the labels of the nodes make no tree, so nothing is changed: {words}"]  # fmt: skip
            await world.hands.delete(kinds.NODES, name)
            await world.rest()
            assert set(await tree(world)) == {*before, "shallow-tier1-c"}

    run_virtually(story())


def test_a_configuration_that_cannot_be_read_is_told_and_the_last_one_goes_on() -> None:
    async def story() -> None:
        async with job_world() as world:
            await label(world, "n1", net__rack="a", net__spine="s")
            await configure(world, RACKS)
            await configure(world, RACKS.replace("enabled: true", "enabled: maybe"))
            assert await world.events("ConfigurationRefused") == [
                "volcano-controller.conf:4: networkTopologyDiscovery[0].enabled: 'maybe' is neither true nor false; the last "
                "good one goes on"]  # fmt: skip
            await label(world, "n2", net__rack="a", net__spine="s")
            assert (await tree(world))["gpu-tier1-a"][2] == ["n1", "n2"]
            await configure(world, "")
            await label(world, "n3", net__rack="a", net__spine="s")
            assert (await tree(world))["gpu-tier1-a"][2] == ["n1", "n2"], "what was discovered stays as it is"

    run_virtually(story())


def test_a_controller_that_dies_between_its_writes_is_followed_by_one_that_finishes() -> None:
    async def story(writes: int) -> None:
        async with job_world() as world:
            for number in range(4):
                await label(world, f"n{number}", net__rack=f"r{number % 2}", net__spine="s")
            left = [writes]

            def fault(verb: str, path: str) -> ApiError | None:
                left[0] -= verb != "GET"
                return ApiError(0, "Unreachable", "dead") if left[0] < 0 else None

            world.cluster.fault = fault
            await configure(world, RACKS)
            await world.kill()
            world.cluster.fault = lambda verb, path: None
            await world.up()
            await world.rest()
            assert {name: found[2] for name, found in (await tree(world)).items()} == {
                "gpu-tier1-r0": ["n0", "n2"], "gpu-tier1-r1": ["n1", "n3"], "gpu-tier2-s": ["gpu-tier1-r0", "gpu-tier1-r1"]}

    for writes in range(4):
        run_virtually(story(writes))


@pytest.mark.parametrize(("wrong", "words"), [
    ("[]", "volcano-controller.conf:1: expected a mapping"), ("networkTopologyDiscovery: {}", "expected a list"),
    ("networkTopologyDiscovery: [{source: lldp}]", r"networkTopologyDiscovery\[0\].source: 'lldp' is none of ufm, roce, label"),
    ("networkTopologyDiscovery: [{source: label, interval: soon}]", "interval: 'soon' is no duration"), ("a: [", "not YAML"),
    ("networkTopologyDiscovery: [{source: label, enabled: true}, {source: label, enabled: true}]", "one source label at most"),
    *((f"networkTopologyDiscovery: [{{source: label, enabled: true, config: {{networkTopologyTypes: {{t: {types}}}}}}}]", words)
      for types, words in (
          ("[{nodeLabel: a}]", "name a level of the network at least"), ("[{nodeLabel: a}, {nodeLabel: a}]", "a is named twice"),
          ("[{nodeLabel: ''}, {nodeLabel: a}]", r"t\[0\].nodeLabel: '' is no label"), ("7", "expected a mapping"),
          ("{levels: [{nodeLabel: a}, {nodeLabel: b}]}", "say by which labels its nodes are known"))),
])  # fmt: skip
def test_a_configuration_that_means_nothing_says_where(wrong: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_controller_conf(textwrap.dedent(wrong))


@pytest.mark.parametrize("text", ["", "networkTopologyDiscovery: []", "other: 1", "networkTopologyDiscovery: [{source: label}]"])
def test_a_configuration_that_asks_for_nothing_is_one(text: str) -> None:
    found: Any = parse_controller_conf(text)
    assert (found.profiles, found.others) == (None, ())
