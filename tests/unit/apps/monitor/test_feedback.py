"""The monitor's feedback to the regions, and that it follows its ConfigMap (HAMi volcano-vgpu-device-plugin cmd/vgpu-monitor)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from kit.node_objects import A, B, container, gives, pod_object
from kit.node_world import until
from kit.region_files import region_bytes, write
from tests.unit.apps.monitor.test_page import play, samples

from pumice.adapters.region import read_region
from pumice.adapters.region.folders import page_beside
from pumice.adapters.region.writer import write_feedback
from pumice.ports.region import RegionSnapshot
from pumice.wire import names, variables
from pumice.wire.limits_page import GrantedCard, LimitsPage, parse, render


def region(tmp_path: Path, uid: str, card: str, **fields: int) -> Path:
    folder = tmp_path / "vgpu/containers" / f"{uid}_train"
    return write(folder / "r.cache", region_bytes(devices=1, uuids={0: card.encode()}, **fields))


def running(name: str, card: str, priority: int | None = None, cores: int = 50) -> dict[str, object]:
    """Its variable says the priority; 0 is of a PriorityClass, too."""
    env = [] if priority is None else [{"name": variables.TASK_PRIORITY, "value": str(priority)}]
    body = pod_object(name, gives(card), container("train", 1, 3000, cores, env=env), uid=name, phase="Running")
    body["spec"]["priority"] = 1000 if priority == 0 else 0  # type: ignore[index]
    return body


async def busy(path: Path) -> None:
    """Launches without a pause."""
    while True:
        write_feedback(path, recent=2)
        await asyncio.sleep(0.005)


def reported(path: Path) -> tuple[int, int]:
    seen: RegionSnapshot = read_region(path)
    return seen.recent_kernel, seen.utilization_switch


def test_less_important_work_waits_until_the_more_important_is_silent(tmp_path):
    high, low = region(tmp_path, "high", A, recent=2), region(tmp_path, "low", A, recent=2)
    elsewhere = region(tmp_path, "elsewhere", B, priority=1, recent=9)

    async def look(page, cluster):
        await until(lambda: reported(low)[0] == -1)
        assert reported(low) == (-1, 1)
        await until(lambda: reported(high)[0] == 0)  # nobody launches: two rounds later it counts as silent
        await until(lambda: reported(low) == (0, 0))
        await until(lambda: reported(elsewhere) == (0, 0))

    play(tmp_path, look, running("high", A, 0), running("low", A), running("elsewhere", B), feedback_every=0.05)


def test_when_the_monitor_stops_nobody_is_left_waiting(tmp_path):
    high, low = region(tmp_path, "high", A, recent=2), region(tmp_path, "low", A, recent=2)

    async def look(page, cluster):
        work = asyncio.create_task(busy(high))
        await until(lambda: reported(low)[0] == -1)
        work.cancel()

    play(tmp_path, look, running("high", A, 0), running("low", A), feedback_every=0.05)
    assert reported(low)[0] == 0


def test_what_a_pod_says_of_its_priority_makes_nobody_wait_unless_a_priority_class_grants_it(tmp_path):
    """One of a hundredth of the cores froze everybody else on its card."""
    bully, victim = region(tmp_path, "bully", A, recent=2), region(tmp_path, "victim", A, recent=2)
    seen = set()

    async def look(page, cluster):
        work = [asyncio.create_task(busy(path)) for path in (bully, victim)]
        for _ in range(40):
            seen.add(reported(victim)[0])
            await asyncio.sleep(0.005)
        for task in work:
            task.cancel()

    said = running("bully", A, 0)
    said["spec"]["priority"] = 0  # type: ignore[index]
    play(tmp_path, look, said, running("victim", A), feedback_every=0.02)
    assert min(seen) >= 0


@pytest.mark.parametrize(("cores", "floor"), [(0, 5), (30, 30)])
def test_who_is_held_back_keeps_what_it_was_granted_or_a_twentieth_by_a_page_that_it_cannot_write(tmp_path, cores, floor):
    high, low = region(tmp_path, "high", A, recent=2), region(tmp_path, "low", A, recent=2)
    page = page_beside(low)
    write(page, render(LimitsPage((GrantedCard(A, 3000 << 20, cores),), "/tmp/vgpu/r.cache", priority=1)))

    def held() -> int:
        found = parse(page.read_bytes())
        assert found is not None
        return found.held

    async def look(_page, cluster):
        work = asyncio.create_task(busy(high))
        await until(lambda: held() == floor)
        beats = page.read_bytes()
        await until(lambda: page.read_bytes() != beats)  # as long as the monitor lives
        work.cancel()
        await until(lambda: held() == 0)

    low_pod = pod_object("low", gives(A, 3000, cores), container("train", 1, 3000, cores), uid="low", phase="Running")
    play(tmp_path, look, running("high", A, 0), low_pod, feedback_every=0.05)


def test_what_a_tenant_writes_into_its_region_makes_nobody_wait(tmp_path):
    """The file is the tenant's: cards and priority are taken from what was granted, and activity counts for a round."""
    everywhere = {0: A.encode(), 1: B.encode()}
    thief = write(tmp_path / "vgpu/containers/thief_train/r.cache",
                  region_bytes(devices=2, uuids=everywhere, priority=-(2**31), recent=2**31 - 1))  # fmt: skip
    victims = [region(tmp_path, name, card, priority=1, recent=2) for name, card in (("same", A), ("other", B))]
    seen = set()

    async def look(page, cluster):
        for _ in range(40):
            seen.update(reported(victim)[0] for victim in victims)
            for victim in victims:
                write_feedback(victim, recent=2)
            await asyncio.sleep(0.005)

    play(tmp_path, look, running("thief", A), running("same", A), running("other", B), feedback_every=0.02)
    assert min(seen) >= 0
    assert reported(thief)[0] <= 2


