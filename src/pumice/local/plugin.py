"""Whether a node plugin hands out the cards of this machine: then they are the cluster's to book."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

KUBELET = Path("/var/lib/kubelet/device-plugins")
LISTENING = "00010000"
NAMES = ("nvidia", "volcano.sock")
"""How sockets of NVIDIA device plugins begin, NVIDIA's own and the older shared one's too."""


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
