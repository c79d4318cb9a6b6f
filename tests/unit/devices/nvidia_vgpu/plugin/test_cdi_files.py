"""The files of CDI devices on the host: by whom they are written, and when anew (NVIDIA k8s-device-plugin internal/cdi)."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from kit.node_objects import NODE, A, B, card, container, gives, pod_object
from kit.plugin_world import World, in_a_world

from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions
from pumice.devices.nvidia_vgpu.plugin.cdi_files import CdiFiles, CdiPlaces
from pumice.model.errors import Unavailable
from pumice.ports.slices import Place, Slice
from pumice.wire import cdi, names
from pumice_lab.machine import machine_of

CUT = card(1, B, "A100-SXM4-40GB", mig=True)
ONE = Slice(Place(B, "1g.5gb", 6), 1, "MIG-1", nodes=("/dev/nvidia-caps/nvidia-cap30",))
TWO = Slice(Place(B, "1g.5gb", 5), 1, "MIG-2", nodes=("/dev/nvidia-caps/nvidia-cap39",))


class Machine:
    """A host's root with a driver in it, and what its cards are cut into."""

    def __init__(self, root: Path) -> None:
        self.root, self.cards, self.slices = root, (card(0, A), CUT), [ONE]
        self.places = CdiPlaces(root / "cdi", hook=str(root / "bin/nvidia-cdi-hook"), driver_root=str(root / "driver"),
                                inside=root / "none", mounted=root / "usrbin")  # fmt: skip
        self.driver("550.1.2")

    def driver(self, version: str) -> None:
        folder = self.root / "driver/usr/lib64"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name in ("libcuda", "libnvidia-ml"):
            (folder / f"{name}.so.{version}").touch()
            (folder / f"{name}.so.1").symlink_to(f"{name}.so.{version}")

    def files(self, *classes: str) -> CdiFiles:
        return CdiFiles(self.places, lambda: (self.cards, self.slices), classes, pause=0)

    def tool(self, script: str) -> None:
        """The host's ``nvidia-ctk``."""
        path = self.root / "usrbin/nvidia-ctk"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def written(self) -> cdi.Specification:
        return cdi.parse((self.root / "cdi" / cdi.file_name()).read_bytes())

    def named(self) -> list[str]:
        return [device.name for device in self.written().devices]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_nvidias_tool_the_file_names_cards_slices_and_the_drivers_libraries(machine: Machine):
    machine.files().refresh()
    spec = machine.written()
    assert machine.named() == [A, "MIG-1"]
    opened = [node.path for node in spec.devices[1].container_edits.device_nodes]
    assert opened == ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap30"]
    mounts = {mount.container_path: mount.host_path for mount in spec.container_edits.mounts}
    assert mounts["/usr/lib64/libcuda.so.1"] == str(machine.root / "driver/usr/lib64/libcuda.so.550.1.2")
    assert not spec.container_edits.hooks, "the hook is not there"
    assert (machine.root / "cdi").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in (machine.root / "cdi").iterdir()] == [cdi.file_name()], "no draft is left behind"


def test_a_hook_that_is_there_tells_the_linker(machine: Machine):
    hook = Path(machine.places.hook)
    hook.parent.mkdir()
    hook.touch()
    machine.files().refresh()
    (found,) = machine.written().container_edits.hooks
    assert (found.path, found.args) == (str(hook), ("nvidia-cdi-hook", "update-ldcache", "--folder", "/usr/lib64"))


def test_it_is_written_anew_when_slices_or_driver_change_or_it_is_gone_and_otherwise_left_alone(machine: Machine):
    files = machine.files()
    files.refresh()
    before = files.path.stat().st_ino
    files.refresh()
    assert files.path.stat().st_ino == before
    machine.slices = [ONE, TWO]
    files.refresh()
    assert machine.named() == [A, "MIG-1", "MIG-2"]
    machine.driver("560.9.9")
    files.refresh()
    assert any("560.9.9" in mount.host_path for mount in machine.written().container_edits.mounts)
    files.path.unlink()
    files.refresh()
    assert machine.named() == [A, "MIG-1", "MIG-2"]


