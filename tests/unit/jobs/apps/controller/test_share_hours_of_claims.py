"""Share-hours of shares by claim: what the claims' status says, of what the driver publishes, and what monitors tell by claim."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kit.mig_rules import RuledSlices
from kit.node_objects import facts, two_cards
from kit.objects import pod
from kit.virtual_time import run_virtually
from tests.unit.jobs.apps.controller.test_share_hours import BUSY, LIMIT, USED, World, world

from pumice.claims.objects import slice_of
from pumice.devices.ascend_mindcluster.node.claims import slice_specs as npu_slice_specs
from pumice.devices.nvidia_vgpu.node.claims import BOTH, HAMI, slice_specs
from pumice.metrics.claims import ShareView, claim_families
from pumice.metrics.text import render
from pumice.node.claims import owner_of, slice_object
from pumice.ports.cards import CardFacts
from pumice.ports.cluster import ApiError, WatchEvent
from pumice.wire import kinds
from pumice_jobs.controllers.claimed_shares import Published

GIB = 1 << 30
CARDS = facts(two_cards().cards)
MODEL = "NVIDIA-Tesla V100-SXM2-32GB"
SLICED = CardFacts(2, "GPU-2", "NVIDIA A100-SXM4-40GB", 40 << 30, minor=2, mig=True)


def slices(*cards: CardFacts, worlds: str = BOTH) -> list[dict[str, Any]]:
    ruled = RuledSlices({"GPU-2": "A100-SXM4-40GB"})
    offers = {card.uuid: ruled.profiles(card.uuid) for card in cards if card.mig}
    specs = slice_specs("n1", cards, worlds, {}, 1, offers)
    return [slice_object(spec, at, owner_of("n1", "u"), 1) for at, spec in enumerate(specs)]


def allocated(device: str, memory: str = "", cores: str = "", driver: str = "gpu.pumice.io", **more: Any) -> dict[str, Any]:
    result = {"request": "gpu", "driver": driver, "pool": "n1", "device": device, **more}
    if memory:
        result |= {"shareID": "7c1f4e0e-6a0b-4b0e-9f7e-3d3c1c2b1a00", "consumedCapacity": {"memory": memory, "cores": cores}}
    return {"status": {"allocation": {"devices": {"results": [result]}}}}


@pytest.mark.parametrize(("claim", "held"), [
    (allocated("gpu-0-shared", "8Gi", "50"), [(MODEL, "vgpu", 1, 0.25, 0.5)]),
    (allocated("hami-gpu-0", "8Gi", "0", driver="hami-core-gpu.project-hami.io"), [(MODEL, "vgpu", 1, 0.25, 0)]),
    (allocated("gpu-1"), [(MODEL, "whole", 1, 1, 1)]),
    (allocated("gpu-2-mig-1g5gb-19-4"), [("NVIDIA-NVIDIA A100-SXM4-40GB", "mig", 1, 0.12, 1 / 7)]),
    (allocated("gpu-0-shared", "900Gi", "-5"), [(MODEL, "vgpu", 1, 1, 0)]),
    (allocated("gpu-0-shared", "1e400", "1e400"), [(MODEL, "vgpu", 1, 1, 1)]),
    (allocated("gpu-0-shared"), [(MODEL, "vgpu", 1, 1, 1)]),
    (allocated("gpu-0", adminAccess=True), []), (allocated("nic-0", driver="net.example"), []), ({}, []),
    ({"status": {"allocation": {"devices": {"results": "x"}}}}, []), (allocated("gpu-9"), None),
])  # fmt: skip
def test_what_a_claim_holds_is_a_part_of_a_card_as_the_driver_publishes_it(claim: dict[str, Any], held: Any) -> None:
    published = Published()
    for obj in slices(*CARDS, SLICED) + slices(CARDS[0], worlds=HAMI):
        published.put(slice_of(obj))
    found = published.shares_of(claim)
    assert (found is None) is (held is None)
    for share, (model, kind, count, memory, cores) in zip(found or (), held or (), strict=True):
        assert (share.model, share.kind, share.shares) == (model, kind, count)
        assert (share.memory, share.cores) == pytest.approx((memory, cores), abs=0.01)
        assert (share.limit_memory, share.limit_cores) == (share.memory, share.cores)


def npus(*names: str) -> list[dict[str, Any]]:
    cards = [CardFacts(at, f"NPU-{at}", name, 24 << 30, minor=at) for at, name in enumerate(names)]
    return [slice_object(spec, at, owner_of("n1", "u"), 1) for at, spec in enumerate(npu_slice_specs("n1", cards, {}, 1))]


@pytest.mark.parametrize(("device", "held"), [
    ("npu-0", ("Ascend310P", 1, 1)), ("npu-0-vir02-1c-1", ("Ascend310P", 0.25, 0.25)),
    ("npu-0-vir01-6", ("Ascend310P", 0.125, 0.125)), ("npu-1-vir03-1c-8g-0", ("Ascend910B2", 0.125, 0.125)),
])  # fmt: skip
def test_what_a_claim_holds_of_an_npu_is_a_part_of_its_memory_and_ai_cores(device: str, held: tuple[str, float, float]) -> None:
    published = Published()
    for obj in (*npus("310P3", "910B2"), *slices(*CARDS)):
        published.put(slice_of(obj))
    found = published.shares_of(allocated(device, driver="npu.pumice.io"))
    assert found is not None
    (share,) = found
    assert (share.model, share.kind, share.shares) == (held[0], "npu", 1)
    assert (share.memory, share.cores) == pytest.approx(held[1:], abs=0.01)
    assert (share.limit_memory, share.limit_cores) == (share.memory, share.cores)


def test_a_node_with_two_drivers_keeps_the_devices_of_one_while_the_other_goes() -> None:
    published = Published()
    for obj in (*npus("310P3"), *slices(*CARDS)):
        published.put(slice_of({**obj, "metadata": {"name": obj["spec"]["driver"] + obj["metadata"]["name"]}}))
    for obj in slices(*CARDS):
        published.drop(obj["spec"]["driver"] + obj["metadata"]["name"])
    assert published.shares_of(allocated("gpu-0")) is None
    assert published.shares_of(allocated("npu-0", driver="npu.pumice.io")) is not None


def test_devices_are_known_until_the_last_slice_of_their_pool_is_gone() -> None:
    """A slice of the next generation may leave out a card that a claim holds; a node that is gone takes all of it along."""
    published = Published()
    old, new = ([slice_of({**obj, "metadata": {"name": f"{generation}-{at}"}}) for at, obj in enumerate(slices(*cards))]
                for generation, cards in enumerate((CARDS, CARDS[:1])))  # fmt: skip
    for one in old + new:
        published.put(one)
    for one in old:
        published.drop(one.name)
    assert published.shares_of(allocated("gpu-1")) is not None
    published.drop("another")
    for one in new:
        published.drop(one.name)
    assert published.shares_of(allocated("gpu-1")) is None
    assert published == Published()



def page(claim: str, used: int, limit: int) -> str:
    where = (f'{{container="main",device_uuid="GPU-n1-0",namespace="default",pod="a",vdevice_index="0",zone="vGPU",'
             f'claim="{claim}",request="gpu",share="s"}}')  # fmt: skip
    return f"{USED}{where} {used}\n{LIMIT}{where} {limit}\n{BUSY}{where} 30\n"


def driver_page(claim: str, used: int, limit: int, busy: float) -> str:
    """As the driver of NPUs by claim writes it, of a share that two pods have."""
    shares = [ShareView("default", claim, "npu", "", "npu-0-vir02-0", "NPU-0", ["a", "b"], limit, 25, used, busy)]
    return render(claim_families("n1", shares, 0))


async def bound(w: World, name: str, **kind: Any) -> dict[str, Any]:
    made = pod(name, resourceClaims=[{"name": "mine", "resourceClaimName": "c"}], nodeName="n1", **kind)
    made["metadata"] = {key: value for key, value in made["metadata"].items() if key not in ("uid", "creationTimestamp")}
    made.pop("status")
    return await w.cluster.create(kinds.PODS, made, "default")


async def reserve(w: World, *pods: dict[str, Any]) -> None:
    status: dict[str, Any] = {"allocation": None, "reservedFor": None}
    if pods:
        status = allocated("gpu-0-shared", str(8 * GIB), "50")["status"]
        whose = [one["metadata"] for one in pods]
        status["reservedFor"] = [{"resource": "pods", "name": one["name"], "uid": one["uid"]} for one in whose]
    await w.cluster.patch(kinds.RESOURCE_CLAIMS, "c", {"status": status}, "default", subresource="status")


def test_an_hour_of_a_claim_that_pods_share_counts_once_for_the_queue_of_the_first_and_ends_with_the_last() -> None:
    async def story() -> None:
        w = await world()
        w.page = page("c", 2 * GIB, 8 * GIB)
        for obj in slices(*CARDS):
            await w.cluster.create(kinds.RESOURCE_SLICES, obj)
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.pumice.io"}}
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        await w.cluster.create(kinds.RESOURCE_CLAIMS, claim, "default")
        first, second = await bound(w, "a", queue="team"), await bound(w, "b")
        await reserve(w, first, second)
        await w.clock.sleep(1800)
        await reserve(w, second)  # the first has ended, and the share goes on
        await w.clock.sleep(1800)
        await reserve(w)
        await w.clock.sleep(3600)
        found = await w.usage()
        assert list(found) == [f"default/team/{MODEL}/vgpu"]
        (row,) = found.values()
        assert (row["shares"], row["memory"], row["cores"]) == pytest.approx((1, 0.25, 0.5), abs=0.03)
        assert (row["limitMemory"], row["limitCores"]) == pytest.approx((0.25, 0.5), abs=0.03)
        assert (row["usedMemory"], row["usedCores"]) == pytest.approx((0.0625, 0.3), abs=0.02)
        await w.close()

    run_virtually(story())


def test_an_hour_of_an_npus_slice_by_claim_and_what_the_driver_of_claims_saw_of_it() -> None:
    async def story() -> None:
        w = await world()
        asked: list[str] = []

        async def fetch(url: str, patience: float, most: int) -> str:
            asked.append(url)
            return driver_page("c", 2 * GIB, 6 * GIB, 10.0)

        w.controller.share_hours.fetch = fetch
        for obj in npus("310P3"):
            await w.cluster.create(kinds.RESOURCE_SLICES, obj)
        request = {"name": "gpu", "exactly": {"deviceClassName": "vnpu.pumice.io"}}
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        await w.cluster.create(kinds.RESOURCE_CLAIMS, claim, "default")
        meta = (await bound(w, "a", queue="team"))["metadata"]
        status = allocated("npu-0-vir02-0", driver="npu.pumice.io")["status"]
        status["reservedFor"] = [{"resource": "pods", "name": meta["name"], "uid": meta["uid"]}]
        await w.cluster.patch(kinds.RESOURCE_CLAIMS, "c", {"status": status}, "default", subresource="status")
        await w.clock.sleep(3600)
        ((key, row),) = (await w.usage()).items()
        assert key == "default/team/Ascend310P/npu"
        assert (row["shares"], row["memory"], row["cores"]) == pytest.approx((1, 0.25, 0.25), abs=0.1)
        assert (row["usedMemory"], row["usedCores"]) == pytest.approx((0.25 / 3, 0.1), abs=0.02)
        assert set(asked) == {"http://10.0.0.1:9396/metrics"}
        await w.close()

    run_virtually(story())


def test_a_claim_that_was_freed_and_allocated_anew_while_nobody_watched_counts_for_who_has_it_now() -> None:
    async def story() -> None:
        w = await world()
        for obj in slices(*CARDS):
            await w.cluster.create(kinds.RESOURCE_SLICES, obj)
        claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.pumice.io"}}]}}}  # fmt: skip
        await w.cluster.create(kinds.RESOURCE_CLAIMS, claim, "default")
        first, second = await bound(w, "a", queue="team"), await bound(w, "b")
        await reserve(w, first)
        await w.clock.sleep(1800)
        found = await w.cluster.get(kinds.RESOURCE_CLAIMS, "c", "default")
        found["status"]["allocation"] = allocated("gpu-1-shared", str(8 * GIB), "50")["status"]["allocation"]
        found["status"]["reservedFor"][0] |= {"name": "b", "uid": second["metadata"]["uid"]}
        w.controller.share_hours.on_claim(WatchEvent("MODIFIED", json.dumps(found).encode()))
        await w.clock.sleep(1800)
        hours = {key.split("/")[1]: row["shares"] for key, row in (await w.usage()).items()}
        assert hours == pytest.approx({"team": 0.5, "default": 0.5}, abs=0.09)
        await w.close()

    run_virtually(story())


def test_a_cluster_whose_claims_may_not_be_seen_has_share_hours_of_annotations_all_the_same() -> None:
    async def story() -> None:
        w = await world()
        await w.close()
        w.cluster.fault = lambda verb, path: ApiError(403, "Forbidden", "no") if "resource.k8s.io" in path else None
        w.start()
        await w.bind("a", queue="team")
        await w.clock.sleep(1800)
        assert [row["shares"] for row in (await w.usage()).values()] == [pytest.approx(0.5, abs=0.1)]
        await w.close()

    run_virtually(story())


