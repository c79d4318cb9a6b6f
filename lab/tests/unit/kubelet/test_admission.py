"""Admission as it shows in the API: what is refused, with which words, and in which order things happen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.tests.unit.kubelet.world import NUMBER, FakePlugin, OnNode, World, devices

from pumice.wire.kinds import NODES, PODS
from pumice_lab.kubelet.devices.plugin import Allocation, AnsweredMount


def test_a_refused_pod_keeps_no_conditions_and_is_never_tried_again(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        plugin = here.plug(FakePlugin(), devices("a"))
        plugin.error = "rpc error: code = Internal desc = card is on fire"
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        text = "Allocate failed due to rpc error: code = Internal desc = card is on fire, which is unexpected"
        status = await here.status("p")
        assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
        assert status["message"] == f"Pod was rejected: {text}"
        assert set(status) == {"message", "observedGeneration", "phase", "qosClass", "reason", "startTime"}
        assert await here.events("p") == [("Warning", "UnexpectedAdmissionError", text, 1)]
        plugin.error = ""
        await here.settle(600)
        assert (await here.status("p"))["phase"] == "Failed"
        assert len(plugin.calls) == 1

    on_node(work)


def test_an_answer_without_containers_is_refused_in_the_kubelets_words(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        here.plug(FakePlugin(answer=lambda ids: None), devices("a"))
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        assert (await here.status("p"))["message"] == (
            "Pod was rejected: Allocate failed due to no containers return in allocation response , which is unexpected")

    on_node(work)


def test_a_refused_pod_can_be_deleted(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        here.plug(FakePlugin(), [])
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        await here.kube.delete(PODS, "p", "default")
        await here.settle()
        assert not await here.exists("p")

    on_node(work)


@pytest.mark.parametrize(("limits", "reason", "text"), [
    ({"cpu": "6"}, "OutOfcpu", "cpu, requested: 6000, used: 3000, capacity: 8000"),
    ({"memory": "30Gi"}, "OutOfmemory", f"memory, requested: {30 << 30}, used: {3 << 30}, capacity: {32 << 30}"),
    ({"volcano.sh/vgpu-memory": 5000}, "OutOfvolcano.sh/vgpu-memory",
     "volcano.sh/vgpu-memory, requested: 5000, used: 6000, capacity: 10000"),
])  # fmt: skip
def test_what_does_not_fit_is_named_with_its_numbers(on_node: OnNode, limits: dict[str, Any], reason: str, text: str) -> None:
    async def work(here: World) -> None:
        await here.kube.patch(NODES, "n1", {"status": {"capacity": {"volcano.sh/vgpu-memory": "10k"}}}, subresource="status")
        await here.settle()
        await here.pod("first", limits={"cpu": "3", "memory": "3Gi", "volcano.sh/vgpu-memory": 6000})
        await here.settle()
        await here.pod("p", limits=limits)
        await here.settle()
        status = await here.status("p")
        assert (status["phase"], status["reason"]) == ("Failed", reason)
        assert status["message"] == f"Pod was rejected: Node didn't have enough resource: {text}"
        assert "conditions" not in status

    on_node(work)


def test_allocate_comes_before_the_fit_check(on_node: OnNode) -> None:
    """Books lost with a bad checkpoint: the same ids are given out again, then the pod is refused."""

    async def work(here: World) -> None:
        here.plug(FakePlugin(), devices(*"abcd"))
        await here.settle()
        await here.pod("holder", limits={NUMBER: 4})
        await here.settle()
        here.simulator.devices.pod_devices.pods.clear()
        here.simulator.devices.in_use.clear()
        plugin = here.plug(FakePlugin(), devices(*"abcd"))
        await here.pod("p", limits={NUMBER: 4})
        await here.settle()
        assert plugin.allocations() == [set("abcd")]
        status = await here.status("p")
        assert status["reason"] == f"OutOf{NUMBER}"
        assert status["message"].endswith(f"resource: {NUMBER}, requested: 4, used: 4, capacity: 4")

    on_node(work)


def test_ended_pods_leave_room(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        here.plug(FakePlugin(), devices("a"))
        await here.pod("first", "true", limits={NUMBER: 1, "cpu": "8"}, restartPolicy="Never")
        await here.settle()
        await here.pod("second", limits={NUMBER: 1, "cpu": "8"})
        await here.settle()
        assert ((await here.status("first"))["phase"], (await here.status("second"))["phase"]) == ("Succeeded", "Running")

    on_node(work)


def test_pods_are_admitted_one_at_a_time_in_the_order_of_their_binding(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        running, most, order = 0, 0, list[str]()

        class Slow(FakePlugin):
            async def allocate(self, ids: Any) -> Allocation | None:
                nonlocal running, most
                running += 1
                most = max(most, running)
                order.append(f"begin {len(ids)}")
                await asyncio.sleep(3)
                running -= 1
                return await super().allocate(ids)

        here.plug(Slow(), devices(*"abcdefghij"))
        await here.pod("p3", limits={NUMBER: 3})
        await here.pod("p1", limits={NUMBER: 1})
        await here.pod("plain")
        await here.pod("p2", limits={NUMBER: 2})
        await here.settle(1)
        assert (await here.status("plain"))["phase"] == "Pending"  # held up, though it wants no device
        await here.settle(10)
        assert (most, order) == (1, ["begin 3", "begin 1", "begin 2"])
        assert {(await here.status(name))["phase"] for name in ("p1", "p2", "p3", "plain")} == {"Running"}

    on_node(work)


def test_at_allocate_the_api_shows_a_pending_pod_on_its_node_without_a_start_time(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        seen: list[Any] = []

        class Curious(FakePlugin):
            async def allocate(self, ids: Any) -> Allocation | None:
                seen.append(await here.kube.get(PODS, "p", "default"))
                return await super().allocate(ids)

        here.plug(Curious(), devices("a"))
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        (pod,) = seen
        assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == ("n1", "Pending")
        assert "startTime" not in pod["status"]

    on_node(work)


def test_pods_that_were_admitted_in_the_moment_of_a_kill_keep_their_devices(on_node: OnNode) -> None:
    """The API server had not heard of it: the first that was admitted again took the others' devices from the books, the plugin
    read in the checkpoint that they hold them, and had no answer for them."""

    async def work(here: World) -> None:
        await here.shut()
        await here.boot(checkpoint=True)
        here.plug(FakePlugin(), devices(*"abcd"))
        here.simulator.writer.write = lambda *_: None  # type: ignore[method-assign]
        for name in "pqr":
            await here.pod(name, limits={NUMBER: 1})
        await here.settle()
        before = here.simulator.devices.pod_devices.devices()
        assert len(before[NUMBER]) == 3
        await here.shut()
        await here.boot(checkpoint=True)
        plugin = here.plug(FakePlugin(), devices(*"abcd"))
        await here.settle(10)
        assert {(await here.status(name))["phase"] for name in "pqr"} == {"Running"}
        assert plugin.allocations() == []
        assert here.simulator.devices.pod_devices.devices() == before

    on_node(work)


def test_an_unknown_resource_lets_the_pod_run_without_devices(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        await here.pod("p", limits={"example.com/unheard-of": 2})
        await here.settle()
        assert (await here.status("p"))["phase"] == "Running"

    on_node(work)


def test_the_pods_own_env_wins_over_the_plugins(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        here.plug(FakePlugin(answer=lambda ids: Allocation(envs=(("A", "plugin"), ("B", "plugin")))), devices("a"))
        await here.pod("p", limits={NUMBER: 1}, container={"env": [
            {"name": "A", "value": "pod"}, {"name": "SEES", "value": "$(B) $(A) $$(A)"}]})
        await here.settle()
        env = here.runtime.started[-1].env
        assert (env["A"], env["B"], env["SEES"]) == ("pod", "plugin", "$(B) pod $(A)")

    on_node(work)


def test_mounts_of_the_answer_reach_the_container_and_the_first_of_one_path_wins(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        answer = Allocation(mounts=(AnsweredMount("/usr/local/vgpu", "/srv/a", True), AnsweredMount("/usr/local/vgpu", "/srv/b"),
                                    AnsweredMount("/plugin", "/var/lib/kubelet/device-plugins")))
        here.plug(FakePlugin(answer=lambda ids: answer), devices("a"))
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        mounts = {m.target: (m.source, m.read_only) for m in here.runtime.started[-1].mounts}
        assert mounts["/usr/local/vgpu"] == ("/srv/a", True)
        assert mounts["/plugin"] == (str(here.settings.plugin_dir), False)

    on_node(work)


def test_a_missing_device_node_keeps_the_pod_waiting_and_is_tried_again(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        node = here.directory / "nvidia9"
        answer = Allocation(devices=(AnsweredMount(str(node), str(node)),))
        here.plug(FakePlugin(answer=lambda ids: answer), devices("a"))
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        state = (await here.state("p"))["state"]
        assert (await here.status("p"))["phase"] == "Pending"
        assert state["waiting"] == {"reason": "CreateContainerError", "message": f"lstat {node}: no such file or directory"}
        node.touch()
        await here.settle(60)
        assert (await here.status("p"))["phase"] == "Running"

    on_node(work)


def test_a_container_restart_calls_pre_start_but_not_allocate(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        plugin = here.plug(FakePlugin(), devices("a"), pre_start=True)
        await here.pod("p", "sleep", "1", limits={NUMBER: 1})
        await here.settle(15)
        here.simulator.devices.listed(NUMBER, devices("a", health="Unhealthy"))
        await here.settle(45)
        assert [call[0] for call in plugin.calls].count("allocate") == 1
        assert [call[0] for call in plugin.calls].count("pre_start") == len(here.runtime.started) >= 3
        assert {spec.env["IDS"] for spec in here.runtime.started} == {"a"}

    on_node(work)


def test_a_failing_pre_start_keeps_the_pod_waiting_with_its_words(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        plugin = here.plug(FakePlugin(), devices("a"), pre_start=True)
        await here.pod("warm", limits={NUMBER: 1})
        await here.settle()
        await here.kube.delete(PODS, "warm", "default", grace=0)
        await here.settle()

        class Grumpy(FakePlugin):
            async def allocate(self, ids: Any) -> Allocation | None:
                self.error = ""
                answer = await super().allocate(ids)
                self.error = "rpc error: code = Unknown desc = not now"
                return answer

        plugin = here.plug(Grumpy(), devices("a"), pre_start=True)
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        assert (await here.state("p"))["state"]["waiting"] == {
            "reason": "CreateContainerConfigError",
            "message": "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not now"}
        plugin.error = ""
        await here.settle(30)
        assert (await here.status("p"))["phase"] == "Running"

    on_node(work)


def test_each_containers_devices_show_their_health_in_the_status(on_node: OnNode) -> None:
    async def work(here: World) -> None:
        here.plug(FakePlugin(), devices("a"))
        await here.pod("p", limits={NUMBER: 1})
        await here.settle()
        shown = [{"name": NUMBER, "resources": [{"resourceID": "a", "health": "Healthy"}]}]
        assert (await here.state("p"))["allocatedResourcesStatus"] == shown
        here.simulator.devices.listed(NUMBER, devices("a", health="Unhealthy"))
        await here.settle(3)
        assert (await here.state("p"))["allocatedResourcesStatus"][0]["resources"][0]["health"] == "Unhealthy"
        assert (await here.status("p"))["phase"] == "Running"

    on_node(work)
