"""The pod that an Allocate call is for. The kubelet never says (ADR 120); rules: HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu.

A pod of this node is a *candidate* while it waits for devices that the scheduler gave it. Its work is done in the
kubelet's order: init containers first, then one segment of ``devices-to-allocate`` per asking container. Candidates are
compared only by their *next* piece of work, never by totals. Among equals the order counts in which the pods came to this
node, since the kubelet admits in that order; it is told apart from the scheduler's time, which has whole seconds.

Where the kubelet's own record of devices can be read, it decides what has been served: a kubelet that was killed before it
wrote an answer down admits the pod anew, and gets the same devices again.

A *stranger* asks for the resource although no scheduler of ours placed it. The kubelet calls for it all the same, so it
takes its turn, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pumice.devices.nvidia_vgpu.node.allocations import ContainerPart, container_parts
from pumice.node.matching import Broken, first_in_line, time_in, waits
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.wire import names
from pumice.wire.nvidia_vgpu import SERVED, PodDevice, PodDevices, parse_pod_devices, render_pod_devices

ALLOCATING: Final = "allocating"
SUCCESS: Final = "success"
INIT: Final = -1


@dataclass(frozen=True, slots=True)
class Work:
    """The next thing that one pod waits for: ``devices`` for ``container``.

    ``segment`` is INIT for an init container, which borrows the devices of the first segment that has enough of them.
    ``again``: the segment was consumed for an answer that the kubelet lost, and there is nothing to write.
    ``parts``: how many the pod's assignment has. ``rest`` is ``devices-to-allocate`` once this is done, ``last`` whether the
    pod is then served.
    """

    pod: NodePod
    segment: int
    container: Container
    devices: tuple[PodDevice, ...]
    rest: str = ""
    last: bool = False
    begun: bool = False
    again: bool = False
    warning: str = ""
    parts: int = 0


@dataclass(frozen=True, slots=True)
class Unclear:
    """The call may be for one of several pods, and they would be given different things."""

    pods: tuple[NodePod, ...]


@dataclass(slots=True)
class Served:
    """Answers that this process has given the present kubelet for one pod, beside what the pod's annotations say."""

    segments: set[int] = field(default_factory=set)
    inits: int = 0