@pytest.mark.parametrize("how", ["edited", "replaced", "link", "dangling"])
def test_a_file_that_somebody_else_wrote_or_replaced_is_ours_again_before_a_container_is_told(machine: Machine, how: str):
    files = machine.files()
    files.refresh()
    whole, other = files.path.read_bytes(), machine.root / "other"
    match how:
        case "edited":
            files.path.write_bytes(whole.replace(b"/dev/nvidia0", b"/dev/nvidia1"))
        case "replaced":
            other.write_text("{}")
            other.rename(files.path)
        case _:
            files.path.unlink()
            files.path.symlink_to(other)
            if how == "link":
                other.write_text("theirs")
    files.ensure([cdi.qualified(A)])
    assert files.path.read_bytes() == whole
    assert not files.path.is_symlink()
    if how == "link":
        assert other.read_text() == "theirs"


def test_there_is_no_file_without_devices_which_cdi_would_take_for_broken(machine: Machine):
    machine.cards, machine.slices = (CUT,), []
    files = machine.files()
    files.refresh()
    assert not files.path.exists()
    machine.slices = [ONE]
    files.refresh()
    assert machine.named() == ["MIG-1"]
    machine.slices = []
    files.refresh()
    assert not files.path.exists()


def test_a_container_is_told_of_no_device_that_the_file_does_not_name(machine: Machine):
    files = machine.files()
    machine.slices = [TWO]
    files.ensure([cdi.qualified("MIG-2")])
    assert machine.named() == [A, "MIG-2"]
    with pytest.raises(Unavailable, match=r"does not name k8s\.device-plugin\.nvidia\.com/gpu=MIG-9"):
        files.ensure([cdi.qualified("MIG-9")])


def test_a_folder_that_cannot_be_written_is_said(machine: Machine):
    (machine.root / "cdi").touch()
    with pytest.raises(Unavailable, match="cannot be written"):
        machine.files().refresh()


def generated(names: list[str], node: str = "/dev/nvidia-caps/nvidia-cap30", host: str = "") -> str:
    nodes = [{"path": node, **({"hostPath": host} if host else {})}]
    return json.dumps({"cdiVersion": "0.7.0", "kind": "k8s.device-plugin.nvidia.com/gpu", "additional": 1, "devices": [
        {"name": name, "containerEdits": {"deviceNodes": nodes, "additionalGids": [7]}} for name in names]})  # fmt: skip


def test_nvidias_tool_writes_it_where_it_is_there_and_its_words_are_kept(machine: Machine):
    text = generated([A, "MIG-1", "all"])
    machine.tool(f"echo \"$@\" > {machine.root}/asked; echo level=info >&2; echo '{text}'")
    machine.files().refresh()
    assert json.loads((machine.root / "cdi" / cdi.file_name()).read_text()) == json.loads(text)
    requested = (machine.root / "asked").read_text().split()
    assert requested[:2] == ["cdi", "generate"]
    assert {"--vendor=k8s.device-plugin.nvidia.com", "--class=gpu", "--device-name-strategy=uuid",
            f"--nvidia-ctk-path={machine.places.hook}",
            f"--driver-root={machine.places.driver_root}"} <= set(requested)  # fmt: skip


def test_paths_of_a_driver_that_is_mounted_elsewhere_are_the_hosts_in_the_file(machine: Machine):
    machine.places.inside.mkdir()
    machine.tool(f"echo '{generated([A, 'MIG-1'], host=f'{machine.places.inside}/dev/x')}'")
    machine.files().refresh()
    nodes = [node.host_path for device in machine.written().devices for node in device.container_edits.device_nodes]
    assert set(nodes) == {f"{machine.places.driver_root}/dev/x"}


