"""A node with NPUs: chips that its plugin cuts for each pod (MindCluster's mode), or that its runtime cuts as the plugin says
(HAMi's mode). The driver is in memory, and a plugin may be killed at each of its calls."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from kit.admitting import Refused
from kit.fake_cluster import Json
from kit.virtual_time import VirtualClock
from tests.property.plane import npu_judge
from tests.property.plane.node import Node, Running
from tests.property.plane.npu_judge import CHIP, CORE
from tests.property.plane.processes import Connection

from pumice.apps.node.device_type import PluginSettings, ServedDevices
from pumice.apps.node.plugin import run_plugins
from pumice.audit.auditor import CHIPS
from pumice.devices.ascend_hami.node.answer import NpuSharing
from pumice.devices.ascend_hami.plugin import daemon as hami
from pumice.devices.ascend_mindcluster.plugin import daemon as mindcluster
from pumice.model.hardware.npu import slice_kinds
from pumice.ports.cards import CardFacts
from pumice.ports.slices import NpuRefused, Vnpu
from pumice.wire.npu_config import shipped

MODEL, KIND = "310P3", "Ascend310P"
CORES, CPUS, GROUPS, MOST = 8, 7, 4, 8
"""Of a chip: AI cores, AI CPUs, vGroups, and how many slices it takes."""
HALF_ENDED = 0.1
"""How often a runtime leaves the slice of a container that has ended."""


class NpuDriver:
    """The chips' slices (``ports.slices.Vnpus``), by UUID. It refuses what does not fit beside what is there."""

    def __init__(self, cards: tuple[CardFacts, ...]) -> None:
        self.chips = {card.minor: card.uuid for card in cards}
        self.slices: dict[str, dict[int, Vnpu]] = {card.uuid: {} for card in cards}

    def list(self, chip: str) -> tuple[Vnpu, ...]:
        return tuple(self.slices[chip][ident] for ident in sorted(self.slices[chip]))

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        here = self.slices[chip]
        first = 100 + 16 * next(minor for minor, uuid in self.chips.items() if uuid == chip)
        ident = next(number for number in count(first) if number not in here) if ident is None else ident
        held = [one.template for one in here.values()] + [template]
        cores, cpus = (sum(CHIPS[KIND].templates[name][at] for name in held) for at in (0, 1))
        if cores > CORES or cpus > CPUS or len(held) > MOST or ident in here:
            raise NpuRefused(f"{template} does not fit beside {held[:-1]}", -8001)
        groups = {one.group for one in here.values()}
        group = next((number for number in range(GROUPS) if number not in groups), GROUPS - 1)
        here[ident] = Vnpu(ident, template, group)
        return ident

    def destroy(self, chip: str, ident: int) -> None:
        if ident not in self.slices[chip] or self.slices[chip][ident].busy:
            raise NpuRefused("it is busy, or not there", -8020)
        del self.slices[chip][ident]

    # -- what a runtime does beside ---------------------------------------------------------------------------------------

    def use(self, ident: int, container: int) -> None:
        """A container opens a slice; 0: it has ended."""
        for here in self.slices.values():
            if ident in here:
                here[ident] = replace(here[ident], container=container, busy=bool(container))
                return
        raise NpuRefused(f"there is no vNPU {ident}")

    def of(self, container: int) -> dict[int, str]:
        """Return the chips of a container's slices."""
        return {ident: chip for chip, here in self.slices.items() for ident, one in here.items() if one.container == container}

    def reset(self) -> None:
        for here in self.slices.values():
            here.clear()


class OwnVnpus:
    """The driver as one process of the plugin meets it, which may be killed at each call that changes something."""

    def __init__(self, driver: NpuDriver, process: Connection) -> None:
        self.driver, self.process, self.list = driver, process, driver.list

    def make(self, chip: str, template: str, ident: int | None = None) -> int:
        return self.process.local("make slice", partial(self.driver.make, chip, template, ident))

    def destroy(self, chip: str, ident: int) -> None:
        self.process.local("remove slice", partial(self.driver.destroy, chip, ident))


