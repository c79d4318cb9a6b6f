"""The memory of modules: their images, the accounting of a container and the card's own count."""

from __future__ import annotations

from kit.vgpu_kit import Container, read_region
from kit.vgpu_talk import Tenant

from pumice_lab import machine


def booked(container: Container) -> tuple[int, int, int]:
    """Context, modules and data of the container's processes, in bytes."""
    used = [slot.used[0] for slot in read_region(container.region).live]
    return sum(one[0] for one in used), sum(one[1] for one in used), sum(one[2] for one in used)


def seen_by_machine(container: Container, *holders: Tenant) -> int:
    shares = [machine.open_machine(container.machine).witness().of(tenant.pid) for tenant in holders]
    return sum(share.bytes for share in shares if share is not None)


def variable(size: int) -> str:
    return f".version,8.0,.target,sm_80,.address_size,64,.visible,.global,.align,16,.b8,g[{size}];"


def silent_variable(size: int) -> str:
    """An image of a format that the library does not know."""
    return f"pumice-global,name=g,bytes={size}"


def unbooked(container: Container, *holders: Tenant) -> int:
    """Return the card's memory beyond the accounting."""
    return seen_by_machine(container, *holders) - read_region(container.region).total()
