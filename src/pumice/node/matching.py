"""Which pod an Allocate call is for. The kubelet never says (decision 9); rules: spec nvidia-device-plugin 11.2.

A pod of this node is a *candidate* while it waits for devices that the scheduler gave it. Its work is done in the
kubelet's order: init containers first, then one segment of ``devices-to-allocate`` per asking container. Candidates are
compared only by their *next* piece of work, never by totals. Among equals the order counts in which the pods came to this
node, since the kubelet admits in that order; it is told apart from the scheduler's time, which has whole seconds.

A *stranger* asks for the resource although no scheduler of ours placed it. The kubelet calls for it all the same, so it
takes its turn, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pumice.node.pods import Container, NodePod
from pumice.wire import names
from pumice.wire.nvidia_vgpu import SERVED, PodDevice, parse_pod_devices, render_pod_devices

ALLOCATING: Final = "allocating"
INIT: Final = -1
AGAIN: Final = -2
ANSWERED: Final = 1 << 30
"""Turns of a pod that this kubelet has an answer for: it does not ask again."""


@dataclass(frozen=True, slots=True)
class Work:
    """The next thing that one pod waits for: ``devices`` for ``container``.

    ``segment`` is INIT for an init container, which borrows the devices of the first segment that has enough of them, and
    AGAIN for a container that was served before: nothing is consumed then.
    ``rest`` is ``devices-to-allocate`` once this is done, ``last`` whether the pod is then served.
    """

    pod: NodePod
    segment: int
    container: Container
    devices: tuple[PodDevice, ...]
    rest: str = ""
    last: bool = False
    begun: bool = False
    warning: str = ""


@dataclass(frozen=True, slots=True)
class Broken:
    """A pod that cannot be served; ``counts`` are the calls that it may be taken for. ``placed``: by our scheduler."""

    pod: NodePod
    reason: str
    counts: frozenset[int]
    placed: bool = True


@dataclass(slots=True)
class Served:
    """What this process has answered for one pod, beside what the pod's annotations say."""

    segments: set[int] = field(default_factory=set)
    inits: int = 0


