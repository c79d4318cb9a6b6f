"""The whole plugin of chips that are cut on demand, in virtual time: what it registers, makes, tells and puts right
(Volcano pkg/scheduler/api/devices/ascend/mindcluster, MindCluster ascend-device-plugin)."""

from __future__ import annotations

import asyncio
import json
import tempfile
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from kit.fake_cluster import FakeCluster
from kit.node_objects import NODE
from kit.node_world import FakeKubelet, node_cluster, plugin_served
from kit.npu_nodes import Npus, U
from kit.virtual_time import VirtualClock, in_silence, run_virtually

from pumice.devices.ascend_mindcluster.plugin import daemon as mindcluster_plugin
from pumice.model.errors import BadInput
from pumice.model.hardware.npu import slice_kinds
from pumice.ports.cluster import ApiError
from pumice.wire.device_reports import check_code

CORE, REAL, TAKEN = "huawei.com/npu-core", "huawei.com/AscendReal", "18446744073709551615"
REPORT = f"mindx-dl-deviceinfo-{NODE}"


@dataclass
class World:
    cluster: FakeCluster
    kubelet: FakeKubelet
    npus: Npus
    clock: VirtualClock
    folder: Path
    record: dict[str, list[str]] = field(default_factory=dict)

    def pod(self, name: str, cores: int, given: str, time: int = 1) -> None:
        """A bound pod as the scheduler leaves it."""
        self.cluster.put({
            "kind": "Pod", "metadata": {"name": name, "namespace": "ns1", "uid": f"uid-{name}",
                                        "annotations": {CORE: given, "predicate-time": str(time)}},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "resources": {"limits": {CORE: str(cores)}}}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        })  # fmt: skip

    async def admit(self, name: str, first: int, count: int) -> dict[str, str]:
        """The kubelet asks for a pod, is answered, and writes down whom it asked for."""
        ids = [f"npu-core-{at}" for at in range(first, first + count)]
        answer = await self.kubelet.allocate(CORE, count, ids)
        self.writes(name, ids)
        return dict(answer.envs)

    def writes(self, name: str, ids: list[str]) -> None:
        self.record[name] = ids
        entries = [{"PodUID": f"uid-{pod}", "ContainerName": "c", "ResourceName": CORE, "DeviceIDs": {"-1": held}}
                   for pod, held in self.record.items()]  # fmt: skip
        (self.folder / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": entries}}))

    def finish(self, name: str) -> None:
        self.record.pop(name, None)
        self.cluster.change("pods", name, {"status": {"phase": "Succeeded"}})

    def notes(self, name: str) -> dict[str, str]:
        return self.cluster.notes("pods", name)

    async def until(self, fits: Any, seconds: float = 120.0) -> None:
        async with asyncio.timeout(seconds):
            while not fits():
                await self.clock.sleep(0.5)

    def report(self) -> dict[str, Any]:
        """Return the content of the node's ConfigMap, after its check code is verified."""
        found = json.loads(self.cluster.found("configmaps", REPORT)["data"]["DeviceInfoCfg"])
        assert found["CheckCode"] == check_code(found["DeviceInfo"])
        return dict(found["DeviceInfo"])

    def lists(self, ending: str = "") -> str:
        try:
            return str(self.report()["DeviceList"][f"huawei.com/Ascend310P{ending}"])
        except StopIteration:
            return "not written"


def in_a_world(test: Any, again: Any = None, **changes: Any) -> None:
    """``again``: what is seen of the plugin that starts when the first has ended."""

    async def play() -> None:
        with tempfile.TemporaryDirectory(prefix="pumice") as name:
            folder = Path(name) / "p"
            folder.mkdir()
            world = World(node_cluster(), FakeKubelet(folder), Npus(), VirtualClock(), folder)
            settings = mindcluster_plugin.Settings(NODE, device_plugin_dir=folder, journal=Path(name), booking_dirs=())
            await world.kubelet.start()
            try:
                for part in (test, again) if again else (test,):
                    async with served(world, replace(settings, **changes)):
                        await part(world)
            finally:
                await world.kubelet.stop()

    run_virtually(play())


def served(world: World, settings: mindcluster_plugin.Settings) -> AbstractAsyncContextManager[None]:
    device_type = mindcluster_plugin.mindcluster(settings, slice_kinds()["Ascend310P"], world.cluster, world.npus, world.npus)
    return plugin_served(settings, device_type, world.cluster, world.clock)


def test_a_slice_is_made_named_and_told_and_goes_with_its_pod() -> None:
    async def play(world: World) -> None:
        assert len(await world.kubelet.until(CORE, lambda listed: len(listed) == 16)) == 16
        await world.until(lambda: world.lists() == "Ascend310P-0,Ascend310P-1")
        world.pod("p", 2, "1-vir02_1c")
        env = await world.admit("p", 0, 2)
        assert (env["ASCEND_VISIBLE_DEVICES"], env["ASCEND_RUNTIME_OPTIONS"]) == ("116", "VIRTUAL")
        assert world.notes("p")["predicate-time"] == TAKEN
        assert {ident: one.template for ident, one in world.npus.made[U[1]].items()} == {116: "vir02_1c"}
        await world.until(lambda: REAL in world.notes("p"), 7)
        assert world.notes("p")[REAL] == "Ascend310P-2c.1cpu-116-1_0"
        assert world.notes("p")["huawei.com/kltDev"] == "npu-core-0,npu-core-1"
        await world.until(lambda: world.lists() == "Ascend310P-0", 3)
        world.finish("p")
        await world.until(lambda: not world.npus.made[U[1]], 7)
        await world.until(lambda: world.lists() == "Ascend310P-0,Ascend310P-1", 3)

    in_a_world(play)


def test_nothing_is_told_to_a_pod_before_the_kubelet_has_written_it_down() -> None:
    async def play(world: World) -> None:
        world.pod("p", 1, "0-vir01")
        await world.kubelet.allocate(CORE, 1, ["npu-core-0"])
        await world.clock.sleep(12.0)
        assert REAL not in world.notes("p")
        world.writes("p", ["npu-core-0"])
        await world.until(lambda: world.notes("p").get(REAL) == "Ascend310P-1c-100-0_0", 7)

    in_a_world(play)


def test_a_pod_that_runs_is_told_what_it_has_though_the_kubelet_has_lost_its_record() -> None:
    """Else its slice counts as in the making, and the node takes no other template, for as long as it runs."""

    async def play(world: World) -> None:
        for at, name in enumerate(("p", "q")):
            world.pod(name, 1, f"{at}-vir01", time=1 + at)
            await world.kubelet.allocate(CORE, 1, [f"npu-core-{at}"])
            world.cluster.change("pods", name, {"status": {"phase": "Running"}})
            if not at:
                await world.until(lambda: world.notes("p").get(REAL) == "Ascend310P-1c-100-0_0", 12)
        assert world.notes("p")["huawei.com/kltDev"] == "npu-core-0"
        world.writes("another", ["npu-core-1"])
        await world.clock.sleep(12.0)
        assert REAL not in world.notes("q"), "the kubelet says that another pod has its cores"

    in_a_world(play)


@pytest.mark.parametrize("forged", ["Ascend310P-1c-100-0_0", "", "x" * 100_000])
def test_a_pod_that_says_otherwise_than_it_has_is_told_again(forged: str) -> None:
    async def play(world: World) -> None:
        world.pod("p", 2, "1-vir02_1c")
        world.cluster.change("pods", "p", {"metadata": {"annotations": {REAL: forged}}})
        await world.admit("p", 0, 2)
        await world.until(lambda: world.notes("p")[REAL] == "Ascend310P-2c.1cpu-116-1_0", 12)
        world.cluster.change("pods", "p", {"metadata": {"annotations": {REAL: forged, "huawei.com/kltDev": forged}}})
        await world.until(lambda: world.notes("p")[REAL] == "Ascend310P-2c.1cpu-116-1_0", 12)
        assert world.notes("p")["huawei.com/kltDev"] == "npu-core-0,npu-core-1"

    in_a_world(play)


def test_whole_chips_are_told_by_their_names_and_are_free_no_more() -> None:
    async def play(world: World) -> None:
        world.pod("p", 16, "0,1")
        assert (await world.admit("p", 0, 16))["ASCEND_VISIBLE_DEVICES"] == "0,1"
        await world.until(lambda: world.notes("p").get(REAL) == "Ascend310P-0,Ascend310P-1", 7)
        await world.until(lambda: world.lists() == "", 3)

    in_a_world(play)


def test_two_pods_of_one_size_whose_calls_were_mistaken_are_told_what_they_have() -> None:
    async def play(world: World) -> None:
        world.pod("a", 2, "0-vir02_1c", 1)
        world.pod("b", 2, "1-vir02_1c", 2)
        first = (await world.kubelet.allocate(CORE, 2, ["npu-core-0", "npu-core-1"])).envs["ASCEND_VISIBLE_DEVICES"]
        second = (await world.kubelet.allocate(CORE, 2, ["npu-core-2", "npu-core-3"])).envs["ASCEND_VISIBLE_DEVICES"]
        assert (first, second) == ("100", "116")
        world.writes("b", ["npu-core-0", "npu-core-1"])  # it was the other one that the kubelet asked for
        world.writes("a", ["npu-core-2", "npu-core-3"])
        await world.until(lambda: REAL in world.notes("a") and REAL in world.notes("b"), 7)
        assert (world.notes("b")[REAL], world.notes("a")[REAL]) == ("Ascend310P-2c.1cpu-100-0_0", "Ascend310P-2c.1cpu-116-1_0")
        world.finish("b")
        await world.until(lambda: not world.npus.made[U[0]], 7)
        assert list(world.npus.made[U[1]]) == [116]

    in_a_world(play)


def test_a_chip_that_falls_ill_is_listed_with_its_codes_and_makes_room_for_fewer_cores() -> None:
    async def play(world: World) -> None:
        world.npus.ill[U[1]] = "its health is Alarm, error codes 0x80E01801, 0x80818C00"
        await world.kubelet.until(CORE, lambda listed: len(listed) == 8)
        await world.until(lambda: (world.lists(), world.lists("-Unhealthy")) == ("Ascend310P-0", "Ascend310P-1"), 5)
        (fault,) = json.loads(world.lists("-Fault"))
        assert (fault["npu_name"], fault["fault_code"]) == ("Ascend310P-1", "80E01801,80818C00")
        world.pod("late", 8, "1")
        with pytest.raises(grpc.aio.AioRpcError, match="NoNPUResource: chip Ascend310P-1 takes no pods: its health is Alarm"):
            await world.kubelet.allocate(CORE, 8, ["x"] * 8)
        world.npus.ill.clear()
        await world.kubelet.until(CORE, lambda listed: len(listed) == 16, timeout=400)
        await world.until(lambda: world.lists("-Unhealthy") == "", 5)

    in_a_world(play)


def test_a_chip_that_vanishes_under_a_pod_is_unhealthy_and_still_named() -> None:
    async def play(world: World) -> None:
        world.npus.gone.add(U[0])
        await world.kubelet.until(CORE, lambda listed: len(listed) == 8, timeout=200)
        await world.until(lambda: world.lists("-Unhealthy") == "Ascend310P-0", 5)
        assert "Ascend310P-0" in world.cluster.notes("nodes", NODE)["baseDeviceInfos"]

    in_a_world(play)


def test_the_report_is_written_when_something_has_changed_and_every_five_minutes() -> None:
    async def play(world: World) -> None:
        await world.until(lambda: world.lists() == "Ascend310P-0,Ascend310P-1")
        first = world.report()["UpdateTime"]
        await in_silence(280.0)
        assert world.report()["UpdateTime"] == first
        await in_silence(40.0)
        assert 299 <= world.report()["UpdateTime"] - first <= 310

    in_a_world(play)


def test_a_report_that_the_api_server_refuses_is_written_later() -> None:
    async def play(world: World) -> None:
        refusing = True

        async def gate(verb: str, path: str) -> None:
            if refusing and "configmaps" in path:
                raise ApiError(503, "ServiceUnavailable", "later")

        world.cluster.gate = gate
        world.pod("p", 1, "0-vir01")
        await world.admit("p", 0, 1)
        await world.clock.sleep(20.0)
        refusing = False
        await world.until(lambda: world.lists() == "Ascend310P-1", 7)

    in_a_world(play)


def test_a_slice_that_the_driver_does_not_make_fails_the_pod_in_words() -> None:
    async def play(world: World) -> None:
        world.npus.refused.add("vir04")
        world.pod("p", 4, "0-vir04")
        with pytest.raises(grpc.aio.AioRpcError, match="NPUSegmentFailed: check aicore num failed"):
            await world.kubelet.allocate(CORE, 4, ["x"] * 4)
        assert any(event["reason"] == "NPUAllocationFailed" for event in world.cluster.events)
        assert not world.npus.made[U[0]]

    in_a_world(play)


def test_a_chip_is_not_given_whole_while_somebodys_slice_lies_on_it() -> None:
    async def play(world: World) -> None:
        theirs = world.npus.make(U[0], "vir02")
        world.pod("p", 8, "0")
        with pytest.raises(grpc.aio.AioRpcError, match=f"NoNPUResource: vNPU {theirs} lies on chip Ascend310P-0"):
            await world.kubelet.allocate(CORE, 8, ["x"] * 8)
        assert list(world.npus.made[U[0]]) == [theirs]

    in_a_world(play)


@pytest.mark.parametrize(("changes", "left"), [({}, True), ({"sweep": "off"}, True), ({"sweep": "all"}, False)],
                         ids=["owned", "off", "all"])  # fmt: skip
def test_a_slice_that_somebody_made_by_hand_goes_only_where_that_is_asked_for(changes: dict[str, Any], left: bool) -> None:
    async def play(world: World) -> None:
        theirs = world.npus.make(U[1], "vir04")
        world.pod("p", 1, "0-vir01")
        await world.admit("p", 0, 1)
        world.finish("p")
        await world.clock.sleep(20.0)
        assert (theirs in world.npus.made[U[1]]) is left
        assert (100 in world.npus.made[U[0]]) is (changes.get("sweep") == "off")

    in_a_world(play, **changes)


def test_dry_run_tells_and_destroys_nothing() -> None:
    async def play(world: World) -> None:
        world.pod("p", 1, "0-vir01")
        await world.admit("p", 0, 1)
        world.finish("p")
        await world.clock.sleep(20.0)
        assert list(world.npus.made[U[0]]) == [100]

    in_a_world(play, dry_run=True)


def test_a_slice_that_a_reset_took_from_under_a_pod_is_made_again_under_its_number() -> None:
    async def play(world: World) -> None:
        world.pod("p", 2, "0-vir02")
        await world.admit("p", 0, 2)
        world.npus.made[U[0]].clear()
        await world.until(lambda: 100 in world.npus.made[U[0]], 7)
        assert any(event["reason"] == "VNPURestored" for event in world.cluster.events)

    in_a_world(play)


def test_a_chip_whose_driver_does_not_answer_is_not_given_whole() -> None:
    async def play(world: World) -> None:
        world.npus.mute.add(U[0])
        world.pod("p", 8, "0")
        with pytest.raises(grpc.aio.AioRpcError, match="NoNPUResource: the driver does not tell what lies on chip Ascend310P-0"):
            await world.kubelet.allocate(CORE, 8, ["x"] * 8)

    in_a_world(play)


def test_a_node_without_chips_that_are_cut_on_demand_is_told_so() -> None:
    mindcluster_plugin.need_chips({"310P3", "910B4"})
    with pytest.raises(BadInput, match=r"chips of type 910A, 910B4 are not cut on demand, only 310P3; --mode hami"):
        mindcluster_plugin.need_chips({"910B4", "910A"})
    with pytest.raises(BadInput, match="the driver lists no NPU"):
        mindcluster_plugin.need_chips(())
    with pytest.raises(BadInput, match="Atlas 300I Duo: two chips on one card are not cut on demand"):
        mindcluster_plugin.need_chips({"310P3"}, ["Atlas 300I Duo"])


def test_hamis_plugin_on_the_same_node_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    async def play(world: World) -> None:
        world.cluster.change("nodes", NODE, {"metadata": {"annotations": {"hami.io/node-register-Ascend310P": "[]"}}})
        await world.until(lambda: "only one of both may run here" in caplog.text, 10)

    in_a_world(play)


def test_a_pod_that_is_being_deleted_keeps_its_slice_until_it_is_gone() -> None:
    async def play(world: World) -> None:
        world.pod("p", 2, "0-vir02")
        await world.admit("p", 0, 2)
        world.cluster.change("pods", "p", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
        await world.clock.sleep(30.0)
        assert list(world.npus.made[U[0]]) == [100]
        world.cluster.remove("pods", "p")
        await world.until(lambda: not world.npus.made[U[0]], 7)

    in_a_world(play)


def test_a_pod_that_was_deleted_by_force_keeps_its_slice_while_its_container_runs() -> None:
    async def play(world: World) -> None:
        world.pod("p", 2, "0-vir02")
        await world.admit("p", 0, 2)
        made = world.npus.made[U[0]]
        made[100] = replace(made[100], busy=True)
        world.cluster.remove("pods", "p")
        await world.clock.sleep(30.0)
        assert list(made) == [100]
        made[100] = replace(made[100], busy=False)
        await world.until(lambda: not made, 7)

    in_a_world(play)


def test_a_plugin_that_starts_again_knows_whose_slices_are_whose() -> None:
    async def before(world: World) -> None:
        world.pod("p", 2, "0-vir02")
        world.pod("q", 1, "0-vir01", 2)
        await world.admit("p", 0, 2)
        await world.admit("q", 2, 1)
        world.finish("q")

    async def after(world: World) -> None:
        await world.until(lambda: list(world.npus.made[U[0]]) == [100], 7)
        await world.until(lambda: world.notes("p").get(REAL) == "Ascend310P-2c-100-0_0", 7)

    in_a_world(before, after)
