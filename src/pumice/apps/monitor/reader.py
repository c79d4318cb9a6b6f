"""The one reader of a node's regions. Feedback, the page and the accounts use what it has read last.

The driver's figures of the cards, read in a thread of its own: an unhealthy card may keep a call for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from pumice.adapters.bookings.claims import recorded
from pumice.adapters.region import ContainerFolders
from pumice.adapters.region.folders import ClaimFolders, held_by_mps, region_named
from pumice.adapters.region.reports import ReportReader
from pumice.apps.service.own_node import OwnNode
from pumice.apps.service.worker import Worker
from pumice.devices.nvidia_vgpu.node.allocations import granted
from pumice.model.amount import MIB
from pumice.model.errors import BadInput
from pumice.node.accounts import Key
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.node.pods import Container, NodePod
from pumice.ports.cards import CardProcess, CardReading, CardsUnavailable, InstanceReading, WatchedCards
from pumice.ports.clock import Clock
from pumice.ports.region import BadRegion, RegionReport
from pumice.wire import names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import PodDevice, handed_to

log = logging.getLogger("pumice.monitor")


@dataclass(frozen=True, slots=True)
class OfClaim:
    """The request of a claim by which a container has its cards. All containers of a request have one region: ``first`` tells
    it, and ``alone`` says that there is no other."""

    claim: str
    request: str
    shares: tuple[ClaimShare, ...]
    first: bool
    alone: bool

    @property
    def whole(self) -> bool:
        return all(share.whole for share in self.shares)


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """A container that was given cards, and its region. What it was given comes from the plugin and its spec, or from the record
    of its claim, never from the region. ``unit``: bytes in which that counts memory. ``trouble``: why its region cannot be read;
    ``lost``: an earlier reading found one; ``mps``: it has none, for an MPS server holds its limits."""

    pod: NodePod
    container: Container
    devices: tuple[PodDevice, ...]
    ended: bool = False
    path: Path | None = None
    report: RegionReport | None = None
    trouble: str = ""
    lost: bool = False
    mps: bool = False
    unit: int = MIB
    of: OfClaim | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of one reading. ``strangers``: regions of containers that, as far as is known, were given no cards."""

    usages: Mapping[Key, ContainerUsage] = field(default_factory=dict)
    strangers: int = 0
    config: NvidiaConfig = field(default_factory=NvidiaConfig)


class _Known(NamedTuple):
    """The devices of the containers of a pod, and the annotations that they were read from."""

    pod: NodePod
    handed: str
    config: NvidiaConfig
    devices: Mapping[str, tuple[PodDevice, ...]]


