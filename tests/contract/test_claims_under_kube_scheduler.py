"""Kubernetes' own scheduler allocates what our driver publishes, and the driver serves that, or refuses it by name."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from kit.mig_rules import RuledSlices

from pumice.adapters.journal import FileJournal
from pumice.adapters.kube import KubeClient
from pumice.adapters.kubelet.claim_driver import ClaimKey
from pumice.apps.node.card_watch import CardWatch
from pumice.devices.nvidia_vgpu.node.claims import HAMI, SHARED
from pumice.devices.nvidia_vgpu.plugin.claim_daemon import ClaimSlices, NodeClaims, Settings
from pumice.model.errors import BadInput
from pumice.ports.cards import CardFacts
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice.wire import kinds, names
from pumice.wire.kinds import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from pumice_lab import kube_control_plane, pki

pytestmark = pytest.mark.kube
EXAMPLES = Path(__file__).parents[2] / "examples/claims"
CLASSES = {SHARED: ("classes.yaml", "gpu.pumice.io"), HAMI: ("hami.yaml", "hami-core-gpu.project-hami.io")}
CARD = CardFacts(0, "GPU-0", "NVIDIA A100", 80 << 30, minor=0, bus_id="00000000:0A:00.0", capability=(8, 0))
CONTAINER: Json = {"name": "c", "image": "i"}


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[KubeClient]:
    """etcd, kube-apiserver and kube-scheduler."""
    keys = pki.ensure_pki(folder / "pki", ["127.0.0.1", "localhost"], datetime.datetime.now(datetime.UTC))
    try:
        assets = kube_control_plane.find_assets()
    except BadInput as reason:
        pytest.skip(str(reason))
    plane = await kube_control_plane.start(assets, folder, folder, keys, clock=SystemClock(), controller_manager=False)
    try:
        kubeconfig = kube_control_plane.kubeconfig(keys, plane.server, folder / "kubeconfig")
        config = folder / "scheduler.yaml"
        config.write_text(yaml.safe_dump({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig)}, "leaderElection": {"leaderElect": False}}))  # fmt: skip
        with (folder / "scheduler.log").open("wb") as log:
            plane.processes["kube-scheduler"] = await asyncio.create_subprocess_exec(
                assets / "kube-scheduler", f"--config={config}", "--secure-port=0", stdout=log, stderr=log)
        async with KubeClient.from_kubeconfig(kubeconfig) as kube:
            yield kube
    finally:
        await plane.stop()


class World:
    """One node with one card, whose driver publishes it."""

    def __init__(self, kube: KubeClient, folder: Path, worlds: str) -> None:
        settings = Settings("n1", kubelet_dir=folder / "kubelet", hook_path=folder / "vgpu", lock_dir=folder / "lock",
                            cdi_folder=folder / "cdi", booking_dirs=(folder / "run",), worlds=worlds)  # fmt: skip
        watch = cast(CardWatch, SimpleNamespace(facts=(CARD,), unhealthy={}, changed=asyncio.Event()))
        self.kube, self.class_ = kube, CLASSES[worlds][1]
        mig = ClaimSlices(RuledSlices({}), FileJournal(folder / "mig.json"))
        self.node = NodeClaims(settings, kube, SystemClock(), watch, mig)

    async def begin(self, classes: str) -> asyncio.Task[None]:
        await until(lambda: served(self.kube.get(kinds.NAMESPACES, "default")))
        await self.kube.create(kinds.SERVICE_ACCOUNTS, {"metadata": {"name": "default"}}, "default")
        for obj in yaml.safe_load_all((EXAMPLES / classes).read_text()):
            if obj["kind"] == "DeviceClass":
                await self.kube.create(DEVICE_CLASSES, obj)
        await self.kube.create(NODES, {"metadata": {"name": "n1"}})
        size = {"cpu": "8", "memory": "16Gi", "pods": "20"}
        status = {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]}
        await self.kube.patch(NODES, "n1", {"status": status}, subresource="status")
        await self.node.resume()
        registered, ready = asyncio.Event(), asyncio.Event()
        registered.set()
        task = asyncio.create_task(self.node.keep_published(registered, ready))
        await asyncio.wait_for(ready.wait(), 60)
        return task

    async def ask(self, name: str, memory: str, cores: str = "10") -> ClaimKey:
        """A pod with a claim, and the claim as the kubelet would ask for it."""
        amounts = {"memory": memory, "cores": cores}
        request = {"name": "gpu", "exactly": {"deviceClassName": self.class_, "capacity": {"requests": amounts}}}
        made = await self.kube.create(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}},
                                      "default")  # fmt: skip
        spec = {"containers": [CONTAINER | {"resources": {"claims": [{"name": "gpu"}]}}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}  # fmt: skip
        await self.kube.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")
        return ClaimKey("default", made["metadata"]["uid"], name)

    async def bound(self, name: str) -> bool:
        return bool((await self.kube.get(PODS, name, "default"))["spec"].get("nodeName"))

    async def told(self, name: str) -> str:
        """Why the scheduler does not place a pod; empty while it has not said."""
        pod = await self.kube.get(PODS, name, "default")
        return next((one.get("message", "") for one in pod["status"].get("conditions", ()) if one["status"] == "False"), "")

    async def taints(self) -> list[str]:
        found = (await self.kube.list(RESOURCE_SLICES))["items"]
        return [taint["key"] for one in found for device in one["spec"]["devices"] for taint in device.get("taints") or ()]


async def until(true: Callable[[], Awaitable[Any]]) -> Any:
    async with asyncio.timeout(60):
        while not (found := await true()):
            await asyncio.sleep(0.1)
    return found


async def served(answer: Awaitable[Any]) -> bool:
    with contextlib.suppress(Exception):
        return bool(await answer)
    return False


@pytest.mark.parametrize("worlds", [SHARED, HAMI])
def test_what_kube_scheduler_allocates_is_served_and_a_card_with_annotated_shares_is_refused_naming_both(
    worlds: str, tmp_path: Path
) -> None:
    async def story(kube: KubeClient) -> None:
        world = World(kube, tmp_path, worlds)
        published = await world.begin(CLASSES[worlds][0])
        try:
            first, second = await world.ask("first", "40000Mi"), await world.ask("second", "40000Mi", "60")
            for name, key in (("first", first), ("second", second)):
                await until(lambda name=name: world.bound(name))
                answer = await world.node.prepare(key)
                assert not isinstance(answer, str), answer
                assert len(answer[0].cdi) == 1
            held = {claim.name: [(share.card, share.memory >> 20, share.cores) for share in claim.shares]
                    for claim in world.node._claims.values()}  # fmt: skip
            assert held == {"first": [("GPU-0", 40000, 10)], "second": [("GPU-0", 40000, 60)]}
            await world.ask("third", "40000Mi")  # the card has 81920
            assert "cannot allocate all claims" in await until(lambda: world.told("third"))

            small = await world.ask("small", "1000Mi")
            await until(lambda: world.bound("small"))
            notes = {names.VGPU_IDS: "GPU-0,NVIDIA,1000,10:", names.VGPU_NODE: "n1"}
            limits = {"resources": {"limits": {names.VGPU_NUMBER: "1"}}}
            spec = {"nodeName": "n1", "containers": [CONTAINER | limits]}
            await kube.create(PODS, {"metadata": {"name": "sharing", "annotations": notes}, "spec": spec}, "default")
            refused = await world.node.prepare(small)
            assert "claim default/small: card GPU-0 is shared by annotated pods (default/sharing)" in str(refused)
            world.node.watch.changed.set()
            await until(world.taints)
            assert set(await world.taints()) == {"gpu.pumice.io/device-plugin"}
        finally:
            published.cancel()
            await asyncio.gather(published, return_exceptions=True)

    async def run() -> None:
        async with asyncio.timeout(150), cluster(tmp_path) as kube:
            await story(kube)

    asyncio.run(run())
