"""Claims on a cluster of this machine, by the commands of docs/how-to/claims.md: to nvidia-smi in the pod."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kit.local_cluster import LocalCluster, local_cluster, pumice

from pumice_jobs.admission.rules import DEFAULT_PATHS, SHARES_TO_CLAIMS

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


@dataclass
class Here:
    """A cluster and what is asked of it."""

    kubectl: str
    cluster: LocalCluster

    def ask(self, *words: str, given: str | None = None) -> str:
        command = [self.kubectl, "--kubeconfig", str(self.cluster.data.kubeconfig), *words]
        return subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=60).stdout

    def until(self, expected: str, *words: str) -> str:
        deadline = time.monotonic() + 60
        while expected not in (found := self.ask(*words)):
            assert time.monotonic() < deadline, found + self.cluster.log()[-2000:]
            time.sleep(0.2)
        return found


@contextlib.contextmanager
def claims_cluster(*arguments: str) -> Iterator[Here]:
    built = os.environ.get("KUBEBUILDER_ASSETS", "")
    path = f"{built}:{os.environ['PATH']}" if built else os.environ["PATH"]
    kubectl = shutil.which("kubectl", path=path)
    if not kubectl:
        pytest.skip("kubectl is neither in KUBEBUILDER_ASSETS nor on the PATH")
    # a short path: sockets have at most 107 bytes
    with tempfile.TemporaryDirectory(prefix="d") as folder, local_cluster(Path(folder), *arguments) as cluster:
        yield Here(kubectl, cluster)


def test_pods_by_claim_see_their_share_and_one_too_many_waits_until_another_has_gone() -> None:
    with claims_cluster() as here:
        ask, until = here.ask, here.until
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
        dump = here.cluster.data.root / "case.json"
        assert pumice("dump", "--kubeconfig", str(here.cluster.data.kubeconfig), "-o", str(dump)).returncode == 0
        assert pumice("replay", str(dump)).returncode == 0
        told = pumice("explain", "--from", str(dump), "pod", "e")
        assert "cores" in told.stdout, "as the cluster has it, of the file alone"
        ask("delete", "pod", "b")
        until("/   3000MiB", "logs", "--ignore-errors", "e")


def test_a_pod_by_claim_sees_its_mig_slice_and_cards_are_cut_for_as_many_as_there_is_room_for() -> None:
    with claims_cluster("--nodes", "1", "--cards", "1", "--model", "A100-SXM4-40GB", "--mig") as here:
        here.ask("apply", "-f", str(EXAMPLES / "classes.yaml"))
        here.until("gpu.pumice.io", "get", "resourceslices")
        here.ask("apply", "-f", str(EXAMPLES / "mig-pod.yaml"))
        here.until("Succeeded", "get", "pod", "by-mig", "-o", "jsonpath={.status.phase}")
        assert "MIG 1g." in here.ask("logs", "by-mig")
        pod = BESIDE.replace("half-a-card", "mig-slice").replace("nvidia-smi", "nvidia-smi -L")
        for at in range(8):  # seven compute slices
            here.ask("apply", "-f", "-", given=pod.replace("NAME", f"p{at}"))
        running = 'jsonpath={range .items[?(@.status.phase=="Running")]}x{end}'
        here.until("x" * 7, "get", "pods", "-o", running)
        [waits] = [
            f"p{at}" for at in range(8) if not here.ask("get", "pod", f"p{at}", "-o", "jsonpath={.spec.nodeName}")
        ]
        assert "gpu-0-counter-set" in here.until(
            "counter", "get", "pod", waits, "-o", "jsonpath={.status.conditions[0].message}"
        )
        seen = {here.ask("logs", f"p{at}") for at in range(8) if f"p{at}" != waits}
        assert len(seen) == 7, "each sees its own slice"


TRANSLATED = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: two}
spec:
  schedulerName: volcano
  minAvailable: 2
  tasks:
  - name: t
    replicas: 2
    template:
      spec:
        restartPolicy: Never
        terminationGracePeriodSeconds: 0
        containers:
        - {name: main, image: any, command: [sh, -c, "nvidia-smi; sleep 1000"],
           resources: {limits: {nvidia.com/gpu: 1, nvidia.com/gpumem: 4000, nvidia.com/gpucores: 50}}}
"""


def test_pods_in_volcanos_and_hamis_words_run_by_claim_and_their_templates_are_their_workloads(tmp_path: Path) -> None:
    """Acceptance case 25, where a namespace says so."""
    config = tmp_path / "cluster.yaml"
    config.write_text(f"nodes: [{{cards: 2}}]\nadmission: [{', '.join((*DEFAULT_PATHS, *SHARES_TO_CLAIMS))}]\n")
    with claims_cluster("--config", str(config)) as here:
        ask, until = here.ask, here.until
        ask("apply", "-f", str(EXAMPLES / "classes.yaml"))
        until("gpu.pumice.io", "get", "resourceslices")
        ask("label", "namespace", "default", "pumice.io/claims=on")
        guides = str(EXAMPLES.parent / "vgpu-user-guide" / "hami-pod.yaml")
        until("resourceClaims", "create", "--dry-run=server", "-o", "yaml", "-f", guides)
        assert not ask("get", "resourceclaimtemplates,resourceclaims", "-o", "name")
        ask("apply", "-f", guides)
        until("Running", "get", "pod", "hami-pod", "-o", "jsonpath={.status.phase}")
        assert "3000MiB" in ask("exec", "hami-pod", "--", "nvidia-smi")
        ask("apply", "-f", "-", given=TRANSLATED)
        for name in ("two-t-0", "two-t-1"):
            until("/   4000MiB", "logs", "--ignore-errors", name)
        ask("apply", "-f", "-", given=TRANSLATED)
        owner = "jsonpath={range .items[*]}{.metadata.ownerReferences[*].kind}/{.metadata.ownerReferences[*].name} {end}"
        assert sorted(ask("get", "resourceclaimtemplates", "-o", owner).split()) == ["Job/two", "Pod/hami-pod"]
        assert sorted(ask("get", "resourceclaims", "-o", owner).split()) == ["Pod/hami-pod", "Pod/two-t-0", "Pod/two-t-1"]
        ask("delete", "job.batch.volcano.sh/two", "pod/hami-pod")
        deadline = time.monotonic() + 60
        while left := ask("get", "resourceclaimtemplates,resourceclaims", "-o", "name"):
            assert time.monotonic() < deadline, left
            time.sleep(0.2)
