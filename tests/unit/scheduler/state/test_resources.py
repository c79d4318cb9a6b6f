"""Pod requests and the units of amounts (Volcano pkg/scheduler/api/resource_info.go, Volcano pkg/scheduler/api/pod_info.go),
as tables."""

from __future__ import annotations

from typing import Any

import pytest
from kit.objects import pod

from pumice.scheduler.state.resources import HUGE, amount, counted, exceeded, lacking, pod_request, render, vector
from pumice.wire.objects import Pod, convert

GI = 2**30


def asks(**requests: str) -> dict[str, Any]:
    return {"resources": {"requests": {name.replace("_", "-"): value for name, value in requests.items()}}}


def request(containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None, **spec: Any) -> dict[str, int]:
    made = pod("a", initContainers=[{"name": "i", **c} for c in init or ()], **spec)
    made["spec"]["containers"] = [{"name": "c", **c} for c in containers]
    return dict(pod_request(convert(Pod, made)).items)


REQUESTS: list[tuple[str, dict[str, int], dict[str, int]]] = [
    ("nothing", request([{}]), {"pods": 1}),
    ("containers add up", request([asks(cpu="1"), asks(cpu="500m", memory="1Gi")]), {"cpu": 1500, "memory": GI, "pods": 1}),
    ("the largest init container counts", request([asks(cpu="1")], [asks(cpu="3"), asks(cpu="2")]), {"cpu": 3000, "pods": 1}),
    ("sidecars run beside the containers", request([asks(cpu="1")], [{**asks(cpu="500m"), "restartPolicy": "Always"}]),
     {"cpu": 1500, "pods": 1}),
    ("an init container runs beside the sidecars before it",
     request([asks(cpu="1")], [{**asks(cpu="500m"), "restartPolicy": "Always"}, asks(cpu="2")]), {"cpu": 2500, "pods": 1}),
    ("a later sidecar does not", request([asks(cpu="1")], [asks(cpu="2"), {**asks(cpu="500m"), "restartPolicy": "Always"}]),
     {"cpu": 2000, "pods": 1}),
    ("overhead is added", request([asks(cpu="1")], overhead={"cpu": "250m"}), {"cpu": 1250, "pods": 1}),
    ("pod-level resources override", request([asks(cpu="1", memory="1Gi")], resources={"requests": {"cpu": "4"}}),
     {"cpu": 4000, "memory": GI, "pods": 1}),
    ("a limit alone is a request", request([{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]),
     {"nvidia.com/gpu": 2000, "pods": 1}),
    ("storage and huge pages are scalars", request([asks(ephemeral_storage="1Gi", hugepages_2Mi="4Mi")]),
     {"ephemeral-storage": GI * 1000, "hugepages-2Mi": 4 * 2**20 * 1000, "pods": 1}),
    ("names of quotas and of Kubernetes' own are none", request([
        {"resources": {"requests": {"count/pods": "1", "requests.cpu": "1", "foo.kubernetes.io/x": "1", "plain": "1"}}}]),
     {"pods": 1}),
    ("nothing of a thing is nothing", request([asks(cpu="0", memory="0")]), {"pods": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("title", "found", "expected"), REQUESTS, ids=[title for title, _, _ in REQUESTS])
def test_what_a_pod_requests(title: str, found: dict[str, int], expected: dict[str, int]) -> None:
    assert found == expected


def test_only_a_pod_without_any_counted_request_is_best_effort() -> None:
    assert pod_request(convert(Pod, pod("a"))).best_effort
    assert pod_request(convert(Pod, pod("a", limits={"count/pods": "1"}))).best_effort
    assert not pod_request(convert(Pod, pod("a", limits={"volcano.sh/vgpu-number": "1"}))).best_effort


@pytest.mark.parametrize(("name", "text", "value"), [
    ("cpu", "1500m", 1500), ("cpu", "0.0001", 1), ("memory", "1Gi", GI), ("memory", "1500m", 2), ("pods", "110", 110),
    ("nvidia.com/gpu", "2", 2000), ("ephemeral-storage", "1k", 10**6), ("cpu", "1e30", HUGE),
])  # fmt: skip
def test_amounts_are_whole_numbers_in_the_units_of_the_core(name: str, text: str, value: int) -> None:
    assert amount(name, text) == value


def test_what_is_no_quantity_counts_as_absent() -> None:
    assert vector({"cpu": "many", "memory": "1Gi"}) == {"memory": GI}


def test_shortages_are_named_in_order_and_only_for_what_is_requested() -> None:
    wanted = {"zeta.io/x": 5, "memory": 5, "cpu": 5, "alpha.io/x": 5, "pods": 5, "idle.io/x": 0}
    assert lacking(wanted, {"memory": 5}) == ["cpu", "alpha.io/x", "zeta.io/x"]
    assert exceeded({"cpu": 5, "memory": 2}, {"cpu": 3, "memory": 2}) == {"cpu": 2}


def test_amounts_are_written_back_as_quantities() -> None:
    assert render({"cpu": 1500, "memory": GI, "nvidia.com/gpu": 2000, "pods": 3, "x.io/y": 1}) == {
        "cpu": "1500m", "memory": str(GI), "nvidia.com/gpu": "2", "pods": "3", "x.io/y": "1m"}  # fmt: skip
    assert counted("attachable-volumes-csi-x")
