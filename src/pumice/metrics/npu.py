"""The page of the NPU plugin: HAMi's series of cards and of soft shares (HAMi ascend-device-plugin), and the exporter's of
slices (Huawei npu-exporter)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pumice.metrics.monitor import LONGEST_SAMPLE, MOST, PODS_OF_A_PAGE, PodUse
from pumice.metrics.text import MetricFamily, gauge
from pumice.ports.cards import CardReading


@dataclass(frozen=True, slots=True)
class SliceOwner:
    """A container; its names are empty where nobody knows whose it is."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class SliceView:
    """One vNPU. Memory in MB, load in per cent."""

    id: int
    card: CardReading
    template: str
    cores: int
    memory: int
    used: int
    load: int
    owner: SliceOwner = SliceOwner()


@dataclass(frozen=True, slots=True)
class SoftView:
    """A container's soft share of one card; ``position``: of the card in what the pod was given. Bytes."""

    owner: SliceOwner
    card: CardReading
    position: int
    limit: int
    used: int


def npu_families(cards: Iterable[CardReading], slices: Iterable[SliceView], softs: Iterable[SoftView]) -> list[MetricFamily]:
    """One page. A card with soft shares shows what they use, once they use anything, as upstream's does."""
    shares = list(softs)
    memory = gauge("hami_host_gpu_memory_used_bytes", "Used memory of a card.")
    load = gauge("hami_host_gpu_utilization_ratio", "Use of a card's AI cores, 0 to 100.")
    for card in cards:
        labels = {"device_index": str(card.index), "device_uuid": card.uuid, "device_type": device_type(card.name)}
        memory.add(sum(share.used for share in shares if share.card.uuid == card.uuid) or card.memory_used, labels)
        load.add(card.utilization, labels)
    return [memory, load, *_slices(slices), *_softs(shares)]


def device_type(name: str) -> str:
    return name if name.startswith(("Ascend-", "NVIDIA-")) else f"Ascend-{name}"


def _slices(slices: Iterable[SliceView]) -> list[MetricFamily]:
    load = gauge("vnpu_pod_aicore_utilization", "Use of a vNPU's AI cores in per cent.")
    total = gauge("vnpu_pod_total_memory", "Memory of a vNPU in KB.")
    used = gauge("vnpu_pod_used_memory", "Used memory of a vNPU in KB.")
    info = gauge("pumice_vnpu_info", "A vNPU, its template and whose it is.")
    for one in slices:
        labels = {
            "id": str(one.card.index), "model_name": device_type(one.card.name), "v_dev_id": str(one.id),
            "aicore_count": str(one.cores), "namespace": one.owner.namespace, "pod_name": one.owner.pod,
            "container_name": one.owner.container, "is_virtual": "true",
        }  # fmt: skip
        load.add(one.load, labels)
        total.add(one.memory * 1024, labels)
        used.add(one.used * 1024, labels)
        info.add(1, {
            "device_uuid": one.card.uuid, "v_dev_id": str(one.id), "template": one.template, "namespace": one.owner.namespace,
            "pod": one.owner.pod, "container": one.owner.container,
        })  # fmt: skip
    return [load, total, used, info]


def _softs(shares: Iterable[SoftView]) -> list[MetricFamily]:
    used = gauge("hami_vgpu_memory_used_bytes", "Memory that a container uses of a card.")
    limit = gauge("hami_vgpu_memory_limit_bytes", "Memory that a container may use of a card.")
    load = gauge("hami_container_device_utilization_ratio", "Use of the card's AI cores, 0 to 100; not the container's.")
    parts = [gauge(f"hami_vgpu_memory_{part}_bytes", "Not told apart: always 0.") for part in ("context", "module", "buffer")]
    for share in shares:
        labels = {
            "namespace": share.owner.namespace, "pod": share.owner.pod, "container": share.owner.container,
            "vdevice_index": str(share.position), "device_uuid": share.card.uuid,
        }  # fmt: skip
        used.add(share.used, labels)
        limit.add(share.limit, labels)
        load.add(share.card.utilization, labels)
        for part in parts:
            part.add(0, labels)
    return [used, limit, load, *parts]


# -- read back by whoever keeps accounts -------------------------------------------------------------------------------

_SAMPLE = re.compile(r'vnpu_pod_(aicore_utilization|total_memory|used_memory)\{([^}]*)\} (\S+)')
_LABEL = re.compile(r'(\w+)="([^"\\]*)"')


def slice_uses(text: str) -> dict[tuple[str, str], PodUse]:
    """Return the figures of each pod's slices on a page, by namespace and name; ``cores``: percent of the AI cores of its slices.
    What no card can say is not read."""
    found: dict[tuple[str, str], PodUse] = {}
    cores: dict[tuple[str, str], int] = {}
    for line in text.split("\n"):
        if len(line) > LONGEST_SAMPLE or (sample := _SAMPLE.fullmatch(line)) is None:
            continue
        labels = dict(_LABEL.findall(sample[2]))
        pod = labels.get("namespace", ""), labels.get("pod_name", "")
        try:
            value, count = float(sample[3]), int(labels.get("aicore_count", ""))
        except ValueError:
            continue
        if not all(pod) or not 0 <= value < MOST or count < 1 or (len(found) >= PODS_OF_A_PAGE and pod not in found):
            continue
        use = found.setdefault(pod, PodUse())
        match sample[1]:
            case "used_memory":
                use.used = (use.used or 0.0) + value
            case "total_memory":
                use.limit = (use.limit or 0.0) + value
            case _:
                cores[pod] = cores.get(pod, 0) + count
                use.cores = (use.cores or 0.0) + value * count
    for pod, number in cores.items():
        found[pod].cores = (found[pod].cores or 0.0) / number
    return found
