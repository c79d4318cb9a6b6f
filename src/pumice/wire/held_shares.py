"""The parts of cards that a bound pod holds, read off its annotations and its node's by whoever keeps no ledger.

Both are written by others: what names no card of the node counts for nothing, and no pod holds more of a card than all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pumice.wire import ascend_hami, mindcluster, names, nvidia_vgpu
from pumice.wire.nvidia_gpushare import parse_index
from pumice.wire.objects import Meta, Quantities, Resources
from pumice.wire.quantity import round_up

MOST_DEVICES = 1024
"""Of one pod; more than any machine has."""


@dataclass(frozen=True, slots=True)
class Share:
    """Devices of one model of card and one kind: how many, and the parts of cards that they add up to, as requested and as
    limited. A request for cores that names none is limited to all of them."""

    model: str
    kind: str
    shares: int
    memory: float
    cores: float
    limit_memory: float
    limit_cores: float


@dataclass(frozen=True, slots=True)
class CardFacts:
    model: str
    total: int
    """In the units of the assignments on it; 0 where unknown."""
    shares: int = MOST_DEVICES
    """As many as it can be divided into."""


@dataclass(slots=True)
class NodeCards:
    """The cards of a node, of the HAMi-like device types by UUID, of the others one that stands for all."""

    cards: Mapping[str, CardFacts] = field(default_factory=dict)
    npus: Mapping[str, Mapping[str, CardFacts]] = field(default_factory=dict)
    """By the common word under which they are registered."""
    legacy: tuple[int, CardFacts] | None = None
    """Number of cards that the legacy sharing has here, and the size of each."""
    chip: tuple[str, int] | None = None
    """MindCluster's name of the chips, and the AI cores of each; 0 where it does not say."""


