"""Whose turn it is, and what it gets (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from kit.node_objects import CARDS, NODE, UID, A, B, allocator, card, container, gives, pod, units_of

from pumice.devices.nvidia_vgpu.node.allocator import VgpuAllocator
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.effects.vocabulary import Event, PatchPod, PatchStatus
from pumice.node.pods import ContainerStatus, NodePod
from pumice.node.protocol import Answer, Outdated, Partition, Refuse, Repeat, Serve
from pumice.ports.slices import Place, Slice
from pumice.wire import limits_page, names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.limits_page import GrantedCard, LimitsPage
from pumice.wire.objects import Node, convert

FAILED = {names.BIND_PHASE: "failed", names.VGPU_TIME: "18446744073709551615"}
SERVED = {names.BIND_PHASE: "success", names.VGPU_TIME: "18446744073709551615"}
REF = Sharing()


def serve(at: VgpuAllocator, pods: list[NodePod], ids: list[str]) -> Serve:
    """One call that must be served; the pod object is changed as the API server would."""
    decision = at.allocate(pods, ids)
    assert isinstance(decision, Serve), decision
    if decision.patch is not None:
        decision.work.pod.metadata.annotations.update(decision.patch.annotations)
    at.committed(decision)
    return decision


def test_one_container_with_one_card_gets_its_limits_and_the_library():
    one = pod("p1", gives(A), uid=UID)
    got = serve(allocator(), [one], [f"{B}-4"])
    env = dict(got.answer.env)
    cache = env.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE")
    assert cache.startswith("/tmp/vgpu/")
    assert cache.endswith(".cache")
    assert env == {
        "NVIDIA_VISIBLE_DEVICES": A,
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "50",
    }
    assert [(m.container_path, m.host_path, m.read_only) for m in got.answer.mounts] == [
        ("/usr/local/vgpu/libvgpu.so", "/usr/local/vgpu/libvgpu.so", True),
        ("/usr/local/vgpu/limits", f"/usr/local/vgpu/vgpu/limits/{UID}_train/limits", True),
        ("/tmp/vgpu", f"/usr/local/vgpu/vgpu/containers/{UID}_train", False),
        (cache, f"/usr/local/vgpu/vgpu/containers/{UID}_train/{cache.rpartition('/')[2]}", False),
        ("/tmp/vgpulock", "/tmp/vgpulock", False),
        ("/etc/ld.so.preload", "/usr/local/vgpu/ld.so.preload", True),
    ]
    page, region = got.answer.files
    assert (page.path, page.mode) == (f"/usr/local/vgpu/vgpu/limits/{UID}_train/limits", 0o644)
    assert limits_page.parse(page.content) == LimitsPage((GrantedCard(A, 3000 << 20, 50),), cache, priority=1)
    assert (region.content, region.mode) == (b"", 0o666)
    assert got.patch == PatchPod("ns1", "p1", UID, {names.DEVICES_TO_ALLOCATE: "", **SERVED})
    assert got.finished
    assert one.annotations[names.VGPU_IDS] == gives(A)


@pytest.mark.parametrize(
    ("sharing", "devices", "expected"),
    [
        (replace(REF, factor=10), gives(A, 300), {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m"}),
        (REF, gives(A, 32768, 0), {"CUDA_DEVICE_MEMORY_LIMIT_0": "32768m", "CUDA_DEVICE_SM_LIMIT": "0"}),
        (replace(REF, factor=10), gives(A, 3276, 0), {"CUDA_DEVICE_MEMORY_LIMIT_0": "32760m"}),
        (replace(REF, memory_scaling=Fraction(9, 5)), gives(A), {"CUDA_OVERSUBSCRIBE": "true"}),
        (replace(REF, core_scaling=Fraction(9, 5)), gives(A), {"CUDA_OVERSUBSCRIBE": None}),
        (replace(REF, limit_cores=False), gives(A), {"GPU_CORE_UTILIZATION_POLICY": "disable"}),
    ],
)
def test_the_limits_follow_the_configuration(sharing, devices, expected):
    env = serve(allocator(sharing), [pod("p", devices)], ["x"]).answer.env
    assert {key: env.get(key) for key in expected} == expected


LENT = replace(REF, config=NvidiaConfig(bursts=True))
BURST = {names.BURST_MEMORY: "8000", names.BURST_CORES: "80"}


@pytest.mark.parametrize(("sharing", "burst"), [(LENT, 8000), (replace(LENT, factor=10), 80_000)])
def test_the_page_says_how_far_a_container_may_go_beyond_its_ask_and_the_environment_what_it_asked(sharing, burst):
    got = serve(allocator(sharing), [pod("p", gives(A), annotations=BURST)], ["x"])
    page = limits_page.parse(got.answer.files[0].content)
    assert page is not None
    assert page.cards == (GrantedCard(A, 3000 * sharing.factor << 20, 50, burst << 20),)
    assert got.answer.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{3000 * sharing.factor}m"
    assert got.notes == ()


@pytest.mark.parametrize(
    ("sharing", "devices", "notes", "said"),
    [
        (LENT, gives(A), {names.BURST_MEMORY: "3000"}, "container train: pumice.io/burst-memory: 3000 is not above"),
        (LENT, gives(A), {names.BURST_MEMORY: "8Gi "}, "is not a whole number above 0"),
        (LENT, gives(A), {names.BURST_CORES: "500"}, "is not a percentage from 1 to 100"),
        (LENT, gives(A), {names.BURST_CORES: "50"}, "50 is not above the 50 that were asked for"),
        (LENT, gives(A, 3000, 0), {names.BURST_CORES: "80"}, "that has no core limit to exceed"),
        (replace(LENT, limit_cores=False), gives(A), BURST, "no cores are limited on this node"),
        (REF, gives(A), BURST, "has no nvidia.bursts: true"),
        (replace(LENT, mps=True), gives(A), BURST, "shared by MPS"),
    ],
)
def test_a_burst_that_is_not_served_is_told_on_the_pod(sharing, devices, notes, said):
    found = serve(allocator(sharing), [pod("p", devices, container("train", 1), annotations=notes)], ["x"])
    assert [(event.reason, said in event.message) for event in found.notes] == [("VGPUPartlyServed", True)]
    pages = [limits_page.parse(file.content) for file in found.answer.files]
    assert all(card.burst in (0, 8000 << 20) for page in pages if page for card in page.cards)


def test_two_cards_are_numbered_as_the_container_will_see_them():
    two = pod("p", gives(B, 1000, 0) + gives(A, 2000, 0), container("c", 2))
    env = serve(allocator(), [two], ["x", "y"]).answer.env
    assert env["NVIDIA_VISIBLE_DEVICES"] == f"{A},{B}"
    assert (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_MEMORY_LIMIT_1"]) == ("2000m", "1000m")


def test_containers_without_cards_do_not_shift_the_others():
    three = pod(
        "p", f"{gives(B, 2000, 0)}{gives(A, 2000, 0)};{gives(B, 3000, 0)}",
        container("c0", 2, 2000), container("c1"), container("c2", 1, 3000),
    )  # fmt: skip
    at = allocator()
    first = serve(at, [three], ["x", "y"])
    assert (first.work.container.name, first.finished) == ("c0", False)
    assert three.annotations[names.DEVICES_TO_ALLOCATE] == f";{gives(B, 3000, 0)}"
    assert three.annotations[names.BIND_PHASE] == "allocating"
    second = serve(at, [three], ["z"])
    assert (second.work.container.name, second.answer.env["CUDA_DEVICE_MEMORY_LIMIT_0"]) == ("c2", "3000m")
    assert three.annotations[names.DEVICES_TO_ALLOCATE] == ";"
    assert three.annotations[names.BIND_PHASE] == "success"


def test_the_next_segment_counts_and_not_the_total_of_the_pod():
    """Upstream compares the request with the pod's total (defect D1)."""
    two = pod("p", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1))
    assert allocator().allocate([two], ["x", "y"]) is None
    at = allocator()
    assert [serve(at, [two], [i]).work.container.name for i in ("x", "y")] == ["a", "b"]


