"""The file of CDI devices that containers are given instead of names in a variable (NVIDIA k8s-device-plugin internal/cdi)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from pumice.ports.cards import CardFacts
from pumice.ports.slices import Slice
from pumice.wire import variables
from pumice.wire.cdi import (
    ALL,
    GPU,
    VENDOR,
    Device,
    DeviceNode,
    Edits,
    Hook,
    Mount,
    Specification,
    qualified,
    specification,
)

READ_ONLY: Final = ("ro", "nosuid", "nodev", "bind")
EXTRAS: Final = {
    "gdrcopy": ("/dev/gdrdrv",),
    "gds": ("/dev/nvidia-fs*",),
    "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
}
"""The device files behind each of the switches, as NVIDIA's toolkit finds them (pkg/nvcdi: gdrcopy.go, gds.go, mofed.go)."""


@dataclass(frozen=True, slots=True)
class Driver:
    """The part of the driver that containers need beside a card's own device file: paths in the container, on the host below
    ``root``.

    ``control``: device files. ``links``: names by which a program loads a library, and the library. ``hook``: the program that
    lets the dynamic linker know of ``folders``; empty where there is none. ``extras``: device files by class.
    """

    root: str = ""
    dev_root: str = ""
    control: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()
    hook: str = ""
    extras: tuple[tuple[str, tuple[str, ...]], ...] = ()


def cards_file(cards: Iterable[CardFacts], slices: Iterable[Slice], driver: Driver) -> Specification:
    """Every card that is whole and every slice, by its UUID."""
    minors = {card.uuid: card.minor for card in cards if card.minor >= 0}
    devices = [Device(card.uuid, _nodes((f"/dev/nvidia{card.minor}",), driver)) for card in cards
               if card.uuid in minors and not card.mig]  # fmt: skip
    devices += [Device(slice_.uuid, _nodes((f"/dev/nvidia{minors[slice_.place.card]}", *slice_.nodes), driver))
                for slice_ in slices if slice_.uuid and slice_.place.card in minors]  # fmt: skip
    mounts = [Mount(driver.root + path, path, READ_ONLY) for path in driver.files]
    mounts += [Mount(driver.root + library, name, READ_ONLY) for name, library in driver.links]
    edits = _nodes(driver.control, driver) + Edits(
        env=(f"{variables.NVIDIA_VISIBLE_DEVICES}=void",), mounts=tuple(mounts), hooks=_hooks(driver)
    )
    return specification(devices, edits)


def extra_file(of: str, driver: Driver) -> Specification:
    """The one device of a class beside the cards."""
    return specification([Device(ALL, _nodes(dict(driver.extras)[of], driver))], of=of)


def moved(document: Any, here: str, root: str) -> Any:
    """A file that was made with the driver's root at ``here``, as the host has it: below ``root``."""
    if isinstance(document, list):
        return [moved(item, here, root) for item in document]
    if not isinstance(document, dict):
        return document
    found = {key: moved(value, here, root) for key, value in document.items()}
    path = found.get("hostPath")
    if isinstance(path, str) and path.startswith(f"{here}/"):
        found["hostPath"] = root.rstrip("/") + path.removeprefix(here)
    return found


def trouble(spec: Specification, wanted: Collection[str]) -> str:
    """Return why containers cannot be given the devices of these qualified names out of the file; empty where they can (Volcano
    pkg/scheduler/api/devices/nvidia/vgpu/metrics.go)."""
    if spec.kind != f"{VENDOR}/{GPU}":
        return f"it is of kind {spec.kind!r}"
    there = {qualified(device.name) for device in spec.devices}
    if missing := sorted(name for name in wanted if name.startswith(spec.kind) and name not in there):
        return f"it lacks {', '.join(missing)}"
    for device in spec.devices:
        if device.name.startswith("MIG") and not any("nvidia-cap" in node.path for node in device.container_edits.device_nodes):
            return f"no device file opens {device.name}"
    return ""


def _nodes(paths: Iterable[str], driver: Driver) -> Edits:
    nodes = (DeviceNode(path, driver.dev_root + path if driver.dev_root else "") for path in dict.fromkeys(paths))
    return Edits(device_nodes=tuple(nodes))


def _hooks(driver: Driver) -> tuple[Hook, ...]:
    if not driver.hook or not driver.folders:
        return ()
    # nvidia-ctk wants to hear that a hook is meant; nvidia-cdi-hook is nothing else
    words = ("hook",) if driver.hook.endswith("nvidia-ctk") else ()
    folders = tuple(word for folder in driver.folders for word in ("--folder", folder))
    return (Hook("createContainer", driver.hook, (driver.hook.rpartition("/")[2], *words, "update-ldcache", *folders)),)
