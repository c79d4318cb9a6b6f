"""Detection of a node plugin that manages the cards of this machine, or has allocated them to running pods."""

from __future__ import annotations

import os
from contextlib import closing
from itertools import islice
from pathlib import Path

KUBELET = Path("/var/lib/kubelet/device-plugins")
HOOK = Path("/usr/local/vgpu")
MANY = 256
"""Regions of containers that are looked into."""
LISTENING = "00010000"
NAMES = ("nvidia", "volcano.sock")
"""Beginnings of the names of NVIDIA device plugins' sockets, NVIDIA's own and the older shared one's too."""


def handed_out(machine: Path | None) -> str:
    """The cluster that manages the cards of this machine, worded to follow "the cards are"; empty without one.

    A plugin that restarts does not answer for a moment, and its pods run on: the kubelet's record names them to those who may
    read it, and to all others the regions of containers that use a card.
    """
    kubelet, hook = KUBELET, HOOK
    if socket := serving(machine, KUBELET, Path("/proc/net/unix")):
        return f"handed out by a node plugin ({socket})"
    from pumice.adapters.bookings.claims import held_by_claims
    from pumice.local.place import SHARED

    if allocated := held_by_claims(SHARED if machine is None else (machine / "run",)):
        return next(iter(allocated.values()))
    if machine is not None:
        kubelet, hook = machine.parent / "kubelet" / "device-plugins", machine.parent / "vgpu"
    folders = machine.parent / "pods" if machine is not None else kubelet.parent / "pods"
    if not kubelet.parent.is_dir():
        return ""
    if record := _recorded(kubelet, folders) or _used(hook):
        return f"held by pods ({record}), although no node plugin answers at the moment"
    return ""


def _recorded(kubelet: Path, pods: Path) -> str:
    """The record of a living kubelet in which a pod that is there holds cards; empty when there is none or it may not be read."""
    socket = kubelet / "kubelet.sock"
    if not os.access(kubelet, os.R_OK | os.X_OK) or not socket.exists() or not _answers(socket):
        return ""
    from pumice.adapters.kubelet.checkpoint import NAME, card_holders  # mostly there is no kubelet

    return str(kubelet / NAME) if any(uid and (pods / uid).is_dir() for uid in card_holders(kubelet)) else ""


def _used(hook: Path) -> str:
    """The region of a container that uses a card now."""
    from pumice.adapters.region.extension import live_slots, read_extension

    for region in islice((hook / "vgpu" / "containers").glob("*/*.cache"), MANY):
        if read_extension(region) is not None and live_slots(region):  # of upstream's library dead slots look alive
            return str(region)
    return ""


def serving(machine: Path | None, kubelet: Path = KUBELET, unix: Path = Path("/proc/net/unix")) -> str:
    """The socket of an NVIDIA device plugin that answers for this machine's cards; empty when there is none.

    An emulated machine of ``pumice up`` lies beside the folder of its node's kubelet. Where this user may not look into
    the kubelet's folder, the kernel's list of sockets still names what is listened on.
    """
    folder = machine.parent / "kubelet" / "device-plugins" if machine is not None else kubelet
    try:
        sockets = sorted(path for path in folder.iterdir() if path.name.startswith(NAMES))
    except PermissionError:
        return _listed(folder, unix)
    except OSError:
        return ""
    return next((str(path) for path in sockets if path.suffix == ".sock" and _answers(path)), "")


def _answers(path: Path) -> bool:
    import socket  # slow to load, and there is mostly nobody to knock at

    descriptor = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with closing(socket.socket(socket.AF_UNIX)) as knock:
            knock.settimeout(1.0)
            knock.connect(f"/proc/self/fd/{descriptor}/{path.name}")  # the whole path may be too long for a socket's name
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _listed(folder: Path, unix: Path) -> str:
    try:
        lines = unix.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    rows = (line.split(maxsplit=7) for line in lines)
    wanted = tuple(f"{folder}/{name}" for name in NAMES)
    return next((row[7] for row in rows if len(row) == 8 and row[3] == LISTENING and row[7].startswith(wanted)), "")