def test_a_served_segment_is_not_handed_out_again_while_the_cache_is_late():
    two = pod("p", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1))
    at, late = allocator(), pod("p", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1))
    serve(at, [two], ["x"])
    assert serve(at, [late], ["y"]).work.container.name == "b"
    assert at.allocate([pod("p", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1))], ["z"]) is None


def test_after_a_restart_the_annotations_say_what_is_left():
    two = pod("p", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1))
    serve(allocator(), [two], ["x"])
    assert serve(allocator(), [two], ["y"]).work.container.name == "b"
    assert allocator().allocate([two], ["z"]) is None


def test_the_oldest_of_equal_pods_is_served_first_and_ended_ones_never():
    p0 = pod("p0", gives(A), time=50, phase="Failed", annotations={names.BIND_PHASE: "failed"})
    p1, p2 = pod("p1", gives(A), time=100), pod("p2", gives(B), time=200)
    at = allocator()
    assert [serve(at, [p2, p0, p1], [i]).work.pod.key for i in "xy"] == ["ns1/p1", "ns1/p2"]


def test_pods_that_came_while_we_watched_are_served_as_they_came():
    """The kubelet admits in the order of its watch, which is ours; the scheduler's time has whole seconds."""
    first, second = pod("first", gives(A), time=100), pod("second", gives(B), time=99)
    first.arrival, second.arrival = 1, 2
    at = allocator()
    assert [serve(at, [second, first], [i]).work.pod.key for i in "xy"] == ["ns1/first", "ns1/second"]


