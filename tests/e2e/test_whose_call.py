"""A real kubelet asks for pods in whatever order; on containerd 2 answers are CDI devices, on Debian's 1.6 they are checked."""

from __future__ import annotations

import asyncio
import datetime
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kit import real_kubelet
from kit.real_shares import THE_KUBELETS_OWN, Burst, numbers_of, stop_for
from kit.seeds import chosen_seed

from pumice.adapters.kube import KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice.wire import names
from pumice.wire.handed_out import parse_handed_out
from pumice.wire.kinds import NODES, PODS
from pumice_lab import kube_control_plane, pki
from pumice_lab.machine import library_dir

NODE, TOKEN = "real-1", "kubelet-token-of-this-test"
PODS_IN_ALL = int(os.environ.get("PUMICE_E2E_PODS", "40"))
"""For each runtime; a soak sets 500."""
BURST = 10
PATIENCE = 240

pytestmark = pytest.mark.e2e


@dataclass
class World:
    node: real_kubelet.RealNode
    kubeconfig: Path
    machine: Path
    by_name: bool
    cards: list[str]
    plugin: subprocess.Popen[bytes] | None = None

    def start_plugin(self) -> None:
        command = [sys.executable, "-m", "pumice", "device-plugin", "nvidia", f"--kubeconfig={self.kubeconfig}",
                   f"--node-name={NODE}", f"--nvml={library_dir()}", f"--hook-path={self.machine.parent}/vgpu",
                   f"--cdi-root={self.node.cdi_folder}", *(["--cdi=on"] if self.by_name else [])]  # fmt: skip
        environ = {**os.environ, "PUMICE_MACHINE": str(self.machine)}
        with (self.machine.parent / "plugin.log").open("ab") as log:
            self.plugin = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def kill_plugin(self) -> None:
        assert self.plugin is not None
        self.plugin.kill()
        self.plugin.wait()

    def logs(self) -> str:
        return (self.machine.parent / "plugin.log").read_text(errors="replace")[-6000:]


