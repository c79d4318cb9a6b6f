"""Claims on a cluster of this machine: driver, scheduler, kubelet and library together, to nvidia-smi in the pod."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.local_cluster import LocalCluster, local_cluster

from pumice.cli.emulated import driver_of_machines

EXAMPLES = Path(__file__).parents[2] / "examples" / "claims"
BESIDE = """
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: any, command: [sh, -c, "nvidia-smi; sleep 1000"], resources: {claims: [{name: gpu}]}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: half-a-card}]
"""


@contextlib.contextmanager
def driver(cluster: LocalCluster) -> Iterator[None]:
    node = cluster.data.root / "nodes/node-1"
    places = {"kubeconfig": cluster.data.kubeconfig, "kubelet-dir": node / "kubelet", "hook-path": node / "vgpu",
              "lock-dir": node / "vgpu/lock", "nvml": driver_of_machines(), "cdi-root": node / "cdi"}  # fmt: skip
    command = [sys.executable, "-m", "pumice", "dra-driver", "nvidia", "--node-name=node-1",
               *(f"--{name}={place}" for name, place in places.items())]  # fmt: skip
    log = (cluster.data.root / "driver.log").open("w")
    environment = {**os.environ, "PUMICE_MACHINE": str(node / "machine")}
    with subprocess.Popen(command, env=environment, stderr=log, stdout=log) as running:
        try:
            yield
        finally:
            running.terminate()


def test_pods_by_claim_see_their_share_and_one_too_many_waits_until_another_has_gone() -> None:
    built = os.environ.get("KUBEBUILDER_ASSETS", "")
    path = f"{built}:{os.environ['PATH']}" if built else os.environ["PATH"]
    kubectl = shutil.which("kubectl", path=path)
    if not kubectl:
        pytest.skip("kubectl is neither in KUBEBUILDER_ASSETS nor on the PATH")

    def ask(*words: str, given: str | None = None) -> str:
        command = [str(kubectl), "--kubeconfig", str(cluster.data.kubeconfig), *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=60).stdout

    def until(expected: str, *words: str) -> str:
        deadline = time.monotonic() + 60
        while expected not in (found := ask(*words)):
            assert time.monotonic() < deadline, found + cluster.log()[-2000:] + (cluster.data.root / "driver.log").read_text()
            time.sleep(0.2)
        return found

    # a short path: sockets have at most 107 bytes
    with tempfile.TemporaryDirectory(prefix="d") as folder, local_cluster(Path(folder)) as cluster:
        ask("apply", "-f", str(EXAMPLES / "driver.yaml"))
        with driver(cluster):
            until("gpu.pumice.io", "get", "resourceslices")
            ask("apply", "-f", str(EXAMPLES / "pod.yaml"))
            until("Succeeded", "get", "pod", "by-claim", "-o", "jsonpath={.status.phase}")
            assert "/   3000MiB" in ask("logs", "by-claim")
            for name in ("a", "b", "c", "d", "e"):  # two cards take two halves each
                ask("apply", "-f", "-", given=BESIDE.replace("NAME", name))
            for name in ("a", "b", "c", "d"):
                until("/   3000MiB", "logs", "--ignore-errors", name)
            until("cores", "get", "pod", "e", "-o", "jsonpath={.status.conditions[0].message}")
            assert not ask("get", "pod", "e", "-o", "jsonpath={.spec.nodeName}")
            ask("delete", "pod", "b")
            until("/   3000MiB", "logs", "--ignore-errors", "e")
