"""The answers to Allocate calls for NPUs of one type (HAMi ascend-device-plugin). Slices are made by the container runtime;
before it is told of one, the pod's claim to it is written down (``keeper.py``).

The next work of a pod with NPUs, and what it is given of its annotations (``node/matching.py`` says whose turn it is).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from pumice.devices.ascend_hami.device_request import ContainerRequest, container_request
from pumice.devices.ascend_hami.inventory import units_of
from pumice.devices.ascend_hami.node.answer import Handshake, NpuSharing, SoftPlaces, hard, missing, soft, units
from pumice.effects.vocabulary import NodeEffect, PatchNode, PatchPod
from pumice.model.hardware.npu import NpuChip
from pumice.model.refusal import Refusal
from pumice.node.device_list import MESSAGE_LIMIT, Unit, worst_size
from pumice.node.matching import Broken, InLine, Key, time_in
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.node.protocol import Answer, Conflict, Decision, Outdated, Partition, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place
from pumice.wire import names, variables
from pumice.wire.ascend_hami import (
    BIND_PHASE,
    BIND_TIME,
    NODE,
    PREDICATE_TIME,
    SOFT,
    SOFT_SHARE_KEYS,
    SOFT_SHARE_NOT_SERVED,
    NpuDevice,
    RuntimeNpu,
    allocated_key,
    handshake_key,
    parse_npu_devices,
    parse_runtime,
    register_key,
    render_npu_devices,
    runtime_key,
    to_allocate_key,
)
from pumice.wire.objects import Node

ALLOCATING, SUCCESS, FAILED = "allocating", "success", "failed"


@dataclass(frozen=True, slots=True)
class Work:
    """One container's turn. ``rest``: what is left of the pod's slots once it is served; empty where the slot was emptied before,
    for an answer that the kubelet lost."""

    pod: NodePod
    container: Container
    devices: tuple[NpuDevice, ...]
    rest: str = ""
    last: bool = False
    begun: bool = False


def waiting(
    pod: NodePod, count: int, word: str, resource: str, served: Set[Key], allocated: AllocatedIds | None
) -> Work | Broken | None:
    """Return what the pod waits for next, if a call for so many devices may be for it."""
    notes = pod.annotations
    phase = notes.get(BIND_PHASE, "")
    if phase == FAILED:
        return None
    every = pod.containers
    wanted = count in {container.requested(resource) for container in every}
    if allocated_key(word) not in notes or notes.get(NODE) != pod.spec.node_name or not pod.bound:
        return Broken(pod, _stranger(pod, word, resource)) if wanted else None
    given = parse_npu_devices(notes[allocated_key(word)]).slots
    left = parse_npu_devices(notes.get(to_allocate_key(word), "")).slots
    places = slots_of(every, len(given), resource)
    if places is None or len(left) > len(given):
        return Broken(pod, f"its annotation has {len(given)} slots, which fit no reading of its containers") if wanted else None
    begun = any(key[0] == pod.uid for key in served) or left != given
    for container in every:
        place = places.get(container.name)
        if (
            place is None
            or (pod.uid, container.name) in served
            or (allocated is not None and (pod.uid, container.name) in allocated)
        ):
            continue
        devices = left[place] if place < len(left) else ()
        again = not devices
        if again and (allocated is None or pod.admitted):
            continue  # it has been served, and nothing says that the kubelet lost the answer
        devices = devices or given[place]
        if container.requested(resource) != count:
            return None  # its turn, and another number of devices
        if len(devices) != count:
            return Broken(pod, f"device number not matched: annotation has {len(devices)}, request has {count}", begun=begun)
        rest = [() if at == place else slot for at, slot in enumerate(left)]
        return Work(pod, container, devices, "" if again else render_npu_devices(rest), not any(rest), begun)
    return None


def work_of(pod: NodePod, name: str, word: str, resource: str, served: Set[Key]) -> Work | Broken:
    """The work for one container of a pod, of which the kubelet has said that it has devices. Its containers may come in any
    order, and more than once."""
    notes = pod.annotations
    if allocated_key(word) not in notes or notes.get(NODE) != pod.spec.node_name or not pod.bound:
        return Broken(pod, _stranger(pod, word, resource))
    given = parse_npu_devices(notes[allocated_key(word)]).slots
    left = parse_npu_devices(notes.get(to_allocate_key(word), "")).slots
    places = slots_of(pod.containers, len(given), resource)
    if places is None or len(left) > len(given):
        return Broken(pod, f"its annotation has {len(given)} slots, which fit no reading of its containers")
    container = next((one for one in pod.containers if one.name == name), None)
    if container is None or name not in places:
        return Broken(pod, f"container {name} was given no card by a scheduler")
    devices, count = given[places[name]], container.requested(resource)
    if len(devices) != count:
        return Broken(pod, f"device number not matched: annotation has {len(devices)}, request has {count}", begun=True)
    done = {place for other, place in places.items() if (pod.uid, other) in served}  # the watch may be behind
    open_ = [() if at in done else slot for at, slot in enumerate(left)]
    place = places[name]
    again = place >= len(open_) or not open_[place]
    rest = [() if at == place else slot for at, slot in enumerate(open_)]
    return Work(pod, container, devices, "" if again else render_npu_devices(rest), not again and not any(rest), begun=True)


def slots_of(containers: Iterable[Container], count: int, resource: str) -> Mapping[str, int] | None:
    """Return which slot belongs to which container that asks: HAMi writes one for every container, Volcano for those that ask,
    and none for an init container. None where the number fits neither: one that asks in an init container and was placed by
    Volcano."""
    every = list(containers)
    asking = [container.name for container in every if container.requested(resource)]
    if count == len(every):
        return {container.name: at for at, container in enumerate(every) if container.requested(resource)}
    if count == len(asking):
        return {name: at for at, name in enumerate(asking)}
    return None


def _stranger(pod: NodePod, word: str, resource: str) -> str:
    elsewhere = pod.annotations.get(NODE)
    if elsewhere and elsewhere != pod.spec.node_name:
        return f"its cards were chosen on node {elsewhere}, but it was bound here"
    if allocated_key(word) in pod.annotations:
        return "cards are written on it, but no scheduler bound it here"
    return f"it asks for {resource} but was not placed by the scheduler; set its schedulerName"


def after(word: str, work: Work) -> dict[str, str | None]:
    """The pod's annotations once it is served: one ``;`` for each slot, and success only when none is left."""
    notes: dict[str, str | None] = {to_allocate_key(word): work.rest} if work.rest else {}
    return {**notes, BIND_PHASE: SUCCESS} if work.last else notes


