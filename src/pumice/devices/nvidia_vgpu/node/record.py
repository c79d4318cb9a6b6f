"""The record of what this plugin has handed out, and to which pods: its own books, since whoever owns a pod may write on the pod.

They are published on the node (``wire.handed_out``), where no tenant writes, and read back from there by the next process.
Pods that were served before there was such a record are taken over by their assignment, where it can be true.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pumice.devices.nvidia_vgpu.ask import container_ask
from pumice.devices.nvidia_vgpu.assignment import contradiction, excess, statement
from pumice.devices.nvidia_vgpu.node.grants import turns
from pumice.devices.nvidia_vgpu.node.inventory import SharedCard
from pumice.devices.nvidia_vgpu.node.matching import INIT, Work
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.model.refusal import Refusal
from pumice.node.pods import Container, Held, NodePod
from pumice.wire import names
from pumice.wire.handed_out import parse_handed_out, render_handed_out
from pumice.wire.nvidia_vgpu import PodDevice, parse_pod_devices

Parts = tuple[tuple[PodDevice, ...], ...]


class Record:
    """Per pod the devices of each part of its assignment; a part that was not handed out is empty."""

    def __init__(self, node: str, sharing: Sharing) -> None:
        self._node, self._sharing = node, sharing
        self._held: dict[str, Parts] = {}

    def text(self) -> str:
        """As it is published."""
        return render_handed_out(self._held)

    def note(self, work: Work) -> None:
        """This was handed out."""
        if work.segment == INIT:
            return  # borrowed of a part that is noted in its turn
        parts = list(self._held.get(work.pod.uid, ()))
        parts += [()] * (max(work.parts, work.segment + 1) - len(parts))
        parts[work.segment] = work.devices
        self._held[work.pod.uid] = tuple(parts)

    def forget(self, work: Work) -> None:
        """This was not handed out after all: the call was for somebody else."""
        parts = self._held.get(work.pod.uid, ())
        if 0 <= work.segment < len(parts):
            self._held[work.pod.uid] = tuple(() if at == work.segment else part for at, part in enumerate(parts))

    def resume(self, text: str, pods: Iterable[NodePod], held: Held | None, cards: Mapping[str, SharedCard]) -> None:
        """Begin with what the process before published, and with pods that hold devices and are not named there."""
        known = parse_handed_out(text)
        for pod in pods:
            if pod.finished:
                continue
            if pod.uid in known:
                self._held.setdefault(pod.uid, known[pod.uid].containers)
            elif pod.uid not in self._held and (parts := self._taken_over(pod, held, cards)):
                self._held[pod.uid] = parts

    def _taken_over(self, pod: NodePod, held: Held | None, cards: Mapping[str, SharedCard]) -> Parts:
        notes = pod.annotations
        served = pod.admitted if held is None else any(uid == pod.uid for uid, _ in held)
        if not served or pod.mirror or notes.get(names.VGPU_NODE) != self._node:
            return ()
        decoded = parse_pod_devices(notes.get(names.VGPU_IDS, ""))
        said = statement(pod.spec, self._sharing.config)
        return () if contradiction(said, decoded, cards.__contains__) else decoded.containers

    def keep(self, uids: Collection[str]) -> None:
        """Forget all pods but these."""
        self._held = {uid: parts for uid, parts in self._held.items() if uid in uids}

    def holders(self, pods: Iterable[NodePod]) -> Iterator[tuple[NodePod, Container, PodDevice]]:
        """Which containers of these pods have what. Pods that have ended hold nothing."""
        for pod in pods:
            parts = self._held.get(pod.uid, ()) if not pod.finished else ()
            found = turns(pod, len(parts), self._sharing.number, self._sharing.memory) if parts else ""
            for turn in found if not isinstance(found, str) else ():
                for device in parts[turn.part] if turn.part is not None else ():
                    yield pod, turn.container, device

    def overreach(self, work: Work, cards: Mapping[str, SharedCard]) -> str:
        """Return what the work would give beyond its container's request; empty when nothing."""
        if work.segment == INIT:
            return ""
        ask = container_ask(work.container.name, work.container, self._sharing.config, partial=False)
        if ask is None or isinstance(ask, Refusal):
            return f"container {work.container.name} asks for nothing that can be given" if ask is None else ask.text
        more = excess(ask, work.devices, lambda uuid: cards[uuid].memory)
        return f"its assignment gives container {work.container.name} {more}" if more else ""

    def conflict(self, work: Work, pods: Iterable[NodePod], cards: Mapping[str, SharedCard]) -> str:
        """Whose booking stands in the way of the work; empty when nobody's does. Pods that have ended hold nothing."""
        if work.segment == INIT:
            return ""
        others = {pod.uid: pod.key for pod in pods if not pod.finished and pod.uid != work.pod.uid}
        mine = [*work.devices, *(d for i, part in enumerate(self._held.get(work.pod.uid, ())) if i != work.segment for d in part)]
        for uuid in dict.fromkeys(device.uuid for device in work.devices if device.slot < 0):
            held = {key: [*_on(uuid, self._held[uid])] for uid, key in others.items() if uid in self._held}
            there = [device for devices in held.values() for device in devices] + [d for d in mine if d.uuid == uuid]
            card = cards[uuid]
            room = {
                "shares": (len(there), card.shares),
                "memory": (sum(d.memory for d in there), card.memory),
                "cores": (sum(d.cores for d in there), max(100, card.cores)),
            }
            for what, (sum_, most) in room.items():
                if sum_ > most and any(held.values()):
                    who = ", ".join(key for key, devices in sorted(held.items()) if devices)
                    return f"card {uuid} has {what} {most}, and with what {who} holds it would be {sum_}"
        return ""


def _on(uuid: str, parts: Sequence[Sequence[PodDevice]]) -> Iterable[PodDevice]:
    return (device for part in parts for device in part if device.uuid == uuid)
