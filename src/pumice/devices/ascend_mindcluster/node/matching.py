"""Which pod an Allocate call is for (spec ascend 39.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from pumice.node.pods import Container, Held, NodePod
from pumice.wire.ascend_hami import PREDICATE_TIME
from pumice.wire.mindcluster import NPU_CORE, TAKEN, Assignment, parse_assignment, placed_at, template_cores

Key = tuple[str, str]
STRANGER: Final = f"it asks for {NPU_CORE} but was not placed by the scheduler; set its schedulerName"


@dataclass(frozen=True, slots=True)
class Turn:
    """A pod that waits, and what the scheduler gave it."""

    pod: NodePod
    container: Container
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Broken:
    """A pod that waits for so many cores, and cannot have them."""

    pod: NodePod
    reason: str


def next_turn(
    pods: Iterable[NodePod], count: int, node: str, per_chip: int, *, served: Set[Key], held: Held | None
) -> Turn | Broken | None:
    """The kubelet follows the same watch, so pods come as they came; of those that were there before, and nothing else is known,
    the one that was placed first."""
    found = (_turn(pod, count, per_chip, served, held) for pod in pods if _waits(pod, node))
    return min((turn for turn in found if turn is not None), key=_order, default=None)


def _waits(pod: NodePod, node: str) -> bool:
    return (
        pod.spec.node_name == node
        and pod.metadata.deletion_timestamp is None
        and not pod.finished
        and not pod.turned_away
        and not pod.mirror
    )


def _turn(pod: NodePod, count: int, per_chip: int, served: Set[Key], held: Held | None) -> Turn | Broken | None:
    asking = [container for container in pod.containers if container.asks(NPU_CORE)]
    if count not in {container.asks(NPU_CORE) for container in asking}:
        return None
    key = (pod.uid, asking[0].name)
    if key in served or (held is not None and key in held):
        return None
    if pod.annotations.get(PREDICATE_TIME) == TAKEN and (held is None or pod.admitted):
        return None  # it was served, and nothing says that the kubelet lost the answer
    return _assigned(pod, asking, per_chip)


def turn_of(pod: NodePod, container: str, per_chip: int) -> Turn | Broken:
    """The turn of a pod whose container has cores by the kubelet's record."""
    asking = [one for one in pod.containers if one.asks(NPU_CORE)]
    if container not in {one.name for one in asking}:
        return Broken(pod, f"container {container} asks for no {NPU_CORE}")
    return _assigned(pod, asking, per_chip)


def _assigned(pod: NodePod, asking: Sequence[Container], per_chip: int) -> Turn | Broken:
    if len(asking) > 1:
        return Broken(pod, f"{len(asking)} of its containers ask for {NPU_CORE}; one may")
    if NPU_CORE not in pod.annotations or not pod.bound:
        return Broken(pod, STRANGER)
    count, text = asking[0].asks(NPU_CORE), pod.annotations[NPU_CORE]
    assignment = parse_assignment(text)
    if assignment is None or _cores(assignment, per_chip) != count:
        return Broken(pod, f"annotation {NPU_CORE} {text[:80]!r} does not name what gives it {count} AI cores")
    return Turn(pod, asking[0], assignment)


def _cores(assignment: Assignment, per_chip: int) -> int:
    if len(set(assignment.chips)) < len(assignment.chips):  # a chip that is named twice would be counted as two workers
        return 0
    return template_cores(assignment.template) if assignment.template else per_chip * len(assignment.chips)


def _order(found: Turn | Broken) -> tuple[int, int, int, str]:
    return found.pod.arrival, placed_at(found.pod.annotations), found.pod.seen, found.pod.key
