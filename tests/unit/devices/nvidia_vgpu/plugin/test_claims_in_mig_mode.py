"""A claim of a MIG slice: cut when it is prepared, in the journal of the node's plugin, and the same after whatever befalls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.mig_rules import RuledSlices

from pumice.adapters.bookings import claims as book
from pumice.adapters.journal import FileJournal
from pumice.adapters.kubelet.claim_driver import ClaimKey
from pumice.apps.node.card_watch import CardWatch
from pumice.apps.node.claim_files import ClaimFiles
from pumice.devices.nvidia_vgpu.node.mig_slices import Cutter
from pumice.devices.nvidia_vgpu.plugin.claim_daemon import ClaimSlices, NodeClaims, Settings
from pumice.model.errors import Unavailable
from pumice.ports.cards import CardFacts
from pumice.ports.clock import Clock, SystemClock
from pumice.ports.cluster import ApiError, Cluster
from pumice.ports.slices import CutRefused, Entry, NoRights, Phase, Place
from pumice.wire.kinds import NODES, PODS, RESOURCE_CLAIMS

CARD = CardFacts(0, "GPU-0", "NVIDIA A100-SXM4-80GB", 80 << 30, minor=0, mig=True)
ONE, OTHER, TWO, HALF, WHOLE = (f"gpu-0-mig-{word}" for word in ("1g10gb-19-4", "1g10gb-19-5", "2g20gb-14-4", "3g40gb-9-0",
                                                                 "7g80gb-0-0"))  # fmt: skip


class Api:
    """An API server with claims by name, and the devices that each is allocated."""

    def __init__(self, **claims: str) -> None:
        self.claims = {name: devices.split() for name, devices in claims.items()}
        self.pods: list[Any] = []

    async def get(self, resource: Any, name: str, namespace: str = "") -> Any:
        if resource == NODES:
            return {"metadata": {"name": name, "uid": "n"}}
        if name not in self.claims:
            raise ApiError(404, "NotFound", "gone")
        return self._claim(name)

    async def list(self, resource: Any, namespace: str = "", **selectors: str) -> Any:
        return {"items": {RESOURCE_CLAIMS: [self._claim(name) for name in self.claims], PODS: self.pods}[resource]}

    def _claim(self, name: str) -> Any:
        results = []
        for at, device in enumerate(self.claims[name]):
            request, _, device = device.rpartition(":")
            shared = (
                {"shareID": f"s{at}", "consumedCapacity": {"memory": "1Gi", "cores": "10"}}
                if "shared" in device
                else {}
            )
            results.append(
                {"request": request or "g", "driver": "gpu.pumice.io", "pool": "n1", "device": device, **shared}
            )
        return {
            "metadata": {"namespace": "default", "name": name, "uid": name},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "uid": "q", "name": "q"}],
            },
        }


class Machine:
    """A node with one card, and what a driver finds that starts there. ``folder``: what outlives drivers."""

    def __init__(self, folder: Path, api: Api, card: CardFacts = CARD) -> None:
        self.folder, self.api, self.card = folder, api, card
        self.slices = RuledSlices({"GPU-0": "A100-SXM4-80GB" if card.mig else ""})
        self.journal = FileJournal(folder / "vgpu" / "mig.json")

    async def driver(self, clock: Clock | None = None) -> NodeClaims:
        settings = Settings("n1", kubelet_dir=self.folder / "kubelet", hook_path=self.folder / "vgpu",
                            lock_dir=self.folder / "lock", cdi_folder=self.folder / "cdi",
                            booking_dirs=(self.folder / "run",))  # fmt: skip
        watch = cast(CardWatch, SimpleNamespace(facts=(self.card,), unhealthy={}))
        found = NodeClaims(
            settings, cast(Cluster, self.api), clock or SystemClock(), watch, ClaimSlices(self.slices, self.journal)
        )
        await found.resume()
        return found

    def visible(self, uid: str, request: str = "g") -> str:
        devices = json.loads((self.folder / f"cdi/pumice.io-claim_{uid}.json").read_bytes())["devices"]
        [edits] = [one["containerEdits"] for one in devices if one["name"] == f"{uid}-{request}"]
        assert "mounts" not in edits, "the hardware holds the limits of a slice"
        [env] = edits["env"]
        return str(env).removeprefix("NVIDIA_VISIBLE_DEVICES=")

    def cut(self) -> dict[str, str]:
        return {str(slice_.place): slice_.uuid for slice_ in self.slices.slices("GPU-0")}

    def cut_for_pod(self, place: str, start: int) -> None:
        Cutter(self.slices, self.journal).cut([Place("GPU-0", place, start)], "p", lambda uid: "default/p")

    def reset(self) -> None:
        """The card forgets its slices, and those made from now on have other UUIDs."""
        self.slices = RuledSlices({"GPU-0": "A100-SXM4-80GB"})
        self.slices._made = 100

    def recorded(self) -> None:
        """The kubelet's record names pod p."""
        entry = {"PodUID": "p", "ContainerName": "c", "ResourceName": "volcano.sh/vgpu-memory",
                 "DeviceIDs": {"0": ["GPU-0-3"]}, "AllocResp": ""}  # fmt: skip
        folder = self.folder / "kubelet" / "device-plugins"
        folder.mkdir(parents=True)
        record = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 0}
        (folder / "kubelet_internal_checkpoint").write_text(json.dumps(record))

    def booked(self) -> list[str]:
        return [one.name for one in book.prepared(self.folder / "run")]


