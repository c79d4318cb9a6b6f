"""The facts that a doctor found on a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pumice.node.accounts import Key, Unaccounted
from pumice.node.findings import ConfigText
from pumice.node.pods import AllocatedIds, NodePod
from pumice.ports.cards import CardFacts
from pumice.ports.region import RegionReport
from pumice.wire.nvidia_vgpu import PodDevice
from pumice.wire.objects import Node


@dataclass(frozen=True, slots=True)
class Runtime:
    """A container runtime's configuration: whether it knows NVIDIA's runtime, and which one it takes by default."""

    program: str
    path: str
    knows: bool
    default: str
    error: str = ""
    cdi: bool = True
    """True if it heeds CDI devices, as far as its configuration tells."""


@dataclass(frozen=True, slots=True)
class PluginPod:
    """A pod of this node that has the kubelet's folder of device plugins mounted, as all of them must. ``vgpu``: its words name
    Volcano's resource or its plugins, ours among them."""

    key: str
    image: str
    vgpu: bool


@dataclass(frozen=True, slots=True)
class ContainerState:
    """A container that was given cards: by the plugin's word where it has given one, else by the pod's annotation."""

    pod: NodePod
    container: str
    devices: tuple[PodDevice, ...]
    report: RegionReport | None = None
    trouble: str = ""
    ended: bool = False

    @property
    def key(self) -> Key:
        return self.pod.uid, self.container


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Everything that was found; each ``…_error`` says why something could not be. ``files``: digests of the library's files in
    the hook folder, beside those ``wanted``. ``mps_program``: whether MPS's control program is here, ``mps_shm``: whether
    /dev/shm is the folder below ``mps_root`` that containers get. ``handed``: the plugin's word by pod UID. ``devices_file``:
    of CDI devices, where there is one; ``shares``: how many containers' shares are such devices. ``claimed``: by UUID
    which claims hold a card, under the empty one why that is not known. ``page``: the monitor's."""

    name: str
    driver: str = ""
    driver_error: str = ""
    cards: Sequence[CardFacts] = ()
    runtimes: Sequence[Runtime] = ()
    api_error: str = ""
    device_config: ConfigText | None = None
    node_config: ConfigText | None = None
    node: Node | None = None
    pods: Sequence[NodePod] = ()
    plugins: Sequence[PluginPod] = ()
    kubelet: str = ""
    kubelet_listens: bool = False
    allocated: AllocatedIds | None = None
    hook: str = ""
    files: Mapping[str, str] | None = None
    wanted: Mapping[str, str] | None = None
    mps_program: bool = False
    mps_root: str = ""
    mps_shm: bool = False
    handed: Mapping[str, str] | None = None
    container_states: Sequence[ContainerState] = ()
    unaccounted: Sequence[Unaccounted] = ()
    devices_file: ConfigText | None = None
    shares: int = 0
    claimed: Mapping[str, str] = field(default_factory=dict)
    page: str = ""
    page_at: str = ""
    page_error: str = ""
