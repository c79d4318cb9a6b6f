"""Answers to Allocate calls for AI cores (MindCluster ascend-device-plugin). What a pod is given is written down and,
where it is a slice,
made before the kubelet hears of it (``keeper.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from pumice.effects.vocabulary import NodeEffect, PatchNode, PatchPod
from pumice.model.hardware.npu import SliceKind
from pumice.node.device_list import Unit
from pumice.node.matching import Broken, InLine, Key
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.node.protocol import Answer, Partition, Refuse, Serve
from pumice.ports.cards import CardFacts
from pumice.ports.slices import Place, Slice
from pumice.wire import variables
from pumice.wire.ascend_hami import PREDICATE_TIME, SOFT_SHARE_KEYS, SOFT_SHARE_NOT_SERVED
from pumice.wire.mindcluster import (
    BASE_DEVICES,
    NO_POD,
    NO_RESOURCE,
    NPU_CORE,
    SEGMENT_FAILED,
    SERVER_INDEX,
    SERVER_TYPE,
    SUPER_POD,
    TAKEN,
    Assignment,
    chip_name,
    node_labels,
    parse_assignment,
    placed_at,
    render_base_devices,
    template_cores,
)
from pumice.wire.objects import Node

STRANGER: Final = f"it asks for {NPU_CORE} but was not placed by the scheduler; set its schedulerName"


@dataclass(frozen=True, slots=True)
class Work:
    """A pod that waits, and what the scheduler gave it."""

    pod: NodePod
    container: Container
    assignment: Assignment
    begun: bool = False


def waiting(pod: NodePod, count: int, per_chip: int, served: Set[Key], allocated: AllocatedIds | None) -> Work | Broken | None:
    """Return what the pod waits for, if a call for so many cores may be for it."""
    asking = [container for container in pod.containers if container.requested(NPU_CORE)]
    if count not in {container.requested(NPU_CORE) for container in asking}:
        return None
    key = (pod.uid, asking[0].name)
    if key in served or (allocated is not None and key in allocated):
        return None
    if pod.annotations.get(PREDICATE_TIME) == TAKEN and (allocated is None or pod.admitted):
        return None  # it was served, and nothing says that the kubelet lost the answer
    return _assigned(pod, asking, per_chip)


def work_of(pod: NodePod, container: str, per_chip: int) -> Work | Broken:
    """Return the work of a pod whose container has cores by the kubelet's record."""
    asking = [one for one in pod.containers if one.requested(NPU_CORE)]
    if container not in {one.name for one in asking}:
        return Broken(pod, f"container {container} asks for no {NPU_CORE}")
    return _assigned(pod, asking, per_chip)


def _assigned(pod: NodePod, asking: Sequence[Container], per_chip: int) -> Work | Broken:
    if len(asking) > 1:
        return Broken(pod, f"{len(asking)} of its containers ask for {NPU_CORE}; one may")
    if NPU_CORE not in pod.annotations or not pod.bound:
        return Broken(pod, STRANGER)
    count, text = asking[0].requested(NPU_CORE), pod.annotations[NPU_CORE]
    assignment = parse_assignment(text)
    if assignment is None or _cores(assignment, per_chip) != count:
        return Broken(pod, f"annotation {NPU_CORE} {text[:80]!r} does not name what gives it {count} AI cores")
    return Work(pod, asking[0], assignment)


def _cores(assignment: Assignment, per_chip: int) -> int:
    if len(set(assignment.chips)) < len(assignment.chips):  # a chip that is named twice would be counted as two workers
        return 0
    return template_cores(assignment.template) if assignment.template else per_chip * len(assignment.chips)


