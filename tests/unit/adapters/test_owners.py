"""Whose a process is: by its cgroup, whichever driver named that."""

from __future__ import annotations

import os

import pytest

from pumice.adapters.owners import HOST_NAMESPACE, ProcOwners
from pumice.ports.processes import Owner

UID = "7c1f4e0e-6a0b-4b0e-9f7e-3d3c1c2b1a00"
LOW = UID.replace("-", "_")
ID = "0123456789abcdef" * 4


def process(proc, pid: int, cgroup: str, numbers: str = "", begun: int = 5, maps: str = "") -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(f"{pid} (a ) b) S " + " ".join(["0"] * 18) + f" {begun} 0\n")
    (folder / "cgroup").write_text(cgroup)
    (folder / "status").write_text(f"Name:\tx\nNSpid:\t{numbers or pid}\n")
    (folder / "maps").write_text(maps)


def host(tmp_path):
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to(HOST_NAMESPACE)
    return ProcOwners(tmp_path)


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{LOW}.slice/cri-containerd-{ID}.scope\n",
        f"0::/kubepods/besteffort/pod{UID}/{ID}\n",
        f"0::/../../kubepods-pod{LOW}.slice/cri-containerd-{ID}.scope\n",
        f"12:cpu:/kubepods/pod{UID}/{ID}\n1:name=systemd:/kubepods/pod{UID}/{ID}\n",
    ],
)
def test_pod_and_container_are_read_off_the_cgroup(tmp_path, cgroup):
    process(tmp_path, 900, cgroup, "900\t7")
    assert host(tmp_path).owners([900, 901]) == {900: Owner(UID, ID, 7, shared=False)}


def test_a_process_outside_of_pods_has_no_pod(tmp_path):
    process(tmp_path, 900, f"0::/system.slice/docker-{ID}.scope\n")
    assert host(tmp_path).owners([900]) == {900: Owner("", "", 900, shared=True)}


def test_another_process_under_the_same_number_is_looked_at_anew(tmp_path):
    owners = host(tmp_path)
    process(tmp_path, 900, f"0::/kubepods/pod{UID}/{ID}\n")
    assert owners.owners([900])[900].pod == UID
    process(tmp_path, 900, "0::/\n", begun=6)
    assert owners.owners([900])[900].pod == ""


def test_elsewhere_than_on_the_host_a_number_may_be_anybodys(tmp_path):
    """Only who has the driver's library loaded can be meant by the driver."""
    process(tmp_path, 900, "0::/\n")
    process(tmp_path, 901, "0::/\n", maps="7f00-7f01 r-xp 00000000 00:01 1 /usr/lib/libcuda.so.1\n")
    assert list(ProcOwners(tmp_path).owners([900, 901])) == [901]


def test_this_very_process_can_be_read():
    assert set(ProcOwners().owners([os.getpid(), 2**22 + 1])) <= {os.getpid()}
