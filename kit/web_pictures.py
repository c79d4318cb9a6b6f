"""The pictures of `pumice web` in the documents: a cluster of this machine with emulated cards, in Chromium without a screen.

``python -m kit.web_pictures`` writes docs/assets/web-*.png anew (`make browser` first); their figures are those of that moment.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pumice.adapters.kube import KubeClient
from pumice.wire.kinds import PODS

HOME = Path(__file__).parents[1] / "docs/assets"
MOST = 150_000
"""Bytes of one picture."""
SECONDS = 25
"""Long enough for a monitor to have seen something."""
VIEWS = {
    "cluster": "", "pod": "pod?namespace=default&name=trainer", "waiting": "pod?namespace=default&name=too-large",
}  # fmt: skip
PODS_MADE = {"trainer": (12_000, 40), "notebook": (6_000, 20), "inference": (20_000, 50), "too-large": (90_000, 100)}
"""MiB and percent of cores of each."""


def pod(name: str, mib: int, cores: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "pumice", "burn", "--memory", str(mib // 2), "--kernel-ms", "5", "--seconds", "600"]
    limits = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": str(mib), "volcano.sh/vgpu-cores": str(cores)}
    return {"metadata": {"name": name}, "spec": {
        "schedulerName": "volcano", "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "cuda", "command": command, "resources": {"limits": limits}}]}}  # fmt: skip


def pumice(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "pumice", *arguments], capture_output=True, text=True, timeout=180, check=True)
    return done.stdout


async def taken(kubeconfig: Path, address: str) -> None:
    """Make the pods, wait until they run, and write what a browser shows."""
    from playwright.async_api import async_playwright  # of the extra `browser`

    async with KubeClient.from_kubeconfig(kubeconfig) as kube:
        for name, (mib, cores) in PODS_MADE.items():
            await kube.create(PODS, pod(name, mib, cores), "default")
        async with asyncio.timeout(180):
            while (await kube.get(PODS, "trainer", "default"))["status"].get("phase") != "Running":
                await asyncio.sleep(0.5)
    await asyncio.sleep(SECONDS)
    async with async_playwright() as player:
        flags = ["--no-sandbox", "--disable-gpu", "--no-proxy-server"]
        browser = await player.chromium.launch(executable_path=chromium(), args=flags)
        shown = await browser.new_page(viewport={"width": 1000, "height": 640}, color_scheme="light")
        await shown.goto(address)
        for name, path in VIEWS.items():
            await shown.goto(f"{address.partition('?')[0]}{path}")
            picture = await shown.screenshot()
            assert len(picture) <= MOST, (name, len(picture))
            (HOME / f"web-{name}.png").write_bytes(picture)
        await browser.close()


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        sys.exit("there is no Chromium on the PATH; on Debian: apt install chromium")
    return found


def main() -> None:
    """Bring a cluster up, take the pictures, and take it down."""
    with tempfile.TemporaryDirectory() as folder:
        where = f"--data-dir={folder}/cluster"
        pumice("up", "-d", "--emulated", "--nodes", "2", "--cards", "2", "--model", "A100-SXM4-80GB", where)
        try:
            said, begin = "", time.monotonic()
            while "token=" not in said and time.monotonic() - begin < 60:
                said = pumice("status", where)
            address = next(word for word in said.split() if "token=" in word)
            asyncio.run(taken(Path(folder) / "cluster" / "kubeconfig", address))
        finally:
            pumice("down", where)


if __name__ == "__main__":
    main()