class ChipAllocator(InLine):
    """One node's chips of one kind, each of ``per_chip`` AI cores."""

    resource = NPU_CORE
    event = "NPUAllocationFailed"
    failed = MappingProxyType({PREDICATE_TIME: TAKEN})
    without = MappingProxyType({variables.ASCEND_VISIBLE_DEVICES: ""})

    def __init__(
        self, node: str, kind: SliceKind, per_chip: int, claimed: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        """``claimed``: which chips claims hold at this moment, and that in words; all of them under the empty UUID."""
        super().__init__(node)
        self._kind, self._per_chip, self._claimed = kind, per_chip, claimed
        self.show(())

    # -- what the node has -------------------------------------------------------------------------------------------------

    def show(self, cards: Sequence[CardFacts], unhealthy: Mapping[str, str] = MappingProxyType({})) -> None:
        self.chips = {card.minor: card.uuid for card in sorted(cards, key=lambda card: card.minor)}
        """Their UUIDs, by physical id."""
        self.unhealthy = {uuid: why for uuid, why in unhealthy.items() if uuid in self.chips.values()}

    def units(self, resource: str) -> list[Unit]:
        """Chips that are ill make the list shorter (MindCluster ascend-device-plugin)."""
        return [Unit(f"npu-core-{at}", True) for at in range(self._per_chip * (len(self.chips) - len(self.unhealthy)))]

    def closed(self) -> Mapping[str, str]:
        return self.unhealthy

    def missing(self, node: Node) -> list[NodeEffect]:
        """Somebody may have said how many cores a chip has; the rest the driver knows."""
        meta = node.metadata
        notes = {BASE_DEVICES: render_base_devices(self._kind.name, self.chips), SUPER_POD: "-1", SERVER_INDEX: "-1"}
        own = node_labels(self._kind.name, self._kind.driver, self._per_chip)
        labels = {key: text for key, text in own.items() if key != SERVER_TYPE or key not in meta.labels}
        lacking = {key: text for key, text in notes.items() if meta.annotations.get(key) != text}
        unlabelled = {key: text for key, text in labels.items() if meta.labels.get(key) != text}
        return [PatchNode(lacking, unlabelled)] if lacking or unlabelled else []

    def leaving(self, node: Node) -> list[NodeEffect]:
        """The node's chips are somebody else's to share from now on; what it is made of stays told by its labels."""
        said: tuple[str, ...] = (BASE_DEVICES, SUPER_POD, SERVER_INDEX)
        there = [key for key in said if key in node.metadata.annotations]
        return [PatchNode(dict.fromkeys(there))] if there else []

    # -- calls -------------------------------------------------------------------------------------------------------------

    def placed(self, pod: NodePod) -> tuple[int, ...]:
        return (placed_at(pod.annotations),)

    def next_work(self, pod: NodePod, count: int, allocated: AllocatedIds | None) -> Work | Broken | None:
        return waiting(pod, count, self._per_chip, self._served, allocated)

    def answer(self, work: Work | Broken, pods: Sequence[NodePod], ids: Sequence[str]) -> Partition | Refuse:
        return self._partition(work, frozenset(ids))

    def owned(
        self, pods: Sequence[NodePod], pod: NodePod, container: str, allocated: AllocatedIds, seed: str
    ) -> Partition | Refuse:
        return self._partition(work_of(pod, container, self._per_chip), allocated.get((pod.uid, container), frozenset()))

    def _partition(self, work: Work | Broken, ids: frozenset[str]) -> Partition | Refuse:
        if isinstance(work, Broken):
            return self.refuse(work.pod, work.reason)
        chips, template = work.assignment.chips, work.assignment.template
        if strange := next((key for key in work.pod.annotations if key.startswith(SOFT_SHARE_KEYS)), ""):
            return self.refuse(work.pod, f"{strange} {SOFT_SHARE_NOT_SERVED}")
        if template and template not in self._kind.templates:
            return self.refuse(work.pod, f"{SEGMENT_FAILED}: {self._kind.name} has no template {template[:40]!r}")
        for chip in chips:
            if why := self._unusable(chip):
                return self.refuse(work.pod, f"{NO_RESOURCE}: chip {chip_name(self._kind.name, chip)} {why}")
        places = tuple(Place(self.chips[chip], template, chip) for chip in chips)
        return Partition(work.pod, places, lambda given: self._serve(work, given), ids)

    def _unusable(self, chip: int) -> str:
        if chip not in self.chips:
            return "is not on this node"
        claimed = self._claimed()
        why = self.unhealthy.get(self.chips[chip]) or claimed.get(self.chips[chip]) or claimed.get("")
        return f"takes no pods: {why}" if why else ""

    def _serve(self, work: Work, given: Mapping[Place, Slice]) -> Serve:
        """``given``: the slice by the place that was wanted; nothing for whole chips."""
        devices = [slice_.uuid for slice_ in given.values()] or [str(chip) for chip in work.assignment.chips]
        taken = work.pod.annotations.get(PREDICATE_TIME) == TAKEN
        marked = None if taken else PatchPod.of(work.pod.metadata, {PREDICATE_TIME: TAKEN})
        what = f"{'vNPU' if given else 'chips'} {','.join(devices)} {work.assignment.template or 'whole'}"
        return Serve(work.pod, work.container, answer(devices, is_slice=bool(given)), marked, summary=what)

    def nobody(self, count: int) -> str:
        return f"{NO_POD}: none of node {self._node} waits for {count} of {self.resource}"


def answer(devices: Sequence[str], *, is_slice: bool) -> Answer:
    """Return what the container runtime and frameworks for training read (MindCluster ascend-device-plugin)."""
    count = str(len(devices))
    return Answer({
        variables.ASCEND_VISIBLE_DEVICES: ",".join(devices),
        variables.ASCEND_RUNTIME_OPTIONS: "VIRTUAL" if is_slice else "",
        **dict.fromkeys(variables.ASCEND_WORKERS, count),
        variables.ASCEND_RANK: ",".join(map(str, range(len(devices)))),
    })  # fmt: skip