def test_a_core_limit_is_lifted_and_set_again_on_the_page_whatever_the_tenant_writes_into_its_region(tmp_path):
    mine, other = region(tmp_path, "mine", A, recent=2), region(tmp_path, "other", A, recent=2)
    page = page_beside(mine)
    write(page, render(LimitsPage((GrantedCard(A, 3000 << 20, 50),), "/tmp/vgpu/r.cache", lifted=True)))

    def lifted() -> bool:
        found = parse(page.read_bytes())
        assert found is not None
        return found.lifted

    async def look(_page, cluster):
        together = [asyncio.create_task(busy(path)) for path in (mine, other)]
        await until(lambda: not lifted())  # although its region says that the limit is on
        together[1].cancel()
        await until(lambda: lifted() and reported(mine)[1] == 0)
        together[0].cancel()

    play(tmp_path, look, running("mine", A), running("other", A), feedback_every=0.05)


def test_cards_are_those_that_the_plugin_says_it_handed_out_whatever_stands_on_the_pod(tmp_path):
    high, low = region(tmp_path, "high", A, recent=2), region(tmp_path, "low", B, recent=2)
    handed = {names.HANDED_OUT: f"high {gives(A)}\nlow {gives(B)}\n"}
    seen = set()

    async def look(page, cluster):
        work = asyncio.create_task(busy(high))
        write_feedback(low, recent=2)
        for _ in range(40):
            seen.add(reported(low)[0])
            await asyncio.sleep(0.005)
        work.cancel()

    forged = running("high", B, 0)
    play(tmp_path, look, forged, running("low", B), notes=handed, feedback_every=0.02)
    assert min(seen) >= 0


def test_who_waits_goes_on_now_and_then_however_long_the_more_important_works(tmp_path):
    high, low = region(tmp_path, "high", A, recent=2), region(tmp_path, "low", A, recent=2)

    async def look(page, cluster):
        work = asyncio.create_task(busy(high))
        for _ in range(2):
            await until(lambda: reported(low)[0] == -1)
            await until(lambda: reported(low)[0] >= 0)
        work.cancel()

    play(tmp_path, look, running("high", A, 0), running("low", A), feedback_every=0.03, max_wait=0.06)


def test_only_containers_that_live_are_spoken_to(tmp_path):
    ended, gone = region(tmp_path, "ended", A, recent=5), region(tmp_path, "gone", A, recent=5)
    alive = region(tmp_path, "alive", A, recent=5)
    body = running("ended", A)
    body["status"]["containerStatuses"] = [{"name": "train", "state": {"terminated": {"exitCode": 0}}}]  # type: ignore[index]
    before = {path: path.read_bytes() for path in (ended, gone)}

    async def look(page, cluster):
        await until(lambda: reported(alive)[0] == 0)

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
        await until(lambda: reported(sound)[0] == 0)

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


def configmap(text: str) -> dict[str, object]:
    meta = {"name": names.DEVICE_CONFIGMAP, "namespace": "kube-system"}
    return {"kind": "ConfigMap", "metadata": meta, "data": {names.DEVICE_CONFIG_KEY: text}}


