"""The next work of a pod with NPUs, and what it is given of its annotations (``node/matching.py`` says whose turn it is)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from pumice.node.matching import Broken, Key, time_in
from pumice.node.pods import AllocatedIds, Container, NodePod
from pumice.wire.ascend_hami import (
    BIND_PHASE,
    BIND_TIME,
    NODE,
    PREDICATE_TIME,
    NpuDevice,
    allocated_key,
    parse_npu_devices,
    render_npu_devices,
    to_allocate_key,
)

ALLOCATING, SUCCESS, FAILED = "allocating", "success", "failed"


@dataclass(frozen=True, slots=True)
class Work:
    """One container's turn. ``rest``: what is left of the pod's slots once it is served; empty where the slot was emptied before,
    for an answer that the kubelet lost."""

    pod: NodePod
    container: Container
    devices: tuple[NpuDevice, ...]
    rest: str = ""
    last: bool = False
    begun: bool = False


def waiting(
    pod: NodePod, count: int, word: str, resource: str, served: Set[Key], allocated: AllocatedIds | None
) -> Work | Broken | None:
    """Return what the pod waits for next, if a call for so many devices may be for it."""
    notes = pod.annotations
    phase = notes.get(BIND_PHASE, "")
    if phase == FAILED:
        return None
    every = pod.containers
    wanted = count in {container.requested(resource) for container in every}
    if allocated_key(word) not in notes or notes.get(NODE) != pod.spec.node_name or not pod.bound:
        return Broken(pod, _stranger(pod, word, resource)) if wanted else None
    given = parse_npu_devices(notes[allocated_key(word)]).slots
    left = parse_npu_devices(notes.get(to_allocate_key(word), "")).slots
    places = slots_of(every, len(given), resource)
    if places is None or len(left) > len(given):
        return Broken(pod, f"its annotation has {len(given)} slots, which fit no reading of its containers") if wanted else None
    begun = any(key[0] == pod.uid for key in served) or left != given
    for container in every:
        place = places.get(container.name)
        if (
            place is None
            or (pod.uid, container.name) in served
            or (allocated is not None and (pod.uid, container.name) in allocated)
        ):
            continue
        devices = left[place] if place < len(left) else ()
        again = not devices
        if again and (allocated is None or pod.admitted):
            continue  # it has been served, and nothing says that the kubelet lost the answer
        devices = devices or given[place]
        if container.requested(resource) != count:
            return None  # its turn, and another number of devices
        if len(devices) != count:
            return Broken(pod, f"device number not matched: annotation has {len(devices)}, request has {count}", begun=begun)
        rest = [() if at == place else slot for at, slot in enumerate(left)]
        return Work(pod, container, devices, "" if again else render_npu_devices(rest), not any(rest), begun)
    return None


def work_of(pod: NodePod, name: str, word: str, resource: str, served: Set[Key]) -> Work | Broken:
    """The work for one container of a pod, of which the kubelet has said that it has devices. Its containers may come in any
    order, and more than once."""
    notes = pod.annotations
    if allocated_key(word) not in notes or notes.get(NODE) != pod.spec.node_name or not pod.bound:
        return Broken(pod, _stranger(pod, word, resource))
    given = parse_npu_devices(notes[allocated_key(word)]).slots
    left = parse_npu_devices(notes.get(to_allocate_key(word), "")).slots
    places = slots_of(pod.containers, len(given), resource)
    if places is None or len(left) > len(given):
        return Broken(pod, f"its annotation has {len(given)} slots, which fit no reading of its containers")
    container = next((one for one in pod.containers if one.name == name), None)
    if container is None or name not in places:
        return Broken(pod, f"container {name} was given no card by a scheduler")
    devices, count = given[places[name]], container.requested(resource)
    if len(devices) != count:
        return Broken(pod, f"device number not matched: annotation has {len(devices)}, request has {count}", begun=True)
    done = {place for other, place in places.items() if (pod.uid, other) in served}  # the watch may be behind
    open_ = [() if at in done else slot for at, slot in enumerate(left)]
    place = places[name]
    again = place >= len(open_) or not open_[place]
    rest = [() if at == place else slot for at, slot in enumerate(open_)]
    return Work(pod, container, devices, "" if again else render_npu_devices(rest), not again and not any(rest), begun=True)


def slots_of(containers: Iterable[Container], count: int, resource: str) -> Mapping[str, int] | None:
    """Return which slot belongs to which container that asks: HAMi writes one for every container, Volcano for those that ask,
    and none for an init container. None where the number fits neither: one that asks in an init container and was placed by
    Volcano."""
    every = list(containers)
    asking = [container.name for container in every if container.requested(resource)]
    if count == len(every):
        return {container.name: at for at, container in enumerate(every) if container.requested(resource)}
    if count == len(asking):
        return {name: at for at, name in enumerate(asking)}
    return None


def _stranger(pod: NodePod, word: str, resource: str) -> str:
    elsewhere = pod.annotations.get(NODE)
    if elsewhere and elsewhere != pod.spec.node_name:
        return f"its cards were chosen on node {elsewhere}, but it was bound here"
    if allocated_key(word) in pod.annotations:
        return "cards are written on it, but no scheduler bound it here"
    return f"it asks for {resource} but was not placed by the scheduler; set its schedulerName"


def after(word: str, work: Work) -> dict[str, str | None]:
    """The pod's annotations once it is served: one ``;`` for each slot, and success only when none is left."""
    notes: dict[str, str | None] = {to_allocate_key(word): work.rest} if work.rest else {}
    return {**notes, BIND_PHASE: SUCCESS} if work.last else notes


def lock_owner(text: str) -> str:
    """The pod that the long form of the node's lock names (Volcano pkg/scheduler/api/devices/util.go), as namespace/name."""
    parts = text.split(",")
    return f"{parts[1]}/{parts[2]}" if len(parts) == 3 else ""



def placed(pod: NodePod) -> tuple[int, int]:
    """Return when a scheduler bound the pod, and chose its cards."""
    return time_in(pod.annotations.get(BIND_TIME, "")), time_in(pod.annotations.get(PREDICATE_TIME, ""))
