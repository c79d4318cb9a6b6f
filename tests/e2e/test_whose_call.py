"""A real kubelet asks for pods in whatever order; on containerd 2 answers are CDI devices, on Debian's 1.6 they are guessed and
exchanged. ``make e2e`` plays a tenth of the 500 pods that ``PUMICE_E2E_PODS=250 make e2e`` plays on both, by a printed seed; a
run of so many keeps what became of them."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from kit import real_kubelet
from kit.results import save
from kit.seeds import chosen_seed
from tests.e2e.real_shares import BY_GUESS, THE_KUBELETS_OWN, UNHEARD, Burst, numbers_of, stop_for

from pumice.adapters.kube import KubeClient
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Json
from pumice.wire import names
from pumice.wire.kinds import NODES, PODS
from pumice.wire.nvidia_vgpu import parse_handed_out, parse_pod_devices
from pumice_lab import kube_control_plane, pki
from pumice_lab.machine import library_dir

NODE, TOKEN = "real-1", "kubelet-token-of-this-test"
PODS_IN_ALL = int(os.environ.get("PUMICE_E2E_PODS", "30"))
"""For each runtime."""
WHOLE = 250
BURST = 10
TROUBLES = ("none", "stopped", "cut off", "killed", "restarted", "kubelet", "kubelet and plugin")
"""``stopped``: the plugin gets no processor for a while; ``cut off``: its API server does not answer it."""
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
    line: Line | None = None
    """Between the plugin and the API server."""

    def start_plugin(self) -> None:
        assert self.line is not None
        kubeconfig = self.machine.parent / "plugin.kubeconfig"
        kubeconfig.write_text(self.line.through(self.kubeconfig.read_text()))
        command = [sys.executable, "-m", "pumice", "device-plugin", "nvidia", f"--kubeconfig={kubeconfig}",
                   f"--node-name={NODE}", f"--nvml={library_dir()}", f"--hook-path={self.machine.parent}/vgpu",
                   f"--cdi-root={self.node.cdi_folder}", *(["--cdi=on"] if self.by_name else [])]  # fmt: skip
        environ = {**os.environ, "PUMICE_MACHINE": str(self.machine)}
        with (self.machine.parent / "plugin.log").open("ab") as log:
            self.plugin = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def end_plugin(self, how: int = signal.SIGKILL) -> None:
        assert self.plugin is not None
        self.plugin.send_signal(how)
        self.plugin.wait()

    async def trouble(self, kind: str, rng: random.Random) -> None:
        """Once, at a moment of its own."""
        await asyncio.sleep(rng.uniform(1, 6) if kind.startswith("kubelet") else rng.uniform(0, 4))
        if kind == "cut off":
            assert self.line is not None
            await self.line.cut(rng.uniform(1, 6))
        if kind.startswith("kubelet"):
            self.node.restart_kubelet()
            await asyncio.sleep(rng.uniform(0, 2))
        if kind in ("killed", "restarted", "kubelet and plugin"):
            self.end_plugin(signal.SIGTERM if kind == "restarted" else signal.SIGKILL)
            await asyncio.sleep(rng.choice((0, 0, 3)))
            self.start_plugin()

    def logs(self) -> str:
        return (self.machine.parent / "plugin.log").read_text(errors="replace")[-12000:]


@dataclass
class Line:
    """A port by which a server is reached while it is not cut."""

    server: str
    port: int = 0
    open: bool = True
    writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def serve(self) -> None:
        self.port = (await asyncio.start_server(self._carry, "127.0.0.1", 0)).sockets[0].getsockname()[1]

    def through(self, kubeconfig: str) -> str:
        return kubeconfig.replace(self.server, f"https://127.0.0.1:{self.port}")

    async def cut(self, seconds: float) -> None:
        self.open = False
        for writer in list(self.writers):
            writer.close()
        await asyncio.sleep(seconds)
        self.open = True

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.open:
            writer.close()
            return
        host, port = self.server.removeprefix("https://").split(":")
        with suppress(OSError):
            there, back = await asyncio.open_connection(host, int(port))
            ends = {writer, back}
            self.writers |= ends
            try:
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
            finally:
                self.writers -= ends


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while content := await reader.read(1 << 16):
            writer.write(content)
            await writer.drain()
    writer.close()


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
            world = World(node, kubeconfig, machine, programs is not None, [], line=Line(plane.server))
            yield world
    finally:
        if world.plugin is not None:
            world.plugin.kill()
            world.plugin.wait()
        for process in plane.processes.values():
            process.kill()


@pytest.mark.timeout(300 + 5 * PODS_IN_ALL)
def test_no_container_starts_with_another_pods_share_and_by_name_none_is_refused(world: World) -> None:
    seed = chosen_seed()
    rng = random.Random(seed)
    became: Counter[str] = Counter()
    named = 0

    async def story() -> None:
        nonlocal named
        assert world.line is not None
        await world.line.serve()
        async with KubeClient.from_kubeconfig(world.kubeconfig) as kube:
            await _until_ready(kube, world)
            for number in range(-(-PODS_IN_ALL // BURST)):
                burst = Burst(kube, world.node, world.cards, rng, world.by_name)
                await burst.make(str(number), BURST)
                trouble = rng.choice(TROUBLES)
                happens = asyncio.create_task(world.trouble(trouble, rng))
                await burst.bind(lambda: stop_for(world.plugin, 1.5) if trouble == "stopped" else None)  # noqa: B023
                await asyncio.gather(happens, burst.delete_some())
                became.update(await _settled(burst, world, trouble, f"seed {seed}, burst {number}, {trouble}"))
                await _books_are(kube, world, burst)
                named = max(named, len(numbers_of(world.node.cdi_folder)))
                for name in burst.pods:
                    await burst.delete(name)
                await _nothing_booked(kube, world)

    asyncio.run(story())
    assert bool(named) == world.by_name
    print(json.dumps(dict(became), indent=1))
    if PODS_IN_ALL >= WHOLE:
        runtime = "containerd_2" if world.by_name else "containerd_1"
        save(f"whose_call_{runtime}", {"seed": seed, "pods": PODS_IN_ALL, **became}, keep=True)


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


async def _settled(burst: Burst, world: World, trouble: str, where: str) -> Counter[str]:
    """Return what became of how many, once everybody that is still there runs or has failed."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        there = {name: status for name, status in (await burst.phases()).items() if name not in burst.gone}
        wrong = [text for name in burst.pods for text in burst.wrong(name)]
        assert not wrong, f"{where}: {wrong}\n{world.logs()}"
        waiting = [name for name, status in there.items() if status.get("phase") not in ("Running", "Failed")
                   or (status["phase"] == "Running" and not _all_told(burst, name, status))]  # fmt: skip
        if not waiting:
            break
        states = {name: there[name] for name in waiting[:2]}
        assert asyncio.get_running_loop().time() < deadline, f"{where}: {waiting} wait: {states}\n{world.logs()}"
        await asyncio.sleep(0.5)
    failed = {name: _why(status) for name, status in there.items() if status.get("phase") == "Failed"}
    ours = {name: why for name, why in failed.items() if not any(word in why for word in THE_KUBELETS_OWN)}
    if world.by_name:
        assert not ours, f"{where}: {ours}\n{world.logs()}"
    else:
        unfair = {name: await burst.why_refused(name) for name in ours}
        fair = BY_GUESS + UNHEARD if trouble == "cut off" else BY_GUESS
        assert all(any(word in why for word in fair) for why in unfair.values()), f"{where}: {ours} {unfair}\n{world.logs()}"
    quiet = trouble in ("none", "stopped", "cut off") and world.by_name
    assert not quiet or all("SysctlForbidden" in why for why in failed.values()), f"{where}: {failed}"
    run = len(there) - len(failed)
    print(f"{where}: {run} run, {len(burst.gone)} deleted, {sorted(why[:150] for why in failed.values())}", flush=True)
    unsafe = sum("SysctlForbidden" in why for why in failed.values())
    return Counter({"right": run, "deleted": len(burst.gone), "rejected unsafe": unsafe, "refused by us": len(ours),
                    "lost by the kubelet": len(failed) - len(ours) - unsafe, f"bursts with {trouble}": 1})  # fmt: skip


