"""The driver of claims for NPUs on a node: slices made, given, made again and destroyed; chips in one world; kills."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.npu_nodes import Npus, U

from pumice.adapters.bookings import claims as book
from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.claim_driver import ClaimKey, PreparedDevice
from pumice.apps.node.card_watch import CardWatch
from pumice.devices.ascend_mindcluster.plugin.claim_daemon import NodeClaims, Settings
from pumice.metrics.claims import claim_uses
from pumice.metrics.monitor import PodUse, of_claim
from pumice.metrics.text import render
from pumice.ports.cards import CardFacts, CardReading
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Cluster
from pumice.ports.slices import Vnpu
from pumice.wire.kinds import PODS, RESOURCE_CLAIMS
from pumice.wire.our_devices import NPU_CLAIMS

MINDCLUSTER = {"huawei.com/npu-core": "0-vir02"}
HAMI = {"hami.io/vgpu-node": "n1", "hami.io/Ascend310P-devices-allocated": f"{U[0]},Ascend310P,3072,0:;"}


class Api:
    """What the driver asks of the API server: claims by their devices, and pods by their annotations."""

    def __init__(self, pods: dict[str, dict[str, str]] | None = None, **claims: str) -> None:
        self.claims: dict[str, Any] = dict(claims)
        self.pods = pods or {}
        self.limits: dict[str, str] = {}

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        assert resource == RESOURCE_CLAIMS
        results = [{"request": device.rpartition(":")[0] or f"r{at}", "driver": "npu.pumice.io", "pool": "n1",
                    "device": device.rpartition(":")[2]} for at, device in enumerate(self.claims[name].split())]  # fmt: skip
        return {"metadata": {"namespace": "default", "name": name, "uid": name}, "status": {
            "allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": "u", "name": "user"}]}}

    async def list(self, resource: Any, namespace: str = "", **selectors: str) -> Any:
        assert resource == PODS
        limits = {"resources": {"limits": self.limits, "claims": [{"name": "npu"}]}}
        user = {"metadata": {"namespace": "default", "name": "user", "uid": "u"},
                "spec": {"resourceClaims": [{"name": "npu", "resourceClaimName": "a"}], "containers": [{"name": "c", **limits}]}}
        return {"items": [user, *({"metadata": {"namespace": "default", "name": name, "uid": name, "annotations": notes},
                                   "spec": {"containers": [{"resources": {"limits": {"huawei.com/x": "1"} if notes else {}}}]}}
                                  for name, notes in self.pods.items())]}  # fmt: skip


class Here:
    def __init__(self, folder: Path, npus: Npus, api: Api) -> None:
        self.folder, self.npus, self.api = folder, npus, api

    def driver(self) -> NodeClaims:
        folder = self.folder
        settings = Settings("n1", kubelet_dir=folder / "kubelet", hook_path=folder / "vnpu", cdi_folder=folder / "cdi",
                            booking_dirs=(folder / "run",))  # fmt: skip
        watch = cast(CardWatch, SimpleNamespace(facts=self.npus.facts(), unhealthy=self.npus.ill))
        return NodeClaims(settings, cast(Cluster, self.api), SystemClock(), watch, self.npus, self.npus.readings)

    async def started(self) -> NodeClaims:
        found = self.driver()
        await found.resume()
        await found.reconcile()
        return found

    def env(self, claim: str) -> list[dict[str, str]]:
        content = json.loads((self.folder / "cdi" / f"pumice.io-npu-claim_{claim}.json").read_text())
        assert content["kind"] == "pumice.io/npu-claim"
        return [dict(word.partition("=")[::2] for word in one["containerEdits"]["env"]) for one in content["devices"]]

    def made(self, chip: int = 0) -> dict[int, str]:
        return {ident: one.template for ident, one in self.npus.made[U[chip]].items()}


def key(name: str) -> ClaimKey:
    return ClaimKey("default", name, name)


async def given(driver: NodeClaims, name: str) -> list[PreparedDevice]:
    found = await driver.prepare(key(name))
    assert not isinstance(found, str), found
    return list(found)


async def refused(driver: NodeClaims, name: str) -> str:
    found = await driver.prepare(key(name))
    assert isinstance(found, str)
    return found


class Large(Npus):
    """Chips that take sixteen slices."""

    def facts(self) -> tuple[CardFacts, ...]:
        return tuple(replace(card, name="910A") for card in super().facts())


def test_a_chip_that_takes_sixteen_slices_gives_more_than_eight_by_claim(tmp_path: Path) -> None:
    here = Here(tmp_path, Large(), Api(**{f"c{at}": f"npu-0-vir02-{at}" for at in range(9)}))

    async def play() -> None:
        driver = await here.started()
        for name in here.api.claims:
            await given(driver, name)
        assert here.made() == dict.fromkeys(range(100, 109), "vir02")

    asyncio.run(play())


def test_a_slice_is_made_for_a_claim_given_by_cdi_and_goes_with_it(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-1-vir02-1c-0", b="npu-0"))

    async def play() -> None:
        driver = await here.started()
        (one,) = await given(driver, "a")
        assert (one.request, one.device, one.cdi) == ("r0", "npu-1-vir02-1c-0", ("pumice.io/npu-claim=a-r0",))
        assert here.made(1) == {116: "vir02_1c"}
        (env,) = here.env("a")
        assert (env["ASCEND_VISIBLE_DEVICES"], env["ASCEND_RUNTIME_OPTIONS"], env["LOCAL_RANK"]) == ("116", "VIRTUAL", "0")
        assert await given(driver, "a") == [one]
        assert here.made(1) == {116: "vir02_1c"}
        await given(driver, "b")
        assert here.env("b")[0]["ASCEND_VISIBLE_DEVICES"] == "0"
        assert here.env("b")[0]["ASCEND_RUNTIME_OPTIONS"] == ""
        held = book.held_by_claims([tmp_path / "run"])
        assert held == {U[0]: "held by claims: default/b (all of it)", U[1]: "held by claims: default/a (slice vir02_1c@1)"}
        assert await driver.unprepare(key("a")) == ""
        assert here.made(1) == {}
        assert book.held_by_claims([tmp_path / "run"]).keys() == {U[0]}

    asyncio.run(play())


def test_a_driver_that_starts_again_keeps_what_it_gave_and_makes_again_what_a_reset_took(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-0-vir04-0", b="npu-0-vir02-0"))

    async def play() -> None:
        await given(await here.started(), "a")
        driver = await here.started()
        assert here.made() == {100: "vir04"}
        await given(driver, "b")
        here.npus.made[U[0]].clear()  # a reset
        await driver.reconcile()
        assert here.made() == {100: "vir04", 101: "vir02"}
        assert [one["ASCEND_VISIBLE_DEVICES"] for one in (*here.env("a"), *here.env("b"))] == ["100", "101"]
        assert await (await here.started()).unprepare(key("a")) == ""
        assert here.made() == {101: "vir02"}

    asyncio.run(play())


@pytest.mark.parametrize("at", range(1, 9))
def test_a_driver_that_is_killed_at_any_step_leaves_no_slice_without_a_claim(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-0-vir04-0"))

    class Killed(BaseException):
        pass

    async def play() -> None:
        left = [at]

        def mortal(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any) -> Any:
                left[0] -= 1
                if left[0] == 0:
                    raise Killed
                found = real(*args)
                left[0] -= 1
                if left[0] == 0:
                    raise Killed
                return found

            return call

        with monkeypatch.context() as patched:
            patched.setattr(book, "write", mortal(book.write))
            patched.setattr(here.npus, "make", mortal(here.npus.make))
            patched.setattr(FileJournal, "write", mortal(FileJournal.write))
            with pytest.raises(Killed):
                await (await here.started()).prepare(key("a"))
        driver = await here.started()
        told = {one.uid for one in book.prepared(tmp_path / "run", NPU_CLAIMS.book)}
        assert len(here.made()) == len(told)
        await given(driver, "a")
        assert here.made() == {int(here.env("a")[0]["ASCEND_VISIBLE_DEVICES"]): "vir04"}

    asyncio.run(play())


@pytest.mark.parametrize("notes", [MINDCLUSTER, HAMI])
def test_a_chip_with_annotated_pods_serves_no_claim_and_is_tainted(tmp_path: Path, notes: dict[str, str]) -> None:
    here = Here(tmp_path, Npus(), Api({"p": notes}, a="npu-0-vir02-0", b="npu-1"))

    async def play() -> None:
        driver = await here.started()
        why = await refused(driver, "a")
        assert f"chip {U[0]} is shared by annotated pods (default/p), and a chip serves claims or those" in why
        assert here.made() == {}
        await given(driver, "b")
        assert (await driver.annotated((await here.api.list(PODS))["items"])).keys() == {U[0]}
        here.api.pods = {}
        await given(driver, "a")

    asyncio.run(play())


def test_a_pod_that_has_npus_by_the_kubelets_record_and_no_annotation_closes_all(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(), Api({"p": {}}, a="npu-0"))
    entry = {"PodUID": "p", "ContainerName": "c", "ResourceName": "huawei.com/npu-core", "DeviceIDs": {"-1": ["npu-core-0"]}}
    folder = tmp_path / "kubelet" / "device-plugins"
    folder.mkdir(parents=True)
    (folder / "kubelet_internal_checkpoint").write_text(
        json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 0}))  # fmt: skip

    async def play() -> None:
        assert "pods default/p hold cards of this node that no annotation names" in await refused(await here.started(), "a")

    asyncio.run(play())


@pytest.mark.parametrize(("first", "second", "why"), [
    ("npu-0", "npu-0-vir01-0", "chip .* has memory 25769803776, and with what default/a holds it would be "),
    ("npu-0-vir04-0", "npu-0-vir04-3c-0", ""),
    ("npu-0-vir04-4c-dvpp-0", "npu-0-vir01-0", "chip .* has jpegd 16, and with what default/a holds it would be 18"),
    ("npu-0-vir02-1c-0", "npu-0-vir01-4", "beside what default/a holds of chip .* there is no vGroup for vir02-1c-0"),
    ("npu-0-vir01-3", "npu-0-vir01-4", ""),
    ("npu-0-vir02-0", "npu-0-vir02-0", "device npu-0-vir02-0 would be given twice; chip .* is held by default/a"),
    ("npu-0-vir02-0", "npu-7", "request r0: device npu-7 is not on this node"),
    ("npu-0-vir02-0", "r:npu-1-vir01-0 r:npu-1-vir01-1", "request r: a container takes one vNPU, and nothing beside it"),
    ("npu-0-vir02-0", "r:npu-1 r:npu-0-vir01-0", "request r: a container takes one vNPU, and nothing beside it"),
])  # fmt: skip
def test_what_exceeds_a_chip_is_refused_by_name_whatever_was_allocated(
    tmp_path: Path, first: str, second: str, why: str
) -> None:
    here = Here(tmp_path, Npus(), Api(a=first, b=second))

    async def play() -> None:
        driver = await here.started()
        await given(driver, "a")
        if why:
            assert re.search(why, await refused(driver, "b"))
            assert [one.uid for one in book.prepared(tmp_path / "run", NPU_CLAIMS.book)] == ["a"]
        else:
            await given(driver, "b")

    asyncio.run(play())


def test_a_container_that_asks_the_device_plugin_for_npus_too_is_refused(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-0"))
    here.api.limits = {"huawei.com/npu-core": "2"}

    async def play() -> None:
        driver = await here.started()
        assert "container c of pod user names requests a/r0 and asks for huawei.com/npu-core" in await refused(driver, "a")

    asyncio.run(play())


def test_what_the_driver_refuses_is_the_answer_and_leaves_nothing_behind(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(refused={"vir02"}), Api(a="npu-0-vir02-0"))

    async def play() -> None:
        driver = await here.started()
        assert "check aicore num failed" in await refused(driver, "a")
        assert book.prepared(tmp_path / "run", NPU_CLAIMS.book) == []
        here.npus.refused.clear()
        await driver.reconcile()
        await given(driver, "a")
        assert here.made() == {100: "vir02"}

    asyncio.run(play())


def test_somebody_elses_slice_keeps_the_whole_chip_from_a_claim(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-0"))
    here.npus.make(U[0], "vir01")

    async def play() -> None:
        assert "cut by somebody else (vNPU 100)" in await refused(await here.started(), "a")
        assert here.made() == {100: "vir01"}

    asyncio.run(play())


@pytest.mark.parametrize("text", ["", '{"version":1,"sl'])
def test_slices_of_claims_stay_theirs_where_their_journal_is_lost(tmp_path: Path, text: str) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-0-vir02-0", b="npu-0-vir01-0", c="npu-1"))
    journal = tmp_path / "vnpu" / "claims.json"

    def lose() -> None:
        journal.write_text(text) if text else journal.unlink()

    async def play() -> None:
        driver = await here.started()
        for name in "abc":
            await given(driver, name)
        lose()
        assert await driver.unprepare(key("a")) == ""
        assert here.made() == {101: "vir01"}
        lose()
        await given(driver, "b")
        assert here.made() == {101: "vir01"}
        lose()
        await driver.reconcile()
        assert (await given(driver, "b"))[0].device == "npu-0-vir01-0"
        assert here.made() == {101: "vir01"}
        lose()
        driver = await here.started()
        assert await driver.annotated([]) == {}
        for name in "bc":
            assert await driver.unprepare(key(name)) == ""
        assert (here.made(), here.made(1), json.loads(journal.read_text())["slices"]) == ({}, {}, [])

    asyncio.run(play())


def test_a_chip_that_somebody_else_has_cut_is_tainted_until_that_is_gone(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-0-vir02-0", b="npu-1-vir02-0"))
    here.npus.make(U[1], "vir01")

    async def play() -> None:
        driver = await here.started()
        await given(driver, "a")
        await driver.reconcile()
        assert await driver.annotated([]) == {U[1]: "cut by somebody else (vNPU 100)"}
        assert f"chip {U[1]} is cut by somebody else (vNPU 100), and a chip serves claims or those" in await refused(driver, "b")
        here.npus.made[U[1]].clear()
        await driver.reconcile()
        assert await driver.annotated([]) == {}
        await given(driver, "b")

    asyncio.run(play())


def test_the_page_tells_what_slices_and_chips_use_as_the_driver_says(tmp_path: Path) -> None:
    here = Here(tmp_path, Npus(), Api(a="npu-0-vir02-0", b="npu-1"))

    async def play() -> None:
        driver = await here.started()
        await given(driver, "a")
        await given(driver, "b")

        async def told() -> list[PodUse]:
            found = claim_uses(render(await driver.metrics()))
            return [found[of_claim("default", name)] for name in "ab"]

        assert await told() == [PodUse(0, 6 << 30, 0), PodUse(None, 24 << 30, None)]
        here.npus.made[U[0]][100] = Vnpu(100, "vir02", memory=6144, cores=2, used=1024, load=40)
        here.npus.measured = (CardReading(1, U[1], 3 << 30, 24 << 30, 70),)
        assert await told() == [PodUse(1 << 30, 6 << 30, 10), PodUse(3 << 30, 24 << 30, 70)]
        here.npus.mute.add(U[0])
        assert await told() == [PodUse(None, 6 << 30, None), PodUse(3 << 30, 24 << 30, 70)]

    asyncio.run(play())


@pytest.mark.parametrize("line", [
    'pumice_claim_share_memory_used_bytes{claim="a",namespace="default"} NaN', "pumice_claim_share_cores_used{} -1",
    'pumice_claim_share_cores_used{claim="a"} 1e99', "pumice_claim_share_cores_used{" + "x" * 9000 + "} 1", "\x00", "}{ 1",
])  # fmt: skip
def test_a_page_that_says_what_no_card_can_is_not_read(line: str) -> None:
    assert claim_uses(line) == {}
