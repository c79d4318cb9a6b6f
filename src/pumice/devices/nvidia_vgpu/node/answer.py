"""The answer for a container of a vGPU pod (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu)."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pumice.devices.nvidia_vgpu.node import mps
from pumice.devices.nvidia_vgpu.node.allocations import goes_first
from pumice.devices.nvidia_vgpu.node.inventory import SharedCard, place_of
from pumice.devices.nvidia_vgpu.node.matching import Work
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.node.protocol import Answer, DeviceNode, Mount
from pumice.ports.slices import Place, Slice
from pumice.wire import bursts, cdi, limits_page, variables
from pumice.wire.cdi import CDI_ANNOTATIONS, CDI_FIELD
from pumice.wire.limits_page import GrantedCard, LimitsPage
from pumice.wire.nvidia_vgpu import PodDevice

LIBRARY: Final = "/usr/local/vgpu/libvgpu.so"
PRELOAD: Final = "/etc/ld.so.preload"
CACHE: Final = "/tmp/vgpu"
LOCK: Final = "/tmp/vgpulock"
VOLUME_ROOT: Final = "/var/run/nvidia-container-devices"
CONTROL_NODES: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")

DISABLE: Final = variables.DISABLE_CONTROL


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """The ways to hand cards to a container on this node. Paths are the host's.

    ``present`` are the device nodes that exist (only looked at with device specs); ``allow_disable`` lets
    any value of ``CUDA_DISABLE_CONTROL`` in a pod leave the library out, with ``strict_disable`` only ``true``. ``extras`` are
    the classes of CDI devices that every container with cards gets beside them. Below ``mps_root`` lie the pipes of MPS.
    """

    hook: str = "/usr/local/vgpu"
    lock: str = LOCK
    strategies: tuple[str, ...] = ("envvar",)
    by_index: bool = False
    device_specs: bool = False
    dev_root: str = ""
    present: frozenset[str] = frozenset()
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    log_level: str = ""
    strict_disable: bool = False
    allow_disable: bool = False
    annotation_prefix: str = cdi.ANNOTATION_PREFIX
    extras: tuple[str, ...] = ()
    mps_root: str = ""

    @property
    def cdi(self) -> bool:
        """Return whether CDI devices are named."""
        return CDI_ANNOTATIONS in self.strategies or CDI_FIELD in self.strategies

    def directory(self, pod_uid: str, container: str) -> str:
        """The host directory of one container's shared region."""
        return f"{self.hook}/vgpu/containers/{pod_uid}_{container}"

    @property
    def links(self) -> str:
        """The host folder of links to containers' own folders, for answers by guess."""
        return f"{self.hook}/vgpu/answers"

    def page(self, pod_uid: str, container: str, name: str = "limits") -> str:
        """The host's file of one container's limits page: in a folder of its own, for the container writes into the other."""
        return f"{self.hook}/vgpu/limits/{pod_uid}_{container}/{name}"


def refusal(work: Work, cards: Mapping[str, SharedCard]) -> str:
    """Return why the devices of this work cannot be handed out; empty when they can."""
    for device in work.devices:
        card = cards.get(device.uuid)
        if card is None:
            return f"card {device.uuid} is not on this node, or was taken out by the administrator"
        if not card.healthy:
            return f"card {device.uuid} takes no pods: {card.closed or 'unhealthy'}"
        if card.mode == "mig" and device.slot < 0:
            return f"card {device.uuid} is in MIG mode, and the assignment names no slice of it"
        if card.mode != "mig" and device.slot >= 0:
            return f"card {device.uuid} is not in MIG mode, and the assignment names its slice {device.place}"
    return ""


def burst_warning(work: Work, sharing: Sharing) -> str:
    """Return why the container has nothing, or not all, of what its pod may have beyond what it asked for; empty when it has."""
    notes = work.pod.annotations
    if not bursts.is_asked(notes):
        return ""
    if not sharing.config.bursts:
        return "no burst: the device ConfigMap has no nvidia.bursts: true"
    if sharing.mps:
        return "no burst: this node's cards are shared by MPS, whose server lends nobody more than was asked for"
    if any(device.slot >= 0 for device in work.devices):
        return "no burst: a MIG slice holds its container to its size"
    given = {(device.memory, device.cores) for device in work.devices}
    amiss = [text for _, text in bursts.misspelt(notes)]
    amiss += [text for memory, cores in sorted(given) for _, text in bursts.pointless(notes, memory, cores)]
    if bursts.cores_of(notes) and not sharing.limit_cores:
        amiss.append("no cores are limited on this node, so none are lent")
    return f"no burst for container {work.container.name}: {'; '.join(amiss)}" if amiss else ""


def places(work: Work, cards: Mapping[str, SharedCard], sharing: Sharing) -> tuple[Place, ...] | str:
    """Return where the slices of this work lie, in the order of its devices; or why one of them cannot be."""
    found: list[Place] = []
    for device in work.devices:
        if device.slot >= 0:
            place = place_of(sharing.config, cards[device.uuid].type, device)
            if isinstance(place, str):
                return f"card {device.uuid}: {place}"
            found.append(place)
    return tuple(found)