def _why(status: Json) -> str:
    """The pod's reason, or how its containers ended."""
    ended = [each["state"] for kind in ("initContainerStatuses", "containerStatuses") for each in status.get(kind) or ()]
    return f"{status['reason']} {status.get('message')}" if status.get("reason") else str(ended)


def _all_told(burst: Burst, name: str, status: Json) -> bool:
    """All of its containers but those that a kubelet's end ended at their start."""
    lost = {each["name"] for each in status.get("containerStatuses") or ()
            if any(word in str(each["state"].get("terminated", "")) for word in THE_KUBELETS_OWN)}  # fmt: skip
    return {container["name"] for container in burst.pods[name]["spec"]["containers"]} <= burst.reported(name) | lost


async def _books_are(kube: KubeClient, world: World, burst: Burst) -> None:
    """The node says of everybody who runs what the scheduler gave, and of nobody else."""
    seen: list[object] = []

    async def right() -> bool:
        due = {name for name, status in (await burst.phases()).items()
               if name not in burst.gone and status.get("phase") == "Running"}  # fmt: skip
        booked = await _booked(kube)
        uids = {burst.pods[name]["metadata"]["uid"]: burst.pods[name]["metadata"]["annotations"][names.VGPU_IDS] for name in due}
        due_of = {uid: parse_pod_devices(text).containers for uid, text in uids.items()}
        seen[:] = [(uid, due_of.get(uid), booked.get(uid)) for uid in {*due_of, *booked} if due_of.get(uid) != booked.get(uid)]
        return not seen

    try:
        await _until(right, 60, "books of those who run")
    except AssertionError as error:
        raise AssertionError(f"{error}; (pod, due, booked): {seen}\n{world.logs()}") from error


async def _booked(kube: KubeClient) -> dict[str, object]:
    notes = (await kube.get(NODES, NODE))["metadata"]["annotations"]
    found = parse_handed_out(notes.get(names.HANDED_OUT, ""))
    return {uid: given.containers for uid, given in found.items() if any(given.containers)}


async def _nothing_booked(kube: KubeClient, world: World) -> None:
    async def empty() -> bool:
        return not (await kube.list(PODS, "default"))["items"] and not await _booked(kube)

    await _until(empty, 90, f"books of a node without pods\n{world.logs()}")


async def _until(there, seconds: float, what: str) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not await there():
        assert asyncio.get_running_loop().time() < deadline, f"waited {seconds:g} s for {what}"
        await asyncio.sleep(0.2)