def lock_owner(text: str) -> str:
    """The pod that the long form of the node's lock names (Volcano pkg/scheduler/api/devices/util.go), as namespace/name."""
    parts = text.split(",")
    return f"{parts[1]}/{parts[2]}" if len(parts) == 3 else ""



def placed(pod: NodePod) -> tuple[int, int]:
    """Return when a scheduler bound the pod, and chose its cards."""
    return time_in(pod.annotations.get(BIND_TIME, "")), time_in(pod.annotations.get(PREDICATE_TIME, ""))


class NpuAllocator(InLine):
    """One node's chips of one type."""

    lock = names.NODE_LOCK_HAMI
    event = "NPUAllocationFailed"
    failed = MappingProxyType({BIND_PHASE: FAILED})
    without = MappingProxyType({variables.ASCEND_VISIBLE_DEVICES: ""})

    def __init__(
        self, node: str, sharing: NpuSharing, places: SoftPlaces | None = None, offset: float = 1.0,
        claimed: Callable[[], Mapping[str, str]] = dict,
    ) -> None:  # fmt: skip
        """``claimed``: which cards claims hold at this moment, and that in words; all of them under the empty UUID."""
        super().__init__(node)
        self._claimed = claimed
        self._sharing, self._places = sharing, places or SoftPlaces()
        self._word = sharing.chip.word
        self.resource = sharing.chip.resource
        self._handshake = Handshake(self._word, offset)
        self._given: dict[Key, tuple[NpuShare, ...]] = {}
        """Shares handed out to pods that are still there, whatever the kubelet remembers."""
        self.links = f"{self._places.hook}/answers"
        self.show(())

    def learn(self, chip: NpuChip) -> None:
        """The chip by the configuration as it is now; what the node says of it follows when the plugin begins again."""
        self._sharing = replace(self._sharing, chip=chip)

    # -- what the node has -------------------------------------------------------------------------------------------------

    def show(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str] = MappingProxyType({})) -> None:
        self._cards, self._unhealthy = {card.uuid: card for card in cards}, unhealthy

    def units(self, resource: str) -> list[Unit]:
        return units(list(self._cards.values()), self._unhealthy, self._sharing)

    def socket(self, resource: str) -> str:
        return f"{self._word}.sock"

    def shorter(self, resource: str, units: Sequence[Unit]) -> str:
        return f"set vDeviceCount to at most {MESSAGE_LIMIT * self._sharing.count // worst_size(units)} in the node configuration"

    def closed(self) -> Mapping[str, str]:
        return {uuid: why for uuid, why in self._unhealthy.items() if uuid in self._cards}

    def missing(self, node: Node) -> list[NodeEffect]:
        self._owner = lock_owner(node.metadata.annotations.get(self.lock, ""))
        return missing(node, list(self._cards.values()), self._unhealthy, self._sharing)

    def leaving(self, node: Node) -> list[NodeEffect]:
        keys = (register_key(self._word), handshake_key(self._word), names.NODE_NPU_SOFT)
        notes = {key: None for key in keys if key in node.metadata.annotations}
        return [PatchNode(notes)] if notes else []

    def upkeep(self, node: Node, monotonic: float, stamp: str) -> list[NodeEffect]:
        return self._handshake.due(node, monotonic, stamp)

    # -- calls -------------------------------------------------------------------------------------------------------------

    def placed(self, pod: NodePod) -> tuple[int, ...]:
        return placed(pod)

    def next_work(self, pod: NodePod, count: int, allocated: AllocatedIds | None) -> Work | Broken | None:
        if not any(container.requested(self.resource) for container in pod.containers):
            return None
        return waiting(pod, count, self._word, self.resource, self._served, allocated)

    def owned(self, pods: Sequence[NodePod], pod: NodePod, container: str, allocated: AllocatedIds, seed: str) -> Decision:
        return self.answer(work_of(pod, container, self._word, self.resource, self._served), pods)

    def answer(self, work: Work | Broken, pods: Sequence[NodePod], ids: Sequence[str] = ()) -> Decision:
        pod = work.pod
        if isinstance(work, Broken):
            return self.refuse(pod, work.reason)
        if strange := next((key for key in pod.annotations if key.startswith(SOFT_SHARE_KEYS)), ""):
            return self.refuse(pod, f"{strange} {SOFT_SHARE_NOT_SERVED}")
        key = runtime_key(self._word)
        text = pod.annotations.get(key)
        runtime = parse_runtime(text) if text is not None else None
        if runtime is None:
            what = "not set" if text is None else f"value {text[:200]} invalid"
            return self.refuse(pod, f"annotation {key} {what}")
        known = {card.uuid: card for card in runtime}
        for device in work.devices:
            if reason := self._unusable(device.uuid, known):
                return self.refuse(pod, reason)
        if reason := self._named_twice(pod):
            return self.refuse(pod, reason)
        soft = pod.annotations.get(names.VNPU_MODE) == SOFT
        if soft and not self._sharing.soft:
            return self.refuse(pod, f"it asks for {SOFT} and this node does not share its NPUs so")
        wanted = npu_shares(work.container, [device.uuid for device in work.devices], self._sharing.chip, soft=soft)
        if isinstance(wanted, Refusal):
            return self.refuse(pod, wanted.text)
        if reason := other_than_asked(wanted, work.devices, known):
            return Outdated(pod, reason)
        if reason := beyond_the_card(wanted, held_by_others(pods, pod, self._node, self._sharing, self._given), self._sharing):
            return Conflict(pod, reason)
        cards = [self._cards[device.uuid] for device in work.devices]
        if soft:
            return self._soft(work, cards, known, wanted)
        template = wanted[0].kind
        what = f"cards {','.join(str(card.minor) for card in cards)} {template or 'whole'}"
        serve = self._serve(work, hard(cards, known), what, wanted)
        if not template:
            return serve
        return Partition(pod, (Place(cards[0].uuid, template, 0),), lambda _: serve)

    def _soft(
        self, work: Work, cards: Sequence[CardFacts], known: Mapping[str, RuntimeNpu], wanted: tuple[NpuShare, ...]
    ) -> Serve:
        answer = soft(cards, known, self._places, f"{work.pod.uid}_{work.container.name}")
        return self._serve(work, answer, f"cards {','.join(str(card.minor) for card in cards)} {SOFT}", wanted)

    def _serve(self, work: Work, answer: Answer, what: str, wanted: tuple[NpuShare, ...]) -> Serve:
        notes = after(self._word, work)
        patch = PatchPod.of(work.pod.metadata, notes) if notes else None
        return Serve(work.pod, work.container, answer, patch, finished=work.last, summary=what, work=wanted)

    def _named_twice(self, pod: NodePod) -> str:
        given = [device.uuid for slot in parse_npu_devices(pod.annotations[allocated_key(self._word)]).slots for device in slot]
        twice = next((uuid for uuid in given if given.count(uuid) > 1), "")
        return f"card {twice[:100]} is named more than once" if twice else ""

    def _unusable(self, uuid: str, known: Mapping[str, RuntimeNpu]) -> str:
        if uuid not in self._cards or uuid not in known:
            return f"unknown uuid: {uuid[:100]}"
        claimed = self._claimed()
        why = self._unhealthy.get(uuid) or claimed.get(uuid) or claimed.get("")
        return f"card {uuid} takes no pods: {why}" if why else ""

    def committed(self, served: Serve) -> None:
        super().committed(served)
        self._given[served.pod.uid, served.container.name] = served.work

    def sweep(self, pods: Sequence[NodePod]) -> list[PatchPod]:
        """Pods that ended while they were allocating keep the lock for nothing: the kubelet tells nobody."""
        alive = {pod.uid for pod in pods if not pod.finished}
        super().sweep(pods)
        self._given = {key: allocated for key, allocated in self._given.items() if key[0] in alive}
        return [
            PatchPod.of(pod.metadata, {BIND_PHASE: FAILED})
            for pod in pods
            if pod.finished and runtime_key(self._word) in pod.annotations and pod.annotations.get(NODE) == self._node
            and pod.annotations.get(BIND_PHASE) == ALLOCATING
        ]  # fmt: skip

    def nobody(self, count: int) -> str:
        return f"no binding pod found on node {self._node} that waits for {count} of {self.resource}"