def build(
    work: Work,
    cards: Mapping[str, SharedCard],
    sharing: Sharing,
    response_options: ResponseOptions,
    rng: random.Random,
    slices: Sequence[Slice] = (),
) -> Answer:
    """The answer for one container whose devices were checked by ``refusal``; ``slices`` are those of them that were cut.

    Limits are numbered in NVML order, because that is how the container enumerates its cards whatever the order of the
    list (Volcano pkg/scheduler/api/devices/util.go). The hardware holds the limits of a slice: a container that has nothing
    else gets no library (Volcano pkg/scheduler/api/devices/util.go).
    """
    devices = sorted((device for device in work.devices if device.slot < 0), key=lambda device: cards[device.uuid].index)
    chosen = list(dict.fromkeys(cards[device.uuid] for device in devices))
    minors = [card.minor for card in chosen] + [cards[slice_.place.card].minor for slice_ in slices]
    region = f"{_uuid4(rng)}.cache"
    bare = opened(chosen, slices, minors, sharing, response_options, rng)
    if not devices:
        return bare
    if sharing.mps:
        return _bound_by_mps(bare, work, devices[0], sharing, response_options)
    return _limited(bare, work, devices, slices, region, sharing, response_options)


def _bound_by_mps(
    bare: Answer, work: Work, device: PodDevice, sharing: Sharing, response_options: ResponseOptions
) -> Answer:
    """On a card shared by MPS its daemon bounds the container, and no library does."""
    percent = mps.percent_of(device, sharing)
    bound, shared = mps.reported(device.uuid, device.memory * sharing.factor, percent, response_options.mps_root)
    note = response_options.page(work.pod.uid, work.container.name, limits_page.MPS_NOTE)
    return replace(
        bare, env={**bare.env, **bound}, mounts=(*bare.mounts, *shared),
        directories=(MakeDirectory(f"{response_options.mps_root}/shm"),),
        files=(InstallFile(note, b"", 0o644, durable=False),),
    )  # fmt: skip


def _limited(
    bare: Answer, work: Work, devices: Sequence[PodDevice], slices: Sequence[Slice], region: str,
    sharing: Sharing, response_options: ResponseOptions,
) -> Answer:  # fmt: skip
    """With the library, its region and the limits that it obeys."""
    env = {**bare.env, **_limits(work, devices, region, sharing, response_options)}
    directory = response_options.directory(work.pod.uid, work.container.name)
    page = response_options.page(work.pod.uid, work.container.name)
    mounts = [
        *bare.mounts,
        Mount(LIBRARY, f"{response_options.hook}/libvgpu.so", read_only=True),
        Mount(limits_page.PATH, page, read_only=True),
        Mount(CACHE, directory),
        Mount(f"{CACHE}/{region}", f"{directory}/{region}"),  # what is mounted cannot be removed: another is another share
        Mount(LOCK, response_options.lock),
    ]
    if not _disabled(work, response_options):
        mounts.append(Mount(PRELOAD, f"{response_options.hook}/ld.so.preload", read_only=True))
    # A container that runs keeps its files, whatever a stale annotation says.
    fresh = not work.pod.running(work.container.name)
    burst = (bursts.memory_of(work.pod.annotations) * sharing.factor) << 20 if sharing.config.bursts else 0
    memories = [(d.memory * sharing.factor) << 20 for d in devices]
    granted = [GrantedCard(d.uuid, memory, d.cores, burst if burst > memory else 0)
               for d, memory in zip(devices, memories, strict=True)]  # fmt: skip
    granted += [GrantedCard(slice_.uuid) for slice_ in slices]
    limits = LimitsPage(tuple(granted), env[variables.SHARED_CACHE], sharing.oversubscribed, sharing.limit_cores,
                        priority=0 if goes_first(work.pod, work.container) else 1)  # fmt: skip
    return replace(
        bare, env=env, mounts=tuple(mounts),
        directories=(MakeDirectory(directory, fresh=fresh), MakeDirectory(response_options.lock)),
        files=(
            InstallFile(page, limits_page.render(limits), 0o644, keep=not fresh, durable=False),
            InstallFile(f"{directory}/{region}", b"", 0o666, keep=True, durable=False),
        ),
        own=(directory, page.rpartition("/")[0]),
        kept=frozenset((variables.SM_LIMIT, *(variables.memory_limit_of(at) for at in range(len(devices))))),
    )  # fmt: skip


