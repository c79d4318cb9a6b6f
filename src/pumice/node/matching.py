"""The pod that an Allocate call is for, where the kubelet does not say: whose next piece of work it fits, in the kubelet's order.

A device type says what a pod waits for next; everything else is the same for all. The kubelet follows the same watch and finishes
a pod before it begins the next, so pods that were begun come first, then as they came to this node; of those that one list
brought, as they were placed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pumice.effects.vocabulary import PatchPod
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.node.protocol import Allocator, Decision, Serve

Key = tuple[str, str]
"""A container: its pod's UID, and its name."""
NEVER = 1 << 64
"""In the place of a time that is not told."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A pod that waits and cannot be served. ``counts``: the calls that it may be taken for; ``placed``: by our scheduler."""

    pod: NodePod
    reason: str
    counts: frozenset[int] = frozenset()
    begun: bool = False
    placed: bool = True


class Work(Protocol):
    """The next work of a pod. ``begun``: a part of the pod has been served."""

    @property
    def pod(self) -> NodePod: ...

    @property
    def container(self) -> Container: ...

    @property
    def begun(self) -> bool: ...


W = TypeVar("W", bound=Work)
Placed = Callable[[NodePod], tuple[int, ...]]
"""When a scheduler placed the pod, by its annotations."""
Order = tuple[bool, bool, int, tuple[int, ...], int, str]


def waits(pod: NodePod, node: str) -> bool:
    """Return whether the kubelet of this node may still ask for devices for the pod."""
    return (
        pod.spec.node_name == node
        and pod.metadata.deletion_timestamp is None
        and pod.status.phase in ("", "Pending")
        and not pod.turned_away
        and not pod.mirror
        and not pod.rejected
    )


def first_in_line(found: Sequence[W | Broken], placed: Placed, owner: str = "") -> list[W | Broken]:
    """Those among which nothing but a name decides, the first by name at the front; none of none. ``owner``: whom the node's lock
    names, as namespace/name: he comes before all."""
    orders = [_order(one, placed, owner) for one in found]
    least = min(orders, default=None)
    equals = [one for one, order in zip(found, orders, strict=True) if order == least]
    return sorted(equals, key=lambda one: one.pod.key)


def _order(found: W | Broken, placed: Placed, owner: str) -> Order:
    pod = found.pod
    return pod.key != owner, not found.begun, pod.arrival, placed(pod), pod.seen, pod.metadata.creation_timestamp


def time_in(text: str, otherwise: int = NEVER) -> int:
    """The time that an annotation tells."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else otherwise


class InLine(Allocator, ABC):
    """An allocator that takes a call for the pod whose turn it is: a device type says what a pod waits for next, when it was
    placed, and what it is given."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._served: set[Key] = set()
        """The containers that this process has answered the present kubelet for, before the cache of pods shows it."""
        self._owner = ""
        """Whom the node's lock names."""

    @abstractmethod
    def next_work(self, pod: NodePod, count: int, allocated: AllocatedIds | None) -> Any:
        """Return what the pod waits for next, or that it is broken, if a call for so many devices may be for it; else None."""

    @abstractmethod
    def answer(self, work: Any, pods: Sequence[NodePod], ids: Sequence[str]) -> Decision:
        """Decide about the work whose turn it is."""

    @abstractmethod
    def placed(self, pod: NodePod) -> tuple[int, ...]:
        """Return when a scheduler placed the pod, by its annotations."""

    def allocate(
        self, pods: Sequence[NodePod], ids: Sequence[str], allocated: AllocatedIds | None = None, number: str = ""
    ) -> Decision | None:
        found = (self.next_work(pod, len(ids), allocated) for pod in pods if waits(pod, self._node))
        line = first_in_line([work for work in found if work is not None], self.placed, self._owner)
        return self.answer(line[0], pods, ids) if line else None

    def committed(self, served: Serve) -> None:
        self._served.add((served.pod.uid, served.container.name))

    def unserved(self, served: Serve) -> None:
        self._served.discard((served.pod.uid, served.container.name))

    def kubelet_restarted(self) -> None:
        self._served.clear()

    def sweep(self, pods: Sequence[NodePod]) -> list[PatchPod]:
        """Forget pods that are gone or have ended."""
        alive = {pod.uid for pod in pods if not pod.finished}
        self._served = {key for key in self._served if key[0] in alive}
        return []
