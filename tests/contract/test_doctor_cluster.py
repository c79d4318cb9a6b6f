"""``pumice doctor cluster`` says the same on the embedded API server and on the real one."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.control_plane import KINDS, control_plane, write_kubeconfig
from kit.installing import create, install, pod_of

from pumice.adapters.kube import KubeClient
from pumice.ports.cluster import Json, Resource
from pumice.wire import names
from pumice.wire.kinds import CONFIGMAPS, CRDS, SERVICES

BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)


@pytest.fixture(scope="module", params=KINDS)
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of an API server on which all of ours is installed."""
    with control_plane(request.param, tmp_path_factory.mktemp(request.param)) as api:
        path = write_kubeconfig(tmp_path_factory.mktemp("config") / "config", api)
        on(path, lambda kube: install(kube, base64.b64encode(api.ca.read_bytes()).decode()))
        yield path


def on(path: Path, do: Callable[[KubeClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with KubeClient.from_kubeconfig(path) as kube:
            return await do(kube)

    return asyncio.run(run())


def doctor(path: Path) -> tuple[int, dict[str, list[str]]]:
    """Exit code, and by check what is not well."""
    done = subprocess.run([sys.executable, "-m", "pumice", "doctor", "cluster", "--kubeconfig", str(path), "-o", "json"],
                          capture_output=True, text=True, timeout=100)  # fmt: skip
    assert done.stderr == ""
    found: dict[str, list[str]] = {}
    for finding in json.loads(done.stdout)["findings"]:
        if finding["state"] != "ok":
            assert finding["repair"], finding
            found.setdefault(finding["check"], []).append(finding["text"])
    return done.returncode, found


def other(name: str, image: str, kind: str = "Deployment") -> Json:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": names.SYSTEM_NAMESPACE},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}}  # fmt: skip


def test_all_is_well_where_all_is_installed_and_each_fault_is_named_where_it_is_made(config: Path) -> None:
    assert doctor(config) == (0, {})

    async def harm(kube: KubeClient) -> None:
        await create(kube, other("upstream", "docker.io/volcanosh/vc-scheduler:v1.12.0"))
        await kube.delete(BINDINGS, "volcano-vgpu-monitor")
        await kube.delete(SERVICES, "volcano-admission-service", names.SYSTEM_NAMESPACE)
        queues = await kube.get(CRDS, "queues.scheduling.volcano.sh")
        queues["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("dequeueStrategy")
        await kube.update(CRDS, queues)
        await kube.delete(CRDS, "jobflows.flow.volcano.sh")
        conf = {"data": {names.SCHEDULER_CONF_KEY: "actions: fill\n"}}
        await kube.patch(CONFIGMAPS, names.SCHEDULER_CONFIGMAP, conf, names.SYSTEM_NAMESPACE)
        await pod_of(kube, other("nvidia", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0", "DaemonSet"))

    on(config, harm)
    code, found = doctor(config)
    assert code == 1
    for check, words in {
        "schedulers": "2 schedulers take the pods of schedulerName volcano",
        "rights": "volcano-vgpu-monitor in kube-system may not",
        "webhooks": "there is no Service volcano-system/volcano-admission-service", "kinds": "drops spec.dequeueStrategy",
        "scheduler-config": "unknown action", "plugins": "nvidia.com/gpu and volcano.sh/vgpu-number",
    }.items():  # fmt: skip
        assert any(words in text for text in found.pop(check)), (check, words)
    assert found == {}
