"""The table of checks, and the first half of it: what has to be there before a card can be shared (Volcano's vGPU guide asks for
a driver above 440, NVIDIA's runtime as the default one, and the two ConfigMaps)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pumice.devices.nvidia_vgpu.node.doctor_facts import NodeFacts
from pumice.devices.nvidia_vgpu.node.inventory import unfit
from pumice.devices.nvidia_vgpu.node.sharing import MPS, Sharing, effective
from pumice.model.amount import MIB
from pumice.model.errors import BadInput
from pumice.node.accounts import SENTENCES, Granted, Tenant, signs
from pumice.node.findings import Check, Finding, State
from pumice.wire import cdi, names
from pumice.wire.device_config import NvidiaConfig
from pumice.wire.device_config_text import parse_device_config
from pumice.wire.node_config import parse_node_config
from pumice.wire.nvidia_vgpu import parse_pod_devices, parse_register

BAD, WARNING, UNKNOWN = State.BAD, State.WARNING, State.UNKNOWN
OLDEST: Final = 440
"""The driver has to be newer."""
SEEN: Final = "give this container the cards (NVIDIA_VISIBLE_DEVICES=all and NVIDIA's runtime)"
OF_REGIONS: Final = ("Device_utilization_desc_of_container{", "hami_container_device_utilization_ratio{")
"""Series that a container has when the monitor has found its region."""
MODES: Final = ("", "hami-core", "mig", MPS)
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
    reported = {card.uuid: card for card in decoded.cards}
    here = {card.uuid: card for card in facts.cards if not sharing.leaves_out(card.index, card.uuid)}
    for uuid in reported.keys() - here.keys():
        yield Finding(BAD, f"card {uuid} is registered and not here", f"{RESTART}; or it has fallen off the bus: nvidia-smi -L")
    for uuid, facts_of in here.items():
        card = reported.get(uuid)
        if card is None:
            yield Finding(BAD, f"card {uuid} is here and not registered", RESTART)
            continue
        if not card.healthy and not (facts.claimed.get(uuid) or facts.claimed.get("")):
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
    if facts.allocated is None:
        text = f"the kubelet's record of devices in {facts.kubelet} cannot be read"
        yield Finding(State.UNKNOWN, text, "run this as root on the node")
        return
    known = {state.key: state.pod for state in facts.container_states}
    for key, pod in known.items():
        if key not in facts.allocated and pod.admitted:
            yield Finding(BAD, f"{pod.key}, container {key[1]}, was given cards, and not by the kubelet",
                          "delete the pod; its annotations were written by hand, or it was started past the kubelet")  # fmt: skip
    pods = {pod.uid: pod for pod in facts.pods}
    for uid, container in sorted(facts.allocated - known.keys()):
        if (other := pods.get(uid)) is not None and not other.finished:
            text = f"{other.key}, container {container}, holds {sharing.number} of the kubelet, and no scheduler chose its cards"
            yield Finding(BAD, text, "delete the pod and write schedulerName: volcano into it")


def regions(facts: NodeFacts, sharing: Sharing) -> Iterator[Finding]:
    for state in facts.container_states:
        who = f"{state.pod.key}, container {state.container}"
        if state.trouble:
            yield Finding(BAD, f"{who}: {state.trouble}", WRITTEN)
        cards = [Granted(d.uuid, d.memory * sharing.factor * MIB, d.cores) for d in state.devices if d.slot < 0]
        for sign in signs(Tenant(cards, state.report)):
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


def _driver(facts: NodeFacts) -> Iterator[Finding]:
    if facts.driver_error:
        repair = f"install NVIDIA's driver, or {SEEN}; nvidia-smi on the host says why it does not answer"
        yield Finding(BAD, facts.driver_error, repair)
        return
    major = facts.driver.partition(".")[0]
    if not major.isdigit():
        yield Finding(UNKNOWN, f"the driver says that it is version {facts.driver!r}")
    elif int(major) <= OLDEST:
        yield Finding(BAD, f"the driver is version {facts.driver}", f"install one above {OLDEST}")
    if not facts.cards:
        yield Finding(BAD, "the driver shows no card", "nvidia-smi -L and lspci on the host say whether there is one")


def _runtime(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.runtimes:
        yield Finding(UNKNOWN, "no configuration of containerd, Docker or CRI-O is here", "run this on the node itself, as root")
    for runtime in facts.runtimes:
        mend = f"nvidia-ctk runtime configure --runtime={runtime.program} --set-as-default, then restart {runtime.program}"
        if runtime.error:
            yield Finding(BAD, f"{runtime.path}: {runtime.error}", "mend the file")
        elif not runtime.knows:
            yield Finding(BAD, f"{runtime.path} names no NVIDIA runtime: containers get no cards", mend)
        elif runtime.default != "nvidia":
            text = f"{runtime.path} takes {runtime.default or 'another runtime'} by default: containers get no cards"
            yield Finding(BAD, text, f"{mend}; or write runtimeClassName: nvidia into all pods with cards and our DaemonSets")


def _device_config(facts: NodeFacts) -> Iterator[Finding]:
    config = facts.device_config
    if config is None:
        yield _unreached(facts)
    elif config.text is None:
        yield Finding(WARNING, f"there is no ConfigMap {config.where}: the defaults count",
                      "the plugin makes it when it starts and may; or apply volcano-vgpu-device-plugin.yml")  # fmt: skip
    else:
        try:
            warnings = parse_device_config(config.text).warnings
        except BadInput as error:
            yield Finding(BAD, f"ConfigMap {config.where}: {error}", "mend it; a plugin that runs keeps the last good one")
        else:
            for text in warnings:
                yield Finding(WARNING, f"ConfigMap {config.where}: {text}", "mend the key, or take it out")


def _node_config(facts: NodeFacts) -> Iterator[Finding]:
    config = facts.node_config
    if config is None:
        yield _unreached(facts)
        return
    if config.text is None:
        return
    try:
        document = parse_node_config(config.text)
    except BadInput as error:
        yield Finding(BAD, f"{config.where}: {error}", f"kubectl -n kube-system edit configmap {names.NODE_CONFIGMAP}")
        return
    for text in document.warnings:
        yield Finding(WARNING, f"{config.where}: {text}", "mend the entry, or take it out")
    try:
        effective(NvidiaConfig(), document.of(facts.name))
    except BadInput as error:
        yield Finding(BAD, f"{config.where}: {error}", "mend the entry; a plugin that runs keeps the last good one")
    for entry in document.of(facts.name):
        if entry.mode not in MODES:
            yield Finding(BAD, f"{config.where}: operatingmode {entry.mode!r} is not served", "write hami-core, mig or mps")


def _kubelet(facts: NodeFacts) -> Iterator[Finding]:
    if not facts.kubelet_listens:
        yield Finding(BAD, f"no kubelet listens on {facts.kubelet}/kubelet.sock",
                      "is the kubelet running? Run this where that folder is mounted, or name it with --kubelet-dir")  # fmt: skip
    if facts.node is None:
        yield _unreached(facts)
        return
    number = sharing_of(facts).number
    if str(facts.node.status.allocatable.get(number, "0")) == "0":
        yield Finding(BAD, f"the node offers no {number}: no plugin is registered, or all cards are sick",
                      "look at the log of the DaemonSet volcano-device-plugin here, and at the node's events")  # fmt: skip


def _other_plugins(facts: NodeFacts) -> Iterator[Finding]:
    if facts.node is None:
        yield _unreached(facts)
        return
    ours = [pod for pod in facts.plugins if pod.vgpu]
    if len(ours) > 1:
        who = ", ".join(f"{pod.key} ({pod.image})" for pod in ours)
        yield Finding(BAD, f"several plugins serve {names.VGPU_NUMBER}: {who}; the kubelet asks whoever registered last",
                      "delete all of them but one")  # fmt: skip
    offered = str(facts.node.status.allocatable.get(names.WHOLE_GPU, "0"))
    if offered != "0":
        who = ", ".join(pod.key for pod in facts.plugins if not pod.vgpu) or "another plugin"
        text = f"{who} hands the cards out as {names.WHOLE_GPU} ({offered}) as well: a card is given away twice"
        yield Finding(BAD, text, "keep one of the two off this node, by a node selector of its DaemonSet")


def _library(facts: NodeFacts) -> Iterator[Finding]:
    for name, digest in (facts.wanted or {}).items():
        there = (facts.files or {}).get(name)
        if there is None:
            yield Finding(BAD, f"{facts.hook}/{name} is not there: limits do not hold", "restart the plugin on this node")
        elif there != digest:
            yield Finding(WARNING, f"{facts.hook}/{name} is not the one of this version",
                          "restart the plugin on this node; running containers keep the one that they began with")  # fmt: skip


def _mps(facts: NodeFacts) -> Iterator[Finding]:
    if not sharing_of(facts).mps:
        return
    if not facts.mps_program:
        yield Finding(BAD, "operatingmode is mps, and nvidia-cuda-mps-control is not here: no card takes pods",
                      "install it with the driver (its package of compute utilities), or give this container the driver's "
                      "programs (NVIDIA_DRIVER_CAPABILITIES=utility)")  # fmt: skip
    for card in facts.cards:
        if not card.mig and (reason := unfit(card)):
            yield Finding(BAD, f"card {card.uuid}: {reason}", "leave it out (filterdevices), or share this node by hami-core")
    if not facts.mps_shm:
        yield Finding(WARNING, f"/dev/shm is not {facts.mps_root}/shm, which containers get for theirs: programs will not find "
                      "their server's memory", f"mount the host's {facts.mps_root}/shm at /dev/shm of the plugin")  # fmt: skip


def _shares(facts: NodeFacts) -> Iterator[Finding]:
    """Containers whose share is a CDI device start without a card where the runtime passes such devices over."""
    for runtime in facts.runtimes if facts.shares else ():
        if not runtime.cdi:
            text = f"shares are given as CDI devices, and {runtime.path} does not switch CDI on: containers start without cards"
            yield Finding(BAD, text, f"give the plugin --cdi off, or set enable_cdi = true there and restart {runtime.program}")


def _devices_file(facts: NodeFacts) -> Iterator[Finding]:
    """Nobody needs it where cards are named by a variable: then there is none."""
    file, repair = facts.devices_file, "restart the plugin on this node; it writes the file where --device-list-strategy is cdi-*"
    if file is None or file.text is None:
        return
    try:
        named = {device.name for device in cdi.parse(file.text).devices}
    except BadInput as error:
        yield Finding(BAD, f"{file.where}: {error}: containers that are given CDI devices do not start", repair)
        return
    if missing := [card.uuid for card in facts.cards if not card.mig and card.uuid not in named]:
        yield Finding(BAD, f"{file.where} does not name {', '.join(missing)}: its pods wait for ever", repair)
    if gone := sorted(name for name in named if name.startswith("GPU-") and name not in {card.uuid for card in facts.cards}):
        yield Finding(WARNING, f"{file.where} names {', '.join(gone)}, which the driver does not show", repair)
    for runtime in facts.runtimes:
        if not runtime.cdi:
            text = f"{runtime.path} does not switch CDI on: {runtime.program} before 2.0 starts containers without their cards"
            yield Finding(WARNING, text, f"set enable_cdi = true there (from containerd 1.7 on) and restart {runtime.program}")


def _metrics(facts: NodeFacts) -> Iterator[Finding]:
    if facts.page_error:
        yield Finding(WARNING, f"the monitor does not answer on {facts.page_at}: {facts.page_error}",
                      "look at the DaemonSet volcano-vgpu-monitor; another address is named with --metrics")  # fmt: skip
        return
    if facts.cards and "HostGPUMemoryUsage" not in facts.page:
        yield Finding(BAD, f"{facts.page_at} tells of no card: the monitor meets no driver",
                      SEEN.replace("this", "its"))  # fmt: skip
    shown = [line for line in facts.page.splitlines() if line.startswith(OF_REGIONS)]
    for state in facts.container_states:
        meta = state.pod.metadata
        if state.report is not None and not any(f'"{meta.name}"' in line for line in shown):
            text = f"{facts.page_at} tells nothing of {state.pod.key}, which has a region: the monitor looks in another folder"
            yield Finding(BAD, text, f"give plugin and monitor the same HOOK_PATH ({facts.hook} here) and mount it into both")
            return


def sharing_of(facts: NodeFacts) -> Sharing:
    """Return the node's sharing, as far as the ConfigMaps can be read; flags of the plugin are not known here."""
    config, entries = NvidiaConfig(), ()
    try:
        if facts.device_config is not None and facts.device_config.text is not None:
            config = parse_device_config(facts.device_config.text).nvidia
        if facts.node_config is not None and facts.node_config.text is not None:
            entries = parse_node_config(facts.node_config.text).of(facts.name)  # type: ignore[assignment]
        return effective(config, entries)
    except BadInput:
        return effective(config)  # it has a finding of its own


