"""Before a pod is bound: its claims of devices are written, its volume claims are told their node or their volume, and their
volumes are waited for (Volcano
pkg/scheduler/cache/cache.go, pre-bind).

Nothing else waits with them: no cycle, no other Binding. The place stays booked meanwhile. Rules: kubernetes.io docs "Storage
Classes", volume binding mode; kube-scheduler waits in the same way, with the same limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from pumice.apps.scheduler.claim_writes import ClaimWrites
from pumice.effects.backoff import Backoff
from pumice.effects.vocabulary import Bind
from pumice.ports.clock import Clock
from pumice.ports.cluster import ApiError, Cluster
from pumice.scheduler.state.state import State
from pumice.scheduler.state.volumes import BY_CONTROLLER, SELECTED_NODE
from pumice.wire.kinds import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

log = logging.getLogger("pumice.scheduler.bind")

POD_WENT = "the pod went while its volumes were waited for"

LOOK_AGAIN = Backoff(0.05, 1.0)
"""Seconds between two looks at what the watch has shown of the claims."""


@dataclass(slots=True)
class _Gang:
    """Members of one gang that still wait for volumes: none is bound before all of them may be."""

    waiting: int = 0
    trouble: str = ""
    decided: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class VolumeWait:
    """Waits for the volumes of pods that were given a place. ``limit``: for so many seconds at most."""

    cluster: Cluster
    clock: Clock
    state: State
    limit: Callable[[], float]
    devices: ClaimWrites | None = None
    waiting: int = 0
    """Pods that wait now."""
    _gangs: dict[tuple[str, str], _Gang] = field(default_factory=dict)

    def expect(self, effect: Bind) -> None:
        """A Binding is on its way. Called for all members of a gang before any of them is waited for."""
        if effect.gang and _waits(effect):
            self._gangs.setdefault((effect.gang, effect.attempt), _Gang()).waiting += 1

    async def ready(self, effect: Bind) -> str:
        """Returns when the pod may be bound, with nothing; or why it will not come to that."""
        gang = self._gangs.get((effect.gang, effect.attempt)) if effect.gang else None
        if not _waits(effect) and gang is None:
            return ""
        self.waiting += 1
        try:
            try:
                trouble = await self._own(effect) if _waits(effect) else ""
            except Exception as error:  # the others of its gang wait for its word
                log.exception("volumes not waited for pod=%s/%s", effect.namespace, effect.name)
                trouble = f"its volumes could not be waited for: {error!r}"
            if gang is not None:
                trouble = await self._together(effect, gang, trouble)
        finally:
            self.waiting -= 1
        return trouble

    async def _together(self, effect: Bind, gang: _Gang, trouble: str) -> str:
        if _waits(effect):
            gang.waiting -= 1
            gang.trouble = gang.trouble or trouble
            if gang.trouble or not gang.waiting:
                gang.decided.set()
            if not gang.waiting:
                self._gangs.pop((effect.gang, effect.attempt), None)
        await gang.decided.wait()
        return trouble or (f"of another pod of its gang {gang.trouble}" if gang.trouble else "")

    async def undo(self, effect: Bind) -> None:
        """The pod is not bound: what was written for it is taken back."""
        if self.devices is not None and effect.device_claims:
            await self.devices.undo(effect)

    async def _own(self, effect: Bind) -> str:
        if self.devices is not None and effect.device_claims and (trouble := await self.devices.reserve(effect)):
            return trouble
        try:
            for claim, volume in effect.claims:
                await self._ask(effect, claim.partition("/")[2], volume)
        except ApiError as error:
            return f"its volumes could not be asked for: {error.message}"
        limit = self.limit()
        deadline, looks = self.clock.monotonic() + limit, 0
        named: set[str] = set()
        while True:
            bound, trouble = self._look(effect, named)
            if bound or trouble:
                return trouble
            if self.clock.monotonic() >= deadline:
                return f"its volumes were not there within {limit:g} s"
            await self.clock.sleep(LOOK_AGAIN.pause(looks))
            looks += 1

    async def _ask(self, effect: Bind, claim: str, volume: str) -> None:
        """Name the node on the claim, so that its volume is made there, or the claim on the volume that was chosen. The volume
        controller does the rest."""
        if not volume:
            body: object = {"metadata": {"annotations": {SELECTED_NODE: effect.node}}}
            await self.cluster.patch(PERSISTENT_VOLUME_CLAIMS, claim, body, effect.namespace)
            return
        found = await self.cluster.get(PERSISTENT_VOLUME_CLAIMS, claim, effect.namespace)
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": effect.namespace, "name": claim,
                     "uid": found["metadata"]["uid"]}  # fmt: skip
        body = {"metadata": {"annotations": {BY_CONTROLLER: "yes"}}, "spec": {"claimRef": reference}}
        await self.cluster.patch(PERSISTENT_VOLUMES, volume, body)

    def _look(self, effect: Bind, named: set[str]) -> tuple[bool, str]:
        """Return whether all claims have their volumes, and what speaks against waiting on. ``named`` are the claims of which
        the watch
        has shown that this node was named on them."""
        state = self.state
        row = state.ledger.table.row_of.get(effect.node)
        if row is None:
            return False, f"node {effect.node} went while its volumes were waited for"
        if effect.uid not in state.ledger.placements:
            return False, POD_WENT
        bound = True
        for key, volume in effect.claims:
            claim, name = state.volumes.claims.get(key), key.partition("/")[2]
            if claim is None:
                return False, f"claim {name} went while its volume was waited for"
            if claim.bound:
                terms = state.volumes.volumes[claim.volume].affinity if claim.volume in state.volumes.volumes else None
                if terms is not None and not state.ledger.terms.labels.match_any(terms)[row]:
                    return False, f"volume {claim.volume} of claim {name} cannot be used on node {effect.node}"
                continue
            bound = False
            if claim.selected_node == effect.node:
                named.add(key)
            elif not volume and key in named:
                return False, f"no volume could be made for claim {name} there: the node was taken off the claim again"
        return bound, ""


def _waits(effect: Bind) -> bool:
    """Return whether something is written or waited for before the pod is bound."""
    return bool(effect.claims or effect.device_claims)
