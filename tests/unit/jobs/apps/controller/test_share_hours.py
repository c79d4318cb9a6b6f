"""The controller keeps the record of share-hours: from the API server's objects and the monitors' pages to `pumice usage`."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest
from kit.faulty_cluster import FaultyCluster, faulty_cluster
from kit.objects import node, pod
from kit.virtual_time import VirtualClock, run_virtually

from pumice.cli import usage
from pumice.metrics.monitor import pod_uses
from pumice.metrics.npu import SliceOwner, SliceView, npu_families
from pumice.metrics.text import render
from pumice.model.errors import BadInput, Unavailable
from pumice.ports.cards import CardReading
from pumice.ports.cluster import ApiError
from pumice.wire import kinds, volcano
from pumice.wire.held_shares import cards_of, owner_of, request_of, shares_of
from pumice.wire.objects import Meta, OwnerReference
from pumice.wire.share_hours import DAY, config_map_of
from pumice.wire.times import stamp
from pumice_jobs.apps.controller.daemon import Controller, Settings

SYSTEM = "volcano-system"
USED = "hami_vgpu_memory_used_bytes"
LIMIT = "hami_vgpu_memory_limit_bytes"
BUSY = "hami_container_device_utilization_ratio"


def page(pod_name: str, used: object, limit: object, cores: object = 30) -> str:
    where = f'{{container="main",device_uuid="GPU-n1-0",namespace="default",pod="{pod_name}",vdevice_index="0",zone="vGPU"}}'
    return f"{USED}{where} {used}\n{LIMIT}{where} {limit}\n{BUSY}{where} {cores}\n"


class World:
    """A cluster with one controller; the monitor of the node says ``page``."""

    def __init__(self, cluster: FaultyCluster, clock: VirtualClock) -> None:
        self.cluster, self.clock, self.page = cluster, clock, ""
        self.start()

    def start(self, seed: int = 1) -> None:
        self.stop = asyncio.Event()
        self.controller = Controller(Settings(listen="127.0.0.1:0"), self.cluster, self.clock, random.Random(seed), self.stop)
        self.controller.share_hours.fetch = self.fetch
        self.task = asyncio.create_task(self.controller.run())

    async def fetch(self, url: str, patience: float, most: int) -> str:
        if self.page == "hangs":
            await self.clock.sleep(10**6)
        if not self.page:
            raise Unavailable(f"{url} is away")
        return self.page

    async def bind(self, name: str, **kind: Any) -> None:
        made = pod(name, **kind)
        made["metadata"] = {key: value for key, value in made["metadata"].items() if key not in ("uid", "creationTimestamp")}
        made["metadata"]["annotations"] |= {"volcano.sh/vgpu-ids-new": "GPU-n1-0,NVIDIA,2000,25:", **kind.get("annotations", {})}
        made.pop("status")
        made["spec"]["nodeName"] = "n1"
        await self.cluster.create(kinds.PODS, made, "default")

    async def finish(self, name: str) -> None:
        ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": stamp(self.clock.now())}}}
        body = {"status": {"phase": "Succeeded", "containerStatuses": [ended]}}
        await self.cluster.patch(kinds.PODS, name, body, "default", subresource="status")

    async def usage(self, by: str = "namespace,queue,model,kind") -> dict[str, dict[str, float | None]]:
        now = self.clock.now()
        days = await usage.days_of(self.cluster, SYSTEM, now - 5 * DAY, now)
        return {"/".join(each.of): dict(each.hours) for each in usage.summed(days, by.split(","), now - 5 * DAY, now)}

    async def close(self) -> None:
        self.stop.set()
        await self.task


async def world() -> World:
    clock = VirtualClock()
    cluster = await faulty_cluster(clock)
    made = node("n1", cards=2, mib=8000)
    made["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    await cluster.put_node(made)
    await cluster.create(volcano.QUEUES, {"metadata": {"name": "team"}, "spec": {"weight": 1}})
    return World(cluster, clock)


MODEL = "NVIDIA-Tesla V100-SXM2-16GB"
OF_TEAM, OF_DEFAULT = f"default/team/{MODEL}/vgpu", f"default/default/{MODEL}/vgpu"


def test_an_hour_of_a_quarter_of_a_card_and_what_the_monitor_saw_of_it() -> None:
    async def story() -> None:
        w = await world()
        w.page = page("a", 1000, 2000)
        await w.bind("a", queue="team")
        await w.bind("b", queue="no-such-queue")
        await w.clock.sleep(3600)
        await w.finish("a")
        await w.clock.sleep(3600)
        found = await w.usage()
        a, b = found[OF_TEAM], found[OF_DEFAULT]
        assert (a["shares"], a["memory"], a["cores"], a["limitCores"]) == pytest.approx((1, 0.25, 0.25, 0.25), abs=0.01)
        assert (a["usedMemory"], a["usedCores"]) == pytest.approx((0.125, 0.3), abs=0.02)
        assert a["seenMemory"] == pytest.approx(1, abs=0.06)
        assert b["shares"] == pytest.approx(2, abs=0.12)
        assert (b["usedMemory"], b["usedCores"], b["seenMemory"]) == (None, None, 0)  # the page says nothing of it
        text = w.controller.metrics_text()
        labels = f'kind="vgpu",measure="shares",model="{MODEL}",namespace="default",queue="team"'
        assert f"pumice_share_hours_total{{{labels}}}" in text
        await w.close()

    run_virtually(story())


def test_an_hour_of_npu_slices_and_what_the_plugin_saw_of_them() -> None:
    """The plugin tells percent of a slice's cores, and slices of nobody that it knows."""

    async def story() -> None:
        w = await world()
        asked: list[str] = []

        async def fetch(url: str, patience: float, most: int) -> str:
            asked.append(url)
            owner, stranger = SliceOwner("default", "a", "main"), SliceOwner()
            chip = CardReading(0, "NPU-0", 0, 24 << 30, 0, name="310P3")
            slices = [SliceView(100, chip, "vir04", 4, 12000, 3000, 50, owner),
                      SliceView(101, chip, "vir02", 2, 6000, 6000, 99, stranger)]  # fmt: skip
            return render(npu_families([chip], slices, []))

        w.controller.share_hours.fetch = fetch
        made = node("n2")
        made["metadata"]["labels"] = {"servertype": "Ascend310P-8"}
        await w.cluster.put_node(made)
        plugin = pod("plugin", node="n2", labels={"app.kubernetes.io/component": "ascend-mindcluster-plugin"})
        plugin["metadata"] = {key: plugin["metadata"][key] for key in ("name", "labels")}
        plugin.pop("status")
        plugin["spec"]["nodeName"] = "n2"
        await w.cluster.create(kinds.PODS, plugin, "kube-system")
        address = {"status": {"podIP": "10.1.1.1"}}
        await w.cluster.patch(kinds.PODS, "plugin", address, "kube-system", subresource="status")
        user = pod("a", annotations={"huawei.com/npu-core": "0-vir04"})
        user["metadata"] = {key: user["metadata"][key] for key in ("name", "annotations")}
        user.pop("status")
        user["spec"]["nodeName"] = "n2"
        await w.cluster.create(kinds.PODS, user, "default")
        await w.clock.sleep(3600)
        row = (await w.usage())["default/default/Ascend310P/npu"]
        assert (row["shares"], row["memory"], row["cores"]) == pytest.approx((1, 0.5, 0.5), abs=0.1)
        assert (row["usedMemory"], row["usedCores"]) == pytest.approx((0.125, 0.25), abs=0.03)
        assert set(asked) == {"http://10.1.1.1:9395/metrics"}
        await w.close()

    run_virtually(story())