# -- Checks that a container may have what its pod's annotations say --------------------------------------------------

# It may have what it asks for, which nobody can change later, and nothing that others hold. Whoever may write a pod may write its
# annotations, and HAMi's plugin takes them at their word.

ALL_CORES: Final = 100
"""Per cent of a card's cores."""


@dataclass(frozen=True, slots=True)
class NpuShare:
    """One container's share of one card. ``kind``: its template, the mode of soft shares, or nothing for the whole card."""

    uuid: str
    kind: str
    memory: int
    cores: int = 0


def npu_shares(container: Container, uuids: Iterable[str], chip: NpuChip, *, soft: bool) -> tuple[NpuShare, ...] | Refusal:
    """Return what the container asks for, on these cards."""
    want = container_request(container, chip, soft)
    if isinstance(want, Refusal):
        return want
    want = want or ContainerRequest(0)
    kind = SOFT if soft else want.template
    return tuple(NpuShare(uuid, kind, want.memory or chip.memory, want.cores) for uuid in uuids)


def other_than_asked(wanted: Sequence[NpuShare], devices: Sequence[NpuDevice], runtime: Mapping[str, RuntimeNpu]) -> str:
    """Return the differences of the annotations from it; empty where they do not."""
    for want, device in zip(wanted, devices, strict=True):
        reported = runtime[want.uuid]
        if want.kind == SOFT:
            fits = (reported.memory, reported.cores, device.memory, device.cores) == (
                want.memory,
                want.cores,
            ) * 2 and not reported.template
        else:
            fits = reported.template == want.kind and device.memory >= want.memory
        if not fits:
            given = reported.template or (
                f"{reported.memory} MB and cores {reported.cores}" if reported.memory else "the whole card"
            )
            return f"its annotations give it {given} ({device.memory} MB) where it asks for {_named(want)}"
    return ""


