"""The shared region of a container as values: what ``libvgpu.so`` writes and monitors read (HAMi-core
src/multiprocess/multiprocess_memory_limit.h).

The user's container writes the file, so every number here is a claim; readers have already clamped counts and dropped
what cannot be true (``pumice.adapters.region``).
"""

from __future__ import annotations

from msgspec import Struct

from pumice.model.errors import PumiceError

MAX_DEVICES = 16
MAX_SLOTS = 1024


class BadRegion(PumiceError):
    """The file is no region that we can read: the text says why. ``early`` when it may simply not be ready yet."""

    def __init__(self, text: str, early: bool = False) -> None:
        super().__init__(text)
        self.early = early


class DeviceUse(Struct, frozen=True):
    """The use of one device by a process or a sum of processes: bytes, and percent of the SMs."""

    context: int = 0
    module: int = 0
    data: int = 0
    offset: int = 0
    total: int = 0
    sm: int = 0

    def __add__(self, other: DeviceUse) -> DeviceUse:
        return DeviceUse(self.context + other.context, self.module + other.module, self.data + other.data,
                         self.offset + other.offset, self.total + other.total, self.sm + other.sm)  # fmt: skip


class RegionDevice(Struct, frozen=True):
    """One device of the region: ``index`` in the container, ``limit`` bytes (0 none), ``sm_limit`` percent."""

    index: int
    uuid: str
    limit: int
    sm_limit: int


class RegionProcess(Struct, frozen=True):
    """One live slot. ``use`` has an entry for every device index that the process has touched."""

    slot: int
    pid: int
    host_pid: int
    status: int
    use: dict[int, DeviceUse]


class RegionSnapshot(Struct, frozen=True):
    """One reading. ``version`` is ``0``, ``1.1`` or ``1.2``; ``last_kernel`` is Unix seconds, 0 when unknown."""

    version: str
    devices: tuple[RegionDevice, ...]
    processes: tuple[RegionProcess, ...]
    priority: int = 1
    recent_kernel: int = 0
    utilization_switch: int = 0
    last_kernel: int = 0

    def used(self, device: int) -> DeviceUse:
        """The sum over all processes for one device index."""
        return sum((p.use[device] for p in self.processes if device in p.use), DeviceUse())


class ReportedUse(Struct, frozen=True):
    """Use of one card as a region reports it: its limits there, and the sum of what its processes use, in bytes and percent."""

    limit: int
    sm_limit: int
    use: DeviceUse = DeviceUse()


class RegionReport(Struct, frozen=True):
    """A region as a monitor reads it: what it reports of the cards that its container was given, by UUID. ``processes``:
    slot, pid in the container and on the host of its live slots, the first of them."""

    version: str
    cards: dict[str, ReportedUse]
    processes: tuple[tuple[int, int, int], ...] = ()
    recent_kernel: int = 0
    utilization_switch: int = 0
    last_kernel: int = 0
