"""The device manager: what the kubelet does with device plugins, step by step as ADR 120 observed it.

Nothing here knows gRPC or a clock: plugins are given by the port ``Plugin``, the time is an argument, and the
order that the kubelet leaves to Go's maps is left to the random generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pumice_lab.kubelet.devices.plugin import HEALTHY, Allocation, Device, Options, Plugin, PluginError, device_limits


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """Devices of one resource in one container. ``by_numa`` as in the checkpoint: key ``-1`` is no NUMA node."""

    ids: frozenset[str]
    answer: Allocation
    by_numa: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(slots=True)
class PodDevices:
    """pod uid -> container -> resource -> Held."""

    pods: dict[str, dict[str, dict[str, DeviceAllocation]]] = field(default_factory=dict)

    def insert(self, uid: str, container: str, resource: str, allocated: DeviceAllocation) -> None:
        self.pods.setdefault(uid, {}).setdefault(container, {})[resource] = allocated

    def get(self, uid: str, container: str, resource: str) -> DeviceAllocation | None:
        return self.pods.get(uid, {}).get(container, {}).get(resource)

    def of_container(self, uid: str, container: str) -> dict[str, DeviceAllocation]:
        return self.pods.get(uid, {}).get(container, {})

    def devices(self) -> dict[str, set[str]]:
        """Every device in use, by resource."""
        out: dict[str, set[str]] = {}
        for _, _, resource, allocated in self:
            out.setdefault(resource, set()).update(allocated.ids)
        return out

    def remove(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self.pods.pop(uid, None)

    def __iter__(self) -> Iterator[tuple[str, str, str, DeviceAllocation]]:
        for uid, containers in self.pods.items():
            for container, resources in containers.items():
                for resource, allocated in resources.items():
                    yield uid, container, resource, allocated


GRACE_SECONDS = 300.0  # a resource without a plugin keeps its capacity for this long


class AllocationRefused(Exception):
    """Devices could not be given to a pod; the text is the kubelet's CAUSE."""


@dataclass(slots=True)
class Endpoint:
    """The plugin that serves a resource. ``plugin`` is None for one remembered from the checkpoint only."""

    plugin: Plugin | None
    options: Options = field(default_factory=Options)
    stopped_at: float | None = None


