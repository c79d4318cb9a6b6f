"""Claims on a cluster of this machine, by the commands of docs/how-to/claims.md: to nvidia-smi in the pod."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from kit.local_cluster import local_cluster

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
            assert time.monotonic() < deadline, found + cluster.log()[-2000:]
            time.sleep(0.2)
        return found

    # a short path: sockets have at most 107 bytes
    with tempfile.TemporaryDirectory(prefix="d") as folder, local_cluster(Path(folder)) as cluster:
        assert not ask("get", "resourceslices", "-o", "name")
        ask("apply", "-f", str(EXAMPLES / "classes.yaml"))
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