def test_the_record_is_written_every_five_minutes_however_slowly_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        w = await world()
        w.page = page("a", 1000, 2000)
        writes = 0
        patch = w.cluster.patch

        async def slow(resource: Any, name: str, *more: Any, **kind: Any) -> Any:
            nonlocal writes
            writes += name.startswith("pumice-share-hours-")
            await w.clock.sleep(0.02)
            return await patch(resource, name, *more, **kind)

        monkeypatch.setattr(w.cluster, "patch", slow)
        await w.bind("a", queue="team")
        await w.clock.sleep(3600)
        assert 10 <= writes <= 13
        row = (await w.usage())[OF_TEAM]
        assert row["shares"] == pytest.approx(1, abs=0.12)
        assert row["usedMemory"] == pytest.approx(0.125, abs=0.02)
        await w.close()

    run_virtually(story())


@pytest.mark.parametrize("reported", ["", "hangs", page("a", "NaN", 2000, "NaN"), page("a", -1, 2000, -5),
                                  page("a", 10**15, 1, 1e9),
                                  page("a", 5, 0, "x"), page("other", 1, 2)])  # fmt: skip
def test_a_monitor_that_is_away_hangs_or_lies_makes_use_unknown_and_never_nothing(reported: str) -> None:
    async def story() -> None:
        w = await world()
        w.page = reported
        await w.bind("a", queue="team")
        await w.clock.sleep(1800)
        row = (await w.usage())[OF_TEAM]
        assert row["shares"] == pytest.approx(0.5, abs=0.1)
        assert row["usedMemory"] is None
        assert row["usedCores"] is None
        await w.close()

    run_virtually(story())


