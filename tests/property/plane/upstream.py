"""A node with upstream's device plugin, as a speaker of its wire: it registers cards in upstream's words alone, and answers
Allocate by the annotations of the pod that waits (HAMi volcano-vgpu-device-plugin pkg/plugin/vgpu). It knows from nothing else
whom it serves, so one pod at a time may wait there: the scheduler takes the node's lock for each, and it gives that back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from kit.fake_cluster import Json
from kit.virtual_time import VirtualClock
from tests.property.plane.node import NUMBER, TICK, Local, Node
from tests.property.plane.processes import Connection
from tests.property.plane.transport import MemoryEndpoint
from tests.property.plane.upstream_judge import CORES, MARK, MEMORY

from pumice.adapters.kubelet.endpoint import Options, PluginError, device_list
from pumice.adapters.kubelet.proto import deviceplugin_pb2 as pb
from pumice.model.amount import MIB
from pumice.ports.cluster import ApiError
from pumice.wire import kinds

SPLIT = 10
REGISTERED, HANDSHAKE, LOCK = "volcano.sh/node-vgpu-register", "volcano.sh/node-vgpu-handshake", "hamivgpu"
PHASE, SLOTS, TIME = "volcano.sh/bind-phase", "volcano.sh/devices-to-allocate", "volcano.sh/vgpu-time"
WAITING = "allocating"
REPORT_EVERY = 30.0


@dataclass
class UpstreamPlugin:
    """``Handler`` of its one endpoint."""

    node: UpstreamNode
    cluster: Connection
    clock: VirtualClock

    async def run(self, stop: asyncio.Event) -> None:
        endpoint = MemoryEndpoint(self.node.link, self.node.plugins, "upstream.sock", self, Options())
        said, told, begun = "", -REPORT_EVERY, False
        await endpoint.start()
        try:
            while not stop.is_set():
                cards = [(card, card.uuid not in self.node.cards.lost) for card in self.node.cards.cards]
                await endpoint.announce(device_list([(f"{c.uuid}-{at}", well, -1) for c, well in cards for at in range(SPLIT)]))
                with suppress(ApiError, PluginError):
                    kubelet = self.node.link.kubelet
                    if kubelet is not None and not (begun and NUMBER in kubelet.registered):
                        await self.node.link.transport.register(self.node.plugins, endpoint.name, NUMBER, Options())
                        begun = True
                    text = "".join(f"{c.uuid},{SPLIT},{c.memory // MIB},NVIDIA-{c.name},{str(well).lower()},hami-core:"
                                   for c, well in cards)  # fmt: skip
                    if text != said or self.clock.monotonic() >= told + REPORT_EVERY:
                        await self._report(text, [card.memory // MIB for card, well in cards if well])
                        said, told = text, self.clock.monotonic()
                await self.clock.sleep(TICK)
        finally:
            await endpoint.stop()

    async def _report(self, text: str, healthy: Sequence[int]) -> None:
        notes = {REGISTERED: text, HANDSHAKE: f"Reported {datetime.fromtimestamp(self.clock.now(), UTC)}"}
        await self.cluster.patch(kinds.NODES, self.node.name, {"metadata": {"annotations": notes}})
        amounts = {MEMORY: str(sum(healthy)), CORES: str(100 * len(healthy))}
        await self.cluster.patch(kinds.NODES, self.node.name, {"status": {"capacity": amounts, "allocatable": amounts}},
                                 subresource="status")  # fmt: skip

    async def allocate(self, ids: Sequence[str]) -> Any:
        try:
            return await self._allocate(ids)
        except ApiError as error:
            raise PluginError(str(error)) from error

    async def _allocate(self, ids: Sequence[str]) -> Any:
        found = (await self.cluster.list(kinds.PODS))["items"]
        waiting = [p for p in found if p["spec"].get("nodeName") == self.node.name and p["status"].get("phase") == "Pending"
                   and p["metadata"].get("annotations", {}).get(PHASE) == WAITING]  # fmt: skip
        if not waiting:
            raise PluginError(f"no pending pod on node {self.node.name}")
        pod = min(waiting, key=lambda p: (p["metadata"]["annotations"].get(TIME, ""), p["metadata"]["uid"]))
        slots = pod["metadata"]["annotations"].get(SLOTS, "").split(";")
        at = next((at for at, slot in enumerate(slots) if "," in slot), -1)
        devices = [entry.split(",") for entry in slots[at].split(":") if "," in entry]
        if len(devices) != len(ids):
            await self._write(pod, {PHASE: "failed"})
            await self._unlock()
            raise PluginError("device number not matched")
        slots[at] = ""
        left = any("," in slot for slot in slots)
        await self._write(pod, {SLOTS: ";".join(slots)} | ({} if left else {PHASE: "success"}))
        if not left:
            await self._unlock()
        envs = {MARK: "upstream", "NVIDIA_VISIBLE_DEVICES": ",".join(one[0] for one in devices)}
        for number, (_, _, memory, cores) in enumerate(devices):
            envs |= {f"CUDA_DEVICE_MEMORY_LIMIT_{number}": f"{memory}m", "CUDA_DEVICE_SM_LIMIT": cores}
        return pb.ContainerAllocateResponse(envs=envs)

    async def _write(self, pod: Json, notes: Json) -> None:
        meta = pod["metadata"]
        body = {"metadata": {"uid": meta["uid"], "annotations": notes}}
        await self.cluster.patch(kinds.PODS, meta["name"], body, meta["namespace"])

    async def _unlock(self) -> None:
        """As upstream's: what is not given back expires after five minutes."""
        with suppress(ApiError):
            await self.cluster.patch(kinds.NODES, self.node.name, {"metadata": {"annotations": {LOCK: None}}})

    async def prefer(self, available: Sequence[str], must: Sequence[str], size: int) -> list[str]:
        return list(available[:size])

    async def pre_start(self, ids: Sequence[str]) -> None:
        """It has no such call."""


class UpstreamNode(Node):
    async def run_plugin(self, cluster: Connection, clock: VirtualClock, rng: Random, stop: asyncio.Event) -> None:
        await UpstreamPlugin(self, cluster, clock).run(stop)

    async def _admit(self, uid: str, found: Local) -> None:
        """Whom the plugin has served, and the kubelet's record has lost, it would serve with another's share."""
        if found.pod["metadata"].get("annotations", {}).get(PHASE) != WAITING and self._wants(found.pod):
            self.refused[uid] = "UnexpectedAdmissionError"
            found.state = "ended"
            await self._report(found, "Failed", reason="UnexpectedAdmissionError", message="its devices were handed out before")
            return
        await super()._admit(uid, found)