def key(name: str) -> ClaimKey:
    return ClaimKey("default", name, name)


def played(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def refused(driver: NodeClaims, name: str) -> str:
    found = await driver.prepare(key(name))
    assert isinstance(found, str), found
    return found


async def given(driver: NodeClaims, name: str) -> list[str]:
    found = await driver.prepare(key(name))
    assert not isinstance(found, str), found
    return [one.device for one in found]


def test_a_claims_slice_is_cut_once_and_a_driver_that_starts_again_gives_the_same(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE, b=OTHER, c=f"g:{HALF}"))
        driver = await machine.driver()
        assert await given(driver, "a") == [ONE]
        assert await given(driver, "b") == [OTHER]
        before = machine.cut()
        assert before == {"1g.10gb@4": machine.visible("a"), "1g.10gb@5": machine.visible("b")}
        assert await given(driver, "a") == [ONE]
        driver = await machine.driver()
        await driver.put_right()
        assert await given(driver, "a") == [ONE]
        assert machine.cut() == before
        assert await given(driver, "c") == [HALF]
        assert machine.booked() == ["a", "b", "c"]

    played(work())


def test_a_slice_lies_until_it_is_in_the_way_of_another_claim(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE, b=TWO, c=WHOLE))
        driver = await machine.driver()
        await given(driver, "a")
        assert "slices 1g.10gb@4 and 2g.20gb@4 lie over each other; the card is held by default/a" in await refused(
            driver, "b"
        )
        assert machine.booked() == ["a"]
        assert not await driver.unprepare(key("a"))
        assert list(machine.cut()) == ["1g.10gb@4"]
        await given(driver, "b")
        assert list(machine.cut()) == ["2g.20gb@4"]
        assert "lie over each other" in await refused(driver, "c")

    played(work())


def test_a_claim_that_was_allocated_anew_while_its_unprepare_was_missed_gets_the_slice_that_it_has_now(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        driver = await machine.driver()
        await given(driver, "a")
        machine.api.claims["a"] = [TWO]
        assert await given(driver, "a") == [TWO]
        assert machine.cut() == {"2g.20gb@4": machine.visible("a")}

    played(work())


def test_slices_of_two_requests_and_two_of_one(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=f"x:{ONE} y:{OTHER} y:{HALF}"))
        await given(await machine.driver(), "a")
        cut = machine.cut()
        assert machine.visible("a", "x") == cut["1g.10gb@4"]
        assert set(machine.visible("a", "y").split(",")) == {cut["1g.10gb@5"], cut["3g.40gb@0"]}

    played(work())