def test_a_pod_that_no_scheduler_placed_takes_its_turn_and_is_refused():
    stranger, placed = pod("stranger", None, container("c", 1)), pod("placed", gives(A))
    stranger.arrival, placed.arrival = 1, 2
    at = allocator()
    refused = at.allocate([placed, stranger], ["x"])
    assert isinstance(refused, Refuse)
    assert "pod ns1/stranger: it asks for volcano.sh/vgpu-number but was not placed by the scheduler" in refused.reason
    assert [type(effect) for effect in refused.effects] == [Event]
    assert serve(at, [placed, stranger], ["y"]).work.pod.key == "ns1/placed"
    assert at.allocate([stranger], ["z"]) is None, "its turn is over"


def test_a_pod_whose_cards_were_chosen_on_another_node_is_refused():
    stale = pod("stale", gives(A), annotations={names.VGPU_NODE: "node-b"})
    refused = allocator().allocate([stale], ["x"])
    assert isinstance(refused, Refuse)
    assert refused.reason == "pod ns1/stale: its cards were chosen on node node-b, but it was bound here"


def test_a_refused_pod_does_not_come_up_again_while_the_cache_is_late():
    bad, good = pod("bad", gives("GPU-elsewhere")), pod("good", gives(A))
    bad.arrival, good.arrival = 1, 2
    at = allocator()
    assert isinstance(at.allocate([bad, good], ["x"]), Refuse)
    assert serve(at, [bad, good], ["y"]).work.pod.key == "ns1/good"


def test_a_pod_half_served_goes_before_an_older_one():
    old = pod("old", gives(A), time=1)
    half = pod("half", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1), left=f";{gives(B)}", time=9)
    assert serve(allocator(), [old, half], ["x"]).work.pod.key == "ns1/half"


@pytest.mark.parametrize(
    "unfit",
    [
        pod("gone", gives(A), deletionTimestamp="2026-08-20T10:00:00Z"),
        pod("done", gives(A), phase="Running"),
        pod("elsewhere", gives(A), node="node-b"),
        pod("failed", gives(A), annotations={names.BIND_PHASE: "failed"}),
        pod("served", gives(A), left=""),
        pod("never placed", None, container("c")),
    ],
    ids=lambda p: p.metadata.name,
)
def test_pods_that_do_not_wait_here_are_no_candidates(unfit):
    assert allocator().allocate([unfit], ["x"]) is None


def test_the_ids_that_were_proposed_tie_the_call_to_the_pod():
    first, second = pod("first", gives(A), time=1), pod("second", gives(B), time=2)
    at = allocator()
    ids = at.prefer([second], [f"{A}-0", f"{B}-3", f"{B}-1"], [], 1)
    assert ids == [f"{B}-1"]
    assert serve(at, [first, second], ids).work.pod.key == "ns1/second"


def test_preferred_ids_are_those_of_the_scheduled_cards():
    two = pod("p", gives(B, 2000, 0) + gives(A, 2000, 0), container("c", 2))
    available = [f"{uuid}-{i}" for uuid in (B, A) for i in (9, 10, 2)]
    assert sorted(allocator().prefer([two], available, [], 2)) == [f"{A}-2", f"{B}-2"]
    assert allocator().prefer([two], available, [f"{B}-9"], 2) == [f"{B}-9", f"{A}-2"]
    assert allocator().prefer([], available, [], 2) == [f"{A}-2", f"{A}-9"]


