"""From a pod's containers to what it wants of cards (Volcano pkg/scheduler/api/devices/nvidia/vgpu)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from pumice.devices.card_policies import POLICIES
from pumice.devices.protocol import Tunables
from pumice.model.amount import INT32_MAX
from pumice.model.refusal import Refusal
from pumice.wire import bursts, names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.nvidia_vgpu import group_key, parse_list
from pumice.wire.objects import Container, Pod, Resources
from pumice.wire.quantity import counted, out_of_range, parse_quantity

UNSET = 101
"""A percentage that was not requested; a literal 101 reads the same (Volcano)."""


class ContainerRequest(Struct, frozen=True):
    """Per card: ``percent`` of its memory when it is not UNSET, else ``memory`` units; and ``cores`` percent."""

    count: int
    memory: int
    percent: int
    cores: int

    def need(self, total: int) -> int:
        """Memory units on a HAMi-core card of ``total`` units; the percentage wins over the memory."""
        return self.memory if self.percent == UNSET else total * self.percent // 100

    def at_least(self, other: ContainerRequest) -> bool:
        """Return whether a part of any card that serves this one would serve the other, too."""
        if self.cores < other.cores or (self.percent == UNSET) != (other.percent == UNSET):
            return False
        return self.memory >= other.memory if self.percent == UNSET else self.percent >= other.percent


class VgpuRequest(Struct, frozen=True):
    """Everything of a pod that the choice of cards looks at. ``group`` is set only when the pod asks for spread."""

    containers: tuple[ContainerRequest, ...]
    mode: str | None = None
    use_types: tuple[str, ...] = ()
    nouse_types: tuple[str, ...] = ()
    use_uuids: tuple[str, ...] = ()
    nouse_uuids: tuple[str, ...] = ()
    group: str = ""
    rules: frozenset[int] = frozenset()
    card_policy: str = ""
    node_policy: str = ""

    @property
    def is_one_share(self) -> bool:
        """Return whether one card serves it."""
        return len(self.containers) == 1 and self.containers[0].count == 1

    def key(self) -> tuple[object, ...]:
        containers = tuple((c.count, c.memory, c.percent, c.cores) for c in self.containers)
        lists = (self.use_types, self.nouse_types, self.use_uuids, self.nouse_uuids)
        return (containers, self.mode, *lists, self.group, self.rules, self.card_policy, self.node_policy)


STEERING = frozenset((
    names.VGPU_MODE, names.USE_GPU_TYPE, names.NOUSE_GPU_TYPE, names.USE_GPU_UUID, names.NOUSE_GPU_UUID,
    names.PODGROUP_POLICY, names.CARD_POLICY, names.NODE_POLICY,
))  # fmt: skip
"""The annotations by which ``constraints_of`` is steered; the PodGroup's name counts only with the policy."""


def constraints_of(pod: Pod, policy: str) -> dict[str, object]:
    """Return the annotations by which a pod chooses cards as fields of VgpuRequest; ``policy`` is the cluster's own."""
    notes = pod.metadata.annotations
    use_types = tuple(item.lower() for item in parse_list(notes.get(names.USE_GPU_TYPE)))
    nouse = () if use_types else tuple(item.lower() for item in parse_list(notes.get(names.NOUSE_GPU_TYPE)))
    spread = notes.get(names.PODGROUP_POLICY) == "spread"
    return {
        "mode": notes.get(names.VGPU_MODE),
        "use_types": use_types,
        "nouse_types": nouse,
        "use_uuids": parse_list(notes.get(names.USE_GPU_UUID)),
        "nouse_uuids": parse_list(notes.get(names.NOUSE_GPU_UUID)),
        "group": group_key(pod.metadata.namespace, notes) if spread else "",
        "card_policy": _policy(notes.get(names.CARD_POLICY), policy),
        "node_policy": _policy(notes.get(names.NODE_POLICY), policy),
    }


def _policy(value: str | None, default: str) -> str:
    return value if value is not None and value in POLICIES else default


def containers_of(pod: Pod, config: NvidiaConfig, *, partial: bool) -> tuple[ContainerRequest, ...] | Refusal:
    """The requests of the containers that run side by side: sidecars first (the kubelet serves them first), then the
    regular ones, each in order. Those without a request are left out.

    An ordinary init container runs before all of them on cards that one of them holds, so one must ask for as much.
    """
    found: list[ContainerRequest] = []
    early: list[tuple[str, ContainerRequest]] = []
    for where, container, passing in _containers(pod):
        device_request = container_request(where, container, config, partial=partial)
        if isinstance(device_request, Refusal):
            return device_request
        if device_request is not None:
            if passing:
                early.append((where, device_request))
            else:
                found.append(device_request)
    for where, device_request in early:
        if not any(_covers(later, device_request) for later in found):
            return Refusal(
                where,
                f"asks for {_words(device_request)}, but an init container only lends the cards of a container that asks "
                "for the same number of cards and at least as much of each; give one container this request",
            )
    return tuple(found)


def _containers(pod: Pod) -> Iterator[tuple[str, Container, bool]]:
    """(name, container, whether it ends before the others start); sidecars before regular containers."""
    for container in pod.spec.init_containers:
        yield f"init container {container.name!r}", container, container.restart_policy != "Always"
    for container in pod.spec.containers:
        yield f"container {container.name!r}", container, False