def test_a_controller_that_is_killed_and_comes_back_later_counts_once_what_was_there_meanwhile() -> None:
    async def story() -> None:
        w = await world()
        await w.bind("a", queue="team")
        await w.bind("gone", queue="team")
        await w.clock.sleep(1830)
        w.task.cancel()
        await asyncio.gather(w.task, return_exceptions=True)
        await w.clock.sleep(1770)
        await w.finish("a")
        await w.cluster.delete(kinds.PODS, "gone", "default", grace=0)
        await w.clock.sleep(3600)
        w.start(seed=2)
        await w.clock.sleep(900)
        row = (await w.usage())[OF_TEAM]
        counted = row["shares"] or 0.0
        assert counted == pytest.approx(1 + 0.5, abs=0.1)  # all of a, and what was written of the one that vanished
        assert row["reconstructed"] == pytest.approx(0.5, abs=0.1)
        assert row["lost"] == pytest.approx(1.5, abs=0.1)
        await w.close()

    run_virtually(story())


def test_a_record_that_another_wrote_meanwhile_is_gone_on_from_and_one_that_says_nothing_is_written_anew() -> None:
    async def story() -> None:
        w = await world()
        await w.bind("a", queue="team")
        await w.clock.sleep(900)
        name = config_map_of(int(w.clock.now() // DAY))
        await w.cluster.patch(kinds.CONFIGMAPS, name, {"metadata": {"labels": {"x": "y"}}}, SYSTEM)
        await w.clock.sleep(900)
        assert (await w.usage())[OF_TEAM]["shares"] == pytest.approx(0.5, abs=0.12)
        await w.cluster.patch(kinds.CONFIGMAPS, name, {"data": {"until": "soon"}}, SYSTEM)
        with pytest.raises(BadInput, match=f"{name}: until: 'soon'"):
            await w.usage()
        await w.clock.sleep(1800)
        assert (await w.usage())[OF_TEAM]["shares"] == pytest.approx(1, abs=0.12)
        await w.close()

    run_virtually(story())


def test_an_api_server_that_refuses_the_record_does_not_end_the_controller_and_nothing_is_lost() -> None:
    async def story() -> None:
        w = await world()
        await w.bind("a", queue="team")
        await w.clock.sleep(600)
        w.cluster.fault = lambda verb, path: (  # type: ignore[method-assign]
            ApiError(403, "Forbidden", "no") if "share-hours" in path and verb != "GET" else None)  # fmt: skip
        await w.clock.sleep(1800)
        w.cluster.fault = lambda verb, path: None  # type: ignore[method-assign]
        await w.clock.sleep(1200)
        assert (await w.usage())[OF_TEAM]["shares"] == pytest.approx(1, abs=0.12)
        assert not w.task.done()
        await w.close()

    run_virtually(story())


# -- shares of what stands in annotations ------------------------------------------------------------------------------


def shares(notes: dict[str, str], limits: dict[str, Any] | None = None) -> dict[str, tuple[float, ...]]:
    register = "GPU-0,10,8000,NVIDIA-T4,true,hami-core:GPU-1,7,40960,NVIDIA-A100,true,mig,places:"
    npus = json.dumps([{"id": "Ascend-0", "count": 4, "devmem": 65536, "devcore": 20, "type": "Ascend910B3", "health": True}])
    registered = {"volcano.sh/node-vgpu-register": register, "hami.io/node-register-Ascend910B3": npus}
    meta = Meta("n", annotations=registered, labels={"servertype": "Ascend310P-8"})
    found = shares_of(notes, limits or {}, cards_of(meta, {"volcano.sh/gpu-memory": "64", "volcano.sh/gpu-number": "4"}))
    return {f"{s.model}/{s.kind}": (s.shares, s.memory, s.cores, s.limit_memory, s.limit_cores) for s in found}


def test_shares_of_every_device_type() -> None:
    vgpu = "volcano.sh/vgpu-ids-new"
    assert shares({vgpu: "GPU-0,NVIDIA,2000,25:;GPU-0,NVIDIA,2000,0:"}) == {"NVIDIA-T4/vgpu": (2, 0.5, 0.25, 0.5, 1.0)}
    assert shares({vgpu: "GPU-1[1g.5gb@0],NVIDIA,4096,0:"}) == {"NVIDIA-A100/mig": (1, 0.1, 0, 0.125, 0.125)}
    assert shares({vgpu: "GPU-1[group1-0],NVIDIA,4096,0:"}) == {"NVIDIA-A100/mig": (1, 0.1, 0, 0.1, 0.1)}
    assert shares({"hami.io/Ascend910B3-devices-allocated": "Ascend-0,Ascend910B3,16384,0:;"}) == {
        "Ascend910B3/npu": (1, 0.25, 0, 0.25, 0.25)
    }
    assert shares({"huawei.com/npu-core": "0-vir04_3c"}) == {"Ascend310P/npu": (1, 0.5, 0.5, 0.5, 0.5)}
    assert shares({"huawei.com/npu-core": "0,1"}) == {"Ascend310P/npu": (2, 2, 2, 2, 2)}
    assert shares({"volcano.sh/gpu-index": "1"}, {"volcano.sh/gpu-memory": 8}) == {"NVIDIA/gpushare": (1, 0.5, 0, 0.5, 1.0)}
    assert shares({"volcano.sh/gpu-index": "1,2"}, {"volcano.sh/gpu-number": 2}) == {"NVIDIA/gpushare": (2, 2, 2, 2, 2)}


@pytest.mark.parametrize("text", [
    "", ";;;", "GPU-9,NVIDIA,1,1:", "x" * 5000, "GPU-0,NVIDIA,4294967295,4294967295:" * 3000, "GPU-0,NVIDIA,-1,1:", "\x00",
    "é,,,:",
])  # fmt: skip
def test_a_hostile_annotation_counts_for_no_more_than_the_cards_of_its_node(text: str) -> None:
    keys = ("volcano.sh/vgpu-ids-new", "volcano.sh/gpu-index", "huawei.com/npu-core", "hami.io/Ascend910B3-devices-allocated")
    for share in shares(dict.fromkeys(keys, text)).values():
        assert all(0 <= part <= 4 for part in share[1:])
        assert share[0] <= 10


def test_names_lose_what_is_generated_and_requests_are_words() -> None:
    for name, owner in (("train-0", "train"), ("train-7d4b9c6f5d-x2x5k", "train"), ("eval-28571040", "eval"), ("solo", "solo")):
        assert owner_of(Meta(name)) == owner
    assert owner_of(Meta("a", owner_references=[OwnerReference("Job", "nightly-28571040", controller=True)])) == "nightly"
    limits: dict[str, Any] = {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 4000, "cpu": "4"}
    assert request_of(limits) == "vgpu-memory=4000,vgpu-number=1"


def test_times_of_a_question_are_read_and_others_are_named() -> None:
    assert usage.moment("--since", "7d", 10**6) == 10**6 - 7 * 86400
    assert usage.moment("--since", "90m", 10**6) == 10**6 - 5400
    assert usage.moment("--since", "1970-01-02", 0) == 86400
    for text in ("", "7", "d", "yesterday", "2026-13-01", "99999999d"):
        with pytest.raises(BadInput, match="7d, 36h"):
            usage.moment("--since", text, 0)


def test_a_page_is_read_as_far_as_it_can_be() -> None:
    assert pod_uses("garbage\n" + USED + '{container="c"} 5\n') == {}
    (use,) = pod_uses(page("a", 1, 2) + page("a", 1, 2)).values()
    assert (use.used, use.limit, use.cores) == (2, 4, 60)


