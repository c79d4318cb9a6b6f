"""A driver of claims that is killed at any step: the next one gives the same share, or none, and never too much."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.mig_rules import RuledSlices

from pumice.adapters.bookings import claims as book
from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.claim_driver import ClaimKey
from pumice.apps.node import claim_files
from pumice.apps.node.card_watch import CardWatch
from pumice.devices.nvidia_vgpu.plugin import claim_daemon as share_files
from pumice.devices.nvidia_vgpu.plugin.claim_daemon import ClaimSlices, NodeClaims, Settings
from pumice.ports.cards import CardFacts
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Cluster
from pumice.wire.kinds import NODES, PODS, RESOURCE_CLAIMS

GIB = 1 << 30
CARD = CardFacts(0, "GPU-0", "NVIDIA A100", 80 * GIB, minor=0)


class Killed(BaseException):
    pass


class Api:
    """What the driver asks of the API server. ``annotated``: a pod with an annotated share is on the card."""

    def __init__(self, *claims: tuple[str, str], annotated: bool = False) -> None:
        self.claims, self.annotated = dict(claims), annotated

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        return {"metadata": {"name": name}} if resource == NODES else self._claim(name)

    async def list(self, resource: Any, namespace: str = "", **selectors: str) -> Any:
        if resource == RESOURCE_CLAIMS:
            return {"items": [self._claim(name) for name in self.claims]}
        assert resource == PODS
        notes = {"volcano.sh/vgpu-node": "n1", "volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,1000,10:;"}
        limits = {"containers": [{"resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}]}
        pod = {"metadata": {"namespace": "default", "name": "p", "uid": "p", "annotations": notes}, "spec": limits}
        return {"items": [pod] if self.annotated else []}

    def _claim(self, name: str) -> Any:
        result = {"request": "gpu", "driver": "gpu.pumice.io", "pool": "n1", "device": "gpu-0-shared", "shareID": name,
                  "consumedCapacity": {"memory": self.claims[name], "cores": "10"}}  # fmt: skip
        return {"metadata": {"namespace": "default", "name": name, "uid": name}, "status": {
            "allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "uid": "q", "name": "q"}]}}


def driver(folder: Path, api: Api) -> NodeClaims:
    settings = Settings("n1", kubelet_dir=folder / "kubelet", hook_path=folder / "vgpu", lock_dir=folder / "lock",
                        cdi_folder=folder / "cdi", booking_dirs=(folder / "run",))  # fmt: skip
    watch = cast(CardWatch, SimpleNamespace(facts=(CARD,), unhealthy={}))
    mig = ClaimSlices(RuledSlices({}), FileJournal(folder / "mig.json"))
    return NodeClaims(settings, cast(Cluster, api), SystemClock(), watch, mig)


def dying(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Kill the driver before its ``at``-th write, or right behind it."""
    left = [at]

    def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            real(*args)
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        return call

    monkeypatch.setattr(book, "write", mortal(book.write))
    for module in (claim_files, share_files):
        monkeypatch.setattr(module, "install_files", mortal(claim_files.install_files))


async def started(folder: Path, api: Api) -> NodeClaims:
    found = driver(folder, api)
    await found.resume()
    return found


def key(name: str) -> ClaimKey:
    return ClaimKey("default", name, name)


@pytest.mark.parametrize("at", range(1, 14))
def test_a_kill_at_any_write_of_prepare_costs_no_share_and_gives_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:  # fmt: skip
    api = Api(("a", "50Gi"), ("b", "50Gi"))

    async def work() -> None:
        with monkeypatch.context() as patched:
            dying(patched, at)
            with contextlib.suppress(Killed):
                await (await started(tmp_path, api)).prepare(key("a"))
        again = await started(tmp_path, api)
        answer = await again.prepare(key("a"))
        assert not isinstance(answer, str)
        assert [one.cdi for one in answer] == [("pumice.io/claim=a-gpu",)]
        assert (tmp_path / "cdi/pumice.io-claim_a.json").exists()
        assert "default/a" in str(await again.prepare(key("b")))
        assert await again.prepare(key("a")) == answer

    asyncio.run(work())


@pytest.mark.parametrize("at", range(1, 4))
def test_a_kill_while_a_refused_claim_stands_in_the_book_leaves_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:  # fmt: skip
    api = Api(("a", "50Gi"), annotated=True)

    async def work() -> None:
        with monkeypatch.context() as patched:
            dying(patched, at)
            with contextlib.suppress(Killed):
                await (await started(tmp_path, api)).prepare(key("a"))
        again = await started(tmp_path, api)
        assert book.prepared(tmp_path / "run") == []
        assert "shared by annotated pods (default/p)" in str(await again.prepare(key("a")))

    asyncio.run(work())


def test_unprepare_of_a_claim_that_nobody_knows_succeeds_and_a_path_is_no_uid(tmp_path: Path) -> None:
    async def work() -> None:
        here = await started(tmp_path, Api(("a", "1Gi")))
        assert await here.unprepare(key("never")) == ""
        assert "is no claim's uid" in await here.unprepare(ClaimKey("default", "../x", "x"))
        await here.prepare(key("a"))
        assert await here.unprepare(key("a")) == ""
        assert await here.unprepare(key("a")) == ""
        assert book.prepared(tmp_path / "run") == []
        assert not list((tmp_path / "cdi").iterdir())

    asyncio.run(work())


def test_a_vgpu_pod_is_told_which_claim_holds_the_card(tmp_path: Path) -> None:
    async def work() -> None:
        here = await started(tmp_path, Api(("a", "3000Mi")))
        await here.prepare(key("a"))

    asyncio.run(work())
    assert book.held_by_claims([tmp_path / "run"]) == {"GPU-0": "held by claims: default/a (3000 MiB, 10 % of the cores)"}
