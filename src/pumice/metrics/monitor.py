"""The page of the node's monitor: cards by NVML, containers by their shared regions (HAMi volcano-vgpu-device-plugin
cmd/vgpu-monitor).

A label is never taken from a region: it comes from the pod and from what the plugin handed out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pumice.metrics.text import Lines, MetricFamily, Rendered, escape, gauge, line, render
from pumice.ports.cards import CardReading, InstanceReading
from pumice.ports.region import DeviceUse

ZONE: Final = {"zone": "vGPU"}
_NOTHING: Final = DeviceUse()


@dataclass(frozen=True, slots=True)
class CardView:
    """One card of a container: what it was given (bytes, percent), and what it uses there; None where nobody tells."""

    uuid: str
    limit: int
    cores: int = 0
    use: DeviceUse | None = _NOTHING
    slice_: InstanceReading | None = None
    """Its MIG device on that card, instead of a share."""
    share: str = ""
    """The allocation's id of a share that it has by claim."""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One container with cards, in the order in which it sees them. ``touched``: it has a region, or a slice that tells its use;
    ``last_kernel`` 0 where unknown. ``claim`` and ``request``: by which it has them, else empty."""

    namespace: str
    pod: str
    container: str
    cards: Sequence[CardView] = ()
    touched: bool = False
    last_kernel: int = 0
    claim: str = ""
    request: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A fault in a container's account: a word of ``node.accounts.Sign``."""

    namespace: str
    pod: str
    container: str
    sign: str


@dataclass(frozen=True, slots=True)
class UnaccountedView:
    """Bytes on a card that stand in no region; the names are empty for programs outside of pods."""

    card: str
    memory: int
    namespace: str = ""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class MonitorView:
    """All that one page is made of. ``bad`` and ``strangers`` count regions; ``silent``: seconds for which the driver owes an
    answer. ``processes``: how many compute on each card, by UUID."""

    cards: Sequence[CardReading] = ()
    containers: Sequence[ContainerView] = ()
    instances: Sequence[InstanceReading] = ()
    processes: Iterable[str] = ()
    unaccounted: Sequence[UnaccountedView] = ()
    troubles: Sequence[Trouble] = ()
    bad: int = 0
    strangers: int = 0
    silent: float = 0.0


def monitor_page(view: MonitorView, now: float, *, legacy: bool = True) -> str:
    """The whole page: every value under the name that Volcano's dashboards know, then under HAMi's newer name, then what only we
    tell. ``legacy``: also the families with values in labels."""
    families: list[Rendered] = [*_host(view.cards), *_containers(view.containers, now, legacy), *_own(view)]
    families += [
        gauge("pumice_monitor_bad_regions", "Region files that could not be read at this scrape", [({}, view.bad)]),
        gauge("pumice_monitor_regions_without_grant", "Regions of containers that were given no cards", [({}, view.strangers)]),
        gauge("pumice_monitor_driver_silent_seconds", "For how long the driver has owed an answer", [({}, view.silent)]),
    ]
    return render(families)


def _host(cards: Sequence[CardReading]) -> Iterator[MetricFamily]:
    known = [(card, {"deviceidx": str(card.index), "deviceuuid": card.uuid, **ZONE}) for card in cards]
    newer = [(c, {"device_index": str(c.index), "device_uuid": c.uuid, "device_type": c.name, **ZONE}) for c in cards]
    for memory, cores, labelled in (
        ("HostGPUMemoryUsage", "HostCoreUtilization", known),
        ("hami_host_gpu_memory_used_bytes", "hami_host_gpu_utilization_ratio", newer),
    ):
        yield from _reported(memory, "Bytes in use on the card", ((labels, card.memory_used) for card, labels in labelled))
        busy = ((labels, card.utilization) for card, labels in labelled if card.utilization >= 0)
        yield from _reported(cores, "Utilization of the card's cores (0 to 100)", busy)
    bus = ((labels, card.memory_utilization) for card, labels in newer if card.memory_utilization >= 0)
    yield from _reported("hami_host_gpu_memory_controller_utilization_ratio", "Memory controller utilization (0 to 100)", bus)