def cards_of(meta: Meta, capacity: Quantities) -> NodeCards:
    """The cards of a node, by its annotations, labels and capacity."""
    notes = meta.annotations
    registered = nvidia_vgpu.parse_register(notes.get(names.NODE_VGPU_REGISTER, ""), short_entries=True).cards
    cards = {card.uuid: CardFacts(card.type, card.total, card.shares) for card in registered}
    npus: dict[str, dict[str, CardFacts]] = {}
    for key, text in notes.items():
        if key.startswith(names.NODE_NPU_REGISTER):
            word = key.removeprefix(names.NODE_NPU_REGISTER)
            found = ascend_hami.parse_npu_register(text).cards
            npus[word] = {npu.id: CardFacts(npu.type or word, npu.memory, npu.count) for npu in found}
    count, memory = _whole(capacity, names.GPU_NUMBER), _whole(capacity, names.GPU_MEMORY)
    legacy = (count, CardFacts(meta.labels.get(PRODUCT, "NVIDIA"), memory // count)) if 0 < count <= MOST_DEVICES else None
    kind, _, cores = meta.labels.get(mindcluster.SERVER_TYPE, "").rpartition("-")
    chip = (kind, int(cores)) if kind and cores.isascii() and cores.isdigit() and len(cores) < 4 else None
    return NodeCards(cards, npus, legacy, chip)


PRODUCT = "nvidia.com/gpu.product"
"""Label of NVIDIA's feature discovery: the legacy sharing tells no model."""


def shares_of(notes: Mapping[str, str], limits: Quantities, node: NodeCards) -> tuple[Share, ...]:
    """Return the shares that the pod holds; ``limits``: of all its containers together."""
    found: dict[tuple[str, str], list[float]] = {}
    for model, kind, devices, *parts in (*_vgpus(notes, node), *_npus(notes, node), *_legacy(notes, limits, node),
                                         *_chips(notes, node)):  # fmt: skip
        sums = found.setdefault((model, kind), [0.0] * 5)
        for at, part in enumerate((devices, *parts)):
            sums[at] += part
    return tuple(Share(model, kind, round(sums[0]), *sums[1:]) for (model, kind), sums in found.items())


Part = tuple[str, str, int, float, float, float, float]
"""Model, kind, devices; memory and cores as requested, and as limited."""


def _vgpus(notes: Mapping[str, str], node: NodeCards) -> Iterator[Part]:
    of_card: dict[tuple[str, str], list[nvidia_vgpu.PodDevice]] = {}
    assigned = nvidia_vgpu.parse_pod_devices(notes.get(names.VGPU_IDS, "")).containers
    for device in [device for devices in assigned for device in devices]:
        if device.uuid in node.cards:
            of_card.setdefault((device.uuid, "mig" if device.slot >= 0 else "vgpu"), []).append(device)
    for (uuid, kind), devices in of_card.items():
        card = node.cards[uuid]
        memory = _part(sum(device.memory for device in devices), card.total)
        cores = _part(sum(device.cores for device in devices), 100)
        if kind == "mig":
            slices = _part(sum(_profile_memory(device) or device.memory for device in devices), card.total)
            limits = max(memory, slices), cores or max(memory, slices)
        else:
            limits = memory, 1.0 if any(not device.cores for device in devices) else cores
        yield card.model, kind, min(len(devices), card.shares), memory, cores, *limits


def _profile_memory(device: nvidia_vgpu.PodDevice) -> int:
    """MiB of the slice that its place names; 0 where it names a group, whose geometry is the scheduler's to know."""
    gigabytes = device.profile.partition(".")[2].partition("gb")[0]
    return int(gigabytes) * 1024 if gigabytes.isdigit() else 0


def _npus(notes: Mapping[str, str], node: NodeCards) -> Iterator[Part]:
    for word, cards in node.npus.items():
        held: dict[str, list[ascend_hami.NpuDevice]] = {}
        assigned = ascend_hami.parse_npu_devices(notes.get(ascend_hami.allocated_key(word), "")).slots
        for device in (device for devices in assigned for device in devices):
            if device.uuid in cards:
                held.setdefault(device.uuid, []).append(device)
        for uuid, devices in held.items():
            card = cards[uuid]
            memory, cores = _part(sum(one.memory for one in devices), card.total), _part(sum(one.cores for one in devices), 100)
            # A template's cores go with its memory.
            yield card.model, "npu", min(len(devices), card.shares), memory, cores, memory, cores or memory


def _legacy(notes: Mapping[str, str], limits: Quantities, node: NodeCards) -> Iterator[Part]:
    if node.legacy is None:
        return
    count, card = node.legacy
    ids = {each for each in parse_index(notes.get(names.GPU_INDEX)) or () if 0 <= each < count}
    requested = _whole(limits, names.GPU_MEMORY)
    for _ in ids:
        memory = _part(requested, card.total) if requested else 1.0
        yield card.model, "gpushare", 1, memory, 0.0 if requested else 1.0, memory, 1.0


def _chips(notes: Mapping[str, str], node: NodeCards) -> Iterator[Part]:
    if node.chip is None:
        return
    kind, cores = node.chip
    assigned = mindcluster.parse_assignment(notes.get(mindcluster.NPU_CORE, ""))
    chips = assigned.chips if assigned else mindcluster.parse_whole_chips(kind, notes.get(mindcluster.whole_chips(kind), ""))
    template = mindcluster.template_cores(assigned.template) if assigned else 0
    part = _part(template, cores) if template and cores else 1.0
    for _ in set(chips):
        yield kind, "npu", 1, part, part, part, part


def _part(amount: float, whole: int) -> float:
    """Nothing of what is not known."""
    return min(1.0, amount / whole) if whole > 0 else 0.0


def _whole(amounts: Quantities, name: str) -> int:
    try:
        return max(0, round_up(amounts.get(name, 0)))
    except ValueError:
        return 0


# -- whose run it is, by which later ones are told ---------------------------------------------------------------------

_GENERATED = re.compile(r"(-(?:[0-9]+|[bcdfghjklmnpqrstvwxz2456789]{5}|[bcdfghjklmnpqrstvwxz2456789]{8,10}))+$")
"""Endings that Kubernetes and controllers put behind a name (apimachinery util/rand), and indices."""


def owner_of(meta: Meta) -> str:
    """The name of what makes such pods again and again, without what is generated."""
    named = [meta.labels.get(names.JOB_NAME, ""), *(owner.name for owner in meta.owner_references if owner.controller), meta.name]
    name = next(each for each in (*named, "-") if each)
    return _GENERATED.sub("", name) or name


def request_of(limits: Quantities) -> str:
    """Return the request of devices, as a word."""
    domains = tuple(f"{domain}/" for domain in names.DOMAINS)
    requested = (f"{name.partition('/')[2]}={amount}" for name, amount in sorted(limits.items()) if name.startswith(domains))
    return ",".join(requested)[:120]


def limits_of(containers: Iterable[Resources]) -> Quantities:
    """The devices that the containers request together, by resource; what is no number counts for nothing."""
    sums: dict[str, str | int | float] = {}
    domains = tuple(f"{domain}/" for domain in names.DOMAINS)
    for resources in containers:
        for name in resources.limits:
            if name.startswith(domains):
                sums[name] = int(sums.get(name, 0)) + _whole(resources.limits, name)
    return sums
