"""Another version takes the plugin's place and gives it back while twenty pods are being allocated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kit.node_objects import NODE, A, B, container, gives, pod_object
from kit.node_world import until
from kit.plugin_world import World, in_a_world

from pumice.wire import limits_page, names

NUMBER = names.VGPU_NUMBER
PODS = 20


class Kubelet:
    """Admits the pods one by one, each with ids that nobody has, and starts their containers."""

    def __init__(self, world: World) -> None:
        self.world, self.taken, self.next = world, set[str](), 0
        self.answers: dict[str, Any] = {}
        self.regions: dict[str, tuple[int, bytes]] = {}
        self.allocated: list[tuple[str, str, str]] = []
        self.waiting: list[str] = []

    async def admit(self, count: int) -> None:
        for _ in range(count):
            name, self.next = f"p{self.next}", self.next + 1
            units = await self.world.kubelet.until(NUMBER, lambda units: len(units) == 20)
            card = B if int(name[1:]) % 2 else A
            unit = min(unit for unit in units if unit.startswith(card) and unit not in self.taken)
            self.taken.add(unit)
            answer = self.answers[name] = await self.world.kubelet.allocate(NUMBER, 1, [unit])
            self.allocated.append((self.world.cluster.found("pods", name)["metadata"]["uid"], "train", unit))
            self.world.kubelet.write_record(NUMBER, *self.allocated)
            self.world.cluster.change("pods", name, {"status": {"phase": "Running"}})
            self.waiting.append(name)
            assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == card

    async def start(self) -> None:
        """Start the containers that wait, once what they mount is there."""
        for name in self.waiting:
            await until(self.region(name).exists)
            self.region(name).write_bytes(f"of {name}".encode())
            self.regions[name] = (self.region(name).stat().st_ino, self.region(name).read_bytes())
        self.waiting.clear()

    def region(self, name: str) -> Path:
        mounts = {mount.container_path: mount.host_path for mount in self.answers[name].mounts}
        return Path(mounts[self.answers[name].envs["CUDA_DEVICE_MEMORY_SHARED_CACHE"]])


@in_a_world
async def test_twenty_allocating_pods_are_served_over_an_upgrade_and_a_downgrade_and_regions_go_on(world: World):
    (world.root / "new.so").write_bytes(b"\x7fELF second")
    for number in range(PODS):
        cards, wants = gives(B if number % 2 else A, 1000 + number, 5), container("train", 1, 1000 + number, 5)
        world.cluster.put(pod_object(f"p{number}", cards, wants, time=1760000000 + number))
    kubelet, library = Kubelet(world), world.root / "hook/libvgpu.so"
    for count, version in ((7, "lib.so"), (6, "new.so"), (7, "lib.so")):
        async with world.plugin(library=world.root / version):
            await kubelet.admit(count - 1)
            await kubelet.start()
            mapped = library.open("rb")
            writing = asyncio.Event()
            world.cluster.gate = slow(writing)
            last = asyncio.create_task(kubelet.admit(1))
            await writing.wait()  # the plugin ends while it answers
        world.cluster.gate = slow(asyncio.Event(), 0.0)
        await last
        world.kubelet.lists.clear()
        with mapped:
            assert mapped.read() == (world.root / version).read_bytes(), "who has a library mapped keeps it"
    async with world.plugin():
        await kubelet.start()
    for name, answer in kubelet.answers.items():
        notes = world.cluster.notes("pods", name)
        assert notes[names.BIND_PHASE] == "success"
        memory = 1000 + int(name[1:])
        assert answer.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{memory}m"
        region = kubelet.region(name)
        assert (region.stat().st_ino, region.read_bytes()) == kubelet.regions[name], "a plugin that starts leaves regions alone"
        page = next(mount.host_path for mount in answer.mounts if mount.container_path == limits_page.PATH)
        assert limits_page.parse(Path(page).read_bytes()).cards[0].memory == memory << 20
    assert len(kubelet.answers) == PODS
    async with world.plugin():
        assert len(world.cluster.notes("nodes", NODE)[names.HANDED_OUT].splitlines()) == PODS


def slow(writing: asyncio.Event, seconds: float = 0.3) -> Callable[[str, str], Awaitable[None]]:
    """An API server that takes its time with a pod's state, and tells when it is asked."""

    async def gate(verb: str, path: str) -> None:
        if verb == "PATCH" and path.endswith("/status") and "/pods/" in path:
            writing.set()
            await asyncio.sleep(seconds)

    return gate
