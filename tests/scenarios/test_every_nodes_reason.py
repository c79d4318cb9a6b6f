"""The output of explain: each node with its own cards and reasons, however alike the nodes are; and queue and gang."""

from __future__ import annotations

from typing import Any

from kit.engine_world import World
from kit.objects import group, node, pod, queue

from pumice.model.refusal import Short
from pumice.scheduler.explaining.explain import Explanation, explain, explain_known
from pumice.wire.objects import Pod, convert

HOST = "kubernetes.io/hostname"
V100 = "NVIDIA-Tesla V100-SXM2-16GB"


def requested(world: World, **wanted: Any) -> Explanation:
    return explain(world.engine, convert(Pod, pod("asked", **wanted)), now=world.now, gates=False)


def shorts(found: Explanation) -> dict[str, list[Short]]:
    return {fit_error.node: [card.short for card in fit_error.cards] for fit_error in found.fit_errors}


def test_alike_nodes_name_their_own_cards() -> None:
    world = World()
    world.add(*(node(name, cards=2, mib=8000) for name in ("n1", "n2", "n3")))
    found = requested(world, mib=9000)
    cards = {fit_error.node: [card.uuid for card in fit_error.cards] for fit_error in found.fit_errors}
    assert cards == {name: [f"GPU-{name}-0", f"GPU-{name}-1"] for name in ("n1", "n2", "n3")}


def test_a_full_card_that_is_asked_for_by_name_is_told_from_the_cards_that_are_not() -> None:
    world = World()
    world.add(*(node(f"n{number}", cards=2, mib=8000) for number in range(300)))
    world.add(*(pod(f"p{number}", cards=2, mib=6000) for number in range(300)))
    world.settle()
    assert all(world.placements().values())
    found = requested(world, mib=4000, annotations={"volcano.sh/vgpu-use-gpuuuid": "GPU-n298-0"})
    assert {name for name, reasons in shorts(found).items() if Short.MEMORY in reasons} == {"n298"}
    assert sum(found.counts.values()) == len(found.fit_errors) == 300


def test_only_the_node_with_the_denied_card_refuses_where_all_others_take_the_pod() -> None:
    world = World()
    world.add(*(node(f"n{number}", cards=1, mib=8000) for number in range(300)))
    found = requested(world, mib=4000, annotations={"volcano.sh/vgpu-nouse-gpuuuid": "GPU-n299-0"})
    assert [fit_error.node for fit_error in found.fit_errors] == ["n299"]
    assert len(found.fitting) == 299


def test_cards_that_are_closed_for_unlike_reasons_say_their_own() -> None:
    world = World()
    closed = node("cordoned", cards=1)
    closed["metadata"]["annotations"]["pumice.io/cordoned-cards"] = "*"
    unhealthy = node("sick", register=f"GPU-sick-0,10,8000,{V100},false,hami-core:")
    world.add(closed, unhealthy, node("other", cards=1, kind="NVIDIA-Tesla T4"))
    found = requested(world, mib=4000, annotations={"nvidia.com/use-gputype": "v100"})
    assert shorts(found) == {"cordoned": [Short.CORDON], "sick": [Short.HEALTH], "other": [Short.TYPE]}


def test_a_resource_that_a_node_lacks_is_told_with_its_numbers() -> None:
    world = World()
    world.add(node("small", cpu="2", memory="4Gi"), node("busy", cpu="4"), pod("there", cpu="3", nodeSelector={HOST: "busy"}))
    world.settle()
    found = requested(world, cpu="2500m")
    assert {fit_error.node: (fit_error.text, fit_error.detail) for fit_error in found.fit_errors} == {
        "small": ("Insufficient cpu", "2500m wanted, the node has 2"),
        "busy": ("Insufficient cpu", "2500m wanted, 1 of 4 free"),
    }


def test_an_ended_pod_repeats_what_the_kubelet_said_of_its_end() -> None:
    world = World()
    ended = pod("asked", mib=4000)
    ended["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Pod was rejected: no card"}
    found = explain(world.engine, convert(Pod, ended))
    assert "(UnexpectedAdmissionError: Pod was rejected: no card)" in found.summary


def test_pods_of_another_scheduler_that_would_have_to_leave_are_called_by_their_names() -> None:
    world = World()
    ids = {"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,7000,0:"}
    theirs = pod("theirs", mib=7000, scheduler="theirs", annotations=ids, nodeName="n1")
    theirs["status"]["phase"] = "Running"
    world.add(node("n1", cards=1, mib=8000), theirs)
    assert [change.text for change in requested(world, mib=3000).changes if change.kind == "evict"] == [
        "let this pod leave n1: default/theirs"
    ]