class NodeReader:
    """Reads in a thread of its own, once for all who ask at the same time. ``folders`` tells where containers' folders lie."""

    def __init__(self, folders: Callable[[], Path], own: OwnNode, config: NvidiaConfig) -> None:
        self._folders, self._own, self._config = folders, own, config
        self._worker, self._reports, self._turn = Worker("regions"), ReportReader(), asyncio.Lock()
        self._allocations: dict[str, _Known] = {}
        self._seen: frozenset[Key] = frozenset()
        self._basis: tuple[list[NodePod], NvidiaConfig, str] | None = None
        self._at = 0.0
        self.last = Snapshot()

    async def snapshot(self, max_age: float = 0.0) -> Snapshot:
        """The last reading, made anew when it is older than this or pods or configuration have changed since."""
        async with self._turn:
            pods = [pod for pod in self._own.pods if not pod.finished]
            basis = (pods, self._config, self._published())
            now = self._own.clock.monotonic()
            if not (self._basis and _same(self._basis, basis) and now - self._at <= max_age):
                self.last = await self._worker.call(lambda: self._read(pods))
                self._basis, self._at = basis, now
            return self.last

    def configure(self, config: NvidiaConfig) -> None:
        """From the next reading on, resource names and units are those."""
        if config != self._config:
            log.info("device configuration changed")
            self._config = config

    def close(self) -> None:
        self._worker.close()

    def _published(self) -> str:
        node = self._own.node
        return node.metadata.annotations.get(names.HANDED_OUT, "") if node is not None else ""

    def _read(self, pods: Sequence[NodePod]) -> Snapshot:
        root = self._folders()
        folders = ContainerFolders(root)
        there = folders.containers()
        usages: dict[Key, ContainerUsage] = {}
        unit = MIB * max(1, self._config.gpu_memory_factor)
        published, allocated = self._published(), dict[str, _Known]()
        for pod in pods:
            allocated[pod.uid] = self._allocated(pod, published)
            given = allocated[pod.uid].devices
            if not given:
                continue
            ended = {status.name for status in pod.container_statuses if "terminated" in status.state}
            for container in pod.containers:
                if devices := given.get(container.name):
                    key = pod.uid, container.name
                    usage = ContainerUsage(pod, container, devices, container.name in ended, unit=unit)
                    if held_by_mps(root, "_".join(key)):
                        usages[key] = replace(usage, mps=True)
                    else:
                        usages[key] = self._usage(usage, folders, there.get(key))
        strangers = len(there.keys() - usages.keys())
        for usage in _by_claim(ClaimFolders(root.parent), pods):
            usages.setdefault((usage.pod.uid, usage.container.name), self._usage(usage, folders))
        self._allocations = allocated
        self._seen = frozenset(key for key, usage in usages.items() if usage.report is not None or usage.trouble or usage.lost)
        return Snapshot(usages, strangers, self._config)

    def _usage(self, usage: ContainerUsage, folders: ContainerFolders, folder: Path | None = None) -> ContainerUsage:
        """With what its region says: the one that it names, else the one in its folder."""
        path, report, trouble = usage.path, None, ""
        try:
            if path is None and folder is not None:
                path = region_named(folder) or folders.region(folder)
            report = self._reports.read(path, {device.uuid for device in usage.devices}) if path is not None else None
        except BadRegion as error:
            log.debug("%s", error)
            trouble = "" if error.early else str(error)
        key = usage.pod.uid, usage.container.name
        lost = report is None and not trouble and key in self._seen
        return replace(usage, path=path, report=report, trouble=trouble, lost=lost)

    def _allocated(self, pod: NodePod, published: str) -> _Known:
        """Return the devices of its containers; cached while the pod does not change."""
        config = self._config
        known = self._allocations.get(pod.uid)
        handed = handed_to(published, pod.uid)
        if known is None or known.pod is not pod or known.handed != handed or known.config is not config:
            devices = granted(pod, self._own.name, config.resource_count_name, config.resource_memory_name, handed)
            known = _Known(pod, handed, config, devices)
        return known


def _by_claim(folders: ClaimFolders, pods: Sequence[NodePod]) -> Iterator[ContainerUsage]:
    """The containers that have cards by claim, without what their regions say. A pod may name a claim that is another's: it never
    begins, for the kubelet refuses it, so those that have begun come first."""
    users: dict[tuple[str, str], list[tuple[NodePod, Container, str]]] = {}
    for pod in pods:
        for container in pod.containers if pod.spec.resource_claims or pod.status.extended_resource_claim_status else ():
            for name, request in pod.claims_of(container):
                users.setdefault((pod.metadata.namespace, name), []).append((pod, container, request))
    for claim in _prepared(folders) if users else ():
        for request in dict.fromkeys(share.request for share in claim.shares if not share.admin):
            shares = tuple(share for share in claim.shares if share.request == request)
            devices = tuple(_device(share) for share in shares)
            path = folders.region(claim.uid, request) if any(share.limited for share in shares) else None
            those = [(pod, container) for pod, container, named in users.get((claim.namespace, claim.name), ())
                     if named in ("", request.partition("/")[0])]  # fmt: skip
            those.sort(key=lambda one: (not one[0].started(one[1].name), one[0].arrival))
            for at, (pod, container) in enumerate(those):
                ended = any(one.name == container.name and "terminated" in one.state for one in pod.container_statuses)
                of = OfClaim(claim.name, request, shares, first=at == 0, alone=len(those) == 1)
                by_mps = all(share.mps is not None for share in shares)
                yield ContainerUsage(pod, container, devices, ended, path, mps=by_mps, of=of)


