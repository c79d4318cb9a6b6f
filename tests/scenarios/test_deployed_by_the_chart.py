"""The chart on a bare cluster: its daemons serve, are changed and put back under running pods, and when gone stop nobody."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from kit.installing import CHART, helm, program
from kit.job_world import job, task
from kit.local_cluster import LocalCluster, local_cluster, vgpu_pod

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json
from pumice.wire.kinds import PODS
from pumice.wire.volcano import JOBS
from pumice_jobs.admission.rules import MUTATING, VALIDATING

CHANGED = {
    "custom": {"scheduler_replicas": 2, "scheduler_extraArgs": ["--log-format=json"],
               "controller_extraArgs": ["--log-format=json"]},
    "devicePlugin": {"extraArgs": ["--log-level=debug"], "monitor": {"extraArgs": ["--log-level=debug"]}},
}  # fmt: skip


def test_a_release_is_changed_and_put_back_under_pods_that_allocate_and_leaves_no_server_that_is_asked() -> None:
    """The data lies beside /tmp: the admission server's pod has a /tmp of its own."""
    program("helm")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, local_cluster(Path(folder) / "d", "--bare") as cluster:
        release(cluster, "install", "--create-namespace", "--wait")
        before = [guest(cluster, "first"), guest(cluster, "second")]
        release(cluster, "upgrade", values=CHANGED)
        make(cluster, "meanwhile")
        settled(cluster, "scheduler", 2)
        before += [running(cluster, "meanwhile"), guest(cluster, "changed")]
        release(cluster, "rollback", "1")
        settled(cluster, "scheduler", 1)
        before += [guest(cluster, "back")]
        assert [seen(cluster, pod["metadata"]["name"]) for pod in before] == [alive(pod) for pod in before]
        done = helm("uninstall", "pumice", "--namespace=volcano-system", kubeconfig=cluster.data.kubeconfig)
        assert done.returncode == 0, done.stderr
        cluster.wait(nothing_is_registered)
        cluster.ask(lambda kube: kube.create(JOBS, job("anybodys", task("a"), namespace="default"), "default"))
        assert [seen(cluster, pod["metadata"]["name"]) for pod in before] == [alive(pod) for pod in before]


def release(cluster: LocalCluster, verb: str, *words: str, values: Json | None = None) -> None:
    where = [] if verb == "rollback" else [str(CHART)]
    done = helm(verb, "pumice", *where, "--namespace=volcano-system", *words, values=values, kubeconfig=cluster.data.kubeconfig)
    assert done.returncode == 0, done.stderr + cluster.log()[-2000:]


def make(cluster: LocalCluster, name: str) -> None:
    cluster.ask(lambda kube: kube.create(PODS, vgpu_pod(name, 1000, 10)))


def running(cluster: LocalCluster, name: str) -> Json:
    async def started(kube: KubeClient) -> Any:
        pod = await kube.get(PODS, name, "default")
        return pod["status"].get("phase") == "Running" and pod["status"].get("containerStatuses") and pod

    return cluster.wait(started)


def guest(cluster: LocalCluster, name: str) -> Json:
    make(cluster, name)
    return running(cluster, name)


def alive(pod: Json) -> tuple[Any, ...]:
    statuses = pod["status"]["containerStatuses"]
    return pod["metadata"]["uid"], pod["status"]["phase"], [(s["containerID"], s["restartCount"]) for s in statuses]


def seen(cluster: LocalCluster, name: str) -> tuple[Any, ...]:
    return alive(cluster.ask(lambda kube: kube.get(PODS, name, "default")))


def settled(cluster: LocalCluster, component: str, replicas: int) -> None:
    """All daemons of this revision are ready and no other is left."""

    async def ready(kube: KubeClient) -> bool:
        ours = [p for p in (await kube.list(PODS))["items"] if p["metadata"]["namespace"] != "default"]
        said = [c["status"] for p in ours for c in p["status"].get("conditions", ()) if c["type"] == "Ready"]
        schedulers = [p for p in ours if p["metadata"]["name"].startswith(f"volcano-{component}")]
        changed = ["--log-format=json" in p["spec"]["containers"][0]["args"] for p in schedulers]
        return said == ["True"] * (4 + replicas) and changed == [replicas == 2] * replicas

    cluster.wait(ready, 90)


async def nothing_is_registered(kube: KubeClient) -> bool:
    return not [o for kind in (MUTATING, VALIDATING) for o in (await kube.list(kind))["items"]]
