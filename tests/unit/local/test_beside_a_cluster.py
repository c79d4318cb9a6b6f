"""Cards that a cluster has: while its plugin answers, and while it restarts and its pods run on."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.region_files import Proc, region_bytes, write

from pumice.adapters.region.reader import V12
from pumice.adapters.region.writer import create_region
from pumice.local.place import Place
from pumice.local.plugin import handed_out
from pumice.local.start import refuse_plugin
from pumice.model.errors import BadInput

MIB = 1 << 20
UID = "0a0a0a0a-0000-4000-8000-000000000000"


class Node:
    """The folders of a machine of ``pumice up``."""

    def __init__(self, root: Path) -> None:
        self.machine, self.plugins, self.pods = root / "machine", root / "kubelet" / "device-plugins", root / "pods"
        self.containers = root / "vgpu" / "vgpu" / "containers"
        for folder in (self.machine, self.plugins, self.pods, self.containers):
            folder.mkdir(parents=True)

    @contextmanager
    def listens(self, name: str) -> Iterator[None]:
        with socket.socket(socket.AF_UNIX) as server:
            folder = os.open(self.plugins, os.O_PATH)
            server.bind(f"/proc/self/fd/{folder}/{name}")  # the whole path may be too long for a socket's name
            os.close(folder)
            server.listen()
            yield
        (self.plugins / name).unlink()

    def records(self, device: str) -> None:
        entry = {"PodUID": UID, "ContainerName": "a", "ResourceName": "volcano.sh/vgpu-number", "DeviceIDs": {"-1": [device]}}
        (self.plugins / "kubelet_internal_checkpoint").write_text(json.dumps({"Data": {"PodDeviceEntries": [entry]}}))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def test_a_plugin_that_answers_has_the_cards(node: Node) -> None:
    assert handed_out(node.machine) == ""
    with node.listens("nvidia-vgpu-number.sock"):
        assert handed_out(node.machine).startswith("handed out by a node plugin (")
    assert handed_out(node.machine) == ""


def test_while_the_plugin_restarts_its_pods_hold_the_cards_by_the_kubelets_record(node: Node) -> None:
    node.records("GPU-a-0")
    (node.pods / UID).mkdir()
    assert handed_out(node.machine) == ""  # no kubelet any more, whose record it was
    with node.listens("kubelet.sock"):
        assert "held by pods (" in handed_out(node.machine)
        with pytest.raises(BadInput, match=r"held by pods .*although no node plugin answers at the moment: its cluster keeps"):
            refuse_plugin(Place(node.machine / "run", node.machine))
        (node.pods / UID).rmdir()  # the pod has ended, and the record is written at the next Allocate only
        assert handed_out(node.machine) == ""
        (node.pods / UID).mkdir()
        node.records("some-other-device")
        assert handed_out(node.machine) == ""


def test_a_container_that_uses_a_card_holds_it_in_the_eyes_of_whoever_may_not_read_the_record(node: Node) -> None:
    region = node.containers / f"{UID}_a" / "vgpu.cache"
    create_region(region, {0: (3000 * MIB, 50)})
    assert handed_out(node.machine) == ""
    enter(region, os.getpid())
    assert handed_out(node.machine).startswith(f"held by pods ({region})")
    enter(region, 1 << 22)  # no process has that number
    assert handed_out(node.machine) == ""


def test_what_upstreams_library_left_behind_holds_nothing(node: Node) -> None:
    """Its regions name processes by numbers of the container's own, such as 1, which are alive on every machine."""
    write(node.containers / f"{UID}_a" / "old.cache", region_bytes(procs=(Proc(pid=1),)))
    assert handed_out(node.machine) == ""


def enter(region: Path, pid: int) -> None:
    """Let a process stand in the first slot."""
    with region.open("r+b") as file:
        file.seek(V12.slots)
        file.write(struct.pack("<i", pid))
        file.seek(V12.slots + V12.status)
        file.write(struct.pack("<i", 1))
        file.seek(V12.trailer)
        file.write(struct.pack("<i", 1))
