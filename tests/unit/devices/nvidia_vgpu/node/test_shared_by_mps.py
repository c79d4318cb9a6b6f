"""A node that shares its cards by MPS: what schedulers are told, whom a card takes, and what a container gets (NVIDIA
k8s-device-plugin cmd/mps-control-daemon)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kit.node_objects import CARDS, NODE, UID, A, B, allocator, container, gives, pod

from pumice.devices.nvidia_vgpu.node.allocator import VgpuAllocator, register_annotation
from pumice.devices.nvidia_vgpu.node.inventory import share
from pumice.devices.nvidia_vgpu.node.sharing import Sharing, effective
from pumice.model.errors import BadInput
from pumice.node.mps import Bounds
from pumice.node.pods import NodePod
from pumice.node.protocol import Conflict, Refuse, Serve
from pumice.ports.cards import CardFacts
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.node_config import NodeEntry

MPS = effective(NvidiaConfig(), [NodeEntry(NODE, mode="mps")])
ROOT = "/run/nvidia/mps"


def node(sharing: Sharing = MPS, cards: tuple[CardFacts, ...] = CARDS) -> VgpuAllocator:
    return allocator(sharing, cards, mps_root=ROOT)


def serve(at: VgpuAllocator, pods: list[NodePod], which: NodePod, ids: list[str] | None = None) -> Serve:
    decision = at.allocate([one for one in pods if one is which or one.annotations.get("served")], ids or [f"{which.uid}-id"])
    assert isinstance(decision, Serve), decision
    assert decision.pod is which
    if decision.patch is not None:
        which.metadata.annotations.update(decision.patch.annotations)
    which.metadata.annotations["served"] = "yes"
    at.committed(decision)
    return decision


def of(name: str, card: str = A, memory: int = 3000, cores: int = 50, uid: str = "", **said: Any) -> NodePod:
    return pod(name, gives(card, memory, cores), container("train", 1, memory, cores, **said), uid=uid or name)


def as_user(user: int) -> dict[str, Any]:
    return {"securityContext": {"runAsUser": user}}


def test_a_container_gets_pipe_memory_and_threads_and_no_library():
    got = serve(node(), [one := of("p1", uid=UID)], one).answer
    assert dict(got.env) == {
        "NVIDIA_VISIBLE_DEVICES": A, "CUDA_MPS_PIPE_DIRECTORY": f"/mps/{A[:12]}/pipe",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=3000M",
    }  # fmt: skip
    assert [(m.container_path, m.host_path, m.read_only) for m in got.mounts] == [
        (f"/mps/{A[:12]}/pipe", f"{ROOT}/{A[:12]}/pipe", False), ("/dev/shm", f"{ROOT}/shm", False),
    ]  # fmt: skip
    assert [directory.path for directory in got.directories] == [f"{ROOT}/shm"]
    assert dict(got.bounds) == {A: Bounds(3000, 50)}


def test_what_a_pod_says_of_the_library_changes_nothing_of_what_the_server_holds_it_to():
    off = {"env": [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]}
    said, silent = (serve(node(), [one := of("p1", uid=UID, **more)], one).answer for more in (off, {}))
    assert (said.env, said.mounts, said.bounds) == (silent.env, silent.mounts, silent.bounds)


@pytest.mark.parametrize(
    ("sharing", "memory", "cores", "threads"),
    [(MPS, 3000, 0, None), (replace(MPS, limit_cores=False), 3000, 50, None), (replace(MPS, factor=10), 300, 50, "50")],
)
def test_what_is_not_bounded_is_not_told(sharing, memory, cores, threads):
    env = serve(node(sharing), [one := of("p", A, memory, cores)], one).answer.env
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3000M"
    assert env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == threads


def test_schedulers_are_told_hami_core():
    cards = share(CARDS, MPS)
    assert {card.mode for card in cards} == {"hami-core"}
    assert "mps" not in register_annotation(cards)


def test_a_card_is_bounded_by_the_widest_share_that_it_holds_and_by_each_again_when_that_has_gone():
    at, pods = node(), [of("small", A, 1000, 20), of("large", A, 9000, 60), of("third", A, 500, 10)]
    serve(at, pods, pods[0])
    assert serve(at, pods, pods[1]).answer.bounds == {A: Bounds(9000, 60)}
    assert at.daemons(pods) == {A: Bounds(9000, 60), B: Bounds()}
    pods[1].status.phase = "Succeeded"
    assert at.daemons(pods)[A] == Bounds(1000, 20)
    assert serve(at, pods, pods[2]).answer.bounds == {A: Bounds(1000, 20)}


def test_an_init_containers_share_bounds_its_card_for_as_long_as_it_may_run():
    both = pod("p", gives(A), container("train", 1, 3000, 50), inits=(container("prepare", 1, 3000, 50),), uid="p")
    at = node()
    decision = at.allocate([both], ["x"])
    assert isinstance(decision, Serve)
    assert decision.container.name == "prepare"
    at.committed(decision)
    assert at.daemons([both])[A] == Bounds(3000, 50)


@pytest.mark.parametrize(("one", "other", "served"), [
    ({}, {}, True), (as_user(0), {}, True), (as_user(1000), as_user(1000), True), (as_user(1000), as_user(1001), False),
    ({}, as_user(1000), False),
])  # fmt: skip
def test_a_card_takes_the_programs_of_one_user(one, other, served):
    at, pods = node(), [of("first", **one), of("second", **other)]
    serve(at, pods, pods[0])
    decision = at.allocate(pods, ["second-id"])
    assert isinstance(decision, Serve if served else Conflict)
    if isinstance(decision, Conflict):
        assert "an MPS server takes the programs of one user" in decision.reason
        assert "ns1/first" in decision.reason
        pods[0].status.phase = "Failed"
        assert isinstance(at.allocate(pods, ["second-id"]), Serve)


def test_users_may_differ_from_card_to_card_and_a_containers_own_word_counts_before_its_pods():
    at, pods = node(), [of("first", **as_user(1000)), of("second", B, **as_user(1001)), of("third", **as_user(1000))]
    pods[2].spec.security_context = pods[1].spec.containers[0].security_context
    for one in pods:
        serve(at, pods, one)


@pytest.mark.parametrize(("change", "said"), [
    ({"securityContext": {"runAsNonRoot": True}}, "runAsUser does not say as whom"),
    ({"volumeMounts": [{"name": "shm", "mountPath": "/dev/shm/"}]}, "mounts /dev/shm of its own"),
])  # fmt: skip
def test_a_container_that_cannot_be_a_client_is_refused_with_the_reason(change, said):
    decision = node().allocate([of("p", **change)], ["x"])
    assert isinstance(decision, Refuse)
    assert said in decision.reason


def test_a_pod_with_user_ids_of_its_own_is_refused():
    one = of("p")
    one.spec.host_users = False
    decision = node().allocate([one], ["x"])
    assert isinstance(decision, Refuse)
    assert "hostUsers: false" in decision.reason


def test_a_container_with_two_cards_is_refused_for_it_reaches_one_daemon():
    two = pod("p", f"{gives(A)}{gives(B)}", container("train", 2, 3000, 50))
    decision = node().allocate([two], ["x", "y"])
    assert isinstance(decision, Refuse)
    assert "ask for one card a container" in decision.reason


def test_a_card_that_mps_cannot_bound_takes_no_pods_and_has_no_daemon():
    old = tuple(replace(card, capability=(6, 1)) for card in CARDS)
    assert all("MPS" in card.closed for card in share(old, MPS))
    assert node(cards=old).daemons([]) == {}
    assert not any(card.closed for card in share(old, replace(MPS, mps=False)))


@pytest.mark.parametrize(("capability", "shares"), [((7, 0), 16), ((7, 5), 48), ((9, 0), 48), ((0, 0), 48)])
def test_a_card_has_no_more_shares_than_its_server_takes_clients(capability, shares):
    (card,) = share([replace(CARDS[0], capability=capability)], replace(MPS, split=100))
    assert card.shares == shares


def test_a_card_in_mig_mode_is_cut_as_ever():
    (card,) = share([replace(CARDS[0], name="NVIDIA A100-SXM4-40GB", mig=True)], MPS)
    assert card.mode == "mig"
    assert card.closed == ""


def test_more_memory_than_there_is_cannot_be_promised_by_mps():
    with pytest.raises(BadInput, match="scale by 1"):
        effective(NvidiaConfig(), [NodeEntry(NODE, mode="mps", memory_scaling=1.8)])
