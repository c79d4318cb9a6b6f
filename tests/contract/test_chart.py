"""The chart on an API server: what helm makes, changes, puts back and takes away, and what it is refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from kit.control_plane import KINDS, Api, control_plane, write_kubeconfig
from kit.installing import CHART, helm, program

from pumice.ports.cluster import Json

ROOT = Path(__file__).parents[2]
SYSTEM = "/api/v1/namespaces/volcano-system"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
BUDGETS = "/apis/policy/v1/namespaces/volcano-system/poddisruptionbudgets"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
KINDS_THERE = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True)
class Cluster:
    api: Api
    kubeconfig: Path

    def helm(self, verb: str, *words: str, values: Json | None = None) -> str:
        done = self.tried(verb, *words, values=values)
        assert done[0] == 0, done[1]
        return done[1]

    def tried(self, verb: str, *words: str, values: Json | None = None) -> tuple[int, str]:
        done = helm(verb, *words, "--namespace=volcano-system", values=values, kubeconfig=self.kubeconfig)
        return done.returncode, done.stdout + done.stderr

    def refused(self, values: Json) -> str:
        """An installation that would be; what the cluster has is looked up, and nothing is written."""
        code, said = self.tried("install", "pumice", str(CHART), "--create-namespace", "--dry-run=server", values=values)
        assert code != 0, said
        return said

    def notes(self) -> str:
        return self.helm("install", "pumice", str(CHART), "--create-namespace", "--dry-run=server").partition("NOTES:")[2]

    def scheduler(self) -> Json:
        return self.api.get(f"{DEPLOYMENTS.format('volcano-system')}/volcano-scheduler")


@pytest.fixture(scope="module", params=KINDS)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of its own: what the chart installs counts for all of a cluster's pods."""
    program("helm")
    folder = tmp_path_factory.mktemp(request.param)
    with control_plane(request.param, folder) as api:
        yield Cluster(api, write_kubeconfig(folder / "kubeconfig", api))


@pytest.fixture
def release(cluster: Cluster) -> Iterator[Cluster]:
    cluster.helm("install", "pumice", str(CHART), "--create-namespace")
    try:
        yield cluster
    finally:
        cluster.helm("uninstall", "pumice")


def test_a_release_is_changed_and_put_back_and_what_the_daemons_wrote_stays(release: Cluster) -> None:
    api = release.api
    good = f"{SYSTEM}/configmaps/volcano-scheduler-configmap-last-good"
    api.merge(good, {"data": {"volcano-scheduler.conf": "actions: allocate"}})
    release.helm("upgrade", "pumice", str(CHART), values={"custom": {"scheduler_replicas": 2}})
    assert release.scheduler()["spec"]["replicas"] == 2
    assert [item["metadata"]["name"] for item in api.get(BUDGETS)["items"]] == ["volcano-scheduler"]
    release.helm("rollback", "pumice", "1")
    assert release.scheduler()["spec"]["replicas"] == 1
    assert "affinity" not in release.scheduler()["spec"]["template"]["spec"]
    assert api.get(BUDGETS)["items"] == []
    assert api.get(good)["data"] == {"volcano-scheduler.conf": "actions: allocate"}


def test_what_somebody_changed_by_hand_is_not_written_over_unasked(release: Cluster) -> None:
    """Where helm applies by server-side apply, as Helm 4 does of itself."""
    conf = f"{SYSTEM}/configmaps/volcano-scheduler-configmap"
    mine = {"volcano-scheduler.conf": "actions: allocate"}
    release.api.merge(conf, {"data": mine})
    change = ["upgrade", "pumice", str(CHART), "--set=custom.scheduler_replicas=2"]
    code, said = release.tried(*change)
    assert code != 0
    assert 'conflict with "contract" using v1: .data.volcano-scheduler.conf' in said
    assert release.api.get(conf)["data"] == mine
    release.helm(*change, "--force-conflicts")
    assert release.api.get(conf)["data"] != mine


