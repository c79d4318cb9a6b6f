"""What befalls a driver of claims: half books, kubelets that ask twice and in any order, reboots, and claims that vanish."""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
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
from pumice.apps.node.node_claims import publish, taints_of
from pumice.devices.nvidia_vgpu.plugin.claim_daemon import ClaimSlices, NodeClaims, Settings
from pumice.local.plugin import handed_out
from pumice.ports.cards import CardFacts
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire import limits_page
from pumice.wire.kinds import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES

GIB = 1 << 30
CARDS = tuple(CardFacts(at, f"GPU-{at}", "NVIDIA A100", 80 * GIB, minor=at) for at in range(2))


class Api:
    """An API server with claims of so much memory of a card, and with the slices that it was given."""

    def __init__(self, **claims: str) -> None:
        self.claims = {name: (memory, "gpu-0-shared") for name, memory in claims.items()}
        self.pods: list[Any] = []
        self.slices: dict[str, Any] = {}
        self.fails_after, self.held_up = 99, asyncio.Event()
        self.held_up.set()

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        if resource == NODES:
            return {"metadata": {"name": name, "uid": "n"}}
        if name not in self.claims:
            raise ApiError(404, "NotFound", "gone")
        return self._claim(name)

    async def list(self, resource: Any, namespace: str = "", **selectors: str) -> Any:
        await self.held_up.wait()
        found = {RESOURCE_CLAIMS: [self._claim(name) for name in self.claims], PODS: self.pods,
                 RESOURCE_SLICES: list(self.slices.values())}  # fmt: skip
        return {"items": found[resource]}

    async def create(self, resource: Any, obj: Any, namespace: str = "") -> Any:
        if len(self.slices) >= self.fails_after:
            raise ApiError(500, "InternalError", "no more")
        if obj["spec"]["pool"]["generation"] > 2**63 - 1:
            raise ApiError(400, "BadRequest", "cannot unmarshal number into Go struct field of type int64")
        return self.slices.setdefault(obj["metadata"]["name"], {**obj, "metadata": {**obj["metadata"], "uid": "u"}})

    async def delete(self, resource: Any, name: str, namespace: str = "", *, uid: str = "") -> None:
        del self.slices[name]

    def _claim(self, name: str) -> Any:
        memory, device = self.claims[name]
        result = {"request": "gpu", "driver": "gpu.pumice.io", "pool": "n1", "device": device, "shareID": f"{name}-{device}",
                  "consumedCapacity": {"memory": memory, "cores": "10"}}  # fmt: skip
        return {"metadata": {"namespace": "default", "name": name, "uid": name}, "status": {
            "allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": "pods", "uid": "q", "name": "q"}]}}


def driver(folder: Path, api: Api) -> NodeClaims:
    settings = Settings("n1", kubelet_dir=folder / "kubelet", hook_path=folder / "vgpu", lock_dir=folder / "lock",
                        cdi_folder=folder / "cdi", booking_dirs=(folder / "run",))  # fmt: skip
    watch = cast(CardWatch, SimpleNamespace(facts=CARDS, unhealthy={}))
    mig = ClaimSlices(RuledSlices({}), FileJournal(folder / "mig.json"))
    return NodeClaims(settings, cast(Cluster, api), SystemClock(), watch, mig)


async def started(folder: Path, api: Api) -> NodeClaims:
    found = driver(folder, api)
    await found.resume()
    return found


def key(name: str) -> ClaimKey:
    return ClaimKey("default", name, name)


def booked(folder: Path) -> list[str]:
    return [one.name for one in book.prepared(folder / "run")]


def kubelet_knows(folder: Path, *uids: str) -> None:
    infos = [{"ClaimUID": uid, "ClaimName": uid, "Namespace": "default"} for uid in uids]
    data = json.dumps({"kind": "DRACheckpoint", "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1", "ClaimInfoStateList": infos})
    (folder / "kubelet").mkdir(exist_ok=True)
    (folder / "kubelet/dra_manager_state").write_text(json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}))


