"""Answers to Allocate calls for vGPUs: a call and the pods of this node in, one decision out.

A process that dies while it performs a decision has either not consumed the segment (the kubelet refuses the pod,
``leftovers`` marks it) or has consumed it for that pod alone: nothing is handed out twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from pumice.devices.nvidia_vgpu.assignment import contradiction, excess, statement
from pumice.devices.nvidia_vgpu.device_request import container_request
from pumice.devices.nvidia_vgpu.node import mps
from pumice.devices.nvidia_vgpu.node.allocations import container_parts
from pumice.devices.nvidia_vgpu.node.answer import ResponseOptions, build, burst_warning, opened, places, refusal
from pumice.devices.nvidia_vgpu.node.inventory import (
    SharedCard,
    capacity,
    core_list,
    memory_list,
    register_annotation,
    share,
    share_list,
    topology_annotation,
)
from pumice.devices.nvidia_vgpu.node.matching import FAILED, INIT, Matcher, Unclear, Work, done, leftovers
from pumice.devices.nvidia_vgpu.node.mig_slices import StaticSlices
from pumice.devices.nvidia_vgpu.node.sharing import Sharing, needed_factor
from pumice.effects.vocabulary import Event, MakeDirectory, NodeEffect, PatchNode, PatchPod, PatchStatus
from pumice.model.refusal import Refusal
from pumice.node.device_list import MESSAGE_LIMIT, Leftovers, Unit, holds, worst_size
from pumice.node.matching import Broken
from pumice.node.mps import Bounds
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.node.protocol import Allocator, Answer, Conflict, Decision, Outdated, Partition, Refuse, Repeat, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Slice
from pumice.wire import names, variables
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import PodDevice, parse_handed_out, parse_pod_devices, render_handed_out
from pumice.wire.objects import Node


class VgpuAllocator(Allocator):
    """One node's vGPUs. ``advertise``: ``status`` keeps memory and cores in the node's status, ``devices`` lists one device
    per unit as upstream does, ``auto`` lists them where the kubelet takes so long a list. ``percentage``: the
    status holds a number for percentages too. ``handshake``: whether older schedulers are answered."""

    lock = names.NODE_LOCK_VGPU
    record_annotation = names.HANDED_OUT
    event = "VGPUAllocationFailed"
    without = MappingProxyType({variables.NVIDIA_VISIBLE_DEVICES: "void"})

    def __init__(
        self,
        node: str,
        sharing: Sharing,
        response_options: ResponseOptions,
        rng: random.Random,
        cards: Sequence[CardFacts] = (),
        *,
        advertise: str = "status",
        percentage: bool = False,
        handshake: str = "auto",
        static: StaticSlices | None = None,
        claimed: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._claimed = claimed
        """Which cards are held by claims now, and by which."""
        self._node, self._sharing, self._response_options, self._rng = node, sharing, response_options, rng
        self._advertise, self._in_status, self._handshake = advertise, advertise == "status", Handshake(handshake)
        self._percentage = percentage
        self.prefers = sharing.prefers
        self._matcher = Matcher(node, sharing.number, sharing.memory)
        self._answers: dict[frozenset[str], tuple[str, Answer]] = {}
        self._cards: dict[str, SharedCard] = {}
        self._mps_clients: dict[str, list[mps.MpsClient]] = {}
        """To init containers, by their pods."""
        self.resource = sharing.number
        self._static = static or StaticSlices()
        self.given = self._static.resources
        self.counted: tuple[str, ...] = () if self._in_status else (sharing.cores, sharing.memory)
        self.record = Record(node, sharing)
        self.links = response_options.links
        self.show(cards)

    def show(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str] = MappingProxyType({})) -> None:
        self._cards = {card.uuid: card for card in share(cards, self._sharing, unhealthy)}
        self._minors = {card.uuid: card.minor for card in cards}
        self._static.show(unhealthy)
        if self._advertise == "auto" and self._cards:
            fits = all(worst_size(self.units(name)) <= MESSAGE_LIMIT for name in self.counted)
            self._advertise = "devices" if fits else "status"
            self._in_status = self._advertise == "status"
            self.counted = () if self._in_status else self.counted

    def learn(self, config: NvidiaConfig) -> None:
        """The geometries of cards in MIG mode as they stand in the device ConfigMap now; all else is read at the start."""
        mine = self._sharing.config
        geometries = replace(mine, known_mig_geometries=config.known_mig_geometries)
        self._sharing = replace(self._sharing, config=geometries)

    def units(self, resource: str) -> list[Unit]:
        if resource in self.given:
            return self._static.units(resource)
        cards = tuple(self._cards.values())
        if resource == self._sharing.number:
            return share_list(cards, self._sharing.numa)
        return memory_list(cards) if resource == self._sharing.memory else core_list(cards)

    def socket(self, resource: str) -> str:
        return f"nvidia-{resource.rpartition('/')[2]}.sock"

    def shorter(self, resource: str, units: Sequence[Unit]) -> str:
        if resource == self.resource:
            return "set deviceSplitCount lower"
        return f"set gpuMemoryFactor to at least {needed_factor(len(units), self._sharing.factor)}, or --advertise=status"

    def closed(self) -> Mapping[str, str]:
        return {card.uuid: card.closed for card in self._cards.values() if card.closed}

    def missing(self, node: Node) -> list[NodeEffect]:
        cards = tuple(self._cards.values())
        return advertisement(
            cards, self._sharing, node, self.record.devices(), in_status=self._in_status, percentage=self._percentage
        ).missing(node)

    def leaving(self, node: Node) -> list[NodeEffect]:
        """Return the writes by which the node object forgets its cards; who holds some of them stays written there."""
        notes = dict.fromkeys((names.NODE_VGPU_REGISTER, names.CARD_TOPOLOGY, names.NODE_VGPU_HANDSHAKE))
        there = {key: None for key in notes if key in node.metadata.annotations}
        kept = [self._sharing.memory, self._sharing.cores] if self._in_status else []
        kept += [self._sharing.percentage] if self._percentage else []
        resources = {name: None for name in kept if name in node.status.capacity or name in node.status.allocatable}
        return [*([PatchNode(there)] if there else ()), *([PatchStatus(resources)] if resources else ())]

    def upkeep(self, node: Node, monotonic: float, stamp: str) -> list[NodeEffect]:
        """The answer to an older scheduler."""
        answer = self._handshake.answer(node.metadata.annotations.get(names.NODE_VGPU_HANDSHAKE), monotonic, stamp)
        return [answer] if answer else []

    def directories(self, pods: Sequence[NodePod]) -> list[MakeDirectory]:
        """Of cached answers: /tmp and /run may be empty after a boot (Volcano pkg/scheduler/api/devices/util.go)."""
        options = self._response_options
        if self._sharing.mps:
            return [MakeDirectory(f"{options.mps_root}/shm")]
        return [MakeDirectory(options.lock)] + [
            MakeDirectory(options.directory(pod.uid, container.name))
            for pod in pods
            if not pod.finished and pod.annotations.get(names.VGPU_NODE) == self._node
            for container in pod.containers
            if container.requested(self.resource)
        ]

    def prefer(
        self,
        pods: Sequence[NodePod],
        available: Sequence[str],
        must: Sequence[str],
        size: int,
        allocated: AllocatedIds | None = None,
    ) -> list[str]:
        return self._matcher.propose(pods, available, must, size, allocated)

    def allocate(
        self, pods: Sequence[NodePod], ids: Sequence[str], allocated: AllocatedIds | None = None, number: str = ""
    ) -> Decision | None:
        key = frozenset(ids)
        holder = self._holder(pods, key)
        found = self._matcher.further(holder, len(ids), allocated) if holder else None
        if holder and found is None:
            return Repeat(self._answers[key][1], holder.key)
        found = found or self._matcher.match(pods, ids, allocated)
        if found is None:
            return None
        if isinstance(found, Unclear):
            who = " or ".join(sorted(pod.key for pod in found.pods))
            return Refuse(f"the call may be for pod {who}, which were given different shares; nobody is served by chance")
        return self._decided(found, key, pods, random.Random(number) if number else self._rng)

    def owned(self, pods: Sequence[NodePod], pod: NodePod, container: str, allocated: AllocatedIds, seed: str) -> Decision:
        work = self._matcher.of(pod, container)
        return self._decided(work, allocated.get((pod.uid, container), frozenset()), pods, random.Random(seed))

    def _decided(self, found: Work | Broken, key: frozenset[str], pods: Sequence[NodePod], rng: random.Random) -> Decision:
        if isinstance(found, Broken):
            return self.refuse(found.pod, found.reason, mark=found.placed)
        unfit = mps.refusal(found) if self._sharing.mps else ""
        if reason := refusal(found, self._cards) or self.record.overreach(found, self._cards) or unfit:
            return self.refuse(found.pod, reason)
        claimed = self._claimed()
        for device in found.devices:
            if why := claimed.get(device.uuid) or claimed.get(""):
                return Conflict(found.pod, f"card {device.uuid} is {why}")
        mixed = mps.mixed(found, self._holders(pods)) if self._sharing.mps else ""
        if reason := self.record.conflict(found, pods, self._cards) or mixed:
            return Conflict(found.pod, reason)
        wanted = places(found, self._cards, self._sharing)
        if isinstance(wanted, str):
            return Outdated(found.pod, wanted)
        if wanted:
            return Partition(found.pod, wanted, lambda made: self._serve(found, key, pods, rng, [made[one] for one in wanted]))
        return self._serve(found, key, pods, rng)

    def _serve(
        self, work: Work, ids: frozenset[str], pods: Sequence[NodePod], rng: random.Random, slices: Sequence[Slice] = ()
    ) -> Serve:
        answer = build(work, self._cards, self._sharing, self._response_options, rng, slices)
        warnings = [text for text in (work.warning, burst_warning(work, self._sharing)) if text]
        return Serve(
            work.pod,
            work.container,
            replace(answer, bounds=self._bounds(work, pods)),
            None if work.segment == INIT or work.again else PatchPod.of(work.pod.metadata, done(work)),
            tuple(Event.on_pod(work.pod.metadata, "Warning", "VGPUPartlyServed", text) for text in warnings),
            finished=work.last,
            summary=" ".join([f"cards={','.join(device.id for device in work.devices)}", *(slice_.uuid for slice_ in slices)]),
            ids=ids,
            work=work,
        )

    def give(self, resource: str, ids: Sequence[str]) -> Answer | str:
        found = self._static.of(resource, ids)
        if isinstance(found, str):
            return found
        claimed = self._claimed()
        for card in (slice_.place.card for slice_ in found):
            if why := claimed.get(card) or claimed.get(""):
                return f"card {card} is {why}"
        minors = [self._minors.get(slice_.place.card, -1) for slice_ in found]
        return opened((), found, minors, self._sharing, self._response_options, self._rng)

    def daemons(self, pods: Sequence[NodePod]) -> Mapping[str, Bounds]:
        """Those of every card that is shared by MPS."""
        if not self._sharing.mps:
            return {}
        allocated = mps.bounds(self._holders(pods), self._sharing)
        shared = (card.uuid for card in self._cards.values() if card.mode != "mig" and not card.unfit)
        return {uuid: allocated.get(uuid, Bounds()) for uuid in shared}

    def _holders(self, pods: Sequence[NodePod]) -> list[mps.MpsClient]:
        alive = {pod.uid for pod in pods if not pod.finished}
        clients = (one for uid, mine in self._mps_clients.items() if uid in alive for one in mine)
        return [*self.record.holders(pods), *clients]

    def _bounds(self, work: Work, pods: Sequence[NodePod]) -> Mapping[str, Bounds]:
        """Return what the work's card must hold its clients to: its container and those there already."""
        if not self._sharing.mps:
            return {}
        mine = [(work.pod, work.container, device) for device in work.devices]
        found = mps.bounds([*self._holders(pods), *mine], self._sharing)
        return {device.uuid: found[device.uuid] for device in work.devices if device.slot < 0}

    def nobody(self, count: int) -> str:
        number = f"{count} vGPUs" if count != 1 else "exactly 1 vGPU"
        return f"no pod of this node waits for {number}; was it placed by the scheduler?"

    def published(self) -> str:
        return self.record.text()

    def resume(self, published: str, pods: Sequence[NodePod], allocated: AllocatedIds | None) -> None:
        self.record.resume(published, pods, allocated, self._cards)

    def kubelet_restarted(self) -> None:
        """Forget what was answered: it may be asked again, with other ids."""
        self._matcher.kubelet_restarted()
        self._answers.clear()

    def committed(self, served: Serve) -> None:
        """The answer is kept for a repeated call."""
        work: Work = served.work
        self._matcher.commit(work)
        self.record.note(work)
        if work.segment == INIT:
            self._mps_clients[work.pod.uid] = [(work.pod, work.container, device) for device in work.devices]
        self._answers[served.ids] = (served.pod.uid, served.answer)

    def unserved(self, served: Serve) -> None:
        self._matcher.revert(served.work)
        self.record.forget(served.work)
        self._answers.pop(served.ids, None)

    def refuse(self, pod: NodePod, reason: str, *, mark: bool = True) -> Refuse:
        """Also mark the pod, and forget what was reserved for it."""
        self._matcher.refuse(pod.uid)
        refused = super().refuse(pod, reason)
        patch = (PatchPod.of(pod.metadata, FAILED),) if mark else ()
        return Refuse(refused.reason, (*patch, *refused.effects))

    def sweep(self, pods: Sequence[NodePod]) -> list[PatchPod]:
        """Mark pods that ended while they were allocating, and forget pods that are gone."""
        alive = {pod.uid for pod in pods if not pod.finished}
        self._matcher.prune(alive)
        self.record.keep(alive)
        self._mps_clients = {uid: clients for uid, clients in self._mps_clients.items() if uid in alive}
        self._answers = {ids: entry for ids, entry in self._answers.items() if entry[0] in alive}
        return [PatchPod.of(pod.metadata, FAILED) for pod in leftovers(pods, self._node)]

    def _holder(self, pods: Sequence[NodePod], key: frozenset[str]) -> NodePod | None:
        """The pending pod that was answered with exactly these ids: the kubelet gives them to no other pod."""
        uid, _ = self._answers.get(key, ("", None))
        return next((pod for pod in pods if pod.uid == uid and pod.status.phase in ("", "Pending")), None)


