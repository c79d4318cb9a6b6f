"""`pumice up` from outside: a pod keeps to what it was granted, whatever its spec and its processes say."""

from __future__ import annotations

import sys
from pathlib import Path

from kit.local_cluster import local_cluster, log_with, vgpu_pod
from kit.vgpu_kit import CHILDREN

from pumice.wire.kinds import PODS

LIFTS = {
    "CUDA_DEVICE_MEMORY_LIMIT_0": "0",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/dev/shm/mine.cache",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "PUMICE_VGPU_CARDS": "none",
}


def test_a_pod_whose_spec_lifts_its_limits_and_whose_processes_clear_theirs_keeps_to_its_share(tmp_path: Path) -> None:
    """Of 3,000 MiB, two processes at once: at most 46 blocks of 64 MiB, contexts not counted."""
    attempt = f"{sys.executable} -I -S {CHILDREN / 'attempt.py'}"
    together = f"sleep 5 | {attempt} nothing & sleep 5 | {attempt} scrubbed; wait"
    script = f"({together}; {attempt} 'remove the region' </dev/null; echo over) 2>&1"
    pod = vgpu_pod("lifter", 3000, 30)
    container = pod["spec"]["containers"][0]
    container["command"] = ["sh", "-c", f"{script}; sleep 1000"]
    container["env"] = [{"name": name, "value": value} for name, value in LIFTS.items()]
    with local_cluster(tmp_path / "d") as cluster:
        cluster.ask(lambda kube: kube.create(PODS, pod))
        said = cluster.wait(lambda kube: log_with(kube, "lifter", "over"))
    counts = [int(line.rpartition(",")[2].strip("] ")) for line in said.splitlines() if line.startswith("[")]
    assert len(counts) == 3, said
    assert 30 < sum(counts[:2]) <= 46, said
    assert 30 < counts[2] <= 46, said
    assert "Error" in said.splitlines()[-2]
