"""A device type that the product has never heard of, the scheduler's part: its pods are placed, written down, read again,
refused with reasons, counted and linted by rooms that name no device type."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit.device_world import fingerprint
from kit.engine_world import World
from kit.objects import Json, node, pod
from kit.scheduler_confs import conf
from tests.scenarios.toy_device_type.device_type import ToySharing
from tests.scenarios.toy_device_type.node import SLICE, ToyAllocator, ToyCards
from tests.scenarios.toy_device_type.words import ASSIGNED, CARD, LOCK, RESOURCE, parse

import pumice
from pumice.devices.lint import lint_files
from pumice.devices.registry import every_device_type
from pumice.effects.vocabulary import PatchNode
from pumice.metrics.devices import DeviceSeries
from pumice.node.pods import NodePod
from pumice.node.protocol import Serve
from pumice.scheduler.explaining.explain import explain
from pumice.wire.objects import Node, Pod, convert

ROOT = Path(pumice.__file__).parent


def allocator(cards: str) -> ToyAllocator:
    """The node's half over cards of so many slices."""
    made = ToyAllocator()
    made.show(ToyCards({name: slices * SLICE for name, slices in parse(cards).items()}).facts())
    return made


def toy_node(name: str, cards: str) -> Json:
    """A node as its plugin writes it and its kubelet counts it."""
    half = allocator(cards)
    made = node(name, extra={RESOURCE: str(len(half.units(RESOURCE)))})
    for patch in half.missing(convert(Node, made)):
        assert isinstance(patch, PatchNode)
        made["metadata"]["annotations"].update(patch.annotations)
    return made


def toy_pod(name: str, slices: int, card: str = "") -> Json:
    return pod(name, limits={RESOURCE: str(slices)}, annotations={CARD: card} if card else {})


def nursery() -> World:
    """Twenty slices on three cards of two nodes, some of them held."""
    world = World(conf("gang", "predicates", "deviceshare"), device_types=[ToySharing()])
    world.add(toy_node("n1", "toy-0=10,toy-1=4"), toy_node("n2", "toy-1=6"))
    world.add(toy_pod("first", 7), toy_pod("second", 5, card="toy-1"))
    world.settle()
    return world


def held(world: World) -> dict[str, tuple[str, str]]:
    return {p["metadata"]["name"]: (p["spec"].get("nodeName", ""), p["metadata"]["annotations"].get(ASSIGNED, ""))
            for p in world.pods.values()}  # fmt: skip


def test_a_pod_is_placed_and_its_devices_are_written_in_the_binding_under_the_lock_of_its_type() -> None:
    world = nursery()
    assert held(world) == {"first": ("n1", "toy-0=7"), "second": ("n2", "toy-1=5")}
    assert {(bind.annotations[ASSIGNED], bind.lock) for bind in world.bindings} == {("toy-0=7", LOCK), ("toy-1=5", LOCK)}


def test_what_the_scheduler_wrote_is_what_the_node_hands_out() -> None:
    first = nursery().pods["default/first"]
    served = allocator("toy-0=10,toy-1=4").allocate([convert(NodePod, first)], [f"toy-1-{i}" for i in range(7)])
    assert isinstance(served, Serve)
    assert (served.answer.env["TOY_CARDS"], served.summary) == ("toy-0", "toy-0=7")


def test_a_scheduler_that_starts_anew_knows_what_is_held() -> None:
    world = nursery()
    assert fingerprint(world.restarted().state.ledger) == fingerprint(world.engine.state.ledger)
    world.engine = world.restarted()
    world.add(toy_pod("third", 4), toy_pod("fourth", 4))
    world.settle()
    assert sorted(held(world)[name] for name in ("third", "fourth")) == [("", ""), ("n1", "toy-1=4")]


def test_what_cannot_be_given_is_refused_with_reasons_and_what_would_fit() -> None:
    world = nursery()
    world.add(toy_pod("greedy", 5, card="toy-0"), pod("vague", limits={RESOURCE: "1.5"}))
    world.settle()
    assert "1 Insufficient toy.pumice.io/slices, 1 toy: too few slices" in world.condition("greedy")["message"]
    assert "slices are counted in whole numbers" in world.condition("vague")["message"]
    reported = explain(world.engine, convert(Pod, world.pods["default/greedy"]), gates=False)
    assert {card.uuid: (card.wanted, card.best) for m in reported.fit_errors if m.node == "n1" for card in m.cards} == {
        "toy-0": (5, 3), "toy-1": (0, 0),
    }  # fmt: skip
    assert f"ask for cards 3 instead of 5 ({RESOURCE}: 3)" in [change.text for change in reported.changes]


def test_its_devices_are_on_the_metrics_page() -> None:
    page = "".join(DeviceSeries(nursery().engine).section())
    assert 'toy_card_memory_limit{devID="toy-0",NodeName="n1"} 10\n' in page
    assert 'toy_card_allocated_memory{devID="toy-0",NodeName="n1"} 7\n' in page
    assert 'toy_card_own_pod_memory{devID="toy-1",NodeName="n2",podNamespace="default",podName="second"} 5\n' in page


MANIFEST = f"""\
apiVersion: v1
kind: Pod
metadata:
  annotations:
    {ASSIGNED}: toy-0=3
    {CARD}: green
    {CARD[:-1]}: toy-0
spec:
  containers:
  - resources:
      limits:
        {RESOURCE}: 0.5
      requests:
        {RESOURCE}s: 1
"""


def test_lint_knows_its_words() -> None:
    found = [str(finding) for finding in lint_files({"pod.yaml": MANIFEST}, [ToySharing()])]
    assert found == [
        f"pod.yaml:5: warning: {ASSIGNED} is written by the scheduler; a manifest must not carry it",
        f"pod.yaml:6: warning: {CARD}: 'green' does nothing; write toy-0 or toy-1",
        f"pod.yaml:7: warning: nobody reads the annotation {CARD[:-1]}; did you mean {CARD!r}?",
        "pod.yaml:8: warning: the pod asks for shares of cards, but its schedulerName is not volcano: nobody chooses its cards",
        f"pod.yaml:12: warning: {RESOURCE}: 0.5 is not a whole number and counts as 1",
        f"pod.yaml:14: warning: nobody offers the resource {RESOURCE}s; did you mean {RESOURCE!r}?",
    ]


@pytest.mark.parametrize("room", ["engine", "metrics", "devices/lint", "apps/scheduler"])
def test_rooms_that_serve_every_device_type_name_none(room: str) -> None:
    device_types = {f'"{device_type.name}' for device_type in every_device_type()}
    device_types |= {type(device_type).__module__.rsplit(".", 1)[0] for device_type in every_device_type()}
    for path in (ROOT / room).rglob("*.py"):
        text = path.read_text()
        assert not [device_type for device_type in device_types if device_type in text], path
