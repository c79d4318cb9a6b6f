"""One node: its cards, its kubelet with the runtime, and its device plugin. The record of devices and the files outlive both."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from kit.admitting import Refused, Seen
from kit.fake_cluster import Json
from kit.mig_rules import RuledSlices
from kit.virtual_time import VirtualClock
from tests.property.plane import last_release
from tests.property.plane.processes import Connection
from tests.property.plane.transport import Link, MemoryKubelet

from pumice.devices.nvidia_vgpu.plugin import daemon as vgpu_plugin
from pumice.ports.cards import LOST, CardEvent, CardFacts, CardReading
from pumice.ports.cluster import ApiError
from pumice.ports.slices import Place
from pumice.wire import kinds
from pumice_lab.kubelet.devices import cdi
from pumice_lab.kubelet.devices.checkpoint import allocation_from
from pumice_lab.runtime.spec import StartFailed

NUMBER = "volcano.sh/vgpu-number"
MODEL = "A30"
"""Of cards in MIG mode."""
LIFE = "plane/seconds"
"""How long the program of a pod runs."""
TICK = 1.0
HOLD_ON = 6.0
"""Seconds between two tries to start a container."""


@dataclass
class StillCards:
    """Cards as NVML told of them; ``lost`` do not answer."""

    cards: tuple[CardFacts, ...]
    lost: set[str] = field(default_factory=set)
    news: list[CardEvent] = field(default_factory=list)

    def facts(self) -> tuple[CardFacts, ...]:
        return self.cards

    def readings(self) -> tuple[CardReading, ...]:
        return ()

    def subscribe(self, uuids: Sequence[str]) -> dict[str, str]:
        return {uuid: "lost" for uuid in uuids if uuid in self.lost}

    def events(self) -> tuple[CardEvent, ...]:
        told, self.news = tuple(self.news), []
        return told

    def answers(self, uuid: str) -> bool:
        return uuid not in self.lost

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Running:
    """A container that runs: its mounts and environment, and its pod as it was when it started."""

    pod: Json
    container: str
    seen: Seen
    number: int = 0
    """By which the driver of an NPU knows it."""


@dataclass
class Local:
    """What kubelet and runtime know of one pod."""

    pod: Json
    state: str = "new"
    """new, admitted, running, ended"""
    since: float = 0.0
    again: float = 0.0
    going: float | None = None
    """Since when it has been told to end."""


class OwnSlices:
    """The driver as one process of the plugin meets it, which may be killed at each call."""

    def __init__(self, driver: RuledSlices, process: Connection) -> None:
        self.driver, self.process = driver, process
        self.profiles, self.slices, self.allowed = driver.profiles, driver.slices, driver.allowed

    def make(self, place: Place) -> None:
        self.process.local("make slice", partial(self.driver.make, place))

    def fill(self, place: Place) -> str:
        return self.process.local("fill slice", partial(self.driver.fill, place))

    def drain(self, place: Place) -> None:
        self.process.local("drain slice", partial(self.driver.drain, place))

    def remove(self, place: Place) -> None:
        self.process.local("remove slice", partial(self.driver.remove, place))


class Node:
    resource = NUMBER
    last = False
    """Whether its plugin is the last release's."""
    was_last = False
    """Whether it was at any time: what that has answered stays."""

    def __init__(self, name: str, cards: tuple[CardFacts, ...], root: Path, rng: Random,
                 started: Callable[[Node, Running], None]) -> None:
        self.name, self.root, self.rng, self._started = name, root, rng, started
        self.driver = RuledSlices({card.uuid: MODEL if card.mig else "" for card in cards})
        self.cards = StillCards(cards)
        self.link = Link()
        self.plugins, self.cdi = root / "device-plugins", root / "cdi"
        for folder in (self.plugins, self.cdi):
            folder.mkdir(parents=True)
        (root / "lib.so").write_bytes(b"\x7fELF first")
        self.kubelet = MemoryKubelet(self.link, self.plugins, rng, self.cdi)
        self.local: dict[str, Local] = {}
        self.running: dict[tuple[str, str], Running] = {}
        self.refused: dict[str, str] = {}
        self.told_anew: set[str] = set()
        """UIDs of pods with a container that has another id than was said."""
        self._advertised: dict[str, str] = {}
        self._pods: dict[str, tuple[int, Json]] = {}
        """Each pod of the cluster with its revision, as it was listed last."""

    # -- the device plugin ------------------------------------------------------------------------------------------------

    async def run_plugin(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        own = last_release.client(cluster, last=self.last)
        await self._code().run(self.settings(), cluster=own, clock=clock, rng=rng, stop=stop, cards=self.cards,
                               slices=last_release.slices(OwnSlices(self.driver, cluster), last=self.last))  # fmt: skip

    def _code(self) -> Any:
        return last_release.code("devices.nvidia_vgpu.plugin.daemon", last=self.last)

    def settings(self) -> vgpu_plugin.Settings:
        return self._code().Settings(  # type: ignore[no-any-return]
            self.name, device_plugin_dir=self.plugins, hook_path=self.root / "hook", lock_dir=self.root / "lock",
            library=self.root / "lib.so", node_config=self.root / "none.json", booking_dirs=(self.root / "bookings",),
            named_shares="on", cdi_folder=self.cdi, transport=self.link.transport, health_every=3.0, reload_every=120.0,
        )  # fmt: skip

    # -- the kubelet and the runtime --------------------------------------------------------------------------------------

    async def run_kubelet(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        self.cluster, self.clock = cluster, clock
        for uid, found in self.local.items():  # every pod is admitted again: devices that the record has stay with it
            recorded = any(key[0] == uid for key in self.kubelet.pod_devices.entries)
            found.state = "new" if found.state == "admitted" and not recorded else found.state
        revision = -1
        await self.kubelet.start()
        try:
            await self._register()
            while not stop.is_set():
                with suppress(ApiError):
                    if cluster.api.storage.revision != revision:
                        revision = cluster.api.storage.revision
                        await self._observe()
                    await self._sync()
                await clock.sleep(TICK)
        finally:
            await self.kubelet.stop()

    def restart_containers(self) -> None:
        """Containers are gone, and what lies below /run; the kubelet starts them again. It asks anew for those that its record
        does not have (Kubernetes pkg/kubelet/cm/devicemanager/manager.go: needsReAllocate)."""
        for one in self.running.values():
            self.left(one)
        self.running.clear()
        for uid, found in self.local.items():
            if found.state == "running":
                found.state = "admitted" if any(key[0] == uid for key in self.kubelet.pod_devices.entries) else "new"
        shutil.rmtree(self.cdi)
        self.cdi.mkdir()

    def reboot(self) -> None:
        """Containers are gone, and so are all slices and what lies below /run; the kubelet's record stays."""
        for slice_ in [slice_ for card in self.cards.cards for slice_ in self.driver.slices(card.uuid)]:
            if not slice_.half:
                self.driver.drain(slice_.place)
            self.driver.remove(slice_.place)
        self.restart_containers()

    def lies(self) -> dict[str, tuple[str, str, int]]:
        """The whole slices that are there: card, profile and begin, by UUID."""
        return {one.uuid: (one.place.card, one.place.profile, one.place.start)
                for card in self.cards.cards if card.mig for one in self.driver.slices(card.uuid) if not one.half}  # fmt: skip

    def halves(self) -> list[str]:
        return [f"{slice_.place} of {card.uuid}" for card in self.cards.cards if card.mig
                for slice_ in self.driver.slices(card.uuid) if slice_.half]  # fmt: skip

    def could_start(self, uid: str, container: str) -> bool:
        """Return whether a runtime finds what the kubelet's record names for the container, if it has an entry."""
        allocated = self.kubelet.pod_devices.entries.get((uid, container))
        if allocated is None:
            return True
        try:
            cdi.resolve(cdi.requested([allocation_from(allocated.response)]), [self.cdi])
        except StartFailed:
            return False
        return True

    def lose_record(self) -> None:
        self.kubelet.pod_devices.entries.clear()
        (self.plugins / "kubelet_internal_checkpoint").unlink(missing_ok=True)

    async def _register(self) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        body = {"metadata": {"name": self.name, "annotations": {}}, "status": {"allocatable": amounts, "capacity": amounts}}
        while True:
            try:
                await self.cluster.put_node(body)
                return
            except ApiError:
                await self.clock.sleep(1.0)

    async def _observe(self) -> None:
        self.cluster.answers_lists()
        there = {}
        for one in self.cluster.api.storage.objects("v1/pods"):  # as a list answers, without making it a text and reading that
            old = self._pods.get(one.name)
            pod = old[1] if old is not None and old[0] == one.revision else one.value()
            self._pods[one.name] = one.revision, pod
            if pod["spec"].get("nodeName") == self.name:
                there[pod["metadata"]["uid"]] = pod
        for uid in self.local.keys() - there.keys():  # deleted by force
            await self._forget(uid)
            del self.local[uid]
        for uid, pod in there.items():
            found = self.local.setdefault(uid, Local(pod, since=self.clock.monotonic()))
            found.pod = pod

    async def _sync(self) -> None:
        devices = {self.resource: str(sum(self.kubelet.lists.get(self.resource, {}).values()))}
        if devices != self._advertised:
            self._advertised = {}  # whether a write that fails was carried out is not known
            await self.cluster.patch(kinds.NODES, self.name, {"status": {"allocatable": devices, "capacity": devices}},
                                     subresource="status")  # fmt: skip
            self._advertised = devices
        for uid, found in sorted(self.local.items(), key=lambda item: (item[1].since, item[0])):
            await self._sync_pod(uid, found)

    async def _sync_pod(self, uid: str, found: Local) -> None:
        pod, now = found.pod, self.clock.monotonic()
        phase = pod["status"].get("phase", "Pending")
        if pod["metadata"].get("deletionTimestamp") and not self._goes_on(uid, found):
            await self._forget(uid)
            meta = pod["metadata"]
            with suppress(ApiError):
                await self.cluster.delete(kinds.PODS, meta["name"], meta["namespace"], uid=uid, grace=0)
            return
        if phase in ("Succeeded", "Failed") or found.state == "ended":
            await self._forget(uid)
            found.state = "ended"
            if phase not in ("Succeeded", "Failed"):
                await self._report(found, "Failed", reason=self.refused.get(uid, "Error"))
            return
        if pod["metadata"].get("deletionTimestamp"):
            return
        if found.state == "new":
            await self._admit(uid, found)
        if found.state in ("admitted", "running") and self._overdue(pod):
            found.state = "ended"
            await self._forget(uid)
            await self._report(found, "Failed", reason="DeadlineExceeded")
            return
        if found.state == "admitted" and now >= found.again:
            await self._start(uid, found)
        if found.state == "running":
            life = float(pod["metadata"].get("annotations", {}).get(LIFE, "inf"))
            if now > found.since + life:
                await self._forget(uid)
                await self._report(found, "Succeeded")
                found.state = "ended"
            elif phase != "Running" or uid in self.told_anew:
                await self._report(found, "Running")
                self.told_anew.discard(uid)

    def _goes_on(self, uid: str, found: Local) -> bool:
        """Return whether its program still has time to end."""
        now = self.clock.monotonic()
        found.going = now if found.going is None else found.going
        runs = any(key[0] == uid for key in self.running)
        return runs and now < found.going + float(found.pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    async def _admit(self, uid: str, found: Local) -> None:
        if self.resource not in self.kubelet.lists and self._wants(found.pod):
            text = f"no devices of {self.resource} are registered"  # the real one fails the pod as well
        else:
            try:
                await self.kubelet.admit(found.pod, self.resource)
                text = ""
            except Refused as error:
                text = error.text
        if text:
            self.kubelet.leave(uid)
            self.refused[uid] = "UnexpectedAdmissionError"
            found.state = "ended"
            await self._report(found, "Failed", reason="UnexpectedAdmissionError", message=text[:500])
        else:
            found.state = "admitted"
            await self._report(found, "Pending")

    async def _start(self, uid: str, found: Local) -> None:
        if not await self.prepared(found.pod):
            found.again = self.clock.monotonic() + HOLD_ON
            return
        for each in (*found.pod["spec"].get("initContainers", ()), *found.pod["spec"]["containers"]):
            if (uid, each["name"]) in self.running:
                continue
            try:
                # a kubelet that was restarted knows no options of a plugin that has not registered again, and asks nobody
                seen = await self.kubelet.start_container(found.pod, each, pre_start=self.resource in self.kubelet.options)
                one = self.begun(Running(found.pod, each["name"], seen))
            except Refused:
                found.again = self.clock.monotonic() + HOLD_ON
                return
            if each in found.pod["spec"]["containers"]:
                self.running[uid, each["name"]] = one
            self._started(self, one)
            if each not in found.pod["spec"]["containers"]:
                self.ended(one)
        found.state, found.since = "running", self.clock.monotonic()

    async def _forget(self, uid: str) -> None:
        for key, one in list(self.running.items()):
            if key[0] == uid:
                del self.running[key]
                self.ended(one)
        self.kubelet.leave(uid)

    def _overdue(self, pod: Json) -> bool:
        return pod["spec"].get("activeDeadlineSeconds") is not None

    async def _report(self, found: Local, phase: str, **more: str) -> None:
        stamp = datetime.fromtimestamp(self.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = found.pod["metadata"]
        status: dict[str, Any] = {"phase": phase, "startTime": found.pod["status"].get("startTime") or stamp, **more}
        if phase == "Running":
            status["containerStatuses"] = [
                {"name": c["name"], "image": "x", "imageID": "", "ready": True, "restartCount": 0,
                 "state": {"running": {"startedAt": stamp}}, **self.named(meta["uid"], c["name"])}
                for c in found.pod["spec"]["containers"]]  # fmt: skip
        try:
            await self.cluster.patch(kinds.PODS, meta["name"], {"metadata": {"uid": meta["uid"]}, "status": status},
                                     meta["namespace"], subresource="status")  # fmt: skip
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    def _wants(self, pod: Json) -> bool:
        return any(self.resource in (c["resources"].get("limits") or {}) for c in pod["spec"]["containers"])

    # -- what a runtime that knows the devices does beside ------------------------------------------------------------------

    async def prepared(self, pod: Json) -> bool:
        """Return whether what its containers need beside devices is there."""
        return True

    def held_up(self, pod: Json) -> bool:
        """Return whether the pod cannot start while others go on who may stay for ever."""
        return False

    def befall_daemon(self, card: int, what: str) -> None:
        """No control daemon of MPS runs here."""

    def damage_book(self, text: str | None) -> None:
        """Nobody has claims here."""

    def lose(self, uuid: str) -> None:
        """The driver says that a card is lost."""
        self.cards.lost.add(uuid)
        self.cards.news.append(CardEvent(uuid, LOST))

    def begun(self, one: Running) -> Running:
        """A container is about to start. Raises Refused: it is tried again."""
        return one

    def ended(self, one: Running) -> None:
        """A container has ended."""

    def left(self, one: Running) -> None:
        """A container has ended unseen."""

    def named(self, uid: str, container: str) -> Json:
        """Return what the status of a container that runs says of it beside."""
        return {}

    def rest(self) -> None:
        """Nobody works here."""

    def told(self) -> list[str]:
        """Return what broke a promise since the last time."""
        return []

    async def said_wrongly(self, given: Mapping[str, Json], alive: set[str]) -> list[str]:
        """Return a sentence for each thing that a monitor says or does wrongly. ``given``: pods as they were bound, by UID;
        ``alive``: keys of those that have not ended."""
        return []

    def stays(self) -> list[str]:
        """Return a sentence for each thing of pods that are gone."""
        return []
