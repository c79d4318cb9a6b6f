"""A pod whose share of a card is a claim, from the API server to its container: driver, kubelet and controllers together."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.real_node import Cluster as NodeCluster

from pumice.adapters.bookings import claims as book
from pumice.adapters.kube import KubeClient
from pumice.adapters.kube.config import Access
from pumice.devices.nvidia_vgpu.plugin import claim_daemon
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.ports.cards import CardEvent, CardFacts, CardReading
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice.wire import limits_page
from pumice.wire.kinds import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_SLICES
from pumice.wire.kubernetes import CLAIM_PROTECTION
from pumice_lab.apiserver import ApiServer, User, open_storage, serve
from pumice_lab.controllers import manager
from pumice_lab.kubelet.run import run as run_kubelet
from pumice_lab.kubelet.settings import KubeletSettings

GIB = 1 << 30
CARD = CardFacts(0, "GPU-0", "NVIDIA A100", 80 * GIB, minor=0)
SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {
    "deviceClassName": "gpu.pumice.io", "capacity": {"requests": {"memory": "3000Mi", "cores": "50"}}}}]}}  # fmt: skip


class OneCard:
    def facts(self) -> tuple[CardFacts, ...]:
        return (CARD,)

    def readings(self) -> tuple[CardReading, ...]:
        return ()

    def subscribe(self, uuids: Sequence[str]) -> dict[str, str]:
        return {}

    def events(self) -> tuple[CardEvent, ...]:
        return ()

    def answers(self, uuid: str) -> bool:
        return True

    def close(self) -> None: ...


class World:
    def __init__(self, kube: KubeClient, url: str, folder: Path) -> None:
        self.kube, self.folder, self.node = kube, folder, NodeCluster(kube, url)
        library = folder / "lib.so"
        library.write_bytes(b"")
        self.settings = claim_daemon.Settings(
            "n1", kubelet_dir=folder / "n1" / "kubelet", hook_path=folder / "vgpu", lock_dir=folder / "lock", library=library,
            cdi_folder=folder / "n1" / "cdi", booking_dirs=(folder / "run",))  # fmt: skip

    @contextlib.asynccontextmanager
    async def driver(self) -> AsyncIterator[None]:
        stop, ready = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(claim_daemon.run(self.settings, cluster=self.kube, clock=SystemClock(), rng=random.Random(0),
                                                    stop=stop, ready=ready, cards=OneCard()))  # fmt: skip
        reported = asyncio.create_task(ready.wait())
        async with asyncio.timeout(60):
            await asyncio.wait({task, reported}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        try:
            yield
        finally:
            stop.set()
            await task

    async def claim(self, name: str, memory: str = "3000Mi", cores: str = "50") -> Json:
        made = await self.kube.create(RESOURCE_CLAIMS, {
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"},
            "spec": SPEC})  # fmt: skip
        return await self.allocate(made, memory, cores)

    async def allocate(self, claim: Json, memory: str = "3000Mi", cores: str = "50") -> Json:
        """As a scheduler does, but for the reservation: the controller makes that for a pod that is bound by hand."""
        claim["metadata"]["finalizers"] = [CLAIM_PROTECTION]
        claim = await self.kube.update(RESOURCE_CLAIMS, claim)
        result = {"request": "gpu", "driver": "gpu.pumice.io", "pool": "n1", "device": "gpu-0-shared",
                  "shareID": claim["metadata"]["uid"], "consumedCapacity": {"memory": memory, "cores": cores}}  # fmt: skip
        claim["status"] = {"allocation": {"devices": {"results": [result]}}}
        return await self.kube.update(RESOURCE_CLAIMS, claim, subresource="status")

    async def pod(self, name: str, script: str, **claim: str) -> Json:
        container = {"name": "c", "image": "i", "command": ["sh", "-c", script], "resources": {"claims": [{"name": "gpu"}]}}
        spec = {"nodeName": "n1", "containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "resourceClaims": [{"name": "gpu", **claim}]}  # fmt: skip
        return await self.kube.create(PODS, {"apiVersion": "v1", "kind": "Pod",
                                             "metadata": {"name": name, "namespace": "default"}, "spec": spec})  # fmt: skip

    async def until(self, true: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        async with asyncio.timeout(60):
            while not (found := await true()):
                await asyncio.sleep(0.1)
        return found

    async def reported(self, pod: str) -> list[str]:
        events = (await self.kube.list(EVENTS, "default"))["items"]
        return [one["message"] for one in events if one["involvedObject"]["name"] == pod]


With = Callable[[Callable[[World], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def with_a_node() -> Iterator[With]:
    with tempfile.TemporaryDirectory(prefix="c-") as short:  # a socket's path has 107 bytes

        def run(work: Callable[[World], Coroutine[Any, Any, None]]) -> None:
            async def main() -> None:
                folder = Path(short)
                served = await serve(ApiServer(open_storage(":memory:")), "127.0.0.1", 0, None,
                                     {"t": User("admin", groups=("system:masters",))})  # fmt: skip
                stop, ready = asyncio.Event(), asyncio.Event()
                settings = KubeletSettings("n1", folder / "n1", folder, address="127.0.0.1", device_files=False)
                async with KubeClient(Access(served.url, None, lambda: "t")) as kube:
                    tasks = [
                        asyncio.create_task(run_kubelet(settings, cluster=kube, clock=SystemClock(), rng=random.Random(0),
                                                        stop=stop, ready=ready)),
                        asyncio.create_task(manager.run(manager.ControllersSettings(), cluster=kube, clock=SystemClock(),
                                                      rng=random.Random(0), stop=stop)),
                    ]  # fmt: skip
                    try:
                        async with asyncio.timeout(120):
                            await ready.wait()
                            await work(World(kube, served.url, folder))
                    finally:
                        stop.set()
                        await asyncio.gather(*tasks)
                await served.close()

            asyncio.run(main())

        yield run


def test_a_pods_claim_is_its_share_and_goes_with_the_pod(with_a_node: With) -> None:
    async def work(here: World) -> None:
        async with here.driver():
            await here.kube.create(RESOURCE_CLAIM_TEMPLATES, {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": "share", "namespace": "default"}, "spec": {"spec": SPEC}})  # fmt: skip
            await here.pod("p", "env; sleep 100", resourceClaimTemplateName="share")

            async def made() -> list[Json]:
                return list((await here.kube.list(RESOURCE_CLAIMS, "default"))["items"])

            [claim] = await here.until(made)
            await here.allocate(claim)
            await here.node.until("p", "Running")
            uid = claim["metadata"]["uid"]
            page = limits_page.parse((here.folder / "vgpu/vgpu/claim-limits" / uid / "gpu" / "limits").read_bytes())
            assert page is not None
            assert [(card.uuid, card.memory >> 20, card.cores) for card in page.cards] == [("GPU-0", 3000, 50)]
            spec = json.loads((here.folder / f"n1/cdi/pumice.io-claim_{uid}.json").read_bytes())
            assert "CUDA_DEVICE_MEMORY_LIMIT_0=3000m" in spec["devices"][0]["containerEdits"]["env"]

            async def said() -> bool:
                return "CUDA_DEVICE_MEMORY_LIMIT_0=3000m" in await here.node.log("p")

            await here.until(said)
            assert [one.uid for one in book.prepared(here.folder / "run")] == [uid]
            await here.kube.delete(PODS, "p", "default")

            async def gone() -> bool:
                return not await made() and not book.prepared(here.folder / "run")

            await here.until(gone)
            assert not list((here.folder / "n1/cdi").glob("*claim*"))

    with_a_node(work)


def test_a_claim_beyond_the_cards_memory_is_refused_by_name_whatever_was_allocated(with_a_node: With) -> None:
    async def work(here: World) -> None:
        share = ClaimShare("gpu", "gpu-0-shared", "GPU-0", 79 * GIB, 10)
        other = PreparedClaim("other", "default", "first", (share,), checked=True)
        book.write(here.folder / "run", [other])
        async with here.driver():
            await here.claim("second")
            await here.pod("p", "true", resourceClaimName="second")

            async def reported() -> bool:
                return any("default/first" in text for text in await here.reported("p"))

            await here.until(reported)
            assert [one.name for one in book.prepared(here.folder / "run")] == ["first"]

    with_a_node(work)


def test_a_driver_that_restarts_goes_on_and_one_with_half_a_book_asks_the_api_server(with_a_node: With) -> None:
    async def work(here: World) -> None:
        async with here.driver():
            await here.claim("mine")
            await here.pod("p", "sleep 100", resourceClaimName="mine")
            await here.node.until("p", "Running")
        path = here.folder / "run" / book.BOOK
        before = book.prepared(path.parent)
        assert [one.name for one in before] == ["mine"]
        path.write_bytes(path.read_bytes()[:40])
        async with here.driver():
            assert book.prepared(path.parent) == before
            slices = (await here.kube.list(RESOURCE_SLICES))["items"]
            assert [one["spec"]["devices"][0]["name"] for one in slices] == ["gpu-0-shared"]
            await here.kube.delete(RESOURCE_SLICES, slices[0]["metadata"]["name"])

            async def back() -> bool:
                return bool((await here.kube.list(RESOURCE_SLICES))["items"])

            await here.until(back)

    with_a_node(work)


def test_two_containers_of_two_requests_on_one_card_are_each_held_to_their_own(with_a_node: With) -> None:
    """Acceptance case 24: another driver keeps limits by device, and the second request overwrites the first."""

    async def work(here: World) -> None:
        async with here.driver():
            sizes = {"small": "4Gi", "large": "8Gi"}
            requests = [{"name": name, "exactly": {"deviceClassName": "gpu.pumice.io", "capacity": {"requests": {
                "memory": size, "cores": "10"}}}} for name, size in sizes.items()]  # fmt: skip
            claim = await here.kube.create(RESOURCE_CLAIMS, {
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "two", "namespace": "default"},
                "spec": {"devices": {"requests": requests}}})  # fmt: skip
            claim["metadata"]["finalizers"] = [CLAIM_PROTECTION]
            claim = await here.kube.update(RESOURCE_CLAIMS, claim)
            results = [{"request": name, "driver": "gpu.pumice.io", "pool": "n1", "device": "gpu-0-shared",
                        "shareID": f"11111111-2222-4333-8444-00000000000{at}",
                        "consumedCapacity": {"memory": size, "cores": "10"}}
                       for at, (name, size) in enumerate(sizes.items())]  # fmt: skip
            claim["status"] = {"allocation": {"devices": {"results": results}}}
            claim = await here.kube.update(RESOURCE_CLAIMS, claim, subresource="status")
            containers = [{"name": name, "image": "i", "command": ["sh", "-c", "env; sleep 100"],
                           "resources": {"claims": [{"name": "gpu", "request": name}]}} for name in sizes]  # fmt: skip
            spec = {"nodeName": "n1", "containers": containers, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": "two"}]}  # fmt: skip
            await here.kube.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},
                                          "spec": spec})  # fmt: skip
            await here.node.until("p", "Running")
            uid = claim["metadata"]["uid"]
            for name, mib in (("small", 4096), ("large", 8192)):
                page = limits_page.parse((here.folder / "vgpu/vgpu/claim-limits" / uid / name / "limits").read_bytes())
                assert page is not None
                assert [(card.uuid, card.memory >> 20, card.cores) for card in page.cards] == [("GPU-0", mib, 10)]

                async def said(name: str = name, mib: int = mib) -> bool:
                    return f"CUDA_DEVICE_MEMORY_LIMIT_0={mib}m" in await here.node.log("p", container=name)

                await here.until(said)

    with_a_node(work)