# -- The node object as it should be, and the writes that bring it there ----------------------------------------------

# Nothing is written that already stands. The handshake is with older schedulers (HAMi volcano-vgpu-device-plugin
# pkg/plugin/vgpu/register.go).

ANSWER_AFTER: Final = 20.0
"""Seconds that a request of an older scheduler may stand: half the traffic, and well within its 60 s."""

OF_GPUSHARE: Final = Leftovers(names.GPU_MEMORY, (names.GPU_NUMBER,), (names.NODE_GPU_UNHEALTHY_IDS,))


@dataclass(frozen=True, slots=True)
class Advertisement:
    """The words of a node: annotations, and extended resources that the plugin itself keeps in the status."""

    annotations: Mapping[str, str]
    resources: Mapping[str, int]

    def missing(self, node: Node) -> list[NodeEffect]:
        """The writes that make ``node`` say it."""
        effects: list[NodeEffect] = []
        old_resources, old_notes = OF_GPUSHARE.of(node)
        notes = {key: text for key, text in self.annotations.items() if node.metadata.annotations.get(key) != text}
        if notes or old_notes:
            effects.append(PatchNode({**notes, **old_notes}))
        if old_resources or any(not holds(node, name, value) for name, value in self.resources.items()):
            kept = {name: str(value) for name, value in self.resources.items()}
            effects.append(PatchStatus({**kept, **old_resources}))
        return effects