def test_a_changed_configmap_is_followed_and_a_broken_one_is_not(tmp_path):
    async def look(page, cluster):
        async def limits() -> list[float]:
            return [value for _, value in samples(await page()).get("vGPU_device_memory_limit_in_bytes", [])]

        (unit,) = await limits()
        cluster.put(configmap("nvidia:\n  gpuMemoryFactor: 10\n"))
        async with asyncio.timeout(60):
            while await limits() != [10 * unit]:
                pass
        for broken in ("nvidia: 3", "{"):
            cluster.put(configmap(broken))
            assert await limits() == [10 * unit]
        cluster.put(configmap("nvidia:\n  gpuMemoryFactor: 2\n"))
        async with asyncio.timeout(60):
            while await limits() != [2 * unit]:
                pass

    play(tmp_path, look, running("p", A), reload_every=0.02)


def burst_on(page: Path) -> int:
    """Return the percent that a limits page lends."""
    found = parse(page.read_bytes())
    assert found is not None
    return found.burst


def test_who_may_burst_has_what_its_neighbours_leave_where_the_configmap_lets_it(tmp_path):
    mine, other = region(tmp_path, "mine", A, recent=2), region(tmp_path, "other", A, recent=2)
    page = page_beside(mine)
    write(page, render(LimitsPage((GrantedCard(A, 3000 << 20, 30),), "/tmp/vgpu/r.cache", priority=1)))

    async def look(_page, cluster):
        work = [asyncio.create_task(busy(path)) for path in (mine, other)]
        cluster.put(configmap("nvidia: {bursts: true}"))
        await until(lambda: burst_on(page) == 45)  # 25 that neither asked for are one's alone who may burst: up to its bound
        beats = page.read_bytes()
        await until(lambda: page.read_bytes() != beats)  # as long as the monitor lives
        cluster.put(configmap("nvidia: {bursts: false}"))
        await until(lambda: burst_on(page) == 0)
        for task in work:
            task.cancel()

    bursting = pod_object("mine", gives(A, 3000, 30), container("train", 1, 3000, 30), uid="mine", phase="Running",
                          annotations={names.BURST_CORES: "45"})  # fmt: skip
    plain = pod_object("other", gives(A, 3000, 45), container("train", 1, 3000, 45), uid="other", phase="Running")
    play(tmp_path, look, bursting, plain, feedback_every=0.05, reload_every=0.02)


def test_who_works_alone_hears_beats_and_what_a_monitor_of_before_lent_is_taken_back(tmp_path):
    """The library limits the cores again when they stop. A process that has just begun would believe an old word for 20 s."""
    mine = region(tmp_path, "mine", A, recent=2)
    page = page_beside(mine)
    write(page, render(LimitsPage((GrantedCard(A, 3000 << 20, 50),), "/tmp/vgpu/r.cache", lifted=True, priority=1, burst=80)))

    async def look(_page, cluster):
        work = asyncio.create_task(busy(mine))
        seen = page.read_bytes()
        for _ in range(3):
            await until(lambda last=seen: page.read_bytes() != last)
            seen = page.read_bytes()
        work.cancel()
        found = parse(seen)
        assert found is not None
        assert (found.lifted, found.burst) == (True, 0)

    play(tmp_path, look, running("mine", A), feedback_every=0.02)


def test_what_was_lent_is_taken_back_from_a_container_that_spoiled_its_region_meanwhile(tmp_path):
    mine, other = region(tmp_path, "mine", A, recent=2), region(tmp_path, "other", A, recent=2)
    page, sound = page_beside(mine), mine.read_bytes()
    write(page, render(LimitsPage((GrantedCard(A, 3000 << 20, 30),), "/tmp/vgpu/r.cache", priority=1)))

    async def look(_page, cluster):
        cluster.put(configmap("nvidia: {bursts: true}"))
        await until(lambda: burst_on(page) == 90)
        mine.write_bytes(b"x" * len(sound))
        work = asyncio.create_task(busy(other))
        await asyncio.sleep(0.2)
        mine.write_bytes(sound)
        await until(lambda: burst_on(page) == 0)
        work.cancel()

    theirs = pod_object("other", gives(A, 3000, 70), container("train", 1, 3000, 70), uid="other", phase="Running")
    lent = pod_object("mine", gives(A, 3000, 30), container("train", 1, 3000, 30), uid="mine", phase="Running",
                      annotations={names.BURST_CORES: "90"})  # fmt: skip
    play(tmp_path, look, lent, theirs, feedback_every=0.02, reload_every=0.02)