class Matcher:
    """Matches calls to pods. Its memory is a cache: after a restart the annotations alone say what is left to do."""

    def __init__(self, node: str, number: str = names.VGPU_NUMBER, memory: str = names.VGPU_MEMORY) -> None:
        self._node, self._number, self._memory = node, number, memory
        self._served: dict[str, Served] = {}
        self._refused: set[str] = set()
        self._repeated: dict[str, int] = {}
        self._proposed: tuple[frozenset[str], str] | None = None

    def propose(self, pods: Iterable[NodePod], available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        """Ids for GetPreferredAllocation: of the cards that the scheduler chose for the pod whose turn it is.

        Must-include ids come first; without a candidate, or without enough ids of its cards, the first ids in order.
        """
        chosen = list(must[:size])
        left = sorted(set(available) - set(chosen), key=_id_order)
        work = self._next(pods, size)
        if isinstance(work, Work):
            held = [_card(unit) for unit in chosen]
            for device in work.devices:
                if device.uuid in held:
                    held.remove(device.uuid)
                    continue
                unit = next((unit for unit in left if _card(unit) == device.uuid), None)
                if unit is not None and len(chosen) < size:
                    chosen.append(unit)
                    left.remove(unit)
        chosen += left[: size - len(chosen)]
        if isinstance(work, Work) and len(chosen) == size:
            self._proposed = (frozenset(chosen), work.pod.uid)
        return chosen

    def match(self, pods: Iterable[NodePod], ids: Sequence[str]) -> Work | Broken | None:
        """The work that this Allocate call is for; None when no pod of this node waits for so many devices."""
        proposed, self._proposed = self._proposed, None
        pods = list(pods)
        if proposed and proposed[0] == frozenset(ids):
            found = self._next((pod for pod in pods if pod.uid == proposed[1]), len(ids))
            if found is not None:
                return found
        return self._next(pods, len(ids))

    def again(self, pods: Iterable[NodePod], count: int) -> Work | None:
        """A container of a served pod that has not started: a kubelet that lost its memory admits such a pod anew.

        Only sound when no pod of this node is unknown, for then nobody else can be meant.
        """
        found = [work for pod in pods if (work := self._repeat(pod, count)) is not None]
        return min(found, key=_turn, default=None)

    def kubelet_restarted(self) -> None:
        """The kubelet begins anew with the pods that have not started."""
        self._repeated.clear()
        self._proposed = None

    def further(self, pod: NodePod, count: int) -> Work | Broken | None:
        """What this one pod still waits for, if it is so many devices."""
        return self._next([pod], count)

    def settle(self, work: Work) -> None:
        """Remember that this work is done, before the cache of pods shows it."""
        if work.segment == AGAIN:
            self._repeated[work.pod.uid] = self._repeated.get(work.pod.uid, 0) + 1
            return
        self._repeated[work.pod.uid] = ANSWERED
        served = self._served.setdefault(work.pod.uid, Served())
        if work.segment == INIT:
            served.inits += 1
        else:
            served.segments.update(range(work.segment + 1))

    def refuse(self, uid: str) -> None:
        """The pod was refused: nothing of it is reserved any more, and its turn is over before the cache shows it."""
        self._served.pop(uid, None)
        self._refused.add(uid)

    def prune(self, uids: Iterable[str]) -> None:
        """Forget pods that are no longer on this node."""
        alive = set(uids)
        self._served = {uid: served for uid, served in self._served.items() if uid in alive}
        self._refused &= alive
        self._repeated = {uid: count for uid, count in self._repeated.items() if uid in alive}

    def _next(self, pods: Iterable[NodePod], count: int) -> Work | Broken | None:
        fitting: list[Work | Broken] = []
        for pod in pods:
            match self._work(pod):
                case Work(devices=devices) as work if len(devices) == count:
                    fitting.append(work)
                case Broken(counts=counts) as broken if count in counts:
                    fitting.append(broken)
        return min(fitting, key=_turn, default=None)

    def _work(self, pod: NodePod) -> Work | Broken | None:
        if not self._waits(pod):
            return None
        if pod.annotations.get(names.VGPU_NODE) != self._node:
            return self._stranger(pod)
        if not self._candidate(pod):
            return None
        given = parse_pod_devices(pod.annotations.get(names.VGPU_IDS, ""))
        left = parse_pod_devices(pod.annotations.get(names.DEVICES_TO_ALLOCATE, ""))
        asking = [c for c in pod.spec.containers if c.wants_cards(self._number, self._memory)]
        booked = self._sidecars(pod, len(given.containers) - len(asking))
        asking = [*booked, *asking]
        reason = self._flaw(pod, asking, len(given.containers), len(left.containers))
        if not reason and (doubts := (*given.doubts, *left.doubts)):
            reason = doubts[0].text
        if reason:
            return Broken(pod, reason, self._counts(pod))
        served = self._served.get(pod.uid, Served())
        begun = left != given or bool(served.segments)
        parts = [() if i in served.segments else part for i, part in enumerate(left.containers)]
        waiting = self._waiting_init(pod, booked, parts, served.inits)
        if waiting is not None:
            return self._init_work(pod, waiting, given.containers, served.inits > 0)
        return self._segment_work(pod, asking, parts, begun or served.inits > 0)

    def _sidecars(self, pod: NodePod, extra: int) -> list[Container]:
        """Sidecars with a part of their own, before the parts of the containers: our scheduler books them, upstream's
        does not. Told apart by the number of parts beyond those of the containers."""
        wanting = [
            c for c in pod.spec.init_containers if c.restart_policy == "Always" and c.wants_cards(self._number, self._memory)
        ]
        return wanting if extra == len(wanting) else []

    def _waiting_init(
        self, pod: NodePod, booked: Sequence[Container], parts: Sequence[tuple[PodDevice, ...]], served: int
    ) -> Container | None:
        """The init container without a part whose turn it is. The kubelet goes through init containers in order, so one is
        past when a sidecar or container after it has been served."""
        segment = seen = 0
        for container in pod.spec.init_containers:
            if any(container is sidecar for sidecar in booked):
                if segment < len(parts) and parts[segment]:
                    return None
                segment += 1
            elif container.asks(self._number):
                seen += 1
                if seen > served and all(parts[segment:]):
                    return container
        return None

    def _repeat(self, pod: NodePod, count: int) -> Work | None:
        notes = pod.annotations
        if not self._waits(pod) or pod.started or notes.get(names.VGPU_NODE) != self._node:
            return None
        if notes.get(names.BIND_PHASE) != "success":
            return None
        given = parse_pod_devices(notes.get(names.VGPU_IDS, ""))
        asking = [c for c in pod.spec.containers if c.wants_cards(self._number, self._memory)]
        if given.doubts or self._flaw(pod, asking, len(given.containers), 0):
            return None
        whole = max(given.containers, key=len, default=())
        turns = [(c, whole[: c.asks(self._number)]) for c in pod.spec.init_containers if c.asks(self._number)]
        turns += [(c, part) for c, part in zip(asking, given.containers, strict=True) if c.asks(self._number)]
        for container, devices in turns[self._repeated.get(pod.uid, 0) :]:
            if len(devices) == count:
                return Work(pod, AGAIN, container, devices, warning="")
        return None

    def _waits(self, pod: NodePod) -> bool:
        return (
            pod.spec.node_name == self._node
            and pod.metadata.deletion_timestamp is None
            and pod.status.phase in ("", "Pending")
            and pod.uid not in self._refused
        )

    def _stranger(self, pod: NodePod) -> Broken | None:
        counts, elsewhere = self._counts(pod), pod.annotations.get(names.VGPU_NODE)
        reason = f"it asks for {self._number} but was not placed by the scheduler; set its schedulerName"
        if elsewhere:
            reason = f"its cards were chosen on node {elsewhere}, but it was bound here"
        return Broken(pod, reason, counts, placed=False) if counts else None

    def _counts(self, pod: NodePod) -> frozenset[int]:
        every = (*pod.spec.containers, *pod.spec.init_containers)
        return frozenset(container.asks(self._number) for container in every) - {0}

    def _candidate(self, pod: NodePod) -> bool:
        notes = pod.annotations
        return (
            notes.get(names.BIND_PHASE, ALLOCATING) == ALLOCATING
            and bool(notes.get(names.DEVICES_TO_ALLOCATE, "").strip("; "))
        )

    def _flaw(self, pod: NodePod, asking: Sequence[Container], given: int, left: int) -> str:
        if given != len(asking):
            return f"{names.VGPU_IDS} has {given} parts but {len(asking)} containers ask for vGPUs"
        if left > given:
            return f"{names.DEVICES_TO_ALLOCATE} has {left} parts, more than {names.VGPU_IDS} with {given}"
        return ""

    def _init_work(
        self, pod: NodePod, container: Container, parts: Sequence[tuple[PodDevice, ...]], begun: bool
    ) -> Work | Broken:
        count = container.asks(self._number)
        devices = next((part[:count] for part in parts if len(part) >= count), None)
        if devices is None:
            reason = f"init container {container.name} asks for {count} cards, more than any container was given"
            return Broken(pod, reason, frozenset({count}))
        warning = ""
        if container.restart_policy == "Always":
            warning = f"sidecar {container.name} shares the cards of a container; the scheduler has not booked it"
        return Work(pod, INIT, container, devices, begun=begun, warning=warning)

    def _segment_work(
        self, pod: NodePod, asking: Sequence[Container], parts: list[tuple[PodDevice, ...]], begun: bool
    ) -> Work | None:
        # A container that asks for memory alone has a part but never an Allocate call: it is passed over.
        mine = [i for i, part in enumerate(parts) if part and asking[i].asks(self._number)]
        if not mine:
            return None
        segment = mine[0]
        last = len(mine) == 1
        passed = [asking[i].name for i, part in enumerate(parts) if part and i not in mine and (last or i < segment)]
        rest = [() if last or i <= segment else part for i, part in enumerate(parts)]
        warning = f"no GPU for {', '.join(passed)}: it asks for {self._memory} without {self._number}" if passed else ""
        return Work(
            pod, segment, asking[segment], parts[segment], render_pod_devices(rest), last, begun=begun, warning=warning
        )


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
    return {**notes, names.BIND_PHASE: "success", names.VGPU_TIME: SERVED} if work.last else notes


FAILED: Final[Mapping[str, str]] = {names.BIND_PHASE: "failed", names.VGPU_TIME: SERVED}
"""Annotations of a pod that could not be served; its assignment stays, the scheduler's books are made from it."""


def _turn(found: Work | Broken) -> tuple[bool, int, int, str, str]:
    """Partly served pods first: the kubelet finishes one pod before it starts the next. Then as they came; the oldest of
    those that were there before us."""
    meta = found.pod.metadata
    begun = isinstance(found, Work) and found.begun
    return (not begun, found.pod.arrival, _age(found.pod.annotations), meta.creation_timestamp, meta.uid)


def _age(notes: Mapping[str, str]) -> int:
    text = notes.get(names.VGPU_TIME, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else int(SERVED)


def _card(unit: str) -> str:
    """The card of an id ``<UUID>-<i>``."""
    return unit.rpartition("-")[0]


def _id_order(unit: str) -> tuple[str, int, str]:
    card, _, number = unit.rpartition("-")
    return (card, int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0, unit)