def _prepared(folders: ClaimFolders) -> Iterator[PreparedClaim]:
    """The claims that the node's driver has prepared, by its own records."""
    for path in sorted(folders.pages("-").parent.glob("*/claim.json")):
        try:
            claim = recorded(path)
        except BadInput as error:
            log.debug("%s", error)
            continue
        if claim is not None and claim.uid == path.parent.name:
            yield claim


def _device(share: ClaimShare) -> PodDevice:
    if share.slice is None:
        return PodDevice(share.card, share.memory // MIB, share.cores)
    return PodDevice(share.card, share.memory // MIB, share.cores, slot=share.slice.start, profile=share.slice.profile)


def _same(before: tuple[list[NodePod], NvidiaConfig, str], now: tuple[list[NodePod], NvidiaConfig, str]) -> bool:
    pods, others = before[0], now[0]
    same = len(pods) == len(others) and all(one is other for one, other in zip(pods, others, strict=True))
    return same and before[1] is now[1] and before[2] == now[2]


PATIENCE = 2.0
"""Seconds for which a page waits for the driver; then it tells of the containers alone."""


@dataclass(frozen=True, slots=True)
class Look:
    """The driver's figures at one moment. ``silent``: seconds for which it has owed an answer, 0 while it does not."""

    readings: tuple[CardReading, ...] = ()
    processes: tuple[CardProcess, ...] = ()
    instances: tuple[InstanceReading, ...] = ()
    silent: float = 0.0
    order: dict[str, int] = field(default_factory=dict)
    """NVML's index by UUID, of all cards ever seen."""


class DriverWatch:
    """The cards of the driver, opened as soon as it answers. ``opened`` opens the cards, and is tried again until it does;
    ``cards``: those of somebody who closes them."""

    def __init__(self, opened: Callable[[], WatchedCards], cards: WatchedCards | None, clock: Clock,
                 patience: float = PATIENCE) -> None:  # fmt: skip
        self._patience = patience
        self._open, self._cards, self._given, self._clock = opened, cards, cards is not None, clock
        self._worker = Worker("driver")
        self._requested: asyncio.Task[Look] | None = None
        self._began, self._at, self._warned = 0.0, float("-inf"), ""
        self._last = Look()

    async def look(self, max_age: float = 0.0) -> Look:
        """Return the figures of now, or of at most so many seconds ago; of a driver that does not answer, only for how long."""
        now = self._clock.monotonic()
        if now - self._at <= max_age:
            return self._last
        requested = self._requested
        if requested is None or requested.done():
            self._began = now
            requested = self._requested = asyncio.create_task(self._worker.call(self._look))
        done, _ = await asyncio.wait([requested], timeout=self._patience)
        if done:
            self._last, self._at = requested.result(), self._clock.monotonic()
            return self._last
        silent = self._clock.monotonic() - self._began
        self._warn(f"the driver has not answered for {self._patience:g} s")
        return Look(silent=max(silent, self._patience), order=self._last.order)

    def close(self) -> None:
        """A call that hangs is left behind with what it uses."""
        if self._requested is not None:
            self._requested.cancel()
        self._worker.close(self._give_back, self._patience)

    def _give_back(self) -> None:
        if self._cards is not None and not self._given:
            self._cards.close()

    def _look(self) -> Look:
        try:
            if self._cards is None:
                self._cards = self._open()
            cards = self._cards
            readings = cards.readings()
            order = self._last.order | {reading.uuid: reading.index for reading in readings}
            return Look(readings, cards.processes(), cards.instances(), order=order)
        except CardsUnavailable as error:
            self._warn(f"no cards: {error}")
            return Look(order=self._last.order)

    def _warn(self, text: str) -> None:
        if text != self._warned:
            log.warning("%s", text)
            self._warned = text