@pytest.mark.parametrize(("devices", "why"), [
    ("gpu-0-mig-1g10gb-19-7", "device gpu-0-mig-1g10gb-19-7 is not on this node"),
    ("gpu-0-mig-9g90gb-1-0", "is not on this node"), ("gpu-1-mig-1g10gb-19-4", "is not on this node"),
    ("gpu-0-mig-", "is not on this node"), ("gpu-0-mig-1g10gb-19-4-shared", "is not on this node"),
    ("gpu-0-shared", "card GPU-0 is in MIG mode"), ("gpu-0", "card GPU-0 is in MIG mode"),
    (f"x:{ONE} y:{TWO}", "slices 1g.10gb@4 and 2g.20gb@4 lie over each other"), (f"{ONE} {ONE}", "was given card GPU-0 twice"),
])  # fmt: skip
def test_whatever_a_status_says_that_cannot_be_is_refused_and_nothing_is_cut(
    tmp_path: Path, devices: str, why: str
) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=devices))
        assert why in await refused(await machine.driver(), "a")
        assert not machine.cut()
        assert not machine.booked()

    played(work())


def test_a_card_whose_mig_mode_is_off_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        off = CardFacts(0, "GPU-0", "NVIDIA A100-SXM4-80GB", 80 << 30, minor=0)
        machine = Machine(tmp_path, Api(a=ONE), off)
        assert "the MIG mode of card GPU-0 is off" in await refused(await machine.driver(), "a")

    played(work())


def test_what_somebody_else_cut_is_left_alone_and_a_pods_slice_too(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE, b=HALF))
        machine.slices.make(Place("GPU-0", "1g.10gb", 4))
        machine.slices.fill(Place("GPU-0", "1g.10gb", 4))
        machine.api.pods = [
            {"metadata": {"uid": "p", "name": "p", "namespace": "default"}, "spec": {}, "status": {"phase": "Running"}}
        ]
        cutter = Cutter(machine.slices, machine.journal)
        cutter.cut([Place("GPU-0", "2g.20gb", 0)], "p", lambda uid: "default/p")
        before, driver = machine.cut(), await machine.driver()
        assert "slice 1g.10gb@4 of card GPU-0 was made by somebody else and is left alone" in await refused(driver, "a")
        assert "pod default/p holds slice 2g.20gb@0" in await refused(driver, "b")
        assert (machine.cut(), machine.booked()) == (before, [])
        machine.api.pods[0]["status"]["phase"] = "Succeeded"
        await given(driver, "b")
        assert sorted(machine.cut()) == ["1g.10gb@4", "3g.40gb@0"]

    played(work())


def test_the_plugin_leaves_a_claims_slice_alone(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        await given(await machine.driver(), "a")
        claimed = book.slice_owners([tmp_path / "run"])
        found = Cutter(machine.slices, machine.journal).cut(
            [Place("GPU-0", "2g.20gb", 4)], "p", lambda uid: claimed.get(uid, "")
        )
        assert found == "claim default/a holds slice 1g.10gb@4 of card GPU-0"

    played(work())


def test_after_a_reset_the_slices_of_claims_are_made_again_and_their_files_say_which(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE, b=HALF))
        driver = await machine.driver()
        await given(driver, "a")
        await given(driver, "b")
        await driver.unprepare(key("b"))
        old = machine.visible("a")
        machine.slices = RuledSlices({"GPU-0": "A100-SXM4-80GB"})
        machine.slices._made = 100
        driver = await machine.driver()
        await driver.put_right()
        assert machine.cut() == {"1g.10gb@4": machine.visible("a")}
        assert machine.visible("a") != old
        assert [one.shares[0].visible for one in book.prepared(tmp_path / "run")] == [machine.visible("a")]

    played(work())


def pod_p(phase: str = "Running") -> Any:
    """It has a share of another card too: what the kubelet's record says of it is explained by that."""
    notes = {"volcano.sh/vgpu-node": "n1", "volcano.sh/vgpu-ids-new": "GPU-1,NVIDIA,1000,10:;"}
    meta = {"uid": "p", "name": "p", "namespace": "default", "annotations": notes}
    limits = {"volcano.sh/vgpu-number": "1"}
    return {"metadata": meta, "spec": {"containers": [{"resources": {"limits": limits}}]}, "status": {"phase": phase}}


