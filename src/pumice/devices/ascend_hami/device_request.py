"""From a pod's containers to what it wants of one type of NPU (Volcano pkg/scheduler/api/devices/ascend/hami)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pumice.devices.card_policies import POLICIES
from pumice.model.amount import INT32_MAX
from pumice.model.hardware.npu import NpuChip
from pumice.model.refusal import Refusal
from pumice.wire import names
from pumice.wire.ascend_hami import SOFT, nouse_key, use_key
from pumice.wire.nvidia_vgpu import parse_list
from pumice.wire.objects import Pod, Resources
from pumice.wire.quantity import counted, out_of_range


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The request of a container for chips. ``memory`` in MB of each card, cut to a template already; 0: all of it. ``cores``
    in per cent, for soft shares."""

    count: int
    memory: int = 0
    template: str = ""
    cores: int = 0

    @property
    def whole(self) -> bool:
        return not self.memory


@dataclass(frozen=True, slots=True)
class NpuRequest:
    """Everything of a pod that the choice of cards looks at. A slot per container, None where it wants no card of this type."""

    slots: tuple[ContainerRequest | None, ...]
    soft: bool = False
    use_uuids: tuple[str, ...] = ()
    nouse_uuids: tuple[str, ...] = ()
    policy: str = ""

    @property
    def filled(self) -> tuple[ContainerRequest, ...]:
        return tuple(slot for slot in self.slots if slot is not None)


def npu_request(pod: Pod, chip: NpuChip, policy: str) -> NpuRequest | Refusal | None:
    """None when no container asks for this type; ``policy`` is the cluster's own.

    Init containers have slots of their own, before the others, as HAMi writes them: the plugin finds a container by its slot.
    """
    notes = pod.metadata.annotations
    soft = notes.get(names.VNPU_MODE) == SOFT
    slots: list[ContainerRequest | None] = []
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        found = container_request(container, chip, soft)
        if isinstance(found, Refusal):
            return found
        slots.append(found)
    if not any(slots):
        return None
    return NpuRequest(
        tuple(slots), soft, parse_list(notes.get(use_key(chip.word))), parse_list(notes.get(nouse_key(chip.word))),
        policy if policy in POLICIES else "",
    )  # fmt: skip


class Limited(Protocol):
    """A container, whoever has read it."""

    @property
    def name(self) -> str: ...
    @property
    def resources(self) -> Resources: ...


def container_request(container: Limited, chip: NpuChip, soft: bool) -> ContainerRequest | Refusal | None:
    """None where it asks for no card of this type."""
    limits, requests = container.resources.limits, container.resources.requests
    where = f"container {container.name!r}"
    values: dict[str, int] = {}
    for name in (chip.resource, chip.memory_resource, chip.core_resource):
        text = limits.get(name, requests.get(name))
        value = 0 if text is None else counted(text)
        if not 0 <= value <= INT32_MAX:
            return Refusal(f"{where}: {name}", out_of_range(text, value, memory=name == chip.memory_resource))
        values[name] = value
    count, memory, cores = values.values()
    if not count:
        if memory and chip.resource not in limits:
            return Refusal(
                f"{where}: {chip.memory_resource}",
                f"memory without a card: the kubelet hands out nothing for it; add {chip.resource}: 1",
            )
        return None
    if chip.pairs and count > 1 and count % 2:
        return Refusal(f"{where}: {chip.resource}", f"{chip.word} device request must be 1 or 2*n, got {count}")
    count += count % 2 if chip.pairs else 0
    memory *= chip.factor
    if soft:
        return ContainerRequest(count, memory, "", cores)
    if cores:
        return Refusal(
            f"{where}: {chip.core_resource}",
            f"{chip.core_resource} is only supported in hami-core (soft split) mode; the template says how many cores there are",
        )
    if not memory:
        return ContainerRequest(count)
    template = chip.cut(memory)
    if template is None:
        return Refusal(
            f"{where}: {chip.memory_resource}",
            f"{chip.memory_resource} {memory} is invalid: a whole {chip.word} has {chip.memory} MB",
        )
    if not template.name:
        return ContainerRequest(count)
    if count > 1:
        return Refusal(
            f"{where}: {chip.memory_resource}",
            "vNPU does not support partial memory allocation when requesting multiple devices; leave the memory out for "
            f"{count} whole cards",
        )
    return ContainerRequest(1, template.memory, template.name)
