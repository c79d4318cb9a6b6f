"""One contract for the kubelet twin and the real kubelet 1.36: what a device plugin sees, and the owner of its pods.

The twin always; the real one (etcd, kube-apiserver, containerd, runc) by `make e2e`. Each case has a resource of its own.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from kit.grpc_plugin import ScriptedPlugin, healthy, plain_answer, register
from kit.kubelet_nodes import PATIENCE, Node, On, box

from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.ports.cluster import Json
from pumice_lab.kubelet.devices.grpc_plugin import ShortPath
from pumice_lab.kubelet.proto import podresources_pb2 as prpb
from pumice_lab.kubelet.proto import services


def _rejected(status: Json, cause: str) -> None:
    assert status["reason"] == "UnexpectedAdmissionError"
    assert status["message"] == f"Pod was rejected: Allocate failed due to {cause}, which is unexpected"
    assert set(status) - {"observedGeneration"} == {"message", "phase", "qosClass", "reason", "startTime"}


def test_only_the_exact_word_healthy_is_allocatable_and_one_id_can_count_twice(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = await node.plug(resource, ScriptedPlugin([
            *healthy("a"), pb.Device(ID="b", health="Unhealthy"), pb.Device(ID="c", health="Weird"), pb.Device(ID="d")]))
        await node.until_counts(resource, 4, 1)
        plugin.push([*healthy("a", "b"), pb.Device(ID="a", health="Unhealthy")])
        await node.until_counts(resource, 3, 2)
        plugin.push([])
        await node.until_counts(resource, 0, 0)

    on(work)


def test_the_end_of_the_stream_leaves_capacity_and_only_a_registration_repairs_it(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = await node.plug(resource, ScriptedPlugin(healthy("a", "b")))
        await node.until_counts(resource, 2, 2)
        plugin.push(None)
        await node.until_counts(resource, 2, 0)
        assert plugin.streams == 1
        await register(node.plugins, resource, resource.partition("/")[2] + ".sock")
        await node.until_counts(resource, 2, 2)

    on(work)


def test_the_end_of_an_old_plugin_disconnects_the_new_one(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        old = await node.plug(resource, ScriptedPlugin(healthy("a")), "old")
        await node.until_counts(resource, 1, 1)
        new = await node.plug(resource, ScriptedPlugin(healthy("a", "b", "c")), "new")
        await node.until_counts(resource, 3, 3)
        await old.stop()
        await node.until_counts(resource, 3, 0)
        await asyncio.wait_for(new.stream_ended.wait(), PATIENCE)

    on(work)


@pytest.mark.parametrize(("resource", "version", "text"), [
    ("example.com/x", "v1", 'requested API version "v1" is not supported by kubelet. Supported version is ["v1beta1"]'),
    ("plain", "v1beta1", 'the ResourceName "plain" is invalid'),
    ("a.kubernetes.io/x", "v1beta1", 'the ResourceName "a.kubernetes.io/x" is invalid'),
    ("Example.com/x", "v1beta1", 'the ResourceName "Example.com/x" is invalid'),
])  # fmt: skip
def test_a_wrong_registration_is_refused_in_the_same_words(on: On, resource: str, version: str, text: str) -> None:
    async def work(node: Node) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await register(node.plugins, resource, "x.sock", version)
        assert (refused.value.code(), refused.value.details()) == (grpc.StatusCode.UNKNOWN, text)

    on(work)


def test_an_allocate_error_refuses_the_pod_for_good(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()

        def breaks(ids: list[str]) -> Any:
            raise ZeroDivisionError("division by zero")

        plugin = await node.plug(resource, ScriptedPlugin(healthy("a"), answer=breaks))
        await node.until_counts(resource, 1, 1)
        status = await node.refused(box(resource, 1))
        text = status["message"]
        assert text.startswith("Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = ")
        assert "division by zero" in text
        _rejected(status, text.removeprefix("Pod was rejected: Allocate failed due to ").removesuffix(", which is unexpected"))
        assert len(plugin.allocations()) == 1

    on(work)


def test_refusals_before_and_after_allocate_have_the_same_words(on: On) -> None:
    async def work(node: Node) -> None:
        few, empty, unhealthy, odd = (node.resource() for _ in range(4))
        await node.plug(few, ScriptedPlugin(healthy("a")))
        await node.plug(empty, ScriptedPlugin(healthy("a"), answer=lambda ids: pb.AllocateResponse()))
        await node.plug(unhealthy, ScriptedPlugin([pb.Device(ID="a", health="Unhealthy")]))
        await node.plug(odd, ScriptedPlugin(healthy("a"), prefers=lambda ids: 1 / 0))
        await node.until_counts(few, 1, 1)
        await node.until_counts(odd, 1, 1)
        await node.until_counts(unhealthy, 1, 0)
        _rejected(await node.refused(box(few, 2)), f"requested number of devices unavailable for {few}. "
                  "Requested: 2, Available: 1")
        _rejected(await node.refused(box(empty, 1)), "no containers return in allocation response ")
        _rejected(
            await node.refused(box(unhealthy, 1)),
            f"no healthy devices present; cannot allocate unhealthy devices {unhealthy}",
        )
        status = await node.refused(box(odd, 1))
        assert "due to device plugin GetPreferredAllocation rpc failed with err: rpc error: code = " in status["message"]

    on(work)


def test_what_does_not_fit_is_out_of_its_resource(on: On) -> None:
    async def work(node: Node) -> None:
        status = await node.refused(box("cpu", 5000))
        assert status["reason"] == "OutOfcpu"
        assert status["message"].startswith("Pod was rejected: Node didn't have enough resource: cpu, requested: 5000000, used: ")
        assert "conditions" not in status

    on(work)


def test_a_resource_that_the_kubelet_never_knew_is_no_reason_to_refuse(on: On) -> None:
    async def work(node: Node) -> None:
        await node.until_phase(await node.pod(box("example.com/unheard-of", 3)), "Running")

    on(work)


def test_init_containers_hand_their_devices_on(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = await node.plug(resource, ScriptedPlugin(healthy(*"abcd"), prefers=lambda ids: ids))
        await node.until_counts(resource, 4, 4)
        name = await node.pod(box(resource, 3), initContainers=[
            box(resource, 2, "true", "one"), box(resource, 1, "true", "two")])
        await node.until_phase(name, "Running")
        one, two, main = map(set, plugin.allocations())
        assert (len(one), len(two), len(main)) == (2, 1, 3)
        assert two < one < main
        assert [call[0] for call in plugin.calls] == ["preferred", "allocate", "allocate", "preferred", "allocate"]
        assert plugin.calls[3][2:] == (sorted(one), 3)

    on(work)


def test_the_pods_own_env_wins_and_does_not_see_the_plugins(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()

        def answer(ids: list[str]) -> Any:
            return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse(envs={"A": "plugin", "B": "plugin"})])

        await node.plug(resource, ScriptedPlugin(healthy("a"), answer=answer))
        await node.until_counts(resource, 1, 1)
        env = [{"name": "A", "value": "pod"}, {"name": "C", "value": "$(B)-$(A)-$$(A)"}]
        name = await node.pod(box(resource, 1, 'echo "$A $B $C"', env=env), restartPolicy="Never")
        await node.until_phase(name, "Succeeded")
        assert await node.log(name) == "pod plugin $(B)-pod-$(A)\n"

    on(work)


def test_a_container_restart_asks_for_pre_start_but_not_for_devices(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = await node.plug(resource, ScriptedPlugin(healthy("a"), pre_start=True))
        await node.until_counts(resource, 1, 1)
        name = await node.pod(box(resource, 1, "echo $IDS; exit 1"))

        async def restarted() -> bool:
            return any(s["restartCount"] for s in (await node.status(name)).get("containerStatuses") or ())

        await node.until(restarted, "a restart")
        assert plugin.allocations() == [["a"]]
        assert len([call for call in plugin.calls if call[0] == "pre_start"]) >= 2
        assert await node.log(name) == "a\n"

    on(work)


def test_while_a_plugin_that_wants_to_be_asked_before_each_start_is_away_no_container_of_its_starts(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = await node.plug(resource, ScriptedPlugin(healthy("a"), pre_start=True))
        await node.until_counts(resource, 1, 1)
        name = await node.pod(box(resource, 1, "sleep 3; exit 1"))
        await node.until_phase(name, "Running")
        await plugin.stop()

        async def waits() -> bool:
            states = [s["state"].get("waiting") or {} for s in (await node.status(name)).get("containerStatuses") or ()]
            return any("has been stopped" in state.get("message", "") for state in states)

        await node.until(waits, "its container to be kept from starting")
        back = await node.plug(resource, ScriptedPlugin(healthy("a"), pre_start=True))

        async def asked() -> bool:
            return any(call[0] == "pre_start" for call in back.calls)

        await node.until(asked, "the start")

    on(work)


def test_the_status_lists_every_device_with_its_health(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = await node.plug(resource, ScriptedPlugin(healthy("a", "b"), answer=plain_answer))
        await node.until_counts(resource, 2, 2)
        name = await node.pod(box(resource, 2))
        await node.until_phase(name, "Running")

        def shown(status: Json) -> dict[str, str]:
            (container,) = status["containerStatuses"]
            (entry,) = container.get("allocatedResourcesStatus") or [{"name": resource, "resources": []}]
            assert entry["name"] == resource
            return {d["resourceID"]: d["health"] for d in entry["resources"]}

        async def reported(*wanted: str) -> bool:
            return shown(await node.status(name)) == dict(zip("ab", wanted, strict=True))

        await node.until(lambda: reported("Healthy", "Healthy"), "both healthy")
        plugin.push([*healthy("a"), pb.Device(ID="b", health="Unhealthy")])
        await node.until(lambda: reported("Healthy", "Unhealthy"), "one unhealthy")
        plugin.push([])
        await node.until_counts(resource, 0, 0)
        assert await reported("Healthy", "Unhealthy")  # ids that vanish keep their last health
        assert (await node.status(name))["phase"] == "Running"

    on(work)


def test_of_two_plugins_the_later_one_allocates(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        old = await node.plug(resource, ScriptedPlugin(healthy("a")), "first")
        await node.until_counts(resource, 1, 1)  # else its list may come last, and then counts
        new = await node.plug(resource, ScriptedPlugin(healthy("b", "c")), "second")
        await node.until_counts(resource, 2, 2)
        await node.until_phase(await node.pod(box(resource, 1)), "Running")
        assert (len(old.allocations()), len(new.allocations())) == (0, 1)

    on(work)


def test_devices_of_an_ended_pod_are_free_for_the_next_one(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = await node.plug(resource, ScriptedPlugin(healthy("a", "b")))
        await node.until_counts(resource, 2, 2)
        await node.until_phase(await node.pod(box(resource, 2, "true"), restartPolicy="Never"), "Succeeded")
        await node.until_phase(await node.pod(box(resource, 2)), "Running")
        assert plugin.allocations() == [["a", "b"], ["a", "b"]]

    on(work)


def test_after_a_refusal_of_the_second_container_the_first_ones_devices_are_free_again(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        plugin = ScriptedPlugin(healthy("a", "b"))
        plugin.answer = lambda ids: plain_answer(ids) if len(plugin.allocations()) != 2 else 1 / 0
        await node.plug(resource, plugin)
        await node.until_counts(resource, 2, 2)
        status = await node.refused(box(resource, 1), box(resource, 1, name="second"))
        assert status["reason"] == "UnexpectedAdmissionError"
        await node.until_phase(await node.pod(box(resource, 2)), "Running")

    on(work)


def test_a_slow_plugin_holds_up_every_later_pod(on: On) -> None:
    async def work(node: Node) -> None:
        resource, order = node.resource(), list[int]()
        plugin = ScriptedPlugin(healthy(*"abcdefghij"))
        plugin.delay = 1.0
        plugin.answer = lambda ids: (order.append(len(ids)), plain_answer(ids))[1]
        await node.plug(resource, plugin)
        await node.until_counts(resource, 10, 10)
        names = [await node.pod(box(resource, count)) for count in (3, 1, 2)]
        plain = await node.pod(box())
        looked = 0
        while True:
            phase = (await node.status(plain))["phase"]
            if len(order) == 3:
                break
            assert phase == "Pending"
            looked += 1
            await asyncio.sleep(0.1)
        assert looked > 3
        for name in (*names, plain):
            await node.until_phase(name, "Running")
        assert order == [3, 1, 2]

    on(work)


def test_a_list_message_has_at_most_four_mebibytes(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        ids = [f"{number:047d}" for number in range(69_906)]  # 60 bytes each
        plugin = await node.plug(resource, ScriptedPlugin(healthy(*ids[:69_905])))
        await node.until_counts(resource, 69_905, 69_905)
        plugin.push(healthy(*ids))
        await node.until_counts(resource, 69_905, 0)
        await asyncio.wait_for(plugin.stream_ended.wait(), PATIENCE)

    on(work)


def test_pod_resources_has_one_entry_per_device_and_leaves_ended_pods_out(on: On) -> None:
    async def work(node: Node) -> None:
        resource = node.resource()
        await node.plug(resource, ScriptedPlugin(healthy("a", "b", "c")))
        await node.until_counts(resource, 3, 3)
        ended = await node.pod(box(resource, 1, "true"), restartPolicy="Never")
        await node.until_phase(ended, "Succeeded")
        init = box(resource, 1, "true", "init")
        name, plain = await node.pod(box(resource, 2), initContainers=[init]), await node.pod(box())
        await node.until_phase(name, "Running")
        await node.until_phase(plain, "Running")
        async with grpc.aio.insecure_channel(ShortPath(node.pod_resources / "kubelet.sock").target) as channel:
            stub = services.client(channel, prpb, "PodResourcesLister")
            listed = {pod.name: pod for pod in (await stub.List(prpb.ListPodResourcesRequest())).pod_resources}
            assert ended not in listed
            assert [c.name for c in listed[name].containers] == ["main"]
            entries = [(d.resource_name, len(d.device_ids)) for d in listed[name].containers[0].devices]
            assert entries == [(resource, 1), (resource, 1)]
            assert [list(c.devices) for c in listed[plain].containers] == [[]]
            every = (await stub.GetAllocatableResources(prpb.AllocatableResourcesRequest())).devices
            assert sorted(i for d in every if d.resource_name == resource for i in d.device_ids) == ["a", "b", "c"]
            got = await stub.Get(prpb.GetPodResourcesRequest(pod_name=name, pod_namespace="default"))
            assert got.pod_resources.containers[0].name == "main"

    on(work)
