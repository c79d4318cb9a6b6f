"""Whatever is in the annotations, the allocator decides; whatever the order, nothing is handed out twice."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.node_objects import A, B, allocator, container, gives, pod

from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.node.protocol import Refuse, Serve
from pumice.wire import names

WORDS = (A, B, ",", "NVIDIA", ":", ";", "3000", "-5", "[group1-0]", "[", "]", "", " ", "x", "9" * 30, "\x00", "é")
PIECES = st.sampled_from(WORDS)
TEXTS = st.lists(PIECES, max_size=12).map("".join)


@settings(max_examples=100, deadline=None)
@given(
    devices=TEXTS,
    left=TEXTS,
    time=TEXTS,
    phase=st.sampled_from(["allocating", "success", "failed", "", "x"]),
    counts=st.lists(st.sampled_from(["1", "2", "0", "-1", "3k", "500m", "many", "1e99", ""]), min_size=1, max_size=3),
    allocated=st.sampled_from([None, frozenset(), frozenset({("uid-p", "c0")})]),
)
def test_no_annotation_and_no_request_breaks_the_desk(devices, left, time, phase, counts, allocated):
    asking = [{"name": f"c{i}", "resources": {"limits": {names.VGPU_NUMBER: text}}} for i, text in enumerate(counts)]
    notes = {names.VGPU_TIME: time, names.BIND_PHASE: phase, names.DEVICES_TO_ALLOCATE: left}
    odd = pod("p", devices, *asking, annotations=notes, inits=(asking[0],))
    at = allocator()
    for ids in (["x"], ["x", "y"]):
        at.prefer([odd], [f"{A}-0", f"{B}-1", "odd"], [], len(ids), allocated)
        decision = at.allocate([odd], ids, allocated)
        if isinstance(decision, Serve):
            at.committed(decision)
    at.sweep([odd])


@st.composite
def admissions(draw):
    """Pods with one to three containers of one or two cards each, and the moments at which the plugin is killed."""
    pods = draw(st.lists(st.lists(st.integers(1, 2), min_size=1, max_size=3), min_size=1, max_size=4))
    kills = draw(st.sets(st.integers(0, 12)))
    late = draw(st.sets(st.integers(0, 12)))
    return pods, kills, late


@settings(max_examples=70, deadline=None)
@given(admissions())
def test_every_part_is_handed_out_exactly_once_and_to_its_own_container(case):
    """The kubelet's serial admission, with plugins that are killed between two calls and a cache that lags behind."""
    sizes, kills, late = case
    alike = {1: gives(A, 100, 1), 2: gives(A, 100, 1) + gives(B, 100, 1)}
    objects = []
    for number, counts in enumerate(sizes):
        parts = ";".join(alike[count] for count in counts)
        containers = [container(f"c{i}", count) for i, count in enumerate(counts)]
        objects.append(pod(f"p{number}", parts, *containers, time=100 + number))
        objects[-1].arrival = number + 1
    many = Sharing(split=20)
    at, allocated, handed, call = allocator(many), set(), Counter(), 0
    lagging = {}
    for each in objects:
        for i, count in enumerate(sizes[objects.index(each)]):
            if call in kills:
                at, lagging = allocator(many), {}
            seen = [lagging.get(p.uid, p) for p in objects]
            decision = at.allocate(seen, [f"id-{call}-{k}" for k in range(count)], frozenset(allocated))
            assert isinstance(decision, Serve), decision
            assert (decision.work.pod.uid, decision.work.container.name) == (each.uid, f"c{i}")
            handed[decision.work.pod.uid, decision.work.container.name] += 1
            if decision.patch is not None:
                if call in late:  # the watch brings this change only after the next call
                    lagging[each.uid] = pod(
                        each.metadata.name, each.annotations[names.VGPU_IDS],
                        *(container(f"c{k}", n) for k, n in enumerate(sizes[objects.index(each)])),
                        left=each.annotations[names.DEVICES_TO_ALLOCATE], time=100 + objects.index(each),
                    )  # fmt: skip
                    lagging[each.uid].arrival = each.arrival
                else:
                    lagging.pop(each.uid, None)
                each.metadata.annotations.update(decision.patch.annotations)
            at.committed(decision)
            allocated.add((each.uid, f"c{i}"))
            call += 1
    assert set(handed.values()) == {1}
    assert all(p.annotations[names.BIND_PHASE] == "success" for p in objects)
    assert not isinstance(at.allocate(objects, ["again"], frozenset(allocated)), Refuse | Serve)