class Hand(SystemClock):
    """A clock that is set by hand."""

    now_is = 0.0

    def monotonic(self) -> float:
        return self.now_is


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_an_ended_pod_holds_no_slice_though_the_kubelets_record_names_it(tmp_path: Path, phase: str) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(b=HALF))
        machine.cut_for_pod("2g.20gb", 0)
        machine.recorded()
        machine.api.pods = [pod_p()]
        driver = await machine.driver()
        await driver.put_right()
        assert "pod default/p holds slice 2g.20gb@0" in await refused(driver, "b")
        machine.api.pods = [pod_p(phase)]
        await given(driver, "b")
        assert list(machine.cut()) == ["3g.40gb@0"]

    played(work())


def test_a_pod_that_vanished_holds_its_slice_for_ten_seconds(tmp_path: Path) -> None:
    async def work() -> None:
        machine, clock = Machine(tmp_path, Api(b=HALF)), Hand()
        machine.cut_for_pod("2g.20gb", 0)
        machine.recorded()
        driver = await machine.driver(clock)
        assert "pod of UID p holds slice 2g.20gb@0" in await refused(driver, "b")
        clock.now_is = 9.0
        assert "pod of UID p holds slice 2g.20gb@0" in await refused(driver, "b")
        clock.now_is = 10.0
        await given(driver, "b")

    played(work())


@pytest.mark.parametrize("pods", [[], [pod_p("Succeeded")], [pod_p()]])
def test_after_a_boot_slices_of_pods_are_left_to_the_plugin(tmp_path: Path, pods: list[Any]) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        machine.cut_for_pod("2g.20gb", 0)
        machine.recorded()
        machine.api.pods = pods
        before = machine.journal.read()
        machine.reset()
        driver = await machine.driver()
        await driver.put_right()
        assert (machine.cut(), machine.journal.read()) == ({}, before)
        await given(driver, "a")
        assert list(machine.cut()) == ["1g.10gb@4"]

    played(work())


def test_a_driver_without_rights_spoils_no_running_pods_slice(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        machine.cut_for_pod("2g.20gb", 0)
        machine.api.pods = [pod_p()]
        machine.reset()
        whole = machine.slices.make

        def refusing(place: Place) -> None:
            raise NoRights("no SYS_ADMIN")

        machine.slices.make = refusing  # type: ignore[method-assign]
        driver = await machine.driver()
        await driver.put_right()
        assert "no SYS_ADMIN" in await refused(driver, "a")
        machine.slices.make = whole  # type: ignore[method-assign]
        assert Cutter(machine.slices, machine.journal).start(["GPU-0"], lambda uid: "default/p" if uid == "p" else "")
        assert list(machine.cut()) == ["2g.20gb@0"]

    played(work())


def test_a_slice_of_an_ended_pod_is_forgotten_although_the_driver_died_while_it_removed_it_for_a_claim(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        machine.cut_for_pod("2g.20gb", 4)
        driver = await machine.driver()
        make = machine.slices.make

        def dying(place: Place) -> None:
            raise RuntimeError("killed")

        machine.slices.make = dying  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            await driver.prepare(key("a"))
        machine.slices.make = make  # type: ignore[method-assign]
        assert [one.phase for one in machine.journal.read()] == [Phase.REMOVING, Phase.MAKING]
        machine.api.claims.clear()
        again = await machine.driver()
        await again.put_right()
        assert machine.journal.read() == ()

    played(work())


MEDIA, MEDIA_TOO = "gpu-0-mig-1g10gbme-20-4", "gpu-0-mig-1g10gbme-20-6"


def test_the_media_extensions_of_an_ended_claim_are_in_the_way_wherever_they_lie(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=MEDIA, b=OTHER, c=MEDIA_TOO))
        driver = await machine.driver()
        await given(driver, "a")
        await given(driver, "b")
        found = Cutter(machine.slices, machine.journal).cut(
            [Place("GPU-0", "1g.10gb+me", 6)], "p", lambda uid: "claim default/a" if uid.startswith("a/") else ""
        )
        assert found == "claim default/a holds slice 1g.10gb+me@4 of card GPU-0"
        await driver.unprepare(key("a"))
        await given(driver, "c")
        assert sorted(machine.cut()) == ["1g.10gb+me@6", "1g.10gb@5"]

    played(work())


def test_no_claim_has_two_slices_with_media_extensions_of_one_card(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=MEDIA, c=f"x:{MEDIA} y:{MEDIA_TOO}"))
        driver = await machine.driver()
        await given(driver, "a")
        await driver.unprepare(key("a"))
        assert "two slices with media extensions of card GPU-0" in await refused(driver, "c")

    played(work())