def test_an_init_container_borrows_the_cards_and_consumes_nothing():
    p = pod("p", gives(A), inits=(container("init", 1),))
    at = allocator()
    assert serve(at, [p], ["x"]).work.container.name == "init"
    assert p.annotations[names.DEVICES_TO_ALLOCATE] == gives(A)
    app = serve(at, [p], ["x"])
    assert (app.work.container.name, app.finished) == ("train", True)


def test_a_container_with_memory_alone_is_passed_over_with_a_warning():
    p = pod("p", f"{gives(A)};{gives(B)}", container("memory", 0, 3000), container("gpu", 1, 3000))
    got = serve(allocator(), [p], ["x"])
    assert (got.work.container.name, got.finished, p.annotations[names.DEVICES_TO_ALLOCATE]) == ("gpu", True, ";")
    assert [note.reason for note in got.notes if isinstance(note, Event)] == ["VGPUPartlyServed"]


def test_a_count_of_zero_asks_for_nothing_whatever_else_is_there():
    none = {"name": "none", "resources": {"limits": {names.VGPU_NUMBER: "0", names.VGPU_MEMORY: "3000"}}}
    assert serve(allocator(), [pod("p", gives(A), none, container("gpu", 1))], ["x"]).work.container.name == "gpu"


def test_a_repeated_call_gets_the_same_answer():
    p = pod("p", gives(A))
    at = allocator()
    first = serve(at, [p], ["x"])
    again = at.allocate([p], ["x"])
    assert isinstance(again, Repeat)
    assert again.answer == first.answer
    assert at.allocate([p], ["y"]) is None


def served_before(name: str, devices: str, *containers: dict, left: str = "", **more) -> NodePod:
    """Served by an earlier plugin process, and not admitted yet."""
    notes = {} if left else SERVED
    return pod(name, devices, *containers, left=left, annotations=notes, **more)


def test_what_pods_hold_of_a_card_that_is_lost_is_not_taken_from_the_others():
    """All that its pods ask for is held against the node, theirs on the lost card too: nobody would find room on the other."""
    at, pods = allocator(), [pod("stays", gives(A, 12000, 60), container("train", 1, 12000, 60))]
    serve(at, pods, units_of(1))
    at.show(CARDS, {A: "Xid 79"})
    bare = convert(Node, {"metadata": {"name": NODE}})
    said = next(effect for effect in at.missing(bare) if isinstance(effect, PatchStatus)).resources
    assert said == {names.VGPU_MEMORY: str(32768 + 12000), names.VGPU_CORES: "160"}
    pods[0].status.phase = "Succeeded"
    at.sweep(pods)
    said = next(effect for effect in at.missing(bare) if isinstance(effect, PatchStatus)).resources
    assert said == {names.VGPU_MEMORY: "32768", names.VGPU_CORES: "100"}


TWO = (container("a", 1), container("b", 1))


def test_what_the_kubelet_lost_is_answered_again_and_nothing_is_written():
    """It was killed before it wrote the answer down: it admits the pod anew."""
    one = served_before("one", f"{gives(A)};{gives(B)}", *TWO)
    at = allocator()
    assert at.allocate([one], ["x"]) is None, "the kubelet's record cannot be read"
    assert at.allocate([one], ["x"], {("uid-one", "a"), ("uid-one", "b")}) is None, "the kubelet has both"
    seen = []
    for ids in (["x"], ["y"]):
        decision = at.allocate([one], ids, set())
        assert isinstance(decision, Serve)
        assert decision.patch is None
        at.committed(decision)
        seen.append((decision.work.container.name, decision.answer.env["NVIDIA_VISIBLE_DEVICES"]))
    assert seen == [("a", A), ("b", B)]
    assert at.allocate([one], ["z"], set()) is None
    at.kubelet_restarted()
    assert isinstance(at.allocate([one], ["z"], set()), Serve)


def test_of_a_half_served_pod_the_part_that_the_kubelet_lost_comes_first():
    half = served_before("half", f"{gives(A)};{gives(B)}", *TWO, left=f";{gives(B)}")
    at = allocator()
    assert serve(at, [half], ["x"]).work.container.name == "b", "without a record the annotations decide"
    half = served_before("half", f"{gives(A)};{gives(B)}", *TWO, left=f";{gives(B)}")
    at = allocator()
    for name, ids in (("a", ["x"]), ("b", ["y"])):
        decision = at.allocate([half], ids, set())
        assert isinstance(decision, Serve)
        assert (decision.work.container.name, decision.patch is None) == (name, name == "a")
        at.committed(decision)


