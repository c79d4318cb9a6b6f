"""The allocator where Allocate calls are answered: a call and the pods of this node in, one decision out.

The shell performs a decision in this order: directories, the pod's patch, ``settled``, the answer to the kubelet, the
lock. A process that dies in between has either not consumed the segment (the kubelet refuses the pod, ``leftovers``
marks it) or has consumed it for that pod alone: nothing is handed out twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pumice.node.effects import Effect, PatchPod, Tell
from pumice.node.pods import Held, NodePod
from pumice.node.vgpu.answer import Answer, ResponseOptions, build, refusal
from pumice.node.vgpu.inventory import SharedCard
from pumice.node.vgpu.matching import FAILED, INIT, Broken, Matcher, Unclear, Work, done, leftovers
from pumice.node.vgpu.record import Record
from pumice.node.vgpu.sharing import Sharing


@dataclass(frozen=True, slots=True)
class Serve:
    """Hand out ``answer`` once ``patch`` is written (None: nothing to write, an init container was served)."""

    work: Work
    ids: frozenset[str]
    answer: Answer
    patch: PatchPod | None
    notes: tuple[Effect, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the pod is served and the node's lock can go."""
        return self.work.last


@dataclass(frozen=True, slots=True)
class Repeat:
    """The kubelet asks again for a pod that was answered: the same answer."""

    answer: Answer
    pod: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """No devices, and why; ``effects`` mark the pod. The text ends up in the pod's status."""

    reason: str
    effects: tuple[Effect, ...]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody else's booking stands where this pod's cards are. It may be gone already: the watch may be behind the
    scheduler's. Who has waited for that refuses the pod."""

    pod: NodePod
    reason: str


Decision = Serve | Repeat | Refuse | Conflict


class Allocator:
    """One node's allocator. ``cards`` may be replaced at any time."""

    def __init__(
        self,
        node: str,
        sharing: Sharing,
        response_options: ResponseOptions,
        dice: random.Random,
        cards: Iterable[SharedCard] = (),
    ) -> None:
        self._node, self._sharing, self._response_options, self._dice = node, sharing, response_options, dice
        self._matcher = Matcher(node, sharing.number, sharing.memory)
        self._answers: dict[frozenset[str], tuple[str, Answer]] = {}
        self._cards: dict[str, SharedCard] = {}
        self.record = Record(node, sharing)
        self.show(cards)

    def show(self, cards: Iterable[SharedCard]) -> None:
        """These are the node's cards from now on."""
        self._cards = {card.uuid: card for card in cards}

    def prefer(
        self, pods: Iterable[NodePod], available: Sequence[str], must: Sequence[str], size: int, held: Held | None = None
    ) -> list[str]:
        """The answer to GetPreferredAllocation for one container."""
        return self._matcher.propose(pods, available, must, size, held)

    def allocate(self, pods: Sequence[NodePod], ids: Sequence[str], held: Held | None = None) -> Decision | None:
        """What to do about one call; None when no pod waits for so many devices (yet).

        ``held``: the containers for which the kubelet has written devices down; None when that cannot be told.
        """
        key = frozenset(ids)
        holder = self._holder(pods, key)
        found = self._matcher.further(holder, len(ids), held) if holder else None
        if holder and found is None:
            return Repeat(self._answers[key][1], holder.key)
        found = found or self._matcher.match(pods, ids, held)
        if found is None:
            return None
        if isinstance(found, Unclear):
            who = " or ".join(sorted(pod.key for pod in found.pods))
            return Refuse(f"the call may be for pod {who}, which were given different shares; nobody is served by chance", ())
        if isinstance(found, Broken):
            return self.refuse(found.pod, found.reason, mark=found.placed)
        if reason := refusal(found, self._cards) or self.record.overreach(found, self._cards):
            return self.refuse(found.pod, reason)
        if reason := self.record.conflict(found, pods, self._cards):
            return Conflict(found.pod, reason)
        answer = build(found, self._cards, self._sharing, self._response_options, self._dice)
        meta = found.pod.metadata
        nothing = found.segment == INIT or found.again
        patch = None if nothing else PatchPod(meta.namespace, meta.name, meta.uid, done(found))
        return Serve(found, key, answer, patch, self._warnings(found))

    def resume(self, published: str, pods: Sequence[NodePod], held: Held | None) -> None:
        """What the process before had handed out."""
        self.record.resume(published, pods, held, self._cards)

    def kubelet_restarted(self) -> None:
        """A kubelet has registered us anew: what was answered before may be asked again, with other ids."""
        self._matcher.kubelet_restarted()
        self._answers.clear()

    def settled(self, served: Serve) -> None:
        """The pod's annotations are written: the work is done, and the answer is kept for a repeated call."""
        self._matcher.settle(served.work)
        self.record.note(served.work)
        self._answers[served.ids] = (served.work.pod.uid, served.answer)

    def refuse(self, pod: NodePod, reason: str, *, mark: bool = True) -> Refuse:
        """Give one pod up: mark it, say why, and forget what was reserved for it."""
        meta = pod.metadata
        self._matcher.refuse(pod.uid)
        tell = Tell("Pod", meta.namespace, meta.name, meta.uid, "VGPUAllocationFailed", reason)
        patch = PatchPod(meta.namespace, meta.name, meta.uid, FAILED)
        return Refuse(f"pod {pod.key}: {reason}", (patch, tell) if mark else (tell,))

    def sweep(self, pods: Sequence[NodePod]) -> list[PatchPod]:
        """Mark pods that ended while they were allocating, and forget pods that are gone."""
        alive = {pod.uid for pod in pods if not pod.finished}
        self._matcher.prune(alive)
        self.record.keep(alive)
        self._answers = {ids: entry for ids, entry in self._answers.items() if entry[0] in alive}
        return [
            PatchPod(pod.metadata.namespace, pod.metadata.name, pod.uid, FAILED) for pod in leftovers(pods, self._node)
        ]

    def _holder(self, pods: Sequence[NodePod], key: frozenset[str]) -> NodePod | None:
        """The pending pod that was answered with exactly these ids: the kubelet gives them to no other pod."""
        uid, _ = self._answers.get(key, ("", None))
        return next((pod for pod in pods if pod.uid == uid and pod.status.phase in ("", "Pending")), None)

    def _warnings(self, work: Work) -> tuple[Effect, ...]:
        meta = work.pod.metadata
        if not work.warning:
            return ()
        return (Tell("Pod", meta.namespace, meta.name, meta.uid, "VGPUPartlyServed", work.warning),)
