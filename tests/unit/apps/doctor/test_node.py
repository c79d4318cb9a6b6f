"""A node on which all is well, and each fault made on it: which check finds it, and that the repair is named."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit.fake_cluster import FakeCluster
from kit.machines import Programs, cards_of
from kit.node_objects import NODE, A, B, container, gives, pod_object, two_cards
from kit.node_world import node_cluster
from kit.region_files import Proc, region_bytes, write

from pumice.apps.doctor.node import Places, look
from pumice.apps.monitor import daemon as monitor
from pumice.apps.node.files import install_files
from pumice.cli.diagnosis import report
from pumice.cli.output import Output
from pumice.devices.nvidia_vgpu.node.allocator import register_annotation
from pumice.devices.nvidia_vgpu.node.answer import install
from pumice.devices.nvidia_vgpu.node.doctor import CHECKS
from pumice.devices.nvidia_vgpu.node.doctor_facts import NodeFacts
from pumice.devices.nvidia_vgpu.node.inventory import share
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.node.findings import State, examine
from pumice.ports.clock import SystemClock
from pumice.wire import cdi, names
from pumice_lab.free_ports import free_port
from pumice_lab.machine import Machine

MIB = 1 << 20
DAEMON = "etc/docker/daemon.json"
CDI = f"var/run/cdi/{cdi.file_name()}"
NO_CDI = b'''version = 2
[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "nvidia"
runtimes.nvidia = {}'''


def config_map(name: str, key: str, text: str) -> dict[str, Any]:
    return {"kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}, "data": {key: text}}


def node_entry(**said: Any) -> dict[str, Any]:
    return config_map(names.NODE_CONFIGMAP, "none.json", json.dumps({"nodeconfig": [{"name": NODE, **said}]}))


def plugin_pod(name: str, image: str) -> dict[str, Any]:
    volumes = [{"name": "d", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}]
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "kube-system", "uid": f"uid-{name}"},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": image}], "volumes": volumes},
        "status": {"phase": "Running"},
    }  # fmt: skip


Fault = Callable[["World"], Any]


class World:
    """A node with one pod that holds a share of card A, as it should be."""

    def __init__(self, root: Path, machine: Machine, cards: Any) -> None:
        self.root, self.machine = root, machine
        self.hook, self.kubelet = root / "hook", root / "kubelet"
        self.kubelet.mkdir()
        library = write(root / "libvgpu.so", b"the library")
        self.places = Places(NODE, self.hook, self.kubelet, root, root / "none.json", library=library)
        install_files(install(str(self.hook), library.read_bytes(), {}))
        write(root / DAEMON, b'{"default-runtime": "nvidia", "runtimes": {"nvidia": {}}}')
        self.region = write(self.hook / "vgpu/containers/u1_train/r.cache", region())
        self.checkpoint("u1")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.kubelet / "kubelet.sock"))
        self.listener.listen()
        shared = share(cards.facts(), Sharing())
        self.cluster: FakeCluster = node_cluster({
            names.NODE_VGPU_REGISTER: register_annotation(shared), names.HANDED_OUT: f"u1 {gives(A)}\n",
        })  # fmt: skip
        self.cluster.change("nodes", NODE, {"status": {"allocatable": {names.VGPU_NUMBER: "20"}}})
        self.cluster.put(config_map(names.DEVICE_CONFIGMAP, names.DEVICE_CONFIG_KEY, "nvidia: {}"))
        self.cluster.put(pod_object("p", gives(A), uid="u1", phase="Running"), plugin_pod("plugin", "pumice/pumice:1"))
        self.cluster.change("pods", "p", {"status": {"startTime": "2026-08-20T10:00:00Z"}})
        self.programs: list[Any] = []

    def checkpoint(self, *uids: str) -> None:
        entries = [{"PodUID": uid, "ContainerName": "train", "ResourceName": names.VGPU_NUMBER, "DeviceIDs": {}} for uid in uids]
        write(self.kubelet / "kubelet_internal_checkpoint", json.dumps({"Data": {"PodDeviceEntries": entries}}).encode())

    def devices(self, *cards: str) -> None:
        spec = cdi.specification([cdi.Device(card, cdi.Edits(device_nodes=(cdi.DeviceNode("/dev/x"),))) for card in cards])
        write(self.root / CDI, cdi.render(spec))

    def notes(self, plural: str, name: str, **notes: str | None) -> None:
        keys = {"register": names.NODE_VGPU_REGISTER, "ids": names.VGPU_IDS, "node": names.VGPU_NODE}
        self.cluster.change(plural, name, {"metadata": {"annotations": {keys[key]: text for key, text in notes.items()}}})

    def registered(self, old: str, new: str) -> None:
        text = self.cluster.notes("nodes", NODE)[names.NODE_VGPU_REGISTER]
        assert old in text
        self.notes("nodes", NODE, register=text.replace(old, new, 1))

    async def look(self, fault: Fault) -> NodeFacts:
        """With the monitor at work beside, which was there before the fault."""
        stop, ready, port = asyncio.Event(), asyncio.Event(), free_port()
        settings = monitor.Settings(NODE, hook_path=self.hook, address="127.0.0.1", port=port)
        beside = asyncio.create_task(
            monitor.run(settings, cluster=self.cluster, clock=SystemClock(), rng=random.Random(1), stop=stop, ready=ready))
        try:
            await asyncio.wait_for(ready.wait(), 60)
            fault(self)
            places = replace(self.places, metrics=f"http://127.0.0.1:{port}/metrics")
            return await look(places, self.cluster, SystemClock())
        finally:
            stop.set()
            await beside


def region(**fields: Any) -> bytes:
    return bytes(region_bytes(devices=1, procs=(Proc(1, {0: (0, 0, 5, 5)}),), uuids={0: A.encode()}, **fields))


FAULTS: dict[str, tuple[str, str, Fault]] = {
    # what is wrong: (check, words of the finding, how it comes about)
    "the runtime is not the default": ("runtime", "by default", lambda w: write(
        w.root / DAEMON, b'{"runtimes": {"nvidia": {}}}')),
    "there is no NVIDIA runtime": ("runtime", "names no NVIDIA runtime", lambda w: write(w.root / DAEMON, b"{}")),
    "the runtime's file is broken": ("runtime", "cannot be read", lambda w: write(w.root / DAEMON, b"{")),
    "a key of the ConfigMap is unknown": ("device-config", "deviceSplitCuont", lambda w: w.cluster.put(
        config_map(names.DEVICE_CONFIGMAP, names.DEVICE_CONFIG_KEY, "nvidia: {deviceSplitCuont: 3}"))),
    "the ConfigMap cannot be meant": ("device-config", "gpuMemoryFactor", lambda w: w.cluster.put(
        config_map(names.DEVICE_CONFIGMAP, names.DEVICE_CONFIG_KEY, "nvidia: {gpuMemoryFactor: many}"))),
    "there is no ConfigMap": ("device-config", "there is no ConfigMap", lambda w: w.cluster.remove(
        "configmaps", names.DEVICE_CONFIGMAP)),
    "the node's mode is not served": ("node-config", "operatingmode 'mig-mps'", lambda w: w.cluster.put(
        node_entry(operatingmode="mig-mps"))),
    "MPS is to promise more memory than there is": ("node-config", "scale by 1", lambda w: w.cluster.put(
        node_entry(operatingmode="mps", devicememoryscaling=1.8))),
    "MPS has no control program": ("mps", "nvidia-cuda-mps-control is not here", lambda w: w.cluster.put(
        node_entry(operatingmode="mps"))),
    "pods and MPS have shared memory of their own each": ("mps", "/dev/shm is not", lambda w: w.cluster.put(
        node_entry(operatingmode="mps"))),
    "the node's entry is no JSON": ("node-config", "no JSON", lambda w: w.cluster.put(
        config_map(names.NODE_CONFIGMAP, "none.json", "{"))),
    "no kubelet listens": ("kubelet", "no kubelet listens", lambda w: (w.kubelet / "kubelet.sock").unlink()),
    "no plugin is registered": ("kubelet", "offers no volcano.sh/vgpu-number", lambda w: w.cluster.change(
        "nodes", NODE, {"status": {"allocatable": {names.VGPU_NUMBER: "0"}}})),
    "two plugins serve one resource": ("other-plugins", "several plugins", lambda w: w.cluster.put(
        plugin_pod("old", "volcanosh/volcano-vgpu-device-plugin:v1.11"))),
    "another plugin hands the cards out": ("other-plugins", "nvidia-plugin hands", lambda w: (
        w.cluster.put(plugin_pod("nvidia-plugin", "nvcr.io/nvidia/k8s-device-plugin")),
        w.cluster.change("nodes", NODE, {"status": {"allocatable": {"nvidia.com/gpu": "2"}}}))),
    "the file of CDI devices lacks a card": ("cdi-devices", f"does not name {B}", lambda w: w.devices(A)),
    "the file of CDI devices names a card that is gone": ("cdi-devices", "GPU-gone, which", lambda w: w.devices(
        A, B, "GPU-gone")),
    "the file of CDI devices is broken": ("cdi-devices", "do not start", lambda w: write(w.root / CDI, b"{")),
    "the file of CDI devices is too deep": ("cdi-devices", "do not start", lambda w: write(w.root / CDI, b"[" * 5000)),
    "the file of CDI devices has a wrong date": ("cdi-devices", "do not start", lambda w: write(w.root / CDI, b"2026-13-01")),
    "shares are CDI devices that the runtime passes over": ("shares-by-name", "start without cards", lambda w: (
        write(w.root / "var/run/cdi/pumice.io-share_01.json", b"{}"),
        write(w.root / "etc/containerd/config.toml", NO_CDI))),
    "the runtime passes CDI devices over": ("cdi-devices", "does not switch CDI on", lambda w: (w.devices(A, B), write(
        w.root / "etc/containerd/config.toml", NO_CDI))),
    "the library is missing": ("library", "libvgpu.so is not there", lambda w: (w.hook / "libvgpu.so").unlink()),
    "the library is an old one": ("library", "not the one of this version", lambda w: write(w.hook / "libvgpu.so", b"old")),
    "the node says nothing of its cards": ("register", "has no annotation", lambda w: w.notes("nodes", NODE, register=None)),
    "the annotation is damaged": ("register", "fields instead of 6", lambda w: w.registered(f"{B},10,", f"{B},")),
    "a card is not registered": ("register", f"card {B} is here and not registered", lambda w: w.registered(B, f"{B[:-1]}9")),
    "a card that is not here is registered": ("register", "is registered and not here", lambda w: w.registered(B, f"{B[:-1]}9")),
    "a card is sick": ("register", "registered as sick", lambda w: w.registered("true", "false")),
    "the plugin has another factor": ("register", "units of memory", lambda w: w.registered(",32768,", ",3276,")),
    "a card's mode is another": ("register", "its MIG mode is off", lambda w: w.registered("hami-core", "mig")),
    "a pod's cards are another node's": ("assignments", "for node 'elsewhere'", lambda w: w.notes("pods", "p", node="elsewhere")),
    "a pod's card is not here": ("assignments", "which is not here", lambda w: w.notes("pods", "p", ids=gives(f"{A[:-1]}9"))),
    "an owner wrote another card": ("assignments", "and was given", lambda w: w.notes("pods", "p", ids=gives(B))),
    "the kubelet knows nothing of it": ("kubelet-record", "and not by the kubelet", lambda w: w.checkpoint()),
    "the kubelet's record is gone": ("kubelet-record", "cannot be read", lambda w: (
        w.kubelet / "kubelet_internal_checkpoint").unlink()),
    "a pod went past the scheduler": ("kubelet-record", "no scheduler chose its cards", lambda w: (
        w.checkpoint("u1", "u2"), w.cluster.put(pod_object("q", None, uid="u2", phase="Running")))),
    "a region's limit is lifted": ("regions", "higher memory limit", lambda w: write(w.region, region(limits=1 << 50))),
    "a region is broken": ("regions", "no known layout", lambda w: write(w.region, region()[:5000])),
    "a program is on a card": ("processes", "outside of this node's pods", lambda w: w.programs.append(
        Programs(w.machine).hold(64))),
    "the monitor looks elsewhere": ("metrics", "looks in another folder", lambda w: (
        w.hook.rename(w.root / "moved"), setattr(w, "places", replace(w.places, hook=w.root / "moved")))),
}  # fmt: skip


def examined(fault: Fault = lambda world: None) -> NodeFacts:
    with cards_of(two_cards()) as (machine, cards), tempfile.TemporaryDirectory(prefix="pumice") as folder:
        world = World(Path(folder), machine, cards)
        try:
            return asyncio.run(world.look(fault))
        finally:
            world.listener.close()
            for program in world.programs:
                program.kill()
                program.wait()


def troubles(facts: NodeFacts) -> list[tuple[str, str, str]]:
    return [(name, f.text, f.repair) for name, found in examine(CHECKS, facts) for f in found if f.state is not State.OK]


def test_on_a_node_that_is_as_it_must_be_every_check_says_so(capsys):
    facts = examined()
    assert troubles(facts) == []
    assert report(facts, Output.JSON) is False
    told = json.loads(capsys.readouterr().out)
    assert (told["node"], told["bad"]) == (NODE, 0)
    assert len(told["findings"]) == len(examine(CHECKS, facts)) > 10


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_is_found_by_its_check_with_its_repair(fault, capsys):
    check, words, make = FAULTS[fault]
    facts = examined(make)
    found = [(name, repair) for name, text, repair in troubles(facts) if words in text]
    assert [name for name, _ in found] == [check]
    assert all(repair for _, repair in found)
    report(facts, Output.TEXT)
    assert words in capsys.readouterr().out


def test_without_an_api_server_what_only_it_knows_is_unknown_and_nothing_else():
    with cards_of(two_cards()) as (machine, cards), tempfile.TemporaryDirectory(prefix="pumice") as folder:
        world = World(Path(folder), machine, cards)
        facts = asyncio.run(look(world.places, None, SystemClock(), "no API server: no kubeconfig"))
        world.listener.close()
    states = {name: {f.state for f in found} for name, found in examine(CHECKS, facts)}
    assert {name for name, seen in states.items() if State.UNKNOWN in seen} == {
        "device-config", "node-config", "kubelet", "other-plugins", "register", "assignments", "kubelet-record", "regions",
        "processes",
    }  # fmt: skip
    assert {name for name, seen in states.items() if State.BAD in seen} == set()


@pytest.mark.parametrize(("driver", "error", "words"), [
    ("440.33.01", "", "version 440.33.01"), ("", "no NVIDIA driver answers: none", "no NVIDIA driver answers"), ("x", "", "'x'"),
])  # fmt: skip
def test_a_driver_that_is_too_old_or_away_is_found(driver, error, words):
    found = [text for name, text, _ in troubles(NodeFacts(NODE, driver=driver, driver_error=error)) if name == "driver"]
    assert any(words in text for text in found)


@pytest.mark.parametrize(("claimed", "words"), [
    ({"": "not known to be free of claims: claims.json: damaged"}, "every card is closed to annotated pods"),
    ({A: "held by claims: default/c"}, "annotated pods have shares of it: ns1/p"),
    ({"GPU-gone": "held by claims: default/c"}, "card GPU-gone is held by claims: default/c, and is not here"),
])  # fmt: skip
def test_a_damaged_book_of_claims_and_cards_of_both_worlds_are_found(claimed, words):
    facts = replace(examined(lambda world: None), claimed=claimed)
    found = {name: text for name, text, _ in troubles(facts)}
    assert words in found["claims"]
    assert "register" not in found, "a card that claims hold is no sick one"


def test_a_container_without_a_part_yet_is_no_contradiction():
    """The plugin's word grows container by container, while the scheduler's is there at once."""
    two = gives(A) + ";" + gives(B)
    facts = examined(lambda w: (
        w.cluster.put(pod_object("q", two, container("c1", 1, 3000, 50), container("c2", 1, 3000, 50), uid="u2")),
        w.cluster.change("nodes", NODE, {"metadata": {"annotations": {names.HANDED_OUT: f"u1 {gives(A)}\nu2 {gives(A)};\n"}}}),
    ))  # fmt: skip
    assert [text for name, text, _ in troubles(facts) if name == "assignments"] == []