class Matcher:
    """Matches calls to pods. Its memory is a cache: after a restart the annotations alone say what is left to do."""

    def __init__(self, node: str, number: str = names.VGPU_NUMBER, memory: str = names.VGPU_MEMORY) -> None:
        self._node, self._number, self._memory = node, number, memory
        self._served: dict[str, Served] = {}
        self._refused: set[str] = set()
        self._proposed: tuple[frozenset[str], str] | None = None

    def propose(
        self,
        pods: Iterable[NodePod],
        available: Sequence[str],
        must: Sequence[str],
        size: int,
        allocated: AllocatedIds | None = None,
    ) -> list[str]:
        """Ids for GetPreferredAllocation: of the cards that the scheduler chose for the pod whose turn it is.

        Must-include ids come first; without a candidate, or without enough ids of its cards, the first ids in order.
        """
        chosen = list(must[:size])
        left = sorted(set(available) - set(chosen), key=_id_order)
        work = self._next(pods, size, allocated)
        if isinstance(work, Work):
            mine = [_card(unit) for unit in chosen]
            for device in work.devices:
                if device.uuid in mine:
                    mine.remove(device.uuid)
                    continue
                unit = next((unit for unit in left if _card(unit) == device.uuid), None)
                if unit is not None and len(chosen) < size:
                    chosen.append(unit)
                    left.remove(unit)
        chosen += left[: size - len(chosen)]
        if isinstance(work, Work) and len(chosen) == size:
            self._proposed = (frozenset(chosen), work.pod.uid)
        return chosen

    def match(
        self, pods: Iterable[NodePod], ids: Sequence[str], allocated: AllocatedIds | None = None
    ) -> Work | Broken | Unclear | None:
        """The work that this Allocate call is for; None when no pod of this node waits for so many devices.

        ``allocated``: what the kubelet has written down; None when that cannot be told.
        """
        proposed, self._proposed = self._proposed, None
        pods = list(pods)
        if proposed and proposed[0] == frozenset(ids):
            found = self._next((pod for pod in pods if pod.uid == proposed[1]), len(ids), allocated)
            if found is not None:
                return found
        return self._next(pods, len(ids), allocated)

    def further(self, pod: NodePod, count: int, allocated: AllocatedIds | None = None) -> Work | Broken | Unclear | None:
        """Return what this one pod still waits for, if it is so many devices."""
        return self._next([pod], count, allocated)

    def of(self, pod: NodePod, name: str) -> Work | Broken:
        """Return the work for one container of this pod, to which the kubelet has given devices. Its containers may come in
        any order, and more than once."""
        notes, counts = pod.annotations, self._counts(pod)
        if notes.get(names.VGPU_NODE) != self._node:
            return self._stranger(pod) or Broken(pod, f"none of its containers asks for {self._number}", counts)
        if not pod.bound:
            return Broken(pod, "cards are written on it, but no scheduler bound it here", counts, placed=False)
        given = parse_pod_devices(notes.get(names.VGPU_IDS, ""))
        left = parse_pod_devices(notes.get(names.DEVICES_TO_ALLOCATE, ""))
        order = container_parts(pod, len(given.containers), self._number, self._memory)
        if isinstance(order, str) or (flaw := _flaw(given, left)):
            return Broken(pod, order if isinstance(order, str) else flaw, counts)
        mine = next((mine for mine in order if mine.container.name == name), None)
        if mine is None:
            return Broken(pod, f"container {name} asks for no {self._number}", counts)
        if mine.part is None:
            return self._borrow(pod, mine.container, given.containers, begun=True)
        devices, wanted = given.containers[mine.part], mine.container.requested(self._number)
        if len(devices) != wanted:
            return Broken(pod, f"container {name} asks for {wanted} cards and was assigned {len(devices)}", counts)
        served = self._served.get(pod.uid, Served()).segments  # the watch may be behind
        parts = [() if at in served else part for at, part in enumerate(left.containers)]
        parts += [()] * (len(given.containers) - len(parts))
        if not parts[mine.part]:
            return Work(pod, mine.part, mine.container, devices, begun=True, again=True, parts=len(parts))
        return self._alone(pod, mine, order, parts, devices)

    def _alone(
        self, pod: NodePod, mine: ContainerPart, order: Sequence[ContainerPart], parts: Sequence[tuple[PodDevice, ...]],
        devices: tuple[PodDevice, ...],
    ) -> Work:  # fmt: skip
        """With this part of the assignment the service of no other container begins or ends."""
        others = [t for t in order if t is not mine and t.part is not None and parts[t.part]]
        last = not any(other.container.requested(self._number) for other in others)
        passed = ", ".join(other.container.name for other in others) if last else ""
        warning = f"no GPU for {passed}: it asks for {self._memory} without {self._number}" if passed else ""
        text = render_pod_devices([() if last or at == mine.part else part for at, part in enumerate(parts)])
        segment = -1 if mine.part is None else mine.part
        return Work(pod, segment, mine.container, devices, text, last, begun=True, warning=warning, parts=len(parts))

    def kubelet_restarted(self) -> None:
        """A kubelet registered us anew: what its predecessor was answered counts only where it was written down."""
        self._served.clear()
        self._proposed = None

    def commit(self, work: Work) -> None:
        """Remember that this work is done, before the cache of pods shows it."""
        served = self._served.setdefault(work.pod.uid, Served())
        if work.segment == INIT:
            served.inits += 1
        else:
            served.segments.add(work.segment)

    def revert(self, work: Work) -> None:
        """That answer went to somebody else."""
        served = self._served.setdefault(work.pod.uid, Served())
        if work.segment == INIT:
            served.inits -= 1
        else:
            served.segments.discard(work.segment)

    def refuse(self, uid: str) -> None:
        """The pod was refused: nothing of it is reserved any more, and its turn is over before the cache shows it."""
        self._served.pop(uid, None)
        self._refused.add(uid)

    def prune(self, uids: Iterable[str]) -> None:
        """Forget pods that are no longer on this node."""
        alive = set(uids)
        self._served = {uid: served for uid, served in self._served.items() if uid in alive}
        self._refused &= alive

    def _next(self, pods: Iterable[NodePod], count: int, allocated: AllocatedIds | None) -> Work | Broken | Unclear | None:
        fitting: list[Work | Broken] = []
        for pod in pods:
            match self._work(pod, allocated):
                case Work(devices=devices) as work if len(devices) == count:
                    fitting.append(work)
                case Broken(counts=counts) as broken if count in counts:
                    fitting.append(broken)
        line = first_in_line(fitting, lambda pod: (_age(pod.annotations),))
        if len({_gives(found) for found in line}) > 1:
            return Unclear(tuple(found.pod for found in line))
        return line[0] if line else None

    def _work(self, pod: NodePod, allocated: AllocatedIds | None) -> Work | Broken | None:
        notes = pod.annotations
        if pod.uid in self._refused or not waits(pod, self._node):
            return None
        if notes.get(names.VGPU_NODE) != self._node:
            return self._stranger(pod)
        if not pod.bound:
            counts = self._counts(pod)
            reason = "cards are written on it, but no scheduler bound it here"
            return Broken(pod, reason, counts, placed=False) if counts else None
        phase = notes.get(names.BIND_PHASE, ALLOCATING)
        if phase != ALLOCATING and (phase != SUCCESS or allocated is None):
            return None
        given = parse_pod_devices(notes.get(names.VGPU_IDS, ""))
        left = parse_pod_devices(notes.get(names.DEVICES_TO_ALLOCATE, ""))
        found = container_parts(pod, len(given.containers), self._number, self._memory)
        reason = found if isinstance(found, str) else _flaw(given, left)
        if isinstance(found, str) or reason:
            return Broken(pod, reason, self._counts(pod)) if phase == ALLOCATING else None
        return self._next_turn(pod, found, given.containers, left.containers, allocated)

    def _next_turn(
        self,
        pod: NodePod,
        order: Sequence[ContainerPart],
        given: Sequence[tuple[PodDevice, ...]],
        left: Sequence[tuple[PodDevice, ...]],
        allocated: AllocatedIds | None,
    ) -> Work | Broken | None:
        served = self._served.get(pod.uid, Served())
        # What is left is what the annotation still has and this process has not answered in the meantime.
        parts = [() if i in served.segments else part for i, part in enumerate(left)]
        parts += [()] * (len(given) - len(parts))
        written = {
            t.container.name
            for t in order
            if allocated is not None and (pod.admitted or (pod.uid, t.container.name) in allocated)
        }
        for mine in order:
            if mine.part is not None and mine.container.name in written:
                parts[mine.part] = ()  # whatever the annotation still has: the watch may be behind
        begun = bool(served.segments) or served.inits > 0
        if list(given) != parts and (allocated is None or any(uid == pod.uid for uid, _ in allocated)):
            begun = True  # before this process; whoever only wrote so on a pod does not come first
        borrowing = 0
        for position, mine in enumerate(order):
            if not mine.container.requested(self._number):
                continue  # memory alone: it has a part, but the kubelet never calls for it
            recorded = mine.container.name in written
            if mine.part is None:
                borrowing += 1
                past = allocated is None and any(t.part is not None and not parts[t.part] for t in order[position:])
                if borrowing > served.inits and not recorded and not past:
                    return self._borrow(pod, mine.container, given, served.inits > 0)
            elif given[mine.part] and len(given[mine.part]) != (count := mine.container.requested(self._number)):
                reason = f"container {mine.container.name} asks for {count} cards and was assigned {len(given[mine.part])}"
                return Broken(pod, reason, frozenset({count}))
            elif parts[mine.part]:
                return self._consume(pod, mine, order, parts, begun)
            elif allocated is not None and not recorded and given[mine.part] and mine.part not in served.segments:
                answered = bool(served.segments) or served.inits > 0
                return Work(pod, mine.part, mine.container, given[mine.part], begun=answered, again=True, parts=len(given))
        return None

    def _stranger(self, pod: NodePod) -> Broken | None:
        counts, elsewhere = self._counts(pod), pod.annotations.get(names.VGPU_NODE)
        reason = f"it asks for {self._number} but was not placed by the scheduler; set its schedulerName"
        if elsewhere:
            reason = f"its cards were chosen on node {elsewhere}, but it was bound here"
        return Broken(pod, reason, counts, placed=False) if counts else None

    def _counts(self, pod: NodePod) -> frozenset[int]:
        every = (*pod.spec.containers, *pod.spec.init_containers)
        return frozenset(container.requested(self._number) for container in every) - {0}

    def _borrow(
        self, pod: NodePod, container: Container, parts: Sequence[tuple[PodDevice, ...]], begun: bool
    ) -> Work | Broken:
        count = container.requested(self._number)
        devices = next((part[:count] for part in parts if len(part) >= count), None)
        if devices is None:
            reason = f"init container {container.name} asks for {count} cards, more than any container was given"
            return Broken(pod, reason, frozenset({count}))
        warning = ""
        if container.restart_policy == "Always":
            warning = f"sidecar {container.name} shares the cards of a container; the scheduler has not booked it"
        return Work(pod, INIT, container, devices, begun=begun, warning=warning)

    def _consume(
        self, pod: NodePod, mine: ContainerPart, order: Sequence[ContainerPart], parts: Sequence[tuple[PodDevice, ...]],
        begun: bool,
    ) -> Work:  # fmt: skip
        segment = mine.part
        assert segment is not None
        open_ = [t for t in order if t.part is not None and parts[t.part]]
        last = not any(t.container.requested(self._number) for t in open_ if t is not mine)
        passed = [
            t.container.name
            for t in open_
            if not t.container.requested(self._number) and (last or (t.part or 0) < segment)
        ]
        rest = [() if last or i <= segment else part for i, part in enumerate(parts)]
        warning = f"no GPU for {', '.join(passed)}: it asks for {self._memory} without {self._number}" if passed else ""
        text = render_pod_devices(rest)
        return Work(pod, segment, mine.container, parts[segment], text, last, begun, warning=warning, parts=len(parts))


