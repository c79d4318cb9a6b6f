"""The plugin against a kubelet on a real socket: registration, allocation, restarts of either side, health."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest
from kit.fake_cluster import refusing
from kit.node_objects import NODE, A, B, container, gives, pod_object
from kit.node_world import until
from kit.plugin_world import in_a_world
from kit.virtual_time import VirtualClock

from pumice.model.errors import BadInput
from pumice.ports.cluster import ApiError
from pumice.wire import names
from pumice.wire.device_config_text import parse_device_config
from pumice_lab.machine import FaultModel

NUMBER = names.VGPU_NUMBER
CANNOT_BE_FOUND = FaultModel("nvmlDeviceGetHandleByUUID", code=15, count=0)  # "GPU is lost": how an unhealthy card is tested


@in_a_world
async def test_the_kubelet_and_the_node_object_learn_of_the_cards(world):
    async with world.plugin():
        devices = await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        assert all(devices.values())
        assert world.kubelet.registered == [NUMBER]
        assert world.kubelet.options[NUMBER].get_preferred_allocation_available
        notes = world.cluster.notes("nodes", NODE)
        assert notes[names.NODE_VGPU_REGISTER].startswith(f"{A},10,32768,NVIDIA-Tesla V100-SXM2-32GB,true,hami-core:")
        assert notes[names.NODE_VGPU_HANDSHAKE].startswith("Reported ")
        status = world.cluster.found("nodes", NODE)["status"]
        assert status["capacity"] == status["allocatable"] == {names.VGPU_MEMORY: "65536", names.VGPU_CORES: "200"}
        assert (world.root / "hook/libvgpu.so").read_bytes() == b"\x7fELF first"
        assert (world.root / "hook/ld.so.preload").read_text() == "/usr/local/vgpu/libvgpu.so"


@in_a_world
async def test_a_pod_gets_what_the_scheduler_wrote(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.change("nodes", NODE, {"metadata": {"annotations": {"hamivgpu": "2026-08-20T10:00:00Z"}}})
        world.cluster.put(pod_object("p", gives(B), uid="u1"))
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == B
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
        hosts = {m.container_path: m.host_path for m in answer.mounts}
        assert not Path(hosts["/tmp/vgpu"]).exists(), "nobody starts before it is known whose it is"
        world.kubelet.write_record(NUMBER, ("u1", "train", *next(iter(world.kubelet.answers))))
        await until(Path(hosts["/tmp/vgpu"]).exists)
        assert Path(hosts["/tmp/vgpu"]).resolve() == world.root.resolve() / "hook/vgpu/containers/u1_train"
        assert Path(hosts["/tmp/vgpu"]).stat().st_mode & 0o7777 == 0o1777
        assert (world.root / "lock").stat().st_mode & 0o7777 == 0o1777
        notes = world.cluster.notes("pods", "p")
        assert notes[names.BIND_PHASE] == "success"
        assert notes[names.VGPU_TIME] == "18446744073709551615"
        assert notes[names.DEVICES_TO_ALLOCATE] == ""
        await world.cluster.until(lambda: "hamivgpu" not in world.cluster.notes("nodes", NODE))


@in_a_world
async def test_what_was_handed_out_stands_on_the_node_whatever_is_written_on_the_pod_and_outlives_the_plugin(world):
    def said() -> dict[str, str]:
        lines = world.cluster.notes("nodes", NODE).get(names.HANDED_OUT, "").splitlines()
        return dict(line.split(" ") for line in lines)

    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(B), uid="u1"))
        await world.kubelet.allocate(NUMBER, 1)
        await world.cluster.until(lambda: said() == {"u1": gives(B)})
    emptied = {"metadata": {"annotations": {names.VGPU_IDS: ""}}, "status": {"phase": "Running"}}
    world.cluster.change("pods", "p", emptied)
    async with world.plugin():
        assert said() == {"u1": gives(B)}
        world.cluster.put(pod_object("q", gives(A), uid="u2"))
        await world.kubelet.allocate(NUMBER, 1)
        await world.cluster.until(lambda: said() == {"u1": gives(B), "u2": gives(A)})
        world.cluster.remove("pods", "p")
        await world.cluster.until(lambda: said() == {"u2": gives(A)})


@in_a_world
async def test_a_card_whose_pod_is_just_leaving_is_waited_for_and_one_whose_pod_stays_is_refused(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(B, 20000, 60), uid="u1"))
        await world.kubelet.allocate(NUMBER, 1)
        world.cluster.put(pod_object("q", gives(B, 20000, 60), uid="u2"))
        call = asyncio.create_task(world.kubelet.allocate(NUMBER, 1, [f"{B}-5"]))
        await asyncio.sleep(0.01)
        world.cluster.remove("pods", "p")
        assert (await call).envs["NVIDIA_VISIBLE_DEVICES"] == B
        world.cluster.put(pod_object("r", gives(B, 20000, 60), uid="u3"))
        with pytest.raises(grpc.aio.AioRpcError, match=r"pod ns1/r: card .* and with what ns1/q holds it would be 40000"):
            await world.kubelet.allocate(NUMBER, 1, [f"{B}-6"])


@in_a_world
async def test_a_binding_that_arrives_after_the_call_is_waited_for(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        call = asyncio.create_task(world.kubelet.allocate(NUMBER, 1, [f"{A}-0"]))
        await asyncio.sleep(0)
        world.cluster.put(pod_object("late", gives(A)))
        assert (await call).envs["NVIDIA_VISIBLE_DEVICES"] == A


@in_a_world
async def test_a_call_without_a_pod_is_refused_and_no_pod_is_touched(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(A)))
        before = len(world.cluster.patches)
        with pytest.raises(grpc.aio.AioRpcError, match="no pod of this node waits for 2 vGPUs"):
            await world.kubelet.allocate(NUMBER, 2)
        assert [body for plural, _, body in world.cluster.patches[before:] if plural == "pods"] == []


@in_a_world
async def test_a_pod_that_cannot_be_patched_is_failed_with_the_reason(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(A), uid="u1"))
        world.cluster.gate = refusing(ApiError(500, "InternalError", "etcd is away"), times=5)
        with pytest.raises(grpc.aio.AioRpcError, match="pod ns1/p: its annotations could not be written"):
            await world.kubelet.allocate(NUMBER, 1)
        assert world.cluster.notes("pods", "p")[names.BIND_PHASE] == "failed"
        assert world.cluster.events[-1]["reason"] == "VGPUAllocationFailed"


@in_a_world
async def test_pods_are_served_without_a_list_of_pods(world):
    requested: list[str] = []

    async def heard(verb: str, path: str) -> None:
        requested.append(f"{verb} {path}")

    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.gate = heard
        for name in "pqr":
            world.cluster.put(pod_object(name, gives(A, 3000, 10)))
            await asyncio.sleep(0.1)  # its Binding is heard of first, as nearly always
            await world.kubelet.allocate(NUMBER, 1)
            world.cluster.change("pods", name, {"status": {"phase": "Running"}})
    assert [one for one in requested if one.startswith("GET") and "/pods" in one] == []
    assert len([one for one in requested if one.startswith("PATCH") and one.endswith("/status")]) >= 3


@in_a_world
async def test_however_often_the_kubelet_starts_one_change_of_the_node_is_written_back_once(world):
    async with world.plugin():
        for _ in range(4):
            await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
            await world.kubelet.stop()
            await world.kubelet.start()
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.patches.clear()
        world.cluster.change("nodes", NODE, {"metadata": {"annotations": {names.NODE_VGPU_REGISTER: "somebody else's"}}})
        await world.cluster.until(lambda: A in world.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER])
        await asyncio.sleep(35)  # longer than any loop's pause
    written = [body for plural, _, body in world.cluster.patches if names.NODE_VGPU_REGISTER in str(body)]
    assert len(written) == 1


@in_a_world
async def test_an_api_server_that_is_away_for_a_shorter_time_than_allocate_waits_costs_no_pod_its_cards(world):
    """Its watch comes back later than itself."""
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        clock = VirtualClock()
        back = clock.monotonic() + 1.7

        async def away(verb: str, path: str) -> None:
            if clock.monotonic() < back or verb == "WATCH":
                raise ApiError(503, "ServiceUnavailable", "away")

        world.cluster.gate = away
        world.cluster.hang_up(forget=True)
        world.cluster.put(pod_object("p", gives(A), uid="u1"))
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == A
        assert world.cluster.notes("pods", "p")[names.BIND_PHASE] == "success"


@in_a_world
async def test_ids_of_a_pod_that_went_while_the_api_server_was_away_are_not_answered_for_it_again(world):
    """The kubelet gives them to the next one, of which the plugin has not heard either."""
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(A, 1000), uid="u1"))
        first = await world.kubelet.allocate(NUMBER, 1)
        clock = VirtualClock()
        back = clock.monotonic() + 1.0

        async def away(verb: str, path: str) -> None:
            if clock.monotonic() < back or verb == "WATCH":
                raise ApiError(503, "ServiceUnavailable", "away")

        world.cluster.gate = away
        world.cluster.hang_up(forget=True)
        world.cluster.remove("pods", "p")
        world.cluster.put(pod_object("q", gives(A, 2000), uid="u2"))
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert [each.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] for each in (first, answer)] == ["1000m", "2000m"]


@in_a_world
async def test_a_pod_that_went_before_its_turn_does_not_cost_the_next_one_its_admission(world):
    """The watch that would have told so is away."""
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(A, 1000), uid="u1", time=1))
        await asyncio.sleep(1)

        async def away(verb: str, path: str) -> None:
            if verb == "WATCH":
                raise ApiError(503, "ServiceUnavailable", "away")

        world.cluster.gate = away
        world.cluster.hang_up(forget=True)
        world.cluster.remove("pods", "p")
        world.cluster.put(pod_object("q", gives(A, 2000), uid="u2", time=2))
        answer = await world.kubelet.allocate(NUMBER, 1)
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "2000m"


@in_a_world
async def test_a_pod_that_is_listed_and_cannot_be_written_to_is_refused(world):
    """It is not looked for anew again and again."""
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(A), uid="u1"))

        async def conflicting(verb: str, path: str) -> None:
            if verb == "PATCH" and "/pods/" in path:
                raise ApiError(409, "Conflict", "somebody is quicker")

        world.cluster.gate = conflicting
        with pytest.raises(grpc.aio.AioRpcError, match="somebody is quicker"):
            await world.kubelet.allocate(NUMBER, 1)


@in_a_world
async def test_a_kubelet_that_starts_again_is_registered_with_again(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        await world.kubelet.stop()
        await world.kubelet.start()
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.put(pod_object("p", gives(A)))
        assert (await world.kubelet.allocate(NUMBER, 1)).envs["NVIDIA_VISIBLE_DEVICES"] == A
    assert world.kubelet.registered == [NUMBER, NUMBER]


@in_a_world
async def test_a_kubelet_that_was_killed_before_it_wrote_the_answer_down_gets_it_again(world):
    world.cluster.put(pod_object("p", gives(B), uid="u1"))
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        first = await world.kubelet.allocate(NUMBER, 1, [f"{B}-0"])
        await world.kubelet.stop()
        (world.root / "plugins/kubelet_internal_checkpoint").write_text('{"Data":{"PodDeviceEntries":null},"Checksum":1}')
        await world.kubelet.start()
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        second = await world.kubelet.allocate(NUMBER, 1, [f"{A}-7"])
        assert first.envs["NVIDIA_VISIBLE_DEVICES"] == second.envs["NVIDIA_VISIBLE_DEVICES"] == B
        with pytest.raises(grpc.aio.AioRpcError, match="no pod of this node waits"):
            await world.kubelet.allocate(NUMBER, 1, [f"{A}-8"])


@in_a_world
async def test_the_end_of_the_stream_means_register_again(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.kubelet._tasks[0].cancel()
        await world.kubelet.until_registered(NUMBER, NUMBER)


@in_a_world
async def test_a_kubelet_that_dies_between_its_answer_and_its_stream_is_registered_with_again(world):
    async def come_back() -> None:
        await world.kubelet.until_registered(NUMBER)
        world.kubelet.follows = True

    world.kubelet.follows = False
    coming = asyncio.create_task(come_back())
    async with world.plugin():
        assert len(await world.kubelet.until(NUMBER, lambda d: len(d) == 20)) == 20
        assert world.kubelet.registered == [NUMBER, NUMBER]
    await coming


@in_a_world
async def test_a_plugin_that_ends_and_takes_our_socket_along_leaves_the_node_to_us_again(world):
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        (world.root / "plugins/nvidia-vgpu-number.sock").unlink()  # what another plugin of this resource does at its end
        await world.kubelet.until_registered(NUMBER, NUMBER)
        assert (world.root / "plugins/nvidia-vgpu-number.sock").exists()


@in_a_world
async def test_a_kubelet_that_comes_later_is_found(world):
    await world.kubelet.stop()
    (world.root / "plugins/kubelet.sock").unlink(missing_ok=True)

    async def start_later() -> None:
        await until(lambda: (world.root / "plugins/nvidia-vgpu-number.sock").exists())
        await world.kubelet.start()

    starting = asyncio.create_task(start_later())
    async with world.plugin():
        await starting
        assert len(await world.kubelet.until(NUMBER, lambda d: len(d) == 20)) == 20


@in_a_world
async def test_a_sick_card_is_told_to_everybody_and_recovers(world):
    def memory() -> str:
        return world.cluster.found("nodes", NODE)["status"]["allocatable"][names.VGPU_MEMORY]

    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.machine.set_fault(CANNOT_BE_FOUND)
        world.machine.raise_xid(0, 79)
        world.machine.raise_xid(1, 31)  # an error of a program, not of the card
        devices = await world.kubelet.until(NUMBER, lambda d: not all(d.values()))
        assert {unit for unit, healthy in devices.items() if not healthy} == {f"{A}-{i}" for i in range(10)}
        await world.cluster.until(lambda: ",false," in world.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER])
        await world.cluster.until(lambda: memory() == "32768")
        world.cluster.put(pod_object("p", gives(A)))
        with pytest.raises(grpc.aio.AioRpcError, match=f"card {A} takes no pods: Xid 79"):
            await world.kubelet.allocate(NUMBER, 1)
        world.machine.clear_faults()
        await world.kubelet.until(NUMBER, lambda d: all(d.values()))
        await world.cluster.until(lambda: ",false," not in world.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER])
        await world.cluster.until(lambda: memory() == "65536")
        await world.cluster.until(lambda: world.cluster.events[-1]["reason"] == "CardRecovered")


@in_a_world
async def test_a_card_that_falls_sick_while_another_ones_event_is_written_is_told_too(world):
    written = asyncio.Event()

    async def events_are_late(verb: str, path: str) -> None:
        if path.endswith("/events"):
            await written.wait()

    def advertised() -> str:
        return world.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER]

    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        world.cluster.gate = events_are_late
        world.machine.set_fault(CANNOT_BE_FOUND)
        world.machine.raise_xid(0, 79)
        await world.kubelet.until(NUMBER, lambda d: sum(d.values()) == 10)
        world.machine.raise_xid(1, 79)
        await world.cluster.until(lambda: advertised().count(",false,") == 2)
        written.set()
        await world.kubelet.until(NUMBER, lambda d: not any(d.values()))


@in_a_world
async def test_a_plugin_killed_between_two_containers_goes_on_where_it_was(world):
    both = pod_object("p", f"{gives(A)};{gives(B)}", container("a", 1), container("b", 1))
    world.cluster.put(both)
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        assert (await world.kubelet.allocate(NUMBER, 1)).envs["NVIDIA_VISIBLE_DEVICES"] == A
    world.kubelet.lists.clear()
    async with world.plugin():
        await world.kubelet.until(NUMBER, lambda d: len(d) == 20)
        assert (await world.kubelet.allocate(NUMBER, 1)).envs["NVIDIA_VISIBLE_DEVICES"] == B
        with pytest.raises(grpc.aio.AioRpcError):
            await world.kubelet.allocate(NUMBER, 1)


@in_a_world
async def test_a_pod_left_behind_by_a_killed_plugin_is_marked_at_the_start(world):
    world.cluster.put(pod_object("p", gives(A), phase="Failed"))
    world.cluster.change("nodes", NODE, {"metadata": {"annotations": {"hamivgpu": "2026-08-20T10:00:00Z"}}})
    async with world.plugin():
        await world.cluster.until(lambda: world.cluster.notes("pods", "p")[names.BIND_PHASE] == "failed")
        await world.cluster.until(lambda: "hamivgpu" not in world.cluster.notes("nodes", NODE))
        assert world.cluster.notes("pods", "p")[names.VGPU_IDS] == gives(A)


@in_a_world
async def test_upstreams_way_lists_a_device_per_unit_unless_the_list_is_too_long(world):
    async with world.plugin(advertise="devices"):
        await world.kubelet.until(names.VGPU_CORES, lambda d: len(d) == 200)
        assert names.VGPU_MEMORY not in world.kubelet.registered
        assert "capacity" not in world.cluster.found("nodes", NODE)["status"]
    world.kubelet.registered.clear()
    config = {"nvidia": {"gpuMemoryFactor": 2}}
    world.cluster.put({
        "kind": "ConfigMap", "metadata": {"name": names.DEVICE_CONFIGMAP, "namespace": "kube-system"},
        "data": {names.DEVICE_CONFIG_KEY: str(config)},
    })  # fmt: skip
    async with world.plugin(advertise="devices"):
        await world.kubelet.until(names.VGPU_MEMORY, lambda d: len(d) == 32768)
        answer = await world.kubelet.allocate(names.VGPU_MEMORY, 3, [f"{A}-memory-{i}" for i in range(3)])
        assert not answer.envs
        assert not answer.mounts


@in_a_world
async def test_a_library_in_use_is_replaced_by_a_new_file(world):
    async with world.plugin():
        pass
    installed = world.root / "hook/libvgpu.so"
    with installed.open("rb") as in_use:
        async with world.plugin():
            assert installed.stat().st_ino == world.root.joinpath("hook/libvgpu.so").stat().st_ino
        (world.root / "lib.so").write_bytes(b"\x7fELF second")
        async with world.plugin():
            pass
        assert in_use.read() == b"\x7fELF first"
    assert installed.read_bytes() == b"\x7fELF second"
    assert installed.stat().st_mode & 0o777 == 0o755


@in_a_world
async def test_a_config_map_that_cannot_be_meant_is_one_line(world):
    world.cluster.put({
        "kind": "ConfigMap", "metadata": {"name": names.DEVICE_CONFIGMAP, "namespace": "kube-system"},
        "data": {names.DEVICE_CONFIG_KEY: "nvidia:\n  deviceSplitCount: many\n"},
    })  # fmt: skip
    with pytest.raises(BadInput, match=r"ConfigMap kube-system/volcano-vgpu-device-config: line 2: nvidia.deviceSplit"):
        async with world.plugin():
            pass


@in_a_world
async def test_a_folder_that_is_no_kubelets_is_one_line(world):
    with pytest.raises(BadInput, match="no such folder; is this the kubelet's"):
        async with world.plugin(device_plugin_dir=world.root / "nothing"):
            pass
    deep = world.root / ("x" * 120)
    deep.mkdir()
    with pytest.raises(BadInput, match="a socket path has at most 107 bytes"):
        async with world.plugin(device_plugin_dir=deep):
            pass


@in_a_world
async def test_the_device_configmap_is_made_where_it_is_missing_and_left_as_people_wrote_it(world):
    async with world.plugin():
        made = world.cluster.found("configmaps", names.DEVICE_CONFIGMAP)
        assert made["metadata"]["namespace"] == "kube-system"
        assert parse_device_config(made["data"][names.DEVICE_CONFIG_KEY]).nvidia.known_mig_geometries
    mine = {names.DEVICE_CONFIG_KEY: "nvidia: {deviceSplitCount: 3}"}
    world.cluster.change("configmaps", names.DEVICE_CONFIGMAP, {"data": mine})
    async with world.plugin():
        assert len(await world.kubelet.until(NUMBER, lambda d: len(d) == 6)) == 6
        assert world.cluster.found("configmaps", names.DEVICE_CONFIGMAP)["data"] == mine


@in_a_world
async def test_without_the_right_to_make_the_device_configmap_its_defaults_hold(world):
    world.cluster.gate = refusing(ApiError(403, "Forbidden", "no"), 1, "POST")
    async with world.plugin():
        assert len(await world.kubelet.until(NUMBER, lambda d: len(d) == 20)) == 20
