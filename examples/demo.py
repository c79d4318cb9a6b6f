"""The guides, played on a cluster of this machine: bring up, apply, look, take down. `make demo` runs it.

Every step checks what it shows; the first thing that is not as the guide says ends the demo with exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from in_container import run_in_container
from rich.console import Console

from pumice.adapters.kube import KubeClient
from pumice.cli.tables import cards_table
from pumice.devices.registry import all_card_rows
from pumice.ports.cluster import ApiError, Json
from pumice.wire.kinds import CONFIGMAPS, NAMESPACES, NODES, PODS
from pumice.wire.objects import Node, Pod, convert

EXAMPLES = Path(__file__).parent
PUMICE = [sys.executable, "-m", "pumice"]
console = Console(highlight=False, soft_wrap=True)
if not console.is_terminal:
    console.width = 130  # a log has no edge to wrap at


class Failed(Exception):
    """Something is not as the guide says."""


def heading(text: str) -> None:
    console.print(f"\n[bold cyan]▸ {text}[/bold cyan]")


def pumice(*arguments: str) -> str:
    done = subprocess.run([*PUMICE, *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise Failed(f"`pumice {' '.join(arguments)}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


async def apply(kube: KubeClient, file: str, namespace: str = "default") -> list[str]:
    """Create or replace the objects of a file; the names of its pods."""
    pods = []
    for obj in yaml.safe_load_all((EXAMPLES / file).read_text()):
        meta = obj["metadata"]
        if obj["kind"] == "ConfigMap":
            await kube.patch(CONFIGMAPS, meta["name"], {"data": obj["data"]}, meta["namespace"])
        else:
            await kube.create(PODS, obj, namespace)
            pods.append(meta["name"])
    console.print(f"  kubectl apply -n {namespace} -f examples/{file}", style="dim")
    return pods


async def wait_for(what: str, look: Callable[[], Any], seconds: float = 30.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = await look()
        if found:
            return found
        await asyncio.sleep(0.05)
    raise Failed(f"{what}: not within {seconds:.0f} s")


async def running(kube: KubeClient, namespace: str, name: str) -> Json:
    async def look() -> Json | None:
        pod = await kube.get(PODS, name, namespace)
        if pod["status"].get("phase") == "Failed":
            raise Failed(f"pod {namespace}/{name} failed: {pod['status']}")
        return pod if pod["status"].get("phase") == "Running" else None

    return await wait_for(f"pod {namespace}/{name} running", look)


async def show_cards(kube: KubeClient) -> None:
    nodes = [convert(Node, n) for n in (await kube.list(NODES))["items"]]
    pods = [convert(Pod, p) for p in (await kube.list(PODS))["items"]]
    console.print(cards_table(all_card_rows(nodes, pods), console.width))


async def show_env(kube: KubeClient, namespace: str, pod: str, wanted: tuple[str, ...]) -> dict[str, str]:
    result = await run_in_container(kube.access, namespace, pod, "env")
    env = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    console.print(f"  kubectl exec -n {namespace} {pod} -- env", style="dim")
    for key, value in sorted(env.items()):
        if key.startswith(wanted):
            console.print(f"    {key}={value}")
    return env


def expect(condition: bool, text: str) -> None:
    if not condition:
        raise Failed(text)
    console.print(f"  [green]✓[/green] {text}")


async def in_namespace(kube: KubeClient, name: str) -> str:
    await kube.create(NAMESPACES, {"metadata": {"name": name}})
    return name


async def emptied(kube: KubeClient, *namespaces: str) -> None:
    """Delete the pods and wait until nothing of them is left on the cards."""
    for namespace in namespaces:
        for pod in (await kube.list(PODS, namespace))["items"]:
            await kube.delete(PODS, pod["metadata"]["name"], namespace, grace=0)

    async def gone() -> bool:
        return not any([(await kube.list(PODS, namespace))["items"] for namespace in namespaces])

    await wait_for("the pods are gone", gone)


async def two_cards(kube: KubeClient) -> None:
    heading("The guide of the vGPU device plugin: one container, 3000 MiB and half the compute of each of two cards")
    await apply(kube, "vgpu-plugin/scheduler-config.yaml")
    space = await in_namespace(kube, "vgpu-plugin")
    await apply(kube, "vgpu-plugin/gpu-pod1.yaml", space)
    await running(kube, space, "gpu-pod1")
    await show_cards(kube)
    env = await show_env(kube, space, "gpu-pod1", ("CUDA_DEVICE_", "NVIDIA_VISIBLE"))
    expect(env.get("CUDA_DEVICE_MEMORY_LIMIT_1") == "3000m", "each of the two cards is limited to 3000 MiB")
    await emptied(kube, space)


async def shared_card(kube: KubeClient) -> None:
    heading("The vGPU user guides: parts of cards, with and without the mode annotation")
    await apply(kube, "vgpu-user-guide/scheduler-config.yaml")
    plain, with_mode = await in_namespace(kube, "user-guide"), await in_namespace(kube, "with-mode")
    await apply(kube, "vgpu-user-guide/hami-pod.yaml", plain)
    await apply(kube, "vgpu-user-guide/hami-pod-with-mode.yaml", with_mode)
    cards = {(await running(kube, space, "hami-pod"))["metadata"]["annotations"]["volcano.sh/vgpu-ids-new"].split(",")[0]
             for space in (plain, with_mode)}  # fmt: skip
    await show_cards(kube)
    expect(len(cards) == 1, "both pods share one card (binpack)")

    heading("The limit holds: 3000 MiB are granted, the 3001st is refused")
    for mib, code in ((2500, 0), (3001, 1)):
        result = await run_in_container(kube.access, plain, "hami-pod", sys.executable, "-m", "pumice.cli.burn",
                                        "--memory", str(mib), "--kernels", "10")
        console.print(f"  kubectl exec -n {plain} hami-pod -- pumice burn --memory {mib}", style="dim")
        console.print("    " + "\n    ".join((result.stdout + result.stderr).strip().splitlines()[-3:]))
        expect(result.code == code, f"{mib} MiB are {'refused' if code else 'granted'}")

    heading("A pod that cannot fit says why, and what would help")
    await apply(kube, "too-big.yaml", plain)

    async def refused() -> str:
        pod = await kube.get(PODS, "too-big", plain)
        return next((c["message"] for c in pod["status"].get("conditions", ())
                     if c["type"] == "PodScheduled" and c["status"] == "False"), "")  # fmt: skip

    message = await wait_for("too-big told why it waits", refused)
    console.print(f"  {message}")
    expect("memory" in message, "the reason names what is short")
    kubeconfig = str(kube_config)
    console.print(pumice("explain", "pod", "too-big", "-n", plain, "--kubeconfig", kubeconfig))
    await emptied(kube, plain, with_mode)


async def legacy(kube: KubeClient) -> None:
    heading("The guide of legacy GPU sharing: two pods of 1024 MiB on one card")
    await apply(kube, "gpu-sharing/scheduler-config.yaml")
    space = await in_namespace(kube, "gpu-sharing")
    names = await apply(kube, "gpu-sharing/pods.yaml", space)
    indices = {(await running(kube, space, name))["metadata"]["annotations"]["volcano.sh/gpu-index"] for name in names}
    await show_cards(kube)
    env = await show_env(kube, space, "gpu-pod1", ("VOLCANO_GPU_", "NVIDIA_VISIBLE"))
    shown = [env.get(k) for k in ("VOLCANO_GPU_MEMORY_TOTAL", "VOLCANO_GPU_ALLOCATED", "NVIDIA_VISIBLE_DEVICES")]
    expect(shown == ["11178", "1024", "0"] and indices == {"0"}, "both pods are on card 0, as the guide shows")
    await emptied(kube, space)


async def play(kubeconfig: Path) -> None:
    async with KubeClient.from_kubeconfig(kubeconfig) as kube:
        await two_cards(kube)
        await shared_card(kube)
        await legacy(kube)


def main() -> int:
    global kube_config
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--control-plane", choices=("embedded", "kube"), default="embedded")
    options = parser.parse_args()
    began = time.monotonic()
    directory = Path(tempfile.mkdtemp(prefix="pumice-demo-"))
    kube_config = directory / "kubeconfig"
    failed = True
    try:
        heading("One node with two emulated cards of 11,178 MiB")
        console.print(pumice("up", "-d", "--emulated", "--nodes", "1", "--cards", "2", "--data-dir", str(directory),
                             "--control-plane", options.control_plane).strip())  # fmt: skip
        asyncio.run(play(kube_config))
        failed = False
    except (Failed, ApiError) as error:
        console.print(f"[red]✗ {error}[/red]")
        console.print(f"logs are in {directory / 'logs'}")
    finally:
        subprocess.run([*PUMICE, "down", "--data-dir", str(directory)], capture_output=True, timeout=60)
    if failed:
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    console.print(f"\n[bold green]Everything is as the guides say[/bold green] ({time.monotonic() - began:.1f} s)")
    return 0


kube_config = Path()

if __name__ == "__main__":
    sys.exit(main())
