"""The metrics of a node's NPUs, collected when they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from pumice.adapters.region.reader import read_npu_share
from pumice.apps.service.own_node import OwnNode
from pumice.apps.service.worker import once
from pumice.metrics.npu import SliceOwner, SliceView, SoftView, npu_families
from pumice.metrics.text import MetricFamily
from pumice.node.pods import NodePod
from pumice.ports.cards import CardReading, Cards
from pumice.ports.slices import NpuRefused, Vnpus
from pumice.wire.ascend_hami import parse_runtime, runtime_key

SHORT_ID = 12
"""Hexadecimal digits of a container's id that the driver knows it by (Huawei's npu-smi reference)."""


async def npu_page(cards: Cards, vnpus: Vnpus, hook: Path, word: str, own: OwnNode) -> list[MetricFamily]:
    """``hook``: the folder with one for each container that has a soft share."""
    pods = own.pods

    def collect() -> list[MetricFamily]:
        readings = cards.readings()
        return npu_families(readings, _slices(readings, vnpus, holders(pods)), _softs(readings, hook, word, pods))

    return await once("NPU metrics", collect)


def holders(pods: Iterable[NodePod]) -> dict[int, SliceOwner]:
    """Return each container's owner, by the id that the driver has of it."""
    return {
        short: SliceOwner(pod.metadata.namespace, pod.metadata.name, status.name)
        for pod in pods
        for status in pod.container_statuses
        if (short := short_id(status.container_id))
    }


def _slices(readings: Iterable[CardReading], vnpus: Vnpus, known: Mapping[int, SliceOwner]) -> Iterator[SliceView]:
    for card in readings:
        with suppress(NpuRefused):
            for one in vnpus.list(card.uuid):
                owner = known.get(one.container, SliceOwner())
                yield SliceView(one.id, card, one.template, one.cores, one.memory, one.used, one.load, owner)


def _softs(readings: Iterable[CardReading], hook: Path, word: str, pods: Iterable[NodePod]) -> Iterator[SoftView]:
    by_uuid = {card.uuid: card for card in readings}
    for pod in pods:
        given = parse_runtime(pod.annotations.get(runtime_key(word), "")) or ()
        for container in pod.containers:
            share = read_npu_share(hook / "containers" / f"{pod.uid}_{container.name}" / "vnpu_local_shmem")
            for position, card in enumerate(given if share and not pod.finished else ()):
                if share and card.uuid in by_uuid and position < len(share.used):
                    owner = SliceOwner(pod.metadata.namespace, pod.metadata.name, container.name)
                    yield SoftView(owner, by_uuid[card.uuid], position, share.limit, share.used[position])


def short_id(container: str) -> int:
    """Return the number by which the driver knows a container, of an id as the kubelet tells it (``containerd://…``); 0 where it
    is none."""
    digits = container.rpartition("/")[2][:SHORT_ID]
    return int(digits, 16) if len(digits) == SHORT_ID and set(digits) <= set("0123456789abcdef") else 0
