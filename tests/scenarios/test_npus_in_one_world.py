"""An NPU serves annotated pods or claims: the scheduler has one ledger of both, in HAMi's mode and in MindCluster's."""

from __future__ import annotations

from typing import Any

import pytest
from kit.claims import asks, claim
from kit.device_claims import ClaimWorld
from kit.npu_core_world import core_node_object, core_pod_object, gathered
from kit.npu_world import chip, npu_limits, npu_node_object
from kit.objects import pod
from kit.scheduler_confs import conf, sharing

from pumice.devices.ascend_mindcluster.node.claims import slice_specs
from pumice.node.claims import owner_of, slice_object
from pumice.ports.cards import CardFacts

Json = dict[str, Any]
CLASSES = [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": {"selectors": [
    {"cel": {"expression": f'device.driver == "npu.pumice.io" && device.attributes["npu.pumice.io"].type == "{type_}"'}}]}}
    for name, type_ in (("npu.pumice.io", "npu"), ("vnpu.pumice.io", "vnpu"))]  # fmt: skip


def world(mode: str, number: int) -> ClaimWorld:
    uuids = [f"n1-{at + 1}" for at in range(number)]
    cards = [CardFacts(at, uuid, "310P3", 24 << 30, minor=at) for at, uuid in enumerate(uuids)]
    if mode == "hami":
        found = ClaimWorld(conf("gang", "predicates", sharing("AscendHAMiVNPU")))
        found.add(npu_node_object("n1", chip("310P3"), number))
    else:
        found = ClaimWorld(conf("gang", "predicates", sharing("AscendMindClusterVNPU")))
        found.add(core_node_object("n1", number), gathered({"n1": number}))
    specs = slice_specs("n1", cards, {}, 1)
    found.publish(*CLASSES, *(slice_object(spec, at, owner_of("n1", "u"), 1) for at, spec in enumerate(specs)))
    return found


def slice_of(template: str) -> Json:
    selectors = [{"cel": {"expression": f'device.attributes["npu.pumice.io"].template == "{template}"'}}]
    return claim(asks(deviceClassName="vnpu.pumice.io", selectors=selectors))


def annotated(mode: str, name: str) -> Json:
    if mode == "hami":
        return pod(name, limits=npu_limits(chip("310P3"), 1, 3072))
    return core_pod_object(name, 1)


@pytest.mark.parametrize("mode", ["hami", "mindcluster"])
def test_a_claim_and_an_annotated_share_never_meet_on_a_chip(mode: str) -> None:
    here = world(mode, 1)
    here.ask("slice", slice_of("vir02"))
    here.settle()
    assert here.devices_of("slice-c0") == ["n1/npu-0-vir02-0"]
    here.add(annotated(mode, "shares"))
    here.settle()
    assert here.node_of("shares") == ""
    here.delete_pod("slice")
    here.settle()
    assert here.node_of("shares") == "n1", here.condition("shares")
    here.ask("late", slice_of("vir01"))
    here.settle()
    assert here.node_of("late") == ""
    here.delete_pod("shares")
    here.settle()
    assert here.node_of("late") == "n1"


@pytest.mark.parametrize("mode", ["hami", "mindcluster"])
def test_a_claim_gets_no_chip_of_a_pod_that_was_bound_just_before_the_node_took_the_chip_back(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(mode, 1)
    before = [*here.nodes.values()]
    monkeypatch.setattr(here, "nodes_as_counted", lambda: before)
    here.add(annotated(mode, "shares"))
    here.settle()
    assert here.node_of("shares") == "n1"
    if mode == "hami":
        taken = npu_node_object("n1", chip("310P3"), unhealthy=(0,))
        taken["status"]["allocatable"] |= {chip("310P3").resource: "0"}
        here.add(taken)
    else:
        here.add(core_node_object("n1", 0), gathered({"n1": 0}))
    here.ask("late", slice_of("vir01"))
    here.settle()
    assert here.node_of("late") == ""
    here.delete_pod("shares")
    here.settle()
    assert here.node_of("late") == "n1"