@pytest.fixture(params=["containerd-1.6", "containerd-2"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """``containerd-2`` heeds CDI; its folder of CDI devices is no mount here, so that the plugin is told so."""
    if reason := real_kubelet.missing():
        pytest.skip(reason)
    programs = real_kubelet.containerd_2() if request.param == "containerd-2" else None
    if programs is not None and not (programs / "containerd").exists():
        pytest.skip("KUBEBUILDER_ASSETS has no containerd-2 (make kube)")
    now = datetime.datetime.now(datetime.UTC)
    keys = pki.ensure_pki(tmp_path / "pki", ["127.0.0.1", "localhost"], now)
    certificate = pki.issue(keys, "kubelet", [real_kubelet.NODE_IP], now)
    plane = asyncio.run(kube_control_plane.start(
        kube_control_plane.find_assets(), tmp_path, tmp_path, keys, clock=SystemClock(), controller_manager=False,
        users=[f'{TOKEN},system:node:{NODE},{NODE},"system:nodes"']))  # fmt: skip
    kubeconfig = kube_control_plane.kubeconfig(keys, plane.server, tmp_path / "kubeconfig")
    machine, model = tmp_path / "machine", tmp_path / "machine.yaml"
    model.write_text(yaml.safe_dump({"cards": [{"preset": "A100-SXM4-80GB", "count": 4}]}))
    subprocess.run([sys.executable, "-m", "pumice", "machine", "create", str(machine), "--model", str(model)], check=True)
    try:
        with real_kubelet.real_node(tmp_path / "node", plane.server, TOKEN, certificate, NODE, programs=programs) as node:
            world = World(node, kubeconfig, machine, programs is not None, [])
            yield world
    finally:
        if world.plugin is not None:
            world.plugin.kill()
            world.plugin.wait()
        for process in plane.processes.values():
            process.kill()


def test_no_container_starts_with_another_pods_share_and_by_name_none_is_refused(world: World) -> None:
    seed = chosen_seed()
    dice = random.Random(seed)

    async def story() -> None:
        async with KubeClient.from_kubeconfig(world.kubeconfig) as kube:
            await _until_ready(kube, world)
            refused, served = 0, 0
            for number in range(-(-PODS_IN_ALL // BURST)):
                burst = Burst(kube, world.node, world.cards, dice, world.by_name)
                await burst.make(str(number), BURST)
                trouble = dice.choice(("none", "cut", "kill", "kubelet", "none"))
                await burst.bind(lambda: stop_for(world.plugin, 1.5) if trouble == "cut" else None)  # noqa: B023
                if trouble == "kill":
                    await asyncio.sleep(dice.uniform(0, 4))
                    world.kill_plugin()
                    world.start_plugin()
                if trouble == "kubelet":
                    await asyncio.sleep(dice.uniform(1, 6))
                    world.node.restart_kubelet()
                ours, ran = await _settled(burst, world, f"seed {seed}, burst {number}, {trouble}")
                refused, served = refused + ours, served + ran
                for name in burst.pods:
                    await burst.delete(name)
                await _nothing_booked(kube, world)
            assert not world.by_name or refused == 0, f"seed {seed}: {refused} were refused by us"
            assert bool(numbers_of(world.node.cdi_folder)) == world.by_name
            print(f"served {served}, refused {refused}")

    asyncio.run(story())


async def _until_ready(kube: KubeClient, world: World) -> None:
    await _until(lambda: _node_says(kube, "Ready"), 60, "the node")
    world.start_plugin()
    await _until(lambda: _node_says(kube, ""), 60, "the plugin")
    node = await kube.get(NODES, NODE)
    world.cards[:] = [card.split(",")[0] for card in node["metadata"]["annotations"][names.NODE_VGPU_REGISTER].split(":") if card]


async def _node_says(kube: KubeClient, condition: str) -> bool:
    for node in (await kube.list(NODES))["items"]:
        if condition:
            return any(c["type"] == condition and c["status"] == "True" for c in node["status"].get("conditions", ()))
        return node["status"]["allocatable"].get(names.VGPU_NUMBER, "0") != "0"
    return False


async def _settled(burst: Burst, world: World, where: str) -> tuple[int, int]:
    """How many we refused and how many run, once everybody that is still there does one or the other."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        there = {name: status for name, status in (await burst.phases()).items() if name not in burst.gone}
        wrong = [text for name in burst.pods for text in burst.wrong(name)]
        assert not wrong, f"{where}: {wrong}\n{world.logs()}"
        waiting = [name for name, status in there.items() if status.get("phase") not in ("Running", "Failed")
                   or (status["phase"] == "Running" and not _all_told(burst, name))]  # fmt: skip
        if not waiting:
            break
        states = {name: there[name] for name in waiting[:2]}
        assert asyncio.get_running_loop().time() < deadline, f"{where}: {waiting} wait: {states}\n{world.logs()}"
        await asyncio.sleep(0.5)
    failed = {name: _why(status) for name, status in there.items() if status.get("phase") == "Failed"}
    ours = {name: why for name, why in failed.items() if not any(word in why for word in THE_KUBELETS_OWN)}
    if world.by_name:
        assert not ours, f"{where}: {ours}\n{world.logs()}"
        quiet = where.endswith(("none", "cut"))
        assert not quiet or all("SysctlForbidden" in why for why in failed.values()), f"{where}: {failed}"
    print(f"{where}: {len(there) - len(failed)} run, {len(burst.gone)} deleted, {sorted(failed.values())}")
    return len(ours), len(there) - len(failed)


def _why(status: Json) -> str:
    """The pod's reason, or how its containers ended."""
    ended = [each["state"] for kind in ("initContainerStatuses", "containerStatuses") for each in status.get(kind) or ()]
    return f"{status['reason']} {status.get('message')}" if status.get("reason") else str(ended)


def _all_told(burst: Burst, name: str) -> bool:
    return {container["name"] for container in burst.pods[name]["spec"]["containers"]} <= burst.told(name)


async def _nothing_booked(kube: KubeClient, world: World) -> None:
    async def empty() -> bool:
        notes = (await kube.get(NODES, NODE))["metadata"]["annotations"]
        booked = parse_handed_out(notes.get(names.HANDED_OUT, ""))
        return not (await kube.list(PODS, "default"))["items"] and not booked

    await _until(empty, 90, f"books of a node without pods\n{world.logs()}")


async def _until(there, seconds: float, what: str) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not await there():
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds:g} s for {what}"
        await asyncio.sleep(0.2)