def _named(want: NpuShare) -> str:
    if want.kind == SOFT:
        return f"{want.memory} MB and cores {want.cores}"
    return f"{want.kind or 'the whole card'} ({want.memory} MB)"


def held_by_others(
    pods: Iterable[NodePod], but: NodePod, node: str, sharing: NpuSharing, given: Mapping[Key, tuple[NpuShare, ...]]
) -> list[NpuShare]:
    """Return what the other pods have that the kubelet has admitted, or that were served. Which cards they are is told by our
    own memory first, and by their annotations; how much of them by what they ask for."""
    found: list[NpuShare] = []
    for pod in pods:
        if pod.uid == but.uid or pod.finished or pod.spec.node_name != node or pod.mirror:
            continue
        ours = [share for (uid, _), allocated in given.items() if uid == pod.uid for share in allocated]
        found += ours or (_by_annotation(pod, sharing.chip) if pod.admitted else [])
    return found


def _by_annotation(pod: NodePod, chip: NpuChip) -> list[NpuShare]:
    if pod.annotations.get(NODE) != pod.spec.node_name:
        return []
    slots = parse_npu_devices(pod.annotations.get(allocated_key(chip.word), "")).slots
    places = slots_of(pod.containers, len(slots), chip.resource) or {}
    soft = pod.annotations.get(names.VNPU_MODE) == SOFT
    found: list[NpuShare] = []
    for container in pod.containers:
        devices = slots[places[container.name]] if container.name in places else ()
        allocated = npu_shares(
            container, [device.uuid for device in devices[: container.requested(chip.resource)]], chip, soft=soft
        )
        found += [] if isinstance(allocated, Refusal) else allocated
    return found


def beyond_the_card(wanted: Iterable[NpuShare], others: Sequence[NpuShare], sharing: NpuSharing) -> str:
    """Return what a card has too little of for this container beside those; empty where it has enough."""
    chip = sharing.chip
    for want in wanted:
        there = [share for share in others if share.uuid == want.uuid]
        memory, cores = sum(h.memory for h in there), sum(h.cores for h in there)
        taken = f"card {want.uuid} has {len(there)} pods already"
        if len(there) >= sharing.count:
            return f"{taken}, and takes {sharing.count}"
        if there and (not want.kind or not all(share.kind for share in there)):
            return f"{taken}, and one of them or this one has the whole card"
        if memory + want.memory > chip.memory:
            return f"{taken}, with {memory} of {chip.memory} MB; {want.memory} are too many"
        if want.kind == SOFT and cores + want.cores > ALL_CORES:
            return f"{taken}, with {cores} per cent of its cores; {want.cores} are too many"
        missing = units_of(chip).missing(want.kind, [h.kind for h in there]) if want.kind not in ("", SOFT) else None
        if missing is not None:
            return f"{taken}: this one {missing.text}"
    return ""
