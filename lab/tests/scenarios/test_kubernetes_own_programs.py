"""Kubernetes' own scheduler and controllers, unmodified, beside a cluster of `pumice up`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit.local_cluster import local_cluster

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json
from pumice.wire.kinds import PODS, SERVICE_ACCOUNTS, STATEFUL_SETS

pytestmark = pytest.mark.kube


@contextmanager
def program(name: str, log: Path, *arguments: str) -> Iterator[None]:
    path = Path(os.environ.get("KUBEBUILDER_ASSETS", ""), name)
    if not os.environ.get("KUBEBUILDER_ASSETS") or not path.exists():
        pytest.skip(f"{name} is not in KUBEBUILDER_ASSETS")
    with log.open("w") as out, subprocess.Popen([path, *arguments], stdout=out, stderr=out) as process:
        try:
            yield
        finally:
            process.terminate()


def stateful_set(name: str, replicas: int) -> Json:
    container = {"name": "c", "image": "any", "command": ["sleep", "100"]}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {
        "serviceName": name, "replicas": replicas, "selector": {"matchLabels": {"set": name}},
        "template": {"metadata": {"labels": {"set": name}}, "spec": {
            "schedulerName": "foreign", "terminationGracePeriodSeconds": 0, "containers": [container]}}}}  # fmt: skip


async def all_run(kube: KubeClient) -> bool:
    pods = (await kube.list(PODS, "default"))["items"]
    return [p["metadata"]["name"] for p in pods if p["status"]["phase"] == "Running"] == ["web-0", "web-1"]


def test_kube_scheduler_places_the_pods_of_a_set_and_kube_controller_manager_beside_ours_has_its_rights(tmp_path: Path) -> None:
    """Each of its controllers with the rights of its own service account, as kubeadm starts them; ours make the same pods."""
    with local_cluster(tmp_path / "d", "--pod-network", "none") as cluster:
        kubeconfig, pki = cluster.data.kubeconfig, cluster.data.pki
        configuration = tmp_path / "scheduler.yaml"
        configuration.write_text(f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {kubeconfig}}}
profiles: [{{schedulerName: foreign}}]
""")
        controllers = (f"--kubeconfig={kubeconfig}", "--use-service-account-credentials=true", "--secure-port=0",
                       f"--service-account-private-key-file={pki / 'service-account.key'}", f"--root-ca-file={pki / 'ca.crt'}",
                       "--controllers=*,-nodeipam,-route,-service,-cloud-node-lifecycle")  # fmt: skip
        log = tmp_path / "controllers.log"
        with program("kube-scheduler", tmp_path / "scheduler.log", f"--config={configuration}", "--secure-port=0"), \
                program("kube-controller-manager", log, *controllers):
            cluster.ask(lambda kube: kube.create(STATEFUL_SETS, stateful_set("web", 2)))
            cluster.wait(all_run)
            cluster.wait(accounts_of_controllers)
            assert "is forbidden" not in log.read_text()
            assert cluster.ask(all_run)


async def accounts_of_controllers(kube: KubeClient) -> bool:
    found = (await kube.list(SERVICE_ACCOUNTS, "kube-system"))["items"]
    return {account["metadata"]["name"] for account in found} >= {"statefulset-controller", "replicaset-controller"}