_KNOWN: Final = {
    "usage": ("vGPU_device_memory_usage_in_bytes", "vGPU device usage"),
    "limit": ("vGPU_device_memory_limit_in_bytes", "vGPU device limit"),
    "desc": ("Device_memory_desc_of_container", "Container device memory description"),
    "compute": ("Device_utilization_desc_of_container", "Container device utilization description"),
    "last": ("Device_last_kernel_of_container", "Container device last kernel description"),
    "mig": ("MigInfo", "Mig device information for container"),
}
_NEWER: Final = {
    "usage": ("hami_vgpu_memory_used_bytes", "vGPU device memory usage in bytes"),
    "limit": ("hami_vgpu_memory_limit_bytes", "vGPU device memory limit in bytes"),
    "total": ("hami_container_device_memory_bytes", "Container device memory usage in bytes"),
    "compute": ("hami_container_device_utilization_ratio", "Container device SM utilization (0 to 100)"),
    "last": ("hami_container_last_kernel_elapsed_seconds", "Seconds since the container's last kernel"),
    "context": ("hami_vgpu_memory_context_bytes", "Memory of CUDA contexts in bytes"),
    "module": ("hami_vgpu_memory_module_bytes", "Memory of CUDA modules in bytes"),
    "buffer": ("hami_vgpu_memory_buffer_bytes", "Memory of allocations in bytes"),
    "mig": ("hami_mig_device_info", "MIG device of a container"),
    "cores": ("pumice_container_core_limit_percent", "Percent of a card's cores that the container was given (0: no limit)"),
}


def _containers(views: Sequence[ContainerView], now: float, legacy: bool) -> Iterator[Lines]:
    """Lines are joined from text: a node has some ten of them for each card of each container."""
    known: dict[str, list[str]] = {key: [] for key in _KNOWN}
    newer: dict[str, list[str]] = {key: [] for key in _NEWER}

    def add(to: dict[str, list[str]], key: str, labels: str, value: float) -> None:
        to[key].append(line(_KNOWN[key][0] if to is known else _NEWER[key][0], labels, value))

    for view in views:
        pod, namespace, container = escape(view.pod), escape(view.namespace), escape(view.container)
        elapsed = max(0, int(now) - view.last_kernel)
        for index, card in enumerate(view.cards):
            uuid, use = escape(card.uuid), card.use or _NOTHING
            where, of = f'deviceuuid="{uuid}",', ""
            if view.claim:
                of = f',claim="{escape(view.claim)}",request="{escape(view.request)}",share="{escape(card.share)}"'
            pods = f'podname="{pod}",podnamespace="{namespace}",vdeviceid="{index}",zone="vGPU"{of}'
            plain = f'ctrname="{container}",{where}{pods}'
            hami = f'namespace="{namespace}",pod="{pod}",vdevice_index="{index}",zone="vGPU"{of}'
            hami = f'container="{container}",device_uuid="{uuid}",{hami}'
            for to, labels in ((known, plain), (newer, hami)):
                if card.use is not None:
                    add(to, "usage", labels, use.total)
                add(to, "limit", labels, card.limit)
            add(newer, "cores", hami, card.cores)
            if card.slice_ is not None:
                add(newer, "mig", _of_slice(hami, card.slice_), 1)
                if legacy:
                    add(known, "mig", f'ctrname="{container}",{where}instanceid="{card.slice_.gpu_instance}",{pods}', 1)
            if not view.touched:
                continue
            for key, value in (("total", use.total), ("compute", use.sm), ("context", use.context), ("module", use.module),
                               ("buffer", use.data)):  # fmt: skip
                add(newer, key, hami, value)
            if view.last_kernel:
                add(newer, "last", hami, elapsed)
            if legacy:
                sums = f'context="{use.context}",ctrname="{container}",data="{use.data}",{where}module="{use.module}"'
                add(known, "desc", f'{sums},offset="{use.offset}",{pods}', use.total)
                add(known, "compute", plain, use.sm)
                if view.last_kernel:
                    add(known, "last", plain, elapsed)
    for names, made in ((_KNOWN, known), (_NEWER, newer)):
        for key, (name, text) in names.items():
            if made[key]:
                # Declared a counter although it falls, and with values in its labels: kept as upstream's dashboards know it.
                yield Lines(name, text, made[key], "counter" if key == "desc" else "gauge")


def _of_slice(labels: str, slice_: InstanceReading) -> str:
    return (f'{labels},mig_uuid="{slice_.uuid}",profile="{slice_.profile}",gpu_instance_id="{slice_.gpu_instance}",'
            f'compute_instance_id="{slice_.compute_instance}"')  # fmt: skip


