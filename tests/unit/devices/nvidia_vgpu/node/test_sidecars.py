"""A sidecar that our scheduler booked has a part of its own, before those of the containers; upstream's has none."""

from __future__ import annotations

from kit.node_objects import NODE, A, B, container, pod

from pumice.devices.nvidia_vgpu.node.matching import Matcher, Work
from pumice.devices.nvidia_vgpu.scheduling import NvidiaVgpu
from pumice.devices.settings import Settings
from pumice.wire.objects import Pod, convert


def served(matcher: Matcher, waiting: object) -> list[str]:
    """Container and card of every one-card Allocate call, in order, until nothing is left."""
    found = []
    for _ in range(6):
        work = matcher.match([waiting], ["x"])  # type: ignore[list-item]
        if not isinstance(work, Work):
            break
        found.append(f"{work.container.name} {work.devices[0].uuid[-1]}{' warned' if work.warning else ''}")
        matcher.commit(work)
    return found


def test_a_booked_sidecar_is_served_its_own_part_in_the_kubelets_order() -> None:
    sidecar = container("side", 1, 1000, restartPolicy="Always")
    first, last = container("first", 1, 1000), container("last", 1, 1000)
    ids = f"{B},NVIDIA,1000,0:;{A},NVIDIA,3000,50:"
    assert served(Matcher(NODE), pod("p", ids, inits=(sidecar,))) == ["side 2", "train 1"]
    assert served(Matcher(NODE), pod("p", ids, inits=(first, sidecar, last))) == ["first 2", "side 2", "last 2", "train 1"]


def test_after_a_restart_the_annotations_say_that_the_sidecar_was_served() -> None:
    sidecar = container("side", 1, 1000, restartPolicy="Always")
    ids = f"{B},NVIDIA,1000,0:;{A},NVIDIA,3000,50:"
    waiting = pod("p", ids, inits=(container("first", 1, 1000), sidecar), left=f";{A},NVIDIA,3000,50:")
    assert served(Matcher(NODE), waiting) == ["train 1"]


def test_a_sidecar_that_upstream_did_not_book_borrows_with_a_warning() -> None:
    sidecar = container("side", 1, 1000, restartPolicy="Always")
    waiting = pod("p", f"{A},NVIDIA,3000,50:", inits=(sidecar,))
    assert served(Matcher(NODE), waiting) == ["side 1 warned", "train 1"]


def test_scheduler_and_node_count_the_same_parts() -> None:
    sidecar = container("side", 1, 1000, restartPolicy="Always")
    both = pod("p", "", container("a", 1, 2000), container("b"), inits=(container("init", 1, 500), sidecar))
    spec = {"containers": [container("a", 1, 2000), container("b")], "initContainers": [container("init", 1, 500), sidecar]}
    device_request = NvidiaVgpu(None, Settings()).device_request(convert(Pod, {"metadata": {}, "spec": spec}))
    assert [c.memory for c in device_request.detail.containers] == [1000, 2000]  # type: ignore[union-attr]
    assert len(both.spec.init_containers) == 2
