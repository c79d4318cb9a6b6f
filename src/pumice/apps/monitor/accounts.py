"""Has every byte on the node's cards an account? Looked at from time to time, told by metric and event (``node.accounts``)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec.structs import replace

from pumice.adapters.region.writer import write_host_pid
from pumice.apps.monitor.reader import ContainerUsage, DriverWatch, Look, NodeReader, Snapshot
from pumice.apps.service.own_node import OwnNode
from pumice.effects.vocabulary import Event
from pumice.model.amount import MIB
from pumice.model.errors import Unavailable
from pumice.node.accounts import SENTENCES, Accounts, Granted, Key, Sign, Tenant, Unaccounted, signs
from pumice.node.pods import NodePod
from pumice.ports.clock import Clock
from pumice.ports.processes import Owners
from pumice.ports.region import BadRegion

log = logging.getLogger("pumice.monitor")

SUSPECT, UNACCOUNTED = "RegionSuspect", "UnaccountedMemory"
EVENTS = 20
"""Events of one round; what is over is told in the next ones. A node may hold hundreds of hostile containers."""


class AccountRounds:
    """The rounds that count the cards' processes. ``found`` is what the last round found, ``measured`` what the driver counts
    of containers without a region. What is seen twice in a row is told by an event, once for as long as it lasts: a program
    that begins is on its card a moment before its account is."""

    def __init__(self, reader: NodeReader, driver: DriverWatch, owners: Owners, own: OwnNode, every: float) -> None:
        self._reader, self._driver, self._owners, self._own, self._every = reader, driver, owners, own, every
        self.found: list[Unaccounted] = []
        self.measured: Mapping[tuple[Key, str], int] = {}
        self._before: set[tuple[str, ...]] = set()
        self._reported: set[tuple[str, ...]] = set()
        self._unlike: dict[tuple[Key, int, int], int] = {}

    async def run(self, clock: Clock) -> None:
        await self._own.pods_synced.wait()
        await self._own.node_synced.wait()
        while True:
            await clock.sleep(self._every)
            await self.round()

    async def round(self) -> None:
        snapshot = await self._reader.snapshot(self._every / 2)
        look = await self._driver.look(self._every / 2)
        pods = {pod.uid: pod for pod in self._own.pods if not pod.finished}
        accounts = await accounts_of(snapshot, look, self._owners, pods)
        self.found, self.measured = accounts.unaccounted(), accounts.measured()
        await asyncio.to_thread(self._name, accounts, snapshot)
        await self._report(self._sentences(snapshot, pods))

    def _name(self, accounts: Accounts, snapshot: Snapshot) -> None:
        """Write the host's numbers into regions that lack them, and still do a round later: a library that sees its own number in
        the driver's list writes that itself, and it counts."""
        lacking = {(key, slot, pid): host for key, slot, pid, host in accounts.host_pids()}
        for (key, slot, pid), host in lacking.items():
            usage = snapshot.usages[key]
            path = usage.path if usage.of is None or usage.of.alone else None  # who shares a region may have the same numbers
            if self._unlike.get((key, slot, pid)) == host and path is not None:
                with suppress(BadRegion, Unavailable):
                    write_host_pid(path, slot, pid, host)
        self._unlike = lacking

    def _sentences(self, snapshot: Snapshot, pods: Mapping[str, NodePod]) -> dict[tuple[str, ...], Callable[[], Event]]:
        """All there is to complain of now, by what tells it apart."""
        now: dict[tuple[str, ...], Callable[[], Event]] = {}
        for key, sign in suspects(snapshot):
            now[SUSPECT, *key, sign] = lambda key=key, sign=sign: Event.on_pod(  # type: ignore[misc]
                pods[key[0]].metadata, "Warning", SUSPECT, f"container {key[1]}: {SENTENCES[sign]}")
        for one in self.found:
            now[UNACCOUNTED, *(one.owner or ("", "")), one.card] = lambda one=one: self._of(one, pods)  # type: ignore[misc]
        return {what: make for what, make in now.items() if not what[1] or what[1] in pods}

    def _of(self, one: Unaccounted, pods: Mapping[str, NodePod]) -> Event:
        used = f"{one.memory // MIB} MiB of card {one.card}"
        if one.owner is None:
            name = self._own.name
            text = f"a program outside of this node's pods holds {used}: whoever was given that card may find less than promised"
            return Event.on_node(name, "Warning", UNACCOUNTED, text)
        who = f"container {one.owner[1]}" if one.owner[1] else "a container"
        text = f"{who} holds {used} more than its region says" if one.region else f"{who} holds {used} without a region"
        return Event.on_pod(pods[one.owner[0]].metadata, "Warning", UNACCOUNTED, f"{text}: its limit does not hold for them")

    async def _report(self, now: Mapping[tuple[str, ...], Callable[[], Event]]) -> None:
        due = [what for what in now if what in self._before and what not in self._reported]
        for what in due[:EVENTS]:
            event = now[what]()
            log.warning("%s %s/%s: %s", event.reason, event.namespace, event.name, event.message)
            await self._own.recorder.try_to_write(event)
        self._reported = (self._reported & now.keys()) | set(due[:EVENTS])
        self._before = set(now)


async def accounts_of(snapshot: Snapshot, look: Look, owners: Owners, pods: Mapping[str, NodePod]) -> Accounts:
    """``pods``: those that have not ended, by UID."""
    whose = await asyncio.to_thread(owners.owners, [process.pid for process in look.processes])
    tenants = {key: _tenant(usage) for key, usage in snapshot.usages.items() if not usage.ended}
    return Accounts(look.processes, whose, tenants, pods, _containers(pods))


def suspects(snapshot: Snapshot) -> list[tuple[Key, Sign]]:
    """The doubts about regions, of containers that have not ended."""
    found: list[tuple[Key, Sign]] = []
    for key, usage in snapshot.usages.items():
        if usage.ended:
            continue
        if usage.trouble:
            found.append((key, Sign.UNREADABLE))
        elif usage.lost and usage.pod.running(usage.container.name):  # one that begins anew gets a new region
            found.append((key, Sign.GONE))
        found += [(key, sign) for sign in signs(_tenant(usage))]
    return found


def _tenant(usage: ContainerUsage) -> Tenant:
    granted = [Granted(device.uuid, device.memory * usage.unit, device.cores) for device in usage.devices if device.slot < 0]
    report = usage.report
    if report is not None and usage.of is not None and not usage.of.first:
        report = replace(report, processes=())  # a process is one container's
    return Tenant(granted, report, usage.mps, whole=usage.of is not None and usage.of.whole)


def _containers(pods: Mapping[str, NodePod]) -> dict[str, Key]:
    """Name by container id, as the kubelet tells it: ``containerd://<id>``."""
    return {
        status.container_id.rpartition("/")[2]: (uid, status.name)
        for uid, pod in pods.items()
        for status in pod.container_statuses
        if status.container_id
    }
