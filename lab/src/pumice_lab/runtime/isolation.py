"""Which kind of namespaces this machine allows. Standard library only (see spawner)."""

from __future__ import annotations

import os

from pumice_lab.runtime import rootfs


def probe(wanted: str, stage: str) -> tuple[str, str]:
    """The strongest isolation that works here, and why nothing stronger does."""
    reasons = []
    order = {"auto": ("mount", "user") if os.geteuid() == 0 else ("user",)}.get(wanted, (wanted,))
    for isolation in order:
        if isolation == "none":
            return "none", "asked for"
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                rootfs.enter_namespaces(isolation)
                rootfs.build_root(stage, [])
                os._exit(0)
            except BaseException as error:
                os.write(write, str(error).encode()[:500])
            os._exit(1)
        os.close(write)
        _, status = os.waitpid(pid, 0)
        text = os.read(read, 500).decode()
        os.close(read)
        if status == 0:
            return isolation, ""
        reasons.append(text)
    return "none", "; ".join(reasons)