def test_pods_that_were_lost_take_their_turn_among_those_that_wait():
    """The kubelet admits all of them in one order; a waiting pod must not get the call of a lost one."""
    lost, waits = served_before("lost", gives(A), time=100), pod("waits", gives(B), time=200)
    at = allocator()
    order = []
    for ids in (["x"], ["y"]):
        decision = at.allocate([waits, lost], ids, set())
        assert isinstance(decision, Serve)
        at.committed(decision)
        order.append(decision.work.pod.key)
    assert order == ["ns1/lost", "ns1/waits"]


def test_an_admitted_pod_is_not_served_again():
    one = served_before("one", gives(A))
    one.status.start_time = "2026-08-20T10:00:00Z"
    assert allocator().allocate([one], ["x"], set()) is None


AMPERE = card(0, A, name="NVIDIA A100-SXM4-80GB", mib=81920, mig=True)


def cut(decision: object, uuids: Mapping[Place, str]) -> Serve:
    """Return the answer once the slices exist."""
    assert isinstance(decision, Partition)
    return decision.then({place: Slice(place, 1, uuids[place], nodes=("/dev/nvidia-caps/nvidia-cap30",))
                          for place in decision.places})  # fmt: skip


def test_a_slot_is_a_place_of_the_card_and_its_container_gets_nothing_but_the_slice():
    """Position 3 of group2 is its 1g.10gb."""
    one = pod("p", f"{A}[group2-3],NVIDIA,8000,0:")
    decision = allocator(cards=(AMPERE,)).allocate([one], ["x"])
    assert isinstance(decision, Partition)
    assert decision.places == (Place(A, "1g.10gb", 6),)
    served = cut(decision, {Place(A, "1g.10gb", 6): "MIG-M1"})
    assert served.answer == Answer(env={"NVIDIA_VISIBLE_DEVICES": "MIG-M1"})
    assert served.patch is not None


def test_a_place_outside_the_groups_is_cut_where_it_says():
    decision = allocator(cards=(AMPERE,)).allocate([pod("p", f"{A}[2g.20gb@4],NVIDIA,18000,0:")], ["x"])
    assert isinstance(decision, Partition)
    assert decision.places == (Place(A, "2g.20gb", 4),)


def test_two_slices_of_one_container_are_named_in_their_order():
    one = pod("p", f"{A}[group2-1],NVIDIA,8000,0:{A}[group2-0],NVIDIA,8000,0:")
    decision = allocator(cards=(AMPERE,)).allocate([one], units_of(2))
    places = {Place(A, "2g.20gb", 2): "MIG-b", Place(A, "2g.20gb", 0): "MIG-a"}
    assert cut(decision, places).answer.env == {"NVIDIA_VISIBLE_DEVICES": "MIG-b,MIG-a"}


def test_a_slice_is_opened_by_its_own_device_files():
    found = allocator(Sharing(pass_device_specs=True), (AMPERE,)).allocate([pod("p", f"{A}[group4-0],NVIDIA,1,0:")], ["x"])
    answer = cut(found, {Place(A, "7g.80gb", 0): "MIG-1"}).answer
    assert [node.host_path for node in answer.nodes] == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap30"]


def test_a_container_with_a_slice_and_a_share_has_the_limits_of_the_share():
    one = pod("p", f"{A}[group1-0],NVIDIA,3000,0:{gives(B)}")
    answer = cut(allocator(cards=(AMPERE, card(1, B))).allocate([one], units_of(2)), {Place(A, "1g.10gb", 0): "MIG-1"}).answer
    assert answer.env["NVIDIA_VISIBLE_DEVICES"] == f"{B},MIG-1"
    assert (answer.env["CUDA_DEVICE_MEMORY_LIMIT_0"], answer.env["CUDA_DEVICE_SM_LIMIT"]) == ("3000m", "50")
    page = limits_page.parse(answer.files[0].content)
    assert page is not None
    assert page.cards == (GrantedCard(B, 3000 << 20, 50), GrantedCard("MIG-1"))  # the hardware holds a slice's own


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        ("[group2-4]", "has no slot group2-4; was the ConfigMap changed since the pod was placed?"),
        ("[groupX-0]", "has no slot groupX-0"),
        ("[2g.10gb@3]", "the card has no 2g.10gb that begins at memory slice 3"),
    ],
)
def test_a_slot_that_is_not_known_may_be_of_a_newer_configuration(devices, reason):
    decision = allocator(cards=(AMPERE,)).allocate([pod("p", f"{A}{devices},NVIDIA,8000,0:")], ["x"])
    assert isinstance(decision, Outdated)
    assert reason in decision.reason