@dataclass(slots=True)
class DeviceManager:
    rng: random.Random
    save: Callable[[PodDevices, dict[str, list[str]]], None] = lambda pod_devices, registered: None
    changed: Callable[[], None] = lambda: None
    pod_devices: PodDevices = field(default_factory=PodDevices)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    known: dict[str, dict[str, Device]] = field(default_factory=dict)
    in_use: dict[str, set[str]] = field(default_factory=dict)
    _reusable: dict[str, dict[str, set[str]]] = field(default_factory=dict)  # pod uid -> resource -> ids
    _returning: set[str] = field(default_factory=set)  # remembered from before a restart, not listed since
    _shown: dict[str, dict[str, str]] = field(default_factory=dict)  # an id that vanishes keeps its last health

    def remember(self, pod_devices: PodDevices, registered: Iterable[str], now: float) -> None:
        """Take over a checkpoint: every resource in it counts nothing until its plugin is back."""
        self.pod_devices, self.in_use = pod_devices, pod_devices.devices()
        for resource in registered:
            self.healthy[resource], self.unhealthy[resource] = set(), set()
            self.endpoints[resource] = Endpoint(None, stopped_at=now)
            self._returning.add(resource)

    # -- plugins --------------------------------------------------------------------------------------------------

    def connected(self, resource: str, plugin: Plugin, options: Options) -> None:
        """The later registration wins Allocate; an earlier plugin's stream goes on and may still send lists."""
        self.endpoints[resource] = Endpoint(plugin, options)
        self.changed()

    def listed(self, resource: str, devices: Sequence[Device]) -> None:
        """A list replaces the former one. An id listed twice with different health counts in both sets."""
        self.healthy[resource] = {d.id for d in devices if d.health == HEALTHY}
        self.unhealthy[resource] = {d.id for d in devices if d.health != HEALTHY}
        self.known[resource] = {d.id: d for d in devices}
        self._returning.discard(resource)
        self._write()
        self.changed()

    def disconnected(self, resource: str, now: float) -> None:
        """Any stream of the resource ended. Even an old plugin's end disconnects the newest one (observed)."""
        endpoint = self.endpoints.get(resource)
        if endpoint is None:
            return
        lost = self.healthy.get(resource, set())
        self.healthy[resource] = set()
        self.unhealthy[resource] = self.unhealthy.get(resource, set()) | lost
        endpoint.stopped_at = now
        if endpoint.plugin is not None:
            endpoint.plugin.close()
        self.changed()

    def counts(self, now: float) -> dict[str, tuple[int, int]]:
        """(capacity, allocatable) per resource; forgotten resources are reported once more with (0, 0)."""
        out: dict[str, tuple[int, int]] = {}
        for resource in sorted(set(self.healthy) | set(self.unhealthy)):
            endpoint = self.endpoints.get(resource)
            gone = endpoint is None or (endpoint.stopped_at is not None and now - endpoint.stopped_at > GRACE_SECONDS)
            if gone:
                self.endpoints.pop(resource, None)
                self.healthy.pop(resource, None)
                self.unhealthy.pop(resource, None)
                self._write()
                out[resource] = (0, 0)
            else:
                free = len(self.healthy.get(resource, ()))
                out[resource] = (free + len(self.unhealthy.get(resource, ())), free)
        return out

    def registered(self, resource: str) -> bool:
        endpoint = self.endpoints.get(resource)
        return endpoint is not None and endpoint.plugin is not None and endpoint.stopped_at is None

    def returning(self, resource: str) -> bool:
        """Was the resource known before this manager's restart, and its plugin has not listed devices since?"""
        return resource in self._returning

    # -- admission ------------------------------------------------------------------------------------------------

    async def admit(self, pod: Mapping[str, Any], active: Callable[[], Iterable[str]]) -> None:
        """Allocate for every container of a pod, init containers first. Raises AllocationRefused.

        ``active`` gives the uids of pods whose devices are not free; it is asked at most once, and only when some
        device is wanted: devices of ended pods are freed lazily.
        """
        uid = pod["metadata"]["uid"]
        self._reusable = {uid: self._reusable.get(uid, {})}
        freed = False
        spec = pod["spec"]
        inits = spec.get("initContainers") or []
        for container in [*inits, *spec["containers"]]:
            resources = sorted(device_limits(container).items())
            self.rng.shuffle(resources)
            for resource, count in resources:
                if not self._managed(resource):
                    continue  # never heard of: the pod runs, without devices
                if not freed:
                    self._free_inactive({uid, *active()})
                    freed = True
                await self._allocate(uid, container["name"], resource, count)
            ordinary_init = any(container is init for init in inits) and container.get("restartPolicy") != "Always"
            self._offer_for_reuse(uid, container["name"], keep=ordinary_init)

    def _managed(self, resource: str) -> bool:
        return resource in self.healthy or resource in self.in_use

    def _free_inactive(self, active: set[str]) -> None:
        gone = [uid for uid in self.pod_devices.pods if uid not in active]
        if gone:
            self.pod_devices.remove(gone)
            self.in_use = self.pod_devices.devices()

    def _offer_for_reuse(self, uid: str, container: str, *, keep: bool) -> None:
        """Free the devices of an ordinary init container for the next containers; those of the others stay."""
        reusable = self._reusable[uid]
        for resource, allocated in self.pod_devices.of_container(uid, container).items():
            ids = reusable.setdefault(resource, set())
            if keep:
                ids |= allocated.ids
            else:
                ids -= allocated.ids

    async def _allocate(self, uid: str, container: str, resource: str, count: int) -> None:
        ids = await self._choose(uid, container, resource, count)
        if not ids:
            return
        endpoint = self.endpoints.get(resource)
        if endpoint is None or endpoint.plugin is None:
            self.in_use = self.pod_devices.devices()
            raise AllocationRefused(f"unknown Device Plugin {resource}")
        order = self._shuffled(ids)
        try:
            answer = await endpoint.plugin.allocate(order)
        except PluginError as error:
            self.in_use = self.pod_devices.devices()
            raise AllocationRefused(str(error)) from error
        if answer is None:  # the ids stay taken until the next allocation error or clean-up
            raise AllocationRefused("no containers return in allocation response ")
        self.pod_devices.insert(uid, container, resource, DeviceAllocation(frozenset(ids), answer, self._by_numa(resource, ids)))
        self._write()

    async def _choose(self, uid: str, container: str, resource: str, count: int) -> set[str]:
        """The ids for one container and resource; empty when it holds them already."""
        allocated = self.pod_devices.get(uid, container, resource)
        needed = count - (len(allocated.ids) if allocated else 0)
        if allocated and needed:
            raise AllocationRefused(f'pod "{uid}" container "{container}" changed request for resource "{resource}" '
                                    f"from {len(allocated.ids)} to {count}")
        if resource not in self.healthy:
            raise AllocationRefused(f"cannot allocate unregistered device {resource}")
        if not self.healthy[resource]:
            raise AllocationRefused(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if allocated and not allocated.ids <= self.healthy[resource]:
            raise AllocationRefused(f"previously allocated devices are no longer healthy; "
                                    f"cannot allocate unhealthy devices {resource}")
        if not needed:
            return set()
        in_use = self.in_use.setdefault(resource, set())
        chosen: set[str] = set()

        def take(candidates: Iterable[str]) -> bool:
            for ident in self._shuffled(set(candidates) - chosen):
                if len(chosen) == count:
                    break
                chosen.add(ident)
                in_use.add(ident)
            return len(chosen) == count

        if take(self._reusable[uid].get(resource, ())):
            return chosen
        available = self.healthy[resource] - in_use
        if len(available) < count - len(chosen):
            raise AllocationRefused(f"requested number of devices unavailable for {resource}. "
                                    f"Requested: {count - len(chosen)}, Available: {len(available)}")
        liked = await self._preferred(resource, available | chosen, set(chosen), count)
        if liked is not None and take(set(liked) & available):
            return chosen
        take(available)
        return chosen

    async def _preferred(self, resource: str, available: set[str], must: set[str], size: int) -> list[str] | None:
        endpoint = self.endpoints.get(resource)
        if endpoint is None or endpoint.plugin is None or not endpoint.options.preferred:
            return None
        try:
            return await endpoint.plugin.preferred(self._shuffled(available), self._shuffled(must), size)
        except PluginError as error:
            raise AllocationRefused(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error

    # -- after admission --------------------------------------------------------------------------------------------

    async def pre_start(self, uid: str, container: str) -> None:
        """Before each start of a container. A plugin that went keeps its options, and so its containers from starting; one from
        before a restart of the kubelet has none until it registers anew. Raises PluginError."""
        for resource, allocated in self.pod_devices.of_container(uid, container).items():
            endpoint = self.endpoints.get(resource)
            if endpoint is None or not endpoint.options.pre_start:
                continue
            if endpoint.plugin is None or endpoint.stopped_at is not None:
                raise PluginError(f"endpoint {resource} has been stopped")
            await endpoint.plugin.pre_start(self._shuffled(allocated.ids))

    def answers(self, uid: str, container: str) -> list[Allocation]:
        """The cached answers for a container, in the order in which they are applied (random, as in the kubelet)."""
        allocated = sorted(self.pod_devices.of_container(uid, container).items())
        self.rng.shuffle(allocated)
        return [entry.answer for _, entry in allocated]

    def health(self, uid: str, container: str) -> list[tuple[str, list[tuple[str, str]]]]:
        """For allocatedResourcesStatus: resource -> (id, Healthy | Unhealthy | Unknown)."""
        out = []
        for resource, allocated in sorted(self.pod_devices.of_container(uid, container).items()):
            shown = self._shown.setdefault(resource, {})
            shown.update(dict.fromkeys(allocated.ids & self.healthy.get(resource, set()), HEALTHY))
            shown.update(dict.fromkeys(allocated.ids & self.unhealthy.get(resource, set()), "Unhealthy"))
            out.append((resource, [(i, shown.get(i, "Unknown")) for i in sorted(allocated.ids)]))
        return out

    def _by_numa(self, resource: str, ids: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        groups: dict[str, list[str]] = {}
        for ident in sorted(ids):
            device = self.known.get(resource, {}).get(ident)
            for numa in (device.numa if device else ()) or (-1,):
                groups.setdefault(str(numa), []).append(ident)
        return tuple((numa, tuple(group)) for numa, group in sorted(groups.items()))

    def _shuffled(self, ids: Iterable[str]) -> list[str]:
        out = sorted(ids)
        self.rng.shuffle(out)
        return out

    def _write(self) -> None:
        self.save(self.pod_devices, {resource: sorted(ids) for resource, ids in self.healthy.items()})
