"""What explain says of each node is about that node: its own cards, and its own reasons, however alike the nodes are."""

from __future__ import annotations

from typing import Any

from tests.kit.engine_world import World
from tests.kit.objects import node, pod

from pumice.engine.explain import Explanation, explain
from pumice.model.refusal import Short
from pumice.wire.objects import Pod, convert

HOST = "kubernetes.io/hostname"
V100 = "NVIDIA-Tesla V100-SXM2-16GB"


def asked(world: World, **wanted: Any) -> Explanation:
    return explain(world.engine, convert(Pod, pod("asked", **wanted)), now=world.now, gates=False)


def shorts(found: Explanation) -> dict[str, list[Short]]:
    return {misfit.node: [card.short for card in misfit.cards] for misfit in found.misfits}


def test_alike_nodes_name_their_own_cards() -> None:
    world = World()
    world.add(*(node(name, cards=2, mib=8000) for name in ("n1", "n2", "n3")))
    found = asked(world, mib=9000)
    cards = {misfit.node: [card.uuid for card in misfit.cards] for misfit in found.misfits}
    assert cards == {name: [f"GPU-{name}-0", f"GPU-{name}-1"] for name in ("n1", "n2", "n3")}


def test_a_full_card_that_is_asked_for_by_name_is_told_from_the_cards_that_are_not() -> None:
    world = World()
    world.add(*(node(f"n{number}", cards=2, mib=8000) for number in range(300)))
    world.add(*(pod(f"p{number}", cards=2, mib=6000) for number in range(300)))
    world.settle()
    assert all(world.placements().values())
    found = asked(world, mib=4000, annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-n298-0"})
    assert {name for name, reasons in shorts(found).items() if Short.MEMORY in reasons} == {"n298"}
    assert sum(found.counts.values()) == len(found.misfits) == 300


def test_only_the_node_with_the_denied_card_refuses_where_all_others_take_the_pod() -> None:
    world = World()
    world.add(*(node(f"n{number}", cards=1, mib=8000) for number in range(300)))
    found = asked(world, mib=4000, annotations={"volcano.sh/vgpu-nouse-gpuuuid": "GPU-n299-0"})
    assert [misfit.node for misfit in found.misfits] == ["n299"]
    assert len(found.fitting) == 299


def test_cards_that_are_closed_for_unlike_reasons_say_their_own() -> None:
    world = World()
    closed = node("cordoned", cards=1)
    closed["metadata"]["annotations"]["pumice.io/cordoned-cards"] = "*"
    sick = node("sick", register=f"GPU-sick-0,10,8000,{V100},false,hami-core:")
    world.add(closed, sick, node("other", cards=1, kind="NVIDIA-Tesla T4"))
    found = asked(world, mib=4000, annotations={"nvidia.com/use-gputype": "v100"})
    assert shorts(found) == {"cordoned": [Short.CORDON], "sick": [Short.HEALTH], "other": [Short.TYPE]}


def test_a_resource_that_a_node_lacks_is_told_with_its_numbers() -> None:
    world = World()
    world.add(node("small", cpu="2", memory="4Gi"), node("busy", cpu="4"), pod("there", cpu="3", nodeSelector={HOST: "busy"}))
    world.settle()
    found = asked(world, cpu="2500m")
    assert {misfit.node: (misfit.text, misfit.detail) for misfit in found.misfits} == {
        "small": ("Insufficient cpu", "2500m wanted, the node has 2"),
        "busy": ("Insufficient cpu", "2500m wanted, 1 of 4 free"),
    }


def test_an_ended_pod_repeats_what_the_kubelet_said_of_its_end() -> None:
    world = World()
    ended = pod("asked", mib=4000)
    ended["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected: no card"}
    found = explain(world.engine, convert(Pod, ended))
    assert "(UnexpectedAdmissionError: Pod was rejected: no card)" in found.summary
