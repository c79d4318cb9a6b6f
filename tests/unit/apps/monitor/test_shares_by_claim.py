"""Shares that the driver of claims made are on the monitor's page as those of annotated pods are."""

from __future__ import annotations

import asyncio

from kit.node_objects import A, B
from kit.node_world import until
from kit.region_files import Proc, region_bytes, write
from tests.unit.apps.monitor.test_feedback import busy, reported
from tests.unit.apps.monitor.test_page import play, samples

from pumice.adapters.bookings import claims as book
from pumice.adapters.region.folders import page_beside
from pumice.devices.nvidia_vgpu.plugin.claim_daemon import ShareFiles
from pumice.metrics.monitor import pod_uses
from pumice.node.claims import ClaimShare, ClaimSlice, PreparedClaim
from pumice.wire import variables
from pumice.wire.limits_page import parse

MIB = 1 << 20
UID = "c1"


def prepared(tmp_path, *shares, used=100, name="c", uid=UID, **fields):
    """The files of a prepared claim ns1/c, with a region in which a program uses some bytes of each card."""
    claim = PreparedClaim(uid, "ns1", name, shares, checked=True)
    files = ShareFiles(tmp_path / "vgpu", tmp_path / "cdi", "node-a", tmp_path / "lock", lambda uuid: 0)
    files.write(claim)
    cards = [share.card for share in shares if share.limited]
    if cards:
        each = range(len(cards))
        proc = Proc(1, dict.fromkeys(each, (10, 0, used - 10, used)), dict.fromkeys(each, 30))
        content = region_bytes(devices=len(cards), procs=(proc,), uuids={at: uuid.encode() for at, uuid in enumerate(cards)},
                               **fields)  # fmt: skip
        return files, claim, write(tmp_path / f"vgpu/claims/{uid}/gpu/{uid}.cache", content)
    return files, claim, None


def by_claim(name, *containers, claim="c", template=False, begun=True):
    """A pod whose containers use claim ``claim``, named or made of a template."""
    named = {"name": "mine", **({"resourceClaimTemplateName": "t"} if template else {"resourceClaimName": claim})}
    use = {"resources": {"claims": [{"name": "mine"}]}}
    status = {"phase": "Running" if begun else "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    if template:
        status["resourceClaimStatuses"] = [{"name": "mine", "resourceClaimName": claim}]
    if begun:
        status["containerStatuses"] = [{"name": each, "containerID": f"containerd://{name}-{each}", "state": {"running": {}}}
                                       for each in containers]  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "ns1", "uid": f"uid-{name}"},
            "spec": {"nodeName": "node-a", "resourceClaims": [named],
                     "containers": [{"name": each, **use} for each in containers]}, "status": status}  # fmt: skip


def lines(text, family):
    return {(labels["podname"], labels["ctrname"], labels["claim"], labels["share"]): value
            for labels, value in samples(text)[family]}  # fmt: skip


def test_a_share_by_claim_is_told_by_upstreams_names_with_its_claim_and_share(tmp_path):
    prepared(tmp_path, ClaimShare("gpu", "gpu-0-shared", A, 3000 * MIB, 50, share="s1"))

    async def look(page, cluster):
        text = await page()
        key = ("p", "train", "c", "s1")
        assert lines(text, "vGPU_device_memory_usage_in_bytes") == {key: 100}
        assert lines(text, "vGPU_device_memory_limit_in_bytes") == {key: 3000 * MIB}
        assert lines(text, "Device_utilization_desc_of_container") == {key: 30}
        ((labels, cores),) = samples(text)["pumice_container_core_limit_percent"]
        assert (labels["claim"], labels["request"], cores) == ("c", "gpu", 50)
        granted = {labels["deviceuuid"]: value for labels, value in samples(text)["pumice_card_granted_memory_bytes"]}
        assert granted == {A: 3000 * MIB, B: 0}
        use = pod_uses(text)["ns1", "p"]
        assert (use.used, use.limit, use.cores) == (100, 3000 * MIB, 30)

    play(tmp_path, look, by_claim("p", "train", template=True))


def test_a_share_that_several_containers_have_together_counts_once_and_never_for_a_pod_that_only_names_it(tmp_path):
    prepared(tmp_path, ClaimShare("gpu", "gpu-0-shared", A, 3000 * MIB, 50, share="s1"))

    async def look(page, cluster):
        assert lines(await page(), "vGPU_device_memory_usage_in_bytes") == {("p", "train", "c", "s1"): 100}

    play(tmp_path, look, by_claim("another", "train", begun=False), by_claim("p", "train", "log"), by_claim("q", "train"))


def test_what_a_tenant_writes_into_the_region_of_a_claim_changes_no_label_and_no_limit_and_is_told(tmp_path):
    prepared(tmp_path, ClaimShare("gpu", "gpu-0-shared", A, 1000 * MIB, 50, share="s1"))  # the region says 3000 MiB

    async def look(page, cluster):
        text = await page()
        assert lines(text, "vGPU_device_memory_limit_in_bytes") == {("p", "train", "c", "s1"): 1000 * MIB}
        assert {labels["sign"] for labels, _ in samples(text)["pumice_region_suspect"]} == {"memory-limit"}

    play(tmp_path, look, by_claim("p", "train"))


