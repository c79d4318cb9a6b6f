"""``ports.processes.Owners`` over ``/proc``.

A driver tells host pids (HAMi-core src/utils.c). Outside of the host's PID namespace such a number may be that of another
process, so
there only processes are believed that have loaded the driver's library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pumice.ports.mps import COMM
from pumice.ports.processes import Owner

HOST_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO of the kernel (include/linux/proc_ns.h)."""
_POD: Final = re.compile(r"pod([0-9a-f]{8}[0-9a-f_-]{24,28})\b")
"""Of a cgroup's path; the systemd driver writes underscores (Kubernetes pkg/kubelet/cm/cgroup_manager_linux.go)."""
_CONTAINER: Final = re.compile(r"([0-9a-f]{64})(?:\.scope)?$")


def pod_of(pid: int, proc: Path = Path("/proc")) -> str:
    """The UID of the pod whose process it is, by its cgroup; empty for a process of no pod."""
    try:
        found = _POD.search((proc / str(pid) / "cgroup").read_text("utf-8", "replace"))
    except OSError:
        return ""
    return found[1].replace("_", "-") if found else ""


class ProcOwners:
    """Remembers each process until it is not asked for any more."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._known: dict[int, tuple[str, Owner]] = {}
        with suppress(OSError):
            self._everybody = str((proc / "self/ns/pid").readlink()) == HOST_NAMESPACE

    _everybody = False

    def owners(self, pids: Iterable[int]) -> dict[int, Owner]:
        found: dict[int, tuple[str, Owner]] = {}
        for pid in dict.fromkeys(pids):
            with suppress(OSError, ValueError, IndexError):
                folder = self._proc / str(pid)
                begun = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()[19]
                known = self._known.get(pid)
                if known is not None and known[0] == begun:
                    found[pid] = known
                elif self._everybody or "libcuda.so" in (folder / "maps").read_text("utf-8", "replace"):
                    found[pid] = begun, _owner(folder)
        self._known = found
        return {pid: owner for pid, (_, owner) in found.items()}


def _owner(folder: Path) -> Owner:
    cgroup = (folder / "cgroup").read_text("utf-8", "replace")
    status = (folder / "status").read_text("utf-8", "replace")
    pids = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [folder.name])
    pod = _POD.search(cgroup)
    container = next(filter(None, (_CONTAINER.search(line.strip()) for line in cgroup.splitlines())), None)
    return Owner(
        pod[1].replace("_", "-") if pod else "", container[1] if pod and container else "", int(pids[-1]), len(pids) == 1,
        mps=status.partition("\n")[0].partition("\t")[2] == COMM,
    )  # fmt: skip