@pytest.mark.parametrize("damage", ["cut", "lost", "garbage"])
def test_a_book_that_is_cut_in_half_or_lost_is_made_anew_also_of_claims_that_the_api_server_has_no_more(
    tmp_path: Path, damage: str
) -> None:
    async def work() -> None:
        api = Api(a="50Gi", b="50Gi", never="1Gi")
        await (await started(tmp_path, api)).prepare(key("a"))
        path = tmp_path / "run/claims.json"
        before = book.prepared(path.parent)
        if damage == "lost":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:40] if damage == "cut" else b"\0" * 4096)
        del api.claims["a"]  # its pod still runs
        again = await started(tmp_path, api)
        assert book.prepared(path.parent) == before  # and nothing of the claim that was never answered
        assert "default/a" in str(await again.prepare(key("b")))

    asyncio.run(work())


def test_of_a_claim_without_a_record_the_api_server_is_asked(tmp_path: Path) -> None:
    async def work() -> None:
        api = Api(a="50Gi")
        await (await started(tmp_path, api)).prepare(key("a"))
        before = book.prepared(tmp_path / "run")
        (tmp_path / "vgpu/vgpu/claim-limits/a/claim.json").write_bytes(b"{")
        (tmp_path / "run/claims.json").write_bytes(b"{")
        await started(tmp_path, api)
        assert book.prepared(tmp_path / "run") == before

    asyncio.run(work())