def advertisement(
    cards: Sequence[SharedCard], sharing: Sharing, node: Node, held: Iterable[PodDevice] = (), *, in_status: bool,
    percentage: bool = False,
) -> Advertisement:  # fmt: skip
    """Return what the node shall say of these cards, of which pods hold these devices. A register annotation that is there is
    emptied with the last card.

    ``percentage``: schedulers that hold every resource against the node (Volcano from 1.13 on) find one for percentages there,
    with so much of it that it never stands in the way of what they decide by cards (Volcano
    pkg/scheduler/api/devices/nvidia/vgpu).
    """
    register = register_annotation(cards)
    present = names.NODE_VGPU_REGISTER in node.metadata.annotations
    notes = {names.NODE_VGPU_REGISTER: register} if register or present else {}
    if topology := topology_annotation(cards):
        notes[names.CARD_TOPOLOGY] = topology
    resources = dict(capacity(cards, sharing, held)) if cards and in_status else {}
    if cards and percentage and sharing.percentage:
        resources[sharing.percentage] = 100 * sharing.split * len(cards)
    return Advertisement(notes, resources)


class Handshake:
    """Answers older schedulers, which drop a node that does not report again (modes auto, always, never)."""

    MODES: Final = ("auto", "always", "never")

    def __init__(self, mode: str = "auto", answer_after: float = ANSWER_AFTER) -> None:
        self._mode, self._after = mode, answer_after
        self._seen: tuple[str, float] | None = None
        self._started = False
        self._written = float("-inf")

    def answer(self, value: str | None, monotonic: float, stamp: str) -> NodeEffect | None:
        """The write that the present value calls for. ``stamp`` is the time as text, which no reader parses.

        A request is answered by our own clock since we first saw it; its timestamp is in the scheduler's zone.
        """
        first, self._started = not self._started, True
        if not self._due(value, monotonic, first):
            return None
        self._seen, self._written = None, monotonic
        return PatchNode({names.NODE_VGPU_HANDSHAKE: f"Reported {stamp}"})

    def _due(self, value: str | None, monotonic: float, first: bool) -> bool:
        if self._mode == "never":
            return False
        if self._mode == "always":
            return monotonic - self._written >= 30.0
        if value is None or "Deleted" in value:
            return True
        if "Requesting" not in value:
            self._seen = None
            return False
        if first:
            return True
        if self._seen is None or self._seen[0] != value:
            self._seen = (value, monotonic)
        return monotonic - self._seen[1] >= self._after