def _own(view: MonitorView) -> Iterator[MetricFamily]:
    """Series of our own: the allocated part of each card, its processes, and memory that no account explains."""
    cards = {card.uuid: {"deviceidx": str(card.index), "deviceuuid": card.uuid} for card in view.cards}
    given = {uuid: [0, 0, 0] for uuid in cards}
    for container in view.containers:
        for card in container.cards:
            if card.uuid in given:
                for place, amount in enumerate((card.limit, card.cores, 1)):
                    given[card.uuid][place] += amount
    for place, (name, text) in enumerate((
        ("pumice_card_granted_memory_bytes", "Memory of the card that containers were given"),
        ("pumice_card_granted_core_percent", "Percent of the card's cores that containers were given"),
        ("pumice_card_shares", "Shares of the card that containers hold"),
    )):  # fmt: skip
        yield from _reported(name, text, ((cards[uuid], amounts[place]) for uuid, amounts in given.items()))
    computing = dict.fromkeys(cards, 0)
    for uuid in view.processes:
        if uuid in computing:
            computing[uuid] += 1
    each = ((cards[uuid], count) for uuid, count in computing.items())
    yield from _reported("pumice_card_processes", "Processes that compute on the card", each)
    slices = (({"deviceuuid": s.card, "miguuid": s.uuid, "profile": s.profile}, s) for s in view.instances)
    held = [(labels, reading.memory_used, reading.memory_total) for labels, reading in slices]
    yield from _reported(
        "pumice_mig_memory_used_bytes", "Bytes in use on a MIG device", ((labels, used) for labels, used, _ in held)
    )
    yield from _reported(
        "pumice_mig_memory_total_bytes", "Memory of a MIG device", ((labels, total) for labels, _, total in held)
    )
    yield from _reported(
        "pumice_card_unaccounted_bytes", "Bytes on a card that stand in no container's region: no limit holds for them",
        ((_pod(one.namespace, one.pod, one.container) | {"deviceuuid": one.card}, one.memory) for one in view.unaccounted),
    )  # fmt: skip
    yield from _reported(
        "pumice_region_suspect", "1 while a container's region is not as its library writes it",
        ((_pod(one.namespace, one.pod, one.container) | {"sign": one.sign}, 1) for one in view.troubles),
    )  # fmt: skip


def _pod(namespace: str, pod: str, container: str) -> dict[str, str]:
    return {"podnamespace": namespace, "podname": pod, "ctrname": container}


def _reported(name: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> Iterator[MetricFamily]:
    """The family, unless it has nothing to tell."""
    family = gauge(name, text, samples)
    if family.samples:
        yield family


# -- read back by whoever keeps accounts -------------------------------------------------------------------------------

_USE = re.compile(
    r'(hami_vgpu_memory_used_bytes|hami_vgpu_memory_limit_bytes|hami_container_device_utilization_ratio)'
    r'\{container="[^"\\]*",device_uuid="[^"\\]*",namespace="([^"\\]*)",pod="([^"\\]*)",[^}]*\} (\S+)'
)
_CLAIM = re.compile(r',claim="([^"\\]+)",request="')
LONGEST_SAMPLE, PODS_OF_A_PAGE, MOST = 4096, 10_000, 2.0**63
"""Characters of a line and pods of a page that are read, and the bound of a figure: whoever answers at a monitor's address may
write anything."""


@dataclass(slots=True)
class PodUse:
    """Of one pod's shares together: bytes used, bytes it is limited to, percent of cores; None where nobody tells."""

    used: float | None = None
    limit: float | None = None
    cores: float | None = None


def of_claim(namespace: str, claim: str) -> tuple[str, str]:
    """Return where the figures of a claim stand: no pod has such a name."""
    return namespace, f"claim/{claim}"


def is_of_claim(name: tuple[str, str]) -> bool:
    return name[1].startswith("claim/")


def pod_uses(text: str, *, apart: bool = False) -> dict[tuple[str, str], PodUse]:
    """Return the figures of each pod on a page, by namespace and name; ``apart``: those of shares by claim stand by claim, not in
    the pod's. What no card can say (less than nothing, infinitely much) is not read."""
    found: dict[tuple[str, str], PodUse] = {}
    for each in text.split("\n"):
        if not each.startswith("hami_") or len(each) > LONGEST_SAMPLE or (sample := _USE.match(each)) is None:
            continue
        name, namespace, pod, number = sample.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        if apart and (claim := _CLAIM.search(each)) is not None:
            namespace, pod = of_claim(namespace, claim[1])
        if not 0 <= value < MOST or (len(found) >= PODS_OF_A_PAGE and (namespace, pod) not in found):
            continue
        use = found.setdefault((namespace, pod), PodUse())
        match name:
            case "hami_vgpu_memory_used_bytes":
                use.used = (use.used or 0.0) + value
            case "hami_vgpu_memory_limit_bytes":
                use.limit = (use.limit or 0.0) + value
            case _:
                use.cores = (use.cores or 0.0) + value
    return found