class NpuNode(Node):
    journal: ClassVar[str]

    def __init__(self, name: str, cards: tuple[CardFacts, ...], root: Path, rng: Random, started: Any) -> None:
        super().__init__(name, cards, root, rng, started)
        self.npus, self.numbers = NpuDriver(cards), count(1)

    async def run_plugin(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        told: dict[str, Any] = {
            "device_plugin_dir": self.plugins, "booking_dirs": (self.root / "bookings",), "named_shares": "on",
            "cdi_folder": self.cdi, "transport": self.link.transport, "health_every": 3.0, "reload_every": 120.0}  # fmt: skip
        settings, devices = self.served(cluster, told)
        await run_plugins(settings, devices, cluster=cluster, clock=clock, rng=rng, stop=stop)

    def served(self, cluster: Connection, told: dict[str, Any]) -> tuple[PluginSettings, ServedDevices]:
        raise NotImplementedError

    def reboot(self) -> None:
        self.npus.reset()
        super().reboot()

    def begun(self, one: Running) -> Running:
        one = replace(one, number=next(self.numbers))
        try:
            self.opened(one)
        except NpuRefused as error:
            raise Refused(str(error)) from error
        self.told_anew.add(one.pod["metadata"]["uid"])
        return one

    def opened(self, one: Running) -> None:
        raise NotImplementedError

    def left(self, one: Running) -> None:
        for ident in self.npus.of(one.number):
            self.npus.use(ident, 0)

    def ended(self, one: Running) -> None:
        self.left(one)

    def named(self, uid: str, container: str) -> Json:
        one = self.running.get((uid, container))
        return {"containerID": f"containerd://{one.number:012x}{'0' * 52}"} if one is not None else {}

    def wrong(self, given: dict[str, Json]) -> list[str]:
        """Return a sentence for each container that has something else than was granted."""
        slices = {chip: [(one.container, one.template) for one in here.values()] for chip, here in self.npus.slices.items()}
        return npu_judge.wrong_containers(self.running.values(), given, slices, self.npus.chips)

    def stays(self) -> list[str]:
        path = self.root / self.journal
        entries = json.loads(path.read_text())["slices"] if path.exists() else []
        return [*(f"vNPU {one.id} ({one.template}) of {chip} stays" for chip, here in self.npus.slices.items()
                  for one in here.values()),
                *(f"{self.journal} says {entry}" for entry in entries)]  # fmt: skip


class CutNode(NpuNode):
    """The plugin makes each slice; a container opens it."""

    resource, journal = CORE, f"cut/{KIND}.cut.json"

    def served(self, cluster: Connection, told: dict[str, Any]) -> tuple[PluginSettings, ServedDevices]:
        settings = mindcluster.Settings(self.name, journal=self.root / "cut", **told)
        return settings, mindcluster.mindcluster(settings, slice_kinds()[KIND], cluster, self.cards, OwnVnpus(self.npus, cluster))

    def opened(self, one: Running) -> None:
        if one.seen.env.get("ASCEND_RUNTIME_OPTIONS") == "VIRTUAL":
            for ident in one.seen.env["ASCEND_VISIBLE_DEVICES"].split(","):
                self.npus.use(int(ident), one.number)


class HamiNode(NpuNode):
    """The runtime makes a slice when a container starts, and destroys it when that ends."""

    resource, journal = CHIP, f"hook/{KIND}.json"

    def served(self, cluster: Connection, told: dict[str, Any]) -> tuple[PluginSettings, ServedDevices]:
        chip = next(chip for chip in shipped().chips if chip.name == MODEL)
        settings = hami.Settings(self.name, hook_path=self.root / "hook", sweep_every=20.0, **told)
        return settings, hami.ascend(settings, NpuSharing(chip), self.cards, OwnVnpus(self.npus, cluster))

    def opened(self, one: Running) -> None:
        if template := one.seen.env.get("ASCEND_VNPU_SPECS"):
            chip = self.npus.chips[int(one.seen.env["ASCEND_VISIBLE_DEVICES"])]
            self.npus.use(self.npus.make(chip, template), one.number)

    def ended(self, one: Running) -> None:
        held = self.npus.of(one.number)
        self.left(one)
        for ident, chip in held.items():
            if self.rng.random() >= HALF_ENDED:
                self.npus.destroy(chip, ident)