# -- The record of what this plugin has handed out, and to which pods -------------------------------------------------

# The plugin keeps a record of its own, since whoever owns a pod may write on the pod. It is published on the node
# (``render_handed_out``), where no tenant writes, and read back from there by the next process. Pods that were served before
# there was such a record are taken over by their assignment, where it can be true.

Parts = tuple[tuple[PodDevice, ...], ...]


class Record:
    """Per pod the devices of each part of its assignment; a part that was not handed out is empty."""

    def __init__(self, node: str, sharing: Sharing) -> None:
        self._node, self._sharing = node, sharing
        self._allocated: dict[str, Parts] = {}

    def text(self) -> str:
        """As it is published."""
        return render_handed_out(self._allocated)

    def note(self, work: Work) -> None:
        """This was handed out."""
        if work.segment == INIT:
            return  # borrowed of a part that is noted in its turn
        parts = list(self._allocated.get(work.pod.uid, ()))
        parts += [()] * (max(work.parts, work.segment + 1) - len(parts))
        parts[work.segment] = work.devices
        self._allocated[work.pod.uid] = tuple(parts)

    def forget(self, work: Work) -> None:
        """This was not handed out after all: the call was for somebody else."""
        parts = self._allocated.get(work.pod.uid, ())
        if 0 <= work.segment < len(parts):
            self._allocated[work.pod.uid] = tuple(() if at == work.segment else part for at, part in enumerate(parts))

    def resume(self, text: str, pods: Iterable[NodePod], allocated: AllocatedIds | None, cards: Mapping[str, SharedCard]) -> None:
        """Begin with what the process before published, and with what pods hold that is not named there: it may have ended after
        a container was served and before that was published."""
        known = parse_handed_out(text)
        for pod in pods:
            if pod.finished or pod.uid in self._allocated:
                continue
            published = known[pod.uid].containers if pod.uid in known else ()
            written = self._taken_over(pod, allocated, cards)
            if published and len(published) == len(written):
                served = self._served(pod, allocated, len(written))
                later = (part if at in served else () for at, part in enumerate(written))
                written = tuple(was or part for was, part in zip(published, later, strict=True))
            elif published:
                written = published
            if written:
                self._allocated[pod.uid] = written

    def _served(self, pod: NodePod, allocated: AllocatedIds | None, parts: int) -> set[int]:
        """Return the parts that the kubelet's record names; without a record all of an admitted pod."""
        found = container_parts(pod, parts, self._sharing.number, self._sharing.memory)
        order = found if not isinstance(found, str) else ()
        return {mine.part for mine in order if mine.part is not None
                and (pod.admitted if allocated is None else (pod.uid, mine.container.name) in allocated)}  # fmt: skip

    def _taken_over(self, pod: NodePod, allocated: AllocatedIds | None, cards: Mapping[str, SharedCard]) -> Parts:
        notes = pod.annotations
        served = pod.admitted if allocated is None else any(uid == pod.uid for uid, _ in allocated)
        said = statement(pod.spec, self._sharing.config)
        if not served or pod.mirror or (notes.get(names.VGPU_NODE) != self._node and not said.sure):
            return ()  # its owner may have written another node there: the cards that are named tell as much
        decoded = parse_pod_devices(notes.get(names.VGPU_IDS, ""))
        return () if contradiction(said, decoded, cards.__contains__) else decoded.containers

    def keep(self, uids: Collection[str]) -> None:
        """Forget all pods but these."""
        self._allocated = {uid: parts for uid, parts in self._allocated.items() if uid in uids}

    def devices(self) -> list[PodDevice]:
        """Return all that is handed out."""
        return [device for parts in self._allocated.values() for part in parts for device in part]

    def holders(self, pods: Iterable[NodePod]) -> Iterator[tuple[NodePod, Container, PodDevice]]:
        """Return which containers of these pods have what. Pods that have ended hold nothing."""
        for pod in pods:
            parts = self._allocated.get(pod.uid, ()) if not pod.finished else ()
            found = container_parts(pod, len(parts), self._sharing.number, self._sharing.memory) if parts else ""
            for mine in found if not isinstance(found, str) else ():
                for device in parts[mine.part] if mine.part is not None else ():
                    yield pod, mine.container, device

    def overreach(self, work: Work, cards: Mapping[str, SharedCard]) -> str:
        """Return what the work would give beyond its container's request; empty when nothing."""
        if work.segment == INIT:
            return ""
        device_request = container_request(work.container.name, work.container, self._sharing.config, partial=False)
        if device_request is None or isinstance(device_request, Refusal):
            return (
                f"container {work.container.name} asks for nothing that can be given"
                if device_request is None
                else device_request.text
            )
        more = excess(device_request, work.devices, lambda uuid: cards[uuid].memory)
        return f"its assignment gives container {work.container.name} {more}" if more else ""

    def conflict(self, work: Work, pods: Iterable[NodePod], cards: Mapping[str, SharedCard]) -> str:
        """Return the pod whose booking stands in the way of the work; empty when none does. Pods that have ended hold nothing."""
        if work.segment == INIT:
            return ""
        others = {pod.uid: pod.key for pod in pods if not pod.finished and pod.uid != work.pod.uid}
        mine = [
            *work.devices,
            *(d for i, part in enumerate(self._allocated.get(work.pod.uid, ())) if i != work.segment for d in part),
        ]
        for uuid in dict.fromkeys(device.uuid for device in work.devices if device.slot < 0):
            allocated = {key: [*_on(uuid, self._allocated[uid])] for uid, key in others.items() if uid in self._allocated}
            there = [device for devices in allocated.values() for device in devices] + [d for d in mine if d.uuid == uuid]
            card = cards[uuid]
            room = {
                "shares": (len(there), card.shares),
                "memory": (sum(d.memory for d in there), card.memory),
                "cores": (sum(d.cores for d in there), max(100, card.cores)),
            }
            for what, (sum_, most) in room.items():
                if sum_ > most and any(allocated.values()):
                    who = ", ".join(key for key, devices in sorted(allocated.items()) if devices)
                    return f"card {uuid} has {what} {most}, and with what {who} holds it would be {sum_}"
        return ""


def _on(uuid: str, parts: Sequence[Sequence[PodDevice]]) -> Iterable[PodDevice]:
    return (device for part in parts for device in part if device.uuid == uuid)