def _limits(
    work: Work, devices: Sequence[PodDevice], region: str, sharing: Sharing, response_options: ResponseOptions
) -> dict[str, str]:
    """Return what the environment says of the limits; ``devices`` in the order in which the container counts its cards."""
    env = {variables.memory_limit_of(i): f"{d.memory * sharing.factor}m" for i, d in enumerate(devices)}
    env[variables.SM_LIMIT] = str(next(device.cores for device in work.devices if device.slot < 0))
    env[variables.SHARED_CACHE] = f"{CACHE}/{region}"
    if sharing.oversubscribed:
        env[variables.OVERSUBSCRIBE] = "true"
    if not sharing.limit_cores:
        env[variables.CORE_POLICY] = "disable"
    if response_options.log_level:
        env[variables.LIBRARY_LOG_LEVEL] = response_options.log_level
    return env


def opened(
    cards: Sequence[SharedCard], slices: Sequence[Slice], minors: Sequence[int], sharing: Sharing,
    response_options: ResponseOptions, rng: random.Random,
) -> Answer:  # fmt: skip
    """Return what opens cards and slices, and bounds nobody: the answer for a container that gets slices and nothing else.
    ``minors`` are the cards'."""
    env, mounts = _visible(cards, slices, response_options)
    requested, annotations = _cdi(cards, slices, response_options, rng)
    nodes = _nodes(minors, slices, sharing, response_options)
    return Answer(env=env, mounts=tuple(mounts), nodes=nodes, cdi=requested, annotations=annotations)


def _visible(
    cards: Sequence[SharedCard], slices: Sequence[Slice], response_options: ResponseOptions
) -> tuple[dict[str, str], list[Mount]]:
    ids = [str(card.index) if response_options.by_index else card.uuid for card in cards]
    ids += [slice_.uuid for slice_ in slices]
    env: dict[str, str] = {}
    mounts: list[Mount] = []
    if "envvar" in response_options.strategies:
        env[variables.NVIDIA_VISIBLE_DEVICES] = ",".join(ids)
    elif "volume-mounts" not in response_options.strategies:
        # an image may say "all", which NVIDIA's runtime would obey (Volcano pkg/scheduler/api/devices/nvidia/vgpu/metrics.go)
        env[variables.NVIDIA_VISIBLE_DEVICES] = "void"
    else:
        env[variables.NVIDIA_VISIBLE_DEVICES] = VOLUME_ROOT
        mounts = [Mount(f"{VOLUME_ROOT}/{card}", "/dev/null") for card in ids]
    switches = {
        variables.NVIDIA_GDRCOPY: response_options.gdrcopy,
        variables.NVIDIA_GDS: response_options.gds,
        variables.NVIDIA_MOFED: response_options.mofed,
    }
    env |= {name: "enabled" for name, on in switches.items() if on}
    return env, mounts


def _cdi(
    cards: Sequence[SharedCard], slices: Sequence[Slice], response_options: ResponseOptions, rng: random.Random
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The CDI devices, by the answer's field and by an annotation (Volcano pkg/scheduler/api/devices/nvidia/vgpu/metrics.go)."""
    if not response_options.cdi:
        return (), {}
    devices = (
        *(cdi.qualified(card.uuid) for card in cards),
        *(cdi.qualified(slice_.uuid) for slice_ in slices),
        *(cdi.qualified(cdi.ALL, of) for of in response_options.extras),
    )
    key = f"{response_options.annotation_prefix}nvidia-device-plugin_{_uuid4(rng)}"
    annotations = {key: ",".join(devices)} if CDI_ANNOTATIONS in response_options.strategies else {}
    return devices if CDI_FIELD in response_options.strategies else (), annotations


def _nodes(
    minors: Sequence[int], slices: Sequence[Slice], sharing: Sharing, response_options: ResponseOptions
) -> tuple[DeviceNode, ...]:
    if not (response_options.device_specs or sharing.pass_device_specs):
        return ()
    paths: list[str] = [path for path in CONTROL_NODES if path in response_options.present]
    paths += [f"/dev/nvidia{minor}" for minor in minors if minor >= 0]
    paths += [node for slice_ in slices for node in slice_.nodes]
    return tuple(DeviceNode(path, response_options.dev_root.rstrip("/") + path) for path in dict.fromkeys(paths))


def _disabled(work: Work, response_options: ResponseOptions) -> bool:
    value = work.container.env_value(DISABLE)
    wanted = value is not None and (value == "true" or not response_options.strict_disable)
    return wanted and response_options.allow_disable


def _uuid4(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)


# -- Which files ``libvgpu.so`` needs in the hook directory, and which of them have to be written ---------------------


NAMES: Final = ("libvgpu.so", "ld.so.preload")


def files(library: bytes) -> dict[str, tuple[bytes, int]]:
    """Name to content and mode. The preload file holds the library's path as the container sees it."""
    return {"libvgpu.so": (library, 0o755), "ld.so.preload": (LIBRARY.encode(), 0o644)}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def install(hook: str, library: bytes, present: Mapping[str, str]) -> list[InstallFile]:
    """The files to write. ``present`` maps the names that exist in the hook directory to their digests."""
    return [
        InstallFile(f"{hook}/{name}", content, mode)
        for name, (content, mode) in files(library).items()
        if present.get(name) != digest(content)
    ]