def _flaw(given: PodDevices, left: PodDevices) -> str:
    if doubts := (*given.doubts, *left.doubts):
        return doubts[0].text
    if len(left.containers) > len(given.containers):
        counts = f"{len(left.containers)} parts, more than {names.VGPU_IDS} with {len(given.containers)}"
        return f"{names.DEVICES_TO_ALLOCATE} has {counts}"
    return ""


def leftovers(pods: Iterable[NodePod], node: str) -> list[NodePod]:
    """Pods of this node that ended while they were still ``allocating``: they hold up the node lock for nothing.

    The kubelet refuses a pod whose plugin died during Allocate, and tells nobody; so does a check after Allocate.
    """
    return [
        pod
        for pod in pods
        if pod.annotations.get(names.VGPU_NODE) == node
        and pod.spec.node_name == node
        and pod.annotations.get(names.BIND_PHASE) == ALLOCATING
        and pod.finished
    ]


def done(work: Work) -> dict[str, str]:
    """Annotations of a pod after its work was done."""
    notes = {names.DEVICES_TO_ALLOCATE: work.rest}
    return {**notes, names.BIND_PHASE: SUCCESS, names.VGPU_TIME: SERVED} if work.last else notes


FAILED: Final[Mapping[str, str]] = {names.BIND_PHASE: "failed", names.VGPU_TIME: SERVED}
"""Annotations of a pod that could not be served; its assignment stays, the scheduler's books are made from it."""


def _gives(found: Work | Broken) -> tuple[tuple[int, int], ...] | str:
    """Return what tells one answer from another; equal amounts may be swapped, the cards' books stay right."""
    if isinstance(found, Broken):
        return found.pod.uid
    return tuple((device.memory, device.cores) for device in found.devices)


def _age(notes: Mapping[str, str]) -> int:
    text = notes.get(names.VGPU_TIME, "")
    if text == SERVED:  # the time of the Binding outlives the service
        text = notes.get(names.BIND_TIME, "")
    return time_in(text, int(SERVED))


def _card(unit: str) -> str:
    """The card of an id ``<UUID>-<i>``."""
    return unit.rpartition("-")[0]


def _id_order(unit: str) -> tuple[str, int, str]:
    card, _, number = unit.rpartition("-")
    return (card, int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0, unit)
