"""A card policy is a row of one table: whoever reads, checks or follows a policy's name knows a new one by it."""

from __future__ import annotations

from random import Random

import pytest
from kit.device_world import card, limits, pod_of, vgpu_node
from kit.engine_world import DEVICES_ONLY, World
from kit.objects import node, pod

from pumice.devices.card_policies import POLICIES, CardPolicy
from pumice.devices.lint import lint_files
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.protocol import DeviceRequest
from pumice.devices.registry import settings_from
from pumice.devices.settings import Settings
from pumice.scheduler.state.cards import DeviceTable
from pumice.wire import names

CROWD = CardPolicy(
    "crowd",
    lambda memory, shares, cores, total: shares,
    lambda charged, total, shares: 100.0 * (shares > 0),
    lambda memory, total, shares, limit: shares / limit,
)
"""The card with most pods first, however small they are: neither of the policies that there are."""


@pytest.fixture(autouse=True)
def crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, CROWD.name, CROWD)  # type: ignore[arg-type]


@pytest.mark.parametrize(("policy", "where"), [("binpack", "n1/0"), ("spread", "n3/0"), ("crowd", "n2/0")])
def test_a_policy_is_chosen_by_its_name_in_the_configuration(policy: str, where: str) -> None:
    world = World(DEVICES_ONLY % policy)
    world.add(*(node(name, cards=1, mib=16000) for name in ("n1", "n2", "n3")))
    for name, mib, on in (("large", 9000, "n1"), ("small", 100, "n2"), ("smaller", 50, "n2")):
        world.add(pod(name, mib=mib, nodeSelector={"kubernetes.io/hostname": on}))
        world.settle()
    world.add(pod("new", mib=1000))
    world.settle()
    assert world.card_of("new") == where


def test_a_pods_annotation_may_name_it() -> None:
    assert settings_from({"deviceshare.SchedulePolicy": "crowd"}) == Settings(policy="crowd")
    for steered in (names.CARD_POLICY, names.NODE_POLICY):
        found = requested(NvidiaVgpu(settings=Settings(policy="binpack")), limits(1, 100), **{steered: "crowd"})
        assert {found.detail.card_policy, found.detail.node_policy} == {"binpack", "crowd"}


def test_lint_knows_it() -> None:
    text = f"kind: Pod\nmetadata:\n  annotations:\n    {names.CARD_POLICY}: %s\nspec:\n  containers: [{{name: c}}]\n"
    assert not any("crowd" in str(finding) for finding in lint_files({"p.yaml": text % "crowd"}))
    assert f"write {' or '.join(POLICIES)}" in str(lint_files({"p.yaml": text % "crowed"})[0])


@pytest.mark.parametrize("policy", [*POLICIES, "crowd"])
def test_one_node_and_all_nodes_at_once_are_judged_alike(policy: str) -> None:
    device_type = NvidiaVgpu(settings=Settings(policy=policy))
    table, rng = DeviceTable(device_type), Random(1)
    for row in range(8):
        name = f"n{row}"
        table.put(name, row, device_type.inventory(vgpu_node(name, *(card(f"GPU-{row}-{i}") for i in range(4)))), 8)
        for number in range(rng.randint(0, 12)):
            fit = device_type.quick(requested(device_type, limits(1, rng.randint(100, 8000))), table.view(name))
            if fit is not None:
                table.charge(f"{name}-{number}", fit.allocation)
    device_request = requested(device_type, limits(2, 5000))
    ranked = table.rank(device_request, None, 8)
    assert ranked is not None
    exact = [device_type.quick(device_request, table.view(f"n{row}")) for row in range(8)]
    assert ranked[0].tolist() == [fit is not None for fit in exact]
    assert ranked[1][ranked[0]] == pytest.approx([fit.score for fit in exact if fit is not None])


def requested(device_type: NvidiaVgpu, wanted: dict[str, int], **notes: str) -> DeviceRequest:
    device_request = device_type.device_request(pod_of("p", wanted, annotations=notes))
    assert isinstance(device_request, DeviceRequest)
    return device_request