def test_the_tool_is_asked_again_until_every_slice_can_be_opened_and_not_for_ever(machine: Machine):
    late = f"""if [ -e {machine.root}/second ]; then echo '{generated([A, "MIG-1"])}'
               else touch {machine.root}/second; echo '{generated([A, "MIG-1"], node="/dev/nvidia1")}'; fi"""
    machine.tool(late)
    machine.files().refresh()
    assert machine.named() == [A, "MIG-1"]
    for script, why in (
        (f"echo '{generated([A, 'MIG-1'], node='/dev/nvidia1')}'", "no device file opens MIG-1"),
        (f"echo '{generated([A])}'", "it lacks k8s.device-plugin.nvidia.com/gpu=MIG-1"),
        ("echo no driver >&2; exit 3", "ended with 3: no driver"),
        ("echo '{'", "cannot be read"),
    ):
        machine.tool(script)
        before = files_text(machine)
        with pytest.raises(Unavailable, match=why):
            machine.files().refresh()
        assert files_text(machine) == before, "the last good one stays"


def files_text(machine: Machine) -> bytes:
    return (machine.root / "cdi" / cdi.file_name()).read_bytes()


def test_what_is_switched_on_beside_the_cards_has_a_file_of_its_own_where_it_is_there(machine: Machine):
    (machine.root / "driver/dev/infiniband").mkdir(parents=True)
    (machine.root / "driver/dev/infiniband/uverbs0").touch()
    machine.places = CdiPlaces(machine.root / "cdi", driver_root=str(machine.root / "driver"), inside=machine.root / "none",
                               hook="/nonexistent/hook", dev_root=str(machine.root / "driver"))  # fmt: skip
    files = machine.files("gds", "mofed")
    files.refresh()
    assert files.extras == ("mofed",)
    spec = cdi.parse((machine.root / "cdi" / cdi.file_name("mofed")).read_bytes())
    assert [node.path for node in spec.devices[0].container_edits.device_nodes] == ["/dev/infiniband/uverbs0"]
    files.ensure([cdi.qualified(A), cdi.qualified(cdi.ALL, "mofed")])


MIXED = machine_of(["A100-SXM4-40GB", "Tesla-T4"], name=NODE)
MIXED = replace(MIXED, cards=(replace(MIXED.cards[0], uuid=A, mig_mode=True), replace(MIXED.cards[1], uuid=B)))


def test_a_slice_that_is_cut_for_a_pod_stands_in_the_file_before_the_pod_is_answered():
    async def play(world: World) -> None:
        folder = world.root / "cdi"
        more = {"cdi": CdiPlaces(folder), "response_options": ResponseOptions(strategies=("cdi-cri",))}
        async with world.plugin(**more):
            named = {device.name for device in cdi.parse((folder / cdi.file_name()).read_bytes()).devices}
            assert named == {B}, "written before the kubelet is told; a card in MIG mode is handed out in slices alone"
            world.cluster.put(pod_object("p1", f"{A}[group2-3],NVIDIA,3000,0:", container("train", 1, 3000)))
            answer = await world.kubelet.allocate(names.VGPU_NUMBER, 1)
            (requested,) = (device.name for device in answer.cdi_devices)
            devices = cdi.parse((folder / cdi.file_name()).read_bytes()).devices
            assert requested in [cdi.qualified(device.name) for device in devices if device.name.startswith("MIG-")]
            assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "void"}

    in_a_world(play, MIXED)()


def test_a_pod_is_refused_with_the_reason_where_the_file_cannot_be_made():
    async def play(world: World) -> None:
        folder = world.root / "cdi"
        more = {"cdi": CdiPlaces(folder), "response_options": ResponseOptions(strategies=("cdi-annotations",))}
        async with world.plugin(**more):
            shutil.rmtree(folder)
            folder.write_text("in the way")
            world.cluster.put(pod_object("p1", gives(B), container("train", 1, 3000, 50)))
            with pytest.raises(grpc.aio.AioRpcError, match="pod ns1/p1: the CDI file cannot be written"):
                await world.kubelet.allocate(names.VGPU_NUMBER, 1)
            assert world.cluster.notes("pods", "p1")[names.BIND_PHASE] == "failed"

    in_a_world(play)()
