"""From a pod's labels and AI cores to the templates that serve it (Volcano pkg/scheduler/api/devices/ascend/mindcluster)."""

from __future__ import annotations

from dataclasses import dataclass

from pumice.model.amount import INT32_MAX
from pumice.model.hardware.npu import Dvpp, SliceKind, SliceTemplate, slice_kinds
from pumice.model.refusal import Refusal
from pumice.wire.mindcluster import DVPP, LEVEL, LEVELS, NPU_CORE, RING_CONTROLLER
from pumice.wire.objects import Container, Pod
from pumice.wire.quantity import counted, out_of_range

STATIC_ONLY = "volcano configuration presetVirtualDevice true, only support static vnpu"


@dataclass(frozen=True, slots=True)
class CoreRequest:
    """A request for AI cores. ``templates``: the one that is tried first, and the one that it may fall back to; empty: whole
    chips."""

    cores: int
    templates: tuple[SliceTemplate, ...] = ()

    @property
    def whole(self) -> bool:
        return not self.templates


def core_request(pod: Pod, kind: SliceKind) -> CoreRequest | Refusal | None:
    """None when no container asks for AI cores of this kind."""
    asking = [c for c in (*pod.spec.init_containers, *pod.spec.containers) if counted(_text(c)) != 0]
    labels = pod.metadata.labels
    if not asking:
        return None
    label = labels.get(RING_CONTROLLER, "")
    if label != kind.label and any(label == other.label for other in slice_kinds().values()):
        return None
    container = asking[0]
    where, text, cores = f"container {container.name!r}: {NPU_CORE}", _text(container), counted(_text(container))
    if not 0 <= cores <= INT32_MAX:
        return Refusal(where, out_of_range(text, cores, memory=False))
    if any(c in pod.spec.init_containers for c in asking):
        return Refusal(where, "an init container cannot have AI cores: the node's plugin gives a pod one assignment")
    if len(asking) > 1:
        others = ", ".join(repr(c.name) for c in asking[1:])
        return Refusal(where, f"and {others}: only one container can have AI cores, the node's plugin gives a pod one assignment")
    if labels.get(RING_CONTROLLER) != kind.label:
        found = f"it is {labels[RING_CONTROLLER]!r}" if RING_CONTROLLER in labels else "it is missing"
        return Refusal(f"label {RING_CONTROLLER}", f"{found}; pods that ask for {NPU_CORE} need {kind.label!r}")
    return _resolved(pod, kind, cores)


def _resolved(pod: Pod, kind: SliceKind, cores: int) -> CoreRequest | Refusal:
    """The selection table. Labels count for slices alone."""
    labels = pod.metadata.labels
    if any(cores % chip == 0 for chip in kind.cpus):
        return CoreRequest(cores)
    sizes = sorted({size for size, _ in kind.low})
    if cores not in sizes:
        known = ",".join(map(str, (*sizes, *kind.cpus)))
        return Refusal(NPU_CORE, f"task req npu should be [{known}], or whole chips; {cores} is none of them")
    word = labels.get(DVPP, Dvpp.SHARE.value)
    if word not in tuple(Dvpp):
        return Refusal(f"label {DVPP}", f"err dvpp value:{word}; it is one of {', '.join(Dvpp)}")
    templates = kind.choices(cores, Dvpp(word), high=labels.get(LEVEL) == LEVELS[1])
    if not templates:
        return Refusal(f"label {DVPP}", f"{pod.metadata.name} req {cores} ai-core, but dvpp label is:{word}")
    return CoreRequest(cores, templates)


def _text(container: Container) -> str | int | float:
    resources = container.resources
    return resources.limits.get(NPU_CORE, resources.requests.get(NPU_CORE, 0))
