"""The files of shares by claim of NVIDIA's cards: for each request a limits page and a region, which its containers mount."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pumice.apps.node.claim_files import ClaimFiles, install
from pumice.apps.node.files import install_files, make_directory
from pumice.devices.nvidia_vgpu.node.answer import CACHE, LIBRARY, LOCK, PRELOAD
from pumice.effects.vocabulary import InstallFile, MakeDirectory
from pumice.node.claims import ClaimShare, PreparedClaim
from pumice.wire import cdi, limits_page, variables
from pumice.wire.limits_page import GrantedCard, LimitsPage


@dataclass(frozen=True)
class ShareFiles(ClaimFiles):
    """``index``: NVML's index of a card, by its UUID."""

    lock_dir: Path
    index: Callable[[str], int]

    def edits(self, claim: PreparedClaim, request: str, shares: Sequence[ClaimShare]) -> cdi.Edits:
        shares = sorted(shares, key=lambda one: self.index(one.card))
        env = {variables.NVIDIA_VISIBLE_DEVICES: ",".join(dict.fromkeys(one.visible for one in shares))}
        if any(one.admin for one in shares):  # the runtime mounts NVML then, and nothing that computes
            env[variables.NVIDIA_DRIVER_CAPABILITIES] = "utility"
        if not any(one.limited for one in shares):
            return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()))
        file = self.folders.region(claim.uid, request)
        directory, region = file.parent, file.name
        page = self.folders.page(claim.uid, request)
        make_directory(MakeDirectory(str(directory)))
        path = f"{CACHE}/{region}"
        limits = LimitsPage(tuple(GrantedCard(one.card, one.memory, one.cores) for one in shares), path, priority=1)
        if not _says(page, limits):
            install(page, limits_page.render(limits))
        install_files([InstallFile(str(file), b"", 0o666, keep=True, durable=False)])
        env |= {variables.memory_limit_of(at): f"{one.memory >> 20}m" for at, one in enumerate(shares)}
        env |= {variables.SM_LIMIT: str(shares[0].cores), variables.SHARED_CACHE: path}
        read_only = ("ro", "nosuid", "nodev", "bind")
        mounts = (
            cdi.Mount(f"{self.root.parent}/libvgpu.so", LIBRARY, read_only),
            cdi.Mount(f"{self.root.parent}/ld.so.preload", PRELOAD, read_only),
            cdi.Mount(str(page), limits_page.PATH, read_only),
            cdi.Mount(str(directory), CACHE, ("rw", "bind")),
            cdi.Mount(str(file), path, ("rw", "bind")),
            cdi.Mount(str(self.lock_dir), LOCK, ("rw", "bind")),
        )
        return cdi.Edits(env=tuple(f"{key}={value}" for key, value in env.items()), mounts=mounts)


def _says(path: Path, limits: LimitsPage) -> bool:
    """Return whether the page grants that, whatever the monitor has said there since: containers that run have it mapped."""
    try:
        found = limits_page.parse(path.read_bytes())
    except OSError:
        return False
    return found is not None and msgspec.structs.replace(found, lifted=False, held=0, burst=0) == limits
