"""Leader election by a Lease, compatible with client-go's (Volcano cmd/scheduler/app)."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass, field
from random import Random
from typing import Any

from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.wire.kinds import LEASES
from pumice.wire.names import DEFAULT_QUEUE, SCHEDULER_NAME, SYSTEM_NAMESPACE
from pumice.wire.times import stamp

log = logging.getLogger("pumice.lease")


async def without_election() -> bool:
    """Return True: nobody else decides."""
    return True


@dataclass(slots=True)
class Election:
    """One candidate. Whether a foreign lease has run out is judged by how long it has not changed here, so clocks of
    different machines need not agree."""

    cluster: Cluster
    clock: Clock
    rng: Random
    name: str
    namespace: str
    identity: str = ""
    duration: float = 15.0
    renew_deadline: float = 10.0
    retry: float = 2.0
    lost: bool = False
    _seen: tuple[str, str] = ("", "")
    _seen_at: float = 0.0
    _lease: dict[str, Any] = field(default_factory=dict)
    _renewed: float = -1e9
    _trying: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def held(self) -> bool:
        """True if nobody else can have the lease yet: it was renewed less than its duration ago. A process that was stopped
        for a while learns here that it may lead no longer."""
        return self.clock.monotonic() - self._renewed < self.duration

    @property
    def taken(self) -> bool:
        """Return whether somebody else had it when it was last looked at."""
        return self._seen[0] not in ("", self.identity)

    async def leads(self) -> bool:
        """Return whether it leads, before it writes or decides anything: who is late renews the lease first, by a write that
        fails where somebody else has written it meanwhile. False where another has it; as long as nobody answers, it waits."""
        while not self.held:
            if self.taken or (not await self._try_in_time() and self.taken):
                return False
            if not self.held:
                await self.clock.sleep(self.retry)
        return True

    def __post_init__(self) -> None:
        if not self.identity:
            self.identity = f"{socket.gethostname()}_{self.rng.getrandbits(128):032x}"

    async def acquire(self) -> None:
        """Return once the lease is ours."""
        while not await self._try_in_time():
            await self.clock.sleep(self.retry * (1 + 0.2 * self.rng.random()))
        log.info("leading lease=%s/%s identity=%s", self.namespace, self.name, self.identity)

    async def keep(self, stop: asyncio.Event) -> None:
        """Renew until the lease is ``lost``; then have the daemon stop."""
        while True:
            await self.clock.sleep(self.retry)
            if await self._try_in_time():
                continue
            if self.taken or self.clock.monotonic() - self._renewed > self.renew_deadline:
                log.error("lost the lease %s; stopping", self.name)
                self.lost = True
                stop.set()
                return

    async def release(self) -> None:
        """Give the lease up, so that a successor need not wait."""
        if (self._lease.get("spec") or {}).get("holderIdentity") != self.identity:
            return
        self._lease["spec"].update(holderIdentity="", leaseDurationSeconds=1)
        try:
            async with asyncio.timeout(self.renew_deadline / 2):
                await self.cluster.update(LEASES, self._lease)
        except (ApiError, TimeoutError) as error:
            log.info("lease not released: %s", error or "no answer")

    async def _try_in_time(self) -> bool:
        """One attempt; a connection that answers nothing must not outlast the lease."""
        began = self.clock.monotonic()
        try:
            async with asyncio.timeout(self.renew_deadline / 2), self._trying:
                mine = await self._try()
        except TimeoutError:
            return False
        except Exception:  # a lease that nobody can read: who keeps it must not die of it unseen, and lead no more for ever
            log.exception("the lease %s/%s cannot be renewed", self.namespace, self.name)
            return False
        if mine:
            self._renewed = began
        return mine

    async def _try(self) -> bool:
        now = self.clock.now()
        try:
            lease = await self.cluster.get(LEASES, self.name, self.namespace)
        except ApiError as error:
            return await self._create(now) if error.code == 404 else False
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        seen = (holder, str(spec.get("renewTime") or ""))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self.clock.monotonic()
        expired = self.clock.monotonic() - self._seen_at > float(spec.get("leaseDurationSeconds") or self.duration)
        if holder and holder != self.identity and not expired:
            return False
        if holder != self.identity:
            spec["acquireTime"] = stamp(now, 6)
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        spec.update(holderIdentity=self.identity, renewTime=stamp(now, 6),
                    leaseDurationSeconds=int(self.duration))  # fmt: skip
        lease["spec"] = spec
        try:
            self._lease = await self.cluster.update(LEASES, lease)
        except ApiError:
            return False
        self._seen = (self.identity, str(spec["renewTime"]))
        return True

    async def _create(self, now: float) -> bool:
        spec = {
            "holderIdentity": self.identity, "leaseDurationSeconds": int(self.duration), "leaseTransitions": 0,
            "acquireTime": stamp(now, 6), "renewTime": stamp(now, 6),
        }  # fmt: skip
        body = {
            "apiVersion": f"{LEASES.group}/{LEASES.version}",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec,
        }
        try:
            self._lease = await self.cluster.create(LEASES, body, self.namespace)
        except ApiError:
            return False
        self._seen = (self.identity, str(spec["renewTime"]))
        return True


# -- The common settings of daemons that may have a standby ----------------------------------------------------------


@dataclass(slots=True)
class LedSettings:
    """The settings of a daemon that elects a leader. ``leader_elect``: work only while holding the Lease, which lies in
    ``lease_namespace``."""

    scheduler_names: tuple[str, ...] = (SCHEDULER_NAME,)
    listen: str = "127.0.0.1:0"
    default_queue: str = DEFAULT_QUEUE
    leader_elect: bool = False
    lease_namespace: str = SYSTEM_NAMESPACE