def _covers(later: ContainerRequest, early: ContainerRequest) -> bool:
    if later.count != early.count or later.cores < early.cores:
        return False
    if (later.percent == UNSET) != (early.percent == UNSET):
        return later.percent == 100
    return later.memory >= early.memory if later.percent == UNSET else later.percent >= early.percent


def _words(device_request: ContainerRequest) -> str:
    memory = f"memory {device_request.memory}" if device_request.percent == UNSET else f"{device_request.percent} % of the memory"
    return f"{device_request.count} card(s) with {memory} and cores {device_request.cores}"


class Asking(Protocol):
    """A container as far as it tells what it asks for."""

    @property
    def resources(self) -> Resources: ...


def container_request(where: str, container: Asking, config: NvidiaConfig, *, partial: bool) -> ContainerRequest | Refusal | None:
    """Return what one container wants of its cards; ``where`` names it in a refusal."""
    limits, requests = container.resources.limits, container.resources.requests
    count_name, memory_name = config.resource_count_name, config.resource_memory_name
    core_name, percent_name = config.resource_core_name, config.resource_memory_percentage_name
    if count_name not in limits and memory_name not in limits and not (
        partial and {core_name, percent_name} & set(limits)
    ):
        return None  # D-17: cores or a percentage alone count only by option
    values: dict[str, int | None] = {}
    for name in (count_name, memory_name, percent_name, core_name):
        if not name:
            continue
        value = _quantity(limits.get(name, None if name == count_name else requests.get(name)), name == percent_name)
        if value is not None and not 0 <= value <= INT32_MAX:
            text = limits.get(name, requests.get(name))
            return Refusal(f"{where}: {name}", out_of_range(text, value, memory=name == memory_name))
        values[name] = value
    count = values[count_name] if count_name in limits else max(1, config.default_gpu_num)
    if not count:
        return None  # D-19
    memory = values[memory_name]
    percent = values.get(percent_name) if percent_name else None
    if memory is None and percent is None:
        memory = config.default_memory
    if percent is None:
        percent = UNSET
    if percent == UNSET and not memory:
        percent = 100
    cores = values[core_name]
    return ContainerRequest(count, memory or 0, percent, config.default_cores if cores is None else cores)


def _quantity(text: str | int | float | None, percent: bool) -> int | None:
    """The integer; a broken number (``500m``) is 0, or not given where it is a percentage; no quantity at all is -1."""
    if text is None:
        return None
    if type(text) is int:
        return text
    try:
        value = parse_quantity(text)
    except ValueError:
        return -1
    if value.denominator != 1:
        return None if percent else 0
    return int(value)


# -- The words that people write on pods for vGPUs, as far as lint and what explain tries need to know it -------------


MODES = ("hami-core", "mig")
FORBIDDING = (
    names.USE_GPU_TYPE,
    names.NOUSE_GPU_TYPE,
    names.USE_GPU_UUID,
    names.NOUSE_GPU_UUID,
    names.PODGROUP_POLICY,
)
"""Annotations that only ever keep a pod from cards."""


def tunables(c: NvidiaConfig) -> Tunables:
    return Tunables(
        c.resource_count_name, c.resource_memory_name, c.resource_core_name, c.resource_memory_percentage_name,
        memory_unit=c.memory_unit, mode=names.VGPU_MODE, modes=MODES, forbids=FORBIDDING,
    )  # fmt: skip


def steering() -> dict[str, tuple[str, ...]]:
    policies = tuple(POLICIES)
    anything: dict[str, tuple[str, ...]] = dict.fromkeys(FORBIDDING, ())
    return anything | {
        names.VGPU_MODE: MODES, names.PODGROUP_POLICY: ("spread",),
        names.NODE_POLICY: policies, names.CARD_POLICY: policies,
        names.BURST_MEMORY: (), names.BURST_CORES: (),
    }  # fmt: skip


def remarks(c: NvidiaConfig, limits: Mapping[str, Any], notes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what does not go together, and UUIDs that are none."""
    if c.resource_count_name in limits or c.resource_memory_name in limits:
        if names.GPU_MEMORY in limits or names.GPU_NUMBER in limits:
            yield "", "vgpu-… and the older gpu-… resources exclude each other on one scheduler"
        if names.WHOLE_GPU in limits:
            yield "", "nvidia.com/gpu belongs to another plugin and gives a whole card beside the share"
    if names.NOUSE_GPU_TYPE in notes and names.USE_GPU_TYPE in notes:
        yield names.NOUSE_GPU_TYPE, f"{names.NOUSE_GPU_TYPE} is not looked at, because {names.USE_GPU_TYPE} is there"
    for key in (names.USE_GPU_UUID, names.NOUSE_GPU_UUID):
        if notes.get(key) and "GPU-" not in str(notes[key]):
            yield key, f"{key}: {notes[key]!r} names no card; UUIDs begin with GPU-"
    yield from bursts.misspelt(notes)
    asked = (counted(str(limits.get(name, -1))) for name in (c.resource_memory_name, c.resource_core_name))
    yield from bursts.pointless(notes, *asked)