def _claims(facts: NodeFacts) -> Iterator[Finding]:
    if why := facts.claimed.get(""):
        yield Finding(BAD, f"every card is closed to annotated pods: {why}", "look at the driver of claims on this node")
    here = {card.uuid for card in facts.cards}
    for uuid, why in facts.claimed.items():
        if uuid and here and uuid not in here:
            yield Finding(BAD, f"card {uuid} is {why}, and is not here", "delete these pods; or it has fallen off the bus")
        who = sorted(pod.key for pod in facts.pods
                     if not pod.finished and uuid and uuid in pod.annotations.get(names.VGPU_IDS, ""))  # fmt: skip
        if who:
            yield Finding(BAD, f"card {uuid} is {why}, and annotated pods have shares of it: {', '.join(who)}",
                          "delete the pods of one of the two")  # fmt: skip


def _unreached(facts: NodeFacts) -> Finding:
    return Finding(UNKNOWN, facts.api_error or "the API server was not asked", "name --kubeconfig and --node-name")


def _agreed(look: Callable[[NodeFacts, Sharing], Iterable[Finding]]) -> Callable[[NodeFacts], Iterator[Finding]]:
    """For checks that compare the cluster's word with the machine."""

    def checked(facts: NodeFacts) -> Iterator[Finding]:
        if facts.node is None:
            yield _unreached(facts)
        else:
            yield from look(facts, sharing_of(facts))

    return checked


