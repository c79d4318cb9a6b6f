"""The last release's daemons serve pods, this one's take their place half by half, and the last release's come back: running pods
run on, and neither version gives away what the other gave."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from kit.local_cluster import LocalCluster, local_cluster, vgpu_pod
from kit.manifests import manifest, resource_of
from kit.release import LAST, ROOT

from pumice import __version__
from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import PODS

SCHEDULER, PLUGIN = "volcano.yml", "volcano-vgpu-device-plugin.yml"
TOO_BIG = 30000
"""MiB; the only card of the only node has 40,960. It has room once the first guest has gone, and never before."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last release, unpacked and built: its folder has `pumice` in it."""
    folder = tmp_path_factory.mktemp("last")
    known = subprocess.run(["git", "-C", str(ROOT), "cat-file", "-e", LAST.commit], capture_output=True)
    if known.returncode != 0:
        pytest.skip(f"this checkout's history does not reach {LAST.version} ({LAST.commit[:8]})")
    files = subprocess.Popen(["git", "-C", str(ROOT), "archive", LAST.commit, "src", "native"], stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], stdin=files.stdout, check=True)
    assert files.wait() == 0
    subprocess.run(["make", "-s", "-C", str(folder / "native"), "vgpu-install"], check=True, capture_output=True)
    program = folder / "pumice"
    program.write_text(f"""#!/bin/sh\nPYTHONPATH={folder}/src exec {ROOT}/.venv/bin/python -m pumice "$@"\n""", "utf-8")
    program.chmod(0o755)
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"pumice {LAST.version}"
    return folder


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with local_cluster(tmp_path / "d", "--bare", "--nodes", "1", "--cards", "1", "--model", "A100-SXM4-40GB") as cluster:
        yield cluster


def of_before(folder: Path, name: str) -> list[Json]:
    """The last release's manifest. What its image would bring is named as a command: images are not unpacked here."""
    objects = [obj for obj in yaml.safe_load_all((folder / "src/pumice/manifests" / name).read_text("utf-8")) if obj]
    for obj in objects:
        if obj["kind"] in ("Deployment", "DaemonSet"):
            for container in obj["spec"]["template"]["spec"]["containers"]:
                assert container["image"] == f"pumice/pumice:{LAST.version}"
                container["command"] = [str(folder / "pumice")]
    return objects


def apply(cluster: LocalCluster, objects: list[Json], version: str) -> None:
    """Write the objects over those that are there, as an administrator does, and wait until its daemons are that version's."""

    async def write(kube: KubeClient) -> None:
        for obj in objects:
            resource, meta = resource_of(obj), obj["metadata"]
            with suppress(ApiError):
                await kube.create(resource, obj)
                continue
            for _ in range(20):  # the daemons write some of them, too
                there = await kube.get(resource, meta["name"], meta.get("namespace", ""))
                new = {**obj, "metadata": {**meta, "resourceVersion": there["metadata"]["resourceVersion"]}}
                with suppress(ApiError):
                    await kube.update(resource, new)
                    break
            else:
                raise AssertionError(f"{meta['name']} is refused, or written by others all the time")

    async def rolled(kube: KubeClient) -> bool:
        pods = [pod for pod in (await kube.list(PODS))["items"] if pod["metadata"]["namespace"] != "default"]
        mine = [pod for pod in pods if any(pod["metadata"].get("labels", {}).items() >= labels.items() for labels in daemons)]
        images = {container["image"] for pod in mine for container in pod["spec"]["containers"]}
        ready = [c["status"] for pod in mine for c in pod["status"].get("conditions", ()) if c["type"] == "Ready"]
        return images == {f"pumice/pumice:{version}"} and ready == ["True"] * len(daemons)

    daemons = [obj["spec"]["selector"]["matchLabels"] for obj in objects if obj["kind"] in ("Deployment", "DaemonSet")]
    assert len(daemons) == 2
    cluster.ask(write)
    cluster.wait(rolled, 120)


def guest(cluster: LocalCluster, name: str, memory: int) -> Json:
    """A pod with a share, running."""

    async def runs(kube: KubeClient) -> Json | None:
        pod: Json = await kube.get(PODS, name, "default")
        return pod if pod["status"].get("phase") == "Running" else None

    cluster.ask(lambda kube: kube.create(PODS, vgpu_pod(name, memory)))
    pod: Json = cluster.wait(runs, 120)
    assert pod["metadata"]["annotations"]["volcano.sh/bind-phase"] == "success"
    return pod


def lives(cluster: LocalCluster) -> dict[str, tuple[str, str]]:
    """Of each running guest its uid and the moment at which its container started."""
    pods = cluster.ask(lambda kube: kube.list(PODS, "default"))["items"]
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    return {
        pod["metadata"]["name"]: (pod["metadata"]["uid"], one["state"]["running"]["startedAt"])
        for pod in running for one in pod["status"]["containerStatuses"] if one["restartCount"] == 0
    }  # fmt: skip


def test_pods_run_on_over_an_upgrade_half_by_half_and_over_the_way_back(before: Path, cluster: LocalCluster) -> None:
    for name in (SCHEDULER, PLUGIN):
        apply(cluster, of_before(before, name), LAST.version)
    guest(cluster, "of-the-last", 20000)
    ran = lives(cluster)
    for step, (objects, version) in enumerate((
        (manifest(SCHEDULER), __version__), (manifest(PLUGIN), __version__),
        (of_before(before, PLUGIN), LAST.version), (of_before(before, SCHEDULER), LAST.version),
    )):  # fmt: skip
        cluster.ask(lambda kube: kube.create(PODS, vgpu_pod("too-big", TOO_BIG)))
        apply(cluster, objects, version)
        assert "too-big" not in lives(cluster), "nobody gave away what another version had given"
        cluster.delete_pod("too-big")  # a job that is let in counts for its queue: 0.1.0 may let no other in beside it
        guest(cluster, f"guest-{step}", 2000)
        now = lives(cluster)
        assert {name: now.get(name) for name in ran} == ran, "who ran runs on"
        ran = now
    assert len(ran) == 5
    cluster.ask(lambda kube: kube.create(PODS, vgpu_pod("too-big", TOO_BIG)))
    cluster.delete_pod("of-the-last")

    async def has_come(kube: KubeClient) -> bool:
        return bool((await kube.get(PODS, "too-big", "default"))["status"].get("phase") == "Running")

    cluster.wait(has_come, 120)
