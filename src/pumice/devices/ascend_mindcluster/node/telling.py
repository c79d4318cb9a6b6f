"""Reports of what the plugin made (Volcano pkg/scheduler/api/devices/ascend/mindcluster, MindCluster ascend-device-plugin):
pods what they have, the cluster which chips are free."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pumice.devices.ascend_mindcluster.node.keeper import State
from pumice.effects.vocabulary import PatchPod
from pumice.model.hardware.npu import SliceKind
from pumice.node.pods import NodePod
from pumice.ports.slices import Entry, Phase
from pumice.wire.device_reports import device_info
from pumice.wire.mindcluster import (
    KUBELET_DEVICES,
    REAL,
    RealSlice,
    chip_name,
    render_real_chips,
    render_real_slice,
)

_CODE = re.compile(r"0x([0-9A-F]{8})")


def realised(
    pods: Iterable[NodePod], record: Mapping[str, str], state: State, chips: Mapping[int, str], kind: SliceKind
) -> Iterator[PatchPod]:
    """To be told to pods that the kubelet has written down, and that were not told or say otherwise. ``record``: the kubelet's
    ids by pod UID, ``chips``: UUIDs by physical id."""
    number = {uuid: chip for chip, uuid in chips.items()}
    for pod in pods:
        ids = record.get(pod.uid, "")
        if not ids or pod.finished:
            continue
        given = [entry for entry in state.entries if entry.owner == pod.uid and entry.uuid == ids and entry.phase is Phase.MADE]
        said = {REAL: _real(given, state, number, kind), KUBELET_DEVICES: ids}
        if said[REAL] and any(pod.annotations.get(key) != text for key, text in said.items()):
            yield PatchPod.of(pod.metadata, said)


def _real(given: Sequence[Entry], state: State, number: Mapping[str, int], kind: SliceKind) -> str:
    if not given or any(entry.place.card not in number for entry in given):
        return ""
    place = given[0].place
    if not place.profile:
        return render_real_chips(sorted(number[entry.place.card] for entry in given))
    made = next((one for one in state.seen.get(place.card, ()) if one.id == place.start), None)
    if made is None or place.profile not in kind.templates:
        return ""
    return render_real_slice(RealSlice(kind.templates[place.profile].word, place.start, number[place.card], made.group))


def report(chips: Mapping[int, str], unhealthy: Mapping[str, str], state: State, now: int) -> dict[str, Any]:
    """The ``DeviceInfo``: free are chips that are healthy, given to nobody, and carry no vNPU, whoever made it."""
    given = {entry.place.card for entry in state.entries} | {card for card, slices in state.seen.items() if slices}
    free = [chip_name(chip) for chip, uuid in chips.items() if uuid not in unhealthy and uuid not in given]
    ill = {chip_name(chip): _CODE.findall(unhealthy[uuid]) for chip, uuid in chips.items() if uuid in unhealthy}
    return device_info(free, list(ill), now, faults=ill)
