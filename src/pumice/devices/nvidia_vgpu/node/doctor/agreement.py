"""The second half of the table: annotation against card against the kubelet's record against region against process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pumice.devices.nvidia_vgpu.node.doctor.facts import NodeFacts
from pumice.devices.nvidia_vgpu.node.sharing import Sharing
from pumice.model.amount import MIB
from pumice.node.accounts import SENTENCES, Granted, Tenant, signs
from pumice.node.findings import Finding, State
from pumice.wire import names
from pumice.wire.nvidia_vgpu import parse_pod_devices, parse_register

BAD, WARNING = State.BAD, State.WARNING
RESTART: Final = "restart the plugin on this node: it writes the annotation when it starts"
WRITTEN: Final = "delete the pod; somebody in it has written there"


def register(facts: NodeFacts, sharing: Sharing) -> Iterator[Finding]:
    text = facts.node.metadata.annotations.get(names.NODE_VGPU_REGISTER, "") if facts.node is not None else ""
    if not text:
        if facts.cards:
            yield Finding(BAD, f"the node has no annotation {names.NODE_VGPU_REGISTER}: schedulers know none of its cards",
                          "start the plugin on this node; its log says what keeps it from writing")  # fmt: skip
        return
    decoded = parse_register(text)
    for problem in decoded.problems:
        yield Finding(BAD, problem, RESTART)
    told = {card.uuid: card for card in decoded.cards}
    here = {card.uuid: card for card in facts.cards if not sharing.leaves_out(card.index, card.uuid)}
    for uuid in told.keys() - here.keys():
        yield Finding(BAD, f"card {uuid} is registered and not here", f"{RESTART}; or it has fallen off the bus: nvidia-smi -L")
    for uuid, facts_of in here.items():
        card = told.get(uuid)
        if card is None:
            yield Finding(BAD, f"card {uuid} is here and not registered", RESTART)
            continue
        if not card.healthy:
            yield Finding(WARNING, f"card {uuid} is registered as sick: it takes no pods", "the event CardUnhealthy says why")
        units = sharing.units(facts_of.memory)
        if card.total and card.total != units:
            text = f"card {uuid} is registered with {card.total} units of memory, and has {units} by the ConfigMaps"
            yield Finding(WARNING, text, f"{RESTART}; flags of the plugin count before the ConfigMaps")
        if (card.mode == "mig") != facts_of.mig:
            mode = "on" if facts_of.mig else "off"
            yield Finding(BAD, f"card {uuid} is registered in mode {card.mode} and its MIG mode is {mode}", RESTART)


def assignments(facts: NodeFacts, sharing: Sharing) -> Iterator[Finding]:
    here = {card.uuid for card in facts.cards}
    for pod in facts.pods:
        notes = pod.annotations
        if pod.finished or not notes.get(names.VGPU_IDS):
            continue
        if notes.get(names.VGPU_NODE) != facts.name:
            yield Finding(BAD, f"{pod.key} runs here and its annotation is for node {notes.get(names.VGPU_NODE, '')!r}",
                          "delete the pod; it was copied, or bound by two schedulers")  # fmt: skip
            continue
        decoded = parse_pod_devices(notes[names.VGPU_IDS])
        for doubt in decoded.doubts:
            yield Finding(BAD, f"{pod.key}: {doubt.text}", "delete the pod; somebody has written on it")
        wanted = {device.uuid for part in decoded.containers for device in part}
        if facts.cards and (gone := wanted - here):
            where = ", ".join(sorted(gone))
            yield Finding(BAD, f"{pod.key} was given {where}, which is not here", "delete the pod; it is placed anew")
        handed = (facts.handed or {}).get(pod.uid)
        if handed is not None and parse_pod_devices(handed).containers != decoded.containers and _complete(handed):
            yield Finding(BAD, f"{pod.key} says that it has {notes[names.VGPU_IDS]} and was given {handed}",
                          "what was given counts; apply reserved-annotations.yml so that owners cannot write it")  # fmt: skip


def _complete(handed: str) -> bool:
    """Return whether each of its containers was served: until then the plugin's word is shorter than the scheduler's."""
    return all(parse_pod_devices(handed).containers)


def record(facts: NodeFacts, sharing: Sharing) -> Iterator[Finding]:
    if facts.held is None:
        text = f"the kubelet's record of devices in {facts.kubelet} cannot be read"
        yield Finding(State.UNKNOWN, text, "run this as root on the node")
        return
    known = {holding.key: holding.pod for holding in facts.holdings}
    for key, pod in known.items():
        if key not in facts.held and pod.admitted:
            yield Finding(BAD, f"{pod.key}, container {key[1]}, was given cards, and not by the kubelet",
                          "delete the pod; its annotations were written by hand, or it was started past the kubelet")  # fmt: skip
    pods = {pod.uid: pod for pod in facts.pods}
    for uid, container in sorted(facts.held - known.keys()):
        if (other := pods.get(uid)) is not None and not other.finished:
            text = f"{other.key}, container {container}, holds {sharing.number} of the kubelet, and no scheduler chose its cards"
            yield Finding(BAD, text, "delete the pod and write schedulerName: volcano into it")


def regions(facts: NodeFacts, sharing: Sharing) -> Iterator[Finding]:
    for holding in facts.holdings:
        who = f"{holding.pod.key}, container {holding.container}"
        if holding.trouble:
            yield Finding(BAD, f"{who}: {holding.trouble}", WRITTEN)
        cards = [Granted(d.uuid, d.memory * sharing.factor * MIB, d.cores) for d in holding.devices if d.slot < 0]
        for sign in signs(Tenant(cards, holding.claims)):
            yield Finding(BAD, f"{who}: {SENTENCES[sign]}", WRITTEN)


def processes(facts: NodeFacts, sharing: Sharing) -> Iterator[Finding]:
    pods = {pod.uid: pod for pod in facts.pods}
    for one in facts.unaccounted:
        amount = f"{one.memory // MIB} MiB of card {one.card}"
        if one.owner is None:
            yield Finding(BAD, f"a program outside of this node's pods holds {amount}",
                          "nvidia-smi names it; end it, or share the card with it by `pumice run`")  # fmt: skip
            continue
        pod = pods.get(one.owner[0])
        who = f"{pod.key if pod is not None else one.owner[0]}{f', container {one.owner[1]}' if one.owner[1] else ''}"
        if one.region:
            yield Finding(BAD, f"{who} holds {amount} more than its region says", WRITTEN)
        else:
            yield Finding(BAD, f"{who} holds {amount} without a region: no limit holds for it",
                          "is CUDA_DISABLE_CONTROL set, or /etc/ld.so.preload replaced by its image? A program without glibc, or "
                          "linked statically, loads no library")  # fmt: skip
