"""The monitor's feedback to the regions, and that it follows its ConfigMap (spec nvidia-device-plugin 18.5)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kit.node_objects import A, B, gives, pod_object
from kit.node_world import until
from tests.unit.metrics.region_files import region_bytes, write
from tests.unit.metrics.test_monitor_page import play, samples

from pumice.adapters.region import read_region
from pumice.ports.region import RegionSnapshot
from pumice.wire import names


def region(tmp_path: Path, uid: str, card: str, **fields: int) -> Path:
    folder = tmp_path / "vgpu/containers" / f"{uid}_train"
    return write(folder / "r.cache", region_bytes(devices=1, uuids={0: card.encode()}, **fields))


def running(name: str, card: str) -> dict[str, object]:
    return pod_object(name, gives(card), uid=name, phase="Running")


def told(path: Path) -> tuple[int, int]:
    seen: RegionSnapshot = read_region(path)
    return seen.recent_kernel, seen.utilization_switch


def test_less_important_work_waits_until_the_more_important_is_silent(tmp_path):
    high, low = region(tmp_path, "high", A, priority=0, recent=2), region(tmp_path, "low", A, priority=1, recent=2)
    elsewhere = region(tmp_path, "elsewhere", B, priority=1, recent=9)

    async def look(page, cluster):
        await until(lambda: told(low)[0] == -1)
        assert told(low) == (-1, 1)
        await until(lambda: told(high)[0] == 0)  # nobody launches: two rounds later it counts as silent
        await until(lambda: told(low) == (0, 0))
        await until(lambda: told(elsewhere) == (0, 0))

    play(tmp_path, look, running("high", A), running("low", A), running("elsewhere", B), feedback_every=0.05)


def test_when_the_monitor_stops_nobody_is_left_waiting(tmp_path):
    high, low = region(tmp_path, "high", A, priority=0, recent=10_000), region(tmp_path, "low", A, recent=2)

    async def look(page, cluster):
        await until(lambda: told(low)[0] == -1)

    play(tmp_path, look, running("high", A), running("low", A), feedback_every=0.05)
    assert told(low)[0] == 0
    assert told(high)[0] > 0


def test_only_containers_that_live_are_spoken_to(tmp_path):
    ended, gone = region(tmp_path, "ended", A, recent=5), region(tmp_path, "gone", A, recent=5)
    alive = region(tmp_path, "alive", A, recent=5)
    body = running("ended", A)
    body["status"]["containerStatuses"] = [{"name": "train", "state": {"terminated": {"exitCode": 0}}}]  # type: ignore[index]
    before = {path: path.read_bytes() for path in (ended, gone)}

    async def look(page, cluster):
        await until(lambda: told(alive)[0] == 0)

    play(tmp_path, look, body, running("alive", A), feedback_every=0.02)
    assert {path: path.read_bytes() for path in (ended, gone)} == before


def test_a_region_that_is_no_region_or_a_link_is_left_alone(tmp_path):
    broken = write(tmp_path / "vgpu/containers/broken_train/r.cache", b"x" * 5000)
    outside = write(tmp_path / "outside.cache", region_bytes(devices=1, uuids={0: A.encode()}, recent=5))
    (tmp_path / "vgpu/containers/linked_train").mkdir(parents=True)
    os.symlink(outside, tmp_path / "vgpu/containers/linked_train/r.cache")
    before = outside.read_bytes()
    sound = region(tmp_path, "sound", A, recent=3)

    async def look(page, cluster):
        await until(lambda: told(sound)[0] == 0)

    play(tmp_path, look, *(running(name, A) for name in ("broken", "linked", "sound")), feedback_every=0.02)
    assert broken.read_bytes() == b"x" * 5000
    assert outside.read_bytes() == before


def test_it_can_be_switched_off(tmp_path):
    path = region(tmp_path, "p", A, recent=5)
    before = path.read_bytes()

    async def look(page, cluster):
        await page()

    play(tmp_path, look, running("p", A), feedback=False, feedback_every=0.0)
    assert path.read_bytes() == before


def test_a_changed_configmap_is_followed_and_a_broken_one_is_not(tmp_path):
    def configmap(text: str) -> dict[str, object]:
        meta = {"name": names.DEVICE_CONFIGMAP, "namespace": "kube-system"}
        return {"metadata": meta, "data": {names.DEVICE_CONFIG_KEY: text}}

    async def look(page, cluster):
        async def limits() -> list[float]:
            return [value for _, value in samples(await page()).get("vGPU_device_memory_limit_in_bytes", [])]

        (unit,) = await limits()
        cluster.put("configmaps", configmap("nvidia:\n  gpuMemoryFactor: 10\n"))
        async with asyncio.timeout(60):
            while await limits() != [10 * unit]:
                pass
        for broken in ("nvidia: 3", "{"):
            cluster.put("configmaps", configmap(broken))
            assert await limits() == [10 * unit]
        cluster.put("configmaps", configmap("nvidia:\n  gpuMemoryFactor: 2\n"))
        async with asyncio.timeout(60):
            while await limits() != [2 * unit]:
                pass

    play(tmp_path, look, running("p", A), reload_every=0.02)