def test_a_damaged_book_closes_every_card_to_annotated_pods_and_to_pumice_run(tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    (machine / "run").mkdir(parents=True)
    (machine / "run/claims.json").write_bytes(b'{"boot": "')
    [(card, why)] = book.held_by_claims([machine / "run"]).items()
    assert card == book.ANY
    assert "not known to be free of claims" in why
    assert "remove the file" in why
    assert "not known to be free of claims" in handed_out(machine)


def test_a_book_that_somebody_damages_or_removes_is_written_again_by_the_driver_that_runs(tmp_path: Path) -> None:
    async def work() -> None:
        here = await started(tmp_path, Api(a="1Gi"))
        await here.prepare(key("a"))
        (tmp_path / "run/claims.json").write_bytes(b"{")
        await here.put_right()
        assert booked(tmp_path) == ["a"]
        (tmp_path / "run/claims.json").unlink()
        await here.put_right()
        assert booked(tmp_path) == ["a"]

    asyncio.run(work())


def test_after_a_reboot_nothing_is_held_and_a_pod_that_comes_back_begins_with_new_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        api = Api(a="50Gi", b="50Gi")
        await (await started(tmp_path, api)).prepare(key("a"))
        region = tmp_path / "vgpu/vgpu/claims/a/gpu/a.cache"
        region.write_bytes(b"of processes that are no more")
        (tmp_path / "vgpu/vgpu/claim-limits/a/gpu/limits").write_bytes(b"")  # the disk had not got it yet
        monkeypatch.setattr(book, "boot", lambda: "another")
        again = await started(tmp_path, api)
        assert booked(tmp_path) == []
        assert not region.parent.parent.exists()
        assert not isinstance(await again.prepare(key("b")), str)
        assert "default/b" in str(await again.prepare(key("a")))
        await again.unprepare(key("b"))
        assert not isinstance(await again.prepare(key("a")), str)
        assert region.read_bytes() == b""

    asyncio.run(work())


def test_half_a_limits_page_is_replaced_and_a_whole_one_stays_as_it_is(tmp_path: Path) -> None:
    async def work() -> None:
        here = await started(tmp_path, Api(a="3000Mi"))
        await here.prepare(key("a"))
        page = tmp_path / "vgpu/vgpu/claim-limits/a/gpu/limits"
        first = page.stat().st_ino
        await here.prepare(key("a"))
        assert page.stat().st_ino == first
        page.write_bytes(page.read_bytes()[:7])
        await here.prepare(key("a"))
        found = limits_page.parse(page.read_bytes())
        assert found is not None
        assert found.cards[0].memory == 3000 << 20

    asyncio.run(work())


def test_a_claim_that_was_given_back_and_allocated_anew_gets_what_it_has_now(tmp_path: Path) -> None:
    async def work() -> None:
        api = Api(a="50Gi", b="50Gi")
        here = await started(tmp_path, api)
        await here.prepare(key("a"))
        api.claims["a"] = ("20Gi", "gpu-1-shared")  # its Unprepare was missed
        answer = await here.prepare(key("a"))
        assert not isinstance(answer, str)
        assert [one.device for one in answer] == ["gpu-1-shared"]
        assert [share.card for one in book.prepared(tmp_path / "run") for share in one.shares] == ["GPU-1"]
        assert not isinstance(await here.prepare(key("b")), str)  # the first card is free

    asyncio.run(work())


@pytest.mark.parametrize("at", range(1, 5))
def test_a_kill_at_any_step_of_unprepare_leaves_a_claim_that_is_unprepared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:  # fmt: skip
    class Killed(BaseException):
        pass

    left = [at]

    def mortal(real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            real(*args, **more)

        return call

    async def work() -> None:
        api = Api(a="50Gi", b="50Gi")
        here = await started(tmp_path, api)
        await here.prepare(key("a"))
        with monkeypatch.context() as patched:
            patched.setattr(claim_files.shutil, "rmtree", mortal(claim_files.shutil.rmtree))
            patched.setattr(Path, "unlink", mortal(Path.unlink))
            patched.setattr(book, "write", mortal(book.write))
            with contextlib.suppress(Killed):
                await here.unprepare(key("a"))
        again = await started(tmp_path, api)
        assert booked(tmp_path) == ["a"]
        assert "default/a" in str(await again.prepare(key("b")))
        assert await again.unprepare(key("a")) == ""
        assert not isinstance(await again.prepare(key("b")), str)
        assert [path.name for path in (tmp_path / "vgpu/vgpu/claim-limits").iterdir()] == ["b"]

    asyncio.run(work())


def test_a_kubelet_that_asks_many_times_at_once_gets_one_booking_and_one_of_two_claims_too_many(tmp_path: Path) -> None:
    async def work() -> None:
        here = await started(tmp_path, Api(a="50Gi", b="50Gi"))
        answers = await asyncio.gather(*(here.prepare(key(name)) for name in "ab" * 10))
        served = [one for one in answers if not isinstance(one, str)]
        assert len(served) == 10
        assert all(one == served[0] for one in served)
        assert len(booked(tmp_path)) == 1

    asyncio.run(work())


def test_a_kubelet_that_asks_in_reverse_order_or_gives_up_leaves_nothing_behind(tmp_path: Path) -> None:
    async def work() -> None:
        api = Api(a="50Gi")
        here = await started(tmp_path, api)
        assert await here.unprepare(key("a")) == ""
        api.held_up.clear()
        requested = asyncio.create_task(here.prepare(key("a")))
        while not booked(tmp_path):
            await asyncio.sleep(0.01)
        requested.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await requested
        assert booked(tmp_path) == []
        api.held_up.set()
        assert not isinstance(await here.prepare(key("a")), str)
        assert await here.unprepare(key("a")) == ""
        assert not list((tmp_path / "cdi").iterdir())

    asyncio.run(work())


def test_a_call_that_is_given_up_while_files_are_written_ends_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    go, began, real = threading.Event(), threading.Event(), claim_files.install_files

    def slow(files: Any) -> None:
        began.set()
        assert go.wait(60)
        real(files)

    async def work() -> None:
        here = await started(tmp_path, Api(a="50Gi"))
        monkeypatch.setattr(claim_files, "install_files", slow)
        requested = asyncio.create_task(here.prepare(key("a")))
        await asyncio.to_thread(began.wait, 60)
        requested.cancel()
        undone = asyncio.create_task(here.unprepare(key("a")))
        await asyncio.sleep(0)
        go.set()
        assert await undone == ""
        with contextlib.suppress(asyncio.CancelledError):
            await requested
        assert booked(tmp_path) == []
        assert not list((tmp_path / "cdi").glob("*.json"))

    asyncio.run(work())


def test_a_claim_that_vanished_without_an_unprepare_is_given_back_once_the_kubelet_knows_nothing_of_it(tmp_path: Path) -> None:
    async def work() -> None:
        api = Api(a="10Gi", b="10Gi", c="10Gi")
        here = await started(tmp_path, api)
        for name in "abc":
            await here.prepare(key(name))
        api.claims.pop("a")
        api.claims.pop("b")
        await here.put_right()  # no record of the kubelet's: nothing is known
        assert booked(tmp_path) == ["a", "b", "c"]
        kubelet_knows(tmp_path, "a")
        await here.put_right()
        assert booked(tmp_path) == ["a", "c"]  # the kubelet has a, and c is there
        api.pods = [{"metadata": {"namespace": "default", "name": "p", "uid": "p"},
                     "spec": {"containers": [], "resourceClaims": [{"name": "x", "resourceClaimName": "a"}]}}]  # fmt: skip
        kubelet_knows(tmp_path)
        await here.put_right()
        assert booked(tmp_path) == ["a", "c"]  # a pod that runs names it
        api.pods = []
        await here.put_right()
        assert booked(tmp_path) == ["c"]
        assert len(list((tmp_path / "cdi").iterdir())) == 1

    asyncio.run(work())


def test_a_second_driver_waits_until_the_first_has_ended(tmp_path: Path) -> None:
    import os

    (tmp_path / ".claims.json.half").write_bytes(b"")
    first = book.hold(tmp_path)
    assert first is not None
    assert not (tmp_path / ".claims.json.half").exists()
    assert book.hold(tmp_path) is None
    os.close(first)
    second = book.hold(tmp_path)
    assert second is not None
    os.close(second)


def test_a_half_written_pool_is_written_anew_and_wiped_slices_come_back(tmp_path: Path) -> None:
    def specs(generation: int) -> list[Any]:
        pool = {"name": "n1", "generation": generation, "resourceSliceCount": 3}
        return [{"driver": "gpu.pumice.io", "nodeName": "n1", "pool": pool, "devices": [{"name": f"d{at}"}]} for at in range(3)]

    async def work() -> None:
        api = Api()
        cluster = cast(Cluster, api)
        api.fails_after = 2
        with pytest.raises(ApiError):
            await publish(cluster, "n1", specs, "gpu.pumice.io")
        assert len(api.slices) == 2
        api.fails_after = 99
        await publish(cluster, "n1", specs, "gpu.pumice.io")
        assert [one["spec"]["pool"]["generation"] for one in api.slices.values()] == [2, 2, 2]
        before = dict(api.slices)
        await publish(cluster, "n1", specs, "gpu.pumice.io")
        assert api.slices == before
        api.slices["old"] = {**before[next(iter(before))], "metadata": {"name": "old", "uid": "u"}}
        api.slices["old"]["spec"] = specs(1)[0]
        await publish(cluster, "n1", specs, "gpu.pumice.io")
        assert api.slices == before  # a killed one had not deleted it yet
        api.slices.clear()
        await publish(cluster, "n1", specs, "gpu.pumice.io")
        assert len(api.slices) == 3

    asyncio.run(work())


@pytest.mark.parametrize(("set_back", "after"), [((0,), [3, 3, 3]), ((0, 1), [3, 3, 3]), ((0, 1, 2), [1, 1, 1])])
def test_a_pool_that_somebody_sets_back_is_written_anew_unless_it_is_whole(set_back: tuple[int, ...], after: list[int]) -> None:
    def specs(generation: int) -> list[Any]:
        pool = {"name": "n1", "generation": generation, "resourceSliceCount": 3}
        return [{"driver": "gpu.pumice.io", "nodeName": "n1", "pool": pool, "devices": [{"name": f"d{at}"}]} for at in range(3)]

    async def work() -> None:
        api = Api()
        cluster = cast(Cluster, api)
        for at, spec in enumerate(specs(2)):
            name = f"0000{at}"
            api.slices[name] = {"metadata": {"name": name, "uid": "u"}, "spec": specs(1)[at] if at in set_back else spec}
        await publish(cluster, "n1", specs, "gpu.pumice.io")
        assert [one["spec"]["pool"]["generation"] for one in api.slices.values()] == after
        assert [one["spec"] for one in api.slices.values()] == specs(after[0])

    asyncio.run(work())


def test_a_pool_that_somebody_wrote_with_the_last_generation_begins_at_1_again() -> None:
    def specs(generation: int) -> list[Any]:
        pool = {"name": "n1", "generation": generation, "resourceSliceCount": 1}
        return [{"driver": "gpu.pumice.io", "nodeName": "n1", "pool": pool, "devices": [{"name": "d0"}]}]

    async def work() -> None:
        api = Api()
        last = {**specs(2**63 - 1)[0], "devices": [{"name": "somebody's"}]}
        api.slices["odd"] = {"metadata": {"name": "odd", "uid": "u"}, "spec": last}
        await publish(cast(Cluster, api), "n1", specs, "gpu.pumice.io")
        assert [one["spec"] for one in api.slices.values()] == specs(1)

    asyncio.run(work())


def test_cards_of_programs_and_of_holders_that_nobody_names_are_tainted_too() -> None:
    held = {"": "pods default/p hold cards of this node that no annotation names"}
    found = taints_of(["GPU-0", "GPU-1"], ("sick", {"GPU-1": "x"}), ("held", held))
    assert found == {"GPU-0": ["held"], "GPU-1": ["sick", "held"]}


@pytest.mark.parametrize("uid", ["", ".", "..", "../x", "a/b", "a\n", "x" * 300, "-x"])
def test_a_uid_that_is_a_path_or_none_is_refused_at_both_doors(tmp_path: Path, uid: str) -> None:
    async def work() -> None:
        here = await started(tmp_path, Api(a="1Gi"))
        assert "is no claim's uid" in await here.unprepare(ClaimKey("default", uid, "a"))
        assert isinstance(await here.prepare(ClaimKey("default", uid, "a")), str)
        assert booked(tmp_path) == []

    asyncio.run(work())


@pytest.mark.parametrize("notes", [
    {"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,x,y:;;:,,,,;" * 200}, {"volcano.sh/vgpu-ids-new": "\0\n;:,"},
    {"volcano.sh/vgpu-ids-new": ",,,"}, {"volcano.sh/vgpu-ids-new": "GPU-0,NVIDIA,1000,10:;"},  # it asks for no device
])  # fmt: skip
def test_annotations_that_mean_nothing_stop_neither_claims_nor_slices(tmp_path: Path, notes: dict[str, str]) -> None:
    async def work() -> None:
        api = Api(a="1Gi")
        meta = {"namespace": "x", "name": "p", "uid": "p", "annotations": {"volcano.sh/vgpu-node": "n1", **notes}}
        api.pods = [{"metadata": meta, "spec": {"containers": []}}]
        assert not isinstance(await (await started(tmp_path, api)).prepare(key("a")), str)

    asyncio.run(work())


def test_the_page_tells_each_share_by_pod_claim_and_share_and_what_a_hostile_region_holds_is_left_out(tmp_path: Path) -> None:
    from pumice.metrics.text import render

    async def work() -> None:
        api = Api(a="3000Mi", b="79Gi")
        here = await started(tmp_path, api)
        await here.prepare(key("a"))
        await here.prepare(key("b"))  # too much
        api.pods = [{"metadata": {"namespace": "default", "name": "p", "uid": "p"},
                     "spec": {"containers": [], "resourceClaims": [{"name": "x", "resourceClaimName": "a"}]}}]  # fmt: skip
        (tmp_path / "vgpu/vgpu/claims/a/gpu/a.cache").write_bytes(b"\xff" * 5000)
        await here._publish()
        text = render(await here.metrics())
        assert ('pumice_claim_share_memory_limit_bytes{claim="a",device="gpu-0-shared",namespace="default",node="n1",pod="p",'
                f'request="gpu",share="a-gpu-0-shared",uuid="GPU-0"}} {3000 << 20}') in text  # fmt: skip
        assert "memory_used_bytes{" not in text
        assert 'pumice_claims_refused_total{node="n1"} 1' in text

    asyncio.run(work())
