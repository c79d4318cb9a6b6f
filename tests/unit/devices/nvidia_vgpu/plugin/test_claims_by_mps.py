"""A claim whose programs share a card by MPS: a daemon before the answer, none for the next claim, and one user's programs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kit.mig_rules import RuledSlices
from tests.unit.devices.nvidia_vgpu.plugin.test_claim_attacks import CARDS, Api, key

from pumice.adapters.bookings import claims as book
from pumice.adapters.journal import FileJournal
from pumice.apps.node.card_watch import CardWatch
from pumice.apps.node.control_daemons import ControlDaemons
from pumice.devices.nvidia_vgpu.plugin.claim_daemon import ClaimSlices, NodeClaims, Settings
from pumice.model.errors import Unavailable
from pumice.ports.clock import SystemClock
from pumice.ports.cluster import Cluster
from pumice.ports.mps import DaemonSeen

MPS = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": {"strategy": "MPS", "mpsConfig": {
    "defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "3000Mi"}}}  # fmt: skip


class Daemons:
    """As ``ports.mps.MpsControl``, with daemons that are there at once."""

    def __init__(self) -> None:
        self.alive: dict[str, list[str]] = {}
        self.noted: list[str] = []
        self.clients, self.refuses = 0, ""

    def known(self) -> tuple[str, ...]:
        return tuple(self.noted)

    def look(self, card: str, *, ask: bool) -> DaemonSeen:
        return DaemonSeen(7, answers=True, clients=self.clients) if card in self.alive else DaemonSeen()

    def start(self, card: str) -> None:
        if self.refuses:
            raise Unavailable(self.refuses)
        self.alive[card] = []
        self.noted.append(card)

    def say(self, card: str, *commands: str) -> Sequence[str]:
        self.alive[card] += commands
        return ()

    def servers(self, card: str) -> tuple[int, ...]:
        return ()

    def kill(self, card: str, pid: int) -> None:
        del self.alive[card]

    def quit(self, card: str) -> None:
        del self.alive[card]

    def forget(self, card: str) -> None:
        if card in self.noted:
            self.noted.remove(card)


class Sharing(Api):
    """Claims of a whole card whose name begins with ``mps`` ask for MPS."""

    def _claim(self, name: str) -> Any:
        found = super()._claim(name)
        if name.startswith("mps"):
            config = {"source": "FromClaim", "opaque": {"driver": "gpu.pumice.io", "parameters": MPS}}
            found["status"]["allocation"]["devices"]["config"] = [config]
            found["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"]["cores"] = "100"
        return found


def started(folder: Path, api: Api, daemons: Daemons | None) -> NodeClaims:
    settings = Settings("n1", kubelet_dir=folder / "kubelet", hook_path=folder / "vgpu", lock_dir=folder / "lock",
                        cdi_folder=folder / "cdi", booking_dirs=(folder / "run",), mps_root=folder / "mps")  # fmt: skip
    watch = cast(CardWatch, SimpleNamespace(facts=CARDS, unhealthy={}))
    mig = ClaimSlices(RuledSlices({}), FileJournal(folder / "mig.json"))
    mps = ControlDaemons(daemons, SystemClock(), patience=0.3) if daemons is not None else None
    return NodeClaims(settings, cast(Cluster, api), SystemClock(), watch, mig, mps)


def user(name: str, uid: int, claim: str = "mps", **container: Any) -> dict[str, Any]:
    one = {"name": "c", "securityContext": {"runAsUser": uid}, "resources": {"claims": [{"name": "gpu"}]}, **container}
    return {"metadata": {"namespace": "default", "name": name, "uid": name}, "status": {"phase": "Pending"},
            "spec": {"containers": [one], "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}}  # fmt: skip


def test_a_claim_by_mps_gets_a_daemon_bounded_as_it_asks_and_the_next_one_gets_the_card_without(tmp_path: Path) -> None:
    async def story() -> None:
        api, daemons = Sharing(mps="80Gi", plain="80Gi"), Daemons()
        api.pods = [user("p", 1000), user("q", 1000)]
        node = started(tmp_path, api, daemons)
        await node.resume()
        assert not isinstance(await node.prepare(key("mps")), str)
        assert daemons.alive == {"GPU-0": ["set_default_device_pinned_mem_limit 0 3000M",
                                           "set_default_active_thread_percentage 50"]}  # fmt: skip
        [file] = (tmp_path / "cdi").iterdir()
        [device] = json.loads(file.read_text())["devices"]
        edits = device["containerEdits"]
        assert edits["env"] == [
            "NVIDIA_VISIBLE_DEVICES=GPU-0", "CUDA_MPS_PIPE_DIRECTORY=/mps/GPU-0/pipe",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=3000M", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50"]  # fmt: skip
        assert [(one["hostPath"], one["containerPath"]) for one in edits["mounts"]] == [
            (f"{tmp_path}/mps/GPU-0/pipe", "/mps/GPU-0/pipe"), (f"{tmp_path}/mps/shm", "/dev/shm")]  # fmt: skip
        await node.mps.look()  # type: ignore[union-attr]
        assert "GPU-0" in daemons.alive, "while the claim is booked it stays"
        assert "holds it would be" in str(await node.prepare(key("plain")))
        again = started(tmp_path, api, daemons)  # a driver that restarts
        await again.resume()
        await again.mps.look()  # type: ignore[union-attr]
        assert "GPU-0" in daemons.alive
        daemons.clients = 1
        assert await again.unprepare(key("mps")) == ""
        assert await again.prepare(key("plain")) == "claim default/plain: card GPU-0: programs that share it by MPS still run"
        daemons.clients = 0
        assert not isinstance(await again.prepare(key("plain")), str)
        assert (daemons.alive, daemons.noted) == ({}, [])

    asyncio.run(story())


def test_without_a_daemon_nothing_is_booked_and_the_reason_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        api, daemons = Sharing(mps="80Gi"), Daemons()
        daemons.refuses = "nvidia-cuda-mps-control is not on this node"
        node = started(tmp_path, api, daemons)
        await node.resume()
        assert await node.prepare(key("mps")) == "card GPU-0: nvidia-cuda-mps-control is not on this node"
        assert book.prepared(tmp_path / "run") == []
        bare = started(tmp_path, api, None)
        assert "strategy MPS needs an MPS control daemon" in str(await bare.prepare(key("mps")))

    asyncio.run(story())


@pytest.mark.parametrize(("pods", "why"), [
    ([user("p", 1000), user("q", 1001)], "container c of pod default/q runs as user 1001, and container c of pod default/p as"),
    ([user("p", 1000, volumeMounts=[{"mountPath": "/dev/shm"}])], "mounts /dev/shm of its own"),
    ([user("p", 1000, securityContext={"runAsNonRoot": True})], "as whom container c runs is not known"),
    ([user("p", 1000), user("q", 1001, "other"), {**user("r", 1001), "status": {"phase": "Failed"}}], ""),
])  # fmt: skip
def test_an_mps_server_takes_the_programs_of_one_user_and_who_would_wait_in_silence_is_refused(
    tmp_path: Path, pods: list[Any], why: str
) -> None:
    async def story() -> None:
        api = Sharing(mps="80Gi")
        api.pods = pods
        node = started(tmp_path, api, Daemons())
        await node.resume()
        found = await node.prepare(key("mps"))
        assert why in str(found) if why else not isinstance(found, str)

    asyncio.run(story())