CHECKS: Final = (
    Check("driver", f"a driver above {OLDEST} answers and shows its cards", _driver),
    Check("runtime", "containers get NVIDIA's runtime by default", _runtime),
    Check("device-config", "the device ConfigMap is understood", _device_config),
    Check("node-config", "the node's entries are understood", _node_config),
    Check("kubelet", "the kubelet listens and knows the shares", _kubelet),
    Check("other-plugins", "nobody else hands these cards out", _other_plugins),
    Check("library", "the limiting library lies where containers mount it", _library),
    Check("mps", "every card that is shared by MPS has its control daemon", _mps),
    Check("shares-by-name", "the runtime heeds the CDI devices that are containers' shares", _shares),
    Check("cdi-devices", "the file of CDI devices, where there is one, names the driver's cards", _devices_file),
    Check("claims", "no card has claims and annotated shares, and the book of claims is whole", _claims),
    Check("register", "the node's annotation names the driver's cards", _agreed(register)),
    Check("assignments", "every pod's cards are this node's, as the plugin gave them", _agreed(assignments)),
    Check("kubelet-record", "the kubelet gave devices to those who hold cards", _agreed(record)),
    Check("regions", "every region is as its library writes it", _agreed(regions)),
    Check("processes", "every byte on the cards stands in a region", _agreed(processes)),
    Check("metrics", "the monitor tells of the cards and of all containers", _metrics),
)
