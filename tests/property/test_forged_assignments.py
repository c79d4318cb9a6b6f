"""Whatever owners of pods write into their assignments, the node gives no more than was requested, nor a card beyond its size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from kit.node_objects import A, B, allocator, container, gives, pod

from pumice.node.protocol import Serve
from pumice.wire.nvidia_vgpu import PodDevice, handed_to, parse_handed_out, render_handed_out

AMOUNTS = st.sampled_from(("0", "1", "50", "100", "3000", "32768", "4294967295", str(2**64), "-1", "x", "9" * 400))
TOKEN = st.tuples(st.sampled_from((A, B, "GPU-else", "", f"{A}[group1-0]", f"{B}[1g.5gb@3]")), AMOUNTS, AMOUNTS)
PART = st.lists(TOKEN.map(lambda t: f"{t[0]},NVIDIA,{t[1]},{t[2]}:"), max_size=3).map("".join)
ASSIGNMENT = st.lists(PART, max_size=3).map(";".join) | st.just("") | st.just(gives(A) * 5000)


@st.composite
def claims(draw):
    """Draw a pod's request and its annotations, which sometimes agree; and whether the plugin starts anew."""
    count, memory, cores = draw(st.integers(1, 2)), draw(st.integers(1, 32768)), draw(st.integers(1, 100))
    honest = gives(A, memory, cores) + (gives(B, memory, cores) if count == 2 else "")
    return draw(st.just(honest) | ASSIGNMENT), count, memory, cores, draw(st.booleans())


@settings(max_examples=50, deadline=None)
@given(st.lists(claims(), min_size=1, max_size=5))
def test_whatever_owners_write_limits_stay_within_the_requests_and_cards_within_their_sizes(case):
    at, given_out = allocator(), {}
    pods = [pod(f"p{n}", text, container("c", count, memory, cores)) for n, (text, count, memory, cores, _) in enumerate(case)]
    for number, (_, count, memory, cores, restarted) in enumerate(case):
        if restarted:
            text, at = at.record.text(), allocator()
            at.resume(text, pods, frozenset())
        decision = at.allocate([pods[number], *pods[:number]], [f"i{n}" for n in range(count)], frozenset())
        if not isinstance(decision, Serve):
            continue
        at.committed(decision)
        assert len(decision.work.devices) == count
        env = decision.answer.env
        assert all(int(env[f"CUDA_DEVICE_MEMORY_LIMIT_{i}"].removesuffix("m")) <= memory for i in range(count))
        assert 0 < int(env["CUDA_DEVICE_SM_LIMIT"]) <= cores
        given_out[decision.work.pod.uid] = decision.work.devices  # again, where the plugin starts anew and nobody wrote it down
    for uuid in (A, B):
        there = [device for devices in given_out.values() for device in devices if device.uuid == uuid]
        assert sum(device.memory for device in there) <= 32768
        assert sum(device.cores for device in there) <= 100


DEVICE = st.builds(PodDevice, st.sampled_from((A, B)), st.integers(0, 2**31), st.integers(0, 100))
UIDS = st.text("0123456789abcdef-", min_size=1, max_size=36)
HELD = st.dictionaries(UIDS, st.lists(st.lists(DEVICE, max_size=3).map(tuple), min_size=1, max_size=3).map(tuple), max_size=6)


@given(HELD)
def test_what_is_published_reads_back_pod_by_pod(held):
    text = render_handed_out(held)
    read = {uid: devices.containers for uid, devices in parse_handed_out(text).items()}
    assert read == {uid: parts for uid, parts in held.items() if parts != ((),)}
    for uid in [*held, "nobody"]:
        assert handed_to(text, uid) == render_handed_out({uid: held.get(uid, ((),))}).partition(" ")[2].rstrip("\n")
