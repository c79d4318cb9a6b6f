"""From what was read to what the page shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from pumice.apps.monitor.accounts import suspects
from pumice.apps.monitor.driver import Look
from pumice.apps.monitor.reader import Seat, Snapshot
from pumice.devices.nvidia_vgpu.node.inventory import type_of
from pumice.devices.nvidia_vgpu.node.slots import place_of
from pumice.metrics.monitor import CardView, ContainerView, MonitorView, Trouble, UnaccountedView
from pumice.node.accounts import Key, Unaccounted
from pumice.node.pods import NodePod
from pumice.ports.cards import InstanceReading
from pumice.ports.region import DeviceUse
from pumice.ports.slices import Place
from pumice.wire.nvidia_vgpu import PodDevice

Slots = Mapping[Place, InstanceReading]


def view(snapshot: Snapshot, look: Look, found: Iterable[Unaccounted], pods: Mapping[str, NodePod],
         measured: Mapping[tuple[Key, str], int] = MappingProxyType({})) -> MonitorView:  # fmt: skip
    """``pods``: who is there now, by UID; what is found of others is not shown any more. ``measured``: what the driver counts of
    containers that have no region."""
    names = {reading.uuid: reading.name for reading in look.readings}
    slots = {Place(one.card, one.profile, one.start): one for one in look.instances}
    containers = [_container(seat, snapshot, look.order, names, slots, measured) for seat in snapshot.seats.values()]
    unaccounted = []
    for one in found:
        if one.owner is None:
            unaccounted.append(UnaccountedView(one.card, one.memory))
        elif (pod := pods.get(one.owner[0])) is not None:
            unaccounted.append(UnaccountedView(one.card, one.memory, pod.metadata.namespace, pod.metadata.name, one.owner[1]))
    troubles = []
    for key, sign in suspects(snapshot):
        meta = snapshot.seats[key].pod.metadata
        troubles.append(Trouble(meta.namespace, meta.name, key[1], sign.value))
    return MonitorView(
        look.readings, containers, look.instances, [process.card for process in look.processes], unaccounted, troubles,
        sum(bool(seat.trouble) for seat in snapshot.seats.values()), snapshot.strangers, look.silent,
    )  # fmt: skip


def _container(seat: Seat, snapshot: Snapshot, order: Mapping[str, int], names: Mapping[str, str], slots: Slots,
               measured: Mapping[tuple[Key, str], int]) -> ContainerView:  # fmt: skip
    meta, claims = seat.pod.metadata, seat.claims
    devices = seat.devices
    if len(devices) > 1:  # the order in which the container sees its cards
        devices = tuple(sorted(devices, key=lambda device: order.get(device.uuid, 99)))
    cards = [_card(seat, device, snapshot, names, slots, measured) for device in devices]
    touched = claims is not None or any(card.slice_ is not None for card in cards)
    last = claims.last_kernel if claims is not None else 0
    return ContainerView(meta.namespace, meta.name, seat.container.name, cards, touched, last)


def _card(seat: Seat, device: PodDevice, snapshot: Snapshot, names: Mapping[str, str], slots: Slots,
          measured: Mapping[tuple[Key, str], int]) -> CardView:  # fmt: skip
    limit = device.memory * snapshot.unit
    if device.slot >= 0:
        place = place_of(snapshot.config, type_of(names.get(device.uuid, "")), device)
        slice_ = slots.get(place) if isinstance(place, Place) else None
        use = DeviceUse(total=slice_.memory_used) if slice_ is not None else DeviceUse()
        return CardView(device.uuid, limit, device.cores, use, slice_)
    if seat.mps:
        told = measured.get(((seat.pod.uid, seat.container.name), device.uuid))
        return CardView(device.uuid, limit, device.cores, DeviceUse(total=told) if told is not None else None)
    claim = seat.claims.cards.get(device.uuid) if seat.claims is not None else None
    return CardView(device.uuid, limit, device.cores, claim.use if claim is not None else DeviceUse())