def test_the_guides_commands_do_what_it_says(cluster: Cluster, tmp_path: Path) -> None:
    """All of them, one after the other, and objects of the manifests that the chart takes over."""
    words = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text("utf-8").partition("## By Helm")[2].partition("\n## ")[0]
    commands = [line for block in re.findall(r"```sh\n(.*?)```", words, re.S) for line in block.splitlines()]
    assert {command.split()[1] for command in commands} == {"install", "template", "upgrade", "rollback", "apply", "uninstall"}
    (tmp_path / "bin").mkdir()
    for name in ("helm", "kubectl"):
        (tmp_path / "bin" / name).symlink_to(program(name))
    environ = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path), "KUBECONFIG": str(cluster.kubeconfig)}

    def run(command: str) -> str:
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, env=environ, capture_output=True, text=True,
                              timeout=100, check=False)  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    replicas = []
    for command in commands:
        if "--take-ownership" in command:
            run("helm uninstall pumice --namespace volcano-system")
            for name in ("volcano.yml", "volcano-admission.yml", "volcano-vgpu-device-plugin.yml"):
                run(f"kubectl apply -f deploy/manifests/{name}")
        run(command)
        if "uninstall" not in command:
            replicas.append(cluster.scheduler()["spec"]["replicas"])
    assert replicas == [1, 1, 2, 1, 1, 1]
    assert cluster.api.get(DEPLOYMENTS.format("volcano-system"))["items"] == []


def test_changing_the_scheduler_leaves_the_nodes_daemons_alone(release: Cluster) -> None:
    def daemons() -> dict[str, Any]:
        found = release.api.get("/apis/apps/v1/namespaces/kube-system/daemonsets")["items"]
        return {item["metadata"]["name"]: (item["metadata"]["uid"], item["metadata"]["generation"]) for item in found}

    before = daemons()
    assert sorted(before) == ["volcano-device-plugin", "volcano-vgpu-monitor"]
    release.helm("upgrade", "pumice", str(CHART), values={"custom": {"scheduler_config_override": "actions: allocate"}})
    assert daemons() == before


def test_jobs_and_queues_and_their_kinds_outlive_a_release(cluster: Cluster) -> None:
    cluster.helm("install", "pumice", str(CHART), "--create-namespace")
    cluster.api.until_served(QUEUES)
    cluster.api.create(QUEUES, {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "kept"}})
    cluster.helm("uninstall", "pumice")
    assert cluster.api.get(f"{QUEUES}/kept")["spec"]["weight"] == 1
    assert cluster.api.get(DEPLOYMENTS.format("volcano-system"))["items"] == []
    cluster.api.delete(f"{QUEUES}/kept")


def test_all_that_may_be_asked_for_is_taken_by_the_api_server(cluster: Cluster) -> None:
    """But for PodMonitors, whose kind comes with Prometheus' operator."""
    values = {
        "custom": {"scheduler_replicas": 2, "controller_replicas": 2, "admission_replicas": 2,
                   "common_labels": {"team": "cards"}},
        "devicePlugin": {"mig": {"enabled": True}, "createRuntimeClass": True}, "devices": {"ascend": {"enabled": True}},
        "networkPolicy": {"enabled": True}, "image": {"digest": f"sha256:{'0' * 64}"},
    }  # fmt: skip
    cluster.helm("install", "pumice", str(CHART), "--create-namespace", values=values)
    try:
        found = cluster.api.get("/apis/networking.k8s.io/v1/namespaces/kube-system/networkpolicies")["items"]
        assert len(found) == 4
        code, said = cluster.tried("upgrade", "pumice", str(CHART), values=values | {"prometheus": {"enabled": True}})
        assert code != 0
        assert 'no matches for kind "PodMonitor"' in said
    finally:
        cluster.helm("uninstall", "pumice")


def test_what_tenants_must_not_say_is_refused_and_who_has_no_card_sees_none_as_soon_as_the_chart_is_installed(
    release: Cluster,
) -> None:
    spec = {"containers": [{"name": "c", "image": "x"}], "automountServiceAccountToken": False}
    pods, deadline = "/api/v1/namespaces/default/pods", time.monotonic() + 60

    def made(**container: Any) -> Any:
        body = {"metadata": {"generateName": "p-"}, "spec": {**spec, "containers": [{**spec["containers"][0], **container}]}}
        return release.api.call("POST", pods, body)

    all_cards = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    while made(env=[all_cards]).code == 201 or "env" not in made().json["spec"]["containers"][0]:
        assert time.monotonic() < deadline, "the policies do not come into force"
        time.sleep(0.2)
    assert "may only say void or none" in made(env=[all_cards]).json["message"]
    assert made().json["spec"]["containers"][0]["env"] == [{**all_cards, "value": "void"}]
    notes = release.helm("get", "notes", "pumice")
    assert "pods of all namespaces but kube-system, volcano-system, mindx-dl" in " ".join(notes.split())
    assert "left out" not in notes


