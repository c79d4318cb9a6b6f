"""The writes on ResourceClaims before a pod is bound, in Kubernetes' order, and their undoing (kube-scheduler's PreBind).

The finalizer, then the allocation together with the reservation for the pod, and only then the Binding. A conflict is looked at
and tried again. What was written for a pod that is not bound is taken back: the reservation, and the devices with the last one.
A scheduler that is killed in between leaves a claim that has its devices for a pod that waits: its successor goes on from there,
or gives the devices back where the pod cannot use them. So does the successor of one that lives and has lost the lease: it writes
nothing any more, and takes nothing back, for the pod may run by the successor's Binding.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from pumice.apps.service.lease import without_election
from pumice.claims.objects import Result
from pumice.effects.backoff import Backoff
from pumice.effects.vocabulary import Bind, Deallocate, ReserveClaim
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster, Json
from pumice.scheduler.state.device_claims import DeviceClaims
from pumice.scheduler.state.known_claims import CONSUMERS_MOST
from pumice.wire.kinds import PODS, RESOURCE_CLAIMS
from pumice.wire.kubernetes import CLAIM_PROTECTION
from pumice.wire.times import stamp

log = logging.getLogger("pumice.scheduler.claims")

AGAIN: Final = Backoff(0.05, 1.0)
PATIENCE: Final = 5.0
"""Seconds for which a write is repeated that another one came before, or that nobody answered."""
UNTIL_ALLOWED: Final = 0.5
BINDING_FOR, BINDING_AGAIN = 600.0, 5.0
"""Seconds for which devices with binding conditions are waited for, and between two looks."""
REPEATED: Final = frozenset({0, 408, 409, 410, 429, 500, 502, 503, 504})
WENT: Final = "it went while its claims were written"


class Refused(Exception):
    """The claim cannot be had, and why."""


@dataclass(slots=True)
class ClaimWrites:
    """One per scheduler."""

    cluster: Cluster
    clock: Clock
    rng: Random
    claims: DeviceClaims
    seen: Callable[[Json], object]
    """Told each claim as the API server answers with it, as if the watch had brought it."""
    here: Callable[[str], bool] = lambda uid: True
    """Return whether the pod still has its place."""
    allowed: Callable[[], Awaitable[bool]] = without_election
    concurrency: int = 32
    _room: asyncio.Semaphore | None = None
    _turns: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def reserve(self, effect: Bind) -> str:
        """Write all claims of the pod. Returns nothing, or why it cannot be bound."""
        while not await self.allowed():
            await self.clock.sleep(UNTIL_ALLOWED)
        for one in effect.device_claims:
            try:
                await self._repeated(one.uid, lambda one=one: self._reserve(effect, one))  # type: ignore[misc]
            except (Refused, ApiError) as error:
                return f"claim {one.name}: {error.message if isinstance(error, ApiError) else error}"
        for one in effect.device_claims:
            if any(self._awaited(one)) and (trouble := await self._bound_devices(effect, one)):
                await self._give_back(one.namespace, one.name, one.uid, effect.uid, allocated=True)
                return f"claim {one.name}: {trouble}"
        return ""

    def _awaited(self, one: ReserveClaim) -> Iterator[Result]:
        """Yield the devices that are to be bound before the pod may start."""
        claim = self.claims.claims.get(f"{one.namespace}/{one.name}")
        results = claim.results if claim is not None else None
        return (result for result in results or () if result.binding_conditions)

    async def _bound_devices(self, effect: Bind, one: ReserveClaim) -> str:
        """Wait until the conditions of all devices are met, as kube-scheduler does. Returns nothing, or why they are not."""
        deadline = self.clock.monotonic() + BINDING_FOR
        while self.clock.monotonic() < deadline and self.here(effect.uid):
            with contextlib.suppress(ApiError):
                claim = await self._get(one.namespace, one.name, one.uid)
                if claim is None:
                    return "it is gone"
                said = _conditions(claim)
                waiting = False
                for result in self._awaited(one):
                    met = said.get((result.driver, result.pool, result.device, result.share_id), set())
                    if failed := met & set(result.binding_failure_conditions):
                        return f"device {result.device} could not be bound: {', '.join(sorted(failed))}"
                    waiting = waiting or not met >= set(result.binding_conditions)
                if not waiting:
                    return ""
            await self.clock.sleep(BINDING_AGAIN)
        return f"its devices were not bound within {BINDING_FOR:g} s"

    async def undo(self, effect: Bind) -> None:
        """The pod is not bound: its reservations are taken back, and devices that were allocated for it."""
        for one in effect.device_claims:
            if one.made is None:
                await self._give_back(one.namespace, one.name, one.uid, effect.uid, allocated=one.allocation is not None)
            else:
                await self._unmake(effect, one)

    async def _unmake(self, effect: Bind, one: ReserveClaim) -> None:
        """Delete the claim that was made for extended resources of a pod that is not bound, as kube-scheduler does."""
        try:
            claim = await self._made_for(effect, one)
            if claim is None or not await self.allowed():
                return
            uid = claim["metadata"]["uid"]
            await self._give_back(one.namespace, one.name, uid, effect.uid, allocated=True)
            await self.cluster.delete(RESOURCE_CLAIMS, one.name, one.namespace, uid=uid)
            await self._map(effect, None)
        except ApiError as error:
            if error.code != 404:  # it is the pod's, and the next try finds it
                log.warning("claim not deleted claim=%s/%s pod=%s cause=%s", one.namespace, one.name, effect.uid, error)

    async def _made_for(self, effect: Bind, one: ReserveClaim) -> Json | None:
        """Return the claim of that name where it was made for the pod. Raises ApiError."""
        try:
            claim = await self.cluster.get(RESOURCE_CLAIMS, one.name, one.namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        owners = claim["metadata"].get("ownerReferences") or ()
        return claim if any(owner.get("uid") == effect.uid for owner in owners) else None

    async def _make(self, effect: Bind, one: ReserveClaim) -> Json | None:
        """Make the claim for extended resources of the pod, or go on with the one that an earlier try has made."""
        assert one.made is not None
        try:
            claim = await self.cluster.create(RESOURCE_CLAIMS, one.made, one.namespace)
        except ApiError as error:
            if error.code != 409:
                raise
            claim_there = await self._made_for(effect, one)
            if claim_there is None:
                raise Refused("another claim has its name") from None
            return claim_there
        self._answered(claim, made=True)
        return claim

    async def _map(self, effect: Bind, one: ReserveClaim | None) -> None:
        """Say in the pod's status which request serves which container, for the kubelet; None: no longer."""
        said = None if one is None else {"resourceClaimName": one.name, "requestMappings": list(one.mappings)}
        body = {"metadata": {"uid": effect.uid}, "status": {"extendedResourceClaimStatus": said}}
        await self.cluster.patch(PODS, effect.name, body, effect.namespace, subresource="status", kind="strategic")

    async def deallocate(self, effect: Deallocate) -> None:
        """Give back devices that no node which can use them serves the pod with; not where it runs by a Binding that was not
        seen yet, of a scheduler that led before."""
        try:
            claim = await self._get(effect.namespace, effect.name, effect.uid)
            users = ((claim or {}).get("status") or {}).get("reservedFor") or ()
            if name := next((str(user.get("name")) for user in users if user.get("uid") == effect.pod), ""):
                pod = await self.cluster.get(PODS, name, effect.namespace)
                if pod["metadata"]["uid"] == effect.pod and pod["spec"].get("nodeName"):
                    return
        except ApiError as error:
            if error.code != 404:
                log.warning("claim not given back claim=%s/%s cause=%s", effect.namespace, effect.name, error)
                return
        await self._give_back(effect.namespace, effect.name, effect.uid, effect.pod, allocated=True)

    async def _repeated(self, uid: str, write: Callable[[], Awaitable[None]]) -> None:
        if self._room is None:
            self._room = asyncio.Semaphore(self.concurrency)
        deadline, tries = self.clock.monotonic() + PATIENCE, 0
        while True:
            try:
                async with self._turns[uid], self._room:
                    await write()
            except ApiError as error:
                if error.code not in REPEATED or self.clock.monotonic() > deadline:
                    raise
                await self.clock.sleep(AGAIN.pause(tries, self.rng))
                tries += 1
            else:
                return
            finally:
                if uid in self._turns and not self._turns[uid].locked():
                    del self._turns[uid]

    async def _reserve(self, effect: Bind, one: ReserveClaim) -> None:
        """Raises ApiError, Refused."""
        if not self.here(effect.uid):
            raise Refused(WENT)
        claim = await (self._get(one.namespace, one.name, one.uid) if one.made is None else self._make(effect, one))
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            raise Refused("it is gone, or going")
        await self._reserve_seen(effect, one, claim)
        if one.made is not None:
            await self._map(effect, one)

    async def _reserve_seen(self, effect: Bind, one: ReserveClaim, claim: Json) -> None:
        status = claim.setdefault("status", {})
        users = status.get("reservedFor") or []
        made = one.made is not None
        if any(user.get("uid") == effect.uid for user in users):
            self._answered(claim, made=made)
            return
        shown = status.get("allocation")
        if shown is None and one.allocation is None:
            raise Refused("its devices were given back")
        if shown is not None and one.allocation is not None and _devices(shown) != _devices(one.allocation):
            raise Refused("another scheduler allocated it")
        if len(users) >= CONSUMERS_MOST:
            raise Refused(f"{CONSUMERS_MOST} pods use it, as many as may")
        if CLAIM_PROTECTION not in claim["metadata"].get("finalizers", ()):
            claim["metadata"]["finalizers"] = [*claim["metadata"].get("finalizers", ()), CLAIM_PROTECTION]
            claim = await self._update(claim)
            status = claim.setdefault("status", {})
        if shown is None:
            status["allocation"] = {**(one.allocation or {}), "allocationTimestamp": stamp(self.clock.now())}
        status["reservedFor"] = [*users, {"resource": "pods", "name": effect.name, "uid": effect.uid}]
        self._answered(await self._update_status(claim), made=made)

    async def _give_back(self, namespace: str, name: str, uid: str, pod: str, *, allocated: bool) -> None:
        try:
            await self._repeated(uid, lambda: self._release(namespace, name, uid, pod, allocated=allocated))
        except (ApiError, Refused) as error:  # it is written for a pod that waits: the next try begins with it
            log.warning("claim not given back claim=%s/%s pod=%s cause=%s", namespace, name, pod, error)

    async def _release(self, namespace: str, name: str, uid: str, pod: str, *, allocated: bool) -> None:
        claim = await self._get(namespace, name, uid)
        if claim is None:
            return
        status = claim.setdefault("status", {})
        users = status.get("reservedFor") or []
        left = [user for user in users if user.get("uid") != pod]
        if status.get("allocation") is not None and (len(left) < len(users) or (allocated and not left)):
            status["reservedFor"] = left
            if allocated and not left:
                for key in ("allocation", "reservedFor", "devices"):
                    status.pop(key, None)
            claim = await self._update_status(claim)
            self._answered(claim)
        finalizers = claim["metadata"].get("finalizers") or []
        if allocated and (claim.get("status") or {}).get("allocation") is None and CLAIM_PROTECTION in finalizers:
            claim["metadata"]["finalizers"] = [one for one in finalizers if one != CLAIM_PROTECTION]
            answer = await self._update(claim)
            if answer.get("metadata", {}).get("uid") == uid and not claim["metadata"].get("deletionTimestamp"):
                self._answered(answer)

    async def _update(self, claim: Json) -> Json:
        """Write a claim while this scheduler leads. Raises ApiError; Refused where another one does."""
        await self._check_lease()
        return await self.cluster.update(RESOURCE_CLAIMS, claim)

    async def _update_status(self, claim: Json) -> Json:
        """Write a claim's status, which needs a right of its own. Raises as ``_update``."""
        await self._check_lease()
        return await self.cluster.update(RESOURCE_CLAIMS, claim, subresource="status")

    async def _check_lease(self) -> None:
        if not await self.allowed():
            raise Refused("another scheduler leads")

    def _answered(self, claim: Json, *, made: bool = False) -> None:
        """Tell of a claim as it was answered; one that the watch has shown to be gone since stays gone. ``made``: by us, so that
        the watch may not have shown it."""
        meta = claim["metadata"]
        known = self.claims.claims.get(f"{meta.get('namespace', '')}/{meta['name']}")
        if (known is not None and known.uid == meta.get("uid")) or (
            known is None and made and not self.claims.went(str(meta.get("uid", "")))
        ):
            self.seen(claim)

    async def _get(self, namespace: str, name: str, uid: str) -> Json | None:
        """The claim as it is; None where it is gone, or another one has its name."""
        try:
            claim = await self.cluster.get(RESOURCE_CLAIMS, name, namespace)
        except ApiError as error:
            if error.code == 404:
                return None
            raise
        return claim if claim["metadata"].get("uid") == uid else None


def _conditions(claim: Json) -> dict[tuple[str, ...], set[str]]:
    """Return the conditions that are True, by device."""
    return {
        tuple(str(device.get(key, "")) for key in ("driver", "pool", "device", "shareID")): {
            str(one.get("type")) for one in device.get("conditions") or () if one.get("status") == "True"
        }
        for device in (claim.get("status") or {}).get("devices") or ()
    }


def _devices(allocation: Json) -> list[Any]:
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(one.get("request"), one.get("driver"), one.get("pool"), one.get("device")) for one in results]


