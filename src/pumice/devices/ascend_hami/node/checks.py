"""Checks that a container may have what its pod's annotations say: what it asks for, which nobody can change later, and nothing
that others hold. Whoever may write a pod may write its annotations, and HAMi's plugin takes them at their word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.devices.ascend_hami.ask import ContainerAsk, container_ask
from pumice.devices.ascend_hami.node.inventory import NpuSharing
from pumice.devices.ascend_hami.node.matching import slots_of
from pumice.devices.ascend_hami.units import units_of
from pumice.model.hardware.npu import NpuChip
from pumice.model.refusal import Refusal
from pumice.node.matching import Key
from pumice.node.pods import Container, NodePod
from pumice.wire import names
from pumice.wire.ascend_hami import NODE, SOFT, NpuDevice, RuntimeNpu, allocated_key, parse_npu_devices

ALL_CORES: Final = 100
"""Per cent of a card's cores."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One container's share of one card. ``kind``: its template, the mode of soft shares, or nothing for the whole card."""

    uuid: str
    kind: str
    memory: int
    cores: int = 0


def holdings(container: Container, uuids: Iterable[str], chip: NpuChip, *, soft: bool) -> tuple[Holding, ...] | Refusal:
    """Return what the container asks for, on these cards."""
    want = container_ask(container, chip, soft)
    if isinstance(want, Refusal):
        return want
    want = want or ContainerAsk(0)
    kind = SOFT if soft else want.template
    return tuple(Holding(uuid, kind, want.memory or chip.memory, want.cores) for uuid in uuids)


def other_than_asked(wanted: Sequence[Holding], devices: Sequence[NpuDevice], runtime: Mapping[str, RuntimeNpu]) -> str:
    """How the annotations differ from it; empty where they do not."""
    for want, device in zip(wanted, devices, strict=True):
        told = runtime[want.uuid]
        if want.kind == SOFT:
            fits = (told.memory, told.cores, device.memory, device.cores) == (want.memory, want.cores) * 2 and not told.template
        else:
            fits = told.template == want.kind and device.memory >= want.memory
        if not fits:
            given = told.template or (f"{told.memory} MB and cores {told.cores}" if told.memory else "the whole card")
            return f"its annotations give it {given} ({device.memory} MB) where it asks for {_named(want)}"
    return ""


def _named(want: Holding) -> str:
    if want.kind == SOFT:
        return f"{want.memory} MB and cores {want.cores}"
    return f"{want.kind or 'the whole card'} ({want.memory} MB)"


def held_by_others(
    pods: Iterable[NodePod], but: NodePod, node: str, sharing: NpuSharing, given: Mapping[Key, tuple[Holding, ...]]
) -> list[Holding]:
    """Return what the other pods have that the kubelet has admitted, or that were served. Which cards they are is told by our
    own memory first, and by their annotations; how much of them by what they ask for."""
    found: list[Holding] = []
    for pod in pods:
        if pod.uid == but.uid or pod.finished or pod.spec.node_name != node or pod.mirror:
            continue
        ours = [holding for (uid, _), held in given.items() if uid == pod.uid for holding in held]
        found += ours or (_by_annotation(pod, sharing.chip) if pod.admitted else [])
    return found


def _by_annotation(pod: NodePod, chip: NpuChip) -> list[Holding]:
    if pod.annotations.get(NODE) != pod.spec.node_name:
        return []
    slots = parse_npu_devices(pod.annotations.get(allocated_key(chip.word), "")).slots
    places = slots_of(pod.containers, len(slots), chip.resource) or {}
    soft = pod.annotations.get(names.VNPU_MODE) == SOFT
    found: list[Holding] = []
    for container in pod.containers:
        devices = slots[places[container.name]] if container.name in places else ()
        held = holdings(container, [device.uuid for device in devices[: container.asks(chip.resource)]], chip, soft=soft)
        found += [] if isinstance(held, Refusal) else held
    return found


def beyond_the_card(wanted: Iterable[Holding], others: Sequence[Holding], sharing: NpuSharing) -> str:
    """Return what a card has too little of for this container beside those; empty where it has enough."""
    chip = sharing.chip
    for want in wanted:
        there = [holding for holding in others if holding.uuid == want.uuid]
        memory, cores = sum(h.memory for h in there), sum(h.cores for h in there)
        taken = f"card {want.uuid} has {len(there)} pods already"
        if len(there) >= sharing.count:
            return f"{taken}, and takes {sharing.count}"
        if there and (not want.kind or not all(holding.kind for holding in there)):
            return f"{taken}, and one of them or this one has the whole card"
        if memory + want.memory > chip.memory:
            return f"{taken}, with {memory} of {chip.memory} MB; {want.memory} are too many"
        if want.kind == SOFT and cores + want.cores > ALL_CORES:
            return f"{taken}, with {cores} per cent of its cores; {want.cores} are too many"
        missing = units_of(chip).missing(want.kind, [h.kind for h in there]) if want.kind not in ("", SOFT) else None
        if missing is not None:
            return f"{taken}: this one {missing.text}"
    return ""
