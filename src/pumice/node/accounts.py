"""Accounts of what a driver counts on its cards, whose they are, and what speaks for a region that its tenant has changed.

A region is a file of its container, so it is compared with what it cannot change: the grant, the driver's list of processes, and
the kernel's word whose they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pumice.model.amount import MIB
from pumice.ports.cards import CardProcess
from pumice.ports.processes import Owner
from pumice.ports.region import RegionReport

Key = tuple[str, str]
"""Pod UID and name of the container; the name is empty where only the pod is known."""

SLACK: Final = 512 * MIB
"""The bytes that a driver may count for a container beyond its region: contexts that other libraries guess (HAMi-core)."""


@dataclass(frozen=True, slots=True)
class Granted:
    """One card of a container: its UUID, bytes and percent (0: no limit)."""

    uuid: str
    memory: int
    cores: int = 0


@dataclass(frozen=True, slots=True)
class Tenant:
    """A container with cards. ``report``: what its region says, None while it has none. ``mps``: it needs none, for an MPS server
    holds its programs to their limits; ``whole``: it needs none, for nobody else has its cards."""

    granted: Sequence[Granted]
    report: RegionReport | None = None
    mps: bool = False
    whole: bool = False

    @property
    def unregioned(self) -> bool:
        return self.mps or self.whole


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Bytes on a card that stand in no region. ``owner`` is None for a program outside of this node's pods; ``region``: it
    has one, which says less than the driver."""

    card: str
    owner: Key | None
    memory: int
    region: bool = False


class Sign(StrEnum):
    """A change of a region by its tenant, or by who broke into its container."""

    UNREADABLE = "unreadable"
    GONE = "gone"
    MEMORY_LIMIT = "memory-limit"
    CORE_LIMIT = "core-limit"


SENTENCES: Final[Mapping[Sign, str]] = {
    Sign.UNREADABLE: "its region is not what the library writes, so nobody knows what it uses",
    Sign.GONE: "its region was there and is not any more, so nobody knows what it uses",
    Sign.MEMORY_LIMIT: "its region names a higher memory limit than it was given",
    Sign.CORE_LIMIT: "its region names a higher core limit than it was given",
}


def signs(tenant: Tenant) -> Iterator[Sign]:
    """Return what stands in a region that its library did not write there. 0 is no limit, so it is above all of them."""
    report = tenant.report
    if report is None:
        return
    pairs = [(granted, report.cards[granted.uuid]) for granted in tenant.granted if granted.uuid in report.cards]
    if any(granted.memory and not 0 < use.limit <= granted.memory for granted, use in pairs):
        yield Sign.MEMORY_LIMIT
    if any(0 < granted.cores < 100 and not 0 < use.sm_limit <= granted.cores for granted, use in pairs):
        yield Sign.CORE_LIMIT


class Accounts:
    """The processes on the cards of one moment, told apart by tenants. ``containers``: by container id, of this node's pods."""

    def __init__(
        self, processes: Iterable[CardProcess], owners: Mapping[int, Owner], tenants: Mapping[Key, Tenant], pods: Iterable[str],
        containers: Mapping[str, Key],
    ) -> None:  # fmt: skip
        self._tenants, self._pods, self._containers = tenants, frozenset(pods), containers
        self._by_pid = _by_host_pid(tenants)
        self._mps_cards = {granted.uuid for tenant in tenants.values() if tenant.mps for granted in tenant.granted}
        self._of = [(process, owners[process.pid]) for process in processes if process.pid in owners]

    def unaccounted(self) -> list[Unaccounted]:
        """Where it is nobody's, and where regions say too little. A slice's bounds are kept by its card, whoever counts."""
        strays: dict[tuple[str, Key | None], int] = defaultdict(int)
        counted: dict[tuple[str, Key], int] = defaultdict(int)
        for process, owner in self._of:
            if process.instance >= 0:
                continue
            key = self._key(process, owner)
            report = self._report_of(key)
            if self._without_region(process, owner, key):
                continue
            if key is not None and report is not None and process.card in report.cards:
                counted[process.card, key] += process.memory
            else:
                strays[process.card, key] += process.memory
        found = [Unaccounted(card, key, memory) for (card, key), memory in strays.items()]
        for (card, key), memory in counted.items():
            report = self._tenants[key].report
            missing = memory - (report.cards[card].use.total if report is not None else 0)
            if missing > SLACK:
                found.append(Unaccounted(card, key, missing, region=True))
        return sorted(found, key=lambda one: (one.card, one.owner or ("", "")))

    def measured(self) -> dict[tuple[Key, str], int]:
        """By container and card, the driver's own figures where there is no region to ask."""
        told = {key: tenant for key, tenant in self._tenants.items() if tenant.unregioned}
        found = {(key, granted.uuid): 0 for key, tenant in told.items() for granted in tenant.granted}
        known: dict[tuple[Key, str], int] = {}
        for process, owner in self._of:
            key = self._key(process, owner)
            if key is not None and (key, process.card) in found:
                known[key, process.card] = known.get((key, process.card), 0) + process.memory
        return known

    def host_pids(self) -> Iterator[tuple[Key, int, int, int]]:
        """Container, slot, and the pids inside and on the host of processes that regions do not know by the driver's number:
        with it the library finds its own line in the driver's list (HAMi-core src/utils.c)."""
        for process, owner in self._of:
            key = self._key(process, owner)
            report = self._report_of(key)
            if key is None or report is None or not owner.container:
                continue
            slots = [(slot, host) for slot, pid, host in report.processes if pid == owner.pid]
            if len(slots) == 1 and slots[0][1] == 0:
                yield key, slots[0][0], owner.pid, process.pid

    def _without_region(self, process: CardProcess, owner: Owner, key: Key | None) -> bool:
        """Return whether it needs none: its card is its own, or a server holds it to its limit, or it is such a server: tenants'
        programs may bear any name. A card that is shared by MPS takes one process alone, the server, so who is nobody's there is
        its client."""
        if key is not None and key in self._tenants:
            tenant = self._tenants[key]
            return tenant.unregioned and any(granted.uuid == process.card for granted in tenant.granted)
        if owner.mps:
            return not any(pod == owner.pod for pod, _ in self._tenants)
        return key is None and process.card in self._mps_cards

    def _report_of(self, key: Key | None) -> RegionReport | None:
        return self._tenants[key].report if key is not None and key in self._tenants else None

    def _key(self, process: CardProcess, owner: Owner) -> Key | None:
        """Return the process's owner: by its cgroup, else by the one region that names it as a process of the host."""
        if owner.pod in self._pods:
            return self._containers.get(owner.container, (owner.pod, ""))
        return self._by_pid.get(process.pid) if owner.shared else None


def _by_host_pid(tenants: Mapping[Key, Tenant]) -> dict[int, Key]:
    """Containers that share the host's numbers, as those of `pumice up` do; a number that two of them claim is nobody's."""
    found: dict[int, Key] = {}
    twice = set()
    for key, tenant in tenants.items():
        for _, pid, _ in tenant.report.processes if tenant.report is not None else ():
            if found.setdefault(pid, key) != key:
                twice.add(pid)
    return {pid: key for pid, key in found.items() if pid not in twice}