@pytest.mark.parametrize(
    ("devices", "cards", "reason"),
    [
        (f"{A},NVIDIA,3000:", CARDS, "has 3 fields instead of 4"),
        (f"{A},NVIDIA,-5,30:", CARDS, "has no unsigned memory and cores"),
        (f"{gives(A)};{gives(B)}", CARDS, "has 2 parts but 1 containers ask for vGPUs"),
        (gives("GPU-elsewhere"), CARDS, "card GPU-elsewhere is not on this node"),
        (f"{A}[group2-3],NVIDIA,8000,0:", (card(0, A, mig=True),), "takes no pods: it is in MIG mode, and no MIG geometry"),
        (gives(A), (AMPERE,), "is in MIG mode, and the assignment names no slice of it"),
        (f"{A}[group2-3],NVIDIA,8000,0:", CARDS, "is not in MIG mode, and the assignment names its slice group2-3"),
    ],
)
def test_what_cannot_be_honoured_fails_that_pod_with_the_reason(devices, cards, reason):
    decision = allocator(cards=cards).allocate([pod("p", devices)], ["x"])
    assert isinstance(decision, Refuse)
    assert decision.reason.startswith("pod ns1/p: ")
    assert reason in decision.reason
    patch, event = decision.effects
    assert patch == PatchPod("ns1", "p", "uid-p", FAILED)
    assert isinstance(event, Event)
    assert reason in event.message


def test_a_container_that_runs_keeps_its_folder_whatever_a_stale_annotation_says():
    def fresh(*running: str) -> bool:
        one = pod("p1", gives(A), uid=UID)
        one.status.container_statuses = [ContainerStatus(name, {"running": {}}) for name in running]
        folder = f"/usr/local/vgpu/vgpu/containers/{UID}_train"
        return next(d.fresh for d in serve(allocator(), [one], ["x"]).answer.directories if d.path == folder)

    assert fresh()
    assert not fresh("train")


@pytest.mark.parametrize("value", ["true", "false", "1", ""])
def test_what_a_pod_says_leaves_the_library_out_only_where_the_nodes_administrator_allows_it(value: str):
    off = container("train", 1, env=[{"name": "CUDA_DISABLE_CONTROL", "value": value}])
    for allowed in (False, True):
        answer = serve(allocator(allow_disable=allowed), [pod("p", gives(A), off)], ["x"]).answer
        assert [m.container_path for m in answer.mounts][-1] == ("/tmp/vgpulock" if allowed else "/etc/ld.so.preload")


def test_the_administrator_may_let_true_alone_leave_the_library_out():
    for value, last in (("true", "/tmp/vgpulock"), ("false", "/etc/ld.so.preload")):
        off = container("train", 1, env=[{"name": "CUDA_DISABLE_CONTROL", "value": value}])
        answer = serve(allocator(allow_disable=True, strict_disable=True), [pod("p", gives(A), off)], ["x"]).answer
        assert [m.container_path for m in answer.mounts][-1] == last


def test_volume_mounts_hide_the_cards_from_images_that_ask_for_all():
    volumes = serve(allocator(strategies=("volume-mounts",)), [pod("p", gives(A))], ["x"]).answer
    assert volumes.env["NVIDIA_VISIBLE_DEVICES"] == "/var/run/nvidia-container-devices"
    assert volumes.mounts[0].container_path == f"/var/run/nvidia-container-devices/{A}"


def test_device_specs_name_the_nodes_that_exist():
    at = allocator(device_specs=True, dev_root="/host", present=frozenset({"/dev/nvidiactl"}))
    nodes = serve(at, [pod("p", gives(B))], ["x"]).answer.nodes
    assert [(n.container_path, n.host_path) for n in nodes] == [
        ("/dev/nvidiactl", "/host/dev/nvidiactl"),
        ("/dev/nvidia1", "/host/dev/nvidia1"),
    ]


def test_a_pod_that_died_while_allocating_is_marked_and_forgotten():
    dead = pod("dead", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1))
    at = allocator()
    serve(at, [dead], ["x"])
    dead.status.phase = "Failed"
    assert at.sweep([dead]) == [PatchPod("ns1", "dead", "uid-dead", FAILED)]
    assert at.allocate([dead], ["y"]) is None