def test_a_second_release_is_refused(release: Cluster) -> None:
    done = helm("install", "again", str(CHART), "--namespace=default", kubeconfig=release.kubeconfig)
    assert done.returncode != 0
    assert "exists and cannot be imported into the current release" in done.stderr


def others(args: list[str], replicas: int = 1, image: str = "docker.io/volcanosh/vc-scheduler:v1.12.1") -> Json:
    labels = {"app": "other"}
    containers = [{"name": "c", "image": image, "args": args}]
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "others-scheduler"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
                     "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}}}}  # fmt: skip


def test_two_schedulers_of_one_name_are_refused_until_one_rests(cluster: Cluster) -> None:
    deployments = DEPLOYMENTS.format("default")
    path = f"{deployments}/others-scheduler"
    for args in (["--logtostderr"], ["--scheduler-name=volcano"], ["--scheduler-name", "volcano"]):
        cluster.api.create(deployments, others(args))
        said = cluster.refused({})
        cluster.api.delete(path)
        assert "the deployment others-scheduler in default schedules the pods of schedulerName volcano already" in said, args
    for other in (
        others(["--scheduler-name=others"]), others([], replicas=0), others(["airflow", "scheduler"], image="apache/airflow:3"),
        others(["--scheduler-name=volcano"], image="docker.io/volcanosh/vc-controller-manager:v1.12.1"),
    ):  # fmt: skip
        cluster.api.create(deployments, other)
        assert "Pods with schedulerName: volcano are placed once" in cluster.notes()
        cluster.api.delete(path)


def test_a_release_with_a_scheduler_of_its_own_name_does_not_stand_in_its_own_way(cluster: Cluster) -> None:
    values = {"custom": {"scheduler_name": "cards"}}
    cluster.helm("install", "pumice", str(CHART), "--create-namespace", values=values)
    try:
        cluster.helm("upgrade", "pumice", str(CHART), values=values | {"networkPolicy": {"enabled": True}})
    finally:
        cluster.helm("uninstall", "pumice")


def old_kind(name: str, change: Any) -> Json:
    kind = yaml.safe_load((CHART / "crds" / name).read_text("utf-8"))
    change(kind["spec"]["versions"][0])
    return json.loads(json.dumps(kind))


def test_kinds_of_another_version_are_refused_and_fields_that_would_be_dropped_are_told(cluster: Cluster) -> None:
    path = f"{KINDS_THERE}/podgroups.scheduling.volcano.sh"
    cluster.api.call("DELETE", path)
    gone(cluster, path)
    cluster.api.create(KINDS_THERE, old_kind("podgroups.yaml", lambda version: version.update(name="v1alpha2")))
    assert "podgroups.scheduling.volcano.sh is there and does not serve v1beta1" in cluster.refused({})
    cluster.api.delete(path)

    def forget(version: Json) -> None:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        del spec["networkTopology"], spec["subGroupPolicy"]["items"]["properties"]["minSubGroups"]

    gone(cluster, path)
    cluster.api.create(KINDS_THERE, old_kind("podgroups.yaml", forget))
    notes = cluster.notes()
    assert [line.strip() for line in notes.splitlines() if "PodGroup." in line] == [
        "PodGroup.spec.networkTopology", "PodGroup.spec.subGroupPolicy[].minSubGroups"]  # fmt: skip
    assert "kubectl apply --server-side --force-conflicts" in notes
    cluster.api.delete(path)
    gone(cluster, path)
    assert "drops these fields" not in cluster.notes()


def gone(cluster: Cluster, path: str) -> None:
    deadline = time.monotonic() + 60
    while cluster.api.call("GET", path).code != 404:
        assert time.monotonic() < deadline, "it does not go"
        time.sleep(0.1)