# -- queue and gang -------------------------------------------------------------------------------------------------


def waiting(world: World, name: str) -> Explanation:
    """The answer for a pod that waits, twice told: what its condition says already must not be missing here."""
    world.settle()
    found = explain_known(world.engine, "default", name, now=world.now)
    assert found is not None
    return found


def test_a_queue_that_does_not_exist_is_told_to_the_pod_and_by_explain_until_it_does() -> None:
    world = World()
    world.add(node("n1", cards=1), pod("a", mib=1000, queue="nope"))
    assert waiting(world, "a").gates == ("queue nope does not exist",)
    assert world.condition("a")["message"] == "queue nope does not exist"
    world.add(queue("nope"))
    world.settle()
    assert world.node_of("a") == "n1"


def test_a_gang_that_lacks_members_is_told_again_whenever_it_is_asked() -> None:
    world = World()
    world.add(node("n1", cards=1), group("g", minimum=3), pod("a", mib=1000, group="g"))
    said = "Not enough valid tasks for gang-scheduling, valid: 1, min: 3"
    assert waiting(world, "a").gates == (said,)
    assert waiting(world, "a").gates == (said,)
    assert world.condition("a")["message"] == said


def test_a_group_that_is_not_there_and_gates_of_the_pod_itself_are_told() -> None:
    world = World()
    world.add(node("n1", cards=1), pod("a", mib=1000, group="none"), pod("b", mib=1000, gated=True))
    assert waiting(world, "a").gates == ("PodGroup default/none does not exist",)
    assert waiting(world, "b").gates == ("it is held by its scheduling gates: example.com/wait",)


def test_what_is_offered_to_a_pod_of_a_full_queue_is_what_the_queue_can_pay() -> None:
    world = World()
    world.add(node("n1", cards=2, mib=8000), queue("team", capability={"volcano.sh/vgpu-memory": "10000"}))
    world.add(pod("first", mib=7000, queue="team"))
    world.settle()
    world.add(pod("late", mib=6000, queue="team"))
    found = waiting(world, "late")
    assert found.node == "n1"
    assert found.gates == ("queue team has no room left for it (volcano.sh/vgpu-memory: 6000 wanted, 7000 of 10000 in use)",)
    assert [change.text for change in found.changes] == ["ask for memory 3000 MiB instead of 6000 (volcano.sh/vgpu-memory: 3000)"]


def test_a_pod_that_neither_node_nor_queue_takes_hears_of_both() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), queue("team", capability={"volcano.sh/vgpu-memory": "10000"}))
    world.add(pod("first", mib=7000, queue="team"))
    world.settle()
    world.add(pod("late", mib=6000, queue="team"))
    found = waiting(world, "late")
    assert found.node == ""
    assert [fit_error.node for fit_error in found.fit_errors] == ["n1"]
    assert found.gates == ("queue team has no room left for it (volcano.sh/vgpu-memory: 6000 wanted, 7000 of 10000 in use)",)
    leaving = [change for change in found.changes if change.kind == "evict"]
    assert [change.text for change in leaving] == ["let this pod leave n1: default/first"]


def test_a_full_cluster_is_no_limit_of_the_queue() -> None:
    world = World()
    world.add(node("n1", cards=1, mib=8000), pod("first", mib=7000))
    world.settle()
    world.add(pod("late", mib=6000))
    assert waiting(world, "late").gates == ()


def test_a_pod_that_wants_what_no_node_has_is_told_so_and_not_that_its_queue_is_overused() -> None:
    world = World()
    world.add(node("n1", cpu="4"), pod("first", cpu="1"))
    world.settle()
    world.add(pod("late", cards=1, mib=1000))
    found = waiting(world, "late")
    assert found.gates == ()
    assert "Insufficient volcano.sh/vgpu-memory" in world.condition("late")["message"]


def test_questions_about_a_queue_leave_its_books_as_they_were() -> None:
    world = World()
    world.add(node("n1", cards=2, mib=8000), queue("team", capability={"volcano.sh/vgpu-memory": "10000"}))
    world.add(pod("first", mib=7000, queue="team"))
    world.settle()
    world.add(pod("late", cards=1, queue="team"), pod("other", mib=9000, queue="team"))
    world.settle()
    team = world.engine.state.queues["team"]
    before = dict(team.allocated), dict(team.pending), dict(team.quota_known_late)
    assert waiting(world, "late").changes
    assert (dict(team.allocated), dict(team.pending), dict(team.quota_known_late)) == before
