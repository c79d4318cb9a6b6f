"""What a pod waits for whose chips are cut on demand (``node/matching.py`` says whose turn it is)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Final

from pumice.node.matching import Broken, Key
from pumice.node.pods import Container, Held, NodePod
from pumice.wire.ascend_hami import PREDICATE_TIME
from pumice.wire.mindcluster import NPU_CORE, TAKEN, Assignment, parse_assignment, template_cores

STRANGER: Final = f"it asks for {NPU_CORE} but was not placed by the scheduler; set its schedulerName"


@dataclass(frozen=True, slots=True)
class Turn:
    """A pod that waits, and what the scheduler gave it."""

    pod: NodePod
    container: Container
    assignment: Assignment
    begun: bool = False


def waiting(pod: NodePod, count: int, per_chip: int, served: Set[Key], held: Held | None) -> Turn | Broken | None:
    """What the pod waits for, if a call for so many cores may be for it."""
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
