"""A container as a node's plugin makes it: library, preload and limits page mounted read-only, the region as a file of its own.

As a program: ``walled.py MOUNTS COMMAND...`` runs the command behind those mounts, in a mount namespace of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab/src/pumice_lab/runtime"))
    import rootfs

    mounts = [rootfs.MountRequest(**mount) for mount in json.loads(sys.argv[1])]
    rootfs.enter_namespaces("mount" if os.geteuid() == 0 else "user")
    rootfs.build_root(tempfile.mkdtemp(prefix="walled-"), mounts)
    os.execvpe(sys.argv[2], sys.argv[2:], os.environ | {"LD_PRELOAD": os.environ.pop("INSIDE_PRELOAD", "")})
else:
    import pytest

    from kit.vgpu_kit import LIBRARY, Container
    from pumice.wire import limits_page
    from pumice.wire.limits_page import LimitsPage

    CACHE = "/tmp/vgpu"
    REGION = f"{CACHE}/0.cache"

    def page_of(*cards: limits_page.GrantedCard, **more: bool) -> LimitsPage:
        return LimitsPage(cards, REGION, **more)

    @dataclass
    class Walled(Container):
        """``page`` None: no page is mounted, as by other plugins."""

        page: LimitsPage | bytes | None = None
        mounts: list[dict[str, object]] = field(default_factory=list)

        def __post_init__(self) -> None:
            if not may_mount():
                pytest.skip("no mount namespace to be had here")
            content = limits_page.render(self.page) if isinstance(self.page, LimitsPage) else self.page
            self.mounts = mounts_of(self.directory, content)

        @property
        def region(self) -> Path:
            return self.directory / "cache" / "0.cache"

        def environment(self, **more: str) -> dict[str, str]:
            kept = super().environment()
            del kept["LD_PRELOAD"]
            return {**kept, "CUDA_DEVICE_MEMORY_SHARED_CACHE": REGION, **self.limits, **more}

        def start(self, *command: str | Path, **more: str) -> subprocess.Popen[str]:
            return super().start(sys.executable, "-I", "-S", __file__, json.dumps(self.mounts), *command, **more)

    def mounts_of(directory: Path, page: bytes | None) -> list[dict[str, object]]:
        """Return what a node's plugin mounts, made in a folder on the host; without a page as other plugins do."""
        region = directory / "cache" / "0.cache"
        region.parent.mkdir(exist_ok=True)
        region.parent.chmod(0o1777)
        region.touch()
        region.chmod(0o666)
        (directory / "preload").write_text("/usr/local/vgpu/libvgpu.so")
        mounts = [
            _mount(LIBRARY, "/usr/local/vgpu/libvgpu.so", read_only=True),
            _mount(directory / "preload", "/etc/ld.so.preload", read_only=True),
            _mount(region.parent, CACHE),
            _mount(region, REGION),
        ]
        if page is not None:
            (directory / "limits").write_bytes(page)
            mounts.append(_mount(directory / "limits", limits_page.PATH, read_only=True))
        return mounts

    def _mount(source: Path, target: str, read_only: bool = False) -> dict[str, object]:
        return {"source": str(source), "target": target, "read_only": read_only, "own": False}

    @cache
    def may_mount() -> bool:
        requested = subprocess.run([sys.executable, "-I", "-S", __file__, "[]", "true"], capture_output=True, check=False)
        return requested.returncode == 0