def test_the_files_of_other_claims_say_their_new_slices_though_a_prepare_settled_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE, b=OTHER, c=HALF))
        driver = await machine.driver()
        await given(driver, "a")
        await given(driver, "b")
        machine.reset()
        driver = await machine.driver()
        await given(driver, "c")

        def full(files: Any, claim: Any) -> None:
            raise OSError(28, "No space left")

        with monkeypatch.context() as patched:
            patched.setattr(ClaimFiles, "write", full)
            await driver.put_right()
        await driver.put_right()
        cut = machine.cut()
        assert (machine.visible("a"), machine.visible("b")) == (cut["1g.10gb@4"], cut["1g.10gb@5"])
        assert [one.shares[0].visible for one in book.prepared(tmp_path / "run")] == list(
            map(machine.visible, ("a", "b", "c"))
        )

    played(work())


def test_pods_are_listed_for_slices_only_where_something_is_to_be_settled(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        driver = await machine.driver()
        await given(driver, "a")
        await driver.put_right()
        del machine.api.pods
        await driver.put_right()

    played(work())


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("call", ["make", "fill"])
@pytest.mark.parametrize("after", [False, True])
def test_a_driver_killed_at_a_cut_leaves_what_the_next_one_finishes(tmp_path: Path, call: str, *, after: bool) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        whole = getattr(machine.slices, call)

        def killed(place: Place) -> None:
            if after:
                whole(place)
            raise Killed

        driver = await machine.driver()
        setattr(machine.slices, call, killed)
        with pytest.raises(BaseException):  # noqa: B017 - what a killed process raises is its own
            await driver.prepare(key("a"))
        setattr(machine.slices, call, whole)
        driver = await machine.driver()
        assert not machine.booked(), "nobody was answered"
        await driver.put_right()
        assert await given(driver, "a") == [ONE]
        assert machine.cut() == {"1g.10gb@4": machine.visible("a")}

    played(work())


@pytest.mark.parametrize("call", ["make", "fill"])
def test_a_cut_that_the_driver_refuses_is_told_and_tried_again(tmp_path: Path, call: str) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE, b=HALF))
        whole = getattr(machine.slices, call)

        def failing(place: Place) -> None:
            raise CutRefused(f"slice {place}: Unknown Error")

        driver = await machine.driver()
        setattr(machine.slices, call, failing)
        assert "claim default/a: slice 1g.10gb@4: Unknown Error" in await refused(driver, "a")
        assert (machine.booked(), machine.cut()) == ([], {})
        setattr(machine.slices, call, whole)
        await given(driver, "b")
        await given(driver, "a")
        assert sorted(machine.cut()) == ["1g.10gb@4", "3g.40gb@0"]

    played(work())


def test_a_journal_that_cannot_be_written_refuses_the_claim_and_cuts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        driver = await machine.driver()

        def full(entries: Any) -> None:
            raise Unavailable("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(machine.journal, "write", full)
            assert "no space left" in await refused(driver, "a")
        assert (machine.cut(), machine.booked()) == ({}, [])
        await given(driver, "a")

    played(work())


def test_an_entry_of_a_claim_that_nobody_knows_is_forgotten(tmp_path: Path) -> None:
    async def work() -> None:
        machine = Machine(tmp_path, Api(a=ONE))
        machine.journal.write([Entry(Place("GPU-0", "2g.20gb", 4), f"x/{TWO}", Phase.MAKING)])
        machine.slices.make(Place("GPU-0", "2g.20gb", 4))
        driver = await machine.driver()
        await driver.put_right()
        assert not machine.cut()
        await given(driver, "a")

    played(work())