def test_a_whole_card_by_claim_is_told_with_its_memory_and_a_slice_with_its_place(tmp_path):
    place = ClaimSlice("1g.5gb", 4, 1, "MIG-1")
    prepared(tmp_path, ClaimShare("gpu", "gpu-0", A, 32768 * MIB, 100, whole=True),
             ClaimShare("gpu", "gpu-1-mig-1g5gb-19-4", B, 4864 * MIB, 14, slice=place))  # fmt: skip

    async def look(page, cluster):
        limits = {labels["deviceuuid"]: value for labels, value in samples(await page())["vGPU_device_memory_limit_in_bytes"]}
        assert limits == {A: 32768 * MIB, B: 4864 * MIB}

    play(tmp_path, look, by_claim("p", "train"))


def test_records_that_are_damaged_or_of_another_boot_or_claim_are_passed_over(tmp_path, monkeypatch):
    share = ClaimShare("gpu", "gpu-0-shared", A, 3000 * MIB, 50, share="s1")
    prepared(tmp_path, share)
    write(tmp_path / "vgpu/claim-limits/c2/claim.json", b'{"boot": "')
    write(tmp_path / "vgpu/claim-limits/c3/claim.json", book.record(PreparedClaim("c4", "ns1", "other", (share,))))

    async def look(page, cluster):
        assert list(lines(await page(), "vGPU_device_memory_limit_in_bytes")) == [("p", "train", "c", "s1")]

    play(tmp_path, look, by_claim("p", "train"), by_claim("q", "train", claim="other"))


def test_the_claim_that_the_scheduler_made_for_resources_of_a_class_is_told_too(tmp_path):
    prepared(tmp_path, ClaimShare("gpu", "gpu-0-shared", A, 3000 * MIB, 50, share="s1"))
    pod = by_claim("p", "train")
    del pod["spec"]["resourceClaims"]
    pod["spec"]["containers"] = [{"name": "train"}]
    mapping = {"containerName": "train", "resourceName": "e/gpu", "requestName": "gpu"}
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "c", "requestMappings": [mapping]}

    async def look(page, cluster):
        assert list(lines(await page(), "vGPU_device_memory_limit_in_bytes")) == [("p", "train", "c", "s1")]

    play(tmp_path, look, pod)


def half(share):
    return ClaimShare("gpu", "gpu-0-shared", A, 3000 * MIB, 50, share=share)


def important(pod):
    pod["spec"]["priority"] = 1000
    pod["spec"]["containers"][0]["env"] = [{"name": variables.TASK_PRIORITY, "value": "0"}]
    return pod


def on_page(region):
    found = parse(page_beside(region).read_bytes())
    assert found is not None
    return found.held, found.lifted


def test_less_important_work_by_claim_waits_for_more_important_and_keeps_its_cores(tmp_path):
    """Its page says so, which it cannot write; and a driver that starts again leaves containers the page that they have."""
    *_, high = prepared(tmp_path, half("s1"), recent=2)
    files, claim, low = prepared(tmp_path, half("s2"), name="d", uid="d1", recent=2)
    page = page_beside(low).stat().st_ino

    async def look(_page, cluster):
        work = asyncio.create_task(busy(high))
        await until(lambda: reported(low)[0] == -1 and on_page(low) == (50, False))
        files.write(claim)
        assert (on_page(low), page_beside(low).stat().st_ino) == ((50, False), page)
        assert reported(high)[0] >= 0
        work.cancel()
        await until(lambda: reported(low)[0] == 0 and on_page(low)[0] == 0)

    play(tmp_path, look, important(by_claim("p", "train")), by_claim("q", "train", claim="d"), feedback_every=0.05)


def test_who_is_alone_at_work_by_claim_has_no_core_limit_until_another_one_works(tmp_path):
    *_, mine = prepared(tmp_path, half("s1"), recent=2)
    *_, other = prepared(tmp_path, half("s2"), name="d", uid="d1")

    async def look(_page, cluster):
        work = [asyncio.create_task(busy(mine))]
        await until(lambda: on_page(mine) == (0, True))
        work.append(asyncio.create_task(busy(other)))
        await until(lambda: on_page(mine) == (0, False))
        for task in work:
            task.cancel()

    play(tmp_path, look, by_claim("p", "train"), by_claim("q", "train", claim="d"), feedback_every=0.05)


def test_a_share_that_pods_have_together_is_as_important_as_the_first_of_them_that_has_begun_and_goes_first(tmp_path):
    """A pod that only names the claim, and never begins, makes nobody wait."""
    *_, ours = prepared(tmp_path, half("s1"), recent=2)
    *_, other = prepared(tmp_path, half("s2"), name="d", uid="d1", recent=2)
    seen = set()

    async def only_named(_page, cluster):
        work = [asyncio.create_task(busy(path)) for path in (ours, other)]
        for _ in range(40):
            seen.add(reported(other)[0])
            await asyncio.sleep(0.005)
        for task in work:
            task.cancel()

    async def begun(_page, cluster):
        work = asyncio.create_task(busy(ours))
        await until(lambda: reported(other)[0] == -1)
        work.cancel()

    low, rival = by_claim("p", "train"), by_claim("r", "train", claim="d")
    play(tmp_path, only_named, low, important(by_claim("q", "train", begun=False)), rival, feedback_every=0.02)
    assert min(seen) >= 0
    play(tmp_path, begun, low, important(by_claim("q", "train")), rival, feedback_every=0.05)
    assert reported(other)[0] == 0  # a monitor that ends leaves nobody waiting
