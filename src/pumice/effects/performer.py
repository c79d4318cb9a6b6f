"""Performs effects on the API server: the one hand of whoever decides and does not touch the world."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.effects.recorder import EventRecorder
from pumice.effects.vocabulary import Create, Delete, Event, Patch
from pumice.ports.cluster import ApiError, Cluster, Json

GONE = (404, 409)
"""Answers to a deletion that say that there is no such object any more: none, or another one of its name."""


@dataclass(frozen=True, slots=True)
class Performer:
    """Carries out what everybody's vocabulary has; ``recorder`` writes the Events."""

    cluster: Cluster
    recorder: EventRecorder

    async def perform(self, effect: Create | Patch | Delete | Event) -> Json | None:
        """Return the object as the API server answered it; None after an Event, and where what was to go is gone already. Raises
        ApiError."""
        match effect:
            case Create():
                return await self.create(effect)
            case Patch():
                return await self.patch(effect)
            case Delete():
                return await self.delete(effect)
            case Event():
                await self.recorder.write(effect)
                return None

    async def create(self, effect: Create) -> Json:
        return await self.cluster.create(effect.resource, effect.obj)

    async def patch(self, effect: Patch) -> Json:
        body = effect.body
        if effect.uid:
            body = {**body, "metadata": {**body.get("metadata", {}), "uid": effect.uid}}
        return await self.cluster.patch(effect.resource, effect.name, body, effect.namespace, subresource=effect.subresource)

    async def delete(self, effect: Delete) -> Json | None:
        try:
            return await self.cluster.delete(effect.resource, effect.name, effect.namespace, grace=effect.grace, uid=effect.uid,
                                             propagation=effect.propagation)  # fmt: skip
        except ApiError as error:
            if error.code not in GONE:
                raise
            return None
